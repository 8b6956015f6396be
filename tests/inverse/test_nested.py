"""Inverses of nested levels and wavelets: what is recognised, and what sizes they reach."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from psephos.errors import TooLargeError
from psephos.inverse.axis import DenseInverse, DiagonalInverse, MergedInverse
from psephos.inverse.nested import (
    HaarInverse,
    NestedInverse,
    PinvInverse,
    level_of,
    nested_inverse,
    within_groups,
    write_small_parts,
)
from psephos.inverse.nested_gram import NestedGram
from psephos.inverse.product import axis_inverse
from psephos.matrix import (
    AllRange,
    Dense,
    Diagonal,
    Difference,
    Haar,
    Identity,
    Kron,
    Partition,
    Permuted,
    Prefix,
    Scaled,
    Sparse,
    Stack,
    total,
)
from tests.inverse.generators import nested_grids, nested_levels


@given(a=nested_levels())
def test_levels_are_recognised_unless_rows_are_left_out(a):
    if nested_inverse(a) is None:  # left-out rows may hide the order; the dense inverse serves
        assert any(isinstance(part, Sparse) for part in a.parts)
        assert isinstance(axis_inverse(a), DenseInverse)


@given(a=nested_grids())
def test_grids_are_recognised(a):
    assert nested_inverse(a) is not None


def test_what_is_recognised():
    assert isinstance(nested_inverse(Haar(5)), HaarInverse)
    assert isinstance(nested_inverse(Permuted(Prefix(3), [2, 0, 1])), PinvInverse)
    assert isinstance(nested_inverse(Stack((Identity(3), total(3)))), NestedInverse)
    assert isinstance(nested_inverse(Scaled(2, Identity(3))), DiagonalInverse)
    assert isinstance(nested_inverse(Stack((Partition([0, 0, 1]), total(3)))), MergedInverse)
    crossing = Stack((Identity(3), Partition([0, 0, 1]), Partition([0, 1, 1])))
    assert nested_inverse(crossing) is None
    assert isinstance(axis_inverse(crossing), DenseInverse)
    assert nested_inverse(Haar(4, 1)) is None
    assert nested_inverse(AllRange(4)) is None
    assert nested_inverse(Diagonal([1, 0])) is None
    assert level_of(Sparse(sp.csr_array([[1, 2]]))) is None
    assert level_of(Kron((Sparse(sp.csr_array([[1, 0]])), Identity(2)))) is None
    with pytest.raises(TypeError, match="nested"):
        NestedInverse.of(AllRange(4))


def test_one_solve_for_many_columns_and_both_sides():
    a = Stack((Identity(6), Partition([0, 0, 0, 1, 1, 2]), total(6)))
    inverse, x = nested_inverse(a), np.arange(24.0).reshape(2, 6, 2)
    expected = np.einsum("ij,ljr->lir", np.linalg.inv(a.gram().dense()), x)
    assert_allclose(inverse._apply(x), expected)


def test_large_trees_need_no_square_array():
    """256 x 256 cells: the Gram of all boxes is never formed."""
    n = 256
    halves = [Partition(np.arange(n) >> k) for k in range(1, 8)]
    levels = [Kron((Identity(n), Identity(n))), *(Kron((p, p)) for p in halves)]
    inverse = nested_inverse(Stack(tuple(levels)))
    boxes = Kron((AllRange(n), AllRange(n)))
    assert 0 < inverse.trace_with(boxes) < boxes.gram().trace()
    long = nested_inverse(Stack((Identity(1 << 16), Partition(np.arange(1 << 16) >> 8))))
    assert 0 < long.trace_with(AllRange(1 << 16)) < AllRange(1 << 16).gram().trace()
    with pytest.raises(TooLargeError, match="query by query"):
        PinvInverse(Difference(40_000)).trace_with(Prefix(40_000))


def test_grams_without_structure_go_group_by_group(monkeypatch):
    monkeypatch.setattr("psephos.inverse.nested.DENSE_GRAM_CELLS", 2)
    groups, z = np.array([0, 1, 0, 2]), np.array([1.0, 2, 3, 4])
    w = Dense(np.arange(12).reshape(3, 4))
    mask = groups[:, None] == groups
    assert_allclose(within_groups(w.gram(), [groups], z), (w.gram().dense() * mask) @ z)
    twice = Kron((Dense(w.array[:, :2]), Dense(w.array[:, :2])))
    expected = (twice.gram().dense() * mask) @ z
    assert_allclose(within_groups(twice.gram(), [groups], z), expected)


@given(data=st.data(), ranges=st.sampled_from([Prefix, AllRange]))
def test_reordered_ranges_within_any_groups_are_never_written_out(data, ranges):
    n = data.draw(st.integers(1, 9))
    order = np.array(data.draw(st.permutations(range(n))))
    labels = data.draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
    groups = np.unique(labels, return_inverse=True)[1].reshape(-1)
    z = np.array(data.draw(st.lists(st.integers(-5, 5), min_size=n, max_size=n)), dtype=float)
    queries = Permuted(Permuted(ranges(n), order), order[::-1])
    gram = queries.gram()
    assert write_small_parts(gram) is gram
    expected = (gram.dense() * (groups[:, None] == groups)) @ z
    assert_allclose(within_groups(gram, [groups], z), expected, atol=1e-9)


@given(
    blocks=st.lists(nested_levels() | nested_grids(), min_size=1, max_size=1),
    weight=st.sampled_from([0.5, 3.0]),
    root=st.sampled_from([0.0, 2.0]),
    data=st.data(),
)
def test_systems_with_a_diagonal_are_solved_exactly(blocks, weight, root, data):
    gram = NestedGram.of(blocks, [weight], root)
    n = blocks[0].shape[1]
    assume(gram is not None)
    numbers = st.sampled_from([0.0, 1.0, 4.0, np.inf])
    extra = np.array(data.draw(st.lists(numbers, min_size=n, max_size=n)))
    x = weight * blocks[0].gram().dense() + root
    r = np.arange(1.0, n + 1)
    assert_allclose(gram.apply(r), x @ r)
    free = np.isfinite(extra)
    expected = np.zeros(n)
    part = x[np.ix_(free, free)] + np.diag(extra[free])
    expected[free] = np.linalg.solve(part, r[free])
    assert_allclose(gram.solve(extra, r), expected, atol=1e-9)


def test_blocks_that_are_not_nested_have_no_such_gram():
    crossed = [Partition([0, 0, 1]), Partition([0, 1, 1]), Identity(3)]
    assert NestedGram.of(crossed, [1.0, 1.0, 1.0]) is None
    assert NestedGram.of([Prefix(3)], [1.0]) is None
    assert NestedGram.of([Partition([0, 0, 1])], [1.0]) is None
    assert NestedGram.of([Identity(3), Partition([0, 0, 1])], [1.0, 2.0]) is not None
