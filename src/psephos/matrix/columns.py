"""Some columns of a matrix, with its structure kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from psephos.matrix import (
    Compose,
    Dense,
    Identity,
    Matrix,
    Ones,
    Partition,
    Ranges,
    Sparse,
    Stack,
    WidthRange,
)
from psephos.values import Array


def select_columns(matrix: Matrix, kept: Array) -> Matrix:
    """The matrix with only the columns kept, one for each group, with its structure."""
    if isinstance(matrix, Ones):
        return Ones(matrix.m, kept.size)
    if isinstance(matrix, Dense):
        return Dense(matrix.array[:, kept])
    if isinstance(matrix, Sparse):
        return Sparse(matrix.entries[:, kept])
    if isinstance(matrix, Stack):
        return Stack(tuple(select_columns(part, kept) for part in matrix.parts))
    if isinstance(matrix, Partition):
        groups = matrix.groups[kept]
        return (
            Identity(kept.size)
            if np.array_equal(groups, np.arange(kept.size))
            else (Partition(groups))
        )
    in_order = bool((np.diff(kept) > 0).all())  # ranges of cells stay ranges of columns
    if in_order and isinstance(matrix, WidthRange):
        starts = np.arange(matrix.shape[0])
        matrix = Ranges.intervals(matrix.n, starts, starts + matrix.width - 1)
    if in_order and isinstance(matrix, Ranges) and len(matrix.grid) == 1:
        # The first cell of a group lies in every range that holds the group, so none is empty.
        low = np.searchsorted(kept, matrix.low)
        high = np.searchsorted(kept, matrix.high, side="right") - 1
        return Ranges((kept.size,), low, high)
    return Compose((matrix, Sparse(column_selection(kept, matrix.shape[1]))))


def column_selection(kept: Array, n: int) -> Any:
    """The n x k matrix whose columns are the unit vectors of the cells kept."""
    ones = np.ones(kept.size, dtype=np.int8)
    return sp.csr_array((ones, (kept, np.arange(kept.size))), shape=(n, kept.size))
