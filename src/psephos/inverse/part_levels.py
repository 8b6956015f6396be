"""X⁺ for parts within parts, all asked the same: H ⊗ AᵀCA, where H is a tree of scalars.

A tree of parts has levels; level ℓ has the parts P_ℓ, each a sum of leaves, and everything that is
asked of one part is asked of all parts of its level, with a precision u_ℓ ≥ 0 in all. Then

    X = Σ_ℓ u_ℓ P_ℓᵀP_ℓ ⊗ AᵀCA = H ⊗ AᵀCA,     X⁺ = H⁻¹ ⊗ (AᵀCA)⁺,

so W x̂ of part i of level ℓ has the covariance g W(AᵀCA)⁺Wᵀ, where the factor g is entry i of the
diagonal of P_ℓ H⁻¹ P_ℓᵀ. These factors follow from one pass up and one down in scalars. Up, with q
the precision of a part from all that is measured in it and below (Hay et al. 2010):

    q = u + b,    b = 1 / s,    s = Σ_children 1/q_c;        q = u for the smallest parts.

Down, with k = (1/q_c) / s the share of a child in what its parent hands down:

    g = 1/q for the whole,    g_c = 1/q_c - k/q_c + k² g.

Parts with equal subtrees below equal parts have the same factors. They are one class, and both
passes go through classes only, of which a regular tree has one a level.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from psephos.errors import ShapeError
from psephos.inverse.choice import SMALLEST_VARIANCE
from psephos.values import Array, frozen


@dataclass(frozen=True, eq=False)
class PartClasses:
    """Parts of each level by class, the whole first.

    >>> PartClasses.of([np.array([0, 0, 0]), np.array([0, 0, 1, 1, 2])]).members
    (array([0]), array([0, 0, 1]), array([0, 0, 0, 0, 1]))
    """

    members: tuple[Array, ...]
    """The class of each part of a level."""
    above: tuple[Array, ...]
    """For each level but the first, the class of the level above that its classes lie in."""
    counts: tuple[Array, ...]
    """How many parts a class has."""

    @classmethod
    def of(cls, parents: Sequence[Array]) -> PartClasses:
        """From the part of the level above of each part, for each level but the first."""
        kinds = [np.zeros(parents[-1].size if parents else 1, dtype=np.int64)]
        for level, parent in reversed(list(enumerate(parents))):
            size = parents[level - 1].size if level else 1
            kinds.append(_kinds_of_parents(parent, kinds[-1], size))
        kinds.reverse()
        members, above = [np.zeros(1, dtype=np.int64)], []
        for parent, kind in zip(parents, kinds[1:], strict=True):
            width = int(kind.max(initial=0)) + 1
            pairs, member = np.unique(members[-1][parent] * width + kind, return_inverse=True)
            members.append(frozen(member))
            above.append(frozen(pairs // width))
        counts = tuple(frozen(np.bincount(each)) for each in members)
        return cls(tuple(members), tuple(above), counts)

    def factors(self, precisions: Sequence[float]) -> LevelFactors:
        """Both passes, with the precision u_ℓ of each level; zero where nothing is measured."""
        u = np.asarray(precisions, dtype=float)
        if u.shape != (len(self.members),) or not (u >= 0).all() or not u.any():
            raise ShapeError(
                f"{len(self.members)} levels need as many precisions, none negative and not all "
                f"zero, got {u.tolist()}"
            )
        last = int(np.flatnonzero(u)[-1])
        precision: list[Array] = [np.full(self.counts[last].size, u[last])]
        spreads: list[Array] = [np.zeros(self.counts[last].size)]
        for level in range(last - 1, -1, -1):
            children = self.counts[level + 1] / self.counts[level][self.above[level]]
            weights = children / precision[-1]
            size = self.counts[level].size
            spread = np.bincount(self.above[level], weights=weights, minlength=size)
            spreads.append(spread)
            precision.append(u[level] + 1 / spread)
        precision.reverse()
        spreads.reverse()
        variance = [1 / precision[0]]
        shares = [np.ones(1)]
        for level in range(1, last + 1):
            up = self.above[level - 1]
            mine = 1 / precision[level]
            share = mine / spreads[level - 1][up]
            shares.append(share)
            variance.append(mine - share * mine + share**2 * variance[-1][up])
        return LevelFactors(
            self, tuple(u.tolist()), tuple(precision), tuple(spreads), tuple(shares),
            tuple(variance),
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class LevelFactors:
    """What both passes say of every class, down to the last level that is measured.

    >>> classes = PartClasses.of([np.array([0, 0])])
    >>> classes.factors([1.0, 1.0]).variances(1) * 3
    array([2., 2.])
    """

    classes: PartClasses
    precisions: tuple[float, ...]
    """u, one for each level of the tree."""
    precision: tuple[Array, ...]
    """q, and the rest likewise, for each class of each level down to the last measured."""
    spread: tuple[Array, ...]
    """s, zero for the smallest parts."""
    share: tuple[Array, ...]
    """k, one for the whole."""
    variance: tuple[Array, ...]
    """g."""

    @property
    def last(self) -> int:
        """The last level that is measured; parts below it are not told apart."""
        return len(self.variance) - 1

    def variances(self, level: int) -> Array:
        """The factor g of each part of a level."""
        return np.asarray(self.variance[level][self.classes.members[level]])

    def shares(self, level: int, start: int, stop: int) -> Array:
        """The share k of some parts of a level."""
        return np.asarray(self.share[level][self.classes.members[level][start:stop]])

    def below(self, level: int, start: int, stop: int) -> Array:
        """b/q of some parts above the last level: what their children's sum counts for."""
        weight = 1 / (self.spread[level] * self.precision[level])
        return np.asarray(weight[self.classes.members[level][start:stop]])

    def trace(self, level: int) -> float:
        """tr(P_ℓ H⁻¹ P_ℓᵀ) = Σ g over the parts of a level; infinite below the last measured."""
        if level > self.last:
            return math.inf
        return float(self.classes.counts[level] @ self.variance[level])


@dataclass(frozen=True)
class LevelNoise:
    """Noise of block j on level ℓ as a product, scale ℓ times variance j, never less than it is.

    Were noise continuous, its variance would be such a product. That of whole-number noise is a
    little less, and not quite in proportion. So the last measured level keeps its variances, and
    another level has for all blocks the largest ratio to these. The estimate stays unbiased, since
    weights decide its variance only; with V ≥ Var y in all directions, K V Kᵀ ≥ Var(K y) for every
    linear estimate K, so standard errors are never too small.

    >>> LevelNoise.of([[4.0, 8.0], [], [2.0, 5.0]])
    LevelNoise(block_variances=(2.0, 5.0), scales=(2.0, inf, 1.0))
    """

    block_variances: tuple[float, ...]
    scales: tuple[float, ...]
    """Infinite for a level that is not measured."""

    @classmethod
    def of(cls, variances: Sequence[Sequence[float] | None]) -> LevelNoise:
        """From the variance of each block on each level; none on a level that is not measured."""
        measured = [each for each in variances if each]
        if not measured or len({len(each) for each in measured}) > 1:
            raise ShapeError("levels have the same blocks, and at least one level is measured")
        last = tuple(max(float(v), SMALLEST_VARIANCE) for v in measured[-1])
        scales = [
            max(v / w for v, w in zip(each, last, strict=True)) if each else math.inf
            for each in variances
        ]
        return cls(last, tuple(max(scale, SMALLEST_VARIANCE) for scale in scales))

    @property
    def precisions(self) -> tuple[float, ...]:
        """The precision u of each level: one over its scale."""
        return tuple(1 / scale for scale in self.scales)


def _kinds_of_parents(parent: Array, kind: Array, size: int) -> Array:
    """Parts by the kinds of their children, in any order: equal numbers for equal kinds."""
    order = np.lexsort((kind, parent))
    ends = np.cumsum(np.bincount(parent, minlength=size))
    inside = kind[order]
    numbers: dict[bytes, int] = {}
    start, kinds = 0, np.empty(size, dtype=np.int64)
    for i, end in enumerate(ends.tolist()):
        kinds[i] = numbers.setdefault(inside[start:end].tobytes(), len(numbers))
        start = end
    return kinds
