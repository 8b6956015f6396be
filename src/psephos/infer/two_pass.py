"""Least squares on a tree of parts: one pass up and one down, a few parts at a time.

Every part of a measured level has an estimate z of its n cells by itself (`local_fits`), with the
covariance (AᵀCA)⁺/u_ℓ. Taken together (Hay et al. 2010, for whole tables in place of counts), with
the scalars q, b, s and k of `inverse.part_levels`: up, the best estimate from a part and all below,

    a = (u z + b Σ_children a_c) / q,           a = z for the smallest parts,

and down, where each child takes its share of what the parent knows better,

    x̂ = a for the whole,    x̂_c = a_c + k r,    r = x̂ - Σ_children a_c.

That is generalised least squares on all measurements at once: x̂ of the children adds up to that of
the parent, and no linear unbiased estimate has less variance, which for any queries W is

    Var(W x̂) = g · W (AᵀCA)⁺ Wᵀ.

Parts of the smallest level may be too many to hold. Their z is read once on the way up, some parts
at a time; their x̂ is z + k r, made when it is asked for. So only x̂ and r of the levels above are
kept, in files if they are large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from psephos.domain.part_tree import PartTree
from psephos.errors import ShapeError, UnsupportedError
from psephos.inverse.part_levels import LevelFactors, LevelNoise, PartClasses
from psephos.values import Array

NUMBERS_OF_A_RUN = 1 << 22
"""Numbers of a run of parts that are read and written together; one part if it has more."""
NUMBERS_IN_MEMORY = 1 << 25
"""The most numbers of a level that are kept in memory where there is a folder for files."""

LocalEstimates = Callable[[int, int, int], Array]
"""z of parts start to stop - 1 of a level, of shape (stop - start, n): read(level, start, stop)."""


def two_pass(
    tree: PartTree,
    noise: LevelNoise,
    read: LocalEstimates,
    cells: int,
    folder: Path | None = None,
) -> TreeFit:
    """The least squares estimate of every part from all measured levels.

    Args:
        tree: the parts
        noise: the scale of the noise of each level beside the others
        read: z of some parts of a measured level, `read(level, start, stop)`, an array of shape
            (stop - start, cells); the smallest level is read again for its estimates
        cells: n, the cells of a part
        folder: where levels of many numbers are kept, in files that live as long as the estimate
            is used; without one all levels but the smallest are kept in memory

    >>> from psephos.domain.attribute import Attribute
    >>> from psephos.domain.domain import Domain
    >>> tree = PartTree.of(Domain.of(county=["a", "b"]), ["county"])
    >>> z = [np.array([[9.0]]), np.array([[2.0], [4.0]])]
    >>> noise = LevelNoise.of([[1.0], [1.0]])
    >>> fit = two_pass(tree, noise, lambda level, start, stop: z[level][start:stop], 1)
    >>> fit.estimates(0, 0, 1), fit.estimates(1, 0, 2).ravel(), fit.variance_factors(0)
    (array([[8.]]), array([3., 5.]), array([0.66666667]))
    """
    parents = [tree.parents(level) for level in range(1, len(tree.names))]
    factors = PartClasses.of(parents).factors(noise.precisions)
    levels = range(factors.last)
    sums = [level_table(folder, f"sums-{level}", tree.sizes[level], cells) for level in levels]
    values = [
        level_table(folder, f"estimates-{level}", tree.sizes[level], cells) for level in levels
    ]
    own_estimates = _checked(tree, read, cells)
    for level in range(factors.last, 0, -1):
        for start, stop in runs(tree.sizes[level], cells):
            if level == factors.last:
                best = own_estimates(level, start, stop)
            else:
                best = _combined(factors, own_estimates, sums[level], level, start, stop)
                values[level][start:stop] = best
            parent = parents[level - 1][start:stop]
            first = np.flatnonzero(np.diff(parent, prepend=-1))
            sums[level - 1][parent[first]] += np.add.reduceat(best, first, axis=0)
    for level in levels:
        for start, stop in runs(tree.sizes[level], cells):
            if level == 0:
                best = _combined(factors, own_estimates, sums[0], 0, 0, 1)
            else:
                parent = parents[level - 1][start:stop]
                best = values[level][start:stop]
                best += factors.shares(level, start, stop)[:, None] * sums[level - 1][parent]
            values[level][start:stop] = best
            np.subtract(best, sums[level][start:stop], out=sums[level][start:stop])
    return TreeFit(tree, factors, own_estimates, cells, tuple(values), tuple(sums))


@dataclass(frozen=True, eq=False, repr=False)
class TreeFit:
    """Estimates of the parts of every level, and how their variances compare."""

    tree: PartTree
    factors: LevelFactors
    local: LocalEstimates
    cells: int
    values: tuple[Array, ...]
    """x̂ of each level above the last measured."""
    handed_down: tuple[Array, ...]
    """r of these levels."""

    def estimates(self, level: int, start: int, stop: int) -> Array:
        """x̂ of parts start to stop - 1 of a level, an array of shape (stop - start, n)."""
        if not 0 <= level < len(self.tree.names):
            raise ShapeError(f"there is no level {level}; the tree has {len(self.tree.names)}")
        if not 0 <= start <= stop <= self.tree.sizes[level]:
            raise ShapeError(
                f"level {self.tree.names[level]!r} has {self.tree.sizes[level]:,} parts, got "
                f"{start}:{stop}"
            )
        self._check_measured(level)
        if level < self.factors.last:
            return np.array(self.values[level][start:stop])
        z = self.local(level, start, stop)
        if level == 0:
            return z
        edges = self.tree.edges
        parent = np.searchsorted(edges[level - 1], edges[level][start:stop], side="right") - 1
        z += self.factors.shares(level, start, stop)[:, None] * self.handed_down[level - 1][parent]
        return z

    def runs(self, level: int) -> Iterator[tuple[range, Array]]:
        """All parts of a level, some at a time, and their estimates."""
        for start, stop in runs(self.tree.sizes[level], self.cells):
            yield range(start, stop), self.estimates(level, start, stop)

    def variance_factors(self, level: int) -> Array:
        """The factor g of every part of a level: Var(W x̂) = g · W (AᵀCA)⁺ Wᵀ."""
        self._check_measured(level)
        return self.factors.variances(level)

    def _check_measured(self, level: int) -> None:
        if level > self.factors.last:
            names = self.tree.names
            raise UnsupportedError(
                f"the parts of {names[level]!r} were not measured, only those of "
                f"{names[self.factors.last]!r} and above; ask a table of them before measuring"
            )

    def __repr__(self) -> str:
        return f"TreeFit({self.tree}, {self.cells:,} cells each)"


def runs(parts: int, cells: int) -> Iterator[tuple[int, int]]:
    """Consecutive parts that are read together, from start to stop."""
    run = max(1, NUMBERS_OF_A_RUN // max(cells, 1))
    for start in range(0, parts, run):
        yield start, min(start + run, parts)


def _combined(
    factors: LevelFactors, read: LocalEstimates, sums: Array, level: int, start: int, stop: int
) -> Array:
    """The estimates a = (u z + b Σ a_c) / q of some parts above the smallest."""
    best = np.array(sums[start:stop])
    if factors.precisions[level] > 0:
        z = read(level, start, stop)
        best -= z
        best *= factors.below(level, start, stop)[:, None]
        best += z
    return best


def _checked(tree: PartTree, read: LocalEstimates, cells: int) -> LocalEstimates:
    """The same estimates, as floats, refused where their shape is another."""

    def local(level: int, start: int, stop: int) -> Array:
        z = np.array(read(level, start, stop), dtype=float)
        if z.shape != (stop - start, cells):
            raise ShapeError(
                f"estimates of parts {start}:{stop} of {tree.names[level]!r} have the shape "
                f"{(stop - start, cells)}, got {z.shape}"
            )
        return z

    return local


def level_table(
    folder: Path | None, name: str, parts: int, cells: int, kind: type = np.float64
) -> Array:
    """Zeros for the cells of all parts of a level, in a file if they are many."""
    if folder is None or parts * cells <= NUMBERS_IN_MEMORY:
        return np.zeros((parts, cells), dtype=kind)
    return np.memmap(folder / f"{name}.level", dtype=kind, mode="w+", shape=(parts, cells))
