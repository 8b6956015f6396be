"""What is measured for a release: a strategy, searched once and kept beside the release file.

The file is written before anything is charged, so a run that was cut short measures the same
strategy when it goes on.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches

from psephos.errors import PsephosError, ReleaseError, WorkloadError
from psephos.kernel.budget import Budget
from psephos.plans.registry import PLANS, NamedPlan
from psephos.release.bundle.files import read_json, write_json
from psephos.release.bundle.requests import spend_of
from psephos.release.preflight.store import (
    AUTO,
    ELSEWHERE,
    MEASURE,
    UNREADABLE,
    Progress,
    make_folder,
    selection_folder,
)
from psephos.release.spec.job import Job, stand_in_counts
from psephos.strategy.strategy import Strategy, load, save
from psephos.values import digest
from psephos.workload.builders import relative
from psephos.workload.workload import Workload

THOROUGH_RESTARTS, THOROUGH_SECONDS = 25, 600.0
"""What bounds a thorough search: starts of each operator, and the clock."""


def strategy_for(
    job: Job,
    workload: Workload,
    progress: Progress | None = None,
    *,
    thorough: bool = False,
    interruptible: bool = False,
) -> Strategy:
    """The strategy for a workload over the job's domain: the stored one, or a new one, stored.

    A thorough search takes its time, and what it finds is stored in the same place if it is better.
    One that is interruptible ends at Ctrl-C with the best so far: a plan's, never a release's.
    """
    selection = job.file.selection.model_dump_json(exclude={"effort"})
    plan = fixed_plan(job)
    way = selection if plan is None else (plan.name, job.method.model_dump_json())
    name = digest((workload.domain, workload.products, job.noise.value, way))
    place = selection_folder(job) / f"{name[:32]}.strategy"
    stored = load(place, workload.domain) if place.exists() else None
    if stored is not None and not thorough:
        return stored
    make_folder(place.parent)  # told before the search, which may take long
    aim = _aim(job, workload)
    strategy = _search(job, aim, progress, thorough, interruptible)
    if stored is not None and not _is_better(strategy, stored, aim):
        return stored
    try:
        save(strategy, place)
    except WorkloadError as error:
        raise ReleaseError(f"{error}; {ELSEWHERE}") from None
    return strategy


def _aim(job: Job, workload: Workload) -> Workload:
    """The workload whose squared errors a search makes small.

    For relative errors every number is divided by its size: as many cells as it counts, or, with a
    public stand-in, about as many rows as it would have there.
    """
    if job.file.selection.error == "absolute":
        return workload
    counts, guess = stand_in_counts(job), None
    if counts is not None:
        table, shape = counts.reshape(workload.domain.shape), workload.domain.shape
        axes = range(len(shape))
        margins = [table.sum(axis=tuple(j for j in axes if j != i)) for i in axes]
        guess = {name: 1.0 + m for name, m in zip(workload.domain.names, margins, strict=True)}
    return relative(workload, guess)


def fixed_plan(job: Job) -> NamedPlan | None:
    """The plan of the release file, if it is one that does not adapt to the data."""
    name = job.method.name
    plan = PLANS.get(name) if name not in (MEASURE, AUTO) else None
    return None if plan is None or plan.adaptive else plan


def _is_better(strategy: Strategy, stored: Strategy, workload: Workload) -> bool:
    return strategy.expected_error(workload) < stored.expected_error(workload)


def store_request(job: Job, strategy: Strategy, spend: Budget) -> None:
    """Write down what is about to be charged: how to measure, and at what spend.

    Targets buy less where a release builds on others, and what was bought so stays the request,
    also when it is released without them.
    """
    place = selection_folder(job) / f"{job.request[:32]}.request"
    make_folder(place.parent)
    try:
        save(strategy, place)
    except WorkloadError as error:
        raise ReleaseError(f"{error}; {ELSEWHERE}") from None
    write_json(place.with_suffix(".spend"), {"spend": [spend.currency, str(spend.amount)]})
    place.with_suffix(".cells").write_bytes(job.cells.to_bytes())


def stored_request(job: Job) -> tuple[Strategy, Budget] | None:
    """How a request that was charged measures, and its spend; None if it is not stored here."""
    place = selection_folder(job) / f"{job.request[:32]}.request"
    try:
        spend = spend_of(read_json(place.with_suffix(".spend")))
        return load(place, job.workload.domain), spend
    except UNREADABLE:
        return None


def selectable() -> list[str]:
    """The names of all selections: what takes a workload and noise, and gives a strategy."""
    from psephos.strategy import select

    names = []
    for name in select.__all__:
        selector = getattr(select, name)
        if not inspect.isfunction(selector):
            continue
        if list(inspect.signature(selector).parameters)[1:2] == ["noise"]:
            names.append(name)
    return sorted(names)


def _search(
    job: Job, workload: Workload, progress: Progress | None, thorough: bool, interruptible: bool
) -> Strategy:
    from psephos.strategy import select

    selection, names, plan = job.file.selection, selectable(), fixed_plan(job)
    if plan is not None:
        try:
            return plan.strategy(workload, job.noise, **job.method.options)
        except PsephosError as error:
            raise ReleaseError(f"method: no {plan.name} for these tables: {error}") from None
    if selection.strategy not in names:
        close = get_close_matches(selection.strategy, names, n=1)
        remedy = f"did you mean {close[0]!r}?" if close else f"have {', '.join(names)}"
        raise ReleaseError(f"selection.strategy: no {selection.strategy!r}; {remedy}")
    selector: Callable[..., Strategy] = getattr(select, selection.strategy)
    parameters = inspect.signature(selector).parameters
    options = {
        "restarts": selection.restarts,
        "seed": selection.seed,
        "time_limit": selection.time_limit,
        "progress": progress,
        "effort": selection.effort,
        "interruptible": interruptible,
    }
    if thorough:
        options |= {"restarts": THOROUGH_RESTARTS, "effort": None, "time_limit": THOROUGH_SECONDS}
    any_option = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    arguments = {key: value for key, value in options.items() if any_option or key in parameters}
    try:
        return selector(workload, job.noise, **arguments)
    except PsephosError as error:
        raise ReleaseError(f"no strategy for these tables: {error}") from None
