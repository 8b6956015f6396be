"""Particular forms: what they estimate, share and precondition; tests/contracts has their laws."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from psephos import matrix as mx
from psephos.inverse import choice, classes, iterative
from psephos.inverse.axis_classes import common_eigenvectors
from psephos.inverse.choice import form_of
from psephos.inverse.classes import Classes
from psephos.inverse.iterative import IterativeForm

SHAPE = (3, 4)


def test_unlike_products_over_too_many_cells_are_estimated_and_say_so(monkeypatch):
    monkeypatch.setattr(choice, "DENSE_CELLS", 1)
    monkeypatch.setattr(classes, "CLASS_ENTRIES", 1)
    n = 48
    rng = np.random.default_rng(0)
    factors = [mx.PIdentity(rng.integers(1, 4, n), rng.integers(0, 3, (2, n))) for _ in range(3)]
    form = form_of([mx.Kron((m, m)) for m in factors], [1, 1, 1], (n, n))
    assert isinstance(form, IterativeForm)
    assert not form.exact
    exact = sum(np.kron(m.gram().dense(), m.gram().dense()) for m in factors)
    trace = form.trace((mx.Identity(n), mx.Identity(n)))
    assert abs(trace / np.trace(np.linalg.inv(exact)) - 1) < 3 * form.relative_error
    with pytest.raises(Exception, match="run of LSMR"):
        form.variances((mx.Identity(n), mx.Identity(n)))


def test_the_preconditioner_is_exact_for_one_product():
    p = mx.PIdentity([1, 1, 2], [[1, 2, 1]])
    q = mx.PIdentity([3, 1, 2, 1], [[1, 2, 1, 0]])
    root = iterative.nearest_root([mx.Kron((p, q))], [2.0], SHAPE).dense()
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
