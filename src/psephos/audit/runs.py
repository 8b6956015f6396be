"""Lower bounds on the loss from real runs on two neighbours, whatever the kernel records.

Each copy of a small table is a run: one measurement answers for many thousand of them. The attacker
looks at the log-likelihood ratio of a copy's answers, takes from half of the runs the interval of
it that tells the neighbours apart best (a threshold, or one bar of a histogram), and counts on the
other half how often it is hit. Copies are independent runs only if their noise is independent of
each other and of the counts, which `draws` tests.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from psephos.audit import cases
from psephos.audit.cases import COPY_SHAPE, Case, small_domain
from psephos.audit.exact import UNITS, noises_of, worst_pair
from psephos.audit.stage import (
    AttackResult,
    Stage,
    lower_bounds,
    protect_rows,
    rows_of_copies,
    verdict,
)
from psephos.kernel.budget import Budget, epsilon, rho
from psephos.kernel.measurement import Measurement
from psephos.kernel.noise import DiscreteLaplace
from psephos.kernel.unit import Unit
from psephos.values import Array

ADDED_ROW, OTHER_ROW, PERSON, _ = UNITS
ANSWERS_PER_RUN = 100_000
AUDIT_DELTA = "0.01"
EDGES = 200


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
TESTS = len(TRIALS) + 1  # `check_choices` is one more


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
        found=bound,
        delta=None if pure else delta,
    )


def _hits(ordered: Array, low: Any, high: Any) -> Array:
    """How many of the ordered numbers lie in [low, high)."""
    return np.asarray(np.searchsorted(ordered, high) - np.searchsorted(ordered, low))


def _best_interval(training: Sequence[Array], alpha: float, delta: float) -> tuple[Any, Any, int]:
    """The interval [low, high) of the largest bound, and the neighbour that hits it more often."""
    steps = np.linspace(0, 1, EDGES)
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
