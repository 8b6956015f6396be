"""A bundle: one directory that holds a release, whole, and that anyone can verify.

    manifest.json          what this is, versions, and the hash of every other file
    release.json           schema, tables, unit of privacy and budget, as they were asked
    requests/1/ …          of each request, those that it builds on first and then its own:
      strategy.bin           what was measured: integer queries and their weights; question.bin
                             for each step of a plan that adapts (psephos.release.planned)
      measurements.parquet   the noisy integers
      receipt.json           the charge in the ledger, and how far the ledger had come
    raw/ consistent/ published/    tables, as CSV and Parquet; published/cells.parquet adds up
                                   to every published table
    estimate/cells.parquet         the real numbers that the published cells are a rounding of
    estimate/prior.parquet         the public table that they are drawn towards, if one is declared
    synthetic/rows.parquet         made-up rows, if the release has any; as CSV too
    report.html            the same for people

Where a vector of all cells does not fit, published/groups/1.parquet … and estimate/groups/1.parquet
… hold the cells of each group of tables.

Nothing in it carries a hash, a size or a date of the source. It is written beside its place and
moved there in one step, so there is a whole bundle or none.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from psephos.errors import ReleaseError, a_path
from psephos.infer.estimate import Answers
from psephos.infer.group_cells import GroupCells
from psephos.kernel.budget import Budget
from psephos.kernel.measurement import Measurement
from psephos.release.files import (
    CELLS_STEM,
    file_name,
    read_csv,
    read_floats,
    read_integers,
    read_json,
    read_parquet,
    report_damage,
    sha256_of,
    sync_all,
    sync_folder,
    write_json,
)
from psephos.release.labels import table_schema
from psephos.release.method import ReleaseMethod
from psephos.release.plan_views import PlanViews
from psephos.release.planned import PlannedRequest, retrace
from psephos.release.request import Job, column_titles, ordered_columns
from psephos.release.requests import (
    BUNDLE_FORMAT,
    REQUESTS_FOLDER,
    ManifestShape,
    MeasuredRequest,
    check_edition,
    check_shape,
    read_manifest,
    read_requests,
    request_folders,
    spend_of,
)
from psephos.release.selection import AUTO, MEASURE
from psephos.release.spec.entries import View
from psephos.release.spec.file import checked_release
from psephos.release.spec.tables import Table
from psephos.release.views import Views, require_agreement
from psephos.report import charts
from psephos.report.html import HtmlTable, notebook_html
from psephos.report.points import Points
from psephos.strategy.strategy import Strategy
from psephos.synthesis.method import SyntheticChoice
from psephos.synthesis.quality import SyntheticQuality
from psephos.synthesis.table import SyntheticTable
from psephos.values import Array
from psephos.version import __version__
from psephos.workload.workload import Workload

CELLS_FILE = f"{CELLS_STEM}.parquet"
"""Whole numbers for every cell, in row-major order: all published tables are sums of them."""
ESTIMATE_FILE = f"estimate/{CELLS_STEM}.parquet"
"""The real numbers that they are a rounding of."""
COORDINATES_FILE = "estimate/coordinates.parquet"
"""How consistent tables differ from least squares, where they are nearest in another norm."""
PRIOR_FILE = "estimate/prior.parquet"
"""The counts of the public table that they are drawn towards, where there is one."""
SYNTHETIC_FOLDER, ROWS_STEM = "synthetic", "rows"
"""Where made-up rows lie."""
GROUPS_FOLDER = "groups"
"""Cells of groups of tables lie in it, below published/ and estimate/."""


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
            requests = self._requests(job)[: len(earlier)]
            check_edition(requests, self.path, file.edition)
            return replace(job, past=tuple(requests), prior=self._prior(job))

    def _prior(self, job: Job) -> Array | None:
        """The public table that the published view is drawn towards, if it is as it was."""
        if job.file.output.prior != "stand_in":
            return None
        place = self.path / PRIOR_FILE
        counts = read_integers(place, "count", job.workload.domain.size)
        if sha256_of(place) != self.manifest["files"].get(PRIOR_FILE):
            raise ReleaseError(f"{place} has changed since the release; get the bundle again")
        return counts

    def _requests(self, job: Job) -> list[MeasuredRequest]:
        if self.method is not None:
            return []
        return read_requests(self.path, self.manifest, job.workload.domain, job.unit)

    @property
    def method(self) -> ReleaseMethod | None:
        """The plan that adapts to the data, by which it was made; None if a strategy was."""
        facts = self.manifest.get("method")
        return None if facts is None or facts["name"] == MEASURE else ReleaseMethod(**facts)

    @cached_property
    def planned(self) -> tuple[PlannedRequest, ...]:
        """The requests of its plan, each with its receipt, where the plan adapts to the data."""
        if self.method is None:
            return ()
        places = zip(request_folders(self.manifest), self.manifest["requests"], strict=True)
        return tuple(PlannedRequest.open(self.path / name, facts) for name, facts in places)

    @cached_property
    def spend(self) -> Budget:
        """What it cost, as it was asked for: the noise follows from it."""
        return spend_of(self.manifest)

    @cached_property
    def requests(self) -> tuple[MeasuredRequest, ...]:
        """What was measured for this release, with receipts; those of a plan are `planned`."""
        return tuple(self._requests(self.job)[self.manifest["builds_on"] :])

    @property
    def all_requests(self) -> tuple[MeasuredRequest | PlannedRequest, ...]:
        """What it builds on, then its own."""
        return (*self.job.past, *self.requests, *self.planned)

    @property
    def strategy(self) -> Strategy:
        """What was measured, in the last step."""
        return self.requests[-1].strategy

    @property
    def receipt(self) -> dict[str, Any]:
        """The last charge, as the ledger has it."""
        return (self.planned or self.requests)[-1].receipt

    @property
    def measurement(self) -> Measurement:
        """The noisy integers of the last step, with the noise that was added to them."""
        return self.requests[-1].measurement

    @cached_property
    def views(self) -> Views:
        """The numbers, worked out again from the noisy integers."""
        if self.method is not None:
            retraced = retrace(self.job, self.method, self.planned)
            return PlanViews(self.job, retraced.measurements, retraced=retraced)
        steps = tuple(request.measurement for request in self.requests)
        views = Views(self.job, steps, self.manifest["draws"], self.manifest["format"])
        if views.has_errors:
            return views
        file = COORDINATES_FILE
        count = self.manifest.get("coordinates") or 0
        return replace(views, coordinates=self._floats(file, count, "value"))

    @cached_property
    def estimate(self) -> Array:
        """Real numbers for every cell, which published ones are a rounding of; as a model."""
        if self.views.groups is not None:
            raise ReleaseError("tables are in groups, each with its cells: see `group_estimates`")
        if ESTIMATE_FILE not in self.manifest["files"]:
            return self.views.solution
        return self._floats(ESTIMATE_FILE, self.job.workload.domain.size)

    @cached_property
    def group_estimates(self) -> GroupCells:
        """The same for each group of tables, where a vector of all cells does not fit."""
        groups = self.views.groups
        if groups is None or "published" not in self.manifest["views"]:
            raise ReleaseError("no tables of this release are in groups: see `estimate`")
        grouping = groups.grouping
        sizes = [grouping.cells(g) for g in range(len(grouping.groups))]
        names = [f"estimate/{group_file(g)}" for g in range(len(sizes))]
        vectors = (self._floats(n, size) for n, size in zip(names, sizes, strict=True))
        return GroupCells(grouping, tuple(vectors))

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
        rows = table.rows(self.job.workload)
        count = rows.stop - rows.start
        errors = self.method is None and self.job.file.output.consistency == "l2"
        schema = table_schema(self.job.workload, table, view, self.simulation, errors)
        place = self.path / view / file_name(name)
        if "parquet" in self.job.file.output.formats:
            return read_parquet(place.with_name(f"{place.name}.parquet"), (schema,), count)
        return read_csv(place.with_name(f"{place.name}.csv"), schema, count)

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
        name = f"{SYNTHETIC_FOLDER}/{ROWS_STEM}.{kind}"
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

    def plot(self, name: str, view: View = "consistent") -> Any:
        """A chart of a table of the release, as altair has it; `charts.save_chart` writes it."""
        data = self.table(name, view)
        table = self._table(name)
        ordered, titles = ordered_columns(self.job, table), column_titles(self.job)
        return charts.table_chart(data, self._title(table), ordered=ordered, titles=titles)

    def draw(self, name: str, view: View = "consistent", axes: Any = None) -> Any:
        """The counts of a table and their noise intervals on matplotlib's axes, new ones if none.

        The figure is saved as matplotlib does it: `bundle.draw("ages").figure.savefig("ages.pdf")`.
        """
        data = self.table(name, view)
        return charts.draw_table(Points.of(data), self._title(self._table(name)), axes)

    def _table(self, name: str) -> Table:
        (table,) = [table for table in self.job.tables if table.name == name]
        return table

    def _title(self, table: Table) -> str:
        return f"Rehearsal: {table.title}" if self.simulation else table.title

    def answer(self, workload: Workload) -> Answers:
        """The answers of another workload over the same domain, free of charge."""
        if isinstance(self.views, PlanViews):
            return self.views.plan_answers(workload)
        if self.views.nearest is not None:
            return self.views.nearest.answer(workload)
        return self.views.estimate.answer(workload)

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


def write_bundle(
    views: Views,
    requests: Sequence[MeasuredRequest | PlannedRequest],
    place: Path,
    *,
    method: ReleaseMethod | None = None,
    report: Callable[[Views, Path], None] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Bundle:
    """All files of a release, at their place in one step; `method` is a plan that adapts."""
    job, say = views.job, progress or (lambda _: None)
    draft = place.parent
    try:
        # A name of its own: two runs at once never write into one another's bundle.
        draft = Path(tempfile.mkdtemp(prefix=f".{place.name}.draft-", dir=place.parent))
        draft.chmod(0o755)
        say("estimating")
        if not views.simulation:
            require_agreement(views)
        kinds = views.kinds
        views.compute(kinds)
        if "published" in kinds and views.total_gap is not None and views.total_gap.is_wide:
            warnings.warn(
                f"{views.total_gap}: more than noise explains. Published numbers add up to what is "
                "declared; see `total` in the release file",
                RuntimeWarning,
                stacklevel=2,
            )
        say("tables")
        _write_inputs(draft, job, requests)
        tables = _write_views(draft, views, kinds)
        _write_coordinates(draft, views)
        if views.synthetic is not None:
            (draft / SYNTHETIC_FOLDER).mkdir()
            _write_table(draft / SYNTHETIC_FOLDER, ROWS_STEM, views.synthetic.to_arrow(), job)
        if report is not None:
            say("report")
            _write_report(report, views, draft / "report.html")
        say("manifest")
        manifest = {
            "format": BUNDLE_FORMAT,
            "name": job.file.name,
            "simulation": views.simulation,
            "edition": job.file.edition,
            "spend": _total(job, requests),
            "requests": [request.facts() for request in (*job.past, *requests)],
            "builds_on": len(job.past),
            "psephos": __version__,
            "title": job.file.title or job.file.name,
            "fingerprint": job.fingerprint,
            **(
                method_facts(job, method)
                if method and method.adaptive
                else strategy_facts(requests)
            ),
            "tables": tables,
            "views": list(kinds),
            "draws": views.draws,
            "interval": views.interval_facts,
            "distance": views.distance()._asdict() if "published" in kinds else None,
            "published": views.published_facts if "published" in kinds else None,
        }
        if method is not None and job.method.name == AUTO:
            manifest["method"] = asdict(method)
        if views.nearest is not None:
            manifest["coordinates"] = views.nearest.difference.size
        if views.quality is not None:
            manifest["synthetic"] = synthetic_facts(job, views.quality)
        manifest["files"] = {
            str(file.relative_to(draft)): sha256_of(file)
            for file in sorted(draft.rglob("*"))
            if file.is_file()
        }
        write_json(draft / "manifest.json", manifest)
        sync_all(draft)
        try:
            os.rename(draft, place)
        except OSError:
            if not (place / "manifest.json").exists():
                raise
            shutil.rmtree(draft)  # another run of the same release was first; its bundle stands
        sync_folder(place.parent)
        for remnant in place.parent.glob(f".{place.name}.draft-*"):
            shutil.rmtree(remnant, ignore_errors=True)  # of runs that were cut short
    except OSError as error:
        if (place / "manifest.json").exists():  # another run of the same release was first
            return Bundle.open(place)
        raise ReleaseError(
            f"the bundle cannot be written to {place}: {error.strerror or error}. Nothing is lost: "
            "the measurement is in the ledger; make room and run the release again, which charges "
            "nothing"
        ) from None
    finally:
        if draft != place.parent:
            shutil.rmtree(draft, ignore_errors=True)  # gone by now, unless the run was cut short
    return Bundle.open(place)


def _write_report(report: Callable[[Views, Path], None], views: Views, place: Path) -> None:
    """The page; if it cannot be made, a line instead: what is paid for is not held back by it."""
    try:
        report(views, place)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the numbers are sound
        why = f"The report could not be made ({type(error).__name__}); the tables are whole."
        warnings.warn(why, RuntimeWarning, stacklevel=2)
        place.write_text(f"<!DOCTYPE html><title>No report</title><p>{why}</p>\n", encoding="utf-8")


def group_file(group: int) -> str:
    """Where the cells of a group lie, below published/ and estimate/."""
    return f"{GROUPS_FOLDER}/{group + 1}.parquet"


def release_json(job: Job, folder: str = REQUESTS_FOLDER) -> dict[str, Any]:
    """What release.json holds: the release file without the owner's paths.

    What it builds on lies in numbered places of a folder.
    """
    content = job.file.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    content.pop("source", None)
    content["ledger"] = {**content["ledger"], "path": "-"}
    if "stand_in" in content:
        content["stand_in"] = "-"
    if job.past:
        content["builds_on"] = [f"{folder}/{i + 1}" for i in range(len(job.past))]
    return content


def total_spend(job: Job, requests: Sequence[MeasuredRequest | PlannedRequest]) -> Budget:
    """What all steps spend together, in the currency of the release's budget."""
    currency = job.noise.currency
    spends = [
        request.price(currency) if isinstance(request, PlannedRequest) else request.spend
        for request in requests
    ]
    return sum(spends[1:], start=spends[0])


def method_facts(job: Job, method: ReleaseMethod) -> dict[str, Any]:
    """What the manifest says of a release that was made by a plan which adapts."""
    return {"noise": str(job.noise), "strategy": method.name, "method": asdict(method)}


def synthetic_facts(job: Job, quality: SyntheticQuality) -> dict[str, Any]:
    """What the manifest says of made-up rows."""
    choice = job.synthetic_choice
    if choice is None:
        choice = SyntheticChoice("sample", "the plan's estimate has no vector of all cells")
    return {**asdict(choice), **quality.facts()}


def strategy_facts(requests: Sequence[MeasuredRequest | PlannedRequest]) -> dict[str, Any]:
    """What the manifest says of how the release was measured."""
    strategies = [r.strategy for r in requests if isinstance(r, MeasuredRequest)]
    names = dict.fromkeys(strategy.name for strategy in strategies)
    return {"noise": str(strategies[0].noise), "strategy": ", then ".join(names)}


def _total(job: Job, requests: Sequence[MeasuredRequest | PlannedRequest]) -> list[str]:
    """The spend of all steps."""
    total = total_spend(job, requests)
    return [total.currency, str(total.amount)]


def _write_inputs(
    draft: Path, job: Job, requests: Sequence[MeasuredRequest | PlannedRequest]
) -> None:
    for i, request in enumerate((*job.past, *requests)):
        folder = draft / REQUESTS_FOLDER / str(i + 1)
        folder.mkdir(parents=True)
        request.write(folder)
    write_json(draft / "release.json", release_json(job))
    if job.prior is not None:
        (draft / PRIOR_FILE).parent.mkdir(exist_ok=True)
        counts = pa.array(job.prior, type=pa.int64())
        pa.parquet.write_table(pa.table({"count": counts}), draft / PRIOR_FILE)


def _write_views(draft: Path, views: Views, kinds: tuple[View, ...]) -> list[dict[str, Any]]:
    job = views.job
    entries: list[dict[str, Any]] = []
    for view in kinds:
        (draft / view).mkdir()
        if view == "raw":
            for i in range(len(views.blocks)):
                _write_table(draft / view, f"block-{i + 1}", views.raw(i), job)
            continue
        for table in views.published_tables if view == "published" else job.tables:
            _write_table(draft / view, file_name(table.name), views.table(table, view), job)
        if view == "published":
            _write_cells(draft, views)
    for table in job.tables:
        entry: dict[str, Any] = {"name": table.name, "file": file_name(table.name)}
        if "published" in kinds and table in views.published_tables:
            entry["shifts"] = [asdict(shift) for shift in views.shifts(table)]
        entries.append(entry)
    return entries


def _write_cells(draft: Path, views: Views) -> None:
    """The cells that published tables are sums of, and what they were rounded from."""
    if not views.has_cells:
        return
    if views.groups is None:
        pairs = {CELLS_FILE: (views.cells, views.solution)}
    else:
        vectors = zip(views.group_cells.vectors, views.grouped_fit.cells.vectors, strict=True)
        pairs = {group_file(g): pair for g, pair in enumerate(vectors)}
        (draft / "published" / GROUPS_FOLDER).mkdir()
    for name, (whole, real) in pairs.items():
        place = draft / "estimate" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        cells = pa.table({"count": pa.array(whole, type=pa.int64())})
        pa.parquet.write_table(cells, draft / "published" / name)
        pa.parquet.write_table(pa.table({"count": real}), place)


def _write_coordinates(draft: Path, views: Views) -> None:
    """How consistent tables differ from least squares, where another norm was asked for."""
    if views.nearest is not None:
        place = draft / COORDINATES_FILE
        place.parent.mkdir(exist_ok=True)
        pa.parquet.write_table(pa.table({"value": views.nearest.difference}), place)


def _write_table(folder: Path, name: str, table: pa.Table, job: Job) -> None:
    if "csv" in job.file.output.formats:
        pa.csv.write_csv(table, folder / f"{name}.csv")
    if "parquet" in job.file.output.formats:
        pa.parquet.write_table(table, folder / f"{name}.parquet")
