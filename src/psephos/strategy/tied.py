"""Strategies for one long axis: a tree whose blocks of one level all measure the same few rows.

n = b₁⋯b_L. Level ℓ measures I(b₁⋯b_{ℓ-1}) ⊗ A_ℓ ⊗ total(b_{ℓ+1}⋯b_L) with weight w_ℓ, where
A_ℓ = [diag(d); B] has non-negative entries and columns of equal norm; so has then the whole
strategy. The p-Identity strategies of McKenna et al. 2018 are the case L = 1, the hierarchies of
Hay et al. 2010 and Qardaji et al. 2013 the case A_ℓ = I. All levels and weights are optimised
together, at the price of a few b x b matrices per step, so that n plays no part in it. At the upper
levels d mostly vanishes: overlapping runs of children are worth more than children one by one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.optimize import OptimizeResult, minimize

from psephos.errors import ShapeError, UnsupportedError
from psephos.frozen import Array
from psephos.infer.line import LineQueries
from psephos.infer.tree import Tree, level_matrix
from psephos.matrix import Dense, Identity, Kron, Matrix, total
from psephos.strategy.factors import Noise
from psephos.strategy.fanouts import fanout_lists, hb_levels
from psephos.strategy.rounding import round_columns
from psephos.strategy.tied_objective import Levels, TiedObjective

Progress = Callable[[str, float], None]
SCREENED, ITERATIONS = 40, 400
KEPT = 2
WEIGHTS = 2.0
"""Log weights of levels stay within ± this: a level once lost is not found again."""
LEAST = 1e-6, 1e-3
"""The least diagonal entry before scaling: above, so that no column vanishes; at the leaves, so
that every cell is told from its neighbours."""


@dataclass(frozen=True, eq=False)
class TiedFound:
    """A tree of levels with columns of norm one, weights that sum to one, and its error."""

    cells: int
    noise: Noise
    fanouts: tuple[int, ...]
    levels: Levels
    """(d, B) from the root to the leaves: A_ℓ is diag(d) above B."""
    weights: Array
    error: float
    """‖A‖² tr(X⁻¹WᵀW) with ‖A‖₁ for Laplace noise and ‖A‖₂ for Gaussian noise."""


def optimise_tied(
    queries: Matrix | LineQueries,
    n: int,
    *,
    noise: Noise = "laplace",
    rng: Generator,
    lists: Sequence[tuple[int, ...]] | None = None,
    deadline: float | None = None,
    progress: Progress | None = None,
) -> TiedFound:
    """The best tree found for prefixes, ranges, cells and totals of a line of n cells.

    Where n is not the product of the fan-outs, the levels are optimised for all leaves of the tree,
    and scored exactly on the first n, all that exist.

    Args:
        queries: a Matrix made of AllRange, Prefix, suffix, Identity and total, or their Gram
        n: cells
        noise: laplace or gaussian
        rng: where random starts come from
        lists: the lists of fan-outs to try; by default a few of each sensible depth
        deadline: of time.monotonic(); the best so far is returned
        progress: called with what was tried and the ratio of Identity's RMSE to the best so far
    """
    line = _line(queries, n)
    search = _Search(line, n, noise, deadline, progress)
    tried = []
    for fanouts in fanout_lists(n) if lists is None else lists:
        if search.late:
            break
        tried.append((search.descend(fanouts, "runs", 0, rng, SCREENED).error, fanouts))
    for _, fanouts in sorted(tried)[:KEPT]:
        for start, more in (("runs", 0), ("boxes", 0), ("runs", 1), ("boxes", 1)):
            if not search.late:
                search.descend(fanouts, start, more, rng, ITERATIONS)
    return search.best


def uniform_levels(
    fanouts: Sequence[int], queries: Matrix | LineQueries, n: int, *, noise: Noise = "laplace"
) -> TiedFound:
    """The hierarchy with A_ℓ = I and equal weights: `hb_levels` or `h2_levels`, with its error."""
    levels = tuple((np.ones(b), np.empty((0, b))) for b in fanouts)
    weights = np.full(len(fanouts), 1 / len(fanouts))
    error = tied_error(levels, weights, queries, n, noise=noise)
    return TiedFound(n, noise, tuple(fanouts), levels, weights, error)


def tied_tree(
    levels: Sequence[tuple[Array, Array]],
    weights: Sequence[float] | Array,
    n: int,
    *,
    noise: Noise = "laplace",
) -> Tree:
    """The tree at sensitivity one: its traces are ‖A‖²·tr(X⁻¹WᵀW), for whole numbers or not.

    ‖A‖₁ = Σ_ℓ w_ℓ·max‖A_ℓ‖₁ for Laplace noise, ‖A‖₂² = Σ_ℓ w_ℓ·max‖A_ℓ‖₂² for Gaussian noise.
    """
    weights = np.asarray(weights, dtype=float)
    matrices = [level_matrix(*level).astype(float) for level in levels]
    power = 1 if noise == "laplace" else 2
    norms = [float((np.abs(a) ** power).sum(axis=0).max()) for a in matrices]
    shares = weights / float(weights @ norms)
    return Tree.of(matrices, shares**2 if noise == "laplace" else shares, n)


def tied_error(
    levels: Sequence[tuple[Array, Array]],
    weights: Sequence[float] | Array,
    queries: Matrix | LineQueries,
    n: int,
    *,
    noise: Noise = "laplace",
) -> float:
    """‖A‖² tr(X⁻¹WᵀW) of levels with weights, for whole numbers or not."""
    return tied_tree(levels, weights, n, noise=noise).trace(_line(queries, n))


def integer_levels(found: TiedFound, bits: int) -> list[tuple[Array, Array]]:
    """(d, B) of every level in whole numbers.

    Laplace: every column of [diag(d); B] sums to exactly 2^bits, by largest remainder. Gaussian:
    no column is longer than 2^bits. A level that is the identity stays so.
    """
    made = []
    for i, (diagonal, rows) in enumerate(found.levels):
        entries = np.vstack([diagonal, rows])
        if not rows.any():
            whole = np.vstack([np.ones_like(diagonal), np.zeros_like(rows)]).astype(np.int64)
        elif found.noise == "laplace":
            whole = _largest_remainders(entries, 1 << bits)
        else:
            whole = round_columns(entries, bits)
        if i == len(found.levels) - 1:
            for k in np.flatnonzero(whole[0] == 0):  # a cell must be told from its neighbours
                whole[1 + whole[1:, k].argmax(), k] -= 1
                whole[0, k] = 1
        made.append((whole[0], whole[1:][whole[1:].any(axis=1)]))
    return made


def tied_blocks(levels: Sequence[tuple[Array, Array]]) -> list[Matrix]:
    """I ⊗ A_ℓ ⊗ total for every level, over all leaves of the tree; only the first n need exist.

    All blocks are products over one grid, the fan-outs, so that their sensitivity needs no cells.

    >>> tied_blocks([(np.ones(2), np.empty((0, 2))), (np.array([1, 1]), np.array([[1, 1]]))])
    [Kron(Identity(n=2), Ones(m=1, n=2)), Kron(Identity(n=2), Dense(array: 3 x 2))]
    """
    made: list[Matrix] = []
    for i, (diagonal, rows) in enumerate(levels):
        is_identity = not len(rows) and (np.asarray(diagonal) == 1).all()
        own = Identity(len(diagonal)) if is_identity else Dense(level_matrix(diagonal, rows))
        before = [Identity(len(d)) for d, _ in levels[:i]]
        after = [total(len(d)) for d, _ in levels[i + 1 :]]
        made.append(Kron((*before, own, *after)))
    return made


def _largest_remainders(entries: Array, total: int) -> Array:
    """Whole numbers near the entries, every column of sum `total`."""
    exact = entries * (total / entries.sum(axis=0))
    whole = np.floor(exact).astype(np.int64)
    order = np.argsort(whole - exact, axis=0, kind="stable")
    rank = np.argsort(order, axis=0, kind="stable")
    return np.asarray(whole + (rank < total - whole.sum(axis=0)))


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


class _Search:
    """The best tree so far, and descents from new starts."""

    def __init__(
        self,
        line: LineQueries,
        n: int,
        noise: Noise,
        deadline: float | None,
        progress: Progress | None,
    ) -> None:
        self.line, self.n, self.noise = line, n, noise
        self.deadline, self.progress = deadline, progress
        self.best = uniform_levels(hb_levels(n), line, n, noise=noise)

    @property
    def late(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    def offer(self, found: TiedFound, name: str) -> None:
        """Keep the better one."""
        if found.error < self.best.error:
            self.best = found
        if self.progress is not None:
            self.progress(name, math.sqrt(self.line.trace(self.n) / self.best.error))

    def descend(
        self, fanouts: tuple[int, ...], start: str, more: int, rng: Generator, iterations: int
    ) -> TiedFound:
        """L-BFGS on all levels and weights together."""
        rows = tuple(_rows(b, self.noise) << more for b in fanouts)
        gram = self.line.gram(math.prod(fanouts))
        objective = TiedObjective(fanouts, rows, gram, self.noise)
        depth = len(fanouts)
        entries: list[Array] = []
        bounds: list[tuple[float, float | None]] = [(-WEIGHTS, WEIGHTS)] * depth
        for i, (b, p) in enumerate(zip(fanouts, rows, strict=True)):
            leaf = i == depth - 1
            first = np.full(b, 1.0 if leaf else 0.1)
            drawn = _runs(b, p) if start == "runs" else _boxes(b, p, rng)
            entries.append(
                np.vstack([first, (0.5 if leaf else 1.0) * drawn + 0.1 * rng.random((p, b))])
            )
            bounds += [(LEAST[leaf], None)] * b + [(0.0, None)] * (p * b)

        def stop(intermediate_result: OptimizeResult) -> None:
            if self.late:
                raise StopIteration

        result = minimize(
            objective,
            objective.pack(np.zeros(depth), entries),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds,
            callback=stop,
            options={"maxiter": iterations, "maxfun": 2 * iterations, "ftol": 1e-8, "gtol": 1e-7},
        )
        weights, levels = objective.levels(result.x)
        error = tied_error(levels, weights, self.line, self.n, noise=self.noise)
        found = TiedFound(self.n, self.noise, fanouts, levels, weights, error)
        self.offer(found, f"{start} {fanouts}")
        return found


def _rows(b: int, noise: Noise) -> int:
    """Rows besides the diagonal that pay: few for Laplace noise, many for Gaussian."""
    if noise == "gaussian":
        return max(1, min(b // 2, 16))
    return min(b, 4 if b < 40 else 8)


def _runs(b: int, p: int) -> Array:
    """Children cut into p runs."""
    return np.equal.outer(np.arange(p), np.arange(b) * p // b).astype(float)


def _boxes(b: int, p: int, rng: Generator) -> Array:
    """Random runs, of up to two p-ths of the children."""
    made = np.zeros((p, b))
    for row in made:
        width = int(rng.integers(1, min(b, max(3, 2 * b // p)) + 1))
        low = int(rng.integers(0, b - width + 1))
        row[low : low + width] = 1
    return made
