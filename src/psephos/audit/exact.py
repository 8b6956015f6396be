"""The exact loss of a request, from the noise that its record states, over all neighbours.

Answers of neighbouring tables are computed without the kernel, from dense arrays, for every way in
which one row or one person can change a small table. If they move by d in a block of discrete
Laplace noise of scale b, the largest log-ratio of an outcome is Σ|d|/b, and it is reached; in
discrete Gaussian noise of variance v, the zCDP parameter is Σd²/2v (Canonne, Kamath, Steinke 2020,
Proposition 5). Both are exact fractions. That the installation gives the same answers is checked
with so much epsilon that the noise is zero.

A case is a kind of request, beside its answers. It is asked of many copies of one small table at
once, `copies` x 4 x 2 cells. Each answer depends on one copy, and each block lists its answers copy
by copy: every copy is a run of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement
from typing import Any

import numpy as np

import psephos.matrix as mx
from psephos.audit.stage import (
    SILENCE,
    AttackResult,
    Stage,
    protect_rows,
    rows_of_copies,
    verdict,
)
from psephos.domain.domain import Domain
from psephos.domain.predicate import col
from psephos.errors import name_list
from psephos.kernel.budget import Budget, Currency
from psephos.kernel.ledger import Ledger
from psephos.kernel.measurement import Measurement
from psephos.kernel.noise import DiscreteLaplace, Noise
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.query import Query
from psephos.kernel.unit import Unit, add_remove_row, person, substitute_row
from psephos.strategy import select
from psephos.values import Array
from psephos.variances import NoiseKind
from psephos.workload.product import product
from psephos.workload.queries import identity, prefix, total
from psephos.workload.workload import Workload

UNITS = (
    add_remove_row(),
    substitute_row(),
    person("person", max_rows=2),
    person("person", max_rows=2, change="substitute"),
)
CURRENCIES: tuple[Currency, ...] = ("epsilon", "rho")
COPY_SHAPE = (4, 2)
COPY_CELLS = 8
BASES = np.array([[0] * COPY_CELLS, [1, 0, 2, 0, 1, 1, 0, 3]])
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


@dataclass(frozen=True)
class NeighbourPair:
    """Two neighbours, as a base and the rows of one unit on it, and the loss between them."""

    loss: Fraction
    base: Array
    first: Array
    second: Array


def exact_losses(stage: Stage) -> Iterator[AttackResult]:
    """For each currency and kind of request, the worst loss over all units; then, the answers."""
    for currency in CURRENCIES:
        ledgers = [stage.endless_ledger(unit, currency) for unit in UNITS]
        tables = [_small_table(ledger, hidden_rows(ledger.unit)[0]) for ledger in ledgers]
        for case in (*CASES, STRATEGY[currency]):
            yield _exact_loss(case, tables, Budget(currency, Fraction(1)))
        if currency == "epsilon":
            yield _answers_agree(tables)
    yield _laplace_in_rho(stage)


def worst_pair(case: Case, unit: Unit, noises: Sequence[Noise]) -> NeighbourPair:
    """The neighbours between which the loss is largest."""
    rows, first, second = neighbours(unit)
    power = 1 if isinstance(noises[0], DiscreteLaplace) else 2
    pairs = []
    for base in BASES:
        answers = case.answers((base + rows).reshape(-1, *COPY_SHAPE))
        moves = [(abs(a[first] - a[second]) ** power).sum(axis=1) for a in answers]
        distances, places = np.unique(np.stack(moves, axis=1), axis=0, return_index=True)
        losses = [_loss(distance, noises) for distance in distances.tolist()]
        worst = max(range(len(losses)), key=losses.__getitem__)
        place = places[worst]
        pairs.append(NeighbourPair(losses[worst], base, rows[first[place]], rows[second[place]]))
    return max(pairs, key=lambda pair: pair.loss)


def hidden_rows(unit: Unit) -> Array:
    """All sets of rows that one unit can have, as counts of cells.

    The empty set is among them, unless a row is always substituted by another.
    """
    fewest = 1 if unit.change == "substitute" and unit.person is None else 0
    sizes = range(fewest, unit.max_rows + 1)
    row_sets = [c for k in sizes for c in combinations_with_replacement(range(COPY_CELLS), k)]
    return np.array([np.bincount(np.array(c, int), minlength=COPY_CELLS) for c in row_sets])


@cache
def neighbours(unit: Unit) -> tuple[Array, Array, Array]:
    """Rows of a unit, and the pairs of them that are neighbours."""
    rows = hidden_rows(unit)
    if unit.change == "substitute":
        first, second = np.triu_indices(len(rows), 1)
    else:  # with none of them
        first, second = np.zeros(len(rows) - 1, int), np.arange(1, len(rows))
    return rows, first, second


def noises_of(measurements: Sequence[Measurement]) -> list[Noise]:
    """The noise of every block."""
    return [noise for m in measurements for noise in m.noise]


def loss_weight(noise: Noise) -> Fraction:
    """What an answer that moves by one loses, and one that moves by d as often as d or d²."""
    return 1 / (noise.scale if isinstance(noise, DiscreteLaplace) else 2 * noise.variance)


def probabilities(noise: Noise, reach: int) -> Array:
    """The probability of every integer from -reach to reach, from the definition of the noise."""
    x = np.arange(-reach, reach + 1)
    if isinstance(noise, DiscreteLaplace):
        decay = math.exp(-1 / noise.scale)
        return np.asarray((1 - decay) / (1 + decay) * np.exp(-np.abs(x) / float(noise.scale)))
    weights = np.exp(-(x**2) / float(2 * noise.variance))
    return np.asarray(weights / math.fsum(weights))


@dataclass(frozen=True)
class _SmallTable:
    """A protected table of one copy, its ledger and its true counts."""

    table: ProtectedTable
    ledger: Ledger
    counts: Array


def _exact_loss(case: Case, tables: Sequence[_SmallTable], spend: Budget) -> AttackResult:
    outcomes = []
    for small in tables:
        ledger, before = small.ledger, small.ledger.spent()
        noises = noises_of(case.ask(small.table, spend, 1))
        charge = (ledger.spent() - before).amount
        outcomes.append((worst_pair(case, ledger.unit, noises).loss, charge, ledger.unit))
    loss, charge, unit = max(outcomes, key=lambda outcome: outcome[0] - outcome[1])
    ok = loss <= charge
    return AttackResult(
        kind="exact loss",
        name=f"{case.name}, {'Laplace' if spend.currency == 'epsilon' else 'Gaussian'} noise",
        claimed=f"{Budget(spend.currency, charge)} under {len(outcomes)} units",
        verdict=verdict("exact loss", float(loss), float(charge), ok)
        + ("" if ok else f" ({unit})"),
        ok=ok,
        runs=len(outcomes),
        charge=float(charge),
        loss=float(loss),
    )


def _small_table(ledger: Ledger, hidden: Array) -> _SmallTable:
    """The second base, and on it the rows of the unit that is hidden."""
    rows = rows_of_copies(BASES[1], hidden, ledger.unit, 1)
    table = protect_rows(small_domain(1), *rows, ledger)
    return _SmallTable(table, ledger, BASES[1] + hidden)


def _answers_agree(tables: Sequence[_SmallTable]) -> AttackResult:
    """Whether answers without noise are those that the cases compute."""
    differences: list[str] = []
    cases = (*CASES, *STRATEGY.values())
    larger = [_small_table(t.ledger, hidden_rows(t.ledger.unit)[-1]) for t in tables]
    for small in (*tables, *larger):
        counts = small.counts.reshape(1, *COPY_SHAPE)
        for case in cases:
            values = np.concatenate([m.values for m in case.ask(small.table, SILENCE, 1)])
            expected = np.concatenate([answers[0] for answers in case.answers(counts)])
            if values.tolist() != expected.tolist():
                differences.append(f"{case.name} ({small.ledger.unit})")
    return AttackResult(
        kind="behaviour",
        name="answers without noise are those computed apart",
        claimed="the same integers",
        verdict=f"DIFFERENT for {name_list(differences, 3)}"
        if differences
        else "the same integers",
        ok=not differences,
        runs=2 * len(tables) * len(cases),
    )


def _laplace_in_rho(stage: Stage) -> AttackResult:
    """Laplace noise charged in rho: the loss of a count that moves by one, at many orders α.

    ρ ≥ D_α / α,  D_α = ln Σ_x P(x)^α P(x - 1)^(1 - α) / (α - 1)
    """
    ledger = stage.endless_ledger(UNITS[0], "rho")
    small = _small_table(ledger, hidden_rows(UNITS[0])[0])
    (noise,) = noises_of(CASES[0].ask(small.table, Budget("epsilon", Fraction(1)), 1))
    charge = float(ledger.spent().amount)
    chances = probabilities(noise, 200)
    p, q = chances[1:], chances[:-1]
    orders = [1 + 2.0**k for k in range(-10, 7)]
    sums = [math.fsum(p * (p / q) ** (a - 1)) for a in orders]
    loss = max(math.log(s) / (a - 1) / a for s, a in zip(sums, orders, strict=True))
    return AttackResult(
        kind="exact loss",
        name="a count, Laplace noise on a rho ledger",
        claimed=str(ledger.spent()),
        verdict=verdict(f"loss at the worst of {len(orders)} orders", loss, charge, loss <= charge),
        ok=loss <= charge,
        runs=1,
        charge=charge,
        loss=loss,
    )


def _loss(distances: list[int], noises: Sequence[Noise]) -> Fraction:
    """Σ|d|/b or Σd²/2v; distances are Σ|d| or Σd² of each block."""
    pairs = zip(distances, noises, strict=True)
    return sum((d * loss_weight(noise) for d, noise in pairs), Fraction(0))
