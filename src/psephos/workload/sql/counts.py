"""The aggregates that count rows, each as the conditions under which a row counts."""

from __future__ import annotations

from sqlglot import exp

from psephos.errors import SqlError
from psephos.workload.sql.explain import refuse

Conditions = tuple[exp.Expr, ...]


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
    """Does the item of a SELECT list look at more than one row?"""
    node = item.unalias()
    if isinstance(node, exp.Grouping | exp.GroupingId):
        return False
    return node.find(exp.AggFunc, exp.Window, exp.Star) is not None


def counted(item: exp.Expr, sql: str) -> Conditions:
    """The conditions under which the aggregate counts a row; none for COUNT(*)."""
    node = item.unalias()
    if isinstance(node, exp.Filter) and isinstance(node.expression, exp.Where):
        return (*counted(node.this, sql), *conjuncts(node.expression.this))
    if isinstance(node, exp.Count):
        return _count(node, sql)
    if isinstance(node, exp.CountIf):
        return conjuncts(node.this)
    if isinstance(node, exp.Sum):
        return _sum(node, sql)
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


def _count(node: exp.Count, sql: str) -> Conditions:
    argument = node.this
    if argument is None or isinstance(argument, exp.Star | exp.Boolean | exp.Literal):
        return ()
    if isinstance(argument, exp.Distinct):
        keys = ", ".join(key.sql(comments=False) for key in argument.expressions)
        raise refuse(
            f"COUNT(DISTINCT {keys}) is not a count of rows",
            sql,
            node,
            f"SELECT {keys}, COUNT(*) ... GROUP BY {keys}",
        )
    if node.expressions:
        raise refuse("COUNT takes one argument", sql, node, "COUNT(*)")
    # COUNT(x) counts the rows where x is there.
    return (exp.Not(this=exp.Is(this=argument.copy(), expression=exp.Null())),)


def _sum(node: exp.Sum, sql: str) -> Conditions:
    """SUM(CASE WHEN p THEN 1 ELSE 0 END) counts the rows where p holds."""
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
        raise _not_a_count(node, sql)
    if results == ["1"] and rest == "0" and not (isinstance(argument, exp.Case) and argument.this):
        return conjuncts(branches[0].this)
    return (exp.EQ(this=argument.copy(), expression=exp.Literal.number(1)),)


def _not_a_count(node: exp.AggFunc, sql: str) -> SqlError:
    inner = node.this.sql(comments=False) if isinstance(node.this, exp.Expr) else "column"
    return refuse(
        f"{node.sql_name()}({inner}) is not a count of rows",
        sql,
        node,
        f"SELECT {inner}, COUNT(*) ... GROUP BY {inner}, and work it out from the answers",
    )
