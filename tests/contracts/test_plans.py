"""Laws of all plans; a new plan joins by one line in EXAMPLES."""

import pytest
from numpy.testing import assert_array_equal

import psephos as ps
from psephos.infer.estimate import Estimate
from psephos.inverse import form as forms
from psephos.plans import PLANS, Static, step_key

DOMAIN = ps.Domain.of(age=6, sex=["F", "M"])
WORKLOAD = ps.marginals(DOMAIN, up_to=2)
SPEND = {"laplace": ps.epsilon("1/2"), "gaussian": ps.rho("1/8")}
EXAMPLES = {"static": lambda noise: Static(ps.select.hdmm(WORKLOAD, noise, restarts=1, cores=1))}


def test_every_plan_is_here():
    assert set(EXAMPLES) == set(PLANS)
    assert {name: kind.name for name, kind in PLANS.items()} == {name: name for name in PLANS}


@pytest.fixture(params=[(n, k) for n in PLANS for k in SPEND], ids=lambda p: "-".join(p))
def case(request, tmp_path):
    name, noise = request.param
    budget = ps.epsilon("1") if noise == "laplace" else ps.rho("1")
    ledger = ps.Ledger.create(
        tmp_path / "ledger", dataset="d", unit=ps.add_remove_row(), budget=budget
    )
    source = tmp_path / "people.csv"
    source.write_text("age,sex\n" + "3,F\n" * 20 + "5,M\n" * 7)
    return EXAMPLES[name](noise), ledger, ps.protect(source, DOMAIN, ledger=ledger), SPEND[noise]


def test_it_spends_no_more_than_it_was_given_and_by_the_ledger(case):
    plan, ledger, table, spend = case
    steps = plan.steps(table.vectorise(), spend=spend, key="k")
    assert ledger.spent() <= spend
    assert len(ledger.history()) == len(steps)
    total = steps[0].spend
    for step in steps[1:]:
        total += step.spend
    assert total <= spend
    keys = [step_key("k", i) for i in range(len(steps))]
    assert [step.measurement.key for step in steps] == keys == [e.key for e in ledger.history()]


def test_a_second_run_replays_the_first(case):
    plan, ledger, table, spend = case
    first = plan.steps(table.vectorise(), spend=spend, key="k")
    charged = ledger.spent()
    again = plan.steps(table.vectorise(), spend=spend, key="k")
    assert ledger.spent() == charged
    for one, other in zip(first, again, strict=True):
        assert_array_equal(one.measurement.values, other.measurement.values)


def test_what_it_measured_becomes_an_estimate(case):
    plan, _, table, spend = case
    steps = plan.steps(table.vectorise(), spend=spend)
    estimate = plan.estimate([step.measurement for step in steps])
    assert isinstance(estimate, Estimate)
    assert estimate.domain == DOMAIN
    assert len(estimate.answer(WORKLOAD)) == WORKLOAD.shape[0]
    for step in steps:
        assert step.measurement.query == step.strategy.query


def test_what_could_not_be_estimated_from_is_refused_before_anything_is_charged(case, monkeypatch):
    plan, ledger, table, spend = case
    monkeypatch.setattr(forms, "VECTOR_LIMIT", 1)
    with pytest.raises(ps.TooLargeError, match="over the limit of 1"):
        plan.steps(table.vectorise(), spend=spend)
    assert ledger.spent().amount == 0


def test_too_small_a_ledger_is_refused_before_anything_is_measured(case):
    plan, ledger, table, spend = case
    with pytest.raises(ps.BudgetExceededError):
        plan.steps(table.vectorise(), spend=9 * spend)
    assert not ledger.history()
