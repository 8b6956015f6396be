"""SQL as a way to write workloads: counting queries in any dialect, compiled or refused in words.

A statement is read by sqlglot, checked against a list of what a counting query may hold, and its
conditions and keys are evaluated by DuckDB for every declared value of the columns they name.
The table that FROM names is never opened. Text is compared letter for letter: a collation that
ignores case is not followed, whatever the dialect.
"""

from psephos.workload.sql.compiler import (
    CountTable,
    compile_sql,
    compile_statistics,
    merge_attributes,
    read_sql,
    sql_products,
    sql_statistics,
)
from psephos.workload.sql.persons import read_persons

__all__ = [
    "CountTable",
    "compile_sql",
    "compile_statistics",
    "merge_attributes",
    "read_persons",
    "read_sql",
    "sql_products",
    "sql_statistics",
]
