"""What a release file declares of all cells, held by the estimate of a plan: total and zeros."""

from __future__ import annotations

import numpy as np

from psephos.infer.nonnegative import nearest_nonnegative
from psephos.release.spec.job import Job
from psephos.values import Array


def held_cells(job: Job, cells: Array) -> Array:
    """The nearest cells that are zero where no row can be, and add up to the public total.

    Without a public total they add up to what they did before. The true cells hold both, so that
    the sum of squared errors over cells is never larger than it was.
    """
    if job.zeros is None and job.file.total is None:
        return cells
    possible = np.full(cells.size, True) if job.zeros is None else ~job.zeros
    total = float(cells.sum()) if job.file.total is None else float(job.file.total)
    missing = total - float(cells[possible].sum())
    return np.where(possible, cells + missing / int(possible.sum()), 0.0)


def held_words(job: Job) -> str:
    """Which declared facts the estimate of a plan is made to hold; empty if there are none."""
    facts = []
    if job.file.total is not None:
        facts.append(f"the declared total of {job.file.total:,} rows")
    if job.zeros is not None:
        count = int(job.zeros.sum())
        facts.append(f"the {count:,} cell{'' if count == 1 else 's'} declared to be empty")
    return " and ".join(facts)


def nonnegative_cells(job: Job, cells: Array) -> Array:
    """Cells of which none is negative, whose tables are nearest; the total is held, or public."""
    total = float(cells.sum()) if job.file.total is None else float(job.file.total)
    return nearest_nonnegative(cells, job.workload, zeros=job.zeros, total=max(0.0, total))
