"""Every form of least squares against the dense formula, for errors, variances and estimates."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from psephos import matrix as mx
from psephos.inverse import iterative
from psephos.inverse.choice import form_of
from psephos.inverse.dense import DenseForm
from psephos.inverse.iterative import IterativeForm
from psephos.inverse.merged_cells import MergedForm
from psephos.inverse.pair import PairForm, common_eigenvectors
from psephos.inverse.product import ProductForm, axis_inverse
from psephos.inverse.subspaces import Subspaces

SHAPE = (3, 4)


def whole(low, high):
    return st.integers(low, high)


@st.composite
def axis_factors(draw, n):
    """What strategies put on one attribute."""
    kind = draw(st.sampled_from(["identity", "total", "p", "merged", "p merged", "prefix"]))
    groups = draw(st.lists(whole(0, n - 1), min_size=n, max_size=n))
    merged = mx.Partition(np.unique(groups, return_inverse=True)[1])
    cells = merged.shape[0] if kind == "p merged" else n
    rows = draw(
        st.lists(st.lists(whole(0, 3), min_size=cells, max_size=cells), min_size=1, max_size=2)
    )
    diagonal = draw(st.lists(whole(1, 4), min_size=cells, max_size=cells))
    made = mx.PIdentity(diagonal, rows)
    if kind == "p merged":
        return mx.Compose((made, merged))
    simple = {"identity": mx.Identity(n), "total": mx.total(n), "prefix": mx.Prefix(n)}
    return simple.get(kind) or {"p": made, "merged": merged}[kind]


blocks = st.tuples(axis_factors(3), axis_factors(4)).map(mx.Kron)
queries = st.tuples(
    st.sampled_from([mx.Identity(3), mx.Prefix(3), mx.total(3), mx.Dense([[1, 1, 0]])]),
    st.sampled_from([mx.Identity(4), mx.AllRange(4), mx.total(4), mx.Dense([[1, 1, 0, 0]])]),
)


def check(form, blocks, precisions, factors, rng):
    x = sum(c * b.gram().dense() for b, c in zip(blocks, precisions, strict=True))
    inverse = np.linalg.pinv(x, hermitian=True)
    w = mx.Kron(factors).dense()
    covered = np.allclose(w @ inverse @ x, w, atol=1e-7)
    assert form.covers(factors) == covered
    if not covered:
        return
    values = [rng.integers(-50, 50, b.shape[0]) for b in blocks]
    gathered = sum(c * b.dense().T @ y for b, c, y in zip(blocks, precisions, values, strict=True))
    assert_allclose(form.variances(factors), np.diag(w @ inverse @ w.T), atol=1e-8)
    if form.exact:
        assert_allclose(form.trace(factors), np.trace(w @ inverse @ w.T), rtol=1e-8)
        assert_allclose(form.traces([factors])[0], form.trace(factors))
    answers = form.fit(values).answers(factors)
    assert_allclose(answers, w @ inverse @ gathered, atol=1e-6)


@given(st.lists(blocks, min_size=1, max_size=3), queries, st.data())
def test_the_form_that_is_chosen_is_least_squares(blocks, factors, data):
    numbers = st.sampled_from([0.25, 0.5, 1.0, 2.0])
    precisions = data.draw(st.lists(numbers, min_size=len(blocks), max_size=len(blocks)))
    check(form_of(blocks, precisions, SHAPE), blocks, precisions, factors, np.random.default_rng(0))


@settings(max_examples=30)
@given(st.lists(blocks, min_size=2, max_size=3), queries)
def test_iterations_agree_with_the_closed_forms(blocks, factors):
    precisions = [0.5, 2.0, 1.0][: len(blocks)]
    form = IterativeForm.of(blocks, precisions, SHAPE)
    check(form, blocks, precisions, factors, np.random.default_rng(0))


def test_each_structure_has_its_form():
    p = mx.PIdentity([1, 1, 2], [[1, 2, 1]])
    q = mx.PIdentity([3, 1, 2, 1], [[1, 2, 1, 0]])
    product = mx.Kron((p, q))
    other = mx.Kron((mx.total(3), q))
    third = mx.Kron((p, mx.total(4)))
    fourth = mx.Kron((mx.Prefix(3), mx.total(4)))
    tables = [mx.Kron((mx.Identity(3), mx.total(4))), mx.Kron((mx.total(3), mx.Identity(4)))]
    merged = mx.Kron((mx.Partition([0, 0, 1]), q))
    assert isinstance(form_of([product], [1], SHAPE), ProductForm)
    assert isinstance(form_of([product, other, third], [1, 2, 3], SHAPE), PairForm)
    assert isinstance(form_of([product, other, third, fourth], [1, 2, 3, 4], SHAPE), DenseForm)
    assert isinstance(form_of(tables, [1, 2], SHAPE), Subspaces)
    assert isinstance(form_of([merged], [1], SHAPE), MergedForm)


def test_three_unlike_products_on_many_cells_are_estimated_and_say_so():
    n = 72
    rng = np.random.default_rng(0)
    makes = [mx.PIdentity(rng.integers(1, 4, n), rng.integers(0, 3, (2, n))) for _ in range(3)]
    blocks = [mx.Kron((m, mx.Identity(n))) for m in makes]
    form = form_of(blocks, [1, 1, 1], (n, n))
    assert isinstance(form, IterativeForm)
    assert not form.exact
    exact = sum(m.gram().dense() for m in makes)
    expected = np.trace(np.linalg.inv(exact)) * n
    found = form.trace((mx.Identity(n), mx.Identity(n)))
    assert abs(found / expected - 1) < 3 * form.relative_error
    with pytest.raises(Exception, match="run of LSMR"):
        form.variances((mx.Identity(n), mx.Identity(n)))


def test_the_preconditioner_is_exact_for_one_product():
    p = mx.PIdentity([1, 1, 2], [[1, 2, 1]])
    q = mx.PIdentity([3, 1, 2, 1], [[1, 2, 1, 0]])
    root = iterative.nearest_root([mx.Kron((p, q))], [2.0], SHAPE).dense()
    x = 2.0 * mx.Kron((p, q)).gram().dense()
    assert_allclose(root.T @ x @ root, np.eye(12), atol=1e-12)


@given(axis_factors(4), st.sampled_from([mx.Identity(4), mx.AllRange(4), mx.total(4)]))
def test_axis_inverses(a, w):
    inverse = axis_inverse(a)
    gram = a.gram().dense()
    dense = np.linalg.pinv(gram, hermitian=True)
    assert_allclose(inverse.dense(), dense, atol=1e-9)
    inside = np.allclose(w.dense() @ dense @ gram, w.dense())
    assert inverse.spans(w) == inside
    if inside:
        assert_allclose(inverse.variances(w), np.diag(w.dense() @ dense @ w.dense().T), atol=1e-9)
        assert_allclose(inverse.trace_with(w), inverse.variances(w).sum())


@pytest.mark.parametrize(
    ("a", "b", "rank"),
    [
        (mx.PIdentity([3, 1, 2], [[1, 2, 5]]), mx.PIdentity([1, 9, 1], [[4, 0, 1]]), 3),
        (mx.Prefix(3), mx.total(3), 3),
        (mx.Prefix(3), mx.Scaled(10**6, mx.Identity(3)), 3),
        (mx.total(3), mx.total(3), 1),
        (mx.total(3), mx.Dense([[1, -1, 0]]), 2),
        (mx.Dense([[1, 1, 0]]), mx.Dense([[1, 1, 1e-4]]), 2),
        (mx.Diagonal([1, 1, 1e-5]), mx.Diagonal([2, 1, 1e-5]), 3),
        (mx.Dense(np.zeros((1, 3))), mx.Prefix(3), 3),
    ],
)
def test_one_basis_makes_both_grams_diagonal(a, b, rank):
    """Also where both together do not determine all cells, or only just."""
    v, first, second = common_eigenvectors(a, b)
    assert v.shape == (3, rank)
    for matrix, lengths in ((a, first), (b, second)):
        seen = matrix.dense() @ v
        assert_allclose(seen.T @ seen, np.diag(lengths), atol=1e-12 * max(1, lengths.max()))


def test_axes_with_the_same_two_factors_share_their_eigenvectors():
    pair = mx.PIdentity([3, 1], [[1, 2]]), mx.PIdentity([1, 2], [[4, 1]])
    form = PairForm.of([mx.Kron((f, f, mx.Prefix(2))) for f in pair], [1, 2], (2, 2, 2))
    assert form.vectors[0] is form.vectors[1]
    assert form.vectors[2] is not form.vectors[1]


@pytest.mark.parametrize("groups", [[0, 1, 2, 3], [1, 2, 3, 0], [1, 3, 0, 2]])
def test_groups_may_be_numbered_in_any_order(groups):
    form = form_of([mx.Partition(groups)], [0.5], (4,))
    for queries in (mx.WidthRange(4, 2), mx.Ranges.intervals(4, [0, 1, 2], [1, 2, 3])):
        assert_allclose(form.variances((queries,)), [4.0, 4.0, 4.0])
        assert_allclose(form.trace((queries,)), 12.0)
