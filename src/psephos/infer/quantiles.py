"""Quantiles of privacy noise: of a single one exactly, of sums of wide ones by an integral.

A sum S = Σ aᵢXᵢ of independent symmetric noises has P(|S| ≤ h) = (2/π) ∫ sin(th)/t · φ(t) dt over
t > 0, where φ is the product of the noises' characteristic functions (Gil-Pelaez 1951). In units of
the standard deviation of S these are 1/(1 + a²t²/2) for Laplace noise and exp(-a²t²/2) for Gaussian
noise; steps of whole numbers are left out, which matters little once noise is wide. `lattice` has
sums whose steps are known.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
from scipy.special import ndtri

from psephos.errors import UnsupportedError
from psephos.kernel.noise import DiscreteLaplace, Noise
from psephos.values import Array

SMOOTH_DEVIATION = 1000.0
"""From this standard deviation on, sums over discrete Gaussian noise are those of a normal."""
FREQUENCY_LIMIT = 60.0
"""Where characteristic functions end: what a single Laplace noise leaves out there is 1e-5."""
QUADRATURE_NODES = 160
QUADRATURE_NUMBERS = 1 << 22
"""Numbers that are held while quantiles are computed."""
BISECTION_STEPS = 40


def noise_quantile(noise: Noise, confidence: float) -> int:
    """The least k with P(|X| ≤ k) ≥ confidence, for noise that is added to a count as it is.

    For discrete Laplace noise P(|X| > k) = 2·exp(-(k + 1)/b) / (1 + exp(-1/b)), in closed form.

    >>> from fractions import Fraction
    >>> noise_quantile(DiscreteLaplace(Fraction(10)), 0.95)
    30
    """
    if not 0 < confidence < 1:
        raise UnsupportedError(f"a confidence lies between 0 and 1, got {confidence!r}")
    if isinstance(noise, DiscreteLaplace):
        rate = 1 / float(noise.scale)
        tail = (1 - confidence) * (1 + math.exp(-rate)) / 2
        return max(0, math.ceil(-math.log(tail) / rate - 1 - 1e-12))
    sigma = math.sqrt(float(noise.variance))
    if sigma > SMOOTH_DEVIATION:  # then the sums below are a normal density's, to 1e-12
        z = float(ndtri((1 + confidence) / 2))
        return max(0, math.ceil(sigma * z - 0.5))
    support = np.arange(math.ceil(12 * sigma) + 2, dtype=float)
    weights = np.exp(-(support**2) / (2 * float(noise.variance)))
    weights[1:] *= 2
    cumulative = np.cumsum(weights) / weights.sum()
    return int(np.searchsorted(cumulative, confidence * (1 - 1e-15)))


def shape_bounds(noises: Sequence[Noise], confidence: float) -> tuple[float, float]:
    """Quantiles in standard deviations, of a normal and of a single Laplace noise.

    Those of sums of wide noises lie between the two.
    """
    bounds = [float(ndtri((1 + confidence) / 2))]
    if any(isinstance(noise, DiscreteLaplace) for noise in noises):
        bounds.append(-math.log(1 - confidence) / math.sqrt(2))
    return min(bounds), max(bounds)


def sum_quantiles(
    effects: Array, noises: Sequence[Noise], rows: Sequence[int], confidence: float
) -> Array:
    """H with P(|S| ≤ h) = confidence for every row S of effects on noises, so many of each kind.

    >>> from fractions import Fraction
    >>> laplace = DiscreteLaplace(Fraction(1000))
    >>> alone, two = sum_quantiles(np.array([[1.0, 0.0], [1.0, 1.0]]), [laplace], [2], 0.95)
    >>> round(alone), round(two)                       # ln 20, and (1 + h/2)·exp(-h) = 1/20
    (2996, 4113)
    """
    spreads = np.repeat([math.sqrt(noise.exact_variance) for noise in noises], rows)
    laplace = np.repeat([isinstance(noise, DiscreteLaplace) for noise in noises], rows)
    t, weights = _quadrature()
    out = np.zeros(len(effects))
    many = max(1, QUADRATURE_NUMBERS // (QUADRATURE_NODES * max(1, effects.shape[1])))
    for start in range(0, len(effects), many):
        squares = (effects[start : start + many] * spreads) ** 2
        size = np.sqrt(squares.sum(axis=1))
        part = squares / np.where(size > 0, size**2, 1)[:, None]
        scaled = part[:, None, laplace] * (t**2 / 2)[None, :, None]
        log = -np.log1p(scaled).sum(axis=2) - np.outer(part[:, ~laplace].sum(axis=1), t**2 / 2)
        share = np.exp(log) * (weights / t) * (2 / np.pi)
        low, high = shape_bounds(noises, confidence)
        below, above = np.full(len(part), 0.9 * low), np.full(len(part), 1.1 * high)
        for _ in range(BISECTION_STEPS):
            middle = (below + above) / 2
            inside = (np.sin(middle[:, None] * t) * share).sum(axis=1) < confidence
            below, above = np.where(inside, middle, below), np.where(inside, above, middle)
        out[start : start + many] = above * size
    return out


@cache
def _quadrature() -> tuple[Array, Array]:
    """Frequencies up to the limit, and their weights."""
    nodes, weights = np.polynomial.legendre.leggauss(QUADRATURE_NODES)
    return (nodes + 1) * FREQUENCY_LIMIT / 2, weights * FREQUENCY_LIMIT / 2
