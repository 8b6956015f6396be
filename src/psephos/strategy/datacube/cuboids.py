"""DataCube: a few marginals, from which all that are asked for can be summed (Ding et al. 2011).

If s marginals D are measured with equal noise and every asked marginal C is summed from the best
single one that contains it, the total squared error is

    s² Σ_C w_C² min_{D ⊇ C} cells(D)

under Laplace noise, with s in place of s² under Gaussian noise. Marginals are chosen greedily for
that; what is published then is the least squares estimate from all of them, which is better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np

from psephos.errors import WorkloadError
from psephos.kernel.query import Query
from psephos.matrix import Identity, Kron, Matrix, is_total, total
from psephos.matrix.marginals import Axes
from psephos.strategy.factors import NoiseName, checked_selection
from psephos.strategy.gram_terms import is_identity
from psephos.strategy.strategy import Strategy
from psephos.values import Array
from psephos.workload.workload import Workload

CUBE_AXES = 10
"""Up to this many attributes all 2^d marginals are looked at."""
MOST_CUBOIDS = 4096


def datacube(workload: Workload, noise: NoiseName = "laplace") -> Strategy:
    """Greedily chosen marginals with equal noise; for workloads of marginals alone."""
    kind = checked_selection(workload, noise)
    requests = requested_marginals(workload)
    chosen = choose(workload.domain.shape, requests, kind.power)
    blocks: list[tuple[Matrix, int]] = []
    for axes in chosen:
        factors = (Identity(n) if i in axes else total(n) for i, n in _axes(workload))
        blocks.append((Kron(tuple(factors)), 1))
    return Strategy(workload.domain, kind, Query.of(blocks), "datacube")


def requested_marginals(workload: Workload) -> dict[Axes, float]:
    """The sets of attributes that are asked for, each with its squared weight."""
    weights: dict[Axes, float] = {}
    for j, product in enumerate(workload.products):
        factors = workload.factors(j)
        for name, factor in zip(workload.domain.names, factors, strict=True):
            if not is_identity(factor) and not is_total(factor):
                raise WorkloadError(
                    f"datacube is for marginals, and table {product.title!r} asks {factor} of "
                    f"{name!r}; use hdmm, or ask for identity() or total() of every attribute"
                )
        # An attribute of one cell is the same either way.
        axes = tuple(i for i, f in enumerate(factors) if is_identity(f) and f.shape[1] > 1)
        weights[axes] = weights.get(axes, 0.0) + product.weight**2
    return weights


def choose(shape: Sequence[int], requests: dict[Axes, float], power: int) -> list[Axes]:
    """The marginals to measure: the best of a way up from nothing and a way down from all asked.

    >>> choose((2, 2, 2), {(): 1.0, (0,): 1.0, (1,): 1.0, (0, 1): 1.0}, 2)
    [(0, 1)]
    """
    marginals = list(requests)
    weights = np.array([requests[axes] for axes in marginals])
    candidates = _candidates(len(shape), marginals)
    costs = np.full((len(candidates), len(marginals)), np.inf)
    for i, axes in enumerate(candidates):
        inside = [j for j, each in enumerate(marginals) if set(each) <= set(axes)]
        costs[i, inside] = math.prod(float(shape[a]) for a in axes)

    def error(chosen: Sequence[int]) -> float:
        return float(len(chosen) ** power) * float(weights @ costs[list(chosen)].min(axis=0))

    direct = [candidates.index(axes) for axes in marginals]
    ways = [_upwards(costs, weights, power), _pruned(direct, error)]
    best = min((_pruned(way, error) for way in ways), key=error)
    return sorted(candidates[i] for i in best)


def _axes(workload: Workload) -> list[tuple[int, int]]:
    return list(enumerate(workload.domain.shape))


def _candidates(d: int, marginals: Sequence[Axes]) -> list[Axes]:
    """All marginals over few attributes; over many the asked ones, unions of two, and the union."""
    top = tuple(sorted(set().union(*marginals)))
    if len(top) <= CUBE_AXES:
        return [axes for k in range(len(top), -1, -1) for axes in combinations(top, k)]
    candidates = dict.fromkeys([top, *marginals])
    for a, b in combinations(marginals, 2):
        if len(candidates) >= MOST_CUBOIDS:
            break
        candidates.setdefault(tuple(sorted({*a, *b})))
    return list(candidates)


def _upwards(costs: Array, weights: Array, power: int) -> list[int]:
    """One marginal after another, the one that helps most; the first candidate contains all."""
    costs_now, chosen, best, least = costs[0], [0], [0], float(weights @ costs[0])
    for _ in range(min(costs.shape) * 2):
        sums = np.minimum(costs, costs_now) @ weights
        i = int(sums.argmin())
        if sums[i] >= costs_now @ weights:
            break
        costs_now = np.minimum(costs_now, costs[i])
        chosen.append(i)
        # The largest marginal goes as soon as nothing needs it any more.
        rest = chosen[1:]
        covered = np.isfinite(costs[rest].min(axis=0)).all()
        subset = rest if covered and 0 not in rest else chosen
        error = len(subset) ** power * float(weights @ costs[subset].min(axis=0))
        if error < least:
            best, least = list(subset), error
    return best


def _pruned(chosen: Sequence[int], error: Callable[[Sequence[int]], float]) -> list[int]:
    """Without the marginals that cost more than they help, the worst first."""
    remaining = list(dict.fromkeys(chosen))
    while len(remaining) > 1:
        smaller = [remaining[:i] + remaining[i + 1 :] for i in range(len(remaining))]
        best = min(smaller, key=error)
        if error(best) >= error(remaining):
            break
        remaining = best
    return remaining
