"""The exponential mechanism on integer scores, by exact rejection.

Privacy: candidate i is returned with probability proportional to exp(ε₁·s_i/(2Δ)), where Δ bounds
how far any score moves per unit of distance; numerator and normaliser each change by at most
exp(ε₁/2), so the choice costs ε₁ per unit of distance, whether or not scores move together
(McSherry and Talwar 2007), and ε₁²/8 in zCDP (bounded range: Dong, Durfee, Rogers 2020; Cesar and
Rogers 2021). Ties need no care: equal scores have equal probabilities. A candidate is drawn
uniformly and kept with probability exp(-γ), γ = ε₁(s_max - s_i)/(2Δ) rational, by exact Bernoulli
trials: no float is near it. How long this takes depends on the scores.
(tests/kernel/test_choose.py)
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from psephos.errors import RefusedError
from psephos.kernel import noise


def exponential(scores: Sequence[int], epsilon: Fraction, sensitivity: int) -> int:
    """An index, with probability proportional to exp(epsilon · score / (2 · sensitivity))."""
    if not len(scores) or sensitivity < 1 or epsilon <= 0:
        raise RefusedError(
            "choosing needs candidates, a positive sensitivity and a positive epsilon"
        )
    best = max(scores)
    rate = epsilon / (2 * sensitivity)
    while True:
        i = int(noise.uniform_below(len(scores), 1)[0])
        if noise.bernoulli_exp_big(rate * (best - scores[i])):
            return i
