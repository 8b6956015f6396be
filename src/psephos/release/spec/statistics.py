"""Statistics in a release file: what an entry of [[tables]] may ask, and what it means."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

from psephos.domain.domain import Domain
from psephos.errors import ReleaseError, WorkloadError
from psephos.workload.queries import stacked, total
from psephos.workload.query_sets import QuerySet
from psephos.workload.statistics import (
    Statistic,
    StatisticKind,
    StatisticQuestion,
    checked_levels,
    grouped_by,
)

StatisticName = Literal["sum", "mean", "variance", "stddev", "median", "quantiles", "share"]
TARGETED_INSTEAD = (
    "its precision depends on the data, so it cannot be promised; give a target to the counts "
    '(rows and columns) or to the sums (statistic = "sum") that it follows from, as a table of '
    "their own"
)
"""Why a statistic has no target, and what has."""


def statistic_mistakes(entry: Any, ways: Sequence[str]) -> Iterator[str]:
    """What keeps the parts of an entry of [[tables]] from making a statistic.

    Args:
        entry: with `statistic`, `of`, `by`, `quantiles`, `share_of` and what tables have
        ways: how else it asks: "sql", "rows/columns", "queries", "builder"
    """
    kind = entry.statistic
    if kind is None:
        yield 'of and by go with a statistic: write statistic = "mean"'
    others = [way for way in ways if way != "rows/columns"]
    if others:
        yield (
            f"statistic goes with by, or with rows and columns, not with {others[0]}; in SQL write "
            "SUM, AVG or MEDIAN"
        )
    if entry.by and "rows/columns" in ways:
        yield "the groups of a statistic are given by `by`, or by rows and columns"
    if kind == "share":
        yield from _share_mistakes(entry)
    elif entry.of is None:
        yield f'{kind} of what? write of = "income", an attribute of numbers'
    elif entry.share_of is not None:
        yield 'share_of goes with statistic = "share"'
    if kind == "quantiles":
        try:
            checked_levels([float(p) for p in entry.quantiles])
        except WorkloadError as error:
            yield str(error)
    elif entry.quantiles:
        yield 'quantiles go with statistic = "quantiles"'
    if entry.target is not None and kind != "sum":
        yield f"target: a {kind} has none: {TARGETED_INSTEAD}"


def _share_mistakes(entry: Any) -> Iterator[str]:
    if entry.of is not None:
        yield "a share is of rows; leave `of` out, and name the groups"
    if not (entry.by or entry.rows or entry.columns):
        yield 'shares of what? write rows = ["sex"], or by = ["sex"]'
    if entry.share_of in ("row", "column") and not (entry.rows and entry.columns):
        yield f'share_of = "{entry.share_of}" needs rows and columns'


def entry_statistic(entry: Any, domain: Domain, merged: Domain, unit: str) -> Statistic:
    """The statistic that an entry asks for, over the domain with attributes merged."""
    sides = (*entry.by, *entry.rows, *entry.columns, *entry.breakdowns)
    by = asked_sides(domain, sides, totals=entry.totals)
    # The cells of a row add up to 100 %: their whole sums over the columns.
    across = {"row": entry.columns, "column": entry.rows}.get(entry.share_of or "")
    within = None if across is None else tuple(grouped_by(domain, text)[0] for text in across)
    median = entry.statistic == "median"
    kind: StatisticKind = "quantiles" if median else entry.statistic
    levels = (0.5,) if median else tuple(float(p) for p in entry.quantiles)
    question = StatisticQuestion(
        kind,
        entry.of or "",
        by,
        levels,
        within,
        unit=unit,
    )
    return question.statistic(domain, merged)


def asked_sides(
    domain: Domain, sides: Sequence[str], *, totals: bool
) -> tuple[tuple[str, QuerySet], ...]:
    """What rows, columns and breakdowns ask of each attribute, each named once."""
    factors: dict[str, QuerySet] = {}
    for text in sides:
        name, queries = grouped_by(domain, text)
        if name in factors:
            raise ReleaseError(f"{name!r} is asked about twice; {name}.* asks all levels")
        factors[name] = stacked(queries, total()) if totals else queries
    return tuple(factors.items())
