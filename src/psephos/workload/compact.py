"""Fewer products for the same queries.

Two products of equal weight that differ in one attribute only are one product whose query set on
that attribute holds the queries of both. Repeated queries stay repeated, so every weighted query
is there as often as before and the Gram is unchanged; only the order of the rows is new.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from psephos.frozen import frozen
from psephos.workload.product import Product
from psephos.workload.queries import stacked
from psephos.workload.query_sets import MaskQueries, QuerySet, StackedQueries, TotalQueries
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
