"""The tables themselves: every number with its error, beside a plot."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from psephos.release.files import file_name
from psephos.release.pages.facts import Facts
from psephos.release.request import ordered_columns
from psephos.release.spec.tables import Table
from psephos.report import charts
from psephos.report.charts import EXTRA
from psephos.report.html import (
    Html,
    bounds,
    count,
    digits_for,
    interval,
    joined,
    plus_minus,
    section,
    table,
    tag,
)
from psephos.report.points import PART, Points, shape_of

ROWS = 200
MARK = "†\N{NO-BREAK SPACE}"
MOVED = (
    f"{MARK}outside its own noise interval, which is that of the consistent number: cutting at "
    "zero and rounding moved it."
)
CAPTIONS = {
    "bars": "Bars are counts; the lines across them are {} noise intervals.",
    "groups": "Bars are counts; the lines across them are {} noise intervals.",
    "panels": "Lines across bars, or bands around lines, are {} noise intervals.",
    "line": "The line runs through the counts; the band is made of {} noise intervals.",
    "lines": "Lines run through the counts; bands are made of {} noise intervals.",
    "heat": "The stronger the colour, the larger the count; {} noise intervals are in the table.",
}


def numbers(of: Facts) -> Html:
    """All tables of the release."""
    drawn = charts.available()
    pieces: list[str] = [tag("p", _intro(of))]
    if not drawn:
        pieces.append(
            tag("p", "Plots are left out: ", tag("code", EXTRA), " adds them.", class_="note")
        )
    pieces += [_one(of, table, k, drawn) for k, table in enumerate(of.job.tables)]
    return section("tables", "The tables", *pieces)


def _intro(of: Facts) -> str:
    shown = (
        "Counts are those of the published view: whole, never negative, and they add up. Beside "
        "them stands the consistent view, which is unbiased, and"
        if of.view == "published"
        else "Counts are those of the consistent view: unbiased, and they add up. Beside them stand"
    )
    what = "its standard error and" if of.view == "published" else "their standard error and"
    return f"{shown} {what} {of.confidence} noise interval.{_capped(of)}"


def _capped(of: Facts) -> str:
    """What a count is of, when persons with many rows are not counted in full."""
    unit = of.job.unit
    if unit.person is None:
        return ""
    rows = "row" if unit.max_rows == 1 else "rows"
    return f" At most {unit.max_rows} {rows} of each person are counted, in all tables alike."


def _one(of: Facts, asked: Table, number: int, drawn: bool) -> Html:
    data = of.table(asked)
    pieces = [_rows(of, asked, data, bars=not drawn)]
    if drawn:
        pieces.append(_figure(of, asked, data, number))
    name = tag("code", asked.name)
    title = [asked.title] if asked.title == asked.name else [asked.title, " (", name, ")"]
    moved = of.view == "published" and any(map(_moved, data.slice(0, ROWS).to_pylist()))
    return joined(
        [
            tag("h3", *title, id=f"table-{number + 1}"),
            tag("div", *pieces, class_="pair"),
            tag("p", MOVED, class_="note") if moved else Html(),
            tag("p", _precision(of, asked), _cut(of, asked, data), class_="note"),
        ]
    )


def _rows(of: Facts, asked: Table, data: pa.Table, *, bars: bool) -> Html:
    labels = data.column_names[: data.column_names.index("count")]
    if len(labels) > 1:  # what a part asks about shows in its labels
        labels = [name for name in labels if name != PART]
    names = [_head(of, name) for name in labels]
    published = of.view == "published"
    heads = [*(names or ["Rows"]), "Published count" if published else "Count"]
    heads += ["Consistent"] if published else []
    heads += ["Standard error", f"{of.confidence} noise interval", *(["Plot"] if bars else [])]
    shown = data.slice(0, ROWS).to_pylist()
    extent = Points.of(data.slice(0, ROWS)).extent
    rows = []
    for row in shown:
        digits = digits_for(row["stderr"])
        cells = [row[name] for name in labels] or ["all"]
        cells.append(_whole(row) if published else count(row["count"], digits))
        cells += [count(row["consistent"], digits)] if published else []
        cells += [count(row["stderr"], 2 if row["stderr"] < 10 else 1)]
        cells += [interval(row["low"], row["high"], digits)]
        cells += [bar(row, extent)] if bars else []
        rows.append(cells)
    return table(asked.title, heads, rows, texts=max(1, len(labels)), headed=True)


def _head(of: Facts, column: str) -> str:
    """What a column of labels is called; an attribute may have given way to a number's name."""
    own = column if column in of.titles else column.removesuffix("_")
    return "Part" if column == PART else of.titles.get(own, column)


def _whole(row: dict[str, Any]) -> str:
    return (MARK if _moved(row) else "") + count(int(row["count"]))


def _moved(row: dict[str, Any]) -> bool:
    """Does a count lie outside its interval, as both are shown?"""
    low, high = bounds(row["low"], row["high"], digits_for(row["stderr"]))
    return not low <= int(row["count"]) <= high


def _figure(of: Facts, asked: Table, data: pa.Table, number: int) -> Html:
    ordered = ordered_columns(of.job, asked)
    chart = charts.table_chart(data, "", ordered=ordered, titles=of.titles)
    points = Points.of(data)
    parts = PART in points.labels
    shape = "panels" if parts else shape_of(points.without_totals().distinct(), ordered)[0]
    caption = CAPTIONS[shape].format(of.confidence)
    words = f"Plot of “{asked.title}”: {_span(points)}. The table holds the same numbers."
    svg = charts.inline_svg(chart, f"t{number + 1}", words)
    return tag("figure", Html(svg), tag("figcaption", caption))


def _span(points: Points) -> str:
    """The smallest and the largest count, in words."""
    kept = points.without_totals()
    counts = kept.numbers["count"]
    ends = [
        min(range(len(kept)), key=counts.__getitem__),
        max(range(len(kept)), key=counts.__getitem__),
    ]
    low, high = (
        f"{count(counts[i])} ({', '.join(words[i] for words in kept.labels.values()) or 'all'})"
        for i in ends
    )
    return f"{len(kept):,} counts, from {low} to {high}" if len(kept) > 1 else f"one count, {low}"


def _precision(of: Facts, asked: Table) -> str:
    """The half-widths of a table, one number at a time and all at once."""
    half = of.views.widths.per_query[asked.rows(of.job.workload)]
    together = float(of.views.widths.per_table[of.job.tables.index(asked)])
    digits = digits_for(float(half.min()))
    each = plus_minus(float(half.max()), digits)
    said = (
        f"{of.confidence} noise interval: at most {each} for each number by itself, "
        f"{plus_minus(together, digits)} for the whole table at once."
    )
    if half.size == 1:
        said = f"The {of.confidence} noise interval is {each}."
    return said + _target(of, asked, digits)


def _target(of: Facts, asked: Table, digits: int) -> str:
    """How precise the table had to be, and is."""
    (own,) = [table for table in of.plan.tables if table.name == asked.name]
    if own.target is None or own.reached is None:
        return ""
    together = " for the whole table at once" if own.target.simultaneous else " for each number"
    return (
        f" It had to be {plus_minus(own.target.half_width, digits)} at "
        f"{float(own.target.confidence) * 100:g} %{together}, and is "
        f"{plus_minus(own.reached, digits)}."
    )


def _cut(of: Facts, asked: Table, data: pa.Table) -> str:
    """Where the rows are that the page leaves out."""
    if data.num_rows <= ROWS:
        return ""
    said = f" These are the first {ROWS} of {data.num_rows:,} rows"
    if of.view not in of.written:
        return f"{said}."
    kind = "csv" if "csv" in of.file.output.formats else "parquet"
    return f"{said}; {of.view}/{file_name(asked.name)}.{kind} holds them all."


def bar(row: dict[str, Any], extent: tuple[float, float]) -> Html:
    """A count and its interval as a small picture, for pages without charts."""
    low, high = extent
    scale = 100 / (high - low or 1)

    def at(value: Any) -> float:
        return (float(value) - low) * scale

    start, end = sorted((at(0), at(row["count"])))
    box = tag("rect", x=f"{start:.1f}", y="2", width=f"{end - start:.1f}", height="6")
    left, right = at(row["low"]), at(row["high"])
    line = tag("line", x1=f"{left:.1f}", x2=f"{right:.1f}", y1="5", y2="5")
    return tag(
        "svg",
        box,
        line,
        class_="bar",
        viewBox="0 0 100 10",
        preserveAspectRatio="none",
        aria_hidden="true",
    )
