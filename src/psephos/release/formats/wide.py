"""Tables as people read them, as CSV: tables/NAME.csv, one for each part of a builder.

Rows run down and columns across as they were asked for, each number with its ± beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from psephos.release.formats.csv_text import write_csv
from psephos.release.formats.names import table_files
from psephos.release.formats.publication import Publication, PublishedTable
from psephos.release.spec.job import Job
from psephos.release.spec.tables import Table
from psephos.release.views.layout import cross_names, cross_tables

WIDE_FOLDER = "tables"
"""Where they lie in a bundle."""


@dataclass(frozen=True)
class WideCsv:
    """A CSV file for each table as it is laid out."""

    name: str = "wide"

    def files(self, publication: Publication) -> Iterator[str]:
        places = wide_files(publication.job)
        for _, table in _row_tables(publication):
            yield from (places[name] for name in cross_names(publication.job.questions, table))

    def write(self, publication: Publication, folder: Path) -> None:
        places = wide_files(publication.job)
        (folder / WIDE_FOLDER).mkdir()
        for shown, table in _row_tables(publication):
            for cross in cross_tables(publication.job, table, shown.read()):
                write_csv(cross.wide(), folder / places[cross.name])


def _row_tables(publication: Publication) -> Iterator[tuple[PublishedTable, Table]]:
    """The tables that count rows; those of persons have one row a number, and no totals."""
    for shown in publication.tables:
        if isinstance(shown.table, Table):
            yield shown, shown.table


def wide_files(job: Job) -> dict[str, str]:
    """Where each table lies in a bundle, by its name as it is laid out."""
    names = [name for table in job.tables for name in cross_names(job.questions, table)]
    return {name: f"{WIDE_FOLDER}/{stem}.csv" for name, stem in table_files(names).items()}
