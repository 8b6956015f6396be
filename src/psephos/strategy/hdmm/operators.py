"""The operators of HDMM behind one signature: a problem and a generator in, a strategy out.

Each says whether it fits a problem, how many of the starts asked for it can use, and about how long
a start takes. That is counted from the sizes of the problem, not measured, so that a search is cut
at the same place on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.random import Generator

from psephos.domain.domain import Domain
from psephos.inverse.range_gram import LineQueries
from psephos.matrix import Identity, Kron, Matrix, Ones, Partition, Stack, is_total, total
from psephos.matrix.columns import is_zero
from psephos.matrix.marginals import Axes
from psephos.strategy import build
from psephos.strategy.deadline import Deadline
from psephos.strategy.factors import Factor, GaussianFactor, PureFactor, identity_factor
from psephos.strategy.gram_terms import ARRAY_AXIS, GramTerms, is_identity, picked
from psephos.strategy.hdmm.gaussian import optimise_gaussian
from psephos.strategy.hdmm.level_axes import AxisOption
from psephos.strategy.hdmm.levels import opt_levels
from psephos.strategy.hdmm.marginals import opt_marginals
from psephos.strategy.hdmm.opt0 import DESCENT_STEPS, GRID_ROWS, LONG_LINE, opt0, rows_for
from psephos.strategy.hdmm.product import LONGEST_AXIS, opt_product
from psephos.strategy.hdmm.range_tree import TreeFactor, optimise_range_tree
from psephos.strategy.hdmm.residual import residual_blocks
from psephos.strategy.hdmm.residual_bases import LONGEST_BASIS, is_by_value, opt_residual_bases
from psephos.strategy.hdmm.union import PAIR_SEARCH_CELLS, opt_union
from psephos.strategy.strategy import Strategy
from psephos.values import Array
from psephos.variances import NoiseKind
from psephos.workload.product import Product
from psephos.workload.workload import Moments, Reduction, Workload

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
LATTICE_ATTRIBUTES, MANY_ATTRIBUTES = 12, 20
"""Up to the first all sets of attributes are listed; beyond the second never, nor products joined.
Between them it depends on how many sets the products ask about."""
FEW_PRODUCTS = 4
"""Up to this many marginals unions over levels look at them, too."""
UNION_ATTRIBUTES = 12
"""The most attributes for which unions are formed; marginals serve more."""
DESCENT_STEP_SECONDS = 2e-4
DESCENT_FLOP_SECONDS = 6e-11
"""Of a step of a descent, and of an operation inside of a matrix product."""
MANY_TABLES_PROMISE = 50.0
"""Unions over levels come before a single product, whose search is predicted 6 times as short."""
QUICK_TABLE = 1000
"""Tables of so many values and totals of them take no time to speak of."""
FACTOR_SECONDS = 5e-5
"""Of one factor of one product, when a Gram over all cells is multiplied."""


@dataclass(frozen=True, eq=False)
class SelectionProblem:
    """A workload, merged as far as it is lossless, and the noise to come."""

    workload: Workload
    noise: NoiseKind
    reduction: Reduction
    scaled: Workload
    """The workload with weights from `FAINT_WEIGHT` to two; only the ratios of weights matter."""
    scale: float = 1.0
    """What the weights were divided by."""

    @classmethod
    def of(cls, workload: Workload, noise: NoiseKind) -> SelectionProblem:
        count = workload.factor_products(lambda factor: 0.0 if is_zero(factor) else 1.0)
        products = [product for product, n in zip(workload.products, count, strict=True) if n]
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
        return cls(workload, noise, fewer.reduce(), scaled, scale)

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
        """The merged workload over the attributes that are asked about at all."""
        return self._active(self.reduction.workload)

    @cached_property
    def level_terms(self) -> GramTerms:
        """The same with products as they were asked, so that levels of a hierarchy can be seen."""
        return GramTerms.of(self._active(self.scaled.reduce().workload))

    def _active(self, small: Workload) -> Workload:
        """On an attribute of one cell queries are numbers; they go into the product's weight."""
        names = [name for name, n in zip(small.domain.names, self.shape, strict=True) if n > 1]
        products = []
        for i, product in enumerate(small.products):
            pairs = zip(small.factors(i), self.shape, strict=True)
            scale = math.prod(float(w.gram().trace()) for w, n in pairs if n == 1)
            items = tuple((name, queries) for name, queries in product.items if name in names)
            products.append(Product(items, product.weight * math.sqrt(scale), product.title))
        return Workload(Domain(tuple(names), tuple(small.domain[n] for n in names)), products)

    @cached_property
    def all_marginals(self) -> bool:
        """Is every product a table of some attributes by their values?"""
        return all(is_identity(w) or is_total(w) for each in self.terms.factors for w in each)

    @cached_property
    def only_marginals(self) -> bool:
        """The same of the products as they were asked, before some were joined."""
        pieces = (piece for each in self.level_terms.factors for w in each for piece in _pieces(w))
        return all(is_identity(piece) or is_total(piece) for piece in pieces)

    @property
    def _has_unseen_values(self) -> bool:
        """Does some product see nothing of some value?

        Otherwise it tells two cells apart wherever one of its factors tells their values apart.
        """
        small = self.reduction.workload
        factors = (w for i in range(len(small.products)) for w in small.factors(i))
        return not all(w.column_norms(1).all() for w in factors)

    @cached_property
    def flat(self) -> Reduction | None:
        """Merged over the whole domain, where that is small and not all is marginals."""
        large = self.cells > 10 * WHOLE_DOMAIN[self.noise] or self.workload.domain.size > 10**8
        if self.active_attributes < 2 or large or self.all_marginals:
            return None
        if self.cells > WHOLE_DOMAIN[self.noise] and not self._has_unseen_values:
            return None  # merged values are all that merges
        reduction = self.reduction.workload.reduce_cells()
        return reduction if reduction.domain.size <= WHOLE_DOMAIN[self.noise] else None


@dataclass(frozen=True)
class Candidate:
    """A strategy, and a bound of its error where it is not known in closed form."""

    strategy: Strategy
    bound: float | None = None


@dataclass(frozen=True)
class Operator:
    """A search: its fixed number feeds the seed, so operators never share random numbers."""

    number: int
    name: str
    search: Callable[[SelectionProblem, Generator, Deadline], Iterator[Candidate]]
    """One start: candidates as they are found, the best last; none if there are none."""
    fits: Callable[[SelectionProblem], bool]
    seconds: Callable[[SelectionProblem], float]
    """About how long one start takes on an ordinary core."""
    starts: Callable[[SelectionProblem, int], int] = lambda problem, restarts: restarts
    always: Callable[[SelectionProblem], bool] = lambda problem: False
    """Does it get a start however long that takes?"""
    promise: Callable[[SelectionProblem], float] = lambda problem: 1.0
    """How much it is expected to gain, beside others: what gains most in a second comes first."""


def applicable(problem: SelectionProblem) -> list[Operator]:
    """The operators that fit, the quick ones first."""
    return [operator for operator in HDMM_OPERATORS if operator.fits(problem)]


def _product(problem: SelectionProblem, rng: Generator, deadline: Deadline) -> Iterator[Candidate]:
    product = opt_product(
        problem.terms, problem.noise, rng=rng, restarts=1, deadline=deadline, trees=True
    )
    strategy = build.product_strategy(
        problem.workload.domain, problem.noise, problem.terms, product.factors, problem.merged,
        "OPT_⊗",
    )  # fmt: skip
    yield Candidate(strategy)


def _whole(problem: SelectionProblem, rng: Generator, deadline: Deadline) -> Iterator[Candidate]:
    flat = problem.flat
    if flat is None:
        return
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
    strategy = build.whole_strategy(
        problem.workload.domain, problem.noise, _flattened(problem, terms), factor, merged, name
    )
    yield Candidate(strategy)


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


def _union(problem: SelectionProblem, rng: Generator, deadline: Deadline) -> Iterator[Candidate]:
    union = opt_union(
        problem.active_workload, problem.noise, rng=rng, restarts=1, deadline=deadline
    )
    if union is None:
        return
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
    yield _with_loss(problem, strategy, union.error, exact=union.exact)


def _levels(problem: SelectionProblem, rng: Generator, deadline: Deadline) -> Iterator[Candidate]:
    for union in opt_levels(problem.level_terms, problem.noise, rng=rng, deadline=deadline):
        parts = [_over_all_attributes(problem, part) for part in union.parts]
        strategy = build.union_strategy(
            problem.workload.domain, problem.noise, parts, union.shares, "OPT_+"
        )
        yield _with_loss(problem, strategy, union.error)


def _over_all_attributes(
    problem: SelectionProblem, part: Sequence[AxisOption]
) -> tuple[list[Factor], list[Matrix]]:
    """The factors and partitions of a part, with the attributes that nothing is asked about."""
    options = iter(part)
    factors, merged = [], []
    for n, partition in zip(problem.shape, problem.merged, strict=True):
        if n > 1:
            option = next(options)
            factors.append(option.factor)
            merged.append(_together(_grouping(option.groups), partition))
        else:
            factors.append(identity_factor(1))
            merged.append(partition)
    return factors, merged


def _with_loss(
    problem: SelectionProblem, strategy: Strategy, error: float, *, exact: bool = True
) -> Candidate:
    """A union with what rounding cost it; where that is unknown, its real-valued error as a bound.

    Rounding moves the error by less than a thousandth.
    """
    if not exact or not strategy.error_is_exact:
        return Candidate(strategy, 1.001 * error * problem.scale**2)
    loss = math.sqrt(strategy.expected_error(problem.scaled) / error) - 1
    return Candidate(replace(strategy, rounding_loss=loss))


def _grouping(groups: Array) -> Matrix:
    count = int(groups.max()) + 1
    if count == groups.size:
        return Identity(count)
    return total(groups.size) if count == 1 else Partition(groups)


def _traces(problem: SelectionProblem, moments: Moments | None = None) -> Array | dict[Axes, float]:
    """One number for each set of attributes, or for those inside of what products ask if fewer."""
    small, d = problem.reduction.workload, len(problem.shape)
    inside = sum(1 << len(product.items) for product in small.products)
    if d <= LATTICE_ATTRIBUTES or (d <= MANY_ATTRIBUTES and 4 * inside > 1 << d):
        return small.subset_traces(moments)
    return small.closure_traces(moments)


def _marginals(
    problem: SelectionProblem, rng: Generator, deadline: Deadline
) -> Iterator[Candidate]:
    marginals = opt_marginals(
        problem.shape, _traces(problem), rng=rng, restarts=25, deadline=deadline
    )
    strategy = build.marginals_strategy(
        problem.workload.domain,
        problem.noise,
        marginals.sets,
        marginals.weights,
        problem.merged,
        "OPT_M",
    )
    yield Candidate(strategy)


def _residual(problem: SelectionProblem, rng: Generator, deadline: Deadline) -> Iterator[Candidate]:
    pairs = residual_blocks(problem.shape, _traces(problem))
    strategy = build.residual_strategy(
        problem.workload.domain, [axes for axes, _ in pairs], np.array([w for _, w in pairs]),
        problem.merged, "residual",
    )  # fmt: skip
    yield Candidate(strategy)
    if problem.all_marginals:
        return  # value by value is best
    blocks = opt_residual_bases(
        problem.reduction.workload, partial(_traces, problem), build.room(), deadline
    )
    if blocks is not None:
        strategy = build.residual_strategy(
            problem.workload.domain, blocks.sets, blocks.weights, problem.merged,
            "residual bases", blocks.matrices, blocks.rounding_loss,
        )  # fmt: skip
        yield Candidate(strategy)


def _tree(problem: SelectionProblem, rng: Generator, deadline: Deadline) -> Iterator[Candidate]:
    """A tree on the one attribute that is asked about, the others being summed over."""
    (axis,) = (i for i, n in enumerate(problem.shape) if n > 1)
    line = LineQueries.of_terms(
        zip(problem.terms.coefficients, problem.terms.axis(axis), strict=True)
    )
    if line is None:  # queries that a tree has no closed form for
        return
    n = problem.shape[axis]
    tree = optimise_range_tree(line, n, noise=problem.noise, rng=rng, deadline=deadline)
    factors = [TreeFactor(tree) if m > 1 else identity_factor(1) for m in problem.shape]
    strategy = build.product_strategy(
        problem.workload.domain, problem.noise, problem.terms, factors, problem.merged, "tied tree"
    )
    yield Candidate(strategy)


def _once(problem: SelectionProblem, restarts: int) -> int:
    return 1


def _is_product(problem: SelectionProblem) -> bool:
    """A single product is a problem of one attribute after another, whatever their product."""
    return problem.cells <= MOST_ANSWERS or len(problem.reduction.workload.products) == 1


def _has_parts(problem: SelectionProblem) -> bool:
    """Are there products, or queries stacked in one, that could be measured apart?"""
    factors = problem.level_terms.factors
    return len(factors) > 1 or any(len(_pieces(w)) > 1 for w in factors[0])


def _is_settled(problem: SelectionProblem) -> bool:
    """Does one start of OPT_⊗ end where others would?

    Ranges and prefixes of long lines differ by 0.3 %.
    """
    if len(problem.reduction.workload.products) > 1:
        return False
    (factors,) = problem.terms.factors
    long = [LineQueries.of(w) is not None for w in factors if w.shape[1] > LONG_LINE]
    return bool(long) and all(long)


# ---- how long a start takes -----------------------------------------------------------------


def _descent_seconds(n: int, rows: int, steps: int) -> float:
    """One descent of OPT_0: two products with Θ and one with the Gram for each step."""
    flops = 10.0 * n * rows * rows + 2.0 * rows * n * min(n, ARRAY_AXIS)
    return steps * (DESCENT_STEP_SECONDS + DESCENT_FLOP_SECONDS * flops)


def _axes_seconds(problem: SelectionProblem) -> float:
    """One descent on every attribute that is not asked value by value."""
    longest = LONGEST_AXIS[problem.noise]
    lengths = [
        n
        for i, n in enumerate(problem.shape)
        if 1 < n <= longest and not _is_quick(n, problem.terms.axis(i))
    ]
    if problem.noise is NoiseKind.GAUSSIAN:
        return sum(20 * 10 * DESCENT_FLOP_SECONDS * float(n) ** 3 for n in lengths) + 0.01
    return sum(_descent_seconds(n, rows_for(n), DESCENT_STEPS) for n in lengths) + 0.01


def _is_quick(n: int, queries: Sequence[Matrix]) -> bool:
    """Is an attribute asked value by value, always alike or over few values?"""
    alike = len({id(w) for w in queries}) == 1 and not isinstance(queries[0], Stack)
    return all(map(_is_table, queries)) and (alike or n <= QUICK_TABLE)


def _is_table(queries: Matrix) -> bool:
    """Are values or groups of them counted one by one?"""
    return all(isinstance(piece, Identity | Partition | Ones) for piece in _pieces(queries))


def _pieces(queries: Matrix) -> tuple[Matrix, ...]:
    return queries.parts if isinstance(queries, Stack) else (queries,)


def _product_seconds(problem: SelectionProblem) -> float:
    several = len(problem.reduction.workload.products) > 1
    return _axes_seconds(problem) * (4 if several else 2)


def _union_seconds(problem: SelectionProblem) -> float:
    """A product for each group of a cut, then pairs inverted together.

    Unions over levels nearly always serve more than two products better, and OPT_M marginals, so
    these come late.
    """
    cells = float(problem.cells)
    pair = 6e-6 * cells if cells <= PAIR_SEARCH_CELLS else 0.0
    seconds = 6 * _product_seconds(problem) + min(pair, 60.0) + 1.0
    if problem.only_marginals:
        return 10 * seconds
    return seconds if len(problem.reduction.workload.products) <= 2 else 3 * seconds


def _level_seconds(problem: SelectionProblem) -> float:
    return 25 * _axes_seconds(problem) + 2.0


def _whole_seconds(problem: SelectionProblem) -> float:
    flat = problem.flat
    if flat is None:
        return 0.0
    n = flat.domain.size
    if problem.noise is NoiseKind.GAUSSIAN:
        return 20 * 10 * DESCENT_FLOP_SECONDS * float(n) ** 3
    rows = min(rows_for(n), max(16, n // 32), GRID_ROWS)
    length = sum(problem.shape) if n == problem.cells else n
    flops = 10.0 * n * rows**2 + 2.0 * rows * n * length
    calls = len(problem.reduction.workload.products) * problem.active_attributes
    step = DESCENT_STEP_SECONDS + DESCENT_FLOP_SECONDS * flops + FACTOR_SECONDS * calls
    return 2 * DESCENT_STEPS * step


def _marginal_seconds(problem: SelectionProblem) -> float:
    return 0.2 + 1e-4 * min(2.0 ** min(len(problem.shape), 64), 1e5)


def _residual_seconds(problem: SelectionProblem) -> float:
    """With a basis for every attribute that is not asked value by value."""
    if problem.all_marginals:
        return _marginal_seconds(problem)
    lengths = [
        n
        for n, queries in zip(
            problem.shape, problem.reduction.workload.different_factors(), strict=True
        )
        if n <= LONGEST_BASIS and not all(map(is_by_value, queries))
    ]
    return _marginal_seconds(problem) + sum(
        20 * 10 * DESCENT_FLOP_SECONDS * float(n) ** 3 for n in lengths
    )


HDMM_OPERATORS = [
    Operator(
        4,
        "OPT_M",
        _marginals,
        lambda p: p.noise is NoiseKind.LAPLACE and p.active_attributes > 1,
        _marginal_seconds,
        starts=_once,
        always=lambda p: True,
    ),
    Operator(
        5,
        "residual",
        _residual,
        lambda p: p.noise is NoiseKind.GAUSSIAN and max(p.shape) <= RESIDUAL_AXIS,
        _residual_seconds,
        starts=_once,
        always=lambda p: True,
    ),
    Operator(
        6,
        "tied tree",
        _tree,
        lambda p: p.active_attributes == 1 and p.cells > LONG_AXIS,
        lambda p: 1.0,
        starts=_once,
    ),
    Operator(
        7,
        "OPT_+",
        _levels,
        # Many marginals and nothing else are what OPT_M looks at.
        lambda p: (
            1 <= p.active_attributes <= UNION_ATTRIBUTES
            and _has_parts(p)
            and (not p.only_marginals or len(p.reduction.workload.products) <= FEW_PRODUCTS)
        ),
        _level_seconds,
        always=lambda p: True,
        # Many tables are rarely served by one product.
        promise=lambda p: MANY_TABLES_PROMISE if len(p.reduction.workload.products) > 2 else 1.0,
    ),
    Operator(
        1,
        "OPT_⊗",
        _product,
        _is_product,
        _product_seconds,
        starts=lambda problem, restarts: 1 if _is_settled(problem) else restarts,
        # Of marginals alone OPT_M knows more, and sooner where attributes are long.
        always=lambda p: not p.only_marginals,
    ),
    Operator(
        2,
        "OPT_+",
        _union,
        lambda p: (
            len(p.reduction.workload.products) > 1
            and p.cells <= MOST_ANSWERS
            and 1 <= p.active_attributes <= UNION_ATTRIBUTES
        ),
        _union_seconds,
    ),
    Operator(3, "OPT_0 on all cells", _whole, lambda p: p.flat is not None, _whole_seconds),
]
