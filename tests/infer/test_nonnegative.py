"""Non-negative least squares: against scipy's on small cases, by its conditions on larger ones."""

import sys
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import nnls

import psephos as ps
from psephos import matrix as mx
from psephos.errors import ShapeError, UnsupportedError
from psephos.infer import normal_equations as normal_module
from psephos.infer.interior_point import NonNegativeProblem, negative_size
from psephos.infer.least_squares import block_answers
from psephos.infer.nonnegative import GAP, best_nonnegative, nonnegative
from psephos.infer.normal_equations import NormalEquations
from psephos.kernel.query import Query
from tests.inverse.generators import BLOCKS, SHAPE

DOMAIN = ps.Domain.of(a=SHAPE[0], b=SHAPE[1])


def measured(query, counts, domain=DOMAIN, seed=0, spend="1/2"):
    data = ps.simulate(
        np.array(counts), domain, unit=ps.add_remove_row(), budget=ps.epsilon(100), seed=seed
    )
    return data.vectorise().measure(query, spend=ps.epsilon(spend))


def dense(estimate):
    """The measurements scaled to unit noise: a matrix and its answers."""
    rows = []
    for m in estimate.measurements:
        blocks = np.concatenate([block.matrix.dense() for block in block_answers([m])])
        rows.append(blocks / np.sqrt(m.variances)[:, None])
    values = [m.values / np.sqrt(m.variances) for m in estimate.measurements]
    return np.concatenate(rows), np.concatenate(values)


def check(estimate, zeros=None):
    """No worse than scipy's answer, and the same where it is the only one."""
    a, y = dense(estimate)
    x = nonnegative(estimate, zeros=zeros).vector
    live = np.ones(a.shape[1], bool) if zeros is None else ~zeros
    assert x.shape == (a.shape[1],)
    assert (x >= 0).all()
    assert (x[~live] == 0).all()
    other, residual = np.zeros(len(x)), float(np.linalg.norm(y))
    if live.any():
        other[live], residual = nnls(a[:, live], y)
    assert np.linalg.norm(a @ x - y) <= residual + 1e-6 * (1 + residual)
    if live.any() and np.linalg.matrix_rank(a[:, live]) == live.sum():
        assert_allclose(x, other, atol=1e-4)
    return x


@settings(max_examples=40)
@given(st.lists(BLOCKS, min_size=1, max_size=4), st.data())
def test_it_is_the_best_fit_for_every_form(blocks, data):
    weights = [Fraction(w) for w in data.draw(st.permutations([1, 2, 3, 5]))]
    counts = data.draw(st.lists(st.integers(0, 6), min_size=12, max_size=12))
    zeros = data.draw(st.none() | st.lists(st.booleans(), min_size=12, max_size=12))
    query = Query.of(list(zip(blocks, weights, strict=False)))
    estimate = ps.infer.least_squares([measured(query, counts)])
    check(estimate, None if zeros is None else np.array(zeros))


@pytest.mark.parametrize("up_to", [1, 2, 3])
@pytest.mark.parametrize("turned", [True, False])
def test_marginals(up_to, turned, monkeypatch):
    if not turned:
        monkeypatch.setattr(normal_module, "EIGENVECTOR_AXIS", 1)
    domain = ps.Domain.of(a=3, b=1, c=4, d=2)
    w = ps.marginals(domain, up_to=up_to)
    counts = np.random.default_rng(0).poisson(0.7, 24)
    for strategy in (ps.select.opt_marginals(w), ps.select.workload(w)):
        check(ps.infer.least_squares([measured(strategy.query, counts, domain)]))
    data = ps.simulate(counts, domain, unit=ps.add_remove_row(), budget=ps.rho(10), seed=1)
    residual = ps.select.residual(w, noise="gaussian")
    check(ps.infer.least_squares([data.vectorise().measure(residual.query, spend=ps.rho(1))]))


def test_measurements_are_no_estimate_yet():
    with pytest.raises(ps.UnsupportedError, match=r"write nonnegative\(least_squares\("):
        ps.infer.nonnegative([])


def test_three_unlike_products_solved_by_iterations(monkeypatch):
    monkeypatch.setattr("psephos.inverse.choice.DENSE_CELLS", 1)
    rng = np.random.default_rng(0)
    factors = [mx.PIdentity(rng.integers(1, 4, 3), rng.integers(0, 3, (2, 3))) for _ in range(3)]
    query = Query.of([(mx.Kron((m, mx.Identity(4))), Fraction(1)) for m in factors])
    check(ps.infer.least_squares([measured(query, rng.poisson(1, 12))]))


def test_several_measurements_and_merged_cells():
    merged = mx.Kron((mx.Partition([0, 0, 1]), mx.Identity(4)))
    first = measured(Query.of([(merged, Fraction(1))]), [0, 1] * 6)
    estimate = ps.infer.least_squares([first])
    x = check(estimate).reshape(3, 4)
    assert_allclose(x[0], x[1])  # an even share of what is known together
    zeros = np.zeros((3, 4), bool)
    zeros[1] = True
    x = check(estimate, zeros.ravel()).reshape(3, 4)
    assert (x[1] == 0).all()
    data = ps.simulate(
        np.array([0, 1] * 6), DOMAIN, unit=ps.add_remove_row(), budget=ps.epsilon(2), seed=3
    ).vectorise()
    queries = [w.query for w in (ps.marginals(DOMAIN, k=1), ps.prefix_product(DOMAIN))]
    check(ps.infer.least_squares([data.measure(q, spend=ps.epsilon(1)) for q in queries]))


@settings(max_examples=40)
@given(st.lists(BLOCKS, min_size=1, max_size=3), st.data())
def test_a_held_total_is_kept_and_the_rest_fits_best(blocks, data):
    counts = data.draw(st.lists(st.integers(0, 6), min_size=12, max_size=12))
    zeros = np.array(data.draw(st.lists(st.booleans(), min_size=12, max_size=12)))
    query = Query.of([(block, 1) for block in [*blocks, mx.Identity(12)]])
    estimate = ps.infer.least_squares([measured(query, counts)])
    total = max(0.0, float(estimate.answer(ps.marginals(DOMAIN, k=0)).values[0]))
    x = nonnegative(estimate, zeros=zeros, hold_total=True).vector
    assert (x >= 0).all()
    assert (x[zeros] == 0).all()
    if zeros.all():
        return
    moved = abs(nonnegative(estimate, zeros=zeros).vector.sum() - total)
    assert x.sum() == pytest.approx(total, abs=2e-2 * (1 + moved))
    a, y = dense(estimate)
    other = np.zeros(12)
    heavy = np.vstack([a, np.full(12, 1e3)])[:, ~zeros]
    other[~zeros] = nnls(heavy, np.append(y, 1e3 * total))[0]
    assert np.linalg.norm(a @ x - y) <= np.linalg.norm(a @ other - y) + 1e-2 * (1 + total)
    # The conditions: one pull on all cells, down on those that are zero.
    gradient = (a.T @ (a @ x - y))[~zeros]
    pull = gradient[np.argmax(x[~zeros])]
    assert_allclose(gradient[x[~zeros] > 1e-3], pull, atol=1e-3 * (1 + abs(pull)))
    assert (gradient >= pull - 1e-3 * (1 + abs(pull))).all() or total == 0


def test_a_total_that_nobody_measured_is_not_held():
    domain = ps.Domain.of(a=3)
    contrast = mx.Dense(np.array([[1, -1, 0], [0, 1, -1]]))
    estimate = ps.infer.least_squares([measured(Query.of(contrast), [9, 0, 0], domain)])
    assert_allclose(nonnegative(estimate, hold_total=True).vector, nonnegative(estimate).vector)


def test_held_totals_are_nearer_to_the_truth_where_most_cells_are_empty():
    domain = ps.Domain.of(a=20, b=16)
    W = ps.marginals(domain, up_to=1)
    rng = np.random.default_rng(0)
    counts = rng.multinomial(400, rng.dirichlet(np.full(domain.size, 0.1)))
    free_total, held_total = [], []
    for seed in range(10):
        measurement = measured(ps.select.identity(W).query, counts, domain, seed, "3/10")
        estimate = ps.infer.least_squares([measurement])
        fits = [nonnegative(estimate, hold_total=t) for t in (False, True)]
        gaps = [W.answer(fit.vector - counts) for fit in fits]
        free_total.append(gaps[0])
        held_total.append(gaps[1])
    assert np.mean([gap[0] for gap in free_total]) > 200  # the total is far too large
    assert abs(np.mean([gap[0] for gap in held_total])) < 100
    assert np.square(held_total).mean() < np.square(free_total).mean() / 4


def test_an_estimate_without_negative_cells_stays():
    query = ps.Workload(DOMAIN, [ps.product(a=ps.identity(), b=ps.identity())]).query
    estimate = ps.infer.least_squares([measured(query, [1000] * 12, spend=5)])
    assert_allclose(nonnegative(estimate).vector, estimate.vector, rtol=0, atol=0)


def test_one_cell_and_nothing_left():
    domain = ps.Domain.of(a=1)
    query = ps.Workload(domain, [ps.product(a=ps.identity())]).query
    for seed in range(5):
        estimate = ps.infer.least_squares([measured(query, [0], domain, seed)])
        assert_allclose(nonnegative(estimate).vector, np.maximum(estimate.vector, 0))
        assert (nonnegative(estimate, zeros=np.array([True])).vector == 0).all()


@pytest.mark.parametrize("query_set", [ps.prefix, ps.all_range, ps.identity_total])
@pytest.mark.parametrize("budget", ["1/100", "1000000"])
def test_the_conditions_hold_on_thousands_of_cells(query_set, budget):
    domain = ps.Domain.of(a=60, b=50)
    w = ps.Workload(domain, [ps.product(a=query_set(), b=ps.identity())])
    counts = np.random.default_rng(0).poisson(0.5, domain.size)
    data = ps.simulate(counts, domain, unit=ps.add_remove_row(), budget=ps.epsilon(budget), seed=0)
    query = ps.select.workload(w).query
    estimate = ps.infer.least_squares([data.vectorise().measure(query, spend=ps.epsilon(budget))])
    x = nonnegative(estimate).vector
    normal = NormalEquations.of(estimate)
    live = np.ones(x.size, bool)
    noise = negative_size(normal, live)
    if noise == 0:  # nothing but rounding below zero
        assert_allclose(x, normal.solution(), atol=1e-9 * counts.max())
        return
    problem = NonNegativeProblem.of(normal, live, noise)
    assert problem.violation(x, problem.gradient(x)) <= 2 * problem.tolerance
    assert problem.tolerance <= 1e-6


def test_what_cannot_be():
    query = ps.marginals(DOMAIN, k=1).query
    estimate = ps.infer.least_squares([measured(query, [1] * 12)])
    with pytest.raises(ShapeError, match="one truth value for each of 12 cells"):
        nonnegative(estimate, zeros=np.zeros(12))
    wide = ps.Domain.of({f"a{i}": 10 for i in range(8)})
    data = ps.simulate(
        np.zeros(1, int), ps.Domain.of(a=1), unit=ps.add_remove_row(), budget=ps.rho(1), seed=0
    )
    one = ps.marginals(ps.Domain.of(a=1), up_to=1).query
    estimate = ps.infer.least_squares([data.vectorise().measure(one, spend=ps.rho(1))])
    object.__setattr__(estimate, "domain", wide)
    with pytest.raises(UnsupportedError, match="raw and the consistent view remain"):
        nonnegative(estimate)


def test_a_fit_that_failed_is_made_up_for_as_closely_as_others_are_taken(monkeypatch):
    """A second method does not go on for long after what the first would have been taken for."""
    domain, counts = ps.Domain.of(a=3, b=4), np.arange(12)
    data = ps.simulate(counts, domain, unit=ps.add_remove_row(), budget=ps.rho(1), seed=2)
    noisy = data.vectorise().measure(mx.Identity(12), spend=ps.rho("1/1000"))
    module = sys.modules["psephos.infer.nonnegative"]
    tolerances, split = [], module.split

    def noted(normal, region, tolerance):
        tolerances.append(tolerance)
        return split(normal, region, tolerance)

    def failed(normal, allowed, total):
        return np.full(normal.target.size, 1.0), 1

    monkeypatch.setattr(module, "split", noted)
    monkeypatch.setattr(module, "least_norm_fit", lambda normal, region: None)
    monkeypatch.setattr(module, "interior_point", failed)
    fit = best_nonnegative([noisy], total=66)
    assert tolerances == [GAP]
    assert fit.gap <= GAP
    assert fit.vector.sum() == pytest.approx(66)


@pytest.mark.parametrize("total", [None, 20_000])
def test_nested_groups_of_many_cells_are_solved_to_many_digits(total):
    domain = ps.Domain.of(a=1 << 14)
    counts = np.random.default_rng(2).poisson(0.05, domain.size)
    asked = ps.Workload(domain, [ps.product(a=ps.all_range())])
    estimate = ps.infer.least_squares(measured(ps.select.h2(asked).query, counts, domain))
    fit = nonnegative(estimate, total=total)
    assert fit.gap < 1e-3
    normal = NormalEquations.of(estimate)
    slope = normal.apply(fit.vector) - normal.target
    level = 0.0 if total is None else float(slope @ fit.vector) / total
    size = np.abs(normal.target).max()
    assert (slope - level).min() > -1e-6 * size
    assert np.abs((slope - level)[fit.vector > 0]).max() < 1e-6 * size
    if total is not None:
        assert fit.vector.sum() == pytest.approx(total)
