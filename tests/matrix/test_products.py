"""Integers multiplied through floats: the same to the last bit as integers give."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psephos.matrix import explicit as products
from psephos.matrix.explicit import Dense, times, weigh

LIMITS = [2**k + d for k in (26, 31, 40, 51, 52, 53, 62) for d in (-1, 0, 1)]
LIMITS += [2**63 - 1, 2**63 - 2]
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from(LIMITS),
    st.sampled_from([-v for v in LIMITS] + [-(2**63)]),
)


def wrapped(exact):
    """Python's integers modulo 2⁶⁴, from -2⁶³."""
    return (exact + 2**63) % 2**64 - 2**63


def expected(a, x):
    return wrapped(np.einsum("mn,lnr->lmr", a.astype(object), x.astype(object)))


def arrays(data, shape):
    """Numbers of one size or of all."""
    kind = data.draw(st.sampled_from([st.integers(-9, 9), st.integers(-(2**45), 2**45), NUMBERS]))
    size = int(np.prod(shape))
    return np.array(data.draw(st.lists(kind, min_size=size, max_size=size))).reshape(shape)


@given(data=st.data())
def test_integers_are_exact_modulo_64_bits(data):
    m, n = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    left, right = data.draw(st.sampled_from([(1, 9), (9, 1), (3, 3), (1, 1), (2, 4)]))
    a, x = arrays(data, (m, n)), arrays(data, (left, n, right))
    product = times(a, x)
    assert product.dtype == np.int64
    assert product.tolist() == expected(a, x).tolist()
    out = np.empty_like(product)
    times(a, x, out)
    assert (out == product).all()


@pytest.mark.parametrize("reach", [0, 1, 2**20 + 1, 2**51 + 1, 2**52, 2**52 + 1, 2**53, 2**62])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_limits_of_rows_meet_the_limits_of_numbers(reach, sign):
    """A row whose entries reach 2⁵² leaves one bit at a time; one more, and there is no float."""
    a = sign * np.array([[reach // 2, -(reach - reach // 2)], [0, 0]])
    for size in (1, 2**32 - 1, 2**53, 2**53 + 1, 2**63 - 1):
        x = np.array([[size, -size], [-size - 1, size], [0, 1], [size, size]] * 3).T[None]
        assert times(a, x).tolist() == expected(a, x).tolist()


def test_rows_too_long_for_floats_are_seen_although_their_sum_is_rounded():
    """2⁵³ and many ones: every addition rounds back to 2⁵³, which is not below it."""
    a = np.ones((1, 300), dtype=np.int64)
    a[0, 0] = 2**53
    x = np.arange(300 * 8).reshape(1, 300, 8) + 2**40
    assert times(a, x).tolist() == expected(a, x).tolist()


def test_pieces_cover_the_whole(monkeypatch):
    monkeypatch.setattr(products, "FLOATS_AT_ONCE", 12)
    rng = np.random.default_rng(0)
    for left, n, right in ((7, 5, 3), (1, 5, 11), (11, 5, 1), (2, 30, 5)):
        a = rng.integers(-(2**30), 2**30, (4, n))
        x = rng.integers(-(2**62), 2**62, (left, n, right))
        assert times(a, x).tolist() == expected(a, x).tolist()


def test_other_numbers_keep_their_type():
    small = times(np.ones((2, 3), dtype=np.int8), np.ones((3, 3, 3), dtype=np.int8))
    assert small.dtype == np.int8
    huge = times(np.array([[2**40]]), np.full((3, 1, 3), 2**80, dtype=object))
    assert huge[0, 0, 0] == 2**120
    assert times(np.array([[0.5]]), np.full((3, 1, 3), 1)).dtype == float


@pytest.mark.parametrize("shape", [(1, 3, 4), (4, 3, 1), (4, 3, 5), (2, 3, 300)])
def test_weights_go_along_the_middle(shape):
    x, w = np.arange(np.prod(shape)).reshape(shape), np.array([2, -1, 3])
    exact = x * w[None, :, None]
    assert (weigh(w, x) == exact).all()
    out = np.zeros((shape[0], 5, shape[2]), dtype=np.int64)
    weigh(w, x, out[:, :3])
    assert (out[:, :3] == exact).all()
    assert not out[:, 3:].any()


@given(data=st.data())
def test_even_arrays_multiply_as_any_do(data):
    """a on the diagonal and b elsewhere, such as nI - 11ᵀ: to the last bit, transposed as well."""
    n = data.draw(st.integers(1, 5))
    apart, alike = data.draw(NUMBERS), data.draw(NUMBERS)
    array = np.full((n, n), alike)
    np.fill_diagonal(array, apart)
    if data.draw(st.booleans()):
        array[0, -1] = 7  # even no more, unless it was 7
    x = arrays(data, (2, n, 3))
    for kind in (np.int64, object):
        given_x = x.astype(kind)
        exact = np.einsum("mn,lnr->lmr", array.astype(object), x.astype(object))
        exact = wrapped(exact) if kind is np.int64 else exact
        turned = np.einsum("nm,lnr->lmr", array.astype(object), x.astype(object))
        turned = wrapped(turned) if kind is np.int64 else turned
        assert (Dense(array)._apply(given_x) == exact).all()
        assert (Dense(array)._apply_t(given_x) == turned).all()
        out = np.empty((2, n, 3), kind)
        Dense(array)._apply_into(given_x, out)
        assert (out == exact).all()
