"""Unions of matrices: over the same cells (Stack), or each over cells of its own (DirectSum)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np

from psephos.errors import ShapeError
from psephos.matrix.base import Matrix, square_size
from psephos.matrix.combine import Scaled, Sum, check_parts, join_groups, set_common_type
from psephos.matrix.kron import Kron
from psephos.values import Array

GRID_LIMIT = 10**7
"""The most numbers that `largest_of_products` holds at once."""


@dataclass(frozen=True, eq=False, repr=False)
class Stack(Matrix):
    """The union of query sets: parts one below the other.

    >>> from psephos.matrix import Identity
    >>> Stack((Identity(2), Identity(2))).shape
    (4, 2)
    """

    parts: tuple[Matrix, ...]

    def __post_init__(self) -> None:
        parts = tuple(self.parts)
        check_parts("Stack", parts)
        flat: list[Matrix] = []
        for part in parts:
            flat.extend(part.parts if isinstance(part, Stack) else [part])
        widths = sorted({part.shape[1] for part in flat})
        if len(widths) > 1:
            raise ShapeError(f"Stack parts must share one width, got {widths}")
        object.__setattr__(self, "parts", tuple(flat))
        set_common_type(self, self.parts)

    @cached_property
    def shape(self) -> tuple[int, int]:
        return sum(part.shape[0] for part in self.parts), self.parts[0].shape[1]

    def _apply(self, x: Array) -> Array:
        dtype = np.result_type(self.entry_type, x)
        out = np.empty((x.shape[0], self.shape[0], x.shape[2]), dtype=dtype)
        start = 0
        for part in self.parts:
            rows = part.shape[0]
            out[:, start : start + rows] = part._apply(x)
            start += rows
        return out

    def _apply_t(self, y: Array) -> Array:
        dtype = np.result_type(self.entry_type, y)
        out = np.zeros((y.shape[0], self.shape[1], y.shape[2]), dtype=dtype)
        start = 0
        for part in self.parts:
            rows = part.shape[0]
            out += part._apply_t(y[:, start : start + rows])
            start += rows
        return out

    @property
    def is_nonnegative(self) -> bool:
        return all(part.is_nonnegative for part in self.parts)

    def gram(self) -> Matrix:
        return Sum(tuple(part.gram() for part in self.parts))

    def abs(self) -> Matrix:
        return Stack(tuple(part.abs() for part in self.parts))

    def sqr(self) -> Matrix:
        return Stack(tuple(part.sqr() for part in self.parts))

    def _column_sums(self) -> Array:
        return np.asarray(sum(part._column_sums() for part in self.parts))

    def _largest_column_sum(self) -> float:
        """From Kronecker parts with few different columns per axis, without the cells."""
        largest = largest_of_products(self.parts)
        return super()._largest_column_sum() if largest is None else largest

    def sum(self) -> float:
        return math.fsum(part.sum() for part in self.parts)

    def row(self, i: int) -> Array:
        i = self._row_index(i)
        for part in self.parts:
            if i < part.shape[0]:
                return part.row(i)
            i -= part.shape[0]
        raise ShapeError(f"row {i} of {self}")

    def column_groups(self) -> Array:
        return join_groups([part.column_groups() for part in self.parts])


@dataclass(frozen=True, eq=False, repr=False)
class DirectSum(Matrix):
    """Blocks on a diagonal: each part counts other cells.

    >>> from psephos.matrix import Identity
    >>> DirectSum((Identity(1), Identity(2))).shape
    (3, 3)
    """

    parts: tuple[Matrix, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        check_parts("DirectSum", self.parts)
        set_common_type(self, self.parts)

    @cached_property
    def shape(self) -> tuple[int, int]:
        return sum(p.shape[0] for p in self.parts), sum(p.shape[1] for p in self.parts)

    @cached_property
    def _runs(self) -> list[tuple[Matrix, int]]:
        """Every part, and how often it follows itself: one call is enough for those."""
        runs = (list(same) for _, same in groupby(self.parts, key=id))
        return [(same[0], len(same)) for same in runs]

    def _apply(self, x: Array) -> Array:
        left, _, right = x.shape
        dtype = np.result_type(self.entry_type, x)
        out = np.empty((left, self.shape[0], right), dtype=dtype)
        start = row = 0
        for part, count in self._runs:
            rows, width = part.shape
            piece = x[:, start : start + count * width].reshape(left * count, width, right)
            out[:, row : row + count * rows] = part._apply(piece).reshape(left, -1, right)
            start, row = start + count * width, row + count * rows
        return out

    def _apply_t(self, y: Array) -> Array:
        return self.T._apply(y)

    def _transpose(self) -> Matrix:
        return DirectSum(tuple(part.T for part in self.parts))

    @property
    def is_nonnegative(self) -> bool:
        return all(part.is_nonnegative for part in self.parts)

    def gram(self) -> Matrix:
        return DirectSum(tuple(part.gram() for part in self.parts))

    def abs(self) -> Matrix:
        return DirectSum(tuple(part.abs() for part in self.parts))

    def sqr(self) -> Matrix:
        return DirectSum(tuple(part.sqr() for part in self.parts))

    def pinv(self) -> Matrix:
        return DirectSum(tuple(part.pinv() for part in self.parts))

    def trace(self) -> float:
        square_size(self)
        if any(part.shape[0] != part.shape[1] for part in self.parts):
            raise self._unsupported("trace()")
        return math.fsum(part.trace() for part in self.parts)

    def sum(self) -> float:
        return math.fsum(part.sum() for part in self.parts)

    def _column_sums(self) -> Array:
        return np.concatenate([part._column_sums() for part in self.parts])

    def column_groups(self) -> Array:
        """Columns of different parts are equal only where both are zero; those stay apart."""
        known = {id(part): part for part in self.parts}
        numbers = {key: part.column_groups() for key, part in known.items()}
        counts = {key: int(each.max()) + 1 for key, each in numbers.items()}
        groups, start = [], 0
        for part in self.parts:
            groups.append(numbers[id(part)] + start)
            start += counts[id(part)]
        return np.concatenate(groups)


def by_group(groups: Array, parts: Matrix | Sequence[Matrix]) -> Matrix:
    """One matrix on the cells of each group, or the same one on all: as one matrix over all cells.

    `groups[j]` is the group of cell j; the cells of a group keep their order. Measured at once, it
    has the sensitivity of the part that has the largest, as parts count different cells.

    >>> from psephos.matrix import Identity, total
    >>> by_group(np.array([0, 1, 0]), [total(2), Identity(1)]).dense()
    array([[1., 0., 1.],
           [0., 1., 0.]])
    """
    from psephos.matrix.explicit import Partition, Permuted

    partition = Partition(groups)
    each = (parts,) * partition.shape[0] if isinstance(parts, Matrix) else tuple(parts)
    sizes = np.bincount(partition.groups)
    widths = [part.shape[1] for part in each]
    if widths != sizes.tolist():
        raise ShapeError(
            f"groups of {sizes.size} sizes, {sizes[:5]} first, need matrices of as many columns, "
            f"got {widths[:5]} first of {len(widths)}"
        )
    return Permuted(DirectSum(each), np.argsort(partition.groups, kind="stable"))


def largest_of_products(parts: tuple[Matrix, ...]) -> float | None:
    """The largest column sum of stacked Kronecker products over one grid; None if too many differ.

    The column sum of cell (c₁, …, c_d) is Σ_parts w Π_i sum_i[c_i]. On each axis only the different
    tuples of per-part sums matter, and these are few: one for marginals, whatever their size.
    """
    pairs = [(p.factor, p.base) if isinstance(p, Scaled) else (1.0, p) for p in parts]
    factors = [p.factors for _, p in pairs if isinstance(p, Kron)]
    if len(factors) < len(parts):
        return None
    grids = {tuple(f.shape[1] for f in each) for each in factors}
    if len(grids) > 1:
        return None
    total = np.array([float(w) for w, _ in pairs])[:, None]
    for axis in range(len(factors[0])):
        distinct = {id(f[axis]): f[axis] for f in factors}
        sums = {key: factor._column_sums() for key, factor in distinct.items()}
        place = {key: j for j, key in enumerate(sums)}
        rows = np.unique(np.stack(list(sums.values())), axis=1)
        different = rows[[place[id(f[axis])] for f in factors]]
        total = (total[:, :, None] * different[:, None, :]).reshape(len(parts), -1)
        if total.size > GRID_LIMIT:
            return None
    return float(total.sum(axis=0).max())
