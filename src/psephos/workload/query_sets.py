"""The kinds of query sets: each gives its matrix and its labels for an attribute."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.domain.levels import interval_label, shown_number
from psephos.domain.predicate import Predicate
from psephos.errors import WorkloadError, name_list
from psephos.matrix import (
    AllRange,
    Dense,
    DirectSum,
    Identity,
    Kron,
    Matrix,
    Partition,
    Permuted,
    Prefix,
    Ranges,
    Sparse,
    Stack,
    WidthRange,
)
from psephos.matrix import total as total_row
from psephos.values import Array, Value
from psephos.workload.cell_numbers import numbers_of

MOST_LISTED = 1 << 18
"""The most ranges that are listed one by one, where some cells stand outside of the order."""


class QuerySet(Value, ABC):
    """Counting queries on one attribute."""

    @abstractmethod
    def matrix(self, attribute: Attribute) -> Matrix:
        """The queries as rows over the attribute's values."""

    @abstractmethod
    def label(self, attribute: Attribute, i: int) -> str:
        """What query i counts, in words."""

    def labels(self, attribute: Attribute) -> list[str]:
        """The labels of all queries, in the order of the rows."""
        return [self.label(attribute, i) for i in range(self.matrix(attribute).shape[0])]


@dataclass(frozen=True, eq=False)
class IdentityQueries(QuerySet):
    """Each value by itself."""

    def matrix(self, attribute: Attribute) -> Matrix:
        return Identity(attribute.size)

    def label(self, attribute: Attribute, i: int) -> str:
        return attribute.label(i)


@dataclass(frozen=True, eq=False)
class TotalQueries(QuerySet):
    """All values together."""

    def matrix(self, attribute: Attribute) -> Matrix:
        return total_row(attribute.size)

    def label(self, attribute: Attribute, i: int) -> str:
        return attribute.total_label


@dataclass(frozen=True, eq=False)
class OrderedQueries(QuerySet):
    """Queries along the order of the values.

    Cells of missing and of undeclared entries have no place in the order: each is counted by
    itself, after the others.
    """

    @abstractmethod
    def along(self, size: int) -> Matrix:
        """The queries over so many values in order."""

    @abstractmethod
    def ends(self, size: int, i: int) -> tuple[int, int]:
        """The first and the last value that query i counts."""

    def matrix(self, attribute: Attribute) -> Matrix:
        order = self._order(attribute)
        apart = attribute.size - len(order)
        if apart == 0:
            return self.along(attribute.size)
        if not order:
            return Identity(attribute.size)
        queries, size = self.along(len(order)), attribute.size
        if queries.shape[0] <= MOST_LISTED:
            ends = np.array([self.ends(len(order), i) for i in range(queries.shape[0])])
            alone = np.arange(len(order), size)
            low, high = np.concatenate([ends, np.stack([alone, alone], axis=1)]).T
            matrix: Matrix = Ranges.intervals(size, low, high)
        else:
            matrix = DirectSum((queries, Identity(apart)))
        if order[-1] == len(order) - 1:
            return matrix
        return Permuted(matrix, np.array([*order, *attribute.apart]))

    def label(self, attribute: Attribute, i: int) -> str:
        return self._label(attribute, self._order(attribute), i)

    def labels(self, attribute: Attribute) -> list[str]:
        order = self._order(attribute)
        number = self.matrix(attribute).shape[0]
        return [self._label(attribute, order, i) for i in range(number)]

    def _label(self, attribute: Attribute, order: Sequence[int], i: int) -> str:
        queries = self.along(len(order)).shape[0] if order else 0
        if i >= queries:
            return attribute.label(attribute.apart[i - queries])
        low, high = self.ends(len(order), i)
        return self.words(attribute, order[low], order[high])

    def words(self, attribute: Attribute, low: int, high: int) -> str:
        """What the values from one cell to another are called."""
        return _span(attribute, low, high)

    def _order(self, attribute: Attribute) -> Sequence[int]:
        places = attribute.size - len(attribute.apart)
        if places == attribute.size or attribute.apart[0] == places:
            return range(places)
        return [cell for cell in range(attribute.size) if cell not in attribute.apart]


@dataclass(frozen=True, eq=False)
class PrefixQueries(OrderedQueries):
    """Everything up to each value: an empirical CDF."""

    def along(self, size: int) -> Matrix:
        return Prefix(size)

    def ends(self, size: int, i: int) -> tuple[int, int]:
        return 0, i

    def words(self, attribute: Attribute, low: int, high: int) -> str:
        label, edges = attribute.label(high), attribute.edges
        if edges is not None and high < len(edges) - 1:
            if label.startswith("["):  # a bin ends before its edge
                return f"below {shown_number(edges[high + 1])}"
            if label == interval_label(edges[high], edges[high + 1]):
                return interval_label(-math.inf, edges[high + 1])
        return f"up to {label}"


@dataclass(frozen=True, eq=False)
class AllRangeQueries(OrderedQueries):
    """Every range of neighbouring values."""

    def along(self, size: int) -> Matrix:
        return AllRange(size)

    def ends(self, size: int, i: int) -> tuple[int, int]:
        return AllRange(size).ends(i)


@dataclass(frozen=True, eq=False)
class WidthRangeQueries(OrderedQueries):
    """Every range of `width` neighbouring values."""

    width: int

    def along(self, size: int) -> Matrix:
        return WidthRange(size, self.width)

    def ends(self, size: int, i: int) -> tuple[int, int]:
        return i, i + self.width - 1


@dataclass(frozen=True, eq=False)
class RangeQueries(QuerySet):
    """Listed ranges, both ends included."""

    ends: tuple[tuple[int, int], ...]

    def matrix(self, attribute: Attribute) -> Matrix:
        low, high = np.array(self._cells(attribute)).T
        return Ranges.intervals(attribute.size, low, high)

    def label(self, attribute: Attribute, i: int) -> str:
        return _span(attribute, *self._cells(attribute)[i])

    def labels(self, attribute: Attribute) -> list[str]:
        return [_span(attribute, low, high) for low, high in self._cells(attribute)]

    def _cells(self, attribute: Attribute) -> list[tuple[int, int]]:
        values: Any = attribute.declared
        stated = [value for value in values if value is not None] if attribute.apart else values
        if set(map(type, stated)) == {int} and None not in values[: len(stated)]:
            run = range(stated[0], stated[0] + len(stated))
            values = run if list(run) == list(stated) else values
        if not isinstance(values, range) or values.step != 1:
            values = range(attribute.size)
        for low, high in self.ends:
            if not values[0] <= low <= high <= values[-1]:
                raise WorkloadError(
                    f"range ({low}, {high}) is empty or leaves {values[0]} to {values[-1]}; "
                    "both ends are included"
                )
        cells = [(low - values[0], high - values[0]) for low, high in self.ends]
        for low, high in cells:
            apart = [cell for cell in attribute.apart if low <= cell <= high]
            if apart and low < high:
                raise WorkloadError(
                    f"range ({low}, {high}) holds {attribute.label(apart[0])!r}, which stands "
                    "outside of the order; count it by itself, as a range of one"
                )
        return cells


@dataclass(frozen=True, eq=False)
class MaskQueries(QuerySet):
    """Queries given as rows of numbers, one column for each value."""

    rows: Array
    names: tuple[str, ...] | None = None

    def matrix(self, attribute: Attribute) -> Matrix:
        if self.rows.shape[1] != attribute.size:
            raise WorkloadError(
                f"masks have {self.rows.shape[1]} columns but the attribute has "
                f"{attribute.size} values; give one column for each value"
            )
        return Dense(self.rows)

    def label(self, attribute: Attribute, i: int) -> str:
        if self.names is not None:
            return self.names[i]
        return _row_label(attribute, self.rows[i])


@dataclass(frozen=True, eq=False)
class SumQueries(QuerySet):
    """The sum of the attribute's numbers; `numbers` are those of its cells, once they are known."""

    numbers: Array | None = None

    def bound(self, attribute: Attribute) -> SumQueries:
        """The same with the numbers of an attribute, unless they are known."""
        if self.numbers is not None:
            return self
        numbers = numbers_of(attribute)
        if not numbers.size:
            raise WorkloadError("all its numbers are 0, and so is every sum of them")
        return SumQueries(numbers.values)

    def matrix(self, attribute: Attribute) -> Matrix:
        numbers = self.bound(attribute).numbers
        if numbers is None or numbers.size != attribute.size:
            raise WorkloadError(f"a sum needs {attribute.size} numbers, one for each value")
        return Dense(numbers[None])

    def label(self, attribute: Attribute, i: int) -> str:
        return "sum"


@dataclass(frozen=True, eq=False)
class GroupQueries(QuerySet):
    """Disjoint groups of values: `groups[j]` is the group of value j, or -1 for none."""

    groups: Array
    names: tuple[str, ...]

    def matrix(self, attribute: Attribute) -> Matrix:
        if self.groups.size != attribute.size:
            raise WorkloadError(
                f"the groups are of {self.groups.size} values but the attribute has "
                f"{attribute.size}"
            )
        if self.groups.min() >= 0:
            return Partition(self.groups)
        values = np.flatnonzero(self.groups >= 0)
        ones = np.ones(values.size, dtype=np.int8)
        shape = (len(self.names), attribute.size)
        return Sparse(sp.csr_array((ones, (self.groups[values], values)), shape=shape))

    def label(self, attribute: Attribute, i: int) -> str:
        return self.names[i]


@dataclass(frozen=True, eq=False)
class LevelQueries(QuerySet):
    """Each group of a level of the attribute's hierarchy."""

    name: str

    def matrix(self, attribute: Attribute) -> Matrix:
        return Partition(attribute.level(self.name).groups)

    def label(self, attribute: Attribute, i: int) -> str:
        return attribute.level(self.name).labels[i]


@dataclass(frozen=True, eq=False)
class PredicateQueries(QuerySet):
    """One query for each condition; the conditions look at this attribute alone."""

    conditions: tuple[Predicate, ...]

    def matrix(self, attribute: Attribute) -> Matrix:
        rows = []
        for condition in self.conditions:
            (column,) = condition.columns
            rows.append(condition.mask(Domain((column,), (attribute,))))
        return Dense(np.array(rows))

    def label(self, attribute: Attribute, i: int) -> str:
        return repr(self.conditions[i])


@dataclass(frozen=True, eq=False)
class PermutedQueries(QuerySet):
    """A query set that reads the values in another order."""

    base: QuerySet
    order: Array

    def matrix(self, attribute: Attribute) -> Matrix:
        if self.order.size != attribute.size:
            raise WorkloadError(
                f"the order lists {self.order.size} positions but the attribute has "
                f"{attribute.size} values"
            )
        return Permuted(self.base.matrix(attribute), self.order)

    def label(self, attribute: Attribute, i: int) -> str:
        return _row_label(attribute, self.matrix(attribute).row(i))


@dataclass(frozen=True, eq=False)
class StackedQueries(QuerySet):
    """Several query sets one after the other.

    Where a group of a level has the same label as another query, the level's name is added.

    >>> ages = Attribute.integers(8, 10).with_level("five", 5)
    >>> StackedQueries((LevelQueries("five"), IdentityQueries())).labels(ages)
    ['8–9', '10 (five)', '8', '9', '10']
    """

    parts: tuple[QuerySet, ...]

    def matrix(self, attribute: Attribute) -> Matrix:
        return Stack(tuple(part.matrix(attribute) for part in self.parts))

    def label(self, attribute: Attribute, i: int) -> str:
        row = i
        for part in self.parts:
            rows = part.matrix(attribute).shape[0]
            if row < rows and isinstance(part, LevelQueries):
                return self.labels(attribute)[i]  # what it is called depends on all the others
            if row < rows:
                return part.label(attribute, row)
            row -= rows
        raise WorkloadError(f"no query {i}")

    def labels(self, attribute: Attribute) -> list[str]:
        parts = [(part, part.labels(attribute)) for part in self.parts]
        times = Counter(label for _, labels in parts for label in labels)
        return [
            f"{label} ({part.name})"
            if isinstance(part, LevelQueries) and times[label] > 1
            else label
            for part, labels in parts
            for label in labels
        ]


@dataclass(frozen=True, eq=False)
class JointQueries(QuerySet):
    """On a merged attribute: all combinations of query sets of its parts."""

    parts: tuple[QuerySet, ...]

    def matrix(self, attribute: Attribute) -> Matrix:
        pairs = zip(self.parts, attribute.parts, strict=True)
        return Kron(tuple(queries.matrix(part) for queries, (_, part) in pairs))

    def label(self, attribute: Attribute, i: int) -> str:
        words = []
        for queries, (_, part) in zip(reversed(self.parts), reversed(attribute.parts), strict=True):
            i, row = divmod(i, queries.matrix(part).shape[0])
            words.append(queries.label(part, row))
        return ", ".join(reversed(words))


class QueryLabels(Protocol):
    """Labels of queries by their number."""

    def __call__(self, i: int, /) -> str:
        """The label of query i."""


@dataclass(frozen=True)
class SetLabels:
    """The labels of a query set on an attribute, for a matrix over fewer cells of it."""

    queries: QuerySet
    attribute: Attribute

    def __call__(self, i: int, /) -> str:
        return self.queries.label(self.attribute, i)


@dataclass(frozen=True, eq=False)
class MatrixQueries(QuerySet):
    """Queries as rows of an implicit matrix, labelled by `source`, or else by number."""

    rows: Matrix
    source: QueryLabels | None = None

    def matrix(self, attribute: Attribute) -> Matrix:
        if self.rows.shape[1] != attribute.size:
            raise WorkloadError(
                f"{self.rows} has {self.rows.shape[1]} columns but the attribute has "
                f"{attribute.size} values"
            )
        return self.rows

    def label(self, attribute: Attribute, i: int) -> str:
        if self.source is None:
            return f"query {i}"
        return self.source(i)


def _span(attribute: Attribute, low: int, high: int) -> str:
    first, last, edges = attribute.label(low), attribute.label(high), attribute.edges
    if low == high:
        return first
    if edges is not None and high < len(edges) - 1:
        if first.startswith("[") and last.startswith("["):
            return ",".join((first.split(",")[0], last.split(",")[-1]))
        plain = [interval_label(edges[i], edges[i + 1]) for i in (low, high)]
        if plain == [first, last]:
            return interval_label(edges[low], edges[high + 1])
    return f"{first}–{last}"


def _row_label(attribute: Attribute, row: Array) -> str:
    """The label of a row: of 0 and 1 by its members, of other numbers by its weights."""
    cells = np.flatnonzero(row)
    if (row[cells] == 1).all():
        return _members(attribute, cells)
    return name_list([f"{row[i]:g} × {attribute.label(int(i))}" for i in cells], most=4)


def _members(attribute: Attribute, cells: Array) -> str:
    """The values in words: `total`, a span, or a list."""
    if cells.size == attribute.size:
        return attribute.total_label
    if cells.size == 0:
        return "none"
    if cells.size > 1 and cells[-1] - cells[0] == cells.size - 1:
        return _span(attribute, int(cells[0]), int(cells[-1]))
    return name_list([attribute.label(int(i)) for i in cells], most=4)
