"""Plain recovery: every table from the one measured marginal that tells it with the least noise.

The recovery matrix of Dwork (2006) and Ding et al. (2011), in the words of Yaroslavtsev et al.
(2013): R sums the cells of one noisy marginal, whatever else was measured. Answers are unbiased
and their noise is known, but tables do not add up to each other, and least squares on the same
numbers (`choice.form_of`) is never worse. It is here to be compared with.

With precision c_b the marginal on b gives a cell of the marginal on a ⊆ b the variance
Π_{i∈b∖a} nᵢ / c_b, so which b is best depends on a alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce

import numpy as np

from psephos.errors import ShapeError, UnsupportedError
from psephos.inverse.components import sum_to_axes
from psephos.inverse.form import Factors, Form, multiply
from psephos.inverse.marginal_blocks import marginal_axes
from psephos.matrix import Dense, Kron, Matrix, Ones
from psephos.matrix.kron import NamedFactors
from psephos.matrix.marginals import Axes
from psephos.values import Array


@dataclass(frozen=True, eq=False)
class _RowsOnAxis:
    """Queries on one axis by row: Σ w², and the value of a constant row; do rows vary at all?"""

    matrix: Matrix
    squares: Array
    means: Array
    varies: bool

    @classmethod
    def of(cls, matrix: Matrix) -> _RowsOnAxis:
        n = matrix.shape[1]
        ones = np.ones(n)
        squares, means = matrix.sqr().matvec(ones), matrix.matvec(ones) / n
        return cls(matrix, squares, means, bool((squares - n * means**2 > 1e-12 * squares).any()))


@dataclass(frozen=True, eq=False)
class SingleBlocks(Form):
    """Marginals and their precisions; a table is summed from one of them."""

    infinite_where_open = True
    shape: tuple[int, ...]
    axes: tuple[Axes, ...]
    precisions: tuple[float, ...]
    _rows: dict[int, _RowsOnAxis] = field(default_factory=dict, repr=False)
    _best: dict[Axes, tuple[int, float]] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, shape: Sequence[int], blocks: Sequence[Matrix], precisions: Sequence[float]
    ) -> SingleBlocks:
        """Of blocks that are marginals.

        >>> from psephos.matrix import Identity, total
        >>> blocks = [Kron((Identity(2), total(3))), Kron((Identity(2), Identity(3)))]
        >>> SingleBlocks.of((2, 3), blocks, [1.0, 2.0]).variances((Identity(2), total(3)))
        array([1., 1.])
        """
        sets = []
        for block in blocks:
            axes = marginal_axes(tuple(shape), block)
            if axes is None:
                raise UnsupportedError(
                    f"plain recovery sums the cells of a measured marginal, and {block} is none; "
                    "use least squares, which takes all blocks together"
                )
            sets.append(axes)
        return cls(tuple(shape), tuple(sets), tuple(map(float, precisions)))

    def trace(self, factors: Factors) -> float:
        """The summed variance of all answers; infinite if no block contains the product."""
        rows = self._rows_of(factors)
        _, scale = self.best(_varying(rows))
        parts = [np.sum(each.squares if each.varies else each.means**2) for each in rows.values()]
        return float(scale * math.prod(parts))

    def variances(self, factors: Factors) -> Array:
        """The variance of every answer of ⊗Wᵢ, in the order of Kron's rows."""
        rows = self._rows_of(factors)
        _, scale = self.best(_varying(rows))
        parts = [each.squares if each.varies else each.means**2 for each in rows.values()]
        return reduce(np.kron, parts, np.array([scale]))

    def covers(self, factors: Factors) -> bool:
        """Does a single block contain the product?"""
        return math.isfinite(self.best(_varying(self._rows_of(factors)))[1])

    def best(self, axes: Axes) -> tuple[int, float]:
        """The block that tells the marginal on these axes best, and a cell's variance from it."""
        if axes not in self._best:
            inside = self._members[:, list(axes)].all(axis=1)
            cells = math.prod([float(self.shape[i]) for i in axes])
            variances = np.where(inside, self._total_variances / cells, math.inf)
            block = int(variances.argmin())
            self._best[axes] = (block, float(variances[block]))
        return self._best[axes]

    @cached_property
    def _members(self) -> Array:
        """Is an axis (column) in a block (row)?"""
        members = np.zeros((len(self.axes), len(self.shape)), dtype=bool)
        for row, axes in zip(members, self.axes, strict=True):
            row[list(axes)] = True
        return members

    @cached_property
    def _total_variances(self) -> Array:
        """The variance of each block's total: its cells over its precision."""
        cells = [math.prod([float(self.shape[i]) for i in axes]) for axes in self.axes]
        return np.asarray(np.array(cells) / np.array(self.precisions))

    def fit(self, values: Sequence[Array]) -> SummedTables:
        """The noisy marginals as they are."""
        sizes = [math.prod([self.shape[i] for i in axes]) for axes in self.axes]
        lengths = [len(v) for v in values]
        if lengths != sizes:
            raise ShapeError(f"the blocks have {sizes[:9]} answers, got {lengths[:9]}")
        return SummedTables(self, tuple(values))

    @property
    def work(self) -> int:
        return sum(math.prod([self.shape[i] for i in axes]) for axes in self.axes)

    def _rows_of(self, factors: Factors) -> dict[int, _RowsOnAxis]:
        """The rows of every axis that is not merely summed over."""
        named = factors.named if isinstance(factors, NamedFactors) else range(len(factors))
        rows = {}
        for i in named:
            factor = factors[i]
            if isinstance(factor, Ones) and factor.m == 1:
                continue
            if id(factor) not in self._rows:  # the cache holds the matrix, so no other gets its id
                self._rows[id(factor)] = _RowsOnAxis.of(factor)
            rows[i] = self._rows[id(factor)]
        return rows


@dataclass(frozen=True, eq=False)
class SummedTables:
    """Noisy marginals, ready to be summed."""

    form: SingleBlocks
    values: tuple[Array, ...]

    def answers(self, factors: Factors) -> Array:
        """The answers of ⊗Wᵢ from the best block, in the order of Kron's rows."""
        rows = self.form._rows_of(factors)
        axes = _varying(rows)
        block, variance = self.form.best(axes)
        if math.isinf(variance):
            raise UnsupportedError(
                "no single measured marginal contains some of the queries asked; use least "
                "squares, which combines several"
            )
        inside, values = self.form.axes[block], self.values[block]
        columns = values[:, None] if values.ndim == 1 else values
        places = [k for k, i in enumerate(inside) if i in axes]
        grid = [self.form.shape[i] for i in inside]
        table = sum_to_axes(np.ascontiguousarray(columns.T, dtype=float), grid, places).T
        maps = [each.matrix if each.varies else _column(each.means) for each in rows.values()]
        answers = multiply(Kron(tuple(maps)), np.ascontiguousarray(table)) if maps else table
        return np.asarray(answers[:, 0] if values.ndim == 1 else answers)


def _varying(rows: dict[int, _RowsOnAxis]) -> Axes:
    return tuple(i for i, each in rows.items() if each.varies)


def _column(means: Array) -> Matrix:
    return Dense(means[:, None])
