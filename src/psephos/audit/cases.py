"""Kinds of requests, each beside its answers computed apart: no rule of the kernel is used.

A request is asked of many copies of one small table at once, `copies` x 4 x 2 cells. Each answer
depends on one copy, and each block lists its answers copy by copy: every copy is a run of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

import psephos.matrix as mx
from psephos.domain.domain import Domain
from psephos.domain.predicate import col
from psephos.kernel.budget import Budget, NoiseKind
from psephos.kernel.measurement import Measurement
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.query import Query
from psephos.strategy import select
from psephos.workload.product import product
from psephos.workload.queries import identity, prefix, total
from psephos.workload.workload import Workload

SHAPE = (4, 2)
CELLS = 8
MOST = 3
Integers = NDArray[Any]
Ask = Callable[[ProtectedTable, Budget, int], Sequence[Measurement]]
Answers = Callable[[Integers], Sequence[Integers]]


@dataclass(frozen=True)
class Case:
    """A kind of request.

    `ask` goes through the handles; `answers` gives, for tables of shape (tables, 4, 2), the answers
    of each block, of shape (tables, answers of a copy).
    """

    name: str
    ask: Ask
    answers: Answers


def small_domain(copies: int) -> Domain:
    """The cells of all copies."""
    return Domain.of(copy=copies, x=SHAPE[0], y=SHAPE[1])


def _all(copies: int, matrix: mx.Matrix) -> mx.Matrix:
    """The matrix, asked of every copy."""
    return mx.Kron((mx.Identity(copies), matrix))


def _linear(name: str, small: mx.Matrix, dense: Any) -> Case:
    """One matrix on the cells of a copy, and its entries written by hand."""

    def ask(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
        return [t.vectorise().measure(_all(n, small), spend=spend)]

    return Case(name, ask, lambda x: [x.reshape(-1, CELLS) @ np.array(dense).T])


def _after(name: str, change: mx.Matrix, small: mx.Matrix, dense: Any) -> Case:
    """A matrix asked of a transformed vector; `dense` is both together."""

    def ask(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
        changed = t.vectorise().transform(_all(n, change))
        return [changed.measure(_all(n, small), spend=spend)]

    return Case(name, ask, lambda x: [x.reshape(-1, CELLS) @ np.array(dense).T])


def _weighted(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
    blocks = [(mx.Identity(CELLS), "1"), (mx.total(CELLS), "3"), (mx.Prefix(CELLS), "1/2")]
    query = Query.of([(_all(n, matrix), weight) for matrix, weight in blocks])
    return [t.vectorise().measure(query, spend=spend)]


def _weighted_answers(x: Integers) -> list[Integers]:
    cells = x.reshape(-1, CELLS)
    return [cells, cells.sum(axis=1, keepdims=True), np.cumsum(cells, axis=1)]


def _groups(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
    grouped = t.group_by("copy", "x", most=MOST).vectorise()
    return [grouped.measure(mx.Identity(grouped.size), spend=spend)]


def _groups_answers(x: Integers) -> list[Integers]:
    counts = np.minimum(x.sum(axis=2), MOST)
    return [(counts[:, :, None] == np.arange(MOST + 1)).astype(int).reshape(len(x), -1)]


def _where(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
    some = t.where((col("x") >= 1) & ~((col("x") == 2) & (col("y") == 0))).vectorise()
    return [some.measure(mx.Identity(CELLS * n), spend=spend)]


def _where_answers(x: Integers) -> list[Integers]:
    stays = np.array([[0, 0], [1, 1], [0, 1], [1, 1]])
    return [(x * stays).reshape(-1, CELLS)]


def _keep(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
    return [t.keep("copy", "y").vectorise().measure(mx.Identity(2 * n), spend=spend)]


def _parts(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
    """The dearest part pays: the second, which is measured twice."""
    first, second = (part.vectorise() for part in t.split("y").values())
    whole, halves = mx.Identity(4 * n), mx.Kron((mx.Identity(n), mx.Prefix(4)))
    return [
        first.measure(whole, spend=spend / 2),
        second.measure(whole, spend=spend / 2),
        second.measure(halves, spend=spend / 2),
    ]


def _parts_answers(x: Integers) -> list[Integers]:
    return [x[:, :, 0], x[:, :, 1], np.cumsum(x[:, :, 1], axis=1)]


def _cell_parts(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
    groups = np.tile(np.arange(CELLS) % 3, n)
    parts = t.vectorise().split(mx.Partition(groups))
    return [part.measure(mx.Identity(part.size), spend=spend) for part in parts]


def _cell_parts_answers(x: Integers) -> list[Integers]:
    cells = x.reshape(-1, CELLS)
    return [cells[:, first::3] for first in range(3)]


def _sequence(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
    v = t.vectorise()
    return [
        v.measure(_all(n, mx.total(CELLS)), spend=spend / 3),
        v.reduce(mx.Partition(np.arange(n).repeat(CELLS))).measure(mx.Identity(n), spend=spend / 3),
        v.measure(mx.Identity(CELLS * n), spend=spend / 3),
    ]


def _sequence_answers(x: Integers) -> list[Integers]:
    cells = x.reshape(-1, CELLS)
    return [cells.sum(axis=1, keepdims=True), cells.sum(axis=1, keepdims=True), cells]


@cache
def _selected(noise: NoiseKind) -> Query:
    """What a search finds for a union of two products."""
    domain = Domain.of(x=SHAPE[0], y=SHAPE[1])
    asked = [product(x=prefix(), y=total()), product(x=total(), y=identity(), weight=2.0)]
    return select.opt_union(Workload(domain, asked), noise, restarts=1, seed=0, cores=1).query


def _strategy(noise: NoiseKind) -> Case:
    def ask(t: ProtectedTable, spend: Budget, n: int) -> list[Measurement]:
        blocks = [(_all(n, block.matrix), block.weight) for block in _selected(noise).blocks]
        return [t.vectorise().measure(Query.of(blocks), spend=spend)]

    def answers(x: Integers) -> list[Integers]:
        dense = [block.matrix.dense() for block in _selected(noise).blocks]
        return [x.reshape(-1, CELLS) @ np.asarray(a).astype(np.int64).T for a in dense]

    return Case("a strategy from select.opt_union", ask, answers)


EYE = np.eye(CELLS, dtype=int)
SIGNED = [[1, -1, 0, 0, 2, 0, 0, -3], [0, 1, 0, -1, 0, 1, 0, -1], [0, 0, 5, 0, 0, 0, -2, 0]]
RANGES = [[int(a <= i // 2 <= b) for i in range(CELLS)] for a in range(4) for b in range(a, 4)]
STEPS = EYE - np.eye(CELLS, k=-1, dtype=int)
ORDER = [3, 1, 0, 2, 7, 6, 5, 4]
MIXED = np.tri(CELLS, dtype=int)[:, np.argsort(ORDER)]
WAVES = [
    [1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 1, -1, -1, -1, -1],
    [1, 1, -1, -1, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, -1, -1],
    [1, -1, 0, 0, 0, 0, 0, 0], [0, 0, 1, -1, 0, 0, 0, 0],
    [0, 0, 0, 0, 1, -1, 0, 0], [0, 0, 0, 0, 0, 0, 1, -1],
]  # fmt: skip

COUNT = _linear("a count", mx.total(CELLS), [[1] * CELLS])
HISTOGRAM = _linear("a histogram", mx.Identity(CELLS), EYE)
SCALED = _after(
    "a transform scaled by 7", mx.Scaled(7, mx.Identity(CELLS)), mx.Identity(CELLS), 7 * EYE
)
GROUPS = Case("group_by", _groups, _groups_answers)
PARTS = Case("parts of a split table", _parts, _parts_answers)
STRATEGY = {kind.currency: _strategy(kind) for kind in NoiseKind}

CASES = (
    COUNT,
    HISTOGRAM,
    _linear("prefix counts", mx.Prefix(CELLS), np.tri(CELLS, dtype=int)),
    _linear("all ranges of x", mx.Kron((mx.AllRange(4), mx.total(2))), RANGES),
    _linear("a wavelet", mx.Haar(CELLS), WAVES),
    _linear("signed entries", mx.Dense(np.array(SIGNED)), SIGNED),
    _linear(
        "a stack of marginals",
        mx.Stack((mx.Kron((mx.Identity(4), mx.total(2))), mx.Kron((mx.total(4), mx.Identity(2))))),
        np.vstack([np.kron(np.eye(4, dtype=int), [[1, 1]]), np.tile(np.eye(2, dtype=int), 4)]),
    ),
    _linear("cells in another order", mx.Permuted(mx.Prefix(CELLS), np.array(ORDER)), MIXED),
    Case("weighted blocks", _weighted, _weighted_answers),
    SCALED,
    _after("a transform by differences", mx.Difference(CELLS), mx.Identity(CELLS), STEPS),
    GROUPS,
    Case("where", _where, _where_answers),
    Case("kept columns", _keep, lambda x: [x.sum(axis=1)]),
    PARTS,
    Case("parts of a split vector", _cell_parts, _cell_parts_answers),
    Case("three measurements in a row", _sequence, _sequence_answers),
)
