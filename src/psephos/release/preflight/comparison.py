"""The plans of a release file's questions, tried on a stand-in for its data."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from numpy.random import default_rng

from psephos.errors import ReleaseError
from psephos.kernel.budget import Budget
from psephos.plans.comparison import PlanError, compare
from psephos.release.preflight.simulated import made_up_counts
from psephos.release.preflight.synthetic_rows import SYNTHETIC_CELLS
from psephos.release.spec.job import (
    Job,
    public_source,
    refuse_source,
    stand_in_counts,
    stand_in_words,
)


@dataclass(frozen=True)
class PlanComparison:
    """Simulated errors of plans, the best first, and what they were simulated on."""

    stand_in: str
    spend: Budget
    trials: int
    errors: Sequence[PlanError]


def compare_plans(
    path: str | os.PathLike[str] | Job,
    *,
    plans: Iterable[str] | None = None,
    stand_in: str | os.PathLike[str] | None = None,
    rows: int = 10_000,
    trials: int = 5,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> PlanComparison:
    """Try plans on a public table of the release's columns, or on made-up rows.

    Neither the release's data nor its ledger is opened.

    Args:
        path: a release file, or the folder of one called release.toml
        plans: names of plans; all if left out
        stand_in: a public table, e.g. of an earlier year, never the data themselves; the release
            file's if left out
        rows: how many rows to make up where there is no stand-in
        trials: runs of each plan
        seed: of the made-up rows and of the noise
        progress: told what is being done
    """
    job = (path if isinstance(path, Job) else Job.read(path)).whole
    domain = job.workload.domain
    if domain.size > SYNTHETIC_CELLS:
        raise ReleaseError(
            f"plans are tried on a vector of all cells, at most {SYNTHETIC_CELLS:,}, and the "
            f"tables of this release span {domain.size_text}; HDMM serves so many (psephos plan)"
        )
    declared = stand_in_counts(job) if stand_in is None else None
    if declared is not None:
        words, counts = stand_in_words(job), declared
    elif stand_in is None:
        words, counts = f"{rows:,} made-up rows", made_up_counts(job, rows, default_rng(seed))
    else:
        refuse_source(job, Path(stand_in))
        counts = public_source(job, Path(stand_in)).count(domain, domain.names, (), None)
        words = stand_in_words(job, Path(stand_in))
    spend = job.file.ledger.budget() if job.budget is None else job.budget
    errors = compare(
        job.workload, counts, unit=job.unit, spend=spend, plans=plans, trials=trials, seed=seed,
        progress=progress,
    )  # fmt: skip
    return PlanComparison(words, spend, trials, errors)
