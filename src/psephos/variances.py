"""The two kinds of noise, and their variances in floats: for errors that people read, no draws."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Literal


class NoiseKind(StrEnum):
    """Laplace noise is paid in epsilon, Gaussian noise in rho; all else follows from the kind.

    >>> NoiseKind("gaussian").norm, NoiseKind("gaussian").currency
    (2, 'rho')
    """

    LAPLACE = "laplace"
    GAUSSIAN = "gaussian"
    __repr__ = str.__repr__

    @classmethod
    def paid_in(cls, currency: Literal["epsilon", "rho"]) -> NoiseKind:
        """The noise that a spend of that currency buys."""
        return cls.LAPLACE if currency == "epsilon" else cls.GAUSSIAN

    @property
    def currency(self) -> Literal["epsilon", "rho"]:
        """What it is paid in."""
        return "epsilon" if self is NoiseKind.LAPLACE else "rho"

    @property
    def norm(self) -> Literal[1, 2]:
        """The norm in which queries are sensitive to a row."""
        return 1 if self is NoiseKind.LAPLACE else 2

    @property
    def power(self) -> Literal[1, 2]:
        """The precision of answers grows with the spend to this power."""
        return 2 if self is NoiseKind.LAPLACE else 1


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
