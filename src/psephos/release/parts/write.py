"""Writing a release in parts: run by run, beside its place, and moved there in one step."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from psephos.errors import ReleaseError
from psephos.kernel.parts.measurement import PartMeasurement
from psephos.release.bundle.files import write_json
from psephos.release.bundle.manifest import job_facts, release_json
from psephos.release.bundle.write import write_draft
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
from psephos.release.parts.tables import run_tables, total_rows
from psephos.strategy import strategy as strategy_files


def write_parts(
    forecast: PartsForecast,
    measurement: PartMeasurement,
    receipt: dict[str, Any],
    place: Path,
    say: Callable[[str], None],
) -> PartsBundle:
    """All files of a release in parts."""

    def fill(draft: Path) -> dict[str, Any]:
        _write_inputs(draft, forecast, measurement, receipt)
        with tempfile.TemporaryDirectory(prefix=".levels-", dir=draft) as work:
            say("least squares over all levels")
            estimates = PartEstimates(measurement, Path(work))
            (draft / ESTIMATE_FOLDER).mkdir()
            estimates.write(draft / ESTIMATE_FOLDER)
            totals = _write_tables(draft, forecast, estimates, Path(work), say)
        say("report")
        write_page(forecast, totals, measurement.simulation, draft)
        return parts_facts(forecast, measurement)

    write_draft(place, fill)
    return PartsBundle.open(place)


def _write_inputs(
    draft: Path, forecast: PartsForecast, measurement: PartMeasurement, receipt: dict[str, Any]
) -> None:
    """What was asked, what was paid, and the sealed answers: by another name, not a copy."""
    write_json(draft / "release.json", release_json(forecast.job))
    write_json(draft / "receipt.json", receipt)
    strategy_files.save(forecast.plan.strategy, draft / "strategy.bin")
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
    for run in published_runs(job, estimates, work):
        if run.level == 1 and run.totals is not None:
            large.append(total_rows(job.workload, tree, run.parts, run.totals))
        say(f"tables: {tree.names[run.level]}, {run.parts.stop:,} of {tree.sizes[run.level]:,}")
        for table in run_tables(job, tree, run):
            table.write(draft, ["parquet"])
    return pa.concat_tables(large) if large else None


def parts_facts(forecast: PartsForecast, measurement: PartMeasurement) -> dict[str, Any]:
    """What a manifest says but the version and the hashes of files."""
    tree, budget = forecast.tree, forecast.budget
    return {
        **job_facts(forecast.job),
        "kind": PARTS_KIND,
        "simulation": measurement.simulation,
        "key": measurement.key,
        "lineage": list(measurement.lineage),
        "spend": [budget.currency, str(budget.amount)],
        "levels": dict(zip(tree.names, tree.sizes, strict=True)),
        "weights": [str(weight) for weight in measurement.weights],
        "errors": [row.facts() for row in forecast.rows],
    }
