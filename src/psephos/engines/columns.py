"""The names of a source's columns, against those that a schema needs."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from psephos.attribute import Attribute
from psephos.domain import Domain
from psephos.kernel.unit import Cap


def columns_of(domain: Domain) -> Iterator[tuple[str, Attribute]]:
    """The columns that fill a domain, in order; a merged attribute is filled by its parts.

    >>> [name for name, _ in columns_of(Domain.of(a=2, b=3, c=4).merge(["a", "c"]))]
    ['a', 'c', 'b']
    """
    for name, attribute in zip(domain.names, domain.attributes, strict=True):
        if attribute.parts:
            names, attributes = zip(*attribute.parts, strict=True)
            yield from columns_of(Domain(names, attributes))
        else:
            yield name, attribute


def needed_columns(domain: Domain, cap: Cap | None) -> tuple[str, ...]:
    """The names that a source must have, once each, to be counted."""
    person = [] if cap is None else [cap.column]
    return tuple(dict.fromkeys([*(name for name, _ in columns_of(domain)), *person]))


def column_problems(have: tuple[str, ...], needed: tuple[str, ...]) -> tuple[str, ...]:
    """What is wrong with the names of a source's columns; public names only.

    >>> column_problems(("Age", "sex", "sex"), ("age", "sex"))
    ("no column 'age'; close to it: 'Age'", "column 'sex' is there 2 times")
    """
    found = []
    for name in needed:
        if have.count(name) > 1:
            found.append(f"column {name!r} is there {have.count(name)} times")
        elif name not in have:
            folded = {other.casefold(): other for other in have}
            close = [folded[c] for c in get_close_matches(name.casefold(), folded, n=3)]
            hint = f"; close to it: {', '.join(map(repr, close))}" if close else ""
            found.append(f"no column {name!r}{hint}")
    return tuple(found)
