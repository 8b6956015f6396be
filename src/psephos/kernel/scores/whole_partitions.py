"""A partition into intervals, drawn as a whole by the exponential mechanism.

The cost of a partition P is C(P) = Σ_{I ∈ P} (dev(I) + penalty); `deviations` has dev. P is drawn
with probability proportional to exp(-rate·C(P)), rate = ε/2.

Privacy: a row lies in one interval of any partition, whose deviation moves by at most 1, and the
penalty is public. So C(P) moves by at most 1 per unit of distance, for every P, and this is the
exponential mechanism with Δ = 1: ε per unit of distance, and ε²/8 in zCDP
(tests/kernel/test_partition.py::test_partitions_cost_their_epsilon).

The draw is exact. Let c_ij be the cost of the interval [i, j). Take whole numbers M_j, w_ij and
E_j with M_0 = 1, E_0 = 0, M_j = Σ_i w_ij and (*) w_ij·2^E_j ≥ M_i·2^E_i·exp(-rate·c_ij). From the
last cell backwards, [i, j) is drawn with probability w_ij/M_j, until i = 0. The partition is then
kept with probability A = Π M_i·2^E_i·exp(-rate·c_ij)/(w_ij·2^E_j), a product over its intervals
that is at most 1 by (*); else all is drawn again. So it is drawn and kept with probability
A·Π w_ij/M_j = exp(-rate·C(P))·Π M_i·2^E_i/(M_j·2^E_j), and the last product is 1/(M_n·2^E_n) for
every partition: what is kept has exactly its probability, whatever the w_ij. That they are hardly
above what (*) asks makes A close to 1 (test_partitions_have_their_probabilities).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from psephos.kernel.budget import Mechanism
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
from psephos.kernel.scores.exponentials import (
    UNIT_BITS,
    Rounded,
    UpperExponentials,
    falls_below,
    rounded_rate,
)
from psephos.kernel.scores.mechanisms import Draws
from psephos.matrix import Identity, Matrix
from psephos.values import Array

WHOLE_PENALTIES: dict[Lengths, Fraction] = {
    "aligned": Fraction(3, 2),
    "dyadic": Fraction(5, 2),
    "all": Fraction(5),
}
"""Penalties by default, as multiples of 2/ε: what they take off the logarithm of a probability.

Many partitions share the chance that fewer cuts would have alone, and the penalty makes up for it.
Of a tree over equal counts, z ↦ exp(-γ) + z² stays bounded from γ = ln 4 ≈ 1.39 on: above it the
whole is likelier than all ways to cut it. The others are what did well on seven public histograms
of 4,096 cells.
"""


@dataclass(frozen=True)
class WholePartitions:
    """Cut a vector into intervals of cells with like counts, by the exponential mechanism.

    Args:
        penalty: what an interval costs beside its deviation, in counts; by default
            `WHOLE_PENALTIES` of the lengths, times 2/ε
        lengths: of the intervals: powers of two at multiples of themselves (aligned), powers of two
            at every place (dyadic), or all
    """

    penalty: int | None = None
    lengths: Lengths = "aligned"
    mechanism: ClassVar[Mechanism] = "exponential"

    def admitted(self, cells: int) -> WholePartitions:
        """The same from plain values; what is no search over so many cells is refused."""
        return WholePartitions(check_penalty(self.penalty), check_lengths(cells, self.lengths))

    @property
    def parts(self) -> Sequence[Any]:
        """The penalty and the lengths."""
        return "whole partitions", self.penalty, self.lengths

    def tables(self, cells: int) -> tuple[Matrix, ...]:
        """All counts are looked at."""
        return (Identity(cells),)

    def draw(self, answers: Sequence[Array], epsilon: Fraction, draws: Draws) -> Array:
        """The lengths of the intervals."""
        (counts,) = answers
        penalty = self.penalty
        if penalty is None:
            penalty = min(LARGEST_PENALTY, math.ceil(WHOLE_PENALTIES[self.lengths] * 2 / epsilon))
        sums = _Sums(counts, penalty, rounded_rate(epsilon / 2), self.lengths)
        while (lengths := sums.drawn(draws)) is None:
            pass
        return lengths


class _Sums:
    """M_j, E_j and w_ij of the head of this file, for one vector."""

    def __init__(self, counts: Array, penalty: int, rate: Fraction, lengths: Lengths) -> None:
        self._deviations, exponentials = Deviations(counts), UpperExponentials(rate)
        self._rate, self._penalty = rate, penalty
        self._totals, self._power = [1], 0  # all M, and the last E
        self._steps: list[tuple[Array, Array]] = []  # the i and the w_ij of each j
        # Numbers short·2^power at each place, no less than M·2^E; short is at most 2³¹.
        self._short, self._powers = (np.zeros(counts.size + 1, np.int64) for _ in range(2))
        self._short[0] = 1
        for block in blocks(counts.size, lengths):
            upper = exponentials.of(self._deviations.of(block) + penalty)
            starts = block.starts.astype(np.int32)
            for part in by_end(block):
                weights = self._weighed(starts[part], upper.at(part))
                self._steps.append((starts[part], weights))

    def _weighed(self, starts: Array, upper: Rounded) -> Array:
        """The w_ij of the next j, from whose sum M_j and E_j follow.

        (*) holds, since numbers are rounded up wherever they are: a shift to the right plus one is
        more than the quotient. No overflow: a product is at most 2³¹·(2³⁰ + 2⁵) < 2⁶², and E_j is
        such that k weights are at most 2⁶²/k + 1 each.
        """
        product = self._short[starts] * upper.mantissa
        power = self._powers[starts] - upper.halvings - UNIT_BITS
        self._power = int(power.max()) + starts.size.bit_length()
        weights: Array = (product >> np.minimum(self._power - power, 62)) + 1
        total = int(weights.sum())
        drop = max(0, total.bit_length() - 31)
        j = len(self._totals)
        self._short[j], self._powers[j] = -(-total >> drop), self._power + drop
        self._totals.append(total)
        return weights

    def drawn(self, draws: Draws) -> Array | None:
        """The lengths of the intervals of a partition, if it is kept."""
        places, ratios = [len(self._steps)], []
        while j := places[-1]:
            starts, weights = self._steps[j - 1]
            mark = draws.below(self._totals[j])
            pick = int(np.searchsorted(np.cumsum(weights), mark, "right"))
            places.append(int(starts[pick]))
            ratios.append((self._totals[places[-1]], int(weights[pick])))
        ends = np.array(places[::-1])
        costs = self._deviations.of(Intervals(ends[:-1], ends[1:])) + self._penalty
        kept = falls_below(self._rate * int(costs.sum()), -self._power, ratios, draws)
        return np.diff(ends) if kept else None
