"""Accuracy first: the least budget for an error, and the smallest largest error."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.random import default_rng

from psephos.errors import BudgetError, WorkloadError
from psephos.kernel.budget import Budget
from psephos.kernel.unit import Unit
from psephos.matrix import Identity, is_total
from psephos.strategy.build import marginals_strategy, residual_strategy
from psephos.strategy.factors import NoiseName, checked_selection
from psephos.strategy.gram_terms import GramTerms, is_identity
from psephos.strategy.hdmm.largest_variance import largest_variance_marginals
from psephos.strategy.hdmm.residual import largest_variance_weights
from psephos.strategy.hdmm.search import hdmm
from psephos.strategy.strategy import Strategy
from psephos.values import Array
from psephos.variances import NoiseKind
from psephos.workload.workload import Workload

BUDGET_DIGITS = 3
"""Budgets are rounded up to so many digits."""
REWEIGHTINGS = 6
"""How often products are weighted anew, at most."""


def least_budget(
    strategy: Strategy,
    workload: Workload,
    unit: Unit,
    *,
    rmse: float | None = None,
    stderr: float | None = None,
) -> Budget:
    """The least budget, rounded up to three digits, at which answers are as accurate as wanted.

    Args:
        strategy: what would be measured
        workload: whose answers
        unit: whose presence is protected
        rmse: the root mean squared error wanted of all answers together, or
        stderr: the standard error wanted of every single answer

    >>> from psephos import Domain, Workload, add_remove_row, identity, product
    >>> from psephos.strategy.fixed import baselines
    >>> W = Workload(Domain.of(age=10), [product(age=identity())])
    >>> least_budget(baselines.identity(W), W, add_remove_row(), stderr=14.1421357)
    epsilon 1/10 (~0.1)
    """
    if not isinstance(strategy, Strategy):
        raise BudgetError(f"a budget is found for a Strategy, got {type(strategy).__name__}")
    target, measure = (rmse, "rmse") if stderr is None else (stderr, "stderr")
    if target is None or (rmse is not None and stderr is not None):
        raise BudgetError("say how accurate: rmse=... for all answers, or stderr=... for each")
    if not isinstance(target, int | float) or not 1e-6 <= target < math.inf:
        raise BudgetError(f"{measure} is a number of rows of at least 1e-6, got {target!r}")

    currency = strategy.noise.currency

    def variance(amount: Fraction) -> float:
        budget = Budget(currency, amount)
        if measure == "rmse":
            return strategy.rmse(workload, budget, unit) ** 2
        return float(strategy.query_variances(workload, budget, unit).max())

    def reached(amount: Fraction) -> bool:
        return variance(amount) <= target**2

    # Discrete noise varies less than continuous noise of the same scale, so the latter's budget is
    # enough; from there the three digits are counted down while the exact error allows.
    ratio = variance(Fraction(1, 10**6)) / target**2
    enough = ratio ** (1 / strategy.noise.power) * 1e-6
    step = Fraction(10) ** (math.floor(math.log10(enough)) - BUDGET_DIGITS + 1)
    count = math.ceil(Fraction(enough) / step) + 1
    while not reached(count * step):
        count += 1
    count = _least(count, step, reached)
    while count < 10 ** (BUDGET_DIGITS - 1):  # so much less was enough that a digit was lost
        step /= 10
        count = _least(count * 10, step, reached)
    return Budget(currency, count * step)


def smallest_largest(
    workload: Workload,
    noise: NoiseName = "laplace",
    *,
    targets: Sequence[float] | None = None,
    **options: Any,
) -> Strategy:
    """A strategy whose worst answer is as good as can be, rather than the sum of all.

    Products with large worst variances are given more weight, a few times over, and the selection
    is repeated. Marginals have searches of their own besides: under Gaussian noise the problem is
    convex, and solved as such; under Laplace noise weights on marginals are balanced. What has the
    smallest largest variance, as exact integers, wins. Weights of the workload's products do not
    count: every answer is worth the same.

    Args:
        workload: what is asked
        noise: "laplace" or "gaussian"
        targets: standard errors that the products should have, up to a common factor: then the
            largest ratio of variance to target² is small. Any scale will do
        options: as those of `hdmm`

    >>> from psephos import Domain, marginals
    >>> W = marginals(Domain.of(a=2, b=10), k=1)
    >>> float(hdmm(W, "gaussian").worst_errors(W).max().round(3))
    2.927
    >>> float(smallest_largest(W, "gaussian").worst_errors(W).max().round(3))
    1.826
    >>> smallest_largest(W, "gaussian", targets=[1, 2]).worst_errors(W).round(3)
    array([1.204, 4.814])
    """
    kind = checked_selection(workload, noise)
    goals = _checked_targets(workload, targets)
    direct = balanced_marginals(workload, kind, goals, seed=options.get("seed", 0))
    if direct is not None and kind is NoiseKind.GAUSSIAN:
        return direct
    searched = reweighted(workload, kind, goals, **options)
    if direct is None:
        return searched
    return min(direct, searched, key=lambda s: float((s.worst_errors(workload) / goals**2).max()))


def reweighted(
    workload: Workload, noise: NoiseName, targets: Array | None = None, **options: Any
) -> Strategy:
    """The best of a few selections, each with more weight where the last one was worst."""
    squares = np.ones(len(workload.products)) if targets is None else targets**2
    shares = squares.min() / squares
    candidates: list[tuple[float, Strategy]] = []
    for _ in range(REWEIGHTINGS):
        products = [
            replace(product, weight=float(math.sqrt(share)))
            for product, share in zip(workload.products, shares, strict=True)
        ]
        strategy = hdmm(Workload(workload.domain, products), noise, **options)
        worst = strategy.worst_errors(workload) / squares
        candidates.append((float(worst.max()), strategy))
        shares = shares * worst / worst.max()
        shares = np.maximum(shares / shares.max(), 1e-6)
        if worst.min() > 0.99 * worst.max():
            break
    return min(candidates, key=lambda pair: pair[0])[1]


def balanced_marginals(
    workload: Workload, noise: NoiseKind, targets: Array | None = None, *, seed: int = 0
) -> Strategy | None:
    """Marginals or residuals with a small largest variance, or ratio to targets².

    None if not all asked is marginals. For Gaussian noise it is the best by any strategy: averaged
    over all orders of the values of each attribute, a strategy is one of residuals, and no worse.
    """
    shape = workload.domain.shape
    sets = []
    for factors in GramTerms.of(workload).factors:
        if not all(is_identity(w) or is_total(w) for w in factors):
            return None
        sets.append(tuple(i for i, w in enumerate(factors) if is_identity(w)))
    cells = [Identity(n) for n in shape]
    goals = None if targets is None else targets.tolist()
    if noise is NoiseKind.GAUSSIAN:
        pairs, _ = largest_variance_weights(shape, sets, goals)
        weights = np.array([weight for _, weight in pairs])
        axes = [each for each, _ in pairs]
        name = "residual, largest variance"
        return residual_strategy(workload.domain, axes, weights, cells, name)
    best = largest_variance_marginals(shape, sets, goals, rng=default_rng(seed))
    name = "OPT_M, largest variance"
    return marginals_strategy(workload.domain, noise, best.sets, best.weights, cells, name)


def _checked_targets(workload: Workload, targets: Any) -> Array:
    """A positive number for every product."""
    count = len(workload.products)
    if targets is None:
        return np.ones(count)
    try:
        goals = np.asarray(targets, dtype=float)
    except (TypeError, ValueError):
        goals = np.empty(0)
    if goals.shape != (count,) or not np.isfinite(goals).all() or (goals <= 0).any():
        raise WorkloadError(
            f"targets are {count} positive numbers, one for each product, got {targets!r}"
        )
    return goals


def _least(enough: int, step: Fraction, reached: Callable[[Fraction], bool]) -> int:
    """The least number of steps that does, given one that does; those next to it come first."""
    gap = 1
    while enough > gap and reached((enough - gap) * step):
        enough, gap = enough - gap, 2 * gap
    low = max(0, enough - gap)
    while enough - low > 1:
        middle = (low + enough) // 2
        if reached(middle * step):
            enough = middle
        else:
            low = middle
    return enough
