"""A release as it was asked for: file, schema, workload and tables, ready to be planned."""

from __future__ import annotations

import filecmp
import os
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from psephos.domain.cleaning import Cleaning
from psephos.domain.domain import Domain
from psephos.domain.part_tree import PartTree
from psephos.errors import PsephosError, ReleaseError, TooLargeError, name_list
from psephos.infer.nonnegative import NONNEGATIVE_CELLS
from psephos.kernel.budget import Budget
from psephos.kernel.cell_counts import CellCounts
from psephos.kernel.ledger import Ledger
from psephos.kernel.measurement import Measurement
from psephos.kernel.unit import Unit
from psephos.plans.session import step_key
from psephos.release.bundle.requests import MeasuredRequest, check_in_ledger, read_past
from psephos.release.formats.names import table_files
from psephos.release.spec.asked_cells import AskedCells, asked_cells
from psephos.release.spec.entries import (
    CsvEntry,
    DuckdbEntry,
    MethodEntry,
    ReleaseFile,
    SparkEntry,
)
from psephos.release.spec.file import read_release, release_path
from psephos.release.spec.parts import check_asked, check_compiled, inner_domain
from psephos.release.spec.persons import PersonsTable
from psephos.release.spec.tables import (
    Impossible,
    Table,
    check_columns,
    compile_tables,
    compile_zeros,
)
from psephos.synthesis.method import PLAN_NAMES, SyntheticChoice, chosen_method
from psephos.values import Array, digest
from psephos.variances import NoiseKind
from psephos.workload.workload import Workload

if TYPE_CHECKING:
    from psephos.engines.bit_matrix import BitMatrix
    from psephos.engines.cleaned import CleanedSource
    from psephos.engines.duckdb.reader import Reader
    from psephos.engines.row_store import RowStore

MOST_NUMBERS = 20_000_000
"""The most numbers of one table."""
MOST_MARKED_CELLS = 10**9
"""The most cells of a domain whose cells are estimated one by one."""


@dataclass(frozen=True, eq=False)
class Job:
    """What is asked, and the measurements of past releases that it builds on: all of it public."""

    file: ReleaseFile
    folder: Path
    domain: Domain
    workload: Workload
    tables: tuple[Table, ...]
    past: tuple[MeasuredRequest, ...] = ()
    impossible: tuple[Impossible, ...] = ()
    prior: Array | None = None
    """The counts of a public table that the published view is drawn towards, if one is."""
    reduction: tuple[Workload, AskedCells] | None = None
    """The workload over all declared cells, and which of them are one in `workload`."""

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Job:
        """The job of a release file."""
        place = release_path(path)
        return cls.of(read_release(place), place if place.is_dir() else place.parent)

    @classmethod
    def of(cls, file: ReleaseFile, folder: Path) -> Job:
        """The job of a file's content, with what it builds on; paths are relative to a folder."""
        job = cls.alone(file, folder)
        requests: dict[str, MeasuredRequest] = {}
        for name in file.builds_on:
            past = read_past(folder / name, job.questions.domain, job.unit, file.edition)
            requests |= {request.key: request for request in past}
        job = job.over(job.cells.joined(request.question.cells for request in requests.values()))
        prior = stand_in_counts(job) if file.output.prior == "stand_in" else None
        return replace(job, past=tuple(requests.values()), prior=prior)

    @classmethod
    def alone(cls, file: ReleaseFile, folder: Path) -> Job:
        """The job of a file's content without what it builds on."""
        domain = file.domain()
        check_columns(domain)
        if file.by:
            check_asked(file)
        inner = inner_domain(domain, file)
        workload, tables = compile_tables(inner, file.tables, file.units)
        if file.by:
            check_compiled(workload, tables, inner)
        for table in tables:
            count = table.numbers(workload)
            if count > MOST_NUMBERS:
                raise TooLargeError(
                    f"tables {table.name!r}: it asks for {count:,} numbers, over the limit of "
                    f"{MOST_NUMBERS:,}; ask about fewer attributes at once, or coarser levels",
                    count,
                    MOST_NUMBERS,
                )
        impossible = compile_zeros(domain, file.zeros)
        for name in file.ask_later:
            if name not in domain:
                known = name_list(domain.names)
                raise ReleaseError(f"ask_later: no attribute {name!r}; have {known}")
        job = cls(file, folder, domain, workload, tuple(tables), impossible=impossible)
        job = job.over(asked_cells(workload, file, impossible))
        if (
            impossible
            and job.workload.domain.size <= NONNEGATIVE_CELLS
            and job.zeros is not None
            and job.zeros.all()
        ):
            raise ReleaseError("zeros: every row meets one of them, so nothing could be published")
        _ = job.persons  # refused here, with their place, rather than later
        return job

    @property
    def smaller_words(self) -> str:
        """What to do where a release is too large: which of its tables asks for the most."""
        largest = max(self.tables, key=lambda table: table.numbers(self.questions))
        return (
            f"leave out table {largest.name!r}, the largest with "
            f"{largest.numbers(self.questions):,} numbers, or ask it about fewer attributes or "
            "coarser levels"
        )

    @property
    def questions(self) -> Workload:
        """What is asked, over all declared cells."""
        return self.workload if self.reduction is None else self.reduction[0]

    @property
    def cells(self) -> AskedCells:
        """The cells that are measured."""
        return (
            AskedCells.whole(self.workload.domain) if self.reduction is None else self.reduction[1]
        )

    def over(self, cells: AskedCells) -> Job:
        """The same release where other cells are measured, fine enough for its questions."""
        if cells.is_same(self.cells):
            return self
        reduction = (self.questions, cells)
        job = replace(self, workload=cells.over(self.questions), reduction=reduction, prior=None)
        return job if self.prior is None else replace(job, prior=stand_in_counts(job))

    @property
    def whole(self) -> Job:
        """The same release where every declared cell is measured by itself."""
        return self.over(AskedCells.whole(self.questions.domain))

    @cached_property
    def known(self) -> tuple[Measurement, ...]:
        """The measurements of past releases, over the cells of the workload."""
        return tuple(each.question.over(self.cells, each.measurement) for each in self.past)

    @cached_property
    def tree(self) -> PartTree | None:
        """The parts that tables are published for; None if there are none but the whole."""
        return PartTree.of(self.domain, self.file.by) if self.file.by else None

    @cached_property
    def persons(self) -> tuple[PersonsTable, ...]:
        """The tables that count persons."""
        entries, person = enumerate(self.file.persons, 1), self.unit.person or ""
        return tuple(PersonsTable.of(self.domain, entry, person, i) for i, entry in entries)

    @property
    def persons_keys(self) -> list[str]:
        """Their keys in the ledger: each is paid for by itself, and names the release it is of."""
        return [table.key(self.key) for table in self.persons]

    @cached_property
    def cleaning(self) -> dict[str, Cleaning]:
        """How the entries of columns are cleaned. PRIVATE: it holds the owner's spellings."""
        return self.file.cleaning()

    @property
    def public_cleaning(self) -> dict[str, Cleaning]:
        """The rules without the owner's spellings."""
        return {name: rule.public for name, rule in self.cleaning.items() if rule.public}

    @property
    def data(self) -> CleanedSource:
        """The source with cleaned entries; only the owner's commands ask."""
        from psephos.engines.cleaned import cleaned

        return cleaned(self.source, self.cleaning)

    @cached_property
    def unit(self) -> Unit:
        """Whose presence is protected."""
        return self.file.privacy.privacy_unit()

    @cached_property
    def budget(self) -> Budget | None:
        """What may be spent, or None if it follows from targets."""
        return None if self.file.budget is None else self.file.budget.budget()

    @cached_property
    def method(self) -> MethodEntry:
        """By which plan tables are measured, as [method] or [synthetic] says."""
        choice, synthetic = self.synthetic_choice, self.file.synthetic
        if choice is None or choice.method == "sample":
            return self.file.method
        options: dict[str, Any] = dict(self.file.method.options)
        if choice.method == "dual_query" and synthetic and synthetic.queries:
            options["queries"] = synthetic.queries
        return MethodEntry(name=PLAN_NAMES[choice.method], options=options)

    @cached_property
    def synthetic_choice(self) -> SyntheticChoice | None:
        """How the data are measured that rows are made up from; None if none are."""
        if self.file.synthetic is None:
            return None
        method, plan = self.file.synthetic.method, self.file.method.name
        if method == "auto" and plan != "measure":
            return SyntheticChoice("sample", f"rows of the estimate of {plan}")
        return chosen_method(method, self.workload.domain, self.noise.currency)

    @property
    def noise(self) -> NoiseKind:
        """What the budget buys; targets are paid in the ledger's currency."""
        return NoiseKind.paid_in((self.budget or self.file.ledger.budget()).currency)

    def budget_of(self, amount: Fraction) -> Budget:
        """An amount in the currency of the release's noise."""
        return Budget(self.noise.currency, amount)

    @cached_property
    def zeros(self) -> Array | None:
        """The cells that no row can lie in, in the workload's order; None if there are none."""
        if not self.file.zeros:
            return None
        if self.workload.domain.size > MOST_MARKED_CELLS:
            cells = self.workload.domain.size_text
            raise ReleaseError(f"zeros: {cells} cells are too many to mark; leave `zeros` out")
        return self.cells.zeros(self.impossible)

    @property
    def source(self) -> Any:
        """Where the data are: a path, a URL, a table; only the owner's commands ask."""
        from psephos.engines import CsvFile, DuckdbTable, SparkTable
        from psephos.engines.columns import needed_columns
        from psephos.engines.postgres import is_database_url

        entry = self.file.source
        if entry is None:
            raise ReleaseError('source is missing: write source = "people.csv"')
        if isinstance(entry, CsvEntry):
            return CsvFile(self.folder / entry.csv, multiline=entry.multiline)
        if isinstance(entry, DuckdbEntry):
            return DuckdbTable(self.folder / entry.duckdb, entry.table, schema=entry.namespace)
        if isinstance(entry, SparkEntry):
            folder = None if entry.folder is None else self.folder / entry.folder
            needed = needed_columns(self.domain, self.unit.cap)
            return SparkTable(entry.spark, needed=needed, folder=folder)
        return entry if is_database_url(entry) else self.folder / entry

    @property
    def source_place(self) -> tuple[str, ...]:
        """What tells the source from others; no data are looked at."""
        source = self.source
        if isinstance(source, Path):
            return (str(source.resolve()),)
        return (source,) if isinstance(source, str) else tuple(source.place)

    @property
    def ledger(self) -> Path:
        return self.folder / self.file.ledger.path

    @property
    def bundle(self) -> Path:
        return self.folder / self.file.output.bundle

    def check_past(self, ledger: Ledger | None = None) -> None:
        """Refuse to build on anything but paid measurements of one data set, each counted once."""
        for past in self.past:
            if past.key == self.key:
                raise ReleaseError(
                    f"builds_on: {past.name!r} is what this release measures, and would count "
                    "twice; give this release another name"
                )
            try:
                past.check_receipt()
                if ledger is not None:
                    check_in_ledger(past.receipt, past.key, ledger)
            except PsephosError as error:
                raise ReleaseError(
                    f"builds_on: {past.name!r} cannot be built on: {error}; leave it out, or get "
                    "the bundle again"
                ) from None

    @property
    def key(self) -> str:
        """One key for what is measured, so that the ledger knows a second run for what it is."""
        edition = f" ({self.file.edition})" if self.file.edition else ""
        return f"release {self.file.name[:200]}{edition} {self.request[:24]}"

    def step_keys(self, count: int) -> list[str]:
        """The keys of the requests that a plan of so many steps makes."""
        return [step_key(self.key, step) for step in range(count)]

    @cached_property
    def fingerprint(self) -> str:
        """A name for what is asked and what it builds on; not for how it is shown."""
        past = [(each.key, each.values_hash) for each in self.past]
        persons = (self.persons_keys,) if self.persons else ()
        statistics = [table.statistics for table in self.tables if table.statistics]
        return digest((self.request, past, *persons, *statistics))

    @cached_property
    def titles(self) -> dict[str, str]:
        """What attributes are called for people."""
        return {name: entry.title or name for name, entry in self.file.attributes.items()}

    @cached_property
    def table_files(self) -> dict[str, str]:
        """What the files of each table are called in a bundle, without their endings."""
        return table_files([table.name for table in self.tables])

    @cached_property
    def persons_files(self) -> dict[str, str]:
        """The same for tables of persons, which have a folder of their own."""
        return table_files([table.name for table in self.persons])

    @cached_property
    def request(self) -> str:
        """A name for what is measured: of which data, of whom, of what, how precisely.

        What it builds on is no part of it: what was paid for can be released with and without.
        """
        targets = [
            (t.name, t.products.start, t.target.model_dump_json())
            for t in self.tables
            if t.target is not None
        ]
        spend = None if self.budget is None else (self.budget.currency, str(self.budget.amount))
        declared = self.questions
        questions = (self.domain, declared.domain, declared.products, spend, targets)
        facts = (self.file.name, self.file.edition, str(self.unit), self.file.zeros)
        method = self.method
        plan = () if method.name == "measure" else (method.model_dump_json(), self.file.total)
        rules = [(name, repr(rule)) for name, rule in self.public_cleaning.items()]
        parts = [("by", self.file.by)] if self.file.by else []
        parts += [("ask_later", self.file.ask_later)] if self.file.ask_later else []
        cleaning = [("cleaning", rules)] if rules else []
        return digest((*facts, *questions, *plan, *cleaning, *parts))


def stand_in_counts(job: Job) -> Array | None:
    """The counts of the public table that stands in for the data; None if none is declared."""
    if job.file.stand_in is None:
        return None
    domain = job.workload.domain
    if domain.size > NONNEGATIVE_CELLS:
        raise ReleaseError(
            f"stand_in: it is counted cell by cell, at most {NONNEGATIVE_CELLS:,}, and these "
            f"tables span {domain.size_text}; leave it out"
        )
    place = job.folder / job.file.stand_in
    refuse_source(job, place)
    try:
        counts = public_counts(job, place)
    except PsephosError as error:
        words = str(error).replace(" (in a release file, `source`)", "")
        raise ReleaseError(f"stand_in: {words}") from None
    if not counts.any():
        raise ReleaseError(f"stand_in: no row of {place.name} has a declared cell")
    return np.asarray(counts).reshape(-1)


def public_counts(job: Job, place: Path) -> Array:
    """How many rows of a public table lie in each cell that the job measures."""
    from psephos.engines.bit_matrix import BitMatrix

    source, domain = public_source(job, place), job.workload.domain
    if job.cells.is_whole:
        return np.asarray(source.count(domain, domain.names, (), None))
    groups = {name: each.groups for name, each in job.cells.partitions.items()}
    rows: RowStore | CellCounts
    if isinstance(source, BitMatrix):
        rows = CellCounts(job.domain, source.count(job.domain, job.domain.names, (), None))
    else:
        rows = source.take(job.domain, None)
    rows = rows.over(job.questions.domain) if job.questions.domain != job.domain else rows
    return np.asarray(rows.coarsen(domain, groups, ()).counts([domain.names], ())[0])


def public_source(job: Job, place: Path) -> Reader | BitMatrix:
    """A public table of the same columns, cleaned by the public rules alone.

    What is decided by it is published, and would tell of the owner's spellings.
    """
    from psephos.engines import as_source, cleaned

    rules = job.public_cleaning
    return as_source(cleaned(place, rules) if rules else place)


def refuse_source(job: Job, place: Path, *, read: bool = False) -> None:
    """Refuse a stand-in that is the source, by its place; or, for the owner, a copy of it.

    Args:
        job: the release
        place: of the stand-in
        read: compare the bytes of both files, which only the owner's commands may
    """
    from psephos.engines.files import CsvFile
    from psephos.engines.folders import source_files

    source = None if job.file.source is None else job.source
    if not isinstance(source, CsvFile | Path):
        return
    words = ""
    ours = source_files(source) if isinstance(source, Path) else list(source.files)
    theirs = source_files(place)
    by_size: dict[int, list[Path]] = {}
    for file in ours:
        by_size.setdefault(file.stat().st_size, []).append(file)
    pairs = [(a, b) for b in theirs for a in by_size.get(b.stat().st_size, [])]
    if any(a.samefile(b) for a, b in pairs):
        words = f"{place.name} is the source itself"
    elif read and any(filecmp.cmp(a, b, shallow=False) for a, b in pairs):
        words = f"{place.name} is a copy of the source"
    if words:
        raise ReleaseError(
            f"stand_in: {words}; a stand-in is a public table, since what is decided by it costs "
            "no budget. Name a table that is public, e.g. of an earlier year, or leave stand_in "
            "out. Nothing was charged"
        )


def uses_stand_in(job: Job) -> bool:
    """Is a strategy or what it is drawn towards decided by a stand-in? Plans say so themselves."""
    file = job.file
    return file.stand_in is not None and (
        file.method.name == "auto"
        or file.output.prior == "stand_in"
        or file.selection.error == "relative"
    )


def stand_in_words(job: Job, place: Path | None = None) -> str:
    """What a stand-in is, how many of its rows are of use, and why others are not.

    A stand-in is public, so its entries may be named.
    """
    from psephos.owner.check import check

    place = job.folder / str(job.file.stand_in) if place is None else place
    report = check(public_source(job, place), job.domain)
    rows, counted = report.rows or 0, report.counted or 0
    if counted == rows:
        return f"the public table {place.name} ({rows:,} rows)"
    reasons: dict[str, list[str]] = {"undeclared": [], "missing": []}
    for each in report.findings:
        if each.kind in reasons and each.level != "note":
            entries = ", ".join(f"{entry!r} ({number:,})" for entry, number in each.entries)
            words = f"{each.kind} entries" + (f": {entries}" if each.kind == "undeclared" else "")
            reasons[each.kind].append(f"{each.column} has {words}")
    share = f"{counted:,} of {rows:,} rows have a cell"
    words = "; ".join([share, *reasons["undeclared"], *reasons["missing"]])
    return f"the public table {place.name} ({words})"
