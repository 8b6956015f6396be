"""The Kronecker product that is nearest to X = Σ_j c_j ⊗_i Y_ij, where X itself has no closed form.

M = ⊗Z_i with Z_i = Σ_j a_ij Y_ij, by alternating least squares in the few numbers a_ij (Van Loan
and Pitsianis 1993). It serves twice: its root preconditions iterations with X, and what it says of
a query is known exactly, w'M⁻¹w and w'M⁻¹XM⁻¹w, axis by axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from psephos.inverse.axis import DENSE_AXIS, HELD_ENTRIES
from psephos.inverse.form import Factors
from psephos.matrix import Dense, Diagonal, Identity, Kron, Matrix
from psephos.matrix.columns import gram_diagonal
from psephos.values import Array


@dataclass(frozen=True, eq=False)
class NearestProduct:
    """M by a root R_i of Z_i⁻¹ on each axis, with the Grams Y_ij that X is made of."""

    roots: tuple[Array, ...]
    grams: tuple[tuple[Array, ...], ...]
    precisions: tuple[float, ...]

    @classmethod
    def of(
        cls, blocks: Sequence[Matrix], precisions: Sequence[float], shape: tuple[int, ...]
    ) -> NearestProduct | None:
        """None if some block is no product over the axes, or an axis is too long."""
        grams = _axis_grams(blocks, shape)
        if grams is None:
            return None
        roots = []
        for z in _nearest_factors(grams, precisions):
            values, vectors = np.linalg.eigh(z)
            inside = values > values[-1] * len(values) * 1e-13
            roots.append(vectors[:, inside] / np.sqrt(values[inside]))
        return cls(tuple(roots), grams, tuple(precisions))

    @property
    def root(self) -> Matrix:
        """R = ⊗R_i with RR' = M⁻¹."""
        return Kron(tuple(Dense(root) for root in self.roots))

    def variances(self, factors: Factors) -> tuple[Array, Array]:
        """w'M⁻¹w and w'M⁻¹XM⁻¹w for every query w of a product."""
        first = np.ones(1)
        second = [np.full(1, c) for c in self.precisions]
        for w, root, grams in zip(factors, self.roots, self.grams, strict=True):
            first = np.multiply.outer(first, _row_sizes(w, root)).ravel()
            for j, y in enumerate(grams):
                values, vectors = np.linalg.eigh(root.T @ y @ root)
                scaled = root @ (vectors * np.sqrt(np.maximum(values, 0)))
                second[j] = np.multiply.outer(second[j], _row_sizes(w, scaled)).ravel()
        return first, np.asarray(sum(second))

    def traces(self, factors: Factors) -> tuple[float, float]:
        """The sums of `variances` over all queries of a product, without a list of them."""
        first, second = 1.0, np.array(self.precisions, dtype=float)
        for w, root, grams in zip(factors, self.roots, self.grams, strict=True):
            inner = root.T @ w.gram().matmat(root)
            first *= float(np.trace(inner))
            second *= [float(((root.T @ y @ root) * inner).sum()) for y in grams]
        return first, float(second.sum())


def nearest_product(
    blocks: Sequence[Matrix], precisions: Sequence[float], shape: tuple[int, ...]
) -> list[Array] | None:
    """The Z_i of the product ⊗Z_i nearest to Σ c_j ⊗Y_ij; None where blocks are no products."""
    grams = _axis_grams(blocks, shape)
    return None if grams is None else _nearest_factors(grams, precisions)


def _axis_grams(
    blocks: Sequence[Matrix], shape: tuple[int, ...]
) -> tuple[tuple[Array, ...], ...] | None:
    """Y_ij on every axis i of every block j."""
    products = [b for b in blocks if isinstance(b, Kron)]
    fits = all(tuple(f.shape[1] for f in b.factors) == shape for b in products)
    if len(products) < len(blocks) or not fits or max(shape) > DENSE_AXIS:
        return None
    return tuple(
        tuple(b.factors[i].gram().dense(limit=n * n).astype(float) for b in products)
        for i, n in enumerate(shape)
    )


def _nearest_factors(grams: Sequence[Sequence[Array]], precisions: Sequence[float]) -> list[Array]:
    parts = _nearest_parts(grams, precisions)
    pairs = zip(grams, parts, strict=True)
    return [np.asarray(sum(a * y for a, y in zip(part, ys, strict=True))) for ys, part in pairs]


def _nearest_parts(grams: Sequence[Sequence[Array]], precisions: Sequence[float]) -> list[Array]:
    """The numbers a_ij, from inner products of the Grams alone."""
    inner = [np.array([[float((y * z).sum()) for z in ys] for y in ys]) for ys in grams]
    sizes = [np.sqrt(np.diag(m)) for m in inner]
    c = np.array(precisions) * np.prod(sizes, axis=0)
    inner = [m / np.outer(s, s) for m, s in zip(inner, sizes, strict=True)]
    parts = [np.ones(len(precisions)) for _ in grams]
    for _ in range(10):
        for i in range(len(grams)):
            parts[i] = c.copy()
            for k, part in enumerate(parts):
                if k != i:
                    parts[i] *= inner[k] @ part / (part @ inner[k] @ part)
    return [part / size for part, size in zip(parts, sizes, strict=True)]


def _row_sizes(w: Matrix, columns: Array) -> Array:
    """The squared length of every row of W B, some columns of B at a time."""
    sizes, width = np.zeros(w.shape[0]), max(1, HELD_ENTRIES // w.shape[0])
    for start in range(0, columns.shape[1], width):
        sizes += (w.matmat(columns[:, start : start + width]) ** 2).sum(axis=1)
    return sizes


def column_scaling(blocks: Sequence[Matrix], precisions: Sequence[float]) -> Matrix:
    """One over the length of each column of the blocks, where there is no nearest product."""
    lengths = np.zeros(blocks[0].shape[1])
    for block, c in zip(blocks, precisions, strict=True):
        lengths += c * gram_diagonal(block)
    if not lengths.all():
        return Identity(lengths.size)
    return Diagonal(1 / np.sqrt(lengths))
