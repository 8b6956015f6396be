"""Do measurements contradict each other? The noisy integers alone tell.

Measurements of one state of the data differ by their noise. With x̂ the estimate from all of them
and x̂₋ the one without some, the answers of a workload W move by d = W x̂₋ - W x̂ when these join the
rest. If the data are the same, d is a fixed linear map of the noise: the counts cancel. Least
squares is uncorrelated with what parts it from another unbiased estimate (Hausman 1978), so

    Var d = diag(W X₋⁺ Wᵀ) - diag(W X⁺ Wᵀ) = s².

Two sizes of d are looked at: the largest |d|/s, for data that changed in a few large numbers (more
rows), and the mean of (d/s)², for data that changed in many small ones. Their distribution is that
of N simulations of the noise, by a public seed. A size contradicts if it exceeds the median of
these draws f times as far as the largest of them does, with N^-f = 1e-6.

Under one state of the data the measured noise is one more draw, so it exceeds all others with
probability 1/(N + 1) at most, whatever the noise: two sizes and 1,999 draws give a rate of false
alarms of at most 1e-3. The factor makes it far less: where a size has the tail exp(-ax), as Laplace
noise gives the largest |d|/s, the rate is N^-f, and less where tails are lighter; for squares of a
single Laplace noise, the heaviest there is here, it is N^-√f, 4e-5. Where much is measured, draws
are fewer and f is larger: means of many squares are nearly normal, and f costs them little power.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import default_rng

from psephos.infer.intervals import SIMULATION_BATCH, SIMULATION_WORK
from psephos.infer.least_squares import BlockAnswers, LeastSquares, block_answers
from psephos.inverse.choice import form_of, precision
from psephos.inverse.form import Factors, Form
from psephos.kernel.simulate import SeededDraws
from psephos.values import Array
from psephos.workload.workload import Workload

FALSE_ALARM_RATE = 1e-6
"""The rate of false alarms where noise has exponential tails."""
MOST_COMPARISON_DRAWS = 1999
"""Draws of noise where little is measured."""
FEWEST_COMPARISON_DRAWS = 49
"""Draws where much is measured: some minutes at ten million cells."""
VARIANCE_TOLERANCE = 1e-8
"""Of a variance: what moves answers by less of it is as good as not there."""
MOVE_TOLERANCE = 1e-9
"""Of an answer: moves that are the rounding of floats."""


@dataclass(frozen=True)
class Agreement:
    """How far some measurements move the answers that the others give, beside what noise does.

    Moves are in their standard errors: `largest` of any answer, that of `query`, and `typical`,
    the root mean square. Noise alone does not pass the bounds.
    """

    largest: float = 0.0
    largest_bound: float = 0.0
    typical: float = 0.0
    typical_bound: float = 0.0
    query: int = 0
    queries: int = 0
    draws: int = 0

    @property
    def ok(self) -> bool:
        """Noise alone can explain it."""
        return self.largest <= self.largest_bound and self.typical <= self.typical_bound


def agreement(
    estimate: LeastSquares, workload: Workload, left_out: Collection[int], *, seed: int
) -> Agreement:
    """Do some of an estimate's measurements agree with the others, as far as a workload tells?

    Args:
        estimate: from all measurements
        workload: whose answers are compared, where the others determine them
        left_out: the numbers of the measurements that are compared with the others
        seed: of the noise that is simulated for comparison
    """
    Workload.require(workload, estimate.domain)
    moves = _Moves.of(estimate, workload, left_out)
    if not moves.products:
        return Agreement()
    draws = min(MOST_COMPARISON_DRAWS, max(FEWEST_COMPARISON_DRAWS, SIMULATION_WORK // moves.work))
    batches: Iterable[Array] = moves.draw(draws, seed)
    scale = moves.scale
    if scale is None:  # no closed form: the draws themselves tell
        batches = list(batches)
        scale = np.sqrt(np.mean(np.concatenate([m**2 for m in batches], axis=1), axis=1))
    moving = scale > 0
    if not moving.any():
        return Agreement()
    largest, squares = [], []
    for noise in batches:
        sizes = np.abs(noise[moving] / scale[moving, None])
        largest.append(sizes.max(axis=0))
        squares.append((sizes**2).mean(axis=0))
    sizes = np.maximum(np.abs(moves.measured[moving] / scale[moving]) - moves.grain, 0)
    return Agreement(
        largest=float(sizes.max()),
        largest_bound=_bound(np.concatenate(largest)),
        typical=math.sqrt((sizes**2).mean()),
        typical_bound=math.sqrt(_bound(np.concatenate(squares))),
        query=int(moves.rows[moving][np.argmax(sizes)]),
        queries=int(moving.sum()),
        draws=draws,
    )


def _bound(sizes: Array) -> float:
    """How large a size noise alone does not have."""
    middle, largest = float(np.median(sizes)), float(sizes.max())
    return middle + (largest - middle) * math.log(FALSE_ALARM_RATE) / math.log(1 / sizes.size)


@dataclass(frozen=True, eq=False)
class _Moves:
    """What some measurements do to the answers that the others give."""

    all_form: Form
    rest_form: Form
    blocks: list[BlockAnswers]
    rest_blocks: list[int]
    products: list[Factors]
    rows: Array

    @classmethod
    def of(cls, estimate: LeastSquares, workload: Workload, left_out: Collection[int]) -> _Moves:
        groups = [block_answers([each]) for each in estimate.measurements]
        sources = [i for i, group in enumerate(groups) for _ in group]
        blocks = [block for group in groups for block in group]
        rest_blocks = [j for j, i in enumerate(sources) if i not in left_out]
        rest_form = form_of(
            [blocks[j].matrix for j in rest_blocks],
            [precision(blocks[j].noise.exact_variance) for j in rest_blocks],
            estimate.domain.shape,
        )
        ends = np.cumsum(workload.query_counts)
        products, rows = [], []
        for i, end in enumerate(ends):
            factors = workload.factors(i)
            if rest_form.covers(factors):
                products.append(factors)
                rows.append(np.arange(end - workload.query_counts[i], end))
        every = np.concatenate(rows) if rows else np.arange(0)
        return cls(estimate.form, rest_form, blocks, rest_blocks, products, every)

    @property
    def work(self) -> int:
        """About how many numbers one draw goes through."""
        measured = sum(len(block.values) for block in self.blocks)
        return self.all_form.work + self.rest_form.work + measured + 2 * self.rows.size

    @property
    def grain(self) -> float:
        """What one unit of the widest noise is in standard errors of that noise.

        Small noise has few sizes, and draws may all have the same; one step more is no sign.
        """
        widest = max(block.noise.exact_variance for block in self.blocks)
        return min(math.sqrt(precision(widest)), precision(widest))

    def moves(self, values: list[Array]) -> Array:
        """The answers of the rest less those of all."""
        everything = self.all_form.fit(values)
        rest = self.rest_form.fit([values[j] for j in self.rest_blocks])
        pairs = [(rest.answers(f), everything.answers(f)) for f in self.products]
        before, after = (np.concatenate(each) for each in zip(*pairs, strict=True))
        gaps = before - after
        return np.asarray(np.where(np.abs(gaps) > MOVE_TOLERANCE * (1 + np.abs(after)), gaps, 0.0))

    @cached_property
    def measured(self) -> Array:
        """How far the answers moved."""
        return self.moves([block.values.astype(float) for block in self.blocks])

    @cached_property
    def scale(self) -> Array | None:
        """The standard error of every move, 0 where there is none; None without a closed form."""
        if not (self.all_form.exact and self.rest_form.exact):
            return None
        before, after = (
            np.concatenate([form.variances(f) for f in self.products])
            for form in (self.rest_form, self.all_form)
        )
        return np.sqrt(np.where(before - after > VARIANCE_TOLERANCE * before, before - after, 0.0))

    def draw(self, draws: int, seed: int) -> Iterator[Array]:
        """How far noise alone moves them, a column for each draw, some draws at a time."""
        noise = SeededDraws(default_rng(seed))
        size = max(1, min(draws, SIMULATION_BATCH // self.work))
        for start in range(0, draws, size):
            many = min(size, draws - start)
            yield self.moves(
                [
                    noise.noise(block.noise, len(block.values) * many).reshape(-1, many)
                    for block in self.blocks
                ]
            )
