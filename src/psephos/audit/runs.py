"""Lower bounds on the loss from real runs on two neighbours, whatever the kernel says of itself.

Each copy of a small table is a run: one measurement answers for many thousand of them. The attacker
looks at the log-likelihood ratio of a copy's answers, takes from half of the runs the interval of
it that tells the neighbours apart best (a threshold, or one bar of a histogram), and counts on the
other half how often it is hit. Copies are runs of their own only if their noise is independent of
each other and of the counts, which `draws` looks at.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from psephos.audit import cases
from psephos.audit.cases import SHAPE, Case, small_domain
from psephos.audit.exact import UNITS, Pair, attached, worst_pair
from psephos.audit.stage import (
    Finding,
    Floats,
    Integers,
    Stage,
    copies_of,
    lower_bounds,
    opened,
    verdict,
)
from psephos.kernel.budget import Budget, epsilon, rho
from psephos.kernel.measurement import Measurement
from psephos.kernel.noise import DiscreteLaplace
from psephos.kernel.unit import Unit

ROW, OTHER_ROW, PERSON, _ = UNITS
ANSWERS = 100_000
DELTA = "0.01"
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
    Trial(cases.COUNT, ROW, epsilon("1")),
    Trial(cases.COUNT, ROW, epsilon("1/10")),
    Trial(cases.COUNT, ROW, rho("1/2")),
    Trial(cases.COUNT, PERSON, epsilon("1")),
    Trial(cases.COUNT, PERSON, rho("1/2")),
    Trial(cases.HISTOGRAM, OTHER_ROW, epsilon("1")),
    Trial(cases.HISTOGRAM, OTHER_ROW, rho("1/2")),
    Trial(cases.SCALED, ROW, epsilon("1")),
    Trial(cases.GROUPS, ROW, epsilon("1")),
    Trial(cases.PARTS, PERSON, epsilon("1")),
    Trial(cases.STRATEGY["epsilon"], ROW, epsilon("1")),
    Trial(cases.STRATEGY["rho"], ROW, rho("1/2")),
)
TESTS = len(TRIALS) + 1  # `chosen` is one more


@dataclass
class Samples:
    """What was seen on two neighbours: for choosing an event, and for judging it."""

    choosing: tuple[list[Floats], list[Floats]] = field(default_factory=lambda: ([], []))
    judging: tuple[list[Floats], list[Floats]] = field(default_factory=lambda: ([], []))

    def add(self, side: int, seen: Floats) -> None:
        half = seen.size // 2
        self.choosing[side].append(seen[:half])
        self.judging[side].append(seen[half : 2 * half])

    def lower_bound(self, alpha: float, delta: float) -> tuple[float, int]:
        """The loss that is shown, and the number of runs on both neighbours."""
        chosen, judged = (
            [np.sort(np.concatenate(side)) for side in half]
            for half in (self.choosing, self.judging)
        )
        low, high, more = _best_interval(chosen, alpha, delta)
        hits = [np.array(_inside(judged[side], low, high)) for side in (more, 1 - more)]
        runs = min(side.size for side in judged)
        found = float(lower_bounds(hits[0], hits[1], runs, alpha, delta))
        return found, 2 * sum(side.size for side in judged)


def _inside(ordered: Floats, low: Any, high: Any) -> Integers:
    return np.asarray(np.searchsorted(ordered, high) - np.searchsorted(ordered, low))


def _best_interval(chosen: Sequence[Floats], alpha: float, delta: float) -> tuple[Any, Any, int]:
    """The interval [low, high) that shows most, and the neighbour that hits it more often."""
    steps = np.linspace(0, 1, EDGES)
    edges = np.unique(np.quantile(np.concatenate(chosen), steps, method="nearest"))
    open_end, open_start = np.full(edges.size, np.inf), np.full(edges.size, -np.inf)
    low = np.concatenate([edges, open_start, edges])
    high = np.concatenate([open_end, edges, np.append(edges[1:], np.inf)])
    hits, runs = [_inside(side, low, high) for side in chosen], min(s.size for s in chosen)
    shown = [lower_bounds(hits[i], hits[1 - i], runs, alpha, delta) for i in (0, 1)]
    more = int(shown[1].max() > shown[0].max())
    best = int(shown[more].argmax())
    return low[best], high[best], more


def lower_bound(stage: Stage, trial: Trial, until: float, alpha: float) -> Finding:
    """What runs until a moment show of one request."""
    case, unit, spend = trial.case, trial.unit, trial.spend
    ledger = stage.rich(unit, spend.currency)
    nobody = np.empty(0, int)
    probe = opened(small_domain(1), nobody, nobody, ledger)
    pair = worst_pair(case, unit, attached(case.ask(probe, spend, 1)))
    answers = [case.answers((pair.base + one).reshape(1, *SHAPE)) for one in _sides(pair)]
    copies = ANSWERS // sum(a.size for a in answers[0])
    tables = [
        opened(small_domain(copies), *copies_of(pair.base, one, unit, copies), ledger)
        for one in _sides(pair)
    ]
    samples = Samples()
    charges: list[Fraction] = []
    while not charges or time.monotonic() < until:
        for side, table in enumerate(tables):
            before = ledger.spent()
            seen = _log_ratio(case.ask(table, spend, copies), answers, copies)
            charges.append((ledger.spent() - before).amount)
            samples.add(side, seen)
    return bounded(trial.name, spend, min(charges), samples, alpha)


def _sides(pair: Pair) -> tuple[Integers, Integers]:
    return pair.first, pair.second


def _log_ratio(
    measurements: Sequence[Measurement], answers: Sequence[Sequence[Integers]], copies: int
) -> Floats:
    """The log-ratio of what was seen, second to first, of each copy, if the record is right."""
    values = np.concatenate([m.values for m in measurements])
    ratio, start = np.zeros(copies), 0
    for noise, a, b in zip(attached(measurements), *answers, strict=True):
        y = values[start : start + copies * a.size].reshape(copies, a.size)
        start += y.size
        if isinstance(noise, DiscreteLaplace):
            ratio += (abs(y - a) - abs(y - b)).sum(axis=1) / float(noise.scale)
        else:
            ratio += ((y - a) ** 2 - (y - b) ** 2).sum(axis=1) / float(2 * noise.variance)
    return ratio.round(9)


def bounded(name: str, spend: Budget, charged: Fraction, samples: Samples, alpha: float) -> Finding:
    """The finding; a charge in rho is turned into the epsilon that it certifies at a delta."""
    paid = Budget(spend.currency, charged)
    pure = paid.currency == "epsilon"
    charge = float((paid if pure or not charged else paid.at_delta(DELTA)).amount)
    delta = 0.0 if pure else float(DELTA)
    found, runs = samples.lower_bound(alpha, delta)
    return Finding(
        kind="lower bound",
        name=name,
        claimed=f"{paid}" if pure else f"{paid}: epsilon {charge:.4g} at delta {DELTA}",
        verdict=verdict("lower bound", found, charge, found <= charge),
        ok=found <= charge,
        runs=runs,
        charge=charge,
        found=found,
        delta=None if pure else delta,
    )
