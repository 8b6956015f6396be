"""One task: the counts of a run of parts, exact answers, exact noise, a sealed file.

Privacy: a task is the last step that sees counts; what it returns is a receipt. Noise is drawn from
the operating system's entropy here, in the process that counted, and never from a key: a task that
is tried again draws anew, and its first draw can no longer be read (`seal`).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from operator import add
from typing import Any, NamedTuple

import numpy as np

from psephos.kernel import gate
from psephos.kernel.noise import DiscreteGaussian, DiscreteLaplace, Noise
from psephos.kernel.parts.seal import PartReceipt, sealed
from psephos.kernel.query import Query
from psephos.kernel.scores.mechanisms import Draws
from psephos.kernel.sensitivity import answers, exactly
from psephos.values import Array

LARGEST_WORD = (1 << 63) - 1


class PartJob(NamedTuple):
    """What all tasks share: the query of every part, the noise of each level, where files go.

    `prefix` is what the names of a request's files begin with.
    """

    query: Query
    noise: tuple[tuple[Noise, ...], ...]
    folder: str
    prefix: str

    def to_bytes(self) -> bytes:
        """For another process."""
        laws = tuple(tuple([_written(law) for law in level]) for level in self.noise)
        return gate.to_bytes((self.query, laws, self.folder, self.prefix))

    @classmethod
    def from_bytes(cls, data: bytes) -> PartJob:
        """What `to_bytes` wrote."""
        query, laws, *place = gate.from_bytes(data)
        return cls(query, tuple(tuple([_read(law) for law in level]) for level in laws), *place)


class PartTask(NamedTuple):
    """Parts `start` to `stop` - 1 of a level, and the cell of each of their rows, or all counts.

    A row in cell c of the i-th of these parts is i·n + c, n the number of inner cells.
    """

    level: int
    start: int
    stop: int
    counted: int
    numbers: Array

    def to_bytes(self) -> bytes:
        """For another process."""
        return gate.to_bytes(tuple(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> PartTask:
        """What `to_bytes` wrote."""
        return cls(*gate.from_bytes(data))


def perform(job: PartJob, task: PartTask, draws: Draws) -> PartReceipt:
    """Measure a run of parts: its noisy answers are in a sealed file when this returns."""
    parts, cells = task.stop - task.start, job.query.shape[1]
    size = parts * cells
    counts = task.numbers if task.counted else np.bincount(task.numbers, minlength=size)
    columns = np.ascontiguousarray(counts.reshape(parts, cells).T)
    noisy = [
        _noisy(answers(block.matrix, columns).T, law, draws)
        for block, law in zip(job.query.blocks, job.noise[task.level], strict=True)
    ]
    return sealed(_joined(noisy), *task[:3], job.folder, job.prefix)


def _noisy(true: Array, law: Noise, draws: Draws) -> Array:
    """Answers with noise, in 64 bits; the bounds are never met, and to cut at them tells nothing.

    Noise passes 2⁶² with a probability below exp(-2¹¹), since `law.LARGEST_NOISE` is 2⁵⁰.
    """
    noise = draws.noise(law, true.size).reshape(true.shape)
    return np.clip(exactly(add, true, noise), -LARGEST_WORD, LARGEST_WORD).astype(np.int64)


def _joined(blocks: Sequence[Array]) -> Array:
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)


def _written(law: Noise) -> tuple[Any, ...]:
    if isinstance(law, DiscreteLaplace):
        return ("laplace", law.scale)
    return ("gaussian", law.variance)


def _read(written: tuple[str, Fraction]) -> Noise:
    name, amount = written
    return DiscreteLaplace(amount) if name == "laplace" else DiscreteGaussian(amount)
