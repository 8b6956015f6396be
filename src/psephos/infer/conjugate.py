"""Conjugate gradients for a positive semidefinite map, preconditioned by its diagonal d.

Hestenes and Stiefel 1952; five vectors are held.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from psephos.frozen import Array

Map = Callable[[Array], Array]
MOST = 500
"""Steps before the solution is taken as it is."""


def conjugate(
    apply: Map, diagonal: Array, r: Array, share: float, floor: float = 0.0, *, most: int = MOST
) -> Array:
    """A p with A p ≈ r: the residual's length √(rᵀr/d) falls to a share of it, or to the floor.

    `apply` returns memory that may be written to. Where A is singular and r in its range, p is the
    solution that is smallest when scaled by √d.

    >>> conjugate(lambda v: np.array([2.0, 4.0]) * v, np.ones(2), np.array([2.0, 8.0]), 1e-9)
    array([1., 2.])
    """
    r, p, scaled = r.copy(), np.zeros_like(r), r / diagonal
    direction, size = scaled.copy(), float(r @ scaled)
    enough = max(share**2 * size, floor**2)
    for _ in range(min(most, 3 * r.size + 20)):
        if size <= enough:
            break
        q = apply(direction)
        curvature = float(direction @ q)
        if curvature <= 0:
            break
        length = size / curvature
        q *= length
        r -= q
        np.multiply(direction, length, out=q)
        p += q
        np.divide(r, diagonal, out=scaled)
        before, size = size, float(r @ scaled)
        direction *= size / before
        direction += scaled
    return p
