"""What each part is asked, and the noise that the one charge pays for.

Privacy: let P_l sum the leaves of each part of level l. A leaf lies in exactly one part of a level,
so every column of P_l holds a single 1, and column (g, c) of P_l ⊗ A_j has the norms of column
c of A_j. Block (l, j) has weight v_l·w_j, so

    max_(g, c) Σ_lj v_l w_j ‖(P_l ⊗ A_j)[:, (g, c)]‖ᵖ = (Σ_l v_l) · max_c Σ_j w_j‖A_j[:, c]‖ᵖ:

the sensitivity of everything together is Σ_l v_l times that of A, for both norms, however many
parts there are. Block (l, j) then gets the noise that `measurement.noise_for` would give it
(tests/kernel/test_parts.py::test_noise_is_that_of_the_whole_query).
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from psephos.domain.part_tree import PartTree
from psephos.errors import RefusedError
from psephos.kernel.budget import Budget, NoiseKind, exact
from psephos.kernel.measurement import noise_law
from psephos.kernel.noise import DiscreteLaplace, Noise
from psephos.kernel.query import Query, check_weight
from psephos.kernel.sensitivity import sensitivity
from psephos.kernel.unit import Unit

LARGEST_NOISE = Fraction(2) ** 50
"""Scales and deviations; then a noisy answer is a whole number of 64 bits."""
TASK_NUMBERS = 1 << 21
"""Parts are measured together up to so many cells or answers."""


def level_weights(weights: Sequence[Any], tree: PartTree) -> tuple[Fraction, ...]:
    """One weight for each level of the tree, the whole first; 0 for one that is not measured."""
    levels = len(tree.names)
    if type(weights) not in (tuple, list) or len(weights) != levels:
        names = ", ".join(tree.names)
        raise RefusedError(f"a tree of {names} takes {levels} weights, one for each level")
    admitted = tuple(
        Fraction(0)
        if type(weight) in (int, Fraction) and weight == 0
        else exact(weight, "a weight")
        for weight in weights
    )
    for weight in filter(None, admitted):
        check_weight(weight)
    if not any(admitted):
        raise RefusedError("no level has a weight above 0, so nothing would be measured")
    return admitted


def part_noise(
    query: Query, weights: Sequence[Fraction], spend: Budget, unit: Unit, stability: int
) -> tuple[tuple[Noise, ...], ...]:
    """For each level the distribution for each block; none where a level is not measured."""
    each = unit.per_distance(spend, stability)
    delta = sum(weights, Fraction(0)) * sensitivity(query, NoiseKind.paid_in(spend.currency).norm)

    def law(weight: Fraction) -> Noise:
        return _bounded(noise_law(delta / weight, each, spend.currency))

    return tuple(
        tuple([law(weight * block.weight) for block in query.blocks]) if weight else ()
        for weight in weights
    )


def _bounded(noise: Noise) -> Noise:
    wide = noise.scale if isinstance(noise, DiscreteLaplace) else noise.variance / LARGEST_NOISE
    if wide > LARGEST_NOISE:
        raise RefusedError(
            "the noise of some parts would pass 2^50; spend more, or give their level more weight"
        )
    return noise


def runs(tree: PartTree, level: int, cells: int, answers: int) -> list[tuple[int, int]]:
    """The parts of a level in runs that are measured together: first, and one past the last."""
    step, size = max(1, TASK_NUMBERS // max(cells, answers)), tree.sizes[level]
    return [(start, min(start + step, size)) for start in range(0, size, step)]
