"""Matrices that are changed after their constructor has checked them.

The story: frozen values can be changed all the same, by `object.__setattr__`. Groups that count
beyond their number, orders that name a cell twice, a stack of itself: whatever is inside, the
kernel measures the copy that its own constructors have checked, or refuses.
"""

from __future__ import annotations

import numpy as np

import psephos.matrix as mx
from psephos.kernel.budget import epsilon
from psephos.publish.attacks.attempt import (
    CELLS,
    SILENCE,
    TRUE,
    Attack,
    learned,
    open_table,
    refused,
    require,
)
from psephos.publish.attacks.boundary.forged_scalars import changed
from psephos.publish.attacks.stage import Stage

CHEAP = epsilon("1/1000")


def _changed_inside(stage: Stage) -> None:
    table, ledger = open_table(stage)
    vector, cells = table.vectorise(), np.arange(CELLS)
    eye = mx.Identity(CELLS)
    endless = mx.Stack((eye, mx.Prefix(CELLS)))
    changed(endless, parts=(eye, endless))
    doubled = eye
    for _ in range(64):  # 2^64 parts, were they all taken in
        doubled = changed(mx.Stack((eye, mx.Prefix(CELLS))), parts=(doubled, doubled))
    deep: mx.Matrix = eye
    for _ in range(500):
        deep = mx.Permuted(deep, cells)
    forgeries = {
        "groups below 0": changed(mx.Partition(cells), groups=cells - 1),
        "groups with gaps": changed(mx.Partition(cells), groups=2 * cells),
        "an order that names a cell twice": changed(mx.Permuted(eye, cells), order=0 * cells),
        "a range beyond the grid": changed(
            mx.Ranges.intervals(CELLS, [0], [3]), high=np.array([[CELLS + 5]])
        ),
        "a marginal of an axis that is not there": changed(
            mx.Marginals.of((CELLS,), {(0,): 1}), sets=((7,),)
        ),
        "fractions": changed(mx.Dense(np.eye(CELLS, dtype=int)), array=np.eye(CELLS) / 2),
        "objects": changed(mx.Dense(np.eye(CELLS, dtype=int)), array=np.full((1, CELLS), None)),
        "more than memory": changed(
            mx.Dense(np.eye(CELLS, dtype=int)), array=np.broadcast_to(1, (10**9, CELLS))
        ),
        "a stack of itself": endless,
        "a stack of stacks of stacks": doubled,
        "orders of orders of orders": deep,
        "nothing inside": object.__new__(mx.Dense),
    }
    for what, matrix in forgeries.items():
        refused(what, vector.measure, matrix, spend=CHEAP)
        refused(what, vector.transform, matrix)
    require(ledger.spent().amount == 0, "a refused request changed what was spent")


def _stale_caches(stage: Stage) -> None:
    """What a matrix has worked out for itself is not believed."""
    ranges = mx.Ranges.intervals(CELLS, np.arange(CELLS), np.arange(CELLS))
    ranges.__dict__["_corners"] = 10**6 * ranges._corners.astype(np.int64)
    sly = mx.Partition(np.arange(CELLS))
    sly.__dict__["_twin"] = mx.Dense(10**6 * np.eye(CELLS, dtype=int))
    vector = open_table(stage)[0].vectorise()
    for matrix in (ranges, sly):
        try:
            seen = vector.measure(matrix, spend=SILENCE).values
        except ValueError:  # refused, which is well
            continue
        require(learned(seen) == CELLS, f"a cache of {matrix} was believed: {seen[:5]}, {TRUE[:5]}")


ATTACKS = (
    Attack("matrices changed inside", "refused, however large they look", _changed_inside),
    Attack("matrices with caches of the caller's", "have no effect", _stale_caches),
)
