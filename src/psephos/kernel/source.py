"""What the kernel asks of an engine: integer counts of cells, and nothing else.

An engine decides nothing. It is given the public schema and masks over declared cells, never a
predicate or text to evaluate, and gives back counts. What becomes of a row:

1. Every attribute's entry goes to a cell as the schema says (`Attribute.unknown`); an entry with
   no cell drops the row, whichever attributes are asked for, so that marginals add up.
2. Under a cap, rows without an id are dropped; the others of each person are ordered by their cell
   indices in all attributes of the domain, and the first `max_rows` stay.
3. A row counts if its cell is True in the mask of every conjunct.

Privacy: steps 1 and 3 look at one row, so they move by one when a row comes or goes. Step 2 looks
at one person's rows, after step 1, so it leaves at most `max_rows` of a person and everybody
else's rows as they were (tests/engines/test_duck.py::test_a_person_moves_only_their_own_rows).
Whether counting fails depends on the schema and on the file being there, never on an entry
(tests/engines/test_duck.py::test_no_entry_makes_it_fail).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Protocol

from psephos.attribute import Attribute
from psephos.domain import Domain
from psephos.errors import ShapeError
from psephos.frozen import Array, Value, frozen

UNREADABLE = (
    "the source could not be counted; the owner finds out why with check(source, domain), "
    "whose output is private"
)


@dataclass(frozen=True, eq=False)
class Conjunct(Value):
    """A condition on rows: is the cell of these attributes True in the mask?

    `mask` has one axis for each of `names`.
    """

    names: tuple[str, ...]
    mask: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "mask", frozen(self.mask, dtype=bool))
        if self.mask.ndim != len(self.names):
            raise ShapeError(
                f"a mask over {', '.join(self.names)} needs {len(self.names)} axes, "
                f"got {self.mask.ndim}"
            )


Cells = tuple[Conjunct, ...]


@dataclass(frozen=True)
class Cap:
    """At most `max_rows` rows of each person, who is named by a column."""

    column: str
    max_rows: int


class Source(Protocol):
    """Where counts come from."""

    def count(
        self, domain: Domain, attributes: tuple[str, ...], keep: Cells, cap: Cap | None
    ) -> Array:
        """How many rows lie in each cell of `attributes`: int64, one axis for each of them."""


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
