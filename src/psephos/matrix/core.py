"""Matrices that need no storage beyond their size: identity, ones, prefix sums, differences."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from psephos.errors import ShapeError
from psephos.matrix.base import Matrix, first_appearance, positive, square_size
from psephos.values import Array, absolute, frozen, squared


@dataclass(frozen=True, eq=False, repr=False)
class Identity(Matrix):
    """Every cell by itself.

    >>> Identity(2).dense()
    array([[1., 0.],
           [0., 1.]])
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", positive(self.n, "the size of Identity"))

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    def _apply(self, x: Array) -> Array:
        return x

    _apply_t = _apply

    def _transpose(self) -> Matrix:
        return self

    @property
    def is_nonnegative(self) -> bool:
        return True

    def gram(self) -> Matrix:
        return self

    def sqr(self) -> Matrix:
        return self

    def pinv(self) -> Matrix:
        return self

    def trace(self) -> float:
        return float(self.n)

    def column_groups(self) -> Array:
        return np.arange(self.n)


@dataclass(frozen=True, eq=False, repr=False)
class Ones(Matrix):
    """All entries one: m copies of the total.

    >>> Ones(2, 3) @ np.array([1, 2, 3])
    array([6, 6])
    """

    m: int
    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "m", positive(self.m, "the rows of Ones"))
        object.__setattr__(self, "n", positive(self.n, "the columns of Ones"))

    @property
    def shape(self) -> tuple[int, int]:
        return self.m, self.n

    _streams = True

    def _apply(self, x: Array) -> Array:
        return np.broadcast_to(totals(x), (x.shape[0], self.m, x.shape[2]))

    def _apply_t(self, y: Array) -> Array:
        return np.broadcast_to(totals(y), (y.shape[0], self.n, y.shape[2]))

    def _transpose(self) -> Matrix:
        return Ones(self.n, self.m) if self.m != self.n else self

    @property
    def is_nonnegative(self) -> bool:
        return True

    def gram(self) -> Matrix:
        return self.m * Ones(self.n, self.n)

    def sqr(self) -> Matrix:
        return self

    def pinv(self) -> Matrix:
        return (1 / (self.m * self.n)) * Ones(self.n, self.m)

    def trace(self) -> float:
        return float(square_size(self))

    def sum(self) -> float:
        return float(self.m) * self.n

    def _column_sums(self) -> Array:
        return np.full(self.n, float(self.m))

    def column_groups(self) -> Array:
        return np.zeros(self.n, dtype=np.int64)


def total(n: int) -> Ones:
    """The single query that counts everything."""
    return Ones(1, n)


def is_total(matrix: Matrix) -> bool:
    """Is it the single query that counts everything?"""
    return isinstance(matrix, Ones) and matrix.m == 1


@lru_cache(maxsize=64)
def _ones(n: int, kind: str) -> Array:
    ones = np.ones(n, dtype=kind)
    ones.flags.writeable = False
    return ones


def totals(x: Array) -> Array:
    """The sums along the middle axis, which is kept with length one."""
    left, n, right = x.shape
    if x.dtype.kind == "f" and n < 4096:
        # BLAS adds short stretches several times faster than a reduction does.
        ones = _ones(n, x.dtype.char)
        if right == 1:
            return np.asarray(x.reshape(left, n) @ ones)[:, None, None]
        return np.asarray(np.matmul(ones[None], x))
    if x.dtype.kind == "i":
        return np.asarray(np.einsum("lnr->lr", x)[:, None])
    return np.asarray(x.sum(axis=1, keepdims=True))


@dataclass(frozen=True, eq=False, repr=False)
class Prefix(Matrix):
    """All prefix counts: row i asks for the first i + 1 cells.

    >>> Prefix(3).dense()
    array([[1., 0., 0.],
           [1., 1., 0.],
           [1., 1., 1.]])
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", positive(self.n, "the size of Prefix"))

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    _streams = True

    def _apply(self, x: Array) -> Array:
        return running_sums(x)

    def _apply_into(self, x: Array, out: Array) -> None:
        running_sums(x, out)

    def _apply_t(self, y: Array) -> Array:
        return running_sums(y[:, ::-1])[:, ::-1]

    @property
    def is_nonnegative(self) -> bool:
        return True

    def gram(self) -> Matrix:
        """G_ij = n - max(i, j)."""
        from psephos.matrix.gram import Semiseparable

        return Semiseparable(np.ones(self.n, np.int64), self.n - np.arange(self.n))

    def sqr(self) -> Matrix:
        return self

    def pinv(self) -> Matrix:
        return Difference(self.n)

    def trace(self) -> float:
        return float(self.n)

    def _column_sums(self) -> Array:
        return self.n - np.arange(self.n, dtype=float)

    def column_groups(self) -> Array:
        return np.arange(self.n)


def suffix(n: int) -> Matrix:
    """All suffix counts: row i asks for cell i and all after it."""
    return Prefix(n).T


def running_sums(x: Array, out: Array | None = None) -> Array:
    """Running sums along the middle axis."""
    left, n, right = x.shape
    if out is None:
        out = np.empty(x.shape, dtype=x.dtype)
    if left * right < 512 or right < 32:
        return np.asarray(np.cumsum(x, axis=1, out=out))
    # A long right axis is summed slice by slice: four times faster than a strided scan.
    out[:, 0] = x[:, 0]
    for i in range(1, n):
        np.add(out[:, i - 1], x[:, i], out=out[:, i])
    return out


@dataclass(frozen=True, eq=False, repr=False)
class Difference(Matrix):
    """The inverse of Prefix: each cell less the one before it.

    >>> Difference(3) @ np.array([1, 3, 6])
    array([1, 2, 3])
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", positive(self.n, "the size of Difference"))

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    def _apply(self, x: Array) -> Array:
        out = x.copy()
        out[:, 1:] -= x[:, :-1]
        return out

    def _apply_t(self, y: Array) -> Array:
        out = y.copy()
        out[:, :-1] -= y[:, 1:]
        return out

    def abs(self) -> Matrix:
        from psephos.matrix.ranges import Ranges

        cells = np.arange(self.n)
        return Ranges.intervals(self.n, np.maximum(cells - 1, 0), cells)

    def sqr(self) -> Matrix:
        return self.abs()

    def pinv(self) -> Matrix:
        return Prefix(self.n)

    def trace(self) -> float:
        return float(self.n)

    def column_groups(self) -> Array:
        return np.arange(self.n)


@dataclass(frozen=True, eq=False, repr=False)
class Diagonal(Matrix):
    """Cells weighted one by one.

    >>> Diagonal([2, 3]) @ np.array([1, 1])
    array([2, 3])
    """

    weights: Array

    def __post_init__(self) -> None:
        weights = frozen(self.weights)
        if weights.ndim != 1 or weights.size == 0 or weights.dtype.kind not in "iuf":
            raise ShapeError("Diagonal needs a non-empty vector of numbers")
        if not np.isfinite(weights).all():
            raise ShapeError("Diagonal needs finite weights, got NaN or infinity")
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "entry_type", weights.dtype)

    @property
    def shape(self) -> tuple[int, int]:
        return self.weights.size, self.weights.size

    def _apply(self, x: Array) -> Array:
        return np.asarray(x * self.weights[None, :, None])

    _apply_t = _apply

    def _transpose(self) -> Matrix:
        return self

    @property
    def is_nonnegative(self) -> bool:
        return bool((self.weights >= 0).all())

    def gram(self) -> Matrix:
        return self.sqr()

    def abs(self) -> Matrix:
        return Diagonal(absolute(self.weights))

    def sqr(self) -> Matrix:
        return Diagonal(squared(self.weights))

    def pinv(self) -> Matrix:
        some = self.weights != 0
        return Diagonal(np.divide(1, self.weights, out=np.zeros(self.weights.size), where=some))

    def trace(self) -> float:
        return float(self.weights.sum())

    def column_groups(self) -> Array:
        zero = self.weights == 0
        cells = np.arange(self.weights.size)
        return cells if zero.sum() < 2 else _join(cells, zero)


def _join(cells: Array, same: Array) -> Array:
    """Number the marked cells as one group."""
    return first_appearance(np.where(same, cells[same][0], cells))
