"""Levels: coarser views of an attribute, from fine to coarse."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from psephos.errors import DomainError, name_list
from psephos.frozen import Array, Value, frozen
from psephos.values import shown_number

if TYPE_CHECKING:
    from psephos.attribute import Attribute


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


def named_groups(attribute: Attribute, name: str, groups: Mapping[str, Sequence[Any]]) -> Level:
    """A level from label → values."""
    found = np.full(attribute.size, -1)
    for g, (label, members) in enumerate(groups.items()):
        if isinstance(members, str) or not isinstance(members, Iterable):
            raise DomainError(f"group {label!r} of level {name!r} must list its values")
        if not list(members):
            raise DomainError(f"group {label!r} of level {name!r} is empty; leave it out")
        for member in members:
            cell = attribute.index(member)
            if found[cell] >= 0:
                raise DomainError(f"level {name!r} puts {member!r} in two groups")
            found[cell] = g
    if (found < 0).any():
        left = [attribute.label(int(i)) for i in np.flatnonzero(found < 0)]
        raise DomainError(f"level {name!r} leaves out {name_list(left)}; place every value")
    return Level(name, frozen(found), tuple(str(label) for label in groups))


def groups_of_width(attribute: Attribute, name: str, width: int) -> Level:
    """A level of integer groups that start at multiples of a width."""
    if not isinstance(attribute.values, range) or width < 1:
        raise DomainError(
            f"level {name!r}: a width ({width}) must be positive and needs an integer "
            "attribute; for other attributes give a dict of label: values"
        )
    low, high = min(attribute.values), max(attribute.values)
    return groups_from(attribute, name, [low, *range((low // width + 1) * width, high + 1, width)])


def groups_from(attribute: Attribute, name: str, starts: Sequence[Any]) -> Level:
    """A level from the first value, or the first edge, of each group."""
    starts = list(starts)
    ordered = isinstance(attribute.values, range) and attribute.values.step == 1
    if not (ordered or attribute.edges is not None):
        raise DomainError(
            f"level {name!r}: group starts need integers or bins; "
            "for other attributes give a dict of label: values"
        )
    marks = list(attribute.edges[:-1]) if attribute.edges is not None else attribute.values
    strange = [start for start in starts if start not in marks]
    if strange or starts != sorted(set(starts)) or not starts or starts[0] != marks[0]:
        raise DomainError(
            f"level {name!r}: starts {name_list(starts)} must increase, begin with "
            f"{marks[0]} and be {'edges' if attribute.edges else 'values'} of the attribute"
        )
    cuts = [marks.index(start) for start in starts] + [attribute.size]
    groups = np.repeat(np.arange(len(starts)), np.diff(cuts))
    if attribute.edges is not None:
        ends = [attribute.edges[cut] for cut in cuts[1:]]
        pairs = zip(starts, ends, strict=True)
        labels = tuple(f"[{shown_number(lo)}, {shown_number(hi)})" for lo, hi in pairs)
    else:
        lasts = [attribute.values[cut - 1] for cut in cuts[1:]]
        pairs = zip(starts, lasts, strict=True)
        labels = tuple(str(lo) if lo == hi else f"{lo}–{hi}" for lo, hi in pairs)
    return Level(name, frozen(groups), labels)


def check_nested(fine: Level, coarse: Level) -> None:
    """Every group of the finer level must lie inside one group of the coarser."""
    pairs = np.unique(np.stack([fine.groups, coarse.groups]), axis=1)
    for group in np.flatnonzero(np.bincount(pairs[0]) > 1)[:1]:
        label = fine.labels[int(group)]
        over = name_list(coarse.labels[int(i)] for i in pairs[1][pairs[0] == group])
        raise DomainError(
            f"level {coarse.name!r} cuts group {label!r} of level {fine.name!r} "
            f"(it lies in {over}); levels go from fine to coarse, "
            "so start a group of both at the same value"
        )
