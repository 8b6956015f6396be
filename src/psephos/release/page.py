"""The page of a release as HTML: its facts, then every table with its errors, beside a chart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from psephos.release.forecast import Forecast
from psephos.release.page_facts import (
    ReleaseFacts,
    amount_text,
    budget_text,
    groups_of,
    guarantee_of,
    interval_method,
    questions_of,
    rivals_of,
    shifts_of,
    spending_of,
    synthetic_of,
    unit_text,
)
from psephos.release.page_statistics import statistic_result
from psephos.release.request import in_order, ordered_columns
from psephos.release.spec.entries import View
from psephos.release.spec.tables import Table
from psephos.release.statistics import count_rows
from psephos.release.views import Views
from psephos.report import charts
from psephos.report.html import Cell, HtmlTable, IntervalBar
from psephos.report.numbers import count_text, digits_for, interval, plus_minus
from psephos.report.page import (
    Page,
    Pairs,
    PlanFacts,
    Result,
    Rivals,
    Spending,
    TableChart,
    page_html,
)
from psephos.report.points import PART, Points
from psephos.version import __version__

CHARTED_ROWS = 50_000
"""A table with more numbers than this has no chart, which could show but few of them."""
NO_INTERVAL = "How far these numbers are off is not known, so no interval is printed."
PAGE_ROWS = 200
"""The most rows of a table that the page shows."""


def write_report(
    forecast: Forecast,
    views: Views,
    place: Path,
    receipt: Mapping[str, Any] | None = None,
    reason: str = "",
) -> None:
    """Write the page of a release.

    Args:
        forecast: what was planned, with its rivals
        views: the numbers
        place: where the page goes
        receipt: the ledger's record of the charge, as it lies in the bundle
        reason: why the best strategy was measured, where "auto" decided that
    """
    page = page_of(ReleaseFacts(forecast, views, receipt or {}), reason)
    place.write_text(page_html(page), encoding="utf-8")


def page_of(release: ReleaseFacts, reason: str = "") -> Page:
    """All that the page shows of a release; the reason is why no other plan was taken."""
    spending, rivals = spending_of(release), replace(rivals_of(release), reason=reason)
    return framed_page(release, _glance(release), spending, rivals)


def framed_page(
    release: ReleaseFacts,
    glance: Pairs,
    spending: Spending,
    rivals: Rivals | None,
    plan: PlanFacts | None = None,
) -> Page:
    """The page around what differs between releases by a strategy and by a plan that adapts."""
    file, unit = release.file, release.job.unit
    charge = release.charge
    paragraphs = (part.strip() for part in file.description.split("\n\n"))
    return Page(
        title=file.title or file.name,
        publisher=file.publisher,
        description=tuple(part for part in paragraphs if part),
        simulation=release.simulation,
        maker=f"psephos {__version__}",
        year=None if charge is None else str(charge["time"])[:4],
        budget=budget_text(release.forecast.budget),
        unit=unit_text(unit),
        confidence=release.confidence,
        view=release.view,
        views=release.bundle_views,
        published_left_out="published" in file.output.views and release.view != "published",
        person_rows=None if unit.person is None else unit.max_rows,
        plots_extra=None if release.plots else charts.PLOTS_EXTRA,
        glance=glance,
        questions=questions_of(release),
        spending=spending,
        results=tuple(result_of(release, k) for k in range(len(release.job.tables))),
        rivals=rivals,
        shifts=shifts_of(release) if "published" in release.bundle_views else None,
        groups=groups_of(release),
        guarantee=guarantee_of(release.forecast.budget),
        intervals=interval_method(release),
        plan=plan,
        synthetic=synthetic_of(release),
    )


def _glance(release: ReleaseFacts) -> Pairs:
    """The release in one box."""
    cost = budget_text(release.forecast.budget)
    if release.charge is not None:
        limit, sum_of_costs = (amount_text(release.receipt[key]) for key in ("budget", "spent"))
        cost += f"; with it {sum_of_costs} of {limit} that this data set may ever spend"
    noise: Pairs = ()
    if release.views.has_errors:
        counting = count_rows(release.job.tables, release.job.workload)
        half = release.views.widths.per_query[counting if counting.size else slice(None)]
        digits = digits_for(float(half.min()))
        typical, low, high = (
            plus_minus(float(width), digits) for width in (np.median(half), half.min(), half.max())
        )
        words = typical if low == high else f"{typical} (from {low} to {high})"
        noise = ((f"Typical noise, {release.confidence} interval", words),)
    return (
        ("Tables", f"{len(release.job.tables):,}"),
        ("Numbers", f"{release.job.workload.shape[0]:,}"),
        ("Spent", cost),
        ("Unit of privacy", unit_text(release.job.unit)),
        *noise,
        (
            "Numbers shown",
            _numbers_shown(release),
        ),
    )


def _numbers_shown(release: ReleaseFacts) -> str:
    """What the numbers on the page are like."""
    if release.view != "published":
        return "unbiased, and they add up" if release.views.has_errors else "they add up"
    groups = release.views.groups
    if groups is None or len(groups.rules) == 1:
        return "whole, never negative, and they add up"
    return "whole, never negative, and they add up inside each group of tables"


def _view(release: ReleaseFacts, table: Table) -> View:
    """The view of a table that the page shows."""
    return release.view if table in release.views.published_tables else "consistent"


def result_of(release: ReleaseFacts, number: int) -> Result:
    """One table with its numbers, beside a chart."""
    table = release.job.tables[number]
    if table.statistics:
        return statistic_result(release, table, _view(release, table))
    data = release.views.table(table, _view(release, table))
    few = data.num_rows <= CHARTED_ROWS
    return Result(
        title=table.title,
        name=table.name,
        table=_count_table(release, table, data),
        chart=chart_of(release, table, data) if release.plots and few else None,
        precision=(_precision(release, number) if release.views.has_errors else NO_INTERVAL)
        + rest_text(release, table, data),
    )


def _count_table(release: ReleaseFacts, table: Table, data: pa.Table) -> HtmlTable:
    labels = label_columns(data)
    published, bars = _view(release, table) == "published", not release.plots
    heads = column_heads(release, labels)
    heads += ["Published count", "Consistent"] if published else ["Count"]
    if not release.views.has_errors:
        return _table_without_errors(table, heads, labels, data)
    heads += ["Standard error", f"{release.confidence} noise interval", *(["Plot"] * bars)]
    page_data = data.slice(0, PAGE_ROWS)
    extent = Points.of(page_data).extent
    rows = []
    for row in page_data.to_pylist():
        digits = digits_for(row["stderr"])
        cells: list[str | Cell] = [row[name] for name in labels] or ["all"]
        centre = count_text(row["consistent" if published else "count"], digits)
        cells += [count_text(int(row["count"])), centre] if published else [centre]
        cells += [count_text(row["stderr"], 2 if row["stderr"] < 10 else 1)]
        cells += [interval(row["low"], row["high"], digits)]
        cells += [Cell(bar=_bar(row, extent))] * bars
        rows.append(cells)
    text_columns = max(1, len(labels))
    return HtmlTable.of(table.title, heads, rows, text_columns=text_columns, under_heading=True)


def _table_without_errors(
    table: Table, heads: list[str], labels: list[str], data: pa.Table
) -> HtmlTable:
    """Labels and numbers alone."""
    rows: list[list[str | Cell]] = []
    for row in data.slice(0, PAGE_ROWS).to_pylist():
        cells: list[str | Cell] = [row[name] for name in labels] or ["all"]
        if "consistent" in row:
            cells += [count_text(int(row["count"])), count_text(row["consistent"], 1)]
        else:
            cells += [count_text(row["count"], 1)]
        rows.append(cells)
    text_columns = max(1, len(labels))
    return HtmlTable.of(table.title, heads, rows, text_columns=text_columns, under_heading=True)


def label_columns(data: pa.Table) -> list[str]:
    """The columns of labels that a page shows."""
    labels = data.column_names[: data.column_names.index("count")]
    # What a part asks about shows in its labels.
    return [name for name in labels if name != PART] if len(labels) > 1 else labels


def column_heads(release: ReleaseFacts, labels: list[str]) -> list[str]:
    """What they are called."""
    return [_column_head(release, name) for name in labels] or ["Rows"]


def _column_head(release: ReleaseFacts, column: str) -> str:
    """What a column of labels is called; an attribute may have given way to a number's name."""
    name = column if column in release.titles else column.removesuffix("_")
    return "Part" if column == PART else release.titles.get(name, column)


def _bar(row: Mapping[str, Any], extent: tuple[float, float]) -> IntervalBar:
    """The count from zero and its interval, scaled to the extent of all rows."""
    low, high = extent
    scale = 100 / (high - low or 1)
    zero, number, lower, upper = (
        (float(x) - low) * scale for x in (0, row["count"], row["low"], row["high"])
    )
    return IntervalBar(min(zero, number), max(zero, number), lower, upper)


def chart_of(release: ReleaseFacts, table: Table, data: pa.Table) -> TableChart:
    """What the chart of a table shows; what has no place on a curve is in the table alone."""
    data = in_order(release.job, table, data)
    extremes = _extremes(Points.of(data))
    words = f"Plot of “{table.title}”: {extremes}. The table holds the same numbers."
    ordered = ordered_columns(release.job, table)
    confidence = release.confidence if release.views.has_errors else None
    return TableChart(data, ordered, release.titles, words, confidence)


def _extremes(points: Points) -> str:
    """The smallest and the largest count, in words."""
    cells = points.without_totals()
    counts, columns = cells.numbers["count"], cells.labels.values()
    low, high = (
        f"{count_text(counts[i])} ({', '.join(labels[i] for labels in columns) or 'all'})"
        for i in (counts.index(min(counts)), counts.index(max(counts)))
    )
    return f"{len(cells):,} counts, from {low} to {high}" if len(cells) > 1 else f"one count, {low}"


def _precision(release: ReleaseFacts, number: int) -> str:
    """The half-widths of a table, one number at a time and all at once."""
    table, widths = release.job.tables[number], release.views.widths
    half = widths.per_query[table.rows(release.job.workload)]
    digits = digits_for(float(half.min()))
    each = plus_minus(float(half.max()), digits)
    text = (
        f"{release.confidence} noise interval: at most {each} for each number by itself, "
        f"{plus_minus(float(widths.per_table[number]), digits)} for the whole table at once."
    )
    if half.size == 1:
        text = f"The {release.confidence} noise interval is {each}."
    return text + _target_reached(release, table, digits)


def _target_reached(release: ReleaseFacts, table: Table, digits: int) -> str:
    """How precise the table had to be, and is."""
    (error,) = [each for each in release.forecast.tables if each.name == table.name]
    if error.target is None or error.reached is None:
        return ""
    together = " for the whole table at once" if error.target.simultaneous else " for each number"
    return (
        f" It had to be {plus_minus(error.target.half_width, digits)} at "
        f"{float(error.target.confidence) * 100:g} %{together}, and is "
        f"{plus_minus(error.reached, digits)}."
    )


def rest_text(release: ReleaseFacts, table: Table, data: pa.Table) -> str:
    """Where the rows are that the page leaves out."""
    if data.num_rows <= PAGE_ROWS:
        return ""
    text = f" These are the first {PAGE_ROWS} of {data.num_rows:,} rows"
    view = _view(release, table)
    if view not in release.bundle_views:
        return f"{text}."
    kind = "csv" if "csv" in release.file.output.formats else "parquet"
    return f"{text}; {view}/{release.job.table_files[table.name]}.{kind} holds them all."
