"""Accuracy first: the least budget at which every table is as precise as it must be."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np

from psephos.errors import ReleaseError
from psephos.frozen import Array
from psephos.infer.intervals import Widths, half_widths
from psephos.kernel.budget import Budget
from psephos.kernel.measurement import noise_for
from psephos.publish.choose import Progress, choose
from psephos.publish.job import Job
from psephos.strategy.strategy import Strategy
from psephos.workload.workload import Workload

DIGITS = 3
"""Budgets that follow from targets are rounded up to so many digits."""
ROUNDS = 3
STEPS = 100
REFERENCE = Fraction(1, 1000)


def widths_at(
    job: Job, strategy: Strategy, budget: Budget, confidence: float, draws: int
) -> Widths:
    """Half-widths of the noise intervals of all numbers at a budget, by simulating the noise."""
    noises = noise_for(strategy.query, budget, job.unit, 1)
    rows = [block.matrix.shape[0] for block in strategy.query.blocks]
    form = strategy.form(budget, job.unit)
    tables = [table.products for table in job.tables]
    return half_widths(
        form, noises, rows, job.workload, tables=tables, confidence=confidence, draws=draws
    )


def least_budget(job: Job, draws: int, progress: Progress | None) -> tuple[Strategy, Budget]:
    """A strategy and the least budget that meets all targets, rounded up.

    Tables far better than they must be lose weight and the search is repeated; the cheapest wins.
    """
    shares = np.ones(len(job.tables))
    best: tuple[Strategy, Budget] | None = None
    for _ in range(ROUNDS):
        strategy = choose(job, _reweighted(job, shares), progress)
        needs = budgets_needed(job, strategy, draws)
        spend = max(needs.values())
        if best is None or spend < best[1]:
            best = (strategy, spend)
        ratios = [float(needs[t.name].amount / spend.amount) if t.name in needs else 0.0
                  for t in job.tables]  # fmt: skip
        if min(r for r in ratios if r > 0) > 0.97:
            break
        shares = shares * np.maximum(ratios, 1e-3)
    if best is None:
        raise ReleaseError("no table has a target")
    strategy, spend = best
    for _ in range(STEPS):  # whole numbers step: their quantiles do not follow the scale exactly
        if all(width <= target for width, target in _reached(job, strategy, spend, draws)):
            return strategy, spend
        spend = job.paid(rounded_up(spend.amount * Fraction(51, 50)))
    raise ReleaseError("no budget was found that meets all targets; ask for wider intervals")


def _reweighted(job: Job, shares: Array) -> Workload:
    """Tables weighted by how precise they must be; those without a target hardly count."""
    weights = np.ones(len(job.workload.products))
    for table, share in zip(job.tables, shares, strict=True):
        wanted = 1e-3 if table.target is None else share / table.target.half_width
        weights[list(table.products)] = wanted
    weights = weights / weights.max()
    pairs = zip(job.workload.products, weights, strict=True)
    products = [replace(asked, weight=float(max(w, 1e-9))) for asked, w in pairs]
    return Workload(job.workload.domain, products)


def budgets_needed(job: Job, strategy: Strategy, draws: int) -> dict[str, Budget]:
    """The least budget for the target of each table that has one, rounded up.

    Half-widths are proportional to 1/ε, or to 1/√ρ, where the noise is wide; `least_budget` looks
    again at what was found.
    """
    named = [table.name for table in job.tables if table.target is not None]
    found: dict[str, Budget] = {}
    reached = _reached(job, strategy, job.paid(REFERENCE), draws)
    for name, (width, target) in zip(named, reached, strict=True):
        ratio = Fraction(width / target)
        amount = REFERENCE * (ratio if job.noise == "laplace" else ratio**2)
        found[name] = job.paid(rounded_up(max(amount, Fraction(1, 10**9))))
    return found


def _reached(
    job: Job, strategy: Strategy, budget: Budget, draws: int
) -> Iterator[tuple[float, float]]:
    """The half-width of each table that has a target, at a budget, and the one it must have."""
    known: dict[float, Widths] = {}
    for i, table in enumerate(job.tables):
        if table.target is None:
            continue
        confidence = float(table.target.confidence)
        if confidence not in known:
            known[confidence] = widths_at(job, strategy, budget, confidence, draws)
        widths = known[confidence]
        if table.target.simultaneous:
            yield float(widths.per_table[i]), table.target.half_width
        else:
            rows = table.rows(job.workload)
            yield float(widths.per_query[rows].max()), table.target.half_width


def rounded_up(amount: Fraction, digits: int = DIGITS) -> Fraction:
    """The least decimal of so many digits that is not less.

    >>> rounded_up(Fraction(1, 3))
    Fraction(167, 500)
    """
    step = Fraction(10) ** (math.floor(math.log10(amount)) - digits + 1)
    return math.ceil(amount / step) * step
