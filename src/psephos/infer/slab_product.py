"""A product of matrices on vectors of many cells, some rows at a time, in the memory of one vector.

⊗F_i of a vector goes through one axis after the other, and each passage needs a second vector. Here
all axes but the first are gone through for some of its rows at once (a slab), and the first one for
some columns at once, in place. So A x leaves as slabs, of which none is kept unless the caller
keeps it, and Aᵀv is gathered in one buffer, of single precision where that will do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from psephos.matrix import Matrix
from psephos.values import Array

SLAB_CELLS = 1 << 14
"""From so many cells on memory counts."""
SLAB_NUMBERS = 1 << 14
"""Numbers that are gone through at once."""
WRITTEN_AXIS = 320
"""The longest axis whose matrix is written out: longer ones know quicker ways."""


@dataclass(frozen=True, eq=False)
class SlabProduct:
    """⊗F_i, each F_i a matrix of any shape.

    >>> from psephos.matrix import Identity, Prefix
    >>> product = SlabProduct((Prefix(2), Identity(2)))
    >>> rows = product.slabs(product.buffer(np.array([1.0, 2.0, 3.0, 4.0]), float))
    >>> np.concatenate([slab for _, slab in rows])
    array([1., 2., 4., 6.])
    """

    factors: tuple[Matrix, ...]

    @property
    def size(self) -> int:
        """How many numbers come out."""
        return math.prod(factor.shape[0] for factor in self.factors)

    _known: dict[type, list[Array | Matrix]] = field(default_factory=dict, repr=False)

    def _axes(self, kind: type) -> list[Array | Matrix]:
        """The factors, written out in this precision; long ones as they are."""
        if kind not in self._known:
            self._known[kind] = [
                f.dense(limit=f.shape[0] * f.shape[1]).astype(kind)
                if max(f.shape) <= WRITTEN_AXIS
                else f
                for f in self.factors
            ]
        return self._known[kind]

    def _rest(self, rows: bool) -> int:
        return math.prod(factor.shape[0 if rows else 1] for factor in self.factors[1:])

    def buffer(self, cells: Array, kind: type) -> Array:
        """A copy of cells in a buffer that has room for the first axis's rows."""
        buffer = self.empty(kind)
        flat = self.cells_of(buffer)
        for some in pieces(flat.size):
            flat[some] = cells[some]
        return buffer

    def empty(self, kind: type) -> Array:
        """A buffer without content."""
        return np.empty((max(self.factors[0].shape), self._rest(rows=False)), dtype=kind)

    def cells_of(self, buffer: Array) -> Array:
        """The cells that lie in a buffer, all in one row: a view."""
        return buffer[: self.factors[0].shape[1]].reshape(-1)

    def slabs(self, buffer: Array) -> Iterator[tuple[slice, Array]]:
        """A x for the cells x in a buffer, part by part, with their places. Empties the buffer."""
        first, *others = self._axes(buffer.dtype.type)
        m, n = self.factors[0].shape
        self._first_axis(first, buffer, n, m)
        wide = self._rest(rows=True)
        for begin, end in _groups(m, max(wide, buffer.shape[1])):
            part = _through(others, buffer[begin:end])
            yield slice(begin * wide, end * wide), part.reshape(-1)

    def gather(self, values: Array, kind: type) -> Array:
        """A v in a vector of its own."""
        return self.gathered(values, kind)[: self.factors[0].shape[0]].reshape(-1)

    def gathered(self, values: Array, kind: type) -> Array:
        """The same, in a buffer that has room for both sides of the first axis."""
        first, *others = self._axes(kind)
        m, n = self.factors[0].shape
        wide, narrow = self._rest(rows=False), self._rest(rows=True)
        buffer: Array = np.empty((max(m, n), narrow), dtype=kind)
        for begin, end in _groups(n, wide):
            slab: Array = values[begin * wide : end * wide].astype(kind, copy=False)
            part = _through(others, slab.reshape(end - begin, -1))
            buffer[begin:end] = part.reshape(end - begin, -1)
        self._first_axis(first, buffer, n, m)
        return buffer

    def overwrite(self, cells: Array) -> None:
        """Write A x over cells x, where A is square: with no second vector."""
        first, *others = self._axes(cells.dtype.type)
        n = self.factors[0].shape[1]
        buffer = cells.reshape(n, -1)
        for begin, end in _groups(n, buffer.shape[1]):
            buffer[begin:end] = _through(others, buffer[begin:end]).reshape(end - begin, -1)
        self._first_axis(first, buffer, n, n)

    @staticmethod
    def _first_axis(factor: Array | Matrix, buffer: Array, n: int, m: int) -> None:
        for begin, end in _groups(buffer.shape[1], max(n, m)):
            buffer[:m, begin:end] = _along(factor, buffer[None, :n, begin:end])[0]


def pieces(size: int) -> Iterator[slice]:
    """Some numbers after the other."""
    return (slice(i, i + SLAB_NUMBERS) for i in range(0, size, SLAB_NUMBERS))


def dot(*vectors: Array) -> float:
    """The sum of the products of all entries, in double precision."""
    sums = []
    for some in pieces(vectors[0].size):
        product = vectors[0][some].astype(float)
        for vector in vectors[1:]:
            product *= vector[some]
        sums.append(float(product.sum()))
    return math.fsum(sums)


def _groups(count: int, width: int) -> Iterator[tuple[int, int]]:
    """Neighbours of which each has so many numbers."""
    several = max(1, SLAB_NUMBERS // width)
    return ((i, min(i + several, count)) for i in range(0, count, several))


def _through(factors: Sequence[Array | Matrix], rows: Array) -> Array:
    """Every row of cells through all factors."""
    left, table = rows.shape[0], rows
    for factor in factors:
        n = factor.shape[1]
        table = _along(factor, table.reshape(left, n, -1))
        left *= factor.shape[0]
    return table


def _along(factor: Array | Matrix, table: Array) -> Array:
    """(left, n, right) through one factor."""
    if not isinstance(factor, np.ndarray):
        return np.asarray(factor._apply(np.ascontiguousarray(table)))
    if table.shape[2] == 1:
        return np.asarray(table[:, :, 0] @ factor.T)[:, :, None]
    return np.asarray(factor @ table)
