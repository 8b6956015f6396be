"""Equal cells first: merge the cells that no query of the workload tells apart.

The reduction is lossless, W x = W' x' with x' = P x (Zhang et al. 2020, section 8), and no strategy
gets worse by it. Columns are compared by their structure, exactly, never by a hash or by floats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from psephos.attribute import Attribute
from psephos.domain import Domain
from psephos.errors import TooLargeError, name_list
from psephos.frozen import Array
from psephos.matrix import (
    Compose,
    Dense,
    Identity,
    Kron,
    Matrix,
    Ones,
    Partition,
    Ranges,
    Sparse,
    Stack,
    WidthRange,
)
from psephos.matrix.combine import join_groups
from psephos.workload.product import Product
from psephos.workload.query_sets import MatrixQueries, ProductLabels, QuerySet, SetLabels

if TYPE_CHECKING:
    from psephos.workload.workload import Workload

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
    pick = Sparse(_pick(first, groups.size))
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
    return MatrixQueries(columns(matrix, kept), SetLabels(queries, old))


def columns(matrix: Matrix, kept: Array) -> Matrix:
    """The matrix with only the columns kept, one for each group, with its structure."""
    if isinstance(matrix, Ones):
        return Ones(matrix.m, kept.size)
    if isinstance(matrix, Dense):
        return Dense(matrix.array[:, kept])
    if isinstance(matrix, Sparse):
        return Sparse(matrix.entries[:, kept])
    if isinstance(matrix, Stack):
        return Stack(tuple(columns(part, kept) for part in matrix.parts))
    if isinstance(matrix, Partition):
        groups = matrix.groups[kept]
        return (
            Identity(kept.size)
            if np.array_equal(groups, np.arange(kept.size))
            else (Partition(groups))
        )
    if isinstance(matrix, WidthRange):
        starts = np.arange(matrix.shape[0])
        matrix = Ranges.intervals(matrix.n, starts, starts + matrix.width - 1)
    if isinstance(matrix, Ranges) and len(matrix.grid) == 1:
        # The first cell of a group lies in every range that holds the group, so none is empty.
        low = np.searchsorted(kept, matrix.low)
        high = np.searchsorted(kept, matrix.high, side="right") - 1
        return Ranges((kept.size,), low, high)
    return Compose((matrix, Sparse(_pick(kept, matrix.shape[1]))))


def _pick(kept: Array, n: int) -> Any:
    """The n x k matrix whose columns are the unit vectors of the cells kept."""
    ones = np.ones(kept.size, dtype=np.int8)
    return sp.csr_array((ones, (kept, np.arange(kept.size))), shape=(n, kept.size))
