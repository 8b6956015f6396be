"""What each number of a view counts, in words: the labels of tables and of measured blocks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.matrix import Compose, Identity, Kron, Matrix, Ones, Partition
from psephos.release.spec.entries import View
from psephos.release.spec.tables import Table, column_name
from psephos.report.cross_table import TOTAL
from psephos.report.html import HtmlTable
from psephos.values import Array
from psephos.workload.query_sets import (
    IdentityQueries,
    JointQueries,
    QuerySet,
    TotalQueries,
)
from psephos.workload.workload import Workload

FACTOR_ENTRIES = 2_000_000
"""The most entries of a factor that are looked at one by one."""
NOTEBOOK_ROWS = 200
"""The most rows that a notebook shows."""


def table_labels(workload: Workload, table: Table) -> dict[str, list[str]]:
    """The labels of a table's queries: one column for each attribute that it asks about.

    Attributes that were merged have their columns back, unless the table itself looks at them
    together: then its queries have one label for all of them.
    """
    domain, lists = workload.domain, label_lists(workload, table)
    declared = domain.origin or domain
    columns: dict[str, list[str]] = {name: [] for name in _label_names(domain, lists)}
    totals = {column_name(name): declared[name].total_label for name in declared.names}
    for p, title, labels in zip(table.products, part_titles(workload, table), lists, strict=True):
        count = workload.query_counts[p]
        part = {column_name(name): words for name, words in combinations(labels).items()}
        part |= {"part": [title] * count}
        for name, words in columns.items():
            words += part.get(name, [totals.get(name, TOTAL)] * count)
    return columns


def label_lists(workload: Workload, table: Table) -> list[dict[str, list[str]]]:
    """The labels along each attribute that a table asks about, for each of its parts.

    The numbers of a part are all combinations, the last attribute fastest. A column that has the
    attribute's name does not repeat it.
    """
    merged = {name for name in workload.domain.names if workload.domain[name].parts}
    parts = {part for name in merged for part, _ in workload.domain[name].parts}
    return [
        {
            name: [word.removeprefix(f"{name} = ") for word in queries.labels(attribute)]
            for name, attribute, queries in columns
            if not (name in parts and isinstance(queries, TotalQueries))
        }
        for columns in asked_columns(workload, table)
    ]


def asked_columns(workload: Workload, table: Table) -> list[list[tuple[str, Attribute, QuerySet]]]:
    """What each product of a table asks of each attribute, in the domain's order.

    Merged attributes come in parts, unless some product does not take them apart again.
    """
    domain = workload.domain
    items_of = [
        [
            (domain[name], queries, _queries_of_parts(domain[name], queries), name)
            for name, queries in sorted(
                workload.products[p].items, key=lambda item: domain.axis(item[0])
            )
        ]
        for p in table.products
    ]
    together = {name for items in items_of for *_, split, name in items if split is None}
    columns: list[list[tuple[str, Attribute, QuerySet]]] = []
    for items in items_of:
        columns.append([])
        for attribute, queries, split, name in items:
            if split is None or name in together:
                columns[-1].append((name, attribute, queries))
                continue
            pairs = zip(attribute.parts, split, strict=True)
            columns[-1] += [(part, inner, each) for (part, inner), each in pairs]
    return columns


def _queries_of_parts(attribute: Attribute, queries: QuerySet) -> tuple[QuerySet, ...] | None:
    """The query sets of a merged attribute's parts; None if it has none, or is asked whole."""
    if attribute.parts and isinstance(queries, JointQueries):
        return queries.parts
    if attribute.parts and isinstance(queries, IdentityQueries | TotalQueries):
        return (queries,) * len(attribute.parts)
    return None


def part_titles(workload: Workload, table: Table) -> list[str]:
    """What the products of a table are called as its parts."""
    titles = [workload.products[number].title for number in table.products]
    return [title.removeprefix(f"{table.name}: ") for title in titles]


def table_schema(
    workload: Workload, table: Table, view: View, simulation: bool, errors: bool = True
) -> pa.Schema:
    """The columns of a table in a view, and their types."""
    kinds = {"count": pa.int64()} if view == "published" else None
    numbers = ["count", *(["consistent"] if view == "published" else [])]
    numbers += ["stderr", "low", "high"] if errors else []
    labels = _label_names(workload.domain, label_lists(workload, table))
    return view_schema(labels, numbers, simulation, kinds)


def view_schema(
    labels: Iterable[str],
    numbers: Iterable[str],
    simulation: bool,
    kinds: Mapping[str, pa.DataType] | None = None,
) -> pa.Schema:
    """Columns of labels, then numbers with a point unless another kind is given."""
    words = [(name, pa.string()) for name in labels]
    columns = [(name, (kinds or {}).get(name, pa.float64())) for name in numbers]
    return pa.schema([*words, *columns, *([("made_up", pa.bool_())] if simulation else [])])


def _label_names(domain: Domain, lists: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns of labels of a table, of whose parts these lists are."""
    names = [name for name in _column_order(domain) if any(name in part for part in lists)]
    return (["part"] if len(lists) > 1 else []) + [column_name(name) for name in names]


def _column_order(domain: Domain) -> list[str]:
    """All names a column can have, in the order of the domain before attributes were merged."""
    if domain.origin is None:
        return list(domain.names)
    first = {domain[n].parts[0][0]: n for n in domain.names if domain[n].parts}
    order: list[str] = []
    for name in domain.origin.names:
        order += [first[name], name] if name in first else [name]
    return order


def combinations(lists: dict[str, list[str]]) -> dict[str, list[str]]:
    """All combinations of labels, the last column fastest."""
    grids = [grid.ravel() for grid in np.indices([len(words) for words in lists.values()])]
    pairs = zip(lists.items(), grids, strict=True)
    return {name: [words[k] for k in grid] for (name, words), grid in pairs}


def block_labels(matrix: Matrix, domain: Domain) -> dict[str, list[str]]:
    """What each answer of a measured block counts."""
    lists = block_lists(matrix, domain)
    if lists is None:
        return {"answer": [f"combination {i + 1}" for i in range(matrix.shape[0])]}
    named = {column_name(name): words for name, words in lists.items()}
    return combinations(named) if named else {"answer": [TOTAL]}


def block_lists(matrix: Matrix, domain: Domain) -> dict[str, list[str]] | None:
    """Words for the rows of every factor, by attribute; None if it is no product of attributes."""
    fits = isinstance(matrix, Kron) and tuple(f.shape[1] for f in matrix.factors) == domain.shape
    if not fits or not isinstance(matrix, Kron):
        return None
    lists: dict[str, list[str]] = {}
    for name, factor in zip(domain.names, matrix.factors, strict=True):
        parts = domain[name].parts
        if isinstance(factor, Ones):
            continue
        if isinstance(factor, Identity) and parts:
            lists |= {part: list(attribute.labels) for part, attribute in parts}
        else:
            lists[name] = row_words(factor, domain[name].labels)
    return lists


def row_words(factor: Matrix, labels: Sequence[str]) -> list[str]:
    """A label, a range of them, some times a label, or else the number of a weighted sum.

    >>> from psephos.matrix import Dense
    >>> row_words(Dense([[1, 1, 0], [0, 0, 3], [2, 1, 1]]), ["a", "b", "c"])
    ['a to b', '3 × c', 'weighted sum 1']
    """
    if isinstance(factor, Identity):
        return list(labels)
    if isinstance(factor, Compose) and isinstance(factor.parts[-1], Partition):
        inner = factor.parts[0] if len(factor.parts) == 2 else Compose(factor.parts[:-1])
        return row_words(inner, row_words(factor.parts[-1], labels))
    if isinstance(factor, Partition):
        members = [np.flatnonzero(factor.groups == g) for g in range(factor.shape[0])]
        return [_label_range(cells, labels) or f"group {g + 1}" for g, cells in enumerate(members)]
    rows, cells = factor.shape
    if rows * cells > FACTOR_ENTRIES:
        return [f"combination {i + 1}" for i in range(rows)]
    words, sums = [], 0
    for row in factor.dense(limit=FACTOR_ENTRIES):
        text = _row_text(row, labels)
        sums += text is None
        words.append(f"weighted sum {sums}" if text is None else text)
    return words


def _row_text(row: Array, labels: Sequence[str]) -> str | None:
    """The cells that a row counts, and how often; None if some count more often than others."""
    cells = np.flatnonzero(row)
    if cells.size == 0 or np.ptp(row[cells]):
        return None
    text, times = _label_range(cells, labels), row[cells[0]]
    return text if text is None or times == 1 else f"{times:,.0f} × {text}"


def _label_range(cells: Array, labels: Sequence[str]) -> str | None:
    """The first and last label of neighbouring cells; None if they are no neighbours."""
    first, last = int(cells[0]), int(cells[-1])
    if cells.size == len(labels) > 1:
        return TOTAL
    if cells.size == 1:
        return labels[first]
    return f"{labels[first]} to {labels[last]}" if last - first == cells.size - 1 else None


def row_multiplicity(matrix: Matrix) -> float:
    """How often a block counts a row at most; 1 for what is too large to look at."""
    if isinstance(matrix, Kron):
        return math.prod(row_multiplicity(factor) for factor in matrix.factors)
    if isinstance(matrix, Compose) and isinstance(matrix.parts[-1], Partition):
        return math.prod(row_multiplicity(part) for part in matrix.parts[:-1])
    if isinstance(matrix, Identity | Ones | Partition) or math.prod(matrix.shape) > FACTOR_ENTRIES:
        return 1.0
    return float(np.abs(matrix.dense(limit=FACTOR_ENTRIES)).max())


def marked(labels: dict[str, list[str]], numbers: dict[str, Any], simulation: bool) -> pa.Table:
    """Labels and numbers as one table; made-up numbers say so in every row."""
    columns: dict[str, Any] = dict(labels)
    for name, values in numbers.items():
        wide = values.dtype == object
        columns[name] = [str(value) for value in values] if wide else values
    if simulation:
        columns["made_up"] = [True] * len(next(iter(columns.values())))
    return pa.table(columns)


def preview(caption: str, table: pa.Table) -> HtmlTable:
    """The first rows of labels and numbers, for a notebook."""
    rows = [
        [f"{x:,.4g}" if isinstance(x, float) else str(x) for x in row.values()]
        for row in table.slice(0, NOTEBOOK_ROWS).to_pylist()
    ]
    return HtmlTable.of(caption, table.column_names, rows)
