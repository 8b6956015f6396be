"""Junction trees and the maximum-entropy model on them, against all cells written out."""

from importlib import import_module
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize

import psephos as ps
from psephos.infer.graphical_model import NoisyTable, fitted_model, graphical_model, nearest_counts
from psephos.infer.junction_tree import JunctionTree, tree_cells, triangulated

module = import_module("psephos.infer.graphical_model")


@st.composite
def scopes_of_few(draw):
    d = draw(st.integers(1, 5))
    shape = tuple(draw(st.lists(st.integers(1, 3), min_size=d, max_size=d)))
    sets = st.sets(st.integers(0, d - 1), min_size=1, max_size=3)
    return shape, [tuple(sorted(s)) for s in draw(st.lists(sets, max_size=5))]


# ---- the tree ------------------------------------------------------------------------------------


@given(case=scopes_of_few(), seed=st.integers(0, 1000))
def test_tables_of_a_tree_are_those_of_all_cells(case, seed):
    shape, scopes = case
    d = len(shape)
    tree = JunctionTree.of(shape, scopes)
    generator = np.random.default_rng(seed)
    logs = [3 * generator.normal(size=[shape[a] for a in clique]) for clique in tree.cliques]
    whole = np.zeros(shape)
    for clique, log in zip(tree.cliques, logs, strict=True):
        whole = whole + log.reshape([shape[a] if a in clique else 1 for a in range(d)])
    constant = np.log(np.exp(whole).sum())
    p = np.exp(whole - constant)
    tables, log_z = tree.calibrated(logs)
    assert log_z == pytest.approx(constant)
    for clique, table in zip(tree.cliques, tables, strict=True):
        assert_allclose(table, np.einsum(p, range(d), clique), atol=1e-12)
    for k in range(min(d, 3) + 1):
        for axes in permutations(range(d), k):
            assert_allclose(tree.joint(tables, axes), np.einsum(p, range(d), axes), atol=1e-12)


@given(case=scopes_of_few())
def test_cliques_hold_all_scopes_and_meet_on_the_way(case):
    shape, scopes = case
    tree = JunctionTree.of(shape, scopes)
    assert all(tree.home(scope) >= 0 for scope in scopes)
    assert {a for clique in tree.cliques for a in clique} == set(range(len(shape)))
    for a in range(len(shape)):  # cliques with an attribute are neighbours: one of them is the top
        holders = [c for c, clique in enumerate(tree.cliques) if a in clique]
        assert sum(tree.parents[c] not in holders for c in holders) == 1
    assert tree.cells == tree_cells(shape, scopes)


def test_a_cycle_of_four_needs_a_chord():
    assert max(map(len, triangulated((2, 2, 2, 2), [(0, 1), (1, 2), (2, 3), (0, 3)]))) == 3


def test_questions_about_too_much_are_refused(monkeypatch):
    monkeypatch.setattr("psephos.infer.junction_tree.QUESTION_CELLS", 20)
    tree = JunctionTree.of((3, 3, 3), [(0, 1), (1, 2)])
    tables, _ = tree.calibrated([np.zeros((3, 3))] * 2)
    assert tree.joint(tables, (0, 2)).shape == (3, 3)
    with pytest.raises(ps.TooLargeError, match="ask about fewer attributes"):
        tree.joint(tables, (0, 1, 2))


# ---- the model -----------------------------------------------------------------------------------

SHAPE = (3, 2, 4)
DOMAIN = ps.Domain.of(a=3, b=2, c=4)


def noisy(generator, axes, groups=None, deviation=2.0, shape=SHAPE, counts=None):
    counts = generator.poisson(6, shape) if counts is None else counts
    groups = [np.arange(shape[a]) for a in axes] if groups is None else groups
    table = np.einsum(counts, range(len(shape)), axes)
    for place, numbers in enumerate(groups):
        sums = np.zeros((numbers.max() + 1, *np.delete(table.shape, place)))
        np.add.at(sums, numbers, np.moveaxis(table, place, 0))
        table = np.moveaxis(sums, 0, place)
    values = table + deviation * generator.normal(size=table.shape)
    return NoisyTable(tuple(axes), tuple(groups), values.ravel(), deviation**2)


def brute_force(tables, total, strength):
    """The same problem with a variable for every cell, solved by another method."""
    shares = []
    for axis, n in enumerate(SHAPE):
        (one,) = [t.values for t in tables if t.axes == (axis,)] or [np.full(n, total / n)]
        shares.append(np.maximum(nearest_counts(one, total) / total, module.LEAST_VALUE_SHARE))
    q = np.einsum("a,b,c->abc", *shares).ravel()
    places = np.indices(SHAPE).reshape(3, -1)
    rows = []
    for table in tables:
        flat = np.zeros(places.shape[1], dtype=int)
        for a, groups in zip(table.axes, table.groups, strict=True):
            flat = flat * (groups.max() + 1) + groups[places[a]]
        rows.append(np.eye(table.values.size)[:, flat])
    matrix = np.vstack(rows)
    y = np.concatenate([t.values for t in tables])
    variances = np.concatenate([np.full(t.values.size, t.variance) for t in tables])

    def objective(logs):
        weights = q * np.exp(logs - logs.max())
        x = total * weights / weights.sum()
        gap = matrix @ x - y
        ratio = np.log(x / (q * total / q.sum()))
        value = 0.5 * (gap**2 / variances).sum() + strength * (x * ratio).sum()
        slope = matrix.T @ (gap / variances) + strength * (ratio + 1)
        return value, x * (slope - (x * slope).sum() / total)

    options = {"maxiter": 5000, "gtol": 1e-9, "ftol": 1e-15}
    result = minimize(objective, np.zeros(q.size), jac=True, method="L-BFGS-B", options=options)
    weights = q * np.exp(result.x - result.x.max())
    return (total * weights / weights.sum()).reshape(SHAPE)


@pytest.mark.parametrize("strength", [0.1, 1.0])
@pytest.mark.parametrize("scopes", [[(0, 1), (1, 2)], [(0, 1), (1, 2), (0, 2)], [(0, 1, 2), (1,)]])
def test_the_model_solves_its_problem(scopes, strength):
    generator = np.random.default_rng(len(scopes))
    counts = generator.poisson(6, SHAPE)
    axes = [(0,), (2,), *scopes] if (1,) in scopes else [(0,), (1,), (2,), *scopes]
    tables = [noisy(generator, each, counts=counts) for each in axes]
    model = fitted_model(DOMAIN, tables, 150.0, strength, steps=2000)
    expected = brute_force(tables, 150.0, strength)
    assert_allclose(model.table("a", "b", "c"), expected, atol=0.02)


def test_groups_of_values_share_by_the_one_way_table():
    generator = np.random.default_rng(0)
    halves = np.array([0, 0, 1, 1])
    tables = [noisy(generator, (a,)) for a in range(3)]
    tables.append(noisy(generator, (0, 2), groups=[np.arange(3), halves]))
    model = fitted_model(DOMAIN, tables, 144.0, 0.1)
    assert model.tree.shape == (3, 1, 2)
    ones = nearest_counts(tables[2].values, 144.0)
    table = model.table("a", "c")
    for half in (slice(0, 2), slice(2, 4)):
        share = ones[half] / ones[half].sum()
        assert_allclose(table[:, half], table[:, half].sum(axis=1, keepdims=True) * share)


def test_tables_by_groups_are_sums():
    generator = np.random.default_rng(1)
    tables = [noisy(generator, axes) for axes in [(0,), (1,), (2,), (0, 2), (1, 2)]]
    model = fitted_model(DOMAIN, tables, 144.0)
    by_halves = model.grouped_table((1, 2), [np.arange(2), np.array([0, 0, 1, 1])])
    assert_allclose(by_halves, model.table("b", "c").reshape(2, 2, 2).sum(axis=2))


def measured(domain, counts, rho="1", k=2, seed=0):
    data = ps.simulate(counts, domain, unit=ps.add_remove_row(), budget=ps.rho("10"), seed=seed)
    return data.vectorise().measure(ps.marginals(domain, up_to=k).query, spend=ps.rho(rho))


def test_answers_are_those_of_its_cells():
    counts = np.random.default_rng(3).poisson(20, DOMAIN.size)
    model = graphical_model(measured(DOMAIN, counts), total=float(counts.sum()))
    cells = model.table(*DOMAIN.names).ravel()
    assert cells.min() >= 0
    assert cells.sum() == pytest.approx(counts.sum())
    products = [ps.product(a=ps.prefix(), c=ps.identity()), ps.product(b=ps.identity())]
    workload = ps.Workload(DOMAIN, [*products, ps.product()])
    assert_allclose(model.answer(workload).values, workload.answer(cells))


def test_no_noise_gives_the_marginals_back():
    counts = np.random.default_rng(4).poisson(2000, DOMAIN.size)
    model = graphical_model(measured(DOMAIN, counts, "10"), strength=1e-3, steps=1000)
    workload = ps.marginals(DOMAIN, up_to=2)
    assert np.abs(model.answer(workload).values - workload.answer(counts)).max() < 5


def test_an_earlier_model_is_a_start():
    counts = np.random.default_rng(5).poisson(20, DOMAIN.size)
    first, second = measured(DOMAIN, counts, k=1), measured(DOMAIN, counts, k=2, seed=0)
    both = [first, second]
    warm = graphical_model(both, start=graphical_model(both, steps=1000), steps=1000)
    cold = graphical_model(both, steps=1000)
    assert_allclose(warm.table("a", "c"), cold.table("a", "c"), atol=0.01)


def test_many_attributes_need_no_vector():
    domain = ps.Domain.of({f"x{i}": 8 for i in range(40)})
    pair = noisy(np.random.default_rng(0), (3, 7), shape=(8,) * 8)
    model = fitted_model(domain, [pair], 1000.0)
    assert domain.size > 10**30
    assert model.answer(ps.marginals(domain, k=1)).values.sum() == pytest.approx(40_000)


def test_trees_that_are_too_large_are_refused_with_their_size(monkeypatch):
    monkeypatch.setattr(module, "CLIQUE_CELLS", 10)
    generator = np.random.default_rng(0)
    tables = [noisy(generator, axes) for axes in [(0, 1), (1, 2), (0, 2)]]
    with pytest.raises(ps.TooLargeError, match="needs 24 cells, over the limit of 10"):
        fitted_model(DOMAIN, tables, 100.0)


def test_only_tables_can_be_modelled():
    data = ps.simulate(np.ones(24, int), DOMAIN, unit=ps.add_remove_row(), budget=ps.rho(1), seed=0)
    prefixes = ps.Workload(DOMAIN, [ps.product(c=ps.prefix())])
    measurement = data.vectorise().measure(prefixes.query, spend=ps.rho("1/2"))
    with pytest.raises(ps.UnsupportedError, match="identities, totals and groups of values"):
        graphical_model(measurement)
