"""Noisy counts of single values: what a row moves, what noise there is, and what is refused."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import psephos as ps
from psephos.domain.domain import Domain
from psephos.errors import BudgetExceededError, RefusedError, ShapeError
from psephos.kernel.budget import epsilon, rho
from psephos.kernel.ledger import Ledger
from psephos.kernel.noise import DiscreteGaussian, DiscreteLaplace
from psephos.kernel.recorded_ledger import RecordedLedger, RequestRecord
from psephos.kernel.replay import replayed
from psephos.kernel.scores import conjunction_requests
from psephos.kernel.scores.conjunction_requests import value_queries
from psephos.kernel.scores.mechanisms import Draws
from psephos.kernel.unit import add_remove_row, person, substitute_row
from psephos.protect import protect
from psephos.without_ledger import simulate

DOMAIN = Domain.of(sex=["F", "M"], smokes=["no", "yes"], region=3)
ROWS = "id,sex,smokes,region\n" + "".join(
    f"{i // 2},{'FM'[i % 2]},{'no' if i % 3 else 'yes'},{i % 3}\n" for i in range(60)
)


@pytest.fixture
def people(tmp_path):
    file = tmp_path / "people.csv"
    file.write_text(ROWS)

    def opened(unit, budget):
        place = tmp_path / "people.ledger"
        ledger = Ledger.create(place, dataset="people", unit=unit, budget=budget)
        return ledger, protect(str(file), DOMAIN, ledger=place)

    return opened


@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    data=st.data(),
)
def test_a_row_moves_one_count_of_each_attribute(sizes, data):
    """So that the number of attributes is Δ₁, and Δ₂² too."""
    domain = Domain.of({f"a{i}": size for i, size in enumerate(sizes)})
    axes = sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1), min_size=1)))
    row = [data.draw(st.integers(0, size - 1)) for size in sizes]
    queries, number = value_queries(axes, domain)
    moved = queries.holds(np.array([row])).ravel()
    assert number == len(axes)
    assert moved.sum() == number
    assert len(queries) == sum(sizes[axis] for axis in axes)
    assert queries.attributes.ravel()[moved].tolist() == axes
    assert queries.values.ravel()[moved].tolist() == [row[axis] for axis in axes]


@pytest.mark.parametrize(
    ("unit", "distance"),
    [
        (add_remove_row(), 1),
        (substitute_row(), 2),
        (person("id", max_rows=2), 2),
        (person("id", max_rows=2, change="substitute"), 4),
    ],
)
@pytest.mark.parametrize("currency", ["epsilon", "rho"])
def test_noise_is_for_all_attributes_at_the_units_distance(
    people, monkeypatch, unit, distance, currency
):
    """Two attributes: Δ₁ = 2 per unit of distance in epsilon, Δ₂² = 2 in rho."""
    laws = []
    silent = lambda self, law, size: laws.append(law) or np.zeros(size, np.int64)  # noqa: E731
    monkeypatch.setattr(Draws, "noise", silent)
    ledger, table = people(unit, ps.Budget(currency, Fraction(10)))
    spend = ps.Budget(currency, Fraction(1, 2))
    counts = table.vectorise().count_values([0, 2], spend=spend, key="values")
    by_hand = {
        "epsilon": DiscreteLaplace(Fraction(2 * distance * 2)),
        "rho": DiscreteGaussian(Fraction(2 * distance**2)),
    }
    assert laws == [by_hand[currency]]
    assert counts.tolist() == [30, 30, 20, 20, 20]
    assert ledger.remaining() == ps.Budget(currency, Fraction(19, 2))


def test_counts_are_of_the_rows_that_are_there(people, monkeypatch):
    monkeypatch.setattr(Draws, "noise", lambda self, law, size: np.zeros(size, np.int64))
    _, table = people(add_remove_row(), rho("10"))
    women = table.where(ps.col("sex") == "F")
    assert women.vectorise().count_values([0], spend=rho("1")).tolist() == [30, 0]
    few = table.keep("region", "sex").vectorise()
    assert few.count_values([0, 1], spend=rho("1")).tolist() == [20, 20, 20, 30, 30]
    part = table.split("sex")["F"].vectorise()
    assert sum(part.count_values([0], spend=rho("1"))) == 30


def test_a_key_is_paid_once_and_stands_for_its_attributes(people):
    ledger, table = people(add_remove_row(), rho("1"))
    counts = table.vectorise().count_values([1], spend=rho("1/4"), key="values")
    again = table.vectorise().count_values([1], spend=rho("1/4"), key="values")
    assert again.tolist() == counts.tolist()
    assert ledger.remaining() == rho("3/4")
    with pytest.raises(ps.LedgerError, match="another request"):
        table.vectorise().count_values([2], spend=rho("1/4"), key="values")
    with pytest.raises(BudgetExceededError):
        table.vectorise().count_values([1], spend=rho("1"), key="more")
    assert ledger.remaining() == rho("3/4")


@pytest.mark.parametrize(
    ("attributes", "error", "words"),
    [
        ([], ShapeError, "whole 32-bit numbers"),
        (np.zeros(0, np.int32), RefusedError, "in rising order"),
        ([[0, 1]], RefusedError, "in rising order"),
        ([1, 0], RefusedError, "in rising order"),
        ([1, 1], RefusedError, "in rising order"),
        ([-1, 1], RefusedError, "in rising order"),
        ([0, 3], RefusedError, "no attribute 3; the last is 2"),
        (["sex"], ShapeError, "whole 32-bit numbers"),
        ([0.5], ShapeError, "whole 32-bit numbers"),
    ],
)
def test_strange_attributes_are_refused_before_a_charge(people, attributes, error, words):
    ledger, table = people(add_remove_row(), rho("1"))
    with pytest.raises(error, match=words):
        table.vectorise().count_values(attributes, spend=rho("1/4"))
    assert ledger.remaining() == rho("1")


def test_too_many_values_are_refused_before_a_charge(people, monkeypatch):
    ledger, table = people(add_remove_row(), rho("1"))
    monkeypatch.setattr(conjunction_requests, "MOST_DRAWN_FROM", 4)
    assert len(table.vectorise().count_values([0, 1], spend=rho("1/4"))) == 4
    with pytest.raises(RefusedError, match="5 values are over the limit of 4"):
        table.vectorise().count_values([1, 2], spend=rho("1/4"))
    assert ledger.remaining() == rho("3/4")


def test_values_are_those_of_a_tables_cells(people):
    _, table = people(add_remove_row(), rho("1"))
    mapped = table.vectorise().transform(ps.matrix.Prefix(12))
    with pytest.raises(RefusedError, match="count before a transform"):
        mapped.count_values([0], spend=rho("1/4"))


def test_stored_numbers_of_another_length_are_refused(people):
    ledger, table = people(add_remove_row(), rho("1"))
    table.vectorise().count_values([0, 1], spend=rho("1/4"), key="values")
    (entry,) = ledger.history()
    record = RequestRecord(entry.fingerprint, "values", np.arange(5))
    stored = RecordedLedger(add_remove_row(), rho("1"), ledger.dataset_id, [record])
    again = replayed(DOMAIN, stored, edition="", simulation=False).vectorise()
    with pytest.raises(RefusedError, match="not 4 counts of values"):
        again.count_values([0, 1], spend=rho("1/4"), key="values")


def test_a_simulation_repeats_by_its_seed():
    counts = np.arange(12)
    options = {"unit": add_remove_row(), "budget": epsilon("1"), "seed": 3}
    one, two = (
        simulate(counts, DOMAIN, **options).vectorise().count_values([0, 2], spend=epsilon("1"))
        for _ in range(2)
    )
    assert one.tolist() == two.tolist()
    assert one.shape == (5,)
