"""A stack of small products as a few sparse matrices, one after the other.

Where tables are small, a walk through a tree of sums takes longer than the numbers themselves.
Written out as one sparse matrix, a stack of t tables has t entries for every cell. Cut between two
axes, blocks that begin with the same factors share what these do: the first matrix applies all
different beginnings, the second the rest of each block to the little that is left,

    A = ⊕_j (I ⊗ rest of A_j) · stack of (beginning ⊗ I).

Up to two cuts are tried, and those with the fewest entries are taken: for all tables of up to three
of six attributes a quarter of the entries of one matrix, or less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import accumulate, chain, combinations, pairwise

import numpy as np
import scipy.sparse as sp

from psephos.inverse.form import Factors
from psephos.matrix import Identity, Matrix
from psephos.values import Array

SPARSE_ENTRIES = 120_000
"""The most entries of sparse matrices that a stack is written out as: more leave the cache."""
MOST_CUTS = 2
CALL_ENTRIES = 5_000
"""Entries that take about as long as one more matrix."""


@dataclass(frozen=True, eq=False)
class WrittenLevels:
    """Sparse matrices whose product is a stack of blocks, and their transposes."""

    down: tuple[sp.csr_array, ...]
    up: tuple[sp.csr_array, ...]

    @classmethod
    def of(cls, blocks: Sequence[Factors], shape: Sequence[int], most: int) -> WrittenLevels | None:
        """None where even the best cuts leave more than `most` entries.

        >>> blocks = [(Identity(2), Identity(2)), (Identity(2), Identity(2))]
        >>> WrittenLevels.of(blocks, (2, 2), 10_000).apply(np.arange(4.0))
        array([0., 1., 2., 3., 0., 1., 2., 3.])
        """
        different = {factor for factors in blocks for factor in factors}
        if max(math.prod(factor.shape) for factor in different) > SPARSE_ENTRIES:
            return None
        if math.prod(shape) > most:
            return None
        numbers = {factor: k for k, factor in enumerate(different)}
        family = _Family(
            tuple(shape),
            tuple(tuple(numbers[factor] for factor in factors) for factors in blocks),
            tuple(Entries.of(factor) for factor in numbers),
        )
        last = len(shape)
        costs = {
            pair: family.entries(*pair) + CALL_ENTRIES for pair in combinations(range(last + 1), 2)
        }
        inner = (combinations(range(1, last), k) for k in range(MOST_CUTS + 1))
        ways = [list(pairwise((0, *cuts, last))) for cuts in chain.from_iterable(inner)]
        way = min(ways, key=lambda pairs: sum(costs[pair] for pair in pairs))
        if sum(costs[pair] for pair in way) > most:
            return None
        down = tuple(family.level(*pair) for pair in way)
        return cls(down, tuple(sp.csr_array(level.T) for level in reversed(down)))

    def apply(self, x: Array) -> Array:
        """A x."""
        return np.asarray(reduce(lambda v, level: level @ v, self.down, x))

    def transpose(self, y: Array) -> Array:
        """Aᵀy."""
        return np.asarray(reduce(lambda v, level: level @ v, self.up, y))


@dataclass(frozen=True, eq=False)
class _Family:
    """Blocks by the numbers of their factors, and the entries of these."""

    shape: tuple[int, ...]
    blocks: tuple[tuple[int, ...], ...]
    factors: tuple[Entries, ...]

    @cached_property
    def _rows(self) -> Array:
        """For each block, the rows of its first 0, 1, … factors."""
        return self._products([factor.shape[0] for factor in self.factors])

    @cached_property
    def _sizes(self) -> Array:
        """The same for their entries."""
        return self._products([max(factor.values.size, 1) for factor in self.factors])

    def _products(self, sizes: Sequence[int]) -> Array:
        several = np.array(sizes, dtype=float)[np.array(self.blocks)]
        return np.concatenate([np.ones((len(several), 1)), several.cumprod(axis=1)], axis=1)

    @cached_property
    def _heads(self) -> dict[int, dict[tuple[int, ...], int]]:
        """For each cut, the different beginnings, and the first block that has each."""
        heads: dict[int, dict[tuple[int, ...], int]] = {0: {(): 0}}
        for cut in range(1, len(self.shape)):
            heads[cut] = {}
            for b, block in enumerate(self.blocks):
                heads[cut].setdefault(block[:cut], b)
        return heads

    def _targets(self, end: int) -> list[int]:
        """Blocks that stand for what a level leads to: at the last, all of them."""
        last = end == len(self.shape)
        return list(range(len(self.blocks))) if last else list(self._heads[end].values())

    def entries(self, begin: int, end: int) -> float:
        """The entries of a level between two cuts, without writing it out."""
        some = self._targets(end)
        sizes = self._rows[some, begin] * self._sizes[some, end] / self._sizes[some, begin]
        return float(sizes.sum()) * math.prod(self.shape[end:])

    def level(self, begin: int, end: int) -> sp.csr_array:
        """The sparse matrix between two cuts."""
        before, after = (math.prod(self.shape[cut:]) for cut in (begin, end))
        sources = self._heads[begin]
        widths = (int(self._rows[b, begin]) * before for b in sources.values())
        columns = dict(zip(sources, accumulate(widths, initial=0), strict=False))
        width = sum(int(self._rows[b, begin]) * before for b in sources.values())
        parts, start = [], 0
        for b in self._targets(end):
            head = self.blocks[b]
            middle = [self.factors[f] for f in head[begin:end]]
            outer = [Entries.identity(int(self._rows[b, begin])), Entries.identity(after)]
            several = [each for each in (outer[0], *middle, outer[1]) if each.shape != (1, 1)]
            part = reduce(Entries.kron, several or middle)
            parts.append((start + part.rows, columns[head[:begin]] + part.columns, part.values))
            start += int(self._rows[b, end]) * after
        rows, places, values = (np.concatenate(each) for each in zip(*parts, strict=True))
        short = rows.astype(np.int32), places.astype(np.int32)  # half the memory of others
        return sp.csr_array((values, short), shape=(start, width))


@dataclass(frozen=True, eq=False)
class Entries:
    """The entries of a matrix that are not zero, and where they stand."""

    shape: tuple[int, int]
    rows: Array
    columns: Array
    values: Array

    @classmethod
    def of(cls, factor: Matrix) -> Entries:
        if isinstance(factor, Identity):
            return cls.identity(factor.n)
        array = factor.dense()
        rows, columns = np.nonzero(array)
        return cls(factor.shape, rows, columns, array[rows, columns].astype(float))

    @classmethod
    def identity(cls, n: int) -> Entries:
        places = np.arange(n)
        return cls((n, n), places, places, np.ones(n))

    def kron(self, other: Entries) -> Entries:
        rows, columns = (self.shape[axis] * other.shape[axis] for axis in (0, 1))
        return Entries(
            (rows, columns),
            np.add.outer(self.rows * other.shape[0], other.rows).ravel(),
            np.add.outer(self.columns * other.shape[1], other.columns).ravel(),
            np.multiply.outer(self.values, other.values).ravel(),
        )
