"""X⁺ of many small matrices at a time, and what they do not see."""

from __future__ import annotations

import numpy as np

from psephos.values import Array

REGULAR_CONDITION = 1e6
"""Up to this condition number a block is inverted as it stands."""
UNSEEN_DIRECTION = 1e-12
"""Eigenvalues of n x n numbers below n times this, beside the largest, count as zero."""


def pseudo_inverses(x: Array, scale: Array, spread: float) -> Array:
    """X⁺ of many small matrices.

    What is seen does not depend on weights: `scale` is the same sum with even ones, and `spread`
    how far weights lie apart. Since cond(scale) ≤ spread · cond(X), eigenvectors are needed only
    where X itself is singular, or nearly so.
    """
    scaled, even = _with_even_diagonal(x)
    inverse = _regular_inverse(scaled)
    if inverse is not None:
        inverse *= even
        if spread * _condition(x, inverse) * x.shape[-1] * UNSEEN_DIRECTION < 1:
            return inverse
    inside, vectors = _seen_vectors(scale)
    back = np.swapaxes(vectors, -1, -2)
    both = inside[..., :, None] & inside[..., None, :]
    turned, even = _with_even_diagonal(np.where(both, back @ x @ vectors, np.eye(x.shape[-1])))
    return np.asarray(vectors @ np.where(both, np.linalg.inv(turned) * even, 0) @ back)


def unseen(scale: Array) -> Array:
    """The projections onto what many small matrices do not see."""
    if _regular_inverse(scale) is not None:
        return np.zeros_like(scale)
    inside, vectors = _seen_vectors(scale)
    return np.asarray((vectors * ~inside[..., None, :]) @ np.swapaxes(vectors, -1, -2))


def _seen_vectors(scale: Array) -> tuple[Array, Array]:
    """Which eigenvectors are seen, and all of them."""
    values, vectors = np.linalg.eigh(scale)
    least = np.maximum(values[..., -1:], 0) * scale.shape[-1] * UNSEEN_DIRECTION
    return values > least, vectors


def _with_even_diagonal(x: Array) -> tuple[Array, Array]:
    """DXD with a diagonal of ones, and what it was scaled by: weights may be far apart."""
    diagonal = np.einsum("...ii->...i", x)
    roots = 1 / np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    even = roots[..., :, None] * roots[..., None, :]
    return x * even, even


def _regular_inverse(x: Array) -> Array | None:
    """X⁻¹ of many small matrices; None if one of them is singular, or nearly."""
    try:
        inverse = np.linalg.inv(x)
    except np.linalg.LinAlgError:
        return None
    return inverse if _condition(x, inverse) <= REGULAR_CONDITION else None


def _condition(x: Array, inverse: Array) -> float:
    """The largest condition number in the norm of column sums."""
    sizes = [np.abs(each).sum(axis=-2).max(axis=-1) for each in (x, inverse)]
    return float((sizes[0] * sizes[1]).max())
