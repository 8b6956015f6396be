"""Long alternatives as lists: a = 1 OR a = 2 OR b = 3 is a IN (1, 2) OR b = 3."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TypeAlias

from sqlglot import exp

Connector: TypeAlias = type[exp.Or] | type[exp.And]
Comparison: TypeAlias = type[exp.EQ] | type[exp.NEQ]


def list_values(root: exp.Expr, types: Mapping[str, str]) -> None:
    """Rewrites a = 1 OR a = 2 as IN, and a <> 1 AND a <> 2 as NOT IN, below the root.

    A list is looked up once, however long; where a is NULL, both forms are. Only whole numbers
    for a column of whole numbers and texts for one of texts are listed, so that no type changes.

    >>> import sqlglot
    >>> tree = sqlglot.parse_one("SELECT a = 1 OR b < 2 OR a = 3")
    >>> list_values(tree, {"a": "BIGINT", "b": "BIGINT"})
    >>> tree.sql()
    'SELECT (a IN (1, 3) OR b < 2)'
    """
    pairs: tuple[tuple[Connector, Comparison], ...] = ((exp.Or, exp.EQ), (exp.And, exp.NEQ))
    for connector, comparison in pairs:
        tops = [n for n in root.find_all(connector) if not isinstance(n.parent, connector)]
        for top in tops:
            _list_parts(top, connector, comparison, types)


def _list_parts(
    top: exp.Expr, connector: Connector, comparison: Comparison, types: Mapping[str, str]
) -> None:
    lists: dict[str, exp.In] = {}
    parts: list[exp.Expr] = []
    comparisons = 0
    for part in top.flatten(unnest=False):
        inner = part.unnest()
        if not isinstance(inner, comparison) or not _is_plain(inner, types):
            parts.append(part)
            continue
        comparisons += 1
        if inner.left.name not in lists:
            listed = lists[inner.left.name] = exp.In(this=inner.left, expressions=[])
            parts.append(listed if connector is exp.Or else exp.Not(this=listed))
        lists[inner.left.name].append("expressions", inner.right)
    if len(lists) < comparisons:
        top.replace(exp.Paren(this=reduce(lambda a, b: connector(this=a, expression=b), parts)))


def _is_plain(comparison: exp.Binary, types: Mapping[str, str]) -> bool:
    """Does it compare a column with a constant of the column's own type?"""
    column, value = comparison.left, comparison.right
    if not isinstance(column, exp.Column) or not isinstance(value, exp.Literal):
        return False
    kind = "VARCHAR" if value.is_string else "BIGINT" if value.name.isdigit() else None
    return types.get(column.name) == kind
