"""Query sets: what may be asked of one attribute, before its size is known.

A query set is a small value. Given an attribute it says its matrix and the label of each query.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from psephos.attribute import Attribute
from psephos.domain import Domain
from psephos.errors import WorkloadError, name_list
from psephos.frozen import Array, Value, frozen
from psephos.matrix import (
    AllRange,
    Dense,
    Identity,
    Kron,
    Matrix,
    Partition,
    Permuted,
    Prefix,
    Ranges,
    Stack,
    WidthRange,
)
from psephos.matrix import total as total_row
from psephos.predicate import Predicate


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
    """Each value on its own."""

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
        return "total"


@dataclass(frozen=True, eq=False)
class PrefixQueries(QuerySet):
    """Everything up to each value: an empirical CDF."""

    def matrix(self, attribute: Attribute) -> Matrix:
        return Prefix(attribute.size)

    def label(self, attribute: Attribute, i: int) -> str:
        return f"up to {attribute.label(i)}"


@dataclass(frozen=True, eq=False)
class AllRangeQueries(QuerySet):
    """Every range of neighbouring values."""

    def matrix(self, attribute: Attribute) -> Matrix:
        return AllRange(attribute.size)

    def label(self, attribute: Attribute, i: int) -> str:
        return _span(attribute, *AllRange(attribute.size).ends(i))


@dataclass(frozen=True, eq=False)
class WidthRangeQueries(QuerySet):
    """Every range of a given number of values."""

    width: int

    def matrix(self, attribute: Attribute) -> Matrix:
        return WidthRange(attribute.size, self.width)

    def label(self, attribute: Attribute, i: int) -> str:
        return _span(attribute, i, i + self.width - 1)


@dataclass(frozen=True, eq=False)
class RangeQueries(QuerySet):
    """Listed ranges, both ends included."""

    ends: tuple[tuple[int, int], ...]

    def matrix(self, attribute: Attribute) -> Matrix:
        low, high = np.array(self._cells(attribute)).T
        return Ranges.intervals(attribute.size, low, high)

    def label(self, attribute: Attribute, i: int) -> str:
        return _span(attribute, *self._cells(attribute)[i])

    def _cells(self, attribute: Attribute) -> list[tuple[int, int]]:
        values = attribute.values
        if not isinstance(values, range) or values.step != 1:
            values = range(attribute.size)
        for low, high in self.ends:
            if not values[0] <= low <= high <= values[-1]:
                raise WorkloadError(
                    f"range ({low}, {high}) is empty or leaves {values[0]} to {values[-1]}; "
                    "both ends are included"
                )
        return [(low - values[0], high - values[0]) for low, high in self.ends]


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
        return _members(attribute, np.flatnonzero(self.rows[i]))


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
        return _members(attribute, np.flatnonzero(self.matrix(attribute).row(i)))


@dataclass(frozen=True, eq=False)
class StackedQueries(QuerySet):
    """Several query sets one after the other."""

    parts: tuple[QuerySet, ...]

    def matrix(self, attribute: Attribute) -> Matrix:
        return Stack(tuple(part.matrix(attribute) for part in self.parts))

    def label(self, attribute: Attribute, i: int) -> str:
        for part in self.parts:
            rows = part.matrix(attribute).shape[0]
            if i < rows:
                return part.label(attribute, i)
            i -= rows
        raise WorkloadError(f"no query {i}")

    def labels(self, attribute: Attribute) -> list[str]:
        return [label for part in self.parts for label in part.labels(attribute)]


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
            i, own = divmod(i, queries.matrix(part).shape[0])
            words.append(queries.label(part, own))
        return ", ".join(reversed(words))


@dataclass(frozen=True, eq=False)
class MatrixQueries(QuerySet):
    """Queries given by an implicit matrix, labelled by number or by another query set."""

    rows: Matrix
    source: tuple[QuerySet, Attribute] | None = None

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
        queries, original = self.source
        return queries.label(original, i)


def identity() -> QuerySet:
    """Each value on its own."""
    return IdentityQueries()


def total() -> QuerySet:
    """All values together: one query."""
    return TotalQueries()


def identity_total() -> QuerySet:
    """Each value on its own, and all together."""
    return StackedQueries((IdentityQueries(), TotalQueries()))


def prefix() -> QuerySet:
    """Everything up to each value: an empirical CDF."""
    return PrefixQueries()


def all_range() -> QuerySet:
    """Every range of neighbouring values."""
    return AllRangeQueries()


def width_range(width: int) -> QuerySet:
    """Every range of `width` neighbouring values."""
    if isinstance(width, bool) or not isinstance(width, int | np.integer) or width < 1:
        raise WorkloadError(f"a width is a positive whole number, got {width!r}")
    return WidthRangeQueries(int(width))


def ranges(ends: Sequence[tuple[int, int]]) -> QuerySet:
    """Listed ranges, both ends included.

    Ends are values of an integer attribute, and positions (from 0) in any other.
    """
    pairs = [tuple(pair) for pair in ends]
    whole = all(
        len(pair) == 2 and all(isinstance(end, int | np.integer) for end in pair) for pair in pairs
    )
    if not pairs or not whole:
        raise WorkloadError(
            f"ranges needs a list of whole-number pairs such as [(0, 17), (18, 64)], got {ends!r}"
        )
    return RangeQueries(tuple((int(low), int(high)) for low, high in pairs))


def masks(rows: Any, labels: Sequence[str] | None = None) -> QuerySet:
    """Queries as rows of 0 and 1 (or other finite weights), one column for each value."""
    array = np.asarray(rows)
    if array.ndim == 1:
        array = array[None]
    if array.ndim != 2 or 0 in array.shape or array.dtype.kind not in "biuf":
        raise WorkloadError(f"masks needs a 2-D array of numbers, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise WorkloadError("masks needs finite entries, got NaN or infinity")
    if labels is not None and len(labels) != len(array):
        raise WorkloadError(f"{len(array)} masks but {len(labels)} labels; give one each")
    names = None if labels is None else tuple(str(label) for label in labels)
    return MaskQueries(frozen(_narrow(array)), names)


def level(name: str) -> QuerySet:
    """Each group of a level of the attribute's hierarchy."""
    return LevelQueries(name)


def predicates(*conditions: Predicate) -> QuerySet:
    """One query for each condition on the attribute.

    >>> from psephos.predicate import col
    >>> predicates(col("age") < 18, col("age") >= 65).labels(Attribute.integers(0, 99))
    ['age < 18', 'age >= 65']
    """
    for condition in conditions:
        if not isinstance(condition, Predicate) or len(condition.columns) != 1:
            raise WorkloadError(
                f"predicates takes conditions on one attribute, got {condition!r}; "
                "for several attributes use Workload.from_predicates"
            )
    if not conditions:
        raise WorkloadError("predicates needs at least one condition")
    return PredicateQueries(conditions)


def permuted(queries: QuerySet, order: Sequence[int] | Array) -> QuerySet:
    """The query set over reordered values: its k-th position is value `order[k]`."""
    positions = frozen(order)
    if positions.ndim != 1 or not np.array_equal(np.sort(positions), np.arange(positions.size)):
        raise WorkloadError("an order lists every position from 0 once")
    return PermutedQueries(_query_set(queries), positions)


def stacked(*parts: QuerySet) -> QuerySet:
    """Several query sets one after the other."""
    flat: list[QuerySet] = []
    for part in parts:
        _query_set(part)
        flat.extend(part.parts if isinstance(part, StackedQueries) else [part])
    if not flat:
        raise WorkloadError("stacked needs at least one query set")
    return flat[0] if len(flat) == 1 else StackedQueries(tuple(flat))


def _query_set(value: Any) -> QuerySet:
    if not isinstance(value, QuerySet):
        hint = "; write it with its parentheses, e.g. ps.identity()" if callable(value) else ""
        raise WorkloadError(f"{value!r} is not a query set{hint}")
    return value


def _narrow(rows: Array) -> Array:
    """0/1 and other small whole numbers in one byte each: workloads hold many masks."""
    if rows.dtype.kind != "f" or (rows == np.round(rows)).all():
        small = rows.astype(np.int8)
        if (small == rows).all():
            return small
    return rows.astype(np.int64) if rows.dtype.kind in "biu" else rows


def _span(attribute: Attribute, low: int, high: int) -> str:
    if low == high:
        return attribute.label(low)
    if attribute.edges is not None and attribute.names is not None:
        return f"{attribute.names[low].split(',')[0]},{attribute.names[high].split(',')[-1]}"
    return f"{attribute.label(low)}–{attribute.label(high)}"


def _members(attribute: Attribute, cells: Array) -> str:
    """The values in words: `total`, a span, or a list."""
    if cells.size == attribute.size:
        return "total"
    if cells.size == 0:
        return "none"
    if cells.size > 1 and cells[-1] - cells[0] == cells.size - 1:
        return _span(attribute, int(cells[0]), int(cells[-1]))
    return name_list([attribute.label(int(i)) for i in cells], most=4)
