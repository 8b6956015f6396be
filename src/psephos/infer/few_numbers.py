"""Entropy steps for few measured numbers: their curvature is written out and factored.

Steps towards noisy answers need solutions of (H + λ) v = r, H = A (diag(x) - xxᵀ/T) Aᵀ, for slowly
changing x and falling λ. Up to a thousand numbers, H is written out from small marginals of x, and
a Cholesky factor of it takes a millisecond or ten: it gives derivatives of the estimate along many
probes at once, and guides the conjugate gradients of the next step.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dsymm

from psephos.infer.table_tree import TableTree, places
from psephos.infer.written_levels import Entries
from psephos.matrix import Identity, Ones, is_total
from psephos.values import Array

FEW_NUMBERS = 1000
"""The most numbers whose curvature is factored."""
FEW_STEPS = 1 << 24
"""The most multiplications, or cells of marginals, that writing a curvature out may take."""
DENSE_STEPS = 32
"""So many multiplications of dense matrices take as long as one of sparse ones, or less."""
FACTOR_DUST = 1e-13
"""What floats may leave of zero, as a share of the largest number."""


@dataclass(frozen=True, eq=False)
class WrittenCurvature:
    """A diag(w) Aᵀ, where numbers are few: A = F M, M the marginals that blocks are made from.

    Cells of the marginals over attributes S and T meet in the cells of the marginal over S ∪ T, so
    that M diag(w) Mᵀ is a sparse matrix of sums of w.
    """

    unions: TableTree
    """The marginals in which two of M meet."""
    sources: Array
    """The cell of a union that every entry of M diag(w) Mᵀ is, on and above the diagonal."""
    halves: Array
    """½ for entries on the diagonal, else 1."""
    columns: Array
    ends: Array
    """Where these entries stand: the columns of each row, one row after the other."""
    factors: sp.csr_array | Array
    """F."""

    @classmethod
    def of(cls, tree: TableTree) -> WrittenCurvature | None:
        """None where numbers are many, or their curvature takes long to write.

        >>> from psephos.matrix import Identity, Kron, Ones
        >>> pair = [Kron((Identity(2), Ones(1, 2))), Kron((Ones(1, 2), Identity(2)))]
        >>> WrittenCurvature.of(TableTree.of(pair, (2, 2))).at(np.array([1.0, 2, 3, 4]))
        array([[3., 0., 1., 2.],
               [0., 7., 3., 4.],
               [1., 3., 4., 0.],
               [2., 4., 0., 6.]])
        """
        shape = tree.shape
        blocks = [
            tuple((i, factor) for i, factor in enumerate(block) if not is_total(factor))
            for block in tree.blocks
        ]
        entries = max(math.prod(factor.shape) for block in tree.blocks for factor in block)
        if tree.size > FEW_NUMBERS or entries > FEW_STEPS:
            return None
        sets = [tuple(i for i, _ in block) for block in blocks]
        tables = sorted(set(sets))
        meetings = {(s, t): tuple(sorted({*s, *t})) for s in tables for t in tables if s <= t}
        sizes = {axes: math.prod(shape[i] for i in axes) for axes in (*tables, *meetings.values())}
        if sum(sizes[axes] for axes in meetings.values()) > FEW_STEPS:
            return None
        unions = sorted(set(meetings.values()))
        totals, each = [Ones(1, n) for n in shape], [Identity(n) for n in shape]
        kept = [
            tuple(each[i] if i in axes else totals[i] for i in range(len(shape))) for axes in unions
        ]
        union_tree = TableTree(shape, tree.order, tuple(kept))
        begins = dict(zip(unions, union_tree.starts, strict=False))
        offsets = list(accumulate((sizes[table] for table in tables), initial=0))
        starts = dict(zip(tables, offsets, strict=False))
        where = [
            (
                starts[s] + places(shape, axes, s),
                starts[t] + places(shape, axes, t),
                begins[axes] + np.arange(sizes[axes]),
            )
            for (s, t), axes in meetings.items()
        ]
        rows, columns, sources = (np.concatenate(part) for part in zip(*where, strict=True))
        factors = _factors(blocks, tree.rows, [starts[axes] for axes in sets], offsets[-1])
        if _steps(factors, rows, columns) > FEW_STEPS:
            if tree.size * (rows.size + tree.size * offsets[-1] // DENSE_STEPS) > FEW_STEPS:
                return None
            factors = factors.toarray()
        order = np.lexsort((columns, rows))
        ends = np.searchsorted(rows[order], np.arange(offsets[-1] + 1))
        halves = np.where(rows == columns, 0.5, 1.0)
        return cls(union_tree, sources[order], halves[order], columns[order], ends, factors)

    def at(self, w: Array) -> Array:
        """A diag(w) Aᵀ."""
        entries = self.unions.apply(w)[self.sources] * self.halves
        size = self.factors.shape[1]
        half = sp.csr_array((entries, self.columns, self.ends), shape=(size, size))
        upper = self.factors @ (half @ self.factors.T)
        upper = upper.toarray() if sp.issparse(upper) else upper
        return np.asarray(upper + upper.T)


def _factors(
    blocks: list[tuple[tuple[int, Any], ...]], rows: tuple[int, ...], starts: list[int], size: int
) -> sp.csr_array:
    """F: what each block does to its marginal, which begins at a start among all of them."""
    parts = []
    begin = 0
    for block, height, start in zip(blocks, rows, starts, strict=True):
        part = reduce(Entries.kron, (Entries.of(f) for _, f in block), Entries.identity(1))
        parts.append((part.rows + begin, part.columns + start, part.values))
        begin += height
    places_of, columns, values = (np.concatenate(each) for each in zip(*parts, strict=True))
    return sp.csr_array((values, (places_of, columns)), shape=(begin, size))


def _steps(factors: sp.csr_array, rows: Array, columns: Array) -> float:
    """At most so many multiplications make F (M diag(w) Mᵀ) Fᵀ."""
    counts = np.bincount(factors.indices, minlength=factors.shape[1])
    first = np.bincount(rows, counts[columns], factors.shape[1])
    return float(first.sum() + counts @ np.minimum(first, factors.shape[0]))


@dataclass(frozen=True, eq=False)
class Factored:
    """H at a point, and the factor of H + λ; both are read on and above the diagonal alone."""

    curvature: Array
    factor: Any

    @classmethod
    def of(cls, curvature: Array, ridge: Array) -> Factored:
        """From H and the diagonal λ."""
        shifted = curvature.copy()
        dust = FACTOR_DUST * float(shifted.diagonal().max())  # floats may leave it below zero
        shifted[np.diag_indices_from(shifted)] += ridge + dust
        # The transpose is in the order of LAPACK, which would copy the other one.
        lower = cho_factor(shifted.T, lower=True, overwrite_a=True, check_finite=False)
        return cls(curvature, lower)

    def image(self, columns: Array) -> Array:
        """H v for several columns."""
        return np.asarray(dsymm(1.0, self.curvature.T, columns, lower=1))

    def solve(self, r: Array) -> Array:
        """(H + λ)⁻¹ r, for a vector or for columns."""
        return np.asarray(cho_solve(self.factor, r, check_finite=False))
