"""The least-squares solution of least norm, for measurements that leave something open.

Of all x that minimise Σ_j c_j |A_j x - y_j|² it is the one with the least |x|: K⁺y for the blocks
K = (√c_j A_j) scaled to unit noise. Every form of the inverse is right on what the blocks
determine; here the rest counts too, so cells are merged with care. Let P merge cells with equal
columns, s cells each, so that K = K'P. With D = diag(s) the rows of D^(-1/2)P are orthonormal, so

    K⁺ = PᵀD^(-1/2) (K'D^(1/2))⁺:

merged cells are fitted in the norm that counts a merged cell by its size, and a cell gets an even
share. Where blocks look at disjoint groups of cells, each group is solved on its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator, lsmr

from psephos.inverse.axis import DENSE_AXIS, DenseInverse
from psephos.inverse.block_diagonal import Components, Family, cells_of
from psephos.inverse.choice import form_of
from psephos.inverse.dense import DenseForm
from psephos.inverse.form import FittedVector, Form, check_vector, multiply
from psephos.inverse.marginal_blocks import falls_into_subspaces
from psephos.inverse.merged_cells import FittedGroups, Merging
from psephos.inverse.nested_gram import NestedGram
from psephos.inverse.product import ProductForm
from psephos.inverse.subspaces import FittedTables, Subspaces
from psephos.matrix import Dense, Diagonal, Identity, Kron, Matrix, Scaled, Stack, compose
from psephos.values import Array

WRITTEN_ROWS = 2000
"""The most measured numbers that are written out as rows, where cells are more."""
WRITTEN_CELLS = 1200
"""The most cells for which an undetermined problem is solved by eigenvectors."""
LEAST_NORM_TOLERANCE = 1e-13
MOST_ITERATIONS = 5000


def least_norm(
    blocks: Sequence[Matrix],
    precisions: Sequence[float],
    values: Sequence[Array],
    shape: tuple[int, ...],
) -> Array:
    """K⁺y of blocks with these precisions; a column for each column of the values.

    >>> from psephos.matrix import Ranges
    >>> least_norm([Ranges.intervals(5, [0, 2], [3, 4])], [1.0], [np.array([8.0, 8.0])], (5,))
    array([1., 1., 3., 3., 2.])
    """
    check_vector(math.prod(shape))
    if not any(isinstance(block, Kron) and len(block.factors) > 1 for block in blocks):
        shape = (math.prod(shape),)  # no block knows of attributes: cells in a row
    components = Components.of(blocks, precisions)
    if components is not None:

        def fit(family: Family, columns: list[Array]) -> Array:
            return least_norm(family.matrices, family.precisions, columns, (family.width,))

        return components.gathered(values, fit)
    merging = Merging.of_columns(blocks, shape)
    if merging is None:
        return _Distinct(tuple(blocks), tuple(precisions), shape, None).solve(values)
    distinct = _Distinct(
        tuple(merging.blocks(blocks)), tuple(precisions), merging.shape, merging.sizes
    )
    return FittedGroups(FittedVector(distinct.solve(values)), merging).vector


@dataclass(frozen=True, eq=False)
class _Distinct:
    """Blocks that tell all cells apart, and how many cells of the domain each stands for."""

    blocks: tuple[Matrix, ...]
    precisions: tuple[float, ...]
    shape: tuple[int, ...]
    sizes: Array | None

    def solve(self, values: Sequence[Array]) -> Array:
        nested = NestedGram.of(self.blocks, self.precisions) if len(self.blocks) > 1 else None
        if nested is not None:
            return self._by_groups(nested, values)
        rows, cells = sum(block.shape[0] for block in self.blocks), math.prod(self.shape)
        few = rows <= min(cells, WRITTEN_ROWS)
        closed = falls_into_subspaces(self.shape, self.blocks) or len(self.blocks) == 1
        if not few or (closed and self._even):
            form = form_of(self.blocks, self.precisions, self.shape)
            if self._is_least_norm(form) or form.covers(tuple(map(Identity, self.shape))):
                return self._cells(form, values)
        if cells <= (DENSE_AXIS if few else WRITTEN_CELLS):
            return self._written(values)
        flat = np.concatenate(self._scaled_values(values))
        columns = flat.reshape(len(flat), -1).T
        x = np.stack([self._by_iterations(y) for y in columns], axis=1)
        return x.reshape(-1, *flat.shape[1:])

    def _by_groups(self, nested: NestedGram, values: Sequence[Array]) -> Array:
        """Groups within groups, every cell alone among them: nothing is left open."""
        triples = zip(self.blocks, self.precisions, values, strict=True)
        right = np.asarray(
            sum(c * multiply(block.T, np.asarray(y, dtype=float)) for block, c, y in triples)
        )
        none = np.zeros(len(right))
        columns = [nested.solve(none, each) for each in right.reshape(len(right), -1).T]
        return np.stack(columns, axis=1).reshape(right.shape)

    @property
    def _even(self) -> bool:
        """Do all cells stand for equally many?"""
        return self.sizes is None or bool((self.sizes == self.sizes[0]).all())

    def _is_least_norm(self, form: Form) -> bool:
        """Is what the form leaves open zero, in the norm that counts?"""
        return self._even and isinstance(form, ProductForm | Subspaces | DenseForm)

    def _cells(self, form: Form, values: Sequence[Array]) -> Array:
        fitted = form.fit(values)
        if isinstance(fitted, FittedTables):
            return fitted.least_norm_cells()
        if len(self.shape) == 1:
            return cells_of(fitted, self.shape[0])
        vector: Array | None = getattr(fitted, "vector", None)
        return fitted.answers(tuple(map(Identity, self.shape))) if vector is None else vector

    def _scaled_values(self, values: Sequence[Array]) -> list[Array]:
        pairs = zip(self.precisions, values, strict=True)
        return [math.sqrt(c) * np.asarray(y, dtype=float) for c, y in pairs]

    @property
    def _scaling(self) -> Array:
        """D^(1/2)."""
        return np.ones(math.prod(self.shape)) if self.sizes is None else np.sqrt(self.sizes)

    @property
    def _scaled(self) -> Matrix:
        """K'D^(1/2)."""
        pairs = zip(self.precisions, self.blocks, strict=True)
        parts: list[Matrix] = [Scaled(math.sqrt(c), block) for c, block in pairs]
        if self.sizes is not None:
            parts = [compose(part, Diagonal(self._scaling)) for part in parts]
        return Stack(tuple(parts))

    def _written(self, values: Sequence[Array]) -> Array:
        """By the inverse written out, and what rounding leaves fitted once more."""
        scaled = self._scaled
        rows = Dense(scaled.dense(limit=scaled.shape[0] * DENSE_AXIS))
        y = np.concatenate(self._scaled_values(values))
        inverse = DenseInverse.of(rows)
        z = multiply(inverse, multiply(rows.T, y))
        z = z + multiply(inverse, multiply(rows.T, y - multiply(rows, z)))
        return np.asarray((self._scaling * z.T).T)

    def _by_iterations(self, y: Array) -> Array:
        """LSMR from zero, which never leaves the rows' span (Fong and Saunders 2011)."""
        scaled = self._scaled
        operator = LinearOperator(
            scaled.shape, matvec=scaled.matvec, rmatvec=scaled.rmatvec, dtype=float
        )
        z = lsmr(
            operator,
            y,
            atol=LEAST_NORM_TOLERANCE,
            btol=LEAST_NORM_TOLERANCE,
            conlim=0,
            maxiter=MOST_ITERATIONS,
        )[0]
        return np.asarray(self._scaling * z)
