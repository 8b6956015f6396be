"""The inverse of one factor's Gram, Y⁺ with Y = AᵀA, in the form that its structure allows.

Expected error and reconstruction of a product strategy need three things of every axis, and no
n x n array where there is structure: tr(Y⁺ WᵀW), the diagonal of W Y⁺ Wᵀ, and Y⁺ on a vector.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import lapack

from psephos.errors import TooLargeError, UnsupportedError
from psephos.matrix import (
    Dense,
    Downdate,
    Identity,
    Matrix,
    Partition,
    Stack,
)
from psephos.matrix.columns import gram_diagonal, select_columns
from psephos.values import Array

DENSE_AXIS = 6000
"""The most cells for which an inverse without structure is written out (0.3 GB)."""
HELD_ENTRIES = 1 << 22
"""Numbers held at a time while the variances of many queries are computed."""
SAFE_CONDITION = 1e-10
"""Grams whose reciprocal condition is larger are inverted without their eigenvectors."""
SPAN_TOLERANCE = 1e-9
"""Share of a query's squared length that may lie outside the strategy's span by rounding alone."""


class AxisInverse(Matrix):
    """Y⁺ of a factor, as a symmetric matrix that also answers for queries."""

    entry_type = np.dtype(float)

    @abstractmethod
    def trace_with(self, queries: Matrix) -> float:
        """tr(Y⁺ WᵀW): the sum of `variances`."""

    @abstractmethod
    def variances(self, queries: Matrix) -> Array:
        """The diagonal of W Y⁺ Wᵀ: one number for each query."""

    def spans(self, queries: Matrix) -> bool:
        """Is every query a combination of what the factor measures?"""
        return True

    def _transpose(self) -> Matrix:
        return self


def sum_of_squares(queries: Matrix, vectors: Array) -> Array:
    """Σ_k (W v_k)² for the rows v_k of an array, a few at a time."""
    out = np.zeros(queries.shape[0])
    step = max(1, HELD_ENTRIES // max(queries.shape))
    for start in range(0, len(vectors), step):
        out += (queries.matmat(vectors[start : start + step].T.astype(float)) ** 2).sum(axis=1)
    return out


@dataclass(frozen=True, eq=False, repr=False)
class DiagonalInverse(AxisInverse):
    """Every cell on its own: Y⁺ = diag(e)."""

    weights: Array

    @property
    def shape(self) -> tuple[int, int]:
        return self.weights.size, self.weights.size

    def _apply(self, x: Array) -> Array:
        return np.asarray(self.weights[None, :, None] * x)

    _apply_t = _apply

    def trace_with(self, queries: Matrix) -> float:
        return float(self.weights @ gram_diagonal(queries))

    def variances(self, queries: Matrix) -> Array:
        return queries.sqr().matvec(self.weights)


@dataclass(frozen=True, eq=False, repr=False)
class TotalInverse(AxisInverse):
    """m copies of the total: Y⁺ = 11ᵀ/(m n²)."""

    n: int
    copies: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    def _apply(self, x: Array) -> Array:
        total = x.sum(axis=1, keepdims=True, dtype=float) / (self.copies * self.n**2)
        return np.broadcast_to(total, x.shape)

    _apply_t = _apply

    def trace_with(self, queries: Matrix) -> float:
        return float(self.variances(queries).sum())

    def variances(self, queries: Matrix) -> Array:
        sums = queries.matvec(np.ones(self.n))
        return np.asarray(sums**2 / (self.copies * self.n**2))

    def spans(self, queries: Matrix) -> bool:
        lengths = queries.sqr().matvec(np.ones(self.n))
        along = queries.matvec(np.ones(self.n)) ** 2 / self.n
        return bool((lengths - along <= SPAN_TOLERANCE * lengths).all())


@dataclass(frozen=True, eq=False, repr=False)
class WoodburyInverse(AxisInverse):
    """Of a p-Identity: diag(e) - VᵀV."""

    inverse: Downdate

    @property
    def shape(self) -> tuple[int, int]:
        return self.inverse.shape

    def _apply(self, x: Array) -> Array:
        return self.inverse._apply(x)

    _apply_t = _apply

    def trace_with(self, queries: Matrix) -> float:
        v = self.inverse.rows
        images = queries.gram().matmat(np.ascontiguousarray(v.T))
        alone = float(self.inverse.diagonal @ gram_diagonal(queries))
        return alone - float(np.einsum("kp,pk->", v, images))

    def variances(self, queries: Matrix) -> Array:
        alone = queries.sqr().matvec(self.inverse.diagonal)
        return np.asarray(alone - sum_of_squares(queries, self.inverse.rows))


@dataclass(frozen=True, eq=False, repr=False)
class DenseInverse(AxisInverse):
    """Of any matrix with few columns: Y⁺ = LLᵀ.

    Where Y is well conditioned, L is the inverse of its Cholesky factor. Where A has fewer rows
    than columns, those that are independent give an orthonormal basis Q of their span, and L comes
    from the rows in it: A = S C Qᵀ with rows of length S has L = Q C⁻¹S⁻¹ if all are independent,
    else (AQ)ᵀ(AQ) is inverted. Only where nothing of this is safe are eigenvectors of Y computed.
    """

    root: Array
    basis: Array
    """Orthonormal columns that span the rows of A; empty where they span everything."""

    @classmethod
    def of(cls, a: Matrix) -> DenseInverse:
        n = a.shape[1]
        if n > DENSE_AXIS:
            raise TooLargeError(
                f"the inverse of {a} would be written out, {n:,} x {n:,}, over the limit of "
                f"{DENSE_AXIS:,} cells; use a p-Identity, a tree or marginals on this attribute",
                n,
                DENSE_AXIS,
            )
        if a.shape[0] < n:
            inverse = cls._of_rows(a.dense(limit=n * n))
            if inverse is not None:
                return inverse
        parts = a.parts if isinstance(a, Stack) else (a,)
        # In floats: products of integer arrays would be added up one by one.
        parts = tuple(Dense(p.array.astype(float)) if isinstance(p, Dense) else p for p in parts)
        return cls.of_sum((part.gram().dense(limit=n * n) for part in parts), n)

    @classmethod
    def _of_rows(cls, rows: Array) -> DenseInverse | None:
        """Of a few rows, if it is clear which of them are independent."""
        lengths = np.sqrt((rows**2).sum(axis=1))
        if not lengths.all():
            return None
        unit = rows / lengths[:, None]
        gram = unit @ unit.T
        half = inverse_factor(gram)
        if half is not None:
            basis = unit.T @ half
            return cls(np.asarray(basis @ (half.T / lengths)), basis)
        _, pivots, rank, _ = lapack.dpstrf(gram, tol=SAFE_CONDITION, lower=1)
        some = pivots[:rank] - 1
        half = inverse_factor(gram[np.ix_(some, some)])
        if half is None:
            return None
        basis = unit[some].T @ half
        inside = rows @ basis
        root = inverse_factor(inside.T @ inside)
        return None if root is None else cls(np.asarray(basis @ root), basis)

    @classmethod
    def of_sum(cls, grams: Iterable[Array], n: int) -> DenseInverse:
        """Of a sum of Grams, whose scales may differ widely: each has a say in what is null."""
        total, even = np.zeros((n, n)), np.zeros((n, n))
        for gram in grams:
            scale = float(np.trace(gram))
            total += gram
            even += gram / scale if scale > 0 else 0
        half = inverse_factor(total)
        if half is not None:
            return cls(half, np.empty((n, 0)))
        values, vectors = np.linalg.eigh(even)
        basis = vectors[:, values > values[-1] * n * 1e-14]
        inside = basis.T @ total @ basis
        values, turn = np.linalg.eigh(np.asarray(inside))
        if values.size and values[0] <= values[-1] * n * np.finfo(float).eps:
            raise UnsupportedError(
                "these measurements differ so much in their precision that floating point cannot "
                "tell what the coarse ones add; leave them out, or measure them more precisely"
            )
        inside_all = basis.shape[1] == n
        return cls(basis @ turn / np.sqrt(values), np.empty((n, 0)) if inside_all else basis)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.root), len(self.root)

    @cached_property
    def _written(self) -> Dense:
        return Dense(self.root @ self.root.T)

    def _apply(self, x: Array) -> Array:
        return self._written._apply(x)

    _apply_t = _apply

    def trace_with(self, queries: Matrix) -> float:
        return float((self.root * queries.gram().matmat(self.root)).sum())

    def variances(self, queries: Matrix) -> Array:
        return sum_of_squares(queries, self.root.T)

    def spans(self, queries: Matrix) -> bool:
        n, rank = self.root.shape
        return rank == n or lies_in(self.basis, queries)


def lies_in(basis: Array, queries: Matrix) -> bool:
    """Is every query a combination of these orthonormal columns?"""
    lengths = queries.sqr().matvec(np.ones(len(basis)))
    inside = sum_of_squares(queries, basis.T)
    return bool((lengths - inside <= SPAN_TOLERANCE * lengths).all())


def inverse_factor(gram: Array) -> Array | None:
    """H with H Hᵀ = G⁻¹, by Cholesky; None where G is not safely positive definite."""
    size = float(np.abs(gram).sum(axis=0).max(initial=0.0))
    factor, failed = lapack.dpotrf(gram, lower=1)
    pivots = np.diagonal(factor) ** 2
    # The estimate of dpocon may overlook a column that depends on the others; its pivot does not.
    if failed or pivots.min(initial=np.inf) < SAFE_CONDITION * pivots.max(initial=0.0):
        return None
    if lapack.dpocon(factor, size, uplo="L")[0] < SAFE_CONDITION:
        return None
    return np.asarray(np.tril(lapack.dtrtri(factor, lower=1)[0]).T)


@dataclass(frozen=True, eq=False, repr=False)
class MergedInverse(AxisInverse):
    """Of A P, a factor on merged cells: P⁺ Y⁺ P⁺ᵀ, which spreads every group evenly."""

    inner: AxisInverse
    groups: Array

    @property
    def shape(self) -> tuple[int, int]:
        return self.groups.size, self.groups.size

    @cached_property
    def _sizes(self) -> Array:
        return np.bincount(self.groups)

    def _apply(self, x: Array) -> Array:
        means = Partition(self.groups)._apply(x) / self._sizes[None, :, None]
        return (self.inner._apply(means) / self._sizes[None, :, None])[:, self.groups]

    _apply_t = _apply

    def _on_groups(self, queries: Matrix) -> Matrix:
        """The queries on one cell of every group."""
        return select_columns(queries, np.unique(self.groups, return_index=True)[1])

    def trace_with(self, queries: Matrix) -> float:
        return self.inner.trace_with(self._on_groups(queries))

    def variances(self, queries: Matrix) -> Array:
        return self.inner.variances(self._on_groups(queries))

    def spans(self, queries: Matrix) -> bool:
        alike = queries.column_groups()
        first = np.unique(self.groups, return_index=True)[1]
        constant = bool((alike == alike[first][self.groups]).all())
        return constant and self.inner.spans(self._on_groups(queries))


@dataclass(frozen=True, eq=False, repr=False)
class DirectSumInverse(AxisInverse):
    """Of blocks on a diagonal, each over cells of its own: their inverses on a diagonal."""

    parts: tuple[AxisInverse, ...]

    @cached_property
    def shape(self) -> tuple[int, int]:
        n = sum(part.shape[0] for part in self.parts)
        return n, n

    @cached_property
    def _cells(self) -> list[Array]:
        ends = np.cumsum([part.shape[0] for part in self.parts])
        return np.split(np.arange(ends[-1]), ends[:-1])

    def _apply(self, x: Array) -> Array:
        pairs = zip(self.parts, self._cells, strict=True)
        return np.concatenate([part._apply(x[:, cells]) for part, cells in pairs], axis=1)

    _apply_t = _apply

    def _on_parts(self, queries: Matrix) -> list[tuple[AxisInverse, Matrix]]:
        """Every part with the queries on its cells."""
        pairs = zip(self.parts, self._cells, strict=True)
        return [(part, select_columns(queries, cells)) for part, cells in pairs]

    def trace_with(self, queries: Matrix) -> float:
        if isinstance(queries, Identity):
            return sum(part.trace_with(Identity(part.shape[0])) for part in self.parts)
        return sum(part.trace_with(w) for part, w in self._on_parts(queries))

    def variances(self, queries: Matrix) -> Array:
        if isinstance(queries, Identity):
            each = [part.variances(Identity(part.shape[0])) for part in self.parts]
            return np.concatenate(each)
        return np.asarray(sum(part.variances(w) for part, w in self._on_parts(queries)))

    def spans(self, queries: Matrix) -> bool:
        return all(part.spans(w) for part, w in self._on_parts(queries))
