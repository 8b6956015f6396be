"""Particular forms: what they estimate, share and precondition; tests/contracts has their laws."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from psephos import matrix as mx
from psephos.errors import TooLargeError
from psephos.inverse import choice, classes, iterative
from psephos.inverse import form as forms
from psephos.inverse.axis_classes import common_eigenvectors
from psephos.inverse.choice import check_reconstructible, form_of, predict_cost
from psephos.inverse.classes import Classes
from psephos.inverse.iterative import IterativeForm
from psephos.inverse.product import ProductForm

SHAPE = (3, 4)


@pytest.mark.slow
def test_unlike_products_over_too_many_cells_are_estimated_and_say_so(monkeypatch):
    monkeypatch.setattr(choice, "DENSE_CELLS", 1)
    monkeypatch.setattr(classes, "CLASS_ENTRIES", 1)
    n = 48
    rng = np.random.default_rng(0)
    factors = [mx.PIdentity(rng.integers(1, 4, n), rng.integers(0, 3, (2, n))) for _ in range(3)]
    form = form_of([mx.Kron((m, m)) for m in factors], [1, 1, 1], (n, n))
    assert isinstance(form, IterativeForm)
    assert not form.exact
    queries = (mx.Identity(n), mx.Identity(n))
    trace, spread = form.trace(queries), form.trace_spreads([queries])[0]
    exact = np.diag(
        np.linalg.inv(sum(np.kron(m.gram().dense(), m.gram().dense()) for m in factors))
    )
    assert 0 < spread < 0.02 * trace
    assert abs(trace - exact.sum()) < 4 * spread
    ratios = form.variances(queries) / exact
    assert abs(ratios - 1).max() < 0.3
    assert np.sqrt(((ratios - 1) ** 2).mean()) < 0.05
    assert_allclose(form.variances(queries).sum(), trace, rtol=0.01)


def unlike(shape, rng, count=3):
    """Products without a common structure."""
    return [
        mx.Kron(
            tuple(mx.PIdentity(rng.integers(1, 4, n), rng.integers(0, 3, (2, n))) for n in shape)
        )
        for _ in range(count)
    ]


@pytest.mark.parametrize("seed", range(8))
def test_an_estimated_trace_is_as_near_as_its_spread_says(seed, monkeypatch):
    """Of eight, at most one misses by more than two standard errors; none by more than four."""
    monkeypatch.setattr(iterative, "MOST_SAMPLES", 16)
    rng, shape = np.random.default_rng(seed), (6, 5, 3)
    blocks, precisions = unlike(shape, rng), rng.random(3) + 0.5
    form = IterativeForm.of(blocks, precisions, shape)
    x = sum(c * b.gram().dense() for b, c in zip(blocks, precisions, strict=True))
    queries = (mx.Prefix(6), mx.Identity(5), mx.Prefix(3))
    w = mx.Kron(queries).dense()
    exact = np.diag(w @ np.linalg.inv(x) @ w.T)
    assert abs(form.trace(queries) - exact.sum()) < 4 * form.trace_spreads([queries])[0]
    first, second = form.nearest.variances(queries)
    assert (first**2 / second <= exact * (1 + 1e-9)).all()  # the part that is not sampled
    assert_allclose(form.nearest.traces(queries), (first.sum(), second.sum()))
    root = form.nearest.root.dense()
    assert_allclose(first, np.diag(w @ root @ root.T @ w.T))
    inverse = root @ root.T
    assert_allclose(second, np.diag(w @ inverse @ x @ inverse @ w.T))


def test_a_form_of_one_product_is_sampled_without_spread():
    """The nearest product is X itself, so nothing is left to chance."""
    rng = np.random.default_rng(3)
    (block,) = unlike((8, 9), rng, 1)
    form = IterativeForm.of([block], [2.0], (8, 9))
    queries = (mx.Identity(8), mx.Identity(9))
    exact = np.diag(np.linalg.inv(2.0 * block.gram().dense()))
    assert_allclose(form.variances(queries), exact, rtol=1e-6)
    assert_allclose(form.trace(queries), exact.sum(), rtol=1e-6)
    assert form.trace_spreads([queries])[0] < 1e-6 * exact.sum()


def test_blocks_that_are_no_products_are_sampled_too():
    blocks = [mx.Prefix(60), mx.Identity(60), mx.Prefix(60).T]
    form = IterativeForm.of(blocks, [1.0, 0.5, 0.25], (6, 10))
    assert form.nearest is None
    x = sum(c * b.gram().dense() for b, c in zip(blocks, [1.0, 0.5, 0.25], strict=True))
    queries = (mx.Identity(6), mx.Identity(10))
    exact = np.trace(np.linalg.inv(x))
    assert abs(form.trace(queries) - exact) < 4 * form.trace_spreads([queries])[0]
    ratios = form.variances(queries) / np.diag(np.linalg.inv(x))
    assert abs(ratios - 1).max() < 4 * np.sqrt(2 / iterative.MOST_SAMPLES)


def test_random_sums_of_too_many_queries_are_refused(monkeypatch):
    monkeypatch.setattr(iterative, "PROBED_QUERIES", 30)
    form = IterativeForm.of([mx.Kron((mx.Prefix(3), mx.Prefix(4)))], [1.0], SHAPE)
    assert form.covers((mx.Prefix(3), mx.AllRange(4)))
    assert form.covers((mx.AllRange(3), mx.AllRange(4)))  # by its factors, without such sums
    monkeypatch.setattr(iterative, "MOST_SAMPLES", 8)
    for ask in (form._reaches, form.trace, form.variances):
        with pytest.raises(TooLargeError, match="error of 60 queries would be estimated"):
            ask((mx.AllRange(3), mx.AllRange(4)))


def test_the_preconditioner_is_exact_for_one_product():
    p = mx.PIdentity([1, 1, 2], [[1, 2, 1]])
    q = mx.PIdentity([3, 1, 2, 1], [[1, 2, 1, 0]])
    root = IterativeForm.of([mx.Kron((p, q))], [2.0], SHAPE).preconditioner.dense()
    x = 2.0 * mx.Kron((p, q)).gram().dense()
    assert_allclose(root.T @ x @ root, np.eye(12), atol=1e-12)


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
        image = matrix.dense() @ v
        assert_allclose(image.T @ image, np.diag(lengths), atol=1e-12 * max(1, lengths.max()))


def test_axes_with_the_same_two_factors_share_their_eigenvectors():
    pair = mx.PIdentity([3, 1], [[1, 2]]), mx.PIdentity([1, 2], [[4, 1]])
    form = Classes.of([mx.Kron((f, f, mx.Prefix(2))) for f in pair], [1, 2], (2, 2, 2))
    assert form.axes[0] is form.axes[1]
    assert form.axes[2] is not form.axes[1]


@pytest.mark.parametrize("groups", [[0, 1, 2, 3], [1, 2, 3, 0], [1, 3, 0, 2]])
def test_groups_may_be_numbered_in_any_order(groups):
    form = form_of([mx.Partition(groups)], [0.5], (4,))
    for queries in (mx.WidthRange(4, 2), mx.Ranges.intervals(4, [0, 1, 2], [1, 2, 3])):
        assert_allclose(form.variances((queries,)), [4.0, 4.0, 4.0])
        assert_allclose(form.trace((queries,)), 12.0)


# ---- products of any size ----------------------------------------------------------------------


def test_a_product_has_its_errors_at_any_size():
    """Prefixes measured as they are: variance one each, 2000³ of them; cells have two, but one."""
    shape = (2000,) * 3
    block = mx.Kron(tuple(map(mx.Prefix, shape)))
    form = form_of([block], [4.0], shape)
    assert isinstance(form, ProductForm)
    assert form.trace(block.factors) == pytest.approx(2000**3 / 4)
    assert form.trace(tuple(map(mx.Identity, shape))) == pytest.approx((2 * 2000 - 1) ** 3 / 4)
    few = (mx.Ranges.intervals(2000, [0, 3], [9, 7]), mx.total(2000), mx.Prefix(2000))
    assert_allclose(form.variances(few), np.repeat([1, 2], 2000) / 4)
    assert form.covers(few)
    assert predict_cost([block], shape).method == "product"


def test_an_estimate_of_too_many_cells_is_refused_before_and_after_its_answers(monkeypatch):
    monkeypatch.setattr(forms, "VECTOR_LIMIT", 11)
    monkeypatch.setattr(choice, "VECTOR_LIMIT", 11)
    blocks = [mx.Kron((mx.Prefix(3), mx.Prefix(4)))]
    form = form_of(blocks, [1.0], SHAPE)
    assert form.trace(blocks[0].factors) == pytest.approx(12)
    for refused in (
        lambda: form.fit([np.zeros(12)]),
        lambda: check_reconstructible(blocks, SHAPE),
        lambda: check_reconstructible([mx.Identity(12), mx.total(12)], SHAPE),
    ):
        with pytest.raises(TooLargeError, match="12 cells is over the limit of 11") as caught:
            refused()
        assert (caught.value.entries, caught.value.limit) == (12, 11)
    # On merged cells, and by marginals, there is less to hold.
    check_reconstructible([mx.Kron((mx.Prefix(3), mx.total(4)))], SHAPE)
    check_reconstructible([mx.Kron((mx.Identity(3), mx.total(4))), mx.total(12)], SHAPE)


def test_what_blocks_span_by_their_factors_needs_no_solver(monkeypatch):
    monkeypatch.setattr(choice, "DENSE_CELLS", 1)
    monkeypatch.setattr(classes, "CLASS_ENTRIES", 1)
    p, q, r = (mx.PIdentity([1, 2, 3], [[1, k, 2]]) for k in (1, 2, 3))
    left, right = mx.Dense([[1, 0, 0], [0, 1, 0]]), mx.Dense([[0, 0, 1]])
    blocks = [mx.Kron((p, mx.total(3))), mx.Kron((left, q)), mx.Kron((right, r))]
    form = form_of(blocks, [1, 1, 1], (3, 3))
    assert isinstance(form, IterativeForm)
    monkeypatch.setattr(IterativeForm, "_reaches", lambda *_: pytest.fail("solved for"))
    identity, total = mx.Identity(3), mx.total(3)
    # The second and third block together have every value of the first axis.
    for factors in [(identity, total), (left, identity), (identity, identity), (total, right)]:
        assert form.covers(factors)
    monkeypatch.undo()
    assert not form_of(blocks[:2], [1, 1], (3, 3)).covers((identity, identity))
