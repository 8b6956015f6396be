"""Which marginals to measure, so that all that are asked for can be summed from them.

If s marginals D are measured with equal noise and every asked marginal C is summed from the best
single one that contains it, the total squared error is

    s² Σ_C w_C² min_{D ⊇ C} cells(D)

under Laplace noise, with s in place of s² under Gaussian noise. Marginals are chosen greedily for
that, as Ding et al. (2011) do; least squares on all of them is better still.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from psephos.errors import TooLargeError, WorkloadError
from psephos.matrix import is_total
from psephos.matrix.marginals import Axes
from psephos.strategy.gram_terms import is_identity
from psephos.values import Array
from psephos.workload.workload import Workload

CUBE_AXES = 10
"""Up to this many attributes all 2^d marginals are looked at."""
MOST_CUBOIDS = 4096


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


def choose(shape: Sequence[int], requests: Mapping[Axes, float], power: int) -> list[Axes]:
    """The marginals to measure: the best of a way up from nothing and a way down from all asked.

    >>> choose((2, 2, 2), {(): 1.0, (0,): 1.0, (1,): 1.0, (0, 1): 1.0}, 2)
    [(0, 1)]
    """
    marginals = list(requests)
    weights = np.array([requests[axes] for axes in marginals])
    candidates = _candidates(len(shape), marginals)
    inside, lengths = _members(len(shape), marginals), [len(axes) for axes in marginals]
    contains = _members(len(shape), candidates) @ inside.T == np.array(lengths)
    cells = np.array([math.prod(float(shape[a]) for a in axes) for axes in candidates])
    costs = np.where(contains, cells[:, None], np.inf)

    def error(chosen: Sequence[int]) -> float:
        return float(len(chosen) ** power) * float(weights @ costs[list(chosen)].min(axis=0))

    place = {axes: i for i, axes in enumerate(candidates)}
    ways = [_upwards(costs, weights, power), [place[axes] for axes in marginals]]
    best = min((_pruned(costs, weights, power, way) for way in ways), key=error)
    return sorted(candidates[i] for i in best)


def _members(d: int, sets: Sequence[Axes]) -> Array:
    """A row of zeros and ones for each set."""
    members = np.zeros((len(sets), d), dtype=np.float32)
    for row, axes in zip(members, sets, strict=True):
        row[list(axes)] = 1
    return members


def _candidates(d: int, marginals: Sequence[Axes]) -> list[Axes]:
    """All marginals over few attributes; over many the asked ones, unions of two, and the union."""
    if len(marginals) > MOST_CUBOIDS:
        raise TooLargeError(
            f"{len(marginals):,} marginals are too many to choose among, over the limit of "
            f'{MOST_CUBOIDS:,}; measure them as they are by strategy="Q", or use select.hdmm',
            len(marginals),
            MOST_CUBOIDS,
        )
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


def _pruned(costs: Array, weights: Array, power: int, chosen: Sequence[int]) -> list[int]:
    """Without the marginals that cost more than they help, the worst first.

    What is lost with a marginal is what its tables cost more when they come from the next best.
    """
    remaining = np.array(list(dict.fromkeys(chosen)))
    while len(remaining) > 1:
        some = costs[remaining]
        first, second = np.partition(some, 1, axis=0)[:2]
        losses = np.bincount(some.argmin(axis=0), weights * (second - first), len(remaining))
        worst, now, fewer = int(losses.argmin()), float(weights @ first), len(remaining) - 1
        if fewer**power * (now + losses[worst]) >= (fewer + 1) ** power * now:
            break
        remaining = np.delete(remaining, worst)
    return [int(i) for i in remaining]
