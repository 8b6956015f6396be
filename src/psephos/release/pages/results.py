"""The tables of a release on its page: each laid out as it was asked for, with figure and notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from urllib.parse import quote

import numpy as np

from psephos.release.bundle.bundle import job_persons_table
from psephos.release.formats.excel import WORKBOOK_FILE
from psephos.release.formats.wide_csv import wide_files
from psephos.release.formats.workbook_size import left_out_of_workbook
from psephos.release.methods.kind import PersonsRequest
from psephos.release.pages.facts import ReleaseFacts, budget_text, question
from psephos.release.pages.statistics import statistic_words
from psephos.release.spec.entries import View
from psephos.release.spec.tables import Layout, Table
from psephos.release.views.layout import cross_tables, lay_out
from psephos.report.cross_table import CrossTable, rounded_up
from psephos.report.figures import description_of, figure_of, shades
from psephos.report.html import Cell
from psephos.report.numbers import count_text, digits_for, plus_minus
from psephos.report.page import ContentsGroup, Pairs, Result
from psephos.report.page_table import page_tables, shown_part
from psephos.workload.product import product
from psephos.workload.queries import identity
from psephos.workload.workload import Workload

PERSONS_VIEW = "persons"
PAGE_NUMBERS = 8_000
"""About as many numbers does the page show in all; the rest is in the files."""
TABLE_NUMBERS = 400
"""About as many of one table."""
NO_INTERVAL = "How far these numbers are off is not known, so no interval is printed."
SAME_NUMBERS = "The table holds the same numbers."
FORMAT_NAMES = {"csv": "CSV", "parquet": "Parquet"}


@dataclass(frozen=True)
class PageResults:
    """All tables of a page, their contents, and the total of all rows if a table has it."""

    results: tuple[Result, ...]
    contents: tuple[ContentsGroup, ...]
    total: str | None


@dataclass(frozen=True, eq=False)
class ShownTable:
    """A table as the page shows it, and what it is a part of.

    Attributes:
        cross: its numbers, laid out
        group: the title of the table that it is a part of, if there are several parts
        view: which of the numbers these are
        precision: how precise it is, in words
        question: what was asked, as it was written
        downloads: its files, beside the page
    """

    cross: CrossTable
    group: str
    view: str
    precision: str
    question: str | Cell
    downloads: Pairs


def results_of(release: ReleaseFacts) -> PageResults:
    """Every table of a release, one for each part of a builder; those of persons come last."""
    tables = [*_row_tables(release), *_persons_tables(release)]
    most = min(TABLE_NUMBERS, PAGE_NUMBERS // max(1, len(tables)))
    results = tuple(_result(release, each, k, most) for k, each in enumerate(tables, 1))
    rows = [each.cross for each in tables if each.view != PERSONS_VIEW]
    return PageResults(results, tuple(_contents(tables)), _total(rows))


def _row_tables(release: ReleaseFacts) -> Iterator[ShownTable]:
    """The tables that count rows."""
    for table, entry in zip(release.job.tables, release.file.tables, strict=True):
        view: View = release.view if table in release.views.published_tables else "consistent"
        for cross in cross_tables(release.job, table, release.views.table(table, view)):
            precision = NO_INTERVAL
            if table.statistics:
                precision = statistic_words(release, table)
            elif cross.has_errors:
                precision = _precision(release, table, view, cross)
            downloads = _downloads(release, table, view, cross)
            group = table.title if cross.part else ""
            yield ShownTable(cross, group, f"{view} view", precision, question(entry), downloads)


def _persons_tables(release: ReleaseFacts) -> Iterator[ShownTable]:
    """The tables that count persons, each measured by itself."""
    job, confidence = release.job, float(release.file.output.confidence)
    for request in release.persons:
        table = request.question
        cross = _persons_cross(release, request)
        half = plus_minus(table.half_width(job.unit, confidence), 0)
        words = (
            f"Noise at {release.confidence}: {half} for a number by itself, before those below "
            f"zero are cut. It cost {budget_text(table.spend)} of its own. A person with rows in "
            "several groups counts once in each, so these numbers do not add up."
        )
        where = f" where {table.words}" if table.words else ""
        by = ", ".join(name if level is None else f"{name}.{level}" for name, level in table.by)
        stem = f"persons/{job.persons_files[table.name]}"
        links = [
            (f"{FORMAT_NAMES[kind]}, one number a row", quote(f"{stem}.{kind}"))
            for kind in release.file.output.table_formats
        ]
        asked_for = f"persons by {by or 'nothing: all of them'}{where}"
        yield ShownTable(cross, "", PERSONS_VIEW, words, asked_for, tuple(links))


def _persons_cross(release: ReleaseFacts, request: PersonsRequest) -> CrossTable:
    """A table of persons, laid out."""
    table = request.question
    factors = {name: identity() for name in table.domain.names}
    workload = Workload(table.domain, [product(factors)])
    layout = Layout(tuple(table.domain.names))
    whole = Table(table.name, table.title, range(1), layout=layout)
    data = job_persons_table(release.job, request)
    (cross,) = lay_out(workload, whole, data, release.titles)
    fixed = () if not table.by else cross.fixed
    words = ((("Rows where", table.words),) if table.words else ()) + fixed
    return replace(cross, statistic="persons", fixed=words)


def _contents(tables: Sequence[ShownTable]) -> Iterator[ContentsGroup]:
    """Links to all tables; the parts of one below its title."""
    for title, group in groupby(enumerate(tables, 1), lambda pair: pair[1].group):
        links = [(f"{k}. {t.cross.part or t.cross.title}", f"#{_anchor(k)}") for k, t in group]
        yield ContentsGroup(title, tuple(links))


def _anchor(number: int) -> str:
    """Where a table is on the page."""
    return f"table-{number}"


def _total(tables: list[CrossTable]) -> str | None:
    """The number of all rows, from the first table that has it."""
    for cross in tables:
        if cross.statistic or cross.fixed or not cross.rows.grand_totals.any():
            continue
        columns = cross.columns.grand_totals if cross.columns.axes else np.array([True])
        if not columns.any():
            continue
        at = int(np.flatnonzero(cross.rows.grand_totals)[-1]), int(np.flatnonzero(columns)[-1])
        text = count_text(float(cross.values[at]), cross.digits)
        if cross.margins is None:
            return text
        return f"{text} {plus_minus(float(np.ceil(cross.margins[at])), 0)}"
    return None


def _result(release: ReleaseFacts, each: ShownTable, number: int, most: int) -> Result:
    cross = each.cross
    part = shown_part(cross, most)
    shading = shades(part)
    confidence = release.confidence if cross.has_errors else None
    return Result(
        anchor=_anchor(number),
        title=f"Table {number}. {cross.title}",
        name=cross.name,
        subtitle=_subtitle(release, cross),
        tables=page_tables(part, None if shading is None else shading[0]),
        shades=() if shading is None else shading[1],
        figure=figure_of(cross, confidence, f"{description_of(cross)} {SAME_NUMBERS}"),
        notes=tuple(_notes(each, part)),
        question=each.question,
        source=_source(release, each.view),
        downloads=each.downloads,
    )


def _subtitle(release: ReleaseFacts, cross: CrossTable) -> str:
    """What the numbers are, and what holds for all of them."""
    words = cross.heading.capitalize()
    if cross.has_errors:
        words += f", ± {release.confidence} noise interval"
    fixed = "; ".join(f"{name}: {label}" for name, label in cross.fixed)
    return f"{words}. {fixed}" if fixed else words


def _notes(each: ShownTable, part: CrossTable) -> list[str]:
    """Its precision, its target, and what the page leaves out."""
    notes = [each.precision]
    if part.shape != each.cross.shape:
        rows, columns = each.cross.shape
        size = f"{rows:,} rows" if columns == part.shape[1] else f"{rows:,} rows × {columns:,}"
        shown = f"{part.shape[0]:,}" + ("" if columns == part.shape[1] else f" × {part.shape[1]:,}")
        text = f"Shown are {shown} of {size}, totals included"
        notes.append(f"{text}; the files hold them all." if each.downloads else f"{text}.")
    return notes


def _precision(release: ReleaseFacts, table: Table, view: View, cross: CrossTable) -> str:
    """How precise the table is, one number at a time and all at once."""
    widths = release.views.widths
    half = widths.per_query[table.rows(release.job.workload)]
    digits = digits_for(float(half.min()))
    number = release.job.tables.index(table)
    margins = cross.margins
    largest = 0.0 if margins is None else float(rounded_up(np.nanmax(margins), cross.margin_digits))
    text = f"The {release.confidence} noise interval is {plus_minus(largest, cross.margin_digits)}."
    if half.size > 1:
        together = plus_minus(float(widths.per_table[number]), digits)
        what = "all numbers of all parts" if cross.part else "all numbers of the table"
        before = ", before rounding" if view == "published" else ""
        text = (
            f"Noise at {release.confidence}: at most {plus_minus(largest, cross.margin_digits)} "
            f"for a number by itself; {together} for {what} at once{before}."
        )
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


def _source(release: ReleaseFacts, view: str) -> str:
    """Whose numbers these are."""
    file = release.file
    edition = file.edition and f"edition {file.edition}"
    words = [file.publisher, file.title or file.name, edition, view]
    return ", ".join(word for word in words if word)


def _downloads(release: ReleaseFacts, table: Table, view: View, cross: CrossTable) -> Pairs:
    """The files of a table, beside the page."""
    if view not in release.bundle_views:
        return ()
    formats, job = release.file.output.formats, release.job
    whole = ", all parts" if cross.part else ""
    links = [("CSV as shown", wide_files(job)[cross.name])] if "wide" in formats else []
    if "xlsx" in formats and table.name not in left_out_of_workbook(job):
        links.append(("Excel, all tables", WORKBOOK_FILE))
    links += [
        (
            f"{FORMAT_NAMES[kind]}, one number a row{whole}",
            f"{view}/{job.table_files[table.name]}.{kind}",
        )
        for kind in release.file.output.table_formats
    ]
    return tuple((words, quote(link)) for words, link in links)
