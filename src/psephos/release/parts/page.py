"""The page of a release in parts: what it is, its levels and errors, the tables of the whole."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from psephos.numbers import digits_for, plus_minus
from psephos.release.pages.words import budget_text, confidence_text, page_head, unit_text
from psephos.release.parts.estimates import half_width_factor
from psephos.release.parts.plan import PartsForecast
from psephos.release.parts.tables import PART_NUMBERS, level_folder
from psephos.report.cross_table import HeadingAxis, laid_out
from psephos.report.figures import Figure, description_of, figure_of
from psephos.report.html import HtmlTable
from psephos.report.page import PartsPage, page_html

SHOWN_ROWS = 60
"""The most rows of a table that the page shows."""


def write_page(
    forecast: PartsForecast, totals: pa.Table | None, simulation: bool, folder: Path
) -> None:
    """Write report.html beside the tables, which it reads.

    `totals` are the numbers of rows of the first level's parts, if they are known.
    """
    job, tree = forecast.job, forecast.tree
    parts = zip(tree.names[1:], tree.sizes[1:], strict=True)
    key_figures = (
        ("Parts", ", ".join(f"{size:,} × {name}" for name, size in parts)),
        ("Tables in each", f"{len(job.tables):,}"),
        ("Numbers in all", f"{forecast.table_rows:,}"),
        ("Spent", budget_text(forecast.budget)),
        ("Unit of privacy", unit_text(job.unit)),
    )
    page = PartsPage(
        **vars(page_head(job, forecast.budget, simulation, key_figures)),
        levels=_levels(forecast),
        errors=_errors(forecast),
        figure=None if totals is None else _figure(forecast, totals),
        tables=tuple(_whole(forecast, index, folder) for index in range(len(job.tables))),
        first_level=tree.names[1],
        last_level=tree.names[-1],
        first_table=job.table_files[job.tables[0].name],
    )
    (folder / "report.html").write_text(page_html(page), encoding="utf-8")


def _figure(forecast: PartsForecast, totals: pa.Table) -> Figure | None:
    """How many rows each large part has, with intervals."""
    level = forecast.tree.names[1]
    labels = tuple(str(label) for label in totals[level].to_pylist())
    nothing = len(labels) * (False,), len(labels) * (0,)
    title = f"Rows in each part of level {level}"
    cross = laid_out("rows", title, totals, ([HeadingAxis(level, level, labels, *nothing)], []))
    return figure_of(cross, confidence_text(forecast.job), description_of(cross))


def _levels(forecast: PartsForecast) -> HtmlTable:
    tree = forecast.tree
    rows = [
        [name, f"{size:,}", f"{float(share):.1%}"]
        for name, size, share in zip(tree.names, tree.sizes, forecast.plan.shares, strict=True)
    ]
    return HtmlTable.of("Levels", ["level", "parts", "share of the budget"], rows)


def _errors(forecast: PartsForecast) -> HtmlTable:
    rows = [
        [each.table, each.level, f"{each.numbers:,}", plus_minus(each.rmse, digits_for(each.rmse))]
        for each in forecast.rows
    ]
    heads = ["table", "level", "numbers in each part", "typical error"]
    return HtmlTable.of("Typical error of one number", heads, rows, text_columns=2)


def _whole(forecast: PartsForecast, index: int, folder: Path) -> tuple[HtmlTable, int]:
    """A table of the whole, read from its file, and how many of its rows are left out."""
    table = forecast.job.tables[index]
    place = folder / level_folder(forecast.job.table_files[table.name], forecast.tree.names[0])
    rows = pa.parquet.read_table(next(iter(sorted(place.iterdir()))))
    parts = (*PART_NUMBERS, *forecast.tree.names)
    labels = [name for name in rows.column_names if name not in parts]
    confidence = float(forecast.job.file.output.confidence)
    wide = half_width_factor(confidence, forecast.budget.currency)
    lines = []
    for row in rows.slice(0, SHOWN_ROWS).to_pylist():
        half = wide * row["stderr"]
        words = [str(row[name]) for name in labels] or ["all rows"]
        lines.append([*words, f"{row['count']:,}", plus_minus(half, digits_for(half))])
    heads, texts = [*(labels or [""]), "count", "± noise"], max(1, len(labels))
    title = f"Table {index + 1}. {table.title}"
    shown = HtmlTable.of(title, heads, lines, text_columns=texts, under_heading=True)
    return shown, max(0, rows.num_rows - SHOWN_ROWS)
