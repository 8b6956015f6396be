"""Exact quantiles of sums of whole-number noise whose effects are multiples of one step.

S = g Σ nᵢXᵢ with whole nᵢ and independent discrete noises Xᵢ takes the values g·j alone. Its
probabilities are the Fourier coefficients of Π φᵢ(nᵢθ), where φᵢ is a noise's characteristic
function: 1 / (1 + 2·variance·sin²(θ/2)) for discrete Laplace noise, and for discrete Gaussian noise
Σₓ cos(xθ)·exp(-x²/2v) / Σₓ exp(-x²/2v). A count that is measured as it is, a sum of measured cells
and a mean of two measurements of equal noise are all of this kind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from psephos.infer.quantiles import noise_quantile
from psephos.kernel.noise import DiscreteLaplace, Noise
from psephos.values import Array

MOST_DIVISIONS = 12
"""Steps are sought among the least effect and its parts, up to a twelfth."""
STEP_TOLERANCE = 1e-8
"""What a multiple of a step may be off a whole number, by rounding of floats."""
NEGLIGIBLE = 1e-10
"""Effects of less than this share of the largest are rounding of floats."""
LATTICE_NUMBERS = 1 << 16
"""The most frequencies times different effects for which a distribution is worked out."""
TAIL = 1e-13
"""The probability that is left out at the ends of a distribution, about."""


def lattice_quantiles(
    effects: Array, noises: Sequence[Noise], rows: Sequence[int], confidence: float
) -> Array:
    """The least h with P(|S| ≤ h) ≥ confidence for every row S of effects on noises; else NaN.

    It is NaN where effects have no common step, or one so small that steps do not matter.

    >>> from fractions import Fraction
    >>> laplace = DiscreteLaplace(Fraction(1))
    >>> lattice_quantiles(np.array([[1, 0], [0.5, 0.5], [1, 0.618]]), [laplace], [2], 0.95)
    array([ 3.,  2., nan])
    """
    kinds = np.repeat(np.arange(len(noises)), rows)
    sizes = np.abs(effects)
    sizes[sizes <= NEGLIGIBLE * sizes.max(axis=1, initial=0, keepdims=True)] = 0
    steps = _steps(sizes)
    quantiles: dict[tuple[_Term, ...], float] = {}
    widths = np.where(sizes.any(axis=1), np.nan, 0.0)
    for i in np.flatnonzero(steps):
        terms = _terms(np.rint(sizes[i] / steps[i]).astype(np.int64), kinds)
        if terms not in quantiles:
            quantiles[terms] = _quantile(terms, noises, confidence)
        widths[i] = steps[i] * quantiles[terms]
    return widths


@dataclass(frozen=True)
class _Term:
    """So many noises of one kind, each times a whole number."""

    kind: int
    factor: int
    count: int


def _steps(sizes: Array) -> Array:
    """For every row the step of which its numbers are multiples; 0 if there is none."""
    least = np.where(sizes > 0, sizes, np.inf).min(axis=1, initial=np.inf)
    steps = np.zeros(len(sizes))
    for parts in range(MOST_DIVISIONS, 0, -1):  # the largest step comes last, and stays
        step = least / parts
        multiples = sizes / step[:, None]
        off = np.abs(multiples - np.rint(multiples)).max(axis=1, initial=0)
        steps = np.where((off <= STEP_TOLERANCE) & (least < np.inf), step, steps)
    return steps


def _terms(factors: Array, kinds: Array) -> tuple[_Term, ...]:
    """Equal noises with equal factors, counted."""
    pairs = np.stack([kinds, factors])[:, factors > 0]
    each, counts = np.unique(pairs, axis=1, return_counts=True)
    return tuple(_Term(*term) for term in zip(*each.tolist(), counts.tolist(), strict=True))


def _quantile(terms: tuple[_Term, ...], noises: Sequence[Noise], confidence: float) -> float:
    """The least whole number that covers Σ factor · noise so often, or NaN if it is too large."""
    if len(terms) == 1 and terms[0].count == 1:
        return float(terms[0].factor * noise_quantile(noises[terms[0].kind], confidence))
    spread = math.sqrt(sum(t.count * t.factor**2 * noises[t.kind].exact_variance for t in terms))
    far = max(t.factor * noise_quantile(noises[t.kind], 1 - TAIL) for t in terms)
    size = 1 << math.ceil(math.log2(2 * (8 * spread + far) + 2))
    if size * len(terms) > LATTICE_NUMBERS:
        return math.nan
    angles = np.arange(size // 2 + 1) * (2 * np.pi / size)
    logs = np.zeros(angles.size)
    for term in terms:
        with np.errstate(divide="ignore"):
            logs += term.count * np.log(_characteristic(noises[term.kind], term.factor * angles))
    chances = np.fft.irfft(np.exp(logs), size)[: size // 2]
    chances[1:] *= 2
    return float(np.searchsorted(np.maximum.accumulate(np.cumsum(chances)), confidence - 1e-12))


def _characteristic(noise: Noise, angles: Array) -> Array:
    """E cos(θX) at every θ."""
    if isinstance(noise, DiscreteLaplace):
        return np.asarray(1 / (1 + 2 * noise.exact_variance * np.sin(angles / 2) ** 2))
    v = float(noise.variance)
    if v >= 1:  # by Poisson's formula, a sum of normal densities around the multiples of 2π
        near = np.remainder(angles + np.pi, 2 * np.pi) - np.pi
        turns = 2 * np.pi * np.arange(-2, 3)
        at = np.exp(-v / 2 * (near[:, None] - turns) ** 2).sum(axis=1)
        return np.asarray(at / np.exp(-v / 2 * turns**2).sum())
    x = np.arange(-14, 15)
    weights = np.exp(-(x**2) / (2 * v))
    return np.asarray(np.maximum(np.cos(np.outer(angles, x)) @ weights / weights.sum(), 0))
