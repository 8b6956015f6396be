"""Tables of sums, means, shares and quantiles on the page of a release."""

from __future__ import annotations

import math

import pyarrow as pa

from psephos.release.page_facts import ReleaseFacts
from psephos.release.spec.entries import View
from psephos.release.spec.tables import Table
from psephos.release.statistics import bounds_words
from psephos.report.html import Cell, HtmlTable
from psephos.report.numbers import count_text, digits_for, interval
from psephos.report.page import Result
from psephos.report.points import PART

SHOWN_STATISTICS = 200
"""The most rows of a table that the page shows."""
NO_ROWS = "no rows"
UNKNOWN_ERRORS = "How far these numbers are off is not known, so no interval is printed."


def statistic_result(release: ReleaseFacts, table: Table, view: View) -> Result:
    """One table of statistics; its words say what an interval covers."""
    data = release.views.table(table, view)
    return Result(
        title=table.title,
        name=table.name,
        table=_html_table(release, table, data),
        chart=None,
        precision=_words(release, table, view, data),
    )


def _html_table(release: ReleaseFacts, table: Table, data: pa.Table) -> HtmlTable:
    names = data.column_names
    labels = [n for n in names[: names.index("statistic")] if n != PART]
    one = len({(each.words, each.unit_words) for each in table.statistics}) == 1
    single = one and len(table.statistics[0].words) == 1
    heads = [release.titles.get(n.removesuffix("_"), release.titles.get(n, n)) for n in labels]
    heads += [] if single else ["Statistic"]
    value = table.statistics[0].words[0].capitalize() if single else "Value"
    unit = table.statistics[0].unit_words
    heads += [f"{value} ({unit})" if single and unit not in ("", table.statistics[0].of) else value]
    errors = "low" in names
    heads += [f"{release.confidence} noise interval"] if errors else []
    rows: list[list[str | Cell]] = []
    for row in data.slice(0, SHOWN_STATISTICS).to_pylist():
        width = row["high"] - row["low"] if errors else abs(row["value"]) / 10
        digits = digits_for(width / 4) if math.isfinite(width) and width > 0 else 1
        cells: list[str | Cell] = [row[name] for name in labels]
        cells += [] if single else [f"{row['statistic']} ({row['unit']})"]
        cells = cells or ["all"]
        cells += [NO_ROWS if math.isnan(row["value"]) else count_text(row["value"], digits)]
        cells += [_interval(row["low"], row["high"], digits)] if errors else []
        rows.append(cells)
    text_columns = max(1, len(labels) + (not single))
    if len(heads) < len(rows[0]):
        heads = ["Rows", *heads]
    return HtmlTable.of(table.title, heads, rows, text_columns=text_columns, under_heading=True)


def _interval(low: float, high: float, digits: int) -> str:
    """An interval, whose ends may be those of an open bin."""
    if math.isfinite(low) and math.isfinite(high):
        return interval(low, high, digits)
    if math.isfinite(low):
        return f"{count_text(low, digits)} and over"
    return f"up to {count_text(high, digits)}" if math.isfinite(high) else "not known"


def _words(release: ReleaseFacts, table: Table, view: View, data: pa.Table) -> str:
    """What numbers and intervals mean, and where the rows are that the page leaves out."""
    text = ""
    if not release.views.has_errors:
        text = UNKNOWN_ERRORS
    elif table.derived:
        text = (
            "Each interval holds all numbers that agree with the noisy counts and sums; where a "
            "group has too few rows to tell, it is the declared range."
        )
        whole = release.views.statistics[table.name].whole_range
        if whole is not None and whole.any():
            text += f" That is so for {int(whole.sum()):,} of {whole.size:,} numbers."
    text = f"{text} {bounds_words(table)}".strip()
    if data.num_rows > SHOWN_STATISTICS:
        kind = "csv" if "csv" in release.file.output.formats else "parquet"
        text += (
            f" These are the first {SHOWN_STATISTICS} of {data.num_rows:,} rows; "
            f"{view}/{release.job.table_files[table.name]}.{kind} holds them all."
        )
    return text
