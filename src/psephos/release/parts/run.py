"""The run of a release in parts: plan, charge, measure, estimate, write; run again, it goes on.

The plan is on disk before the charge, the charge before any noise, and the manifest of sealed
answers in the ledger before any of them is read (`kernel.parts.handle`). The bundle appears whole
or not at all.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from psephos.domain.part_tree import PartTree
from psephos.errors import BudgetExceededError, ReleaseError
from psephos.kernel.ledger import Ledger
from psephos.kernel.parts.measurement import PartMeasurement
from psephos.kernel.parts.runners import Runner
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.replay import answered
from psephos.protect import protect
from psephos.release.bundle.requests import receipt_of
from psephos.release.parts.bundle import PartsBundle
from psephos.release.parts.plan import REHEARSED_KEY, PartsForecast, forecast_parts, store_plan
from psephos.release.parts.write import write_parts
from psephos.release.preflight.checks import (
    check_ledger,
    check_paid,
    one_state,
    open_ledger,
    require_check,
)
from psephos.release.preflight.rules_record import check_rules, record_rules
from psephos.release.preflight.selection import selection_folder
from psephos.release.preflight.synthetic_rows import synthetic_rows
from psephos.release.spec.job import Job
from psephos.without_ledger import simulate

BYTES_PER_ROW = 60
"""Of a table of parts, about, as Parquet."""


def release_parts(
    job: Job,
    *,
    unchecked: bool = False,
    ledger: Ledger | None = None,
    progress: Callable[[str], None] | None = None,
    runner: Runner | None = None,
    rows_folder: str | os.PathLike[str] | None = None,
) -> PartsBundle:
    """Publish a release in parts; see `psephos.release.run.release`."""
    say = progress or (lambda _: None)
    if job.bundle.exists():
        bundle = _same(job, PartsBundle.open(job.bundle))
        check_rules(job, [job.key])
        check_paid(job, ledger)
        return bundle
    ledger = open_ledger(job, ledger)
    measured = {entry.key for entry in ledger.history()}
    charged = job.key in measured
    check_ledger(job, ledger)
    check_rules(job, measured)
    if not charged and not unchecked:
        require_check(job)
    record_rules(job, measured)
    forecast = _forecast(job, say)
    _check_room(forecast)
    if not charged:
        rest, cost = ledger.remaining(), forecast.budget
        if cost.currency == rest.currency and cost > rest:
            raise BudgetExceededError(
                f"this release costs {cost} and {rest} is left; lower [budget]. Nothing was "
                "charged",
                cost,
                rest,
            )
    folder = selection_folder(job) / f"{job.request[:32]}.answers"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    if any(e.key == job.key and e.values_hash for e in ledger.history()):
        # What is left to do needs no data, which may have changed or gone since.
        data = answered(job.domain, ledger, edition=job.file.edition)
        measurement = _measured(forecast, data, folder, job.key, runner)
    else:
        with one_state(job, say, unchecked=unchecked) as source:
            if not charged:
                store_plan(forecast)
            say("counting and drawing noise, part by part")
            edition = job.file.edition
            data = protect(source, job.domain, ledger=ledger, edition=edition, folder=rows_folder)
            measurement = _measured(forecast, data, folder, job.key, runner)
    receipt = receipt_of(ledger, measurement.key)
    return write_parts(forecast, measurement, receipt, job.bundle, say)


def rehearse_parts(
    job: Job, place: Path, rows: int, seed: int, say: Callable[[str], None]
) -> PartsBundle:
    """The same on made-up rows; neither the source nor the ledger is opened."""
    forecast = _forecast(job, say)
    _check_room(forecast)
    say("making up data")
    budget = forecast.budget.booked(job.file.ledger.budget().currency)
    data = simulate(
        synthetic_rows(job, rows, seed),
        job.domain,
        unit=job.unit,
        budget=budget,
        seed=seed,
        edition=job.file.edition,
    )
    folder = place.with_name(f".{place.name}.answers")
    folder.mkdir(exist_ok=True)
    try:
        measurement = _measured(forecast, data, folder, REHEARSED_KEY, None)
        receipt: dict[str, Any] = {
            "dataset": "made up",
            "dataset_id": "simulation",
            "rows": rows,
        }
        return write_parts(forecast, measurement, receipt, place, say)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _forecast(job: Job, say: Callable[[str], None]) -> PartsForecast:
    say("looking for the best strategy and the weights of levels")
    return forecast_parts(
        job, progress=lambda name, gain: say(f"{name}: {gain:.2f}× better than cells")
    )


def _measured(
    forecast: PartsForecast, data: ProtectedTable, folder: Path, key: str, runner: Runner | None
) -> PartMeasurement:
    plan = forecast.plan
    return data.parts(*forecast.job.file.by).measure(
        plan.query,
        weights=plan.weights,
        spend=forecast.budget,
        folder=folder,
        key=key,
        runner=runner,
    )


def _check_room(forecast: PartsForecast) -> None:
    """Refuse before anything is charged if the disk could not hold the result."""
    needed = needed_bytes(forecast)
    place = forecast.job.bundle.parent
    try:
        free = shutil.disk_usage(place).free
    except OSError:
        raise ReleaseError(f"there is no folder {place} to write the bundle to") from None
    if free < needed:
        raise ReleaseError(
            f"{place} has {free / 1e9:,.1f} GB free and a release of {forecast.tree} needs about "
            f"{needed / 1e9:,.1f} GB; make room first. Nothing was charged"
        )


def needed_bytes(forecast: PartsForecast) -> int:
    """About how much disk a release takes: sealed answers, levels above the smallest, tables."""
    tree: PartTree = forecast.tree
    above = 32 * forecast.job.workload.domain.size * sum(tree.sizes[:-1])
    return forecast.answer_bytes + above + BYTES_PER_ROW * forecast.table_rows + 2**20


def _same(job: Job, bundle: PartsBundle) -> PartsBundle:
    """The bundle that is there, if it answers this very job."""
    if bundle.manifest["fingerprint"] != job.fingerprint or bundle.simulation:
        raise ReleaseError(
            f"{job.bundle} holds another release (other tables, schema, parts, unit, budget). To "
            "publish this one too, which is charged, give it another output.bundle"
        )
    return bundle
