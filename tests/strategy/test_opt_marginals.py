"""OPT_M: error and gradient against dense algebra, covers, and the errors it reaches."""

import math
import time
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.testing import assert_allclose

from psephos import matrix as mx
from psephos.domain.domain import Domain
from psephos.errors import ShapeError
from psephos.strategy.deadline import Deadline
from psephos.strategy.hdmm.covering_designs import (
    affine_plane,
    designs,
    greedy_cover,
    inversive_plane,
    quadruples,
)
from psephos.strategy.hdmm.marginal_error import Lattice, ListedSets, descend, objective
from psephos.strategy.hdmm.marginals import opt_marginals
from psephos.workload import marginals, prefix, product
from psephos.workload.workload import Workload

GRID = (3, 4, 2)
EVERY = [s for k in range(4) for s in combinations(range(3), k)]
CODES = [sum(1 << i for i in s) for s in EVERY]


def cube(d, n=10):
    return Domain.of({f"a{i}": n for i in range(d)})


def symmetric_traces(d, n, most):
    """τ_S of all marginals of at most so many of d attributes of n values."""
    cells = float(n) ** d
    return {
        s: tau
        for k in range(most + 1)
        for tau in [
            (n - 1) ** k
            * sum(math.comb(d - k, j - k) * cells / float(n) ** j for j in range(k, most + 1))
        ]
        for s in combinations(range(d), k)
    }


def ratio(traces, marginals):
    """√(Identity's error / that of the strategy)."""
    return math.sqrt(traces.sum() / marginals.error)


def mixed_workload():
    domain = Domain.of(a=3, b=4, c=2)
    products = (
        product(a=prefix(), weight=2.0),
        product(b=prefix()),
        *marginals(domain, k=2).products,
    )
    return Workload(domain, products)


def dense_error(workload, sets, weights):
    """‖M‖₁² tr((MᵀM)⁺ WᵀW)."""
    shape = workload.domain.shape
    m = mx.Marginals(shape, tuple(sets), tuple(map(float, weights))).dense()
    w = workload.matrix.dense()
    return np.abs(m).sum(axis=0).max() ** 2 * np.trace(np.linalg.pinv(m.T @ m) @ (w.T @ w))


WEIGHTS = st.lists(st.integers(0, 4).map(lambda k: k / 2), min_size=8, max_size=8)


@given(weights=WEIGHTS)
def test_error_and_gradient_agree_with_dense_algebra(weights):
    workload = mixed_workload()
    weights = np.array(weights)
    weights[-1] += 0.5  # the full table: everything can be answered
    lattice = Lattice.of(GRID, workload.subset_traces())
    family = ListedSets.of(GRID, workload.closure_traces(), EVERY)
    on_lattice = np.zeros(8)
    on_lattice[CODES] = weights
    value, gradient = objective(lattice, on_lattice)
    other, slopes = objective(family, weights)
    assert_allclose(value, dense_error(workload, EVERY, weights), rtol=1e-9)
    assert_allclose(other, value, rtol=1e-12)
    assert_allclose(slopes, gradient[CODES], rtol=1e-9)
    step = 1e-6 * np.eye(8)
    ends = [[objective(lattice, on_lattice + s * e)[0] for s in (-1, 1)] for e in step]
    assert_allclose(np.diff(ends)[:, 0] / 2e-6, gradient, rtol=1e-5, atol=1e-5 * abs(value))


@given(seed=st.integers(0, 10**6))
def test_every_step_lowers_the_error(seed):
    lattice = Lattice.of(GRID, mixed_workload().subset_traces())
    weights = default_rng(seed).exponential(size=(3, 8)) ** 3
    last = np.full(3, np.inf)
    for _ in range(10):
        weights, errors = descend(lattice, weights, steps=1)
        assert (errors <= last * (1 + 1e-12)).all()
        last = errors


def test_what_is_not_asked_need_not_be_measured():
    traces = marginals(Domain.of(a=3, b=4, c=2), k=1).subset_traces()
    lattice = Lattice.of(GRID, traces)
    weights = np.zeros((1, 8))
    weights[0, [1, 2, 4]] = 1
    _, errors = descend(lattice, weights, steps=50)
    assert np.isfinite(errors).all()
    _, errors = descend(lattice, np.eye(8)[:1], steps=50)  # the total alone does not do
    assert np.isinf(errors).all()


def check_cover(blocks, wanted, exactly_once=False):
    times = {tuple(s): 0 for s in wanted}
    t = len(wanted[0])
    for block in blocks:
        assert list(block) == sorted(set(block))
        for s in combinations(block, t):
            if s in times:
                times[s] += 1
    assert min(times.values()) >= 1
    assert not exactly_once or max(times.values()) == 1


@pytest.mark.parametrize("d", [4, 5, 8, 13, 16, 20])
def test_quadruples_hold_every_triple_once(d):
    check_cover(quadruples(d), list(combinations(range(d), 3)), exactly_once=True)


@pytest.mark.parametrize(("d", "q"), [(10, 3), (26, 5), (20, 5), (30, 7)])
def test_planes(d, q):
    check_cover(inversive_plane(d, q), list(combinations(range(d), 3)), exactly_once=True)
    check_cover(affine_plane(min(d, q * q), q), list(combinations(range(min(d, q * q)), 2)), True)


def test_designs_fit_the_block_size():
    assert len(list(designs(100, 3, 11))) > 2
    assert list(designs(8, 4, 11)) == []
    assert [len(blocks) for blocks in designs(8, 3, 4)] == [14]


@pytest.mark.parametrize("d", [6, 9, 16])
@pytest.mark.parametrize("t", [1, 2, 3, 4])
@pytest.mark.parametrize("price", [0.3, 1.0])
def test_greedy_covers_hold_every_set(d, t, price):
    shape = [2, 3, 10, 4] * 4
    wanted = np.array(list(combinations(range(d), t)))
    check_cover(greedy_cover(shape[:d], wanted, price, default_rng(0)), wanted)


def test_greedy_gives_up_where_too_large():
    assert greedy_cover((2,) * 60, np.array([range(8)]), 1.0, default_rng(0)) == []


# McKenna et al. 2018, Table 5 prints 435.19, 43.89, 8.37, 2.73, 1.33, 1.00, 1.07, 1.06.
@pytest.mark.parametrize(
    ("most", "least"),
    list(enumerate([435.19, 43.886, 9.28, 2.765, 1.379, 1.090, 1.079, 1.078], 1)),
)
def test_up_to_k_way_marginals_of_eight_attributes(most, least):
    traces = marginals(cube(8), up_to=most).subset_traces()
    best = opt_marginals((10,) * 8, traces, rng=default_rng(0), restarts=5)
    assert ratio(traces, best) >= least
    lattice = Lattice.of((10,) * 8, traces)
    weights = np.zeros(256)
    weights[[sum(1 << i for i in s) for s in best.sets]] = best.weights
    assert_allclose(objective(lattice, weights)[0], best.error, rtol=1e-9)


def test_adult():
    domain = Domain.of(age=75, education=16, race=5, sex=2, hours=20)
    for workload, least in [
        (marginals(domain, up_to=5), 1.108),
        (marginals(domain, k=2), 4.05),
    ]:
        traces = workload.subset_traces()
        best = opt_marginals(domain.shape, traces, rng=default_rng(0), restarts=5)
        assert ratio(traces, best) >= least


def test_symmetric_traces():
    traces = marginals(cube(5, 3), up_to=2).closure_traces()
    other = symmetric_traces(5, 3, 2)
    assert {s: pytest.approx(tau) for s, tau in traces.items()} == other


@pytest.mark.slow
@pytest.mark.parametrize(("n", "least"), [(10, 1.49), (4, 2.71), (2, 6.11)])
def test_covers_beat_the_closure_over_fifty_attributes(n, least):
    traces = symmetric_traces(50, n, 3)
    best = opt_marginals((n,) * 50, traces, rng=default_rng(0), restarts=1)
    queries = sum(math.comb(50, k) * n**k for k in range(4))
    laplace = len(traces) ** 2 * queries
    assert math.sqrt(laplace / best.error) >= least
    assert max(map(len, best.sets)) >= 4


def test_sets_of_one_start_and_all_sets_agree():
    workload = marginals(cube(13, 3), k=1)
    many = opt_marginals((3,) * 13, workload.subset_traces(), rng=default_rng(0), restarts=1)
    listed = ListedSets.of((3,) * 13, workload.closure_traces(), [(i,) for i in range(13)])
    assert many.error <= objective(listed, np.ones(13))[0] * (1 + 1e-9)


@pytest.mark.parametrize("shape", [(3, 4, 2), (1, 5), (7,)])
def test_never_worse_than_identity_or_the_marginals_asked(shape):
    domain = Domain.of({f"a{i}": n for i, n in enumerate(shape)})
    for most in range(len(shape) + 1):
        workload = marginals(domain, up_to=most)
        traces = workload.subset_traces()
        best = opt_marginals(shape, workload.closure_traces(), rng=default_rng(1), restarts=1)
        assert best.error <= traces.sum() * (1 + 1e-9)
        direct = [s for k in range(most + 1) for s in combinations(range(len(shape)), k)]
        family = ListedSets.of(shape, workload.closure_traces(), direct)
        assert best.error <= objective(family, np.ones(len(direct)))[0] * (1 + 1e-9)
        assert (best.weights > 0).all()


@pytest.mark.parametrize(("d", "most"), [(16, 16), (20, 2)])
def test_searches_stop_at_the_deadline(d, most):
    traces = symmetric_traces(d, 2, most)
    calls = []
    best = opt_marginals(
        (2,) * d,
        traces,
        rng=default_rng(0),
        restarts=3,
        deadline=Deadline(time.monotonic()),
        progress=lambda tried, error: calls.append((tried, error)),
    )
    assert best.error <= sum(traces.values()) * (1 + 1e-9)
    assert len(calls) == 1


def test_traces_are_checked():
    with pytest.raises(ShapeError, match="2\\^2 traces"):
        opt_marginals((2, 2), np.ones(3), rng=default_rng(0), restarts=1)
    with pytest.raises(ShapeError, match="asks for nothing"):
        opt_marginals((2, 2), np.zeros(4), rng=default_rng(0), restarts=1)
