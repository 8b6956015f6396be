"""Constants in conditions, compared with the values that are declared.

A constant that a column is set equal to but can never take is refused: most likely a typo.

A condition on a binned column may compare it with numbers only, and is decided exactly or refused.
It depends on nothing but the order of the column and these numbers, so they are replaced by ranks
among all marks (edges and numbers): mark k has rank 2k + 1, the gap below it rank 2k. A bin is
then a run of ranks, and a condition that is not the same on all of them cuts the bin.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlglot import exp

from psephos.domain.attribute import Attribute
from psephos.domain.levels import shown_number
from psephos.domain.values import OTHER
from psephos.errors import SqlError, name_list
from psephos.values import Array
from psephos.workload.sql.columns import ColumnNames, ColumnSource
from psephos.workload.sql.refusals import refuse
from psephos.workload.sql.statement import Statement

COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)


@dataclass(frozen=True)
class Ranks:
    """The marks of one binned attribute, and the ranks (`points`) that its bins span.

    >>> ranks = Ranks.of(Attribute.bins([0, 10, math.inf]), [5])
    >>> ranks.marks, ranks.of_number(5)
    ((0, 5, 10), 3)
    >>> ranks.points, ranks.starts                 # [0, 10) holds 0, the gap, 5, the gap
    (array([1, 2, 3, 4, 5, 6]), array([0, 4]))
    """

    marks: tuple[float, ...]
    points: Array
    starts: Array  # where each bin begins in `points`; each cell that stands apart has rank -1

    @classmethod
    def of(cls, attribute: Attribute, numbers: Sequence[float]) -> Ranks:
        edges = attribute.edges or ()
        marks = tuple(sorted({edge for edge in edges if math.isfinite(edge)} | set(numbers)))
        first = 0 if math.isinf(edges[0]) else _rank(marks, edges[0])
        stop = 2 * len(marks) + 1 if math.isinf(edges[-1]) else _rank(marks, edges[-1])
        inner = [_rank(marks, edge) for edge in edges[1:-1]]
        points, starts = np.arange(first, stop), np.array([first, *inner]) - first
        for _ in attribute.apart:
            points, starts = np.append(points, -1), np.append(starts, len(points))
        return cls(marks, points, starts)

    def of_number(self, number: float) -> int:
        return _rank(self.marks, number)

    @property
    def bins(self) -> Array:
        """The bin of every point."""
        return np.repeat(np.arange(len(self.starts)), np.diff([*self.starts, len(self.points)]))


def compared_numbers(column: exp.Column, name: str, sql: str) -> list[exp.Expr]:
    """The nodes of the numbers that a binned column is compared with; all else is refused."""
    node: exp.Expr = column
    while isinstance(node.parent, exp.Paren):
        node = node.parent
    parent = node.parent
    others: list[exp.Expr] = []
    if isinstance(parent, COMPARISONS):
        others = [parent.right if parent.left is node else parent.left]
    elif isinstance(parent, exp.Between) and parent.this is node:
        others = [parent.args["low"], parent.args["high"]]
    elif isinstance(parent, exp.In) and parent.this is node:
        others = parent.expressions
    elif isinstance(parent, exp.Is) and isinstance(parent.expression, exp.Null):
        return []
    if not others or any(number_of(other) is None for other in others):
        raise refuse(
            f"{name!r} is binned, so it can only be compared with numbers",
            sql,
            column,
            f"{name} < number or {name} >= number, with an edge of its bins",
        )
    return others


def number_of(node: exp.Expr) -> float | None:
    """The number that a node writes down, or None."""
    node = node.unnest()
    if isinstance(node, exp.Neg):
        inner = number_of(node.this)
        return None if inner is None else -inner
    if not isinstance(node, exp.Literal) or node.is_string:
        return None
    try:
        return int(node.name) if node.name.isdigit() else float(node.name)
    except ValueError:
        return None


def whole_bins(codes: Array, axis: int, ranks: Ranks) -> tuple[Array, int | None]:
    """Codes of bins instead of points, and the first bin whose points differ, if there is one."""
    low = np.minimum.reduceat(codes, ranks.starts, axis=axis)
    high = np.maximum.reduceat(codes, ranks.starts, axis=axis)
    cut = np.flatnonzero(np.moveaxis(low != high, axis, 0).reshape(len(ranks.starts), -1).any(1))
    return low, int(cut[0]) if len(cut) else None


def cut_message(name: str, attribute: Attribute, ranks: Ranks, cell: int) -> tuple[str, str]:
    """Why a cut bin cannot be counted, and which comparisons would do."""
    lo, hi = attribute.values[cell]
    inside = [mark for mark in ranks.marks if lo < mark < hi]
    at = f"at {inside[0]:g}" if inside else f"at its lower edge {lo:g}, which belongs to it"
    edges = " or ".join(f"{edge:g}" for edge in (lo, hi) if math.isfinite(edge))
    reason = f"this cuts the bin {attribute.label(cell)} of {name!r} {at}"
    remedy = f"{name} < edge or {name} >= edge, the nearest being {edges}"
    return reason, remedy if inside == [] else f"{remedy}; or declare an edge at {inside[0]:g}"


def check_constants(
    expression: exp.Expr,
    statement: Statement,
    columns: ColumnNames,
    possible: Callable[[exp.Expr], bool],
) -> None:
    """Refuse sex = 'X' unless 'X' is declared; `possible` tells if a condition ever holds."""
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


def _rank(marks: Sequence[float], mark: float) -> int:
    """2k + 1 for mark k; marks ascend."""
    return 2 * bisect_left(marks, mark) + 1


def _check_label(name: str, constant: exp.Expr, attribute: Attribute, statement: Statement) -> None:
    """Refuse a label in place of its value, and say the value."""
    labels = attribute.names or ()
    if constant.name not in labels or attribute.values[labels.index(constant.name)] is OTHER:
        return
    value = attribute.values[labels.index(constant.name)]
    if attribute.edges is not None and value is not None:
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


def _listed(source: ColumnSource, constant: exp.Expr, columns: ColumnNames) -> bool:
    """Is the constant plainly one of the values? If not, DuckDB may still find it equal to one."""
    attribute = columns.attribute(source)
    if source.level is not None:
        return constant.is_string and constant.name in attribute.level(source.level).labels
    if constant.is_string:
        return not isinstance(attribute.values, range) and constant.name in attribute._positions
    number = number_of(constant)
    if isinstance(attribute.values, range):
        return number in attribute.values
    return type(number) is int and number in attribute._positions


def _literal(value: Any) -> str:
    """A declared value in SQL."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    return str(value) if isinstance(value, int | float) else f"'{value}'"


def _undeclared(
    source: ColumnSource, constant: exp.Expr, attribute: Attribute, statement: Statement
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
