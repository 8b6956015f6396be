"""Constants that a column is set equal to but can never take: most likely typos."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from sqlglot import exp

from psephos.attribute import Attribute
from psephos.errors import SqlError, name_list
from psephos.values import OTHER
from psephos.workload.sql.bins import number_of
from psephos.workload.sql.columns import Columns, Source
from psephos.workload.sql.explain import refuse
from psephos.workload.sql.statement import Statement


def check_constants(
    expression: exp.Expr,
    statement: Statement,
    columns: Columns,
    possible: Callable[[exp.Expr], bool],
) -> None:
    """Refuses sex = 'X' unless 'X' is declared; `possible` tells if a condition ever holds."""
    for column, constants in _equalities(expression):
        if not isinstance(column, exp.Column):
            continue
        source = columns.resolve(column, statement.sql, statement.tables)
        binned = source.level is None and columns.attribute(source).edges is not None
        for constant in constants:
            if isinstance(constant, exp.Null):
                raise refuse(
                    "nothing is ever equal to NULL",
                    statement.sql,
                    constant,
                    f"{column.sql()} IS NULL or {column.sql()} IS NOT NULL",
                )
            if binned or constant.find(exp.Column) or _listed(source, constant, columns):
                continue
            if not possible(exp.EQ(this=column.copy(), expression=constant.copy())):
                raise _undeclared(source, constant, columns.attribute(source), statement)


def _equalities(expression: exp.Expr) -> Iterator[tuple[exp.Expr, list[exp.Expr]]]:
    """What is compared for equality, and with what: =, <>, IN and CASE x WHEN."""
    for node in expression.walk():
        if isinstance(node, exp.EQ | exp.NEQ):
            yield node.left.unnest(), [node.right.unnest()]
            yield node.right.unnest(), [node.left.unnest()]
        elif isinstance(node, exp.In):
            yield node.this.unnest(), [value.unnest() for value in node.expressions]
        elif isinstance(node, exp.Case) and node.this is not None:
            yield node.this.unnest(), [branch.this.unnest() for branch in node.args["ifs"]]


def _listed(source: Source, constant: exp.Expr, columns: Columns) -> bool:
    """A quick yes for the plain case; only DuckDB knows what '7' means to a number."""
    attribute = columns.attribute(source)
    if source.level is not None:
        return constant.is_string and constant.name in attribute.level(source.level).labels
    if constant.is_string:
        return not isinstance(attribute.values, range) and constant.name in attribute.values
    number = number_of(constant)
    if isinstance(attribute.values, range):
        return number in attribute.values
    return type(number) is int and number in attribute._positions


def some_values(attribute: Attribute) -> str:
    """The declared values as SQL would write them.

    >>> some_values(Attribute.categories({"F": "Female", "M": "Male", None: "unknown"}))
    "'F', 'M', NULL"
    """
    values = attribute.values
    if attribute.edges is not None or (isinstance(values, range) and values.step == 1):
        return attribute.some_values()
    shown = (
        "NULL" if v is None else f"'{v}'" if not isinstance(v, int | float) else v
        for v in values
        if v is not OTHER
    )
    return name_list(shown)


def _undeclared(
    source: Source, constant: exp.Expr, attribute: Attribute, statement: Statement
) -> SqlError:
    remedy = "one of the declared values"
    if source.level is not None:
        name = source.level
        have = name_list(f"'{label}'" for label in attribute.level(name).labels)
    else:
        name, have = source.name, some_values(attribute)
        value = dict(zip(attribute.names or (), attribute.values, strict=False)).get(constant.name)
        if value is not None and value is not OTHER:
            remedy = f"{value!r}, the value with that label"
    return refuse(
        f"{constant.sql()} is not a declared value of {name!r}; have {have}",
        statement.sql,
        constant,
        remedy,
    )
