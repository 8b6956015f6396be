"""The clauses of a counting query: what an aggregate counts, and what GROUP BY groups by.

An aggregate is read as the conditions under which a row counts, GROUP BY in all its forms as a
list of grouping sets. A group key is a position, an alias or an expression, and SELECT may show
keys and counts only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, combinations, product

from sqlglot import exp

from psephos.errors import SqlError
from psephos.workload.sql.columns import ColumnNames
from psephos.workload.sql.refusals import check_allowed, refuse

TABLES_LIMIT = 10_000
"""The most grouping sets of one statement."""

Conditions = tuple[exp.Expr, ...]
"""Conditions that must all hold."""

Keys = tuple[exp.Expr, ...]
"""The expressions of one grouping set."""


@dataclass(frozen=True)
class Key:
    """An expression to group by, and what to call it."""

    name: str
    expression: exp.Expr


def conjuncts(condition: exp.Expr | None) -> Conditions:
    """The conditions that must all hold: the parts of the ANDs at the top.

    >>> import sqlglot
    >>> [part.sql() for part in conjuncts(sqlglot.parse_one("a = 1 AND (b = 2 AND c = 3)"))]
    ['a = 1', 'b = 2', 'c = 3']
    """
    if condition is None:
        return ()
    inner = condition.unnest()
    if isinstance(inner, exp.And):
        return tuple(part for side in inner.flatten() for part in conjuncts(side))
    return (inner,)


def is_count(item: exp.Expr) -> bool:
    """Is the item of a SELECT list an aggregate, rather than a key?"""
    node = item.unalias()
    if isinstance(node, exp.Grouping | exp.GroupingId):
        return False
    return node.find(exp.AggFunc, exp.Window, exp.Star) is not None


def count_conditions(item: exp.Expr, sql: str) -> Conditions:
    """The conditions under which the aggregate counts a row; none for COUNT(*)."""
    node = item.unalias()
    if isinstance(node, exp.Filter) and isinstance(node.expression, exp.Where):
        return (*count_conditions(node.this, sql), *conjuncts(node.expression.this))
    if isinstance(node, exp.Count):
        return _conditions_of_count(node, sql)
    if isinstance(node, exp.CountIf):
        return conjuncts(node.this)
    if isinstance(node, exp.Sum):
        conditions = counting_sum(node)
        if conditions is None:
            raise _not_a_count(node, sql)
        return conditions
    if isinstance(node, exp.Window):
        raise refuse("a window function looks at other rows", sql, node, "COUNT(*) ... GROUP BY")
    if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and node.is_star):
        raise refuse("rows are private and cannot be listed", sql, node, "SELECT COUNT(*) FROM ...")
    if isinstance(node, exp.AggFunc):
        raise _not_a_count(node, sql)
    raise refuse(
        "counts are published one by one, and calculating with them comes afterwards",
        sql,
        node,
        "COUNT(*), and calculate with its answers",
    )


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


def group_key(
    expression: exp.Expr,
    select: exp.Select,
    aliases: dict[str, exp.Expr],
    sql: str,
    dialect: str,
    columns: ColumnNames,
) -> Key:
    """The key that a position, an alias or an expression of GROUP BY stands for."""
    place = expression
    if isinstance(expression, exp.Literal) and not expression.is_string:
        number = int(expression.name) if expression.name.isdigit() else 0
        items = select.expressions
        if not 1 <= number <= len(items) or is_count(items[number - 1]):
            raise refuse(
                f"GROUP BY {expression.name} is not the position of a column in SELECT",
                sql,
                expression,
                "the name of a column",
            )
        expression = items[number - 1].unalias()
    elif isinstance(expression, exp.Column) and not expression.table:
        alias = _alias_expression(expression, aliases)
        quoted = bool(expression.this.args.get("quoted"))
        if alias is not None and wording(alias, dialect).casefold() != expression.name.casefold():
            if columns.sources(expression.name, quoted):
                raise refuse(
                    f"{expression.name!r} is both a column and an alias, and dialects differ in "
                    "which of them GROUP BY means",
                    sql,
                    expression,
                    "another alias",
                )
            expression = alias
    check_allowed(expression, sql)
    if expression.find(exp.Column) is None:
        raise refuse("this key names no column", sql, place, "GROUP BY a column")
    names = [name for name, item in aliases.items() if item == expression]
    return Key(names[0] if names else wording(expression, dialect), expression)


def check_selected(
    shown: tuple[exp.Expr, ...], sets: tuple[tuple[Key, ...], ...], sql: str, dialect: str
) -> None:
    """Refuse columns of the SELECT list that are not grouped by; constants and GROUPING() pass."""
    keys = {wording(key.expression, dialect).casefold() for keys in sets for key in keys}
    for item in shown:
        node = item.unalias()
        if isinstance(node, exp.Grouping | exp.GroupingId):
            continue
        check_allowed(node, sql)
        if node.find(exp.Column) is None:
            continue
        text = wording(node, dialect)
        if text.casefold() not in keys:
            raise refuse(f"{text} is selected but not grouped by", sql, node, f"GROUP BY {text}")


def check_aliases(
    condition: exp.Expr, aliases: dict[str, exp.Expr], sql: str, columns: ColumnNames
) -> None:
    """Refuse a condition on an alias, which some dialects know and others do not."""
    for column in condition.find_all(exp.Column):
        alias = _alias_expression(column, aliases)
        if alias is not None and not columns.sources(column.name, quoted=False):
            raise refuse(
                f"{column.name!r} is an alias, and SELECT comes after conditions are decided",
                sql,
                column,
                alias.sql(comments=False),
            )


def wording(expression: exp.Expr, dialect: str) -> str:
    """The expression in the words of its dialect, without table names and comments."""
    plain = exp.Paren(this=expression.copy())
    for column in plain.find_all(exp.Column):
        column.set("table", None)
    for negation in list(plain.find_all(exp.Not)):
        test = negation.this
        if isinstance(test, exp.Is) and isinstance(test.expression, exp.Null):
            # sqlglot would write NOT x IS NULL.
            negation.replace(exp.Is(this=test.this, expression=exp.Not(this=exp.Null())))
    inner: exp.Expr = plain.this
    if isinstance(inner, exp.Column):
        return inner.name
    return inner.sql(dialect, comments=False, copy=False)


def _conditions_of_count(node: exp.Count, sql: str) -> Conditions:
    argument = node.this
    if argument is None or isinstance(argument, exp.Star | exp.Boolean | exp.Literal):
        return ()
    if isinstance(argument, exp.Distinct):
        keys = ", ".join(key.sql(comments=False) for key in argument.expressions)
        raise refuse(
            f"COUNT(DISTINCT {keys}) is not a count of rows; persons are counted by tables of "
            "their own, under [[persons]] in a release file, in Python by data.persons(...)",
            sql,
            node,
            "COUNT(*), which counts rows",
        )
    if node.expressions:
        raise refuse("COUNT takes one argument", sql, node, "COUNT(*)")
    # COUNT(x) counts the rows where x is there.
    return (exp.Not(this=exp.Is(this=argument.copy(), expression=exp.Null())),)


def counting_sum(node: exp.Sum) -> Conditions | None:
    """SUM(CASE WHEN p THEN 1 ELSE 0 END) counts the rows where p holds; None for other sums."""
    argument = node.this.unnest()
    if argument.sql() == "1":
        return ()
    branches: list[exp.Expr] = []
    otherwise: exp.Expr | None = None
    if isinstance(argument, exp.Case):
        branches, otherwise = argument.args["ifs"], argument.args.get("default")
    elif isinstance(argument, exp.If):
        branches, otherwise = [argument], argument.args.get("false")
    results = [branch.args["true"].sql() for branch in branches]
    rest = otherwise.sql() if otherwise is not None else "0"
    if not results or not {*results, rest} <= {"0", "1"}:
        return None
    if results == ["1"] and rest == "0" and not (isinstance(argument, exp.Case) and argument.this):
        return conjuncts(branches[0].this)
    return (exp.EQ(this=argument.copy(), expression=exp.Literal.number(1)),)


def _not_a_count(node: exp.AggFunc, sql: str) -> SqlError:
    inner = node.this.sql(comments=False) if isinstance(node.this, exp.Expr) else "column"
    return refuse(
        f"{node.sql_name()}({inner}) is no count, sum, mean, variance, share or quantile of rows",
        sql,
        node,
        f"SELECT {inner}, COUNT(*) ... GROUP BY {inner}, and work it out from the answers",
    )


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
    """The keys that go in and out of a grouping set together: (a, b), or a single key."""
    if isinstance(item, exp.Tuple):
        return tuple(item.expressions)
    return (item.unnest(),)


def _join(units: Sequence[Keys]) -> Keys:
    return tuple(chain.from_iterable(units))


def _unique(keys: chain[exp.Expr]) -> Keys:
    return tuple(dict.fromkeys(keys))


def _check_number(sets: int, sql: str, place: exp.Expr) -> None:
    if sets > TABLES_LIMIT:
        raise refuse(
            f"this makes {sets:,} tables, over the limit of {TABLES_LIMIT:,}",
            sql,
            place,
            "GROUPING SETS with the tables that are wanted",
        )


def _alias_expression(column: exp.Column, aliases: dict[str, exp.Expr]) -> exp.Expr | None:
    """The expression that SELECT gives this name, if there is one."""
    name = column.name.casefold()
    return next((item for alias, item in aliases.items() if alias.casefold() == name), None)
