"""OPT_+: several product strategies, each with a share of the budget, answering together.

Three kinds of union are looked at, and the one of least error is taken; the third alone is OPT_+ as
McKenna et al. 2018 have it:

    shared    on every attribute a part has the common factor, or the total (see `shared`)
    pairs     the workload cut in two, both halves optimised together (see `pair`)
    groups    the workload cut in k, each group with a product strategy of its own (see `groups`)

If parts of error E_j answered their own products alone, the best shares would be w_j ∝ E_j^(1/3),
with error (Σ E_j^(1/3))³; under Gaussian noise w_j ∝ E_j^(1/2). All parts answer all products by
least squares, so this is where the search for shares begins, and an upper bound of the error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.random import Generator

from psephos.frozen import Array
from psephos.infer.axes import gram_diagonal
from psephos.infer.forms import PAIR_AXIS, WRITTEN
from psephos.matrix import Kron, Matrix, Partition
from psephos.strategy.factors import Factor, GaussianFactor, Noise, PureFactor, identity_factor
from psephos.strategy.gaussian import optimise_gaussian
from psephos.strategy.groups import Written, groupings
from psephos.strategy.opt0 import opt0
from psephos.strategy.opt_product import LONGEST, opt_product
from psephos.strategy.pair import POWER, Pair, descend
from psephos.strategy.shared import Shared
from psephos.strategy.terms import Terms, gram_operator, is_identity, is_total
from psephos.workload.reduce import Reduction
from psephos.workload.workload import Workload

CROSSED = 8
"""Shared factors: at most this many attributes that some products sum over."""
STARTS = 500
START_WORK = 4_000_000
"""Random shares from which those of shared parts are searched, and the work of one step of all."""
PAIR_CELLS = 4_000_000
DESCENTS = 2
DESCENT_AXIS = 512
DESCENT_WORK = (20_000_000, 250_000_000)
"""Of the cuts in two the best are optimised further, up to this size of an axis and of one step:
up to the first those that come near the least error, up to the second only the least itself."""
WRITTEN_GRAMS = 20_000_000
"""Numbers in all the Grams of three or more groups, written out."""
FLOPS = 5e9
"""What the search for their shares may cost, in cells³."""


@dataclass(frozen=True, eq=False)
class Part:
    """A product strategy: factors on merged cells, the maps to those, and the products it serves.

    `merged` is what `reduce()` gives for the workload of the chosen products.
    """

    factors: tuple[Factor, ...]
    merged: tuple[Matrix, ...]
    chosen: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Union:
    """Parts with shares of the budget that add up to one.

    `error` is tr(X⁺G) with X = Σ_j w_j² ⊗Y_j (Gaussian: w_j), every part having columns of norm
    one: exact, or else the upper bound at which every part answers its own products alone.
    """

    parts: tuple[Part, ...]
    weights: Array
    error: float
    exact: bool


def opt_union(
    workload: Workload,
    noise: Noise,
    *,
    rng: Generator,
    restarts: int,
    deadline: float | None = None,
    progress: Callable[[float], None] | None = None,
) -> Union | None:
    """The best union found; none if the products of the workload are all of one kind."""
    if len(workload.products) < 2:
        return None
    problem = _Problem(workload, noise, rng, restarts, deadline)
    best: Union | None = None
    for found in problem.candidates():
        if best is None or found.error < best.error:
            best = found
        if progress is not None:
            progress(best.error)
        if problem.late:
            break
    return best


def best_shares(errors: Sequence[float] | Array, noise: Noise) -> tuple[Array, float]:
    """Shares for parts that answer alone, and their error: w ∝ E^(1/3), or E^(1/2) for Gaussian.

    >>> best_shares([1.0, 8.0], "laplace")
    (array([0.33333333, 0.66666667]), 27.0)
    """
    power = POWER[noise]
    roots = np.asarray(errors, dtype=float) ** (1 / (power + 1))
    return roots / roots.sum(), float(roots.sum()) ** (power + 1)


@dataclass(frozen=True, eq=False)
class _Problem:
    workload: Workload
    noise: Noise
    rng: Generator
    restarts: int
    deadline: float | None
    _reduced: dict[tuple[int, ...], Reduction] = field(default_factory=dict)
    _made: dict[tuple[int, ...], tuple[Part, float]] = field(default_factory=dict)

    @property
    def late(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    @cached_property
    def whole(self) -> Reduction:
        return self.workload.reduce()

    @cached_property
    def terms(self) -> Terms:
        return Terms.of(self.whole.workload)

    def reduction(self, chosen: tuple[int, ...]) -> Reduction:
        """The workload of some products on its own merged cells."""
        if chosen not in self._reduced:
            products = [self.workload.products[j] for j in chosen]
            self._reduced[chosen] = Workload(self.workload.domain, products).reduce()
        return self._reduced[chosen]

    def candidates(self) -> Iterator[Union]:
        """One union after another, the promising first."""
        shared = self._shared()
        made: list[Union] = []
        if shared is not None:
            for k in range(self.restarts):
                made.append(self._share(*shared, totals=k % 2 == 1))
                yield made[-1]
        splits: list[Union] = []
        for cut in groupings(self.terms):
            parts = [self._part(chosen) for chosen in cut]
            if len(cut) > 2 or not self._fits:
                made.append(self._separate(parts))
                yield made[-1]
            elif shared is None or not self._is_shared(parts):
                splits.append(self._split(parts))
                yield splits[-1]
        least = min((union.error for union in made + splits), default=0.0)
        for split in sorted(splits, key=lambda union: union.error)[:DESCENTS]:
            if split.error <= self._hope * least and not self.late:
                yield self._descended(split)

    def _part(self, chosen: tuple[int, ...]) -> tuple[Part, float]:
        """The best product strategy for some products, and its error for them."""
        if chosen not in self._made:
            own = self.reduction(chosen)
            found = opt_product(
                Terms.of(own.workload),
                self.noise,
                rng=self.rng,
                restarts=self.restarts,
                deadline=self.deadline,
            )
            self._made[chosen] = (Part(found.factors, _axes(own), chosen), found.error)
        return self._made[chosen]

    def _groups(self, part: Part) -> tuple[Array, ...]:
        """For every axis, to which cell of a part each merged cell of the workload belongs."""
        made = []
        for whole, own in zip(_axes(self.whole), part.merged, strict=True):
            first = np.unique(_labels(whole), return_index=True)[1]
            made.append(_labels(own)[first])
        return tuple(made)

    # ---- shared factors ------------------------------------------------------------------------

    def _shared(self) -> tuple[Shared, list[tuple[int, ...]]] | None:
        """All sets of crossed axes that can serve products on exactly their own cells."""
        asked = [
            {i for i, w in enumerate(factors) if not is_total(w)} for factors in self.terms.factors
        ]
        always = set.intersection(*asked)
        crossed = sorted(set.union(*asked) - always)
        if not 0 < len(crossed) <= CROSSED:
            return None
        parts, serves = [], []
        for size in range(len(crossed) + 1):
            for part in combinations(crossed, size):
                chosen = tuple(j for j, axes in enumerate(asked) if axes - always <= set(part))
                if not chosen:
                    continue
                cells = self.reduction(chosen).domain.shape
                kept = [
                    n if i in always or i in part else 1 for i, n in enumerate(self.terms.shape)
                ]
                if list(cells) == kept:
                    parts.append(part)
                    serves.append(chosen)
        return Shared(self.terms, self.noise, tuple(parts)), serves

    def _share(self, shared: Shared, serves: list[tuple[int, ...]], *, totals: bool) -> Union:
        """From factors that are best on their own: shares from many starts, then all together."""
        factors = [self._first(shared, i, totals) for i in range(len(self.terms.shape))]
        parts = len(shared.parts)
        size = (max(20, min(STARTS, START_WORK // (parts << len(shared.crossed)))), parts)
        starts = self.rng.random(size) ** 4
        starts[self.rng.random(size) > self.rng.random((size[0], 1))] = 0
        starts[0] = 1
        shares, errors = shared.shares(shared.moments(factors), np.maximum(starts, 1e-6))
        kept = shared.kept(shares[errors.argmin()])
        shares = shares[errors.argmin(), kept]
        for _ in range(3):
            shared, serves = shared.only(kept), [serves[k] for k in kept]
            found = descend(shared, shares, factors, deadline=self.deadline)
            kept = shared.kept(found.shares)
            if len(kept) == len(serves) or self.late:
                break
            shares, factors = found.shares[kept], list(found.factors)  # without what became small
        made = []
        for axes, chosen in zip(shared.parts, serves, strict=True):
            own = [
                identity_factor(1) if i in shared.crossed and i not in axes else factor
                for i, factor in enumerate(found.factors)
            ]
            made.append(Part(tuple(own), _axes(self.reduction(chosen)), chosen))
        return Union(tuple(made), found.shares, found.error, True)

    def _first(self, shared: Shared, i: int, totals: bool) -> Factor:
        """The best factor for the queries of one axis, each counted alike; with totals or not."""
        axis = shared.axes[i]
        if axis.n == 1 or axis.n > LONGEST[self.noise] or all(map(is_identity, axis.queries)):
            return identity_factor(axis.n)
        asked = {id(w): w for w in self.terms.axis(i) if totals or not is_total(w)}
        queries = list(asked.values())
        gram = gram_operator([1 / float(gram_diagonal(w).sum()) for w in queries], queries)
        if self.noise == "gaussian":
            found = optimise_gaussian(gram.times(np.eye(gram.n)), deadline=self.deadline)
            return GaussianFactor(found.factor)
        return PureFactor(opt0(gram, rng=self.rng, restarts=1, deadline=self.deadline).theta)

    def _is_shared(self, parts: list[tuple[Part, float]]) -> bool:
        """Is one side of every axis summed over? Then shared factors have seen this pair."""
        cells = np.array([[m.shape[0] for m in part.merged] for part, _ in parts])
        return bool(
            (cells.min(axis=0) == 1).all() and (cells.max(axis=0) == self.terms.shape).all()
        )

    # ---- groups --------------------------------------------------------------------------------

    @property
    def _fits(self) -> bool:
        """Can two products be inverted together?"""
        return max(self.terms.shape) <= PAIR_AXIS and self.terms.size <= PAIR_CELLS

    @property
    def _hope(self) -> float:
        """A cut in two may have that many times the least error to be optimised further."""
        longest = max(self.terms.shape)
        work = self.terms.size * (longest + 5 * len(self.terms.coefficients))
        if longest > DESCENT_AXIS or work > DESCENT_WORK[1]:
            return 0.0
        return 1.0 if work > DESCENT_WORK[0] else 1.5

    def _pair(self, parts: Sequence[Part]) -> Pair:
        return Pair(self.terms, self.noise, (self._groups(parts[0]), self._groups(parts[1])))

    def _split(self, parts: list[tuple[Part, float]]) -> Union:
        """Two parts as they are, with the best split between them."""
        made = tuple(part for part, _ in parts)
        factors = (*made[0].factors, *made[1].factors)
        pair = self._pair(made)
        shares, _ = best_shares([error for _, error in parts], self.noise)
        shares, error = pair.split(factors, shares)
        return Union(made, shares, error, True)

    def _descended(self, split: Union) -> Union:
        """Two parts and their split optimised together."""
        first, second = split.parts
        factors = (*first.factors, *second.factors)
        pair = self._pair(split.parts)
        found = descend(pair, split.weights, factors, deadline=self.deadline)
        d = len(first.factors)
        parts = (
            Part(found.factors[:d], first.merged, first.chosen),
            Part(found.factors[d:], second.merged, second.chosen),
        )
        return Union(parts, found.shares, found.error, True)

    def _separate(self, parts: list[tuple[Part, float]]) -> Union:
        """Parts as they are: the shares searched if there are few cells, else by the rule."""
        shares, error = best_shares([error for _, error in parts], self.noise)
        made = tuple(part for part, _ in parts)
        if self.terms.size > WRITTEN or len(parts) * self.terms.size**2 > WRITTEN_GRAMS:
            return Union(made, shares, error, False)
        grams = [_gram(part.factors, self._groups(part)) for part in made]
        n = self.terms.size
        written = Written(self.terms.whole().times(np.eye(n)), grams, POWER[self.noise])
        solves = int(min(FLOPS / n**3, 300))
        starts = [shares]
        if solves > 100 and self.noise == "laplace":  # many local minima: leave some parts out
            few = self.rng.random((4, len(parts))) < 0.5
            starts += [np.where(row, shares, shares / 50) for row in few]
        found = min(
            (written.shares(start, max(1, solves // len(starts))) for start in starts),
            key=lambda each: each[1],
        )
        return Union(made, found[0], found[1], True)


def _axes(reduction: Reduction) -> tuple[Matrix, ...]:
    partition = reduction.partition
    return partition.factors if isinstance(partition, Kron) else (partition,)


def _labels(merged: Matrix) -> Array:
    return merged.groups if isinstance(merged, Partition) else np.arange(merged.shape[1])


def _gram(factors: Sequence[Factor], groups: Sequence[Array]) -> Array:
    """⊗ PᵀYP, written out."""
    made = np.ones((1, 1))
    for factor, own in zip(factors, groups, strict=True):
        a = factor.matrix.dense()[:, own]
        made = np.kron(made, a.T @ a)
    return made
