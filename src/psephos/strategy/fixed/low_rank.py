"""The low-rank mechanism: W ≈ B L, where L is measured and B says how answers follow from it.

    minimise ½‖B‖²  subject to  W = B L,  every column of L of norm at most one

(Yuan et al. 2012), by an augmented Lagrangian: B in closed form, L by accelerated gradients and
projections onto the ball, column by column. Only WᵀW matters, so W is replaced by a root of it. The
L that is found is rounded to integers, and B is W L⁺. Where rounding leaves something asked outside
the span of L, every cell is asked once more, at the best of a few weights.
"""

from __future__ import annotations

import numpy as np
from numpy.random import default_rng
from scipy.linalg import qr

from psephos.errors import WorkloadError, checked_whole
from psephos.kernel.query import Query
from psephos.strategy.factors import NoiseName, checked_selection
from psephos.strategy.fixed.matrix_mechanism import (
    error_of,
    merged_gram,
    round_signed,
    spread_columns,
)
from psephos.strategy.gram_terms import GramOperator
from psephos.strategy.strategy import Strategy
from psephos.values import Array
from psephos.workload.workload import Workload

LOW_RANK_CELLS = 512
"""The most different cells that are factorised."""
LOW_RANK_BITS = 12
"""Bits of the largest column."""
FIT_TOLERANCE = 1e-4
"""The share of W's length by which B L may miss it."""


def low_rank(
    workload: Workload,
    noise: NoiseName = "laplace",
    *,
    share: float = 1.2,
    rounds: int = 25,
    steps: int = 12,
    seed: int = 0,
) -> Strategy:
    """The low-rank mechanism, for at most 512 cells that the workload tells apart.

    Args:
        workload: what is to be answered
        noise: "laplace" (L1 norms) or "gaussian" (L2 norms)
        share: the rows of L for each dimension of the workload's span
        rounds: the most steps of the multiplier
        steps: alternations between B and L in each of them
        seed: of the small noise at the start
    """
    kind = checked_selection(workload, noise)
    number = isinstance(share, int | float | np.number) and not isinstance(share, bool)
    if not number or not 0 < share <= 10:
        raise WorkloadError(f"share is a number above 0, at most 10, got {share!r}")
    rounds, steps = checked_whole(rounds, "rounds", 1), checked_whole(steps, "steps", 1)
    seed = checked_whole(seed, "seed", 0)
    gram, groups = merged_gram(workload, LOW_RANK_CELLS, "the low-rank mechanism")
    values, vectors = np.linalg.eigh(gram.times(np.eye(gram.n)))
    spanned = values > values[-1] * gram.n * 1e-14
    root = np.sqrt(values[spanned])[:, None] * vectors[:, spanned].T
    left = factorise(root, round(share * len(root) + 0.5), kind.norm, rounds, steps, seed)
    array = round_signed(left, LOW_RANK_BITS) if kind.norm == 1 else _round_squares(left)
    array = completed(array, root, gram, kind.norm)
    loss = (error_of(array, gram, kind.norm) / error_of(left, gram, kind.norm)) ** 0.5 - 1
    query = Query.of(spread_columns(array, groups))
    return Strategy(workload.domain, kind, query, "low_rank", max(0.0, loss))


def factorise(w: Array, rows: int, norm: int, rounds: int, steps: int, seed: int) -> Array:
    """The best L for W ≈ B L from several starts: the problem is not convex."""
    w = w / np.linalg.norm(w)
    candidates = [_descent(w, start, norm, rounds, steps) for start in _starts(w, rows, seed)]
    return min(candidates, key=lambda left: _error(left, w, norm))


def _starts(w: Array, rows: int, seed: int) -> list[Array]:
    """Singular vectors; a triangle or, if there are rows enough, cells and a symmetric root."""
    n = w.shape[1]
    rng = default_rng(seed)
    _, values, right = np.linalg.svd(w, full_matrices=False)
    _, triangle, order = qr(w, mode="economic", pivoting=True)
    starts = [right, triangle[:, np.argsort(order)]]
    if rows >= n:
        starts = [right, np.eye(n), (right.T * np.sqrt(values)) @ right]
    padded = []
    for start in starts:
        more = 0.05 * np.abs(start).max() * rng.normal(size=(rows - len(start), n))
        padded.append(np.vstack([start, more]))
    return padded


def _descent(w: Array, start: Array, norm: int, rounds: int, steps: int) -> Array:
    """Augmented Lagrangian: B and L in turn, then the multiplier; the penalty grows."""
    left = start / np.maximum((np.abs(start) ** norm).sum(axis=0), 1e-12) ** (1 / norm)
    multiplier, beta = np.zeros_like(w), 10.0
    best, least = left, _error(left, w, norm)
    for _ in range(rounds):
        for _ in range(steps):
            inner = beta * left @ left.T
            inner.flat[:: len(inner) + 1] += 1
            b = np.linalg.solve(inner, left @ (beta * w + multiplier).T).T
            left = _improved(left, b, w + multiplier / beta, norm)
        error = _error(left, w, norm)
        if error < least:
            best, least = left.copy(), error
        residual = w - b @ left
        if np.linalg.norm(residual) < FIT_TOLERANCE:
            break
        multiplier = multiplier + beta * residual
        beta *= 1.5
    return np.asarray(best)


def _error(left: Array, w: Array, norm: int) -> float:
    """‖L‖²‖W L⁺‖², infinite if L does not span W."""
    longest = (np.abs(left) ** norm).sum(axis=0).max() ** (1 / norm)
    b = np.linalg.lstsq(left.T, w.T, rcond=None)[0].T
    if np.linalg.norm(w - b @ left) > 1e-6:
        return float("inf")
    return float(longest**2 * (b**2).sum())


def _improved(left: Array, b: Array, target: Array, norm: int, steps: int = 6) -> Array:
    """A few accelerated projected gradients of ½‖T - B L‖² in L."""
    square, cross = b.T @ b, b.T @ target
    slope = float(np.linalg.norm(square, 2))
    if slope == 0:
        return left
    ahead, before, t = left, left, 1.0
    for _ in range(steps):
        now = project(ahead - (square @ ahead - cross) / slope, norm)
        after = (1 + np.sqrt(1 + 4 * t * t)) / 2
        ahead = now + (t - 1) / after * (now - before)
        before, t = now, after
    return before


def project(a: Array, norm: int) -> Array:
    """The nearest matrix with columns in the unit ball of the L1 norm (norm 1) or the L2 norm.

    >>> project(np.array([[2.0, 0.5], [1.0, 0.0]]), 1)
    array([[1. , 0.5],
           [0. , 0. ]])
    """
    if norm == 2:
        return np.asarray(a / np.maximum(1, np.sqrt((a**2).sum(axis=0))))
    sizes = np.abs(a)
    ordered = -np.sort(-sizes, axis=0)
    sums = np.cumsum(ordered, axis=0) - 1
    counts = np.arange(1, len(a) + 1)[:, None]
    last = (ordered * counts > sums).sum(axis=0) - 1
    cut = np.maximum(sums[last, np.arange(a.shape[1])] / (last + 1), 0)
    return np.asarray(np.sign(a) * np.maximum(sizes - cut, 0))


def _round_squares(a: Array) -> Array:
    largest = np.sqrt((a**2).sum(axis=0).max())
    return np.asarray(np.rint(a * ((1 << LOW_RANK_BITS) / largest)).astype(np.int64))


def completed(array: Array, root: Array, gram: GramOperator, norm: int) -> Array:
    """With every cell asked once more, at the best weight 2^b, if W is not in the span of L."""
    rows = array[array.any(axis=1)].astype(float)
    inside = np.linalg.lstsq(rows.T, root.T, rcond=None)[0]
    missed = np.linalg.norm(root.T - rows.T @ inside)
    if missed <= 1e-8 * np.linalg.norm(root):
        return array
    cells = np.eye(array.shape[1], dtype=np.int64)
    candidates = [np.vstack([array, cells << b]) for b in range(LOW_RANK_BITS + 1)]
    return min(candidates, key=lambda a: error_of(a, gram, norm))
