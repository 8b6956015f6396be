"""Coordinates of products of classes: where they stand, and the maps to and from them.

A combination has one section of every axis (`axis_classes`), and coordinates are held where some
block sees it. Where all blocks that see a combination have one factor on an axis, and that factor
sees little of it, they are held on what it sees: a table over some attributes has as many
coordinates as it has cells, whatever other tables ask of the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from psephos.inverse.axis_classes import AxisClasses, NarrowAxis
from psephos.inverse.form import Factors
from psephos.matrix import Identity, Matrix
from psephos.values import Array

KEPT_IMAGE = 4_000_000
"""The most numbers of what queries make of an axis that are kept for the next time."""
Combination = tuple[int, ...]
"""One section of every axis, by its number."""
SeenBy = tuple[int | None, ...]
"""For every axis the factor, by its number, that alone sees a combination there; else None."""


@dataclass(frozen=True, eq=False)
class ClassCoordinates:
    """The coordinates of blocks with common classes on every axis."""

    axes: tuple[AxisClasses, ...]
    which: tuple[tuple[int, ...], ...]
    """For every block, which of the factors of each axis it has."""
    factors: tuple[Factors, ...]
    """They, on the axes of the classes."""

    @cached_property
    def seen_by(self) -> dict[Combination, SeenBy]:
        """Every combination that some block sees, and for each axis the factor that alone does."""
        blocks: dict[Combination, list[tuple[int, ...]]] = {}
        for which in self.which:
            for combination in product(*self._visible(which)):
                blocks.setdefault(combination, []).append(which)
        seen_by = {}
        for combination, several in blocks.items():
            alone = [
                factors[0] if len(set(factors)) == 1 else None
                for factors in zip(*several, strict=True)
            ]
            seen_by[combination] = tuple(
                f if f is not None and self._is_narrow(i, f, s) else None
                for i, (f, s) in enumerate(zip(alone, combination, strict=True))
            )
        return seen_by

    def _is_narrow(self, i: int, factor: int, section: int) -> bool:
        narrow = self.narrow(i, factor)
        return narrow is not None and narrow.turns[section] is not None

    def narrow(self, i: int, factor: int | None) -> NarrowAxis | None:
        """An axis on what one of its factors sees."""
        if factor is None:
            return None
        if (i, factor) not in self._narrow_axes:
            j = next(j for j, which in enumerate(self.which) if which[i] == factor)
            self._narrow_axes[i, factor] = self.axes[i].narrow(self.factors[j][i], factor)
        return self._narrow_axes[i, factor]

    @cached_property
    def _narrow_axes(self) -> dict[tuple[int, int], NarrowAxis | None]:
        return {}

    def _axis(self, i: int, factor: int | None) -> AxisClasses:
        narrow = self.narrow(i, factor)
        return self.axes[i] if narrow is None else narrow.axis

    def axes_of(self, seen_by: SeenBy) -> list[AxisClasses]:
        """The axes on what single factors see."""
        return [self._axis(i, factor) for i, factor in enumerate(seen_by)]

    def of_block(self, which: Sequence[int]) -> dict[SeenBy, set[Combination]]:
        """The combinations that a block sees, by the factors that alone see them."""
        groups: dict[SeenBy, set[Combination]] = {}
        for combination in product(*self._visible(which)):
            groups.setdefault(self.seen_by[combination], set()).add(combination)
        return groups

    def _visible(self, which: Sequence[int]) -> list[list[int]]:
        return [seen_sections(axis, factor) for axis, factor in zip(self.axes, which, strict=True)]

    @property
    def size(self) -> int:
        """How many numbers they are."""
        return sum(
            math.prod(_width(axis, s) for axis, s in zip(self.axes_of(seen_by), k, strict=True))
            for k, seen_by in self.seen_by.items()
        )

    def from_answers(
        self, i: int, alone: int | None, number: int, factor: Matrix, sections: Sequence[int]
    ) -> Matrix:
        """VᵀAᵀ of a factor on some sections; those of few numbers are kept."""
        key = i, alone, number, tuple(sections)
        known = self._maps.get(key)
        if known is None:
            known = self._axis(i, alone).image(factor, sections).T
            if math.prod(known.shape) <= KEPT_IMAGE:
                self._maps[key] = known
        return known

    @cached_property
    def _maps(self) -> dict[tuple[int, int | None, int, tuple[int, ...]], Matrix]:
        return {}

    def image(self, i: int, queries: Matrix) -> QueryImage:
        """Which coordinates of one axis queries see; the same queries come again."""
        known = self._images.get((i, id(queries)))
        if known is None:
            known = self._images[i, id(queries)] = QueryImage.of(self.axes[i], queries)
        return known

    @cached_property
    def _images(self) -> dict[tuple[int, int], QueryImage]:
        return {}

    def to_answers(
        self, i: int, alone: int | None, image: QueryImage, sections: list[int]
    ) -> Matrix:
        """What queries make of the coordinates of some sections; maps of few numbers are kept."""
        key = i, alone, id(image.queries), tuple(sections)
        known = self._maps_of_queries.get(key)
        if known is None:
            known = self._axis(i, alone).image(image.inner, sections)
            if math.prod(known.shape) <= KEPT_IMAGE:
                self._maps_of_queries[key] = known
        return known

    @cached_property
    def _maps_of_queries(self) -> dict[tuple[int, int | None, int, tuple[int, ...]], Matrix]:
        return {}


@dataclass(frozen=True, eq=False)
class QueryImage:
    """Queries of one axis, asked of its coordinates in two steps: first `inner`, then `rest`.

    Many more queries than cells are asked of the cells, which ranges do in one go.
    """

    queries: Matrix
    """Held, so that no other gets its id."""
    visible: frozenset[int]
    """The sections of which the queries see anything."""
    inner: Matrix
    rest: Matrix

    @classmethod
    def of(cls, axis: AxisClasses, queries: Matrix) -> QueryImage:
        m, n = queries.shape
        by_cells = m > 2 * n
        probe = queries.gram().matmat(axis.vectors) if by_cells else queries.matmat(axis.vectors)
        visible = frozenset(_nonzero(axis, probe))
        if by_cells:
            return cls(queries, visible, Identity(n), queries)
        return cls(queries, visible, queries, Identity(m))


def seen_sections(axis: AxisClasses, factor: int) -> list[int]:
    """The sections of which a factor sees something."""
    return [k for k, section in enumerate(axis.sections) if section.seen_by[factor]]


def sections_of(combinations: Iterable[Combination]) -> list[list[int]]:
    """The sections of every axis that combinations have."""
    return [sorted(set(numbers)) for numbers in zip(*combinations, strict=True)]


def _width(axis: AxisClasses, section: int) -> int:
    columns = axis.sections[section].columns
    return int(columns.stop - columns.start)


def _nonzero(axis: AxisClasses, seen: Array) -> list[int]:
    """The sections that queries see, by what they make of the vectors; at least one."""
    sizes = [float(np.abs(seen[:, s.columns]).max(initial=0.0)) for s in axis.sections]
    numbers = [k for k, size in enumerate(sizes) if size > 1e-13 * max(sizes)]
    return numbers or [0]


def places(
    axes: Sequence[AxisClasses], visible: Sequence[Sequence[int]]
) -> Iterator[tuple[Combination, tuple[slice, ...]]]:
    """Every combination of visible sections, and where its coordinates stand among them."""
    ends: list[dict[int, slice]] = []
    for axis, numbers in zip(axes, visible, strict=True):
        slices, start = {}, 0
        for s in numbers:
            slices[s] = slice(start, start + _width(axis, s))
            start = slices[s].stop
        ends.append(slices)
    for combination in product(*visible):
        yield combination, tuple(ends[i][s] for i, s in enumerate(combination))
