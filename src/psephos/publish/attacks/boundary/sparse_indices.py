"""A sparse matrix whose indices lie outside of its shape.

The story: scipy's routines trust the index arrays of a compressed matrix. A column of -1 wraps
around where column sums are added up, so a row of a million at column -1 was booked to the last
cell, and read from the heap before the vector when it was multiplied; rows that end before they
begin count nothing in one routine and everything in another. Thousands of exact counts came back
for a few hundredths of epsilon, and a file with such arrays ended the process that read it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

import psephos.matrix as mx
from psephos.kernel.budget import epsilon
from psephos.publish.attacks.attempt import CELLS, Attack, open_table, refused, require
from psephos.publish.attacks.stage import Stage


def forged(**arrays: Any) -> mx.Sparse:
    """An identity whose arrays were exchanged after it was checked."""
    matrix = mx.Sparse(sp.eye_array(CELLS, dtype=np.int64, format="csr"))
    for name, array in arrays.items():
        setattr(matrix.entries, name, np.asarray(array))
    return matrix


def _indices_outside(stage: Stage) -> None:
    table, ledger = open_table(stage)
    vector, cells = table.vectorise(), np.arange(CELLS)
    forgeries = {
        "a column of -1": forged(indices=cells - 1),
        "a column beyond the last": forged(indices=cells + 1),
        "rows that end before they begin": forged(indptr=np.append(cells[::-1], CELLS)),
        "rows beyond the arrays": forged(indptr=2 * np.arange(CELLS + 1)),
        "an entry more than columns": forged(data=np.ones(CELLS + 1, dtype=np.int64)),
        "one column twice in a row": forged(
            indptr=np.array([0] * CELLS + [CELLS]), indices=0 * cells
        ),
    }
    for what, matrix in forgeries.items():
        refused(what, vector.measure, matrix, spend=epsilon("1/1000"))
        refused(what, vector.transform, mx.Stack((mx.Identity(CELLS), matrix)))
    require(ledger.spent().amount == 0, "a refused request changed what was spent")


ATTACKS = (Attack("a sparse matrix with indices outside of it", "refused", _indices_outside),)
