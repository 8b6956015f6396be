"""Row predicates as data: built from columns and plain values, decided by the declared values.

>>> p = (col("age") >= 18) & col("sex").isin(["F"])
>>> p
(age >= 18) & (sex == 'F')
>>> domain = Domain.of(sex=["F", "M"], age=4)
>>> (col("age") > 1).mask(domain)
array([False, False,  True,  True])

No string is ever evaluated and no function called: a predicate is a tree of the classes below.
Every cell either satisfies a predicate or does not, so `~p` is all that p is not; a missing value
(None) equals nothing but `is_null()`, and the cell for undeclared values (OTHER) equals nothing.
"""

from __future__ import annotations

import datetime
import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, ClassVar, Literal, NoReturn

import numpy as np

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.domain.levels import interval_label, shown_number
from psephos.domain.values import OTHER
from psephos.errors import DomainError, PredicateError, PsephosError, TooLargeError
from psephos.values import Array

MASK_LIMIT = 10**7
"""The most combinations of values that one condition is decided for."""
DEPTH_LIMIT = 100
"""The deepest nesting of conditions."""

Order = Literal["<", "<=", ">", ">="]
ORDERS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
CONSTANT_TYPES = (str, int, float, bool, datetime.date, np.generic)
"""What a column may be compared with."""


class Predicate(ABC):
    """A condition on rows; combine with & | ~."""

    depth: int = 0

    @property
    @abstractmethod
    def columns(self) -> frozenset[str]:
        """The attributes it looks at."""

    @abstractmethod
    def _truth(self, domain: Domain, axes: tuple[str, ...]) -> Array:
        """Truth over the cells of `axes`, as an array that broadcasts to their shape."""

    def mask(self, domain: Domain) -> Array:
        """Which cells of the attributes that it looks at (in domain order) satisfy it.

        The array has one axis for each attribute that the predicate looks at.
        """
        columns = self.columns
        for name in sorted(columns):
            domain.axis(name)
        axes = tuple(name for name in domain.names if name in columns)
        shape = tuple(domain[name].size for name in axes)
        cells = math.prod(shape)
        if cells > MASK_LIMIT:
            raise TooLargeError(
                f"{self} spans {cells:,} combinations of {', '.join(axes)}, over the limit of "
                f"{MASK_LIMIT:,}; split it with & into conditions on single attributes",
                cells,
                MASK_LIMIT,
            )
        return np.broadcast_to(self._truth(domain, axes), shape).copy()

    def conjuncts(self) -> tuple[Predicate, ...]:
        """The conditions that must all hold."""
        return (self,)

    def masks(self, domain: Domain) -> list[tuple[tuple[str, ...], Array]]:
        """The masks of all conditions that must hold, one for those on the same attributes."""
        masks: dict[tuple[str, ...], Array] = {}
        try:
            for part in self.conjuncts():
                names = tuple(name for name in domain.names if name in part.columns)
                mask = part.mask(domain)
                masks[names] = masks[names] & mask if names in masks else mask
        except PsephosError:
            raise
        except (TypeError, AttributeError, LookupError, ValueError, ArithmeticError):
            raise PredicateError("this condition is not one that col(...) makes") from None
        if sum(mask.size for mask in masks.values()) > 10 * MASK_LIMIT:
            raise TooLargeError(
                f"these conditions span {len(masks)} combinations of attributes with many cells; "
                "ask about fewer at once",
                len(masks),
                10 * MASK_LIMIT,
            )
        return list(masks.items())

    def __and__(self, other: Predicate) -> Predicate:
        return And.of(self, _checked(other))

    def __or__(self, other: Predicate) -> Predicate:
        return Or.of(self, _checked(other))

    def __invert__(self) -> Predicate:
        return Not(self, _checked_depth(self.depth + 1))

    def __bool__(self) -> NoReturn:
        raise PredicateError(
            f"{self!r} is a condition on rows, not True or False; combine conditions with & | ~ "
            "(not and/or/not), and write col('age').between(18, 64) for 18 <= age <= 64"
        )


@dataclass(frozen=True, repr=False)
class Junction(Predicate):
    """Conditions joined by one sign, side by side: a & (b & c) has three parts."""

    parts: tuple[Predicate, ...]
    depth: int = field(default=1, compare=False)
    sign: ClassVar[str]
    operation: ClassVar[np.ufunc]

    @classmethod
    def of(cls, *sides: *tuple[Predicate, Predicate]) -> Predicate:
        """The sides joined; a side of the same kind adds its parts and no level of nesting."""
        left, right = (side.parts if isinstance(side, cls) else (side,) for side in sides)
        depths = (side.depth + (not isinstance(side, cls)) for side in sides)
        return cls((*left, *right), _checked_depth(max(depths)))

    @property
    def columns(self) -> frozenset[str]:
        return frozenset().union(*(part.columns for part in self.parts))

    def _truth(self, domain: Domain, axes: tuple[str, ...]) -> Array:
        # Truths over the same attributes are joined first, so that few arrays span many cells.
        by_shape: dict[tuple[int, ...], Array] = {}
        for part in self.parts:
            truth = part._truth(domain, axes)
            earlier = by_shape.get(truth.shape)
            by_shape[truth.shape] = truth if earlier is None else self.operation(earlier, truth)
        return reduce(self.operation, by_shape.values())

    def __repr__(self) -> str:
        return f" {self.sign} ".join(f"({part!r})" for part in self.parts)


class And(Junction):
    """All of the parts hold."""

    sign, operation = "&", np.logical_and

    def conjuncts(self) -> tuple[Predicate, ...]:
        return self.parts


class Or(Junction):
    """At least one of the parts holds."""

    sign, operation = "|", np.logical_or


@dataclass(frozen=True, repr=False)
class Not(Predicate):
    """The part does not hold."""

    part: Predicate
    depth: int = field(default=1, compare=False)

    @property
    def columns(self) -> frozenset[str]:
        return self.part.columns

    def _truth(self, domain: Domain, axes: tuple[str, ...]) -> Array:
        truth: Array = ~self.part._truth(domain, axes)
        return truth

    def __repr__(self) -> str:
        return f"~({self.part!r})"


class ColumnPredicate(Predicate):
    """A condition on one attribute."""

    column: str

    @property
    def columns(self) -> frozenset[str]:
        return frozenset([self.column])

    @abstractmethod
    def over(self, attribute: Attribute) -> Array:
        """Which values of the attribute satisfy it."""

    def _truth(self, domain: Domain, axes: tuple[str, ...]) -> Array:
        try:
            mask = self.over(domain[self.column])
        except DomainError as error:
            raise PredicateError(f"{self!r}: attribute {self.column!r}: {error}") from None
        shape = [1] * len(axes)
        shape[axes.index(self.column)] = mask.size
        return mask.reshape(shape)


@dataclass(frozen=True, repr=False)
class In(ColumnPredicate):
    """The value is one of those listed (a bin is named by its label)."""

    column: str
    values: tuple[Any, ...]

    def over(self, attribute: Attribute) -> Array:
        mask = np.zeros(attribute.size, dtype=bool)
        for value in self.values:
            if attribute.edges is not None and not isinstance(value, str):
                raise PredicateError(
                    f"{self!r}: {self.column!r} is binned, so single numbers cannot be told apart; "
                    f"name a bin by its label ({attribute.some_values()}) or compare with < and >="
                )
            mask[attribute.index(value)] = True
        return mask

    def __repr__(self) -> str:
        if len(self.values) == 1:
            return f"{self.column} == {self.values[0]!r}"
        return f"{self.column} in {list(self.values)!r}"


@dataclass(frozen=True, repr=False)
class Compare(ColumnPredicate):
    """The value lies on one side of a constant."""

    column: str
    order: Order
    constant: Any

    def over(self, attribute: Attribute) -> Array:
        if not self._comparable(attribute):
            raise PredicateError(
                f"{self!r}: the values of {self.column!r} and {self.constant!r} have no common "
                f"order; write col({self.column!r}).isin([...]) with the values meant"
            )
        compare = ORDERS[self.order]
        if attribute.edges is not None:
            side = self._over_bins(attribute.edges)
            return np.append(side, np.zeros(attribute.size - side.size, dtype=bool))
        if isinstance(attribute.values, range):
            values = np.arange(attribute.values.start, attribute.values.stop, attribute.values.step)
            mask: Array = compare(values, self.constant)
            return mask
        truth = [
            v is not None and v is not OTHER and bool(compare(v, self.constant))
            for v in attribute.values
        ]
        return np.array(truth, dtype=bool)

    def _over_bins(self, edges: Sequence[float]) -> Array:
        """Which bins lie wholly on the right side; a constant inside a bin is refused."""
        low, high = np.array(edges[:-1]), np.array(edges[1:])
        c = self.constant
        # Every bin is [low, high), so x < c holds throughout iff high <= c.
        below = high <= c
        above = low >= c if self.order in ("<", ">=") else low > c
        cut = ~below & ~above
        if cut.any():
            lo, hi = low[cut][0], high[cut][0]
            finite = [shown_number(edge) for edge in (lo, hi) if math.isfinite(edge)]
            edges_text, hint = " or ".join(finite), f", or declare an edge at {c}"
            if c == lo:
                hint = f": bins hold their lower edge, so {c} itself is inside"
            raise PredicateError(
                f"{self!r} cuts the bin {interval_label(lo, hi)!r} of {self.column!r}; compare "
                f"with < or >= and an edge such as {edges_text}{hint}"
            )
        side: Array = below if self.order in ("<", "<=") else above
        return side

    def _comparable(self, attribute: Attribute) -> bool:
        if isinstance(self.constant, int | float) and not isinstance(self.constant, bool):
            return attribute.is_numeric
        plain = (value for value in attribute.values if value is not None and value is not OTHER)
        kinds = {type(value) for value in plain}
        return isinstance(self.constant, datetime.date) and kinds == {type(self.constant)}

    def __repr__(self) -> str:
        return f"{self.column} {self.order} {self.constant!r}"


@dataclass(frozen=True, repr=False)
class IsNull(ColumnPredicate):
    """The value is missing; the attribute must declare None as one of its values."""

    column: str

    def over(self, attribute: Attribute) -> Array:
        if isinstance(attribute.values, range):
            return np.zeros(attribute.size, dtype=bool)
        return np.array([value is None for value in attribute.values], dtype=bool)

    def __repr__(self) -> str:
        return f"{self.column} is null"


@dataclass(frozen=True, repr=False)
class InLevel(ColumnPredicate):
    """The value lies in one of the named groups of a level."""

    column: str
    level: str
    groups: tuple[str, ...]

    def over(self, attribute: Attribute) -> Array:
        level = attribute.level(self.level)
        for group in self.groups:
            if group not in level.labels:
                raise PredicateError(
                    f"{self!r}: level {self.level!r} of {self.column!r} has no group {group!r}; "
                    f"have {', '.join(level.labels)}"
                )
        numbers = [level.labels.index(group) for group in self.groups]
        return np.isin(level.groups, numbers)

    def __repr__(self) -> str:
        return f"{self.column}.{self.level} in {list(self.groups)!r}"


@dataclass(frozen=True, eq=False)
class Column:
    """A named column; comparing it makes a predicate."""

    name: str

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]
        return IsNull(self.name) if value is None else In(self.name, (_scalar(value),))

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]
        return Not(IsNull(self.name) if value is None else In(self.name, (_scalar(value),)))

    __hash__ = None  # type: ignore[assignment]

    def __lt__(self, value: Any) -> Predicate:
        return Compare(self.name, "<", _scalar(value))

    def __le__(self, value: Any) -> Predicate:
        return Compare(self.name, "<=", _scalar(value))

    def __gt__(self, value: Any) -> Predicate:
        return Compare(self.name, ">", _scalar(value))

    def __ge__(self, value: Any) -> Predicate:
        return Compare(self.name, ">=", _scalar(value))

    def between(self, low: Any, high: Any) -> Predicate:
        """From low to high, both included."""
        at_least, at_most = (
            Compare(self.name, ">=", _scalar(low)),
            Compare(self.name, "<=", _scalar(high)),
        )
        return at_least & at_most

    def isin(self, values: Sequence[Any]) -> Predicate:
        """One of the values."""
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise PredicateError(f"isin takes a list of values, got {values!r}")
        values = list(values)
        plain = [value for value in values if value is not None]
        listed: Predicate = In(self.name, tuple(_scalar(value) for value in plain))
        return listed if len(plain) == len(values) else listed | IsNull(self.name)

    def is_null(self) -> Predicate:
        """The value is missing."""
        return IsNull(self.name)

    def in_level(self, level: str, *groups: str) -> Predicate:
        """The value lies in one of these groups of a level."""
        return InLevel(self.name, level, groups)

    def __bool__(self) -> NoReturn:
        raise PredicateError(f"compare col({self.name!r}) with a value to make a condition")


def col(name: str) -> Column:
    """A column to compare with values: `col("age") >= 18`."""
    if not isinstance(name, str):
        raise PredicateError(f"col takes the name of an attribute, got {name!r}")
    return Column(name)


def _scalar(value: Any) -> Any:
    if not isinstance(value, CONSTANT_TYPES):
        raise PredicateError(
            f"cannot compare a column with {value!r}; use text, a number or a date"
        )
    plain = value.item() if isinstance(value, np.generic) else value
    if isinstance(plain, float) and math.isnan(plain):
        raise PredicateError("cannot compare a column with NaN; for missing values use is_null()")
    return plain


def _checked(other: object) -> Predicate:
    if not isinstance(other, Predicate):
        raise PredicateError(
            f"cannot combine a condition with {other!r}; put each comparison in parentheses, "
            "e.g. (col('age') > 17) & (col('sex') == 'F')"
        )
    return other


def _checked_depth(depth: int) -> int:
    if depth > DEPTH_LIMIT:
        raise PredicateError(
            f"conditions nest at most {DEPTH_LIMIT} deep; join with & or with | side by side "
            "(a | b | c is one level), and list values with isin([...])"
        )
    return depth
