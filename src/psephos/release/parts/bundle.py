"""A release in parts on disk.

manifest.json      what this is, the levels and their weights, and the hash of every other file
release.json       schema, parts, tables, unit of privacy and budget, as they were asked
strategy.bin       what every part was asked
receipt.json       the charge in the ledger
receipts.bin       the manifest of sealed answers that the ledger stored
answers/           the noisy integers, sealed; receipts.bin holds the keys
estimate/          what levels hand down to the parts below them, as real numbers
tables/TABLE/level=LEVEL/*.parquet     every table of every part of a level
report.html        the same for people
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from psephos.domain.part_tree import PartTree
from psephos.errors import ReleaseError, a_path
from psephos.kernel import gate
from psephos.kernel.budget import Budget
from psephos.kernel.parts.law import part_noise
from psephos.kernel.parts.measurement import PartMeasurement
from psephos.release.bundle.files import read_bytes, read_json, read_parquet, report_damage
from psephos.release.bundle.requests import BUNDLE_FORMAT, read_receipt, spend_of
from psephos.release.bundle.shapes import AmountShape, JsonShape, VersionText, check_shape
from psephos.release.parts.estimates import PartEstimates, answers_of_cells, half_width_factor
from psephos.release.parts.tables import PART_NUMBERS, level_folder, part_rows
from psephos.release.spec.file import checked_release
from psephos.release.spec.job import Job
from psephos.release.spec.tables import Table
from psephos.strategy import strategy as strategy_files
from psephos.strategy.strategy import Strategy
from psephos.values import Array
from psephos.workload.workload import Workload

PARTS_KIND = "parts"
ANSWERS_FOLDER, ESTIMATE_FOLDER = "answers", "estimate"
PartPath = str | Sequence[str]


@dataclass(frozen=True, eq=False, repr=False)
class PartsBundle:
    """A release in parts; opened by `PartsBundle.open`."""

    path: Path
    manifest: dict[str, Any]

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> PartsBundle:
        """The bundle in a directory."""
        place = Path(a_path(path, "a bundle", ReleaseError)).absolute()
        manifest = read_json(place / "manifest.json")
        if not isinstance(manifest, dict) or manifest.get("kind") != PARTS_KIND:
            raise ReleaseError(f"{place} is no release in parts; open it with Bundle.open")
        if manifest.get("format") != BUNDLE_FORMAT:
            raise ReleaseError(
                f"{place} has format {manifest.get('format')!r:.20}, and this psephos reads "
                f"{BUNDLE_FORMAT} of releases in parts; release it again, which charges nothing "
                "for what its ledger holds, or use the version that wrote it"
            )
        check_shape(manifest, PartsManifestShape, place / "manifest.json")
        return cls(place, manifest)

    @property
    def simulation(self) -> bool:
        """Is it a rehearsal on made-up data?"""
        simulated: bool = self.manifest["simulation"]
        return simulated

    @cached_property
    def job(self) -> Job:
        """What was asked."""
        place = self.path / "release.json"
        content = read_json(place)
        with report_damage(place):
            return Job.alone(checked_release(content, "release.json"), self.path)

    @property
    def tree(self) -> PartTree:
        """The declared parts."""
        if self.job.tree is None:
            raise ReleaseError(f"{self.path / 'release.json'} names no parts; get the bundle again")
        return self.job.tree

    @property
    def spend(self) -> Budget:
        """What it cost."""
        return spend_of(self.manifest)

    @cached_property
    def strategy(self) -> Strategy:
        """What every part was asked."""
        with report_damage(self.path / "strategy.bin"):
            return strategy_files.load(self.path / "strategy.bin", self.job.workload.domain)

    @cached_property
    def receipt(self) -> dict[str, Any]:
        """The charge in the ledger."""
        return read_receipt(self.path)

    @cached_property
    def measurement(self) -> PartMeasurement:
        """The noisy answers of all parts, as the ledger stored them."""
        weights = tuple(Fraction(int(weight)) for weight in self.manifest["weights"])
        with report_damage(self.path):
            return PartMeasurement(
                dataset_id=self.receipt["dataset_id"],
                lineage=tuple(self.manifest["lineage"]),
                domain=self.job.workload.domain,
                tree=self.tree,
                query=self.strategy.query,
                weights=weights,
                noise=part_noise(self.strategy.query, weights, self.spend, self.job.unit, 1),
                cost=self.spend,
                key=self.manifest["key"],
                manifest=np.frombuffer(read_bytes(self.path / "receipts.bin"), np.uint8),
                folder=str(self.path / ANSWERS_FOLDER),
                simulation=self.simulation,
            )

    @cached_property
    def _estimates(self) -> PartEstimates:
        """The estimates, by what was stored of the levels above the smallest."""
        return PartEstimates(self.measurement, stored=self.path / ESTIMATE_FOLDER)

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def names(self) -> list[str]:
        """The names of all tables."""
        return [table.name for table in self.job.tables]

    def table(self, name: str, level: str = "", part: PartPath = ()) -> pa.Table:
        """A published table: of one part, or of all parts of a level; of the whole by default.

        Args:
            name: of the table
            level: a level's name, such as "state"
            part: the way to a part, such as "Bavaria / Munich" or ["Bavaria", "Munich"]
        """
        table = self._table(name)
        number, place = self.place(level, part)
        wanted = range(self.tree.sizes[number]) if place is None else range(place, place + 1)
        some = part_rows(self.job, self.tree, table, number, range(1), self._no_numbers)
        pieces = []
        for parts, file in self._runs(table, number):
            inside = range(max(parts.start, wanted.start), min(parts.stop, wanted.stop))
            if inside:
                rows = read_parquet(file, (some.schema,), len(parts) * some.num_rows)
                first, count = inside.start - parts.start, len(inside)
                pieces.append(rows.slice(first * some.num_rows, count * some.num_rows))
        whole = pa.concat_tables(pieces).unify_dictionaries()
        return whole.drop_columns(list(self.tree.names[number + 1 :]))

    @property
    def _no_numbers(self) -> dict[str, Array]:
        """What tells the columns of a table before any number is known."""
        shape = (1, self.job.workload.shape[0])
        kinds = {name: np.int64 if name == "count" else np.float64 for name in PART_NUMBERS}
        return {name: np.zeros(shape, dtype=kind) for name, kind in kinds.items()}

    def _runs(self, table: Table, level: int) -> Iterator[tuple[range, Path]]:
        """The files of a table's level, by the parts that each holds; the manifest lists them."""
        folder = level_folder(self.job.table_files[table.name], self.tree.names[level])
        names = sorted(name for name in self.manifest["files"] if Path(name).parent == folder)
        firsts = [Path(name).stem for name in names]
        if firsts[:1] != [f"{0:08}"] or not all(each.isdecimal() for each in firsts):
            raise ReleaseError(f"{self.path} lists no files of {table.name!r}; get it again")
        ends = [*map(int, firsts[1:]), self.tree.sizes[level]]
        for name, first, end in zip(names, firsts, ends, strict=True):
            yield range(int(first), end), self.path / name

    def place(self, level: str, part: PartPath) -> tuple[int, int | None]:
        """The number of a level and of a part in it; None for all parts of the level."""
        words = [w.strip() for w in part.split("/")] if isinstance(part, str) and part else part
        if words and level:
            raise ReleaseError("name a part or a level, not both; a part's level is known")
        if words:
            return self.tree.part(list(words))
        if not level:
            return 0, 0
        if level not in self.tree.names:
            known = ", ".join(self.tree.names)
            raise ReleaseError(f"there is no level {level!r}; have {known}")
        return self.tree.names.index(level), None

    def answer(self, workload: Workload, level: str = "", part: PartPath = ()) -> dict[str, Array]:
        """Answers of a workload over the inner cells, with standard errors and intervals; free.

        Arrays have a row for each part.
        """
        number, place = self.place(level, part)
        parts = range(self.tree.sizes[number]) if place is None else range(place, place + 1)
        estimates = self._estimates
        errors = estimates.standard_errors(workload)
        factors = np.sqrt(estimates.fit.variance_factors(number))[parts]
        cells = estimates.fit.estimates(number, parts.start, parts.stop)
        consistent, stderr = answers_of_cells(workload, cells), np.outer(factors, errors)
        half = half_width_factor(self.confidence, self.spend.currency) * stderr
        return {
            "consistent": consistent,
            "stderr": stderr,
            "low": consistent - half,
            "high": consistent + half,
        }

    @property
    def confidence(self) -> float:
        return float(self.job.file.output.confidence)

    def _table(self, name: str) -> Table:
        for table in self.job.tables:
            if table.name == name:
                return table
        raise ReleaseError(f"there is no table {name!r}; have {', '.join(self.names())}")

    def __repr__(self) -> str:
        kind = "rehearsal in parts" if self.simulation else "release in parts"
        return f"PartsBundle({self.manifest['name']!r}, {kind}: {self.tree} at {self.spend})"


class PartErrorShape(JsonShape):
    """The error of a table in the parts of a level."""

    table: str
    level: str
    parts: int
    numbers: int
    rmse: float


class PartsManifestShape(JsonShape):
    """manifest.json of a release in parts."""

    format: int
    kind: Literal["parts"]
    name: str
    title: str
    simulation: bool
    edition: str
    psephos: VersionText
    fingerprint: str
    key: str
    lineage: list[str]
    spend: AmountShape
    levels: dict[str, int]
    weights: list[Annotated[str, Field(pattern=r"^[0-9]{1,12}$")]]
    errors: list[PartErrorShape]
    files: dict[str, str]


def is_in_parts(path: str | os.PathLike[str]) -> bool:
    """Does a directory hold a release in parts?"""
    place = Path(a_path(path, "a bundle", ReleaseError)) / "manifest.json"
    if not place.is_file():
        return False
    try:
        content = read_json(place)
    except ReleaseError:
        return False
    return isinstance(content, dict) and content.get("kind") == PARTS_KIND


def receipts_bytes(measurement: PartMeasurement) -> bytes:
    """The manifest of sealed answers as a file has it."""
    return measurement.manifest.astype(np.uint8).tobytes()


def request_name(measurement: PartMeasurement, spend: Budget) -> str:
    """The ledger's name for the request."""
    parts = (measurement.lineage, measurement.query, measurement.weights, spend)
    return gate.fingerprint("measure parts", *parts)
