"""The published numbers of all parts: whole, never negative, adding up at every level."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from psephos.infer.tree_rounding import whole_numbers_down
from psephos.release.parts.estimates import PartEstimates, answers_of_cells, half_width_factor
from psephos.release.request import Job
from psephos.values import Array


class PublishedRun(NamedTuple):
    """The numbers of some parts of a level, by column; each an array (parts, numbers)."""

    level: int
    parts: range
    columns: dict[str, Array]


def published_runs(
    job: Job, estimates: PartEstimates, folder: Path | None = None
) -> Iterator[PublishedRun]:
    """All parts of all levels, from the whole down, in runs.

    Whole numbers carry the consistent number beside them, its standard error and its interval,
    which is wide enough for the noise of the consistent number, cut at zero and extended to the
    published one.
    """
    workload, fit = job.workload, estimates.fit
    errors = estimates.standard_errors(workload)
    confidence = float(job.file.output.confidence)
    wide = half_width_factor(confidence, estimates.measurement.cost.currency)
    levels = range(len(estimates.tree.names))
    factors = [np.sqrt(fit.variance_factors(level)) for level in levels]
    for level, start, stop, cells in whole_numbers_down(fit, [workload for _ in levels], folder):
        consistent = answers_of_cells(workload, fit.estimates(level, start, stop))
        stderr = np.outer(factors[level][start:stop], errors)
        count = answers_of_cells(workload, cells)
        columns = {
            "count": count,
            "consistent": consistent,
            "stderr": stderr,
            "low": np.maximum(np.minimum(consistent - wide * stderr, count), 0.0),
            "high": np.maximum(consistent + wide * stderr, count),
        }
        yield PublishedRun(level, range(start, stop), columns)
