"""What one attack found, and the arithmetic of lower bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta

Kind = Literal["exact loss", "lower bound", "draws", "behaviour"]
Numbers = NDArray[Any]


@dataclass(frozen=True)
class Finding:
    """One attack: what was claimed against it, and what it found.

    `charge` and `found` are losses in one currency, named in `claimed`, at `delta` if there is one;
    None where an attack gets through or does not.
    """

    kind: Kind
    name: str
    claimed: str
    verdict: str
    ok: bool
    runs: int
    charge: float | None = None
    found: float | None = None
    delta: float | None = None


def lower_bounds(
    often: Numbers, rarely: Numbers, runs: int, alpha: float, delta: float = 0.0
) -> Numbers:
    """Lower bounds on epsilon from how often events were seen on either of two neighbours.

    With P ≥ p and Q ≤ q by Clopper and Pearson, each at confidence 1 - alpha, P ≤ exp(ε)Q + δ gives

        ε ≥ ln((p - δ) / q)

    >>> lower_bounds(np.array([900, 500]), np.array([300, 500]), 1000, 1e-3).round(3)
    array([0.918, 0.   ])
    """
    low = np.where(often > 0, beta.ppf(alpha, often, runs - often + 1), 0.0)
    high = np.where(rarely < runs, beta.ppf(1 - alpha, rarely + 1, runs - rarely), 1.0)
    shown = np.maximum(low - delta, high)  # at least 0: losing nothing is always possible
    return np.asarray(np.log(shown / high))


def verdict(what: str, found: float, charge: float, ok: bool) -> str:
    """Both numbers, with the sign between them."""
    return f"{what} {found:.4g} {'<=' if ok else '>'} charge {charge:.4g}"
