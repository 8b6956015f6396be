"""The exact loss of a request, from the noise that its record states, over all neighbours.

Answers of neighbouring tables are computed without the kernel, from dense arrays, for every way in
which one row or one person can change a small table. If they move by d in a block of discrete
Laplace noise of scale b, the largest log-ratio of an outcome is Σ|d|/b, and it is reached; in
discrete Gaussian noise of variance v, the zCDP parameter is Σd²/2v (Canonne, Kamath, Steinke 2020,
Proposition 5). Both are exact fractions. That the installation gives the same answers is checked
with so much epsilon that the noise is zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement

import numpy as np

from psephos.audit.cases import CASES, COPY_CELLS, COPY_SHAPE, STRATEGY, Case, small_domain
from psephos.audit.stage import (
    SILENCE,
    AttackResult,
    Stage,
    protect_rows,
    rows_of_copies,
    verdict,
)
from psephos.errors import name_list
from psephos.kernel.budget import Budget, Currency
from psephos.kernel.ledger import Ledger
from psephos.kernel.measurement import Measurement
from psephos.kernel.noise import DiscreteLaplace, Noise
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.unit import Unit, add_remove_row, person, substitute_row
from psephos.values import Array

UNITS = (
    add_remove_row(),
    substitute_row(),
    person("person", max_rows=2),
    person("person", max_rows=2, change="substitute"),
)
BASES = np.array([[0] * COPY_CELLS, [1, 0, 2, 0, 1, 1, 0, 3]])
CURRENCIES: tuple[Currency, ...] = ("epsilon", "rho")


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
    rows, first, second = _neighbours(unit)
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


def noises_of(measurements: Sequence[Measurement]) -> list[Noise]:
    """The noise of every block."""
    return [noise for m in measurements for noise in m.noise]


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
        found=float(loss),
    )


def _small_table(ledger: Ledger, hidden: Array) -> _SmallTable:
    """The second base, and on it the rows of the unit that is hidden."""
    rows = rows_of_copies(BASES[1], hidden, ledger.unit, 1)
    table = protect_rows(small_domain(1), *rows, ledger)
    return _SmallTable(table, ledger, BASES[1] + hidden)


def _answers_agree(tables: Sequence[_SmallTable]) -> AttackResult:
    """Whether answers without noise are those that `cases` computes."""
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
        found=loss,
    )


@cache
def _neighbours(unit: Unit) -> tuple[Array, Array, Array]:
    """Rows of a unit, and the pairs of them that are neighbours."""
    rows = hidden_rows(unit)
    if unit.change == "substitute":
        first, second = np.triu_indices(len(rows), 1)
    else:  # with none of them
        first, second = np.zeros(len(rows) - 1, int), np.arange(1, len(rows))
    return rows, first, second


def _loss(distances: list[int], noises: Sequence[Noise]) -> Fraction:
    """Σ|d|/b or Σd²/2v; distances are Σ|d| or Σd² of each block."""
    scales = [n.scale if isinstance(n, DiscreteLaplace) else 2 * n.variance for n in noises]
    return sum((d / scale for d, scale in zip(distances, scales, strict=True)), Fraction(0))
