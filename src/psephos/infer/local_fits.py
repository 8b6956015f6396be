"""The least squares estimate of every part by itself: z = (AᵀCA)⁺ AᵀC y, many parts at once.

All parts are asked the same query A with the same proportions of noise C, so one inverse does for
all of them. What A leaves open is filled in alike for all parts, by one linear map: cells that no
block tells apart share evenly, and what nobody measured counts as zero. So sums and weighted means
of such estimates are again such estimates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from psephos.errors import ShapeError
from psephos.inverse.choice import form_of, merging_of, precision
from psephos.inverse.form import Form, check_vector
from psephos.inverse.merged_cells import Merging
from psephos.inverse.subspaces import FittedTables
from psephos.kernel.query import Query
from psephos.matrix import Identity
from psephos.values import Array

FITTED_AT_ONCE = 1 << 22
"""Numbers of answers or cells that are fitted together; a part of more is fitted by itself."""


@dataclass(frozen=True, eq=False)
class LocalFits:
    """One inverse for the answers of many parts.

    >>> from psephos.matrix import total
    >>> fits = LocalFits.of(Query.of([(Identity(2), 1), (total(2), 1)]), [1.0, 1.0], (2,))
    >>> fits.cells([np.array([[1, 2], [4, 4]]), np.array([[6], [8]])])
    array([[2., 3.],
           [4., 4.]])
    """

    shape: tuple[int, ...]
    rows: tuple[int, ...]
    """Answers of each block of the query."""
    form: Form
    """Of the cells that blocks tell apart."""
    merging: Merging | None

    @classmethod
    def of(cls, query: Query, variances: Sequence[float], shape: tuple[int, ...]) -> LocalFits:
        """Of a query over the cells of a part and the variance of each of its blocks."""
        check_vector(math.prod(shape))
        blocks = [block.matrix for block in query.blocks]
        merging = merging_of(blocks, shape)
        inner, grid = (
            (blocks, shape) if merging is None else (merging.blocks(blocks), merging.shape)
        )
        form = form_of(inner, [precision(v) for v in variances], grid)
        return cls(shape, tuple(block.shape[0] for block in blocks), form, merging)

    def cells(self, answers: Sequence[Array]) -> Array:
        """The z of k parts, an array (k, n), from each block's answers, an array (k, rows)."""
        shapes = [np.shape(block) for block in answers]
        count = shapes[0][0] if shapes and shapes[0] else 0
        if shapes != [(count, rows) for rows in self.rows]:
            raise ShapeError(
                f"blocks have {list(self.rows)[:9]} answers for each part, got arrays {shapes[:9]}"
            )
        n = math.prod(self.shape)
        result = np.empty((count, n))
        run = max(1, FITTED_AT_ONCE // max(n, sum(self.rows)))
        for start in range(0, count, run):
            stop = min(start + run, count)
            columns = [np.ascontiguousarray(block[start:stop].T, float) for block in answers]
            result[start:stop] = self._fit(columns).T
        return result

    def _fit(self, columns: Sequence[Array]) -> Array:
        """Cells in rows and parts in columns."""
        single = columns[0].shape[1] == 1
        values = [each[:, 0] for each in columns] if single else list(columns)
        fitted = self.form.fit(values)
        merging = self.merging
        grid = self.shape if merging is None else merging.shape
        if isinstance(fitted, FittedTables):
            cells = fitted.averages.tables(tuple(range(len(grid))))
            cells = np.asarray(cells).reshape(-1, math.prod(grid)).T
        else:
            vector = getattr(fitted, "vector", None)
            cells = fitted.answers(tuple(map(Identity, grid))) if vector is None else vector
        cells = np.asarray(cells, dtype=float).reshape(math.prod(grid), -1)
        if merging is None:
            return cells
        table = cells.reshape(*grid, -1)
        for axis, groups in enumerate(merging.groups):
            share = 1 / np.bincount(groups, minlength=grid[axis])
            share = share.reshape([-1 if i == axis else 1 for i in range(table.ndim)])
            table = np.take(table * share, groups, axis=axis)
        return np.asarray(table.reshape(math.prod(self.shape), -1))
