"""Whatever would keep a release from being written, asked before anything is charged."""

from __future__ import annotations

from psephos.attribute import first_repeated
from psephos.errors import ReleaseError
from psephos.kernel.measurement import noise_for
from psephos.publish.job import Job
from psephos.publish.plan import Plan
from psephos.publish.views import column_name

LARGEST = 2**53
"""The views are worked out in floats, which hold whole numbers up to this one."""


def check_names(job: Job) -> None:
    """Refuse attributes that would share a column of the published tables."""
    names = job.domain.names
    shown = first_repeated([column_name(name) for name in names])
    if shown is not None:
        twins = " and ".join(repr(name) for name in names if column_name(name) == shown)
        raise ReleaseError(
            f"schema: {twins} would both be the column {shown!r} of the tables; rename one of them"
        )


def check_numbers(made: Plan) -> None:
    """Refuse noise that the published numbers cannot hold."""
    noises = noise_for(made.strategy.query, made.budget, made.job.unit, 1)
    if any(noise.exact_variance > LARGEST**2 for noise in noises):
        raise ReleaseError(
            f"at {made.budget} the noise would be larger than any count (more than ± {LARGEST:,}); "
            "give more budget. Nothing was charged"
        )
