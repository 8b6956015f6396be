"""Constants that a column is set equal to but can never take: most likely typos."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from sqlglot import exp

from psephos.attribute import Attribute
from psephos.errors import SqlError, name_list
from psephos.values import OTHER, shown_number
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
        attribute = columns.attribute(source)
        binned = source.level is None and attribute.edges is not None
        for constant in constants:
            if isinstance(constant, exp.Null):
                raise refuse(
                    "nothing is ever equal to NULL",
                    statement.sql,
                    constant,
                    f"{column.sql()} IS NULL or {column.sql()} IS NOT NULL",
                )
            if constant.find(exp.Column) or (not binned and _listed(source, constant, columns)):
                continue
            if source.level is None and constant.is_string:
                _check_label(source.name, constant, attribute, statement)
            if not binned and not possible(exp.EQ(this=column.copy(), expression=constant.copy())):
                raise _undeclared(source, constant, attribute, statement)


def _check_label(name: str, constant: exp.Expr, attribute: Attribute, statement: Statement) -> None:
    """Refuses a label in place of its value, and says the value."""
    labels = attribute.names or ()
    if constant.name not in labels or attribute.values[labels.index(constant.name)] is OTHER:
        return
    value = attribute.values[labels.index(constant.name)]
    if attribute.edges is not None:
        lo, hi = value
        low = [f"{name} >= {shown_number(lo)}"] if math.isfinite(lo) else []
        high = [f"{name} < {shown_number(hi)}"] if math.isfinite(hi) else []
        remedy = " AND ".join([*low, *high]) or f"{name} IS NOT NULL"
    else:
        remedy = f"{name} IS NULL" if value is None else f"{name} = {_literal(value)}"
    raise refuse(
        f"{constant.sql()} is a label, and {name} has the values {some_values(attribute)}",
        statement.sql,
        constant,
        remedy,
    )


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
        return not isinstance(attribute.values, range) and constant.name in attribute._positions
    number = number_of(constant)
    if isinstance(attribute.values, range):
        return number in attribute.values
    return type(number) is int and number in attribute._positions


def some_values(attribute: Attribute) -> str:
    """The declared values as SQL would write them, with their labels.

    >>> some_values(Attribute.categories({"F": "Female", "M": "Male", None: "unknown"}))
    "'F' (Female), 'M' (Male), NULL (unknown)"
    """
    values = attribute.values
    if attribute.edges is not None or (isinstance(values, range) and values.step == 1):
        return attribute.some_values()
    labels = attribute.names or ("",) * len(values)
    return name_list(
        _literal(value) + (f" ({label})" if label and label != str(value) else "")
        for value, label in zip(values, labels, strict=True)
        if value is not OTHER
    )


def _literal(value: Any) -> str:
    """A declared value in SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    return str(value) if isinstance(value, int | float) else f"'{value}'"


def _undeclared(
    source: Source, constant: exp.Expr, attribute: Attribute, statement: Statement
) -> SqlError:
    if source.level is not None:
        name = source.level
        have = name_list(f"'{label}'" for label in attribute.level(name).labels)
    else:
        name, have = source.name, some_values(attribute)
    return refuse(
        f"{constant.sql()} is not a declared value of {name!r}; have {have}",
        statement.sql,
        constant,
        "one of the declared values",
    )
