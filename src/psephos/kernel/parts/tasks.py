"""All tasks of a request: every declared run of parts with its rows, one after the other.

Privacy: which tasks there are follows from the declared tree and the query alone; a run without
rows is a task like any other (tests/kernel/test_part_faults.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from psephos.domain.part_tree import PartTree
from psephos.kernel.parts.law import runs
from psephos.kernel.parts.task import PartTask
from psephos.kernel.query import Query
from psephos.values import Array


def tasks_of(
    rows: Array, query: Query, tree: PartTree, weights: Sequence[Fraction]
) -> Iterator[PartTask]:
    """Tasks, made one by one; a row is leaf · n + cell, n the number of cells inside a part.

    `rows` is overwritten: the leaf of a row becomes its place in the tree, and rows are sorted, so
    that those of a part lie together at every level.
    """
    answers, n = query.shape
    if not np.array_equal(tree.places, np.arange(tree.leaves)):
        rows += (tree.places[rows // n] - rows // n) * n
    rows.sort()
    for level, weight in enumerate(weights):
        for start, stop in runs(tree, level, n, answers) if weight else ():
            edges, size = tree.edges[level][start : stop + 1], (stop - start) * n
            low, high = np.searchsorted(rows, edges[[0, -1]] * n)
            place, cell = np.divmod(rows[low:high], n)
            local = (np.searchsorted(edges, place, side="right") - 1) * n + cell
            dense = len(local) > size  # then counts are fewer numbers than rows are
            numbers = np.bincount(local, minlength=size) if dense else local
            yield PartTask(level, start, stop, int(dense), numbers)
