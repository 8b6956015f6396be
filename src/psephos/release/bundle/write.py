"""Writing a bundle: all files of a release, at their place in one step, or none."""

from __future__ import annotations

import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from psephos.errors import ReleaseError
from psephos.release.bundle.bundle import Bundle
from psephos.release.bundle.contents import (
    column_files,
    made_up_rows,
    persons_tables,
    request_files,
    view_tables,
)
from psephos.release.bundle.files import (
    file_hashes,
    sync_all,
    sync_folder,
    write_json,
)
from psephos.release.bundle.manifest import manifest_of, release_json, total_spend
from psephos.release.bundle.requests import ReleaseRequest
from psephos.release.formats.publication import Publication, TableFiles, table_decimals
from psephos.release.formats.registry import write_formats
from psephos.release.methods.kind import PersonsRequest, ReleaseMethod
from psephos.release.views.comparison import require_agreement
from psephos.release.views.views import Views
from psephos.version import __version__

PageWriter = Callable[[Views, Path], None]


def write_bundle(
    views: Views,
    requests: Sequence[ReleaseRequest[Any]],
    place: Path,
    *,
    method: ReleaseMethod | None = None,
    report: PageWriter | None = None,
    progress: Callable[[str], None] | None = None,
    persons: Sequence[PersonsRequest] = (),
) -> Bundle:
    """All files of a release, at their place in one step; `method` is a plan that adapts."""
    say = progress or (lambda _: None)

    def fill(draft: Path) -> dict[str, Any]:
        say("estimating")
        if not views.simulation:
            require_agreement(views)
        views.compute(views.kinds, progress)
        if "published" in views.kinds:
            _warn_of_total(views)
        say("tables")
        decimals = table_decimals(views)
        _write_contents(draft, views, requests, persons, decimals)
        output = views.job.file.output
        if set(output.formats) - set(output.table_formats):
            say("files for other programs")
            publication = Publication.of(
                views,
                TableFiles.of(draft, views),
                decimals,
                total_spend(views.job, requests),
                requests[-1].receipt,
            )
            write_formats(publication, draft)
        if report is not None:
            say("report")
            _write_report(report, views, draft / "report.html")
        say("manifest")
        return manifest_of(views, requests, persons, method, decimals)

    write_draft(place, fill)
    return Bundle.open(place)


def write_draft(place: Path, fill: Callable[[Path], dict[str, Any]]) -> None:
    """A bundle at its place in one step: `fill` writes its files and returns its manifest."""
    draft = place.parent
    try:
        # A name of its own: two runs at once never write into one another's bundle.
        draft = Path(tempfile.mkdtemp(prefix=f".{place.name}.draft-", dir=place.parent))
        draft.chmod(0o755)
        _finish(draft, place, fill(draft))
    except OSError as error:
        if not (place / "manifest.json").exists():  # else another run of the release was first
            raise ReleaseError(
                f"the bundle cannot be written to {place}: {error.strerror or error}. Nothing is "
                "lost: the measurement is in the ledger; make room and run the release again, "
                "which charges nothing"
            ) from None
    finally:
        if draft != place.parent:
            shutil.rmtree(draft, ignore_errors=True)  # gone by now, unless the run was cut short


def _finish(draft: Path, place: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest with the hash of every other file, and move the bundle to its place."""
    manifest |= {"psephos": __version__, "files": file_hashes(draft)}
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


def _write_contents(
    draft: Path,
    views: Views,
    requests: Sequence[ReleaseRequest[Any]],
    persons: Sequence[PersonsRequest],
    decimals: Sequence[int],
) -> None:
    """Every file but the manifest, the page and those for other programs."""
    job, kinds = views.job, views.job.file.output.table_formats
    for folder, request in request_files(job, requests, persons):
        request.write(draft / folder)
    write_json(draft / "release.json", release_json(job))
    for column in column_files(views):
        column.write(draft)
    for view in views.kinds:
        for table in view_tables(views, view, decimals):
            table.write(draft, kinds)
    for table in (*persons_tables(job, persons), *made_up_rows(views)):
        table.write(draft, kinds)


def _warn_of_total(views: Views) -> None:
    """Say so where the noisy total is further from the declared one than noise explains."""
    if views.total_gap is not None and views.total_gap.is_wide:
        warnings.warn(
            f"{views.total_gap}: more than noise explains. Published numbers add up to what is "
            "declared; see `total` in the release file",
            RuntimeWarning,
            stacklevel=5,
        )


def _write_report(report: PageWriter, views: Views, place: Path) -> None:
    """The page; if it cannot be made, a line instead: what is paid for is not held back by it."""
    try:
        report(views, place)
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, the numbers are sound
        why = f"The report could not be made ({type(error).__name__}); the tables are whole."
        warnings.warn(why, RuntimeWarning, stacklevel=2)
        place.write_text(f"<!DOCTYPE html><title>No report</title><p>{why}</p>\n", encoding="utf-8")
