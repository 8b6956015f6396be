"""Smaller workloads with the same answers: fewer cells, or fewer products.

Cells that no query tells apart are merged. This is lossless, W x = W' x' with x' = P x (Zhang et
al. 2020, section 8), and no strategy gets worse by it. Columns are compared by their structure,
exactly, never by a hash or by floats.

Two products of equal weight that differ in one attribute only are one product, whose query set on
that attribute holds the queries of both. Repeated queries stay repeated, so the Gram is unchanged;
only the order of the rows is new.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.errors import TooLargeError
from psephos.matrix import Compose, Identity, Kron, Matrix, Partition, Sparse
from psephos.matrix.base import first_appearance
from psephos.matrix.columns import column_selection, select_columns
from psephos.matrix.combine import join_groups
from psephos.values import Array, frozen
from psephos.workload.product import Product
from psephos.workload.queries import stacked
from psephos.workload.query_sets import (
    AllRangeQueries,
    GroupQueries,
    IdentityQueries,
    LevelQueries,
    MaskQueries,
    MatrixQueries,
    PrefixQueries,
    QueryLabels,
    QuerySet,
    SetLabels,
    StackedQueries,
    TotalQueries,
)

COMPARED_CELLS = 20_000_000
"""The most cells whose columns are compared one by one."""

Atoms = tuple[int, ...]
"""A query set as a sorted tuple of numbered parts: equal for equal multisets of queries."""

AtomTable = list[tuple[float, tuple[Atoms, ...]]]
"""Products as a weight and the atoms of every attribute."""


def merge_values(
    domain: Domain, products: Sequence[Product], factor: Callable[[str, QuerySet], Matrix]
) -> tuple[Domain, list[Product], Matrix]:
    """Merge the values of each attribute that all query sets on it treat alike.

    `factor` gives the matrix of a query set on a named attribute. The result is the new domain,
    the products over it, and the map P from old cells to new ones.
    """
    factors: dict[str, dict[int, Matrix]] = {name: {} for name in domain.names}
    different = {(name, id(q)): q for original in products for name, q in original.items}
    for (name, _), queries in different.items():
        matrix = factor(name, queries)
        factors[name][id(matrix)] = matrix
    groups = {name: _groups(list(factors[name].values()), domain[name].size) for name in domain}
    first = {name: np.unique(groups[name], return_index=True)[1] for name in domain}
    attributes = tuple(domain[name].coarsen(groups[name]) for name in domain)
    unmerged = all(first[name].size == domain[name].size for name in domain)
    merged = (
        list(products)
        if unmerged
        else [
            Product(
                tuple(
                    (name, _restricted(queries, domain[name], first[name], factor(name, queries)))
                    for name, queries in original.items
                ),
                original.weight,
                original.name,
            )
            for original in products
        ]
    )
    maps = tuple(Identity(g.size) if g[-1] == g.size - 1 else Partition(g) for g in groups.values())
    return Domain(domain.names, attributes), merged, Kron(maps)


def asked_groups(
    domain: Domain,
    products: Sequence[Product],
    factor: Callable[[str, QuerySet], Matrix],
    conditions: Mapping[str, Sequence[Array]],
    whole: Collection[str],
) -> dict[str, Array]:
    """For each attribute that is asked about, the groups of values that nothing tells apart.

    `conditions` are public vectors over the values of attributes that must not be mixed, such as
    cells declared to be empty. Groups of an ordered attribute are runs of neighbours. Cells of
    missing and undeclared entries stay by themselves; so do all values of attributes under `whole`
    and of merged ones.
    """
    sets: dict[str, dict[int, QuerySet]] = {name: {} for name in domain}
    for original in products:
        for name, queries in original.items:
            if not isinstance(queries, TotalQueries):
                sets[name][id(queries)] = queries
    groups = {}
    for name in domain:
        attribute, query_sets = domain[name], list(sets[name].values())
        if not query_sets and name not in conditions and name not in whole:
            continue
        if name in whole or attribute.parts or any(map(_asks_every_value, query_sets)):
            groups[name] = np.arange(attribute.size)
            continue
        alone = np.zeros(attribute.size, dtype=np.int64)
        alone[list(attribute.apart)] = np.arange(1, len(attribute.apart) + 1)
        marks = [alone, *(first_appearance(mark) for mark in conditions.get(name, ()))]
        matrices = {id(m): m for m in (factor(name, queries) for queries in query_sets)}
        joined = join_groups([*marks, *(m.column_groups() for m in matrices.values())])
        if attribute.is_ordered:
            joined = np.concatenate([[0], np.cumsum(np.diff(joined) != 0)])
        groups[name] = joined
    return groups


def coarse_products(
    domain: Domain,
    products: Sequence[Product],
    groups: Mapping[str, Array],
    factor: Callable[[str, QuerySet], Matrix],
) -> list[Product]:
    """The same queries over groups of values that they do not tell apart, with their labels."""
    first = {name: np.unique(each, return_index=True)[1] for name, each in groups.items()}
    known: dict[tuple[str, int], QuerySet] = {}  # the products hold the query sets

    def coarse(name: str, queries: QuerySet) -> QuerySet:
        if (name, id(queries)) not in known:
            matrix = factor(name, queries)
            known[name, id(queries)] = _coarse_set(queries, domain[name], first[name], matrix)
        return known[name, id(queries)]

    return [
        replace(
            original,
            items=tuple((n, coarse(n, queries)) for n, queries in original.items if n in first),
        )
        for original in products
    ]


def merge_cells(
    domain: Domain,
    products: Sequence[Product],
    factors: Callable[[int], Sequence[Matrix]],
    labels: Callable[[int], QueryLabels],
) -> tuple[Domain, list[Product], Matrix]:
    """Merge cells of the whole domain, to fewer than any product of merged values may have.

    `factors` and `labels` give the matrices and the labels of a product by its number. The
    result is as that of `merge_values`, over one attribute, "cells".
    """
    if domain.size > COMPARED_CELLS:
        raise TooLargeError(
            f"comparing {domain.size_text} cells one by one is over the limit of "
            f"{COMPARED_CELLS:,}; use reduce() on the attributes first",
            domain.size,
            COMPARED_CELLS,
        )
    groups = _cell_groups([factors(i) for i in range(len(products))], domain.shape)
    first = np.unique(groups, return_index=True)[1]
    selection = Sparse(column_selection(first, groups.size))
    merged = []
    for i, original in enumerate(products):
        rows = MatrixQueries(Compose((Kron(tuple(factors(i))), selection)), labels(i))
        merged.append(Product((("cells", rows),), original.weight, original.title))
    return Domain(("cells",), (Attribute(range(first.size)),)), merged, Partition(groups)


def merge_products(names: Sequence[str], products: Sequence[Product]) -> list[Product]:
    """Merge products that differ in one of the named attributes only, as long as there are any."""
    numbers: dict[QuerySet, int] = {}

    def atoms(queries: QuerySet) -> Atoms:
        parts = queries.parts if isinstance(queries, StackedQueries) else (queries,)
        pieces = [piece for part in parts for piece in _single_rows(part)]
        return tuple(sorted(numbers.setdefault(piece, len(numbers)) for piece in pieces))

    atoms_of: dict[QuerySet, Atoms] = {}
    rows: AtomTable = []
    for original in products:
        factors = original.factors
        row: list[Atoms] = []
        for name in names:
            queries = factors.get(name, TotalQueries())
            if queries not in atoms_of:
                atoms_of[queries] = atoms(queries)
            row.append(atoms_of[queries])
        rows.append((original.weight, tuple(row)))

    pieces = list(numbers)
    sets: dict[Atoms, QuerySet] = {}
    merged = []
    for weight, combined in _merge_rows(rows, len(names)):
        items = []
        for name, numbered in zip(names, combined, strict=True):
            if numbered not in sets:
                sets[numbered] = _query_set([pieces[a] for a in numbered])
            if not isinstance(sets[numbered], TotalQueries):
                items.append((name, sets[numbered]))
        merged.append(Product(tuple(items), weight))
    return merged


def _merge_rows(rows: AtomTable, attributes: int) -> AtomTable:
    """Merge rows by the attribute that saves most of them, until none saves any."""
    while True:
        best = min(
            range(attributes),
            key=lambda i: len({(w, row[:i], row[i + 1 :]) for w, row in rows}),
        )
        groups: dict[tuple[float, tuple[Atoms, ...], tuple[Atoms, ...]], list[Atoms]] = defaultdict(
            list
        )
        for weight, row in rows:
            groups[weight, row[:best], row[best + 1 :]].append(row[best])
        if len(groups) == len(rows):
            return rows
        rows = [
            (weight, (*before, tuple(sorted(atom for part in parts for atom in part)), *after))
            for (weight, before, after), parts in groups.items()
        ]


def _single_rows(queries: QuerySet) -> list[QuerySet]:
    """Masks as query sets of one row each, so that equal rows are equal atoms."""
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
    """One query set of all pieces: single masks in one array, the others behind it."""
    rows = [piece for piece in pieces if isinstance(piece, MaskQueries)]
    rest = [piece for piece in pieces if not isinstance(piece, MaskQueries)]
    parts: list[QuerySet] = []
    if rows:
        array = np.concatenate([piece.rows for piece in rows])
        named = all(piece.names is not None for piece in rows)
        names = tuple(name for piece in rows for name in piece.names or ()) if named else None
        parts.append(MaskQueries(frozen(array), names))
    return stacked(*parts, *rest)


def _groups(matrices: list[Matrix], size: int) -> Array:
    """Numbers for the values of an attribute, the same for equal columns in all its matrices."""
    if not matrices:
        return np.zeros(size, dtype=np.int64)
    return join_groups([matrix.column_groups() for matrix in matrices])


def _cell_groups(products: list[Sequence[Matrix]], shape: tuple[int, ...]) -> Array:
    """Cells with equal columns in all products.

    A product tells cells apart where none of its factors is zero, and these cells from all others.
    So only they get new numbers: many small boxes take no longer than their cells.
    """
    known: dict[int, tuple[Array, Array]] = {}
    groups: Array = np.zeros(math.prod(shape), dtype=np.int64)
    count = 1
    for product in products:
        axes = []
        for factor in product:
            if id(factor) not in known:
                known[id(factor)] = _different_columns(factor)
            axes.append(known[id(factor)])
        cells = np.ravel_multi_index(np.ix_(*(active for active, _ in axes)), shape).ravel()
        if not cells.size:
            continue
        labels: Array = np.zeros(1, dtype=np.int64)
        for _, numbers in axes:
            labels = (labels[:, None] * (int(numbers.max()) + 1) + numbers).ravel()
        _, before = np.unique(groups[cells], return_inverse=True)
        different, numbers = np.unique(
            before.reshape(-1) * (int(labels.max()) + 1) + labels, return_inverse=True
        )
        groups[cells] = count + numbers.reshape(-1)
        count += different.size
    return first_appearance(groups)


def _different_columns(matrix: Matrix) -> tuple[Array, Array]:
    """The columns that are not zero, and which of them are equal."""
    if matrix.shape[0] == 1:
        row = matrix.row(0)
        active = np.flatnonzero(row)
        return active, np.unique(row[active], return_inverse=True)[1].reshape(-1)
    active = np.flatnonzero(matrix.column_norms(1))
    return active, matrix.column_groups()[active]


def _asks_every_value(queries: QuerySet) -> bool:
    """Do the queries distinguish all values, by their kind?"""
    parts = queries.parts if isinstance(queries, StackedQueries) else (queries,)
    every = AllRangeQueries | IdentityQueries | PrefixQueries
    return any(isinstance(part, every) for part in parts)


def _coarse_set(queries: QuerySet, attribute: Attribute, first: Array, matrix: Matrix) -> QuerySet:
    """As `_restricted`, with its kind where groups of values have it too."""
    if first.size == attribute.size or isinstance(queries, LevelQueries | TotalQueries):
        return queries
    if isinstance(queries, GroupQueries):
        return GroupQueries(queries.groups[first], queries.names)
    if isinstance(queries, StackedQueries):
        parts = [(part, part.matrix(attribute)) for part in queries.parts]
        return StackedQueries(tuple(_coarse_set(q, attribute, first, m) for q, m in parts))
    return _restricted(queries, attribute, first, matrix)


def _restricted(queries: QuerySet, attribute: Attribute, first: Array, matrix: Matrix) -> QuerySet:
    """The queries over the first value of each group, with the labels they had."""
    if first.size == attribute.size:
        return queries
    return MatrixQueries(select_columns(matrix, first), SetLabels(queries, attribute))
