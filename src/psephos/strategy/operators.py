"""The operators of HDMM behind one signature: a problem and a generator in, a strategy out.

Each says whether it fits a problem and how many of the starts asked for it can use.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.random import Generator

from psephos.infer.line import LineQueries
from psephos.matrix import Kron, Matrix, Partition
from psephos.strategy import build
from psephos.strategy.factors import GaussianFactor, Noise, PureFactor, identity_factor
from psephos.strategy.gaussian import optimise_gaussian
from psephos.strategy.opt0 import opt0
from psephos.strategy.opt_marginals import opt_marginals
from psephos.strategy.opt_product import opt_product
from psephos.strategy.opt_union import opt_union
from psephos.strategy.residual import residual_blocks
from psephos.strategy.strategy import Strategy
from psephos.strategy.terms import Terms
from psephos.strategy.tied import optimise_tied
from psephos.strategy.tree_factor import TreeFactor
from psephos.workload.reduce import Reduction
from psephos.workload.workload import Workload

ANSWERS = 10**9
"""Strategies with more answers than this are not considered."""
WHOLE_DOMAIN = {"laplace": 20_000, "gaussian": 1024}
"""The most (merged) cells on which OPT_0 searches a whole domain of several attributes."""
LONG_AXIS = 4096
"""Attributes with more cells than this are served by trees as well."""
MANY_ATTRIBUTES = 20


@dataclass(frozen=True, eq=False)
class Problem:
    """A workload, merged as far as it is lossless, and the noise to come."""

    workload: Workload
    noise: Noise
    reduction: Reduction

    @classmethod
    def of(cls, workload: Workload, noise: Noise) -> Problem:
        return cls(workload, noise, workload.compact().reduce())

    @cached_property
    def terms(self) -> Terms:
        return Terms.of(self.reduction.workload)

    @property
    def merged(self) -> tuple[Matrix, ...]:
        """The partition of each attribute."""
        partition = self.reduction.partition
        return partition.factors if isinstance(partition, Kron) else (partition,)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.reduction.domain.shape

    @property
    def cells(self) -> int:
        return math.prod(self.shape)

    @property
    def busy(self) -> int:
        """Attributes that the workload asks about at all."""
        return sum(n > 1 for n in self.shape)

    @cached_property
    def flat(self) -> Reduction | None:
        """Merged over the whole domain, where that is small."""
        if self.busy < 2 or self.cells > 10 * WHOLE_DOMAIN[self.noise]:
            return None
        made = self.reduction.workload.reduce_cells()
        return made if made.domain.size <= WHOLE_DOMAIN[self.noise] else None


@dataclass(frozen=True)
class Operator:
    """A search: its fixed number feeds the seed, so operators never share random numbers."""

    number: int
    name: str
    search: Callable[[Problem, Generator, float | None], Strategy | None]
    fits: Callable[[Problem], bool]
    starts: Callable[[int], int] = lambda restarts: restarts


def applicable(problem: Problem) -> list[Operator]:
    """The operators that fit, the quick ones first."""
    return [operator for operator in OPERATORS if operator.fits(problem)]


def _product(problem: Problem, rng: Generator, deadline: float | None) -> Strategy:
    found = opt_product(problem.terms, problem.noise, rng=rng, restarts=1, deadline=deadline)
    return build.product_strategy(
        problem.workload.domain, problem.noise, problem.terms, found.factors, problem.merged,
        "OPT_⊗",
    )  # fmt: skip


def _whole(problem: Problem, rng: Generator, deadline: float | None) -> Strategy | None:
    flat = problem.flat
    if flat is None:
        return None
    terms = Terms.of(flat.workload)
    gram = terms.gram(0, terms.coefficients)
    grid = problem.shape if flat.domain.size == problem.cells else None
    if problem.noise == "gaussian":
        dense = gram.times(np.eye(gram.n))
        root = optimise_gaussian(dense, deadline=deadline).factor
        factor: PureFactor | GaussianFactor = GaussianFactor(root)
    else:
        found = opt0(gram, rng=rng, restarts=1, deadline=deadline, grid=grid)
        factor = PureFactor(found.theta)
    return build.whole_strategy(
        problem.workload.domain, problem.noise, terms, factor,
        _together(flat.partition, problem.reduction.partition), "OPT_0 on all cells",
    )  # fmt: skip


def _together(flat: Matrix, merged: Matrix) -> Matrix:
    """One partition for two in turn: where each cell of the domain ends up."""
    return Partition(merged.rmatvec(flat.rmatvec(np.arange(flat.shape[0]))))


def _union(problem: Problem, rng: Generator, deadline: float | None) -> Strategy | None:
    workload = problem.workload.compact()
    found = opt_union(workload, problem.noise, rng=rng, restarts=1, deadline=deadline)
    if found is None:
        return None
    parts = [(part.factors, part.merged) for part in found.parts]
    made = build.union_strategy(workload.domain, problem.noise, parts, found.weights, "OPT_+")
    if not found.exact or not made.error_is_exact:
        return made
    loss = math.sqrt(made.expected_error(workload) / found.error) - 1
    return replace(made, rounding_loss=loss)


def _marginals(problem: Problem, rng: Generator, deadline: float | None) -> Strategy:
    few = len(problem.shape) <= MANY_ATTRIBUTES
    small = problem.reduction.workload
    traces = small.subset_traces() if few else small.closure_traces()
    found = opt_marginals(problem.shape, traces, rng=rng, restarts=25, deadline=deadline)
    return build.marginals_strategy(
        problem.workload.domain, problem.noise, found.sets, found.weights, problem.merged, "OPT_M"
    )


def _residual(problem: Problem, rng: Generator, deadline: float | None) -> Strategy:
    few = len(problem.shape) <= MANY_ATTRIBUTES
    small = problem.reduction.workload
    traces = small.subset_traces() if few else small.closure_traces()
    pairs = residual_blocks(problem.shape, traces)
    return build.residual_strategy(
        problem.workload.domain, [axes for axes, _ in pairs], np.array([w for _, w in pairs]),
        problem.merged, "residual",
    )  # fmt: skip


def _tied(problem: Problem, rng: Generator, deadline: float | None) -> Strategy | None:
    """A tree on the one attribute that is asked about, the others being summed over."""
    (axis,) = (i for i, n in enumerate(problem.shape) if n > 1)
    line = LineQueries.combined(
        zip(problem.terms.coefficients, problem.terms.axis(axis), strict=True)
    )
    if line is None:  # queries that a tree has no closed form for
        return None
    n = problem.shape[axis]
    found = optimise_tied(line, n, noise=problem.noise, rng=rng, deadline=deadline)
    factors = [TreeFactor(found) if m > 1 else identity_factor(1) for m in problem.shape]
    return build.product_strategy(
        problem.workload.domain, problem.noise, problem.terms, factors, problem.merged, "tied tree"
    )


def _once(restarts: int) -> int:
    return 1


OPERATORS = [
    Operator(4, "OPT_M", _marginals, lambda p: p.noise == "laplace" and p.busy > 1, starts=_once),
    Operator(5, "residual", _residual, lambda p: p.noise == "gaussian", starts=_once),
    Operator(6, "tied tree", _tied, lambda p: p.busy == 1 and p.cells > LONG_AXIS, starts=_once),
    Operator(1, "OPT_⊗", _product, lambda p: p.cells <= ANSWERS),
    Operator(2, "OPT_+", _union, lambda p: len(p.terms.coefficients) > 1 and p.cells <= ANSWERS),
    Operator(3, "OPT_0 on all cells", _whole, lambda p: p.flat is not None),
]
