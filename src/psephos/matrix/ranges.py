"""Range counts: listed boxes in any dimension, all ranges, and all ranges of one width."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import scipy.sparse as sp

from psephos.errors import ShapeError, TooLargeError
from psephos.matrix.base import Matrix, first_appearance, positive
from psephos.matrix.core import running_sums
from psephos.matrix.explicit import sparse_times
from psephos.values import Array, frozen

GROUPING_LIMIT = 10**8
"""Blocks times ranges up to which `column_groups` compares which ranges cover a block."""
RANGE_ANSWERS = 2 * 10**9
"""The most answers that `AllRange` writes out."""
CORNERS_LIMIT = 10**9
"""The most corners, 2^d for each box of d axes."""
BOX_AXES = 60


@dataclass(frozen=True, eq=False, repr=False)
class Ranges(Matrix):
    """Counts in boxes of a grid: a sparse matrix of corners times prefix sums.

    Row i counts the cells from low[i] to high[i], both included, along every axis (EKTELO, Example
    7.4: a range is a difference of prefixes, a box of 2^d corners). Products cost O(cells + rows).

    >>> Ranges.intervals(5, [1, 3], [3, 4]).dense()
    array([[0., 1., 1., 1., 0.],
           [0., 0., 0., 1., 1.]])
    """

    grid: tuple[int, ...]
    low: Array
    high: Array

    def __post_init__(self) -> None:
        grid = tuple(positive(n, "an axis of Ranges") for n in self.grid)
        low, high = np.asarray(self.low), np.asarray(self.high)
        proper = low.ndim == 2 and low.shape == high.shape and low.shape[1:] == (len(grid),)
        whole = low.dtype.kind in "iu" and high.dtype.kind in "iu"
        if not grid or not proper or not whole or low.shape[0] == 0:
            raise ShapeError(
                f"Ranges over {len(grid)} axes need two whole-number arrays of shape "
                f"(rows, {len(grid)}), got {low.shape} and {high.shape}"
            )
        if len(grid) > BOX_AXES:
            raise ShapeError(f"Ranges over {len(grid)} axes are over the limit of {BOX_AXES}")
        corners = low.shape[0] << sum(length > 1 for length in grid)
        if corners > CORNERS_LIMIT:
            raise TooLargeError(
                f"{low.shape[0]:,} boxes over {len(grid)} axes have {float(corners):.0e} corners, "
                f"over the limit of {CORNERS_LIMIT:.0e}; ask for products of ranges",
                corners,
                CORNERS_LIMIT,
            )
        bad = np.flatnonzero(((low < 0) | (high < low) | (high >= np.array(grid))).any(axis=1))
        if bad.size:
            i = int(bad[0])
            raise ShapeError(
                f"range {low[i].tolist()} to {high[i].tolist()} is empty or leaves the grid "
                f"{grid}; both ends are included and counted from 0"
            )
        object.__setattr__(self, "grid", grid)
        object.__setattr__(self, "low", frozen(low, np.int64))
        object.__setattr__(self, "high", frozen(high, np.int64))

    @classmethod
    def intervals(cls, n: int, low: Any, high: Any) -> Ranges:
        """Ranges of a line of n cells, both ends included."""
        low, high = np.asarray(low), np.asarray(high)
        if low.ndim != 1 or high.ndim != 1:
            raise ShapeError("intervals need one low end and one high end for each row")
        return cls((n,), low[:, None], high[:, None])

    @property
    def shape(self) -> tuple[int, int]:
        return self.low.shape[0], math.prod(self.grid)

    @cached_property
    def _corners(self) -> Any:
        """The sparse matrix S with S (P ⊗ … ⊗ P) = this: ±1 at the 2^d corners of each box."""
        m, n = self.shape
        rows, columns, signs = [], [], []
        sides = [(False, True) if length > 1 else (False,) for length in self.grid]
        for choice in product(*sides):
            at = np.where(np.array(choice), self.low - 1, self.high)
            inside = np.flatnonzero((at >= 0).all(axis=1))
            rows.append(inside)
            columns.append(np.ravel_multi_index(tuple(at[inside].T), self.grid))
            signs.append(np.full(inside.size, -1 if sum(choice) % 2 else 1, dtype=np.int8))
        where = (np.concatenate(rows), np.concatenate(columns))
        return sp.csr_array((np.concatenate(signs), where), shape=(m, n))

    @cached_property
    def _one_interval(self) -> slice | None:
        """The cells of a single range of a line, whose sum needs no corners."""
        if self.low.shape != (1, 1):
            return None
        return slice(int(self.low[0, 0]), int(self.high[0, 0]) + 1)

    def _apply(self, x: Array) -> Array:
        left, cells, right = x.shape
        if self._one_interval is not None:
            return np.asarray(x[:, self._one_interval].sum(axis=1, dtype=x.dtype))[:, None]
        for a, n, b in self._axes(x.shape):
            x = running_sums(x.reshape(a, n, b))
        return sparse_times(self._corners, x.reshape(left, cells, right))

    def _apply_t(self, y: Array) -> Array:
        left, _, right = y.shape
        if self._one_interval is not None:
            out = np.zeros((left, self.shape[1], right), dtype=y.dtype)
            out[:, self._one_interval] = y
            return out
        x = sparse_times(self._corners.T, y)
        for a, n, b in self._axes(x.shape):
            x = running_sums(x.reshape(a, n, b)[:, ::-1])[:, ::-1]
        return x.reshape(left, self.shape[1], right)

    def _axes(self, shape: tuple[int, ...]) -> list[tuple[int, int, int]]:
        left, _, right = shape
        return [
            (left * math.prod(self.grid[:i]), n, math.prod(self.grid[i + 1 :]) * right)
            for i, n in enumerate(self.grid)
        ]

    @property
    def is_nonnegative(self) -> bool:
        return True

    def sqr(self) -> Matrix:
        return self

    def sum(self) -> float:
        return float((self.high - self.low + 1).astype(float).prod(axis=1).sum())

    def row(self, i: int) -> Array:
        i = self._row_index(i)
        out = np.zeros(self.grid)
        out[tuple(slice(a, b + 1) for a, b in zip(self.low[i], self.high[i], strict=True))] = 1
        return out.ravel()

    def column_groups(self) -> Array:
        """Cells between the same cuts are equal; cells with the same covering ranges are too."""
        cuts = [
            np.unique(np.concatenate([[0], self.low[:, k], self.high[:, k] + 1]))
            for k in range(len(self.grid))
        ]
        cuts = [c[c < n] for c, n in zip(cuts, self.grid, strict=True)]
        segment = [
            np.searchsorted(c, np.arange(n), side="right") - 1
            for c, n in zip(cuts, self.grid, strict=True)
        ]
        blocks = tuple(len(c) for c in cuts)
        block_of_cell = np.ravel_multi_index(np.ix_(*segment), blocks).ravel()
        if math.prod(blocks) * self.shape[0] > GROUPING_LIMIT:
            return first_appearance(block_of_cell)
        covered = np.ones((math.prod(blocks), self.shape[0]), dtype=bool)
        corner = np.unravel_index(np.arange(math.prod(blocks)), blocks)
        for k, c in enumerate(cuts):
            at = c[corner[k]][:, None]
            covered &= (at >= self.low[:, k]) & (at <= self.high[:, k])
        _, same = np.unique(np.packbits(covered, axis=1), axis=0, return_inverse=True)
        return first_appearance(same.reshape(-1)[block_of_cell])


@dataclass(frozen=True, eq=False, repr=False)
class AllRange(Matrix):
    """All n(n+1)/2 ranges of a line, by low end and then high end; its Gram needs no rows.

    >>> AllRange(2).dense()
    array([[1., 0.],
           [1., 1.],
           [0., 1.]])
    """

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", positive(self.n, "the size of AllRange"))

    @property
    def shape(self) -> tuple[int, int]:
        return self.n * (self.n + 1) // 2, self.n

    def ends(self, i: int) -> tuple[int, int]:
        """The range that row i counts, both ends included."""
        i, n = self._row_index(i), self.n
        # Rows before low end a: a(2n - a + 1)/2; the largest such a not above i.
        a = (2 * n + 1 - math.isqrt((2 * n + 1) ** 2 - 8 * i) + 1) // 2
        while a * (2 * n - a + 1) // 2 > i:
            a -= 1
        return a, a + i - a * (2 * n - a + 1) // 2

    def _apply(self, x: Array) -> Array:
        left, n, right = x.shape
        m = self.shape[0]
        if left * m * right > RANGE_ANSWERS:
            raise TooLargeError(
                f"{self} has {m:.1e} answers; work with its gram(), or ask for listed Ranges",
                left * m * right,
                RANGE_ANSWERS,
            )
        up_to = running_sums(x)
        out = np.empty((left, m, right), dtype=x.dtype)
        out[:, :n] = up_to
        start = n
        for low in range(1, n):
            np.subtract(
                up_to[:, low:], up_to[:, low - 1 : low], out=out[:, start : start + n - low]
            )
            start += n - low
        return out

    def _apply_t(self, y: Array) -> Array:
        left, _, right = y.shape
        n, start = self.n, 0
        steps = np.zeros((left, n + 1, right), dtype=y.dtype)
        for low in range(n):
            block = y[:, start : start + n - low]
            steps[:, low] += block.sum(axis=1)
            steps[:, low + 1 :] -= block
            start += n - low
        return running_sums(steps)[:, :n]

    @property
    def is_nonnegative(self) -> bool:
        return True

    def gram(self) -> Matrix:
        """G_ij = (min + 1)(n - max)."""
        from psephos.matrix.gram import Semiseparable

        cells = np.arange(self.n)
        return Semiseparable(cells + 1, self.n - cells)

    def sqr(self) -> Matrix:
        return self

    def _column_sums(self) -> Array:
        cells = np.arange(self.n, dtype=float)
        return (cells + 1) * (self.n - cells)

    def pinv(self) -> Matrix:
        """G⁻¹Aᵀ; the inverse Gram is tridiag(-1, 2, -1)/(n + 1)."""
        return self.gram().pinv() @ self.T  # type: ignore[no-any-return]

    def row(self, i: int) -> Array:
        low, high = self.ends(i)
        out = np.zeros(self.n)
        out[low : high + 1] = 1
        return out

    def column_groups(self) -> Array:
        return np.arange(self.n)


@dataclass(frozen=True, eq=False, repr=False)
class WidthRange(Matrix):
    """All ranges of w cells, from left to right.

    >>> WidthRange(4, 3).dense()
    array([[1., 1., 1., 0.],
           [0., 1., 1., 1.]])
    """

    n: int
    width: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", positive(self.n, "the size of WidthRange"))
        object.__setattr__(self, "width", positive(self.width, "the width of WidthRange"))
        if self.width > self.n:
            raise ShapeError(f"a range of width {self.width} does not fit in {self.n} cells")

    @property
    def shape(self) -> tuple[int, int]:
        return self.n - self.width + 1, self.n

    def _apply(self, x: Array) -> Array:
        up_to = running_sums(x)
        out = up_to[:, self.width - 1 :].copy()
        out[:, 1:] -= up_to[:, : self.n - self.width]
        return out

    def _apply_t(self, y: Array) -> Array:
        left, m, right = y.shape
        steps = np.zeros((left, self.n, right), dtype=y.dtype)
        steps[:, :m] += y
        steps[:, self.width :] -= y[:, : self.n - self.width]
        return running_sums(steps)

    @property
    def is_nonnegative(self) -> bool:
        return True

    def sqr(self) -> Matrix:
        return self

    def _column_sums(self) -> Array:
        cells, m = np.arange(self.n), self.n - self.width + 1
        least = np.minimum(np.minimum(cells + 1, self.n - cells), min(self.width, m))
        return least.astype(float)

    def row(self, i: int) -> Array:
        i = self._row_index(i)
        out = np.zeros(self.n)
        out[i : i + self.width] = 1
        return out

    def column_groups(self) -> Array:
        """Cells that every window holds are equal: from n - width to width - 1, if any."""
        cells = np.arange(self.n)
        middle = (cells >= self.n - self.width) & (cells < self.width)
        return first_appearance(np.where(middle, self.n, cells))
