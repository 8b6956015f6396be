"""What the published view is worth: its error on made-up data, since no formula tells it.

The error of the consistent view is known before anything is spent, whatever the data are. That of
the published view depends on them, so it is simulated on rows made up from the public schema: some
groups of rows, independent within each, drawn at random. Real data may be kinder or less kind; the
figure says what the estimate can do, and promises nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator, default_rng

from psephos.infer.records import counted_answers
from psephos.kernel.unit import add_remove_row
from psephos.plans.static import Static
from psephos.release.preflight.forecast import Forecast
from psephos.release.preflight.step_costs import published_cost
from psephos.release.preflight.synthetic_rows import table_of_codes
from psephos.release.spec.job import Job
from psephos.release.spec.tables import Impossible
from psephos.release.views.estimates import MeasuredEstimate
from psephos.release.views.views import Views
from psephos.values import Array

MADE_UP_ROWS = 10_000
"""Rows that are made up where the release file does not say how many there are."""
MADE_UP_GROUPS = 8
MOST_SIMULATED_SECONDS, MOST_SIMULATED_NUMBERS = 2.5, 200_000
"""What is simulated without being asked for: so long, about, and so many numbers."""


@dataclass(frozen=True)
class SimulatedError:
    """Root mean squared errors on made-up rows, weighted as the tables are."""

    rows: int
    consistent: float
    published: float


def simulated_error(forecast: Forecast, *, seed: int = 0) -> SimulatedError:
    """The error of one draw of noise on made-up rows, before rounding."""
    from psephos.without_ledger import simulate

    job = forecast.job
    rows = MADE_UP_ROWS if job.file.total is None else job.file.total
    source: Any
    if forecast.groups is None:
        source = made_up_counts(job, rows, default_rng(seed))
        truth = job.workload.answer(source.reshape(job.workload.domain.shape))
    else:
        columns = made_up_columns(job, rows, default_rng(seed))
        source = table_of_codes(job.domain, columns)
        truth = counted_answers(job.workload.domain, job.cells.records(columns), job.workload)
    unit = job.unit if job.unit.cap is None else add_remove_row()
    spend = forecast.budget
    domain = job.workload.domain if forecast.groups is None else job.questions.domain
    data = simulate(source, domain, unit=unit, budget=spend, seed=seed)
    table = data if forecast.groups is None else job.cells.of(data)
    steps = Static(forecast.strategy).steps(table.vectorise(), spend=spend, key="made up")
    views = Views(MeasuredEstimate(job, tuple(step.measurement for step in steps)))
    closer, some = views.published.unrounded, views.published_rows
    errors = [_weighted_error(job, answers - truth, some) for answers in (views.consistent, closer)]
    return SimulatedError(rows, *errors)


def is_quick(forecast: Forecast) -> bool:
    """Is it simulated without being asked for?"""
    numbers = forecast.job.workload.shape[0]
    return (
        "published" in forecast.views
        and not forecast.job.past
        and forecast.job.prior is None  # on made-up rows a prior from real ones only misleads
        and numbers <= MOST_SIMULATED_NUMBERS
        and published_cost(forecast.job, forecast.groups).seconds <= MOST_SIMULATED_SECONDS
        and (forecast.groups is None or forecast.job.workload.domain.origin is None)
    )


def made_up_counts(job: Job, rows: int, generator: Generator) -> Array:
    """Counts of all cells: groups of rows, each with its own shares of every attribute."""
    shape, size = job.workload.domain.shape, job.workload.domain.size
    if job.zeros is None and rows * len(shape) < size:  # each row costs less than all cells
        records = _grouped_rows(shape, rows, generator)
        return np.bincount(np.ravel_multi_index(tuple(records.T), shape), minlength=size)
    counts = np.zeros(size, dtype=np.int64)
    for count in generator.multinomial(rows, generator.dirichlet(np.ones(MADE_UP_GROUPS))):
        share = np.ones(1)
        for n in shape:
            share = np.multiply.outer(share, generator.dirichlet(np.full(n, 0.5))).ravel()
        if job.zeros is not None:
            share = np.where(job.zeros, 0, share)
        if share.sum() > 0:
            counts += generator.multinomial(count, share / share.sum())
    return counts


def _grouped_rows(shape: Sequence[int], rows: int, generator: Generator) -> Array:
    """Rows of groups, each with its own shares of every attribute: a column for each attribute."""
    parts = []
    for count in generator.multinomial(rows, generator.dirichlet(np.ones(MADE_UP_GROUPS))):
        shares = [generator.dirichlet(np.full(n, 0.5)) for n in shape]
        each = [generator.choice(share.size, size=count, p=share) for share in shares]
        parts.append(np.stack(each, axis=1))
    return np.concatenate(parts)


def made_up_columns(job: Job, rows: int, generator: Generator) -> Array:
    """Rows in the same way where there are too many cells: a column of cells for each attribute.

    Rows that cannot be are left out.
    """
    columns = _grouped_rows(job.domain.shape, rows, generator)
    for impossible in job.impossible:
        columns = columns[~_meets(job, impossible, columns)]
    return columns


def _meets(job: Job, impossible: Impossible, columns: Array) -> Array:
    """Which rows meet a condition."""
    meets = np.ones(len(columns), dtype=bool)
    for conjunct in impossible.conjuncts:
        (merged,) = conjunct.names
        members = [n for n, _ in impossible.domain[merged].parts] or [merged]
        axes = [job.domain.axis(name) for name in members]
        shape = [job.domain.shape[axis] for axis in axes]
        meets &= conjunct.mask[np.ravel_multi_index([columns[:, a] for a in axes], shape)]
    return meets


def _weighted_error(job: Job, gaps: Array, some: Array) -> float:
    """The root mean square over some numbers, weighted as the tables are."""
    weights = np.repeat([p.weight**2 for p in job.workload.products], job.workload.query_counts)
    return math.sqrt(float((weights[some] * gaps[some] ** 2).sum() / weights[some].sum()))
