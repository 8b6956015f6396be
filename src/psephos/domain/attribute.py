"""One column of the public schema: its declared values, labels, bins and levels."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias, Union

import numpy as np

from psephos.domain.calendar import (
    days_between,
    groups_of_days,
    is_run_of_days,
    period_groups,
)
from psephos.domain.values import (
    DECLARED_LIMIT,
    OTHER,
    Level,
    Unknown,
    check_nested,
    check_unknown,
    check_value,
    groups_from,
    groups_of_width,
    interval_label,
    named_groups,
    plain,
    shown_number,
)
from psephos.errors import DomainError, name_list
from psephos.report.html import HtmlTable, notebook_html
from psephos.values import Array, Value, frozen

Spec: TypeAlias = Union["Attribute", int, range, Sequence[Any], Mapping[Any, str]]


@dataclass(frozen=True)
class TupleValues(Sequence[Any]):
    """The values of merged attributes, computed on demand: one tuple per combination."""

    parts: tuple[Sequence[Any], ...]

    def __len__(self) -> int:
        return math.prod(len(part) for part in self.parts)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(len(self))))
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        where = np.unravel_index(index % len(self), [len(part) for part in self.parts])
        return tuple(part[int(i)] for part, i in zip(self.parts, where, strict=True))


@dataclass(frozen=True, eq=False, repr=False)
class Attribute(Value):
    """A column's declared values, in order, with labels for people and levels to group by.

    >>> Attribute.categories({"F": "Female", "M": "Male"})
    Attribute(2 values: Female, Male)
    >>> Attribute.integers(0, 114).with_level("broad", [0, 18, 65])
    Attribute(115 integers 0–114; levels: broad)
    >>> Attribute.bins([0, 10_000, 50_000, math.inf]).label(1)
    '[10000, 50000)'

    `unknown` is where entries go that are not declared, and missing ones unless None is declared;
    see `with_unknown`.
    """

    values: Sequence[Any]
    names: tuple[str, ...] | None = None
    edges: tuple[float, ...] | None = None
    levels: tuple[Level, ...] = ()
    parts: tuple[tuple[str, Attribute], ...] = ()
    unknown: Unknown = "drop"

    def __post_init__(self) -> None:
        try:
            size = len(self.values)
        except OverflowError:  # of a range that no machine can count through
            raise DomainError("an attribute has too many values; declare fewer, or bins") from None
        if size == 0:
            raise DomainError("an attribute needs at least one value, got none")
        check_unknown(self.unknown, self.values, self.edges is not None, bool(self.parts))
        self._check_inside(size)
        if isinstance(self.values, range | TupleValues):
            self._check_names(self.names or ())
            return
        values = tuple(plain(value) for value in self.values)
        object.__setattr__(self, "values", values)
        for value in values:
            check_value(value)
        first: dict[Any, Any] = {}
        for value in values:
            if value in first:
                raise DomainError(
                    f"value {value!r} is declared twice (as {first[value]!r} and {value!r}); "
                    "list each value once"
                )
            first[value] = value
        self._check_names(self.names or [self.label(i) for i in range(len(values))])

    def _check_inside(self, size: int) -> None:
        """Refuse levels, bins and merged parts that do not fit the number of values."""
        for level in self.levels:
            if level.groups.size != size:
                grouped = f"level {level.name!r} groups {level.groups.size} cells"
                raise DomainError(f"{grouped}, and the attribute has {size}")
        if self.edges is not None:
            numbers = all(type(edge) is float or _is_whole(edge) for edge in self.edges)
            bins = tuple(pairwise(self.edges)) if numbers else ()
            rising = bins and all(low < high for low, high in bins)
            if not rising or tuple(self.values[: len(bins)]) != bins:
                raise DomainError("bins lie between edges, numbers that increase; use bins([...])")
        if self.parts and math.prod(part.size for _, part in self.parts) != size:
            raise DomainError(f"{size} values are not all combinations of the merged attributes")

    def _check_names(self, names: Sequence[str]) -> None:
        if self.names is not None and len(self.names) != len(self.values):
            raise DomainError(
                f"{len(self.values)} values but {len(self.names)} labels; give one each"
            )
        repeated = first_repeated(names)
        if repeated is not None:
            raise DomainError(f"label {repeated!r} is used twice; every cell needs its own label")

    @classmethod
    def of(cls, spec: Spec) -> Attribute:
        """An attribute from an int n (cells 0..n-1), a range, a list, or a dict value → label."""
        if isinstance(spec, Attribute):
            return spec
        if isinstance(spec, bool | str | bytes | float | Set) or not isinstance(
            spec, int | np.integer | Iterable
        ):
            raise DomainError(
                f"cannot make an attribute of {spec!r}; write a number of cells, a range, "
                "a list of values, a dict of value: label, or Attribute.bins([...])"
            )
        if isinstance(spec, int | np.integer):
            if spec < 1:
                raise DomainError(f"an attribute needs at least one value, got {spec}")
            return cls(range(int(spec)))
        if isinstance(spec, range):
            return cls(spec)
        return cls.categories(spec)

    @classmethod
    def categories(cls, values: Sequence[Any] | Mapping[Any, str]) -> Attribute:
        """Named values, in the order given; a dict gives each value its label.

        None stands for a missing entry and may be one of the values.
        """
        if isinstance(values, Mapping):
            return cls(tuple(values), tuple(str(label) for label in values.values()))
        return cls(tuple(values))

    @classmethod
    def integers(cls, low: int, high: int) -> Attribute:
        """Every whole number from low to high, both included."""
        whole = all(isinstance(end, int | np.integer) for end in (low, high))
        if not whole or high < low:
            raise DomainError(
                f"integers({low}, {high}) is empty or not whole; write integers(low, high) "
                "with low <= high, both included"
            )
        return cls(range(int(low), int(high) + 1))

    @classmethod
    def bins(cls, edges: Sequence[float], labels: Sequence[str] | None = None) -> Attribute:
        """Numeric bins [edge, next edge): each holds its lower edge and not its upper.

        The first edge may be -inf and the last inf.
        """
        if isinstance(edges, str) or not isinstance(edges, Iterable):
            raise DomainError(f"bins take a list of edges, got {edges!r}")
        marks = tuple(plain(edge) for edge in edges)
        if len(marks) < 2:
            raise DomainError(f"bins need at least two edges, got {list(marks)}")
        for mark in marks:
            whole = isinstance(mark, int) and _is_whole(int(mark))
            if isinstance(mark, bool) or not (whole or isinstance(mark, float)) or math.isnan(mark):
                dated = isinstance(mark, date) or str(mark)[4:5] == "-"
                remedy = '; dates are declared by Attribute.dates("1920-01-01", "2020-12-31")'
                raise DomainError(
                    f"bin edges must be numbers, got {mark!r}{remedy if dated else ''}"
                )
        for lo, hi in pairwise(marks):
            if not lo < hi:
                raise DomainError(
                    f"bins overlap or are empty: edge {lo:g} is followed by {hi:g}; "
                    "edges must increase"
                )
        if any(math.isinf(mark) for mark in marks[1:-1]):
            raise DomainError("only the first edge may be -inf and only the last inf")
        intervals = tuple(pairwise(marks))
        names = (
            tuple(interval_label(lo, hi) for lo, hi in intervals)
            if labels is None
            else tuple(str(label) for label in labels)
        )
        return cls(intervals, names, edges=marks)

    @classmethod
    def dates(cls, first: date | str, last: date | str) -> Attribute:
        """Every day from first to last, both included; times are read as their day.

        >>> days = Attribute.dates("1999-12-31", "2000-03-01").with_level("month", "month")
        >>> days.size, days.level("month").labels
        (62, ('1999-12', '2000-01', '2000-02', '2000-03'))
        """
        return cls(days_between(first, last))

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def declared(self) -> Sequence[Any]:
        """The values without the cell OTHER; whole numbers in a row as a range."""
        values = self.values[:-1] if self.unknown == "other" else self.values
        if self.unknown == "other" and values and {type(value) for value in values} == {int}:
            row = range(values[0], values[0] + len(values))
            return row if list(row) == list(values) else values
        return values

    @property
    def is_ordered(self) -> bool:
        """Do values follow each other on a line? (numbers, bins and dates)."""
        days = [value for value in self.values[:1] if type(value) is date]
        return self.is_numeric or bool(days)

    @cached_property
    def apart(self) -> tuple[int, ...]:
        """The cells of missing and of undeclared entries, which stand outside of any order.

        >>> Attribute.categories([1, 2, None]).with_unknown("other").apart
        (2, 3)
        """
        if isinstance(self.values, range | TupleValues):
            return ()
        return tuple(i for i, v in enumerate(self.values) if v is None or v is OTHER)

    @property
    def is_numeric(self) -> bool:
        """Can values be compared with < ? (integers, numbers, bins; a missing cell aside)."""
        if self.edges is not None or isinstance(self.values, range):
            return True
        kinds = {type(value) for value in self.values if value is not None and value is not OTHER}
        return not self.parts and bool(kinds) and kinds <= {int, float}

    def label(self, index: int) -> str:
        """The label of one cell."""
        if self.names is not None:
            return self.names[index]
        if self.parts:
            value = np.unravel_index(index, [part.size for _, part in self.parts])
            return ", ".join(
                part.label(int(i)) for (_, part), i in zip(self.parts, value, strict=True)
            )
        value = self.values[index]
        return "(missing)" if value is None else str(value)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.label(i) for i in range(self.size))

    def index(self, value: Any) -> int:
        """The cell of a value; a bin may be named by its label or by any number inside it."""
        value = plain(value)
        if isinstance(value, float) and value.is_integer() and isinstance(self.values, range):
            value = int(value)  # a range looks for a float one by one
        if self.edges is not None and isinstance(value, int | float):
            where = int(np.searchsorted(self.edges, value, side="right")) - 1
            if 0 <= where < len(self.edges) - 1:
                return where
        elif isinstance(self.values, range | TupleValues):
            if value in self.values:
                return self.values.index(value)
        elif value in self._positions:
            return self._positions[value]
        if isinstance(value, str) and self.names is not None and value in self.names:
            cell = self.names.index(value)
            if self.values[cell] is not OTHER:
                return cell
        raise DomainError(f"no value {value!r}; have {self.some_values()}")

    @cached_property
    def _positions(self) -> dict[Any, int]:
        return {value: i for i, value in enumerate(self.values)}

    def level(self, name: str) -> Level:
        """The level of that name."""
        for level in self.levels:
            if level.name == name:
                return level
        have = name_list(level.name for level in self.levels) or "none"
        raise DomainError(
            f"no level {name!r}; have {have}; declare it: levels = {{ {name} = [...] }} in a "
            "release file, with_level in Python"
        )

    def with_unknown(self, policy: Unknown) -> Attribute:
        """The same attribute, with another place for entries that are not declared.

        Args:
            policy: "drop" leaves their rows out; "clip" (integers and bins) puts numbers below or
                above into the first or last cell and leaves out the rest; "other" adds a last
                cell for all of them. A missing entry is not declared unless None is.

        >>> Attribute.categories(["F", "M"]).with_unknown("other").labels
        ('F', 'M', '(other)')
        """
        if policy != "other" or self.unknown == "other":
            return self._changed(self.representatives, unknown=policy)
        levels = tuple(
            Level(lv.name, frozen([*lv.groups, len(lv.labels)]), (*lv.labels, str(OTHER)))
            for lv in self.levels
        )
        names = None if self.names is None else (*self.names, str(OTHER))
        values = self.values if self.parts else (*self.values, OTHER)
        fields = {"values": values, "names": names, "levels": levels, "unknown": policy}
        return self._changed(self.representatives, **fields)

    @property
    def representatives(self) -> tuple[float, ...] | None:
        """The declared number of every bin in sums and means; None for the middles."""
        declared: tuple[float, ...] | None = self.__dict__.get("_representatives")
        return declared

    def with_representatives(self, numbers: Sequence[float]) -> Attribute:
        """The same bins, each with the number that its rows count as in sums, means and quantiles.

        They decide no cell, so they are no part of what makes two attributes equal.

        >>> Attribute.bins([0, 10, math.inf]).with_representatives([4, 25]).representatives
        (4, 25)
        """
        if self.edges is None:
            raise DomainError("representatives are numbers for bins; other values are their own")
        declared = tuple(plain(number) for number in numbers)
        bins = tuple(pairwise(self.edges))
        if len(declared) != len(bins):
            raise DomainError(
                f"{len(bins)} bins but {len(declared)} representatives; give one each"
            )
        for (low, high), number in zip(bins, declared, strict=True):
            real = isinstance(number, int | float) and not isinstance(number, bool)
            if not real or not math.isfinite(number) or not low <= number <= high:
                raise DomainError(
                    f"the representative of the bin from {shown_number(low)} to "
                    f"{shown_number(high)} is a number inside of it, got {number!r}"
                )
        return self._changed(declared)

    def _changed(self, representatives: tuple[float, ...] | None, **fields: Any) -> Attribute:
        """A copy with other fields, and with representatives, which no field holds."""
        copy = replace(self, **fields)
        if representatives is not None:
            object.__setattr__(copy, "_representatives", representatives)
        return copy

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_representatives": self.representatives}

    def __setstate__(self, state: dict[str, Any]) -> None:
        representatives = state.get("_representatives")
        super().__setstate__({k: v for k, v in state.items() if k != "_representatives"})
        if representatives is not None:
            object.__setattr__(self, "_representatives", representatives)

    def with_missing(self, label: str = "(missing)") -> Attribute:
        """The same attribute with a last cell for missing entries, under a label of its own.

        >>> Attribute.bins([0, 10, math.inf]).with_missing("not stated").labels
        ('[0, 10)', '10 and over', 'not stated')
        """
        if self.unknown == "other" or None in self.values or self.parts:
            raise DomainError("missing entries get a cell once, before unknown = 'other' is said")
        named = self.names is not None or label != "(missing)"
        levels = tuple(
            Level(lv.name, frozen([*lv.groups, len(lv.labels)]), (*lv.labels, label))
            for lv in self.levels
        )
        names = (*self.labels, label) if named else None
        fields = {"values": (*self.values, None), "names": names, "levels": levels}
        return self._changed(self.representatives, **fields)

    def with_level(
        self, name: str, groups: int | str | Sequence[Any] | Mapping[str, Sequence[Any]]
    ) -> Attribute:
        """The same attribute with one more level; they are kept from fine to coarse, and nest.

        Args:
            name: what to call the level, e.g. "5-year group"
            groups: a width (integers only), the first value or edge of each group, a dict of
                label → values that covers every value once, or of dates "week" (of ISO 8601),
                "month", "quarter" or "year"

        >>> age = Attribute.integers(0, 99).with_level("5 years", 5)
        >>> age = age.with_level("broad", [0, 20, 65])
        >>> age.level("broad").labels
        ('0–19', '20–64', '65–99')
        """
        if not isinstance(name, str) or not name:
            raise DomainError(f"a level's name is text, got {name!r}")
        if any(level.name == name for level in self.levels):
            raise DomainError(f"level {name!r} is declared twice")
        if self.unknown == "other":
            raise DomainError(f"declare level {name!r} before unknown = 'other' (with_unknown)")
        if isinstance(groups, Mapping):
            level = named_groups(name, groups, self.size, self.index, self.label, self.apart)
        elif isinstance(groups, int | np.integer):
            level = groups_of_width(name, int(groups), self.values)
        elif isinstance(groups, str):
            level = period_groups(name, groups, self.values)
        elif isinstance(groups, float) or not isinstance(groups, Iterable):
            raise DomainError(
                f"level {name!r} takes a width, the first value of each group, or a dict of "
                f"label: values, got {groups!r}"
            )
        elif is_run_of_days(self.values):
            level = groups_of_days(name, list(groups), self.values)
        else:
            level = groups_from(name, groups, self.values, self.edges)
        # Stable: levels with the same groups stay as they were given.
        levels = sorted((*self.levels, level), key=lambda each: -np.unique(each.groups).size)
        for fine, coarse in pairwise(levels):
            check_nested(fine, coarse)
        return self._changed(self.representatives, levels=tuple(levels))

    def coarsen(self, groups: Array) -> Attribute:
        """One value for each group of values; `groups` numbers them by their first values.

        Levels stay if each of these groups lies in one of theirs. Entries are read by the attribute
        itself: its coarse form is for what was counted.

        >>> ages = Attribute.integers(0, 99).with_level("broad", [0, 20, 65])
        >>> ages.coarsen(np.arange(100) // 5)
        Attribute(20 integers 0–19; levels: broad)
        >>> ages.coarsen(ages.level("broad").groups).labels
        ('0–19', '20–64', '65–99')
        """
        numbers = np.asarray(groups)
        first = np.unique(numbers, return_index=True)[1]
        rising = bool((np.diff(first) > 0).all())
        if numbers.shape != (self.size,) or numbers.max() != first.size - 1 or not rising:
            raise DomainError(f"groups of {self.size} values are numbered 0, 1, … as they come")
        if first.size == self.size:
            return self
        levels = tuple(
            Level(level.name, level.groups[first], level.labels)
            for level in self.levels
            if (level.groups[first][numbers] == level.groups).all()
        )
        names = self._group_labels(numbers, levels)
        sizes = np.bincount(numbers)
        alone = {g: self.values[i] for i in self.apart if sizes[g := int(numbers[i])] == 1}
        values = [alone.get(g, g if self.is_ordered else name) for g, name in enumerate(names)]
        unknown: Unknown = "other" if values[-1] is OTHER else "drop"
        plain_numbers = self.is_ordered and not alone
        return Attribute(range(first.size) if plain_numbers else tuple(values), names,
                         levels=levels, unknown=unknown)  # fmt: skip

    def _group_labels(self, groups: Array, levels: tuple[Level, ...]) -> tuple[str, ...]:
        """What groups of values are called: as those of a level, or else by their members."""
        count = int(groups.max()) + 1
        for level in levels:
            labels = [level.labels[int(g)] for g in level.groups]
            if len(set(labels)) == count:
                return tuple(labels)
        members = np.split(np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))[:-1])
        different: dict[str, int] = {}
        for g, cells in enumerate(members):
            label = (
                f"{self.label(int(cells[0]))}–{self.label(int(cells[-1]))}"
                if len(cells) > 1 and cells[-1] - cells[0] == len(cells) - 1
                else name_list([self.label(int(i)) for i in cells[:4]], most=3)
            )
            different[label if label not in different else f"{label} (group {g})"] = g
        return tuple(different)

    @property
    def total_label(self) -> str:
        """The label of all values together: "total", unless a value or a group is called so.

        >>> Attribute.categories(["part", "total"]).total_label
        '(total)'
        """
        groups = [label for level in self.levels for label in level.labels]
        values = [str(v) for v in self.values] if isinstance(self.values, tuple) else []
        others = {*(self.names or values), *groups}
        word = "total"
        while word in others:
            word = f"({word})"
        return word

    def some_values(self) -> str:
        """A short list of the values, for messages and tables."""
        if isinstance(self.values, range) and self.values.step == 1 and self.size > 4:
            return f"{self.values[0]} to {self.values[-1]}"
        if self.size > 12 and is_run_of_days(self.declared):
            return f"{self.declared[0]} to {self.declared[-1]}"
        if self.size > 12:
            shown = ", ".join(self.label(i) for i in range(12))
            return f"{shown}, … ({self.size} in all)"
        return ", ".join(self.labels)

    def _repr_html_(self) -> str:
        most = 50
        rows = [
            [f"{i}", self.label(i), *(level.labels[int(level.groups[i])] for level in self.levels)]
            for i in range(min(most, self.size))
        ]
        table = HtmlTable.of(repr(self), ["cell", "value", *self._level_names], rows)
        rest = self.size - most
        return notebook_html(table, f"… {rest:,} more") if rest > 0 else notebook_html(table)

    @property
    def _level_names(self) -> list[str]:
        return [level.name for level in self.levels]

    def __repr__(self) -> str:
        if self.edges is not None:
            low, high = shown_number(self.edges[0]), shown_number(self.edges[-1])
            kind = f"{len(self.edges) - 1} bins from {low} to {high}"
        elif isinstance(self.values, range) and self.values.step == 1:
            kind = f"{self.size} integers {self.values[0]}–{self.values[-1]}"
        elif self.size > 12 and is_run_of_days(self.values):
            kind = f"{self.size} days {self.values[0]} to {self.values[-1]}"
        elif self.parts:
            kind = f"{self.size} combinations of {', '.join(name for name, _ in self.parts)}"
        else:
            kind = f"{self.size} values: {self.some_values()}"
        levels = f"; levels: {', '.join(self._level_names)}" if self.levels else ""
        policy = "" if self.unknown == "drop" else f"; unknown: {self.unknown}"
        return f"Attribute({kind}{levels}{policy})"


def _is_whole(number: Any) -> bool:
    return type(number) is int and abs(number) < DECLARED_LIMIT


def first_repeated(names: Sequence[str]) -> str | None:
    """The first name that is listed a second time, if one is."""
    earlier = set()
    for name in names:
        if name in earlier:
            return name
        earlier.add(name)
    return None
