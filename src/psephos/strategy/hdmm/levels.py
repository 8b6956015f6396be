"""OPT_+ on levels: which levels of which attributes are measured together, and how well.

The parts that may answer products on exactly their cells are listed (`union_levels.joined_parts`),
with the best strategy for each attribute alone. Their shares are searched from many starts at once,
since under Laplace noise there are many local minima, most of them with a few parts. What is left
of the parts is then optimised together with the strategies. Last, every part gets a strategy of its
own on the one attribute where that gains most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.random import Generator

from psephos.errors import TooLargeError
from psephos.matrix import Matrix
from psephos.matrix.columns import gram_diagonal, select_columns
from psephos.strategy.deadline import NEVER, Deadline
from psephos.strategy.factors import Factor, GaussianFactor, PureFactor, identity_factor
from psephos.strategy.gram_terms import GramOperator, GramTerms, gram_operator
from psephos.strategy.hdmm.gaussian import optimise_gaussian
from psephos.strategy.hdmm.level_axes import (
    AxisOption,
    LevelAxis,
    joined_parts,
    kinds_of,
    plain_option,
)
from psephos.strategy.hdmm.opt0 import opt0, optimise
from psephos.strategy.hdmm.product import LONGEST_AXIS
from psephos.strategy.hdmm.union_levels import NOTABLE_SHARE, LevelUnion
from psephos.strategy.hdmm.union_pair import UnionPoint, descend
from psephos.values import Array
from psephos.variances import NoiseKind

MOST_PARTS = 400
"""Parts whose shares are searched together."""
MOST_ENTRIES = 500_000
"""The most numbers in all blocks."""
SHARE_STARTS = 200
"""Random shares from which the search begins, at most."""
SHARE_WORK = 2e8
"""Operations of one step from all starts."""
LONGEST_STEP = 5e8
"""Operations of one step from one start, at most."""
TOGETHER_STEPS, FINAL_STEPS = 100, 150
"""Steps of a descent of shares and strategies, at first and at the end."""
REVISIONS = 2
"""How often parts are chosen once more for the strategies that they led to."""
VARIATION_GAIN = 1e-4
"""The relative gain for which parts are left out or taken in once more."""
LATE_GAIN = 1e-4
"""The relative gain that a late step must bring."""


LevelStep = Callable[[LevelUnion, UnionPoint], tuple[LevelUnion, UnionPoint] | None]
"""From a union and its shares and factors to a better one, if there is any."""


@dataclass(frozen=True, eq=False)
class LevelParts:
    """Parts as options on every axis, with their shares and the error of the real-valued union."""

    parts: tuple[tuple[AxisOption, ...], ...]
    shares: Array
    error: float


def opt_levels(
    terms: GramTerms,
    noise: NoiseKind,
    *,
    rng: Generator,
    deadline: Deadline = NEVER,
) -> Iterator[LevelParts]:
    """Better and better unions over levels.

    None if there is but one part, or if the classes of its options are too large.
    """
    axes = tuple(LevelAxis.of(terms, i) for i in range(len(terms.shape)))
    search = _LevelSearch(terms, noise, axes, rng, deadline)
    union = search.union()
    plain = not any(union.searched) and max(len(axis.options) for axis in axes) <= 2
    if len(union.parts) < 2 or (plain and len(union.parts) == MOST_PARTS):
        return  # a product, or so many marginals that OPT_M is the one to look at them
    if not _affordable(union, [identity_factor(axis.n) for axis in axes]):
        return
    every = union
    best: tuple[LevelUnion, UnionPoint] | None = None
    for totals in (False, True) if any(union.searched) else (False,):
        factors = [search.first(i, totals) for i in range(len(axes))]
        further = search.together(*search.shares(every, factors))
        if best is None or further[1].error < best[1].error:
            best = further
            yield _parts_of(*best)
        if search.late:
            return
    if best is None:
        return
    union, point = best
    steps: list[LevelStep] = [partial(search.revised, every)] * REVISIONS
    for step in (*steps, search.divided, search.polished):
        better = step(union, point)
        if better is not None and better[1].error < point.error * (1 - LATE_GAIN):
            union, point = better
            yield _parts_of(union, point)


def _parts_of(union: LevelUnion, point: UnionPoint) -> LevelParts:
    options = union.options(point.factors)
    parts = tuple(tuple(options[i][o] for i, o in enumerate(part)) for part in union.parts)
    return LevelParts(parts, point.shares, point.error)


@dataclass(frozen=True, eq=False)
class _LevelSearch:
    terms: GramTerms
    noise: NoiseKind
    axes: tuple[LevelAxis, ...]
    rng: Generator
    deadline: Deadline

    @property
    def late(self) -> bool:
        return self.deadline.passed

    def union(self) -> LevelUnion:
        """All parts, levels with their own strategies where their queries are more than groups."""
        levels = tuple(
            tuple(self._level(axis, k) for k in range(len(axis.options) - 1)) for axis in self.axes
        )
        searched = tuple(self._has_strategy(axis) for axis in self.axes)
        once = (1,) * len(self.axes)
        parts = tuple(joined_parts(self.axes, MOST_PARTS))
        return LevelUnion(self.terms, self.noise, self.axes, levels, searched, parts, once)

    def _has_strategy(self, axis: LevelAxis) -> bool:
        last = len(axis.options) - 1
        return not axis.is_plain(last) and self._fits(axis)

    def _fits(self, axis: LevelAxis) -> bool:
        """Can an axis have a strategy?"""
        return 1 < axis.n <= LONGEST_AXIS[self.noise]

    def _level(self, axis: LevelAxis, k: int) -> AxisOption:
        groups = axis.options[k]
        if axis.is_plain(k):
            return plain_option(groups)
        first = np.unique(groups, return_index=True)[1]
        queries = [
            select_columns(w, first)
            for w, needs in zip(axis.queries, axis.needs, strict=True)
            if needs[0] == k
        ]
        return AxisOption(groups, self._best(_even_gram(queries)))

    def first(self, i: int, totals: bool) -> Factor:
        """The best factor for the queries of one axis, each counted alike; with totals or not."""
        axis = self.axes[i]
        if not self._has_strategy(axis):
            return identity_factor(axis.n)
        queries = [
            w
            for w, needs in zip(axis.queries, axis.needs, strict=True)
            if totals or axis.options[needs[0]].any()
        ]
        return self._best(_even_gram(queries))

    def _best(self, gram: GramOperator, present: Factor | None = None) -> Factor:
        """The best factor for a Gram, by a search that the present one is a start of."""
        if self.noise is NoiseKind.GAUSSIAN:
            certified = optimise_gaussian(gram.times(np.eye(gram.n)), deadline=self.deadline)
            return GaussianFactor(certified.factor)
        solution = opt0(gram, rng=self.rng, restarts=1, long=False, deadline=self.deadline)
        if isinstance(present, PureFactor) and len(present.theta):
            near = optimise(gram, rng=self.rng, start=present.theta, deadline=self.deadline)
            solution = min(solution, near, key=lambda each: each.error)
        return PureFactor(solution.theta)

    def revised(
        self, every: LevelUnion, union: LevelUnion, point: UnionPoint
    ) -> tuple[LevelUnion, UnionPoint]:
        """The parts chosen once more, now that strategies are known."""
        shares = np.zeros(len(every.parts))
        for part, share in zip(union.parts, point.shares, strict=True):
            shares[every.parts.index(part)] = share
        return self.together(*self.shares(every, point.factors, shares))

    def shares(
        self, union: LevelUnion, factors: Sequence[Factor], known: Array | None = None
    ) -> tuple[LevelUnion, Array, Sequence[Factor]]:
        """The parts that are worth something, and their shares, from many starts."""
        blocks = union.at(factors)
        if self.noise is NoiseKind.GAUSSIAN:  # convex: other starts end where this one does
            start = np.ones(len(union.parts)) if known is None else known
            shares, _ = blocks.shares(np.maximum(start, 1e-6)[None], deadline=self.deadline)
            numbers = union.notable(shares[0])
            return union.only(numbers), shares[0][numbers], factors
        work = blocks.grid.work + 2 * len(union.parts) * math.prod(blocks.grid.shape)
        count = int(np.clip(SHARE_WORK / work, 3, SHARE_STARTS))
        size = (count, len(union.parts))
        starts = self.rng.random(size) ** 4
        starts[self.rng.random(size) > self.rng.random((count, 1))] = 0
        starts[0] = 1
        kinds = set(kinds_of(self.axes))
        starts[1] = [part in kinds for part in union.parts]
        if known is not None:
            starts[2] = known
        shares, errors = blocks.shares(np.maximum(starts, 1e-6), deadline=self.deadline)
        best, least = shares[errors.argmin()], errors.min()
        while not self.late:
            shares, errors = blocks.shares(_variations(best, count), deadline=self.deadline)
            if errors.min() > least * (1 - VARIATION_GAIN):
                break
            best, least = shares[errors.argmin()], errors.min()
        numbers = union.notable(best)
        return union.only(numbers), best[numbers], factors

    def together(
        self,
        union: LevelUnion,
        shares: Array,
        factors: Sequence[Factor],
        steps: int = TOGETHER_STEPS,
    ) -> tuple[LevelUnion, UnionPoint]:
        """Shares and strategies optimised together; parts that become small are left out."""
        point = descend(union, shares, factors, steps=steps, deadline=self.deadline)
        numbers = union.notable(point.shares)
        if len(numbers) < len(union.parts) and not self.late:
            union = union.only(numbers)
            point = descend(
                union, point.shares[numbers], point.factors, steps=steps, deadline=self.deadline
            )
        return union, point

    def divided(self, union: LevelUnion, point: UnionPoint) -> tuple[LevelUnion, UnionPoint] | None:
        """Every part with a strategy of its own on one axis, that where it gains most.

        Each is the best for the Gram that it sees, which is most of the gain and soon done.
        """
        best = union, point
        for i, axis in enumerate(self.axes):
            last = len(union.levels[i])
            users = [k for k, part in enumerate(union.parts) if part[i] == last]
            if len(users) < 2 or axis.n < 3 or not self._fits(axis) or self.late:
                continue
            parts = [
                (*part[:i], last + users.index(k), *part[i + 1 :]) if k in users else part
                for k, part in enumerate(union.parts)
            ]
            searched = tuple(s or k == i for k, s in enumerate(union.searched))
            counts = tuple(len(users) if k == i else n for k, n in enumerate(union.strategies))
            wider = replace(union, parts=tuple(parts), searched=searched, strategies=counts)
            factors = list(point.factors[:i]) + [point.factors[i]] * len(users)
            factors += point.factors[i + 1 :]
            if not _affordable(wider, factors):
                continue
            factors = self._refitted(wider, point.shares, factors, range(i, i + len(users)))
            error = wider.error(point.shares, factors)
            if error < best[1].error:
                best = wider, UnionPoint(point.shares, tuple(factors), error)
        return None if best[0] is union else best

    def polished(self, union: LevelUnion, point: UnionPoint) -> tuple[LevelUnion, UnionPoint]:
        """The same parts and strategies, descended further."""
        return self.together(union, point.shares, point.factors, FINAL_STEPS)

    def _refitted(
        self, union: LevelUnion, shares: Array, factors: Sequence[Factor], which: Iterable[int]
    ) -> list[Factor]:
        """Some factors, each made the best for the Gram that it sees; never a worse one."""
        factors = list(factors)
        for k in which:
            gram = union.slopes(shares, factors).grams[k]
            if gram is not None and not self.late:
                factors[k] = self._best(gram, factors[k])
        return factors


def _variations(shares: Array, most: int) -> Array:
    """The same shares without one of the parts, the smallest first, and with one more."""
    notable = np.flatnonzero(shares > NOTABLE_SHARE)
    notable = notable[np.argsort(shares[notable])]
    rows = []
    for k in notable:
        rows.append(np.where(np.arange(shares.size) == k, 0.0, shares))
    for k in np.flatnonzero(shares <= NOTABLE_SHARE):
        rows.append(np.where(np.arange(shares.size) == k, 0.1, shares))
    return np.maximum(rows[: max(most, len(notable))], 1e-6)


def _even_gram(queries: Sequence[Matrix]) -> GramOperator:
    """The Gram of several query matrices, each counted alike."""
    return gram_operator([1 / float(gram_diagonal(w).sum()) for w in queries], list(queries))


def _affordable(union: LevelUnion, factors: Sequence[Factor]) -> bool:
    """Can all blocks of all parts be held, and inverted many times?"""
    try:
        sizes = [union.axis_sizes(i, factors) for i in range(len(union.axes))]
    except TooLargeError:  # an attribute is too long to be taken apart; other operators go on
        return False
    entries = math.prod(sum(count * b * b for b, count in runs) for runs in sizes)
    work = math.prod(sum(count * b**3 for b, count in runs) for runs in sizes)
    return entries <= MOST_ENTRIES and 4 * work <= LONGEST_STEP
