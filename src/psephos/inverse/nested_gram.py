"""X + diag(e) of nested groups of cells, applied and solved in two passes through the groups.

Where blocks are partitions, each made of groups of the next finer one, X = diag(c) + Σ_v c_v1_v1_vᵀ
(`nested`), and a diagonal on top changes the cells alone. So systems with X + diag(e), for one e
after another, are solved exactly in O(cells + groups): what interior point methods and active sets
ask for. An e of infinity holds a cell at zero, and the rest is the solution without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from psephos.inverse.axis import DiagonalInverse
from psephos.inverse.nested import NestedInverse, PartitionLevel, level_of, nested_levels
from psephos.matrix import Kron, Matrix, Stack
from psephos.values import Array


@dataclass(frozen=True, eq=False)
class NestedGram:
    """The precision of every cell; of every level, fine to coarse, parents and precisions."""

    cells: Array
    parents: tuple[Array, ...]
    """The group of every cell, then of every group of the level before."""
    precisions: tuple[Array, ...]

    @classmethod
    def of(
        cls, blocks: Sequence[Matrix], weights: Sequence[float], root: float = 0.0
    ) -> NestedGram | None:
        """X = Σ c_j A_jᵀA_j + root · 11ᵀ; None where blocks are not nested, or leave cells out.

        >>> from psephos.matrix import Identity, total
        >>> x = NestedGram.of([Stack((Identity(2), total(2)))], [2.0])
        >>> x.apply(np.array([1.0, 0.0])), x.solve(np.array([0.0, np.inf]), np.array([8.0, 5.0]))
        (array([4., 2.]), array([2., 0.]))
        """
        levels: list[PartitionLevel] = []
        for block, weight in zip(blocks, weights, strict=True):
            for part in _stacked(block):
                level = level_of(part)
                if level is None:
                    return None
                levels.append(PartitionLevel(level.axes, level.precision * weight))
        inverse = nested_levels(levels)
        if isinstance(inverse, DiagonalInverse):
            cells, parents, precisions = 1 / inverse.weights, [], []
        elif isinstance(inverse, NestedInverse):
            cells = inverse.cells
            parents = [step.parents for step in inverse.steps]
            precisions = [level.precision for level in inverse.levels]
        else:
            return None
        if root:
            below = precisions[-1].size if precisions else cells.size
            parents.append(np.zeros(below, dtype=np.int64))
            precisions.append(np.array([root]))
        return cls(cells, tuple(parents), tuple(precisions))

    def apply(self, x: Array) -> Array:
        """X x."""
        sums, t = [], x
        for parents, precision in zip(self.parents, self.precisions, strict=True):
            t = np.bincount(parents, t, minlength=precision.size)
            sums.append(precision * t)
        down: Array | None = None
        for parents, pull in zip(reversed(self.parents), reversed(sums), strict=True):
            down = (pull if down is None else pull + down)[parents]
        return self.cells * x if down is None else self.cells * x + down

    def solve(self, extra: Array, r: Array) -> Array:
        """(X + diag(e))⁻¹ r."""
        share = 1 / (self.cells + extra)
        totals: Array = r * share
        k: Array = share
        steps = []
        for parents, precision in zip(self.parents, self.precisions, strict=True):
            k = np.bincount(parents, k, minlength=precision.size)
            shrinkage = 1 / (1 + precision * k)
            k = k * shrinkage
            totals = np.bincount(parents, totals, minlength=precision.size) * shrinkage
            steps.append((parents, precision, totals, k))
        correction: Array | None = None
        for parents, precision, t, k in reversed(steps):
            above = (
                precision * t
                if correction is None
                else correction + precision * (t - correction * k)
            )
            correction = above[parents]
        return totals if correction is None else (r - correction) * share


def _stacked(block: Matrix) -> Iterator[Matrix]:
    """The parts of a union, one by one."""
    if isinstance(block, Kron) and len(block.factors) == 1:
        yield from _stacked(block.factors[0])
    elif isinstance(block, Stack):
        for part in block.parts:
            yield from _stacked(part)
    else:
        yield block
