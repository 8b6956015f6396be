"""Equal cells first: merge the cells that no query of the workload tells apart.

The reduction is lossless, W x = W' x' with x' = P x (Zhang et al. 2020, section 8), and no strategy
gets worse by it. Columns are compared by their structure, exactly, never by a hash or by floats.

Fewer products for the same queries.

Two products of equal weight that differ in one attribute only are one product whose query set on
that attribute holds the queries of both. Repeated queries stay repeated, so every weighted query
is there as often as before and the Gram is unchanged; only the order of the rows is new.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.errors import TooLargeError, name_list
from psephos.matrix import (
    Compose,
    Identity,
    Kron,
    Matrix,
    Partition,
    Sparse,
)
from psephos.matrix.columns import column_selection, select_columns
from psephos.matrix.combine import join_groups
from psephos.values import Array, frozen
from psephos.workload.product import Product
from psephos.workload.queries import stacked
from psephos.workload.query_sets import (
    MaskQueries,
    MatrixQueries,
    ProductLabels,
    QuerySet,
    SetLabels,
    StackedQueries,
    TotalQueries,
)
from psephos.workload.workload import Workload

if TYPE_CHECKING:
    from psephos.workload.workload import Workload

Atoms = tuple[int, ...]
"""A query set as a sorted tuple of numbered parts: equal for equal multisets of queries."""


def compact(workload: Workload) -> Workload:
    """Merge products that differ in one attribute only, as long as there are any."""
    names = workload.domain.names
    numbers: dict[QuerySet, int] = {}

    def atoms(queries: QuerySet) -> Atoms:
        parts = queries.parts if isinstance(queries, StackedQueries) else (queries,)
        pieces = [piece for part in parts for piece in _single_rows(part)]
        return tuple(sorted(numbers.setdefault(piece, len(numbers)) for piece in pieces))

    known: dict[QuerySet, Atoms] = {}
    table: list[tuple[float, tuple[Atoms, ...]]] = []
    for asked in workload.products:
        own = dict(asked.items)
        row: list[Atoms] = []
        for name in names:
            queries = own.get(name, TotalQueries())
            if queries not in known:
                known[queries] = atoms(queries)
            row.append(known[queries])
        table.append((asked.weight, tuple(row)))

    merged = _merge(table, len(names))
    pieces = list(numbers)
    made: dict[Atoms, QuerySet] = {}
    products = []
    for weight, sets in merged:
        items = []
        for name, own_atoms in zip(names, sets, strict=True):
            if own_atoms not in made:
                made[own_atoms] = _query_set([pieces[a] for a in own_atoms])
            if not isinstance(made[own_atoms], TotalQueries):
                items.append((name, made[own_atoms]))
        products.append(Product(tuple(items), weight))
    return Workload(workload.domain, tuple(products))


def _merge(
    table: list[tuple[float, tuple[Atoms, ...]]], attributes: int
) -> list[tuple[float, tuple[Atoms, ...]]]:
    """Greedily by the attribute that saves most, until none saves anything."""
    while True:
        best = min(
            range(attributes),
            key=lambda i: len({(w, row[:i], row[i + 1 :]) for w, row in table}),
        )
        groups: dict[tuple[float, tuple[Atoms, ...], tuple[Atoms, ...]], list[Atoms]] = defaultdict(
            list
        )
        for weight, row in table:
            groups[weight, row[:best], row[best + 1 :]].append(row[best])
        if len(groups) == len(table):
            return table
        table = [
            (weight, (*before, tuple(sorted(a for own in parts for a in own)), *after))
            for (weight, before, after), parts in groups.items()
        ]


def _single_rows(queries: QuerySet) -> list[QuerySet]:
    """Masks row by row, so that equal rows are recognised in any company."""
    if not isinstance(queries, MaskQueries):
        return [queries]
    if (queries.rows == 1).all():
        return [TotalQueries()] * len(queries.rows)
    names = queries.names or [None] * len(queries.rows)
    return [
        MaskQueries(frozen(row[None]), None if name is None else (name,))
        for row, name in zip(queries.rows, names, strict=True)
    ]


def _query_set(pieces: list[QuerySet]) -> QuerySet:
    """Single masks together in one array again; the rest behind it."""
    rows = [piece for piece in pieces if isinstance(piece, MaskQueries)]
    rest = [piece for piece in pieces if not isinstance(piece, MaskQueries)]
    parts: list[QuerySet] = []
    if rows:
        array = np.concatenate([piece.rows for piece in rows])
        named = all(piece.names is not None for piece in rows)
        names = tuple(name for piece in rows for name in piece.names or ()) if named else None
        parts.append(MaskQueries(frozen(array), names))
    return stacked(*parts, *rest)


CELLS_LIMIT = 20_000_000


@dataclass(frozen=True)
class Reduction:
    """A workload over fewer cells, and the map P from the old cells to the new."""

    workload: Workload
    partition: Matrix

    @property
    def domain(self) -> Domain:
        return self.workload.domain

    def __repr__(self) -> str:
        new, old = self.partition.shape
        return f"Reduction({old:,} cells to {new:,})"


def reduce_attributes(workload: Workload) -> Reduction:
    """Merge values of each attribute that all query sets on it treat alike.

    >>> from psephos.workload import Workload, product, ranges
    >>> domain = Domain.of(age=range(115), sex=["F", "M"])
    >>> reduce_attributes(Workload(domain, [product(age=ranges([(0, 17), (18, 64)]))]))
    Reduction(230 cells to 3)
    """
    from psephos.workload.workload import Workload

    old = workload.domain
    factors: dict[str, dict[int, Matrix]] = {name: {} for name in old.names}
    for asked in workload.products:
        for name, queries in asked.items:
            factor = workload._factor(name, queries)
            factors[name][id(factor)] = factor
    groups = [_groups(list(factors[name].values()), old[name].size) for name in old.names]
    attributes = [
        _merged_attribute(attribute, g) for attribute, g in zip(old.attributes, groups, strict=True)
    ]
    kept = {
        name: np.unique(g, return_index=True)[1] for name, g in zip(old.names, groups, strict=True)
    }
    products = []
    for asked in workload.products:
        items = tuple(
            (name, _restricted(queries, old[name], kept[name], workload._factor(name, queries)))
            for name, queries in asked.items
        )
        products.append(Product(items, asked.weight, asked.name))
    maps = tuple(Identity(g.size) if g[-1] == g.size - 1 else Partition(g) for g in groups)
    return Reduction(Workload(Domain(old.names, tuple(attributes)), tuple(products)), Kron(maps))


def reduce_cells(workload: Workload) -> Reduction:
    """Merge cells of the whole domain, which may be fewer than any product of merged values."""
    from psephos.workload.workload import Workload

    if workload.domain.size > CELLS_LIMIT:
        raise TooLargeError(
            f"comparing {workload.domain.size:,} cells one by one is over the limit of "
            f"{CELLS_LIMIT:,}; use reduce() on the attributes first",
            workload.domain.size,
            CELLS_LIMIT,
        )
    groups = join_groups([workload.kron(i).column_groups() for i in range(len(workload.products))])
    first = np.unique(groups, return_index=True)[1]
    pick = Sparse(column_selection(first, groups.size))
    products = []
    for i, asked in enumerate(workload.products):
        rows = MatrixQueries(Compose((workload.kron(i), pick)), ProductLabels(workload, i))
        products.append(Product((("cells", rows),), asked.weight, asked.title))
    domain = Domain(("cells",), (Attribute(range(first.size)),))
    return Reduction(Workload(domain, tuple(products)), Partition(groups))


def _groups(matrices: list[Matrix], size: int) -> Array:
    """Which values of an attribute have equal columns in all its factors."""
    if not matrices:
        return np.zeros(size, dtype=np.int64)
    return join_groups([matrix.column_groups() for matrix in matrices])


def _merged_attribute(attribute: Attribute, groups: Array) -> Attribute:
    count = int(groups.max()) + 1
    if count == attribute.size:
        return attribute
    order = np.argsort(groups, kind="stable")
    ends = np.cumsum(np.bincount(groups))
    labels: dict[str, int] = {}
    for g, cells in enumerate(np.split(order, ends[:-1])):
        label = (
            f"{attribute.label(int(cells[0]))}–{attribute.label(int(cells[-1]))}"
            if len(cells) > 1 and cells[-1] - cells[0] == len(cells) - 1
            else name_list([attribute.label(int(i)) for i in cells], most=3)
        )
        labels[label if label not in labels else f"{label} (group {g})"] = g
    return Attribute(tuple(range(count)), tuple(labels))


def _restricted(queries: QuerySet, old: Attribute, kept: Array, matrix: Matrix) -> QuerySet:
    if kept.size == old.size:
        return queries
    return MatrixQueries(select_columns(matrix, kept), SetLabels(queries, old))
