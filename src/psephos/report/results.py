"""The tables of a page: each with its numbers, its figure, and notes on what it leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from psephos.numbers import count_text, plus_minus
from psephos.report.cross_table import CrossTable
from psephos.report.figures import Figure, LegendKey, description_of, figure_of, shades
from psephos.report.html import Cell, Pairs
from psephos.report.page_table import PageTable, page_tables, shown_part

PAGE_NUMBERS = 8_000
"""About as many numbers does the page show in all; the rest is in the files."""
TABLE_NUMBERS = 400
"""About as many of one table."""
SAME_NUMBERS = "The table holds the same numbers."


@dataclass(frozen=True, eq=False)
class ShownTable:
    """A table for a page, and what it is a part of.

    Attributes:
        cross: its numbers, laid out
        group: the title of the table that it is a part of, if there are several parts
        confidence: of its intervals, if it has any
        precision: how precise it is, in words
        question: what was asked, as it was written
        source: whose numbers these are
        downloads: what a file holds, and where it lies beside the page
    """

    cross: CrossTable
    group: str
    confidence: str
    precision: str
    question: str | Cell
    source: str
    downloads: Pairs


@dataclass(frozen=True)
class Result:
    """One table as the page sets it.

    Attributes:
        anchor: its place on the page
        title: what it is called, with its number
        name: as the release file has it
        subtitle: what its numbers are, and what holds for all of them
        tables: the table, or its panels
        shades: what the shades of its cells stand for, if they are shaded
        figure: its chart, if it has one
        notes: its precision, and what the page leaves out
        question: what was asked, as it was written
        source: whose numbers these are
        downloads: what a file holds, and where it lies beside the page
    """

    anchor: str
    title: str
    name: str
    subtitle: str
    tables: tuple[PageTable, ...]
    shades: tuple[LegendKey, ...]
    figure: Figure | None
    notes: tuple[str, ...]
    question: str | Cell
    source: str
    downloads: Pairs


@dataclass(frozen=True)
class ContentsGroup:
    """Tables that belong together, by what they are called and where they are."""

    title: str
    links: Pairs


@dataclass(frozen=True)
class PageResults:
    """All tables of a page, their contents, and what they come to."""

    results: tuple[Result, ...]
    contents: tuple[ContentsGroup, ...]
    figures: Pairs


def page_results(tables: Sequence[ShownTable]) -> PageResults:
    """Tables as a page shows them; the more there are, the less of each."""
    most = min(TABLE_NUMBERS, PAGE_NUMBERS // max(1, len(tables)))
    results = tuple(_result(each, k, most) for k, each in enumerate(tables, 1))
    figures = (*_total([each.cross for each in tables]), ("Tables", f"{len(results):,}"))
    return PageResults(results, tuple(_contents(tables)), figures)


def _result(each: ShownTable, number: int, most: int) -> Result:
    cross = each.cross
    part = shown_part(cross, most)
    shading = shades(part)
    confidence = each.confidence if cross.has_errors else None
    return Result(
        anchor=_anchor(number),
        title=f"Table {number}. {cross.title}",
        name=cross.name,
        subtitle=_subtitle(cross, confidence),
        tables=page_tables(part, None if shading is None else shading[0]),
        shades=() if shading is None else shading[1],
        figure=figure_of(cross, confidence, f"{description_of(cross)} {SAME_NUMBERS}"),
        notes=tuple(_notes(each, part)),
        question=each.question,
        source=each.source,
        downloads=each.downloads,
    )


def _anchor(number: int) -> str:
    """Where a table is on the page."""
    return f"table-{number}"


def _subtitle(cross: CrossTable, confidence: str | None) -> str:
    """What the numbers are, and what holds for all of them."""
    words = cross.heading.capitalize()
    if confidence is not None:
        words += f", ± {confidence} noise interval"
    fixed = "; ".join(f"{name}: {label}" for name, label in cross.fixed)
    return f"{words}. {fixed}" if fixed else words


def _notes(each: ShownTable, part: CrossTable) -> Iterator[str]:
    """Its precision, and what the page leaves out."""
    yield each.precision
    if part.shape != each.cross.shape:
        rows, columns = each.cross.shape
        size = f"{rows:,} rows" if columns == part.shape[1] else f"{rows:,} rows × {columns:,}"
        shown = f"{part.shape[0]:,}" + ("" if columns == part.shape[1] else f" × {part.shape[1]:,}")
        text = f"Shown are {shown} of {size}, totals included"
        yield f"{text}; the files hold them all." if each.downloads else f"{text}."


def _contents(tables: Sequence[ShownTable]) -> Iterator[ContentsGroup]:
    """Links to all tables; the parts of one below its title."""
    for title, group in groupby(enumerate(tables, 1), lambda pair: pair[1].group):
        links = [(f"{k}. {t.cross.part or t.cross.title}", f"#{_anchor(k)}") for k, t in group]
        yield ContentsGroup(title, tuple(links))


def _total(tables: Sequence[CrossTable]) -> Pairs:
    """The number of all rows, from the first table that has it."""
    for cross in tables:
        if cross.statistic or cross.fixed or not cross.rows.grand_totals.any():
            continue
        columns = cross.columns.grand_totals if cross.columns.axes else np.array([True])
        if not columns.any():
            continue
        at = int(np.flatnonzero(cross.rows.grand_totals)[-1]), int(np.flatnonzero(columns)[-1])
        text = count_text(float(cross.values[at]), cross.digits)
        if cross.margins is not None:
            text += f" {plus_minus(float(np.ceil(cross.margins[at])), 0)}"
        return (("Rows in all", text),)
    return ()
