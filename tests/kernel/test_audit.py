"""A statistical audit of measurements on neighbouring tables, and a test of that test.

With the kernel as it is, no audit finds more loss than was charged. With any one rule halved
(sensitivity, stability, distance of the unit), the audit finds it. Thresholds are fixed: a sound
kernel fails here with probability below one in a million.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import beta

import psephos as ps
from psephos import matrix as mx
from psephos.kernel import measurement
from psephos.kernel.budget import Budget, epsilon, rho
from psephos.kernel.lineage import Node
from psephos.kernel.query import Query
from psephos.kernel.simulate import counted, simulation
from psephos.kernel.unit import Unit, add_remove_row, person, substitute_row

DRAWS = 20_000
SURE = 1e-8
DOMAIN = ps.Domain.of(x=4)
BASE = np.array([40, 30, 20, 10])


class Recording:
    """No noise in the answers, and a sample of what would have been added to the first block."""

    simulation = True
    sample = None

    def noise(self, noise, size):
        if self.sample is None:
            self.sample = noise.draw(DRAWS)
        return np.zeros(size, dtype=np.int64)


def table(counts, unit, currency):
    made = simulation(
        counted(np.array(counts), DOMAIN),
        DOMAIN,
        unit=unit,
        budget=Budget(currency, Fraction(10**9)),
        seed=0,
    )
    made._vault.draws = Recording()
    return made


def neighbours(unit):
    """Two tables as far apart as the unit allows, in the cells that matter to the query."""
    k = unit.max_rows
    if unit.change == "substitute":
        return BASE + np.array([0, 0, 0, k]), BASE + np.array([k, 0, 0, 0])
    return BASE, BASE + np.array([k, 0, 0, 0])


# Each case: the unit, and how the measured answers come about from a table.
SIGNED = mx.Dense([[1, 0, 0, -1]])
ONE_GROUP = np.zeros((1, 4 * 101), dtype=int)
ONE_GROUP[0, [40, 41]] = [-1, 1]
CASES = {
    "group": (
        add_remove_row(),
        lambda t, s: t.group_by("x", most=100).vectorise().measure(mx.Dense(ONE_GROUP), spend=s),
    ),
    "row": (add_remove_row(), lambda t, s: t.vectorise().measure(mx.total(4), spend=s)),
    "substitute": (substitute_row(), lambda t, s: t.vectorise().measure(SIGNED, spend=s)),
    "person": (person("id", max_rows=5), lambda t, s: t.vectorise().measure(mx.total(4), spend=s)),
    "transform": (
        add_remove_row(),
        lambda t, s: (
            t.vectorise().transform(mx.Scaled(7, mx.Identity(4))).measure(mx.total(4), spend=s)
        ),
    ),
    "weights": (
        add_remove_row(),
        lambda t, s: t.vectorise().measure(
            Query.of([(mx.total(4), 3), (mx.Dense([[0, 0, 0, 1]]), 1)]), spend=s
        ),
    ),
    "prefix": (
        add_remove_row(),
        lambda t, s: t.vectorise().measure(mx.Dense([[4, 0, 0, 0]]), spend=s),
    ),
}


def samples(case, spend):
    unit, ask = CASES[case]
    found = []
    for counts in neighbours(unit):
        protected = table(counts, unit, spend.currency)
        exact = int(ask(protected, spend).values[0])
        found.append(exact + protected._vault.draws.sample)
    return found


def epsilon_found(case, amount):
    """A lower bound on the loss: the probability of one event on both sides, with confidence."""
    a, b = samples(case, epsilon(amount))
    edge = np.median(b)
    more, less = int((b >= edge).sum()), int((a >= edge).sum())
    low = beta.ppf(SURE, more, DRAWS - more + 1)
    high = beta.ppf(1 - SURE, less + 1, DRAWS - less)
    return math.log(low / high)


def rho_found(case, amount):
    """A lower bound on the loss: the squared distance of the means in standard deviations."""
    a, b = samples(case, rho(amount))
    spread = math.sqrt((a.var() + b.var()) / 2) * (1 + 6 / math.sqrt(DRAWS))
    shift = abs(b.mean() - a.mean()) - 6 * spread * math.sqrt(2 / DRAWS)
    return (max(0.0, shift) / spread) ** 2 / 2


@pytest.mark.parametrize("case", CASES)
def test_no_more_is_lost_than_was_charged(case):
    assert epsilon_found(case, 1) <= 1
    assert rho_found(case, 1) <= 1


def halve_sensitivity(monkeypatch):
    true = measurement.sensitivity
    monkeypatch.setattr(measurement, "sensitivity", lambda q, p: true(q, p) / 2**p)


def halve_distance(monkeypatch):
    true = Unit.per_distance
    monkeypatch.setattr(
        Unit,
        "per_distance",
        lambda self, spend, s: true(self, spend, s) * (2 if spend.currency == "epsilon" else 4),
    )


def forget_distance(monkeypatch):
    monkeypatch.setattr(Unit, "distance", property(lambda self: 1))


def forget_stability(monkeypatch):
    monkeypatch.setattr(Node, "stability", property(lambda self: 1))


@pytest.mark.parametrize(
    ("broken", "case"),
    [
        (halve_sensitivity, "row"),
        (halve_sensitivity, "weights"),
        (halve_sensitivity, "prefix"),
        (halve_distance, "substitute"),
        (forget_distance, "substitute"),
        (forget_distance, "person"),
        (forget_stability, "transform"),
        (forget_stability, "group"),
    ],
)
def test_a_broken_rule_is_found(monkeypatch, broken, case):
    broken(monkeypatch)
    assert epsilon_found(case, 1) > 1
    assert rho_found(case, 1) > 1
