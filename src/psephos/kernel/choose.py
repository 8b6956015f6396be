"""The exponential mechanism on integer scores, by exact rejection.

Privacy: candidate i is returned with probability proportional to exp(ε₁·s_i/(2Δ)), where Δ bounds
how far any score moves per unit of distance; numerator and normaliser each change by at most
exp(ε₁/2), so the choice costs ε₁ per unit of distance, whether or not scores move together
(McSherry and Talwar 2007), and ε₁²/8 in zCDP (bounded range: Dong, Durfee, Rogers 2020; Cesar and
Rogers 2021). Ties need no care: equal scores have equal probabilities. A candidate is drawn
uniformly and kept with probability exp(-γ), γ = ε₁(s_max - s_i)/(2Δ) rational, by exact Bernoulli
trials in Python integers: no float is near it. Candidates are independent, so of a batch the first
that is kept is the one. How long this takes depends on the scores.
(tests/kernel/test_choose.py)
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from psephos.errors import RefusedError
from psephos.kernel import noise


def exponential(scores: Sequence[int], epsilon: Fraction, sensitivity: int) -> int:
    """An index, with probability proportional to exp(epsilon · score / (2 · sensitivity))."""
    if not len(scores) or sensitivity < 1 or epsilon <= 0:
        raise RefusedError("choosing needs candidates, and a sensitivity and an epsilon above 0")
    rate = epsilon / (2 * sensitivity)
    gaps = (max(scores) - np.array(scores, object)) * rate.numerator
    size = 16
    while True:
        drawn = noise.uniform_below(len(scores), size)
        kept = drawn[noise.exp_flags(((gaps[drawn], rate.denominator),))]
        if kept.size:
            return int(kept[0])
        size = min(2 * size, noise.BATCH)
