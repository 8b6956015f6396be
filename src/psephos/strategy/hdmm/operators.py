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

from psephos.domain.domain import Domain
from psephos.inverse.range_gram import LineQueries
from psephos.kernel.budget import NoiseKind
from psephos.matrix import Identity, Kron, Matrix, Partition, is_total
from psephos.matrix.columns import is_zero
from psephos.strategy import build
from psephos.strategy.factors import GaussianFactor, PureFactor, identity_factor
from psephos.strategy.gram_terms import GramTerms, is_identity, picked
from psephos.strategy.hdmm.gaussian import optimise_gaussian
from psephos.strategy.hdmm.marginals import opt_marginals
from psephos.strategy.hdmm.opt0 import LONG_LINE, opt0
from psephos.strategy.hdmm.product import opt_product
from psephos.strategy.hdmm.range_tree import TreeFactor, optimise_range_tree
from psephos.strategy.hdmm.residual import residual_blocks
from psephos.strategy.hdmm.union import opt_union
from psephos.strategy.strategy import Strategy
from psephos.workload.product import Product
from psephos.workload.workload import Reduction, Workload

MOST_ANSWERS = 10**9
"""Strategies with more answers than this are not considered."""
WHOLE_DOMAIN = {NoiseKind.LAPLACE: 20_000, NoiseKind.GAUSSIAN: 1024}
"""The most (merged) cells on which OPT_0 searches a whole domain of several attributes."""
LONG_AXIS = 4096
"""Attributes with more cells than this are served by trees as well."""
RESIDUAL_AXIS = 10_000
"""The most cells of an attribute whose residual nI - 11ᵀ is written out (a gigabyte)."""
FAINT_WEIGHT = 1e-6
"""A product with less weight than this, beside the largest, is searched for as if it had so much:
it takes a millionth of the budget or less, and its queries stay determined."""
MANY_ATTRIBUTES = 20
"""Beyond this many attributes products are not joined, nor all sets of attributes listed."""
UNION_ATTRIBUTES = 12
"""The most attributes for which unions are formed; marginals serve more."""


@dataclass(frozen=True, eq=False)
class SelectionProblem:
    """A workload, merged as far as it is lossless, and the noise to come."""

    workload: Workload
    noise: NoiseKind
    reduction: Reduction
    scaled: Workload
    """The workload with weights from `FAINT_WEIGHT` to two; only the ratios of weights matter."""

    @classmethod
    def of(cls, workload: Workload, noise: NoiseKind) -> SelectionProblem:
        products = [
            product
            for i, product in enumerate(workload.products)
            if not any(is_zero(factor) for factor in workload.factors(i))
        ]
        # By a power of two, so that nothing is rounded.
        scale = 2.0 ** math.floor(math.log2(max(product.weight for product in products)))
        scaled = workload
        if (
            len(products) < len(workload.products)
            or scale != 1
            or any(w.weight < FAINT_WEIGHT for w in products)
        ):
            even = [
                replace(product, weight=max(product.weight / scale, FAINT_WEIGHT))
                for product in products
            ]
            scaled = Workload(workload.domain, even)
        named = {name for product in products for name, _ in product.items}
        # Fewer products help where they are formed; over many attributes marginals are.
        fewer = scaled.compact() if len(named) <= MANY_ATTRIBUTES else scaled
        return cls(workload, noise, fewer.reduce(), scaled)

    @cached_property
    def terms(self) -> GramTerms:
        return GramTerms.of(self.reduction.workload)

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
    def active_attributes(self) -> int:
        """Attributes that the workload asks about at all."""
        return sum(n > 1 for n in self.shape)

    @cached_property
    def active_workload(self) -> Workload:
        """The merged workload over the attributes that are asked about at all.

        On an attribute of one cell queries are numbers; they go into the product's weight.
        """
        small = self.reduction.workload
        names = [name for name, n in zip(small.domain.names, self.shape, strict=True) if n > 1]
        products = []
        for i, product in enumerate(small.products):
            pairs = zip(small.factors(i), self.shape, strict=True)
            scale = math.prod(float(w.gram().trace()) for w, n in pairs if n == 1)
            items = tuple((name, queries) for name, queries in product.items if name in names)
            products.append(Product(items, product.weight * math.sqrt(scale), product.title))
        return Workload(Domain(tuple(names), tuple(small.domain[n] for n in names)), products)

    @cached_property
    def flat(self) -> Reduction | None:
        """Merged over the whole domain, where that is small and not all is marginals."""
        large = self.cells > 10 * WHOLE_DOMAIN[self.noise] or self.workload.domain.size > 10**8
        tables = all(is_identity(w) or is_total(w) for each in self.terms.factors for w in each)
        if self.active_attributes < 2 or large or tables:
            return None
        reduction = self.reduction.workload.reduce_cells()
        return reduction if reduction.domain.size <= WHOLE_DOMAIN[self.noise] else None


@dataclass(frozen=True)
class Operator:
    """A search: its fixed number feeds the seed, so operators never share random numbers."""

    number: int
    name: str
    search: Callable[[SelectionProblem, Generator, float | None], Strategy | None]
    fits: Callable[[SelectionProblem], bool]
    starts: Callable[[int], int] = lambda restarts: restarts


def applicable(problem: SelectionProblem) -> list[Operator]:
    """The operators that fit, the quick ones first."""
    return [operator for operator in HDMM_OPERATORS if operator.fits(problem)]


def _product(problem: SelectionProblem, rng: Generator, deadline: float | None) -> Strategy:
    product = opt_product(
        problem.terms, problem.noise, rng=rng, restarts=1, deadline=deadline, trees=True
    )
    return build.product_strategy(
        problem.workload.domain, problem.noise, problem.terms, product.factors, problem.merged,
        "OPT_⊗",
    )  # fmt: skip


def _whole(problem: SelectionProblem, rng: Generator, deadline: float | None) -> Strategy | None:
    flat = problem.flat
    if flat is None:
        return None
    terms = GramTerms.of(flat.workload)
    first = np.unique(flat.partition.rmatvec(np.arange(flat.domain.size)), return_index=True)[1]
    gram = picked(problem.terms.whole(), first)
    grid = problem.shape if flat.domain.size == problem.cells else None
    if problem.noise is NoiseKind.GAUSSIAN:
        dense = gram.times(np.eye(gram.n))
        root = optimise_gaussian(dense, deadline=deadline).factor
        factor: PureFactor | GaussianFactor = GaussianFactor(root)
    else:
        solution = opt0(gram, rng=rng, restarts=1, deadline=deadline, grid=grid)
        factor = PureFactor(solution.theta)
    merged = _together(flat.partition, problem.reduction.partition)
    name = "OPT_0 on all cells"
    return build.whole_strategy(
        problem.workload.domain, problem.noise, _flattened(problem, terms), factor, merged, name
    )


def _flattened(problem: SelectionProblem, flat: GramTerms) -> GramTerms:
    """The terms over all cells: as products, whose Grams are quick, if none were merged."""
    if flat.size < problem.cells:
        return flat
    whole = tuple((Kron(factors),) for factors in problem.terms.factors)
    return GramTerms((problem.cells,), problem.terms.coefficients, whole)


def _together(flat: Matrix, merged: Matrix) -> Matrix:
    """One partition for two in turn: where each cell of the domain ends up."""
    groups = merged.rmatvec(flat.rmatvec(np.arange(flat.shape[0])))
    return Identity(groups.size) if flat.shape[0] == groups.size else Partition(groups)


def _union(problem: SelectionProblem, rng: Generator, deadline: float | None) -> Strategy | None:
    union = opt_union(
        problem.active_workload, problem.noise, rng=rng, restarts=1, deadline=deadline
    )
    if union is None:
        return None
    parts = []
    for part in union.parts:
        factors, merged = iter(part.factors), iter(part.merged)
        pairs = [
            (next(factors), _together(next(merged), partition))
            if n > 1
            else (identity_factor(1), partition)
            for n, partition in zip(problem.shape, problem.merged, strict=True)
        ]
        parts.append(([factor for factor, _ in pairs], [partition for _, partition in pairs]))
    strategy = build.union_strategy(
        problem.workload.domain, problem.noise, parts, union.weights, "OPT_+"
    )
    if not union.exact or not strategy.error_is_exact:
        return strategy
    loss = math.sqrt(strategy.expected_error(problem.scaled) / union.error) - 1
    return replace(strategy, rounding_loss=loss)


def _marginals(problem: SelectionProblem, rng: Generator, deadline: float | None) -> Strategy:
    few = len(problem.shape) <= MANY_ATTRIBUTES
    small = problem.reduction.workload
    traces = small.subset_traces() if few else small.closure_traces()
    marginals = opt_marginals(problem.shape, traces, rng=rng, restarts=25, deadline=deadline)
    return build.marginals_strategy(
        problem.workload.domain,
        problem.noise,
        marginals.sets,
        marginals.weights,
        problem.merged,
        "OPT_M",
    )


def _residual(problem: SelectionProblem, rng: Generator, deadline: float | None) -> Strategy:
    few = len(problem.shape) <= MANY_ATTRIBUTES
    small = problem.reduction.workload
    traces = small.subset_traces() if few else small.closure_traces()
    pairs = residual_blocks(problem.shape, traces)
    return build.residual_strategy(
        problem.workload.domain, [axes for axes, _ in pairs], np.array([w for _, w in pairs]),
        problem.merged, "residual",
    )  # fmt: skip


def _tree(problem: SelectionProblem, rng: Generator, deadline: float | None) -> Strategy | None:
    """A tree on the one attribute that is asked about, the others being summed over."""
    (axis,) = (i for i, n in enumerate(problem.shape) if n > 1)
    line = LineQueries.of_terms(
        zip(problem.terms.coefficients, problem.terms.axis(axis), strict=True)
    )
    if line is None:  # queries that a tree has no closed form for
        return None
    n = problem.shape[axis]
    tree = optimise_range_tree(line, n, noise=problem.noise, rng=rng, deadline=deadline)
    factors = [TreeFactor(tree) if m > 1 else identity_factor(1) for m in problem.shape]
    return build.product_strategy(
        problem.workload.domain, problem.noise, problem.terms, factors, problem.merged, "tied tree"
    )


def _once(restarts: int) -> int:
    return 1


def _is_product(problem: SelectionProblem) -> bool:
    """A single product is a problem of one attribute after another, whatever their product."""
    return problem.cells <= MOST_ANSWERS or len(problem.terms.coefficients) == 1


def _is_settled(problem: SelectionProblem) -> bool:
    """Does one start of OPT_⊗ end where others would?

    Under Gaussian noise a product is convex; ranges and prefixes of long lines differ by 0.3 %.
    """
    if len(problem.terms.coefficients) > 1:
        return False
    (factors,) = problem.terms.factors
    long = [LineQueries.of(w) is not None for w in factors if w.shape[1] > LONG_LINE]
    return problem.noise is NoiseKind.GAUSSIAN or (bool(long) and all(long))


HDMM_OPERATORS = [
    Operator(
        4,
        "OPT_M",
        _marginals,
        lambda p: p.noise is NoiseKind.LAPLACE and p.active_attributes > 1,
        starts=_once,
    ),
    Operator(
        5,
        "residual",
        _residual,
        lambda p: p.noise is NoiseKind.GAUSSIAN and max(p.shape) <= RESIDUAL_AXIS,
        starts=_once,
    ),
    Operator(
        6,
        "tied tree",
        _tree,
        lambda p: p.active_attributes == 1 and p.cells > LONG_AXIS,
        starts=_once,
    ),
    Operator(1, "OPT_⊗", _product, lambda p: _is_product(p) and not _is_settled(p)),
    Operator(1, "OPT_⊗", _product, lambda p: _is_product(p) and _is_settled(p), starts=_once),
    Operator(
        2,
        "OPT_+",
        _union,
        lambda p: (
            len(p.terms.coefficients) > 1
            and p.cells <= MOST_ANSWERS
            and 1 <= p.active_attributes <= UNION_ATTRIBUTES
        ),
    ),
    Operator(3, "OPT_0 on all cells", _whole, lambda p: p.flat is not None),
]
