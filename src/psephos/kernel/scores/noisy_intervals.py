"""The partition into intervals of least noisy cost: DAWA's first stage, made private.

Every interval I gets the cost dev(I) + penalty + noise, independent discrete Laplace noise of scale
2/ε, or 1/ε for a single cell; `deviations` has dev. The partition of least total cost is found by a
dynamic programme over prefixes; of equal ones it is the one whose last interval is the shortest,
then the last but one, and so on. Only the partition is shown.

Privacy: let x' have one row more or less than x, in cell i, and let noise ν lead to P on x. Let
J ∈ P hold i. Take ν' = ν but ν'_J = ν_J - s. From (x, ν) to (x', ν') the cost of P, and of every
other partition with J, moves by dev'(J) - dev(J) - s, and that of a partition without J, in which
another interval holds i, by at least -1. With s = 2, or 1 if J is a single cell, whose deviation is
always 0, the first is at most the second; so P stays before all others, equal costs included, since
their order is public. Hence Pr(P | x) ≤ exp(s/scale)·Pr(P | x') = exp(ε)·Pr(P | x'), which is ε
per unit of distance, and ε²/2 in zCDP (tests/kernel/test_partition.py::
test_partitions_cost_their_epsilon).

The rule of Li, Hay, Miklau and Wang 2014 gives single cells no noise and cuts costs off from below.
Then a row in a single cell moves all longer intervals, and nothing makes up for it: of counts
5, 5, 5 and 5, 6, 5 "nothing is merged" tells more than ε (test_single_cells_need_noise).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from psephos.kernel.budget import Mechanism
from psephos.kernel.noise import DiscreteLaplace
from psephos.kernel.scores.deviations import (
    LARGEST_PENALTY,
    Deviations,
    Intervals,
    Lengths,
    blocks,
    by_end,
    check_lengths,
    check_penalty,
)
from psephos.kernel.scores.mechanisms import Draws
from psephos.matrix import Identity, Matrix
from psephos.values import Array, largest

SAFE_SUM = 1 << 61
NOISY_PENALTIES: dict[Lengths, int] = {"aligned": 2, "dyadic": 3, "all": 6}
"""Penalties by default, as multiples of 2/ε: what did well on seven public histograms."""


@dataclass(frozen=True)
class NoisyIntervals:
    """Cut a vector into intervals of cells with like counts, by noisy costs of all intervals.

    `WholePartitions` costs a quarter as much in rho.

    Args:
        penalty: what an interval costs beside its deviation, in counts; by default
            `NOISY_PENALTIES` of the lengths, times 2/ε
        lengths: of the intervals: powers of two at multiples of themselves (aligned), powers of two
            at every place (dyadic), or all
    """

    penalty: int | None = None
    lengths: Lengths = "dyadic"
    mechanism: ClassVar[Mechanism] = "noisy minimum"

    def admitted(self, cells: int) -> NoisyIntervals:
        """The same from plain values; what is no search over so many cells is refused."""
        return NoisyIntervals(check_penalty(self.penalty), check_lengths(cells, self.lengths))

    @property
    def parts(self) -> Sequence[Any]:
        """The penalty and the lengths."""
        return "noisy intervals", self.penalty, self.lengths

    def tables(self, cells: int) -> tuple[Matrix, ...]:
        """All counts are looked at."""
        return (Identity(cells),)

    def draw(self, answers: Sequence[Array], epsilon: Fraction, draws: Draws) -> Array:
        """The lengths of the intervals."""
        (counts,) = answers
        penalty = self.penalty
        if penalty is None:
            penalty = min(LARGEST_PENALTY, math.ceil(NOISY_PENALTIES[self.lengths] * 2 / epsilon))
        deviations = Deviations(counts)
        least, previous = np.zeros(counts.size + 1, np.int64), [0]
        for block in blocks(counts.size, self.lengths):
            noise = _noise(block, epsilon, draws)
            if largest(noise) >= SAFE_SUM // counts.size:  # 64 bits might not do for their sums
                noise, least = noise.astype(object), least.astype(object)
            costs = deviations.of(block) + penalty + noise
            for part in by_end(block):
                totals = least[block.starts[part]] + costs[part]
                pick = int(np.argmin(totals))
                least[len(previous)] = totals[pick]
                previous.append(int(block.starts[part][pick]))
        ends = [counts.size]
        while ends[-1]:
            ends.append(previous[ends[-1]])
        return np.diff(ends[::-1])


def _noise(block: Intervals, epsilon: Fraction, draws: Draws) -> Array:
    """Of scale 1/ε for single cells, 2/ε for others."""
    single = block.ends - block.starts == 1
    parts = [
        draws.noise(DiscreteLaplace(scale / epsilon), int(where.sum()))
        for scale, where in ((1, single), (2, ~single))
    ]
    noise: Array = np.concatenate(parts)  # of Python's integers, if a part is
    noise[np.argsort(~single, kind="stable")] = noise.copy()
    return noise
