"""Whether draws follow the distribution that the record states, by chi-square on real runs.

A measurement less the true counts of a synthetic table is its noise. Thresholds are fixed: draws
that are what they should be fail one in a million times.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from scipy.stats import chi2

import psephos.matrix as mx
from psephos.audit.exact import UNITS, probabilities
from psephos.audit.runs import Samples, bound_result
from psephos.audit.stage import AttackResult, Stage, protect_rows
from psephos.domain.domain import Domain
from psephos.infer.intervals import noise_quantile
from psephos.kernel.budget import Budget, epsilon, rho
from psephos.kernel.noise import DiscreteLaplace, Noise
from psephos.kernel.scores.worst_approximated import WorstApproximated
from psephos.values import Array

SMALLEST_P = 1e-6
DRAWS_PER_RUN = 50_000
FEWEST_EXPECTED = 25
"""Draws that a bar of a histogram must have in expectation."""
MOST_BARS = 100
SPENDS = (
    epsilon("1"),
    epsilon("7/3"),
    epsilon("1/10"),
    epsilon("1/1000"),
    rho("1/2"),
    rho("3"),
    rho("1/300"),
    rho("1/1000000"),
)
PAIR_SPENDS = (SPENDS[0], SPENDS[4])
CHOICE_SPEND = epsilon("2")
CHOICE_QUERIES = mx.Dense(np.array([[1, 0], [1, 1]]))
FEWEST_CHOICES = 150
CHOICE_ESTIMATE = [-3, 6]
CHOICE_SCORES = (
    (3, 3),
    (4, 2),
)  # |0 + 3|, |0 - 3|; with one row in the first cell |1 + 3|, |1 - 3|


def check_draws(stage: Stage, until: float, spend: Budget) -> Iterator[AttackResult]:
    """At one scale, whether draws follow their distribution, and whether pairs are independent."""
    counts = np.arange(DRAWS_PER_RUN) % 3
    rows = np.repeat(np.arange(DRAWS_PER_RUN), counts)
    ledger = stage.endless_ledger(UNITS[0], spend.currency)
    table = protect_rows(Domain.of(x=DRAWS_PER_RUN), rows, rows, ledger)
    query, vector = mx.Identity(DRAWS_PER_RUN), table.vectorise()
    first = vector.measure(query, spend=spend)
    (noise,) = first.noise
    draws = [first.values - counts]
    while len(draws) < 3 or time.monotonic() < until:
        draws.append(vector.measure(query, spend=spend).values - counts)
    if spend in PAIR_SPENDS:
        yield _check_pairs(noise, *draws[:3])
    values = np.concatenate(draws)
    reach = noise_quantile(noise, 1 - 1e-12)
    chances = probabilities(noise, reach)
    bars = min(MOST_BARS, values.size // FEWEST_EXPECTED)
    bar = np.minimum((np.cumsum(chances) * bars).astype(int), bars - 1)
    observed = np.bincount(bar[np.clip(values + reach, 0, 2 * reach)], minlength=bars)
    expected = np.bincount(bar, weights=chances, minlength=bars) * values.size
    yield _chi_square(f"draws of {_noise_name(noise)}", [observed], [expected])


def check_choices(stage: Stage, until: float, alpha: float) -> Iterator[AttackResult]:
    """What `choose` reveals of a row, and whether it chooses as often as its charge allows."""
    ledger = stage.endless_ledger(UNITS[0], CHOICE_SPEND.currency)
    domain, nobody, row = Domain.of(x=2), np.empty(0, int), np.zeros(1, int)
    sides = [protect_rows(domain, rows, rows, ledger).vectorise() for rows in (nobody, row)]
    score = WorstApproximated(CHOICE_QUERIES, CHOICE_ESTIMATE)
    choices: list[list[int]] = [[], []]
    before = ledger.spent()
    while len(choices[0]) < FEWEST_CHOICES or time.monotonic() < until:
        for side, vector in enumerate(sides):
            choices[side].append(vector.choose(score, spend=CHOICE_SPEND))
    charge = (ledger.spent() - before) / (2 * len(choices[0]))
    samples = Samples()
    for side in (0, 1):
        samples.add(side, np.array(choices[side], float))
    yield bound_result(f"choose, {ledger.unit}", charge, samples, alpha)
    expected = [_chances(scores, charge.amount) * len(choices[0]) for scores in CHOICE_SCORES]
    observed = [np.bincount(side, minlength=2) for side in choices]
    name = "choices, beside the exponential mechanism for the charge"
    yield _chi_square(name, observed, expected)


def _noise_name(noise: Noise) -> str:
    if isinstance(noise, DiscreteLaplace):
        return f"discrete Laplace noise of scale {noise.scale}"
    return f"discrete Gaussian noise of variance {noise.variance}"


def _check_pairs(noise: Noise, first: Array, second: Array, third: Array) -> AttackResult:
    """Signs of two draws side by side, and of the same place in two measurements."""
    chances = probabilities(noise, noise_quantile(noise, 1 - 1e-12))
    middle = chances.size // 2
    sign = np.array([chances[:middle].sum(), chances[middle], chances[middle + 1 :].sum()])
    pairs = [(first[::2], first[1::2]), (second, third)]
    observed = [np.bincount(np.sign(a) * 3 + np.sign(b) + 4, minlength=9) for a, b in pairs]
    expected = [np.outer(sign, sign).ravel() * a.size for a, _ in pairs]
    return _chi_square(f"pairs of draws of {_noise_name(noise)}", observed, expected)


def _chi_square(name: str, observed: Sequence[Array], expected: Sequence[Array]) -> AttackResult:
    """Pearson's chi-square over all histograms; bars that are hardly expected are taken as one."""
    total, freedom = 0.0, 0
    for counts, means in zip(observed, expected, strict=True):
        bars = np.where(means < FEWEST_EXPECTED, 0, 1 + np.arange(means.size))
        bar_counts, bar_means = np.bincount(bars, weights=counts), np.bincount(bars, weights=means)
        used = bar_means > 0
        total += float(((bar_counts - bar_means)[used] ** 2 / bar_means[used]).sum())
        freedom += int(used.sum()) - 1
    p = float(chi2.sf(total, freedom)) if freedom else 1.0
    return AttackResult(
        kind="draws",
        name=name,
        claimed="the exact probabilities",
        verdict=f"chi-square p = {p:.2g} {'>' if p > SMALLEST_P else '<='} {SMALLEST_P:g}",
        ok=p > SMALLEST_P,
        runs=int(sum(counts.sum() for counts in observed)),
    )


def _chances(scores: Sequence[int], charge: Fraction) -> Array:
    """P ∝ exp(epsilon · score / 2), as each score moves by 1 with a row."""
    weights = np.exp(float(charge) * np.array(scores) / 2)
    return np.asarray(weights / weights.sum())
