"""Trees as one matrix on one attribute: their levels stacked, each times a weight."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from psephos.frozen import Array
from psephos.infer.axes import AxisInverse
from psephos.infer.tree import Tree
from psephos.matrix import Compose, Identity, Kron, Matrix, Ones, Scaled, Sparse, Stack


@dataclass(frozen=True, eq=False, repr=False)
class TreeInverse(AxisInverse):
    """Of nested levels: by recursion, see `tree`."""

    tree: Tree

    @property
    def shape(self) -> tuple[int, int]:
        return self.tree.cells, self.tree.cells

    def _apply(self, x: Array) -> Array:
        return self.tree.solve(x)

    _apply_t = _apply

    def trace_with(self, queries: Matrix) -> float:
        return self.tree.trace(queries)

    def variances(self, queries: Matrix) -> Array:
        return self.tree.variances(queries)


def tree_inverse(a: Matrix) -> TreeInverse | None:
    """Recognise Stack(w_ℓ · I ⊗ A_ℓ ⊗ total), cut to its first cells or not."""
    cells = a.shape[1]
    if isinstance(a, Compose) and len(a.parts) == 2 and _first_cells(a.parts[1]):
        a = a.parts[0]
    if not isinstance(a, Stack):
        return None
    fanouts: tuple[int, ...] | None = None
    levels, precisions = [], []
    for depth, part in enumerate(a.parts):
        weight, base = (part.factor, part.base) if isinstance(part, Scaled) else (1, part)
        if not isinstance(base, Kron) or len(base.factors) != len(a.parts):
            return None
        own = tuple(f.shape[1] for f in base.factors)
        before, after = base.factors[:depth], base.factors[depth + 1 :]
        nested = all(isinstance(f, Identity) for f in before)
        nested = nested and all(isinstance(f, Ones) and f.m == 1 for f in after)
        if not nested or fanouts not in (None, own):
            return None
        fanouts = own
        levels.append(base.factors[depth].dense())
        precisions.append(float(weight) ** 2)
    if fanouts is None or math.prod(fanouts) < cells:
        return None
    if np.linalg.matrix_rank(levels[-1]) < levels[-1].shape[1]:
        return None
    return TreeInverse(Tree.of(levels, precisions, cells))


def _first_cells(part: Matrix) -> bool:
    """Cell j as position j of a longer line: the columns that are kept are the first."""
    if not isinstance(part, Sparse):
        return False
    e = part.entries
    n = e.shape[1]
    diagonal = e.nnz == n and (e.indices == np.arange(n)).all() and (e.data == 1).all()
    return bool(diagonal and (e.indptr[: n + 1] == np.arange(n + 1)).all())
