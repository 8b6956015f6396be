"""One column of the public schema, as people write it and as it is shown to them.

Privacy: what is written here decides nothing by itself. The gate makes the kernel's own attribute
from its fields, which `declared` checks, and asks of it nothing that is in this file
(tests/kernel/test_trusted_base.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeAlias, Union

import numpy as np

from psephos.domain.calendar import days_between, groups_of_days, period_groups
from psephos.domain.declared import DeclaredValues, is_declarable
from psephos.domain.levels import (
    check_nested,
    groups_from,
    groups_of_width,
    interval_label,
    named_groups,
    shown_number,
)
from psephos.domain.values import OTHER, Level, TupleValues, Unknown, is_run_of_days, plain
from psephos.errors import DomainError, name_list
from psephos.report.html import HtmlTable, notebook_html
from psephos.values import Array, frozen

Spec: TypeAlias = Union["Attribute", int, range, Sequence[Any], Mapping[Any, str]]


@dataclass(frozen=True, eq=False, repr=False)
class Attribute(DeclaredValues):
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
            whole = isinstance(mark, int) and is_declarable(int(mark))
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
        ordered = self.is_ordered
        values = [alone.get(g, g if ordered else name) for g, name in enumerate(names)]
        unknown: Unknown = "other" if values[-1] is OTHER else "drop"
        plain_numbers = ordered and not alone
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

    @cached_property
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
