"""Writing a release in parts: run by run, beside its place, and moved there in one step."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from psephos.errors import ReleaseError
from psephos.kernel.parts.measurement import PartMeasurement
from psephos.release.bundle.files import write_json
from psephos.release.bundle.requests import BUNDLE_FORMAT
from psephos.release.bundle.write import finish_draft, release_json
from psephos.release.parts.bundle import (
    ANSWERS_FOLDER,
    ESTIMATE_FOLDER,
    PARTS_KIND,
    PartsBundle,
    receipts_bytes,
)
from psephos.release.parts.estimates import PartEstimates
from psephos.release.parts.page import write_page
from psephos.release.parts.plan import PartsForecast
from psephos.release.parts.published import published_runs
from psephos.release.parts.tables import level_folder, part_rows, run_file, total_rows
from psephos.strategy import select
from psephos.version import __version__


def write_parts(
    forecast: PartsForecast,
    measurement: PartMeasurement,
    receipt: dict[str, Any],
    place: Path,
    say: Callable[[str], None],
) -> PartsBundle:
    """All files of a release in parts."""
    draft = place.parent
    try:
        # A name of its own: two runs at once never write into one another's bundle.
        draft = Path(tempfile.mkdtemp(prefix=f".{place.name}.draft-", dir=place.parent))
        draft.chmod(0o755)
        _write_inputs(draft, forecast, measurement, receipt)
        with tempfile.TemporaryDirectory(prefix=".levels-", dir=draft) as work:
            say("least squares over all levels")
            estimates = PartEstimates(measurement, Path(work))
            (draft / ESTIMATE_FOLDER).mkdir()
            estimates.write(draft / ESTIMATE_FOLDER)
            totals = _write_tables(draft, forecast, estimates, Path(work), say)
        say("report")
        write_page(forecast, totals, measurement.simulation, draft)
        finish_draft(draft, place, _manifest(forecast, measurement))
    except OSError as error:
        if (place / "manifest.json").exists():  # another run of the same release was first
            return PartsBundle.open(place)
        raise ReleaseError(
            f"the bundle cannot be written to {place}: {error.strerror or error}. Nothing is lost: "
            "make room and run the release again, which charges nothing"
        ) from None
    finally:
        if draft != place.parent:
            shutil.rmtree(draft, ignore_errors=True)  # gone by now, unless the run was cut short
    return PartsBundle.open(place)


def _write_inputs(
    draft: Path, forecast: PartsForecast, measurement: PartMeasurement, receipt: dict[str, Any]
) -> None:
    """What was asked, what was paid, and the sealed answers: by another name, not a copy."""
    write_json(draft / "release.json", release_json(forecast.job))
    write_json(draft / "receipt.json", receipt)
    select.save(forecast.plan.strategy, draft / "strategy.bin")
    (draft / "receipts.bin").write_bytes(receipts_bytes(measurement))
    (draft / ANSWERS_FOLDER).mkdir()
    for each in measurement.receipts:
        file, name = Path(measurement.folder, each.name), draft / ANSWERS_FOLDER / each.name
        if not file.exists():
            raise ReleaseError(
                f"this release was paid for, and its sealed answers are not in "
                f"{measurement.folder}: put that folder back from a copy. They may have been "
                "seen, so they are not drawn again"
            )
        try:
            os.link(file, name)
        except OSError:  # of another disk, or one without such names
            shutil.copyfile(file, name)
        name.chmod(0o644)  # the bundle holds the keys to them, too


def _write_tables(
    draft: Path,
    forecast: PartsForecast,
    estimates: PartEstimates,
    work: Path,
    say: Callable[[str], None],
) -> pa.Table | None:
    """Every table of every part, in one pass from the whole down; and the rows of large parts."""
    job, tree = forecast.job, forecast.tree
    large: list[pa.Table] = []
    for level, parts, numbers, totals in published_runs(job, estimates, work):
        name = tree.names[level]
        if level == 1 and totals is not None:
            large.append(total_rows(job.workload, tree, parts, totals))
        say(f"tables: {name}, {parts.stop:,} of {tree.sizes[level]:,}")
        for table in job.tables:
            folder = draft / level_folder(job.table_files[table.name], name)
            folder.mkdir(parents=True, exist_ok=True)
            rows = part_rows(job, tree, table, level, parts, numbers)
            pa.parquet.write_table(rows, folder / run_file(parts))
    return pa.concat_tables(large) if large else None


def _manifest(forecast: PartsForecast, measurement: PartMeasurement) -> dict[str, Any]:
    job, tree = forecast.job, forecast.tree
    return {
        "format": BUNDLE_FORMAT,
        "kind": PARTS_KIND,
        "name": job.file.name,
        "title": job.file.title or job.file.name,
        "simulation": measurement.simulation,
        "edition": job.file.edition,
        "psephos": __version__,
        "fingerprint": job.fingerprint,
        "key": measurement.key,
        "lineage": list(measurement.lineage),
        "spend": [forecast.budget.currency, str(forecast.budget.amount)],
        "levels": dict(zip(tree.names, tree.sizes, strict=True)),
        "weights": [str(weight) for weight in measurement.weights],
        "errors": [vars(error) for error in forecast.errors],
    }
