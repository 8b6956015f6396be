"""Covers: few large sets of attributes that contain every t-set of them.

Under pure differential privacy the budgets of marginals add, so one marginal of k attributes that
contains C(k, t) asked ones saves the square of that number, and pays for it with k - t more axes
to sum over. Steiner systems contain every t-set exactly once: affine planes for pairs, quadruple
systems and inversive (Möbius) planes for triples. Where no such system fits, blocks are built
greedily, each to be worth the most (sets it newly contains)² / cells^price.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from numpy.random import Generator

from psephos.matrix import superset_sums
from psephos.matrix.marginals import Axes
from psephos.values import Array

LATTICE_AXES = 14
"""Up to this many attributes all 2^d blocks are compared at once."""
TENSOR_CELLS = 1 << 22
"""Beyond, the t-sets still to be contained are kept in a d x … x d array of at most this size."""


def quadruples(d: int) -> list[Axes]:
    """The quadruple system {a, b, c, a ^ b ^ c} on 2^k ≥ d points, cut down to the first d.

    >>> quadruples(4), len(quadruples(8))
    ([(0, 1, 2, 3)], 14)
    """
    points = np.arange(1 << max(2, (d - 1).bit_length()))
    a, b = (each.ravel() for each in np.meshgrid(points, points, indexing="ij"))
    a, b = a[a < b], b[a < b]
    quadruples_of_c = []
    for c in points.tolist():
        later = b < c
        fourth = a[later] ^ b[later] ^ c
        fits = fourth > c
        quadruples_of_c.append(
            np.stack([a[later][fits], b[later][fits], c + 0 * fourth[fits], fourth[fits]])
        )
    return _cut(np.concatenate(quadruples_of_c, axis=1).T.tolist(), d, 3)


def inversive_plane(d: int, q: int) -> list[Axes]:
    """The circles of a plane over a prime field, any three points on just one, cut down to d.

    Points are Z_q² and ∞; blocks are the lines with ∞ added, and (x-a)² - w(y-b)² = r for a
    non-residue w: a 3-(q²+1, q+1, 1) design (Dembowski 1968).
    """
    x, y = (each.ravel() for each in np.divmod(np.arange(q * q), q))
    squares = {i * i % q for i in range(q)}
    w = next(i for i in range(2, q) if i not in squares)
    blocks = [[*line, q * q] for line in _lines(q)]
    for a in range(q):
        for b in range(q):
            norm = ((x - a) ** 2 - w * (y - b) ** 2) % q
            order = np.argsort(norm, kind="stable")[1:]  # the centre alone has norm 0
            blocks.extend(order.reshape(q - 1, q + 1).tolist())
    return _cut(blocks, d, 3)


def affine_plane(d: int, q: int) -> list[Axes]:
    """The lines of Z_q², q prime: any two of the q² points are on just one; cut down to d.

    >>> len(affine_plane(9, 3))
    12
    """
    return _cut(_lines(q), d, 2)


def _lines(q: int) -> list[list[int]]:
    slanted = [[x * q + (m * x + c) % q for x in range(q)] for m in range(q) for c in range(q)]
    return slanted + [[x * q + y for y in range(q)] for x in range(q)]


def _cut(blocks: Sequence[Sequence[int]], d: int, least: int) -> list[Axes]:
    """Blocks without points from d on; those with fewer than `least` points contain nothing."""
    shortened = {tuple(sorted(i for i in block if i < d)) for block in blocks}
    return sorted(block for block in shortened if len(block) >= min(least, d))


def designs(d: int, t: int, largest: int) -> Iterator[list[Axes]]:
    """Steiner systems cut down to d points whose blocks keep t+1 to about `largest` points."""
    if t == 3 and d >= 4:
        yield quadruples(d)
    if t not in (2, 3):
        return
    for q in (3, 5, 7, 11, 13, 17, 19, 23, 29, 31):
        points, block = (q * q, q) if t == 2 else (q * q + 1, q + 1)
        mean_points = block * d / points  # points of a block on average
        if d <= points and t + 0.8 < mean_points <= largest:
            yield affine_plane(d, q) if t == 2 else inversive_plane(d, q)


def greedy_cover(shape: Sequence[int], wanted: Array, price: float, rng: Generator) -> list[Axes]:
    """Blocks that contain every wanted t-set (rows of an m x t array), dearest cells at low price.

    >>> from numpy.random import default_rng
    >>> greedy_cover((2,) * 4, np.array([(0, 1), (0, 2), (1, 2)]), 1.0, default_rng(0))
    [(0, 1, 2)]
    """
    d, t = len(shape), wanted.shape[1]
    if d <= LATTICE_AXES:
        return _best_blocks(shape, wanted, price, rng)
    if float(d) ** t <= TENSOR_CELLS:
        return _grown_blocks(shape, wanted, price, rng)
    return []


def _best_blocks(shape: Sequence[int], wanted: Array, price: float, rng: Generator) -> list[Axes]:
    """Of all blocks the one worth most, until nothing is left; ties are broken at random."""
    d = len(shape)
    cells = np.ones(1)
    for n in shape:
        cells = np.concatenate([cells, cells * float(n) ** price])
    codes = np.arange(1 << d)
    uncovered = np.zeros(1 << d)
    uncovered[(1 << wanted).sum(axis=1)] = 1
    blocks = []
    # One block takes what it contains away from all others, so sums are kept up to date by a
    # transform of the few sets it took.
    contained = superset_sums(uncovered[::-1])[::-1].copy()
    while uncovered.any():
        worth = contained**2 / cells
        best = _any_largest(worth, rng)
        blocks.append(tuple(i for i in range(d) if best >> i & 1))
        covered = np.where(codes & best == codes, uncovered, 0)
        uncovered -= covered
        contained -= superset_sums(covered[::-1])[::-1]
    return blocks


def _grown_blocks(shape: Sequence[int], wanted: Array, price: float, rng: Generator) -> list[Axes]:
    """From a t-set not yet contained, attribute by attribute, while the block's worth grows."""
    d, t = len(shape), wanted.shape[1]
    cells = np.asarray(shape, dtype=float) ** price
    uncovered = np.zeros((d,) * t, dtype=bool)
    for order in _orders(t):
        uncovered[tuple(wanted[:, order].T)] = True
    blocks = []
    flat = uncovered.reshape(-1)
    for first in rng.permutation(wanted).tolist():
        if not uncovered[tuple(first)]:
            continue
        block, contained = list(first), 1.0
        gain = np.zeros(d)
        for j in range(t):
            gain += uncovered[tuple(block[:j] + block[j + 1 :])]
        while len(block) < d:
            worth = (contained + gain) ** 2 / cells
            worth[block] = 0
            y = _any_largest(worth, rng)
            if worth[y] <= contained**2 * (1 - 1e-9):
                break
            contained += float(gain[y])
            if t == 2:
                gain += uncovered[y]
            elif t > 2:
                inner = np.array(list(combinations(block, t - 2)))
                gain += uncovered[(*inner.T, y)].sum(axis=0)
            block.append(y)
        blocks.append(tuple(sorted(block)))
        axes = covered = np.array(block)
        for j in range(1, t):
            covered = np.add.outer(axes * d**j, covered)
        flat[covered] = False
    return blocks


def _any_largest(values: Array, rng: Generator) -> int:
    """The place of a largest entry, any of them if there are several."""
    largest = (values >= values.max() * (1 - 1e-9)).nonzero()[0]
    return int(largest[int(rng.random() * len(largest))])


def _orders(t: int) -> list[list[int]]:
    """All orders of t columns."""
    if t == 0:
        return [[]]
    return [[*o[:j], t - 1, *o[j:]] for o in _orders(t - 1) for j in range(t)]
