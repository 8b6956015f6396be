"""OPT_+: two product strategies, each with a share of the budget, answering together.

As McKenna et al. 2018 have it, the workload is cut in two, and each half has a product strategy of
its own; the best are then optimised together (see `union_pair`). Unions of more parts, which may
share strategies, are those over `levels`.

If parts of error E_j answered their own products alone, the best shares would be w_j ∝ E_j^(1/3),
with error (Σ E_j^(1/3))³; under Gaussian noise w_j ∝ E_j^(1/2). Both parts answer all products by
least squares, so this is where the search for shares begins, and an upper bound of the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.random import Generator

from psephos.inverse.axis_classes import LONGEST_CLASS_AXIS
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
PAIR_SEARCH_CELLS = 4_000_000
DESCENTS = 2
DESCENT_AXIS = 512
DESCENT_WORK = (20_000_000, 250_000_000)
"""Of the cuts in two the best are optimised further, up to this size of an axis and of one step:
up to the first those that come near the least error, up to the second only the least itself."""
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


def cuts_in_two(terms: GramTerms) -> list[Cut]:
    """A few ways to cut the products in two, the best first.

    Products that ask about the same attributes stay together; if all do, those with the same
    queries. From there groups are merged, always the two whose merging costs least if every group
    is measured cell by cell: (Σ E^(1/3))³ with E the error of Identity on the group's merged cells.
    Taken are the end of that, and the cuts by whether a product asks about an attribute.

    >>> from psephos.matrix import Prefix, total
    >>> p, t = Prefix(4), total(4)
    >>> cuts_in_two(GramTerms((4, 4), np.ones(3), ((p, t), (t, p), (t, t))))
    [((0,), (1, 2)), ((0, 2), (1,))]
    """
    queried = [tuple(not is_total(w) for w in factors) for factors in terms.factors]
    if len(set(queried)) == 1:
        groups = _alike([tuple(map(id, factors)) for factors in terms.factors])
    else:
        groups = _alike(queried)
    if not 1 < len(groups) <= MOST_GROUPS:
        return []
    sizes = _CutCosts(terms)
    while len(groups) > 2:
        a, b = min(combinations(groups, 2), key=sizes.lost)
        rest = [group for group in groups if group not in (a, b)]
        groups = tuple(sorted([*rest, tuple(sorted(a + b))]))
    cuts: set[Cut] = {groups}
    for i in range(len(terms.shape)):
        cuts.add(tuple(sorted(_alike([(kind[i],) for kind in queried]))))
    halves: list[Cut] = [cut for cut in cuts if len(cut) == 2]
    return sorted(halves, key=sizes.cost)[:CUTS_IN_TWO]


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
        splits: list[PartUnion] = []
        for cut in cuts_in_two(self.terms):
            parts = [self._part(chosen) for chosen in cut]
            if not self._fits:
                yield self._separate(parts)
            elif not self._is_shared(parts):
                splits.append(self._split(parts))
                yield splits[-1]
        least = min((union.error for union in splits), default=0.0)
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
        """Two parts as they are, with shares by the rule, and the bound that it gives."""
        shares, error = best_shares([error for _, error in parts], self.noise)
        return PartUnion(tuple(part for part, _ in parts), shares, error, False)


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
