"""Trees of counts against explicit matrices: whole, cut off, with any small levels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from psephos.errors import ShapeError, TooLargeError, UnsupportedError
from psephos.inverse.range_gram import LineQueries
from psephos.inverse.tree import Tree
from psephos.matrix import (
    AllRange,
    Dense,
    Haar,
    Identity,
    Prefix,
    Ranges,
    Stack,
    WidthRange,
    suffix,
    total,
)
from tests.strategies import arrays

HALVES = st.integers(0, 4).map(lambda k: k / 2)


@st.composite
def trees(draw):
    fanouts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    levels = []
    for i, b in enumerate(fanouts):
        rows = draw(arrays(draw(st.integers(1, 3)), b, HALVES))
        diagonal = draw(arrays(1, b, HALVES))[0]
        levels.append((diagonal + 1 if i == len(fanouts) - 1 else diagonal, rows))
    precisions = draw(
        st.lists(st.sampled_from([0.25, 1.0, 3.0]), min_size=len(fanouts), max_size=len(fanouts))
    )
    whole = int(np.prod(fanouts))
    return Tree.of(levels, precisions, draw(st.one_of(st.just(whole), st.integers(1, whole))))


def explicit(tree):
    """X written out, on the cells that exist."""
    whole = tree.sizes[0]
    x = np.zeros((whole, whole))
    for c, a, size, width in zip(
        tree.precisions, tree.levels, tree.sizes[:-1], tree.sizes[1:], strict=True
    ):
        inner = np.kron(c * a.T @ a, np.ones((width, width)))
        x += np.kron(np.eye(whole // size), inner)
    return x[: tree.cells, : tree.cells]


def kinds(n):
    rng = np.random.default_rng(n)
    low, high = np.sort(rng.integers(0, n, (2, 5)), axis=0)
    yield Prefix(n)
    yield suffix(n)
    yield AllRange(n)
    yield Identity(n)
    yield total(n)
    yield WidthRange(n, 1 + n // 2)
    yield Ranges.intervals(n, low, high)
    yield Dense(rng.integers(-2, 3, (3, n)))
    yield Stack((3 * Prefix(n), Stack((AllRange(n), 2 * total(n))), 0.5 * Identity(n)))
    yield Stack((Dense(np.ones((2, n))), -2 * WidthRange(n, 1)))


@settings(max_examples=60)
@given(tree=trees())
def test_errors_are_those_of_the_explicit_inverse(tree):
    inverse = np.linalg.inv(explicit(tree))
    for queries in kinds(tree.cells):
        w = queries.dense()
        each = np.einsum("ij,jk,ik->i", w, inverse, w)
        assert_allclose(tree.variances(queries), each, rtol=1e-10, err_msg=str(queries))
        assert_allclose(tree.trace(queries), each.sum(), rtol=1e-11, err_msg=str(queries))


@settings(max_examples=60)
@given(tree=trees())
def test_solving_undoes_the_explicit_matrix(tree):
    x = np.random.default_rng(0).integers(-3, 4, (2, tree.cells, 3)).astype(float)
    undone = tree.solve(np.einsum("ij,ljr->lir", explicit(tree), x))
    assert_allclose(undone, x, atol=1e-9)
    assert_allclose(tree.solve(explicit(tree) @ x[0, :, 0]), x[0, :, 0], atol=1e-9)


@pytest.mark.parametrize(
    ("fanouts", "n"), [((4, 4, 6), 96), ((8, 16, 16), 2048), ((5, 7, 17), 500)]
)
def test_larger_trees_to_twelve_digits(fanouts, n):
    rng = np.random.default_rng(1)
    levels = [(0.05 + rng.random(b), rng.random((3, b))) for b in fanouts]
    tree = Tree.of(levels, [0.1, 0.3, 0.6], n)
    inverse = np.linalg.inv(explicit(tree))
    for queries in (Prefix(n), AllRange(n), Identity(n)):
        gram = LineQueries.of(queries).gram(n).dense(n)
        assert_allclose(tree.trace(queries), (inverse * gram).sum(), rtol=1e-12)


@given(n=st.integers(1, 12))
def test_five_numbers_are_the_gram(n):
    for queries in kinds(n):
        line = LineQueries.of(queries)
        if line is not None:
            w = queries.dense()
            assert_allclose(line.gram(n).dense(n), w.T @ w)
            assert line.trace(n) == (w**2).sum()


def test_size_plays_no_part():
    n = 1 << 30
    tree = Tree.of([np.eye(32)] * 6, np.ones(6))
    # By symmetry every cell has the same variance, and a solve of a small tree tells which share.
    assert_allclose(tree.trace(Identity(n)), n * tree.variance([0], [0])[0], rtol=1e-12)
    assert_allclose(tree.trace(total(n)), tree.variance([0], [n - 1])[0], rtol=1e-12)
    some = np.random.default_rng(0).integers(0, n, 200_000)
    sampled = n * tree.variance(np.zeros_like(some), some).mean()
    assert_allclose(tree.trace(Prefix(n)), sampled, rtol=0.01)


def test_identity_levels_are_the_hierarchy_of_counts():
    # One level: every prefix of i + 1 cells has variance i + 1.
    assert_allclose(Tree.of([np.eye(5)], [1.0]).variances(Prefix(5)), [1, 2, 3, 4, 5])


def test_what_cannot_be_is_refused():
    tree = Tree.of([np.eye(2), np.eye(2)], [1.0, 1.0])
    with pytest.raises(ShapeError, match="full column rank"):
        Tree.of([np.eye(2), np.ones((1, 2))], [1.0, 1.0])
    with pytest.raises(ShapeError, match="positive precisions"):
        Tree.of([np.eye(2)], [0.0])
    with pytest.raises(ShapeError, match="no room for 5"):
        Tree.of([np.eye(4)], [1.0], 5)
    with pytest.raises(ShapeError, match="at least one level"):
        Tree.of([], [])
    with pytest.raises(ShapeError, match="4 cells"):
        tree.trace(Prefix(5))
    with pytest.raises(ShapeError, match="4 cells"):
        tree.variances(Prefix(5))
    with pytest.raises(ShapeError, match="low ≤ high"):
        tree.variance([2], [1])
    with pytest.raises(ShapeError, match="left, 4, right"):
        tree.solve(np.ones((1, 5, 1)))
    long = Tree.of([np.eye(64)] * 3, np.ones(3))
    with pytest.raises(UnsupportedError, match="no closed form"):
        long.trace(Haar(long.cells))
    with pytest.raises(TooLargeError):
        long.variances(AllRange(long.cells))
