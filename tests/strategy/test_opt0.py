import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from psephos.matrix import AllRange, Identity, Kron, Ones, Permuted, Prefix, Stack, WidthRange
from psephos.strategy.deadline import Deadline
from psephos.strategy.gram_terms import GramOperator, gram_operator
from psephos.strategy.hdmm import opt0 as module
from psephos.strategy.hdmm.opt0 import (
    Opt0Solution,
    cell_order,
    identity,
    objective,
    opt0,
    optimise,
    rows_for,
)


def dense_gram(g):
    return GramOperator(len(g), g.diagonal().copy(), lambda b: b @ g)


def dense_error(theta, g):
    """‖A‖₁² tr((AᵀA)⁻¹ G), as defined."""
    a = np.vstack([np.eye(len(g)), theta]) / (1 + theta.sum(axis=0))
    return np.abs(a).sum(axis=0).max() ** 2 * np.trace(np.linalg.solve(a.T @ a, g))


@st.composite
def problems(draw):
    n, p, m = draw(st.integers(1, 7)), draw(st.integers(1, 4)), draw(st.integers(1, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    w = rng.integers(-2, 3, (m, n)) / 2
    return rng.integers(0, 5, (p, n)) / 2, w.T @ w


@settings(max_examples=50)
@given(problem=problems())
def test_objective_is_the_error_of_the_strategy(problem):
    theta, g = problem
    assert_allclose(objective(theta, dense_gram(g))[0], dense_error(theta, g), atol=1e-9)


@settings(max_examples=50)
@given(problem=problems())
def test_gradient_is_the_slope_of_the_objective(problem):
    theta, g = problem
    gram, h = dense_gram(g), 1e-5
    slopes = np.empty_like(theta)
    for i in np.ndindex(theta.shape):
        step = np.zeros_like(theta)
        step[i] = h
        ahead, behind = objective(theta + step, gram)[0], objective(theta - step, gram)[0]
        slopes[i] = (ahead - behind) / (2 * h)
    assert_allclose(objective(theta, gram)[1], slopes, rtol=1e-5, atol=1e-5)


@given(problem=problems(), widths=st.lists(st.integers(1, 3), min_size=7, max_size=7))
def test_blocks_cost_what_their_cells_cost(problem, widths):
    theta, _ = problem
    widths = np.array(widths[: theta.shape[1]])
    block = np.repeat(np.arange(len(widths)), widths)
    cells = np.eye(len(widths))[:, block]
    g = Prefix(len(block)).gram().dense()
    coarse = GramOperator(len(widths), cells @ g.diagonal(), lambda b: b @ (cells @ g @ cells.T))
    value, gradient = objective(theta, coarse, widths.astype(float))
    whole, slopes = objective(theta[:, block], dense_gram(g))
    assert_allclose(value, whole)
    assert_allclose(gradient, slopes @ cells.T, atol=1e-6)


@settings(max_examples=30)
@given(problem=problems(), seed=st.integers(0, 99))
def test_never_worse_than_identity_and_scored_as_it_is(problem, seed):
    g = problem[1]
    solution = opt0(dense_gram(g), rng=np.random.default_rng(seed), restarts=1)
    assert solution.error <= np.trace(g)
    assert (solution.theta >= 0).all()
    assert solution.theta.any(axis=1).all()
    assert_allclose(dense_error(solution.theta, g), solution.error, rtol=1e-6, atol=1e-9)


def test_same_seed_same_strategy():
    gram = gram_operator([1.0], [Prefix(100)])
    once, again = (opt0(gram, rng=np.random.default_rng(3), restarts=1) for _ in range(2))
    assert once.error == again.error
    assert (once.theta == again.theta).all()


# The published ratios √(tr G / C) are 1.38 and 1.80 for 128 cells (McKenna et al. 2018, Table 4).
@pytest.mark.parametrize(
    ("queries", "ratio"),
    [
        (AllRange(128), 1.385),
        (Prefix(128), 1.805),
        (AllRange(256), 1.627),
        (Prefix(256), 2.18),
        (Permuted(AllRange(256), np.random.default_rng(0).permutation(256)), 1.62),
        (WidthRange(1024, 32), 1.249),
    ],
    ids=repr,
)
def test_ratios(queries, ratio):
    gram = gram_operator([1.0], [queries])
    solution = opt0(gram, rng=np.random.default_rng(0), restarts=1)
    assert (gram.trace / solution.error) ** 0.5 >= ratio


def test_boxes_of_a_grid():
    gram = gram_operator([1.0], [Kron((Prefix(16), Prefix(16)))])
    solution = opt0(gram, rng=np.random.default_rng(0), restarts=1, grid=(16, 16))
    assert (gram.trace / solution.error) ** 0.5 > 1.1


def test_the_identity_trap_is_escaped():
    gram = gram_operator([1.0], [Stack((Identity(75), Ones(1, 75)))])
    assert gram.trace == 150
    for seed in range(3):
        solution = opt0(gram, rng=np.random.default_rng(seed), restarts=1)
        assert solution.error == pytest.approx(133.82, abs=0.01)
        assert len(solution.theta) == 1


@pytest.mark.parametrize("n", [1, 2, 50])
def test_identity_stays_where_nothing_is_better(n):
    gram = gram_operator([1.0], [Identity(n)])
    solution = opt0(gram, rng=np.random.default_rng(0), restarts=1)
    assert solution.theta.shape == (0, n)
    assert solution.error == n


def test_nothing_asked():
    solution = opt0(dense_gram(np.zeros((4, 4))), rng=np.random.default_rng(0), restarts=2)
    assert solution.theta.shape == (0, 4)
    assert solution.error == 0
    assert optimise(dense_gram(np.zeros((4, 4))), rng=np.random.default_rng(0)).error == 0


def test_a_passed_deadline_gives_the_best_so_far():
    gram = gram_operator([1.0], [AllRange(2000)])
    began = time.monotonic()
    solution = opt0(gram, rng=np.random.default_rng(0), restarts=9, deadline=Deadline(began + 0.3))
    assert time.monotonic() - began < 5
    assert solution.error <= gram.trace
    assert (
        optimise(gram, rng=np.random.default_rng(0), deadline=Deadline(began)).error <= gram.trace
    )


def test_a_longer_descent_from_a_given_start_is_no_worse():
    gram, rng = gram_operator([1.0], [Prefix(64)]), np.random.default_rng(0)
    start = rng.random((4, 64))
    errors = [optimise(gram, rng=rng, start=start, iterations=k).error for k in (5, 50, 500)]
    assert errors == sorted(errors, reverse=True)
    assert errors[0] <= objective(start, gram)[0]


def test_a_start_in_any_order_of_memory_is_improved():
    gram = gram_operator([1.0], [Prefix(64)])
    start = np.random.default_rng(0).random((4, 64))
    rows, columns = (
        optimise(gram, rng=np.random.default_rng(0), start=np.array(start, order=order))
        for order in "CF"
    )
    assert columns.error == rows.error
    assert columns.error < 0.5 * objective(start, gram)[0]


@pytest.mark.parametrize("twice", [0, 1024])
@pytest.mark.parametrize(("queries", "ratio"), [(AllRange(1024), 2.3), (Prefix(1024), 3.2)])
def test_long_lines_are_solved_on_blocks_and_finished_on_cells(queries, ratio, twice, monkeypatch):
    """Here from 512 cells on; within 3 % of the long descents that lines of 1024 cells get."""
    monkeypatch.setattr(module, "LONG_LINE", 512)
    monkeypatch.setattr(module, "TWICE_REFINED", twice)
    gram = gram_operator([1.0], [queries])
    solution = opt0(gram, rng=np.random.default_rng(0), restarts=1)
    assert len(solution.theta) <= rows_for(1024)
    assert solution.error == pytest.approx(objective(solution.theta, gram)[0])
    assert (gram.trace / solution.error) ** 0.5 > ratio


def test_progress_is_told():
    told: list[tuple[int, Opt0Solution]] = []
    gram = gram_operator([1.0], [Prefix(40)])
    best = opt0(
        gram,
        rng=np.random.default_rng(0),
        restarts=2,
        progress=lambda run, solution: told.append((run, solution)),
    )
    assert [run for run, _ in told] == [0, 1]
    assert told[-1][1] is best


@pytest.mark.parametrize("queries", [AllRange(300), Prefix(300), WidthRange(300, 20)], ids=repr)
def test_a_shuffled_line_is_found_again(queries):
    shuffle = np.random.default_rng(0).permutation(300)
    assert cell_order(gram_operator([1.0], [queries])) is None
    solution = cell_order(gram_operator([1.0], [Permuted(queries, shuffle)]))
    position = np.argsort(shuffle)[solution]
    assert (np.abs(np.diff(position)) == 1).all()


def test_no_order_without_a_line():
    assert cell_order(dense_gram(np.diag([0.0] + [1.0] * 9))) is None
    assert cell_order(gram_operator([1.0], [Prefix(5)])) is None
    assert cell_order(gram_operator([1.0], [Identity(40)])) is None


def test_rows_and_identity():
    assert [rows_for(n) for n in (2, 128, 1024, 8192)] == [1, 8, 64, 253]
    assert identity(gram_operator([1.0], [Prefix(4)])).error == 10


SHAPES = [
    Prefix(12),
    AllRange(12),
    WidthRange(12, 5),
    WidthRange(12, 12),
    Permuted(AllRange(12), np.random.default_rng(1).permutation(12)),
    Permuted(WidthRange(12, 4), np.random.default_rng(2).permutation(12)),
    Kron((Prefix(3), AllRange(4))),
    Kron((Prefix(2), Identity(3), Ones(1, 2))),
    Kron((Identity(3), Permuted(AllRange(4), [2, 0, 1, 3]))),
    Stack((Identity(12), Ones(1, 12))),
    Identity(12),
]


@pytest.mark.parametrize("dense_axis", [512, 2])
@pytest.mark.parametrize("queries", SHAPES, ids=repr)
def test_products_with_a_gram(queries, dense_axis, monkeypatch):
    monkeypatch.setattr("psephos.strategy.gram_terms.ARRAY_AXIS", dense_axis)
    for limit in (2048, 2):
        monkeypatch.setattr("psephos.strategy.gram_terms.ARRAY_GRAM", limit)
        b = np.random.default_rng(0).random((5, 12))
        w = queries.dense()
        gram = gram_operator([2.0, 0.5], [queries, Ones(1, 12)])
        given_rows = b.copy()
        assert_allclose(gram.times(b), b @ (2 * w.T @ w + 0.5), atol=1e-10)
        assert (b == given_rows).all()
        assert_allclose(gram.diagonal, np.diag(2 * w.T @ w + 0.5))
