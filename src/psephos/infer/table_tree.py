"""Many tables of one vector of cells, and back: A x and Aᵀθ for a stack of Kronecker products.

Blocks A_j = ⊗ F_ji that begin with the same factors share the work on them. Axes are put in order
of their length, the longest first, so that a sum over an axis leaves the least to do; the blocks
then form a tree, with a branch for each different factor on the next axis:

    x ─┬─ summed over axis 0 ─┬─ summed over axis 1 ── …
       │                      └─ kept on axis 1 ── …
       └─ kept on axis 0 ── …

Kept axes cost nothing, and where all that is left to do is to sum, it is one sum. Before any other
factor is applied, axes are summed that all tables behind it sum over. On the way back a table that
is constant along some axes stays as small as it is until something is added to it that is not.
Cells and answers are in the tree's own order: `arrange` brings cells into it, `arrange_answers` the
answers of a block.

Where tables keep few axes, all factors are left for last. And where a walk through the branches
takes longer than the numbers themselves, the stack is written out as sparse matrices instead
(psephos.infer.written_levels).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import scipy.sparse as sp

from psephos.errors import UnsupportedError
from psephos.infer.written_levels import SPARSE_ENTRIES, Entries, WrittenLevels
from psephos.inverse.form import Factors
from psephos.matrix import Dense, Identity, Kron, Matrix, Ones, is_total
from psephos.matrix.core import totals
from psephos.matrix.marginals import Axes
from psephos.values import Array

WRITTEN_FACTOR_ENTRIES = 1 << 24
"""The most entries of a factor that is written out for the squares of its entries."""
ENTRIES_PER_BRANCH = 10_000
"""Entries of a sparse matrix that take about as long as one branch of the tree."""
SMALL_SUMS = 0.5
"""Marginals have so many cells together, as a share of all, where factors are left for last."""
WALKED_CELLS, MOST_WALKED, LONG_RUN = 2_048, 32, 64
"""The fewest cells of a sum whose last axes are walked along, the most steps of that, and what is
long enough for numpy to go along at a time."""


@dataclass(frozen=True, eq=False)
class TableTree:
    """A stack of products over the axes of a grid, all in the tree's order."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    """The domain's axes, longest first."""
    blocks: tuple[Factors, ...]

    @classmethod
    def of(
        cls, blocks: Sequence[Matrix], shape: tuple[int, ...], *, whole: bool = False
    ) -> TableTree:
        """Blocks over a domain of this shape; `whole` takes each as one factor over all cells.

        Blocks that are no products over the axes are taken so anyway, and all others with them.

        >>> tree = TableTree.of([Kron((Identity(2), Identity(3)))], (2, 3))
        >>> tree.apply(tree.arrange(np.arange(6.0)))
        array([0., 3., 1., 4., 2., 5.])
        """
        split = [_factors(block, shape) for block in blocks]
        if whole or any(factors is None for factors in split):
            return cls((math.prod(shape),), (0,), tuple((block,) for block in blocks))
        order = tuple(sorted(range(len(shape)), key=lambda i: (-shape[i], i)))
        products = (tuple(factors[i] for i in order) for factors in split if factors is not None)
        return cls(tuple(shape[i] for i in order), order, tuple(products))

    @property
    def whole(self) -> bool:
        """Are all axes taken as one?"""
        return len(self.order) == 1

    @cached_property
    def rows(self) -> tuple[int, ...]:
        """The number of answers of each block."""
        return tuple(math.prod(f.shape[0] for f in factors) for factors in self.blocks)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Where the answers of each block begin, and where the last ones end."""
        return tuple(accumulate(self.rows, initial=0))

    @property
    def size(self) -> int:
        """The number of all answers."""
        return self.starts[-1]

    def repeated(self, values: Sequence[float]) -> Array:
        """A number for each block, for each of its answers; without memory if all are the same."""
        if len(set(values)) == 1:
            return np.broadcast_to(np.float64(values[0]), self.size)
        return np.repeat(np.asarray(values, dtype=float), self.rows)

    @property
    def cells(self) -> int:
        """The number of cells."""
        return math.prod(self.shape)

    @property
    def work(self) -> int:
        """How many cells a product takes as long as: all, or what its branches come to."""
        return max(self.cells, self.branch_entries)

    @cached_property
    def squares(self) -> TableTree:
        """The tree of squared entries; the tree itself where all entries are 0 or 1."""
        known: dict[Matrix, Matrix] = {}
        for factor in {factor for factors in self.blocks for factor in factors}:
            known[factor] = _squared(factor)
        if all(factor == square for factor, square in known.items()):
            return self
        blocks = tuple(tuple(known[factor] for factor in factors) for factors in self.blocks)
        return TableTree(self.shape, self.order, blocks)

    @cached_property
    def marginals(self) -> tuple[Axes, ...] | None:
        """The axes that each block keeps, in the tree's order; None where some are no marginals."""
        factors = {factor for block in self.blocks for factor in block}
        if not all(is_total(factor) or isinstance(factor, Identity) for factor in factors):
            return None
        return tuple(
            tuple(i for i, factor in enumerate(block) if not is_total(factor))
            for block in self.blocks
        )

    # ---- products ------------------------------------------------------------------------------

    def apply(self, x: Array) -> Array:
        """A x: the answers of all blocks, one after the other."""
        if self._levels is not None:
            return self._levels.apply(x)
        if self._sums is not None:
            return self._sums.apply(x)
        if len(self.blocks) == 1:  # one pass after the other, in the same memory
            return self._product.matvec(x)
        out = np.empty(self.size)
        self._down(self._root, x.reshape(1, *self.shape), out)
        return out

    def transpose(self, y: Array) -> Array:
        """Aᵀy, in memory of its own."""
        if self._levels is not None:
            return self._levels.transpose(y)
        if self._sums is not None:
            return self._sums.transpose(y)
        if len(self.blocks) == 1:
            cells = self._product.rmatvec(y)
            return cells.copy() if np.shares_memory(cells, y) else cells
        table: Array = self._up(self._root, y, 1)[0]
        if table.size == self.cells:
            return table.reshape(-1)
        return np.broadcast_to(table, self.shape).flatten()

    @cached_property
    def _levels(self) -> WrittenLevels | None:
        """The stack written out; None where the tree is quicker."""
        most = min(SPARSE_ENTRIES, self.branch_entries)
        return WrittenLevels.of(self.blocks, self.shape, most)

    @cached_property
    def _sums(self) -> _FactorsOfSums | None:
        """The stack as factors of marginals; None where these are not much smaller than cells."""
        return _FactorsOfSums.of(self)

    @cached_property
    def _product(self) -> Kron:
        return Kron(self.blocks[0])

    @property
    def branch_entries(self) -> int:
        """What all branches take, in entries of a sparse matrix."""
        return ENTRIES_PER_BRANCH * self._root.branch_count

    @cached_property
    def _root(self) -> _Node:
        return _Node.of(self.blocks, range(len(self.blocks)), 0)

    def _down(self, node: _Node, x: Array, out: Array) -> None:
        """Answers from a table of (rows so far, *axes to come), of length 1 where summed before."""
        left, further = x.shape[0], x.shape[2:]
        if node.blocks:
            table = totals(x.reshape(left, -1, 1))
            for b in node.blocks:
                out[self.starts[b] : self.starts[b + 1]] = table.reshape(-1)
        for factor, child in node.branches:
            table, sizes = x, further
            if is_total(factor):
                table = totals(x.reshape(left, x.shape[1], -1))
            elif not isinstance(factor, Identity):
                table = _summed(x, [i - node.axis + 1 for i in child.totals])
                sizes = table.shape[2:]
                table = factor._apply(table.reshape(left, x.shape[1], -1))
            self._down(child, table.reshape(left * factor.shape[0], *sizes), out)

    def _up(self, node: _Node, y: Array, left: int) -> Array:
        """Aᵀy as (rows so far, *axes to come), of length 1 along each axis where it is constant."""
        result: Array | None = None
        for b in node.blocks:
            table = y[self.starts[b] : self.starts[b + 1]]
            table = table.reshape(left, *[1] * (len(self.shape) - node.axis))
            result = table.copy() if result is None else _broadcast_sum(result, table)
        for factor, child in node.branches:
            rows = factor.shape[0]
            part = self._up(child, y, left * rows)
            further = part.shape[1:]
            if not is_total(factor) and not isinstance(factor, Identity):
                part = factor._apply_t(part.reshape(left, rows, -1))
                rows = factor.shape[1]
            part = part.reshape(left, rows, *further)
            result = part if result is None else _broadcast_sum(result, part)
        if result is None:
            raise UnsupportedError("a tree of tables needs at least one block")
        return result

    # ---- order ---------------------------------------------------------------------------------

    def arrange(self, cells: Array) -> Array:
        """Cells of the domain, in the tree's order."""
        return cells if self.whole else _transposed(cells, self._unordered(self.shape), self.order)

    def restore(self, cells: Array) -> Array:
        """Cells in the tree's order, in the domain's."""
        return cells if self.whole else _transposed(cells, self.shape, np.argsort(self.order))

    def arrange_answers(self, b: int, values: Array) -> Array:
        """The answers of a block, as the domain's axes order them, in the tree's order."""
        if self.whole:
            return values
        rows = [factor.shape[0] for factor in self.blocks[b]]
        return _transposed(values, self._unordered(rows), self.order)

    def restore_answers(self, b: int, values: Array) -> Array:
        """Answers of a block in the tree's order, as the domain's axes order them; or columns."""
        if self.whole:
            return values
        rows, columns = [factor.shape[0] for factor in self.blocks[b]], values.shape[1:]
        places = [*np.argsort(self.order), *range(len(rows), len(rows) + len(columns))]
        table = values.reshape(*rows, *columns).transpose(places)
        return np.ascontiguousarray(table).reshape(values.shape)

    def _unordered(self, sizes: Sequence[int]) -> list[int]:
        """Sizes of the tree's axes, as the domain orders them."""
        return [sizes[place] for place in np.argsort(self.order)]


@dataclass(frozen=True, eq=False)
class _FactorsOfSums:
    """A stack of products of which each sums over most axes: factors are left for last.

    A factor of a long axis, ranges for instance, is quickly applied to a table of two attributes,
    and slowly to all cells before these are summed. Factors of many small tables are one sparse
    matrix, since one product after the other takes longer than its numbers.

    Many tables of short axes share sums over runs of these, and those over longer runs: with eight
    runs of two axes each, 56 tables of three runs stand for all 560 of three axes.
    """

    marginals: TableTree
    """Each set of runs of axes that some products do not sum over."""
    factors: tuple[tuple[int, Kron | None], ...]
    """Of every product, its marginal and what is done to it."""

    @classmethod
    def of(cls, tree: TableTree) -> _FactorsOfSums | None:
        """None where the tree is as quick, or marginals are not small."""
        if tree.whole:
            return None
        single = cls._over_runs(tree, 1)
        worked = sum(factor.shape[1] for _, factor in single.factors if factor is not None)
        if 0 < worked <= SMALL_SUMS * tree.cells:
            return single
        shortest = min(n * m for n, m in pairwise(tree.shape))
        several = cls._over_runs(tree, shortest)
        return several if several.cost < tree.branch_entries else None

    @classmethod
    def _over_runs(cls, tree: TableTree, most: int) -> _FactorsOfSums:
        """With runs of neighbouring axes of at most so many cells, or of one axis."""
        runs = _runs(tree.shape, most)
        sets = [
            tuple(k for k, run in enumerate(runs) if not all(is_total(block[i]) for i in run))
            for block in tree.blocks
        ]
        places = {table: place for place, table in enumerate(dict.fromkeys(sets))}
        factors = []
        for table, block in zip(sets, tree.blocks, strict=True):
            some = tuple(block[i] for k in table for i in runs[k])
            plain = all(isinstance(factor, Identity) for factor in some)
            factors.append((places[table], None if plain else Kron(some)))
        shape = tuple(math.prod(tree.shape[i] for i in run) for run in runs)
        blocks = [
            tuple(Identity(n) if k in table else Ones(1, n) for k, n in enumerate(shape))
            for table in places
        ]
        order = tuple(range(len(shape)))  # never asked for
        return cls(TableTree(shape, order, tuple(blocks)), tuple(factors))

    @cached_property
    def entries(self) -> int:
        """How many entries all factors have as one sparse matrix, or a few more."""
        return sum(
            self.marginals.rows[place]
            if factor is None
            else math.prod(
                f.n if isinstance(f, Identity) else math.prod(f.shape) for f in factor.factors
            )
            for place, factor in self.factors
        )

    @property
    def cost(self) -> int:
        """What a product takes with the sparse matrix, in entries of one."""
        return self.marginals.branch_entries + self.marginals.size + self.entries

    @cached_property
    def matrices(self) -> tuple[sp.csr_array, sp.csr_array] | None:
        """All factors from all marginals, and back; None where one by one is quicker."""
        if self.entries > ENTRIES_PER_BRANCH * len(self.factors):
            return None
        rows, columns, values, begin = [], [], [], 0
        for place, factor in self.factors:
            some = (Identity(self.marginals.rows[place]),) if factor is None else factor.factors
            block = reduce(Entries.kron, map(Entries.of, some))
            rows.append(block.rows + begin)
            columns.append(block.columns + self.marginals.starts[place])
            values.append(block.values)
            begin += block.shape[0]
        coordinates = np.concatenate(rows), np.concatenate(columns)
        shape = begin, self.marginals.size
        matrix = sp.csr_array((np.concatenate(values), coordinates), shape=shape)
        return matrix, sp.csr_array(matrix.T)

    def apply(self, x: Array) -> Array:
        """A x."""
        tables, starts = self.marginals.apply(x), self.marginals.starts
        if self.matrices is not None:
            return np.asarray(self.matrices[0] @ tables)
        answers = []
        for place, factor in self.factors:
            table = tables[starts[place] : starts[place + 1]]
            answers.append(table if factor is None else factor.matvec(table))
        return np.concatenate(answers)

    def transpose(self, y: Array) -> Array:
        """Aᵀy, in memory of its own."""
        if self.matrices is not None:
            return self.marginals.transpose(np.asarray(self.matrices[1] @ y))
        tables, starts, begin = np.zeros(self.marginals.size), self.marginals.starts, 0
        for place, factor in self.factors:
            table = tables[starts[place] : starts[place + 1]]
            size = table.size if factor is None else factor.shape[0]
            part = y[begin : begin + size]
            table += part if factor is None else factor.rmatvec(part)
            begin += size
        return self.marginals.transpose(tables)


def _runs(shape: Sequence[int], most: int) -> list[list[int]]:
    """Neighbouring axes together, as long as they have at most so many cells.

    >>> _runs((9, 2, 2, 2), 4)
    [[0], [1, 2], [3]]
    """
    runs: list[list[int]] = []
    for i, n in enumerate(shape):
        if runs and n * math.prod(shape[j] for j in runs[-1]) <= most:
            runs[-1].append(i)
        else:
            runs.append([i])
    return runs


@dataclass(frozen=True, eq=False)
class _Node:
    """Blocks that began with the same factors: some only sum from here, the others branch."""

    axis: int
    blocks: tuple[int, ...]
    branches: tuple[tuple[Matrix, _Node], ...]
    totals: tuple[int, ...]
    """The axes from here on that all of them sum over."""

    @property
    def branch_count(self) -> int:
        """All branches from here on, and tables that end."""
        return len(self.blocks) + sum(1 + child.branch_count for _, child in self.branches)

    @classmethod
    def of(cls, blocks: Sequence[Factors], family: Sequence[int], axis: int) -> _Node:
        ended: list[int] = []
        branches: dict[Matrix, list[int]] = defaultdict(list)
        for b in family:
            if all(is_total(factor) for factor in blocks[b][axis:]):
                ended.append(b)
            else:
                branches[blocks[b][axis]].append(b)
        children = [(factor, cls.of(blocks, some, axis + 1)) for factor, some in branches.items()]
        rest = range(axis, len(blocks[0]))
        common = [i for i in rest if all(is_total(blocks[b][i]) for b in family)]
        return cls(axis, tuple(ended), tuple(children), tuple(common))


def places(shape: Sequence[int], axes: Axes, subset: Axes) -> Array:
    """For every cell of the table of some axes, the cell of a smaller one that it is summed into.

    >>> places((2, 3), (0, 1), (1,))
    array([0, 1, 2, 0, 1, 2])
    """
    cells: Array = np.zeros(1, dtype=np.int64)
    for i in axes:
        if i in subset:
            cells = np.add.outer(cells * shape[i], np.arange(shape[i])).ravel()
        else:
            cells = np.repeat(cells, shape[i])
    return cells


def _factors(block: Matrix, shape: tuple[int, ...]) -> Factors | None:
    """One factor for each axis; None for a block that is no such product."""
    factors = block.factors if isinstance(block, Kron) else (block,)
    return factors if tuple(factor.shape[1] for factor in factors) == shape else None


def _squared(factor: Matrix) -> Matrix:
    """The matrix of squared entries."""
    if isinstance(factor, Identity) or is_total(factor):
        return factor
    try:
        return factor.sqr()
    except UnsupportedError:
        if math.prod(factor.shape) > WRITTEN_FACTOR_ENTRIES:
            raise
        return Dense(factor.dense(limit=WRITTEN_FACTOR_ENTRIES) ** 2)


def _summed(x: Array, axes: Sequence[int]) -> Array:
    """The sums over some axes, which stay with length 1."""
    for i in axes:
        before, after = x.shape[:i], x.shape[i + 1 :]
        if x.shape[i] > 1:
            x = totals(x.reshape(math.prod(before), x.shape[i], -1)).reshape(*before, 1, *after)
    return x


def _broadcast_sum(a: Array, b: Array) -> Array:
    """The sum of two tables, written over one of them where that has the size of the sum.

    numpy goes along the last axes that both tables have in common, or that one of them is constant
    along. Where these are a few cells long it does little else than begin anew, so that such axes
    are walked here, value by value, and numpy goes along the axes before them.
    """
    shape = tuple(map(max, a.shape, b.shape))
    fitting = (table for table in (a, b) if table.shape == shape and table.flags.writeable)
    out = next(fitting, None)
    out = np.empty(shape, dtype=np.result_type(a, b)) if out is None else out
    last = _walked_axes(a.shape, b.shape)
    if last == len(shape):
        return np.add(a, b, out=out)
    for place in np.ndindex(shape[last:]):
        of_a, of_b = (
            (..., *[i if n > 1 else 0 for i, n in zip(place, table.shape[last:], strict=True)])
            for table in (a, b)
        )
        np.add(a[of_a], b[of_b], out=out[(..., *place)])
    return out


def _walked_axes(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """The first of the last axes that a sum is better walked along; their number if there are none.

    >>> _walked_axes((240, 1, 7, 6, 5, 1, 2), (240, 9, 1, 1, 1, 2, 1))
    5
    """
    shape = tuple(map(max, one, other))
    best = last = len(shape)
    if math.prod(shape) < WALKED_CELLS:
        return last
    longest, steps = 0, 1
    while last and steps <= MOST_WALKED and longest < LONG_RUN:
        run, pattern = 1, None
        for i in range(last - 1, -1, -1):
            if shape[i] > 1:
                kind = one[i] > 1, other[i] > 1
                if pattern not in (None, kind):
                    break
                pattern, run = kind, run * shape[i]
        if run > longest:
            best, longest = last, run
        last -= 1
        steps *= shape[last]
    return best


def _transposed(values: Array, shape: Sequence[int], order: Any) -> Array:
    return np.ascontiguousarray(values.reshape(shape).transpose(order)).reshape(-1)
