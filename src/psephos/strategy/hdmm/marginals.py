"""OPT_M: weights on marginals that answer a workload with little error under Laplace noise.

The problem is not convex (Σθ is what the budget bounds, and θ² is what informs): it behaves like
the choice of a sparse set of marginals, and where a search ends depends on where it starts. So
many starts are improved together (`descend`), among them the marginals asked, the full table, the
square roots of the Gaussian optimum, covers by larger marginals, and random weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from psephos.errors import ShapeError
from psephos.matrix.marginals import Axes
from psephos.strategy.deadline import NEVER, Deadline
from psephos.strategy.hdmm.covering_designs import designs, greedy_cover
from psephos.strategy.hdmm.marginal_error import (
    Lattice,
    ListedSets,
    MarginalSets,
    descend,
    positive_traces,
)
from psephos.values import Array

LATTICE_SETS = 1 << 12
"""Up to this many sets all of them are in the search; beyond, those of one start at a time."""
MANY_SUBSPACES = 1 << 15
"""A workload that needs more subspaces than this gets few starts, and all sets where it can."""
BATCH_WEIGHTS = 1 << 16
"""Weights improved together: they stay in cache."""
FULL_TABLE_WEIGHTS = (0.0, 0.3, 1.0, 3.0)
"""Weights of the full table beside a cover of total weight one."""
FULL_CELLS = 1e12
"""Domains beyond this are not measured cell by cell."""

MarginalProgress = Callable[[int, float], None]
"""Called with the number of starts tried and the least error so far."""


@dataclass(frozen=True)
class WeightedMarginals:
    """Marginals to measure, the weight of each, and the squared error C of the whole."""

    sets: tuple[Axes, ...]
    weights: Array
    error: float


def opt_marginals(
    shape: Sequence[int],
    traces: Array | Mapping[Axes, float],
    *,
    rng: Generator,
    restarts: int,
    deadline: Deadline = NEVER,
    progress: MarginalProgress | None = None,
) -> WeightedMarginals:
    """Weights θ on marginals with little C = (Σθ)² Σ_S τ_S/λ_S; never worse than Identity.

    `traces` is τ_S for all 2^d sets, or a mapping from those that are not zero. Where all sets are
    in the search each of `restarts` stands for several random starts (ten at d = 8), beside the
    fixed ones; where not, more of them mean more covers of large workloads. No start is begun
    after `deadline`.

    >>> from numpy.random import default_rng
    >>> traces = np.array([8.0, 8.0, 12.0, 0.0])
    >>> best = opt_marginals((3, 4), traces, rng=default_rng(0), restarts=1)
    >>> best.sets, round(best.error, 6)
    (((0,), (1,)), 27.746641)
    """
    shape = tuple(shape)
    needed = positive_traces(len(shape), traces)
    if not needed:
        raise ShapeError("no subspace has a positive trace: the workload asks for nothing")
    search = _MarginalSearch(shape, needed, rng, deadline, progress)
    d = len(shape)
    if 1 << d <= LATTICE_SETS:
        search.everything(restarts * max(1, min(50, 2560 >> d)))
    elif len(needed) > MANY_SUBSPACES and d <= 22:
        search.everything(0)
    else:
        search.covers(restarts)
    return search.best()


class _MarginalSearch:
    """The best strategy so far, and how starts are made and improved."""

    def __init__(
        self,
        shape: tuple[int, ...],
        needed: dict[Axes, float],
        rng: Generator,
        deadline: Deadline,
        progress: MarginalProgress | None,
    ) -> None:
        self.shape = shape
        self.needed = needed
        self.rng = rng
        self.deadline = deadline
        self.progress = progress
        self.tried = 0
        self.every = tuple(range(len(shape)))
        # The full table alone has error Σ τ, whatever its size.
        self.identity = math.fsum(needed.values())
        self.error = self.identity
        self.best_weights: tuple[MarginalSets, Array] | None = None

    @property
    def late(self) -> bool:
        return self.deadline.passed

    # ---- all sets ------------------------------------------------------------------------------

    def everything(self, random: int) -> None:
        """Starts over all 2^d sets, in batches; the better ones are then run to their end."""
        d = len(self.shape)
        traces = np.zeros(1 << d)
        for axes, tau in self.needed.items():
            traces[sum(1 << i for i in axes)] = tau
        lattice = Lattice.of(self.shape, traces)
        few = 1 << d > LATTICE_SETS
        size = max(1, BATCH_WEIGHTS >> d)
        leaders: list[tuple[float, Array]] = []
        batch: list[Array] = []
        for start in self._starts(lattice, few, random):
            batch.append(start)
            if len(batch) == size:
                leaders = self._sifted(lattice, leaders, batch)
                batch = []
                if self.late:
                    break
        if batch:
            leaders = self._sifted(lattice, leaders, batch)
        weights = np.array([weights for _, weights in leaders])
        weights, errors = descend(lattice, weights, steps=500, deadline=self.deadline)
        self._keep(lattice, weights, errors)

    def _sifted(
        self, lattice: Lattice, leaders: list[tuple[float, Array]], batch: list[Array]
    ) -> list[tuple[float, Array]]:
        """A batch improved a little; of it and what was kept the best eight."""
        weights, errors = descend(
            lattice, np.array(batch), steps=60, tolerance=1e-6, deadline=self.deadline
        )
        self.tried += len(batch)
        ranked = [*leaders, *zip(errors.tolist(), weights, strict=True)]
        ranked = sorted(ranked, key=lambda pair: pair[0])[:8]
        if self.progress is not None:
            self.progress(self.tried, ranked[0][0])
        return ranked

    def _starts(self, lattice: Lattice, few: bool, random: int) -> Iterator[Array]:
        d = len(self.shape)
        n = 1 << d
        codes = {axes: sum(1 << i for i in axes) for axes in self.needed}

        def over(sets: Sequence[Axes], others: float, full: float) -> Array:
            weights = np.full(n, others / n)
            weights[[sum(1 << i for i in axes) for axes in sets]] += 1 / len(sets)
            weights[-1] += full
            return weights

        needed = list(codes)
        yield over(needed, 0.0, 0.0)
        yield self._gaussian(lattice)
        for t in sorted(set(map(len, needed))):
            level = [axes for axes in needed if len(axes) == t]
            for full in FULL_TABLE_WEIGHTS[:: 2 if few else 1]:
                yield over(level, 0.02, full)
        for cover in self._covers(1 if few else 5, few):
            for full in FULL_TABLE_WEIGHTS:
                yield over(cover, 0.1, full)
        for i in range(random):
            if i % 3 == 0:
                yield self.rng.exponential(size=n) ** int(self.rng.choice([1, 2, 4]))
            elif i % 3 == 1:
                yield np.exp(2 * self.rng.normal(size=n))
            else:
                some = self.rng.choice(n, size=int(self.rng.integers(1, 2 + n // 4)), replace=False)
                yield np.bincount(some, minlength=n) + 0.1 / n

    def _gaussian(self, sets: Lattice) -> Array:
        """√ of the Gaussian optimum λ_S ∝ √(τ_S/m_S), as far as weights can be that."""
        sizes = np.ones(1)
        levels = np.zeros(1, dtype=int)
        for n in self.shape:
            sizes = np.concatenate([sizes, sizes * max(1, n - 1)])
            levels = np.concatenate([levels, levels + 1])
        target = np.sqrt(sets.traces / sizes)
        shares = np.zeros_like(target)
        for level in range(len(self.shape), -1, -1):
            # Whatever larger sets leave of λ_S is the set's own share.
            sums = sets._sums(shares.copy(), 0, 1)
            on_level = levels == level
            shares[on_level] = np.maximum(target - sums, 0)[on_level]
        weights = np.sqrt(shares / sets.outside)
        return np.asarray(weights + 1e-3 * weights.sum() / len(weights))

    # ---- covers --------------------------------------------------------------------------------

    def _covers(self, times: int, largest_only: bool) -> Iterator[list[Axes]]:
        """Covers of the asked t-sets, for every t: designs at random positions, greedy blocks."""
        d = len(self.shape)
        typical = math.exp(sum(map(math.log, self.shape)) / d)
        equal = len(set(self.shape)) == 1
        lengths = sorted(set(map(len, self.needed)) - {0, d}, reverse=True)
        for t in lengths[: 1 if largest_only else None]:
            t_sets = np.array([axes for axes in self.needed if len(axes) == t])
            for design in designs(d, t, largest_block(t, typical)):
                for _ in range(1 if equal else times):
                    order = self.rng.permutation(d).tolist()
                    yield [tuple(sorted(order[i] for i in block)) for block in design]
            for price in (1.0, 0.85, 0.7, 0.5, 0.35)[:times]:
                cover = greedy_cover(self.shape, t_sets, price, self.rng)
                if cover:
                    yield cover

    def covers(self, restarts: int) -> None:
        """One start after the other, each on its own sets and the smaller ones that are asked."""
        needed = list(self.needed)
        top = max(map(len, needed))
        family = ListedSets.of(self.shape, self.needed, needed)
        uniform = np.ones(len(needed))
        self._improve(family, [uniform, np.array([float(len(axes) == top) for axes in needed])])
        smaller = [axes for axes in needed if len(axes) < top]
        if math.prod(map(float, self.shape)) < FULL_CELLS:
            smaller.append(self.every)
        large = len(needed) > MANY_SUBSPACES
        for cover in self._covers(max(1, min(5, restarts // 25)) if large else 5, large):
            if self.late:
                return
            family = ListedSets.of(self.shape, self.needed, [*cover, *smaller])
            missed = [needed[j] for j in np.flatnonzero(np.diff(family.contains.indptr) == 0)]
            if missed:
                family = ListedSets.of(self.shape, self.needed, [*cover, *smaller, *missed])
            self._improve(family, self._shares(family, cover))

    def _shares(self, family: ListedSets, cover: list[Axes]) -> list[Array]:
        """Most weight on the cover, a little on all else, and more or less on the full table."""
        blocks = set(cover)
        base = np.array([axes in blocks for axes in family.sets]) / len(blocks)
        base += 0.1 / len(base)
        if self.every not in family.sets:
            return [base]
        last = np.array([axes == self.every for axes in family.sets])
        return [base + full * last for full in FULL_TABLE_WEIGHTS]

    def _improve(self, family: ListedSets, starts: list[Array]) -> None:
        weights, errors = descend(
            family, np.array(starts), steps=100, tolerance=1e-6, deadline=self.deadline
        )
        self.tried += len(starts)
        self._keep(family, weights, errors)
        if self.progress is not None:
            self.progress(self.tried, self.error)

    # ---- the end -------------------------------------------------------------------------------

    def _keep(self, sets: MarginalSets, weights: Array, errors: Array) -> None:
        if errors.min() < self.error:
            self.error = float(errors.min())
            self.best_weights = (sets, weights[np.argmin(errors)])

    def best(self) -> WeightedMarginals:
        """What was kept, without small weights where the rest, improved again, is no worse."""
        if self.best_weights is None:
            return WeightedMarginals((self.every,), np.ones(1), self.identity)
        sets, weights = self.best_weights
        error = self.error
        for least in (1e-9, 1e-6, 1e-4, 1e-3, 1e-2):
            fewer = np.where(weights >= least * weights.max(), weights, 0.0)
            descended, errors = descend(sets, fewer[None], steps=100, deadline=self.deadline)
            if not errors[0] <= error * (1 + 1e-7):
                break
            error, weights = float(errors[0]), descended[0]
        chosen = weights > 0
        return WeightedMarginals(sets.named(chosen), weights[chosen], error)


def largest_block(t: int, n: float) -> int:
    """The k at which C(k, t)² / n^(k-t) is largest, and one more."""
    k = t
    while math.comb(k + 1, t) ** 2 > math.comb(k, t) ** 2 * n:
        k += 1
    return k + 1
