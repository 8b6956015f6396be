"""Writing a bundle: all files of a release, at their place in one step, or none."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from psephos.errors import ReleaseError
from psephos.kernel.budget import Budget
from psephos.release.bundle.bundle import (
    COORDINATES_FILE,
    GROUPS_FOLDER,
    PRIOR_FILE,
    ROWS_STEM,
    SYNTHETIC_FOLDER,
    Bundle,
    cell_files,
    job_persons_table,
)
from psephos.release.bundle.files import (
    sha256_of,
    sync_all,
    sync_folder,
    write_column,
    write_json,
)
from psephos.release.bundle.requests import (
    BUNDLE_FORMAT,
    REQUESTS_FOLDER,
    ReleaseRequest,
)
from psephos.release.formats.csv_text import write_csv
from psephos.release.formats.digits import decimals_in, printed
from psephos.release.formats.publication import Publication, TableFiles, table_decimals
from psephos.release.formats.registry import write_formats
from psephos.release.methods.kind import PersonsRequest, ReleaseMethod
from psephos.release.preflight.selection import AUTO
from psephos.release.spec.entries import View
from psephos.release.spec.job import Job
from psephos.release.spec.persons import PERSONS_FOLDER
from psephos.release.views.comparison import require_agreement
from psephos.release.views.views import Views
from psephos.synthesis.method import SyntheticChoice
from psephos.synthesis.quality import SyntheticQuality
from psephos.version import __version__


def write_bundle(
    views: Views,
    requests: Sequence[ReleaseRequest[Any]],
    place: Path,
    *,
    method: ReleaseMethod | None = None,
    report: Callable[[Views, Path], None] | None = None,
    progress: Callable[[str], None] | None = None,
    persons: Sequence[PersonsRequest] = (),
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
        views.compute(kinds, progress)
        if "published" in kinds:
            _warn_of_total(views)
        say("tables")
        _write_inputs(draft, job, requests)
        decimals = table_decimals(views)
        tables = _write_views(draft, views, kinds, decimals)
        _write_coordinates(draft, views)
        if views.synthetic is not None:
            (draft / SYNTHETIC_FOLDER).mkdir()
            _write_table(draft / SYNTHETIC_FOLDER, ROWS_STEM, views.synthetic.to_arrow(), job)
        _write_persons(draft, job, persons)
        if set(job.file.output.formats) - set(job.file.output.table_formats):
            say("files for other programs")
            files = TableFiles(draft, job, views.simulation, views.has_errors)
            spend, receipt = total_spend(job, requests), requests[-1].receipt
            write_formats(Publication.of(views, files, decimals, spend, receipt), draft)
        if report is not None:
            say("report")
            _write_report(report, views, draft / "report.html")
        say("manifest")
        manifest = _manifest(views, requests, method)
        manifest |= {"tables": tables, "decimals": list(decimals)}
        if persons:
            manifest["persons"] = [request.facts() for request in persons]
        finish_draft(draft, place, manifest)
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


def _warn_of_total(views: Views) -> None:
    """Say so where the noisy total is further from the declared one than noise explains."""
    if views.total_gap is not None and views.total_gap.is_wide:
        warnings.warn(
            f"{views.total_gap}: more than noise explains. Published numbers add up to what is "
            "declared; see `total` in the release file",
            RuntimeWarning,
            stacklevel=3,
        )


def _manifest(
    views: Views,
    requests: Sequence[ReleaseRequest[Any]],
    method: ReleaseMethod | None,
) -> dict[str, Any]:
    """What the manifest says of a release but its tables and files."""
    job, adaptive = views.job, method is not None and method.adaptive
    shown = "published" in views.kinds
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
        **(method_facts(job, method) if method and adaptive else strategy_facts(requests)),
        "views": list(views.kinds),
        "draws": views.draws,
        "interval": views.interval_facts,
        "distance": views.distance._asdict() if shown else None,
        "published": dict(views.published.facts) if shown else None,
    }
    if method is not None and job.method.name == AUTO:
        manifest["method"] = asdict(method)
    if views.estimate.nearest is not None:
        manifest["coordinates"] = views.estimate.nearest.difference.size
    if views.quality is not None:
        manifest["synthetic"] = synthetic_facts(job, views.quality)
    return manifest


def finish_draft(draft: Path, place: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest with the hash of every other file, and move the bundle to its place."""
    manifest["files"] = {
        file.relative_to(draft).as_posix(): sha256_of(file)
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


def release_json(job: Job) -> dict[str, Any]:
    """What release.json holds: the release file without the owner's paths.

    What it builds on lies among the requests of the bundle.
    """
    content = job.file.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    content.pop("source", None)
    content["ledger"] = {**content["ledger"], "path": "-"}
    if "stand_in" in content:
        content["stand_in"] = "-"
    if job.past:
        content["builds_on"] = [f"{REQUESTS_FOLDER}/{i + 1}" for i in range(len(job.past))]
    return content


def total_spend(job: Job, requests: Sequence[ReleaseRequest[Any]]) -> Budget:
    """What all steps spend together, in the currency of the release's budget."""
    currency = job.noise.currency
    spends = [request.price(currency) for request in requests]
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


def strategy_facts(requests: Sequence[ReleaseRequest[Any]]) -> dict[str, Any]:
    """What the manifest says of how the release was measured."""
    strategies = [request.question.strategy for request in requests]
    names = dict.fromkeys(strategy.name for strategy in strategies)
    return {"noise": str(strategies[0].noise), "strategy": ", then ".join(names)}


def _total(job: Job, requests: Sequence[ReleaseRequest[Any]]) -> list[str]:
    """The spend of all steps."""
    total = total_spend(job, requests)
    return [total.currency, str(total.amount)]


def _write_inputs(draft: Path, job: Job, requests: Sequence[ReleaseRequest[Any]]) -> None:
    for i, request in enumerate((*job.past, *requests)):
        request.write(draft / REQUESTS_FOLDER / str(i + 1))
    write_json(draft / "release.json", release_json(job))
    if job.prior is not None:
        (draft / PRIOR_FILE).parent.mkdir(exist_ok=True)
        write_column(draft / PRIOR_FILE, "count", job.prior)


def _write_views(
    draft: Path, views: Views, kinds: tuple[View, ...], decimals: Sequence[int]
) -> list[dict[str, Any]]:
    job = views.job
    entries: list[dict[str, Any]] = []
    for view in kinds:
        (draft / view).mkdir()
        if view == "raw":
            for i in range(len(views.blocks)):
                _write_table(draft / view, f"block-{i + 1}", views.raw(i), job)
            continue
        for table in views.published_tables if view == "published" else job.tables:
            data, digits = views.table(table, view), decimals[job.tables.index(table)]
            _write_table(draft / view, job.table_files[table.name], data, job, digits)
        if view == "published":
            _write_cells(draft, views)
    for table in job.tables:
        entry: dict[str, Any] = {"name": table.name, "file": job.table_files[table.name]}
        if "published" in kinds and table in views.published_tables:
            entry["shifts"] = [asdict(shift) for shift in views.shifts(table)]
        entries.append(entry)
    return entries


def _write_cells(draft: Path, views: Views) -> None:
    """The cells that published tables are sums of, and what they were rounded from."""
    vectors = views.published.vectors
    names = cell_files(views)
    if views.groups is not None:
        (draft / "published" / GROUPS_FOLDER).mkdir()
    for name, (whole, real) in zip(names, vectors, strict=True):
        place = draft / "estimate" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        write_column(draft / "published" / name, "count", whole)
        write_column(place, "count", real)


def _write_coordinates(draft: Path, views: Views) -> None:
    """How consistent tables differ from least squares, where another norm was asked for."""
    nearest = views.estimate.nearest
    if nearest is not None:
        place = draft / COORDINATES_FILE
        place.parent.mkdir(exist_ok=True)
        write_column(place, "value", nearest.difference)


def _write_persons(draft: Path, job: Job, persons: Sequence[PersonsRequest]) -> None:
    """The requests and tables of persons."""
    for number, request in enumerate(persons, 1):
        request.write(draft / PERSONS_FOLDER / str(number))
        table = job_persons_table(job, request)
        _write_table(draft / PERSONS_FOLDER, job.persons_files[request.question.name], table, job)


def _write_table(
    folder: Path, name: str, table: pa.Table, job: Job, decimals: int | None = None
) -> None:
    """A table in the formats that hold every view; by default with the digits its errors leave."""
    if "csv" in job.file.output.formats:
        digits = decimals_in(table) if decimals is None else decimals
        write_csv(printed(table, digits), folder / f"{name}.csv")
    if "parquet" in job.file.output.formats:
        pa.parquet.write_table(table, folder / f"{name}.parquet")
