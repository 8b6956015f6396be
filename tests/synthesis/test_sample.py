"""Rows from estimates: counts stay within one of their shares, and nothing is drawn by chance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import psephos as ps
from psephos.infer import CellEstimate, graphical_model, local_tables
from psephos.infer.local_tables import Inconsistency, LocalTables
from psephos.synthesis.sample import deal, sample

DOMAIN = ps.Domain.of(a=4, b=3, c=5, d=2)


def generator(seed=0):
    return np.random.default_rng(seed)


def counts(rows=3000):
    a = generator(1).integers(0, 4, rows)
    b = (a + generator(2).integers(0, 2, rows)) % 3
    c = np.minimum(4, b + generator(3).integers(0, 3, rows))
    d = (a > 1).astype(int)
    return np.bincount(np.ravel_multi_index((a, b, c, d), DOMAIN.shape), minlength=DOMAIN.size)


def measured(k=2, rho="1/2"):
    unit = ps.add_remove_row()
    data = ps.simulate(counts(), DOMAIN, unit=unit, budget=ps.rho("9"), seed=0)
    return data.vectorise().measure(ps.marginals(DOMAIN, up_to=k).query, spend=ps.rho(rho))


@given(
    rows=st.integers(0, 60),
    states=st.integers(1, 5),
    columns=st.integers(1, 6),
    seed=st.integers(0, 1000),
)
def test_dealt_counts_are_within_one_of_their_shares(rows, states, columns, seed):
    draws = generator(seed)
    state = draws.integers(0, states, rows)
    table = draws.integers(0, 5, (states, columns)).astype(float)
    dealt = deal(state, table, draws)
    assert dealt.shape == (rows,)
    for s in np.unique(state):
        sum_of_all = table[s].sum()
        share = table[s] / sum_of_all if sum_of_all else np.full(columns, 1 / columns)
        numbers = np.bincount(dealt[state == s], minlength=columns)
        assert np.abs(numbers - share * (state == s).sum()).max() < 1 + 1e-9


def test_no_value_of_a_share_of_zero_is_dealt():
    table = np.array([[0.0, 1.0, 0.0, 2.0, 0.0]])
    for seed in range(50):
        dealt = deal(np.zeros(7, int), table, generator(seed))
        assert set(dealt.tolist()) <= {1, 3}


def test_rows_of_a_model_have_its_clique_tables():
    model = graphical_model(measured(), total=3000.0)
    table = sample(model, generator=generator())
    assert table.rows == 3000
    gaps = table.gaps(model, ps.marginals(DOMAIN, up_to=2))
    by_chance = np.sqrt(np.maximum(gaps.model, 0)).mean()
    assert gaps.mean < 0.3 * by_chance
    first = tuple(DOMAIN.names[a] for a in model.tree.cliques[0])
    assert np.abs(table.counts(first) - model.table(*first)).max() < 1 + 1e-6


def test_values_of_a_group_have_their_shares():
    from psephos.infer.graphical_model import NoisyTable, fitted_model

    domain = ps.Domain.of(a=4, b=2)
    ones = NoisyTable((0,), (np.arange(4),), np.array([100.0, 300, 0, 600]), 1.0)
    pair = NoisyTable(
        (0, 1),
        (np.array([0, 0, 1, 1]), np.arange(2)),
        np.array([400.0, 0, 0, 600]),
        1.0,
    )
    model = fitted_model(domain, [ones, pair], 1000.0, 0.01)
    table = sample(model, generator=generator())
    assert np.abs(table.counts(["a"]) - [100, 300, 0, 600]).max() <= 3
    assert np.abs(table.counts(["a", "b"]) - model.table("a", "b")).max() < 3


@pytest.mark.parametrize("seed", range(3))
def test_rows_of_cells_keep_tables(seed):
    cells = generator(seed).gamma(0.5, 4.0, DOMAIN.size)
    model = CellEstimate(DOMAIN, cells, "made up")
    table = sample(model, generator=generator())
    assert table.rows == round(cells.sum())
    gaps = table.gaps(model, ps.marginals(DOMAIN, up_to=2))
    assert gaps.largest < 2.5
    assert gaps.mean < 0.6


def test_rows_of_local_tables_follow_them():
    estimate = ps.infer.least_squares(measured(k=3))
    tables = local_tables(estimate, ps.marginals(DOMAIN, up_to=3), total=3000.0)
    table = sample(tables, generator=generator())
    gaps = table.gaps(tables, ps.marginals(DOMAIN, k=2))
    assert table.rows == 3000
    assert max(gaps.by_product.values()) < 0.05


def test_as_many_rows_as_wanted():
    model = graphical_model(measured())
    assert sample(model, generator=generator(), rows=10).rows == 10
    assert sample(model, generator=generator(), rows=0).rows == 0
    cells = CellEstimate(DOMAIN, counts().astype(float), "made up")
    assert sample(cells, generator=generator(), rows=100).rows == 100
    with pytest.raises(ps.WorkloadError, match="rows is a whole number"):
        sample(model, generator=generator(), rows=-1)


def test_the_same_generator_deals_the_same_rows():
    model = graphical_model(measured())
    first, again = (sample(model, generator=generator(5)) for _ in range(2))
    assert first == again
    assert first.simulation
    other = sample(model, generator=generator(6))
    assert not np.array_equal(first.records, other.records)


def test_attributes_that_were_not_measured_are_even():
    domain = ps.Domain.of(a=2, b=4)
    unit = ps.add_remove_row()
    data = ps.simulate(np.full(8, 50), domain, unit=unit, budget=ps.rho("9"), seed=0)
    one = data.vectorise().measure(
        ps.Workload(domain, [ps.product(a=ps.identity())]).query, spend=ps.rho("1")
    )
    table = sample(graphical_model(one, total=400.0), generator=generator())
    assert_array_equal(table.counts(["b"]), [100] * 4)
    assert_allclose(table.counts(["a"]), [200, 200], atol=5)


def test_estimates_that_may_be_negative_are_refused():
    estimate = ps.infer.least_squares(measured())
    with pytest.raises(ps.UnsupportedError, match=r"take ps\.infer\.(local_tables|nonnegative)"):
        sample(estimate, generator=generator())
    cells = CellEstimate(DOMAIN, np.full(DOMAIN.size, -1.0), "made up")
    with pytest.raises(ps.UnsupportedError, match="negative"):
        sample(cells, generator=generator())


def test_attributes_without_a_common_table_are_as_independent_as_in_the_model():
    """12 cells of a and b, which chance would move by about √count: by up to 27 rows here."""
    domain, rows = ps.Domain.of(a=3, b=4, c=5), 5000
    shares = [generator(n).dirichlet(np.ones(n)) for n in domain.shape]
    one_way = {(axis,): rows * share for axis, share in enumerate(shares)}
    tables = LocalTables(domain, one_way, Inconsistency(0.0, 0.0))
    for seed in range(5):
        table = sample(tables, generator=generator(seed), rows=rows)
        pairs = rows * np.outer(shares[0], shares[1])
        assert_allclose(table.counts(["a", "b"]), pairs, atol=3)
        triples = np.multiply.outer(pairs, shares[2])
        assert np.abs(table.counts(["a", "b", "c"]) - triples).sum() < 0.02 * rows
