"""OPT_+: several product strategies, each with a share of the budget, answering together.

Parts that have strategies of their own are looked at here (`levels` has those that share them); the
second kind is OPT_+ as McKenna et al. 2018 have it:

    pairs     the workload cut in two, both halves optimised together (see `union_pair`)
    groups    the workload cut in k, each group with a product strategy of its own

If parts of error E_j answered their own products alone, the best shares would be w_j ∝ E_j^(1/3),
with error (Σ E_j^(1/3))³; under Gaussian noise w_j ∝ E_j^(1/2). All parts answer all products by
least squares, so this is where the search for shares begins, and an upper bound of the error. The
shares of three or more groups are searched where the Gram of all cells can be written out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.random import Generator

from psephos.inverse.axis_classes import LONGEST_CLASS_AXIS
from psephos.inverse.dense import DENSE_CELLS
from psephos.matrix import Kron, Matrix, Partition, is_total
from psephos.matrix.columns import gram_diagonal
from psephos.matrix.combine import join_groups
from psephos.strategy.deadline import NEVER, Deadline
from psephos.strategy.factors import Factor
from psephos.strategy.gram_terms import GramTerms
from psephos.strategy.hdmm.product import opt_product
from psephos.strategy.hdmm.union_pair import ProductPair, descend
from psephos.values import Array
from psephos.variances import NoiseKind
from psephos.workload.workload import Reduction, Workload

MOST_GROUPS = 32
"""Workloads with more kinds of products than this are not cut."""
CUTS_IN_TWO = 5
"""The most cuts in two."""
LEAST_GROUP_SHARE = 1e-4
"""The smallest share of a group."""
PAIR_SEARCH_CELLS = 4_000_000
DESCENTS = 2
DESCENT_AXIS = 512
DESCENT_WORK = (20_000_000, 250_000_000)
"""Of the cuts in two the best are optimised further, up to this size of an axis and of one step:
up to the first those that come near the least error, up to the second only the least itself."""
WRITTEN_GRAMS = 20_000_000
"""Numbers in all the Grams of three or more groups, written out."""
SHARE_FLOPS = 5e9
"""What the search for their shares may cost, in cells³."""
Cut = tuple[tuple[int, ...], ...]
"""Groups of products, by their numbers."""


@dataclass(frozen=True, eq=False)
class UnionPart:
    """A product strategy: factors on merged cells, the maps to those, and the products it serves.

    `merged` is what `reduce()` gives for the workload of the chosen products.
    """

    factors: tuple[Factor, ...]
    merged: tuple[Matrix, ...]
    chosen: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class PartUnion:
    """Parts with shares of the budget that add up to one.

    `error` is tr(X⁺G) with X = Σ_j w_j² ⊗Y_j (Gaussian: w_j), every part having columns of norm
    one: exact, or else the upper bound at which every part answers its own products alone.
    """

    parts: tuple[UnionPart, ...]
    weights: Array
    error: float
    exact: bool


def opt_union(
    workload: Workload,
    noise: NoiseKind,
    *,
    rng: Generator,
    restarts: int,
    deadline: Deadline = NEVER,
    progress: Callable[[float], None] | None = None,
) -> PartUnion | None:
    """The best union found; none if the products of the workload are all of one kind."""
    if len(workload.products) < 2:
        return None
    problem = _UnionSearch(workload, noise, rng, restarts, deadline)
    best: PartUnion | None = None
    for union in problem.candidates():
        if best is None or union.error < best.error:
            best = union
        if progress is not None:
            progress(best.error)
        if problem.late:
            break
    return best


def best_shares(errors: Sequence[float] | Array, noise: NoiseKind) -> tuple[Array, float]:
    """Shares for parts that answer alone, and their error: w ∝ E^(1/3), or E^(1/2) for Gaussian.

    >>> best_shares([1.0, 8.0], NoiseKind.LAPLACE)
    (array([0.33333333, 0.66666667]), 27.0)
    """
    power = noise.power
    roots = np.asarray(errors, dtype=float) ** (1 / (power + 1))
    return roots / roots.sum(), float(roots.sum()) ** (power + 1)


def groupings(terms: GramTerms) -> list[Cut]:
    """A few ways to cut the products in two or more; first those in two, the best of them first.

    Products that ask about the same attributes stay together; if all do, those with the same
    queries. From there groups are merged, always the two whose merging costs least if every group
    is measured cell by cell: (Σ E^(1/3))³ with E the error of Identity on the group's merged cells.
    Taken are the end of that, the cheapest cut on the way and the finest; and the cuts in two by
    whether a product asks about an attribute.

    >>> from psephos.matrix import Prefix, total
    >>> p, t = Prefix(4), total(4)
    >>> groupings(GramTerms((4, 4), np.ones(3), ((p, t), (t, p), (t, t))))
    [((0,), (1, 2)), ((0, 2), (1,)), ((0,), (1,), (2,))]
    """
    queried = [tuple(not is_total(w) for w in factors) for factors in terms.factors]
    if len(set(queried)) == 1:
        finest = _alike([tuple(map(id, factors)) for factors in terms.factors])
    else:
        finest = _alike(queried)
    if not 1 < len(finest) <= MOST_GROUPS:
        return []
    sizes = _CutCosts(terms)
    cuts = [finest]
    while len(cuts[-1]) > 2:
        pairs = combinations(cuts[-1], 2)
        a, b = min(pairs, key=sizes.lost)
        rest = [group for group in cuts[-1] if group not in (a, b)]
        cuts.append(tuple(sorted([*rest, tuple(sorted(a + b))])))
    twos = {cuts[-1]}
    for i in range(len(terms.shape)):
        twos.add(tuple(sorted(_alike([(kind[i],) for kind in queried]))))
    best = sorted((cut for cut in twos if len(cut) == 2), key=sizes.cost)[:CUTS_IN_TWO]
    more = [cut for cut in (min(cuts, key=sizes.cost), finest) if len(cut) > 2]
    return list(dict.fromkeys([*best, *more]))


@dataclass(frozen=True, eq=False)
class WrittenGrams:
    """Any parts over few cells, each with its Gram written out."""

    queries: Array
    grams: list[Array]
    power: int

    def error(self, shares: Array) -> tuple[float, Array]:
        """tr(X⁺G), and tr(X⁺X_jX⁺G) for every part."""
        x = np.zeros_like(self.queries)
        for share, gram in zip(shares, self.grams, strict=True):
            x += share**self.power * gram
        values, vectors = np.linalg.eigh(x)
        known = values > values[-1] * len(x) * 1e-14
        root = vectors[:, known] / np.sqrt(values[known])
        inverse = root @ root.T
        through = inverse @ self.queries
        both = through @ inverse
        return float(np.trace(through)), np.array([np.vdot(gram, both) for gram in self.grams])

    def shares(self, start: Array, steps: int) -> tuple[Array, float]:
        """Shares improved step by step, as in `SharedFactors.shares`."""
        shares = np.maximum(start / start.sum(), LEAST_GROUP_SHARE)
        best, least = shares, math.inf
        for _ in range(steps):
            shares = shares / shares.sum()
            error, slopes = self.error(shares)
            gain = least - error
            if gain > 0:
                best, least = shares, error
            if gain < 1e-7 * error:
                break
            next_shares = shares * (shares ** (self.power - 1) * slopes / error) ** (
                1 / (self.power + 1)
            )
            shares = np.maximum(next_shares, LEAST_GROUP_SHARE)
        return best, least


@dataclass(frozen=True, eq=False)
class _UnionSearch:
    workload: Workload
    noise: NoiseKind
    rng: Generator
    restarts: int
    deadline: Deadline
    _reductions: dict[tuple[int, ...], Reduction] = field(default_factory=dict)
    _parts: dict[tuple[int, ...], tuple[UnionPart, float]] = field(default_factory=dict)

    @property
    def late(self) -> bool:
        return self.deadline.passed

    @cached_property
    def whole(self) -> Reduction:
        return self.workload.reduce()

    @cached_property
    def terms(self) -> GramTerms:
        return GramTerms.of(self.whole.workload)

    def reduction(self, chosen: tuple[int, ...]) -> Reduction:
        """The workload of some products on its own merged cells."""
        if chosen not in self._reductions:
            products = [self.workload.products[j] for j in chosen]
            self._reductions[chosen] = Workload(self.workload.domain, products).reduce()
        return self._reductions[chosen]

    def candidates(self) -> Iterator[PartUnion]:
        """One union after another, the promising first."""
        unions: list[PartUnion] = []
        splits: list[PartUnion] = []
        for cut in groupings(self.terms):
            parts = [self._part(chosen) for chosen in cut]
            if len(cut) > 2 or not self._fits:
                unions.append(self._separate(parts))
                yield unions[-1]
            elif not self._is_shared(parts):
                splits.append(self._split(parts))
                yield splits[-1]
        least = min((union.error for union in unions + splits), default=0.0)
        for split in sorted(splits, key=lambda union: union.error)[:DESCENTS]:
            if split.error <= self._hope * least and not self.late:
                yield self._descended(split)

    def _part(self, chosen: tuple[int, ...]) -> tuple[UnionPart, float]:
        """The best product strategy for some products, and its error for them."""
        if chosen not in self._parts:
            reduction = self.reduction(chosen)
            product = opt_product(
                GramTerms.of(reduction.workload),
                self.noise,
                rng=self.rng,
                restarts=self.restarts,
                deadline=self.deadline,
            )
            self._parts[chosen] = (
                UnionPart(product.factors, _axes(reduction), chosen),
                product.error,
            )
        return self._parts[chosen]

    def _groups(self, part: UnionPart) -> tuple[Array, ...]:
        """For every axis, to which cell of a part each merged cell of the workload belongs."""
        groups = []
        for whole, part_cells in zip(_axes(self.whole), part.merged, strict=True):
            first = np.unique(_labels(whole), return_index=True)[1]
            groups.append(_labels(part_cells)[first])
        return tuple(groups)

    def _is_shared(self, parts: list[tuple[UnionPart, float]]) -> bool:
        """Is one side of every axis summed over? Then unions over levels have seen this pair."""
        cells = np.array([[m.shape[0] for m in part.merged] for part, _ in parts])
        return bool(
            (cells.min(axis=0) == 1).all() and (cells.max(axis=0) == self.terms.shape).all()
        )

    # ---- groups --------------------------------------------------------------------------------

    @property
    def _fits(self) -> bool:
        """Can two products be inverted together?"""
        return max(self.terms.shape) <= LONGEST_CLASS_AXIS and self.terms.size <= PAIR_SEARCH_CELLS

    @property
    def _hope(self) -> float:
        """A cut in two may have that many times the least error to be optimised further."""
        longest = max(self.terms.shape)
        work = self.terms.size * (longest + 5 * len(self.terms.coefficients))
        if longest > DESCENT_AXIS or work > DESCENT_WORK[1]:
            return 0.0
        return 1.0 if work > DESCENT_WORK[0] else 1.5

    def _pair(self, parts: Sequence[UnionPart]) -> ProductPair:
        return ProductPair(self.terms, self.noise, (self._groups(parts[0]), self._groups(parts[1])))

    def _split(self, parts: list[tuple[UnionPart, float]]) -> PartUnion:
        """Two parts as they are, with the best split between them."""
        two = tuple(part for part, _ in parts)
        factors = (*two[0].factors, *two[1].factors)
        pair = self._pair(two)
        shares, _ = best_shares([error for _, error in parts], self.noise)
        shares, error = pair.split(factors, shares)
        return PartUnion(two, shares, error, True)

    def _descended(self, split: PartUnion) -> PartUnion:
        """Two parts and their split optimised together."""
        first, second = split.parts
        factors = (*first.factors, *second.factors)
        pair = self._pair(split.parts)
        point = descend(pair, split.weights, factors, deadline=self.deadline)
        d = len(first.factors)
        parts = (
            UnionPart(point.factors[:d], first.merged, first.chosen),
            UnionPart(point.factors[d:], second.merged, second.chosen),
        )
        return PartUnion(parts, point.shares, point.error, True)

    def _separate(self, parts: list[tuple[UnionPart, float]]) -> PartUnion:
        """Parts as they are: the shares searched if there are few cells, else by the rule."""
        shares, error = best_shares([error for _, error in parts], self.noise)
        group_parts = tuple(part for part, _ in parts)
        if self.terms.size > DENSE_CELLS or len(parts) * self.terms.size**2 > WRITTEN_GRAMS:
            return PartUnion(group_parts, shares, error, False)
        grams = [_gram(part.factors, self._groups(part)) for part in group_parts]
        n = self.terms.size
        written = WrittenGrams(self.terms.whole().times(np.eye(n)), grams, self.noise.power)
        solves = int(min(SHARE_FLOPS / n**3, 300))
        starts = [shares]
        if (
            solves > 100 and self.noise is NoiseKind.LAPLACE
        ):  # many local minima: leave some parts out
            few = self.rng.random((4, len(parts))) < 0.5
            starts += [np.where(row, shares, shares / 50) for row in few]
        best = min(
            (written.shares(start, max(1, solves // len(starts))) for start in starts),
            key=lambda each: each[1],
        )
        return PartUnion(group_parts, best[0], best[1], True)


class _CutCosts:
    """E^(1/3) of Identity on merged cells, for groups of products."""

    def __init__(self, terms: GramTerms) -> None:
        self.terms = terms
        self.known: dict[frozenset[int], float] = {}
        self.traces: dict[tuple[int, frozenset[int]], dict[int, float]] = {}

    def cost(self, cut: Cut) -> tuple[float, Cut]:
        """Σ E^(1/3); of equal ones the first."""
        return sum(map(self.root, cut)), cut

    def lost(self, pair: tuple[tuple[int, ...], tuple[int, ...]]) -> float:
        """What merging two groups costs."""
        a, b = pair
        return self.root(a + b) - self.root(a) - self.root(b)

    def root(self, group: Sequence[int]) -> float:
        key = frozenset(group)
        if key not in self.known:
            each = self.terms.coefficients[list(group)].copy()
            for i in range(len(self.terms.shape)):
                queries = [self.terms.factors[j][i] for j in group]
                traces = self._axis(i, queries)
                each *= [traces[id(w)] for w in queries]
            self.known[key] = float(each.sum()) ** (1 / 3)
        return self.known[key]

    def _axis(self, i: int, queries: list[Matrix]) -> dict[int, float]:
        known = {id(w): w for w in queries}
        key = (i, frozenset(known))
        if key not in self.traces:
            groups = join_groups([w.column_groups() for w in known.values()])
            first = np.unique(groups, return_index=True)[1]
            self.traces[key] = {k: float(gram_diagonal(w)[first].sum()) for k, w in known.items()}
        return self.traces[key]


def _alike(kinds: Sequence[tuple[object, ...]]) -> Cut:
    groups: dict[tuple[object, ...], list[int]] = {}
    for j, kind in enumerate(kinds):
        groups.setdefault(kind, []).append(j)
    return tuple(tuple(group) for group in groups.values())


def _axes(reduction: Reduction) -> tuple[Matrix, ...]:
    partition = reduction.partition
    return partition.factors if isinstance(partition, Kron) else (partition,)


def _labels(merged: Matrix) -> Array:
    return merged.groups if isinstance(merged, Partition) else np.arange(merged.shape[1])


def _gram(factors: Sequence[Factor], groups: Sequence[Array]) -> Array:
    """⊗ PᵀYP, written out."""
    gram = np.ones((1, 1))
    for factor, cells in zip(factors, groups, strict=True):
        a = factor.matrix.dense()[:, cells]
        gram = np.kron(gram, a.T @ a)
    return gram
