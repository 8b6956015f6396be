"""Matrices made of matrices of fitting shape: summed, multiplied, scaled."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import numpy as np

from psephos.errors import ShapeError
from psephos.matrix.base import Matrix, first_appearance
from psephos.matrix.core import Identity
from psephos.values import Array


def check_parts(name: str, parts: tuple[Matrix, ...]) -> None:
    """Refuse a combination of nothing, or of things that are not matrices."""
    if not parts:
        raise ShapeError(f"{name} needs at least one matrix, got none")
    for part in parts:
        if not isinstance(part, Matrix):
            raise ShapeError(
                f"{name} is made of matrices, got {type(part).__name__}; wrap arrays as Dense(...)"
            )


def set_common_type(matrix: Matrix, parts: tuple[Matrix, ...]) -> None:
    """Set the entry type of a combination: one that holds the entries of all parts."""
    object.__setattr__(matrix, "entry_type", np.result_type(*(part.entry_type for part in parts)))


def join_groups(parts: list[Array]) -> Array:
    """The coarsest grouping finer than all of the parts."""

    def both(a: Array, b: Array) -> Array:
        return first_appearance(a.astype(np.int64) * (int(b.max()) + 1) + b)

    return reduce(both, parts)


@dataclass(frozen=True, eq=False, repr=False)
class Sum(Matrix):
    """Entry-wise sum; the Gram of a Stack is one."""

    parts: tuple[Matrix, ...]

    def __post_init__(self) -> None:
        parts = tuple(self.parts)
        check_parts("Sum", parts)
        flat: list[Matrix] = []
        for part in parts:
            flat.extend(part.parts if isinstance(part, Sum) else [part])
        shapes = sorted({part.shape for part in flat})
        if len(shapes) > 1:
            raise ShapeError(f"Sum parts must share one shape, got {shapes}")
        object.__setattr__(self, "parts", tuple(flat))
        set_common_type(self, self.parts)

    @property
    def shape(self) -> tuple[int, int]:
        return self.parts[0].shape

    def _apply(self, x: Array) -> Array:
        out = np.array(self.parts[0]._apply(x), dtype=np.result_type(self.entry_type, x))
        for part in self.parts[1:]:
            out += part._apply(x)
        return out

    def _apply_t(self, y: Array) -> Array:
        out = np.array(self.parts[0]._apply_t(y), dtype=np.result_type(self.entry_type, y))
        for part in self.parts[1:]:
            out += part._apply_t(y)
        return out

    def _transpose(self) -> Matrix:
        return Sum(tuple(part.T for part in self.parts))

    @property
    def is_nonnegative(self) -> bool:
        return all(part.is_nonnegative for part in self.parts)

    def sqr(self) -> Matrix:
        if len(self.parts) > 1:
            raise self._unsupported("sqr()")
        return self.parts[0].sqr()

    def abs(self) -> Matrix:
        return self.parts[0].abs() if len(self.parts) == 1 else super().abs()

    def sum(self) -> float:
        return math.fsum(part.sum() for part in self.parts)

    def trace(self) -> float:
        return math.fsum(part.trace() for part in self.parts)

    def _column_sums(self) -> Array:
        return np.asarray(sum(part._column_sums() for part in self.parts))

    def column_groups(self) -> Array:
        return join_groups([part.column_groups() for part in self.parts])


@dataclass(frozen=True, eq=False, repr=False)
class Compose(Matrix):
    """The matrix product of its parts, applied from the last to the first."""

    parts: tuple[Matrix, ...]

    def __post_init__(self) -> None:
        parts = tuple(self.parts)
        check_parts("Compose", parts)
        flat: list[Matrix] = []
        for part in parts:
            flat.extend(part.parts if isinstance(part, Compose) else [part])
        for a, b in pairwise(flat):
            if a.shape[1] != b.shape[0]:
                raise ShapeError(
                    f"cannot multiply {a} of shape {a.shape} by {b} of shape {b.shape}: "
                    f"{a.shape[1]} columns against {b.shape[0]} rows"
                )
        object.__setattr__(self, "parts", tuple(flat))
        set_common_type(self, self.parts)

    @property
    def shape(self) -> tuple[int, int]:
        return self.parts[0].shape[0], self.parts[-1].shape[1]

    def _apply(self, x: Array) -> Array:
        for part in reversed(self.parts):
            x = part._apply(x)
        return x

    def _apply_t(self, y: Array) -> Array:
        for part in self.parts:
            y = part._apply_t(y)
        return y

    def _transpose(self) -> Matrix:
        return Compose(tuple(part.T for part in reversed(self.parts)))

    @property
    def is_nonnegative(self) -> bool:
        return all(part.is_nonnegative for part in self.parts)

    def _entrywise(self, question: str) -> Matrix:
        """`question` part by part: right where each entry of the product is one product of entries.

        That is so where the parts before some core only pick rows and those after it columns.
        """
        for core in range(len(self.parts)):
            before, after = self.parts[:core], self.parts[core + 1 :]
            if all(one_per_row(p) for p in before) and all(one_per_row(p.T) for p in after):
                return Compose(tuple(getattr(part, question)() for part in self.parts))
        raise self._unsupported(f"{question}()")

    def abs(self) -> Matrix:
        return self if self.is_nonnegative else self._entrywise("abs")

    def sqr(self) -> Matrix:
        return self._entrywise("sqr")

    def column_groups(self) -> Array:
        """Of a map that only moves cells, the columns are those of what follows."""
        *rest, last = self.parts
        places = places_of(last) if rest else None
        if places is None:
            return last.column_groups()
        groups = compose(*rest).column_groups()
        return first_appearance(np.where(places < 0, -1, groups[places]))


def places_of(matrix: Matrix) -> Array | None:
    """Where each cell goes, -1 for cells that are left out; None if it is no such map.

    >>> from psephos.matrix import Partition
    >>> places_of(Partition([1, 0, 1]))
    array([1, 0, 1])
    """
    from psephos.matrix.explicit import Partition, Sparse

    if isinstance(matrix, Partition):
        return matrix.groups
    if not isinstance(matrix, Sparse):
        return None
    entries = matrix.entries.tocsc()
    each = np.diff(entries.indptr)
    if (each > 1).any() or (entries.data != 1).any():
        return None
    places = np.full(matrix.shape[1], -1, dtype=np.int64)
    places[each == 1] = entries.indices
    return places


def one_per_row(matrix: Matrix) -> bool:
    """Is it known that no row has more than one entry?"""
    from psephos.matrix.core import Diagonal
    from psephos.matrix.explicit import Partition, Sparse
    from psephos.matrix.kron import Kron
    from psephos.matrix.stack import DirectSum, Stack

    if isinstance(matrix, Identity | Diagonal):
        return True
    if isinstance(matrix, Sparse):
        return bool((np.diff(matrix.entries.indptr) <= 1).all())
    if isinstance(matrix, Scaled):
        return one_per_row(matrix.base)
    if isinstance(matrix, Kron | DirectSum | Stack):
        return all(one_per_row(part) for part in matrix.children)
    return isinstance(matrix.T, Partition)


def compose(*parts: Matrix) -> Matrix:
    """The product, without the identities in it."""
    product = Compose(parts)
    factors = tuple(part for part in product.parts if not isinstance(part, Identity))
    if not factors:
        return product.parts[0]
    return factors[0] if len(factors) == 1 else Compose(factors)


@dataclass(frozen=True, eq=False, repr=False)
class Scaled(Matrix):
    """A number times a matrix."""

    factor: float
    base: Matrix

    def __post_init__(self) -> None:
        check_parts("Scaled", (self.base,))
        factor = self.factor
        if isinstance(factor, np.generic):
            factor = factor.item()
        if isinstance(factor, bool) or not isinstance(factor, int | float):
            raise ShapeError(f"a matrix is scaled by a number, got {factor!r}")
        if not math.isfinite(factor):
            raise ShapeError(f"a matrix is scaled by a finite number, got {factor!r}")
        if isinstance(self.base, Scaled):
            factor = factor * self.base.factor
        if isinstance(factor, int) and abs(factor) >= 1 << 62:
            factor = float(factor)
        if isinstance(self.base, Scaled):
            object.__setattr__(self, "base", self.base.base)
        kind = np.dtype(np.int64 if isinstance(factor, int) else float)
        object.__setattr__(self, "factor", factor)
        object.__setattr__(self, "entry_type", np.result_type(kind, self.base.entry_type))

    @property
    def shape(self) -> tuple[int, int]:
        return self.base.shape

    def _apply(self, x: Array) -> Array:
        return np.multiply(self.factor, self.base._apply(x))

    def _apply_t(self, y: Array) -> Array:
        return np.multiply(self.factor, self.base._apply_t(y))

    def _transpose(self) -> Matrix:
        return Scaled(self.factor, self.base.T)

    @property
    def is_nonnegative(self) -> bool:
        return self.factor == 0 or (self.factor > 0 and self.base.is_nonnegative)

    def gram(self) -> Matrix:
        return Scaled(self.factor**2, self.base.gram())

    def abs(self) -> Matrix:
        return Scaled(abs(self.factor), self.base.abs())

    def sqr(self) -> Matrix:
        return Scaled(self.factor**2, self.base.sqr())

    def pinv(self) -> Matrix:
        if self.factor == 0:
            return Scaled(0, self.base.T)
        return Scaled(1 / self.factor, self.base.pinv())

    def trace(self) -> float:
        return self.factor * self.base.trace()

    def sum(self) -> float:
        return self.factor * self.base.sum()

    def _column_sums(self) -> Array:
        return np.asarray(self.factor * self.base._column_sums())

    def _largest_column_sum(self) -> float:
        if self.factor >= 0:
            return self.factor * self.base._largest_column_sum()
        return super()._largest_column_sum()

    def row(self, i: int) -> Array:
        return self.factor * self.base.row(i)

    def column_groups(self) -> Array:
        if self.factor == 0:
            return np.zeros(self.shape[1], dtype=np.int64)
        return self.base.column_groups()

    def __repr__(self) -> str:
        return f"{self.factor!r} * {self.base!r}"
