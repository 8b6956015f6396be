"""Declared parts of a table, from the whole down: nation, states, counties.

A part is what a row falls into by some attributes, and by levels of them. Each level of the tree
cuts the parts of the one above, so that every part of a level lies in one part of each level above,
and the smallest parts, one for each combination of the attributes' values, are the leaves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import DomainError, TooLargeError, name_list
from psephos.values import Array, Value, frozen

WHOLE = "all"
"""The first level, which has one part."""
MOST_LEAVES = 10**6


@dataclass(frozen=True, eq=False, repr=False)
class PartTree(Value):
    """Parts in levels; part i of a level holds the leaves at places edges[i] to edges[i + 1] - 1.

    Places are numbers of leaves in the order of the tree: leaf `order[place]` of the attributes'
    combinations is at that place. `attributes` are those that decide a row's leaf, `names` what
    the levels are called, the whole first.

    >>> from psephos.domain.attribute import Attribute
    >>> county = Attribute.categories(["a1", "b1", "a2"])
    >>> county = county.with_level("state", {"A": ["a1", "a2"], "B": ["b1"]})
    >>> tree = PartTree.of(Domain.of(county=county, sex=2), ("state", "county"))
    >>> tree
    PartTree(all 1, state 2, county 3)
    >>> tree.labels(2)
    (('A', 'a1'), ('A', 'a2'), ('B', 'b1'))
    >>> tree.parents(2)
    array([0, 0, 1])
    """

    attributes: tuple[str, ...]
    names: tuple[str, ...]
    order: Array
    edges: tuple[Array, ...]
    level_labels: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", frozen(self.order, np.int64))
        object.__setattr__(self, "edges", tuple(frozen(each, np.int64) for each in self.edges))

    @classmethod
    def of(cls, domain: Domain, by: Sequence[str]) -> PartTree:
        """The tree of some attributes and levels, from the largest parts to the smallest.

        A name is an attribute's, or that of a level of an attribute that is named later. A part
        is a combination of all that is named up to its level, of those that there are.
        """
        if isinstance(by, str) or not by:
            raise DomainError(f'by is a list of names, such as ["state", "county"], got {by!r}')
        names = (WHOLE, *by)
        if len(set(names)) < len(names):
            raise DomainError(f"by names a level twice, or one {WHOLE!r}: {name_list(by)}")
        attributes = tuple(name for name in by if name in domain.names)
        if not attributes:
            raise _strange(domain, by[-1])
        leaves = math.prod(domain[name].size for name in attributes)
        if leaves > MOST_LEAVES:
            raise TooLargeError(
                f"by = {list(by)} has {leaves:,} smallest parts, over the limit of "
                f"{MOST_LEAVES:,}; name fewer or coarser attributes",
                leaves,
                MOST_LEAVES,
            )
        cells = dict(
            zip(
                attributes,
                np.unravel_index(np.arange(leaves), [domain[name].size for name in attributes]),
                strict=True,
            )
        )
        levels = [_level(domain, name, by[place + 1 :], cells) for place, name in enumerate(by)]
        groups = [number for number, _ in levels]
        order = np.lexsort(groups[::-1])
        cuts = np.zeros(leaves, dtype=bool)
        edges = [np.array([0, leaves])]
        for number in groups:
            cuts[1:] |= np.diff(number[order]) != 0
            edges.append(np.array([0, *np.flatnonzero(cuts), leaves]))
        labels = tuple(
            tuple(labels[group] for group in number[order[edge[:-1]]])
            for (number, labels), edge in zip(levels, edges[1:], strict=True)
        )
        if len(edges[-1]) != leaves + 1:
            raise DomainError(f"by ends with the attribute that cuts finest, got {name_list(by)}")
        return cls(attributes, names, order, tuple(edges), ((), *labels))

    @property
    def leaves(self) -> int:
        """How many smallest parts."""
        return len(self.order)

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many parts each level has."""
        return tuple(len(each) - 1 for each in self.edges)

    @cached_property
    def places(self) -> Array:
        """The place of each leaf: the inverse of `order`."""
        places = np.empty_like(self.order)
        places[self.order] = np.arange(len(self.order))
        return places

    def groups(self, level: int) -> Array:
        """The part of a level that each leaf lies in, for leaves as the attributes number them."""
        return (np.searchsorted(self.edges[level], self.places, side="right") - 1).astype(np.int64)

    def parents(self, level: int) -> Array:
        """The part of the level above that each part lies in."""
        starts = self.edges[level][:-1]
        return np.searchsorted(self.edges[level - 1], starts, side="right") - 1

    def children(self, level: int, part: int) -> range:
        """The parts of the next level that lie in a part."""
        low, high = self.edges[level][part : part + 2]
        start, stop = np.searchsorted(self.edges[level + 1], [low, high])
        return range(int(start), int(stop))

    def labels(self, level: int) -> tuple[tuple[str, ...], ...]:
        """What each part of a level is called: the labels of the parts it lies in, and its own."""
        starts = self.edges[level][:-1]
        columns = []
        for above in range(1, level + 1):
            part = np.searchsorted(self.edges[above], starts, side="right") - 1
            columns.append([self.level_labels[above][i] for i in part])
        return tuple(zip(*columns, strict=True)) if columns else ((),)

    def part(self, labels: Sequence[str]) -> tuple[int, int]:
        """The level and the number of a part, by the labels on the way to it."""
        level = len(labels)
        known = self.labels(level) if level < len(self.names) else ()
        if tuple(labels) not in known:
            place = " / ".join(labels)
            some = " / ".join(known[0]) if known and known[0] else self.names[-1]
            raise DomainError(
                f"there is no part {place!r} in by = {list(self.names[1:])}; "
                f"a part is named by its way from the whole, such as {some!r}"
            )
        return level, known.index(tuple(labels))

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name} {size:,}" for name, size in zip(self.names, self.sizes, strict=True)
        )
        return f"PartTree({shown})"


def _level(
    domain: Domain, name: str, later: Sequence[str], cells: dict[str, Array]
) -> tuple[Array, tuple[str, ...]]:
    """The group of each leaf, and the groups' labels."""
    if name in cells:
        return cells[name], domain[name].labels
    for attribute in later:
        if attribute in cells:
            for level in domain[attribute].levels:
                if level.name == name:
                    return level.groups[cells[attribute]].astype(np.int64), level.labels
    raise _strange(domain, name)


def _strange(domain: Domain, name: str) -> DomainError:
    for attribute in domain.names:
        if name in {level.name for level in domain[attribute].levels}:
            return DomainError(
                f"by names {name!r}, which is a level of {attribute!r}: name {attribute!r} after it"
            )
    known = [*domain.names, *(level.name for a in domain.attributes for level in a.levels)]
    return DomainError(
        f"by names {name!r}, which is no attribute and no level of one; have {name_list(known)}"
    )
