"""What the published view is worth: its error on made-up data, since no formula tells it.

The error of the consistent view is known before anything is spent, whatever the data are. That of
the published view depends on them, so it is simulated on rows made up from the public schema: some
groups of rows, independent within each, drawn at random. Real data may be kinder or less kind; the
figure says what the estimate can do, and promises nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator, default_rng

from psephos.kernel.unit import add_remove_row
from psephos.plans.static import Static
from psephos.protect import simulate
from psephos.release.forecast import Forecast, published_seconds
from psephos.release.request import Job
from psephos.release.views import Views
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
    job = forecast.job
    rows = MADE_UP_ROWS if job.file.total is None else job.file.total
    counts = made_up_counts(job, rows, default_rng(seed))
    unit = job.unit if job.unit.cap is None else add_remove_row()
    spend = forecast.budget
    data = simulate(counts, job.workload.domain, unit=unit, budget=spend, seed=seed)
    steps = Static(forecast.strategy).steps(data.vectorise(), spend=spend, key="made up")
    views = Views(job, tuple(step.measurement for step in steps))
    shape = job.workload.domain.shape
    truth = job.workload.answer(counts.reshape(shape))
    errors = [
        _weighted_error(job, answers - truth)
        for answers in (views.consistent, job.workload.answer(views.solution.reshape(shape)))
    ]
    return SimulatedError(rows, *errors)


def is_quick(forecast: Forecast) -> bool:
    """Is it simulated without being asked for?"""
    numbers = forecast.job.workload.shape[0]
    return (
        "published" in forecast.job.file.output.views
        and not forecast.job.past
        and numbers <= MOST_SIMULATED_NUMBERS
        and published_seconds(forecast.job, rounded=False) <= MOST_SIMULATED_SECONDS
    )


def made_up_counts(job: Job, rows: int, generator: Generator) -> Array:
    """Counts of all cells: groups of rows, each with its own shares of every attribute."""
    groups = generator.multinomial(rows, generator.dirichlet(np.ones(MADE_UP_GROUPS)))
    counts = np.zeros(job.workload.domain.size, dtype=np.int64)
    for count in groups:
        share = np.ones(1)
        for n in job.workload.domain.shape:
            share = np.multiply.outer(share, generator.dirichlet(np.full(n, 0.5))).ravel()
        if job.zeros is not None:
            share = np.where(job.zeros, 0, share)
        if share.sum() > 0:
            counts += generator.multinomial(count, share / share.sum())
    return counts


def _weighted_error(job: Job, gaps: Array) -> float:
    weights = np.repeat([p.weight**2 for p in job.workload.products], job.workload.query_counts)
    return math.sqrt(float((weights * gaps**2).sum() / weights.sum()))
