"""What to measure of a tree of parts: one query for all of them, and a weight for each level.

Tables are asked of the parts of each level, over the cells of a part. One query A is measured of
every part of level ℓ with weight v_ℓ: its block j with v_ℓ w_j. A cell lies in one part of a level,
so Δ = (Σ v_ℓ) Δ(A), and level ℓ gets the share v_ℓ / Σ v of the budget: the precision of its
answers is u_ℓ = (v_ℓ / Σ v)² times what A alone would have under Laplace noise, u_ℓ = v_ℓ / Σ v
times under Gaussian noise. With H = Σ u_ℓ P_ℓᵀP_ℓ (`inverse.part_levels`), the squared error of all
tables W_ℓ is

    Σ_ℓ h_ℓ t_ℓ,    h_ℓ = tr(P_ℓ H⁻¹ P_ℓᵀ),    t_ℓ = ‖A‖² tr((AᵀA)⁺ W_ℓᵀW_ℓ).

For given weights that is the error of A on one workload, the W_ℓ with weights √h_ℓ, and HDMM finds
A; for a given A the t_ℓ are numbers, and the weights of a few levels are found by descent, for each
choice of levels that are left out under Laplace noise, where there are local minima (under Gaussian
noise the error is convex in v). The two take turns. If the same tables are asked of all levels, A
does not depend on the weights, and one turn is enough.

What is returned is never worse, in sum, than to measure the smallest parts alone, nor than equal
weights. Where that leaves a choice, no level has a larger error than if levels were published
apart, each by A and with the shares of the budget that are best for that, unless `trade` allows it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product as combinations_of

import numpy as np

from psephos.domain.domain import Domain
from psephos.domain.part_tree import PartTree
from psephos.errors import WorkloadError
from psephos.inverse.choice import form_of, precision
from psephos.inverse.form import Form
from psephos.inverse.part_levels import LevelFactors, LevelNoise, PartClasses
from psephos.kernel.budget import Budget
from psephos.kernel.parts.law import part_noise
from psephos.kernel.query import Query
from psephos.kernel.unit import Unit
from psephos.strategy.factors import NoiseName, checked_noise
from psephos.strategy.hdmm.search import EFFORT, hdmm
from psephos.strategy.strategy import Rival, Strategy
from psephos.values import Array, Value
from psephos.variances import NoiseKind
from psephos.workload.product import Product
from psephos.workload.workload import Workload

SHARES = 10_000
"""Weights of levels are whole numbers that add up to this."""
MOST_TURNS = 4
"""Searches for a query, each for the weights that the one before led to."""
LEAST_TURN_GAIN = 1e-3
"""A turn that lowers the error by a smaller share is the last."""
MOST_CHOICE_LEVELS = 6
"""With more levels above the smallest, each is left out by itself only."""
FAIR_STEPS = 30
"""Halvings between shares at which no level is worse than apart and those of least error."""

LevelWeights = tuple[Fraction, ...]


@dataclass(frozen=True, eq=False, repr=False)
class PartTables(Value):
    """For each level of a tree the tables asked of its parts; None where none are.

    Every number of every part counts, with the square of its table's weight.

    >>> from psephos import identity, product
    >>> tree = PartTree.of(Domain.of(county=["a", "b", "c"]), ["county"])
    >>> PartTables.same(tree, Workload(Domain.of(age=4), [product(age=identity())]))
    PartTables(all: 4 numbers, county: 3 x 4 numbers)
    """

    tree: PartTree
    workloads: tuple[Workload | None, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "workloads", tuple(self.workloads))
        levels = len(self.tree.names)
        if len(self.workloads) != levels:
            raise WorkloadError(
                f"{self.tree} has {levels} levels, got tables for {len(self.workloads)}; write "
                "None for a level without tables"
            )
        present = [each for each in self.workloads if each is not None]
        if not present:
            raise WorkloadError("no tables are asked of any level")
        for each in present:
            Workload.require(each, present[0].domain)

    @classmethod
    def same(cls, tree: PartTree, workload: Workload) -> PartTables:
        """The same tables of every level; each number counts alike, so small parts by far most."""
        return cls(tree, (workload,) * len(tree.names))

    @classmethod
    def levels_alike(cls, tree: PartTree, workload: Workload) -> PartTables:
        """The same tables of every level; each level counts as one part does."""
        return cls(tree, tuple(workload * (1 / math.sqrt(parts)) for parts in tree.sizes))

    @property
    def domain(self) -> Domain:
        """What the cells of a part are."""
        return next(each.domain for each in self.workloads if each is not None)

    @property
    def last(self) -> int:
        """The last level with tables; what lies below need not be told apart."""
        return max(level for level, each in enumerate(self.workloads) if each is not None)

    def weighted(self, factors: Sequence[float]) -> Workload:
        """All tables as one workload over the cells of a part, level ℓ with weight √h_ℓ.

        A table that is asked of several levels is there once, with the weight of all of them.
        """
        squares: dict[Product, float] = {}
        for each, h in zip(self.workloads, factors, strict=True):
            for item in each.products if each is not None else ():
                table = replace(item, weight=1.0, name="")
                squares[table] = squares.get(table, 0.0) + h * item.weight**2
        largest = max(squares.values())
        # LevelWeights that differ by rounding of floats alone make the same workload.
        weights = {table: float(f"{math.sqrt(w / largest):.6g}") for table, w in squares.items()}
        kept = [replace(table, weight=w) for table, w in weights.items() if w > 0]
        return Workload(self.domain, tuple(kept))

    def traces(self, strategy: Strategy) -> Array:
        """The weighted, budget-free error t_ℓ of one part's tables, for each level."""
        errors = [0.0 if w is None else strategy.expected_error(w) for w in self.workloads]
        return np.array(errors)

    @cached_property
    def classes(self) -> PartClasses:
        """The parts by what tells their errors apart."""
        return PartClasses.of([self.tree.parents(i) for i in range(1, len(self.tree.names))])

    def __repr__(self) -> str:
        words = []
        for name, parts, each in zip(self.tree.names, self.tree.sizes, self.workloads, strict=True):
            times = f"{parts:,} x " if parts > 1 else ""
            numbers = "nothing" if each is None else f"{times}{each.shape[0]:,} numbers"
            words.append(f"{name}: {numbers}")
        return f"PartTables({', '.join(words)})"


@dataclass(frozen=True, eq=False, repr=False)
class LevelPlan(Value):
    """One query for every part of the measured levels, and the weight of each level.

    Errors are exact for these integers and weights, and free of any budget, as those of a
    `Strategy` are: times 2/ε² or 1/(2ρ) they are variances of continuous noise.
    """

    tables: PartTables
    strategy: Strategy
    """Its query is measured of every part."""
    weights: LevelWeights
    """Of each level; 0 for a level that is not measured."""
    rivals: tuple[Rival, ...] = ()
    """Other weights for the same query, with their error."""

    @property
    def tree(self) -> PartTree:
        return self.tables.tree

    @property
    def query(self) -> Query:
        """What is measured of each part: block j on level ℓ has the weight v_ℓ w_j."""
        return self.strategy.query

    @property
    def noise(self) -> NoiseKind:
        return self.strategy.noise

    @property
    def shares(self) -> LevelWeights:
        """The share of the budget of each level."""
        return tuple(weight / sum(self.weights) for weight in self.weights)

    @cached_property
    def factors(self) -> LevelFactors:
        """The factors of every part beside a measurement of A with the whole budget."""
        return _factors(self.tables, [float(share) for share in self.shares], self.noise)

    @property
    def error(self) -> float:
        """The squared error of all tables, weighted as they are."""
        return float(sum(self.level_errors))

    @cached_property
    def level_errors(self) -> tuple[float, ...]:
        """The weighted squared error of each level's tables, of all its parts together."""
        return tuple(_level_errors(self.factors, self.tables.traces(self.strategy)).tolist())

    def table_errors(self, level: int) -> Array:
        """The squared error of each table of a level, summed over all its parts, unweighted."""
        workload = self._workload(level)
        return self.factors.trace(level) * self.strategy.product_errors(workload)

    def variance_factors(self, level: int) -> Array:
        """The factor g of each part of a level beside a measurement of A with the whole budget."""
        return self.factors.variances(level)

    def level_noise(self, budget: Budget, unit: Unit) -> LevelNoise:
        """The noise of each level and block that would be drawn for a budget."""
        laws = part_noise(self.query, self.weights, budget, unit, 1)
        return LevelNoise.of([[law.exact_variance for law in level] for level in laws])

    def form(self, noise: LevelNoise) -> Form:
        """(AᵀCA)⁺ within a part; times a part's factor it is the covariance of its estimate."""
        precisions = [precision(variance) for variance in noise.block_variances]
        blocks = [block.matrix for block in self.query.blocks]
        return form_of(blocks, precisions, self.tables.domain.shape)

    def table_rmse(self, level: int, budget: Budget, unit: Unit) -> Array:
        """The root mean squared error of each table of a level, for the noise that would be drawn.

        It is that of all numbers of all parts. Noise counts as `LevelNoise` takes it.
        """
        workload, noise = self._workload(level), self.level_noise(budget, unit)
        form = self.form(noise)
        workload.check_covered(form)
        mean = self.tables.classes.factors(noise.precisions).trace(level) / self.tree.sizes[level]
        squares = mean * form.traces(workload.listed) / np.array(workload.query_counts)
        return np.asarray(np.sqrt(squares))

    def _workload(self, level: int) -> Workload:
        workload = self.tables.workloads[level]
        if workload is None:
            raise WorkloadError(f"no tables are asked of the parts of {self.tree.names[level]!r}")
        return workload

    def __repr__(self) -> str:
        pairs = zip(self.tree.names, self.shares, strict=True)
        words = ", ".join(f"{name} {float(share):.1%}" for name, share in pairs)
        return f"LevelPlan({self.strategy.name}: {words}; {self.noise})"


def choose_levels(
    tables: PartTables,
    noise: NoiseName = "laplace",
    *,
    trade: bool = False,
    restarts: int = 25,
    seed: int = 0,
    time_limit: float | None = None,
    effort: float | None = EFFORT,
    search: Callable[[Workload], Strategy] | None = None,
) -> LevelPlan:
    """The query and the weights of levels with the least error for some tables.

    Args:
        tables: what is asked of the parts of each level
        noise: "laplace" (pure differential privacy) or "gaussian" (zCDP)
        trade: may a level be worse than if levels were published apart, for the good of the sum?
        restarts: of each search for a query, as for `hdmm`
        seed: as for `hdmm`
        time_limit: seconds of each search for a query
        effort: as for `hdmm`
        search: another way to find the query for a workload over the cells of a part

    >>> from psephos import identity, product
    >>> tree = PartTree.of(Domain.of(county=[str(i) for i in range(100)]), ["county"])
    >>> W = Workload(Domain.of(age=4), [product(age=identity())])
    >>> choose_levels(PartTables.same(tree, W), restarts=1)
    LevelPlan(identity: all 15.6%, county 84.4%; laplace)
    >>> choose_levels(PartTables.levels_alike(tree, W), restarts=1)
    LevelPlan(identity: all 49.8%, county 50.2%; laplace)
    """
    kind = checked_noise(noise)
    if search is None:

        def search(workload: Workload) -> Strategy:
            return hdmm(
                workload, kind, restarts=restarts, seed=seed, time_limit=time_limit, effort=effort
            )

    last = tables.last
    levels = len(tables.workloads)
    weights: LevelWeights = tuple(Fraction(int(level <= last)) for level in range(levels))
    before: Workload | None = None
    best: LevelPlan | None = None
    for _ in range(MOST_TURNS):
        factors = _factors(tables, [float(w / sum(weights)) for w in weights], kind)
        traces = [factors.trace(i) if i <= last else 0.0 for i in range(levels)]
        workload = tables.weighted(traces)
        if workload == before:
            break
        plan = _with_best_weights(tables, search(workload), trade=trade)
        if best is not None and plan.error > (1 - LEAST_TURN_GAIN) * best.error:
            best = min(best, plan, key=lambda each: each.error)
            break
        best, before, weights = plan, workload, plan.weights
    if best is None:
        raise WorkloadError("no tables are asked of any level")
    return best


def _with_best_weights(tables: PartTables, strategy: Strategy, *, trade: bool) -> LevelPlan:
    """The plan that measures a strategy's query with the best weights of levels."""
    traces, kind, last = tables.traces(strategy), strategy.noise, tables.last
    levels = len(traces)

    def errors(weights: Array) -> Array:
        shares = (weights / weights.sum()).tolist()
        return _level_errors(_factors(tables, shares, kind), traces)

    def error(weights: Array) -> float:
        return float(errors(weights).sum())

    alone = np.array([float(level == last) for level in range(levels)])
    equal = np.array([float(level <= last) for level in range(levels)])
    # Published apart, level ℓ has the error parts·t/u: least for v³ (Laplace) or v² in proportion.
    single = np.array(tables.tree.sizes) * traces
    split = single ** (1 / (1 + kind.power))
    split /= split.sum()
    apart = np.divide(single, split**kind.power, out=np.zeros(levels), where=split > 0)
    least = _descent(error, split, last, kind)
    weights = min(_rounded(least), alone, equal, key=error)
    if not trade:
        way = split + np.outer(_fair_steps(errors, split, least, apart), least - split)
        fair = [w for w in map(_rounded, way) if _is_fair(errors(w), apart)]
        if fair and min(map(error, fair)) <= min(error(alone), error(equal)):
            weights = min(fair, key=error)
    named = {"smallest parts alone": error(alone), "equal weights": error(equal)}
    rivals = [
        Rival(name, each) for name, each in (named | {"levels apart": float(apart.sum())}).items()
    ]
    exact_weights = tuple(Fraction(int(weight)) for weight in weights)
    return LevelPlan(tables, strategy, exact_weights, tuple(rivals))


def _factors(tables: PartTables, shares: Sequence[float], kind: NoiseKind) -> LevelFactors:
    return tables.classes.factors([share**kind.power for share in shares])


def _level_errors(factors: LevelFactors, traces: Array) -> Array:
    """The errors h_ℓ t_ℓ of all levels."""
    return np.array([t * factors.trace(level) if t else 0.0 for level, t in enumerate(traces)])


def _is_fair(errors: Array, apart: Array) -> bool:
    """Is no level worse than apart, but for rounding of floats?"""
    return bool((errors <= apart * (1 + 1e-9)).all())


def _fair_steps(
    errors: Callable[[Array], Array], split: Array, least: Array, apart: Array
) -> list[float]:
    """How far to go from `split` to the weights of least error; no level gets worse than apart.

    At `split` none is: each level is estimated from what it would be apart, and more beside it.
    Rounded weights may be less fair than these, so smaller steps follow.
    """
    low, high = 0.0, 1.0
    if _is_fair(errors(least), apart):
        low = 1.0
    for _ in range(FAIR_STEPS):
        middle = (low + high) / 2
        fair = _is_fair(errors(split + middle * (least - split)), apart)
        low, high = (middle, high) if fair else (low, middle)
    return [low * (1 - back) for back in (0.0, 0.02, 0.05, 0.1, 0.3, 1.0)]


def _descent(error: Callable[[Array], float], split: Array, last: int, kind: NoiseKind) -> Array:
    """Weights with the least error, by descent in their logarithms for each choice of levels."""
    from scipy.optimize import minimize

    best, least = split, error(split)
    for choice in _choices(last, kind):
        chosen = np.flatnonzero(choice)

        def spread(logs: Array, chosen: Array = chosen) -> Array:
            weights = np.zeros(split.size)
            weights[chosen] = np.exp(np.append(logs, 0.0))
            return np.asarray(weights / weights.sum())

        floor = np.maximum(split[chosen], 1e-4)
        for start in (floor, np.ones(chosen.size)):
            logs = np.log(start[:-1] / start[-1])
            if logs.size:
                bounds = [(-30.0, 10.0)] * logs.size
                scale = error(spread(logs))
                logs = minimize(
                    lambda x, scale=scale, spread=spread: error(spread(x)) / scale,
                    logs,
                    method="L-BFGS-B",
                    bounds=bounds,
                ).x
            weights = spread(logs)
            if error(weights) < least:
                best, least = weights, error(weights)
    return best


def _choices(last: int, kind: NoiseKind) -> Iterator[tuple[bool, ...]]:
    """Levels that may be measured, the last always among them."""
    if kind is NoiseKind.GAUSSIAN:
        yield (True,) * (last + 1)
    elif last <= MOST_CHOICE_LEVELS:
        for above in combinations_of((True, False), repeat=last):
            yield (*above, True)
    else:
        yield (True,) * (last + 1)
        for out in range(last):
            yield tuple(level != out for level in range(last + 1))


def _rounded(weights: Array) -> Array:
    """Whole numbers that add up to `SHARES`, in proportion: the largest remainders are raised."""
    ideal = weights / weights.sum() * SHARES
    whole = np.floor(ideal)
    missing = SHARES - int(whole.sum())
    whole[np.argsort(whole - ideal, kind="stable")[:missing]] += 1
    return np.asarray(whole)
