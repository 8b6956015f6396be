"""What every step of a release takes, in time and memory, by the numbers that it goes through.

The rates are those of one core of one machine, fitted to random release files and to shapes of many
numbers or cells; on other files the sum of all steps is mostly within a factor of three where it is
more than a few seconds (`python -m benchmarks.forecasts`). Reading the table comes on top: how long
that takes depends on its rows, which are not public.
"""

from __future__ import annotations

from psephos.infer.intervals import HELD_NUMBERS, SIMULATION_BATCH, WIDE_STDERR, Widths
from psephos.infer.joint_noise import NOISE_DRAWS
from psephos.kernel.budget import Budget
from psephos.kernel.measurement import noise_for
from psephos.release.formats.workbook_size import workbook_numbers
from psephos.release.preflight.room import BYTES_PER_DRAWN, BYTES_PER_PLANNED, StepCost
from psephos.release.spec.entries import PublishedMethod
from psephos.release.spec.job import Job
from psephos.release.views.published import PublishedRule
from psephos.release.views.published_groups import PublishedGroups, possible_views
from psephos.strategy.strategy import Strategy

SECONDS_PER_DRAWN = 5e-8
"""Of a number in one draw of simulated noise."""
SECONDS_PER_WRITTEN = {"csv": 1e-6, "parquet": 1e-6, "xlsx": 2.2e-5}
"""Of a number in a format, for each view in it; other formats are as quick as CSV."""
LEAST_SECONDS = 0.5
"""Of a report and of all else that is written once."""
ESTIMATE_SECONDS, ESTIMATE_GROWTH = {"entropy": 2.5e-3, "least squares": 9e-3}, 0.6
"""Of published numbers, c · cells^g, rounding and all: many cells are visited in fewer steps."""
BYTES_PER_WRITTEN, BYTES_PER_PUBLISHED_CELL = 400, 150
"""Of a number of the largest table while it is written; of the cells of one estimate."""
LEAST_BYTES = 2**26
"""What a step takes whatever its size, of libraries that it is the first to use."""


def step_costs(
    job: Job,
    strategy: Strategy,
    budget: Budget,
    widths: Widths,
    groups: PublishedGroups | None,
) -> tuple[StepCost, ...]:
    """The steps after the rows were counted."""
    cost = strategy.cost
    steps = [
        StepCost("measuring and estimating", cost.seconds, LEAST_BYTES + cost.bytes),
        _interval_cost(job, strategy, budget, widths),
        _file_cost(job),
    ]
    if "published" in possible_views(job, groups):
        steps.append(published_cost(job, groups))
    return tuple(steps)


def published_cost(job: Job, groups: PublishedGroups | None) -> StepCost:
    """The estimates behind the published view, one after the other, and their rounding."""
    estimates = [(PublishedRule.of(job), job.workload.domain.size)]
    if groups is not None:
        sizes = map(groups.grouping.cells, range(len(groups.rules)))
        estimates = list(zip(groups.rules, sizes, strict=True))
    seconds = sum(estimate_seconds(rule.method, n) for rule, n in estimates)
    largest = max(n for _, n in estimates)
    held = LEAST_BYTES + BYTES_PER_PUBLISHED_CELL * largest
    return StepCost("published numbers", seconds, held)


def estimate_seconds(method: PublishedMethod, cells: int) -> float:
    """One estimate of so many cells, and its rounding."""
    return float(ESTIMATE_SECONDS[method] * cells**ESTIMATE_GROWTH)


def _interval_cost(job: Job, strategy: Strategy, budget: Budget, widths: Widths) -> StepCost:
    """Noise drawn for all answers; and for those behind shares, quantiles and the like."""
    answers, numbers = strategy.cost.answers, job.workload.shape[0]
    drawn = widths.draws * (answers + numbers)
    held = min(drawn, SIMULATION_BATCH if "pooled" in widths.method else HELD_NUMBERS)
    derived = sum(table.derived for table in job.tables)
    if derived and answers <= NOISE_DRAWS and _has_narrow_noise(job, strategy, budget):
        drawn += derived * NOISE_DRAWS * answers
        held = max(held, NOISE_DRAWS * answers)
    held = BYTES_PER_DRAWN * held + BYTES_PER_PLANNED * numbers
    return StepCost("intervals", drawn * SECONDS_PER_DRAWN, LEAST_BYTES + held)


def _has_narrow_noise(job: Job, strategy: Strategy, budget: Budget) -> bool:
    """Are the steps of whole numbers seen in some noise, which is then simulated?"""
    noises = noise_for(strategy.query, budget, job.unit, 1)
    return min(noise.exact_variance for noise in noises) < WIDE_STDERR**2


def _file_cost(job: Job) -> StepCost:
    """Tables in every view and format, and the report."""
    output, numbers = job.file.output, job.workload.shape[0]
    seconds = LEAST_SECONDS
    for kind in output.formats:
        of_kind = workbook_numbers(job) if kind == "xlsx" else numbers * len(output.views)
        seconds += of_kind * SECONDS_PER_WRITTEN.get(kind, SECONDS_PER_WRITTEN["csv"])
    largest = max(table.numbers(job.workload) for table in job.tables)
    planned = BYTES_PER_PLANNED * numbers
    return StepCost("tables and report", seconds, planned + BYTES_PER_WRITTEN * largest)
