"""Tables in groups of few attributes, where a vector of all cells does not fit.

A group is a set of attributes. All tables that look at no others are sums of its cells, so inside a
group everything adds up. Groups are found from the questions alone. Each starts with the largest
table that has no group yet, and takes in one attribute after another while its cells stay few: the
one that brings most other tables nearest to being inside, for its size.

What two groups both tell should be the same:

    shared tables   of all attributes that two groups have in common, cell by cell
    common tables   that readers can compute from published tables of both: sums over some of their
                    attributes, down to what both tell apart (single years here, age groups there)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from itertools import product as choices_of
from typing import NamedTuple

import numpy as np

from psephos.infer.nonnegative import NONNEGATIVE_CELLS
from psephos.matrix import is_total
from psephos.matrix.marginals import Axes
from psephos.values import Array
from psephos.workload.product import product
from psephos.workload.queries import identity
from psephos.workload.workload import Workload

GROUP_CELLS = 20_000
"""Groups grow up to so many cells; a table that has more is a group of its own."""
NEARNESS = 8.0
"""How much more a table counts that lacks one attribute less of being inside a group."""
COMMON_ATTRIBUTES = 4
"""Common tables have at most so many attributes."""
Partitions = tuple[bytes, ...]
"""For each attribute of a table the numbers of its values' classes, as bytes."""


@dataclass(frozen=True)
class TableGroup:
    """Attributes by their places, and all products that look at no others."""

    axes: Axes
    products: tuple[int, ...]


class SharedTable(NamedTuple):
    """Attributes that several groups have in common."""

    axes: Axes
    groups: tuple[int, ...]


class CommonTable(NamedTuple):
    """A table that products of several groups add up to."""

    axes: Axes
    partitions: Partitions
    groups: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Grouping:
    """The groups of a workload's tables.

    >>> import psephos as ps
    >>> domain = ps.Domain.of(a=50, b=20, c=20, d=50)
    >>> grouping = Grouping.of(ps.marginals(domain, k=2))
    >>> [group.axes for group in grouping.groups]
    [(0, 3), (0, 1, 2), (1, 2, 3)]
    """

    workload: Workload
    groups: tuple[TableGroup, ...]

    @classmethod
    def of(cls, workload: Workload) -> Grouping:
        """Groups that hold every product but those of too many cells."""
        shape = workload.domain.shape
        axes = [_axes_of(workload, i) for i in range(len(workload.products))]
        sizes = [math.prod(shape[axis] for axis in each) for each in axes]
        inside = np.zeros((len(axes), len(shape)), dtype=bool)
        for i, each in enumerate(axes):
            inside[i, list(each)] = True
        waiting = np.array([size <= NONNEGATIVE_CELLS for size in sizes])
        groups: list[set[int]] = []
        for i in sorted(range(len(axes)), key=lambda i: (-sizes[i], i)):
            if waiting[i]:
                start = set(axes[i]) or {int(np.argmin(shape))}
                groups.append(_grown(start, inside[waiting], shape))
                waiting &= ~_held(inside, groups[-1])
        groups = _without_idle(groups, inside, shape)
        numbers = [np.flatnonzero(_held(inside, group)).tolist() for group in groups]
        pairs = zip(groups, numbers, strict=True)
        return cls(workload, tuple(TableGroup(tuple(sorted(g)), tuple(n)) for g, n in pairs))

    @cached_property
    def first(self) -> dict[int, int]:
        """For every product the group that answers it: the first that holds it."""
        first: dict[int, int] = {}
        for g, group in enumerate(self.groups):
            for i in group.products:
                first.setdefault(i, g)
        return first

    def cells(self, group: int) -> int:
        """How many cells a group has."""
        return math.prod(self.workload.domain.shape[axis] for axis in self.groups[group].axes)

    def names(self, axes: Axes) -> tuple[str, ...]:
        """The names of some attributes."""
        return tuple(self.workload.domain.names[axis] for axis in axes)

    def inner(self, group: int, products: Iterable[int] | None = None) -> Workload:
        """Products over a group's attributes alone; all that it holds, if none are named."""
        axes, held = self.groups[group].axes, self.groups[group].products
        numbers = held if products is None else products
        domain = self.workload.domain.project(self.names(axes))
        return Workload(domain, [self.workload.products[i] for i in numbers])

    def kept(self, group: int) -> Workload:
        """What a group's rounding keeps: tables it answers, and those in common with others."""
        answered = self.inner(group, [i for i, g in self.first.items() if g == group])
        commons = {table.axes for table in self.commons if group in table.groups} - {()}
        commons -= {a for a in commons if any(set(a) < set(larger) for larger in commons)}
        tables = [product(dict.fromkeys(self.names(a), identity())) for a in sorted(commons)]
        known = [set(each.items) for each in answered.products]
        others = [table for table in tables if set(table.items) not in known]
        return Workload(answered.domain, [*answered.products, *others])

    @cached_property
    def shared(self) -> tuple[SharedTable, ...]:
        """Shared tables, without those that follow from larger ones."""
        sets = [set(group.axes) for group in self.groups]
        commons = {tuple(sorted(g & h)) for g, h in combinations(sets, 2)} - {()}
        tables: list[SharedTable] = []
        for axes in sorted(commons, key=lambda axes: (-len(axes), axes)):
            members = tuple(g for g, those in enumerate(sets) if those.issuperset(axes))
            larger = (table for table in tables if set(axes) < set(table.axes))
            if not any(set(members) <= set(table.groups) for table in larger):
                tables.append(SharedTable(axes, members))
        return tuple(tables)

    @cached_property
    def commons(self) -> tuple[CommonTable, ...]:
        """Common tables, the total first."""
        told: dict[int, list[bytes]] = {}
        partitions = {i: self._partitions(i) for i in self.first}
        for pairs in partitions.values():
            for axis, partition in pairs:
                if partition not in told.setdefault(axis, []):
                    told[axis].append(partition)
        coarser = {
            (axis, p): [q for q in those if _is_coarser(q, p)]
            for axis, those in told.items()
            for p in those
        }
        members: dict[tuple[Axes, Partitions], set[int]] = {}
        for i, g in self.first.items():
            for axes, some in _subtables(partitions[i]):
                finest = zip(axes, some, strict=True)
                for each in choices_of(*(coarser[pair] for pair in finest)):
                    members.setdefault((axes, each), set()).add(g)
        order = sorted(members, key=lambda key: (len(key[0]), key))
        tables = [CommonTable(*key, tuple(sorted(members[key]))) for key in order]
        return tuple(table for table in tables if len(table.groups) > 1)

    def _partitions(self, number: int) -> list[tuple[int, bytes]]:
        """Which values of its attributes a product tells apart."""
        factors = self.workload.factors(number)
        axes = _axes_of(self.workload, number)
        return [(a, factors[a].column_groups().astype(np.int64).tobytes()) for a in axes]


def _axes_of(workload: Workload, number: int) -> Axes:
    """The attributes that a product looks at."""
    factors = workload.factors(number)
    return tuple(axis for axis, factor in enumerate(factors) if not is_total(factor))


def _grown(members: set[int], waiting: Array, shape: tuple[int, ...]) -> set[int]:
    """A group's attributes, with those that take in other tables while its cells stay few."""
    while True:
        cells = math.prod(shape[axis] for axis in members)
        outside = [axis for axis in range(len(shape)) if axis not in members]
        missing = waiting[:, outside].sum(axis=1)
        gains = waiting.T @ np.where(missing > 0, NEARNESS ** -missing.astype(float), 0.0)
        worth = {
            axis: gains[axis] / math.log(1 + shape[axis])
            for axis in outside
            if gains[axis] > 0 and cells * shape[axis] <= GROUP_CELLS
        }
        if not worth:
            return members
        members = members | {max(worth, key=lambda axis: (worth[axis], -axis))}


def _held(inside: Array, members: set[int]) -> Array:
    """Which products look at attributes of a group alone."""
    others = [axis for axis in range(inside.shape[1]) if axis not in members]
    return np.asarray(~inside[:, others].any(axis=1))


def _without_idle(groups: list[set[int]], inside: Array, shape: tuple[int, ...]) -> list[set[int]]:
    """Groups without attributes that only tables need which another group has as well."""
    groups = list(groups)
    held = np.array([_held(inside, members) for members in groups])
    for g, members in enumerate(groups):
        for axis in sorted(members, key=lambda axis: (-shape[axis], axis)):
            fewer = _held(inside, groups[g] - {axis})
            elsewhere = np.delete(held, g, axis=0).any(axis=0)
            if len(groups[g]) > 1 and (fewer | elsewhere | ~held[g]).all():
                groups[g], held[g] = groups[g] - {axis}, fewer
    return [members for members, some in zip(groups, held, strict=True) if some.any()]


def _subtables(partitions: Sequence[tuple[int, bytes]]) -> Iterator[tuple[Axes, Partitions]]:
    """All tables of few attributes that a product adds up to, as finely as it tells them."""
    for size in range(min(COMMON_ATTRIBUTES, len(partitions)) + 1):
        for some in combinations(partitions, size):
            yield tuple(axis for axis, _ in some), tuple(partition for _, partition in some)


def classes_of(partition: bytes) -> Array:
    """The number of each value's class."""
    return np.frombuffer(partition, dtype=np.int64)


def _is_coarser(coarse: bytes, fine: bytes) -> bool:
    """Is every class of the one a union of classes of the other?"""
    outer, inner = classes_of(coarse), classes_of(fine)
    image = np.zeros(inner.max() + 1, dtype=np.int64)
    image[inner] = outer
    return bool((image[inner] == outer).all())
