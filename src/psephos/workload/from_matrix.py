"""Workloads that somebody wrote as a matrix: an array, a sparse matrix, or an implicit one.

A Kronecker product with a factor for each attribute is a product of query sets, and a stack of them
several; so what is structured stays so. Any other matrix over several attributes looks at all of
them together, which a product cannot say: they become one attribute, in the same order of cells.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp

from psephos.domain.domain import Domain
from psephos.errors import PsephosError, WorkloadError
from psephos.matrix import (
    AllRange,
    Dense,
    Identity,
    Kron,
    Matrix,
    Prefix,
    Scaled,
    Sparse,
    Stack,
    is_total,
)
from psephos.workload.product import Product
from psephos.workload.queries import all_range, identity, masks, prefix
from psephos.workload.query_sets import MatrixQueries, QuerySet

KNOWN_SETS = ((Identity, identity()), (Prefix, prefix()), (AllRange, all_range()))
"""Matrices that are query sets with labels of their own, at any size."""


@dataclass(frozen=True)
class RowNames:
    """Labels of queries, one for each row."""

    names: tuple[str, ...]

    def __call__(self, i: int, /) -> str:
        return self.names[i]


def matrix_products(
    domain: Domain, matrix: Any, labels: Sequence[str] | None
) -> tuple[Domain, tuple[Product, ...]]:
    """The products that ask the rows of a matrix, and the domain they are over."""
    if not isinstance(domain, Domain):
        raise WorkloadError(f"the domain comes first, then the matrix; got {type(domain).__name__}")
    if isinstance(matrix, Mapping):
        return domain, (_by_attribute(domain, matrix, labels),)
    rows = _matrix_of(matrix)
    if rows.shape[1] != domain.size:
        raise WorkloadError(
            f"the matrix has {rows.shape[1]:,} columns and the domain {domain.size_text} cells; "
            "give a column for each cell, in row-major order, or a dict of matrices by attribute: "
            + "{"
            + f"{domain.names[0]!r}: matrix"
            + "}"
        )
    names = _names(rows, labels)
    structured = _structured(domain, rows) if names is None else None
    if structured is not None:
        return domain, structured
    merged = domain.merge(domain.names) if len(domain.names) > 1 else domain
    return merged, (Product(((merged.names[0], _queries(rows, names)),)),)


def _by_attribute(
    domain: Domain, matrices: Mapping[str, Any], labels: Sequence[str] | None
) -> Product:
    """All combinations of the rows of matrices on single attributes."""
    if labels is not None and len(matrices) != 1:
        raise WorkloadError("labels are for the rows of one matrix; leave them out for several")
    items = []
    for name, matrix in matrices.items():
        rows, size = _matrix_of(matrix), domain[name].size
        if rows.shape[1] != size:
            raise WorkloadError(
                f"attribute {name!r}: the matrix has {rows.shape[1]:,} columns and the attribute "
                f"{size:,} values; give one column for each value"
            )
        items.append((name, _queries(rows, _names(rows, labels))))
    return Product(tuple(items))


def _matrix_of(matrix: Any) -> Matrix:
    """The matrix of this library that was given, or that holds an array's numbers."""
    if isinstance(matrix, Matrix):
        return matrix
    try:
        if sp.issparse(matrix):
            return Sparse(matrix)
        queries = masks(matrix)
        return Dense(queries.rows)  # type: ignore[attr-defined]
    except PsephosError as error:
        words = str(error).replace("masks needs", "a workload's matrix needs")
        raise WorkloadError(words.replace("rows of masks", "rows of the matrix")) from None


def _queries(rows: Matrix, names: RowNames | None) -> QuerySet:
    if isinstance(rows, Dense):
        return masks(rows.array, None if names is None else names.names)
    return MatrixQueries(rows, names)


def _names(rows: Matrix, labels: Sequence[str] | None) -> RowNames | None:
    if labels is None:
        return None
    if isinstance(labels, str) or len(labels) != rows.shape[0]:
        count = "one text" if isinstance(labels, str) else f"{len(labels):,}"
        raise WorkloadError(f"{rows.shape[0]:,} rows but {count} as labels; give one each")
    return RowNames(tuple(str(label) for label in labels))


def _structured(domain: Domain, rows: Matrix) -> tuple[Product, ...] | None:
    """A product for each Kronecker product over the domain's attributes; None if it is none."""
    parts = rows.parts if isinstance(rows, Stack) else (rows,)
    products = []
    for part in parts:
        weight, kron = (part.factor, part.base) if isinstance(part, Scaled) else (1.0, part)
        if not isinstance(kron, Kron) or tuple(f.shape[1] for f in kron.factors) != domain.shape:
            return None
        if weight <= 0:
            return None
        pairs = [p for p in zip(domain.names, kron.factors, strict=True) if not is_total(p[1])]
        items = tuple((name, _set_of(factor)) for name, factor in pairs)
        products.append(Product(items, float(weight)))
    return tuple(products) if len(domain.names) > 1 else None


def _set_of(factor: Matrix) -> QuerySet:
    """The query set that asks a factor, with labels where one has a name for it."""
    for kind, queries in KNOWN_SETS:
        if type(factor) is kind:
            return queries
    return _queries(factor, None)
