"""Least squares through residual subspaces against dense generalised least squares."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import psephos.inverse.subspaces
from psephos import matrix as mx
from psephos.errors import ShapeError, UnsupportedError
from psephos.inverse import components
from psephos.inverse.form import ListedProducts
from psephos.inverse.marginal_blocks import is_commuting
from psephos.inverse.subspaces import LARGEST_CODE, Subspaces
from psephos.matrix.kron import AxisTotals
from tests.inverse.generators import residual

SHAPE = (3, 4, 2)


KINDS = {
    "I": mx.Identity,
    "T": lambda n: mx.Ones(1, n),
    "R": residual,
}


def kron(kinds, shape=SHAPE):
    return mx.Kron(tuple(KINDS[kind](n) for kind, n in zip(kinds, shape, strict=True)))


VARIANCES = st.sampled_from([0.25, 0.5, 1.0, 2.0, 8.0])
BLOCKS = st.lists(
    st.tuples(st.tuples(*[st.sampled_from("ITR")] * 3), VARIANCES), min_size=1, max_size=6
)


@st.composite
def queries(draw, n):
    whole = st.integers(-2, 2)
    rows = draw(st.integers(1, 3))
    flat = draw(st.lists(whole, min_size=rows * n, max_size=rows * n))
    return draw(
        st.sampled_from(
            [
                mx.Identity(n),
                mx.Ones(1, n),
                mx.Ones(2, n),
                mx.Prefix(n),
                mx.AllRange(n),
                residual(n),
                mx.Stack((mx.Identity(n), mx.total(n))),
                mx.Dense(np.array(flat).reshape(rows, n)),
            ]
        )
    )


PRODUCTS = st.tuples(*[queries(n) for n in SHAPE])


def dense_least_squares(blocks):
    """(X, X⁺ Aᵀ V⁻¹) of the stacked blocks."""
    a = np.concatenate([matrix.dense() for matrix, _ in blocks])
    v = np.concatenate([np.full(matrix.shape[0], variance) for matrix, variance in blocks])
    x = a.T @ (a / v[:, None])
    return x, np.linalg.pinv(x, rcond=1e-10, hermitian=True) @ (a / v[:, None]).T


def subspaces(shape, pairs):
    """From pairs of a matrix and the variance of its noise."""
    matrices, variances = zip(*pairs, strict=True)
    return Subspaces.of(shape, matrices, [1 / v for v in variances])


@given(blocks=BLOCKS, factors=PRODUCTS, seed=st.integers(0, 99))
@pytest.mark.parametrize("large_table", [components.LARGE_TABLE, 1])
def test_equals_dense_least_squares(large_table, blocks, factors, seed):
    pairs = [(kron(kinds), variance) for kinds, variance in blocks]
    space = subspaces(SHAPE, pairs)
    w = mx.Kron(factors).dense()
    x, solve = dense_least_squares(pairs)
    inverse = np.linalg.pinv(x, rcond=1e-10, hermitian=True)
    missing = w @ (np.eye(24) - inverse @ x)
    assert space.covers(factors) == (np.abs(missing).max() < 1e-9)
    rng = np.random.default_rng(seed)
    values = [rng.integers(-9, 10, matrix.shape[0]) for matrix, _ in pairs]
    old = components.LARGE_TABLE
    try:
        components.LARGE_TABLE = large_table
        fitted = space.fit(values)
    finally:
        components.LARGE_TABLE = old
    if not space.covers(factors):
        assert space.trace(factors) == np.inf
        with pytest.raises(UnsupportedError, match="say nothing about"):
            fitted.answers(factors)
        with pytest.raises(UnsupportedError, match="say nothing about"):
            space.variances(factors)
        return
    expected = w @ (solve @ np.concatenate(values))
    assert_allclose(fitted.answers(factors), expected, rtol=1e-9, atol=1e-9)
    variances = np.einsum("ij,jk,ik->i", w, inverse, w)
    assert_allclose(space.variances(factors), variances, rtol=1e-9, atol=1e-11)
    assert_allclose(space.trace(factors), variances.sum(), rtol=1e-9, atol=1e-11)


@given(blocks=BLOCKS, products=st.lists(PRODUCTS, min_size=1, max_size=4), named=st.integers(0, 7))
@pytest.mark.parametrize("largest", [LARGEST_CODE, 8])
def test_listed_products_have_the_traces_of_each(largest, blocks, products, named):
    """By numbers or one by one, with codes for all sets or only for the small ones."""
    space = subspaces(SHAPE, [(kron(kinds), variance) for kinds, variance in blocks])
    matrices = [factor for factors in products for factor in factors]
    kept = [i for i in range(3) if named >> i & 1]
    rows = [[3 * j + i for i in kept] for j in range(len(products))]
    listed = ListedProducts(AxisTotals(SHAPE), matrices, [0, 1, 2] * len(products), rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(psephos.inverse.subspaces, "LARGEST_CODE", largest)
        traces = space.traces(listed)
    plain = [tuple(factors) for factors in listed]
    assert_allclose(traces, [space.trace(factors) for factors in plain])
    for factors, whole in zip(plain, products, strict=True):
        assert [factors[i] for i in kept] == [whole[i] for i in kept]


def test_information_is_the_eigenvalues():
    blocks = [(kron("ITI"), 0.5), (kron("RTT"), 2.0), (kron("TTT"), 1.0)]
    space = subspaces(SHAPE, blocks)
    x, _ = dense_least_squares(blocks)
    listed = [0.0] * 12 + sorted(space.information.values())
    assert space.information[()] == 4 / 0.5 + 24
    assert space.information[(0,)] == 4 / 0.5 + 9 * 8 / 2
    multiplicity = {(): 1, (0,): 2, (2,): 1, (0, 2): 2}
    spectrum = [v for s, v in space.information.items() for _ in range(multiplicity[s])]
    assert len(listed) > len(space.information)
    assert_allclose(np.linalg.eigvalsh(x)[-len(spectrum) :], sorted(spectrum))


@pytest.mark.parametrize(
    ("shape", "matrix"),
    [
        ((4,), mx.Prefix(4)),
        ((4,), mx.Dense(np.eye(4))),
        ((4, 2), mx.Kron((mx.Identity(4), mx.Prefix(2)))),
        ((2, 4), mx.Kron((mx.Identity(4), mx.Identity(2)))),
        ((2, 2), mx.Dense(4 * np.eye(4) - 1)),
    ],
)
def test_other_matrices_are_left_to_other_solvers(shape, matrix):
    assert not is_commuting(shape, [matrix])
    with pytest.raises(ShapeError, match="no marginal and no residual"):
        Subspaces.of(shape, [matrix], [1.0])


def test_whole_tables_need_not_be_products():
    space = subspaces((2, 1, 3), [(mx.Identity(6), 1.0), (mx.total(6), 2.0)])
    assert space.information == {(): 4.0, (0,): 1.0, (2,): 1.0, (0, 2): 1.0}
    factors = (mx.Identity(2), mx.Identity(1), mx.Identity(3))
    values = [np.arange(6), np.array([21])]
    assert_allclose(space.fit(values).answers(factors).sum(), (15 + 3 * 21) / 4)


def test_wrong_sizes_are_refused():
    space = subspaces((2, 3), [(mx.Identity(6), 1.0)])
    with pytest.raises(ShapeError, match="answers"):
        space.fit([np.zeros(5)])
    with pytest.raises(ShapeError, match="widths"):
        space.covers((mx.Identity(3), mx.Identity(2)))
    with pytest.raises(ShapeError, match="widths"):
        space.covers((mx.Identity(6),))


def test_many_attributes_never_make_the_table():
    d = 70  # arrays have at most 64 axes
    shape = (3,) * d
    identity, total = mx.Identity(3), mx.total(3)

    def marginal(*axes):
        return mx.Kron(tuple(identity if i in axes else total for i in range(d)))

    pairs = [(i, i + 1) for i in range(d - 1)]
    space = subspaces(shape, [(marginal(*pair), 1.0) for pair in pairs])
    rng = np.random.default_rng(0)
    fitted = space.fit([rng.integers(0, 9, 9) for _ in pairs])
    first = fitted.answers(marginal(3, 4).factors).reshape(3, 3)
    second = fitted.answers(marginal(4, 5).factors).reshape(3, 3)
    assert_allclose(first.sum(axis=0), second.sum(axis=1))
    assert not space.covers(marginal(0, 2).factors)
    variances = space.variances(marginal(3, 4).factors)
    assert variances.shape == (9,)
    assert_allclose(variances.sum(), space.trace(marginal(3, 4).factors))
