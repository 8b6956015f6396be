"""Matrices of 0 and 1 as sources: very many attributes of two values, packed into bits at once.

A matrix has no names: its column j is attribute j of the domain, whose values are 0 and 1. An entry
that is neither has no cell, so its row is dropped, as everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from psephos.domain.bits import PackedRows
from psephos.domain.conjunctions import Conjunctions
from psephos.domain.domain import Domain
from psephos.engines.row_store import RowStore
from psephos.errors import DomainError
from psephos.kernel.cell_counts import check_masks
from psephos.kernel.source import Cells, Names
from psephos.kernel.unit import Cap
from psephos.values import Array

MOST_AS_CELLS = 8
"""Tables of up to so many attributes are counted cell by cell, each a conjunction."""
CELLS_AT_ONCE = 1 << 20


class BitMatrix:
    """Rows of 0 and 1, packed; shown without what it holds, not even the number of rows.

    >>> matrix = BitMatrix.of(np.array([[0, 1], [1, 1], [1, 2]]))
    >>> matrix.count(Domain.binary(2), ("x1",), (), None)
    array([0, 2])
    """

    __slots__ = ("_domain", "_packed", "_rows_given", "columns")
    row_abilities: frozenset[str] = frozenset()

    def __init__(self, packed: PackedRows, rows_given: int | None = None) -> None:
        self._packed = packed
        self._domain: Domain | None = None  # the last that fits
        self.columns = packed.attributes
        self._rows_given = rows_given

    @classmethod
    def of(cls, matrix: Any) -> BitMatrix:
        """From a matrix of numpy or scipy.sparse, of truth values or numbers."""
        if matrix.dtype.kind not in "biuf":
            raise DomainError(
                f"a matrix of 0 and 1 holds truth values or numbers, got {matrix.dtype}; write "
                "matrix.astype(numpy.uint8)"
            )
        if matrix.ndim != 2 or matrix.shape[1] == 0:
            raise DomainError(
                "a matrix of 0 and 1 has a row for each record and a column for each attribute, "
                f"got {matrix.ndim} axes or no column"
            )
        pack = PackedRows.of_sparse if sp.issparse(matrix) else PackedRows.of_matrix
        return cls(pack(matrix), matrix.shape[0])

    @classmethod
    def of_blocks(cls, blocks: Iterable[Any], shape: tuple[int, int]) -> BitMatrix:
        """From blocks of columns, in order: only one of them and the bits are held at a time.

        `shape` is the number of rows and of columns in all.
        """
        return cls(PackedRows.of_blocks(blocks, shape), shape[0])

    def check_schema(self, domain: Domain, cap: Cap | None) -> None:
        """Refuses a domain of other attributes, and a cap: there is no column of persons."""
        if cap is not None:
            raise DomainError(
                f"a matrix has no column {cap.column!r} that names the person of a row, so rows of "
                "a person cannot be cut; protect rows (ps.add_remove_row()), or give a table with "
                "that column"
            )
        if domain is self._domain:
            return
        if len(domain) != self.columns:
            raise DomainError(
                f"the matrix has {self.columns:,} columns and the domain {len(domain):,} "
                "attributes; column j is attribute j"
            )
        strange = {id(a) for a in _different(domain) if list(a.values[:3]) != [0, 1]}
        if strange:
            i = next(i for i, a in enumerate(domain.attributes) if id(a) in strange)
            raise DomainError(
                f"attribute {domain.names[i]!r} has the values "
                f"{domain.attributes[i].some_values()}; a column of a matrix has 0 and 1 (labels: "
                '{0: "no", 1: "yes"})'
            )
        self._domain = domain

    def take(self, domain: Domain, cap: Cap | None, folder: Any = None) -> BitTable:
        """See `psephos.kernel.source.Source`: the bits were copied when they were packed."""
        self.check_schema(domain, cap)
        return BitTable(domain, self._packed)

    def count(self, domain: Domain, attributes: Names, keep: Cells, cap: Cap | None) -> Array:
        """How many rows lie in each cell of some attributes, of those that all of `keep` allow."""
        return self.take(domain, cap).counts([attributes], keep)[0]

    def __repr__(self) -> str:
        return f"BitMatrix({self.columns} columns)"


class BitTable:
    """The rows of a matrix over a domain; shown without what it holds."""

    __slots__ = ("_domain", "_packed")

    def __init__(self, domain: Domain, packed: PackedRows) -> None:
        self._domain, self._packed = domain, packed

    def counts(self, tables: Sequence[Names], keep: Cells) -> list[Array]:
        """See `psephos.kernel.source.CellTable`."""
        rows = self._among(keep)
        counts: list[Array] = []
        batch: list[Sequence[int]] = []
        for axes in ([self._domain.axis(name) for name in names] for names in tables):
            if len(axes) > MOST_AS_CELLS or sum(2 ** len(a) for a in batch) > CELLS_AT_ONCE:
                counts += _cell_counts(rows, batch)
                batch = []
            if len(axes) > MOST_AS_CELLS:
                counts.append(_table(rows, self._domain, axes))
            else:
                batch.append(axes)
        return counts + _cell_counts(rows, batch)

    def conjunctions(self, q: Conjunctions, keep: Cells) -> Array:
        """See `psephos.kernel.source.CellTable`."""
        q.check(self._domain)
        return self._among(keep).counts(q)

    def coarsen(self, domain: Domain, groups: Mapping[str, Array], keep: Cells) -> BitTable:
        """See `psephos.kernel.source.CellTable`: some of the attributes, each with both values."""
        if groups:
            raise DomainError("the two values of a column of a matrix are not taken together")
        return BitTable(self._domain, self._among(keep))

    def _among(self, keep: Cells) -> PackedRows:
        """The rows that count, of those that all of `keep` allow."""
        check_masks(self._domain, keep)
        rows = self._packed
        for conjunct in keep:
            columns, _ = rows.columns([self._domain.axis(name) for name in conjunct.names])
            rows = rows.among(conjunct.mask[tuple(columns)])
        return rows

    def __repr__(self) -> str:
        return f"BitTable({self._packed.attributes} columns)"


def open_bits(data: Any) -> BitMatrix | None:
    """The source of a matrix of numpy or scipy.sparse; None for anything else."""
    if isinstance(data, BitMatrix):
        return data
    is_matrix = type(data) is np.ndarray or sp.issparse(data)
    return BitMatrix.of(data) if is_matrix and data.ndim == 2 else None


def rows_given(matrix: BitMatrix) -> int | None:
    """PRIVATE: how many rows there were, those that are dropped included; for the owner's check."""
    return matrix._rows_given


def _different(domain: Domain) -> list[Any]:
    return list({id(attribute): attribute for attribute in domain.attributes}.values())


def _cell_counts(rows: PackedRows, tables: Sequence[Sequence[int]]) -> list[Array]:
    """The counts of tables of few attributes, each cell as a conjunction."""
    counts: dict[int, Array] = {}
    for ways in {len(axes) for axes in tables}:
        places = [i for i, axes in enumerate(tables) if len(axes) == ways]
        if ways == 0:
            totals = np.full((len(places), 1), rows.total())
        else:
            axes = np.array([tables[i] for i in places])
            cells = np.indices((2,) * ways).reshape(ways, -1).T  # (cells, ways)
            order = np.argsort(axes, axis=1)
            attributes = np.repeat(np.take_along_axis(axes, order, axis=1), len(cells), axis=0)
            values = cells[:, order].transpose(1, 0, 2).reshape(-1, ways)
            totals = rows.counts(Conjunctions(attributes, values))
            totals = totals.reshape(len(places), -1)
        for i, table in zip(places, totals, strict=True):
            counts[i] = table.reshape((2,) * ways)
    return [counts[i] for i in range(len(tables))]


def _table(rows: PackedRows, domain: Domain, axes: Sequence[int]) -> Array:
    """The counts of one table of many attributes."""
    names = tuple(domain.names[axis] for axis in axes)
    columns, valid = rows.columns(axes)
    store = RowStore(domain.project(names), [column[valid] for column in columns])
    return store.counts([names], ())[0]
