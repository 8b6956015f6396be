"""Variances of the discrete noises, in floats: for errors that people read, never for a draw."""

from __future__ import annotations

import math


def laplace_variance(scale: float) -> float:
    """2r/(1 - r)² with r = exp(-1/scale), of P(x) ∝ exp(-|x|/scale).

    >>> round(laplace_variance(1.0), 4)
    1.8413
    """
    x = -1 / scale
    return 2 * math.exp(x) / math.expm1(x) ** 2


def gaussian_variance(v: float) -> float:
    """Σ x²·exp(-x²/2v) / Σ exp(-x²/2v), by Poisson's formula where that converges faster.

    >>> round(gaussian_variance(0.25), 4)
    0.215
    """
    rate = 1 / (2 * v) if v < 1 else 2 * math.pi**2 * v
    terms = [math.exp(-rate * n * n) for n in range(1, 13)]
    ratio = 2 * sum(n * n * w for n, w in enumerate(terms, 1)) / (1 + 2 * sum(terms))
    return ratio if v < 1 else v * (1 - 2 * rate * ratio)
