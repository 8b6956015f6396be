"""Real runs on two neighbours: lower bounds on the loss, and tests of the noise itself.

Both hold whatever the kernel records.

A case is a kind of request, beside its answers. It is asked of many copies of one small table at
once, `copies` x 4 x 2 cells. Each answer depends on one copy, and each block lists its answers copy
by copy, so each copy is a run: one measurement answers for many thousand of them. The attacker
looks at the log-likelihood ratio of a copy's answers, takes from half of the runs the interval of
it that tells the neighbours apart best (a threshold, or one bar of a histogram), and counts on the
other half how often it is hit. Copies are independent runs only if their noise is independent of
each other and of the counts, which `check_draws` tests.

A measurement less the true counts of a synthetic table is its noise. Chi-square tests compare it
with the distribution that the record states. Thresholds are fixed: draws that are what they should
be fail one in a million times.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.stats import chi2

import psephos.matrix as mx
from psephos.audit.neighbours import SMALL_CELLS, UNITS
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
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.unit import Unit
from psephos.values import Array

ADDED_ROW, OTHER_ROW, PERSON, _ = UNITS
COPY_SHAPE = (4, 2)
ANSWERS_PER_RUN = 100_000
AUDIT_DELTA = "0.01"
INTERVAL_EDGES = 200
SMALLEST_P = 1e-6
DRAWS_PER_RUN = 50_000
FEWEST_EXPECTED = 25
"""Draws that a bar of a histogram must have in expectation."""
HISTOGRAM_BARS = 100
SPENDS = (
    *(epsilon(amount) for amount in ("1", "7/3", "1/10", "1/1000")),
    *(rho(amount) for amount in ("1/2", "3", "1/300", "1/1000000")),
)
PAIR_SPENDS = (SPENDS[0], SPENDS[4])


@dataclass(frozen=True)
class Case:
    """A kind of request.

    `ask` goes through the handles; `answers` gives, for tables of shape (tables, 4, 2), the answers
    of each block, of shape (tables, answers of a copy).
    """

    name: str
    ask: Callable[[ProtectedTable, Budget, int], Sequence[Measurement]]
    answers: Callable[[Array], Sequence[Array]]


def small_domain(copies: int) -> Domain:
    """The cells of all copies."""
    return Domain.of(copy=copies, x=COPY_SHAPE[0], y=COPY_SHAPE[1])


def every_copy(copies: int, matrix: mx.Matrix) -> mx.Matrix:
    """The matrix, applied to every copy."""
    return mx.Kron((mx.Identity(copies), matrix))


def linear_case(name: str, small: mx.Matrix, dense: Any) -> Case:
    """One matrix on the cells of a copy, and its entries written by hand."""

    def ask(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
        return [t.vectorise().measure(every_copy(n, small), spend=spend)]

    return Case(name, ask, lambda x: [x.reshape(-1, SMALL_CELLS) @ np.array(dense).T])


NO_ROWS, *ONE_ROW = np.eye(SMALL_CELLS + 1, SMALL_CELLS, k=-1, dtype=int)
"""Rows of a unit, as counts of the cells of a copy: none, or one in one of its cells."""
COUNT = linear_case("a count", mx.total(SMALL_CELLS), [[1] * SMALL_CELLS])
HISTOGRAM = linear_case("a histogram", mx.Identity(SMALL_CELLS), np.eye(SMALL_CELLS, dtype=int))


@dataclass(frozen=True)
class Trial:
    """A request to run many times on two neighbours: the rows of one unit, on those of others."""

    case: Case
    unit: Unit
    spend: Budget
    sides: tuple[Array, Array]
    others: Array = field(default_factory=lambda: NO_ROWS)

    @property
    def name(self) -> str:
        noise = "Laplace" if self.spend.currency == "epsilon" else "Gaussian"
        return f"{self.case.name}, {noise} noise, {self.unit}"


TRIALS = (
    Trial(COUNT, ADDED_ROW, epsilon("1"), (NO_ROWS, ONE_ROW[0])),
    Trial(COUNT, ADDED_ROW, epsilon("1/10"), (NO_ROWS, ONE_ROW[0])),
    Trial(COUNT, ADDED_ROW, rho("1/2"), (NO_ROWS, ONE_ROW[0])),
    Trial(COUNT, PERSON, epsilon("1"), (NO_ROWS, PERSON.max_rows * ONE_ROW[0])),
    Trial(COUNT, PERSON, rho("1/2"), (NO_ROWS, PERSON.max_rows * ONE_ROW[0])),
    Trial(HISTOGRAM, OTHER_ROW, epsilon("1"), (ONE_ROW[0], ONE_ROW[1])),
)


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


def lower_bound(stage: Stage, until: float, trial: Trial, alpha: float) -> Iterator[AttackResult]:
    """The lower bound on the loss of one request, from as many runs as fit in until a moment."""
    case, unit, spend = trial.case, trial.unit, trial.spend
    ledger = stage.endless_ledger(unit, spend.currency)
    tables = [(trial.others + hidden).reshape(1, *COPY_SHAPE) for hidden in trial.sides]
    answers = [case.answers(table) for table in tables]
    copies = ANSWERS_PER_RUN // sum(a.size for a in answers[0])
    rows = [rows_of_copies(trial.others, hidden, unit, copies) for hidden in trial.sides]
    handles = [protect_rows(small_domain(copies), *listed, ledger) for listed in rows]
    samples = Samples()
    charges: list[Fraction] = []
    while not charges or time.monotonic() < until:
        for side, handle in enumerate(handles):
            before = ledger.spent()
            ratios = _log_ratios(case.ask(handle, spend, copies), answers, copies)
            charges.append((ledger.spent() - before).amount)
            samples.add(side, ratios)
    yield bound_result(trial.name, Budget(spend.currency, min(charges)), samples, alpha)


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


def noises_of(measurements: Sequence[Measurement]) -> list[Noise]:
    """The noise of every block."""
    return [noise for m in measurements for noise in m.noise]


def probabilities(noise: Noise, reach: int) -> Array:
    """The probability of every integer from -reach to reach, from the definition of the noise."""
    x = np.arange(-reach, reach + 1)
    if isinstance(noise, DiscreteLaplace):
        decay = math.exp(-1 / noise.scale)
        return np.asarray((1 - decay) / (1 + decay) * np.exp(-np.abs(x) / float(noise.scale)))
    weights = np.exp(-(x**2) / float(2 * noise.variance))
    return np.asarray(weights / math.fsum(weights))


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
    yield chi_square(f"draws of {_noise_name(noise)}", [observed], [expected])


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
    return chi_square(f"pairs of draws of {_noise_name(noise)}", observed, expected)


def chi_square(name: str, observed: Sequence[Array], expected: Sequence[Array]) -> AttackResult:
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
