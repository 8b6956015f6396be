"""Columns of a matrix: their squared norms, and some of them, in closed form if there is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

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
    compose,
)
from psephos.values import Array


def select_columns(matrix: Matrix, columns: Array) -> Matrix:
    """The matrix with these columns only, in this order; its structure is kept where it can be."""
    if isinstance(matrix, Ones):
        return Ones(matrix.m, columns.size)
    if isinstance(matrix, Dense):
        return Dense(matrix.array[:, columns])
    if isinstance(matrix, Sparse):
        return Sparse(matrix.entries[:, columns])
    if isinstance(matrix, Stack):
        return Stack(tuple(select_columns(part, columns) for part in matrix.parts))
    if isinstance(matrix, Partition):
        groups, rows = matrix.groups[columns], matrix.shape[0]
        if rows == columns.size and np.array_equal(groups, np.arange(rows)):
            return Identity(rows)
        if np.unique(groups).size == rows:
            return Partition(groups)
        return Sparse(column_selection(groups, rows))  # a group without columns is a row of zeros
    if isinstance(matrix, Compose):
        last = select_columns(matrix.parts[-1], columns)
        return compose(*matrix.parts[:-1], last)
    in_order = bool((np.diff(columns) > 0).all())  # ranges of cells stay ranges of columns
    if in_order and isinstance(matrix, WidthRange):
        starts = np.arange(matrix.shape[0])
        matrix = Ranges.intervals(matrix.n, starts, starts + matrix.width - 1)
    if in_order and isinstance(matrix, Ranges) and len(matrix.grid) == 1:
        # The first cell of a group lies in every range that holds the group, so none is empty.
        low = np.searchsorted(columns, matrix.low)
        high = np.searchsorted(columns, matrix.high, side="right") - 1
        return Ranges((columns.size,), low, high)
    return Compose((matrix, Sparse(column_selection(columns, matrix.shape[1]))))


def column_selection(columns: Array, n: int) -> Any:
    """The n x k matrix S with A S = A[:, columns]: its columns are unit vectors."""
    ones = np.ones(columns.size, dtype=np.int8)
    return sp.csr_array((ones, (columns, np.arange(columns.size))), shape=(n, columns.size))


def gram_diagonal(queries: Matrix) -> Array:
    """The squared L2 norm of every column of W."""
    if isinstance(queries, Kron):
        diagonal = np.ones(1)
        for factor in queries.factors:
            diagonal = np.multiply.outer(diagonal, gram_diagonal(factor)).ravel()
        return diagonal
    return queries.sqr()._column_sums()


def is_zero(queries: Matrix) -> bool:
    """Do all queries count nothing?"""
    return not isinstance(queries, Identity | Ones | Partition) and not gram_diagonal(queries).any()
