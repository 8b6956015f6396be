"""Guides of conjugate gradients for one product of queries: λ(H + λ)⁻¹, about.

H = A (diag(x) - xxᵀ/T) Aᵀ, A = ⊗A_i, and neighbouring ranges are nearly the same numbers: the
diagonal of H says little of it. Two kinds of x have an H that is easily inverted, and most lie
near one of them; the total's part is left out of both.

    independent   x = T ⊗q_i:  H = T ⊗ A_i diag(q_i) A_iᵀ, by the eigenvectors of each axis
    few cells     all of x in cells K:  λ(H + λ)⁻¹ = 1 - A_K √x (√x A_KᵀA_K √x + λ)⁻¹ √x A_Kᵀ
                  (Woodbury 1950), by a factor of so many rows as there are cells in K

For prefixes over 64 × 64 × 100 cells at ε = 10, conjugate directions to the best step fell from
over 1,300 to 66 with rows all over the cells, and from over 2,600 to 615 with all in 200 of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from psephos.infer.slab_product import SlabProduct, pieces
from psephos.matrix import Dense
from psephos.values import Array

GUIDED_AXIS = 512
"""The longest axis whose eigenvectors are worked out in every step."""
FEW_CELLS_SHARE = 0.25
"""The share of H's trace that lies in few cells, from which on these are the guide."""
CELLS_PER_PAIR = 4
"""There is memory for a pair of the few cells for each so many cells."""


class Guide(Protocol):
    """λ(H + λ)⁻¹, about."""

    def apply(self, r: Array) -> Array: ...


@dataclass(frozen=True, eq=False)
class GuidedProduct:
    """A product, and what its guides need to know of it whatever x is."""

    product: SlabProduct
    transposed: SlabProduct

    @property
    def written(self) -> bool:
        """Are all axes short enough for guides?"""
        return max(max(factor.shape) for factor in self.product.factors) <= GUIDED_AXIS

    def guide(self, x: Array, total: float, ridge: float) -> Guide | None:
        """The guide at some cells; None where axes are too long for one."""
        return self._few_cells(x, ridge) or self._independent(x, total, ridge)

    def largest_curvature(self, x: Array, total: float) -> float | None:
        """The largest eigenvalue of H as if attributes were independent."""
        spectra = self._spectra(x, total)
        return None if spectra is None else total * math.prod(float(s[-1]) for s, _ in spectra)

    def _shape(self) -> tuple[int, ...]:
        return tuple(factor.shape[1] for factor in self.product.factors)

    def _written(self) -> list[Array] | None:
        if not self.written:
            return None
        limit = GUIDED_AXIS**2
        return [factor.dense(limit=limit).astype(float) for factor in self.product.factors]

    def _spectra(self, x: Array, total: float) -> list[tuple[Array, Array]] | None:
        axes = self._written()
        if axes is None:
            return None
        table, spectra = x.reshape(self._shape()), []
        for i, axis in enumerate(axes):
            others = tuple(j for j in range(len(axes)) if j != i)
            share = table.sum(axis=others, dtype=float) / total
            values, vectors = np.linalg.eigh((axis * share) @ axis.T)
            spectra.append((np.maximum(values, 0), vectors))
        return spectra

    def _independent(self, x: Array, total: float, ridge: float) -> IndependentGuide | None:
        spectra = self._spectra(x, total)
        if spectra is None:
            return None
        # Not Dense(…).T: a matrix and its transpose keep each other, and would outlive the guide.
        return IndependentGuide(
            SlabProduct(tuple(Dense(vectors) for _, vectors in spectra)),
            SlabProduct(tuple(Dense(vectors.T) for _, vectors in spectra)),
            tuple(values.astype(np.float32) for values, _ in spectra),
            total / ridge,
        )

    def _few_cells(self, x: Array, ridge: float) -> CellGuide | None:
        axes, count = self._written(), math.isqrt(x.size // CELLS_PER_PAIR)
        if axes is None or not count:
            return None
        grams = [axis.T @ axis for axis in axes]
        cells, share = _heaviest(x, [gram.diagonal() for gram in grams], count)
        if share < FEW_CELLS_SHARE:
            return None
        roots = np.sqrt(x[cells].astype(float))
        pairs = np.outer(roots, roots)
        for gram, places in zip(grams, np.unravel_index(cells, self._shape()), strict=True):
            pairs *= gram[np.ix_(places, places)]
        pairs[np.diag_indices_from(pairs)] += ridge
        try:
            factor = cho_factor(pairs, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:  # cells that floats cannot tell apart
            return None
        return CellGuide(self.product, self.transposed, cells, roots, factor)


@dataclass(frozen=True, eq=False)
class IndependentGuide:
    """For cells whose attributes are about independent."""

    vectors: SlabProduct
    transposed: SlabProduct
    spectra: tuple[Array, ...]
    strength: float
    """T/λ."""

    def apply(self, r: Array) -> Array:
        """By the eigenvectors of every axis."""
        image = self.transposed.gather(r, np.float32)
        first, rest = self.spectra[0], _outer(self.spectra[1:])
        rest *= np.float32(self.strength)
        rows = image.reshape(first.size, -1)
        for row, value in zip(rows, first, strict=True):
            row /= 1 + value * rest
        self.vectors.overwrite(image)
        return image


@dataclass(frozen=True, eq=False)
class CellGuide:
    """For cells most of which are about empty."""

    product: SlabProduct
    transposed: SlabProduct
    cells: Array
    roots: Array
    factor: Any

    def apply(self, r: Array) -> Array:
        """By the few cells that are not."""
        image = self.transposed.gather(r, np.float32)
        some = self.roots * cho_solve(
            self.factor, self.roots * image[self.cells], check_finite=False
        )
        image[:] = 0
        image[self.cells] = some
        image = self.product.gather(image, np.float32)
        for part in pieces(r.size):
            np.subtract(r[part], image[part], out=image[part])
        return image


@dataclass(frozen=True, eq=False)
class DiagonalGuide:
    """For axes that are too long for the others: λ/(h + λ) with h the diagonal of H."""

    shares: Array
    """In half precision."""

    def apply(self, r: Array) -> Array:
        """Number by number."""
        return self.shares * r


def _heaviest(x: Array, diagonals: Sequence[Array], count: int) -> tuple[Array, float]:
    """The cells with the largest shares of the trace of A diag(x) Aᵀ, and their share of it."""
    first, rest = diagonals[0], _outer([each.astype(np.float32) for each in diagonals[1:]])
    cells, shares, sums = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float32), []
    for i, weight in enumerate(first):
        row = rest * x[i * rest.size : (i + 1) * rest.size]
        row *= np.float32(weight)
        sums.append(float(row.sum(dtype=float)))
        shares = np.concatenate([shares, row])
        cells = np.concatenate([cells, np.arange(i * rest.size, (i + 1) * rest.size)])
        if shares.size > count:
            top = np.argpartition(shares, -count)[-count:]
            cells, shares = cells[top], shares[top]
    return cells, float(shares.sum(dtype=float)) / max(math.fsum(sums), 1e-300)


def _outer(vectors: Sequence[Array]) -> Array:
    """⊗ of some vectors."""
    result: Array = np.ones(1, dtype=np.float32)
    for vector in vectors:
        result = np.multiply.outer(result, vector).reshape(-1)
    return result
