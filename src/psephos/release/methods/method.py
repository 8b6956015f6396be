"""By which plan a release is measured and estimated: decided from public facts alone.

    measure      the best strategy for the tables, measured once: errors are known beforehand
    a plan       one of `psephos plans`; those that adapt to the data have simulated errors only
    auto         the plan that errs least on a declared public table, or `measure` without one

A plan that does not adapt is a way to choose a strategy, and everything else goes on as with
`measure`. One that adapts makes several requests, and its estimate has no intervals, so that no
target can be promised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from psephos.errors import PsephosError, ReleaseError, TooLargeError, WorkloadError
from psephos.infer.estimate import cells_of
from psephos.infer.nonnegative import NONNEGATIVE_CELLS
from psephos.infer.records import counted_answers
from psephos.kernel.unit import add_remove_row
from psephos.plans.registry import NamedPlan, named, run
from psephos.plans.static import Static
from psephos.release.bundle.files import read_json, write_json
from psephos.release.methods.kind import (
    ReleaseMethod,
    registered_kind,
)
from psephos.release.preflight.selection import strategy_for
from psephos.release.preflight.store import (
    AUTO,
    MEASURE,
    UNREADABLE,
    Progress,
    make_folder,
    selection_folder,
)
from psephos.release.preflight.synthetic_rows import table_of_codes
from psephos.release.spec.job import Job, stand_in_counts
from psephos.release.views.estimates import MeasuredEstimate
from psephos.release.views.held_cells import held_cells, nonnegative_cells
from psephos.synthesis.table import SyntheticTable
from psephos.values import Array, digest

AUTO_PLANS = ("DAWA", "DAWA-Striped", "AHP", "AdaptiveGrid", "PrivBayes", "MWEM variant d")
"""What `auto` tries beside measuring the best strategy."""
AUTO_CELLS, AUTO_TRIALS = 200_000, 3
"""`auto` runs each of them so often, and only where there are no more cells."""
PLAN_GAIN = 1.1
"""How many times closer a plan must be to be taken: what is known beforehand is worth something."""


def method_of(job: Job) -> ReleaseMethod:
    """The method of a release; `auto` is decided once and stored beside the release file."""
    entry = job.method
    if entry.name == MEASURE:
        return ReleaseMethod(MEASURE, {}, "")
    if registered_kind(entry.name) is not None:
        return ReleaseMethod(entry.name, entry.options, "")
    if entry.name != AUTO:
        return _checked(job, entry.name, entry.options, "as the release file says")
    place = selection_folder(job) / f"{digest((job.request, str(job.file.stand_in)))[:32]}.method"
    try:
        stored = read_json(place)
        return ReleaseMethod(stored["name"], stored["options"], stored["reason"])
    except UNREADABLE:
        method = _decided(job)
    make_folder(place.parent)
    write_json(place, asdict(method))
    return method


def check_method(job: Job, method: ReleaseMethod) -> None:
    """Refuse a plan or options that do not follow from the release file.

    Which of its plans `auto` took, and why, is told by a stand-in that a bundle does not hold.
    """
    entry = job.method
    if entry.name == AUTO and method.name in AUTO_PLANS:
        right = _checked(job, method.name, {}, method.reason)
    else:
        right = method_of(job) if entry.name != AUTO else ReleaseMethod(MEASURE, {}, "")
    if method != right:
        raise ReleaseError(
            f"the manifest says that {method.name!r} was run with {dict(method.options)}, and "
            f"release.json leads to {right.name!r} with {dict(right.options)}"
        )


def _checked(job: Job, name: str, options: Mapping[str, Any], reason: str) -> ReleaseMethod:
    """A plan of the release file, if it fits the rest of it."""
    try:
        plan = named(name)
    except WorkloadError as error:
        raise ReleaseError(
            f'method: {error}; "measure" measures the best strategy, and "auto" decides by a '
            "public stand-in"
        ) from None
    try:
        plan.check_options(options)
    except WorkloadError as error:
        raise ReleaseError(f"method.options: {error}") from None
    options = dict(options)
    if "rows" in plan.options and job.file.total is not None:
        options.setdefault("rows", job.file.total)
    if plan.adaptive:
        _check_adaptive(job, plan)
    return ReleaseMethod(plan.name, options, reason)


def _check_adaptive(job: Job, plan: NamedPlan) -> None:
    """Refuse what a plan that adapts to the data cannot promise or hold."""
    if job.budget is None:
        raise ReleaseError(
            f"method: {plan.name!r} adapts to the data, so that no budget can be promised to reach "
            'a target; give [budget] in place of targets, or name = "measure"'
        )
    if job.past or job.file.builds_on:
        raise ReleaseError(
            f"method: {plan.name!r} does not build on earlier measurements; remove builds_on, or "
            'take name = "measure"'
        )
    if job.file.output.published != "auto":
        raise ReleaseError(
            f"output.published: {plan.name!r} has an estimate of its own; leave published out"
        )
    if job.file.output.consistency != "l2":
        raise ReleaseError(
            f"output.consistency: {plan.name!r} has an estimate of its own; leave consistency out"
        )
    if job.file.output.prior == "stand_in":
        raise ReleaseError(
            f"output.prior: {plan.name!r} has an estimate of its own, which knows no prior; take "
            'method.name = "measure", or leave prior out'
        )
    if plan.most_cells is None:
        return
    most = min(plan.most_cells, NONNEGATIVE_CELLS)
    if job.workload.domain.size > most:
        raise TooLargeError(
            f"method: {plan.name!r} estimates every cell, at most {most:,}, and these tables span "
            f'{job.workload.domain.size_text}; take name = "measure". Nothing was charged',
            job.workload.domain.size,
            most,
        )


def weighted_rmse(job: Job, gaps: Array) -> float:
    """The root mean square of the errors of all numbers, weighted as the tables are."""
    weights = np.repeat([p.weight**2 for p in job.workload.products], job.workload.query_counts)
    return math.sqrt(float((weights * gaps**2).sum() / weights.sum()))


def plan_errors(
    job: Job, method: ReleaseMethod, stand_in: Array, trials: int, *, seed: int = 0
) -> list[tuple[Array, Array]]:
    """The errors of all numbers in runs on a stand-in: of the estimate, and without negatives.

    The stand-in is counts of all cells, or rows of cell codes.
    """
    from psephos.without_ledger import simulate

    spend = job.budget
    if spend is None:
        raise ReleaseError("a plan is tried at a budget; give [budget]")
    listed, domain = stand_in.ndim == 2, job.workload.domain
    rows, truth = stand_in_answers(job, stand_in)
    job, options = _with_total(job, rows), dict(method.options)
    if "rows" in options:
        options["rows"] = max(1, rows)
    source: Any = table_of_codes(job.domain, stand_in) if listed else stand_in
    unit = add_remove_row() if listed and job.unit.cap is not None else job.unit
    errors = []
    for trial in range(trials):
        data = simulate(source, domain, unit=unit, budget=spend, seed=seed + trial)
        plan_run = run(method.name, data.vectorise(), job.workload, spend=spend, **options)
        cells = cells_of(plan_run.estimate)
        if cells is None:  # it has no negative cells, and its rows are dealt out from it
            gaps = plan_run.answer(job.workload).values - truth
            errors.append((gaps, gaps))
            continue
        whole = nonnegative_cells(job, cells)
        held = held_cells(job, cells)
        errors.append((job.workload.answer(held) - truth, job.workload.answer(whole) - truth))
    return errors


def stand_in_answers(job: Job, stand_in: Array) -> tuple[int, Array]:
    """How many rows a stand-in has, and its answers: counts of all cells, or rows of codes."""
    if stand_in.ndim == 1:
        return int(stand_in.sum()), job.workload.answer(stand_in.reshape(job.workload.domain.shape))
    domain, records = job.questions.domain, stand_in
    if domain.origin is not None:  # some of its attributes are merged
        labelled = SyntheticTable(job.domain, stand_in).to_arrow()
        records = SyntheticTable.of_arrow(domain, labelled).records
    records = job.cells.records(records)
    return len(stand_in), counted_answers(job.workload.domain, records, job.workload)


def _with_total(job: Job, rows: int) -> Job:
    """The same job for a stand-in: a declared number of rows is that of its rows."""
    if job.file.total is None:
        return job
    file = job.file.model_copy(update={"total": rows})
    return replace(job, file=file)


def _decided(job: Job) -> ReleaseMethod:
    """What `auto` takes: by runs on the stand-in, if there is one."""
    cells = job.workload.domain.size
    if job.file.stand_in is None:
        reason = "no public table stands in for the data, so nothing speaks for another plan"
    elif job.budget is None:
        reason = "there are targets, which only errors that are known beforehand can meet"
    elif job.budget.currency != "epsilon":
        reason = "private choices are paid in epsilon, and the budget is in rho"
    elif job.past:
        reason = "the release builds on earlier measurements"
    elif cells > AUTO_CELLS:
        reason = f"plans are tried on at most {AUTO_CELLS:,} cells, and there are {cells:,}"
    else:
        return _closest(job)
    return ReleaseMethod(MEASURE, {}, reason)


def _closest(job: Job) -> ReleaseMethod:
    """The plan whose tables are closest on the stand-in, if it is much closer than measuring."""
    counts = stand_in_counts(job)
    if counts is None:
        raise ReleaseError("stand_in: none is declared")
    measured = measured_error(job, counts, AUTO_TRIALS)
    errors: dict[str, float] = {}
    methods: dict[str, ReleaseMethod] = {}
    for name in AUTO_PLANS:
        try:
            method = _checked(job, name, {}, "")
            runs = plan_errors(job, method, counts, AUTO_TRIALS)
        except PsephosError:
            continue  # not for these tables
        methods[name] = method
        errors[name] = float(np.mean([weighted_rmse(job, gaps) for _, gaps in runs]))
    best = min(errors, key=errors.__getitem__, default=MEASURE)
    rows = f"{int(counts.sum()):,} rows"
    others = f"on the stand-in, {rows} with a cell, in {AUTO_TRIALS} runs, its tables are off by"
    if best == MEASURE or errors[best] * PLAN_GAIN > measured:
        rivals = f", those of {best} by {errors[best]:,.4g}" if errors else ""
        return ReleaseMethod(MEASURE, {}, f"{others} {measured:,.4g}{rivals}")
    method = methods[best]
    reason = f"{others} {errors[best]:,.4g}, those of the best strategy by {measured:,.4g}"
    return ReleaseMethod(best, method.options, reason)


def measured_error(job: Job, counts: Array, trials: int, progress: Progress | None = None) -> float:
    """The error of the published view, before rounding, if the best strategy is measured."""
    from psephos.without_ledger import simulate

    spend = job.budget
    if spend is None:
        raise ReleaseError("a strategy is tried at a budget; give [budget]")
    job = _with_total(job, int(counts.sum()))
    domain, truth, errors = job.workload.domain, job.workload.answer(counts), []
    static = Static(strategy_for(job, job.workload, progress))
    for trial in range(trials):
        data = simulate(counts, domain, unit=job.unit, budget=spend, seed=trial)
        steps = static.steps(data.vectorise(), spend=spend)
        estimate = MeasuredEstimate(job, tuple(step.measurement for step in steps))
        errors.append(weighted_rmse(job, estimate.published.unrounded - truth))
    return float(np.mean(errors))
