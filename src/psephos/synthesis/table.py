"""A synthetic table: made-up rows, as the cells of each attribute that they fall into.

Rows are drawn from a model, and a model from noisy numbers; nothing here has seen the data. What a
table is worth is checked against that model, query by query (`SyntheticTable.gaps`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.domain.values import OTHER
from psephos.errors import DomainError, ShapeError
from psephos.infer.estimate import Answers, Estimate
from psephos.infer.records import counted_answers, record_counts
from psephos.values import Array, Value, frozen
from psephos.workload.product import Product
from psephos.workload.workload import Workload

SHOWN_NAMES = 12
"""Attributes that a table's short text names."""


@dataclass(frozen=True, eq=False, repr=False)
class SyntheticTable(Value):
    """Made-up rows over a domain: for each row and attribute, the number of a cell.

    >>> domain = Domain.of({"sex": ["F", "M"], "age": range(18, 21)})
    >>> table = SyntheticTable(domain, np.array([[0, 2], [1, 0], [0, 2]]))
    >>> table
    Synthetic table(3 rows of sex, age)
    >>> table.counts(["sex"])
    array([2, 1])
    >>> table.to_arrow().to_pydict()
    {'sex': ['F', 'M', 'F'], 'age': [20, 18, 20]}
    """

    domain: Domain
    records: Array
    """Shape (rows, attributes)."""
    simulation: bool = False

    def __post_init__(self) -> None:
        records = np.asarray(self.records)
        wide = records.ndim == 2 and records.shape[1] == len(self.domain)
        if not wide or records.dtype.kind not in "iu":
            raise ShapeError(
                f"records are whole numbers, a row for each and a column for each of "
                f"{len(self.domain)} attributes; got {records.dtype} of shape {records.shape}"
            )
        if records.size:
            outside = (records.min(axis=0) < 0) | (records.max(axis=0) >= self.domain.shape)
            if outside.any():
                name = self.domain.names[int(np.argmax(outside))]
                raise DomainError(
                    f"records of {name!r} must be cells from 0 to {self.domain[name].size - 1}"
                )
        smallest = np.min_scalar_type(max(self.domain.shape) - 1)
        object.__setattr__(self, "records", frozen(records, smallest))

    @classmethod
    def of_arrow(cls, domain: Domain, table: Any, simulation: bool = False) -> SyntheticTable:
        """The rows of an Arrow table as `to_arrow` wrote it; undeclared entries are refused."""
        import pyarrow as pa
        import pyarrow.compute as pc

        cells: dict[str, Array] = {}
        for name, attribute in _columns(domain):
            entries = pa.array(_entries(attribute))
            column = table.column(name).combine_chunks().cast(entries.type)
            places = pc.index_in(column, value_set=entries)
            if places.null_count:
                raise DomainError(f"column {name!r} has an entry that the schema does not declare")
            cells[name] = places.to_numpy().astype(np.int64)
        records = [
            _merged(name, attribute, cells)
            for name, attribute in zip(domain.names, domain.attributes, strict=True)
        ]
        return cls(domain, np.stack(records, axis=1), simulation)

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self.records.shape[0])

    def counts(self, names: Sequence[str]) -> Array:
        """How many rows fall into each cell of some attributes, an axis for each.

        >>> SyntheticTable(Domain.of(a=2, b=2), np.array([[0, 1], [0, 1]])).counts(["a", "b"])
        array([[0, 2],
               [0, 0]])
        """
        axes = [self.domain.axis(name) for name in names]
        counts = record_counts(self.domain, self.records, tuple(axes))
        return counts.reshape([self.domain.shape[i] for i in axes])

    def answer(self, workload: Workload) -> Answers:
        """The counts that a workload asks for, each about few attributes."""
        Workload.require(workload, self.domain)
        values = counted_answers(self.domain, self.records, workload)
        return Answers(workload, values, biased=True, simulation=self.simulation)

    def gaps(self, estimate: Estimate, workload: Workload) -> TableGaps:
        """Every query of a workload, as this table and as the estimate answer it.

        Counts are scaled to the estimate's number of rows, so that tables of any length can be
        compared with it.
        """
        whole = Workload(self.domain, [Product(())])
        total = float(estimate.answer(whole).values[0])
        scale = total / self.rows if self.rows else 1.0
        model = np.asarray(estimate.answer(workload).values, dtype=float)
        return TableGaps(workload, self.answer(workload).values * scale, model, total)

    def to_arrow(self) -> Any:
        """An Arrow table with the declared labels; whole numbers and floats stay numbers."""
        import pyarrow as pa

        columns: dict[str, Any] = {}
        for (name, attribute), cells in zip(_columns(self.domain), self._cells(), strict=True):
            entries = pa.array(_entries(attribute))
            columns[name] = entries.take(pa.array(cells))
        return pa.table(columns)

    def to_pandas(self) -> Any:
        """A pandas DataFrame with the declared labels; numbers stay numbers."""
        return self.to_arrow().to_pandas()

    def _cells(self) -> list[Array]:
        """The cells of every column; a merged attribute has several."""
        cells: list[Array] = []
        for attribute, column in zip(self.domain.attributes, self.records.T, strict=True):
            cells += _unmerged(attribute, column.astype(np.int64))
        return cells

    def __repr__(self) -> str:
        mark = "Simulated synthetic table" if self.simulation else "Synthetic table"
        names, rest = self.domain.names[:SHOWN_NAMES], len(self.domain) - SHOWN_NAMES
        more = f" and {rest:,} more" if rest > 0 else ""
        return f"{mark}({self.rows:,} rows of {', '.join(names)}{more})"


@dataclass(frozen=True, eq=False)
class TableGaps:
    """The answers of a synthetic table beside those of the model that it was drawn from."""

    workload: Workload
    sample: Array
    model: Array
    total: float
    """The model's number of rows."""

    @property
    def largest(self) -> float:
        """The largest difference of two answers, in rows."""
        return float(np.abs(self.sample - self.model).max())

    @property
    def mean(self) -> float:
        """The mean size of a difference, in rows."""
        return float(np.abs(self.sample - self.model).mean())

    @property
    def by_product(self) -> dict[str, float]:
        """For each product of queries, by its title, the sum of differences as a share of rows."""
        ends = np.cumsum(self.workload.query_counts)[:-1]
        sums = [float(part.sum()) for part in np.split(np.abs(self.sample - self.model), ends)]
        titles = [product.title for product in self.workload.products]
        return {
            title: each / self.total if self.total > 0 else each
            for title, each in zip(titles, sums, strict=True)
        }


def _columns(domain: Domain) -> list[tuple[str, Attribute]]:
    """The columns of a table over a domain; a merged attribute comes from several."""
    columns: list[tuple[str, Attribute]] = []
    for name, attribute in zip(domain.names, domain.attributes, strict=True):
        parts = attribute.parts
        if parts:
            columns += _columns(Domain(tuple(n for n, _ in parts), tuple(a for _, a in parts)))
        else:
            columns.append((name, attribute))
    return columns


def _unmerged(attribute: Attribute, cells: Array) -> list[Array]:
    """The cells of each part of a merged attribute, or the attribute's own."""
    if not attribute.parts:
        return [cells]
    places = np.unravel_index(cells, [part.size for _, part in attribute.parts])
    pairs = zip(attribute.parts, places, strict=True)
    return [each for (_, part), place in pairs for each in _unmerged(part, place)]


def _merged(name: str, attribute: Attribute, cells: dict[str, Array]) -> Array:
    """The cells of an attribute from those of its columns."""
    if not attribute.parts:
        return cells[name]
    places = tuple(_merged(part, each, cells) for part, each in attribute.parts)
    return np.asarray(np.ravel_multi_index(places, [each.size for _, each in attribute.parts]))


def _entries(attribute: Attribute) -> list[Any]:
    """What stands in a column for each cell: a number, or its label.

    A missing entry stands for the value None, or else for the cell of all undeclared values.
    """
    values = list(attribute.values)
    special = sum(value is None or value is OTHER for value in values)
    numbers = {type(value) for value in values if value is not None and value is not OTHER}
    plain = attribute.names is None and attribute.edges is None and special <= 1
    if plain and numbers in ({int}, {float}, {int, float}):
        return [None if value is OTHER else value for value in values]
    return list(attribute.labels)
