"""Is there room for a step in memory? Refused before anything is charged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psephos.errors import ReleaseError
from psephos.inverse.choice import memory_words
from psephos.release.preflight.memory import free_memory
from psephos.release.spec.job import Job

BYTES_PER_PLANNED, BYTES_PER_DRAWN = 60, 24
"""Of a number of all tables while they are planned; of one of simulated noise, or of rows."""


@dataclass(frozen=True)
class StepCost:
    """A step of a release, about how many seconds it takes, and by how much memory grows in it."""

    name: str
    seconds: float
    bytes: int


def check_planning(job: Job) -> None:
    """Refuse tables whose numbers do not find room while they are planned."""
    numbers = job.questions.shape[0]
    needed = BYTES_PER_PLANNED * numbers
    if needed > free_memory():
        raise ReleaseError(_too_large(job, f"planning {numbers:,} numbers", needed))


def check_memory(job: Job, steps: Sequence[StepCost]) -> None:
    """Refuse steps that do not find room in memory."""
    largest = max(steps, key=lambda step: step.bytes, default=None)
    if largest is not None and largest.bytes > free_memory():
        raise ReleaseError(_too_large(job, f'the step "{largest.name}"', largest.bytes))


def check_rows(rows: int, columns: int) -> None:
    """Refuse synthetic rows that do not find room in memory."""
    needed = BYTES_PER_DRAWN * rows * columns
    if needed > free_memory():
        raise ReleaseError(
            f"{rows:,} rows of {columns} columns take about {memory_words(needed)} of memory, and "
            f"{memory_words(free_memory())} is free: make fewer rows"
        )


def _too_large(job: Job, what: str, needed: int) -> str:
    return (
        f"{what} takes about {memory_words(needed)} of memory, and "
        f"{memory_words(free_memory())} is free: go where more is free, or {job.smaller_words}. "
        "This run charged nothing"
    )
