"""What a plan that adapts to the data would err by: simulated, beside what measuring promises.

The error of such a plan depends on the data, so it is run on a public table that stands in for
them, or on rows made up from the schema. That promises nothing: the data may be kinder or less
kind. Beside it stands what the best strategy errs by, whatever the data are.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from time import process_time

import numpy as np
from numpy.random import default_rng

from psephos.errors import PsephosError, ReleaseError
from psephos.infer.nonnegative import NONNEGATIVE_CELLS
from psephos.inverse.form import multiply
from psephos.kernel.budget import Budget
from psephos.matrix import Kron
from psephos.numbers import count_text, digits_for
from psephos.release.methods.kind import ForecastRow, ReleaseMethod
from psephos.release.methods.method import (
    plan_errors,
    stand_in_answers,
    weighted_rmse,
)
from psephos.release.preflight.forecast import Forecast
from psephos.release.preflight.room import StepCost
from psephos.release.preflight.simulated import MADE_UP_ROWS, made_up_columns, made_up_counts
from psephos.release.spec.job import Job, stand_in_counts, stand_in_words
from psephos.report.html import HtmlTable, notebook_html
from psephos.values import Array
from psephos.workload.workload import Workload

FORECAST_TRIALS, FEW_TRIALS, FEW_TRIAL_CELLS = 5, 2, 50_000
"""Runs of a plan on a stand-in; fewer where there are more cells than this."""
SLOW_TRIAL = 4.0
"""A run of so many seconds is the only one."""


@dataclass(frozen=True)
class SimulatedTable:
    """The root mean squared error of a table's numbers in runs on a stand-in, and its spread."""

    name: str
    title: str
    queries: int
    rmse: float
    spread: float
    published: float


@dataclass(frozen=True, eq=False, repr=False)
class PlanForecast:
    """A plan that adapts to the data, its simulated errors, and what measuring would promise."""

    job: Job
    method: ReleaseMethod
    budget: Budget
    stand_in: str
    """What it was run on, in words."""
    trials: int
    tables: tuple[SimulatedTable, ...]
    rmse: float
    """Of all numbers, weighted as the tables are; simulated."""
    spread: float
    """The standard deviation of `rmse` from run to run."""
    published: float
    """The same without negative cells, before rounding."""
    seconds: float
    """Of one run."""
    measured: Forecast
    """What the best strategy would give at the same budget; its errors are exact."""
    without_data: dict[str, float]
    """What answers err by on the same rows that need no data: zero, and all cells alike."""

    @property
    def rows(self) -> tuple[ForecastRow, ...]:
        """The simulated error of every table."""
        return tuple(ForecastRow(t.name, "all", 1, t.queries, t.rmse, True) for t in self.tables)

    @property
    def steps(self) -> Sequence[StepCost]:
        """What takes time and memory after counting, about as where a strategy is measured."""
        return self.measured.steps

    @property
    def disk_bytes(self) -> int:
        """About what the bundle takes."""
        return self.measured.disk_bytes

    def shortage(self, remaining: Budget) -> str:
        """What to do where it costs more than is left."""
        return f"this costs {self.budget}, and {remaining} remains in the ledger; lower [budget]"

    @property
    def without_data_words(self) -> str:
        """What such answers err by, and what to do where they are as close as the plan."""
        zero, uniform = (count_text(e, digits_for(e)) for e in self.without_data.values())
        words = (
            f"On these rows zero for every number errs by {zero}, and sharing the rows out evenly "
            f"over all cells by {uniform}."
        )
        if min(self.without_data.values()) > self.published:
            return words
        return (
            f"{words} That needs no data and is as close as {self.method.name}, which at this "
            "budget tells next to nothing of such rows: spend more, or ask for fewer tables."
        )

    def __repr__(self) -> str:
        count = len(self.tables)
        plural = "s" if count != 1 else ""
        return (
            f"PlanForecast({self.job.file.name!r}: {count} table{plural} at {self.budget}, "
            f"{self.method.name}, simulated error {self.rmse:,.4g} on {self.stand_in})"
        )

    def _repr_html_(self) -> str:
        heads = ["table", "numbers", "simulated error", "from run to run", "best strategy"]
        rows = [
            [t.title, f"{t.queries:,}", f"{t.rmse:,.4g}", f"± {t.spread:,.4g}", f"{m.rmse:,.4g}"]
            for t, m in zip(self.tables, self.measured.tables, strict=True)
        ]
        return notebook_html(HtmlTable.of(repr(self), heads, rows))


def plan_forecast(job: Job, method: ReleaseMethod, measured: Forecast) -> PlanForecast:
    """Run a plan on the stand-in of a release, or on made-up rows; no data are touched."""
    budget = job.budget
    if budget is None:
        raise ReleaseError("a plan is tried at a budget; give [budget]")
    words, rows_or_counts = stand_in_of(job)
    number, truth = stand_in_answers(job, rows_or_counts)
    guesses = {"zero": 0 * truth, "uniform": uniform_answers(job.workload, number)}
    trials = FORECAST_TRIALS if job.workload.domain.size <= FEW_TRIAL_CELLS else FEW_TRIALS
    if rows_or_counts.ndim == 2:  # no vector of all cells: such plans take longer
        trials = 1
    start = process_time()
    try:
        runs = plan_errors(job, method, rows_or_counts, 1)
        if process_time() - start > SLOW_TRIAL:
            trials = 1
        if trials > 1:
            runs += plan_errors(job, method, rows_or_counts, trials - 1, seed=1)
    except PsephosError as error:
        raise ReleaseError(f"method: {method.name} cannot be run: {error}") from None
    seconds = (process_time() - start) / trials
    tables = []
    for table in job.tables:
        rows = table.error_rows(job.workload)
        errors = [_rmse(gaps[rows]) for gaps, _ in runs]
        published = [_rmse(gaps[rows]) for _, gaps in runs]
        size = rows.stop - rows.start
        spread = *_mean(errors), _mean(published)[0]
        tables.append(SimulatedTable(table.name, table.title, size, *spread))
    totals = [weighted_rmse(job, gaps) for gaps, _ in runs]
    whole = [weighted_rmse(job, gaps) for _, gaps in runs]
    return PlanForecast(
        job,
        method,
        budget,
        words,
        trials,
        tuple(tables),
        *_mean(totals),
        _mean(whole)[0],
        seconds,
        measured,
        {name: weighted_rmse(job, guess - truth) for name, guess in guesses.items()},
    )


def stand_in_of(job: Job) -> tuple[str, Array]:
    """What plans are run on, in words and counts; in rows where cells are too many to count."""
    if job.workload.domain.size > NONNEGATIVE_CELLS:
        number = min(job.file.total or MADE_UP_ROWS, MADE_UP_ROWS)
        return f"{number:,} made-up rows", made_up_columns(job, number, default_rng(0))
    counts = stand_in_counts(job)
    if counts is not None:
        return stand_in_words(job), counts
    rows = MADE_UP_ROWS if job.file.total is None else job.file.total
    return f"{rows:,} made-up rows", made_up_counts(job, rows, default_rng(0))


def uniform_answers(workload: Workload, rows: float) -> Array:
    """What a workload counts where so many rows are shared out evenly over all cells.

    >>> import psephos as ps
    >>> uniform_answers(ps.marginals(ps.Domain.of(a=2, b=3), k=1), 12)
    array([6., 6., 4., 4., 4.])
    """
    answers = []
    for i in range(len(workload.products)):
        factors = tuple(factor for _, factor in workload.kron(i).active)
        shares = [np.full(factor.shape[1], 1 / factor.shape[1]) for factor in factors]
        table = rows * functools.reduce(np.multiply.outer, shares, np.ones(())).ravel()
        answers.append(multiply(Kron(factors), table) if factors else table)
    return np.concatenate(answers)


def _rmse(gaps: Array) -> float:
    return math.sqrt(float(np.mean(gaps**2)))


def _mean(errors: list[float]) -> tuple[float, float]:
    return float(np.mean(errors)), float(np.std(errors))
