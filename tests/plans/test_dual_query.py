"""DualQuery: its parameters, its queries, and a run that ends near the data."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import psephos as ps
from psephos.domain.conjunctions import Conjunctions
from psephos.plans.dual_query import GameParameters, queries_of

DOMAIN = ps.Domain.of(sex=["F", "M"], smokes=["no", "yes"], region=4, income=5)
TABLES = ps.marginals(DOMAIN, k=2)


def people(rows=2000, seed=1):
    """Counts in which attributes depend on each other."""
    generator = np.random.default_rng(seed)
    share = generator.dirichlet(np.full(DOMAIN.size, 0.15))
    return generator.multinomial(rows, share)


def composed_rho(rounds, draws, unit_spend):
    """The price once more, round by round and draw by draw, by the mechanism's own rule."""
    total = Fraction(0)
    for round_ in range(2, rounds + 1):
        for _ in range(draws):
            each = ps.Budget("epsilon", unit_spend * (round_ - 1))
            total += each.booked("rho", "exponential").amount
    return total


@given(
    rounds=st.integers(2, 40),
    draws=st.integers(1, 9),
    unit=st.fractions(Fraction(1, 10**6), 1),
)
def test_the_price_is_that_of_all_draws(rounds, draws, unit):
    game = GameParameters(1000, rounds, draws, unit)
    assert game.rho.amount == composed_rho(rounds, draws, unit)
    spends = [game.spend(round_) for round_ in range(2, rounds + 1)]
    booked = [spend.booked("rho", "exponential", draws).amount for spend in spends]
    assert sum(booked) == game.rho.amount


@given(
    rows=st.integers(1000, 10**7),
    amount=st.fractions(Fraction(1, 1000), 2),
    rounds=st.none() | st.integers(2, 500),
    draws=st.none() | st.integers(1, 200),
)
def test_what_is_worked_out_fits_the_budget(rows, amount, rounds, draws):
    budget = ps.Budget("rho", amount)
    if rounds is None and 6 * amount * rows**2 < 6.25 * (draws or 50) * 6**3:
        return  # a handful of rounds learns nothing: refused, see below
    game = GameParameters.solved(rows, budget=budget, rounds=rounds, draws=draws)
    assert budget * "0.999999" < game.rho <= budget
    assert rounds is None or game.rounds == rounds
    assert draws is None or game.draws == draws


@pytest.mark.parametrize(
    ("rows", "amount", "game"),
    [(10_000, "1/4", (22, 50)), (500_000, "1", (288, 596)), (500_000, "1000", (1000, 1000))],
)
def test_large_budgets_buy_draws_before_rounds(rows, amount, game):
    """Never fewer than 50 draws, never over 1,000, and about T³/40,000 between."""
    solved = GameParameters.solved(rows, budget=ps.epsilon_delta(amount, "0.001"))
    assert (solved.rounds, solved.draws) == game


def test_any_of_the_parameters_follows_from_the_others():
    budget = ps.epsilon_delta("1", "0.001")
    game = GameParameters.solved(30_162, budget=budget)
    again = GameParameters.solved(30_162, budget=budget, rounds=game.rounds, learning_rate="2.51")
    assert again.draws in (49, 50)
    rate = str(round(game.learning_rate, 4))
    priced = GameParameters.solved(30_162, rounds=game.rounds, draws=50, learning_rate=rate)
    assert float(priced.at_delta("0.001").amount) == pytest.approx(1, rel=1e-2)
    assert priced.delta_at("1") == pytest.approx(0.001, rel=0.05)


def test_the_papers_theorem_costs_several_times_more():
    """At (1, 0.001) zCDP allows ηT√(sT)/n = 0.597, Theorem 4.1 only 0.067."""
    game = GameParameters.solved(30_162, budget=ps.epsilon_delta("1", "0.001"), rounds=2000)
    reach = game.learning_rate * game.rounds * math.sqrt(game.draws * game.rounds) / game.rows
    assert reach == pytest.approx(0.597, rel=2e-3)
    assert reach / game.by_theorem("0.001") == pytest.approx(0.067, rel=5e-3)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": ps.epsilon("1")}, "paid in rho, got epsilon 1"),
        ({"budget": ps.rho("1/1000"), "rows": 100}, "spend more, or insist with rounds"),
        ({"rounds": 10, "draws": 5}, "without a budget, give rounds, draws and learning_rate"),
        ({"budget": ps.rho("1"), "rounds": 1}, "rounds is a whole number of at least 2"),
        ({"budget": ps.rho("1"), "draws": 0}, "draws is a whole number of at least 1"),
        ({"budget": ps.rho("1"), "rows": 2.5}, "rows is a whole number"),
        ({"budget": ps.rho("1"), "learning_rate": 2.5}, "learning_rate 2.5 is a float"),
        (
            {"budget": ps.rho("1/100"), "rounds": 500, "draws": 100, "learning_rate": "5"},
            "cost more than rho 1/100",
        ),
        ({"budget": ps.rho("1/100"), "rounds": 900, "learning_rate": "50"}, "a single draw each"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(options, words):
    rows = options.pop("rows", 1000)
    with pytest.raises(ps.PsephosError, match=words):
        GameParameters.solved(rows, **options)


def test_cells_of_the_workloads_tables_are_the_queries():
    generator = np.random.default_rng(0)
    queries = queries_of(TABLES, 10**6, generator)
    cells = sum(DOMAIN.shape[i] * DOMAIN.shape[j] for i in range(4) for j in range(i + 1, 4))
    assert len(queries) == cells
    assert len(set(queries.labels(DOMAIN))) == cells
    some = queries_of(TABLES, 30, generator)
    assert len(set(some.labels(DOMAIN))) == 30
    assert set(some.labels(DOMAIN)) <= set(queries.labels(DOMAIN))
    with pytest.raises(ps.WorkloadError, match="the total alone"):
        queries_of(ps.Workload(DOMAIN, [ps.product()]), 30, generator)
    with pytest.raises(ps.WorkloadError, match="beyond the 4"):
        queries_of(TABLES, Conjunctions(np.array([[9]]), np.array([[0]])), generator)


def largest_error(run, counts):
    true = TABLES.answer(counts)
    return float(np.abs(run.answer(TABLES).values - true).max()) / counts.sum()


def played(counts, budget="1", seed=0, **options):
    data = ps.simulate(counts, DOMAIN, unit=ps.add_remove_row(), budget=ps.rho(budget), seed=seed)
    options = {"rows": int(counts.sum()), **options}
    return ps.plans.run(
        "DualQuery", data.vectorise(), TABLES, spend=ps.rho(budget), key=f"{seed}", **options
    )


def test_it_ends_near_the_data():
    """And far nearer than the answers that need no data."""
    counts = people()
    run = played(counts)
    assert run.estimate.biased
    assert run.estimate.rows == counts.sum()
    assert largest_error(run, counts) < 0.07
    true = TABLES.answer(counts)
    uniform = TABLES.answer(np.full(DOMAIN.size, counts.sum() / DOMAIN.size))
    assert np.abs(true - uniform).max() / counts.sum() > 0.2
    assert np.abs(true).max() / counts.sum() > 0.3


def test_the_wrong_sign_is_noticed(monkeypatch):
    """Drawing what records overcount drives them away from the data."""
    from psephos.kernel.scores.dual_query import UndercountedQueries

    scores = UndercountedQueries.scores
    monkeypatch.setattr(UndercountedQueries, "scores", lambda *args: -scores(*args))
    counts = people()
    assert largest_error(played(counts), counts) > 0.2


def test_records_are_cells_of_every_attribute():
    run = played(people(), rounds=12, copies=3)
    records = run.estimate.records
    assert records.shape == (36, 4)
    assert (records >= 0).all()
    assert (records < np.array(DOMAIN.shape)).all()


def test_rows_are_declared():
    with pytest.raises(ps.WorkloadError, match="number of rows, declared as public"):
        played(people(), rows=None)


def test_a_game_in_epsilon_is_refused_before_a_charge():
    data = ps.simulate(people(), DOMAIN, unit=ps.add_remove_row(), budget=ps.epsilon("1"), seed=0)
    with pytest.raises(ps.BudgetError, match="DualQuery is paid in rho"):
        ps.plans.run("DualQuery", data.vectorise(), TABLES, spend=ps.epsilon("1"), rows=2000)
    assert "epsilon 1 left" in repr(data)
