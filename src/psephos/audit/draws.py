"""Are draws what the record says? Chi-square against exact probabilities, on real runs.

A measurement less the true counts of a made-up table is its noise. Thresholds are fixed: draws
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
from psephos.audit.runs import Samples, bounded
from psephos.audit.stage import Finding, Floats, Integers, Stage, opened
from psephos.domain.domain import Domain
from psephos.infer.intervals import noise_quantile
from psephos.kernel.budget import Budget, epsilon, rho
from psephos.kernel.noise import DiscreteLaplace, Noise
from psephos.kernel.scores.worst_approximated import WorstApproximated

LEAST = 1e-6
DRAWS = 50_000
TRUE = np.arange(DRAWS) % 3
EXPECTED = 25
BARS = 100
NOBODY = np.empty(0, int)
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
PAIRED = (SPENDS[0], SPENDS[4])
CHOICE = epsilon("2")
QUERIES = mx.Dense(np.array([[1, 0], [1, 1]]))
CHOICES = 150
ESTIMATE = [-3, 6]
SCORES = ((3, 3), (4, 2))  # |0 + 3|, |0 - 3|; with one row in the first cell |1 + 3|, |1 - 3|


def draws_fit(stage: Stage, until: float, spend: Budget) -> Iterator[Finding]:
    """At one scale, draws beside their probabilities, and whether they know each other."""
    rows = np.repeat(np.arange(DRAWS), TRUE)
    table = opened(Domain.of(x=DRAWS), rows, rows, stage.rich(UNITS[0], spend.currency))
    query, vector = mx.Identity(DRAWS), table.vectorise()
    first = vector.measure(query, spend=spend)
    (noise,) = first.noise
    drawn = [first.values - TRUE]
    while len(drawn) < 3 or time.monotonic() < until:
        drawn.append(vector.measure(query, spend=spend).values - TRUE)
    if spend in PAIRED:
        yield _strangers(noise, *drawn[:3])
    values = np.concatenate(drawn)
    reach = noise_quantile(noise, 1 - 1e-12)
    chances = probabilities(noise, reach)
    bars = min(BARS, values.size // EXPECTED)
    bar = np.minimum((np.cumsum(chances) * bars).astype(int), bars - 1)
    seen = np.bincount(bar[np.clip(values + reach, 0, 2 * reach)], minlength=bars)
    expected = np.bincount(bar, weights=chances, minlength=bars) * values.size
    yield _fitting(f"draws of {_shown(noise)}", [seen], [expected])


def _shown(noise: Noise) -> str:
    if isinstance(noise, DiscreteLaplace):
        return f"discrete Laplace noise of scale {noise.scale}"
    return f"discrete Gaussian noise of variance {noise.variance}"


def _strangers(noise: Noise, one: Integers, two: Integers, three: Integers) -> Finding:
    """Signs of draws beside signs of their neighbours, and of the same place drawn again."""
    chances = probabilities(noise, noise_quantile(noise, 1 - 1e-12))
    middle = chances.size // 2
    sign = np.array([chances[:middle].sum(), chances[middle], chances[middle + 1 :].sum()])
    pairs = [(one[::2], one[1::2]), (two, three)]
    seen = [np.bincount(np.sign(a) * 3 + np.sign(b) + 4, minlength=9) for a, b in pairs]
    expected = [np.outer(sign, sign).ravel() * a.size for a, _ in pairs]
    return _fitting(f"pairs of draws of {_shown(noise)}", seen, expected)


def _fitting(name: str, seen: Sequence[Integers], expected: Sequence[Integers]) -> Finding:
    """Pearson's chi-square over all tables; bars that are hardly expected are taken as one."""
    total, freedom = 0.0, 0
    for found, fair in zip(seen, expected, strict=True):
        small = fair < EXPECTED
        bars = np.where(small, 0, 1 + np.arange(fair.size))
        fairly, really = np.bincount(bars, weights=fair), np.bincount(bars, weights=found)
        there = fairly > 0
        total += float(((really - fairly)[there] ** 2 / fairly[there]).sum())
        freedom += int(there.sum()) - 1
    chance = float(chi2.sf(total, freedom)) if freedom else 1.0
    return Finding(
        kind="draws",
        name=name,
        claimed="the exact probabilities",
        verdict=f"chi-square p = {chance:.2g} {'>' if chance > LEAST else '<='} {LEAST:g}",
        ok=chance > LEAST,
        runs=int(sum(found.sum() for found in seen)),
    )


def choices(stage: Stage, until: float, alpha: float) -> Iterator[Finding]:
    """What `choose` shows of a row, and whether it chooses as often as its charge allows."""
    ledger = stage.rich(UNITS[0], CHOICE.currency)
    domain, row = Domain.of(x=2), np.zeros(1, int)
    sides = [opened(domain, rows, rows, ledger).vectorise() for rows in (NOBODY, row)]
    seen: list[list[int]] = [[], []]
    before = ledger.spent()
    while len(seen[0]) < CHOICES or time.monotonic() < until:
        for side, vector in enumerate(sides):
            seen[side].append(vector.choose(WorstApproximated(QUERIES, ESTIMATE), spend=CHOICE))
    runs = 2 * len(seen[0])
    charged = (ledger.spent() - before).amount / runs
    samples = Samples()
    for side in (0, 1):
        samples.add(side, np.array(seen[side], float))
    yield bounded(f"choose, {ledger.unit}", CHOICE, charged, samples, alpha)
    expected = [_chances(scores, charged) * len(seen[0]) for scores in SCORES]
    found = [np.bincount(side, minlength=2) for side in seen]
    yield _fitting("choices, beside the exponential mechanism for the charge", found, expected)


def _chances(scores: Sequence[int], charged: Fraction) -> Floats:
    """P ∝ exp(epsilon · score / 2), as each score moves by 1 with a row."""
    weights = np.exp(float(charged) * np.array(scores) / 2)
    return np.asarray(weights / weights.sum())
