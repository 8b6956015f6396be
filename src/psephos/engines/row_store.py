"""Rows taken once, as cell indices: every count of a table is a `bincount` over these.

One small integer for each attribute and row, in memory or in files of a folder that the owner
names. Such a file has no name there and is gone with the process. What is counted is the same as if
the source were read for every count (tests/engines/test_row_store.py).
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack

import numpy as np

from psephos.domain.bits import column_counts
from psephos.domain.conjunctions import Conjunctions
from psephos.domain.domain import Domain
from psephos.kernel.cell_counts import check_masks, merged_names
from psephos.kernel.source import Cells, GroupedAxis, Names
from psephos.values import Array

SLICE = 1 << 20
"""So many rows are counted at once, which takes some 30 bytes for each."""
TABLE_COST = 100
"""To count a row in a table takes as long as to look for so many conjunctions in it, as bits."""
MOST_TABLE_CELLS = 1 << 26


class RowStore:
    """One array of cell indices for each attribute of the domain, in its order.

    Under a cap rows are in the order of persons, and `begins` says where another one begins. No
    dataclass, and shown without what it holds, not even the number of rows.
    """

    __slots__ = ("_axes", "_begins", "_columns", "_domain")

    def __init__(
        self, domain: Domain, columns: Sequence[Array], begins: Array | None = None
    ) -> None:
        self._domain, self._columns, self._begins = domain, tuple(columns), begins
        self._axes = {name: axis for axis, name in enumerate(domain.names)}

    @classmethod
    def of(
        cls,
        domain: Domain,
        batches: Iterable[list[Array]],
        *,
        persons: bool = False,
        folder: str | os.PathLike[str] | None = None,
    ) -> RowStore:
        """From batches of one index for each attribute, and with `persons` where one begins."""
        kinds = [np.min_scalar_type(n - 1) for n in domain.shape]
        kinds += [np.dtype(bool)] if persons else []
        columns = _in_memory(batches, kinds) if folder is None else _on_disk(batches, kinds, folder)
        return cls(domain, columns[: len(domain)], columns[-1] if persons else None)

    def counts(self, tables: Sequence[Names], keep: Cells) -> list[Array]:
        """See `psephos.kernel.source.CellTable`.

        Tables that begin with the same attributes share the indices of these.
        """
        check_masks(self._domain, keep)
        shapes = [tuple([self._domain[name].size for name in names]) for names in tables]
        counts = [np.zeros(math.prod(shape), dtype=np.int64) for shape in shapes]
        # Few slices of large tables of counts: adding a slice's counts takes a pass over all cells.
        step = max(SLICE, max((table.size for table in counts), default=0))
        for start in range(0, self._rows, step):
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
        return [table.reshape(shape) for table, shape in zip(counts, shapes, strict=True)]

    def conjunctions(self, q: Conjunctions, keep: Cells) -> Array:
        """See `psephos.kernel.source.CellTable`.

        Many conjunctions on few tables are counted by these, others as bits.
        """
        check_masks(self._domain, keep)
        q.check(self._domain)
        sets, _ = q.tables()
        sizes = self._domain.shape
        cells = sum(math.prod(sizes[axis] for axis in axes) for axes in sets)
        if len(sets) * TABLE_COST < len(q) and cells <= MOST_TABLE_CELLS:
            return q.counted_by(self._domain, lambda names: self.counts(names, keep))
        totals = np.zeros(len(q), dtype=np.int64)
        step = SLICE if keep else max(self._rows, 1)
        for start in range(0, self._rows, step):
            rows = self._slice(slice(start, start + step), keep)
            totals += column_counts(rows, sizes, q)
        return totals

    def row_cells(self, names: Names, keep: Cells) -> Array:
        """See `psephos.kernel.source.CellTable`."""
        check_masks(self._domain, keep)
        cells: list[Array] = [np.zeros(0, dtype=np.int64)]
        for start in range(0, self._rows, SLICE):
            rows = self._slice(slice(start, start + SLICE), keep)
            cells.append(self._index(names, rows))
        return np.concatenate(cells)

    def over(self, domain: Domain) -> RowStore:
        """See `psephos.kernel.source.CellTable`."""
        columns = []
        for name, names in zip(domain.names, merged_names(domain), strict=True):
            if len(names) == 1:
                columns.append(self._columns[self._axes[names[0]]])
            else:
                kind = np.min_scalar_type(domain[name].size - 1)
                columns.append(self._index(names, self._columns).astype(kind))
        return RowStore(domain, columns, self._begins)

    def coarsen(self, domain: Domain, groups: Mapping[str, Array], keep: Cells) -> RowStore:
        """See `psephos.kernel.source.CellTable`."""
        check_masks(self._domain, keep)
        inside = self._inside(self._columns, keep) if keep else slice(None)
        columns = []
        for name in domain.names:
            column = self._columns[self._axes[name]][inside]
            kind = np.min_scalar_type(domain[name].size - 1)
            columns.append(groups[name].astype(kind)[column] if name in groups else column)
        begins = self._begins
        if begins is not None and keep:
            begins = np.diff(np.cumsum(begins)[inside], prepend=0) > 0
        return RowStore(domain, columns, begins)

    def persons(self, axes: Sequence[GroupedAxis], keep: Cells) -> Array:
        """See `psephos.kernel.source.CellTable`."""
        check_masks(self._domain, keep)
        shape = tuple(size for *_, size in axes)
        counts = np.zeros(math.prod(shape), dtype=np.int64)
        for rows, person in self._persons():
            columns = [column[rows] for column in self._columns]
            inside = self._inside(columns, keep)
            cell = np.zeros(len(person), dtype=np.int64)
            for name, groups, size in axes:
                cell = cell * size + groups[columns[self._axes[name]]]
            once = np.unique(person[inside] * counts.size + cell[inside])
            counts += np.bincount(once % counts.size, minlength=counts.size)
        return counts.reshape(shape)

    @property
    def _rows(self) -> int:
        return len(self._columns[0])

    def _persons(self) -> Iterator[tuple[slice, Array]]:
        """Slices of the rows of whole persons, and a number for the person of each row."""
        begins: Array = self._begins  # type: ignore[assignment] # the kernel asks under a cap alone
        start = 0
        while start < self._rows:
            end = start + SLICE
            while end < self._rows and not begins[end]:
                end += 1
            yield slice(start, end), np.cumsum(begins[start:end])
            start = end

    def _slice(self, rows: slice, keep: Cells) -> list[Array]:
        """The columns of some rows, of those that all of `keep` allow."""
        columns = [column[rows] for column in self._columns]
        if keep:
            inside = self._inside(columns, keep)
            columns = [column[inside] for column in columns]
        return columns

    def _inside(self, columns: Sequence[Array], keep: Cells) -> Array:
        inside = np.ones(len(columns[0]), dtype=bool)
        for conjunct in keep:
            inside &= np.ravel(conjunct.mask)[self._index(conjunct.names, columns)]
        return inside

    def _index(self, names: Names, columns: Sequence[Array]) -> Array:
        """Row-major indices in some attributes."""
        index = np.zeros(len(columns[0]), dtype=np.int64)
        for name in names:
            index = self._further(index, name, columns)
        return index

    def _further(self, before: Array | None, name: str, columns: Sequence[Array]) -> Array:
        """Row-major indices with one more attribute."""
        column = columns[self._axes[name]]
        if before is None:
            return column.astype(np.int64)
        return np.asarray(before * self._domain[name].size + column)

    def __repr__(self) -> str:
        return f"RowStore({len(self._domain)} attributes)"


def _in_memory(batches: Iterable[list[Array]], kinds: Sequence[np.dtype]) -> list[Array]:
    """Each column in one piece; only the one being joined is held twice."""
    parts: list[list[Array]] = [[np.zeros(0, kind)] for kind in kinds]
    for batch in batches:
        for pieces, column, kind in zip(parts, batch, kinds, strict=True):
            pieces.append(np.array(column, kind))  # a copy: the batch may be the source's memory
    columns = []
    for pieces in parts:
        columns.append(np.concatenate(pieces))
        pieces.clear()
    return columns


def _on_disk(
    batches: Iterable[list[Array]], kinds: Sequence[np.dtype], folder: str | os.PathLike[str]
) -> list[Array]:
    """Each column in a file of its own, which has no name, or lost it before its first byte."""
    columns: list[Array] = []
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile(dir=folder)) for _ in kinds]
        for batch in batches:
            for file, column, kind in zip(files, batch, kinds, strict=True):
                file.write(np.ascontiguousarray(column, kind).data)
        for file, kind in zip(files, kinds, strict=True):
            file.flush()
            rows = file.tell() // kind.itemsize
            columns.append(np.memmap(file, kind, "r", shape=(rows,)) if rows else np.zeros(0, kind))
    return columns
