"""OPT_0: the best p-Identity strategy for one Gram under Laplace noise.

A(Θ) = [I; Θ] diag(1 / (1 + colsum Θ)) with Θ ≥ 0 has all column sums equal to one, so its error is
C(Θ) = ‖W A⁺‖² (McKenna et al. 2018, section 5). The search is by L-BFGS-B from several starts, rows
that count boxes and random rows; on longer lines it goes from a coarse solution to a finer one. All
starts keep well away from Θ = 0, which is Identity and always a local minimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from scipy.linalg.lapack import dpotrf, dpotri
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from psephos.strategy.deadline import NEVER, Deadline
from psephos.strategy.gram_terms import GramOperator
from psephos.values import Array

DESCENT_STEPS = 300
"""Steps of one descent; further ones gain less than another start does."""
FRESH_START_CELLS = 512
"""Up to this many cells long descents from fresh starts are cheap, and now and then the best."""
COARSE_BLOCKS = 128
"""The coarsest problem has this many blocks, or as many as there are cells."""
DENSE_BLOCKS = 1024
"""Up to this many blocks their Gram is one array."""
LONG_LINE = 2048
"""Beyond so many cells most steps are made on blocks, and few on all cells."""
TWICE_REFINED = 4096
"""Up to so many cells of a long line two ways to add rows are compared."""
LONG_BLOCK_STEPS, LONG_LINE_STEPS = 200, 40
"""Steps on blocks of a long line, and on all its cells, which then gain a few per cent more."""
GRID_ROWS = 256
"""The most further queries on a grid."""
LARGEST_ENTRY = 1000.0
"""No entry of Θ is larger: the identity keeps a share of a thousandth, and C its digits."""
BOX_WEIGHT = 0.7
"""The entries of a box at the start: from 0.7 they grow or shrink, from 0.1 most end at zero."""
JOINING_WEIGHT = 0.2
"""The entries of rows that join a solution of coarser blocks on a long line."""
Start = Callable[[int, int, Generator], Array]
"""(p, n, rng) ↦ Θ."""


@dataclass(frozen=True, eq=False)
class Opt0Solution:
    """Θ without its zero rows, and C(Θ). Identity is Θ with no rows at all."""

    theta: Array
    error: float


class DeadlinePassed(Exception):
    """The deadline has passed."""


def opt0(
    gram: GramOperator,
    *,
    rng: Generator,
    restarts: int,
    deadline: Deadline = NEVER,
    grid: tuple[int, ...] | None = None,
    long: bool = True,
    progress: Callable[[int, Opt0Solution], None] | None = None,
) -> Opt0Solution:
    """The best of several runs, and of Identity.

    A run on a line solves the problem of 128 blocks from several starts and takes the best of them
    to finer blocks; cells that form a `grid` start from random boxes. What others will improve on
    needs no long descents. `progress` is told the number of the run and the best so far.
    """
    best = identity(gram)
    if gram.n == 1 or gram.trace <= 0:
        return best
    lines: list[Array] = []
    if grid is None:
        order = cell_order(gram)
        lines = [np.arange(gram.n)] if order is None else [np.arange(gram.n), np.argsort(order)]
    for run in range(restarts):
        if _late(deadline):
            break
        if grid is not None:
            rows = min(rows_for(gram.n), max(16, gram.n // 32), GRID_ROWS)
            # Boxes overlap in more ways than intervals, and take longer to settle.
            runs = [(boxes(grid, rows, rng), 2 * DESCENT_STEPS)]
        else:
            runs = _from_coarse(gram, lines, rng, deadline)
        if long and grid is None and COARSE_BLOCKS < gram.n <= FRESH_START_CELLS:
            kind = (intervals, dense)[run % 2]
            runs.append((kind(rows_for(gram.n), gram.n, rng), 5 * DESCENT_STEPS))
        for start, steps in runs:
            solution = optimise(gram, rng=rng, start=start, iterations=steps, deadline=deadline)
            best = _better(solution, best)
        if progress is not None:
            progress(run, best)
    return best


def optimise(
    gram: GramOperator,
    *,
    rng: Generator,
    p: int | None = None,
    start: Array | None = None,
    iterations: int | None = None,
    deadline: Deadline = NEVER,
) -> Opt0Solution:
    """One descent from one start (random rows if none is given): the best Θ seen, or Identity."""
    if start is None:
        start = dense(rows_for(gram.n) if p is None else p, gram.n, rng)
    if len(start) == 0 or gram.trace <= 0:
        return identity(gram)
    theta, error = _descend(gram, 1.0, start, iterations or DESCENT_STEPS, deadline)
    return _better(Opt0Solution(theta[theta.any(axis=1)], error), identity(gram))


def objective(theta: Array, gram: GramOperator, cells: Array | float = 1.0) -> tuple[float, Array]:
    """C(Θ) and its gradient, in O(np²) and one product with G.

    With s = 1 + colsum Θ, B = Θ diag(s) and K = I + ΘΘᵀ, the inverse of I + ΘᵀΘ by Woodbury gives

        C = Σ_j s_j² G_jj - tr(K⁻¹ B G Bᵀ).

    `cells` says how many equal columns of Θ each column stands for: Θ that is constant on blocks
    costs what the blocks cost, with K = I + Θ diag(cells) Θᵀ, G summed over pairs of blocks and its
    diagonal over blocks.

    >>> gram = GramOperator(2, np.ones(2), lambda b: b @ np.eye(2))
    >>> round(objective(np.array([[1.0, 1.0]]), gram)[0], 6)
    5.333333
    """
    p = len(theta)
    s = 1 + theta.sum(axis=0)
    b = theta * s
    m = gram.times(b)
    q = m @ b.T
    # One array and its transpose: numpy then computes half of a symmetric product.
    root = theta if isinstance(cells, float) and cells == 1 else theta * np.sqrt(cells)
    k = root @ root.T
    k.flat[:: p + 1] += 1
    inverse = _inverse(k)
    value = float((s * s) @ gram.diagonal - np.vdot(inverse, q))
    solved = inverse @ m
    by_s = gram.diagonal * s - np.einsum("ij,ij->j", theta, solved)
    gradient = (inverse @ q @ inverse) @ theta
    gradient *= cells
    solved *= s
    gradient -= solved
    gradient += by_s
    gradient *= 2
    return value, gradient


def identity(gram: GramOperator) -> Opt0Solution:
    """No further queries: C = tr G."""
    return Opt0Solution(np.zeros((0, gram.n)), gram.trace)


def rows_for(n: int) -> int:
    """How many further queries: n/16, and fewer where the line is long."""
    return max(1, round(min(n / 16, 2.8 * math.sqrt(n))))


def cell_order(gram: GramOperator) -> Array | None:
    """The order that brings like cells together, or None if it is the given one or there is none.

    Sorted by the second eigenvector of the Laplacian of R_ij = G_ij / √(G_ii G_jj), which finds the
    line again if the cells of a line were shuffled (Atkins, Boman and Hendrickson 1998).
    """
    n = gram.n
    if n < 8 or not gram.diagonal.all():
        return None
    scale = 1 / np.sqrt(gram.diagonal)
    degree = scale * gram.times(scale[None])[0]
    if degree.max() <= 1 + 1e-9:
        return None
    shift = 2 * degree.max() - degree

    def times(x: Array) -> Array:
        x = x.ravel()
        return np.asarray(shift * x + scale * gram.times((scale * x)[None])[0])

    first = 1 + 0.5 * np.cos(np.arange(n) * 2.4)
    try:
        _, vectors = eigsh(
            LinearOperator((n, n), matvec=times, dtype=float),
            k=2,
            which="LA",
            v0=first,
            ncv=min(n - 1, 40),
            maxiter=100,
            tol=1e-9,
        )
    except ArpackError:
        return None
    second = min(vectors.T, key=lambda v: abs(v.sum()))
    order = np.argsort(second, kind="stable")
    steps = np.diff(order)
    return None if (steps == 1).all() or (steps == -1).all() else order


def dense(p: int, n: int, rng: Generator) -> Array:
    """Uniform on [0, 1]."""
    return rng.random((p, n))


def segments(p: int, n: int, rng: Generator) -> Array:
    """The line cut into p pieces of one length.

    >>> from numpy.random import default_rng
    >>> (segments(2, 4, default_rng(0)) > BOX_WEIGHT / 2).astype(int)
    array([[1, 1, 0, 0],
           [0, 0, 1, 1]])
    """
    edges = np.linspace(0, n, min(p, n) + 1).round().astype(int)
    return _intervals(p, n, edges[:-1], edges[1:], rng)


def tree(fan_out: int) -> Start:
    """The nodes of a tree over the line, level by level, the last one as fine as rows are left."""

    def start(p: int, n: int, rng: Generator) -> Array:
        low: list[Array] = []
        high: list[Array] = []
        left, parts = p, fan_out
        while left > 0:
            # A level that does not fit is made coarser, so that it still covers the line.
            parts = min(parts, left, n)
            edges = np.linspace(0, n, parts + 1).round().astype(int)
            low.append(edges[:-1])
            high.append(edges[1:])
            left -= parts
            parts *= fan_out
        return _intervals(p, n, np.concatenate(low), np.concatenate(high), rng)

    return start


def intervals(p: int, n: int, rng: Generator) -> Array:
    """Random intervals, long and short ones alike on a logarithmic scale."""
    return boxes((n,), p, rng)


def boxes(grid: tuple[int, ...], p: int, rng: Generator) -> Array:
    """Random boxes of a grid, with side lengths alike on a logarithmic scale."""
    inside = np.ones((p, 1), dtype=bool)
    for n in grid:
        length = np.minimum(np.exp(rng.random(p) * math.log(n + 1)).astype(int), n)
        low = rng.integers(0, n - length + 1)
        cells = np.arange(n)
        along = (cells >= low[:, None]) & (cells < (low + length)[:, None])
        inside = (inside[:, :, None] & along[:, None, :]).reshape(p, -1)
    return _noisy(np.where(inside, BOX_WEIGHT, 0.0), rng)


def _from_coarse(
    gram: GramOperator, lines: list[Array], rng: Generator, deadline: Deadline
) -> list[tuple[Array, int]]:
    """Starts for all cells: the best solutions of few blocks, refined up to an eighth of the cells.

    Θ that is constant on blocks is a problem of as many columns as there are blocks, with the exact
    error of all cells. A line gives the position of every cell. Each start comes with the number
    of steps that its descent deserves.
    """
    sizes = [gram.n]
    while sizes[0] > COARSE_BLOCKS:
        sizes.insert(0, max(COARSE_BLOCKS, sizes[0] // 8))
    m = sizes[0]
    kinds = [tree(2), tree(4), segments, dense, intervals]
    few_rows, more_rows = rows_for(m), max(2, m // 8)
    groups = [(few_rows, kinds)] + ([(more_rows, kinds[1::2])] if m == gram.n else [])
    cheap = m < gram.n <= 4 * COARSE_BLOCKS
    problems = [(line, *_blocks(gram, line, m)) for line in lines]
    starts = []
    for p, group in groups:
        descents = [
            (*_descend(coarse, cells, start(p, m, rng), DESCENT_STEPS, deadline), line)
            for line, coarse, cells in problems
            for start in group
        ]
        descents.sort(key=lambda each: each[1])
        # The best of the blocks need not be the best of the cells.
        chosen = [0, int(rng.integers(1, len(descents)))] if cheap else [0]
        for theta, error, line in (descents[k] for k in chosen):
            if error < (1 - 1e-3) * gram.trace:
                steps = LONG_LINE_STEPS if gram.n > LONG_LINE else DESCENT_STEPS
                # All ranges like their rows early, windows like them late.
                ways = [True, False] if LONG_LINE < gram.n <= TWICE_REFINED else [True]
                for early in ways:
                    refined = _refined(gram, line, theta, sizes[1:], early, rng, deadline)
                    starts.append((refined, steps))
    if not starts or cheap:
        # Blocks of neighbours may be of no help.
        rows = rows_for(gram.n)
        starts.append((dense(rows, gram.n, rng), DESCENT_STEPS))
        kind = kinds[rng.integers(len(kinds))]
        starts.append((kind(rows, gram.n, rng)[:, lines[-1]], DESCENT_STEPS))
    return starts


def _refined(
    gram: GramOperator,
    line: Array,
    theta: Array,
    sizes: list[int],
    early: bool,
    rng: Generator,
    deadline: Deadline,
) -> Array:
    """Θ of blocks taken to finer blocks, with further rows, and improved up to the last but one.

    On long lines most steps are made on the last but one, where they take an eighth of the time; if
    `early`, all rows are there already. Rows that join a good solution start faint, or they would
    spoil it first.
    """
    long = gram.n > LONG_LINE
    for i, m in enumerate(sizes):
        rows = rows_for(gram.n if long and early and i == len(sizes) - 2 else m)
        theta = theta[theta.any(axis=1)]
        theta = theta[:, np.arange(m) * theta.shape[1] // m]
        extra = rows - len(theta) if long else max(rows - len(theta), 1)
        if extra > 0:
            more = segments(extra, m, rng)
            theta = np.vstack([theta, more * (JOINING_WEIGHT / BOX_WEIGHT) if long else more])
        if m < gram.n:
            coarse, cells = _blocks(gram, line, m)
            steps = LONG_BLOCK_STEPS if long else DESCENT_STEPS
            theta, _ = _descend(coarse, cells, theta, steps, deadline)
    return np.ascontiguousarray(theta[:, line])


def _blocks(gram: GramOperator, position: Array, m: int) -> tuple[GramOperator, Array | float]:
    """G summed over pairs of blocks of neighbours, and how many cells each block has."""
    n = gram.n
    if m == n and (position[1:] > position[:-1]).all():
        return gram, 1.0
    block = position * m // n
    cells = np.bincount(block, minlength=m).astype(float)
    by_block = np.argsort(block, kind="stable")
    edges = np.concatenate([[0], np.cumsum(cells)[:-1]]).astype(int)

    def times(b: Array) -> Array:
        over = np.take(gram.times(np.take(b, block, axis=1)), by_block, axis=1)
        return np.asarray(np.add.reduceat(over, edges, axis=1))

    diagonal = np.bincount(block, weights=gram.diagonal, minlength=m)
    if m > DENSE_BLOCKS:
        return GramOperator(m, diagonal, times), cells
    whole = times(np.eye(m))
    return GramOperator(m, diagonal, lambda b: b @ whole), cells


def _descend(
    gram: GramOperator,
    cells: Array | float,
    start: Array,
    iterations: int,
    deadline: Deadline,
) -> tuple[Array, float]:
    """L-BFGS-B in rounds, each over the entries of Θ that are not zero or would leave zero.

    Good strategies are sparse (one entry in twenty at n = 1024), and the book-keeping of L-BFGS-B
    over all entries would cost several times the objective.
    """
    theta = np.minimum(start, LARGEST_ENTRY, order="C")  # `_round` writes to a flat view of it
    error, gradient = objective(theta, gram, cells)
    done, length = 0, 10
    while done < iterations and not _late(deadline):
        length = min(length, iterations - done)
        free = np.flatnonzero((theta > 0) | (gradient < 0))
        before = error
        error = _round(gram, cells, theta, free, length, deadline)
        # Entries at zero are judged again at the new point.
        _, gradient = objective(theta, gram, cells)
        if before - error < 1e-6 * error:
            break
        done += length
        length = min(2 * length, 100)
    return theta, error


def _round(
    gram: GramOperator,
    cells: Array | float,
    theta: Array,
    free: Array,
    iterations: int,
    deadline: Deadline,
) -> float:
    """Improves the free entries of Θ in place, leaves the best values seen there; C(Θ)."""
    from scipy.optimize import Bounds, minimize

    flat = theta.reshape(-1)
    best, least = flat[free], np.inf

    def scaled(x: Array) -> tuple[float, Array]:
        nonlocal best, least
        flat[free] = x
        value, gradient = objective(theta, gram, cells)
        if value < least:
            best, least = x.copy(), value
        if _late(deadline):
            raise DeadlinePassed
        return value / gram.trace, gradient.reshape(-1)[free] / gram.trace

    with suppress(DeadlinePassed):
        minimize(
            scaled,
            best,
            jac=True,
            method="L-BFGS-B",
            bounds=Bounds(np.zeros(free.size), np.full(free.size, LARGEST_ENTRY)),
            options={"maxiter": iterations, "maxcor": 10, "ftol": 1e-9, "gtol": 1e-12},
        )
    flat[free] = best
    return least


def _inverse(k: Array) -> Array:
    """The inverse of a positive definite matrix, by Cholesky."""
    lower, failed = dpotrf(k, lower=1)
    if failed:
        raise FloatingPointError("I + ΘΘᵀ is not positive definite: Θ is too large")
    half = np.tril(dpotri(lower, lower=1)[0])
    whole = half + half.T
    whole.flat[:: len(k) + 1] /= 2
    return np.asarray(whole)


def _better(a: Opt0Solution, b: Opt0Solution) -> Opt0Solution:
    return a if a.error < b.error else b


def _late(deadline: Deadline) -> bool:
    return deadline.passed


def _intervals(p: int, n: int, low: Array, high: Array, rng: Generator) -> Array:
    theta = np.zeros((p, n))
    cells = np.arange(n)
    theta[: len(low)] = (cells >= low[:p, None]) & (cells < high[:p, None])
    return _noisy(theta * BOX_WEIGHT, rng)


def _noisy(theta: Array, rng: Generator) -> Array:
    """Entries made a little different, because equal rows would stay equal; zeros stay zero."""
    return np.asarray(theta * (1 + 0.1 * rng.random(theta.shape)))
