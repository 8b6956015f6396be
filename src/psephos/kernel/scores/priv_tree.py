"""A partition into intervals by halving those with many rows (Zhang, Xiao and Xie 2016: PrivTree).

From all cells on, an interval of depth d with count c is halved if max(-δ, c - dδ) + noise > 0,
with discrete Laplace noise of scale λ = 3/ε and a whole number δ ≥ λ·ln 2; single cells are not.
Noise does not grow with the depth of the tree. Counts are cut to [0, 2³⁰] first, which moves no two
of them further apart, and lets counts only fall on the way down.

Privacy: let x' have one row more than x, and let T be a tree. The decisions of intervals without
that row are as likely on x' as on x. The others lie on one way from the root to a leaf of T, and
there b = max(-δ, c - dδ) is on x' what it is on x, or 1 more. Let p = exp(-1/λ), and N be noise.

On x, T is likelier by at most exp(1/λ): the leaf's Pr(b + N ≤ 0) grows by at most 1/p, and no
other factor does.

On x', T is likelier by at most the product of the halved intervals' Pr(N > -b - 1)/Pr(N > -b). Let
exp ρ(b) be such a ratio, which falls as b rises, since the tails of N are log-concave. An interval
whose b moves has c - dδ ≥ -δ, and from one to the next on the way down c - dδ falls by at least δ;
so the ρ are at most ρ(-δ), ρ(0), ρ(δ), ρ(2δ), …, each once. The first two are 1/λ. With q = p^kδ,
which is at most 2⁻ᵏ, ρ(kδ) = ln((1 - qp/(1+p))/(1 - q/(1+p))) ≤ q(1-p)/(1+p-q), which grows with q,
so for k ≥ 1 it is at most (1-p)/(2ᵏ(1+p) - 1) ≤ 2⁻ᵏ(1-p)/(½+p), and that is at most 2⁻ᵏ/λ, since
1/λ = ln(1/p) ≥ 2(1-p)/(1+p) ≥ (1-p)/(½+p). All of them sum up to at most 3/λ.

Hence ε per unit of distance, and ε²/2 in zCDP (tests/kernel/test_partition.py::
test_trees_cost_their_epsilon).
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
from psephos.kernel.scores.deviations import LARGEST_COUNT, check_lengths
from psephos.kernel.scores.exponentials import ABOVE_LN_2
from psephos.kernel.scores.mechanisms import Draws
from psephos.matrix import Identity, Matrix
from psephos.values import Array

LARGEST_BIAS = 1 << 50


@dataclass(frozen=True)
class PrivTree:
    """Cut a vector into intervals, the shorter the more rows there are, by halving.

    For ranges over a line it did best of all searches (benchmarks/partitions.py).
    """

    mechanism: ClassVar[Mechanism] = "noise"

    def admitted(self, cells: int) -> PrivTree:
        """There is nothing to admit but the number of cells."""
        check_lengths(cells, "aligned")
        return PrivTree()

    @property
    def parts(self) -> Sequence[Any]:
        """Its name."""
        return ("priv tree",)

    def tables(self, cells: int) -> tuple[Matrix, ...]:
        """All counts are looked at."""
        return (Identity(cells),)

    def draw(self, answers: Sequence[Array], epsilon: Fraction, draws: Draws) -> Array:
        """The lengths of the intervals."""
        (counts,) = answers
        cut = np.clip(counts, 0, LARGEST_COUNT).astype(np.int64)
        sums: Array = np.append(0, np.cumsum(cut))
        law = DiscreteLaplace(3 / epsilon)
        bias = math.ceil(law.scale * ABOVE_LN_2)  # δ; of the scale that is drawn
        if bias > LARGEST_BIAS:  # 64 bits might not do
            sums = sums.astype(object)
        edges, starts, ends, depth = {cut.size}, np.array([0]), np.array([cut.size]), 0
        while starts.size:
            edges.update(starts.tolist())
            starts, ends = starts[ends - starts > 1], ends[ends - starts > 1]
            b = np.maximum(sums[ends] - sums[starts] - depth * bias, -bias)
            halved = b + draws.noise(law, starts.size) > 0
            starts, ends = starts[halved], ends[halved]
            middle = (starts + ends) // 2
            starts, ends = np.append(starts, middle), np.append(middle, ends)
            depth += 1
        return np.diff(sorted(edges))
