"""GROUP BY in all its forms, as a list of grouping sets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain, combinations, product

from sqlglot import exp

from psephos.workload.sql.explain import refuse

SETS_LIMIT = 10_000
Keys = tuple[exp.Expr, ...]


def grouping_sets(group: exp.Group | None, selected: Keys, sql: str) -> list[Keys]:
    """The sets of keys to group by; no GROUP BY at all is the one empty set.

    Items of the list multiply: GROUP BY a, CUBE (b, c) has the sets of a times those of the cube.
    `selected` are the keys that GROUP BY ALL stands for.

    >>> import sqlglot
    >>> statement = sqlglot.parse_one("SELECT COUNT(*) FROM t GROUP BY a, ROLLUP (b, c)")
    >>> [[key.sql() for key in keys] for keys in grouping_sets(statement.args["group"], (), "")]
    [['a', 'b', 'c'], ['a', 'b'], ['a']]
    """
    if group is None:
        return [()]
    if group.args.get("totals"):
        raise refuse("WITH TOTALS is not supported", sql, "TOTALS", "GROUPING SETS ((a), ())")
    if group.args.get("all"):
        return [selected]
    items = list(group.expressions)
    for kind in ("rollup", "cube", "grouping_sets"):
        for item in group.args.get(kind) or ():
            if item.expressions:
                items.append(item)
            else:  # GROUP BY a, b WITH ROLLUP
                items = [type(item)(expressions=items)]
    choices = [_sets(item, sql) for item in items]
    _check_number(math.prod(len(sets) for sets in choices), sql, group)
    return [_unique(chain.from_iterable(choice)) for choice in product(*choices)]


def _sets(item: exp.Expr, sql: str) -> list[Keys]:
    """The grouping sets of one item of the GROUP BY list."""
    units = [_unit(part) for part in item.expressions]
    if isinstance(item, exp.Rollup):
        return [_join(units[:n]) for n in range(len(units), -1, -1)]
    if isinstance(item, exp.Cube):
        _check_number(2 ** len(units), sql, item)
        sizes = range(len(units), -1, -1)
        return [_join(chosen) for n in sizes for chosen in combinations(units, n)]
    if isinstance(item, exp.GroupingSets):
        return [keys for part in item.expressions for keys in _sets(part, sql)]
    return [_unit(item)]


def _unit(item: exp.Expr) -> Keys:
    """(a, b) goes in and out as one; parentheses around a single key mean nothing."""
    if isinstance(item, exp.Tuple):
        return tuple(item.expressions)
    return (item.unnest(),)


def _join(units: Sequence[Keys]) -> Keys:
    return tuple(chain.from_iterable(units))


def _unique(keys: chain[exp.Expr]) -> Keys:
    return tuple(dict.fromkeys(keys))


def _check_number(sets: int, sql: str, place: exp.Expr) -> None:
    if sets > SETS_LIMIT:
        raise refuse(
            f"this makes {sets:,} tables, over the limit of {SETS_LIMIT:,}",
            sql,
            place,
            "GROUPING SETS with the tables that are wanted",
        )
