"""One law suite for every implicit matrix: it agrees with its dense twin on every question."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from psephos import matrix as mx
from psephos.errors import ShapeError, UnsupportedError
from tests.strategies import ENTRIES, WHOLE, arrays, matrices, vectors


def close(a, b):
    assert_allclose(a, b, rtol=1e-9, atol=1e-9 * max(1.0, np.abs(b).max(initial=0)))


SIGNED = {"Compose", "Downdate", "Eigenspaces", "Gram", "MarginalsGram", "PIdentityPinv", "Sum"}
NO_CLOSED_FORM = {
    "abs": SIGNED,
    "sqr": SIGNED - {"MarginalsGram"},
    "column_norms": SIGNED,
    "pinv": {"Compose", "Downdate", "PIdentityPinv", "Ranges", "Semiseparable", "Sparse", "Stack"}
    | {"Sum", "WidthRange"},
    "column_groups": {"Downdate", "Eigenspaces", "Kron", "Marginals", "MarginalsGram"}
    | {"PIdentityPinv", "Semiseparable", "Transposed"},
    "trace": {"AllRange", "Compose", "DirectSum", "Gram", "Haar", "Kron", "Marginals", "Permuted"}
    | {"Ranges", "Stack", "WidthRange"},
}
"""Who may refuse a question, alone or as a part of others; everyone else has to answer it."""


def answered(a, question, *arguments):
    """What the matrix says; None where it, or a part of it, is known to have no closed form."""
    try:
        return getattr(a, question)(*arguments)
    except UnsupportedError:
        refusing = [part for part in a.walk() if type(part).__name__ in NO_CLOSED_FORM[question]]
        assert refusing, f"{question} of {a} has lost its closed form"
        return None


@given(a=matrices(), data=st.data())
def test_products_agree_with_the_dense_twin(a, data):
    d = a.dense()
    assert d.shape == a.shape
    x = data.draw(vectors(a.shape[1], ENTRIES))
    y = data.draw(vectors(a.shape[0], ENTRIES))
    xs = data.draw(arrays(a.shape[1], 3, ENTRIES))
    close(a @ x, d @ x)
    close(y @ a, y @ d)
    close(a.matmat(xs), d @ xs)
    close(a.rmatmat(d @ xs), d.T @ d @ xs)


@given(a=matrices(), data=st.data())
def test_dot(a, data):
    x, y = data.draw(vectors(a.shape[1])), data.draw(vectors(a.shape[0]))
    close(y @ (a @ x), (a.T @ y) @ x)


@given(a=matrices(), data=st.data())
def test_inputs_are_left_alone_and_results_are_free(a, data):
    x = data.draw(vectors(a.shape[1], ENTRIES))
    before = x.copy()
    y = a @ x
    y[...] = 7
    assert_array_equal(x, before)


@given(a=matrices(), data=st.data())
def test_whole_numbers_stay_whole(a, data):
    x = data.draw(vectors(a.shape[1], WHOLE))
    y = a @ x
    if a.entry_type.kind == "i":
        assert y.dtype == np.int64
    assert_array_equal(y, a.dense() @ x) if y.dtype.kind == "i" else close(y, a.dense() @ x)


@given(a=matrices())
def test_transposing_twice_gives_the_same_object(a):
    assert a.T.T is a
    close(a.T.dense(), a.dense().T)


@given(a=matrices())
def test_gram(a):
    d = a.dense()
    g = a.gram()
    close(g.dense(), d.T @ d)
    close(g.sum(), (d.T @ d).sum())
    trace = answered(g, "trace")
    if trace is not None:
        close(trace, np.trace(d.T @ d))


@given(a=matrices())
def test_entrywise(a):
    d = a.dense()
    if a.is_nonnegative:
        assert (d >= 0).all()
    for question, expected in (("abs", np.abs(d)), ("sqr", d**2)):
        entrywise = answered(a, question)
        if entrywise is not None:
            close(entrywise.dense(), expected)


@given(a=matrices(), p=st.sampled_from([1, 2]))
def test_column_norms_and_sensitivity(a, p):
    norms = answered(a, "column_norms", p)
    if norms is not None:
        expected = np.linalg.norm(a.dense(), ord=p, axis=0)
        close(norms, expected)
        close(a.sensitivity(p), expected.max())


@given(a=matrices())
def test_sum_and_trace(a):
    close(a.sum(), a.dense().sum())
    if a.shape[0] == a.shape[1]:
        trace = answered(a, "trace")
        if trace is not None:
            close(trace, np.trace(a.dense()))


@given(a=matrices(depth=1))
def test_pinv(a):
    inverse = answered(a, "pinv")
    if inverse is not None:
        assert inverse.shape == a.shape[::-1]
        assert_allclose(inverse.dense(), np.linalg.pinv(a.dense()), atol=1e-7)


@given(a=matrices(), data=st.data())
def test_rows(a, data):
    i = data.draw(st.integers(-a.shape[0], a.shape[0] - 1))
    close(a.row(i), a.dense()[i])
    with pytest.raises(ShapeError, match=r"which has rows 0 to"):
        a.row(a.shape[0])


@given(a=matrices())
def test_column_groups_join_equal_columns_only(a):
    groups = answered(a, "column_groups")
    if groups is not None:
        d = a.dense()
        firsts = np.unique(groups, return_index=True)[1]
        assert_array_equal(np.sort(np.unique(groups)), np.arange(len(firsts)))
        assert_array_equal(np.argsort(firsts), np.arange(len(firsts)))
        assert_allclose(d, d[:, firsts[groups]], atol=1e-12)


@given(a=matrices())
def test_equal_by_value(a):
    twin = rebuilt(a)
    assert twin == a
    assert hash(twin) == hash(a)
    assert a != mx.Stack((a, a))
    assert repr(a)


def rebuilt(a):
    """The same value from copies of all its fields."""
    if type(a).__name__ == "Transposed":
        return rebuilt(a.base).T
    if isinstance(a, mx.Sparse):
        return mx.Sparse(a.entries)
    parts = []
    for value in a._field_values():
        if isinstance(value, mx.Matrix):
            parts.append(rebuilt(value))
        elif isinstance(value, tuple) and value and isinstance(value[0], mx.Matrix):
            parts.append(tuple(rebuilt(v) for v in value))
        else:
            parts.append(value.copy() if isinstance(value, np.ndarray) else value)
    return type(a)(*parts)


@given(a=matrices(), data=st.data())
def test_linear_operator_for_scipy(a, data):
    x = data.draw(vectors(a.shape[1]))
    operator = a.as_linear_operator()
    close(operator @ x, a.dense() @ x)
    close(operator.rmatvec(operator @ x), a.dense().T @ (a.dense() @ x))


def test_big_integers_pass_through_exactly():
    x = np.array([2**70, 1, 5], dtype=object)
    assert (mx.Prefix(3) @ x).tolist() == [2**70, 2**70 + 1, 2**70 + 6]
    assert (mx.Dense([[1, -1, 2]]) @ x).tolist() == [2**70 + 9]
