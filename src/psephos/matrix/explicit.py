"""Matrices that store what they are: dense, sparse, partitions and reordered columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from psephos.errors import ShapeError
from psephos.matrix.base import Matrix, first_appearance, square_size
from psephos.matrix.products import times
from psephos.values import Array, absolute, frozen, key_of, squared


@dataclass(frozen=True, eq=False, repr=False)
class Dense(Matrix):
    """An array, copied and frozen.

    >>> Dense([[1, 0, 1]]) @ np.array([1, 2, 3])
    array([4])
    """

    array: Array

    def __post_init__(self) -> None:
        array = frozen(self.array)
        if array.ndim != 2 or 0 in array.shape:
            raise ShapeError(f"Dense needs a non-empty 2-D array, got shape {array.shape}")
        if array.dtype.kind == "b":
            array = frozen(array, np.int8)
        if array.dtype.kind not in "iuf":
            raise ShapeError(f"Dense needs numbers, got an array of {array.dtype}")
        if not np.isfinite(array).all():
            raise ShapeError("Dense needs finite entries, got NaN or infinity")
        object.__setattr__(self, "array", array)
        object.__setattr__(self, "entry_type", array.dtype)

    @property
    def shape(self) -> tuple[int, int]:
        m, n = self.array.shape
        return m, n

    def _apply(self, x: Array) -> Array:
        return times(self.array, x)

    def _apply_t(self, y: Array) -> Array:
        return times(self.array.T, y)

    @property
    def _streams(self) -> bool:  # type: ignore[override]
        return self.array.dtype == np.float64

    def _apply_into(self, x: Array, out: Array) -> None:
        if x.dtype == self.array.dtype == out.dtype:
            times(self.array, x, out)
        else:
            out[...] = times(self.array, x)

    def _transpose(self) -> Matrix:
        return Dense(self.array.T)

    @property
    def is_nonnegative(self) -> bool:
        return bool((self.array >= 0).all())

    def gram(self) -> Matrix:
        """Written out only if that is no larger than the matrix itself."""
        m, n = self.shape
        if n > m:
            return super().gram()
        largest = 0 if self.array.dtype.kind == "f" else m * int(squared(self.array).max())
        wide = self.array.astype(np.int64 if 0 < largest < 1 << 62 else float)
        return Dense(wide.T @ wide)

    def abs(self) -> Matrix:
        return self if self.is_nonnegative else Dense(absolute(self.array))

    def sqr(self) -> Matrix:
        return Dense(squared(self.array))

    def pinv(self) -> Matrix:
        return Dense(np.linalg.pinv(self.array.astype(float)))

    def trace(self) -> float:
        square_size(self)
        return float(np.trace(self.array.astype(float)))

    def row(self, i: int) -> Array:
        return np.array(self.array[self._row_index(i)], dtype=float)

    def dense(self, limit: int | None = None) -> Array:
        """A copy of the array, as floats: it is written out already, so there is no limit."""
        return self.array.astype(float)

    def column_groups(self) -> Array:
        _, groups = np.unique(self.array, axis=1, return_inverse=True)
        return first_appearance(groups)


@dataclass(frozen=True, eq=False, repr=False)
class Sparse(Matrix):
    """A scipy sparse matrix in compressed rows, copied and frozen."""

    entries: Any

    def __post_init__(self) -> None:
        if not sp.issparse(self.entries):
            raise ShapeError(
                f"Sparse needs a scipy sparse matrix, got {type(self.entries).__name__}"
            )
        entries = sp.csr_array(self.entries, copy=True)
        try:
            entries.check_format(full_check=True)  # scipy's routines trust every index
        except ValueError as error:
            raise ShapeError(f"a scipy sparse matrix has indices outside of it: {error}") from None
        entries.sum_duplicates()
        entries.eliminate_zeros()
        if 0 in entries.shape or entries.ndim != 2:
            raise ShapeError(f"Sparse needs a non-empty 2-D matrix, got shape {entries.shape}")
        if entries.dtype.kind == "b":
            entries = entries.astype(np.int8)
        if entries.dtype.kind not in "iuf":
            raise ShapeError(f"Sparse needs numbers, got entries of {entries.dtype}")
        if not np.isfinite(entries.data).all():
            raise ShapeError("Sparse needs finite entries, got NaN or infinity")
        for array in (entries.data, entries.indices, entries.indptr):
            array.setflags(write=False)
        object.__setattr__(self, "entries", entries)
        object.__setattr__(self, "entry_type", entries.dtype)

    @property
    def shape(self) -> tuple[int, int]:
        m, n = self.entries.shape
        return int(m), int(n)

    def _apply(self, x: Array) -> Array:
        return sparse_times(self.entries, x)

    def _apply_t(self, y: Array) -> Array:
        return sparse_times(self.entries.T, y)

    def _transpose(self) -> Matrix:
        return Sparse(self.entries.T)

    @property
    def is_nonnegative(self) -> bool:
        return bool((self.entries.data >= 0).all())

    def gram(self) -> Matrix:
        """Written out only if no row can fill it in much; else kept as a product."""
        per_row = np.diff(self.entries.indptr).astype(float)
        if (per_row**2).sum() > 4 * (self.entries.nnz + self.shape[1]):
            return super().gram()
        wide = self.entries.astype(float)
        return Sparse(wide.T @ wide)

    def abs(self) -> Matrix:
        return self if self.is_nonnegative else self._with(absolute(self.entries.data))

    def sqr(self) -> Matrix:
        return self._with(squared(self.entries.data))

    def _with(self, data: Array) -> Sparse:
        e = self.entries
        return Sparse(sp.csr_array((data, e.indices, e.indptr), shape=e.shape))

    def trace(self) -> float:
        square_size(self)
        return float(self.entries.diagonal().astype(float).sum())

    def row(self, i: int) -> Array:
        i = self._row_index(i)
        return np.asarray(np.asarray(self.entries[[i]].todense(), dtype=float)[0])

    def column_groups(self) -> Array:
        columns = self.entries.tocsc()
        columns.sort_indices()
        return _group_slices(columns.indptr, columns.indices, columns.data)

    @property
    def _hidden_bytes(self) -> int:
        e = self.entries
        return int(e.data.nbytes + e.indices.nbytes + e.indptr.nbytes)

    def _key(self) -> Any:
        e = self.entries
        where = (key_of(e.indices.astype(np.int64)), key_of(e.indptr.astype(np.int64)))
        return ("Sparse", self.shape, key_of(e.data), *where)

    def __repr__(self) -> str:
        m, n = self.shape
        return f"Sparse({m} x {n}, {self.entries.nnz} entries)"


def sparse_times(s: Any, x: Array) -> Array:
    """A scipy sparse matrix along the middle axis of x."""
    left, n, right = x.shape
    if x.dtype == object:
        return _sparse_times_objects(s.tocoo(), x)
    if left == 1:
        return np.asarray(s @ x[0])[None]
    flat = x.transpose(1, 0, 2).reshape(n, left * right)
    return np.asarray(s @ flat).reshape(-1, left, right).transpose(1, 0, 2)


def _sparse_times_objects(s: Any, x: Array) -> Array:
    """The same for Python integers, which scipy does not multiply."""
    left, n, right = x.shape
    flat = x.transpose(1, 0, 2).reshape(n, left * right)
    out = np.zeros((s.shape[0], left * right), dtype=object)
    np.add.at(out, s.row, s.data.astype(object)[:, None] * flat[s.col])
    return out.reshape(-1, left, right).transpose(1, 0, 2)


def _group_slices(starts: Array, indices: Array, data: Array) -> Array:
    """Number columns stored as slices by their exact content, those of one length at a time."""
    lengths = np.diff(starts)
    groups = np.empty(lengths.size, dtype=np.int64)
    count = 0
    for length in np.unique(lengths):
        columns = np.flatnonzero(lengths == length)
        at = starts[columns][:, None] + np.arange(length)
        exact = data[at].view(np.int64) if data.dtype.itemsize == 8 else data[at]
        content = np.concatenate([indices[at], exact], axis=1) if length else at
        _, same = np.unique(content, axis=0, return_inverse=True)
        groups[columns] = same.reshape(-1) + count
        count = int(groups[columns].max()) + 1
    return first_appearance(groups)


@dataclass(frozen=True, eq=False, repr=False)
class Partition(Matrix):
    """Sums over disjoint groups that cover all cells; `groups[j]` is the group of cell j.

    >>> Partition([0, 0, 1]) @ np.array([1, 2, 3])
    array([3, 3])
    """

    groups: Array

    def __post_init__(self) -> None:
        groups = frozen(self.groups)
        if groups.ndim != 1 or groups.size == 0 or groups.dtype.kind not in "iu":
            raise ShapeError("Partition needs a non-empty vector of whole group numbers")
        numbers = np.unique(groups)
        if numbers[0] != 0 or numbers[-1] != numbers.size - 1:
            raise ShapeError(
                f"groups must be numbered 0 to k-1 without gaps, got {numbers[0]} to {numbers[-1]} "
                f"with {numbers.size} different numbers; renumber with np.unique(..., "
                "return_inverse=True)"
            )
        object.__setattr__(self, "groups", groups)

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.groups.max()) + 1, self.groups.size

    def _apply(self, x: Array) -> Array:
        p, n = self.shape
        member = sp.csc_array(
            (np.ones(n, dtype=np.int8), self.groups, np.arange(n + 1)), shape=(p, n)
        )
        return sparse_times(member, x)

    def _apply_t(self, y: Array) -> Array:
        return np.take(y, self.groups, axis=1)

    @property
    def is_nonnegative(self) -> bool:
        return True

    def sqr(self) -> Matrix:
        return self

    def _column_sums(self) -> Array:
        return np.ones(self.groups.size)

    def pinv(self) -> Matrix:
        """P⁺ spreads each group evenly over its cells (EKTELO, Prop. 8.3)."""
        from psephos.matrix.combine import compose
        from psephos.matrix.core import Diagonal

        return compose(self.T, Diagonal(1 / np.bincount(self.groups)))

    def trace(self) -> float:
        n = square_size(self)
        return float((self.groups == np.arange(n)).sum())

    def column_groups(self) -> Array:
        return first_appearance(self.groups)


@dataclass(frozen=True, eq=False, repr=False)
class Permuted(Matrix):
    """A matrix that reads the cells in another order: position k holds cell `order[k]`.

    >>> Permuted(Dense([[1, 1, 0]]), [2, 0, 1]).dense()
    array([[1., 0., 1.]])
    """

    base: Matrix
    order: Array

    def __post_init__(self) -> None:
        order = frozen(self.order)
        n = self.base.shape[1]
        proper = order.shape == (n,) and order.dtype.kind in "iu"
        if not proper or not np.array_equal(np.sort(order), np.arange(n)):
            raise ShapeError(f"an order of {self.base} must list 0 to {n - 1}, each once")
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "entry_type", self.base.entry_type)

    @property
    def shape(self) -> tuple[int, int]:
        return self.base.shape

    def _apply(self, x: Array) -> Array:
        return self.base._apply(np.take(x, self.order, axis=1))

    def _apply_t(self, y: Array) -> Array:
        return np.take(self.base._apply_t(y), np.argsort(self.order), axis=1)

    @property
    def is_nonnegative(self) -> bool:
        return self.base.is_nonnegative

    def gram(self) -> Matrix:
        """Πᵀ G Π."""
        half = Permuted(self.base.gram(), self.order)
        return Permuted(half.T, self.order)

    def abs(self) -> Matrix:
        return Permuted(self.base.abs(), self.order)

    def sqr(self) -> Matrix:
        return Permuted(self.base.sqr(), self.order)

    def pinv(self) -> Matrix:
        return Permuted(self.base.pinv().T, self.order).T

    def _column_sums(self) -> Array:
        return self.base._column_sums()[np.argsort(self.order)]

    def sum(self) -> float:
        return self.base.sum()

    def trace(self) -> float:
        """Known where rows and columns are reordered alike, as in a Gram, which keeps the trace."""
        square_size(self)
        inner = self.base.T
        if isinstance(inner, Permuted) and np.array_equal(inner.order, self.order):
            return inner.base.trace()
        raise self._unsupported("trace()")

    def column_groups(self) -> Array:
        return first_appearance(self.base.column_groups()[np.argsort(self.order)])
