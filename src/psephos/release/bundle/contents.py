"""What the files of a bundle hold, and where they lie: a release writes it, `verify` compares it.

Tables are CSV with the digits that their errors leave, and Parquet with every digit. Cells and
other long columns are Parquet alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from psephos.release.bundle.files import CELLS_STEM
from psephos.release.bundle.requests import REQUESTS_FOLDER, ReleaseRequest
from psephos.release.bundle.table_files import ColumnFile, TableFile
from psephos.release.formats.digits import decimals_in
from psephos.release.methods.kind import PersonsRequest
from psephos.release.spec.entries import View
from psephos.release.spec.job import Job
from psephos.release.spec.persons import PERSONS_FOLDER
from psephos.release.spec.tables import Table
from psephos.release.views.views import Views

CELLS_FILE = f"{CELLS_STEM}.parquet"
"""Whole numbers for every cell, in row-major order: all published tables are sums of them."""
ESTIMATE_FILE = f"estimate/{CELLS_FILE}"
"""The real numbers that they are a rounding of."""
COORDINATES_FILE = "estimate/coordinates.parquet"
"""How consistent tables differ from least squares, where they are nearest in another norm."""
PRIOR_FILE = "estimate/prior.parquet"
"""The counts of the public table that they are drawn towards, where there is one."""
ROWS_STEM = "synthetic/rows"
"""Where made-up rows lie."""
GROUPS_FOLDER = "groups"
"""Cells of groups of tables lie in it, below published/ and estimate/."""


def shown_tables(views: Views, view: View) -> tuple[Table, ...]:
    """The tables that a view has."""
    return views.published_tables if view == "published" else views.job.tables


def view_stems(views: Views, view: View) -> list[str]:
    """The places of a view's tables, without their endings."""
    if view == "raw":
        return [f"raw/block-{i + 1}" for i in range(len(views.blocks))]
    stems = views.job.table_files
    return [f"{view}/{stems[table.name]}" for table in shown_tables(views, view)]


def view_tables(views: Views, view: View, decimals: Sequence[int]) -> Iterator[TableFile]:
    """The tables of a view; `decimals` has those of each table of the release."""
    if view == "raw":
        for i, stem in enumerate(view_stems(views, view)):
            block = views.raw(i)
            yield TableFile(stem, block, decimals_in(block))
        return
    digits = dict(zip(views.job.table_files, decimals, strict=True))
    for stem, table in zip(view_stems(views, view), shown_tables(views, view), strict=True):
        yield TableFile(stem, views.table(table, view), digits[table.name])


def persons_stems(job: Job) -> list[str]:
    """The places of tables of persons, without their endings."""
    return [f"{PERSONS_FOLDER}/{stem}" for stem in job.persons_files.values()]


def persons_tables(job: Job, persons: Sequence[PersonsRequest]) -> Iterator[TableFile]:
    """The tables of persons, worked out from their noisy integers."""
    for stem, request in zip(persons_stems(job), persons, strict=True):
        table = job_persons_table(job, request)
        yield TableFile(stem, table, decimals_in(table))


def job_persons_table(job: Job, request: PersonsRequest) -> pa.Table:
    """A table of persons, worked out from its noisy integers."""
    confidence = float(job.file.output.confidence)
    return request.question.view(request.measurement, confidence)


def made_up_rows(views: Views) -> Iterator[TableFile]:
    """The table of made-up rows, if the release has one."""
    if views.synthetic is not None:
        yield TableFile(ROWS_STEM, views.synthetic.to_arrow(), 0)


def cell_files(views: Views) -> list[str]:
    """The names of the files of cells, below published/ and estimate/."""
    if views.groups is not None:
        return [group_file(g) for g in range(len(views.groups.rules))]
    return [CELLS_FILE] if views.estimate.has_cells else []


def group_file(group: int) -> str:
    """Where the cells of a group lie, below published/ and estimate/."""
    return f"{GROUPS_FOLDER}/{group + 1}.parquet"


def column_files(views: Views) -> Iterator[ColumnFile]:
    """Columns that are no tables: a prior, coordinates, published cells and what they round."""
    nearest = views.estimate.nearest
    if views.job.prior is not None:
        yield ColumnFile(PRIOR_FILE, "count", views.job.prior)
    if nearest is not None:
        yield ColumnFile(COORDINATES_FILE, "value", nearest.difference)
    if "published" in views.kinds:
        for name, (whole, real) in zip(cell_files(views), views.published.vectors, strict=True):
            yield ColumnFile(f"published/{name}", "count", whole)
            yield ColumnFile(f"estimate/{name}", "count", real)


def request_files(
    job: Job, requests: Sequence[ReleaseRequest[Any]], persons: Sequence[PersonsRequest]
) -> Iterator[tuple[str, ReleaseRequest[Any]]]:
    """All requests, each with its folder."""
    for number, request in enumerate((*job.past, *requests), 1):
        yield f"{REQUESTS_FOLDER}/{number}", request
    for number, each in enumerate(persons, 1):
        yield f"{PERSONS_FOLDER}/{number}", each


def file_names(
    views: Views, requests: Sequence[ReleaseRequest[Any]], persons: Sequence[PersonsRequest]
) -> Iterator[str]:
    """All files but the manifest and those for other programs; nothing is worked out for it."""
    job = views.job
    yield from ("release.json", "report.html")
    for folder, request in request_files(job, requests, persons):
        yield from (f"{folder}/{name}" for name in request.file_names)
    if job.prior is not None:
        yield PRIOR_FILE
    if job.file.output.consistency != "l2" and views.estimate.least_squares is not None:
        yield COORDINATES_FILE
    if "published" in views.kinds:
        for name in cell_files(views):
            yield from (f"published/{name}", f"estimate/{name}")
    stems = [stem for view in views.kinds for stem in view_stems(views, view)]
    stems += [*persons_stems(job), *([ROWS_STEM] if views.has_rows else [])]
    for stem in stems:
        yield from (f"{stem}.{kind}" for kind in job.file.output.table_formats)
