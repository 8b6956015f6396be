"""The published numbers of all parts: whole, never negative, adding up at every level."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from psephos.errors import UnsupportedError
from psephos.infer.tree_rounding import whole_numbers_down
from psephos.release.parts.estimates import PartEstimates, answers_of_cells, half_width_factor
from psephos.release.spec.job import Job
from psephos.values import Array
from psephos.workload.product import product
from psephos.workload.workload import Workload

NumberColumns = dict[str, Array]


class PublishedRun(NamedTuple):
    """The numbers of some parts of a level, by column; each an array (parts, numbers)."""

    level: int
    parts: range
    columns: NumberColumns
    totals: NumberColumns | None
    """The number of all rows of each part; None where what was asked does not tell it."""


def published_runs(
    job: Job, estimates: PartEstimates, folder: Path | None = None
) -> Iterator[PublishedRun]:
    """All parts of all levels, from the whole down, in runs.

    Whole numbers carry the consistent number beside them, its standard error and its interval,
    which is wide enough for the noise of the consistent number, cut at zero and extended to the
    published one.
    """
    workload, fit = job.workload, estimates.fit
    total = Workload(workload.domain, [product()])
    errors, error_of_total = estimates.standard_errors(workload), None
    with suppress(UnsupportedError):
        error_of_total = estimates.standard_errors(total)
    confidence = float(job.file.output.confidence)
    wide = half_width_factor(confidence, estimates.measurement.cost.currency)
    levels = range(len(estimates.tree.names))
    factors = [np.sqrt(fit.variance_factors(level)) for level in levels]
    for level, start, stop, cells in whole_numbers_down(fit, [workload for _ in levels], folder):
        both = fit.estimates(level, start, stop), cells
        factor = factors[level][start:stop]
        totals = None
        if error_of_total is not None:
            totals = _columns(total, *both, np.outer(factor, error_of_total), wide)
        columns = _columns(workload, *both, np.outer(factor, errors), wide)
        yield PublishedRun(level, range(start, stop), columns, totals)


def _columns(
    workload: Workload, real: Array, whole: Array, stderr: Array, wide: float
) -> NumberColumns:
    consistent, count = answers_of_cells(workload, real), answers_of_cells(workload, whole)
    return {
        "count": count,
        "consistent": consistent,
        "stderr": stderr,
        "low": np.maximum(np.minimum(consistent - wide * stderr, count), 0.0),
        "high": np.maximum(consistent + wide * stderr, count),
    }
