"""Tables of counts, one for each cell, and what all tables of rows check before they count.

Privacy: see `kernel.source`; a row counts if its cell is True in every mask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from psephos.domain.conjunctions import Conjunctions
from psephos.domain.domain import Domain
from psephos.errors import ShapeError
from psephos.kernel.source import Cells, Names
from psephos.values import Array


@dataclass(frozen=True, eq=False, repr=False)
class CellCounts:
    """A table given as one count for each cell of its domain."""

    domain: Domain
    cells: Array

    def counts(self, tables: Sequence[Names], keep: Cells) -> list[Array]:
        """Sums over the attributes left out, of the cells that are kept."""
        check_masks(self.domain, keep)
        cells = self.cells.reshape(self.domain.shape)
        return [summed(cells, self.domain, names, keep) for names in tables]

    def conjunctions(self, q: Conjunctions, keep: Cells) -> Array:
        """By the tables that the conjunctions lie in."""
        q.check(self.domain)
        return q.counted_by(self.domain, lambda tables: self.counts(tables, keep))

    def over(self, domain: Domain) -> CellCounts:
        """See `CellTable`."""
        names = tuple(name for names in merged_names(domain) for name in names)
        return CellCounts(domain, self.counts([names], ())[0])

    def coarsen(self, domain: Domain, groups: Mapping[str, Array], keep: Cells) -> CellCounts:
        """See `CellTable`."""
        (cells,) = self.counts([domain.names], keep)
        for axis, name in enumerate(domain.names):
            if name in groups:
                together = np.zeros((domain.shape[axis], *np.delete(cells.shape, axis)), np.int64)
                np.add.at(together, groups[name], np.moveaxis(cells, axis, 0))
                cells = np.moveaxis(together, 0, axis)
        return CellCounts(domain, cells)

    def row_cells(self, names: Names, keep: Cells) -> Array:
        """The cell of each row, as often as it is counted."""
        (counts,) = self.counts([names], keep)
        return np.repeat(np.arange(counts.size), counts.reshape(-1))


def check_masks(domain: Domain, keep: Cells) -> None:
    """Refuses masks of another shape than their attributes have."""
    for conjunct in keep:
        shape = tuple(domain[name].size for name in conjunct.names)
        if conjunct.mask.shape != shape:
            raise ShapeError(f"a mask over {conjunct.names} has shape {conjunct.mask.shape}")


def merged_names(domain: Domain) -> list[Names]:
    """For each attribute the names of the columns that fill it: of a merged one its parts'."""
    pairs = zip(domain.names, domain.attributes, strict=True)
    return [tuple(part for part, _ in each.parts) or (name,) for name, each in pairs]


def summed(cells: Array, domain: Domain, attributes: tuple[str, ...], keep: Cells) -> Array:
    """Counts over some attributes, of the cells that all of `keep` allow."""
    for conjunct in keep:
        axes = [domain.axis(name) for name in conjunct.names]
        shape = [n if i in axes else 1 for i, n in enumerate(domain.shape)]
        cells = cells * conjunct.mask.transpose(np.argsort(axes)).reshape(shape)
    gone = tuple(i for i, name in enumerate(domain.names) if name not in attributes)
    left = [name for name in domain.names if name in attributes]
    return np.transpose(cells.sum(axis=gone), [left.index(name) for name in attributes])
