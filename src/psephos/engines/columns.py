"""The columns that a schema needs, against those that a source has."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.engines.duckdb.arrow_types import type_problem
from psephos.engines.protocol import Columns
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


def column_problems(columns: Columns, needed: tuple[str, ...]) -> dict[str, str]:
    """What is wrong with the needed columns of a source; public names and types only.

    >>> column_problems(Columns(("Age", "sex", "sex")), ("age", "sex"))
    {'age': "no column 'age'; close to it: 'Age'", 'sex': "column 'sex' is there 2 times"}
    """
    problems, have = {}, columns.names
    for name in needed:
        if have.count(name) > 1:
            problems[name] = f"column {name!r} is there {have.count(name)} times"
        elif name not in have:
            folded = {other.casefold(): other for other in have}
            close = [folded[c] for c in get_close_matches(name.casefold(), folded, n=3)]
            hint = f"; close to it: {', '.join(map(repr, close))}" if close else ""
            problems[name] = f"no column {name!r}{hint}"
        elif columns.types is not None:
            problem = type_problem(name, columns.types.field(have.index(name)).type)
            if problem is not None:
                problems[name] = problem
    return problems
