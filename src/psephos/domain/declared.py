"""What the kernel and the engines ask of one column of the schema: its cells.

How people write a column, and how it is shown to them, is `attribute`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np

from psephos.domain.values import (
    DECLARED_LIMIT,
    OTHER,
    Level,
    TupleValues,
    Unknown,
    check_unknown,
    check_value,
    is_run_of_days,
    plain,
)
from psephos.errors import DomainError, name_list
from psephos.values import Value


@dataclass(frozen=True, eq=False, repr=False)
class DeclaredValues(Value):
    """A column's declared values, in order, with their labels, bins and levels, all checked."""

    values: Sequence[Any]
    names: tuple[str, ...] | None = None
    edges: tuple[float, ...] | None = None
    levels: tuple[Level, ...] = ()
    parts: tuple[tuple[str, Self], ...] = ()
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
        plain_kinds = (kinds := set(map(type, self.values))) <= {str, date}  # nothing odd in them
        values = tuple(self.values if plain_kinds else map(plain, self.values))
        object.__setattr__(self, "values", values)
        for value in () if plain_kinds else values:
            check_value(value)
        if len(set(values)) < size:
            again = first_repeated(values)
            twice = (
                f"{again!r} is declared twice (as {values[values.index(again)]!r} and {again!r})"
            )
            raise DomainError(f"value {twice}; list each value once")
        # Different texts, and different days, have different labels.
        self._check_names(self.names or (() if kinds in ({str}, {date}) else self.labels))

    def _check_inside(self, size: int) -> None:
        """Refuse levels, bins and merged parts that do not fit the number of values."""
        for level in self.levels:
            if level.groups.size != size:
                grouped = f"level {level.name!r} groups {level.groups.size} cells"
                raise DomainError(f"{grouped}, and the attribute has {size}")
        if self.edges is not None:
            numbers = all(type(edge) is float or is_declarable(edge) for edge in self.edges)
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
        if (repeated := first_repeated(names)) is not None:
            raise DomainError(f"label {repeated!r} is used twice; every cell needs its own label")

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

    @cached_property
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

    @property
    def representatives(self) -> tuple[float, ...] | None:
        """The declared number of every bin in sums and means; None for the middles."""
        declared: tuple[float, ...] | None = self.__dict__.get("_representatives")
        return declared

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_representatives": self.representatives}

    def __setstate__(self, state: dict[str, Any]) -> None:
        representatives = state.get("_representatives")
        super().__setstate__({k: v for k, v in state.items() if k != "_representatives"})
        if representatives is not None:
            object.__setattr__(self, "_representatives", representatives)

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


def is_declarable(number: Any) -> bool:
    """Is it a whole number of at most 300 digits?"""
    return type(number) is int and abs(number) < DECLARED_LIMIT


def first_repeated(names: Sequence[Any]) -> Any:
    """The first name that is listed a second time; None if none is."""
    earlier = set()
    for name in names:
        if name in earlier:
            return name
        earlier.add(name)
    return None
