"""A bundle: one directory that holds a release, whole, and that anyone can verify.

    manifest.json          what this is, versions, and the hash of every other file
    release.json           schema, tables, unit of privacy and budget, as they were asked
    requests/1/ …          of each request, those that it builds on first and then its own:
      strategy.bin           what was measured: integer queries and their weights; question.bin
                             for each step of a plan that adapts (release.methods.plan_steps)
      measurements.parquet   the noisy integers
      receipt.json           the charge in the ledger, and how far the ledger had come
    raw/ consistent/ published/    tables, as CSV and Parquet; published/cells.parquet adds up
                                   to every published table
    estimate/cells.parquet         the real numbers that the published cells are a rounding of
    estimate/prior.parquet         the public table that they are drawn towards, if one is declared
    persons/                       tables that count persons (psephos.release.spec.persons)
    synthetic/rows.parquet         made-up rows, if the release has any; as CSV too
    report.html            the same for people

Where a vector of all cells does not fit, published/groups/1.parquet … and estimate/groups/1.parquet
… hold the cells of each group of tables.

Nothing in it carries a hash, a size or a date of the source. It is written beside its place and
moved there in one step, so there is a whole bundle or none.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from psephos.errors import ReleaseError, UnsupportedError, a_path
from psephos.infer.estimate import Answers
from psephos.infer.group_cells import GroupCells
from psephos.kernel.budget import Budget
from psephos.kernel.measurement import Measurement
from psephos.release.bundle.contents import (
    CELLS_FILE,
    COORDINATES_FILE,
    ESTIMATE_FILE,
    PRIOR_FILE,
    ROWS_STEM,
    cell_files,
    job_persons_table,
)
from psephos.release.bundle.files import (
    read_csv,
    read_floats,
    read_integers,
    read_json,
    read_parquet,
    report_damage,
    sha256_of,
)
from psephos.release.bundle.requests import (
    ReleaseRequest,
    check_edition,
    read_manifest,
    request_folders,
    spend_of,
)
from psephos.release.bundle.shapes import ManifestShape, check_shape
from psephos.release.formats.publication import TableFiles
from psephos.release.methods.kind import (
    PersonsRequest,
    ReleaseKind,
    ReleaseMethod,
    member,
    registered_kind,
)
from psephos.release.preflight.store import MEASURE
from psephos.release.spec.asked_cells import finer_words, over_cells
from psephos.release.spec.entries import View
from psephos.release.spec.file import checked_release
from psephos.release.spec.job import Job
from psephos.release.spec.persons import PERSONS_FOLDER
from psephos.release.spec.tables import Table
from psephos.release.views.layout import cross_tables
from psephos.release.views.of_requests import views_of
from psephos.release.views.published_groups import GroupedFit
from psephos.release.views.published_numbers import (
    PublishedCells,
    PublishedGroupCells,
    PublishedNumbers,
    PublishedRows,
)
from psephos.release.views.views import Views
from psephos.report.chart import Chart
from psephos.report.cross_table import CrossTable
from psephos.report.html import HtmlTable, notebook_html
from psephos.report.table_charts import chart_of, draw_tables
from psephos.strategy.strategy import Strategy
from psephos.synthesis.table import SyntheticTable
from psephos.values import Array
from psephos.workload.workload import Workload


@dataclass(frozen=True, eq=False, repr=False)
class Bundle:
    """A release on disk."""

    path: Path
    manifest: dict[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.path, Path) or not isinstance(self.manifest, dict):
            raise ReleaseError(f"a bundle is opened: write Bundle.open({str(self.path)!r})")
        check_shape(self.manifest, ManifestShape, self.path / "manifest.json")

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Bundle:
        """The bundle in a directory."""
        place = Path(a_path(path, "a bundle", ReleaseError)).absolute()
        return cls(place, read_manifest(place))

    @property
    def simulation(self) -> bool:
        """Is it a rehearsal on made-up data?"""
        return bool(self.manifest["simulation"])

    @cached_property
    def job(self) -> Job:
        """What was asked."""
        place = self.path / "release.json"
        content = read_json(place)
        with report_damage(place):
            file = checked_release(content, "release.json")
            earlier = request_folders(self.manifest)[: self.manifest["builds_on"]]
            if sorted(file.builds_on) != sorted(earlier):
                raise ReleaseError(f"{place} builds on other requests than lie in the bundle")
            job = Job.alone(file, self.path)
            if self.method is not None:
                return replace(job, prior=self._prior(job))
            requests = self._kind(job).read(self.path, self.manifest, job)
            past = requests[: len(earlier)]
            if requests:  # they may be finer than is asked now: of another version, or another past
                measured = requests[-1].question.cells
                if not measured.refines(job.cells.joined(each.question.cells for each in past)):
                    raise ReleaseError(f"{place} asks about other cells than were measured")
                job = job.over(measured)
            check_edition(past, self.path, file.edition)
            return replace(job, past=tuple(past), prior=self._prior(job))

    def _prior(self, job: Job) -> Array | None:
        """The public table that the published view is drawn towards, if it is as it was."""
        if job.file.output.prior != "stand_in":
            return None
        place = self.path / PRIOR_FILE
        counts = read_integers(place, "count", job.workload.domain.size)
        if sha256_of(place) != self.manifest["files"].get(PRIOR_FILE):
            raise ReleaseError(f"{place} has changed since the release; get the bundle again")
        return counts

    def _kind(self, job: Job) -> ReleaseKind:
        """How it was measured and estimated."""
        name = "measured" if self.method is None else "adaptive"
        return registered_kind(job.method.name) or member(name)

    @property
    def method(self) -> ReleaseMethod | None:
        """The plan that adapts to the data, by which it was made; None if a strategy was."""
        facts = self.manifest.get("method")
        return None if facts is None or facts["name"] == MEASURE else ReleaseMethod(**facts)

    @cached_property
    def spend(self) -> Budget:
        """What it cost, as it was asked for: the noise follows from it."""
        return spend_of(self.manifest)

    @cached_property
    def requests(self) -> tuple[ReleaseRequest[Any], ...]:
        """What was asked for this release, step by step, with receipts."""
        requests = self._kind(self.job).read(self.path, self.manifest, self.job)
        return tuple(requests[self.manifest["builds_on"] :])

    @cached_property
    def persons(self) -> tuple[PersonsRequest, ...]:
        """The requests of tables that count persons."""
        facts = self.manifest.get("persons") or []
        if [each["name"] for each in facts] != [table.name for table in self.job.persons]:
            raise ReleaseError("the manifest lists other tables of persons than were asked for")
        job, folder = self.job, self.path / PERSONS_FOLDER
        return tuple(
            PersonsRequest.open(folder / str(i), table, each, job.unit, job.file.name)
            for i, (table, each) in enumerate(zip(job.persons, facts, strict=True), 1)
        )

    def persons_table(self, name: str) -> pa.Table:
        """A table that counts persons, worked out from its noisy integers."""
        requests = {request.question.name: request for request in self.persons}
        if name not in requests:
            have = ", ".join(requests) or "none"
            raise ReleaseError(f"no table of persons {name!r}; have {have}")
        return job_persons_table(self.job, requests[name])

    @property
    def all_requests(self) -> tuple[ReleaseRequest[Any], ...]:
        """What it builds on, then its own."""
        return (*self.job.past, *self.requests)

    @property
    def strategy(self) -> Strategy:
        """What was measured, in the last step."""
        strategy: Strategy = self.requests[-1].question.strategy
        return strategy

    @property
    def receipt(self) -> dict[str, Any]:
        """The last charge, as the ledger has it."""
        return self.requests[-1].receipt

    @property
    def measurement(self) -> Measurement:
        """The noisy integers of the last step, with the noise that was added to them."""
        return self.requests[-1].measurement

    @cached_property
    def views(self) -> Views:
        """The numbers, worked out again from the noisy integers."""
        if self.method is not None:
            from psephos.release.methods.method import check_method

            check_method(self.job, self.method)
            return views_of(self.job, self.requests, self.method)
        claim = self.manifest.get("published")
        return views_of(self.job, self.requests, coordinates=self.coordinates, claim=claim)

    @cached_property
    def coordinates(self) -> Array | None:
        """How consistent tables differ from least squares, where they are nearest otherwise."""
        if self.job.file.output.consistency == "l2":
            return None
        return self._floats(COORDINATES_FILE, self.manifest.get("coordinates") or 0, "value")

    @cached_property
    def published(self) -> PublishedNumbers:
        """The published numbers as the bundle shows them; `views` works them out again."""
        facts, groups = self.manifest.get("published"), self.views.groups
        if facts is None:
            raise ReleaseError("this release has no published view")
        if groups is not None:
            steps = tuple((each["steps"], each["gap"]) for each in facts["groups"])
            fit = GroupedFit(self.group_estimates, facts["total"], steps, facts["sweeps"])
            whole = self._group_cells("published", self._whole_cells)
            return PublishedGroupCells(groups, fit, self.simulation, whole)
        if not self.views.estimate.has_cells and isinstance(self.views.published, PublishedRows):
            return replace(self.views.published, stored=self.synthetic)
        cells = self._whole_cells(f"published/{CELLS_FILE}", self.job.workload.domain.size)
        return PublishedCells(self.job, self.estimate, facts, self.simulation, cells)

    def _whole_cells(self, name: str, count: int) -> Array:
        """Whole numbers of a file, none negative."""
        cells = read_integers(self.path / name, "count", count)
        if cells.dtype != np.int64 or (cells < 0).any():
            raise ReleaseError(
                f"{self.path / name}: the cells are not non-negative whole numbers, one for each"
            )
        return cells

    @cached_property
    def estimate(self) -> Array:
        """Real numbers for every cell, which published ones are a rounding of; as a model."""
        if self.views.groups is not None:
            raise ReleaseError("tables are in groups, each with its cells: see `group_estimates`")
        if not self.views.estimate.has_cells:
            raise ReleaseError(
                f"plan {self.manifest['strategy']!r} gives no estimate of every cell, which its "
                "tables would be sums of"
            )
        if ESTIMATE_FILE not in self.manifest["files"]:  # published numbers were not asked for
            return self.views.published.vectors[0].real
        return self._floats(ESTIMATE_FILE, self.job.workload.domain.size)

    @cached_property
    def group_estimates(self) -> GroupCells:
        """The same for each group of tables, where a vector of all cells does not fit."""
        if "published" not in self.manifest["views"]:
            raise ReleaseError("no tables of this release are in groups: see `estimate`")
        return self._group_cells("estimate", self._floats)

    def _group_cells(self, folder: str, read: Callable[[str, int], Array]) -> GroupCells:
        """The cells of all groups, from the files of a folder."""
        groups = self.views.groups
        if groups is None:
            raise ReleaseError("no tables of this release are in groups: see `estimate`")
        sizes = map(groups.grouping.cells, range(len(groups.rules)))
        names = (f"{folder}/{name}" for name in cell_files(self.views))
        return GroupCells(groups.grouping, tuple(map(read, names, sizes)))

    def _floats(self, name: str, count: int, column: str = "count") -> Array:
        """Real numbers of a file, if it is as it was released."""
        place = self.path / name
        cells = read_floats(place, column, count)
        if sha256_of(place) != self.manifest["files"].get(name):
            raise ReleaseError(f"{place} has changed since the release; get the bundle again")
        return cells

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def table(self, name: str, view: View = "consistent") -> pa.Table:
        """A table of the release as it was written, in one of its views."""
        names = [table.name for table in self.job.tables]
        if name not in names:
            raise ReleaseError(f"no table {name!r}; have {', '.join(names)}")
        if view == "raw":
            raise ReleaseError(
                "raw numbers are answers to what was measured; see the folder raw/, or "
                "bundle.measurement"
            )
        if view not in self.manifest["views"]:
            raise ReleaseError(f"no view {view!r}; have {', '.join(self.manifest['views'])}")
        table = self._table(name)
        why = self._left_out(name) if view == "published" else None
        if why is not None:
            raise ReleaseError(f"table {name!r} has no published view: {why}")
        return files_of(self).read(table, view)

    def _left_out(self, name: str) -> str | None:
        """Why a table has no published view."""
        reasons: dict[str, str] = (self.manifest.get("published") or {}).get("left_out", {})
        return reasons.get(name)

    @cached_property
    def synthetic(self) -> SyntheticTable:
        """The made-up rows of the release, as they were written."""
        domain = self.job.workload.domain
        facts = self.manifest.get("synthetic")
        if facts is None:
            raise ReleaseError(
                "this release has no made-up rows; write [synthetic] into a release file, or "
                "make some up from its tables: psephos synthesize BUNDLE"
            )
        kind = "parquet" if "parquet" in self.job.file.output.formats else "csv"
        name = f"{ROWS_STEM}.{kind}"
        none = SyntheticTable(domain, np.zeros((0, len(domain)), dtype=np.int64))
        schema = none.to_arrow().schema
        place = self.path / name
        if kind == "parquet":
            table = read_parquet(place, (schema,), facts["rows"])
        else:
            table = read_csv(place, schema, facts["rows"])
        if sha256_of(place) != self.manifest["files"].get(name):
            raise ReleaseError(f"{place} has changed since the release; get the bundle again")
        return SyntheticTable.of_arrow(domain, table, self.simulation)

    def plot(self, name: str, view: View = "consistent") -> Chart:
        """A chart of a table of the release, as its report draws it."""
        confidence = f"{float(self.job.file.output.confidence) * 100:g} %"
        return chart_of(self._laid_out(name, view), self._title(name), confidence)

    def draw(self, name: str, view: View = "consistent", axes: Any = None) -> Any:
        """The numbers of a table and their intervals on matplotlib's axes, new ones if none.

        The figure is saved as matplotlib does it: `bundle.draw("ages").figure.savefig("ages.pdf")`.
        """
        return draw_tables(self._laid_out(name, view), self._title(name), axes)

    def _laid_out(self, name: str, view: View) -> tuple[CrossTable, ...]:
        return cross_tables(self.job, self._table(name), self.table(name, view))

    def _table(self, name: str) -> Table:
        tables = {table.name: table for table in self.job.tables}
        if name not in tables:
            raise ReleaseError(f"no table {name!r}; have {', '.join(tables)}")
        return tables[name]

    def _title(self, name: str) -> str:
        title = self._table(name).title
        return f"Rehearsal: {title}" if self.simulation else title

    def answer(self, workload: Workload) -> Answers:
        """The answers of another workload over the same domain, free of charge."""
        if self.method is not None:
            return self.views.estimate.answer(workload)
        measured = over_cells(self.job.cells, workload)
        if measured is None:
            raise UnsupportedError(finer_words(self.job.cells, workload))
        return self.views.estimate.answer(measured)

    def __repr__(self) -> str:
        mark = "Rehearsal" if self.simulation else "Bundle"
        count = len(self.manifest["tables"])
        return f"{mark}({str(self.path)!r}: {count} tables at {self.spend})"

    def _repr_html_(self) -> str:
        rows = [
            [table["name"], " × ".join(shift["by"]) or "total", f"{shift['mean']:+,.2f}"]
            for table in self.manifest["tables"]
            for shift in table.get("shifts", [])
        ] or [[table["name"], "", "–"] for table in self.manifest["tables"]]
        heads = ["table", "by", "published minus consistent, mean (estimate)"]
        caption = f"{self.manifest['title']}: {self!r}"
        return notebook_html(HtmlTable.of(caption, heads, rows))


def files_of(bundle: Bundle) -> TableFiles:
    """Where the tables of a bundle lie."""
    errors = bundle.method is None and bundle.job.file.output.consistency == "l2"
    return TableFiles(bundle.path, bundle.job, bundle.simulation, errors)
