"""How far noise may reach: bounds that hold with a given probability, known before a draw."""

from __future__ import annotations

import math
from fractions import Fraction

from psephos.errors import RefusedError
from psephos.kernel.noise import DiscreteLaplace, Noise


def tail_bound(noise: Noise, beta: float | Fraction) -> int:
    """A k with P(|X| > k) ≤ beta.

    The tail of discrete Laplace noise is at most 2·exp(-(k + 1)/scale). Discrete Gaussian noise
    is sub-Gaussian, its tail at most 2·exp(-(k + 1)²/2σ²).

    >>> tail_bound(DiscreteLaplace(Fraction(10)), 0.05)
    37
    """
    if not 0 < beta < 1:
        raise RefusedError(f"beta is a probability between 0 and 1, got {beta!r}")
    # ln(2/beta), a little more than less
    reach = Fraction(math.log(2) - math.log(beta)) * (1 + Fraction(1, 2**40))
    if isinstance(noise, DiscreteLaplace):
        return math.ceil(noise.scale * reach)
    return math.isqrt(math.ceil(2 * noise.variance * reach))
