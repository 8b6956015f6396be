"""Matrices that store what they are: dense, sparse, partitions and reordered columns.

Their products run along the middle axis of an array, integers exactly and at the speed of floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from psephos.errors import ShapeError
from psephos.matrix.base import Matrix, first_appearance, square_size
from psephos.matrix.core import totals
from psephos.values import Array, absolute, frozen, key_of, largest, squared

FLOAT = 1 << 53
"""Every integer up to here is a float."""
FLOATS_AT_ONCE = 1 << 16
"""Integers turned into floats at a time, so that they stay in cache."""
FEW = 8
"""Fewer vectors than this are multiplied as integers."""
SHORT_RUN = 256
"""Rows shorter than this are multiplied by one long vector of repeated weights."""


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
        if self._even is None or x.dtype.kind not in "iO":
            return times(self.array, x)
        apart, alike = self._even
        wide = x.astype(np.int64) if x.dtype.kind == "i" else x
        return np.asarray(apart * wide + alike * totals(wide))

    def _apply_t(self, y: Array) -> Array:
        return self._apply(y) if self._even is not None else times(self.array.T, y)

    @cached_property
    def _even(self) -> tuple[int, int] | None:
        """The whole a and b where the array is aI + b·11ᵀ, such as the residual nI - 11ᵀ.

        A product then takes two passes over the numbers, however long the rows are. In 64 bits it
        is exact modulo 2⁶⁴, as any product is; a·x is at most twice the largest entry times x.
        """
        m, n = self.shape
        if m != n or n < 3 or self.array.dtype.kind != "i":
            return None
        alike, apart = int(self.array[0, 1]), int(self.array[0, 0]) - int(self.array[0, 1])
        even = (self.array.diagonal() == self.array[0, 0]).all() and abs(apart) < 1 << 62
        rest = int((self.array == alike).sum())
        return (apart, alike) if even and rest == (n * n - n if apart else n * n) else None

    @property
    def _streams(self) -> bool:  # type: ignore[override]
        return self.array.dtype == np.float64

    def _apply_into(self, x: Array, out: Array) -> None:
        if x.dtype == self.array.dtype == out.dtype and self._even is None:
            times(self.array, x, out)
        else:
            out[...] = self._apply(x)

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
        if 1 << 53 <= largest < 1 << 62:
            whole = self.array.astype(np.int64)
            return Dense(whole.T @ whole)
        wide = self.array.astype(float)
        gram = wide.T @ wide  # in floats, which multiply far sooner, and whole numbers stay exact
        return Dense(gram.astype(np.int64) if 0 < largest < 1 << 53 else gram)

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


def times(a: Array, x: Array, out: Array | None = None) -> Array:
    """A along the middle axis of x (left, n, right); `out`, if given, has the result's type.

    64-bit integers come out exact modulo 2⁶⁴, whatever a and x hold.
    """
    dtype = np.result_type(a, x)
    a = a.astype(dtype, copy=False)
    x = x.astype(dtype, copy=False)
    if dtype == np.int64 and x.shape[0] * x.shape[2] >= FEW:
        return _by_floats(a, x, out)
    return _by_layout(a, x, out)


def _by_layout(a: Array, x: Array, out: Array | None = None) -> Array:
    """A along the middle axis of x, in as few and as large products as the layout allows."""
    left, n, right = x.shape
    if right == 1:
        flat = None if out is None else out[:, :, 0]
        return np.asarray(np.matmul(x.reshape(left, n), a.T, out=flat))[:, :, None]
    if left == 1:
        return np.asarray(np.matmul(a, x[0], out=None if out is None else out[0]))[None]
    return np.asarray(np.matmul(a, x, out=out))


def _by_floats(a: Array, x: Array, out: Array | None) -> Array:
    """A x modulo 2⁶⁴, as integers give it, by products of floats, which are many times faster.

    Proof. Let R = max_i Σ_c |A[i, c]| and k > 0 with R·2^k ≤ 2⁵³. Numbers of at most mk bits are
    Σ_j 2^(jk) x_j, j < m, with all x_j in [0, 2^k) but the last, x >> (m - 1)k, which is in
    [-2^k, 2^k). Every term of A x_j, and every sum of some terms of one row in any order, is then
    an integer of at most R·2^k ≤ 2⁵³, that is a float: nothing rounds, nothing is infinite, and
    A x_j is exact. Σ_j 2^(jk) A x_j is taken in 64 bits, exact modulo 2⁶⁴. R is found in floats:
    below 2⁵³ all its entries and sums are exact, and from there on rounding cannot lead back below,
    2⁵³ being a float. Without such a k integers are multiplied as they are.
    (tests/matrix/test_products.py)
    """
    left, n, right = x.shape
    floats = a.astype(float)
    reach = float(np.abs(floats).sum(axis=1).max())
    bits = int(FLOAT // max(1.0, reach)).bit_length() - 1
    if bits < 1:
        return _by_layout(a, x, out)
    out = np.empty((left, len(a), right), dtype=np.int64) if out is None else out
    slabs, width = max(1, FLOATS_AT_ONCE // (n * right)), max(1, FLOATS_AT_ONCE // n)
    for i in range(0, left, slabs):
        for j in range(0, right, width):
            part = slice(i, i + slabs), slice(None), slice(j, j + width)
            _by_limbs(floats, x[part], bits, out[part])
    return out


def _by_limbs(a: Array, x: Array, bits: int, out: Array) -> None:
    """A x, where the numbers of x are cut into limbs of that many bits."""
    limbs = max(1, -(-largest(x).bit_length() // bits))
    if limbs == 1:
        out[...] = _by_layout(a, x.astype(float))
        return
    out[...] = 0
    for j in reversed(range(limbs)):
        limb = x >> j * bits
        if j < limbs - 1:
            limb &= (1 << bits) - 1
        out *= 1 << bits
        out += _by_layout(a, limb.astype(float)).astype(np.int64)


def weigh(weights: Array, x: Array, out: Array | None = None) -> Array:
    """diag(weights) along the middle axis of x."""
    left, _, right = x.shape
    each = weights[:, None]
    if left > 1 < right < SHORT_RUN:
        each = np.repeat(each, right, axis=1)  # one long run for each slab, not n short ones
    return np.asarray(np.multiply(x, each, out=out))
