import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from psephos.matrix import AllRange, Identity, Ones, Prefix, Stack, WidthRange
from psephos.strategy.deadline import Deadline
from psephos.strategy.hdmm.gaussian import CertifiedFactor, optimise_gaussian


@st.composite
def grams(draw):
    n, m = draw(st.integers(1, 8)), draw(st.integers(1, 10))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    w = rng.integers(-2, 3, (m, n)) / 2
    return w.T @ w


@given(g=grams())
def test_a_proper_strategy_scored_as_it_is_above_the_bound(g):
    certified = optimise_gaussian(g)
    a = certified.factor
    assert_allclose((a**2).sum(axis=0), 1)
    assert (np.tril(a, -1) == 0).all()
    assert_allclose(np.trace(np.linalg.solve(a.T @ a, g)), certified.error, rtol=1e-6, atol=1e-9)
    assert certified.bound <= certified.error <= np.trace(g) * (1 + 1e-9)


@settings(max_examples=50)
@given(g=grams(), seed=st.integers(0, 99))
def test_no_strategy_is_below_the_bound(g, seed):
    other = np.random.default_rng(seed).standard_normal((len(g) + 3, len(g)))
    other /= np.sqrt((other**2).sum(axis=0))
    error = np.trace(np.linalg.solve(other.T @ other, g))
    assert error >= optimise_gaussian(g).bound * (1 - 1e-9)


@given(g=grams())
def test_full_rank_is_solved_to_the_tolerance(g):
    assert optimise_gaussian(g + np.eye(len(g)), tolerance=1e-6).gap <= 1e-6


# Root mean square errors at sensitivity one, of the convex optimum to three digits.
@pytest.mark.parametrize(
    ("queries", "rmse", "ratio"),
    [
        (AllRange(128), 2.599, 2.5328),
        (AllRange(256), 2.901, 3.1962),
        (Prefix(128), 2.311, 3.4751),
        (Prefix(256), 2.524, 4.4903),
    ],
    ids=repr,
)
def test_worked_numbers(queries, rmse, ratio):
    g = queries.gram().dense()
    certified = optimise_gaussian(g)
    assert certified.gap <= 1e-4
    assert (certified.error / queries.shape[0]) ** 0.5 == pytest.approx(rmse, abs=1e-3)
    assert (np.trace(g) / certified.error) ** 0.5 == pytest.approx(ratio, abs=2e-4)


def test_a_start_saves_steps():
    g = Prefix(64).gram().dense()
    from_diagonal = optimise_gaussian(g, start=np.diag(g), iterations=1)
    assert isinstance(from_diagonal, CertifiedFactor)
    assert from_diagonal.error <= np.trace(g)


def test_singular_grams():
    assert_allclose(optimise_gaussian(Ones(1, 50).gram().dense()).error, 1, rtol=1e-5)
    assert_allclose(optimise_gaussian(Identity(50).gram().dense()).error, 50)
    both = optimise_gaussian(Stack((Identity(75), Ones(1, 75))).gram().dense())
    assert both.gap < 1e-9
    assert optimise_gaussian(WidthRange(64, 16).gram().dense()).gap < 1e-3


def test_cells_that_nothing_asks_for_keep_their_own_column():
    g = np.zeros((4, 4))
    assert (optimise_gaussian(g).factor == np.eye(4)).all()
    assert optimise_gaussian(g).gap == 0
    g[1:3, 1:3] = 1
    certified = optimise_gaussian(g)
    assert_allclose(certified.factor[:, [0, 3]], np.eye(4)[:, [0, 3]])
    assert_allclose(certified.error, 1, rtol=1e-5)


def test_a_passed_deadline_gives_the_best_so_far():
    g = Prefix(64).gram().dense()
    certified = optimise_gaussian(g, tolerance=0, deadline=Deadline(time.monotonic()))
    assert certified.bound <= certified.error <= np.trace(g)
