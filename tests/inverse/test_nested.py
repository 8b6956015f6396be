"""Inverses of trees and wavelets against the dense ones."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
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
)
from psephos.inverse.product import axis_inverse
from psephos.matrix import (
    AllRange,
    Dense,
    Diagonal,
    Difference,
    Haar,
    Identity,
    Kron,
    Ones,
    Partition,
    Permuted,
    Prefix,
    Scaled,
    Sparse,
    Stack,
    WidthRange,
    total,
)
from psephos.matrix.base import first_appearance


@st.composite
def partitions(draw, n):
    """Levels from fine to coarse: groups of the level before are joined at random."""
    groups = np.arange(n)
    if draw(st.booleans()):
        groups = np.array(draw(st.permutations(range(n))))
    if draw(st.integers(0, 3)) == 0:  # the finest level may merge cells too
        groups = first_appearance(groups // 2)
    levels = [groups]
    for _ in range(draw(st.integers(0, 3))):
        size = int(levels[-1].max()) + 1
        joins = draw(st.lists(st.integers(0, size - 1), min_size=size, max_size=size))
        levels.append(first_appearance(np.array(joins)[levels[-1]]))
    return levels


@st.composite
def trees(draw):
    """Stacks of scaled partitions, of rows weighted one by one and with some left out."""
    n = draw(st.integers(1, 9))
    parts = []
    for depth, groups in enumerate(draw(partitions(n))):
        size = int(groups.max()) + 1
        kind = draw(st.sampled_from(["plain", "scaled", "rows"]))
        if kind == "rows":
            least = 1 if depth == 0 else 0
            weights = np.array(draw(st.lists(st.integers(least, 4), min_size=size, max_size=size)))
            kept = np.flatnonzero(weights)
            if not kept.size:
                continue
            rows = np.where(groups[None] == np.arange(size)[:, None], weights[:, None], 0)
            parts.append(Sparse(sp.csr_array(rows[kept])))
            continue
        part = Partition(groups) if size < n else Identity(n)
        parts.append(Scaled(draw(st.integers(1, 3)), part) if kind == "scaled" else part)
    return Stack(tuple(draw(st.permutations(parts))))


@st.composite
def grids(draw):
    """Levels that are products of nested partitions of two axes."""
    axes = [draw(partitions(draw(st.integers(1, 4)))) for _ in range(2)]
    depth = max(map(len, axes))
    levels = [[axis[min(i, len(axis) - 1)] for axis in axes] for i in range(depth)]
    return Stack(tuple(Kron(tuple(Partition(g) for g in level)) for level in levels))


def queries_on(n):
    yield from [Prefix(n), AllRange(n), Identity(n), Ones(2, n), WidthRange(n, min(2, n))]
    yield Stack((Identity(n), Scaled(3, total(n))))
    yield Dense(np.arange(3 * n).reshape(3, n) % 5 - 1)
    yield Permuted(Prefix(n), np.arange(n)[::-1])


def agrees(inverse, a, queries):
    full = np.linalg.pinv(a.gram().dense())
    for w in queries:
        wanted = w.dense() @ full @ w.dense().T
        assert inverse.trace_with(w) == pytest.approx(np.trace(wanted), rel=1e-9)
        assert_allclose(inverse.variances(w), np.diag(wanted), rtol=1e-8, atol=1e-10)
    assert_allclose(inverse.dense(), full, rtol=1e-8, atol=1e-10)


@given(a=trees())
def test_the_inverse_of_a_tree_is_the_dense_one(a):
    inverse = nested_inverse(a)
    if inverse is None:  # left-out rows may hide the order of levels; the dense inverse serves
        assert any(isinstance(part, Sparse) for part in a.parts)
        inverse = axis_inverse(a)
        assert isinstance(inverse, DenseInverse)
    n = a.shape[1]
    merged = isinstance(inverse, MergedInverse)
    whole = np.unique(a.column_groups()).size < n
    asked = [Identity(n)] if not whole else [a]
    agrees(inverse, a, asked if merged or whole else list(queries_on(n)))


@given(a=grids())
def test_the_inverse_of_a_grid_is_the_dense_one(a):
    inverse = nested_inverse(a)
    assert inverse is not None
    if isinstance(inverse, MergedInverse):
        agrees(inverse, a, [a])
        return
    n, m = (f.shape[1] for f in a.parts[0].factors)
    pairs = zip(queries_on(n), reversed(list(queries_on(m))), strict=True)
    agrees(inverse, a, [Kron(pair) for pair in pairs] + [a])


@given(n=st.integers(1, 20))
def test_wavelets_and_prefixes(n):
    for a in [Haar(n), Prefix(n), Difference(n), Permuted(Haar(n), np.arange(n)[::-1])]:
        agrees(axis_inverse(a), a, queries_on(n))


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
    wanted = np.einsum("ij,ljr->lir", np.linalg.inv(a.gram().dense()), x)
    assert_allclose(inverse._apply(x), wanted)


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
    wanted = (twice.gram().dense() * mask) @ z
    assert_allclose(within_groups(twice.gram(), [groups], z), wanted)
