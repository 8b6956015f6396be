"""Strategies for one long axis: a tree whose blocks of one level all measure the same few rows.

n = b₁⋯b_L. Level ℓ measures I(b₁⋯b_{ℓ-1}) ⊗ A_ℓ ⊗ total(b_{ℓ+1}⋯b_L) with weight w_ℓ, where
A_ℓ = [diag(d); B] has non-negative entries and columns of equal norm; so has then the whole
strategy. The p-Identity strategies of McKenna et al. 2018 are the case L = 1, the hierarchies of
Hay et al. 2010 and Qardaji et al. 2013 the case A_ℓ = I. All levels and weights are optimised
together for a few lists of fan-outs b, at the price of a few b x b matrices per step, so that n
plays no part in it. At the upper levels d mostly vanishes: overlapping runs of children are worth
more than children one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.random import Generator

from psephos.errors import ShapeError, UnsupportedError
from psephos.inverse.range_gram import LineQueries
from psephos.inverse.tree import Tree, level_matrix
from psephos.matrix import Compose, Dense, Identity, Kron, Matrix, Scaled, Sparse, Stack, total
from psephos.matrix.base import positive
from psephos.strategy.deadline import NEVER, Deadline
from psephos.strategy.factors import Factor, round_columns
from psephos.strategy.hdmm.range_tree_error import RangeTreeObjective, TreeLevels
from psephos.values import Array
from psephos.variances import NoiseKind

LEAF_FANOUTS = 24, 129
"""From the least fan-out of the lowest level to the first that is too large."""
ROOT_FANOUT = 200
"""The most children of the root."""
CUT_COST, UNEVEN_COST = 0.2, 0.02
"""What a list of fan-outs is charged for a last block that is cut off, and for uneven fan-outs."""
EVEN_LIST_COST = 0.03
"""If some lists cost less than this, no others are tried: they leave no leaf empty."""
LISTS_PER_DEPTH = 3
"""Lists tried for each depth."""
SCREENING_STEPS, TREE_STEPS = 40, 400
"""Steps of a descent that compares lists of fan-outs, and of one from the best lists."""
FINALISTS = 2
"""Lists of fan-outs that are optimised to the end."""
LOG_WEIGHT = 2.0
"""Log weights of levels stay within ± this: a level once lost is not found again."""
LEAST_DIAGONAL = 1e-6, 1e-3
"""The least diagonal entry before scaling: above, so that no column vanishes; at the leaves, so
that every cell is told from its neighbours."""
WEIGHT_BITS = 9
"""Bits of levels' weights relative to the largest; with more, no error changes in four digits."""
LEVEL_BITS = 8
"""The most bits of the entries of a level."""
TreeProgress = Callable[[str, float], None]


@dataclass(frozen=True, eq=False)
class RangeTree:
    """A tree of levels with columns of norm one, weights that sum to one, and its error."""

    cells: int
    noise: NoiseKind
    fanouts: tuple[int, ...]
    levels: TreeLevels
    """(d, B) from the root to the leaves: A_ℓ is diag(d) above B."""
    weights: Array
    error: float
    """‖A‖² tr(X⁻¹WᵀW) with ‖A‖₁ for Laplace noise and ‖A‖₂ for Gaussian noise."""

    @property
    def has_rows(self) -> bool:
        """Does some level measure more than its children one by one?"""
        return any(len(rows) for _, rows in self.levels)


@dataclass(frozen=True, eq=False)
class TreeFactor(Factor):
    """A range tree as a factor: one matrix, its levels stacked, each times its weight."""

    tree: RangeTree

    @property
    def cells(self) -> int:
        return self.tree.cells

    @property
    def _scales(self) -> Any:
        """What rows of each level are multiplied by: norms add in the first or second power."""
        weights = np.asarray(self.tree.weights)
        return weights if self.tree.noise.norm == 1 else np.sqrt(weights)

    @cached_property
    def matrix(self) -> Matrix:
        return _stacked(self.tree.levels, [float(w) for w in self._scales], self.cells)

    def integer(self, bits: int) -> Matrix:
        """Weights get the same bits whatever `bits` is; levels the rest, up to eight."""
        level_bits = min(bits, LEVEL_BITS)
        scales = np.rint(self._scales / self._scales.max() * (1 << WEIGHT_BITS)).astype(int)
        levels = integer_levels(self.tree, level_bits)
        # A level that is the identity is left at one: its weight makes up for the others' bits.
        powers = [1 if len(rows) else 1 << level_bits for _, rows in levels]
        return _stacked(
            levels, [int(k * f) for k, f in zip(scales, powers, strict=True)], self.cells
        )

    @property
    def rounded(self) -> bool:
        return True


def optimise_range_tree(
    queries: Matrix | LineQueries,
    n: int,
    *,
    noise: NoiseKind = NoiseKind.LAPLACE,
    rng: Generator,
    lists: Sequence[tuple[int, ...]] | None = None,
    deadline: Deadline = NEVER,
    progress: TreeProgress | None = None,
) -> RangeTree:
    """The best tree found for prefixes, ranges, cells and totals of a line of n cells.

    Where n is not the product of the fan-outs, the levels are optimised for all leaves of the tree,
    and scored exactly on the first n, all that exist.

    Args:
        queries: a Matrix made of AllRange, Prefix, suffix, Identity and total, or their Gram
        n: cells
        noise: laplace or gaussian
        rng: where random starts come from
        lists: the lists of fan-outs to try; by default a few of each sensible depth
        deadline: when the best so far is returned
        progress: called with what was tried and the ratio of Identity's RMSE to the best so far
    """
    line = _line(queries, n)
    search = _TreeSearch(line, n, noise, deadline, progress)
    screened = []
    for fanouts in fanout_lists(n) if lists is None else lists:
        if search.late:
            break
        screened.append((search.descend(fanouts, "runs", 0, rng, SCREENING_STEPS).error, fanouts))
    for _, fanouts in sorted(screened)[:FINALISTS]:
        for start, more in (("runs", 0), ("boxes", 0), ("runs", 1), ("boxes", 1)):
            if not search.late:
                search.descend(fanouts, start, more, rng, TREE_STEPS)
    return search.best


def improve_range_tree(
    tree: RangeTree, queries: Matrix | LineQueries, *, deadline: Deadline = NEVER
) -> RangeTree:
    """The tree after a descent for other queries from where it stands; never worse for them."""
    line = _line(queries, tree.cells)
    search = _TreeSearch(line, tree.cells, tree.noise, deadline, None)
    error = tree_error(tree.levels, tree.weights, line, tree.cells, noise=tree.noise)
    search.offer(replace(tree, error=error), "start")
    entries = [np.vstack([diagonal, rows]) for diagonal, rows in tree.levels]
    search.descend_from(tree.fanouts, np.log(tree.weights), entries, TREE_STEPS, "start")
    return search.best


def uniform_tree(
    fanouts: Sequence[int],
    queries: Matrix | LineQueries,
    n: int,
    *,
    noise: NoiseKind = NoiseKind.LAPLACE,
) -> RangeTree:
    """The hierarchy with A_ℓ = I and equal weights: `hb_levels` or `h2_levels`, with its error."""
    levels = tuple((np.ones(b), np.empty((0, b))) for b in fanouts)
    weights = np.full(len(fanouts), 1 / len(fanouts))
    error = tree_error(levels, weights, queries, n, noise=noise)
    return RangeTree(n, noise, tuple(fanouts), levels, weights, error)


def normal_tree(
    levels: Sequence[tuple[Array, Array]],
    weights: Sequence[float] | Array,
    n: int,
    *,
    noise: NoiseKind = NoiseKind.LAPLACE,
) -> Tree:
    """The tree at sensitivity one: its traces are ‖A‖²·tr(X⁻¹WᵀW), for whole numbers or not.

    ‖A‖₁ = Σ_ℓ w_ℓ·max‖A_ℓ‖₁ for Laplace noise, ‖A‖₂² = Σ_ℓ w_ℓ·max‖A_ℓ‖₂² for Gaussian noise.
    """
    weights = np.asarray(weights, dtype=float)
    matrices = [level_matrix(*level).astype(float) for level in levels]
    norms = [float((np.abs(a) ** noise.norm).sum(axis=0).max()) for a in matrices]
    shares = weights / float(weights @ norms)
    return Tree.of(matrices, shares**noise.power, n)


def tree_error(
    levels: Sequence[tuple[Array, Array]],
    weights: Sequence[float] | Array,
    queries: Matrix | LineQueries,
    n: int,
    *,
    noise: NoiseKind = NoiseKind.LAPLACE,
) -> float:
    """‖A‖² tr(X⁻¹WᵀW) of levels with weights, for whole numbers or not."""
    return normal_tree(levels, weights, n, noise=noise).trace(_line(queries, n))


def integer_levels(tree: RangeTree, bits: int) -> list[tuple[Array, Array]]:
    """(d, B) of every level in whole numbers.

    Laplace: every column of [diag(d); B] sums to exactly 2^bits, by largest remainder. Gaussian:
    no column is longer than 2^bits. A level that is the identity stays so.
    """
    rounded = []
    for i, (diagonal, rows) in enumerate(tree.levels):
        entries = np.vstack([diagonal, rows])
        if not rows.any():
            whole = np.vstack([np.ones_like(diagonal), np.zeros_like(rows)]).astype(np.int64)
        elif tree.noise is NoiseKind.LAPLACE:
            whole = _largest_remainders(entries, 1 << bits)
        else:
            whole = round_columns(entries, bits)
        if i == len(tree.levels) - 1:
            for k in np.flatnonzero(whole[0] == 0):  # a cell must be told from its neighbours
                whole[1 + whole[1:, k].argmax(), k] -= 1
                whole[0, k] = 1
        rounded.append((whole[0], whole[1:][whole[1:].any(axis=1)]))
    return rounded


def level_blocks(levels: Sequence[tuple[Array, Array]]) -> list[Matrix]:
    """I ⊗ A_ℓ ⊗ total for every level, over all leaves of the tree; only the first n need exist.

    All blocks are products over one grid, the fan-outs, so that their sensitivity needs no cells.

    >>> level_blocks([(np.ones(2), np.empty((0, 2))), (np.array([1, 1]), np.array([[1, 1]]))])
    [Kron(Identity(n=2), Ones(m=1, n=2)), Kron(Identity(n=2), Dense(array: 3 x 2))]
    """
    blocks: list[Matrix] = []
    for i, (diagonal, rows) in enumerate(levels):
        is_identity = not len(rows) and (np.asarray(diagonal) == 1).all()
        level = Identity(len(diagonal)) if is_identity else Dense(level_matrix(diagonal, rows))
        before = [Identity(len(d)) for d, _ in levels[:i]]
        after = [total(len(d)) for d, _ in levels[i + 1 :]]
        blocks.append(Kron((*before, level, *after)))
    return blocks


def fanout_lists(n: int) -> list[tuple[int, ...]]:
    """A few (b₁, a, …, a, b_L) with b₁·a⋯a·b_L just above n, fan-outs 12 to 110 on average.

    For each depth those that leave the fewest leaves without a cell, then those of the most even
    fan-outs, the leaves twice as wide as the rest. If some lists of even fan-outs leave no leaf
    empty, only those: then every level is a Kronecker product.

    >>> fanout_lists(4096)
    [(32, 128), (64, 64), (8, 16, 32), (8, 8, 64)]
    """
    n = positive(n, "the number of cells")
    if n < LEAF_FANOUTS[1]:
        return [(n,)]
    costs: dict[tuple[int, ...], float] = {}
    deepest = int(math.log(n) / math.log(12))
    shallowest = max(2, math.ceil(math.log(n) / math.log(110)))
    for depth in range(shallowest, max(shallowest, deepest) + 1):
        by_fanouts: dict[tuple[int, ...], tuple[float, tuple[int, ...]]] = {}
        for leaf in range(*LEAF_FANOUTS):
            for inner in _inner(n, leaf, depth):
                root = -(-n // (inner ** (depth - 2) * leaf))
                fanouts = (root, *[inner] * (depth - 2), leaf)
                candidate = _cost(n, fanouts), fanouts
                key = tuple(sorted(fanouts))
                if 2 <= root <= ROOT_FANOUT and candidate < by_fanouts.get(
                    key, (math.inf, fanouts)
                ):
                    by_fanouts[key] = candidate
        costs |= {fanouts: cost for cost, fanouts in sorted(by_fanouts.values())[:LISTS_PER_DEPTH]}
    exact = [fanouts for fanouts, cost in costs.items() if cost < EVEN_LIST_COST]
    return exact or list(costs)


def hb_levels(n: int) -> tuple[int, ...]:
    """The fan-outs of HB: b least in (b - 1)h³ - ⅔(b + 1)h² with h = ⌈log_b n⌉ levels, no root.

    Qardaji, Yang and Li 2013. For more than a few hundred cells b stays below 50.

    >>> hb_levels(4096), hb_levels(100)
    ((16, 16, 16), (100,))
    """
    n = positive(n, "the number of cells")
    return min(
        (hierarchy(n, b) for b in range(2, max(3, min(n, 256) + 1))),
        key=lambda fanouts: _hb_cost(fanouts[-1], len(fanouts)),
    )


def h2_levels(n: int) -> tuple[int, ...]:
    """The fan-outs of the binary hierarchy of Hay et al. 2010: the root, then halves.

    >>> h2_levels(6)
    (1, 2, 2, 2)
    """
    return (1, *hierarchy(n, 2))


def hierarchy(n: int, b: int) -> tuple[int, ...]:
    """⌈log_b n⌉ levels of fan-out b, of which the first has no more than n needs."""
    leaves, depth = b, 1
    while leaves < n:
        leaves, depth = leaves * b, depth + 1
    return (-(-n // b ** (depth - 1)), *[b] * (depth - 1))


class _TreeSearch:
    """The best tree so far, and descents from new starts."""

    def __init__(
        self,
        line: LineQueries,
        n: int,
        noise: NoiseKind,
        deadline: Deadline,
        progress: TreeProgress | None,
    ) -> None:
        self.line, self.n, self.noise = line, n, noise
        self.deadline, self.progress = deadline, progress
        self.best = uniform_tree(hb_levels(n), line, n, noise=noise)

    @property
    def late(self) -> bool:
        return self.deadline.passed

    def offer(self, tree: RangeTree, name: str) -> None:
        """Keep the better one."""
        if tree.error < self.best.error:
            self.best = tree
        if self.progress is not None:
            self.progress(name, math.sqrt(self.line.trace(self.n) / self.best.error))

    def descend(
        self, fanouts: tuple[int, ...], start: str, more: int, rng: Generator, iterations: int
    ) -> RangeTree:
        """From a start of one kind."""
        depth = len(fanouts)
        entries: list[Array] = []
        for i, b in enumerate(fanouts):
            leaf, p = i == depth - 1, _rows(b, self.noise) << more
            first = np.full(b, 1.0 if leaf else 0.1)
            rows_of_level = _runs(b, p) if start == "runs" else _boxes(b, p, rng)
            entries.append(
                np.vstack(
                    [first, (0.5 if leaf else 1.0) * rows_of_level + 0.1 * rng.random((p, b))]
                )
            )
        name = f"{start} {fanouts}"
        return self.descend_from(fanouts, np.zeros(depth), entries, iterations, name)

    def descend_from(
        self,
        fanouts: tuple[int, ...],
        logs: Array,
        entries: list[Array],
        iterations: int,
        name: str,
    ) -> RangeTree:
        """L-BFGS on all levels and weights together, from these."""
        from scipy.optimize import OptimizeResult, minimize

        rows = tuple(len(e) - 1 for e in entries)
        gram = self.line.gram(math.prod(fanouts))
        objective = RangeTreeObjective(fanouts, rows, gram, self.noise)
        bounds: list[tuple[float, float | None]] = [(-LOG_WEIGHT, LOG_WEIGHT)] * len(fanouts)
        for i, (b, p) in enumerate(zip(fanouts, rows, strict=True)):
            least = LEAST_DIAGONAL[i == len(fanouts) - 1]
            bounds += [(least, None)] * b + [(0.0, None)] * (p * b)

        def stop(intermediate_result: OptimizeResult) -> None:
            if self.late:
                raise StopIteration

        # Weights count by their ratios: the middle of their logs goes to zero.
        logs = np.clip(logs - (logs.min() + logs.max()) / 2, -LOG_WEIGHT, LOG_WEIGHT)
        result = minimize(
            objective,
            objective.pack(logs, entries),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            callback=stop,
            options={"maxiter": iterations, "maxfun": 2 * iterations, "ftol": 1e-8, "gtol": 1e-7},
        )
        weights, levels = objective.levels(result.x)
        error = tree_error(levels, weights, self.line, self.n, noise=self.noise)
        tree = RangeTree(self.n, self.noise, fanouts, levels, weights, error)
        self.offer(tree, name)
        return tree


def _rows(b: int, noise: NoiseKind) -> int:
    """How many rows a level of fan-out b has besides its diagonal; more do not pay."""
    if noise is NoiseKind.GAUSSIAN:
        return max(1, min(b // 2, 16))
    return min(b, 4 if b < 40 else 8)


def _runs(b: int, p: int) -> Array:
    """Children cut into p runs."""
    return np.equal.outer(np.arange(p), np.arange(b) * p // b).astype(float)


def _boxes(b: int, p: int, rng: Generator) -> Array:
    """Random runs, of up to two p-ths of the children."""
    boxes = np.zeros((p, b))
    for row in boxes:
        width = int(rng.integers(1, min(b, max(3, 2 * b // p)) + 1))
        low = int(rng.integers(0, b - width + 1))
        row[low : low + width] = 1
    return boxes


def _line(queries: Matrix | LineQueries, n: int) -> LineQueries:
    if isinstance(queries, LineQueries):
        return queries
    if queries.shape[1] != n:
        raise ShapeError(f"{queries} asks about {queries.shape[1]} cells, not {n}")
    line = LineQueries.of(queries)
    if line is None:
        raise UnsupportedError(
            f"tied trees are optimised for prefixes, all ranges, cells and totals, got {queries}"
        )
    return line


def _inner(n: int, leaf: int, depth: int) -> range:
    if depth == 2:
        return range(1, 2)
    even = (n / leaf) ** (1 / (depth - 1))
    return range(max(2, int(even * 0.8)), int(even * 1.4) + 2)


def _cost(n: int, fanouts: tuple[int, ...]) -> float:
    """Leaves without a cell, and how uneven the fan-outs are."""
    waste = (math.prod(fanouts) - n) / n
    logs = [math.log(b) for b in (*fanouts[:-1], fanouts[-1] / 2)]
    mean = sum(logs) / len(logs)
    return waste + CUT_COST * (waste > 0) + UNEVEN_COST * sum((x - mean) ** 2 for x in logs)


def _hb_cost(b: int, h: int) -> int:
    return 3 * (b - 1) * h**3 - 2 * (b + 1) * h**2


def _largest_remainders(entries: Array, total: int) -> Array:
    """Whole numbers near the entries, every column of sum `total`."""
    exact = entries * (total / entries.sum(axis=0))
    whole = np.floor(exact).astype(np.int64)
    order = np.argsort(whole - exact, axis=0, kind="stable")
    rank = np.argsort(order, axis=0, kind="stable")
    return np.asarray(whole + (rank < total - whole.sum(axis=0)))


def _stacked(levels: Sequence[Any], scales: Sequence[float], cells: int) -> Matrix:
    blocks = level_blocks(levels)
    whole = Stack(tuple(Scaled(k, block) for k, block in zip(scales, blocks, strict=True)))
    if whole.shape[1] == cells:
        return whole
    first = sp.eye_array(whole.shape[1], cells, dtype=np.int8, format="csr")
    return Compose((whole, Sparse(first)))
