"""Controlled rounding: integers, near, and the sums stay."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng

import psephos as ps
from psephos.infer.rounding import _round_running_sums, round_cells

WORKLOADS = {
    "marginals": ps.marginals(ps.Domain.of(a=4, b=5, c=3), up_to=2),
    "prefixes": ps.Workload(ps.Domain.of(a=50), [ps.product(a=ps.prefix())]),
    "merged": ps.Workload(
        ps.Domain.of(a=10, b=6),
        [ps.product(a=ps.ranges([(0, 3), (4, 9)])), ps.product(b=ps.total())],
    ),
}


@given(name=st.sampled_from(sorted(WORKLOADS)), seed=st.integers(0, 10**6), zeros=st.booleans())
def test_whole_near_and_zero_where_it_was(name, seed, zeros):
    W = WORKLOADS[name]
    rng = default_rng(seed)
    x = rng.gamma(0.4, 4, W.domain.size)
    if zeros:
        x[rng.random(x.size) < 0.5] = 0
    z = round_cells(x, W)
    assert z.dtype == np.int64
    assert (z >= 0).all()
    assert (z[x == 0] == 0).all()
    assert (np.abs(z - x) < 2).all()
    assert abs(z.sum() - x.sum()) < 1.5


@given(seed=st.integers(0, 10**6))
def test_whole_numbers_stay_as_they_are(seed):
    W = WORKLOADS["marginals"]
    x = default_rng(seed).poisson(2.0, W.domain.size).astype(float)
    np.testing.assert_array_equal(round_cells(x, W), x)


def test_prefixes_move_by_half_at_most():
    W = WORKLOADS["prefixes"]
    x = default_rng(3).random(50)
    assert np.abs(W.answer(round_cells(x, W) - x)).max() <= 0.5 + 1e-9


@pytest.mark.parametrize("seed", range(5))
def test_sums_move_less_than_by_plain_ways(seed):
    W = ps.marginals(ps.Domain.of(a=8, b=9, c=10), up_to=2)
    x = default_rng(seed).gamma(0.3, 3, W.domain.size)

    def moved(z):
        return np.sqrt((W.answer(z - x) ** 2).mean())

    ours = moved(round_cells(x, W))
    assert ours <= moved(_round_running_sums(x))
    assert ours < 0.5 * moved(np.rint(x))


def test_cells_that_no_query_tells_apart_share_exactly():
    W = WORKLOADS["merged"]
    x = np.full(60, 0.49)
    z = round_cells(x, W)
    groups = z.reshape(10, 6)
    assert abs(groups[:4].sum() - 0.49 * 24) < 1
    assert abs(groups[4:].sum() - 0.49 * 36) < 1
    assert z.max() <= 1


def test_the_same_numbers_every_time():
    W = WORKLOADS["marginals"]
    x = default_rng(1).random(W.domain.size)
    np.testing.assert_array_equal(round_cells(x, W), round_cells(x, W))
