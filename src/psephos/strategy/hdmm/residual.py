"""Marginals under Gaussian noise: one integer matrix for each residual subspace.

For a set S of attributes the residual matrix is R_S = ⊗_{i∈S} (nᵢI - 11ᵀ) ⊗_{i∉S} 1ᵀ. All its
columns have squared norm Π_{i∈S} nᵢ(nᵢ-1), and its Gram is e_S = Π_{i∈S} nᵢ² Π_{i∉S} nᵢ times the
projection onto subspace S, whose dimension is m_S = Π_{i∈S} (nᵢ-1). Weights w_S give information
λ_S = e_S w_S / Δ² with Δ² = Σ w_S Π_{i∈S} nᵢ(nᵢ-1), so that Σ λ_S m_S = Π nᵢ whatever they are: the
choice is how to divide one budget among subspaces, and it is convex (Xiao et al. 2023 reach the
same errors by correlated noise on marginals).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import combinations, repeat

import numpy as np

from psephos.errors import ShapeError
from psephos.matrix import Dense, Kron, Matrix, Ones
from psephos.matrix.marginals import Axes
from psephos.strategy.hdmm.marginal_error import by_length, incidence, positive_traces
from psephos.values import Array


def residual_blocks(
    shape: Sequence[int], traces: Array | Mapping[Axes, float]
) -> list[tuple[Axes, float]]:
    """The weight w_S of every R_S for the least total variance: λ_S ∝ √(τ_S / m_S).

    >>> residual_blocks((2, 2), np.array([16.0, 4.0, 1.0, 0.0]))
    [((), 1.0), ((0,), 0.25), ((1,), 0.125)]
    """
    needed = _needed(shape, traces)
    sizes = _sizes(shape, list(needed))
    return _blocks(shape, list(needed), np.sqrt(np.array(list(needed.values())) / sizes))


def residual_error(shape: Sequence[int], traces: Array | Mapping[Axes, float]) -> float:
    """(Σ_S √(τ_S m_S))² / Π nᵢ: the summed variance x 2ρ, and the SVD bound of the workload.

    >>> residual_error((2, 2), np.array([16.0, 4.0, 1.0, 0.0]))
    12.25
    """
    needed = _needed(shape, traces)
    tau = np.array(list(needed.values()))
    cells = math.prod(map(float, shape))
    return float(np.sqrt(tau / cells * _sizes(shape, list(needed))).sum() ** 2)


def largest_variance_weights(
    shape: Sequence[int],
    sets: Iterable[Axes],
    targets: Iterable[float] | None = None,
    *,
    tolerance: float = 1e-7,
    steps: int = 20_000,
) -> tuple[list[tuple[Axes, float]], float]:
    """Weights w_S for the least largest variance of a cell of the marginals asked, and that x 2ρ.

    Where marginals have targets t_a, which are one when left out, it is V_a/t_a² that is least.

    With shares μ_S = λ_S m_S / Π nᵢ of the budget, a cell of the marginal on a has variance
    V_a = Σ_{S⊆a} m_S² / (μ_S Π_{i∈a} nᵢ²). For mixing weights q_a, Σ_a q_a V_a is least at
    μ_S ∝ √B_S, B_S = m_S² Σ_{a⊇S} q_a / Π_{i∈a} nᵢ², where it is (Σ_S √B_S)²: a lower bound on the
    largest V_a. q_a ← q_a V_a² raises it at every step (√ is concave), until both meet.

    >>> weights, largest = largest_variance_weights((2, 2), [(0,), (1,)])
    >>> round(largest, 4)
    1.4571
    """
    shape = tuple(shape)
    goals = targets_of(shape, sets, targets)
    marginals = list(goals)
    spaces, sizes = closure_of(shape, marginals)
    contained = incidence(len(shape), marginals, spaces)
    contains = contained.T.tocsr()
    prices = (table_cells(shape, marginals) * np.array(list(goals.values()))) ** -2
    mixing = np.full(len(marginals), 1 / len(marginals))
    least, best = math.inf, np.ones(len(spaces))
    for _ in range(steps):
        roots = np.sqrt(contains @ (mixing * prices))
        budget = float((sizes * roots).sum())
        variances = budget * prices * (contained @ (sizes / roots))
        if variances.max() < least:
            least, best = float(variances.max()), roots
        if least <= (1 + tolerance) * budget**2:
            break
        mixing *= variances**2
        mixing /= mixing.sum()
    # λ_S ∝ μ_S / m_S = √B_S / m_S, and √B_S is m_S times the root.
    return _blocks(shape, spaces, best), least


def targets_of(
    shape: Sequence[int], sets: Iterable[Axes], targets: Iterable[float] | None
) -> dict[Axes, float]:
    """The target of every marginal asked, the strictest where one is asked more than once.

    An attribute of one value has no residual, and is left out.
    """
    goals: dict[Axes, float] = {}
    for axes, target in zip(sets, repeat(1.0) if targets is None else targets, strict=False):
        some = tuple(i for i in axes if shape[i] > 1)
        goals[some] = min(float(target), goals.get(some, math.inf))
    if not goals:
        raise ShapeError("the largest variance of no marginals: list at least one set of axes")
    return goals


def closure_of(shape: Sequence[int], marginals: Sequence[Axes]) -> tuple[list[Axes], Array]:
    """Every S inside of some marginal, and its dimension m_S."""
    spaces = list(dict.fromkeys(s for axes in marginals for s in _subsets(axes)))
    return spaces, _sizes(shape, spaces)


def table_cells(shape: Sequence[int], marginals: Sequence[Axes]) -> Array:
    """How many cells each marginal has."""
    cells = np.ones(len(marginals))
    for rows, axes in by_length(marginals):
        cells[rows] = np.prod(np.array(shape, dtype=float)[axes], axis=1)
    return cells


def residual_matrix(shape: Sequence[int], axes: Axes) -> Kron:
    """R_S, in whole numbers.

    >>> residual_matrix((2, 3), (0,)).dense()
    array([[ 1.,  1.,  1., -1., -1., -1.],
           [-1., -1., -1.,  1.,  1.,  1.]])
    """
    return Kron(tuple(_centre(n) if i in axes else Ones(1, n) for i, n in enumerate(shape)))


@lru_cache(maxsize=64)
def _centre(n: int) -> Matrix:
    """The matrix nI - 11ᵀ, one object for every attribute of n values."""
    narrow = np.int16 if n < 1 << 15 else np.int64
    return Dense(n * np.eye(n, dtype=narrow) - np.ones((n, n), dtype=narrow))


def _needed(shape: Sequence[int], traces: Array | Mapping[Axes, float]) -> dict[Axes, float]:
    needed = positive_traces(len(shape), traces)
    return {s: tau for s, tau in needed.items() if all(shape[i] > 1 for i in s)}


def _subsets(axes: Axes) -> Iterable[Axes]:
    return (s for k in range(len(axes) + 1) for s in combinations(axes, k))


def _sizes(shape: Sequence[int], spaces: Sequence[Axes]) -> Array:
    """m_S for every S."""
    sizes = np.ones(len(spaces))
    less = np.array(shape, dtype=float) - 1
    for rows, axes in by_length(spaces):
        sizes[rows] = np.prod(less[axes], axis=1)
    return sizes


def _blocks(
    shape: Sequence[int], spaces: Sequence[Axes], information: Array
) -> list[tuple[Axes, float]]:
    """w_S ∝ λ_S / e_S, the largest of them one."""
    eigenvalues = np.ones(len(spaces))  # e_S / Π nᵢ
    for rows, axes in by_length(spaces):
        eigenvalues[rows] = np.prod(np.array(shape, dtype=float)[axes], axis=1)
    weights = information / eigenvalues
    return list(zip(spaces, (weights / weights.max()).tolist(), strict=True))
