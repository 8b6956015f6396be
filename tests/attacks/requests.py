"""Kinds of requests, each beside its answers computed without the kernel.

A case is asked of many copies of one small table at once, as those of `psephos.audit.runs` are.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

import psephos.matrix as mx
from psephos.audit.neighbours import ROWS_OF_OTHERS, SMALL_CELLS, loss_weight, neighbours
from psephos.audit.runs import COPY_SHAPE, COUNT, HISTOGRAM, Case, every_copy, linear_case
from psephos.domain.domain import Domain
from psephos.domain.predicate import col
from psephos.kernel.noise import DiscreteLaplace
from psephos.kernel.query import Query
from psephos.strategy import select
from psephos.variances import NoiseKind
from psephos.workload.product import product
from psephos.workload.queries import identity, prefix, total
from psephos.workload.workload import Workload

BASES = np.array([[0] * SMALL_CELLS, ROWS_OF_OTHERS])
EYE = np.eye(SMALL_CELLS, dtype=int)
GROUP_CAP = 3
SIGNED_ROWS = [[1, -1, 0, 0, 2, 0, 0, -3], [0, 1, 0, -1, 0, 1, 0, -1], [0, 0, 5, 0, 0, 0, -2, 0]]
X_RANGES = [
    [int(a <= i // 2 <= b) for i in range(SMALL_CELLS)] for a in range(4) for b in range(a, 4)
]
DIFFERENCE_ROWS = EYE - np.eye(SMALL_CELLS, k=-1, dtype=int)
CELL_ORDER = [3, 1, 0, 2, 7, 6, 5, 4]
ORDERED_PREFIXES = np.tri(SMALL_CELLS, dtype=int)[:, np.argsort(CELL_ORDER)]
WAVELET_ROWS = [
    [1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, -1, -1, -1, -1],
    [1, 1, -1, -1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, -1, -1],
    [1, -1, 0, 0, 0, 0, 0, 0], [0, 0, 1, -1, 0, 0, 0, 0],
    [0, 0, 0, 0, 1, -1, 0, 0], [0, 0, 0, 0, 0, 0, 1, -1],
]  # fmt: skip


def transformed_case(name, transform, small, dense):
    """One matrix on a transformed vector; `dense` is the product of both."""

    def ask(t, spend, n):
        vector = t.vectorise().transform(every_copy(n, transform))
        return [vector.measure(every_copy(n, small), spend=spend)]

    return Case(name, ask, lambda x: [x.reshape(-1, SMALL_CELLS) @ np.array(dense).T])


def weighted(t, spend, n):
    blocks = [
        (mx.Identity(SMALL_CELLS), "1"),
        (mx.total(SMALL_CELLS), "3"),
        (mx.Prefix(SMALL_CELLS), "1/2"),
    ]
    query = Query.of([(every_copy(n, matrix), weight) for matrix, weight in blocks])
    return [t.vectorise().measure(query, spend=spend)]


def weighted_answers(x):
    cells = x.reshape(-1, SMALL_CELLS)
    return [cells, cells.sum(axis=1, keepdims=True), np.cumsum(cells, axis=1)]


def groups(t, spend, n):
    sizes = t.group_by("copy", "x", most=GROUP_CAP).vectorise()
    return [sizes.measure(mx.Identity(sizes.size), spend=spend)]


def groups_answers(x):
    counts = np.minimum(x.sum(axis=2), GROUP_CAP)
    return [(counts[:, :, None] == np.arange(GROUP_CAP + 1)).astype(int).reshape(len(x), -1)]


def where(t, spend, n):
    condition = (col("x") >= 1) & ~((col("x") == 2) & (col("y") == 0))
    vector = t.where(condition).vectorise()
    return [vector.measure(mx.Identity(SMALL_CELLS * n), spend=spend)]


def where_answers(x):
    mask = np.array([[0, 0], [1, 1], [0, 1], [1, 1]])
    return [(x * mask).reshape(-1, SMALL_CELLS)]


def projection(t, spend, n):
    return [t.keep("copy", "y").vectorise().measure(mx.Identity(2 * n), spend=spend)]


def parts(t, spend, n):
    """Parts of a table cost what the most expensive one does: the second, measured twice."""
    first, second = (part.vectorise() for part in t.split("y").values())
    cells, prefixes = mx.Identity(4 * n), mx.Kron((mx.Identity(n), mx.Prefix(4)))
    return [
        first.measure(cells, spend=spend / 2),
        second.measure(cells, spend=spend / 2),
        second.measure(prefixes, spend=spend / 2),
    ]


def parts_answers(x):
    return [x[:, :, 0], x[:, :, 1], np.cumsum(x[:, :, 1], axis=1)]


def cell_parts(t, spend, n):
    groups = np.tile(np.arange(SMALL_CELLS) % 3, n)
    parts = t.vectorise().split(mx.Partition(groups))
    return [part.measure(mx.Identity(part.size), spend=spend) for part in parts]


def cell_parts_answers(x):
    cells = x.reshape(-1, SMALL_CELLS)
    return [cells[:, first::3] for first in range(3)]


def sequence(t, spend, n):
    v = t.vectorise()
    return [
        v.measure(every_copy(n, mx.total(SMALL_CELLS)), spend=spend / 3),
        v.reduce(mx.Partition(np.arange(n).repeat(SMALL_CELLS))).measure(
            mx.Identity(n), spend=spend / 3
        ),
        v.measure(mx.Identity(SMALL_CELLS * n), spend=spend / 3),
    ]


def sequence_answers(x):
    cells = x.reshape(-1, SMALL_CELLS)
    return [cells.sum(axis=1, keepdims=True), cells.sum(axis=1, keepdims=True), cells]


@cache
def union_query(noise):
    """The strategy that a search selects for a union of two products."""
    domain = Domain.of(x=COPY_SHAPE[0], y=COPY_SHAPE[1])
    products = [product(x=prefix(), y=total()), product(x=total(), y=identity(), weight=2.0)]
    return select.opt_union(Workload(domain, products), noise, restarts=1, seed=0, cores=1).query


def strategy_case(noise):
    def ask(t, spend, n):
        blocks = [
            (every_copy(n, block.matrix), block.weight) for block in union_query(noise).blocks
        ]
        return [t.vectorise().measure(Query.of(blocks), spend=spend)]

    def answers(x):
        dense = [block.matrix.dense() for block in union_query(noise).blocks]
        return [x.reshape(-1, SMALL_CELLS) @ np.asarray(a).astype(np.int64).T for a in dense]

    return Case("a strategy from select.opt_union", ask, answers)


SCALED = transformed_case(
    "a transform scaled by 7",
    mx.Scaled(7, mx.Identity(SMALL_CELLS)),
    mx.Identity(SMALL_CELLS),
    7 * EYE,
)
GROUP_BY = Case("group_by", groups, groups_answers)
SPLIT_TABLE = Case("parts of a split table", parts, parts_answers)
STRATEGY = {kind.currency: strategy_case(kind) for kind in NoiseKind}

CASES = (
    COUNT,
    HISTOGRAM,
    linear_case("prefix counts", mx.Prefix(SMALL_CELLS), np.tri(SMALL_CELLS, dtype=int)),
    linear_case("all ranges of x", mx.Kron((mx.AllRange(4), mx.total(2))), X_RANGES),
    linear_case("a wavelet", mx.Haar(SMALL_CELLS), WAVELET_ROWS),
    linear_case("signed entries", mx.Dense(np.array(SIGNED_ROWS)), SIGNED_ROWS),
    linear_case(
        "a stack of marginals",
        mx.Stack((mx.Kron((mx.Identity(4), mx.total(2))), mx.Kron((mx.total(4), mx.Identity(2))))),
        np.vstack([np.kron(np.eye(4, dtype=int), [[1, 1]]), np.tile(np.eye(2, dtype=int), 4)]),
    ),
    linear_case(
        "cells in another order",
        mx.Permuted(mx.Prefix(SMALL_CELLS), np.array(CELL_ORDER)),
        ORDERED_PREFIXES,
    ),
    Case("weighted blocks", weighted, weighted_answers),
    SCALED,
    transformed_case(
        "a transform by differences",
        mx.Difference(SMALL_CELLS),
        mx.Identity(SMALL_CELLS),
        DIFFERENCE_ROWS,
    ),
    GROUP_BY,
    Case("where", where, where_answers),
    Case("kept columns", projection, lambda x: [x.sum(axis=1)]),
    SPLIT_TABLE,
    Case("parts of a split vector", cell_parts, cell_parts_answers),
    Case("three measurements in a row", sequence, sequence_answers),
)


@dataclass(frozen=True)
class NeighbourPair:
    """Two neighbours, as a base and the rows of one unit on it, and the loss between them."""

    loss: Fraction
    base: np.ndarray
    first: np.ndarray
    second: np.ndarray


def worst_pair(case, unit, noises):
    """The neighbours between which the loss is largest."""
    rows, first, second = neighbours(unit)
    power = 1 if isinstance(noises[0], DiscreteLaplace) else 2
    pairs = []
    for base in BASES:
        answers = case.answers((base + rows).reshape(-1, *COPY_SHAPE))
        moves = [(abs(a[first] - a[second]) ** power).sum(axis=1) for a in answers]
        distances, places = np.unique(np.stack(moves, axis=1), axis=0, return_index=True)
        losses = [loss_of(distance, noises) for distance in distances.tolist()]
        worst = max(range(len(losses)), key=losses.__getitem__)
        place = places[worst]
        pairs.append(NeighbourPair(losses[worst], base, rows[first[place]], rows[second[place]]))
    return max(pairs, key=lambda pair: pair.loss)


def loss_of(distances, noises):
    """Σ|d|/b or Σd²/2v; distances are Σ|d| or Σd² of each block."""
    pairs = zip(distances, noises, strict=True)
    return sum((d * loss_weight(noise) for d, noise in pairs), Fraction(0))
