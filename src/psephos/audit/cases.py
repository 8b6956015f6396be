"""Kinds of requests, each beside its answers, which are computed without any rule of the kernel.

A request is asked of many copies of one small table at once, `copies` x 4 x 2 cells. Each answer
depends on one copy, and each block lists its answers copy by copy: every copy is a run of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import psephos.matrix as mx
from psephos.domain.domain import Domain
from psephos.domain.predicate import col
from psephos.kernel.budget import Budget, NoiseKind
from psephos.kernel.measurement import Measurement
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.query import Query
from psephos.strategy import select
from psephos.values import Array
from psephos.workload.product import product
from psephos.workload.queries import identity, prefix, total
from psephos.workload.workload import Workload

COPY_SHAPE = (4, 2)
COPY_CELLS = 8
GROUP_CAP = 3
EYE = np.eye(COPY_CELLS, dtype=int)
SIGNED_ROWS = [[1, -1, 0, 0, 2, 0, 0, -3], [0, 1, 0, -1, 0, 1, 0, -1], [0, 0, 5, 0, 0, 0, -2, 0]]
X_RANGES = [
    [int(a <= i // 2 <= b) for i in range(COPY_CELLS)] for a in range(4) for b in range(a, 4)
]
DIFFERENCE_ROWS = EYE - np.eye(COPY_CELLS, k=-1, dtype=int)
CELL_ORDER = [3, 1, 0, 2, 7, 6, 5, 4]
ORDERED_PREFIXES = np.tri(COPY_CELLS, dtype=int)[:, np.argsort(CELL_ORDER)]
WAVELET_ROWS = [
    [1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, -1, -1, -1, -1],
    [1, 1, -1, -1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, -1, -1],
    [1, -1, 0, 0, 0, 0, 0, 0], [0, 0, 1, -1, 0, 0, 0, 0],
    [0, 0, 0, 0, 1, -1, 0, 0], [0, 0, 0, 0, 0, 0, 1, -1],
]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A kind of request.

    `ask` goes through the handles; `answers` gives, for tables of shape (tables, 4, 2), the answers
    of each block, of shape (tables, answers of a copy).
    """

    name: str
    ask: Callable[[ProtectedTable, Budget, int], Sequence[Measurement]]
    answers: Callable[[Array], Sequence[Array]]


def small_domain(copies: int) -> Domain:
    """The cells of all copies."""
    return Domain.of(copy=copies, x=COPY_SHAPE[0], y=COPY_SHAPE[1])


def _every_copy(copies: int, matrix: mx.Matrix) -> mx.Matrix:
    """The matrix, applied to every copy."""
    return mx.Kron((mx.Identity(copies), matrix))


def _linear(name: str, small: mx.Matrix, dense: Any) -> Case:
    """One matrix on the cells of a copy, and its entries written by hand."""

    def ask(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
        return [t.vectorise().measure(_every_copy(n, small), spend=spend)]

    return Case(name, ask, lambda x: [x.reshape(-1, COPY_CELLS) @ np.array(dense).T])


def _transformed(name: str, transform: mx.Matrix, small: mx.Matrix, dense: Any) -> Case:
    """One matrix on a transformed vector; `dense` is the product of both."""

    def ask(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
        vector = t.vectorise().transform(_every_copy(n, transform))
        return [vector.measure(_every_copy(n, small), spend=spend)]

    return Case(name, ask, lambda x: [x.reshape(-1, COPY_CELLS) @ np.array(dense).T])


def _weighted(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
    blocks = [
        (mx.Identity(COPY_CELLS), "1"),
        (mx.total(COPY_CELLS), "3"),
        (mx.Prefix(COPY_CELLS), "1/2"),
    ]
    query = Query.of([(_every_copy(n, matrix), weight) for matrix, weight in blocks])
    return [t.vectorise().measure(query, spend=spend)]


def _weighted_answers(x: Array) -> list[Array]:
    cells = x.reshape(-1, COPY_CELLS)
    return [cells, cells.sum(axis=1, keepdims=True), np.cumsum(cells, axis=1)]


def _groups(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
    sizes = t.group_by("copy", "x", most=GROUP_CAP).vectorise()
    return [sizes.measure(mx.Identity(sizes.size), spend=spend)]


def _groups_answers(x: Array) -> list[Array]:
    counts = np.minimum(x.sum(axis=2), GROUP_CAP)
    return [(counts[:, :, None] == np.arange(GROUP_CAP + 1)).astype(int).reshape(len(x), -1)]


def _where(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
    condition = (col("x") >= 1) & ~((col("x") == 2) & (col("y") == 0))
    vector = t.where(condition).vectorise()
    return [vector.measure(mx.Identity(COPY_CELLS * n), spend=spend)]


def _where_answers(x: Array) -> list[Array]:
    mask = np.array([[0, 0], [1, 1], [0, 1], [1, 1]])
    return [(x * mask).reshape(-1, COPY_CELLS)]


def _projection(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
    return [t.keep("copy", "y").vectorise().measure(mx.Identity(2 * n), spend=spend)]


def _parts(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
    """Parts of a table cost what the most expensive one does: the second, measured twice."""
    first, second = (part.vectorise() for part in t.split("y").values())
    cells, prefixes = mx.Identity(4 * n), mx.Kron((mx.Identity(n), mx.Prefix(4)))
    return [
        first.measure(cells, spend=spend / 2),
        second.measure(cells, spend=spend / 2),
        second.measure(prefixes, spend=spend / 2),
    ]


def _parts_answers(x: Array) -> list[Array]:
    return [x[:, :, 0], x[:, :, 1], np.cumsum(x[:, :, 1], axis=1)]


def _cell_parts(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
    groups = np.tile(np.arange(COPY_CELLS) % 3, n)
    parts = t.vectorise().split(mx.Partition(groups))
    return [part.measure(mx.Identity(part.size), spend=spend) for part in parts]


def _cell_parts_answers(x: Array) -> list[Array]:
    cells = x.reshape(-1, COPY_CELLS)
    return [cells[:, first::3] for first in range(3)]


def _sequence(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
    v = t.vectorise()
    return [
        v.measure(_every_copy(n, mx.total(COPY_CELLS)), spend=spend / 3),
        v.reduce(mx.Partition(np.arange(n).repeat(COPY_CELLS))).measure(
            mx.Identity(n), spend=spend / 3
        ),
        v.measure(mx.Identity(COPY_CELLS * n), spend=spend / 3),
    ]


def _sequence_answers(x: Array) -> list[Array]:
    cells = x.reshape(-1, COPY_CELLS)
    return [cells.sum(axis=1, keepdims=True), cells.sum(axis=1, keepdims=True), cells]


@cache
def _union_query(noise: NoiseKind) -> Query:
    """The strategy that a search selects for a union of two products."""
    domain = Domain.of(x=COPY_SHAPE[0], y=COPY_SHAPE[1])
    products = [product(x=prefix(), y=total()), product(x=total(), y=identity(), weight=2.0)]
    return select.opt_union(Workload(domain, products), noise, restarts=1, seed=0, cores=1).query


def _strategy(noise: NoiseKind) -> Case:
    def ask(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
        blocks = [
            (_every_copy(n, block.matrix), block.weight) for block in _union_query(noise).blocks
        ]
        return [t.vectorise().measure(Query.of(blocks), spend=spend)]

    def answers(x: Array) -> list[Array]:
        dense = [block.matrix.dense() for block in _union_query(noise).blocks]
        return [x.reshape(-1, COPY_CELLS) @ np.asarray(a).astype(np.int64).T for a in dense]

    return Case("a strategy from select.opt_union", ask, answers)


COUNT = _linear("a count", mx.total(COPY_CELLS), [[1] * COPY_CELLS])
HISTOGRAM = _linear("a histogram", mx.Identity(COPY_CELLS), EYE)
SCALED = _transformed(
    "a transform scaled by 7",
    mx.Scaled(7, mx.Identity(COPY_CELLS)),
    mx.Identity(COPY_CELLS),
    7 * EYE,
)
GROUP_BY = Case("group_by", _groups, _groups_answers)
SPLIT_TABLE = Case("parts of a split table", _parts, _parts_answers)
STRATEGY = {kind.currency: _strategy(kind) for kind in NoiseKind}

CASES = (
    COUNT,
    HISTOGRAM,
    _linear("prefix counts", mx.Prefix(COPY_CELLS), np.tri(COPY_CELLS, dtype=int)),
    _linear("all ranges of x", mx.Kron((mx.AllRange(4), mx.total(2))), X_RANGES),
    _linear("a wavelet", mx.Haar(COPY_CELLS), WAVELET_ROWS),
    _linear("signed entries", mx.Dense(np.array(SIGNED_ROWS)), SIGNED_ROWS),
    _linear(
        "a stack of marginals",
        mx.Stack((mx.Kron((mx.Identity(4), mx.total(2))), mx.Kron((mx.total(4), mx.Identity(2))))),
        np.vstack([np.kron(np.eye(4, dtype=int), [[1, 1]]), np.tile(np.eye(2, dtype=int), 4)]),
    ),
    _linear(
        "cells in another order",
        mx.Permuted(mx.Prefix(COPY_CELLS), np.array(CELL_ORDER)),
        ORDERED_PREFIXES,
    ),
    Case("weighted blocks", _weighted, _weighted_answers),
    SCALED,
    _transformed(
        "a transform by differences",
        mx.Difference(COPY_CELLS),
        mx.Identity(COPY_CELLS),
        DIFFERENCE_ROWS,
    ),
    GROUP_BY,
    Case("where", _where, _where_answers),
    Case("kept columns", _projection, lambda x: [x.sum(axis=1)]),
    SPLIT_TABLE,
    Case("parts of a split vector", _cell_parts, _cell_parts_answers),
    Case("three measurements in a row", _sequence, _sequence_answers),
)
