"""Cells of groups of tables: brought to agree with each other, then to whole numbers.

Groups have estimates of their own (`table_groups`, `some_attributes`). Where two of them share
attributes S, the table of S becomes the average m_S over all groups that have it, and each of them
is scaled to it,

    x_g ← x_g · m_S / Σ x_g   along S   (Deming and Stephan 1940),

for all shared tables, a few times over. Averages of non-negative tables with one total are such
tables, so nothing becomes negative, and totals stay.

*Whole numbers.* Each group is rounded so that its tables stay where they are, those in common with
other groups too. Then single cells move to their other neighbour until the sum is the common total.
Shared tables have whole numbers of their own. Where those of a group have no attribute in common,
single rows then move along their attributes until the group meets all of them: groups that share
one attribute, or several one by one, agree exactly. What is left of the differences between groups
is counted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from psephos.infer.entropy import NEAR_TIE
from psephos.infer.rounding import round_cells
from psephos.infer.table_groups import CommonTable, Grouping, classes_of
from psephos.matrix.marginals import Axes
from psephos.values import Array

AGREEMENT_SWEEPS = 40
"""The most sweeps over all shared tables."""
SMALL_DIFFERENCE = 0.05
"""Groups agree when no shared number is farther from its average, in rows."""
MOST_MOVED = 2.0
"""Groups that are farther from a shared table are not moved to it by rounding."""


@dataclass(frozen=True, eq=False)
class GroupCells:
    """A vector of cells for each group."""

    grouping: Grouping
    vectors: tuple[Array, ...]

    def grid(self, group: int) -> Array:
        """A group's cells, an axis for each attribute."""
        shape, axes = self.grouping.workload.domain.shape, self.grouping.groups[group].axes
        return self.vectors[group].reshape([shape[axis] for axis in axes])

    def table(self, group: int, axes: Axes) -> Array:
        """The table of some attributes of a group, with one entry along the others."""
        members = self.grouping.groups[group].axes
        others = tuple(k for k, axis in enumerate(members) if axis not in axes)
        return np.asarray(self.grid(group).sum(axis=others, keepdims=True))

    def common(self, group: int, table: CommonTable) -> Array:
        """A common table, in classes of values."""
        cells = self.table(group, table.axes)
        cells = cells.reshape([self.grouping.workload.domain.shape[a] for a in table.axes])
        for k, partition in enumerate(table.partitions):
            classes = classes_of(partition)
            sums = np.zeros((classes.max() + 1, *np.delete(cells.shape, k)), dtype=cells.dtype)
            np.add.at(sums, classes, np.moveaxis(cells, k, 0))
            cells = np.moveaxis(sums, 0, k)
        return cells

    def answers(self, number: int) -> Array:
        """The answers of a product of the grouping's workload, from the group that has it."""
        group = self.grouping.first[number]
        return self.grouping.inner(group, [number]).answer(self.grid(group))

    def replaced(self, group: int, vector: Array) -> GroupCells:
        """The same with another vector for one group."""
        vectors = (*self.vectors[:group], vector, *self.vectors[group + 1 :])
        return GroupCells(self.grouping, vectors)


def agreeing(
    cells: GroupCells, possible: Sequence[Array | None], claim: int | None = None
) -> tuple[GroupCells, int]:
    """Cells whose shared tables agree, and the sweeps that it took.

    `possible` says for each group how many possible cells each of its cells stands for, None where
    each for as many. A claimed number of sweeps is believed where
    the last digits of floats decide whether tables agree.
    """
    for sweep in range(AGREEMENT_SWEEPS):
        largest = 0.0
        for axes, members in cells.grouping.shared:
            margins = [cells.table(g, axes) for g in members]
            flat = np.array([margin.reshape(-1) for margin in margins])
            mean = flat.mean(axis=0)
            largest = max(largest, float(np.abs(flat - mean).max()))
            for g, margin in zip(members, margins, strict=True):
                x = scaled(cells.grid(g), margin, mean.reshape(margin.shape), possible[g])
                cells = cells.replaced(g, x)
        slack = 0.0 if claim is None else math.copysign(NEAR_TIE, sweep + 1 - claim)
        if largest <= SMALL_DIFFERENCE * (1 + slack):
            return cells, sweep + 1
    return cells, AGREEMENT_SWEEPS


def scaled(grid: Array, margin: Array, target: Array, possible: Array | None) -> Array:
    """Cells in proportion to a grid, with another table along some axes.

    Where the grid has nothing to scale, the target is spread evenly over the possible cells.

    >>> grid = np.array([[1.0, 3.0], [0.0, 0.0]])
    >>> scaled(grid, np.array([[4.0], [0.0]]), np.array([[2.0], [2.0]]), None)
    array([0.5, 1.5, 1. , 1. ])
    """
    x = grid * np.divide(target, margin, out=np.zeros(margin.shape), where=margin > 0)
    missing = np.where(margin > 0, 0.0, target)
    if missing.any():
        space = np.ones(grid.size) if possible is None else possible.astype(float)
        space = space.reshape(grid.shape)
        axes = tuple(k for k, n in enumerate(margin.shape) if n == 1)
        spaces = space.sum(axis=axes, keepdims=True)
        x = x + space * np.divide(missing, spaces, out=np.zeros(spaces.shape), where=spaces > 0)
    return np.asarray(x.reshape(-1))


def rounded(cells: GroupCells, total: int | None) -> GroupCells:
    """The cells of all groups in whole numbers."""
    targets = _whole_tables(cells)
    vectors = []
    for g, x in enumerate(cells.vectors):
        whole = with_sum(round_cells(x, cells.grouping.kept(g)), x, total)
        axes, shape = cells.grouping.groups[g].axes, cells.grid(g).shape
        for shared in _separate(cells.grouping, g):
            places, target = tuple(axes.index(axis) for axis in shared), targets[shared]
            if np.abs(cells.table(g, shared).reshape(target.shape) - target).max() < MOST_MOVED:
                whole = with_table(whole.reshape(shape), x.reshape(shape), places, target)
        vectors.append(whole)
    return GroupCells(cells.grouping, tuple(vectors))


def _whole_tables(cells: GroupCells) -> dict[Axes, Array]:
    """Shared tables in whole numbers; those that follow from larger ones add up."""
    tables: dict[Axes, Array] = {}
    for axes, members in cells.grouping.shared:  # large ones first
        larger = next((other for other in tables if set(axes) < set(other)), None)
        if larger is not None:
            others = tuple(k for k, axis in enumerate(larger) if axis not in axes)
            tables[axes] = tables[larger].sum(axis=others)
            continue
        mean = np.mean([cells.table(g, axes).reshape(-1) for g in members], axis=0)
        whole = np.diff(np.rint(np.cumsum(mean)), prepend=0).astype(np.int64)
        tables[axes] = whole.reshape([cells.grouping.workload.domain.shape[a] for a in axes])
    return tables


def _separate(grouping: Grouping, group: int) -> list[Axes]:
    """A group's largest shared tables, if no two of them look at one attribute; else none."""
    tables = [axes for axes, members in grouping.shared if group in members]
    tables = [axes for axes in tables if not any(set(axes) < set(other) for other in tables)]
    overlap = any(set(axes) & set(other) for axes, other in combinations(tables, 2))
    return [] if overlap else tables


def with_table(whole: Array, x: Array, places: Axes, target: Array) -> Array:
    """Whole cells with this table along some axes, as flat cells; other axes keep theirs.

    Rows move from values that have too many to such as have too few, one at a time, and stay where
    they are along all other axes: where that brings both cells nearest to x.

    >>> whole, x = np.array([[2, 0], [1, 1]]), np.array([[1.4, 0.2], [1.0, 1.4]])
    >>> with_table(whole, x, (0,), np.array([1, 3]))
    array([1, 0, 2, 1])
    """
    shape, front = whole.shape, range(len(places))
    flat = (target.size, -1)
    moved = np.moveaxis(whole, places, front)
    z, real = moved.reshape(flat).copy(), np.moveaxis(x, places, front).reshape(flat)
    gaps = z.sum(axis=1) - target.reshape(-1)
    for _ in range(int(np.abs(gaps).sum())):
        over, under = int(np.argmax(gaps)), int(np.argmin(gaps))
        gain = (z[over] - real[over]) - (z[under] - real[under])
        gain[(z[over] == 0) | (real[under] == 0)] = -np.inf
        best = int(np.argmax(gain))
        if gaps[over] <= 0 or gaps[under] >= 0 or gain[best] == -np.inf:
            break
        z[over, best] -= 1
        z[under, best] += 1
        gaps[over] -= 1
        gaps[under] += 1
    back = np.moveaxis(z.reshape(moved.shape), front, places)
    return np.asarray(back.reshape(math.prod(shape)))


def with_sum(whole: Array, target: Array, total: int | None) -> Array:
    """Whole numbers with this sum: cells move to the other neighbour of their target.

    >>> with_sum(np.array([1, 2, 0]), np.array([1.4, 2.0, 0.1]), 4)
    array([2, 2, 0])
    """
    if total is None or whole.sum() == total:
        return whole
    result = whole.copy()
    sign = 1 if whole.sum() < total else -1
    room = sign * (target - whole)
    able = np.flatnonzero(room > 0)
    number = abs(total - int(whole.sum()))
    result[able[np.argsort(-room[able], kind="stable")[:number]]] += sign
    return result


@dataclass(frozen=True)
class Disagreement:
    """How far apart numbers are that follow from the tables of several groups, in rows."""

    largest: int
    root_mean_square: float
    numbers: int
    """How many numbers were compared."""
    attributes: tuple[str, ...]
    """Of the table with the largest difference."""

    @classmethod
    def of(cls, whole: GroupCells) -> Disagreement:
        """The largest and the typical difference, over all common tables."""
        largest, squares, numbers = 0, 0.0, 0
        where: Axes = ()
        for table in whole.grouping.commons:
            each = np.array([whole.common(g, table).reshape(-1) for g in table.groups])
            spread = each.max(axis=0) - each.min(axis=0)
            squares, numbers = squares + float((spread**2.0).sum()), numbers + spread.size
            if spread.max() > largest:
                largest, where = int(spread.max()), table.axes
        typical = math.sqrt(squares / max(1, numbers))
        return cls(largest, typical, numbers, whole.grouping.names(where))
