"""Strategy, budgets, recovery: the mechanisms of Yaroslavtsev et al. (2013) for marginals.

Step 1 picks what is measured: all cells (I), the marginals asked (Q), one coefficient for each
combination of attributes (F), or a few marginals that contain all asked (C). Step 2 divides the
budget, evenly or as is best for the plain recovery (`budgets`): I, Q, Q⁺, F, F⁺, C, C⁺. Step 3
recovers the answers, each table from one measured marginal (plain) or by least squares (optimal).

Budgets are weights of blocks. Proposition 3.1 of the paper doubles them because it substitutes a
row; here the unit says so, and the noise of a block is that of the kernel. That optimal budgets
are never worse than even ones is a theorem for plain recovery (and for F, whose recovery is
unique), and usual but not certain for least squares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from psephos.errors import WorkloadError
from psephos.inverse.form import Form
from psephos.inverse.single_blocks import SingleBlocks
from psephos.kernel.query import Block, Query
from psephos.matrix import Dense, Identity, Kron, Matrix
from psephos.matrix.kron import AxisTotals, NamedFactors
from psephos.matrix.marginals import Axes
from psephos.strategy.datacube.budgets import group_weights
from psephos.strategy.datacube.cuboids import choose, requested_marginals
from psephos.strategy.factors import NoiseName, checked_selection
from psephos.strategy.hdmm.residual import residual_matrix
from psephos.strategy.strategy import Strategy
from psephos.variances import NoiseKind
from psephos.workload.product import rounded_weight
from psephos.workload.workload import Workload

StrategyLetter = Literal["I", "Q", "F", "C"]
Budgets = Literal["uniform", "optimal"]
Recovery = Literal["optimal", "plain"]


def datacube(
    workload: Workload,
    noise: NoiseName = "laplace",
    *,
    strategy: StrategyLetter = "C",
    budgets: Budgets = "uniform",
    recovery: Recovery = "optimal",
) -> Strategy:
    """Marginals by one of the mechanisms I, Q, F, C of Yaroslavtsev et al. (2013).

    The weights of the workload's products are the paper's a: a product of weight w has a = w². A
    table gets one budget, so weights of its single queries would count by their mean.
    `select.hdmm` searches among more and is usually better; this is to be compared with.

    Args:
        workload: of marginals alone: every value, or the total, of each attribute
        noise: "laplace" or "gaussian"
        strategy: all cells "I", the marginals asked "Q", coefficients "F", or a cover "C"
        budgets: "uniform", or "optimal" for the plain recovery: Q⁺, F⁺, C⁺
        recovery: whose error the strategy tells, "optimal" (least squares) or "plain". What is
            measured is the same; `infer.plain_recovery` answers so.

    >>> from psephos import Domain, marginals
    >>> W = marginals(Domain.of(a=2, b=2, c=2), of=[("a",), ("a", "b")])
    >>> def error(**choice):  # the summed variance times ε², as in the paper's introduction
    ...     return round(2 * datacube(W, **choice).expected_error(W), 2)
    >>> error(strategy="Q", recovery="plain"), error(strategy="Q"), error(strategy="C")
    (48.0, 32.0, 16.0)
    """
    kind = checked_selection(workload, noise)
    for word, choice, words in (
        ("strategy", strategy, ("I", "Q", "F", "C")),
        ("budgets", budgets, ("uniform", "optimal")),
        ("recovery", recovery, ("optimal", "plain")),
    ):
        if choice not in words:
            raise WorkloadError(f"{word} is one of {', '.join(words)}, got {choice!r}")
    requests = requested_marginals(workload)
    shape = workload.domain.shape
    if strategy == "F":
        groups = _coefficients(shape, requests, kind)
    else:
        groups = _marginals(shape, requests, _measured(strategy, shape, requests, kind))
    demands, sizes = (np.array([getattr(g, name) for g in groups]) for name in ("demand", "size"))
    weights = 1 / sizes if budgets == "uniform" else group_weights(demands, sizes, kind)
    totals = AxisTotals(shape)
    blocks = [
        Block(Kron(NamedFactors.of(totals, group.factors)), rounded_weight(float(weight)))
        for group, weight in zip(groups, weights / weights.max(), strict=True)
    ]
    name = f"datacube {strategy}{'⁺' if budgets == 'optimal' else ''}"
    if recovery == "plain" and strategy != "F":
        return PlainStrategy.trusted(workload.domain, kind, Query(tuple(blocks)), f"{name}, plain")
    return Strategy.trusted(workload.domain, kind, Query(tuple(blocks)), name)


@dataclass(frozen=True, eq=False, repr=False)
class PlainStrategy(Strategy):
    """Marginals of which every table is summed from one; errors are those of that recovery.

    What is measured is all that a file keeps: a strategy that is loaded tells the errors of least
    squares.
    """

    def _inverse(self, precisions: Sequence[float]) -> Form:
        blocks = [block.matrix for block in self.query.blocks]
        return SingleBlocks.of(self.domain.shape, blocks, precisions)


@dataclass(frozen=True, eq=False)
class _Group:
    """Strategy rows that get one budget: their factors, the demand s and the column size C."""

    factors: dict[int, Matrix]
    demand: float
    size: float


def _measured(
    strategy: str, shape: Sequence[int], requests: Mapping[Axes, float], noise: NoiseKind
) -> list[Axes]:
    """The marginals of I, Q or C."""
    if strategy == "I":
        return [tuple(i for i, n in enumerate(shape) if n > 1)]
    return list(requests) if strategy == "Q" else choose(shape, requests, noise.power)


def _marginals(
    shape: Sequence[int], requests: Mapping[Axes, float], measured: Sequence[Axes]
) -> list[_Group]:
    """Marginals as groups (C = 1); each table asked is summed from the smallest that contains it.

    Every cell of a marginal is in one sum of each table that comes from it: s = cells · Σ a.
    """
    cells = {axes: math.prod(float(shape[i]) for i in axes) for axes in measured}
    smallest = sorted(measured, key=cells.__getitem__)
    demands = dict.fromkeys(measured, 0.0)
    for axes, weight in requests.items():
        # A marginal that is measured itself is the smallest; others are looked for.
        source = axes if axes in demands else next(b for b in smallest if set(axes) <= set(b))
        demands[source] += weight * cells[source]
    identities = {n: Identity(n) for n in shape}
    return [
        _Group({i: identities[shape[i]] for i in axes}, demand, 1.0)
        for axes, demand in demands.items()
        if demand > 0
    ]


def _coefficients(
    shape: Sequence[int], requests: Mapping[Axes, float], noise: NoiseKind
) -> list[_Group]:
    """One group for each set S of attributes inside of a marginal asked.

    Binary attributes have the row [1, -1] of the Hadamard transform, whose entries are all of one
    size: C = 1, as in the paper without its factor 2^(-d/2). An attribute of n > 2 values has the n
    rows of nI - 11ᵀ, which span the n - 1 dimensions that sum to zero: with entries of different
    sizes they are no group of Definition 3.1, but all columns agree, which is what the closed form
    needs. The paper codes such attributes in bits instead; to do so, declare bits as attributes.
    """
    factors = {n: _contrast() if n == 2 else residual_matrix((n,), (0,)).factors[0] for n in shape}
    # Of an attribute in S: the column size, and tr (BᵀB)⁺, the noise of its cells by that inverse.
    sizes = {n: 1.0 if n == 2 else float((2 if noise.norm == 1 else n) * (n - 1)) for n in shape}
    inverse = {n: 0.5 if n == 2 else (n - 1) / n**2 for n in shape}
    demands: dict[Axes, float] = {}
    for axes, weight in requests.items():
        cells = math.prod(float(shape[i]) for i in axes)
        for k in range(len(axes) + 1):
            for s in combinations(axes, k):
                # The mean along the other attributes is spread over their cells: n · (1/n)².
                spread = math.prod([float(shape[i]) for i in s]) / cells
                demands[s] = demands.get(s, 0.0) + weight * spread
    return [
        _Group(
            {i: factors[shape[i]] for i in s},
            demand * math.prod([inverse[shape[i]] for i in s]),
            math.prod([sizes[shape[i]] for i in s]),
        )
        for s, demand in demands.items()
    ]


def _contrast() -> Matrix:
    """The row x₀ - x₁ of a binary attribute."""
    return Dense(np.array([[1, -1]], dtype=np.int8))
