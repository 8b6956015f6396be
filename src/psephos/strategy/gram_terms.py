"""A workload as selection sees it: WᵀW = Σ_j c_j ⊗_i W_ijᵀW_ij, and products with it.

Everything that selection needs of a Gram is its diagonal and B ↦ B G for a few rows B.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from psephos.matrix import (
    Gram,
    Identity,
    Kron,
    Matrix,
    Ones,
    Permuted,
    Scaled,
    Semiseparable,
    Sum,
    WidthRange,
)
from psephos.matrix.columns import gram_diagonal
from psephos.values import Array
from psephos.workload.workload import Workload

ARRAY_AXIS = 512
"""Up to this many cells a Gram is one small array, and BLAS beats any structure."""

ARRAY_GRAM = 2048
"""Up to this many cells a Gram without a closed form is written out."""

RowsTimes = Callable[[Array], Array]
"""B ↦ B G for a p x n array B, into a new array of floats."""


@dataclass(frozen=True, eq=False)
class GramOperator:
    """G = Σ_j c_j W_jᵀW_j on one axis or a whole domain: its diagonal, and products with it."""

    n: int
    diagonal: Array
    times: RowsTimes
    """B ↦ B G for a p x n array B."""

    @property
    def trace(self) -> float:
        """The trace of G: the squared error of Identity."""
        return float(self.diagonal.sum())


def gram_operator(coefficients: Sequence[float] | Array, queries: Sequence[Matrix]) -> GramOperator:
    """Σ_j c_j W_jᵀW_j; equal matrices (one object) are taken together.

    >>> from psephos.matrix import Prefix
    >>> gram_operator([2.0], [Prefix(3)]).times(np.eye(3))
    array([[6., 4., 2.],
           [4., 4., 2.],
           [2., 2., 2.]])
    """
    together: dict[int, float] = {}
    known: dict[int, Matrix] = {}
    for c, w in zip(coefficients, queries, strict=True):
        together[id(w)] = together.get(id(w), 0.0) + float(c)
        known[id(w)] = w
    pairs = [(together[key], known[key]) for key in together]
    n = pairs[0][1].shape[1]
    diagonal = np.zeros(n)
    for c, w in pairs:
        diagonal += c * gram_diagonal(w)
    grams = [(c, w.gram()) for c, w in pairs]
    is_closed = all(_closed_times(gram) is not None for _, gram in grams)
    if n <= ARRAY_AXIS or (n <= ARRAY_GRAM and not is_closed):
        # One product with an array, whose time the others add nothing to.
        whole = sum(c * gram.dense() for c, gram in grams)
        return GramOperator(n, diagonal, lambda b: np.asarray(b @ whole))
    products = [(c, rows_times(gram)) for c, gram in grams]
    return GramOperator(n, diagonal, partial(_sum_times, products))


def rows_times(gram: Matrix) -> RowsTimes:
    """B ↦ B G for a p x n array B, into a new array; scans run along its rows.

    >>> rows_times(Semiseparable([1, 2], [2, 1]))(np.eye(2))
    array([[2., 1.],
           [1., 2.]])
    """
    closed = _closed_times(gram)
    if closed is not None:
        return closed
    if gram.shape[1] <= ARRAY_GRAM:
        dense = gram.dense()
        return lambda b: np.asarray(b @ dense)
    return lambda b: np.ascontiguousarray(gram.matmat(np.ascontiguousarray(b.T)).T)


def _closed_times(gram: Matrix) -> RowsTimes | None:
    """The same where no array of the Gram is needed."""
    if isinstance(gram, Identity):
        return partial(np.array, dtype=float)
    if isinstance(gram, Ones):
        return partial(_totals, gram.shape[1])
    if isinstance(gram, Scaled):
        return _closed_sum([(gram.factor, gram.base)])
    if isinstance(gram, Sum):
        return _closed_sum([(1.0, part) for part in gram.parts])
    if isinstance(gram, Semiseparable):
        return partial(_scan, gram.u, gram.v)
    if isinstance(gram, Kron):
        return partial(_axis_by_axis, [(f.shape[0], _axis_times(f)) for f in gram.factors])
    if isinstance(gram, Gram):
        return _closed_gram_times(gram.base)
    if isinstance(gram, Permuted) and isinstance(gram.base.T, Permuted):
        left, right = gram.base.T, gram
        if np.array_equal(left.order, right.order):
            inner, order, back = rows_times(left.base), left.order, np.argsort(left.order)
            return lambda b: np.take(inner(np.take(b, order, axis=1)), back, axis=1)
    return None


def _closed_gram_times(queries: Matrix) -> RowsTimes | None:
    """B ↦ B WᵀW for windows, and for few queries."""
    if isinstance(queries, WidthRange):
        return partial(_windows, queries.width)
    m, n = queries.shape
    if 2 * m < n and m * n <= ARRAY_GRAM**2:
        rows = queries.dense().astype(float)
        return lambda b: np.asarray((b @ rows.T) @ rows)
    return None


def _closed_sum(parts: Sequence[tuple[float, Matrix]]) -> RowsTimes | None:
    """Σ_j c_j G_j where no array of any part is needed."""
    products = [(c, times) for c, part in parts if (times := _closed_times(part)) is not None]
    return partial(_sum_times, products) if len(products) == len(parts) else None


def _sum_times(products: Sequence[tuple[float, RowsTimes]], b: Array) -> Array:
    """B Σ_j c_j G_j."""
    c, first = products[0]
    out = first(b)
    out *= c
    for c, times in products[1:]:
        out += c * times(b)
    return out


def _totals(n: int, b: Array) -> Array:
    """The sum of every row, n times."""
    return np.tile(b.sum(axis=1, keepdims=True), n)


def _scan(u: Array, v: Array, b: Array) -> Array:
    """(BG)_j = v_j Σ_{i≤j} u_i B_i + u_j Σ_{i>j} v_i B_i."""
    out = b * u
    np.cumsum(out, axis=1, out=out)
    out *= v
    after = b * v
    total = after.sum(axis=1, keepdims=True)
    np.cumsum(after, axis=1, out=after)
    np.subtract(total, after, out=after)
    after *= u
    out += after
    return out


def _windows(width: int, b: Array) -> Array:
    """The sums of all windows, then for each cell the sum of the windows that hold it."""
    p, n = b.shape
    up_to = np.zeros((p, n + 1))
    np.cumsum(b, axis=1, out=up_to[:, 1:])
    windows = n - width + 1
    sums = np.zeros((p, windows + 1))
    np.cumsum(up_to[:, width:] - up_to[:, :windows], axis=1, out=sums[:, 1:])
    after = np.arange(1, n + 1)
    last, first = np.minimum(after, windows), np.maximum(after - width, 0)
    return np.asarray(np.take(sums, last, axis=1) - np.take(sums, first, axis=1))


def _axis_times(gram: Matrix) -> Callable[[Array], Array] | Array | None:
    """One factor of a product: None for Identity, an array if small, else B ↦ B G."""
    if isinstance(gram, Identity):
        return None
    return gram.dense() if gram.shape[0] <= ARRAY_AXIS else rows_times(gram)


def _axis_by_axis(axes: list[tuple[int, Any]], b: Array) -> Array:
    """B (G₁ ⊗ … ⊗ G_d): every row is a tensor, multiplied along one axis after another."""
    p, cells = b.shape
    rows_before, out = p, b
    for n, times in axes:
        cells //= n
        if times is None:
            pass
        elif not isinstance(times, np.ndarray):
            rows = np.moveaxis(out.reshape(rows_before, n, cells), 1, 2).reshape(-1, n)
            out = np.moveaxis(times(rows).reshape(rows_before, cells, n), 2, 1)
        elif cells == 1:
            out = out.reshape(rows_before, n) @ times
        else:
            out = np.matmul(times, out.reshape(rows_before, n, cells))
        rows_before *= n
    out = out.reshape(b.shape)
    return out.copy() if out is b else out


def picked(gram: GramOperator, cells: Array) -> GramOperator:
    """The Gram on some of the cells: one of every group that the workload treats alike."""
    if cells.size == gram.n:
        return gram

    def times(b: Array) -> Array:
        spread = np.zeros((len(b), gram.n))
        spread[:, cells] = b
        return gram.times(spread)[:, cells]

    return GramOperator(cells.size, gram.diagonal[cells], times)


@dataclass(frozen=True, eq=False)
class GramTerms:
    """Σ_j c_j ⊗_i W_ijᵀW_ij: a coefficient (weight²) and the factors of every product."""

    shape: tuple[int, ...]
    coefficients: Array
    factors: tuple[tuple[Matrix, ...], ...]

    @classmethod
    def of(cls, workload: Workload) -> GramTerms:
        """The products of a workload, each with its squared weight."""
        return cls(
            workload.domain.shape,
            np.array([product.weight**2 for product in workload.products]),
            tuple(workload.factors(i) for i in range(len(workload.products))),
        )

    @property
    def size(self) -> int:
        """All cells."""
        return math.prod(self.shape)

    def axis(self, i: int) -> list[Matrix]:
        """The query matrices on one axis, one for each product."""
        return [each[i] for each in self.factors]

    def gram(self, i: int, coefficients: Array) -> GramOperator:
        """Σ_j c_j W_ijᵀW_ij on one axis."""
        return gram_operator(coefficients, self.axis(i))

    def whole(self) -> GramOperator:
        """The Gram on all cells at once, as a sum of Kronecker products (for small domains)."""
        return gram_operator(self.coefficients, [Kron(each) for each in self.factors])

    def only(self, numbers: Sequence[int]) -> GramTerms:
        """Some of the products."""
        factors = tuple(self.factors[j] for j in numbers)
        return GramTerms(self.shape, self.coefficients[list(numbers)], factors)


def is_identity(matrix: Matrix) -> bool:
    """Every cell on its own."""
    return isinstance(matrix, Identity)
