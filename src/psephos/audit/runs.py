"""Real runs on two neighbours: lower bounds on the loss, and tests of the noise itself.

Both hold whatever the kernel records.

Each copy of a small table is a run: one measurement answers for many thousand of them. The attacker
looks at the log-likelihood ratio of a copy's answers, takes from half of the runs the interval of
it that tells the neighbours apart best (a threshold, or one bar of a histogram), and counts on the
other half how often it is hit. Copies are independent runs only if their noise is independent of
each other and of the counts, which `check_draws` tests.

A measurement less the true counts of a synthetic table is its noise. Chi-square tests compare it
with the distribution that the record states. Thresholds are fixed: draws that are what they should
be fail one in a million times.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.stats import chi2

import psephos.matrix as mx
from psephos.audit import exact as cases
from psephos.audit.exact import (
    COPY_SHAPE,
    UNITS,
    Case,
    noises_of,
    probabilities,
    small_domain,
    worst_pair,
)
from psephos.audit.stage import (
    AttackResult,
    Stage,
    lower_bounds,
    protect_rows,
    rows_of_copies,
    verdict,
)
from psephos.domain.domain import Domain
from psephos.infer.quantiles import noise_quantile
from psephos.kernel.budget import Budget, epsilon, rho
from psephos.kernel.measurement import Measurement
from psephos.kernel.noise import DiscreteLaplace, Noise
from psephos.kernel.scores import NoisyIntervals, PrivTree, WholePartitions, WorstApproximated
from psephos.kernel.unit import Unit
from psephos.values import Array

ADDED_ROW, OTHER_ROW, PERSON, _ = UNITS
ANSWERS_PER_RUN = 100_000
AUDIT_DELTA = "0.01"
INTERVAL_EDGES = 200
SMALLEST_P = 1e-6
DRAWS_PER_RUN = 50_000
FEWEST_EXPECTED = 25
"""Draws that a bar of a histogram must have in expectation."""
HISTOGRAM_BARS = 100
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

PARTITION_COUNTS = ((5, 6, 5), (5, 7, 5))
PARTITION_SCORES = (
    (-2, -3, -3, -3),
    (-3, -4, -4, -3),
)  # not cut, cut behind the first cell, behind the second, behind both; each interval costs 1


@dataclass(frozen=True)
class Trial:
    """A request to run many times on two neighbours."""

    case: Case
    unit: Unit
    spend: Budget

    @property
    def name(self) -> str:
        noise = "Laplace" if self.spend.currency == "epsilon" else "Gaussian"
        return f"{self.case.name}, {noise} noise, {self.unit}"


TRIALS = (
    Trial(cases.COUNT, ADDED_ROW, epsilon("1")),
    Trial(cases.COUNT, ADDED_ROW, epsilon("1/10")),
    Trial(cases.COUNT, ADDED_ROW, rho("1/2")),
    Trial(cases.COUNT, PERSON, epsilon("1")),
    Trial(cases.COUNT, PERSON, rho("1/2")),
    Trial(cases.HISTOGRAM, OTHER_ROW, epsilon("1")),
    Trial(cases.HISTOGRAM, OTHER_ROW, rho("1/2")),
    Trial(cases.SCALED, ADDED_ROW, epsilon("1")),
    Trial(cases.GROUP_BY, ADDED_ROW, epsilon("1")),
    Trial(cases.SPLIT_TABLE, PERSON, epsilon("1")),
    Trial(cases.STRATEGY["epsilon"], ADDED_ROW, epsilon("1")),
    Trial(cases.STRATEGY["rho"], ADDED_ROW, rho("1/2")),
)
TESTS = len(TRIALS) + 4  # `check_choices` is one more, `check_partitions` are three


@dataclass(frozen=True)
class Samples:
    """Statistics of runs on either neighbour: half for selecting an event, half for testing it."""

    training: tuple[list[Array], list[Array]] = field(default_factory=lambda: ([], []))
    holdout: tuple[list[Array], list[Array]] = field(default_factory=lambda: ([], []))

    def add(self, side: int, statistics: Array) -> None:
        """More runs on one of the neighbours."""
        half = statistics.size // 2
        self.training[side].append(statistics[:half])
        self.holdout[side].append(statistics[half : 2 * half])

    def lower_bound(self, alpha: float, delta: float) -> tuple[float, int]:
        """The lower bound on the loss, and the number of runs on both neighbours."""
        training, holdout = (
            [np.sort(np.concatenate(side)) for side in half]
            for half in (self.training, self.holdout)
        )
        low, high, frequent = _best_interval(training, alpha, delta)
        hits = [np.array(_hits(holdout[side], low, high)) for side in (frequent, 1 - frequent)]
        runs = min(side.size for side in holdout)
        bound = float(lower_bounds(hits[0], hits[1], runs, alpha, delta))
        return bound, 2 * sum(side.size for side in holdout)


def lower_bound(stage: Stage, trial: Trial, until: float, alpha: float) -> AttackResult:
    """The lower bound on the loss of one request, from as many runs as fit in until a moment."""
    case, unit, spend = trial.case, trial.unit, trial.spend
    ledger = stage.endless_ledger(unit, spend.currency)
    nobody = np.empty(0, int)
    empty = protect_rows(small_domain(1), nobody, nobody, ledger)
    pair = worst_pair(case, unit, noises_of(case.ask(empty, spend, 1)))
    sides = (pair.first, pair.second)
    answers = [case.answers((pair.base + hidden).reshape(1, *COPY_SHAPE)) for hidden in sides]
    copies = ANSWERS_PER_RUN // sum(a.size for a in answers[0])
    tables = [
        protect_rows(small_domain(copies), *rows_of_copies(pair.base, hidden, unit, copies), ledger)
        for hidden in sides
    ]
    samples = Samples()
    charges: list[Fraction] = []
    while not charges or time.monotonic() < until:
        for side, table in enumerate(tables):
            before = ledger.spent()
            ratios = _log_ratios(case.ask(table, spend, copies), answers, copies)
            charges.append((ledger.spent() - before).amount)
            samples.add(side, ratios)
    return bound_result(trial.name, Budget(spend.currency, min(charges)), samples, alpha)


def bound_result(name: str, charge: Budget, samples: Samples, alpha: float) -> AttackResult:
    """The result; a charge in rho is turned into the epsilon that it certifies at a delta."""
    pure = charge.currency == "epsilon"
    claim = charge if pure or not charge.amount else charge.at_delta(AUDIT_DELTA)
    limit = float(claim.amount)
    delta = 0.0 if pure else float(AUDIT_DELTA)
    bound, runs = samples.lower_bound(alpha, delta)
    return AttackResult(
        kind="lower bound",
        name=name,
        claimed=f"{charge}" if pure else f"{charge}: epsilon {limit:.4g} at delta {AUDIT_DELTA}",
        verdict=verdict("lower bound", bound, limit, bound <= limit),
        ok=bound <= limit,
        runs=runs,
        charge=limit,
        loss=bound,
        delta=None if pure else delta,
    )


def _hits(ordered: Array, low: Any, high: Any) -> Array:
    """How many of the ordered numbers lie in [low, high)."""
    return np.asarray(np.searchsorted(ordered, high) - np.searchsorted(ordered, low))


def _best_interval(training: Sequence[Array], alpha: float, delta: float) -> tuple[Any, Any, int]:
    """The interval [low, high) of the largest bound, and the neighbour that hits it more often."""
    steps = np.linspace(0, 1, INTERVAL_EDGES)
    edges = np.unique(np.quantile(np.concatenate(training), steps, method="nearest"))
    open_end, open_start = np.full(edges.size, np.inf), np.full(edges.size, -np.inf)
    low = np.concatenate([edges, open_start, edges])
    high = np.concatenate([open_end, edges, np.append(edges[1:], np.inf)])
    hits, runs = [_hits(side, low, high) for side in training], min(s.size for s in training)
    bounds = [lower_bounds(hits[i], hits[1 - i], runs, alpha, delta) for i in (0, 1)]
    frequent = int(bounds[1].max() > bounds[0].max())
    best = int(bounds[frequent].argmax())
    return low[best], high[best], frequent


def _log_ratios(
    measurements: Sequence[Measurement], answers: Sequence[Sequence[Array]], copies: int
) -> Array:
    """The log-likelihood ratio of each copy's answers, second to first, if the record is right."""
    values = np.concatenate([m.values for m in measurements])
    ratios, start = np.zeros(copies), 0
    for noise, a, b in zip(noises_of(measurements), *answers, strict=True):
        y = values[start : start + copies * a.size].reshape(copies, a.size)
        start += y.size
        if isinstance(noise, DiscreteLaplace):
            ratios += (abs(y - a) - abs(y - b)).sum(axis=1) / float(noise.scale)
        else:
            ratios += ((y - a) ** 2 - (y - b) ** 2).sum(axis=1) / float(2 * noise.variance)
    return ratios.round(9)


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
    bars = min(HISTOGRAM_BARS, values.size // FEWEST_EXPECTED)
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


def check_partitions(stage: Stage, until: float, alpha: float) -> Iterator[AttackResult]:
    """The same of `partition`: three cells, of which the middle one may have one row more."""
    ledger = stage.endless_ledger(UNITS[0], CHOICE_SPEND.currency)
    searches = (WholePartitions(1, "all"), NoisyIntervals(1, "all"), PrivTree())
    rows = [np.repeat(np.arange(3), counts) for counts in PARTITION_COUNTS]
    vectors = [protect_rows(Domain.of(x=3), cells, cells, ledger).vectorise() for cells in rows]
    cuts: dict[str, list[list[int]]] = {type(search).__name__: [[], []] for search in searches}
    before = ledger.spent()
    while len(cuts["PrivTree"][0]) < FEWEST_CHOICES or time.monotonic() < until:
        for search in searches:
            for side, vector in enumerate(vectors):
                groups = vector.partition(search, spend=CHOICE_SPEND).groups
                cuts[type(search).__name__][side].append(int(np.diff(groups) @ [1, 2]))
    charge = (ledger.spent() - before) / (2 * len(searches) * len(cuts["PrivTree"][0]))
    for name, sides in cuts.items():
        samples = Samples()
        for side in (0, 1):
            samples.add(side, np.array(sides[side], float))
        yield bound_result(f"partition by {name}, {ledger.unit}", charge, samples, alpha)
    expected = [_chances(scores, charge.amount) for scores in PARTITION_SCORES]
    observed = [np.bincount(side, minlength=4) for side in cuts["WholePartitions"]]
    name = "partitions, beside the exponential mechanism for the charge"
    pairs = zip(expected, observed, strict=True)
    yield _chi_square(name, observed, [chances * counts.sum() for chances, counts in pairs])


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
