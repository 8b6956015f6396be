"""Every kind of request loses what it is charged, exactly and by many runs, and no more.

Answers of neighbouring tables are computed without the kernel, for every way in which one row or
one person can change a small table; the noise is that of the record. Where a rule of the kernel is
broken, some request loses more.
"""

import math
from fractions import Fraction

import numpy as np
import pytest

from psephos.audit.neighbours import CURRENCIES, UNITS, hidden_rows
from psephos.audit.runs import (
    COPY_SHAPE,
    COUNT,
    HISTOGRAM,
    SPENDS,
    TRIALS,
    Trial,
    lower_bound,
    noises_of,
    probabilities,
    small_domain,
)
from psephos.audit.stage import SILENCE, protect_rows, rows_of_copies
from psephos.kernel.budget import Budget
from psephos.kernel.noise import DiscreteGaussian, DiscreteLaplace
from tests.attacks.requests import (
    BASES,
    CASES,
    GROUP_BY,
    SCALED,
    SPLIT_TABLE,
    STRATEGY,
    worst_pair,
)
from tests.broken_rules import (
    RULES,
    forget_distance,
    forget_stability,
    halve_attached_noise,
    halve_drawn_noise,
    halve_sensitivity,
    refund_charges,
)

ALPHA = 1e-9
ADDED_ROW, OTHER_ROW, PERSON, _ = UNITS
EPSILON, RHO = SPENDS[0], SPENDS[4]


def small_table(ledger, hidden):
    """The second base, and on it the rows of the unit that is hidden."""
    rows = rows_of_copies(BASES[1], hidden, ledger.unit, 1)
    return protect_rows(small_domain(1), *rows, ledger)


def losses(place, unit, currency):
    """The name of each case, its loss between the worst neighbours, and its charge."""
    ledger = place.endless_ledger(unit, currency)
    table = small_table(ledger, hidden_rows(unit)[0])
    for case in (*CASES, STRATEGY[currency]):
        before = ledger.spent()
        noises = noises_of(case.ask(table, Budget(currency, Fraction(1)), 1))
        yield case.name, worst_pair(case, unit, noises).loss, (ledger.spent() - before).amount


@pytest.mark.parametrize("unit", UNITS, ids=str)
@pytest.mark.parametrize("currency", CURRENCIES)
def test_no_more_is_lost_than_is_charged(place, unit, currency):
    for name, loss, charge in losses(place, unit, currency):
        assert loss <= charge, name


@pytest.mark.parametrize("unit", UNITS, ids=str)
def test_answers_without_noise_are_those_computed_apart(place, unit):
    ledger = place.endless_ledger(unit, "epsilon")
    for hidden in hidden_rows(unit)[[0, -1]]:
        table, counts = small_table(ledger, hidden), (BASES[1] + hidden).reshape(1, *COPY_SHAPE)
        for case in (*CASES, *STRATEGY.values()):
            values = np.concatenate([m.values for m in case.ask(table, SILENCE, 1)])
            expected = np.concatenate([answers[0] for answers in case.answers(counts)])
            assert values.tolist() == expected.tolist(), case.name


def test_laplace_noise_in_rho(place):
    """The loss of a count that moves by one, at many orders α.

    ρ ≥ D_α / α,  D_α = ln Σ_x P(x)^α P(x - 1)^(1 - α) / (α - 1)
    """
    ledger = place.endless_ledger(ADDED_ROW, "rho")
    table = small_table(ledger, hidden_rows(ADDED_ROW)[0])
    (noise,) = noises_of(COUNT.ask(table, EPSILON, 1))
    chances = probabilities(noise, 200)
    p, q = chances[1:], chances[:-1]
    orders = [1 + 2.0**k for k in range(-10, 7)]
    sums = [math.fsum(p * (p / q) ** (a - 1)) for a in orders]
    loss = max(math.log(s) / (a - 1) / a for s, a in zip(sums, orders, strict=True))
    assert loss <= float(ledger.spent().amount)


def trial_of(place, case, unit, spend):
    """The case between its worst neighbours."""
    nobody = np.empty(0, int)
    empty = protect_rows(
        small_domain(1), nobody, nobody, place.endless_ledger(unit, spend.currency)
    )
    pair = worst_pair(case, unit, noises_of(case.ask(empty, spend, 1)))
    return Trial(case, unit, spend, (pair.first, pair.second), pair.base)


@pytest.mark.parametrize(
    ("case", "unit", "spend"),
    [
        (HISTOGRAM, OTHER_ROW, RHO),
        (SCALED, ADDED_ROW, EPSILON),
        (GROUP_BY, ADDED_ROW, EPSILON),
        (SPLIT_TABLE, PERSON, EPSILON),
        (STRATEGY["epsilon"], ADDED_ROW, EPSILON),
        (STRATEGY["rho"], ADDED_ROW, RHO),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_no_more_is_lost_in_many_runs(place, case, unit, spend):
    (result,) = lower_bound(place, 0.0, trial_of(place, case, unit, spend), ALPHA)
    assert result.ok, result


def test_trials_are_between_the_worst_neighbours(place):
    for trial in TRIALS:
        worst = trial_of(place, trial.case, trial.unit, trial.spend)
        noises = [DiscreteLaplace(Fraction(1))]
        moves = [
            sum(abs(a - b).sum() for a, b in zip(*map(each.case.answers, tables), strict=True))
            for each in (trial, worst)
            for tables in [[(each.others + side).reshape(1, *COPY_SHAPE) for side in each.sides]]
        ]
        assert moves[0] == moves[1] == worst_pair(trial.case, trial.unit, noises).loss


@pytest.mark.parametrize("broken", RULES)
def test_a_broken_rule_is_found_exactly(monkeypatch, place, broken):
    broken(monkeypatch)
    assert any(
        loss > charge
        for currency in CURRENCIES
        for unit in UNITS
        for _, loss, charge in losses(place, unit, currency)
    )


@pytest.mark.parametrize(
    ("broken", "case", "unit", "spend"),
    [
        (halve_sensitivity, COUNT, ADDED_ROW, EPSILON),
        (halve_attached_noise, COUNT, ADDED_ROW, EPSILON),
        (halve_drawn_noise, COUNT, ADDED_ROW, EPSILON),
        (halve_drawn_noise, COUNT, ADDED_ROW, RHO),
        (halve_drawn_noise, STRATEGY["epsilon"], ADDED_ROW, EPSILON),
        (forget_stability, GROUP_BY, ADDED_ROW, EPSILON),
        (forget_stability, SCALED, ADDED_ROW, EPSILON),
        (forget_distance, HISTOGRAM, OTHER_ROW, EPSILON),
        (forget_distance, COUNT, PERSON, EPSILON),
        (forget_distance, COUNT, PERSON, RHO),
        (refund_charges, COUNT, ADDED_ROW, EPSILON),
    ],
)
def test_a_broken_rule_is_found_by_runs(monkeypatch, place, broken, case, unit, spend):
    broken(monkeypatch)
    (result,) = lower_bound(place, 0.0, trial_of(place, case, unit, spend), ALPHA)
    assert not result.ok, result


def test_worked_losses():
    """A prefix query over eight cells moves by up to 8; a wavelet by 4; substitution by twice."""
    by_name = {case.name: case for case in CASES}
    flat = [DiscreteLaplace(Fraction(1))]
    assert worst_pair(by_name["prefix counts"], ADDED_ROW, flat).loss == 8
    assert worst_pair(by_name["prefix counts"], OTHER_ROW, flat).loss == 7
    assert worst_pair(by_name["a wavelet"], ADDED_ROW, flat).loss == 4
    assert worst_pair(by_name["a histogram"], PERSON, flat).loss == 2
    assert worst_pair(by_name["group_by"], ADDED_ROW, flat).loss == 2
    wide = [DiscreteGaussian(Fraction(2))]
    assert worst_pair(by_name["a histogram"], OTHER_ROW, wide).loss == Fraction(1, 2)


def test_neighbours_are_all_there():
    rows = hidden_rows(PERSON)  # none, one or two of eight cells
    assert len(rows) == 1 + 8 + 36
    assert len(hidden_rows(OTHER_ROW)) == 8
    assert rows.sum(axis=1).max() == 2
