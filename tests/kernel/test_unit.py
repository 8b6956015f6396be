"""Distances of neighbours, and what the root pays."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psephos.errors import BudgetError
from psephos.kernel.budget import epsilon, rho
from psephos.kernel.unit import Unit, add_remove_row, person, substitute_row

UNITS = [
    (add_remove_row(), 1),
    (substitute_row(), 2),
    (person("id", max_rows=3), 3),
    (person("id", max_rows=3, change="substitute"), 6),
]


@pytest.mark.parametrize(("unit", "distance"), UNITS)
def test_distances(unit, distance):
    assert unit.distance == distance
    assert str(unit)


@given(
    unit=st.sampled_from([unit for unit, _ in UNITS]),
    amount=st.fractions(Fraction(1, 100), 10),
    reach=st.integers(1, 20),
)
def test_the_root_pays_what_was_spent(unit, amount, reach):
    assert unit.per_distance(epsilon(amount), reach) * unit.distance * reach == amount
    assert unit.per_distance(rho(amount), reach) * (unit.distance * reach) ** 2 == amount


@pytest.mark.parametrize(("unit", "distance"), UNITS)
def test_a_substituted_row_moves_a_count_once(unit, distance):
    """Rows replaced one for one move any count by at most as many as there are, not twice that."""
    amount = Fraction(3, 7)
    assert unit.per_moved_row(epsilon(amount), 1, rowwise=True) * unit.max_rows == amount
    for stability in (1, 2):
        each = unit.per_moved_row(epsilon(amount), stability, rowwise=False)
        assert each * distance * stability == amount


@pytest.mark.parametrize(
    "make",
    [
        lambda: person("", max_rows=1),
        lambda: person("id", max_rows=0),
        lambda: person("id", max_rows=2.5),
        lambda: person("id", max_rows=True),
        lambda: person("id", max_rows=2, change="swap"),
        lambda: person(None, max_rows=2),
        lambda: Unit("add_remove", None, 0),
        lambda: Unit("none"),
    ],
)
def test_bad_units_are_refused(make):
    with pytest.raises(BudgetError):
        make()
