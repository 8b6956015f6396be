"""What goes into files for other programs: the words of a release, and its tables as written.

Numbers are read from the bundle's own CSV or Parquet files and rounded. So whoever has a bundle
makes the same files again from it, byte for byte, on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from psephos.kernel.budget import Budget
from psephos.release.bundle.files import read_csv, read_parquet
from psephos.release.formats.digits import UNKNOWN_DECIMALS, decimals_in, decimals_of, printed
from psephos.release.formats.names import table_files
from psephos.release.pages.words import budget_text, guarantee_of, unit_text, whole_spend
from psephos.release.spec.entries import View
from psephos.release.spec.job import Job
from psephos.release.spec.persons import PERSONS_FOLDER, PersonsTable
from psephos.release.spec.tables import Table
from psephos.release.views.labels import table_labels, table_schema, view_schema
from psephos.release.views.statistics import statistic_count, statistic_errors, statistic_schema
from psephos.release.views.views import Views
from psephos.workload.workload import Workload

ShownView = Literal[View, "persons"]
FormatFiles = Iterator[tuple[str, Callable[[Path], None]]]
"""The files of a format: the place of each in the bundle, and what writes it to a path."""
NO_DATE = datetime(2000, 1, 1, tzinfo=UTC)
"""Of files that must have a date in a rehearsal, which has none."""


@dataclass(frozen=True)
class TableFiles:
    """Where the tables of a release lie, and what their numbers are like.

    Attributes:
        folder: of the bundle
        job: what was asked
        simulation: a rehearsal on made-up data
        errors: tables have standard errors and intervals
    """

    folder: Path
    job: Job
    simulation: bool
    errors: bool

    @classmethod
    def of(cls, folder: Path, views: Views) -> TableFiles:
        """Those of a release with these numbers."""
        return cls(folder, views.job, views.simulation, views.has_errors)

    def read(self, table: Table, view: View) -> pa.Table:
        """A table as it was written: to every digit from Parquet, else from CSV."""
        stem, domain = f"{view}/{self.job.table_files[table.name]}", self.job.questions.domain
        if table.statistics:
            schema = statistic_schema(table, domain, view, self.simulation, self.errors)
            return self._read(stem, schema, statistic_count(table, domain))
        rows = table.rows(self.job.workload)
        schema = table_schema(self.job.questions, table, view, self.simulation, self.errors)
        return self._read(stem, schema, rows.stop - rows.start)

    def read_persons(self, table: PersonsTable) -> pa.Table:
        """A table of persons as it was written."""
        kinds = dict.fromkeys(("count", "consistent", "low", "high"), pa.int64())
        numbers = ("count", "consistent", "stderr", "low", "high")
        labels = table_labels(table.questions, table.table)
        schema = view_schema(labels, numbers, self.simulation, kinds)
        stem = self.job.persons_files[table.name]
        return self._read(f"{PERSONS_FOLDER}/{stem}", schema, table.domain.size)

    def _read(self, stem: str, schema: pa.Schema, count: int) -> pa.Table:
        if "parquet" in self.job.file.output.formats:
            return read_parquet(self.folder / f"{stem}.parquet", (schema,), count)
        return read_csv(self.folder / f"{stem}.csv", schema, count)


@dataclass(frozen=True, eq=False)
class PublishedTable:
    """One table in the view that people are shown."""

    files: TableFiles
    table: Table
    view: ShownView
    decimals: int
    stem: str
    """What its files for other programs are called, without their endings."""
    persons: PersonsTable | None = None
    """What it counts instead of rows."""

    @property
    def questions(self) -> Workload:
        """What the products of the table are products of."""
        return self.files.job.questions if self.persons is None else self.persons.questions

    @property
    def source(self) -> str:
        """Its CSV or Parquet file in the bundle, without its ending."""
        job = self.files.job
        stems = job.persons_files if self.view == "persons" else job.table_files
        return f"{self.view}/{stems[self.table.name]}"

    @property
    def numbers(self) -> int:
        """How many numbers it has."""
        if self.table.statistics:
            return statistic_count(self.table, self.questions.domain)
        return self.table.numbers(self.questions)

    @property
    def errors(self) -> bool:
        """Have its numbers intervals? Those of persons always have."""
        return self.files.errors or self.view == "persons"

    @property
    def whole(self) -> bool:
        """Are its numbers whole?"""
        return self.view != "consistent"

    def read(self) -> pa.Table:
        """Its labels and its rounded numbers."""
        if self.persons is not None:
            data = self.files.read_persons(self.persons)
            return printed(data, decimals_in(data))
        view: View = "published" if self.view == "published" else "consistent"
        return printed(self.files.read(self.table, view), self.decimals)


@dataclass(frozen=True, eq=False)
class Publication:
    """A release as its files for other programs tell it.

    Attributes:
        files: the tables that lie in the bundle
        views: its numbers
        decimals: of each table
        spend: what the release cost, tables of persons included
        date: of the last charge; a rehearsal has none
    """

    files: TableFiles
    views: Views
    decimals: Sequence[int]
    spend: Budget
    date: datetime | None

    @classmethod
    def of(
        cls,
        views: Views,
        files: TableFiles,
        decimals: Sequence[int],
        spend: Budget,
        receipt: Mapping[str, Any],
    ) -> Publication:
        """The publication of a release whose tables are written."""
        charge = receipt.get("charge")
        date = datetime.fromisoformat(charge["time"]).astimezone(UTC) if charge else None
        return cls(files, views, decimals, whole_spend(views.job, spend), date)

    @property
    def job(self) -> Job:
        return self.files.job

    @property
    def folder(self) -> Path:
        return self.files.folder

    @cached_property
    def tables(self) -> tuple[PublishedTable, ...]:
        """All tables that people are shown: published where that is possible, else consistent."""
        names = [table.name for table in self.job.tables]
        names += [table.name for table in self.job.persons]
        stems, shown = table_files(names), []
        for table, decimals in zip(self.job.tables, self.decimals, strict=True):
            whole = "published" in self.views.kinds and table in self.views.published_tables
            if whole or "consistent" in self.views.kinds:
                view: View = "published" if whole else "consistent"
                stem = stems[table.name]
                shown.append(PublishedTable(self.files, table, view, decimals, stem))
        for persons in self.job.persons:
            stem = stems[persons.name]
            shown.append(PublishedTable(self.files, persons.table, "persons", 0, stem, persons))
        return tuple(shown)

    @property
    def counts(self) -> tuple[PublishedTable, ...]:
        """The tables of counts among them, which are cubes."""
        return tuple(shown for shown in self.tables if not shown.table.statistics)

    @property
    def title(self) -> str:
        mark = "Rehearsal on made-up data: " if self.files.simulation else ""
        return f"{mark}{self.job.file.title or self.job.file.name}"

    @property
    def description(self) -> tuple[str, ...]:
        """The paragraphs of the description."""
        parts = (part.strip() for part in self.job.file.description.split("\n\n"))
        return tuple(part for part in parts if part)

    @property
    def about(self) -> str:
        """The description and the notes as one text."""
        return "\n\n".join((*self.description, *self.notes))

    @property
    def time_text(self) -> str:
        """The date as other programs read it."""
        return (self.date or NO_DATE).strftime("%Y-%m-%dT%H:%M:%SZ")

    @property
    def confidence(self) -> str:
        return f"{float(self.job.file.output.confidence) * 100:g} %"

    @property
    def guarantee(self) -> str:
        """The privacy guarantee in one sentence."""
        facts, unit = guarantee_of(self.spend), unit_text(self.job.unit)
        times = f"e^{facts.epsilon} ≈ {facts.factor} times as likely"
        apart = f"with the data as with data that differ by {unit}"
        if facts.concentrated:
            return (
                f"Zero-concentrated differential privacy with {budget_text(self.spend)}: read out "
                f"at δ = 10⁻⁶ it gives ε = {facts.epsilon}, so no result of this release is more "
                f"than {times}, plus 10⁻⁶, {apart}."
            )
        return (
            f"Differential privacy with {budget_text(self.spend)}: no result of this release is "
            f"more than {times} {apart}."
        )

    def number_words(self, view: ShownView) -> str:
        """What the numbers of a view are."""
        noise = "Counts with noise added, which protects those who are counted"
        if view == "persons":
            return (
                "Numbers of persons with noise added, which protects them; whole, never negative. "
                "A person counts once in each cell, so they do not add up."
            )
        if view == "consistent":
            unbiased = ", unbiased" if self.files.errors else ""
            return f"{noise}{unbiased}; they add up, and may be negative."
        groups = self.views.groups
        inside = " inside each group of tables" if groups and len(groups.rules) > 1 else ""
        return f"{noise}; whole numbers, never negative, that add up{inside}."

    def column_words(self, view: ShownView) -> dict[str, str]:
        """What the columns of numbers hold."""
        ends = f"of the {self.confidence} interval, which covers the privacy noise alone"
        whole = "" if view == "consistent" else ": whole, never negative"
        counted = "persons" if view == "persons" else "rows"
        return {
            "part": "which part of the table",
            "statistic": "what the number is",
            "unit": "what the number is in",
            "value": "the number, from counts and sums with noise",
            "count": f"number of {counted}, with noise{whole}",
            "consistent": "the same before it was made whole and non-negative",
            "stderr": "standard deviation of the noise",
            "low": f"lower end {ends}",
            "high": f"upper end {ends}",
            "made_up": "a rehearsal: all numbers are made up",
        }

    def interval_words(self, errors: bool) -> str:
        """What ± and intervals are, where errors are known and where they are not."""
        if not errors:
            return "How far these numbers are off is not known, so no interval is given."
        return (
            f"Intervals hold the count without noise in {self.confidence} of cases, each by "
            "itself. They cover the privacy noise and nothing else: no sampling or reporting "
            "errors."
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What every file says beside its numbers."""
        rehearsal = ("A rehearsal: all numbers are made up from the public schema.",)
        kinds = dict.fromkeys(table.view for table in self.tables)
        return (
            *(rehearsal if self.files.simulation else ()),
            *(self.number_words(view) for view in kinds),
            *(self.interval_words(e) for e in dict.fromkeys(t.errors for t in self.tables)),
            self.guarantee,
            *self.job.file.facts,
        )

    def csv_files(self) -> Iterator[str]:
        """All CSV files of the bundle, those for people first."""
        for folder in ("published", "persons", "consistent", "raw", "synthetic"):
            places = (self.folder / folder).glob("*.csv")
            yield from (f"{folder}/{place.name}" for place in sorted(places, key=_natural))


def table_decimals(views: Views, scale: float = 1.0) -> tuple[int, ...]:
    """How many decimals the numbers of each table have, if standard errors are scaled so."""
    if not views.has_errors or views.kinds == ("raw",):
        return (UNKNOWN_DECIMALS,) * len(views.job.tables)
    workload, stderr = views.job.workload, views.stderr * scale
    return tuple(
        decimals_of(
            statistic_errors(views.statistics[table.name]) * scale
            if table.derived
            else stderr[table.rows(workload)]
        )
        for table in views.job.tables
    )


def _natural(place: Path) -> tuple[int, str]:
    """Block 10 comes after block 9."""
    return len(place.name) if place.parent.name == "raw" else 0, place.name
