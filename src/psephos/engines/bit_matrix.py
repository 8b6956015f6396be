"""Matrices of 0 and 1 as sources: very many attributes of two values, packed into bits at once.

A matrix has no names: its column j is attribute j of the domain, whose values are 0 and 1. An entry
that is neither has no cell, so its row is dropped, as everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp

from psephos.domain.bits import PackedRows
from psephos.domain.conjunctions import Conjunctions
from psephos.domain.domain import Domain
from psephos.engines.duckdb.reader import UNCOUNTABLE, check_masks
from psephos.engines.duckdb.row_cache import RowCache
from psephos.errors import DomainError, SourceError
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

    def count(self, domain: Domain, attributes: Names, keep: Cells, cap: Cap | None) -> Array:
        """How many rows lie in each cell of some attributes, of those that all of `keep` allow."""
        return self.counts(domain, [attributes], keep, cap)[0]

    def counts(
        self, domain: Domain, tables: Sequence[Names], keep: Cells, cap: Cap | None
    ) -> list[Array]:
        """See `psephos.kernel.source.Source.counts`."""
        self.check_schema(domain, cap)
        check_masks(domain, keep)
        axes = [[domain.axis(name) for name in names] for names in tables]
        counts: list[Array] | None = _unless_it_fails(lambda: self._counts(axes, domain, keep))
        if counts is None:  # told from a frame that holds no count, and without a context
            raise SourceError(UNCOUNTABLE)
        return counts

    def _counts(self, tables: Sequence[Sequence[int]], domain: Domain, keep: Cells) -> list[Array]:
        rows = self._kept(domain, keep)
        counts: list[Array] = []
        batch: list[Sequence[int]] = []
        for axes in tables:
            if len(axes) > MOST_AS_CELLS or sum(2 ** len(a) for a in batch) > CELLS_AT_ONCE:
                counts += _cell_counts(rows, batch)
                batch = []
            if len(axes) > MOST_AS_CELLS:
                counts.append(_table(rows, domain, axes))
            else:
                batch.append(axes)
        return counts + _cell_counts(rows, batch)

    def conjunctions(self, domain: Domain, q: Conjunctions, keep: Cells, cap: Cap | None) -> Array:
        """See `psephos.kernel.source.Source.conjunctions`."""
        self.check_schema(domain, cap)
        check_masks(domain, keep)
        q.check(domain)
        counts: Array | None = _unless_it_fails(lambda: self._kept(domain, keep).counts(q))
        if counts is None:
            raise SourceError(UNCOUNTABLE)
        return counts

    def _kept(self, domain: Domain, keep: Cells) -> PackedRows:
        """The rows that count, of those that all of `keep` allow."""
        rows = self._packed
        for conjunct in keep:
            columns, _ = rows.columns([domain.axis(name) for name in conjunct.names])
            rows = rows.among(conjunct.mask[tuple(columns)])
        return rows

    def __repr__(self) -> str:
        return f"BitMatrix({self.columns} columns)"


def open_bits(data: Any) -> BitMatrix | None:
    """The source of a matrix of numpy or scipy.sparse; None for anything else."""
    if isinstance(data, BitMatrix):
        return data
    is_matrix = type(data) is np.ndarray or sp.issparse(data)
    return BitMatrix.of(data) if is_matrix and data.ndim == 2 else None


def rows_given(matrix: BitMatrix) -> int | None:
    """PRIVATE: how many rows there were, those that are dropped included; for the owner's check."""
    return matrix._rows_given


def _unless_it_fails(work: Callable[[], Any]) -> Any:
    """What the work gives; None where memory ends, say, whose words may tell how many rows."""
    try:
        return work()
    except Exception:  # noqa: BLE001 - see above
        return None


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
    cache = RowCache(domain.project(names), tuple(column[valid] for column in columns))
    return cache.counts([names], ())[0].reshape((2,) * len(names))
