"""Tables as people read them, as CSV: tables/NAME.csv, one for each part of a builder.

Rows run down and columns across as they were asked for, each number with its ± beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from psephos.release.formats.csv_text import write_csv
from psephos.release.formats.names import table_files
from psephos.release.formats.publication import FormatFiles, Publication, PublishedTable
from psephos.release.spec.job import Job
from psephos.release.views.layout import cross_names, cross_tables
from psephos.report.cross_table import CrossTable

WIDE_FOLDER = "tables"
"""Where they lie in a bundle."""


def wide_csv(publication: Publication) -> FormatFiles:
    """A file for each table as it is laid out; those of persons have one row a number anyway."""
    job = publication.job
    places = wide_files(job)
    for shown in publication.tables:
        if shown.persons is None:
            layouts = _layouts(job, shown)
            for number, name in enumerate(cross_names(job.questions, shown.table)):
                yield places[name], _writer(layouts, number)


def _layouts(job: Job, shown: PublishedTable) -> Callable[[], tuple[CrossTable, ...]]:
    """Reads a table and lays it out, once for all its parts; not where names alone are wanted."""
    return cache(lambda: cross_tables(job, shown.table, shown.read()))


def _writer(layouts: Callable[[], tuple[CrossTable, ...]], number: int) -> Callable[[Path], None]:
    return lambda place: write_csv(layouts()[number].wide(), place)


def wide_files(job: Job) -> dict[str, str]:
    """Where each table lies in a bundle, by its name as it is laid out."""
    names = [name for table in job.tables for name in cross_names(job.questions, table)]
    return {name: f"{WIDE_FOLDER}/{stem}.csv" for name, stem in table_files(names).items()}
