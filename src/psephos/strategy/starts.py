"""Where the search for a p-Identity strategy begins: rows that count boxes, and random rows.

All starts keep well away from Θ = 0, which is Identity and always a local minimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.random import Generator
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from psephos.frozen import Array
from psephos.strategy.terms import GramOperator

WEIGHT = 0.7
"""The weight of a box: one that can grow or shrink; from a tenth it would soon be zero."""

Start = Callable[[int, int, Generator], Array]
"""(p, n, rng) ↦ Θ."""


def dense(p: int, n: int, rng: Generator) -> Array:
    """Uniform on [0, 1]."""
    return rng.random((p, n))


def segments(p: int, n: int, rng: Generator) -> Array:
    """The line cut into p pieces of one length.

    >>> from numpy.random import default_rng
    >>> (segments(2, 4, default_rng(0)) > WEIGHT / 2).astype(int)
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
    return _noisy(np.where(inside, WEIGHT, 0.0), rng)


def _intervals(p: int, n: int, low: Array, high: Array, rng: Generator) -> Array:
    theta = np.zeros((p, n))
    cells = np.arange(n)
    theta[: len(low)] = (cells >= low[:p, None]) & (cells < high[:p, None])
    return _noisy(theta * WEIGHT, rng)


def _noisy(theta: Array, rng: Generator) -> Array:
    """Weights a little apart, because equal rows would stay equal; zeros stay zero."""
    return np.asarray(theta * (1 + 0.1 * rng.random(theta.shape)))


def order(gram: GramOperator) -> Array | None:
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
    found = np.argsort(second, kind="stable")
    steps = np.diff(found)
    return None if (steps == 1).all() or (steps == -1).all() else found
