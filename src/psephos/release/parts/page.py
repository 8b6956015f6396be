"""The page of a release in parts: what it is, its levels and errors, the tables of the whole."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from psephos.release.pages.facts import budget_text, guarantee_of, unit_text
from psephos.release.parts.estimates import half_width_factor
from psephos.release.parts.plan import PartsForecast
from psephos.release.parts.tables import PART_NUMBERS, level_folder
from psephos.report.cross_table import HeadingAxis, laid_out
from psephos.report.figures import Figure, description_of, figure_of
from psephos.report.html import STYLE_SHEET, HtmlTable, render
from psephos.report.numbers import digits_for, plus_minus
from psephos.version import __version__

SHOWN_ROWS = 60
"""The most rows of a table that the page shows."""


def write_page(
    forecast: PartsForecast, totals: pa.Table | None, simulation: bool, folder: Path
) -> None:
    """Write report.html beside the tables, which it reads.

    `totals` are the numbers of rows of the first level's parts, if they are known.
    """
    job, tree = forecast.job, forecast.tree
    file = job.file
    paragraphs = (part.strip() for part in file.description.split("\n\n"))
    parts = ", ".join(
        f"{size:,} × {name}" for name, size in zip(tree.names[1:], tree.sizes[1:], strict=True)
    )
    page = {
        "title": file.title or file.name,
        "publisher": file.publisher,
        "description": [part for part in paragraphs if part],
        "simulation": simulation,
        "maker": f"psephos {__version__}",
        "key_figures": (
            ("Parts", parts),
            ("Tables in each", f"{len(job.tables):,}"),
            ("Numbers in all", f"{forecast.table_rows:,}"),
            ("Spent", budget_text(forecast.budget)),
            ("Unit of privacy", unit_text(job.unit)),
        ),
        "budget": budget_text(forecast.budget),
        "unit": unit_text(job.unit),
        "guarantee": guarantee_of(forecast.budget),
        "confidence": f"{float(file.output.confidence):.0%}",
        "first_level": tree.names[1],
        "figure": None if totals is None else _figure(forecast, totals),
        "levels": _levels(forecast),
        "errors": _errors(forecast),
        "tables": [_whole(forecast, index, folder) for index in range(len(job.tables))],
        "first_table": job.table_files[job.tables[0].name],
        "last_level": tree.names[-1],
    }
    style = STYLE_SHEET.read_text(encoding="utf-8")
    text = render("parts.html", page=page, style=style)
    (folder / "report.html").write_text(text, encoding="utf-8")


def _figure(forecast: PartsForecast, totals: pa.Table) -> Figure | None:
    """How many rows each large part has, with intervals."""
    level = forecast.tree.names[1]
    labels = tuple(str(label) for label in totals[level].to_pylist())
    nothing = len(labels) * (False,), len(labels) * (0,)
    title = f"Rows in each part of level {level}"
    cross = laid_out("rows", title, totals, ([HeadingAxis(level, level, labels, *nothing)], []))
    confidence = f"{float(forecast.job.file.output.confidence):.0%}"
    return figure_of(cross, confidence, description_of(cross))


def _levels(forecast: PartsForecast) -> HtmlTable:
    rows = [
        [name, f"{size:,}", f"{float(share):.1%}"]
        for name, size, share in zip(
            forecast.tree.names, forecast.tree.sizes, forecast.plan.shares, strict=True
        )
    ]
    return HtmlTable.of("Levels", ["level", "parts", "share of the budget"], rows)


def _errors(forecast: PartsForecast) -> HtmlTable:
    rows = [
        [
            error.table,
            error.level,
            f"{error.numbers:,}",
            plus_minus(error.rmse, digits_for(error.rmse)),
        ]
        for error in forecast.errors
    ]
    heads = ["table", "level", "numbers in each part", "typical error"]
    return HtmlTable.of("Typical error of one number", heads, rows, text_columns=2)


def _whole(forecast: PartsForecast, index: int, folder: Path) -> dict[str, object]:
    """A table of the whole, read from its file."""
    table = forecast.job.tables[index]
    place = folder / level_folder(forecast.job.table_files[table.name], forecast.tree.names[0])
    rows = pa.parquet.read_table(next(iter(sorted(place.iterdir()))))
    parts = (*PART_NUMBERS, *forecast.tree.names)
    labels = [name for name in rows.column_names if name not in parts]
    shown = rows.slice(0, SHOWN_ROWS).to_pylist()
    confidence = float(forecast.job.file.output.confidence)
    wide = half_width_factor(confidence, forecast.budget.currency)
    lines = []
    for row in shown:
        half = wide * row["stderr"]
        words = [str(row[name]) for name in labels] or ["all rows"]
        lines.append([*words, f"{row['count']:,}", plus_minus(half, digits_for(half))])
    heads = [*(labels or [""]), "count", "± noise"]
    title = f"Table {index + 1}. {table.title}"
    return {
        "title": title,
        "table": HtmlTable.of(
            title, heads, lines, text_columns=max(1, len(labels)), under_heading=True
        ),
        "left_out": rows.num_rows - len(shown),
    }
