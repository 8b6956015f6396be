"""The plan that measures what its model answers badly, in rho and in epsilon."""

from fractions import Fraction

import numpy as np
import pytest

import psephos as ps
from psephos.kernel.scores import FarFromIndependent
from psephos.plans.adaptive_marginals import MEAN_SIZE, _candidates, _Search, grouped_values
from psephos.plans.session import choice_spend

SIZES = {f"x{i}": n for i, n in enumerate((12, 3, 4, 2, 5, 2, 6, 3))}
DOMAIN = ps.Domain.of(SIZES)


def people(rows=4000, seed=0):
    """Two groups of attributes that depend on each other, and one attribute alone."""
    draws = np.random.default_rng(seed)
    x0 = np.minimum(11, draws.poisson(4, rows))
    x1 = np.minimum(2, x0 // 4)
    x2 = (x1 + draws.integers(0, 2, rows)) % 4
    x3 = (x0 > 4).astype(int)
    x4 = draws.integers(0, 5, rows)
    x5 = np.where(draws.random(rows) < 0.9, x4 > 2, x4 <= 2).astype(int)
    x6 = np.minimum(5, x4 + draws.integers(0, 2, rows))
    x7 = draws.integers(0, 3, rows)
    return np.stack([x0, x1, x2, x3, x4, x5, x6, x7], axis=1)


def table_of(tmp_path, budget, domain=DOMAIN, rows=4000):
    source = tmp_path / "people.csv"
    lines = [",".join(domain.names), *(",".join(map(str, row)) for row in people(rows))]
    source.write_text("\n".join(lines))
    place = tmp_path / "ledger"
    if place.exists():
        ledger = ps.Ledger.open(place)
    else:
        ledger = ps.Ledger.create(place, dataset="d", unit=ps.add_remove_row(), budget=budget)
    return ledger, ps.protect(source, domain, ledger=ledger)


def run(table, spend, workload=None, **more):
    workload = ps.marginals(DOMAIN, up_to=3) if workload is None else workload
    vector = table.vectorise()
    return ps.plans.run("AdaptiveMarginals", vector, workload, spend=spend, **more)


def test_a_ledger_in_rho_pays_choices_and_noise_to_the_last(tmp_path):
    spend = ps.rho("1/50")
    ledger, table = table_of(tmp_path, ps.rho("1/50"))
    done = run(table, spend, key="k", rounds=5)
    assert ledger.remaining().amount == 0
    assert [request.kind for request in done.requests] == ["measure", *["choose", "measure"] * 5]
    booked = [entry.booked for entry in ledger.history()]
    assert booked == [r.price for r in done.requests]
    assert done.requests[1].spend.currency == "epsilon"
    again = run(table_of(tmp_path, None)[1], spend, key="k", rounds=5)
    assert len(ledger.history()) == 11
    pairs = ps.marginals(DOMAIN, k=2)
    assert np.array_equal(done.answer(pairs).values, again.answer(pairs).values)


def test_it_learns_what_depends_on_what(tmp_path):
    _, table = table_of(tmp_path, ps.rho("1/10"))
    done = run(table, ps.rho("1/10"), rounds=9)
    records = people()
    for pair in [("x0", "x1"), ("x0", "x3"), ("x4", "x5"), ("x4", "x6"), ("x1", "x2")]:
        axes = [DOMAIN.axis(name) for name in pair]
        true = np.zeros([SIZES[name] for name in pair])
        np.add.at(true, tuple(records[:, axes].T), 1)
        alone = np.outer(true.sum(axis=1), true.sum(axis=0)) / len(records)
        error = np.abs(done.estimate.table(*pair) - true).sum()
        assert error < 0.5 * np.abs(alone - true).sum(), pair


@pytest.mark.slow
def test_domains_far_beyond_a_vector(tmp_path):
    sizes = SIZES | {f"y{i}": 100 for i in range(20)}
    domain = ps.Domain.of(sizes)
    source = tmp_path / "wide.csv"
    rows = np.hstack([people(300), np.random.default_rng(0).integers(0, 100, (300, 20))])
    lines = [",".join(sizes), *(",".join(map(str, row)) for row in rows)]
    source.write_text("\n".join(lines))
    spend = ps.rho("1/2")
    ledger = ps.Ledger.create(tmp_path / "l", dataset="d", unit=ps.add_remove_row(), budget=spend)
    table = ps.protect(source, domain, ledger=ledger)
    workload = ps.marginals(domain, up_to=2)
    done = run(table, spend, workload, rounds=3)
    assert domain.size > 10**40
    assert done.estimate.table("y0", "x0").sum() == pytest.approx(done.estimate.total)


def test_only_what_is_asked_together_is_a_candidate():
    products = [
        ps.product(x0=ps.identity(), x1=ps.identity(), weight=4.0),
        ps.product(x1=ps.identity(), x2=ps.prefix(), weight=1.0),
        ps.product(x3=ps.identity()),
    ]
    workload = ps.Workload(DOMAIN, products)
    scopes = [(0, 1), (1, 2), (3,)]
    assert _candidates(workload, scopes) == {(0, 1): 4, (1, 2): 1}


@pytest.mark.parametrize("products", [[ps.product()], [ps.product(x0=ps.identity())]])
def test_little_is_asked_and_all_is_spent(tmp_path, products):
    ledger, table = table_of(tmp_path, ps.rho("1/10"))
    done = run(table, ps.rho("1/10"), ps.Workload(DOMAIN, products))
    assert ledger.remaining().amount == 0
    assert len(done.requests) == 1
    assert done.estimate.total == pytest.approx(4000, abs=100)


def test_a_tree_without_room_leaves_the_rest_to_one_way_tables(tmp_path):
    ledger, table = table_of(tmp_path, ps.rho("1/10"))
    done = run(table, ps.rho("1/10"), cells=1)
    assert ledger.remaining().amount == 0
    assert [request.kind for request in done.requests] == ["measure", "measure"]


def test_scores_are_distances_less_the_expected_noise():
    """The offset is in the guess; a weight counts both, and the sensitivity says so."""
    domain = ps.Domain.of(a=4, b=2, c=3)
    counts = np.random.default_rng(0).poisson(9, domain.size)
    data = ps.simulate(counts, domain, unit=ps.add_remove_row(), budget=ps.rho(9), seed=0)
    ones = data.vectorise().measure(ps.marginals(domain, k=1).query, spend=ps.rho(1))
    model = ps.infer.graphical_model(ones)
    halves = ps.matrix.Partition([0, 0, 1, 1])
    search = _Search(domain, (halves, None, None), {(0, 1): 1, (1, 2): 3}, 1000)
    score = search.score([(0, 1), (1, 2)], model, 2.0)
    assert isinstance(score, FarFromIndependent)
    admitted = score.admitted(domain.size)
    assert admitted.sensitivity == 3
    low, high = admitted.scores([np.asarray(m @ counts) for m in score.candidates])
    cube = counts.reshape(domain.shape)
    true = [cube.sum(axis=2).reshape(2, 2, 2).sum(axis=1), cube.sum(axis=0)]
    groups = [[halves.groups, np.arange(2)], [np.arange(2), np.arange(3)]]
    distances = [
        np.abs(t - model.grouped_table(axes, g)).sum()
        for t, axes, g in zip(true, [(0, 1), (1, 2)], groups, strict=True)
    ]
    noise = MEAN_SIZE * 2.0
    expected = 3 * (distances[1] - 6 * noise) - (distances[0] - 4 * noise)
    assert high - low == pytest.approx(expected, abs=6)


def test_groups_have_enough_rows_and_large_values_stand_alone():
    counts = np.array([3.0, 4, 50, 1, 1, 1, 1, 90, 2])
    assert grouped_values(counts, 5.0).tolist() == [0, 0, 1, 2, 2, 2, 2, 3, 4]
    assert grouped_values(counts, 0.5).tolist() == list(range(9))
    assert grouped_values(counts, 1e9).tolist() == [0] * 9


@pytest.mark.parametrize("amount", ["1/3", "0.0149", "1e-9", "7", "123456789/1000000007"])
def test_a_choice_books_no_more_than_it_may_and_nearly_all(amount):
    budget = ps.rho(amount)
    booked = choice_spend(budget).booked("rho", "exponential")
    assert booked <= budget
    assert booked.amount >= budget.amount * (1 - Fraction(1, 1 << 30))
    assert choice_spend(ps.epsilon("1/3")) == ps.epsilon("1/3")
