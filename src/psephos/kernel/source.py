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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

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


class Source(Protocol):
    """Where counts come from."""

    def counts(
        self, domain: Domain, tables: Sequence[Names], keep: Cells, cap: Cap | None
    ) -> list[Array]:
        """For each table of some attributes, how many rows lie in each of its cells.

        They are int64, one axis for each attribute, of rows that are read once for all tables.
        """

    def conjunctions(self, domain: Domain, q: Conjunctions, keep: Cells, cap: Cap | None) -> Array:
        """In how many rows each of q holds, as int64: the entries of `counts` it names.

        The rows are those that `counts` counts, by the same three rules. How a source goes about it
        is chosen by the schema and the conjunctions alone; here, by the tables that they lie in.
        """
        return q.counted_by(domain, lambda tables: self.counts(domain, tables, keep, cap))


@dataclass(frozen=True, eq=False, repr=False)
class Grouped(Source):
    """The table that group_by makes: one row for each group, with its size cut at `most`.

    Persons were capped where the sizes were counted.
    """

    sizes: Callable[[], Array]
    most: int

    def counts(
        self, domain: Domain, tables: Sequence[Names], keep: Cells, cap: Cap | None
    ) -> list[Array]:
        """Counts of groups; `keep` masks them by their attributes and their sizes."""
        sizes = np.minimum(self.sizes(), self.most)
        table = np.zeros((sizes.size, self.most + 1), dtype=np.int64)
        table[np.arange(sizes.size), sizes] = 1
        return [summed(table.reshape(domain.shape), domain, names, keep) for names in tables]


class PersonSource(Protocol):
    """The ability of a source whose rows name persons."""

    def persons(self, domain: Domain, axes: Sequence[GroupedAxis], keep: Cells, cap: Cap) -> Array:
        """How many persons have a row in each combination of groups of cells, as int64.

        The rows are those that `counts` counts, by the same three rules; the array has these axes.
        """


class RowSource(Protocol):
    """The ability of a source that tells rows apart, so that counts need no vector of cells."""

    def row_cells(self, domain: Domain, names: Names, keep: Cells, cap: Cap | None) -> Array:
        """The cell of these attributes that each row lies in, as int64 that the caller may change.

        The rows are those that `counts` counts, by the same three rules, in any order.
        """


@dataclass(frozen=True, eq=False, repr=False)
class Persons(Source):
    """The table that persons makes: a row for each person and each cell that one is in."""

    cells: Callable[[], Array]

    def counts(
        self, domain: Domain, tables: Sequence[Names], keep: Cells, cap: Cap | None
    ) -> list[Array]:
        """Counts of persons in cells; sums of them count a person once for each cell."""
        cells = self.cells().reshape(domain.shape)
        return [summed(cells, domain, names, keep) for names in tables]


def summed(cells: Array, domain: Domain, attributes: tuple[str, ...], keep: Cells) -> Array:
    """Counts over some attributes, of the cells that all of `keep` allow."""
    for conjunct in keep:
        axes = [domain.axis(name) for name in conjunct.names]
        shape = [n if i in axes else 1 for i, n in enumerate(domain.shape)]
        cells = cells * conjunct.mask.transpose(np.argsort(axes)).reshape(shape)
    gone = tuple(i for i, name in enumerate(domain.names) if name not in attributes)
    left = [name for name in domain.names if name in attributes]
    return np.transpose(cells.sum(axis=gone), [left.index(name) for name in attributes])
