"""Declared values and the levels that group them.

A declared value is text, a number, a date, None for missing entries, or OTHER, the cell that takes
all entries that are not declared. A level is a coarser view of an attribute: each cell belongs to
one group, and groups nest: an attribute has its levels from fine to coarse.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from typing import Any, Literal

import numpy as np

from psephos.errors import DomainError
from psephos.values import Array, Value, frozen

Unknown = Literal["drop", "clip", "other"]
"""What happens to entries that are not declared: see `Attribute.with_unknown`."""

DECLARED_LIMIT = 10**300
"""Declared numbers are smaller than this in absolute value; floats end at about 1.8e308."""


class Other(Enum):
    """The value of the cell for entries that are not declared; no comparison with it holds."""

    OTHER = "(other)"

    def __str__(self) -> str:
        return "(other)"


OTHER = Other.OTHER


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
class Level(Value):
    """A coarser view of an attribute: the group of each cell, and the groups' labels."""

    name: str
    groups: Array
    labels: tuple[str, ...]

    def __post_init__(self) -> None:
        groups, count = frozen(self.groups), len(self.labels)
        whole = groups.ndim == 1 and groups.size > 0 and groups.dtype.kind in "iu"
        if not whole or groups.min() < 0 or groups.max() >= count:
            raise DomainError(
                f"level {self.name!r} needs a group from 0 to {count - 1} for every cell"
            )
        object.__setattr__(self, "groups", groups)

    def __repr__(self) -> str:
        return f"Level({self.name!r}, {len(self.labels)} groups)"


def check_value(value: Any) -> None:
    """Refuse a value that cannot be compared with others, or has no single place among them."""
    try:
        hash(value)
    except TypeError:
        raise DomainError(f"value {value!r} cannot be a cell; use text, numbers or dates") from None
    if isinstance(value, datetime) and value.tzinfo is not None:
        # Two zones can name one instant and still compare unequal (in a repeated hour).
        raise DomainError(f"value {value!r} has a time zone; declare times in UTC, without one")
    if isinstance(value, int) and abs(value) >= DECLARED_LIMIT:
        raise DomainError("a declared number has over 300 digits; declare it as text")
    odd = isinstance(value, float) and not math.isfinite(value)
    if odd or not _equals_itself(value):
        raise DomainError(f"value {value!r} cannot be a cell; for missing entries declare None")


def check_unknown(policy: str, values: Sequence[Any], binned: bool, merged: bool) -> None:
    """Refuse a policy for undeclared entries that does not fit these values."""
    if policy not in ("drop", "clip", "other"):
        raise DomainError(f"unknown is 'drop', 'clip' or 'other', got {policy!r}")
    if merged:
        if policy != "drop":
            raise DomainError(f"set unknown = {policy!r} on the attributes before merging them")
        return
    whole = isinstance(values, range)
    if policy == "clip" and not (binned or (whole and values[-1] - values[0] == len(values) - 1)):
        raise DomainError("only integers and bins can be clipped; write 'drop' or 'other'")
    if (policy == "other") != (not whole and values[-1] is OTHER):
        raise DomainError("the cell OTHER is added by unknown = 'other', not listed")
    if policy == "other" and str(OTHER) in values:
        raise DomainError(
            f"{str(OTHER)!r} is a declared value, and unknown = 'other' needs that label; "
            "rename the value, or write 'drop'"
        )


def is_run_of_days(values: Sequence[Any]) -> bool:
    """Are these days that follow each other?"""
    if not values or not all(type(value) is date for value in values):
        return False
    numbers = [value.toordinal() for value in values]
    return numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def plain(value: Any) -> Any:
    """Numpy scalars as the Python values they stand for."""
    if isinstance(value, np.datetime64):
        # Nanoseconds have no Python type and would turn into a whole number.
        return value.astype("datetime64[us]").item()
    return value.item() if isinstance(value, np.generic) else value


def _equals_itself(value: Any) -> bool:
    """Is it equal to itself? Not-a-number is not."""
    try:
        return bool(value == value)
    except (TypeError, ValueError):
        return False
