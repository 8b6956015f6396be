"""Accuracy first: the least budget at which every table is as precise as it must be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import starmap
from typing import Any

import numpy as np

from psephos.errors import ReleaseError, UnsupportedError, checked_whole
from psephos.infer.intervals import Widths, half_widths
from psephos.infer.least_squares import block_answers
from psephos.inverse.choice import form_of, precision
from psephos.kernel.budget import Budget
from psephos.kernel.measurement import noise_for
from psephos.release.request import Job
from psephos.strategy.strategy import Strategy
from psephos.values import Array
from psephos.workload.workload import Workload

FEWEST_DRAWS = 19
"""The largest of 19 draws covers 95 % of the noise."""
DIGITS = 3
"""Budgets that follow from targets are rounded up to so many digits."""
ROUNDS = 3
"""The most searches, each with the weights that the one before suggests."""
STEPS = 100
"""The most steps of 2 % by which a budget is raised until it meets all targets."""
REFERENCE = Fraction(1, 1000)
"""The amount at which widths are computed first."""
LEAST_AMOUNT = Fraction(1, 10**9)
CLOSE = 0.98
"""A width of at least this share of its target is near enough to it."""
Search = Callable[[Job, Workload], Strategy]


def check_draw_count(draws: Any) -> None:
    """Refuse anything but enough draws of simulated noise."""
    checked_whole(draws, "draws", FEWEST_DRAWS)


def check_budget(budget: Any) -> None:
    """Refuse anything but an exact amount."""
    if not isinstance(budget, Budget):
        raise ReleaseError(
            f'budget is an exact amount such as ps.epsilon("0.5") or ps.rho("0.1"), got {budget!r}'
        )


def widths_at(
    job: Job, strategy: Strategy, budget: Budget | None, confidence: float, draws: int
) -> Widths:
    """Half-widths of the noise intervals of all numbers, by simulating the noise.

    Past measurements count too; without a budget they alone do.
    """
    known = block_answers([past.measurement for past in job.past]) if job.past else []
    blocks, noises = [each.matrix for each in known], [each.noise for each in known]
    if budget is not None:
        blocks += [block.matrix for block in strategy.query.blocks]
        noises += noise_for(strategy.query, budget, job.unit, 1)
    if known or budget is None:
        precisions = [precision(noise.exact_variance) for noise in noises]
        form = form_of(blocks, precisions, job.workload.domain.shape)
        job.workload.check_covered(form)
    else:
        form = strategy.form(budget, job.unit)
    return half_widths(
        form,
        noises,
        [block.shape[0] for block in blocks],
        job.workload,
        tables=[table.products for table in job.tables],
        confidence=confidence,
        draws=draws,
    )


@dataclass(frozen=True)
class PricedStrategy:
    """A strategy, the least budget that meets all targets, and what each table's target needs."""

    strategy: Strategy
    budget: Budget
    needs: dict[str, Budget]


def cheapest_strategy(job: Job, draws: int, search: Search) -> PricedStrategy:
    """The strategy that meets all targets at the least budget; at none, if the past meets them.

    Tables far better than they must be lose weight and the search is repeated; the cheapest wins.
    """
    shares = np.ones(len(job.tables))
    best: PricedStrategy | None = None
    for _ in range(ROUNDS):
        strategy = search(job, _reweighted(job, shares))
        needs = budgets_needed(job, strategy, draws)
        spend = max(needs.values())
        if best is None or spend < best.budget:
            best = PricedStrategy(strategy, spend, needs)
        if not spend.amount:
            return best
        ratios = [float(needs[t.name].amount / spend.amount) if t.name in needs else 0.0
                  for t in job.tables]  # fmt: skip
        if min(r for r in ratios if r > 0) > 0.97:
            break
        shares = shares * np.maximum(ratios, 1e-3)
    if best is None:
        raise ReleaseError("no table has a target")
    spend = best.budget
    for _ in range(STEPS):  # whole numbers step: their quantiles do not follow the scale exactly
        if all(starmap(meets, reached_at(job, best.strategy, spend, draws).values())):
            return replace(best, budget=spend)
        spend = job.budget_of(rounded_up(spend.amount * Fraction(51, 50)))
    raise ReleaseError("no budget was found that meets all targets; ask for wider intervals")


def _reweighted(job: Job, shares: Array) -> Workload:
    """Tables weighted by how precise they must be; those without a target hardly count."""
    weights = np.ones(len(job.workload.products))
    for table, share in zip(job.tables, shares, strict=True):
        precise = 1e-3 if table.target is None else share / table.target.half_width
        weights[list(table.products)] = precise
    weights = weights / weights.max()
    pairs = zip(job.workload.products, weights, strict=True)
    products = [replace(product, weight=float(max(w, 1e-9))) for product, w in pairs]
    return Workload(job.workload.domain, products)


def budgets_needed(job: Job, strategy: Strategy, draws: int) -> dict[str, Budget]:
    """The least budget for the target of each table that has one, rounded up.

    Half-widths are proportional to 1/ε, or to 1/√ρ, where the noise is wide; `cheapest_strategy`
    checks the widths that are reached. Past measurements make a table cheaper, down to nothing.
    """
    needs: dict[str, Budget] = {}
    fresh = reached_at(replace(job, past=()), strategy, job.budget_of(REFERENCE), draws)
    for name, (width, target) in fresh.items():
        ratio = Fraction(width / target)
        amount = max(REFERENCE * ratio**job.noise.norm, LEAST_AMOUNT)
        needs[name] = job.budget_of(rounded_up(amount))
    return _beside_past(job, strategy, draws, needs) if job.past else needs


def _beside_past(
    job: Job, strategy: Strategy, draws: int, fresh: dict[str, Budget]
) -> dict[str, Budget]:
    """What targets cost on top of what is known, from what they cost without.

    Precisions, one over the square of a width, about add up: what is bought has to bring the part
    of a target's precision that is not known yet. What it did bring tells the known part better.
    """
    reached = cache(lambda spend: reached_at(job, strategy, spend, draws))
    try:
        known = reached(None)
    except UnsupportedError:  # past measurements do not tell all that is asked
        known = dict.fromkeys(fresh, (math.inf, 1.0))
    power = job.noise.power
    needs: dict[str, Budget] = {}
    for name, alone in fresh.items():
        width, target = known[name]
        low, high = 0.0, 1.0  # as shares of what it costs alone
        known_part = (target / width) ** 2
        if meets(width, target):
            low = high = 0.0
        while high - low > (1 - CLOSE) * high:
            near = max(1 - known_part, 0.0) ** (1 / power)
            share = min(max(near, low + (high - low) / 8), high - (high - low) / 8)
            width, target = reached(job.budget_of(rounded_up(alone.amount * Fraction(share))))[name]
            low, high = (low, share) if meets(width, target) else (share, high)
            if CLOSE * target <= width <= target:
                break
            known_part = (target / width) ** 2 - share**power
        amount = alone.amount * Fraction(high)
        needs[name] = job.budget_of(rounded_up(amount) if amount else amount)
    return needs


def reached_at(
    job: Job, strategy: Strategy, budget: Budget | None, draws: int
) -> dict[str, tuple[float, float]]:
    """The half-width of each table that has a target, at a budget, and the one it must have."""
    by_confidence: dict[float, Widths] = {}
    reached = {}
    for i, table in enumerate(job.tables):
        if table.target is None:
            continue
        confidence = float(table.target.confidence)
        if confidence not in by_confidence:
            by_confidence[confidence] = widths_at(job, strategy, budget, confidence, draws)
        widths = by_confidence[confidence]
        width = widths.per_table[i]
        if not table.target.simultaneous:
            width = widths.per_query[table.rows(job.workload)].max()
        reached[table.name] = (float(width), table.target.half_width)
    return reached


def meets(width: float, target: float) -> bool:
    """Is a half-width as small as it must be? Widths themselves are rounded up a little."""
    return width <= target * (1 + 1e-6)


def rounded_up(amount: Fraction, digits: int = DIGITS) -> Fraction:
    """The least decimal of so many digits that is not less.

    >>> rounded_up(Fraction(1, 3))
    Fraction(167, 500)
    """
    step = Fraction(10) ** (math.floor(math.log10(amount)) - digits + 1)
    return math.ceil(amount / step) * step
