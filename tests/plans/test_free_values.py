"""What attributes get that drawn queries do not decide: shares of noisy counts, and their price."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import chisquare

import psephos as ps
from psephos.infer.graphical_model import nearest_counts
from psephos.kernel import gate
from psephos.plans.dual_query import attributes_of, game_outline
from psephos.plans.free_values import ValueShares, counts_pay
from psephos.plans.session import question_of


@given(
    counts=st.lists(
        st.lists(st.integers(-300, 900), min_size=1, max_size=6), min_size=1, max_size=5
    ),
    rows=st.integers(1, 1000),
)
def test_shares_are_those_of_the_nearest_counts(counts, rows):
    """Attribute by attribute, as the projection of one table has them."""
    sizes = np.array([len(some) for some in counts])
    shares = ValueShares.of(np.arange(sizes.size), sizes, np.concatenate(counts), rows)
    for place, some in enumerate(counts):
        nearest = nearest_counts(np.array(some, dtype=float), rows) / rows
        assert_allclose(shares.of_attribute(place), nearest, atol=1e-8)


def test_values_are_drawn_by_their_shares():
    attributes, sizes = np.array([0, 2]), np.array([2, 7, 3])
    shares = ValueShares.of(attributes, sizes[attributes], np.array([30, 70, 50, -4, 50]), 100)
    records = shares.records(4000, sizes, "uniform", np.random.default_rng(0))
    assert records.shape == (4000, 3)
    assert chisquare(np.bincount(records[:, 0]), [1200, 2800]).pvalue > 1e-6
    assert set(records[:, 2]) == {0, 2}
    assert chisquare(np.bincount(records[:, 1], minlength=7)).pvalue > 1e-6
    first = shares.records(50, sizes, "first", np.random.default_rng(0))
    assert not first[:, 1].any()


def test_counts_that_noise_drowns_are_not_paid_for():
    """At σ = n/4: 2·(ρ/10)·(n/4)² = k."""
    unit = ps.add_remove_row()
    assert counts_pay(ps.rho("8"), unit, 10_000, 317)
    assert not counts_pay(ps.rho("8"), unit, 10_000, 316)
    assert not counts_pay(ps.rho("8"), ps.substitute_row(), 10_000, 632)
    assert counts_pay(ps.rho("8"), ps.substitute_row(), 10_000, 633)


DOMAIN = ps.Domain.of(sex=2, smokes=2, region=4, income=5)
TABLES = ps.Workload(DOMAIN, [ps.product(sex=ps.identity(), region=ps.identity())])


def played(budget="1", rows=2000, **options):
    generator = np.random.default_rng(1)
    counts = generator.multinomial(rows, generator.dirichlet(np.full(DOMAIN.size, 0.15)))
    data = ps.simulate(counts, DOMAIN, unit=ps.add_remove_row(), budget=ps.rho(budget), seed=0)
    options = {"rows": rows, "rounds": 6, **options}
    spend = ps.rho(budget)
    return ps.plans.run("DualQuery", data.vectorise(), TABLES, spend=spend, key="k", **options)


def test_values_of_the_workloads_attributes_are_counted_first():
    run = played()
    assert [request.kind for request in run.requests] == ["count"] + 5 * ["draw"]
    assert run.requests[0].price == ps.rho("1/10")
    assert run.requests[0].values.shape == (6,)  # of sex and region
    assert sum(request.price.amount for request in run.requests) <= 1
    assert len(run.estimate.records) == 6 * 64


@pytest.mark.parametrize("options", [{"free": "earlier"}, {"free": "first"}, {"free": "uniform"}])
def test_other_policies_play_for_all_of_the_budget(options):
    run = played(**options)
    assert {request.kind for request in run.requests} == {"draw"}
    assert math.isclose(sum(request.price.amount for request in run.requests), 1, rel_tol=1e-6)
    assert len(run.estimate.records) == 6


def test_a_small_budget_plays_without_counts_unless_it_is_told_to():
    kinds = [request.kind for request in played("1/1000000", rows=400).requests]
    assert set(kinds) == {"draw"}
    kinds = [request.kind for request in played("1/1000000", rows=400, free="drawn").requests]
    assert kinds[0] == "count"


def test_independent_attributes_are_told_by_their_counts():
    """2,000 binary attributes of which a round names few: nothing else could tell them."""
    from psephos.engines import BitMatrix

    many = ps.Domain.binary(2000)
    generator = np.random.default_rng(0)
    bias = generator.random(2000)
    rows = generator.random((3000, 2000)) < bias
    queries = ps.Conjunctions.sampled(many, ways=3, number=5000, seed=0, positive=True)
    true = queries.holds(rows.astype(np.int32)).mean(axis=1)
    workload = ps.Workload(many, [ps.product(x0=ps.identity())])
    errors = {}
    for free in ("drawn", "uniform"):
        options = {"unit": ps.add_remove_row(), "budget": ps.rho("1/2"), "seed": 0}
        data = ps.simulate(BitMatrix.of(rows), many, **options).vectorise()
        run = ps.plans.run(
            "DualQuery", data, workload, spend=ps.rho("1/2"), rows=3000, queries=queries,
            rounds=20, free=free,
        )  # fmt: skip
        answers = queries.holds(run.estimate.records).mean(axis=1)
        errors[free] = float(np.abs(answers - true).mean())
    assert errors["drawn"] < 0.02
    assert errors["uniform"] > 0.08


def test_the_outline_prices_what_is_counted():
    options = {"rows": 30_162, "rounds": None}
    words = game_outline(TABLES, ps.epsilon_delta("1", "1e-6"), ps.add_remove_row(), options)
    assert words.startswith("noisy counts of the values of 2 attributes for 10 %, then ")
    assert "epsilon 1 at delta 1e-6 by zCDP" in words
    assert "for the rounds alone" in words
    words = game_outline(TABLES, ps.rho("1/8"), ps.add_remove_row(), {**options, "free": "earlier"})
    assert "counts" not in words
    assert game_outline(TABLES, ps.rho("1/8"), ps.add_remove_row(), {}) == ""


def test_attributes_of_queries_and_of_workloads():
    some = ps.Conjunctions(np.array([[1, 3], [1, -1]]), np.array([[0, 0], [1, 0]]))
    assert attributes_of(some) == [1, 3]
    assert attributes_of(TABLES) == [0, 2]


@pytest.mark.parametrize(
    "question",
    [
        ("count", np.array([0, 1]), ps.rho("1")),
        ("count", 3, ps.rho("1")),
        ("count", np.array([0, 1], dtype=np.int32), 3, ps.rho("1")),
    ],
)
def test_strange_questions_are_refused(question):
    with pytest.raises(ps.RefusedError, match="no request of a plan"):
        question_of(gate.to_bytes(question))


class Written:
    """A transcript that holds other questions than the plan asks."""

    def __init__(self, change):
        self.change = change

    def settled(self, step, question):
        parts = list(gate.from_bytes(question))
        return gate.to_bytes(tuple(self.change(step, parts)))


@pytest.mark.parametrize("step", [0, 1])
def test_a_transcript_of_another_game_is_refused(step):
    """Other attributes, and fewer records."""

    def change(number, parts):
        if number == step:
            parts[1 + step] = parts[1 + step][:1]
        return parts

    with pytest.raises(ps.RefusedError, match="another kind of request"):
        played(transcript=Written(change))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"copies": 65}, "copies is at most 64 for so many rounds and attributes, got 65"),
        ({"copies": 0}, "copies is a whole number of at least 1"),
        ({"free": "Drawn"}, "free is one of drawn, earlier, uniform, first, got 'Drawn'"),
        (
            {"rounds": 500, "draws": 100, "learning_rate": "50"},
            r"cost more than rho 9/10 .*; leave one of the three out. Of rho 1 rho 1/10 .* is for",
        ),
    ],
)
def test_what_cannot_be_played_is_said_before_a_charge(options, words):
    with pytest.raises(ps.PsephosError, match=words):
        played(**options)
