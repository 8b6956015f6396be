"""Budgets are exact, of one currency, and refuse what they cannot mean."""

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psephos.errors import BudgetError
from psephos.kernel import budget as b
from psephos.kernel import conversion
from psephos.variances import NoiseKind

AMOUNTS = st.fractions(min_value=Fraction(1, 10**6), max_value=10**6)


@given(x=AMOUNTS, y=AMOUNTS, k=st.integers(1, 50))
def test_arithmetic_is_that_of_fractions(x, y, k):
    for make in (b.epsilon, b.rho):
        assert (make(x) + make(y)).amount == x + y
        assert (make(x) * k).amount == x * k == (k * make(x)).amount
        assert (make(x) / k).amount == x / k
        assert (make(x) < make(y)) == (x < y)
        assert (make(x) <= make(x)) is True
        assert (make(x + y) - make(x)) == make(y)


def test_a_tenth_is_a_tenth():
    tenth = b.epsilon("0.1")
    assert tenth + tenth + tenth == b.epsilon("0.3")
    assert b.epsilon("1/3") * 3 == b.epsilon(1)
    assert b.epsilon(Decimal("0.25")) == b.epsilon("1/4")
    assert repr(b.epsilon("0.2")) == "epsilon 1/5 (~0.2)"
    assert repr(b.rho(2)) == "rho 2"
    assert repr(b.rho("1e299")) == f"rho {10**299}"
    assert b.epsilon(" +.5E-1 ") == b.epsilon("1/20") == b.epsilon("0.05")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: b.epsilon(0.1), 'write "0.1"'),
        (lambda: b.epsilon(math.nan), "float"),
        (lambda: b.epsilon("nan"), "not a finite number"),
        (lambda: b.epsilon("inf"), "not a finite number"),
        (lambda: b.epsilon(Decimal("Infinity")), "not a finite number"),
        (lambda: b.epsilon("-1"), "more than 0"),
        (lambda: b.epsilon(0), "more than 0"),
        (lambda: b.epsilon("1/0"), "not a finite number"),
        (lambda: b.epsilon("a lot"), "not a finite number"),
        (lambda: b.epsilon("1e99999"), "not a finite number"),
        (lambda: b.epsilon("1e3000000"), "not a finite number"),
        (lambda: b.epsilon(Decimal("1e3000000")), "not a finite number"),
        (lambda: b.epsilon(Decimal("1e-3000000")), "not a finite number"),
        (lambda: b.epsilon("1" * 10**6), "this text is not a finite number"),
        (lambda: b.epsilon("1e300"), "at most 300 digits"),
        (lambda: b.epsilon(10**300), "at most 300 digits"),
        (lambda: b.epsilon("\u0663"), "not a finite number"),
        (lambda: b.epsilon("1_0"), "not a finite number"),
        (lambda: b.epsilon("1 / 3"), "not a finite number"),
        (lambda: b.epsilon(True), "whole number, got True"),
        (lambda: b.epsilon(None), "got None"),
        (lambda: b.epsilon("1") + b.rho("1"), "different currencies"),
        (lambda: b.epsilon("1") < b.rho("1"), "different currencies"),
        (lambda: b.epsilon("1") + 1, "on both sides"),
        (lambda: b.epsilon("1") * 0.5, 'write "0.5"'),
        (lambda: b.epsilon("1") * -1, "more than 0"),
        (lambda: b.epsilon("1") / 0, "more than 0"),
        (lambda: b.epsilon("1") - b.epsilon("2"), "never negative"),
        (lambda: b.epsilon_delta("1", "1"), "below 1"),
        (lambda: b.epsilon_delta("1e-12", "1e-12"), "less rho than the grid"),
        (lambda: conversion.epsilon_bound(Fraction(1), Fraction(0)), "between 0 and 1"),
    ],
)
def test_what_has_no_meaning_is_refused(make, words):
    with pytest.raises(BudgetError) as error:
        make()
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("part", "value"), [("_numerator", 0.5), ("_denominator", 0), ("_denominator", -3)]
)
def test_fractions_forged_by_hand_are_refused(part, value):
    """Their type is right, and what they hold is no fraction of whole numbers."""
    forged = Fraction(1, 3)
    setattr(forged, part, value)
    with pytest.raises(BudgetError, match="not a finite number"):
        b.exact(forged, "epsilon")


@pytest.mark.parametrize("eps", ["0.01", "0.1", "1", "3", "10"])
@pytest.mark.parametrize("delta", ["0.3", "1e-3", "1e-6", "1e-12"])
def test_converted_rho_is_certified_and_nearly_the_largest(eps, delta):
    rho = b.epsilon_delta(eps, delta).amount
    target, within = Fraction(eps), Fraction(delta)
    assert rho.denominator <= 2**40
    assert conversion.delta_bound(rho, target) <= within
    assert conversion.delta_bound(rho * Fraction(1001, 1000), target) > within
    # Never worse than the classical rho + 2 sqrt(rho ln 1/δ).
    log = math.log(1 / float(within))
    assert float(rho) >= (math.sqrt(log + float(target)) - math.sqrt(log)) ** 2 * (1 - 1e-9)


@given(rho=st.fractions(Fraction(1, 1000), 5), delta=st.sampled_from(["1e-3", "1e-6", "1e-10"]))
def test_read_outs_round_up(rho, delta):
    within = Fraction(delta)
    eps = conversion.epsilon_bound(rho, within)
    assert conversion.delta_bound(rho, eps) <= within
    assert eps <= Fraction(math.ceil((float(rho) + 2 * math.sqrt(float(rho) * 30)) * 2**20) + 1)


def test_rho_is_read_at_a_delta():
    assert b.rho("1/2").at_delta("1e-6").amount == conversion.epsilon_bound(
        Fraction(1, 2), Fraction(1, 10**6)
    )
    assert b.epsilon("1").at_delta("1e-6") == b.epsilon("1")


def test_the_true_delta_of_the_gaussian_stays_below_the_bound():
    """The exact trade-off of a Gaussian of rho-zCDP (Balle and Wang 2018, Theorem 8)."""

    def phi(x):
        return 0.5 * math.erfc(-x / math.sqrt(2))

    for rho in (0.005, 0.05, 0.5):
        mu = math.sqrt(2 * rho)
        for eps in (0.1, 0.5, 1.0, 3.0):
            exact = phi(mu / 2 - eps / mu) - math.exp(eps) * phi(-mu / 2 - eps / mu)
            assert float(conversion.delta_bound(Fraction(rho), Fraction(eps))) >= exact


def test_a_bound_on_delta_is_never_nothing():
    """An upper bound of 0 would claim pure differential privacy, which no rho implies."""
    for amount, eps in ((Fraction(1, 10**6), 10**4), (Fraction(1, 10**250), 10**250)):
        assert 0 < conversion.delta_bound(amount, Fraction(eps)) < Fraction(1, 10**4000)
    assert conversion.delta_bound(Fraction(0), Fraction(1)) == 0


def test_what_a_ledger_books():
    """An ε-DP mechanism in rho: ε²/2, or ε²/8 for the exponential one; and no way back."""
    two, half = b.epsilon("2"), b.rho("1/2")
    assert two.booked("epsilon") == two
    assert half.booked("rho", "exponential") == half
    assert two.booked("rho") == b.rho("2")
    assert two.booked("rho", "noisy minimum") == b.rho("2")
    assert two.booked("rho", "exponential") == half
    assert two.booked("rho", "exponential", 4) == half / 4
    assert two.booked("epsilon", "exponential", 4) == two
    with pytest.raises(BudgetError, match="cannot pay rho 1/2"):
        half.booked("epsilon")


@pytest.mark.parametrize(
    ("name", "currency", "norm", "power"), [("laplace", "epsilon", 1, 2), ("gaussian", "rho", 2, 1)]
)
def test_a_kind_of_noise_says_all_that_follows_from_it(name, currency, norm, power):
    kind = NoiseKind(name)
    assert (kind.currency, kind.norm, kind.power) == (currency, norm, power)
    assert NoiseKind.paid_in(currency) is kind
    assert kind == name
