"""Tied trees: gradients, whole numbers, and the ratios to Identity that they reach."""

import math
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from psephos.errors import ShapeError, UnsupportedError
from psephos.inverse.range_gram import LineGram, LineQueries
from psephos.matrix import AllRange, Identity, Prefix, Stack, WidthRange, total
from psephos.strategy.deadline import Deadline
from psephos.strategy.hdmm.range_tree import (
    fanout_lists,
    h2_levels,
    hb_levels,
    integer_levels,
    level_blocks,
    normal_tree,
    optimise_range_tree,
    tree_error,
    uniform_tree,
)
from psephos.strategy.hdmm.range_tree_error import RangeTreeObjective
from psephos.variances import NoiseKind

NOISES = list(NoiseKind)


def ratio(error, queries, n):
    return math.sqrt(LineQueries.of(queries).trace(n) / error)


@pytest.fixture(scope="module")
def trees():
    """One quick search for each kind of noise, on a line with a cut-off last block."""
    by_noise = {}
    for noise in NOISES:
        rng = np.random.default_rng(0)
        by_noise[noise] = optimise_range_tree(
            AllRange(10007), 10007, noise=noise, rng=rng, lists=[(17, 19, 31)]
        )
    return by_noise


@settings(max_examples=20)
@given(
    fanouts=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    noise=st.sampled_from(NOISES),
    seed=st.integers(0, 10**6),
)
def test_gradient_is_that_of_finite_differences(fanouts, noise, seed):
    rng = np.random.default_rng(seed)
    n = math.prod(fanouts)
    line = LineQueries(*rng.random(5))
    objective = RangeTreeObjective(tuple(fanouts), (2,) * len(fanouts), line.gram(n), noise)
    entries = [0.2 + rng.random((3, b)) for b in fanouts]
    x = objective.pack(rng.standard_normal(len(fanouts)), entries)
    value, slope = objective(x)
    step = 1e-5
    for i, unit in enumerate(np.eye(x.size)):
        change = objective(x + step * unit)[0] - objective(x - step * unit)[0]
        assert_allclose(slope[i], change / (2 * step), atol=2e-8)
    weights, levels = objective.levels(x)
    assert_allclose(math.exp(value), tree_error(levels, weights, line, n, noise=noise), rtol=1e-12)


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("kind", [Prefix, AllRange])
def test_error_is_that_of_the_explicit_strategy(noise, kind):
    n = 96
    rng = np.random.default_rng(0)
    levels = [(rng.integers(0, 4, b) + (b == 6), rng.integers(0, 9, (3, b))) for b in (4, 4, 6)]
    weights = [2.0, 1.0, 0.5]
    blocks = [block.dense() for block in level_blocks(levels)]
    a = np.vstack(
        [
            (w if noise == "laplace" else np.sqrt(w)) * k
            for w, k in zip(weights, blocks, strict=True)
        ]
    )
    norm = np.abs(a).sum(axis=0).max() ** 2 if noise == "laplace" else (a**2).sum(axis=0).max()
    w = kind(n).dense()
    exact = norm * np.trace(np.linalg.solve(a.T @ a, w.T @ w))
    assert_allclose(tree_error(levels, weights, kind(n), n, noise=noise), exact, rtol=1e-11)


@pytest.mark.parametrize("bits", [3, 6, 10])
def test_whole_numbers_have_equal_column_sums(trees, bits):
    for diagonal, rows in integer_levels(trees["laplace"], bits):
        assert diagonal.dtype == rows.dtype == np.int64
        assert (diagonal >= 0).all()
        assert (rows >= 0).all()
        assert (diagonal + rows.sum(axis=0) == 1 << bits).all()
    assert (integer_levels(trees["laplace"], bits)[-1][0] > 0).all()


@pytest.mark.parametrize(
    ("noise", "bits", "loss"), [(NoiseKind.LAPLACE, 8, 1.0005), (NoiseKind.GAUSSIAN, 10, 1.002)]
)
def test_whole_numbers_cost_next_to_nothing(trees, noise, bits, loss):
    one = trees[noise]
    queries = AllRange(one.cells)
    rounded = tree_error(integer_levels(one, bits), one.weights, queries, one.cells, noise=noise)
    assert math.sqrt(rounded / one.error) < loss


@pytest.mark.parametrize("noise", NOISES)
def test_found_trees_are_as_they_say(trees, noise):
    one = trees[noise]
    assert_allclose(one.weights.sum(), 1)
    for diagonal, rows in one.levels:
        entries = np.vstack([diagonal, rows])
        norms = entries.sum(axis=0) if noise == "laplace" else np.sqrt((entries**2).sum(axis=0))
        assert_allclose(norms, 1)
    tree = normal_tree(one.levels, one.weights, one.cells, noise=noise)
    assert_allclose(tree.trace(AllRange(one.cells)), one.error, rtol=1e-12)
    assert (
        ratio(one.error, AllRange(one.cells), one.cells) > {"laplace": 4.5, "gaussian": 11}[noise]
    )


@pytest.mark.parametrize(("kind", "least"), [(AllRange, 25.0), (Prefix, 39.0)])
def test_a_million_cells(kind, least):
    n = 1 << 20
    tried = []
    one = optimise_range_tree(
        kind(n),
        n,
        rng=np.random.default_rng(0),
        lists=[(32, 32, 32, 32)],
        progress=lambda name, best: tried.append(best),
    )
    assert ratio(one.error, kind(n), n) > least
    assert_allclose(tried[-1], ratio(one.error, kind(n), n))
    assert tried == sorted(tried)


def test_hierarchies_reach_their_known_ratios():
    n = 1 << 20
    hb = uniform_tree(hb_levels(n), AllRange(n), n)
    assert hb.fanouts == (16,) * 5
    assert_allclose(ratio(hb.error, AllRange(n), n), 24.173, atol=1e-3)
    hb = uniform_tree(hb_levels(n), Prefix(n), n)
    assert_allclose(ratio(hb.error, Prefix(n), n), 35.080, atol=1e-3)
    h2 = uniform_tree(h2_levels(64), AllRange(64), 64)
    assert h2.fanouts == (1, 2, 2, 2, 2, 2, 2)
    rows = np.vstack([block.dense() for block in level_blocks(h2.levels)])
    gram = AllRange(64).gram().dense()
    assert_allclose(h2.error, 49 * np.trace(np.linalg.solve(rows.T @ rows, gram)), rtol=1e-12)


def test_fan_outs_of_hb():
    # The rule of Qardaji, Yang and Li 2013, with whole-number logarithms: log_5 125 is 3.
    known = {16: 16, 64: 64, 100: 100, 256: 16, 512: 23, 1000: 32, 1024: 32, 4096: 16}
    known |= {10**4: 22, 16384: 26, 65536: 16, 1 << 18: 23, 1 << 20: 16}
    assert {n: hb_levels(n)[-1] for n in known} == known
    for n in (1, 2, 3, 7, 1000, 10007):
        for fanouts in (hb_levels(n), h2_levels(n)):
            assert math.prod(fanouts) >= n


@settings(max_examples=15)
@given(n=st.integers(1, 1 << 30))
def test_fan_out_lists_have_room_for_all_cells(n):
    lists = fanout_lists(n)
    assert lists
    for fanouts in lists:
        assert n <= math.prod(fanouts) <= 1.2 * n + 10
        assert max(fanouts) <= 200


def test_mixed_queries_and_what_is_refused():
    n = 640
    mixed = Stack((Prefix(n), 2 * Identity(n), 3 * total(n)))
    late = time.monotonic() + 0.5
    one = optimise_range_tree(mixed, n, rng=np.random.default_rng(0), deadline=Deadline(late))
    assert_allclose(one.error, tree_error(one.levels, one.weights, mixed, n), rtol=1e-12)
    with pytest.raises(UnsupportedError, match="optimised for prefixes"):
        optimise_range_tree(WidthRange(n, 3), n, rng=np.random.default_rng(0))
    with pytest.raises(ShapeError, match="not 8"):
        optimise_range_tree(mixed, 8, rng=np.random.default_rng(0))
    past = optimise_range_tree(mixed, n, rng=np.random.default_rng(0), deadline=Deadline(0.0))
    assert past.fanouts == hb_levels(n)
    assert integer_levels(past, 5)[0][0].max() == 1
    assert LineQueries.of_terms([(4.0, Identity(n)), (1.0, WidthRange(n, 3))]) is None
    assert LineQueries.of_terms([(4.0, Identity(n))]) == LineQueries(identity=4.0)
    assert LineGram(0, 0, 0, 1, 0).dense(2).tolist() == [[1, 1], [1, 1]]
