"""What the kernel asks of an engine: one table of cells, taken once, and nothing else.

An engine decides nothing. It is given the public schema, never a predicate or text to evaluate, and
gives back a table that no longer changes (`Source.take`). What becomes of a row:

1. Every attribute's entry goes to a cell as the schema says (`Attribute.unknown`); an entry with
   no cell drops the row, whichever attributes are asked for, so that marginals add up.
2. Under a cap, rows without an id are dropped; the others of each person are ordered by their cell
   indices in all attributes of the domain, and the first `max_rows` stay.

The table is then asked for counts; a row counts if its cell is True in the mask of every conjunct.

Privacy: step 1 and the masks look at one row, so they move by one when a row comes or goes. Step 2
looks at one person's rows, after step 1, so it leaves at most `max_rows` of a person and everybody
else's rows as they were (tests/engines/test_duck.py::test_a_person_moves_only_their_own_rows).
Whether taking fails depends on the schema and on the source being there, never on an entry
(tests/engines/test_duck.py::test_no_entry_makes_it_fail).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from psephos.domain.conjunctions import Conjunctions
from psephos.domain.domain import Domain
from psephos.errors import ShapeError
from psephos.kernel.unit import Cap
from psephos.values import Array, Value, frozen


@dataclass(frozen=True, eq=False)
class Conjunct(Value):
    """A condition on rows: is the cell of these attributes True in the mask?

    `mask` has one axis for each of `names`.
    """

    names: tuple[str, ...]
    mask: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "mask", frozen(self.mask, dtype=bool))
        axes = len(self.names)
        if self.mask.ndim != axes:
            raise ShapeError(f"a mask over {self.names} needs {axes} axes, got {self.mask.ndim}")


Cells = tuple[Conjunct, ...]
Names = tuple[str, ...]
GroupedAxis = tuple[str, Array, int]
"""An attribute, the number of the group that each of its cells is in, and how many groups."""


class CellTable(Protocol):
    """A table that never changes; what it is asked follows from the schema and public masks.

    Not every table can be looked at under other domains, or has rows and persons to show: see
    `Source.row_abilities`.
    """

    def counts(self, tables: Sequence[Names], keep: Cells) -> list[Array]:
        """For each table of some attributes, how many rows lie in each of its cells.

        They are int64, one axis for each attribute, of the rows that all of `keep` allow.
        """

    def conjunctions(self, q: Conjunctions, keep: Cells) -> Array:
        """In how many rows each of q holds, as int64: the entries of `counts` it names."""

    def over(self, domain: Domain) -> CellTable:
        """The same rows over a domain of the same columns, merged or in another order."""

    def coarsen(self, domain: Domain, groups: Mapping[str, Array], keep: Cells) -> CellTable:
        """The rows that `keep` allows, over some attributes, of which some are seen by groups."""

    def row_cells(self, names: Names, keep: Cells) -> Array:
        """The cell of these attributes that each row lies in, as int64 that the caller may change.

        The rows are those that `counts` counts, in any order: counting needs no vector of cells.
        """

    def persons(self, axes: Sequence[GroupedAxis], keep: Cells) -> Array:
        """How many persons have a row in each combination of groups of cells, as int64.

        The rows are those that `counts` counts; the array has these axes.
        """


class Source(Protocol):
    """Where a table comes from; `row_abilities` says what it will be able to do, by name."""

    @property
    def row_abilities(self) -> frozenset[str]:
        """Of "row_cells" (and `over`) and "persons" those that the table will have."""

    def take(self, domain: Domain, cap: Cap | None, folder: Any = None) -> Any:
        """The rows as they are now, a `CellTable`: in memory, or in a nameless file of the folder.

        They are read in one statement or transaction, or with the same version before and after;
        else this is refused.
        """
