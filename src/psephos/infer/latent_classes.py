"""Rows of a few unseen classes, inside each of which attributes are independent, from noisy tables.

A table of rows from C classes has the cells T Σ_c w_c ⊗_i p_ci, with w_c the share of a class and
p_ci how attribute i is distributed inside it (Lazarsfeld and Henry 1968). A hundred numbers say for
each class what tables of two or three attributes need thousands for, so that noise has little room
in it: a prior with interactions for the maximum-entropy estimate, in place of independence.

*Fit.* The answers of a product are products of its factors' answers, ⊗_i F_ji p_ci, so the squared
distance to noisy answers y, in variances, and its derivative need no vector of cells. With w and p
as exponentials that are normalised, half of that distance and half of the squared distance of all
log p from those of independent attributes, in `SHARE_SPREAD`s, are made small by `FIT_STEPS` steps
of Adam (Kingma and Ba 2015), of falling length: noise that is large moves little, and steps are too
few to follow the rest of it. There is no best fit to converge to, and none is needed. Every step is
a smooth function of y, the same on every machine up to its floats. Several fits from different
starts, from a fixed seed, are averaged; they, and those of moved y, are made side by side.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import default_rng

from psephos.infer.table_tree import TableTree
from psephos.matrix import Identity, Matrix, is_total
from psephos.values import Array

CLASSES, STARTS = 16, 2
"""Classes of one fit, and how many fits are averaged."""
FIT_STEPS = 100
STEP_LENGTH = 0.15
"""The longest steps of a logarithm, at the start."""
START_SPREAD = 0.5
"""How far classes start from independent attributes, in standard deviations of logarithms."""
SHARE_SPREAD = 0.5
"""How far classes are expected to be from independent attributes, in the same measure."""
START_SEED = 1968
MOMENTUM, SQUARES = 0.9, 0.99
"""Shares that means of the derivative and of its square keep at every step."""
LEAST_SLOPE = 1e-8
"""Derivatives below this share of the largest move nothing."""
BATCH_NUMBERS = 1 << 16
"""Numbers of products that are worked out at once: as many as stay in the cache."""
MOST_CLASS_NUMBERS = 200_000
"""The most noisy answers that classes are fitted to."""


@dataclass(frozen=True, eq=False)
class LatentClasses:
    """Shares of some classes, and for each axis of a grid a row of shares for each class."""

    shares: Array
    tables: tuple[Array, ...]

    def cells(self) -> Array:
        """All cells, which add up to 1.

        >>> shares, rows = np.array([0.5, 0.5]), np.array([[1, 0], [0.2, 0.8]])
        >>> LatentClasses(shares, (rows, rows)).cells().round(2)
        array([0.52, 0.08, 0.08, 0.32])
        """
        middle = len(self.tables) // 2
        first, second = (_joint(part) for part in (self.tables[:middle], self.tables[middle:]))
        return np.asarray((first * self.shares[:, None]).T @ second).reshape(-1)


def tells_interactions(tree: TableTree) -> bool:
    """Do noisy answers look at several attributes at once, and are they not too many?"""
    several = (sum(not is_total(factor) for factor in block) > 1 for block in tree.blocks)
    return not tree.whole and tree.size <= MOST_CLASS_NUMBERS and any(several)


def fit_classes(
    tree: TableTree,
    values: Array,
    variances: Array,
    totals: Sequence[float],
    logarithms: Sequence[Array],
) -> list[LatentClasses]:
    """Classes for each row of values, with its total, from the logarithms of its 1-way tables.

    The latter have a row for each row of values, too: one array for each axis of the tree.
    """
    copies, counts = len(values), np.repeat(np.asarray(totals, dtype=float), STARTS)
    problem = _ClassProblem.of(tree, np.repeat(values, STARTS, axis=0), variances, counts)
    width = sum(tree.shape)
    noise = START_SPREAD * default_rng(START_SEED).standard_normal((STARTS, CLASSES, width))
    start = np.concatenate(logarithms, axis=1)[:, None, None, :] + noise
    start = start.reshape(copies * STARTS, CLASSES, width)
    point = np.concatenate([start, np.zeros((*start.shape[:2], 1))], axis=2)
    centre = np.repeat(np.concatenate(logarithms, axis=1), STARTS, axis=0)[:, None, :]
    mean, square = np.zeros_like(point), np.zeros_like(point)
    for step in range(1, FIT_STEPS + 1):
        slope = problem.slope(point)
        slope[:, :, :-1] += (point[:, :, :-1] - centre) / SHARE_SPREAD**2
        mean += (1 - MOMENTUM) * (slope - mean)
        square += (1 - SQUARES) * (slope**2 - square)
        root = np.sqrt(square / (1 - SQUARES**step))
        root += LEAST_SLOPE * root.max(axis=(1, 2), keepdims=True) + np.finfo(float).tiny
        length = 0.5 * STEP_LENGTH * (1 + math.cos(math.pi * step / FIT_STEPS))
        point -= length / (1 - MOMENTUM**step) * mean / root
    weights, several = problem.classes(point)
    shares = weights.reshape(copies, -1) / STARTS
    tables = [table.reshape(copies, STARTS * CLASSES, -1) for table in several]
    return [LatentClasses(shares[k], tuple(t[k] for t in tables)) for k in range(copies)]


@dataclass(frozen=True, eq=False)
class _ClassBlocks:
    """Noisy answers of products that have the same factors, along different axes."""

    axes: tuple[tuple[int, ...], ...]
    """Of each product, those that it looks at."""
    factors: tuple[Matrix, ...]
    values: Array
    """(products and their copies, answers)."""
    precisions: Array
    """(products and their copies, 1, 1)."""


@dataclass(frozen=True, eq=False)
class _ClassProblem:
    """½ Σ (Ax - y)²/σ² of several copies at once, in the logarithms of shares."""

    shape: tuple[int, ...]
    blocks: tuple[_ClassBlocks, ...]
    totals: Array

    @classmethod
    def of(cls, tree: TableTree, values: Array, variances: Array, totals: Array) -> _ClassProblem:
        alike: dict[tuple[Matrix, ...], list[tuple[tuple[int, ...], int]]] = defaultdict(list)
        for b, factors in enumerate(tree.blocks):
            axes = tuple(i for i, factor in enumerate(factors) if not is_total(factor))
            if axes:  # the total is held
                alike[tuple(factors[i] for i in axes)].append((axes, b))
        blocks = []
        for factors, products in alike.items():
            numbers = CLASSES * len(values) * tree.rows[products[0][1]]
            size = max(1, BATCH_NUMBERS // numbers)
            for begin in range(0, len(products), size):
                batch = products[begin : begin + size]
                starts = [tree.starts[b : b + 2] for _, b in batch]
                precisions = np.repeat(
                    [1 / float(variances[start]) for start, _ in starts], len(values)
                )
                blocks.append(
                    _ClassBlocks(
                        tuple(axes for axes, _ in batch),
                        factors,
                        np.concatenate([values[:, start:end] for start, end in starts]),
                        precisions[:, None, None],
                    )
                )
        return cls(tree.shape, tuple(blocks), totals)

    def classes(self, point: Array) -> tuple[Array, list[Array]]:
        """The shares of the classes, and for every axis those of its values."""
        ends = np.cumsum(self.shape)
        parts = np.split(point, ends, axis=2)
        return _normalised(parts.pop()[:, :, 0]), [_normalised(part) for part in parts]

    def slope(self, point: Array) -> Array:
        """The derivative in the logarithms."""
        shares, tables = self.classes(point)
        by_table = [np.zeros_like(table) for table in tables]
        by_share = np.zeros_like(shares)
        weights = (shares * self.totals[:, None])[:, :, None]
        for block in self.blocks:
            count, columns = len(block.axes), list(zip(*block.axes, strict=True))
            each_weights = np.tile(weights, (count, 1, 1))
            answers = [
                _apply(factor, np.concatenate([tables[i] for i in along]))
                for along, factor in zip(columns, block.factors, strict=True)
            ]
            middle = len(answers) // 2
            halves = answers[:middle], answers[middle:]
            first, second = (_joint(half) for half in halves)
            if first.ndim < 3:
                first = np.ones((*second.shape[:2], 1))
            rest = np.matmul((first * each_weights).swapaxes(1, 2), second)
            rest -= block.values.reshape(rest.shape)
            rest *= block.precisions
            moves = np.matmul(second, rest.swapaxes(1, 2)), np.matmul(first, rest)
            by_share += (moves[1] * second).sum(axis=2).reshape(count, *shares.shape).sum(axis=0)
            slopes = [*_partial(moves[0], halves[0]), *_partial(moves[1], halves[1])]
            for axes, factor, move in zip(columns, block.factors, slopes, strict=True):
                parts = np.split(_apply_t(factor, move * each_weights), count)
                for i, part in zip(axes, parts, strict=True):
                    by_table[i] += part
        by_share *= self.totals[:, None]
        parts = [_in_logarithms(t, move) for t, move in zip(tables, by_table, strict=True)]
        return np.concatenate([*parts, _in_logarithms(shares, by_share)[:, :, None]], axis=2)


def _joint(tables: Sequence[Array]) -> Array:
    """Products of a row of every table, for all classes: (…, classes, cells)."""
    cells: Array = np.ones((1, 1)) if not tables else tables[0]
    for table in tables[1:]:
        cells = (cells[..., :, None] * table[..., None, :]).reshape(*table.shape[:-1], -1)
    return cells


def _partial(move: Array, tables: Sequence[Array]) -> list[Array]:
    """The derivative in every table, from the one in their joint products."""
    if len(tables) < 2:
        return [move] * len(tables)
    partial = []
    for k, table in enumerate(tables):
        before, after = _joint(tables[:k]), _joint(tables[k + 1 :])
        cube = move.reshape(*table.shape[:2], before.shape[-1], table.shape[2], after.shape[-1])
        cube = cube * after.reshape(*after.shape[:-1], 1, 1, -1)
        cube = cube.sum(axis=4) * before.reshape(*before.shape[:-1], -1, 1)
        partial.append(cube.sum(axis=2))
    return partial


def _apply(factor: Matrix, rows: Array) -> Array:
    """F p for every row p."""
    if isinstance(factor, Identity):
        return rows
    flat = rows.reshape(-1, rows.shape[2], 1)
    return np.asarray(factor._apply(flat)).reshape(*rows.shape[:2], -1)


def _apply_t(factor: Matrix, rows: Array) -> Array:
    """Fᵀv for every row v."""
    if isinstance(factor, Identity):
        return rows
    flat = np.ascontiguousarray(rows).reshape(-1, rows.shape[2], 1)
    return np.asarray(factor._apply_t(flat)).reshape(*rows.shape[:2], -1)


def _normalised(logarithms: Array) -> Array:
    """Exponentials that add up to 1 along the last axis."""
    shares = np.exp(logarithms - logarithms.max(axis=-1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


def _in_logarithms(shares: Array, slope: Array) -> Array:
    """The derivative in logarithms of normalised shares, from that in the shares."""
    mean = (shares * slope).sum(axis=-1, keepdims=True)
    return np.asarray(shares * (slope - mean))
