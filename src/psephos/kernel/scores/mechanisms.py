"""The draws behind noise and choices, all exact: no float takes part.

Scores are whole numbers of any size, and no score moves by more than Δ per unit of distance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np

from psephos.errors import RefusedError
from psephos.kernel.budget import Mechanism
from psephos.kernel.noise import BATCH, DiscreteLaplace, NoiseDraws, exp_flags, uniform_below


def exponential(scores: Sequence[int], epsilon: Fraction, sensitivity: int) -> int:
    """An index, with probability proportional to exp(epsilon · score / (2 · sensitivity)).

    Privacy: the exponential mechanism on integer scores. If no score moves by more than Δ per unit
    of distance, numerator and normaliser each change by at most exp(ε/2), so the choice costs ε per
    unit of distance, whether or not scores move together (McSherry and Talwar 2007), and ε²/8 in
    zCDP (bounded range: Dong, Durfee, Rogers 2020; Cesar and Rogers 2021). A candidate is drawn
    uniformly and kept with probability exp(-γ), γ = ε(s_max - s_i)/(2Δ) rational, by exact trials
    in Python integers; candidates are independent, so of a batch the first that is kept is the one.
    Equal scores have equal probabilities. How long this takes depends on the scores
    (tests/kernel/test_choose.py).
    """
    _check(scores, epsilon, sensitivity)
    rate = epsilon / (2 * sensitivity)
    gaps = (max(scores) - np.array(scores, object)) * rate.numerator
    size = 16
    while True:
        drawn = uniform_below(len(scores), size)
        kept = drawn[exp_flags(((gaps[drawn], rate.denominator),))]
        if kept.size:
            return int(kept[0])
        size = min(2 * size, BATCH)


def noisy_minimum(scores: Sequence[int], epsilon: Fraction, sensitivity: int) -> int:
    """The first index of the least noise - score, with discrete Laplace noise of scale 2Δ/ε.

    Privacy: fix the noise of all candidates but i. Then i is chosen if its noise is at most some
    whole number t, the first of equals winning by its place. Per unit of distance scores move by
    at most Δ, so t moves by at most 2Δ, and P(noise ≤ t) changes by a factor of at most exp(ε): its
    steps have P(noise ≤ t - 1) ≥ exp(-ε/2Δ)·P(noise ≤ t). So the choice is ε-DP, and ε²/2-zCDP
    (tests/kernel/test_choose.py::test_noisy_minima_cost_their_epsilon).
    """
    _check(scores, epsilon, sensitivity)
    noise = DiscreteLaplace(2 * sensitivity / epsilon).draw(len(scores))
    return int(np.argmin(noise.astype(object) - np.array(scores, object)))


def _check(scores: Sequence[int], epsilon: Fraction, sensitivity: int) -> None:
    if not len(scores) or sensitivity < 1 or epsilon <= 0:
        raise RefusedError("choosing needs candidates, and a sensitivity and an epsilon above 0")


MECHANISMS: dict[str, Callable[[Sequence[int], Fraction, int], int]] = {
    "exponential": exponential,
    "noisy minimum": noisy_minimum,
}
"""How a candidate is drawn from scores, epsilon per unit of distance, and Δ."""


class Draws(NoiseDraws):
    """Noise, and choices by scores."""

    def choice(self, scores: list[int], epsilon: Fraction, reach: int, mechanism: Mechanism) -> int:
        """The number of a candidate; the larger its score the likelier."""
        return MECHANISMS[mechanism](scores, epsilon, reach)

    def below(self, bound: int) -> int:
        """A uniform integer in [0, bound)."""
        return int(uniform_below(bound, 1)[0])
