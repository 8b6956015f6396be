"""The matrix mechanism on few cells: the best strategy that a general search finds, a reference.

Over all real matrices A with columns of L1 norm one, signs allowed, ‖W A⁺‖² is minimised by
gradients (Li et al. 2010). The problem is not convex: several starts, and no proof of optimality.
Under Gaussian noise it is convex in AᵀA and solved to a certificate.
"""

from __future__ import annotations

import numpy as np
from numpy.random import Generator, default_rng
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from psephos.errors import TooLargeError, checked_whole
from psephos.kernel.query import Query
from psephos.matrix import DENSE_LIMIT, Dense, Haar, Matrix, Partition
from psephos.strategy.factors import GaussianFactor, NoiseName, PureFactor, checked_selection
from psephos.strategy.gram_terms import GramOperator, GramTerms
from psephos.strategy.hdmm.gaussian import optimise_gaussian
from psephos.strategy.hdmm.opt0 import opt0
from psephos.strategy.strategy import Strategy
from psephos.values import Array
from psephos.variances import NoiseKind
from psephos.workload.workload import Workload

MECHANISM_CELLS = 64
"""The most different cells that are searched."""
MECHANISM_BITS = 20
"""Bits of the largest column sum."""


def matrix_mechanism(
    workload: Workload,
    noise: NoiseName = "laplace",
    *,
    restarts: int = 3,
    iterations: int = 500,
    seed: int = 0,
) -> Strategy:
    """The best general strategy found, for at most 64 cells that the workload tells apart.

    Args:
        workload: what is to be answered
        noise: "laplace" or "gaussian"
        restarts: searches from random matrices, beside those from known strategies
        iterations: the most steps of one search
        seed: of the random starts
    """
    kind = checked_selection(workload, noise)
    restarts, seed = checked_whole(restarts, "restarts", 0), checked_whole(seed, "seed", 0)
    iterations = checked_whole(iterations, "iterations", 1)
    gram, groups = merged_gram(workload, MECHANISM_CELLS, "the matrix mechanism")
    if kind is NoiseKind.GAUSSIAN:
        real = optimise_gaussian(gram.times(np.eye(gram.n))).factor
        factor = GaussianFactor(real).integer(MECHANISM_BITS)
        array = factor.dense().astype(np.int64)
    else:
        real = general_search(gram, restarts, iterations, default_rng(seed))
        array = round_signed(real, MECHANISM_BITS)
    loss = (error_of(array, gram, kind.norm) / error_of(real, gram, kind.norm)) ** 0.5 - 1
    query = Query.of(spread_columns(array, groups))
    return Strategy(workload.domain, kind, query, "matrix_mechanism", max(0.0, loss))


def merged_gram(workload: Workload, most: int, what: str) -> tuple[GramOperator, Array]:
    """The workload's Gram on the cells that it tells apart, and the group of every cell."""
    reduced = workload.reduce_cells()
    n = reduced.workload.domain.size
    if n > most:
        raise TooLargeError(
            f"{what} writes out its strategy, and {n:,} different cells are over the limit of "
            f"{most:,}; use hdmm, hb or greedy_h",
            n,
            most,
        )
    gram = GramTerms.of(reduced.workload).whole()
    merged = reduced.partition
    groups = merged.groups if isinstance(merged, Partition) else np.arange(workload.domain.size)
    return gram, groups


def spread_columns(array: Array, groups: Array) -> Matrix:
    """A P as one array, without rows that are zero."""
    rows = array[array.any(axis=1)]
    if len(rows) * groups.size > DENSE_LIMIT:
        raise TooLargeError(
            f"a strategy of {len(rows)} queries over {groups.size:,} cells is over the limit of "
            f"{DENSE_LIMIT:,} entries; take the workload's reduce_cells() first",
            len(rows) * groups.size,
            DENSE_LIMIT,
        )
    return Dense(rows[:, groups])


def error_of(array: Array, gram: GramOperator, norm: int) -> float:
    """‖A‖² tr((AᵀA)⁺G), dense, in the L1 or the L2 norm."""
    a = array.astype(float)
    longest = (np.abs(a) ** norm).sum(axis=0).max() ** (1 / norm)
    inverse = np.linalg.pinv(a)
    return float(longest**2 * (inverse.T * gram.times(np.ascontiguousarray(inverse.T))).sum())


def general_search(gram: GramOperator, restarts: int, iterations: int, rng: Generator) -> Array:
    """The best of the descents from a p-Identity, from wavelets, from G's root and at random."""
    n, dense = gram.n, gram.times(np.eye(gram.n))
    candidates = [np.eye(n)]
    theta = opt0(gram, rng=rng, restarts=5).theta
    starts = [PureFactor(theta).matrix.dense()]
    values, vectors = np.linalg.eigh(dense)
    starts.append(vectors.T * np.maximum(values, 0)[:, None] ** 0.25)
    starts.append(np.vstack([np.eye(n), Haar(n).dense()]))
    starts += [rng.normal(size=(2 * n, n)) for _ in range(restarts)]
    for start in starts:
        # What is zero gets a little of either sign, so that it may grow.
        noisy = start + 1e-3 * np.abs(start).max() * rng.normal(size=start.shape)
        candidates.append(_descend(noisy, dense, iterations))
    candidates.append(starts[0])
    return min(candidates, key=lambda a: error_of(a, gram, 1))


def _descend(start: Array, gram: Array, iterations: int) -> Array:
    """L-BFGS-B over A = (P - N)/colsum(P + N) with P, N ≥ 0."""
    from scipy.optimize import minimize

    m, n = start.shape
    scale = 1 / max(np.trace(gram), 1e-300)

    def value(x: Array) -> tuple[float, Array]:
        plus, minus = x.reshape(2, m, n)
        sums = (plus + minus).sum(axis=0)
        if sums.min() < 1e-6:  # a step too far: the line search turns back
            return 1e6, np.zeros_like(x)
        a = (plus - minus) / sums
        try:
            factor = cho_factor(a.T @ a)
        except LinAlgError:
            return 1e6, np.zeros_like(x)
        solved = cho_solve(factor, gram)
        slope = -2 * a @ cho_solve(factor, solved.T)
        along = (slope * a).sum(axis=0)
        gradient = np.stack([slope - along, -slope - along]) / sums
        return scale * float(np.trace(solved)), scale * gradient.ravel()

    start = start / np.abs(start).sum(axis=0)
    x = np.concatenate([np.maximum(start, 0).ravel(), np.maximum(-start, 0).ravel()])
    options = {"maxiter": iterations, "maxcor": 20, "ftol": 1e-10, "gtol": 1e-12}
    result = minimize(
        value, x, jac=True, method="L-BFGS-B", bounds=[(0, None)] * x.size, options=options
    )
    plus, minus = result.x.reshape(2, m, n)
    return np.asarray((plus - minus) / np.maximum(np.abs(plus - minus).sum(axis=0), 1e-300))


def round_signed(a: Array, bits: int) -> Array:
    """A in whole numbers: every column's absolute sum is 2^bits times what it was, rounded down.

    By largest remainder, so that columns of equal norm stay equal; the largest norm becomes 2^bits.

    >>> round_signed(np.array([[0.5, -1.0], [0.5, 0.0]]), 2)
    array([[ 2, -4],
           [ 2,  0]])
    """
    sizes = np.abs(a)
    exact = sizes * ((1 << bits) / sizes.sum(axis=0).max())
    rounded = np.floor(exact).astype(np.int64)
    column_sums = np.floor(exact.sum(axis=0) + 1e-6).astype(np.int64)
    order = np.argsort(rounded - exact, axis=0, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(len(a))[:, None], axis=0)
    rounded += rank < column_sums - rounded.sum(axis=0)
    return np.asarray(rounded * np.where(a < 0, -1, 1))
