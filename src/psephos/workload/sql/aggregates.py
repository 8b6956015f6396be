"""What an aggregate of the SELECT list asks: a count, a sum, or a statistic that follows from them.

VARIANCE and STDDEV divide by the number of rows, as VAR_POP and STDDEV_POP do: beside privacy noise
the one row less of VAR_SAMP is nothing. Quantiles are values of the column, as QUANTILE_DISC has
them; of bins, they are interpolated. A share is a count over the sum of counts in a window.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from psephos.workload.sql.clauses import (
    Conditions,
    conjuncts,
    count_conditions,
    counting_sum,
)
from psephos.workload.sql.refusals import check_allowed, refuse
from psephos.workload.statistics import StatisticKind

MOMENTS: dict[type[exp.Expr], StatisticKind] = {
    exp.Sum: "sum",
    exp.Avg: "mean",
    exp.Variance: "variance",
    exp.VariancePop: "variance",
    exp.Stddev: "stddev",
    exp.StddevPop: "stddev",
    exp.StddevSamp: "stddev",
}
"""Aggregates of one argument."""
QUANTILES = (exp.PercentileCont, exp.PercentileDisc, exp.Quantile)


@dataclass(frozen=True)
class Count:
    """An aggregate: its name, the conditions under which a row counts, and of what it is."""

    name: str
    conditions: Conditions
    kind: StatisticKind = "count"
    argument: exp.Expr | None = None
    levels: tuple[float, ...] = ()
    scale: float = 1.0
    partition: tuple[exp.Expr, ...] = ()
    place: exp.Expr | None = None


def read_aggregate(item: exp.Expr, sql: str, dialect: str) -> Count:
    """The aggregate that an item of the SELECT list is."""
    name, node = item.alias or item.sql(dialect), item.unalias()
    conditions: Conditions = ()
    if isinstance(node, exp.Filter) and isinstance(node.expression, exp.Where):
        conditions, node = conjuncts(node.expression.this), node.this
    if isinstance(node, exp.Div) and isinstance(node.expression, exp.Window):
        return _share(node, name, sql)
    if isinstance(node, exp.Sum) and counting_sum(node) is not None:
        return Count(name, (*count_conditions(node, sql), *conditions))
    kind = MOMENTS.get(type(node))
    if kind is not None and isinstance(node.this, exp.Expr):
        argument = node.this.unnest()
        _check_argument(argument, node, sql)
        return Count(name, conditions, kind, argument, place=node)
    if isinstance(node, exp.Median):
        _check_argument(node.this, node, sql)
        return Count(name, conditions, "quantiles", node.this.unnest(), (0.5,), place=node)
    quantile = _quantile(node, sql)
    if quantile is not None:
        argument, levels = quantile
        return Count(name, conditions, "quantiles", argument, levels, place=node)
    return Count(name, (*count_conditions(node, sql), *conditions))


def _check_argument(argument: exp.Expr, node: exp.Expr, sql: str) -> None:
    if isinstance(argument, exp.Distinct):
        raise refuse("DISTINCT looks at other rows", sql, node, "the aggregate without DISTINCT")
    check_allowed(argument, sql)
    if argument.find(exp.Column) is None:
        raise refuse("this sums no column", sql, node, "COUNT(*), and multiply its answers")


def _quantile(node: exp.Expr, sql: str) -> tuple[exp.Expr, tuple[float, ...]] | None:
    """The column and the levels of QUANTILE(x, p) or PERCENTILE_CONT(p) WITHIN GROUP (ORDER BY)."""
    if isinstance(node, exp.WithinGroup) and isinstance(node.this, QUANTILES):
        (ordered,) = node.expression.expressions
        if ordered.args.get("desc"):
            raise refuse("quantiles are counted upwards", sql, node, "ORDER BY without DESC")
        argument, levels = ordered.this.unnest(), node.this.this
    elif isinstance(node, QUANTILES):
        levels = node.args.get("quantile") or node.expression
        argument = node.this.unnest()
    else:
        return None
    numbers = levels.expressions if isinstance(levels, exp.Array) else [levels]
    try:
        shares = tuple(float(number.name) for number in numbers)
    except (AttributeError, ValueError):
        shares = ()
    if not shares or not all(0 < share < 1 for share in shares):
        raise refuse(
            "a quantile is at a share of rows between 0 and 1", sql, node, "QUANTILE(column, 0.5)"
        )
    _check_argument(argument, node, sql)
    return argument, shares


def _share(node: exp.Div, name: str, sql: str) -> Count:
    """100.0 * COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY ...)."""
    window, top, scale = node.expression, node.this.unnest(), 1.0
    if isinstance(top, exp.Mul):
        sides = [top.this.unnest(), top.expression.unnest()]
        number = next((side for side in sides if isinstance(side, exp.Literal)), None)
        rest = [side for side in sides if side is not number]
        if number is not None and len(rest) == 1 and not number.is_string:
            scale, top = float(number.name), rest[0]
    whole = window.this
    same = isinstance(whole, exp.Sum) and whole.this.unnest() == top
    framed = window.args.get("order") or window.args.get("spec")
    if not isinstance(top, exp.Count) or not same or framed or scale <= 0:
        raise refuse(
            "a share is a count over the sum of the same counts",
            sql,
            node,
            "100.0 * COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY column)",
        )
    partition = tuple(key.unnest() for key in window.args.get("partition_by") or ())
    conditions = count_conditions(top, sql)
    return Count(name, conditions, "share", None, (), scale, partition, place=node)
