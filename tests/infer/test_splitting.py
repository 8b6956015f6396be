"""Splitting: the region is kept exactly, the gap is a bound, and answers come no further away."""

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
from psephos.errors import RefusedError, UnsupportedError
from psephos.infer import splitting
from psephos.infer.nonnegative import nonnegative
from psephos.infer.normal_equations import NormalEquations
from psephos.infer.splitting import Region, factor_floor
from psephos.kernel.query import Query
from tests.infer.test_nonnegative import DOMAIN, dense, measured
from tests.inverse.generators import BLOCKS, attribute_factors, trees_of_counts

nonnegative_module = sys.modules["psephos.infer.nonnegative"]  # the function hides it

COUNTS = st.lists(st.integers(0, 6), min_size=12, max_size=12)
FLAGS = st.lists(st.booleans(), min_size=12, max_size=12)
WORKLOADS = st.sampled_from(
    [
        ps.marginals(DOMAIN, up_to=1),
        ps.marginals(DOMAIN, k=2),
        ps.prefix_product(DOMAIN),
        ps.Workload(DOMAIN, [ps.product(a=ps.all_range()), ps.product(b=ps.prefix(), weight=3.0)]),
        ps.Workload(DOMAIN, [ps.product(a=ps.identity_total(), b=ps.all_range())]),
        ps.Workload(DOMAIN, [ps.product(b=ps.identity())]),
    ]
)


@pytest.fixture
def by_splitting(monkeypatch):
    monkeypatch.setattr(nonnegative_module, "FEW_CELLS", 0)
    monkeypatch.setattr(nonnegative_module, "INTERIOR_CELLS", 0)
    monkeypatch.setattr(nonnegative_module, "NESTED_CELLS", 0)


def best(a, y, allowed, total):
    """The best fit in a region, by scipy's solver; a total counts as a very precise answer."""
    heavy = 1e4 * np.abs(a).max()
    x = np.zeros(a.shape[1])
    if total is not None:
        a, y = np.vstack([a, np.full(a.shape[1], heavy)]), np.append(y, heavy * total)
    x[allowed] = nnls(a[:, allowed], y, maxiter=1000)[0]
    return x


def rows_of(workload):
    """The workload's matrix, rows times their weights."""
    return np.concatenate(
        [p.weight * workload.kron(i).dense() for i, p in enumerate(workload.products)]
    )


@given(st.lists(st.integers(-9, 9), min_size=12, max_size=12), FLAGS, st.integers(0, 20))
def test_the_nearest_point_of_a_region(v, flags, total):
    allowed, v = np.array(flags), np.array(v) / 2
    free = Region(allowed).nearest(v)
    assert_allclose(free, np.where(allowed, np.maximum(v, 0), 0))
    z = Region(allowed, float(total)).nearest(v)
    assert (z >= 0).all()
    assert (z[~allowed] == 0).all()
    if not allowed.any():
        return
    assert z.sum() == pytest.approx(total, rel=1e-14)
    level = (v - z)[z > 0]  # the same is taken off all positive cells, and more than the others had
    if total:
        assert np.ptp(level) < 1e-12
        assert (v[allowed & (z == 0)] <= level[0] + 1e-12).all()


@settings(max_examples=60)
@given(st.lists(BLOCKS, min_size=1, max_size=3), COUNTS, FLAGS, st.sampled_from([None, 0, 7]))
def test_the_gap_bounds_the_distance_to_the_best_fit(blocks, counts, flags, total):
    weights = [Fraction(w) for w in (2, 1, 3)]
    query = Query.of(list(zip(blocks, weights, strict=False)))
    estimate = ps.infer.least_squares([measured(query, counts)])
    zeros = np.array(flags)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nonnegative_module, "FEW_CELLS", 0)
        patch.setattr(nonnegative_module, "INTERIOR_CELLS", 0)
        patch.setattr(nonnegative_module, "NESTED_CELLS", 0)
        fit = nonnegative(estimate, zeros=zeros, total=total)
    assert (fit.vector >= 0).all()
    assert (fit.vector[zeros] == 0).all()
    if zeros.all():
        return
    if total is not None:
        assert fit.vector.sum() == pytest.approx(total, rel=1e-12)
    a, y = dense(estimate)
    distance = np.linalg.norm(a @ (fit.vector - best(a, y, ~zeros, total))) / np.sqrt(len(y))
    assert distance <= fit.gap + 1e-3 * (total is not None) + 1e-6
    assert fit.gap <= nonnegative_module.GAP


@settings(max_examples=60)
@given(WORKLOADS, COUNTS, FLAGS, st.booleans(), st.integers(0, 5))
def test_answers_come_no_further_from_the_truth_than_least_squares(
    workload, counts, flags, public, seed
):
    counts, zeros = np.array(counts), np.array(flags)
    counts[zeros] = 0
    query = ps.prefix_product(DOMAIN).query
    estimate = ps.infer.least_squares([measured(query, counts, seed=seed)])
    total = float(counts.sum()) if public else None
    fit = nonnegative(estimate, workload=workload, zeros=zeros, total=total)
    w = rows_of(workload)
    noise = np.sqrt(np.trace(w @ np.linalg.pinv(gram_of(estimate)) @ w.T))
    before, after = (np.linalg.norm(w @ (x - counts)) for x in (estimate.vector, fit.vector))
    assert after <= before + fit.gap * noise + 1e-9
    assert fit.gap <= 0.01
    nearest = best(w, w @ estimate.vector, ~zeros, total)
    assert np.linalg.norm(w @ (fit.vector - nearest)) <= fit.gap * noise + 1e-2


def gram_of(estimate):
    a, _ = dense(estimate)
    return a.T @ a


def test_the_norm_of_the_measurements_has_no_such_guarantee():
    """Else the test above would show nothing of the workload's norm."""
    domain = ps.Domain.of(a=64)
    workload = ps.Workload(domain, [ps.product(a=ps.prefix())])
    counts = np.zeros(64, int)
    counts[10] = 50
    worse = []
    for seed in range(5):
        m = measured(ps.select.identity(workload).query, counts, domain, seed)
        estimate = ps.infer.least_squares([m])
        x = [estimate.vector, nonnegative(estimate).vector]
        x.append(nonnegative(estimate, workload=workload).vector)
        errors = [np.linalg.norm(workload.answer(each - counts)) for each in x]
        worse.append(errors[1] > errors[0])
        assert errors[2] <= errors[0]
    assert any(worse)


@settings(max_examples=30)
@given(WORKLOADS, st.integers(0, 5))
def test_same_input_same_numbers(workload, seed):
    query = ps.marginals(DOMAIN, up_to=2).query
    fits = [
        nonnegative(
            ps.infer.least_squares([measured(query, [0, 3] * 6, seed=seed)]),
            workload=workload,
            hold_total=True,
        )
        for _ in range(2)
    ]
    assert (fits[0].vector == fits[1].vector).all()
    assert (fits[0].steps, fits[0].gap) == (fits[1].steps, fits[1].gap)


def test_tables_of_many_cells(by_splitting):
    domain = ps.Domain.of(a=6, b=5, c=4, d=5)
    workload = ps.marginals(domain, up_to=3)
    rng = np.random.default_rng(0)
    counts = rng.multinomial(300, rng.dirichlet(np.full(domain.size, 0.05)))
    estimate = ps.infer.least_squares([measured(workload.query, counts, domain)])
    a, y = dense(estimate)
    total = float(estimate.answer(ps.marginals(domain, k=0)).values[0])
    for options, held in (({}, None), ({"hold_total": True}, total), ({"total": 300}, 300)):
        fit = nonnegative(estimate, **options)
        nearest = best(a, y, np.ones(domain.size, bool), held)
        distance = np.linalg.norm(a @ (fit.vector - nearest)) / np.sqrt(len(y))
        assert distance <= fit.gap <= nonnegative_module.GAP
        assert fit.steps > 0


def test_a_run_that_is_cut_short_says_so(by_splitting, monkeypatch):
    monkeypatch.setattr(splitting, "MOST_STEPS_OF_SPLITTING", 3)
    domain = ps.Domain.of(a=64)
    workload = ps.Workload(domain, [ps.product(a=ps.prefix())])
    m = measured(ps.select.identity(workload).query, [0] * 63 + [900], domain)
    fit = nonnegative(ps.infer.least_squares([m]), workload=workload, total=900)
    assert fit.steps == 3
    assert fit.gap > nonnegative_module.SMALL_GAP
    assert fit.vector.sum() == pytest.approx(900)


@settings(max_examples=100)
@given(st.one_of(attribute_factors(5), trees_of_counts(), st.integers(1, 20).map(mx.Haar)))
def test_a_factor_is_above_its_floor(a):
    n = a.shape[1]
    each, floor = factor_floor(a)
    under = np.eye(n) if each else np.ones((n, n))
    gram = a.gram().dense().astype(float)
    assert np.linalg.eigvalsh(gram - floor * under)[0] >= -1e-9 * np.trace(gram)


@given(st.lists(BLOCKS, min_size=1, max_size=3))
def test_blocks_are_above_the_marginals_of_the_gap(blocks):
    query = Query.of([(block, Fraction(1)) for block in blocks])
    normal = NormalEquations.of(ps.infer.least_squares([measured(query, [1] * 12)]))
    n = normal.target.size
    x = np.stack([normal.apply(row) for row in np.eye(n)])
    for axes, strength in splitting.floors_of(normal):
        shape = normal.shape
        factors = [np.eye(m) if i in axes else np.ones((m, m)) for i, m in enumerate(shape)]
        marginal = np.ones((1, 1))
        for factor in factors:
            marginal = np.kron(marginal, factor)
        assert np.linalg.eigvalsh(x - strength * marginal)[0] >= -1e-9 * np.trace(x)


def test_what_is_refused():
    estimate = ps.infer.least_squares([measured(ps.marginals(DOMAIN, k=1).query, [1] * 12)])
    for total in (-1.0, float("nan"), float("inf")):
        with pytest.raises(RefusedError, match="public total"):
            nonnegative(estimate, total=total)
    with pytest.raises(UnsupportedError):
        nonnegative(estimate, workload=ps.marginals(DOMAIN, k=2))
