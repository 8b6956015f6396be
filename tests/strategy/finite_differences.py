"""The gradient of a union against finite differences, for every kind of union."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.testing import assert_allclose

from psephos.strategy.factors import PureFactor
from psephos.strategy.hdmm.union_pair import UnionObjective, gradient
from psephos.values import Array

STEP = 1e-6


def check_gradient(joint: UnionObjective, point: Sequence[Array], tolerance: float) -> None:
    """The shares and all Θ of a point, moved one by one to both sides."""

    def error(changed: Sequence[Array]) -> float:
        return joint.error(changed[0], [PureFactor(theta) for theta in changed[1:]])

    value, slopes, _ = gradient(joint, point[0], point[1:])
    assert_allclose(value, error(point))
    for k, (x, slope) in enumerate(zip(point, slopes, strict=True)):
        differences = np.zeros_like(x)
        for index in np.ndindex(x.shape):
            up, down = x.copy(), x.copy()
            up[index] += STEP
            down[index] -= STEP
            higher = error([*point[:k], up, *point[k + 1 :]])
            lower = error([*point[:k], down, *point[k + 1 :]])
            differences[index] = (higher - lower) / (2 * STEP)
        largest = np.abs(differences).max(initial=0)
        atol = tolerance * largest + 0.1 * tolerance * value
        assert_allclose(slope, differences, rtol=10 * tolerance, atol=atol)
