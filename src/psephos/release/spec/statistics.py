"""Statistics in a release file: what an entry of [[tables]] may ask, and what it means."""

from __future__ import annotations

from collections.abc import Sequence
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


def check_statistic(entry: Any, ways: Sequence[str]) -> None:
    """Refuse an entry of [[tables]] whose parts do not make a statistic.

    Args:
        entry: with `statistic`, `of`, `by`, `quantiles`, `share_of` and what tables have
        ways: how else it asks: "sql", "rows/columns", "queries", "builder"
    """
    kind = entry.statistic
    if kind is None:
        raise ValueError('of and by go with a statistic: write statistic = "mean"')
    others = [way for way in ways if way != "rows/columns"]
    if others:
        raise ValueError(
            f"statistic goes with by, or with rows and columns, not with {others[0]}; in SQL write "
            "SUM, AVG or MEDIAN"
        )
    if entry.by and "rows/columns" in ways:
        raise ValueError("the groups of a statistic are given by `by`, or by rows and columns")
    if kind == "share":
        _check_share(entry)
    elif entry.of is None:
        raise ValueError(f'{kind} of what? write of = "income", an attribute of numbers')
    elif entry.share_of is not None:
        raise ValueError('share_of goes with statistic = "share"')
    if kind == "quantiles":
        try:
            checked_levels([float(p) for p in entry.quantiles])
        except WorkloadError as error:
            raise ValueError(str(error)) from None
    elif entry.quantiles:
        raise ValueError('quantiles go with statistic = "quantiles"')
    if entry.target is not None and kind != "sum":
        raise ValueError(f"target: a {kind} has none: {TARGETED_INSTEAD}")


def _check_share(entry: Any) -> None:
    if entry.of is not None:
        raise ValueError("a share is of rows; leave `of` out, and name the groups")
    if not (entry.by or entry.rows or entry.columns):
        raise ValueError('shares of what? write rows = ["sex"], or by = ["sex"]')
    if entry.share_of in ("row", "column") and not (entry.rows and entry.columns):
        raise ValueError(f'share_of = "{entry.share_of}" needs rows and columns')


def entry_statistic(entry: Any, domain: Domain, merged: Domain, unit: str) -> Statistic:
    """The statistic that an entry asks for, over the domain with attributes merged."""
    by: dict[str, QuerySet] = {}
    sides: dict[str, list[str]] = {"rows": [], "columns": []}
    for side in ("by", "rows", "columns", "breakdowns"):
        for text in getattr(entry, side):
            name, queries = grouped_by(domain, text)
            if name in by:
                raise ReleaseError(f"{name!r} is asked about twice; {name}.* asks all levels")
            by[name] = stacked(queries, total()) if entry.totals else queries
            sides.setdefault(side, []).append(name)
    # The cells of a row add up to 100 %: their whole sums over the columns.
    within = {"row": sides["columns"], "column": sides["rows"]}.get(entry.share_of or "")
    median = entry.statistic == "median"
    kind: StatisticKind = "quantiles" if median else entry.statistic
    levels = (0.5,) if median else tuple(float(p) for p in entry.quantiles)
    question = StatisticQuestion(
        kind,
        entry.of or "",
        tuple(by.items()),
        levels,
        None if within is None else tuple(within),
        unit=unit,
    )
    return question.statistic(domain, merged)
