"""Query sets by name: what may be counted of one attribute, whatever its size.

These functions check their arguments; the classes of `query_sets` do the work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from psephos.domain.predicate import Predicate
from psephos.errors import WorkloadError
from psephos.values import Array, frozen
from psephos.workload.query_sets import (
    AllRangeQueries,
    GroupQueries,
    IdentityQueries,
    LevelQueries,
    MaskQueries,
    PermutedQueries,
    PredicateQueries,
    PrefixQueries,
    QuerySet,
    RangeQueries,
    StackedQueries,
    SumQueries,
    TotalQueries,
    WidthRangeQueries,
)

__all__ = [
    "QuerySet",
    "all_range",
    "groups",
    "identity",
    "identity_total",
    "level",
    "masks",
    "permuted",
    "predicates",
    "prefix",
    "query_set",
    "ranges",
    "stacked",
    "sums",
    "total",
    "width_range",
]

PLAIN_SETS = ("identity", "total", "prefix", "all_range", "identity_total", "width_range")
"""Query sets by words that people write in quotes."""


def identity() -> QuerySet:
    """Each value by itself."""
    return IdentityQueries()


def total() -> QuerySet:
    """All values together: one query."""
    return TotalQueries()


def identity_total() -> QuerySet:
    """Each value by itself, and all together."""
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
    items = list(ends) if isinstance(ends, Iterable) and not isinstance(ends, str) else []
    pairs = [tuple(pair) if isinstance(pair, Iterable) else () for pair in items]
    whole = all(
        len(pair) == 2 and all(isinstance(end, int | np.integer) for end in pair) for pair in pairs
    )
    if not pairs or not whole:
        raise WorkloadError(
            f"ranges needs a list of whole-number pairs such as [(0, 17), (18, 64)], got {ends!r}"
        )
    for low, high in pairs:
        if low > high:
            raise WorkloadError(
                f"range ({low}, {high}) is empty; write ({high}, {low}), both ends are included"
            )
    return RangeQueries(tuple((int(low), int(high)) for low, high in pairs))


def masks(rows: Any, labels: Sequence[str] | None = None) -> QuerySet:
    """Queries as rows of 0 and 1 (or other finite weights), one column for each value."""
    try:
        array = np.asarray(rows)
    except ValueError:
        raise WorkloadError("the rows of masks differ in length; give one column each") from None
    if array.dtype.kind not in "biuf" or (array.dtype == np.uint64 and array.max() >= 1 << 63):
        raise WorkloadError(f"masks needs an array of numbers, got {array.dtype}")
    if array.ndim == 1:
        array = array[None]
    if array.ndim != 2 or 0 in array.shape:
        raise WorkloadError(f"masks needs a 2-D array of numbers, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise WorkloadError("masks needs finite entries, got NaN or infinity")
    if labels is not None and len(labels) != len(array):
        raise WorkloadError(f"{len(array)} masks but {len(labels)} labels; give one each")
    names = None if labels is None else tuple(str(label) for label in labels)
    return MaskQueries(frozen(_narrow(array)), names)


def sums() -> QuerySet:
    """The sum of the attribute's numbers: of integers, numeric values, or bins by their middle.

    One row moves a sum by as much as the largest number, so a product that holds a sum is weighted
    by one over that number, and its `weight` multiplies this: a sum matters as a count does.
    """
    return SumQueries()


def groups(of_value: Any, labels: Sequence[str]) -> QuerySet:
    """Disjoint groups of values: `of_value[j]` is the group of value j, or -1 for none."""
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        raise WorkloadError(f"groups takes a list of labels, got {labels!r}")
    labels = list(labels)
    codes = np.asarray(of_value)
    whole = codes.ndim == 1 and codes.dtype.kind in "iu"
    numbers = np.unique(codes[codes != -1]) if whole else np.array([])
    if not whole or not np.array_equal(numbers, np.arange(len(labels))) or not len(labels):
        raise WorkloadError(
            f"groups takes a whole number for each value, -1 or 0 to {len(labels) - 1}, "
            "with at least one value in every group"
        )
    return GroupQueries(frozen(codes), tuple(str(label) for label in labels))


def level(name: str) -> QuerySet:
    """Each group of a level of the attribute's hierarchy."""
    if not isinstance(name, str):
        raise WorkloadError(f"level takes the name of a level, got {name!r}")
    return LevelQueries(name)


def predicates(*conditions: Predicate) -> QuerySet:
    """One query for each condition on the attribute.

    >>> from psephos import Attribute, col
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
    return PermutedQueries(query_set(queries), positions)


def stacked(*parts: QuerySet) -> QuerySet:
    """Several query sets one after the other."""
    flat: list[QuerySet] = []
    for part in parts:
        query_set(part)
        flat.extend(part.parts if isinstance(part, StackedQueries) else [part])
    if not flat:
        raise WorkloadError("stacked needs at least one query set")
    return flat[0] if len(flat) == 1 else StackedQueries(tuple(flat))


def query_set(value: Any) -> QuerySet:
    """The value, if it is a query set."""
    if isinstance(value, QuerySet):
        return value
    if is_matrix(value):
        raise WorkloadError(
            f"{type(value).__name__} of shape {tuple(value.shape)} is not a query set; for rows "
            "of weights, one column for each value, write ps.masks(array)"
        )
    if callable(value):
        raise WorkloadError(
            f"{getattr(value, '__name__', value)!r} is a function, not yet a query set; write it "
            "with its parentheses, e.g. ps.identity()"
        )
    raise WorkloadError(f"{value!r} is not a query set{_set_hint(value)}")


def is_matrix(value: Any) -> bool:
    """Is this an array, a frame, or a matrix of scipy or psephos?"""
    return hasattr(value, "shape") and hasattr(value, "__matmul__")


def _set_hint(value: Any) -> str:
    """What to write in place of a word, a condition or a list."""
    if isinstance(value, str):
        word = value.partition("(")[0].strip()
        return (
            f"; write ps.{word}({'5' * (word == 'width_range')})"
            if word in PLAIN_SETS
            else (
                f"; for a level write ps.level({value!r}); else one of {', '.join(PLAIN_SETS)}, "
                "such as ps.identity()"
            )
        )
    if isinstance(value, Predicate):
        return "; write ps.predicates(condition)"
    if isinstance(value, range | list | tuple):
        return (
            "; write ps.ranges([(0, 17), (18, 64)]) for ranges of values, ps.masks([[0, 1, 1]]) "
            "for rows of weights"
        )
    return "; write one of " + ", ".join(f"ps.{word}()" for word in PLAIN_SETS[:4])


def _narrow(rows: Array) -> Array:
    """0/1 and other small whole numbers in one byte each: workloads hold many masks."""
    if np.abs(rows.astype(float)).max() < 128 and (rows == np.round(rows)).all():
        return rows.astype(np.int8)
    return rows.astype(np.int64) if rows.dtype.kind in "biu" else rows
