"""Conjugate gradients for a positive semidefinite map, preconditioned by its diagonal d.

Hestenes and Stiefel 1952; five vectors are held. A map may have one stiff direction besides, κ uuᵀ,
which the preconditioner then takes in: (D + κ uuᵀ)⁻¹ by the formula of Sherman and Morrison (1950).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from psephos.frozen import Array

Map = Callable[[Array], Array]
MOST = 500
"""Steps before the solution is taken as it is."""


def conjugate(
    apply: Map,
    diagonal: Array,
    r: Array,
    share: float,
    floor: float = 0.0,
    *,
    most: int = MOST,
    stiff: tuple[float, Array] | None = None,
) -> Array:
    """A p with A p ≈ r: the residual's length √(rᵀr/d) falls to a share of it, or to the floor.

    `stiff` is κ and u of a direction in which A is far larger than its diagonal tells.

    `apply` returns memory that may be written to. Where A is singular and r in its range, p is the
    solution that is smallest when scaled by √d.

    >>> conjugate(lambda v: np.array([2.0, 4.0]) * v, np.ones(2), np.array([2.0, 8.0]), 1e-9)
    array([1., 2.])
    """
    precondition = _preconditioner(diagonal, stiff)
    r, p, scaled = r.copy(), np.zeros_like(r), np.empty_like(r)
    precondition(r, scaled)
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
        precondition(r, scaled)
        before, size = size, float(r @ scaled)
        direction *= size / before
        direction += scaled
    return p


def _preconditioner(
    diagonal: Array, stiff: tuple[float, Array] | None
) -> Callable[[Array, Array], None]:
    """Write M⁻¹r into the second array."""
    if stiff is None:

        def divide(r: Array, out: Array) -> None:
            np.divide(r, diagonal, out=out)

        return divide
    strength, u = stiff
    w = u / diagonal
    factor = strength / (1 + strength * float(u @ w))

    def precondition(r: Array, out: Array) -> None:
        np.divide(r, diagonal, out=out)
        out -= factor * float(w @ r) * w

    return precondition
