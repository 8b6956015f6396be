"""A guide of conjugate gradients where a few cells rule: (H + λ)⁻¹, about, for a stack of products.

H = A (diag(x) - xxᵀ/T) Aᵀ, λ = τσ². A cell with x_i Σ_j a_ji²/σ_j² > τ is an eigenvalue of its own
beside λ, which conjugate gradients have to find, one direction after the other. Where rows lie in
few cells there are some hundreds of these, K; all others are taken by the diagonal, and the total's
part is left out:

    M = D + BBᵀ,   B = A_K √x_K,   D = λ + the diagonal of what is left of H
    M⁻¹ = D⁻¹ - D⁻¹B (1 + BᵀD⁻¹B)⁻¹ BᵀD⁻¹   (Woodbury 1950)

With ranges of 280,000 cells, all rows in 200 of them, at ε = 1 directions fell from 10,600 to 1,300
over all steps of two priors, and with tables of 480,000 cells from 1,950 to 600.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from psephos.infer.table_tree import TableTree
from psephos.matrix import Matrix, is_total
from psephos.values import Array

WRITTEN_ENTRIES = 1 << 22
"""The most entries of a factor that is written out to tell its columns."""


@dataclass(frozen=True, eq=False)
class HeavyCells:
    """The columns of a stack of products, for as many cells as there is memory for."""

    tree: TableTree
    columns: tuple[tuple[tuple[int, _Columns], ...], ...]
    """Of every block, for every axis that it does not sum over."""
    precision: float
    """At least Σ_j a_ji²/σ_j² of any cell i."""
    most: int
    """The most cells whose columns are written out: no more entries than all cells have, and no
    more pairs."""

    @classmethod
    def of(cls, tree: TableTree, variances: Array) -> HeavyCells | None:
        """None where factors, or the columns of a single cell, are too large to be written out."""
        factors = {factor for block in tree.blocks for factor in block}
        if any(math.prod(factor.shape) > WRITTEN_ENTRIES for factor in factors):
            return None
        known = {factor: _Columns.of(factor) for factor in factors}
        columns = tuple(
            tuple((i, known[factor]) for i, factor in enumerate(block) if not is_total(factor))
            for block in tree.blocks
        )
        entries = sum(math.prod(axis.entries for _, axis in block) for block in columns)
        precision = math.fsum(
            math.prod(axis.largest_square for _, axis in block) / float(variances[start])
            for block, start in zip(columns, tree.starts, strict=False)
        )
        most = min(math.isqrt(tree.cells), tree.cells // max(entries, 1))
        return cls(tree, columns, precision, most) if most else None

    def guide(
        self, x: Array, strength: float, diagonal: Array, ridge: Array
    ) -> Callable[[Array], Array] | None:
        """M⁻¹ at cells x with the diagonal of H; None where no cell is heavy."""
        cells = np.flatnonzero(x * self.precision > strength)
        if cells.size > self.most:
            cells = cells[np.argpartition(x[cells], -self.most)[-self.most :]]
        if not cells.size:
            return None
        columns = self._columns_of(cells)
        squares = sp.csc_array((columns.data**2, columns.indices, columns.indptr), columns.shape)
        rest = np.maximum(diagonal - squares @ x[cells], 0) + ridge
        columns.data *= np.repeat(np.sqrt(x[cells]), np.diff(columns.indptr))
        rows = sp.csr_array(columns.T)
        pairs = (rows @ (sp.diags_array(1 / rest) @ columns)).toarray()
        pairs[np.diag_indices_from(pairs)] += 1
        try:
            factor = cho_factor(pairs, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:  # cells that floats cannot tell apart
            return None

        def apply(r: Array) -> Array:
            scaled = r / rest
            heavy = columns @ cho_solve(factor, rows @ scaled, check_finite=False)
            heavy /= rest
            scaled -= heavy
            return np.asarray(scaled)

        return apply

    def _columns_of(self, cells: Array) -> sp.csc_array:
        """A_K, a column for each of some cells."""
        places = np.unravel_index(cells, self.tree.shape)
        rows, entries = [], []
        for start, block in zip(self.tree.starts, self.columns, strict=False):
            row = np.zeros((cells.size, 1), dtype=np.int64)
            entry = np.ones((cells.size, 1))
            for i, axis in block:
                row = row[:, :, None] * axis.height + axis.rows[places[i]][:, None, :]
                entry = entry[:, :, None] * axis.values[places[i]][:, None, :]
                row, entry = row.reshape(cells.size, -1), entry.reshape(cells.size, -1)
            rows.append(row + start)
            entries.append(entry)
        row, entry = np.concatenate(rows, axis=1), np.concatenate(entries, axis=1)
        ends = np.arange(cells.size + 1) * row.shape[1]
        shape = self.tree.size, cells.size
        return sp.csc_array((entry.reshape(-1), row.reshape(-1), ends), shape=shape)


@dataclass(frozen=True, eq=False)
class _Columns:
    """The entries of every column of a factor: as many for all, filled up with zeros."""

    height: int
    rows: Array
    values: Array

    @classmethod
    def of(cls, factor: Matrix) -> _Columns:
        written = factor.dense(limit=WRITTEN_ENTRIES).astype(float)
        most = max(1, int(np.count_nonzero(written, axis=0).max()))
        rows = np.argsort(written == 0, axis=0, kind="stable")[:most]
        values = np.take_along_axis(written, rows, axis=0)
        return cls(factor.shape[0], np.ascontiguousarray(rows.T), np.ascontiguousarray(values.T))

    @property
    def entries(self) -> int:
        """How many entries a column has."""
        return int(self.rows.shape[1])

    @property
    def largest_square(self) -> float:
        """The largest sum of squares of a column."""
        return float((self.values**2).sum(axis=1).max())
