"""The main job: plan, charge, measure, estimate, write. Cut short anywhere, it can be run again.

What is asked is on disk before the charge, the charge before the noise, and the noisy integers are
in the ledger before anything is written. So a second run finds what the first one had: it charges
nothing twice and never draws a second answer. The bundle appears whole, or not at all.

A rehearsal does the same with synthetic rows, drawn from the public schema alone. Kinds of release
differ in what they forecast, ask and write (`psephos.release.methods.kind`), not in these steps.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psephos.domain.domain import Domain
from psephos.errors import BudgetError, LedgerError, ReleaseError
from psephos.kernel.budget import Budget
from psephos.kernel.ledger import Ledger
from psephos.kernel.parts.runners import Runner
from psephos.kernel.replay import answered
from psephos.release.bundle.requests import REHEARSAL, receipt_of
from psephos.release.methods.kind import (
    SILENT,
    ReleaseForecast,
    ReleaseKind,
    RunHandle,
    Say,
    kind_of,
)
from psephos.release.methods.persons import measure_persons, persons_spend
from psephos.release.preflight.checks import (
    admit,
    check_forecast,
    check_paid,
    check_room,
    one_state,
    open_ledger,
)
from psephos.release.preflight.rules_record import check_rules
from psephos.release.preflight.store import MEASURE, Progress, selection_folder
from psephos.release.preflight.synthetic_rows import synthetic_rows
from psephos.release.spec.job import Job

if TYPE_CHECKING:
    from psephos.kernel.protected import ProtectedTable
    from psephos.release.bundle.bundle import Bundle
    from psephos.release.methods.plan_forecast import PlanForecast
    from psephos.release.parts.bundle import PartsBundle
    from psephos.release.parts.plan import PartsForecast
    from psephos.release.preflight.forecast import Forecast


def plan(
    path: str | os.PathLike[str] | Job,
    *,
    budget: Budget | None = None,
    draws: int = 9999,
    progress: Progress | None = None,
    thorough: bool = False,
) -> Forecast | PlanForecast | PartsForecast:
    """The error of every table of a release file, and of rivals; no data are touched.

    Args:
        path: a release file, its folder, or a job
        budget: another budget than the file's own; without either, the least that meets targets
        draws: of simulated noise, for the widths of intervals
        progress: told the operator and its gain over Identity while the search runs
        thorough: search for minutes instead of seconds; what is found so is what will be measured
    """
    job = path if isinstance(path, Job) else Job.read(path)
    forecast: Forecast | PlanForecast | PartsForecast = kind_of(job).forecast(
        job,
        budget=budget,
        draws=draws,
        progress=progress,
        thorough=thorough,
        interruptible=True,
    )
    return forecast


def release(
    path: str | os.PathLike[str] | Job,
    *,
    unchecked: bool = False,
    ledger: Ledger | None = None,
    progress: Say | None = None,
    runner: Runner | None = None,
    rows_folder: str | os.PathLike[str] | None = None,
) -> Bundle | PartsBundle:
    """Publish what a release file asks for: charge the ledger, write the bundle.

    A second run of the same file opens the bundle that is there and charges nothing. The owner's
    check of schema and data comes first (`check_release`).

    Args:
        path: a release file, or the folder of one called release.toml
        unchecked: spend without a check that passed
        ledger: the data set's ledger, if it is open; else that of the release file is opened
        progress: told what is being done, a few words at a time
        runner: who counts and measures the parts of a release in parts (`by`)
        rows_folder: a private folder for the rows while they are counted, as numbers of cells in
            files without a name; if None, they are held in memory
    """
    job = path if isinstance(path, Job) else Job.read(path)
    say = progress or SILENT
    _check_places(job, runner, rows_folder)
    if job.bundle.exists():
        bundle = _same(job, opened(job.bundle))
        check_rules(job, [job.key])
        check_paid(job, ledger)
        return bundle
    ledger = open_ledger(job, ledger)
    job, charged = admit(job, ledger, unchecked=unchecked)
    kind = kind_of(job)
    forecast = kind.forecast(job, say, paid=charged)
    check_forecast(forecast, ledger, charged=charged)
    with _handle(job, kind, ledger, say, runner, rows_folder, unchecked=unchecked) as handle:
        if not charged:
            kind.store(forecast)
        requests, persons = _measured(kind, forecast, handle)
    return kind.write(forecast, requests, persons, job.bundle, say)  # type: ignore[no-any-return]


def rehearse(
    path: str | os.PathLike[str] | Job,
    *,
    rows: int = 10_000,
    seed: int = 0,
    progress: Say | None = None,
) -> Bundle | PartsBundle:
    """The whole run on made-up data from the public schema alone: safe to show to anyone.

    It opens neither the source nor the ledger, and its bundle says "rehearsal" throughout.
    """
    job = path if isinstance(path, Job) else Job.read(path)
    say = progress or SILENT
    place = job.bundle.with_name(f"{job.bundle.name}.rehearsal")
    if place.exists():
        _remove_rehearsal(place)
    kind = kind_of(job)
    forecast = kind.forecast(job, say)
    check_room(forecast)
    say("making up data")
    with tempfile.TemporaryDirectory(prefix=f".{place.name}.", dir=place.parent) as folder:
        handle = _simulated(forecast, rows, seed, Path(folder), say)
        if job.past:  # what past releases asked is asked of the made-up data too
            past = [
                handle.ask(
                    handle.rows, each.question, each.spend, f"rehearsal of past {i}", each.name
                )
                for i, each in enumerate(job.past, 1)
            ]
            forecast = replace(forecast, job=replace(job, past=tuple(past)))
        requests, persons = _measured(kind, forecast, handle)
        return kind.write(forecast, requests, persons, place, say)  # type: ignore[no-any-return]


def opened(path: str | os.PathLike[str]) -> Bundle | PartsBundle:
    """The bundle in a directory, of whichever kind."""
    from psephos.release.bundle.bundle import Bundle
    from psephos.release.parts.bundle import PartsBundle, is_in_parts

    return PartsBundle.open(path) if is_in_parts(path) else Bundle.open(path)


def _check_places(job: Job, runner: Runner | None, rows_folder: Any) -> None:
    """Refuse folders and runners that cannot be used."""
    if rows_folder is not None and not os.path.isdir(rows_folder):
        raise ReleaseError(f"there is no folder {rows_folder} for the rows; make it first")
    if runner is not None and job.tree is None:
        raise ReleaseError("a runner is for releases in parts; this file has no `by`")
    if job.bundle.is_symlink() and not job.bundle.exists():
        raise ReleaseError(f"{job.bundle} is a link to nowhere; remove it. Nothing was charged")


def _measured(kind: ReleaseKind, forecast: ReleaseForecast, handle: RunHandle) -> tuple[Any, Any]:
    """The requests of all tables of rows, then those of persons."""
    try:
        requests = kind.measure(forecast, handle)
    except BudgetError as error:
        raise _decided_anew(forecast.job, error) from None
    return requests, measure_persons(handle)


@contextmanager
def _handle(
    job: Job,
    kind: ReleaseKind,
    ledger: Ledger,
    say: Say,
    runner: Runner | None,
    rows_folder: Any,
    *,
    unchecked: bool,
) -> Iterator[RunHandle]:
    """The one handle that all requests of a release are asked of, and so one table of rows.

    Where all was answered before, there is no need for the data, which may have changed or gone.
    """
    from psephos.protect import protect, protect_again

    edition = job.file.edition
    folder = selection_folder(job) / f"{job.request[:32]}.answers"

    def handle_of(table: ProtectedTable) -> RunHandle:
        tables = partial(protect_again, table, edition=edition)
        return RunHandle(job, job.key, tables, partial(receipt_of, ledger), folder, say, runner)

    settled = {entry.key for entry in ledger.history() if entry.values_hash}
    keys = kind.keys(job)
    if keys is not None and {*keys, *job.persons_keys} <= settled:
        yield handle_of(answered(job.domain, ledger, edition=edition))
        return
    with one_state(job, say, unchecked=unchecked) as source:
        yield handle_of(
            protect(source, job.domain, ledger=ledger, edition=edition, folder=rows_folder)
        )


def _simulated(
    forecast: ReleaseForecast, rows: int, seed: int, folder: Path, say: Say
) -> RunHandle:
    """A handle to made-up rows, which nobody pays for."""
    from psephos.without_ledger import simulate

    job, currency = forecast.job, forecast.job.file.ledger.budget().currency
    source = synthetic_rows(job, rows, seed)
    budget = forecast.budget.booked(currency) + persons_spend(job.persons, currency)
    for request in job.past:
        budget += request.price(currency)

    def tables(domain: Domain) -> ProtectedTable:
        unit, edition = job.unit, job.file.edition
        return simulate(source, domain, unit=unit, budget=budget, seed=seed, edition=edition)

    receipt = {"dataset": "made up", "dataset_id": "simulation", "rows": rows}
    return RunHandle(job, REHEARSAL, tables, lambda _: receipt, folder, say)


def _decided_anew(job: Job, error: BudgetError) -> BudgetError:
    """What to do if the ledger knows this release by other requests than are made now."""
    if job.method.name == MEASURE or "another request" not in str(error):
        return error
    return LedgerError(
        f"this release was paid for with other questions than it asks now ({error}). What was "
        f"decided then lay in {selection_folder(job)}: put that folder back; or, if the method is "
        '"auto", remove it, put the stand-in back as it was and run the release again. Nothing '
        "new was charged"
    )


def _same(job: Job, bundle: Bundle | PartsBundle) -> Bundle | PartsBundle:
    """The bundle that is there, if it answers this very job."""
    if bundle.manifest["fingerprint"] != job.fingerprint or bundle.simulation:
        raise ReleaseError(
            f"{job.bundle} holds another release (other tables, schema, parts, unit, budget, "
            "method). To publish this one too, which is charged, give it another output.bundle"
        )
    return bundle


def _remove_rehearsal(place: Path) -> None:
    """An older rehearsal makes way for a new one; anything else stays."""
    if not opened(place).simulation:
        raise ReleaseError(f"{place} is a release, not a rehearsal; move it away first")
    shutil.rmtree(place)
