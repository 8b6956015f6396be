"""What means, shares and quantiles would err by: forecast on a stand-in, since it depends on data.

The noise of the counts and sums behind a statistic is known beforehand, whatever the data are. How
much it moves a mean depends on how many rows a group has. So intervals are worked out around the
numbers of a public table that stands in for the data, or of made-up rows: a forecast, no promise.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from psephos.infer.joint_noise import JointNoise
from psephos.infer.least_squares import block_answers
from psephos.inverse.choice import form_of, precision
from psephos.kernel.measurement import noise_for
from psephos.release.methods.method import stand_in_answers
from psephos.release.methods.plan_forecast import stand_in_of
from psephos.release.preflight.forecast import Forecast
from psephos.release.views.statistics import derived_values, parts_of


@dataclass(frozen=True)
class StatisticForecast:
    """A statistic on the stand-in: half of its intervals, in its unit."""

    table: str
    statistic: str
    unit: str
    numbers: int
    typical: float
    """The median over all groups."""
    widest: float
    untold: int
    """Numbers whose interval would be the whole declared range."""


def statistic_forecasts(forecast: Forecast) -> tuple[str, list[StatisticForecast]]:
    """What the intervals of all derived statistics are worked out on, and how wide they are."""
    job = forecast.job
    tables = [table for table in job.tables if table.derived]
    if not tables:
        return "", []
    words, rows_or_counts = stand_in_of(job)
    workload = job.workload
    _, truth = stand_in_answers(job, rows_or_counts)
    known = block_answers(job.known)
    blocks = [block.matrix for block in known]
    blocks += [block.matrix for block in forecast.strategy.query.blocks]
    noises = [block.noise for block in known]
    noises += noise_for(forecast.strategy.query, forecast.budget, job.unit, 1)
    if known:
        precisions = [precision(noise.exact_variance) for noise in noises]
        form = form_of(blocks, precisions, workload.domain.shape)
    else:
        form = forecast.strategy.form(forecast.budget, job.unit)
    rows = [block.shape[0] for block in blocks]
    confidence = float(job.file.output.confidence)
    forecasts = []
    for table in tables:
        noise = JointNoise.of(form, noises, rows, table.workload(workload), rough=True)
        values = derived_values(table, job.questions, truth.astype(float), noise, confidence)
        if values.low is None or values.high is None or values.whole_range is None:
            continue
        half, start = (values.high - values.low) / 2, 0
        for statistic, _ in parts_of(table, job.questions):
            end = start + statistic.size(job.questions.domain)
            some = half[start:end]
            name = ", ".join(statistic.words)
            untold = int(values.whole_range[start:end].sum())
            sizes = float(np.median(some)), float(some.max())
            forecasts.append(
                StatisticForecast(
                    table.name, name, statistic.unit_words, end - start, *sizes, untold
                )
            )
            start = end
    return words, forecasts
