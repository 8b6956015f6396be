"""Blocks that treat some cells alike: estimated on the merged cells, where they are smaller.

If every block is A_j P with one partition P for each attribute, then so is everything it can
answer: the problem is the same with A_j on fewer cells, and queries W = W' P ask W' there.
Partitions that blocks are made with are always used. Where there is no closed form otherwise, equal
columns are looked for (`Merging.of_columns`): by attribute, or over all cells as one attribute.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from psephos.errors import ShapeError, UnsupportedError
from psephos.inverse.form import Factors, Fitted, FittedVector, Form
from psephos.matrix import Compose, Identity, Kron, Matrix, Ones, Partition
from psephos.matrix.columns import select_columns
from psephos.matrix.combine import join_groups
from psephos.values import Array

GROUPED_COLUMNS = 20_000_000
"""The most cells whose columns are compared where blocks are no products."""


@dataclass(frozen=True, eq=False)
class Merging:
    """A group for every cell of each axis, and a first cell for every group.

    One axis can stand for all cells of a domain of several.
    """

    groups: tuple[Array, ...]
    first: tuple[Array, ...]

    @classmethod
    def of(cls, blocks: Sequence[Matrix], shape: tuple[int, ...]) -> Merging | None:
        """The cells that all blocks treat alike by their make-up; None if there are none."""
        axes = _factors_by_axis(blocks, shape)
        return None if axes is None else cls._of_axes(axes, shape, _groups)

    @classmethod
    def of_columns(cls, blocks: Sequence[Matrix], shape: tuple[int, ...]) -> Merging | None:
        """The cells whose columns are equal in every block; None if there are none.

        >>> from psephos.matrix import Ranges
        >>> Merging.of_columns([Ranges.intervals(9, [0, 4], [6, 8])], (9,)).groups
        (array([0, 0, 0, 0, 1, 1, 1, 2, 2]),)
        """
        axes, cells = _factors_by_axis(blocks, shape), math.prod(shape)
        if axes is not None:
            return cls._of_axes(axes, shape, _equal_columns)
        if cells > GROUPED_COLUMNS:
            return None
        return cls._of_axes([{id(b): b for b in blocks}.values()], (cells,), _equal_columns)

    @classmethod
    def _of_axes(
        cls,
        axes: Sequence[Iterable[Matrix]],
        shape: tuple[int, ...],
        grouping: Callable[[Matrix], Array],
    ) -> Merging | None:
        groups = [
            join_groups([np.zeros(n, dtype=np.int64), *(grouping(f) for f in different)])
            for n, different in zip(shape, axes, strict=True)
        ]
        if all(g[-1] == g.size - 1 for g in groups):
            return None
        firsts = tuple(np.unique(g, return_index=True)[1] for g in groups)
        return cls(tuple(groups), firsts)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(first.size for first in self.first)

    @property
    def sizes(self) -> Array:
        """How many cells every merged cell has."""
        sizes: Array = np.ones(1, dtype=np.int64)
        for groups in self.groups:
            sizes = np.multiply.outer(sizes, np.bincount(groups)).ravel()
        return sizes

    def blocks(self, blocks: Sequence[Matrix]) -> list[Kron]:
        """A' for every block A' P; factors that blocks share stay shared."""
        factors: dict[tuple[int, int], Matrix] = {}
        merged = []
        for block in blocks:
            each = self._axis_factors(block.factors if isinstance(block, Kron) else (block,))
            keys = [(i, id(factor)) for i, factor in enumerate(each)]
            for (i, name), factor in zip(keys, each, strict=True):
                if (i, name) not in factors:
                    factors[i, name] = _on_groups(factor, self.groups[i], self.first[i])
            merged.append(Kron(tuple(factors[key] for key in keys)))
        return merged

    def _axis_factors(self, factors: Factors) -> Factors:
        """One factor for each axis, or for the one that stands for all cells."""
        if tuple(f.shape[1] for f in factors) == tuple(g.size for g in self.groups):
            return factors
        if len(self.groups) > 1:
            raise ShapeError("cells are merged by attribute, and this is no product of them")
        return (Kron(factors),)

    def queries(self, factors: Factors) -> Factors:
        """W' for queries W' P."""
        triples = zip(self._axis_factors(factors), self.groups, self.first, strict=True)
        return tuple(_on_groups(w, g, first) for w, g, first in triples)

    def treats_alike(self, factors: Factors) -> bool:
        """Do the queries tell no cells of a group apart?"""
        triples = zip(self._axis_factors(factors), self.groups, self.first, strict=True)
        for w, g, first in triples:
            if g[-1] < g.size - 1:
                alike = w.column_groups()
                if not (alike == alike[first][g]).all():
                    return False
        return True


def _factors_by_axis(
    blocks: Sequence[Matrix], shape: tuple[int, ...]
) -> list[Iterable[Matrix]] | None:
    """The different factors of all blocks, axis by axis; None where a block is no such product."""
    krons = [b for b in blocks if isinstance(b, Kron) and b.grid == shape]
    if len(krons) < len(blocks):
        return None
    factors: list[dict[int, Matrix]] = [{} for _ in shape]
    for block in krons:  # a total tells no cells apart
        for axis, factor in block.active:
            factors[axis][id(factor)] = factor
    return [different.values() for different in factors]


def _equal_columns(factor: Matrix) -> Array:
    """The group of every cell by the columns of a factor; each on its own if that is not known."""
    try:
        return factor.column_groups()
    except UnsupportedError:
        return np.arange(factor.shape[1])


def _groups(factor: Matrix) -> Array:
    """The group of every cell by the make-up of a factor."""
    if isinstance(factor, Ones):
        return np.zeros(factor.n, dtype=np.int64)
    last = factor.parts[-1] if isinstance(factor, Compose) else factor
    return last.column_groups() if isinstance(last, Partition) else np.arange(factor.shape[1])


def _on_groups(factor: Matrix, groups: Array, first: Array) -> Matrix:
    """The factor on one cell of every group."""
    if groups[-1] == groups.size - 1:
        return factor
    if isinstance(factor, Ones) and factor.m == 1 and first.size == 1:
        return Identity(1)
    return select_columns(factor, first)


@dataclass(frozen=True, eq=False)
class MergedForm(Form):
    """The form on merged cells."""

    inner: Form
    merging: Merging

    @property
    def exact(self) -> bool:  # type: ignore[override]
        return self.inner.exact

    def traces(self, products: Sequence[Factors]) -> Array:
        return self.inner.traces([self.merging.queries(factors) for factors in products])

    def trace_spreads(self, products: Sequence[Factors]) -> Array:
        return self.inner.trace_spreads([self.merging.queries(factors) for factors in products])

    def trace(self, factors: Factors) -> float:
        return self.inner.trace(self.merging.queries(factors))

    def variances(self, factors: Factors) -> Array:
        return self.inner.variances(self.merging.queries(factors))

    def covers(self, factors: Factors) -> bool:
        alike = self.merging.treats_alike(factors)
        return alike and self.inner.covers(self.merging.queries(factors))

    def fit(self, values: Sequence[Array]) -> Fitted:
        return FittedGroups(self.inner.fit(values), self.merging)

    @property
    def work(self) -> int:
        return self.inner.work

    @property
    def sampling_work(self) -> int:
        return self.inner.sampling_work


@dataclass(frozen=True, eq=False)
class FittedGroups:
    """An estimate of merged cells; a single cell gets an even share of its group."""

    inner: Fitted
    merging: Merging

    def answers(self, factors: Factors) -> Array:
        return self.inner.answers(self.merging.queries(factors))

    @property
    def vector(self) -> Array:
        if not isinstance(self.inner, FittedVector):
            raise AttributeError("vector")
        columns = self.inner.vector.shape[1:]
        table = self.inner.vector.reshape(*self.merging.shape, *columns)
        for axis, g in enumerate(self.merging.groups):
            shares = 1 / np.bincount(g)[g]
            side = [1] * table.ndim
            side[axis] = g.size
            table = np.take(table, g, axis=axis) * shares.reshape(side)
        return np.asarray(table.reshape(-1, *columns))
