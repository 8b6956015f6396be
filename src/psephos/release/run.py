"""The main job: plan, charge, measure, estimate, write. Cut short anywhere, it can be run again.

The strategy is on disk before the charge, the charge before the noise, and the noisy integers are
in the ledger before anything is written. So a second run finds what the first one had: it charges
nothing twice and never draws a second answer. The bundle appears whole, or not at all.

A rehearsal does the same with synthetic rows, drawn from the public schema alone.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from psephos.errors import BudgetError, BudgetExceededError, LedgerError, ReleaseError
from psephos.kernel.budget import Budget
from psephos.kernel.ledger import Ledger
from psephos.kernel.parts.runners import Runner
from psephos.kernel.protected import ProtectedTable, ProtectedVector
from psephos.kernel.replay import answered
from psephos.plans.registry import run as run_plan
from psephos.plans.static import Static, Step
from psephos.protect import protect, protect_again
from psephos.release.bundle.bundle import Bundle
from psephos.release.bundle.requests import (
    MeasuredRequest,
    StrategyQuestion,
    receipt_of,
)
from psephos.release.bundle.write import write_bundle
from psephos.release.methods.method import ReleaseMethod, method_of
from psephos.release.methods.persons import (
    PersonsRequest,
    check_persons_affordable,
    measure_persons,
    persons_spend,
)
from psephos.release.methods.plan_forecast import PlanForecast, plan_forecast
from psephos.release.methods.planned import (
    HeldQuestions,
    PlannedRequest,
    QuestionFiles,
    planned_requests,
)
from psephos.release.methods.requests import request_of
from psephos.release.pages.page import write_report
from psephos.release.pages.plan import write_plan_report
from psephos.release.parts.bundle import PartsBundle, is_in_parts
from psephos.release.parts.run import rehearse_parts, release_parts
from psephos.release.preflight.checks import (
    check_affordable,
    check_ledger,
    check_paid,
    check_room,
    check_stand_in,
    compare_stand_in,
    one_state,
    open_ledger,
    require_check,
)
from psephos.release.preflight.forecast import Forecast, forecast_measured, forecast_paid
from psephos.release.preflight.rules_record import check_rules, record_rules
from psephos.release.preflight.selection import (
    AUTO,
    selection_folder,
    store_request,
    stored_cells,
    stored_request,
)
from psephos.release.preflight.step_costs import check_memory
from psephos.release.preflight.synthetic_rows import synthetic_rows
from psephos.release.spec.asked_cells import AskedCells
from psephos.release.spec.job import Job
from psephos.release.views.of_requests import views_of
from psephos.release.views.views import Views
from psephos.strategy.strategy import Strategy
from psephos.without_ledger import simulate

Say = Callable[[str], None]
REHEARSAL = "rehearsal"
"""The key of what is measured on made-up data."""


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
    say = progress or (lambda _: None)
    _check_places(job, runner, rows_folder)
    if job.tree is not None:
        return release_parts(
            job,
            unchecked=unchecked,
            ledger=ledger,
            progress=progress,
            runner=runner,
            rows_folder=rows_folder,
        )
    if job.bundle.exists():
        bundle = _same(job, Bundle.open(job.bundle))
        check_rules(job, [job.key])
        check_paid(job, ledger)
        return bundle
    ledger = open_ledger(job, ledger)
    history = ledger.history()
    measured = {entry.key for entry in history}
    charged = job.key in measured
    if charged:
        job = _over_cells_counted(job, {entry.schema for entry in history if entry.key == job.key})
    check_ledger(job, ledger)
    check_rules(job, measured)
    if not charged:
        _check_data(job, unchecked=unchecked)
    record_rules(job, measured)
    method = method_of(job)
    if method.adaptive:
        return _adapted(job, method, ledger, say, rows_folder, unchecked=unchecked)
    forecast = _forecast(job, charged, say)
    if not charged:
        check_affordable(forecast, ledger)
        check_persons_affordable(forecast.budget, job.key, job.persons, job.persons_keys, ledger)
    check_room(forecast)
    settled = {entry.key for entry in history if entry.values_hash}
    with _opened(job, ledger, say, settled, rows_folder, unchecked=unchecked) as data:
        if not charged:
            store_request(job, forecast.strategy, forecast.budget)
        say("counting and drawing noise")
        static = Static(forecast.strategy)
        try:
            steps = static.steps(_tables(job, data), spend=forecast.budget, key=job.key)
        except BudgetError as error:
            raise (_decided_anew(job, error) if job.method.name == AUTO else error) from None
        persons = _persons(job, data, ledger)
    receipt = partial(receipt_of, ledger)
    requests = [_request(job, job.file.name, step, job.cells, receipt) for step in steps]
    return _written(forecast, requests, job.bundle, say, persons)


def _check_places(job: Job, runner: Runner | None, rows_folder: Any) -> None:
    """Refuse folders and runners that cannot be used."""
    if rows_folder is not None and not os.path.isdir(rows_folder):
        raise ReleaseError(f"there is no folder {rows_folder} for the rows; make it first")
    if runner is not None and job.tree is None:
        raise ReleaseError("a runner is for releases in parts; this file has no `by`")
    if job.bundle.is_symlink() and not job.bundle.exists():
        raise ReleaseError(f"{job.bundle} is a link to nowhere; remove it. Nothing was charged")


def _check_data(job: Job, *, unchecked: bool) -> None:
    """Refuse data that nobody checked, and a stand-in that is no public table of this schema."""
    check_stand_in(job)
    if not unchecked:
        require_check(job)
    compare_stand_in(job)


def _over_cells_counted(job: Job, schemas: Collection[str]) -> Job:
    """The job over the cells that were charged for: maybe all of them, or finer ones for a past."""
    for cells in (job.cells, stored_cells(job), job.whole.cells):
        if cells is not None and cells.schema in schemas and cells.refines(job.cells):
            return job.over(cells)
    if not job.past:
        return job.whole
    raise ReleaseError(
        "builds_on: this release was paid for over coarser cells than the releases that it builds "
        "on; leave builds_on out, or give it another name, which is charged. Nothing was charged"
    )


@contextmanager
def _opened(
    job: Job, ledger: Ledger, say: Say, settled: Collection[str], folder: Any, *, unchecked: bool
) -> Iterator[ProtectedTable]:
    """The one handle that all requests of a release are asked of, and so one table of rows.

    Where all was answered before, there is no need for the data, which may have changed or gone.
    """
    if {job.key, *job.persons_keys} <= set(settled):
        yield answered(job.domain, ledger, edition=job.file.edition)
        return
    with one_state(job, say, unchecked=unchecked) as source:
        edition = job.file.edition
        yield protect(source, job.domain, ledger=ledger, edition=edition, folder=folder)


def _tables(job: Job, data: ProtectedTable) -> ProtectedVector:
    """The cells that the tables of rows are asked of: attributes may be merged there."""
    table = protect_again(data, job.questions.domain, edition=job.file.edition)
    return job.cells.of(table).vectorise()


def _persons(job: Job, data: ProtectedTable, ledger: Ledger) -> list[PersonsRequest]:
    """The tables of persons, measured."""
    return measure_persons(job, data, partial(receipt_of, ledger))


def _rehearsed_persons(job: Job, source: Any, rows: int, seed: int) -> list[PersonsRequest]:
    """The same on made-up rows."""
    if not job.persons:
        return []
    budget = persons_spend(job.persons, job.file.ledger.budget().currency)
    edition = job.file.edition
    data = simulate(source, job.domain, unit=job.unit, budget=budget, seed=seed, edition=edition)
    return measure_persons(job, data, lambda _: _made_up(rows))


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
    say = progress or (lambda _: None)
    place = job.bundle.with_name(f"{job.bundle.name}.rehearsal")
    if place.exists():
        _remove_rehearsal(place)
    if job.tree is not None:
        return rehearse_parts(job, place, rows, seed, say)
    method = method_of(job)
    if method.adaptive:
        return _rehearsed_plan(job, method, place, rows, seed, say)
    forecast = _forecast(job, False, say)
    check_memory(job, forecast.steps)
    say("making up data")
    source = synthetic_rows(job, rows, seed)
    currency = job.file.ledger.budget().currency
    budget = forecast.budget.booked(currency)
    for request in job.past:
        budget += request.spend.booked(currency)
    data = simulate(
        source,
        job.questions.domain,
        unit=job.unit,
        budget=budget,
        seed=seed,
        edition=job.file.edition,
    )

    def rehearsed(
        name: str, strategy: Strategy, spend: Budget, key: str, cells: AskedCells
    ) -> list[MeasuredRequest]:
        steps = Static(strategy).steps(cells.of(data).vectorise(), spend=spend, key=key)
        return [_request(job, name, step, cells, lambda _: _made_up(rows)) for step in steps]

    # What past releases asked is asked of the made-up data too.
    past = [
        rehearsed(
            each.name,
            each.question.strategy,
            each.spend,
            f"rehearsal of past {i + 1}",
            each.question.cells,
        )
        for i, each in enumerate(job.past)
    ]
    requests = rehearsed(job.file.name, forecast.strategy, forecast.budget, REHEARSAL, job.cells)
    job = replace(job, past=tuple(request for steps in past for request in steps))
    persons = _rehearsed_persons(job, source, rows, seed)
    return _written(replace(forecast, job=job), requests, place, say, persons)


def _adapted(
    job: Job, method: ReleaseMethod, ledger: Ledger, say: Say, folder: Any, *, unchecked: bool
) -> Bundle:
    """The run of a plan that adapts to the data; each question is on disk before it is charged."""
    say("what the plan would err by, on a stand-in")
    forecast = plan_forecast(job, method, forecast_measured(job))
    check_room(forecast.measured)
    check_persons_affordable(forecast.budget, job.key, job.persons, job.persons_keys, ledger)
    questions = QuestionFiles.of(job)

    def told(step: int, steps: int | None) -> None:
        say(f"{method.name}: request {step}" + ("" if steps is None else f" of {steps}"))

    with _opened(job, ledger, say, (), folder, unchecked=unchecked) as data:
        try:
            plan_run = run_plan(
                method.name,
                _tables(job, data),
                job.workload,
                spend=forecast.budget,
                key=job.key,
                transcript=questions,
                progress=told,
                **method.options,
            )
        except BudgetExceededError as error:
            text = f"{error}. This run charged nothing; lower [budget]"
            raise BudgetExceededError(text, error.requested, error.remaining) from None
        except BudgetError as error:
            raise _decided_anew(job, error) from None
        persons = _persons(job, data, ledger)
    written = [questions.settled(step, b"") for step in range(len(plan_run.requests))]
    requests = planned_requests(
        job, plan_run.requests, written, job.key, lambda key: receipt_of(ledger, key), False
    )
    return _written_plan(forecast, requests, job.bundle, say, persons)


def _decided_anew(job: Job, error: BudgetError) -> BudgetError:
    """What to do if the ledger knows this release by other requests than are made now."""
    if "another request" not in str(error):
        return error
    return LedgerError(
        f"this release was paid for with other questions than it asks now ({error}). What was "
        f"decided then lay in {selection_folder(job)}: put that folder back; or, if the method is "
        '"auto", remove it, put the stand-in back as it was and run the release again. Nothing '
        "new was charged"
    )


def _rehearsed_plan(
    job: Job, method: ReleaseMethod, place: Path, rows: int, seed: int, say: Say
) -> Bundle:
    """The same on made-up data."""
    say("what the plan would err by, on a stand-in")
    forecast = plan_forecast(job, method, forecast_measured(job))
    say("making up data")
    source = synthetic_rows(job, rows, seed)
    data = simulate(
        source,
        job.workload.domain,
        unit=job.unit,
        budget=forecast.budget.booked(job.file.ledger.budget().currency),
        seed=seed,
        edition=job.file.edition,
    )
    questions = HeldQuestions()
    plan_run = run_plan(
        method.name,
        data.vectorise(),
        job.workload,
        spend=forecast.budget,
        key=REHEARSAL,
        transcript=questions,
        **method.options,
    )
    requests = planned_requests(
        job, plan_run.requests, questions.questions, REHEARSAL, lambda _: _made_up(rows), True
    )
    persons = _rehearsed_persons(job, source, rows, seed)
    return _written_plan(forecast, requests, place, say, persons)


def _request(
    job: Job, name: str, step: Step, cells: AskedCells, receipt: Callable[[str], dict[str, Any]]
) -> MeasuredRequest:
    """A step of the best strategy, as a bundle keeps it."""
    question, y = StrategyQuestion(step.strategy, cells), step.measurement
    request = request_of(job, question, step.spend, y.key, y.values, receipt, y.simulation)
    return replace(request, name=name)


def _made_up(rows: int) -> dict[str, Any]:
    """What stands for a receipt in a rehearsal; its charge is empty."""
    return {"dataset": "made up", "dataset_id": "simulation", "rows": rows}


def _written_plan(
    forecast: PlanForecast,
    requests: list[PlannedRequest],
    place: Path,
    say: Say,
    persons: list[PersonsRequest],
) -> Bundle:
    job, method = forecast.job, forecast.method
    views = views_of(job, requests, method)

    def report(_: Views, where: Path) -> None:
        write_plan_report(forecast, views, where, requests, persons)

    return write_bundle(
        views, requests, place, method=method, report=report, progress=say, persons=persons
    )


def _forecast(job: Job, charged: bool, say: Say) -> Forecast:
    """What will be measured; what was charged before is measured as it was then."""
    request = stored_request(job) if charged else None
    if request is not None:
        return forecast_paid(job, *request)
    say("looking for the best strategy")
    return forecast_measured(
        job, progress=lambda name, gain: say(f"{name}: {gain:.2f}× better than cells")
    )


def _written(
    forecast: Forecast,
    requests: list[MeasuredRequest],
    place: Path,
    say: Say,
    persons: list[PersonsRequest],
) -> Bundle:
    method = method_of(forecast.job)
    reason = method.reason if forecast.job.file.method.name == AUTO else ""

    def report(views: Views, where: Path) -> None:
        write_report(forecast, views, where, requests[-1].receipt, reason, persons)

    # Past measurements come with noise of their own, which a rehearsal draws anew.
    widths = None if forecast.job.past else forecast.widths
    views = views_of(forecast.job, requests, planned=widths, progress=say)
    return write_bundle(
        views, requests, place, method=method, report=report, progress=say, persons=persons
    )


def _same(job: Job, bundle: Bundle) -> Bundle:
    """The bundle that is there, if it answers this very job."""
    if bundle.manifest["fingerprint"] != job.fingerprint or bundle.simulation:
        raise ReleaseError(
            f"{job.bundle} holds another release (other tables, schema, unit, budget, method). To "
            "publish this one too, which is charged, give it another output.bundle"
        )
    return bundle


def _remove_rehearsal(place: Path) -> None:
    """An older rehearsal makes way for a new one; anything else stays."""
    bundle = PartsBundle.open(place) if is_in_parts(place) else Bundle.open(place)
    if not bundle.simulation:
        raise ReleaseError(f"{place} is a release, not a rehearsal; move it away first")
    shutil.rmtree(place)
