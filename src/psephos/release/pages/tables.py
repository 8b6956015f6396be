"""The tables of a release for its page: each laid out as it was asked for, with words and links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from urllib.parse import quote

from psephos.numbers import digits_for, plus_minus
from psephos.release.bundle.contents import job_persons_table
from psephos.release.formats.excel import WORKBOOK_FILE
from psephos.release.formats.wide_csv import wide_files
from psephos.release.formats.workbook_size import left_out_of_workbook
from psephos.release.methods.kind import PersonsRequest
from psephos.release.pages.facts import ReleaseFacts
from psephos.release.pages.words import budget_text, confidence_text, question
from psephos.release.spec.entries import View
from psephos.release.spec.tables import Table
from psephos.release.views.layout import cross_tables, lay_out
from psephos.release.views.statistics import bounds_words
from psephos.report.cross_table import CrossTable
from psephos.report.html import Pairs
from psephos.report.results import ShownTable

NO_INTERVAL = "How far these numbers are off is not known, so no interval is printed."
FORMAT_NAMES = {"csv": "CSV", "parquet": "Parquet"}


def shown_tables(release: ReleaseFacts) -> Iterator[ShownTable]:
    """Every table of a release, one for each part of a builder; those of persons come last."""
    for table, entry in zip(release.job.tables, release.file.tables, strict=True):
        view: View = release.view if table in release.views.published_tables else "consistent"
        for cross in cross_tables(release.job, table, release.views.table(table, view)):
            largest = cross.largest_margin
            yield ShownTable(
                cross=cross,
                group=table.title if cross.part else "",
                confidence=confidence_text(release.job),
                precision=_precision(release, table, view, cross, largest),
                question=question(entry),
                source=_source(release, f"{view} view"),
                downloads=_downloads(release, table, view, cross),
            )
    for request in release.persons:
        yield _persons_table(release, request)


# ---- tables of rows ----------------------------------------------------------------------------


def _precision(
    release: ReleaseFacts, table: Table, view: View, cross: CrossTable, largest: str
) -> str:
    """How precise the table is, one number at a time and all at once."""
    if table.statistics:
        return _statistic_words(release, table)
    if not cross.has_errors:
        return NO_INTERVAL
    widths, confidence = release.views.widths, confidence_text(release.job)
    half = widths.per_query[table.rows(release.job.workload)]
    digits = digits_for(float(half.min()))
    text = f"The {confidence} noise interval is {largest}."
    if half.size > 1:
        number = release.job.tables.index(table)
        together = plus_minus(float(widths.per_table[number]), digits)
        what = "all numbers of all parts" if cross.part else "all numbers of the table"
        before = ", before rounding" if view == "published" else ""
        text = (
            f"Noise at {confidence}: at most {largest} for a number by itself; {together} for "
            f"{what} at once{before}."
        )
    return text + _target_reached(release, table, digits)


def _target_reached(release: ReleaseFacts, table: Table, digits: int) -> str:
    """How precise the table had to be, and is."""
    (error,) = [each for each in release.measured.tables if each.name == table.name]
    if error.target is None or error.reached is None:
        return ""
    together = " for the whole table at once" if error.target.simultaneous else " for each number"
    return (
        f" It had to be {plus_minus(error.target.half_width, digits)} at "
        f"{float(error.target.confidence) * 100:g} %{together}, and is "
        f"{plus_minus(error.reached, digits)}."
    )


def _statistic_words(release: ReleaseFacts, table: Table) -> str:
    """What numbers and intervals of a table of sums, means, shares and quantiles mean."""
    text = ""
    if not release.views.has_errors:
        text = NO_INTERVAL
    elif table.derived:
        text = (
            "Each interval holds all numbers that agree with the noisy counts and sums; where a "
            "group has too few rows to tell, it is the declared range."
        )
        whole = release.views.statistics[table.name].whole_range
        if whole is not None and whole.any():
            text += f" That is so for {int(whole.sum()):,} of {whole.size:,} numbers."
    return f"{text} {bounds_words(table)}".strip()


def _source(release: ReleaseFacts, view: str) -> str:
    """Whose numbers these are."""
    file = release.file
    edition = file.edition and f"edition {file.edition}"
    words = [file.publisher, file.title or file.name, edition, view]
    return ", ".join(word for word in words if word)


def _downloads(release: ReleaseFacts, table: Table, view: View, cross: CrossTable) -> Pairs:
    """The files of a table, beside the page."""
    if view not in release.views.kinds:
        return ()
    formats, job = release.file.output.formats, release.job
    links = [("CSV as shown", quote(wide_files(job)[cross.name]))] if "wide" in formats else []
    if "xlsx" in formats and table.name not in left_out_of_workbook(job):
        links.append(("Excel, all tables", quote(WORKBOOK_FILE)))
    stem = f"{view}/{job.table_files[table.name]}"
    return (*links, *_files(release, stem, ", all parts" if cross.part else ""))


def _files(release: ReleaseFacts, stem: str, more: str = "") -> Iterator[tuple[str, str]]:
    """The files that have a number in each row."""
    for kind in release.file.output.table_formats:
        yield f"{FORMAT_NAMES[kind]}, one number a row{more}", quote(f"{stem}.{kind}")


# ---- tables of persons -------------------------------------------------------------------------


def _persons_table(release: ReleaseFacts, request: PersonsRequest) -> ShownTable:
    """A table that counts persons, measured by itself."""
    table, job = request.question, release.job
    half = plus_minus(table.half_width(job.unit, float(job.file.output.confidence)), 0)
    where = f" where {table.words}" if table.words else ""
    by = ", ".join(name if level is None else f"{name}.{level}" for name, level in table.by)
    return ShownTable(
        cross=_persons_cross(release, request),
        group="",
        confidence=confidence_text(job),
        precision=(
            f"Noise at {confidence_text(job)}: {half} for a number by itself, before those below "
            f"zero are cut. It cost {budget_text(request.spend)} of its own. A person with rows in "
            "several groups counts once in each, so these numbers do not add up."
        ),
        question=f"persons by {by or 'nothing: all of them'}{where}",
        source=_source(release, "persons"),
        downloads=tuple(_files(release, f"persons/{job.persons_files[table.name]}")),
    )


def _persons_cross(release: ReleaseFacts, request: PersonsRequest) -> CrossTable:
    """A table of persons, laid out."""
    table = request.question
    data = job_persons_table(release.job, request)
    (cross,) = lay_out(table.questions, table.table, data, release.titles)
    where = (("Rows where", table.words),) if table.words else ()
    return replace(cross, statistic="persons", fixed=(*where, *(cross.fixed if table.by else ())))
