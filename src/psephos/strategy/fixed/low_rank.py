"""The low-rank mechanism: W = B L, where L is measured and B says how answers follow from it.

    minimise ‖B‖²  subject to  W = B L,  every column of L of norm at most one

(Yuan et al. 2012). Beside L every cell is asked at a small weight δ, so that whatever L is, W can
be answered. The best B is then least squares, and what is left to search is L alone:

    minimise tr(G (LᵀL + δ²I)⁻¹)  with G = WᵀW,

by projected gradients with steps of Barzilai and Borwein, on the columns' balls (Birgin, Martínez
and Raydan 2000). That takes one Cholesky factor a step, where alternating between B and L takes
dozens of steps for the same gain. The L that is found is rounded to integers; the weight of the
cells is the best of a few, and nothing where L spans W by itself.
"""

from __future__ import annotations

import numpy as np
from numpy.random import default_rng
from scipy.linalg import lapack, qr
from threadpoolctl import threadpool_limits

from psephos.errors import WorkloadError, checked_whole
from psephos.kernel.query import Query
from psephos.strategy.deadline import Deadline
from psephos.strategy.factors import NoiseName, checked_selection
from psephos.strategy.fixed.matrix_mechanism import merged_gram, round_signed, spread_columns
from psephos.strategy.hdmm.search import SearchProgress, Watch, checked_seconds, watch
from psephos.strategy.strategy import Strategy
from psephos.values import Array
from psephos.workload.workload import Workload

LOW_RANK_CELLS = 1024
"""The most different cells that are factorised."""
LOW_RANK_BITS = 12
"""Bits of the largest column."""
WEIGHTS_OF_FEW, WEIGHTS_OF_MANY = (1 / 8, 1 / 128), (1 / 64,)
"""Weights of the cells, one after the other. Fewer rows than cells have to find W's span first: a
large weight lets them. Rows as many as cells span it from the start, and a large weight would let
them give it up."""
MORE_ROWS = 2.0
"""What a column has at the start outside of its own cell: with little of it the search ends at
single cells, with much of it late."""
STEPS_COMPARED = 8
"""A step may be worse than the one before, but not than all of so many."""
LARGEST_CHANGE = 1e3
"""The most that a step may add to an entry before it is projected: columns have norm one."""
WORTHWHILE_GAIN = 1e-4
"""The search ends when ten steps gain less than this share."""


def low_rank(
    workload: Workload,
    noise: NoiseName = "laplace",
    *,
    share: float = 1.2,
    steps: int = 150,
    seed: int = 0,
    time_limit: float | None = None,
    progress: SearchProgress | None = None,
) -> Strategy:
    """The low-rank mechanism, for at most 1,024 cells that the workload tells apart.

    Args:
        workload: what is to be answered
        noise: "laplace" (L1 norms) or "gaussian" (L2 norms)
        share: the rows of L for each dimension of the workload's span
        steps: the most gradients of a search, of which there are at most four
        seed: of the small noise at the start
        time_limit: seconds after which the best so far is returned
        progress: as `hdmm` has it, after each search
    """
    kind = checked_selection(workload, noise)
    number = isinstance(share, int | float | np.number) and not isinstance(share, bool)
    if not number or not 0 < share <= 10:
        raise WorkloadError(f"share is a number above 0, at most 10, got {share!r}")
    steps, seed = checked_whole(steps, "steps", 1), checked_whole(seed, "seed", 0)
    gram, groups = merged_gram(workload, LOW_RANK_CELLS, "the low-rank mechanism")
    values, vectors = np.linalg.eigh(gram.times(np.eye(gram.n)))
    spanned = values > values[-1] * gram.n * 1e-14
    root = np.sqrt(values[spanned])[:, None] * vectors[:, spanned].T
    deadline = Deadline.after(checked_seconds(time_limit, "time_limit"))
    rows = round(share * len(root) + 0.5)
    with watch(progress, time_limit) as watcher, threadpool_limits(1):  # threads wait for others
        left = factorise(root, rows, kind.norm, steps, seed, deadline, watcher)
    array = round_signed(left, LOW_RANK_BITS) if kind.norm == 1 else _round_squares(left)
    loss = np.sqrt(errors_with_cells(array, root, kind.norm).min())
    loss /= np.sqrt(errors_with_cells(left * (1 << LOW_RANK_BITS), root, kind.norm).min())
    query = Query.of(spread_columns(completed(array, root, kind.norm), groups))
    strategy = Strategy(workload.domain, kind, query, "low_rank", max(0.0, float(loss) - 1))
    return (
        strategy.as_result("low_rank (time limit)", (), complete=False)
        if deadline.passed
        else strategy
    )


def factorise(
    root: Array, rows: int, norm: int, steps: int, seed: int, deadline: Deadline, watcher: Watch
) -> Array:
    """The best L from several starts: the problem is not convex."""
    n = root.shape[1]
    unit = root / np.sqrt((root**2).sum())
    weights = WEIGHTS_OF_MANY if rows >= n else WEIGHTS_OF_FEW
    starts = _starts(root, rows, seed)
    size = 1 << LOW_RANK_BITS
    identity, least, best = float((root**2).sum()), np.inf, starts[0]
    watcher.begins(len(starts))
    for number, left in enumerate(starts, 1):
        watcher.enters(f"low_rank, start {number}")
        for weight in weights:
            left = descend(left, unit, weight, norm, steps, deadline)
        error = float(errors_with_cells(left * size, root, norm).min())
        if error < least:
            least, best = error, left
        watcher.tried("low_rank", float(np.sqrt(identity / least)))
        watcher.leaves()
        if deadline.passed:
            break
    return best


def _starts(root: Array, rows: int, seed: int) -> list[Array]:
    """Single cells if there are rows enough, else singular vectors and a triangle; noise beside."""
    n = root.shape[1]
    rng = default_rng(seed)
    starts = [np.eye(n)]
    if rows < n:
        _, triangle, order = qr(root, mode="economic", pivoting=True)
        starts = [np.linalg.svd(root, full_matrices=False)[2], triangle[:, np.argsort(order)]]
    padded = []
    for start in starts:
        start = start[:rows] / np.maximum(np.abs(start[:rows]).sum(axis=0), 1e-12)
        more = rng.normal(size=(rows - len(start), n)) ** 6  # few large entries: no two rows alike
        share = MORE_ROWS if rows >= n else MORE_ROWS / 10
        more *= share / np.maximum(more.sum(axis=0), 1e-12)
        padded.append(np.vstack([start, more]) / (1 + share))
    return padded


def descend(
    left: Array, root: Array, weight: float, norm: int, steps: int, deadline: Deadline
) -> Array:
    """The best L of some projected gradients, the length of each step from the one before."""
    left = project(left, norm)
    error, slope = _error_and_slope(left, root, weight)
    best, history = left, [error]
    length = 1 / np.abs(slope).max()
    for _ in range(steps):
        way = project(left - length * slope, norm) - left
        falls = float((way * slope).sum())
        part = 1.0
        while True:
            ahead = left + part * way
            error, ahead_slope = _error_and_slope(ahead, root, weight)
            if error <= max(history[-STEPS_COMPARED:]) + 1e-4 * part * falls or part < 1e-6:
                break
            part *= min(0.5, max(0.1, -0.5 * part * falls / (error - history[-1] - part * falls)))
        moved, bent = ahead - left, ahead_slope - slope
        curve = float((moved * bent).sum())
        length = float((moved**2).sum()) / curve if curve > 0 else 10 * length
        length = min(length, LARGEST_CHANGE / max(float(np.abs(ahead_slope).max()), 1e-300))
        left, slope = ahead, ahead_slope
        if error < min(history):
            best = left
        history.append(error)
        if deadline.passed:
            break
        if len(history) > 20 and min(history[-10:]) > min(history[:-10]) * (1 - WORTHWHILE_GAIN):
            break
    return best


def _error_and_slope(left: Array, root: Array, weight: float) -> tuple[float, Array]:
    """tr(R X⁻¹ Rᵀ) with X = LᵀL + δ²I, and its gradient -2 L X⁻¹ RᵀR X⁻¹."""
    square = left.T @ left
    square.flat[:: len(square) + 1] += weight**2
    factor = lapack.dpotrf(square.T, lower=1, overwrite_a=1)[0]
    solved = lapack.dpotrs(factor, root.T, lower=1)[0]
    return float(np.vdot(root.T, solved)), -2 * (left @ solved @ solved.T)


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


def errors_with_cells(array: Array, root: Array, norm: int) -> Array:
    """The error of A alone, infinite if W is not in its span, and with all cells at weights 2^b."""
    a = array.astype(float)
    longest = float((np.abs(a) ** norm).sum(axis=0).max())
    values, vectors = np.linalg.eigh(a.T @ a)
    needs = ((root @ vectors) ** 2).sum(axis=0)
    seen = values > values[-1] * len(values) * np.finfo(float).eps
    missed = needs[~seen].sum() > 1e-16 * needs.sum()
    alone = np.inf if missed else longest ** (2 / norm) * (needs[seen] / values[seen]).sum()
    weights = 2.0 ** np.arange(LOW_RANK_BITS + 1)
    with_cells = [
        (longest + w**norm) ** (2 / norm) * (needs / (np.maximum(values, 0) + w**2)).sum()
        for w in weights
    ]
    return np.array([alone, *with_cells])


def completed(array: Array, root: Array, norm: int) -> Array:
    """With every cell asked once more, at the best weight 2^b, unless A does better alone."""
    best = int(errors_with_cells(array, root, norm).argmin())
    if best == 0:
        return array
    cells = np.eye(array.shape[1], dtype=np.int64)
    return np.vstack([array, cells << (best - 1)])
