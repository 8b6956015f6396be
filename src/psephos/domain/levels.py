"""Levels and labels from what people write: widths, first values, or a label for some values."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from psephos.domain.values import Level
from psephos.errors import DomainError, name_list
from psephos.values import frozen


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
    around = np.zeros(len(fine.labels), dtype=np.int64)
    around[fine.groups] = coarse.groups
    for group in fine.groups[around[fine.groups] != coarse.groups][:1]:
        over = name_list(coarse.labels[i] for i in np.unique(coarse.groups[fine.groups == group]))
        raise DomainError(
            f"level {coarse.name!r} cuts group {fine.labels[group]!r} of level {fine.name!r} "
            f"(it lies in {over}); groups of levels lie inside each other, "
            "so start a group of both at the same value"
        )


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
