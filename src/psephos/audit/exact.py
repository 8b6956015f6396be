"""The exact loss of a request: the noise that the kernel attached, against all neighbours.

Answers of neighbouring tables are computed apart, from dense arrays, for every way in which one
row or one person can change a small table. If they move by d in a block of discrete Laplace noise
of scale b, the largest log-ratio of an outcome is Σ|d|/b, and it is reached; in discrete Gaussian
noise of variance v, the zCDP parameter is Σd²/2v (Canonne, Kamath, Steinke 2020, Proposition 5).
Both are exact fractions. That the installation gives these answers is seen with so much epsilon
that no noise is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement

import numpy as np

from psephos.audit.cases import CASES, CELLS, SHAPE, STRATEGY, Case, small_domain
from psephos.audit.stage import Finding, Floats, Integers, Stage, copies_of, opened, verdict
from psephos.errors import name_list
from psephos.kernel.budget import Budget, Currency
from psephos.kernel.ledger import Ledger
from psephos.kernel.measurement import Measurement
from psephos.kernel.noise import DiscreteLaplace, Noise
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.unit import Unit, add_remove_row, person, substitute_row

UNITS = (
    add_remove_row(),
    substitute_row(),
    person("person", max_rows=2),
    person("person", max_rows=2, change="substitute"),
)
BASES = np.array([[0] * CELLS, [1, 0, 2, 0, 1, 1, 0, 3]])
CURRENCIES: tuple[Currency, ...] = ("epsilon", "rho")
Table = tuple[ProtectedTable, Ledger, Integers]  # the last are its counts
SILENCE = Budget("epsilon", Fraction(10**18))


@dataclass(frozen=True)
class Pair:
    """Two neighbours, as a base and the rows of one unit on it, and the loss between them."""

    loss: Fraction
    base: Integers
    first: Integers
    second: Integers


def hidden_rows(unit: Unit) -> Integers:
    """All rows that one unit may bring, as counts of cells; none is among them unless it must."""
    least = 1 if unit.change == "substitute" and unit.person is None else 0
    sizes = range(least, unit.max_rows + 1)
    chosen = [c for k in sizes for c in combinations_with_replacement(range(CELLS), k)]
    return np.array([np.bincount(np.array(c, int), minlength=CELLS) for c in chosen])


@cache
def _neighbours(unit: Unit) -> tuple[Integers, Integers, Integers]:
    """Rows of a unit, and the pairs of them that are neighbours."""
    rows = hidden_rows(unit)
    if unit.change == "substitute":
        first, second = np.triu_indices(len(rows), 1)
    else:  # with none of them
        first, second = np.zeros(len(rows) - 1, int), np.arange(1, len(rows))
    return rows, first, second


def attached(measurements: Sequence[Measurement]) -> list[Noise]:
    """The noise of every block."""
    return [noise for m in measurements for noise in m.noise]


def worst_pair(case: Case, unit: Unit, noises: Sequence[Noise]) -> Pair:
    """The neighbours that lose most, by the answers computed apart."""
    rows, first, second = _neighbours(unit)
    power = 1 if isinstance(noises[0], DiscreteLaplace) else 2
    found = []
    for base in BASES:
        answers = case.answers((base + rows).reshape(-1, *SHAPE))
        moves = [(abs(a[first] - a[second]) ** power).sum(axis=1) for a in answers]
        different, at = np.unique(np.stack(moves, axis=1), axis=0, return_index=True)
        losses = [_loss(moved, noises) for moved in different.tolist()]
        best = max(range(len(losses)), key=losses.__getitem__)
        found.append(Pair(losses[best], base, rows[first[at[best]]], rows[second[at[best]]]))
    return max(found, key=lambda pair: pair.loss)


def _loss(moved: list[int], noises: Sequence[Noise]) -> Fraction:
    scales = [n.scale if isinstance(n, DiscreteLaplace) else 2 * n.variance for n in noises]
    return sum((m / scale for m, scale in zip(moved, scales, strict=True)), Fraction(0))


def exact_losses(stage: Stage) -> Iterator[Finding]:
    """For each currency and kind of request, the worst over all units; then, the answers."""
    for currency in CURRENCIES:
        tables = [_table(stage.rich(unit, currency), hidden_rows(unit)[0]) for unit in UNITS]
        for case in (*CASES, STRATEGY[currency]):
            yield _exact_loss(case, tables, Budget(currency, Fraction(1)))
        if currency == "epsilon":
            yield _answers_agree(tables)
    yield _mixed(stage)


def _exact_loss(case: Case, tables: Sequence[Table], spend: Budget) -> Finding:
    worst = []
    for table, ledger, _ in tables:
        before = ledger.spent()
        noises = attached(case.ask(table, spend, 1))
        charge = (ledger.spent() - before).amount
        worst.append((worst_pair(case, ledger.unit, noises).loss, charge, ledger.unit))
    loss, charge, unit = max(worst, key=lambda each: each[0] - each[1])
    ok = loss <= charge
    return Finding(
        kind="exact loss",
        name=f"{case.name}, {'Laplace' if spend.currency == 'epsilon' else 'Gaussian'} noise",
        claimed=f"{Budget(spend.currency, charge)} under {len(worst)} units",
        verdict=verdict("exact loss", float(loss), float(charge), ok)
        + ("" if ok else f" ({unit})"),
        ok=ok,
        runs=len(worst),
        charge=float(charge),
        found=float(loss),
    )


def _table(ledger: Ledger, one: Integers) -> Table:
    rows = copies_of(BASES[1], one, ledger.unit, 1)
    return opened(small_domain(1), *rows, ledger), ledger, BASES[1] + one


def _answers_agree(tables: Sequence[Table]) -> Finding:
    """With so much epsilon that no noise is left: are the answers those computed apart?"""
    wrong: list[str] = []
    cases = (*CASES, *STRATEGY.values())
    more = [_table(ledger, hidden_rows(ledger.unit)[-1]) for _, ledger, _ in tables]
    for table, ledger, counts in (*tables, *more):
        for case in cases:
            found = np.concatenate([m.values for m in case.ask(table, SILENCE, 1)])
            true = np.concatenate([a[0] for a in case.answers(counts.reshape(1, *SHAPE))])
            if found.tolist() != true.tolist():
                wrong.append(f"{case.name} ({ledger.unit})")
    return Finding(
        kind="behaviour",
        name="answers without noise are those computed apart",
        claimed="the same integers",
        verdict=f"DIFFERENT for {name_list(wrong, 3)}" if wrong else "the same integers",
        ok=not wrong,
        runs=2 * len(tables) * len(cases),
    )


def probabilities(noise: Noise, reach: int) -> Floats:
    """Of every integer from -reach to reach, from the definition."""
    x = np.arange(-reach, reach + 1)
    if isinstance(noise, DiscreteLaplace):
        decay = math.exp(-1 / noise.scale)
        return np.asarray((1 - decay) / (1 + decay) * np.exp(-np.abs(x) / float(noise.scale)))
    weights = np.exp(-(x**2) / float(2 * noise.variance))
    return np.asarray(weights / math.fsum(weights))


def _mixed(stage: Stage) -> Finding:
    """Laplace noise paid in rho: the divergences of a count moved by one, at many orders α.

    ρ ≥ D_α / α,  D_α = ln Σ_x P(x)^α P(x - 1)^(1 - α) / (α - 1)
    """
    table, ledger, _ = _table(stage.rich(UNITS[0], "rho"), hidden_rows(UNITS[0])[0])
    (noise,) = attached(CASES[0].ask(table, Budget("epsilon", Fraction(1)), 1))
    charge = float(ledger.spent().amount)
    chances = probabilities(noise, 200)
    here, there = chances[1:], chances[:-1]
    orders = [1 + 2.0**k for k in range(-10, 7)]
    sums = [math.fsum(here * (here / there) ** (a - 1)) for a in orders]
    found = max(math.log(s) / (a - 1) / a for s, a in zip(sums, orders, strict=True))
    return Finding(
        kind="exact loss",
        name="a count, Laplace noise on a rho ledger",
        claimed=str(ledger.spent()),
        verdict=verdict(
            f"loss at the worst of {len(orders)} orders", found, charge, found <= charge
        ),
        ok=found <= charge,
        runs=1,
        charge=charge,
        found=found,
    )
