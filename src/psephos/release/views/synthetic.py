"""Made-up rows beside a release's tables: made from what is published, and compared with it.

Where all cells fit in memory the rows are the published cells written out, so that every published
table is a count of them. Elsewhere they are dealt out from the plan's estimate, and published
tables are counts of them. Either way nothing is looked at but noisy numbers, and public randomness
follows from the release's key, so that whoever has the bundle makes up the same rows again.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.random import Generator, default_rng

from psephos.infer.rounding import round_cells
from psephos.release.spec.job import Job
from psephos.synthesis.table import SyntheticTable
from psephos.values import Array


def public_generator(job: Job) -> Generator:
    """Random numbers that anyone can draw again, from the release's key."""
    return default_rng(list(hashlib.sha256(f"{job.key}\nmade-up rows".encode()).digest()))


def written_out(
    job: Job, cells: Array, solution: Array, simulation: bool, rows: int | None = None
) -> SyntheticTable:
    """The rows of published cells; of the estimate in whole numbers where another size is asked."""
    domain, entry = job.workload.domain, job.file.synthetic
    wanted = rows or (None if entry is None else entry.rows)
    total = float(solution.sum())
    if wanted is not None and wanted != int(cells.sum()) and total > 0:
        cells = round_cells(solution * (wanted / total), job.workload)
    places = np.repeat(np.arange(cells.size), cells)
    records = np.stack(np.unravel_index(places, domain.shape), axis=1)
    return SyntheticTable(domain, records, simulation)
