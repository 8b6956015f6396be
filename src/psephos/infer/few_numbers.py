"""Entropy steps for few measured numbers: their curvature is written out and factored.

Steps towards noisy answers need solutions of (H + λ) v = r, H = A (diag(x) - xxᵀ/T) Aᵀ, for slowly
changing x and falling λ. Up to a thousand numbers, H is one sum over pairs of entries of A that lie
in the same cell, and a Cholesky factor of it takes a millisecond or ten: it gives derivatives of
the estimate along many probes at once, and guides the conjugate gradients of the next step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dsymm

from psephos.infer.table_tree import TableTree, places
from psephos.matrix import Identity, Ones
from psephos.values import Array

FEW_NUMBERS = 1000
"""The most numbers whose curvature is factored."""
MOST_PAIRS = 1 << 22
"""The most pairs of entries in the same cell."""
FEW_UNION_CELLS = 1 << 20
"""So many cells of all unions of two tables are few; else as many as there are cells."""
FACTOR_DUST = 1e-13
"""What floats may leave of zero, as a share of the largest number."""


@dataclass(frozen=True, eq=False)
class AnswerPairs:
    """All pairs of numbers that count the same cell: A diag(w) Aᵀ by one sum over them."""

    numbers: int
    places: Array
    """Of each pair and cell, where in the matrix it counts; (numbers + 1)² is left out."""
    products: Array | None
    """The products of both entries; None where all are 1."""

    @classmethod
    def of(cls, tree: TableTree) -> AnswerPairs | None:
        """None where there are too many.

        >>> from psephos.matrix import Identity, Kron, Ones
        >>> tree = TableTree.of([Kron((Identity(2), Ones(1, 2)))], (2, 2))
        >>> AnswerPairs.of(tree).weighted(np.array([1.0, 2, 3, 4]))
        array([[3., 0.],
               [0., 7.]])
        """
        m, stack = tree.size, tree.written
        if m > FEW_NUMBERS or stack is None:
            return None
        counts = np.diff(stack.indptr)
        most = int(counts.max())
        if most * (most + 1) // 2 * tree.cells > MOST_PAIRS:
            return None
        rows, entries = np.full((most, tree.cells), m), np.zeros((most, tree.cells))
        cells = np.repeat(np.arange(tree.cells), counts)
        places = np.arange(stack.nnz) - np.repeat(stack.indptr[:-1], counts)
        rows[places, cells], entries[places, cells] = stack.indices, stack.data
        first, second = np.triu_indices(most)
        low, high = np.minimum(rows[first], rows[second]), np.maximum(rows[first], rows[second])
        products = None if (entries == 1).all() else entries[first] * entries[second]
        return cls(m, (low * (m + 1) + high).ravel(), products)

    def weighted(self, w: Array) -> Array:
        """A diag(w) Aᵀ."""
        return _mirrored(self.upper(w))

    def upper(self, w: Array) -> Array:
        """Its entries on and above the diagonal."""
        pairs = self.places.size // w.size
        weights = np.tile(w, pairs) if self.products is None else (self.products * w).ravel()
        m = self.numbers
        sums = np.bincount(self.places, weights, (m + 1) ** 2).reshape(m + 1, m + 1)
        return np.ascontiguousarray(sums[:m, :m])


@dataclass(frozen=True, eq=False)
class UnionTables:
    """The same where numbers are marginals: S and T meet in the cells of the marginal S ∪ T."""

    numbers: int
    unions: TableTree
    places: Array
    """Where in the matrix each entry stands."""
    sources: Array
    """The cell of a union that it is."""

    @classmethod
    def of(cls, tree: TableTree) -> UnionTables | None:
        """None where numbers are too many, or no marginals.

        >>> from psephos.matrix import Identity, Kron, Ones
        >>> pair = [Kron((Identity(2), Ones(1, 2))), Kron((Ones(1, 2), Identity(2)))]
        >>> UnionTables.of(TableTree.of(pair, (2, 2))).weighted(np.array([1.0, 2, 3, 4]))
        array([[3., 0., 1., 2.],
               [0., 7., 3., 4.],
               [1., 3., 4., 0.],
               [2., 4., 0., 6.]])
        """
        m, sets, shape = tree.size, tree.marginals, tree.shape
        if m > FEW_NUMBERS or sets is None:
            return None
        numbers = list(enumerate(sets))
        pairs = [(s, a, t, b) for s, a in numbers for t, b in numbers if s <= t]
        meet = [tuple(sorted({*a, *b})) for _, a, _, b in pairs]
        unions = sorted(set(meet))
        totals, each = [Ones(1, n) for n in shape], [Identity(n) for n in shape]
        blocks = [
            tuple(each[i] if i in axes else totals[i] for i in range(len(shape))) for axes in unions
        ]
        union_tree = TableTree(shape, tree.order, tuple(blocks))
        if union_tree.size > max(FEW_UNION_CELLS, tree.cells):
            return None
        starts = dict(zip(unions, union_tree.starts, strict=False))
        where, sources = [], []
        for (s, a, t, b), axes in zip(pairs, meet, strict=True):
            rows = tree.starts[s] + places(shape, axes, a)
            columns = tree.starts[t] + places(shape, axes, b)
            where.append(rows * m + columns)
            sources.append(starts[axes] + np.arange(rows.size))
        return cls(m, union_tree, np.concatenate(where), np.concatenate(sources))

    def weighted(self, w: Array) -> Array:
        """A diag(w) Aᵀ."""
        return _mirrored(self.upper(w))

    def upper(self, w: Array) -> Array:
        """Its entries on and above the diagonal."""
        matrix = np.zeros((self.numbers, self.numbers))
        matrix.reshape(-1)[self.places] = self.unions.apply(w)[self.sources]
        return matrix


def _mirrored(upper: Array) -> Array:
    """A symmetric matrix from its entries on and above the diagonal."""
    matrix = upper + upper.T
    np.fill_diagonal(matrix, upper.diagonal())
    return matrix


WrittenPairs = AnswerPairs | UnionTables


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
