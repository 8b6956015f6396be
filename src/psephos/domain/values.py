"""Declared values and the levels that group them.

A declared value is text, a number, a date, None for missing entries, or OTHER, the cell that takes
all entries that are not declared. A level is a coarser view of an attribute: each cell belongs to
one group, and groups nest: an attribute has its levels from fine to coarse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Literal

import numpy as np

from psephos.errors import DomainError, name_list
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


def named_groups(
    name: str,
    groups: Mapping[str, Sequence[Any]],
    cells: int,
    cell_of: Callable[[Any], int],
    label_of: Callable[[int], str],
    apart: Sequence[int] = (),
) -> Level:
    """A level from label → values of an attribute of so many cells.

    `cell_of` gives the cell of a value, `label_of` the label of a cell. Cells that stand apart are
    groups of their own, unless they are listed.
    """
    group_of_cell = np.full(cells, -1)
    for g, (label, members) in enumerate(groups.items()):
        if isinstance(members, str) or not isinstance(members, Iterable):
            raise DomainError(f"group {label!r} of level {name!r} must list its values")
        if not list(members):
            raise DomainError(f"group {label!r} of level {name!r} is empty; leave it out")
        for member in members:
            cell = cell_of(member)
            if group_of_cell[cell] >= 0:
                raise DomainError(f"level {name!r} puts {member!r} in two groups")
            group_of_cell[cell] = g
    names = [str(label) for label in groups]
    for cell in apart:
        if group_of_cell[cell] < 0 and label_of(cell) not in names:
            group_of_cell[cell] = len(names)
            names.append(label_of(cell))
    if (group_of_cell < 0).any():
        missing = [label_of(int(i)) for i in np.flatnonzero(group_of_cell < 0)]
        raise DomainError(f"level {name!r} leaves out {name_list(missing)}; place every value")
    return Level(name, frozen(group_of_cell), tuple(names))


def groups_of_width(name: str, width: int, values: Sequence[Any]) -> Level:
    """A level of integer groups that start at multiples of a width."""
    if not isinstance(values, range) or width < 1:
        raise DomainError(
            f"level {name!r}: a width ({width}) must be positive and needs an integer "
            "attribute; for other attributes give a dict of label: values"
        )
    low, high = min(values), max(values)
    starts = [low, *range((low // width + 1) * width, high + 1, width)]
    return groups_from(name, starts, values)


def groups_from(
    name: str, starts: Sequence[Any], values: Sequence[Any], edges: Sequence[float] | None = None
) -> Level:
    """A level from the first value, or the first edge of binned values, of each group."""
    starts = list(starts)
    ordered = isinstance(values, range) and values.step == 1
    if not (ordered or edges is not None):
        raise DomainError(
            f"level {name!r}: group starts need integers or bins; "
            "for other attributes give a dict of label: values"
        )
    marks = values if edges is None else list(edges[:-1])
    strange = [start for start in starts if start not in marks]
    if strange or starts != sorted(set(starts)) or not starts or starts[0] != marks[0]:
        raise DomainError(
            f"level {name!r}: starts {name_list(starts)} must increase, begin with "
            f"{marks[0]} and be {'values' if edges is None else 'edges'} of the attribute"
        )
    cuts = [marks.index(start) for start in starts] + [len(values)]
    groups = np.repeat(np.arange(len(starts)), np.diff(cuts))
    if edges is not None:
        ends = [edges[cut] for cut in cuts[1:]]
        pairs = zip(starts, ends, strict=True)
        labels = tuple(interval_label(lo, hi) for lo, hi in pairs)
    else:
        lasts = [values[cut - 1] for cut in cuts[1:]]
        pairs = zip(starts, lasts, strict=True)
        labels = tuple(str(lo) if lo == hi else f"{lo}–{hi}" for lo, hi in pairs)
    return Level(name, frozen(groups), labels)


def check_nested(fine: Level, coarse: Level) -> None:
    """Refuse a coarser level that cuts a group of the finer one."""
    pairs = np.unique(np.stack([fine.groups, coarse.groups]), axis=1)
    for group in np.flatnonzero(np.bincount(pairs[0]) > 1)[:1]:
        label = fine.labels[int(group)]
        over = name_list(coarse.labels[int(i)] for i in pairs[1][pairs[0] == group])
        raise DomainError(
            f"level {coarse.name!r} cuts group {label!r} of level {fine.name!r} "
            f"(it lies in {over}); groups of levels lie inside each other, "
            "so start a group of both at the same value"
        )


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


def plain(value: Any) -> Any:
    """Numpy scalars as the Python values they stand for."""
    if isinstance(value, np.datetime64):
        # Nanoseconds have no Python type and would turn into a whole number.
        return value.astype("datetime64[us]").item()
    return value.item() if isinstance(value, np.generic) else value


def shown_number(x: float) -> str:
    """A number as people write it.

    >>> shown_number(10.0), shown_number(0.5), shown_number(-math.inf)
    ('10', '0.5', '-inf')
    """
    if math.isinf(x):
        return "inf" if x > 0 else "-inf"
    return str(int(x)) if float(x).is_integer() else repr(x)


def interval_label(low: float, high: float) -> str:
    """An interval that holds its lower end and not its upper, as people write it.

    >>> interval_label(0, 10), interval_label(100, math.inf), interval_label(-math.inf, 0)
    ('[0, 10)', '100 and over', 'below 0')
    """
    if math.isinf(low) and math.isinf(high):
        return "all numbers"
    if math.isinf(high):
        return f"{shown_number(low)} and over"
    if math.isinf(low):
        return f"below {shown_number(high)}"
    return f"[{shown_number(low)}, {shown_number(high)})"


def _equals_itself(value: Any) -> bool:
    """Is it equal to itself? Not-a-number is not."""
    try:
        return bool(value == value)
    except (TypeError, ValueError):
        return False
