"""Tables along a tree: the same numbers as block by block, forwards and back."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import psephos.infer.table_tree
import psephos.infer.written_levels
from psephos import matrix as mx
from psephos.infer.table_tree import TableTree

SHAPE = (3, 4, 2)
FACTORS = (
    (mx.Identity(3), mx.Ones(1, 3), mx.PIdentity([1, 2, 1], [[1, 2, 0]]), mx.Prefix(3)),
    (mx.Identity(4), mx.Ones(1, 4), mx.Partition([0, 0, 1, 1]), mx.Ones(2, 4)),
    (mx.Identity(2), mx.Ones(1, 2), mx.Dense([[1, -2]])),
)
PRODUCTS = st.tuples(*map(st.sampled_from, FACTORS)).map(mx.Kron)


@pytest.fixture(params=["branches", "walked", "sums", "runs", "one matrix", "levels"], autouse=True)
def way(request):
    """All ways to compute: along the branches, by sums first, and by the stack written out."""
    with pytest.MonkeyPatch.context() as patch:
        entries = 1 << 20 if request.param in ("one matrix", "levels") else 0
        patch.setattr(psephos.infer.table_tree, "SPARSE_ENTRIES", entries)
        small = np.inf if request.param == "sums" else 0.0
        patch.setattr(psephos.infer.table_tree, "SMALL_SUMS", small)
        if request.param == "walked":
            patch.setattr(psephos.infer.table_tree, "WALKED_CELLS", 1)
        # A matrix more costs far more than entries, or far less.
        calls = -10_000 if request.param == "levels" else 10_000
        patch.setattr(psephos.infer.written_levels, "CALL_ENTRIES", calls)
        branch = 0 if request.param in ("branches", "walked", "sums") else 1 << 20
        patch.setattr(psephos.infer.table_tree, "ENTRIES_PER_BRANCH", branch)
        yield request.param


CELLS = st.integers(0, 2**32).map(lambda seed: np.random.default_rng(seed).integers(-9, 9, 24) / 2)


@given(st.lists(PRODUCTS, min_size=1, max_size=6), CELLS, st.booleans())
def test_answers_are_those_of_the_blocks(blocks, x, whole):
    tree = TableTree.of(blocks, SHAPE, whole=whole)
    answers = tree.apply(tree.arrange(x))
    for b, block in enumerate(blocks):
        part = answers[tree.starts[b] : tree.starts[b + 1]]
        assert_allclose(tree.restore_answers(b, part), block @ x)
        assert_allclose(part, tree.arrange_answers(b, block @ x))
    assert_allclose(tree.restore(tree.arrange(x)), x)


@given(st.lists(PRODUCTS, min_size=1, max_size=6), CELLS, st.booleans())
def test_the_way_back_is_the_transpose(blocks, x, whole):
    tree = TableTree.of(blocks, SHAPE, whole=whole)
    y = np.arange(tree.size) % 7 - 3.0
    before = y.copy()
    image = tree.transpose(y)
    assert_allclose(image @ tree.arrange(x), y @ tree.apply(tree.arrange(x)))
    assert_allclose(y, before)
    image += 1  # memory of its own
    assert_allclose(y, before)


@given(st.lists(PRODUCTS, min_size=1, max_size=4), CELLS)
def test_squares_have_squared_entries(blocks, x):
    tree = TableTree.of(blocks, SHAPE)
    squares = tree.squares.apply(tree.arrange(x))
    for b, block in enumerate(blocks):
        part = squares[tree.starts[b] : tree.starts[b + 1]]
        assert_allclose(tree.restore_answers(b, part), block.dense() ** 2 @ x)


def test_factors_of_small_tables_are_left_for_last(way):
    tree = TableTree.of([mx.Kron((mx.Prefix(3), mx.Ones(1, 4), mx.Identity(2)))] * 2, SHAPE)
    if way == "sums":
        assert tree._sums is not None
        assert tree._sums.marginals.shape == (4, 3, 2)
    elif way != "runs":
        assert (tree._sums is None) == (way in ("branches", "walked"))


def test_tables_of_short_axes_are_summed_over_runs_of_them_first(way):
    tree = TableTree.of([mx.Kron((mx.Identity(3), mx.Ones(1, 4), mx.Identity(2)))], SHAPE)
    runs = None if tree._sums is None else tree._sums.marginals.shape
    assert runs == (None if way in ("branches", "walked", "sums") else (4, 6))


SIDES = st.integers(1, 4).flatmap(
    lambda n: st.tuples(*[st.lists(st.sampled_from([1, 2, 5]), min_size=n, max_size=n)] * 2)
)


@given(SIDES, st.integers(1, 40), st.booleans())
def test_sums_of_tables_are_numpys(sides, most, small):
    shapes = [
        tuple(
            max(n) if own > 1 else 1 for own, n in zip(side, zip(*sides, strict=True), strict=True)
        )
        for side in sides
    ]
    a, b = (np.random.default_rng(i).integers(-9, 9, s) / 2 for i, s in enumerate(shapes))
    plain = a + b
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psephos.infer.table_tree, "WALKED_CELLS", 1 if small else 1 << 20)
        patch.setattr(psephos.infer.table_tree, "MOST_WALKED", most)
        total = psephos.infer.table_tree._broadcast_sum(a, b)
    assert_allclose(total, plain)
    assert (
        np.shares_memory(total, a) or np.shares_memory(total, b) or plain.size > max(a.size, b.size)
    )


def test_small_stacks_are_written_out(way):
    tree = TableTree.of([mx.Kron(tuple(map(mx.Identity, SHAPE)))], SHAPE)
    matrices = 0 if tree._levels is None else len(tree._levels.down)
    assert matrices == {"one matrix": 1, "levels": 3}.get(way, 0)


def test_tables_of_counts_are_their_own_squares():
    blocks = [mx.Kron((mx.Identity(3), mx.Ones(1, 4), mx.Identity(2)))]
    tree = TableTree.of(blocks, SHAPE)
    assert tree.squares is tree


def test_a_block_that_is_no_product_takes_all_cells_at_once():
    whole = mx.Dense(np.arange(48).reshape(2, 24))
    tree = TableTree.of([whole, mx.Kron((mx.Identity(3), mx.Identity(4), mx.Ones(1, 2)))], SHAPE)
    x = np.arange(24.0)
    assert tree.whole
    assert_allclose(tree.apply(tree.arrange(x))[:2], whole @ x)
    assert_allclose(tree.squares.apply(x)[:2], whole.dense() ** 2 @ x)


def test_what_is_constant_everywhere_comes_back_in_memory_of_its_own():
    total = mx.Kron((mx.Ones(1, 3), mx.Ones(1, 2)))
    cells = TableTree.of([total, total], (3, 2)).transpose(np.array([1.0, 2.0]))
    cells += 1
    assert cells.tolist() == [4.0] * 6
