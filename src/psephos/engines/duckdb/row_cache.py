"""Rows kept as cell indices, so that many counts of one table take one reading.

A strategy of thousands of marginals counts as often. From its second count on a source keeps the
rows that stay, one small integer for each attribute, if they fit in memory; a count is then a
`bincount`. What is counted is the same, row by row (tests/engines/test_row_cache.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from psephos.domain.bits import column_counts
from psephos.domain.conjunctions import Conjunctions
from psephos.domain.domain import Domain
from psephos.kernel.source import Cells, Names
from psephos.values import Array

MOST_BYTES = 1 << 28
"""Tables that would need more are read for every count."""
SLICE = 1 << 20
"""So many rows are counted at once, which takes some 30 bytes for each."""
TABLE_COST = 100
"""To count a row in a table takes as long as to look for so many conjunctions in it, as bits."""
MOST_TABLE_CELLS = 1 << 26


class RowCache:
    """One array of cell indices for each attribute of the domain, in its order.

    No dataclass, and shown without what it holds, not even the number of rows.
    """

    __slots__ = ("_axes", "_columns", "_domain")

    def __init__(self, domain: Domain, columns: tuple[Array, ...]) -> None:
        self._domain = domain
        self._columns = columns
        self._axes = {name: axis for axis, name in enumerate(domain.names)}

    @classmethod
    def of(cls, domain: Domain, batches: Iterable[list[Array]]) -> RowCache | None:
        """From batches of one index for each attribute; None if all rows would be too large."""
        kinds = [np.min_scalar_type(n) for n in domain.shape]
        width = sum(kind.itemsize for kind in kinds)
        parts: list[list[Array]] = []
        rows = 0
        for batch in batches:
            rows += len(batch[0])
            if rows * width > MOST_BYTES:
                return None
            parts.append([c.astype(kind) for c, kind in zip(batch, kinds, strict=True)])
        if not parts:
            return cls(domain, tuple(np.zeros(0, kind) for kind in kinds))
        return cls(domain, tuple(np.concatenate(column) for column in zip(*parts, strict=True)))

    def counts(self, tables: Sequence[Names], keep: Cells) -> list[Array]:
        """How many rows lie in each cell of every table, of those that all of `keep` allow; flat.

        Tables that begin with the same attributes share the indices of these.
        """
        sizes = [math.prod(self._domain[name].size for name in names) for names in tables]
        counts = [np.zeros(size, dtype=np.int64) for size in sizes]
        # Few slices of large tables of counts: adding a slice's counts takes a pass over all cells.
        step = max(SLICE, max(sizes, default=0))
        for start in range(0, len(self._columns[0]), step):
            rows = self._slice(slice(start, start + step), keep)
            beginning: list[tuple[str, Array]] = []
            for table, names in zip(counts, tables, strict=True):
                common = 0
                while common < len(names) and beginning[common : common + 1]:
                    if beginning[common][0] != names[common]:
                        break
                    common += 1
                del beginning[common:]
                for name in names[common:]:
                    before = beginning[-1][1] if beginning else None
                    beginning.append((name, self._further(before, name, rows)))
                if names:
                    table += np.bincount(beginning[-1][1], minlength=table.size)
                else:
                    table += len(rows[0])
        return counts

    def conjunctions(self, conjunctions: Conjunctions, keep: Cells) -> Array:
        """In how many rows each conjunction holds, of those that all of `keep` allow.

        Many conjunctions on few tables are counted by these, others as bits.
        """
        sets, _ = conjunctions.tables()
        sizes = self._domain.shape
        cells = sum(math.prod(sizes[axis] for axis in axes) for axes in sets)
        if len(sets) * TABLE_COST < len(conjunctions) and cells <= MOST_TABLE_CELLS:
            return conjunctions.counted_by(self._domain, lambda names: self.counts(names, keep))
        totals = np.zeros(len(conjunctions), dtype=np.int64)
        step = SLICE if keep else max(len(self._columns[0]), 1)
        for start in range(0, len(self._columns[0]), step):
            rows = self._slice(slice(start, start + step), keep)
            totals += column_counts(rows, sizes, conjunctions)
        return totals

    def _slice(self, rows: slice, keep: Cells) -> list[Array]:
        """The columns of some rows, of those that all of `keep` allow."""
        columns = [column[rows] for column in self._columns]
        for conjunct in keep:
            index = np.zeros(len(columns[0]), dtype=np.int64)
            for name in conjunct.names:
                index = self._further(index, name, columns)
            inside = np.ravel(conjunct.mask)[index]
            columns = [column[inside] for column in columns]
        return columns

    def _further(self, before: Array | None, name: str, columns: Sequence[Array]) -> Array:
        """Row-major indices with one more attribute."""
        column = columns[self._axes[name]]
        if before is None:
            return column.astype(np.int64)
        return np.asarray(before * self._domain[name].size + column)

    def __repr__(self) -> str:
        return f"RowCache({len(self._domain.names)} attributes)"
