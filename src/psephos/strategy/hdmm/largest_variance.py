"""Marginals whose worst table is as good as can be, under Laplace noise.

With weights θ on measured marginals (`marginal_error`) a cell of the marginal on a has variance

    V_a = (Σθ)² Σ_{S⊆a} m_S / (λ_S c_a²)        m_S = Π_{i∈S} (nᵢ - 1),  c_a = Π_{i∈a} nᵢ

in units of 2/ε², λ_S divided by Π nᵢ. For any shares q of the tables the least Σ q_a V_a/t_a² is no
more than the least largest V_a/t_a², and OPT_M looks for it, with τ_S = m_S Σ_{a⊇S} q_a/(c_a t_a)².
Tables that are worse than their target t_a get more of q and the weights are improved again, many
times over. The problem is not convex, so there is no certificate as under Gaussian noise
(`residual.largest_variance_weights`); the best that was met is returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.random import Generator

from psephos.matrix.marginals import Axes
from psephos.strategy.hdmm.marginal_error import ListedSets, descend, incidence
from psephos.strategy.hdmm.marginals import WeightedMarginals, opt_marginals
from psephos.strategy.hdmm.residual import closure_of, table_cells, targets_of
from psephos.values import Array

SEARCHES = 4
"""How often sets of marginals are searched for anew, with the shares so far."""
SHARE_STEPS = 60
"""How often shares are moved after each search."""
MANY_TABLES = 4096
"""With more tables there is one search."""


def largest_variance_marginals(
    shape: Sequence[int],
    sets: Sequence[Axes],
    targets: Iterable[float] | None = None,
    *,
    rng: Generator,
    restarts: int = 3,
) -> WeightedMarginals:
    """Weights on marginals with a small largest V_a/t_a²; that is the error of the result.

    >>> from numpy.random import default_rng
    >>> best = largest_variance_marginals((2, 10), [(0,), (1,)], rng=default_rng(0))
    >>> best.sets, best.weights.round(2).tolist(), round(best.error, 2)
    (((0,), (1,)), [0.5, 0.5], 3.67)
    """
    shape = tuple(shape)
    goals = targets_of(shape, sets, targets)
    problem = _Problem(shape, goals)
    shares = np.full(len(goals), 1 / len(goals))
    best = WeightedMarginals((), np.empty(0), np.inf)
    for _ in range(SEARCHES if len(goals) <= MANY_TABLES else 1):
        start = opt_marginals(shape, problem.traces(shares), rng=rng, restarts=restarts)
        shares, balanced = problem.balanced(start, shares)
        best = min(best, balanced, key=lambda each: each.error)
    return best


class _Problem:
    """The tables asked, the subspaces that they need, and which contains which."""

    def __init__(self, shape: tuple[int, ...], goals: dict[Axes, float]) -> None:
        self.shape = shape
        self.tables = list(goals)
        self.spaces, self.sizes = closure_of(shape, self.tables)
        self.contained = incidence(len(shape), self.tables, self.spaces)
        self.prices = (table_cells(shape, self.tables) * np.array(list(goals.values()))) ** -2

    def demands(self, shares: Array) -> Array:
        """τ_S of the tables with these shares."""
        return np.asarray(self.sizes * (self.contained.T @ (shares * self.prices)))

    def traces(self, shares: Array) -> dict[Axes, float]:
        demands = self.demands(shares)
        return dict(zip(self.spaces, (demands / demands.sum()).tolist(), strict=True))

    def balanced(self, start: WeightedMarginals, shares: Array) -> tuple[Array, WeightedMarginals]:
        """Shares moved to the worst tables, and weights after them, on the sets of a start."""
        family = ListedSets.of(self.shape, self.traces(shares), start.sets)
        weights = start.weights / start.weights.sum()
        best, least, kept = weights, np.inf, shares
        for _ in range(SHARE_STEPS):
            eigenvalues = family.contains @ (weights**2 * family.outside)
            ratios = self.prices * (self.contained @ (self.sizes / eigenvalues))
            if ratios.max() < least:
                best, least, kept = weights, float(ratios.max()), shares
            if ratios.min() > (1 - 1e-4) * ratios.max():
                break
            shares = shares * np.sqrt(ratios / ratios.max())
            shares = np.maximum(shares / shares.sum(), 1e-12)
            demands = self.demands(shares)
            family = replace(family, traces=demands / demands.sum())
            weights = descend(family, weights[None], steps=20)[0][0]
        some = best > 1e-9 * best.max()
        sets = tuple(axes for axes, positive in zip(family.sets, some, strict=True) if positive)
        return kept, WeightedMarginals(sets, best[some], least)
