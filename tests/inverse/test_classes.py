"""Common classes of the factors of an axis, and what they are used for."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from psephos.errors import TooLargeError
from psephos.inverse import classes
from psephos.inverse.axis_classes import axis_classes
from psephos.inverse.choice import method_of
from psephos.inverse.classes import Classes
from psephos.matrix import (
    Compose,
    Dense,
    Identity,
    Kron,
    Partition,
    PIdentity,
    Prefix,
    Stack,
    total,
)


@st.composite
def axis_factors(draw):
    """Levels of an attribute, in which values may or may not be distinguished, and masks."""
    n = draw(st.integers(2, 9))
    kinds = draw(st.lists(st.sampled_from("itpms"), min_size=1, max_size=4, unique=True))
    factors = []
    for kind in kinds:
        if kind == "i":
            factors.append(Identity(n))
        elif kind == "t":
            factors.append(total(n))
        elif kind == "p":
            numbers = draw(st.lists(st.integers(0, 3), min_size=n, max_size=n))
            factors.append(Partition(np.unique(numbers, return_inverse=True)[1]))
        elif kind == "s":
            rows = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
            factors.append(PIdentity(np.arange(1, n + 1), np.array([rows])))
        else:
            bits = draw(st.lists(st.integers(0, 1), min_size=2 * n, max_size=2 * n))
            factors.append(Dense(np.array([*bits, *[1] * n], dtype=float).reshape(3, n)))
    return tuple(factors)


@given(factors=axis_factors())
def test_factors_fall_apart_into_their_blocks(factors):
    classes = axis_classes(factors)
    for factor, entries in zip(factors, classes.blocks, strict=True):
        gram = classes.vectors.T @ factor.gram().dense() @ classes.vectors
        expected = np.zeros_like(gram)
        for section in classes.sections:
            b = section.size
            blocks = entries[section.entries].reshape(-1, b, b)
            for copy, k in enumerate(section.class_of_copy):
                start = section.columns.start + copy * b
                expected[start : start + b, start : start + b] = blocks[k]
        assert_allclose(gram, expected, atol=1e-7)
    seen = np.concatenate([factor.dense() for factor in factors])
    assert np.linalg.matrix_rank(classes.vectors) == np.linalg.matrix_rank(seen)


@given(factors=axis_factors())
def test_images_are_queries_of_the_vectors(factors):
    classes = axis_classes(factors)
    for sections in (range(len(classes.sections)), [len(classes.sections) - 1]):
        columns = [classes.vectors[:, classes.sections[s].columns] for s in sections]
        for queries in factors:
            expected = queries.dense() @ np.concatenate(columns, axis=1)
            assert_allclose(classes.image(queries, sections).dense(), expected, atol=1e-12)


@pytest.mark.parametrize("finest", [Identity(400), PIdentity(np.arange(1, 401), np.eye(4, 400))])
def test_what_one_factor_alone_sees_is_one_class(finest):
    months = Partition(np.arange(400) // 20)
    classes = axis_classes((finest, months, total(400)))
    assert sum(s.copies.sum() for s in classes.sections if s.seen_by == (True, False, False)) == 380


def test_an_image_of_groups_takes_fewer_numbers_than_cells_squared():
    months = Dense(np.random.default_rng(0).normal(size=(10, 20))[:, np.arange(400) // 20])
    classes = axis_classes((Identity(400), months, total(400)))
    image = classes.image(Identity(400), range(len(classes.sections)))
    assert isinstance(image, Compose)
    assert_allclose(image.dense(), classes.vectors, atol=1e-12)


@given(factors=axis_factors())
def test_many_columns_are_fitted_as_each_by_itself(factors):
    shape = (factors[0].shape[1], 3)
    blocks = [Kron((f, Identity(3))) for f in factors] + [Kron((f, total(3))) for f in factors]
    form = Classes.of(blocks, [1.0 + i for i in range(len(blocks))], shape)
    rng = np.random.default_rng(0)
    values = [rng.normal(size=(block.shape[0], 5)) for block in blocks]
    weights = np.sqrt([1.0 + i for i in range(len(blocks))])
    stacked = np.concatenate([w * b.dense() for w, b in zip(weights, blocks, strict=True)])
    right = np.concatenate([w * v for w, v in zip(weights, values, strict=True)])
    expected = np.linalg.lstsq(stacked, right, rcond=1e-10)[0]
    for block in blocks:
        together = form.fit(values).answers(block.factors)
        assert_allclose(together, block.dense() @ expected, atol=1e-7)


@given(left=axis_factors(), right=axis_factors(), data=st.data())
def test_any_pairs_of_factors_are_fitted_by_least_squares(left, right, data):
    pair = st.tuples(st.sampled_from(left), st.sampled_from(right))
    pairs = data.draw(st.lists(pair, min_size=1, max_size=5, unique=True))
    blocks = [Kron(each) for each in pairs]
    precisions = [1.0 + i for i in range(len(blocks))]
    form = Classes.of(blocks, precisions, (left[0].shape[1], right[0].shape[1]))
    rng = np.random.default_rng(0)
    values = [rng.normal(size=block.shape[0]) for block in blocks]
    weights = np.sqrt(precisions)
    stacked = np.concatenate([w * b.dense() for w, b in zip(weights, blocks, strict=True)])
    y = np.concatenate([w * v for w, v in zip(weights, values, strict=True)])
    expected = np.linalg.lstsq(stacked, y, rcond=1e-10)[0]
    fitted = form.fit(values)
    for block in blocks:
        assert_allclose(fitted.answers(block.factors), block.dense() @ expected, atol=1e-7)


def test_coordinates_are_those_that_a_table_sees():
    """A large table costs what it asks, whatever another one asks of a further attribute."""
    strategy = PIdentity(np.arange(1, 51), np.eye(4, 50))
    blocks = [
        Kron((Identity(30), Identity(40), total(50))),
        Kron((Identity(30), total(40), strategy)),
        Kron((total(30), total(40), strategy)),
    ]
    form = Classes.of(blocks, [1.0, 2.0, 3.0], (30, 40, 50))
    fitted = form.fit([np.ones(block.shape[0]) for block in blocks])
    assert sum(each.size for each in fitted.coordinates.values()) == 30 * 50 + 30 * 39
    assert form.work < 12_000
    with_all = form.fit([block.matvec(np.arange(60_000.0)) for block in blocks])
    for block in blocks:
        exact = block.matvec(np.arange(60_000.0))
        assert_allclose(with_all.answers(block.factors), exact, rtol=1e-9)


def test_a_long_axis_has_few_numbers():
    vectors = axis_classes((Identity(512), total(512))).vectors
    assert_allclose(vectors.T @ vectors, np.eye(512), atol=1e-12)
    assert np.count_nonzero(vectors) <= 512 * (math.log2(512) + 1)


def test_products_that_share_no_matrix_are_not_taken_for_each_other():
    """An attribute of one cell goes with its neighbour in a matrix that is made anew each time."""
    blocks = [
        Kron((Dense(np.array([[1.0], [0.0]])), Stack((Identity(5), total(5))))),
        Kron((Dense(np.array([[2.0], [0.0]])), Partition([0, 1, 2, 0, 1]))),
    ]
    form = Classes.of(blocks, [1.0, 1.0], (1, 5))
    products = [block.factors for block in blocks] * 20
    assert form.traces(products) == pytest.approx([form.trace(each) for each in products])


@given(factors=axis_factors(), held=st.sampled_from([1, 1 << 23]))
def test_variances_are_those_of_least_squares(factors, held):
    shape = (factors[0].shape[1], 3)
    blocks = [Kron((f, Identity(3))) for f in factors] + [Kron((f, total(3))) for f in factors]
    precisions = [1.0 + i for i in range(len(blocks))]
    form = Classes.of(blocks, precisions, shape)
    x = sum(p * b.dense().T @ b.dense() for p, b in zip(precisions, blocks, strict=True))
    inverse = np.linalg.pinv(x, rcond=1e-10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("psephos.inverse.axis_classes.HELD_SQUARES", held)
        for block in blocks:
            w = block.dense()
            expected = np.einsum("qi,ij,qj->q", w, inverse, w)
            assert_allclose(form.variances(block.factors), expected, atol=1e-9)


def test_errors_of_two_products_are_summed_a_few_numbers_at_a_time(monkeypatch):
    first = PIdentity([1, 2, 3, 1], [[1, 1, 2, 1]])
    second = PIdentity([3, 1, 1, 2], [[1, 0, 2, 1]])
    blocks, shape = [Kron((first,) * 3), Kron((second, Partition([0, 0, 1, 1]), second))], (4, 4, 4)
    queries = [(Prefix(4),) * 3, (Prefix(4), total(4), Identity(4))]
    held = Classes.of(blocks, [1.0, 2.0], shape)
    unseen = Classes.of(blocks[1:] * 2, [1.0, 2.0], shape)
    traces = held.traces(queries)
    assert [unseen.covers(each) for each in queries] == [False, True]
    monkeypatch.setattr(classes, "CLASS_ENTRIES", 1)
    for at_once in (1, 32):
        monkeypatch.setattr(classes, "SUMMED_AT_ONCE", at_once)
        assert method_of(blocks, shape) == "classes"
        assert_allclose(Classes.of(blocks, [1.0, 2.0], shape).traces(queries), traces)
        assert [unseen.covers(each) for each in queries] == [False, True]
    monkeypatch.setattr(classes, "VARIANCE_ENTRIES", 1)
    with pytest.raises(TooLargeError, match="ask for `expected_error`"):
        Classes.of(blocks, [1.0, 2.0], shape).variances(queries[0])
