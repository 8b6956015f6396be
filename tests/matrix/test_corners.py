"""Corners that random examples seldom reach: each member against its dense twin, and values."""

import copy
import pickle
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

import psephos as ps
from psephos import matrix as mx
from psephos.errors import ShapeError, TooLargeError, UnsupportedError
from psephos.matrix import kron, ranges
from tests.matrix.test_closed_forms import MEMBERS

RNG = np.random.default_rng(0)
CORNERS = {
    **MEMBERS,
    "negative weights": mx.Diagonal([-2.0, 0, 3, 0]),
    "scaled by zero": mx.Scaled(0, mx.Haar(4)),
    "half Haar": mx.Haar(5, -1, 0.5),
    "wide windows": mx.WidthRange(6, 5),
    "permuted groups": mx.Permuted(mx.Partition([0, 0, 0, 1, 2]), [2, 0, 4, 1, 3]),
    "two orders": mx.Permuted(mx.Permuted(mx.Dense(RNG.random((3, 3))), [1, 2, 0]).T, [2, 0, 1]),
    "one marginal twice": mx.Marginals((2, 3), ((0,), (0,)), (1, 2)),
    "eight bits": mx.Dense(np.array([[100], [127], [-128]], np.int8)),
    "zero columns": mx.Kron((mx.Dense([[0, 1]]), mx.Prefix(2))),
    "narrow ends": mx.Ranges.intervals(
        200, np.array([0, 5], np.int8), np.array([127, 10], np.int8)
    ),
}
QUESTIONS = {
    "gram": (lambda a: a.gram().dense(), lambda d: d.T @ d),
    "abs": (lambda a: a.abs().dense(), np.abs),
    "sqr": (lambda a: a.sqr().dense(), np.square),
    "pinv": (lambda a: a.pinv().dense(), np.linalg.pinv),
    "gram pinv": (lambda a: a.gram().pinv().dense(), lambda d: np.linalg.pinv(d.T @ d)),
    "gram trace": (lambda a: a.gram().trace(), lambda d: (d**2).sum()),
    "norms 1": (lambda a: a.column_norms(1), lambda d: np.abs(d).sum(axis=0)),
    "norms 2": (lambda a: a.column_norms(2), lambda d: np.sqrt((d**2).sum(axis=0))),
    "sum": (lambda a: a.sum(), np.sum),
    "trace": (lambda a: a.trace(), np.trace),
}


@pytest.mark.parametrize("name", CORNERS)
def test_members_agree_with_their_dense_twins(name):
    a = CORNERS[name]
    d = a.dense()
    for ask, expected in QUESTIONS.values():
        try:
            answer = ask(a)
        except (UnsupportedError, ShapeError):
            continue
        assert_allclose(answer, expected(d), atol=1e-8)


@pytest.mark.parametrize("name", CORNERS)
def test_results_belong_to_the_caller(name):
    a = CORNERS[name]
    x, y = np.ones((a.shape[1], 2)), np.ones((a.shape[0], 2))
    for operand, out in (
        (x, a.matmat(x)),
        (y, a.rmatmat(y)),
        (x, a @ x[:, 0]),
        (y, a.T @ y[:, 0]),
        (x, a.row(0)),
    ):
        assert out.flags.writeable
        assert not np.shares_memory(operand, out)
    assert (a @ np.ones((a.shape[1], 0))).shape == (a.shape[0], 0)


@pytest.mark.parametrize("kind", [np.uint8, np.uint32, np.int16, bool, np.float32])
@pytest.mark.parametrize("name", CORNERS)
def test_any_kind_of_number_goes_in(name, kind):
    a = CORNERS[name]
    x = np.ones(a.shape[1], kind)
    assert_allclose(a @ x, a.dense().sum(axis=1), atol=1e-9)
    if a.entry_type.kind == "i" and kind is not np.float32:
        assert (a @ x).dtype == np.int64


@pytest.mark.parametrize("name", CORNERS)
def test_copies_are_equal_frozen_and_of_this_process(name):
    a = CORNERS[name]
    hash(a)
    assert a.T.T is a
    for twin in (pickle.loads(pickle.dumps(a)), copy.deepcopy(a)):
        assert twin == a
        assert hash(twin) == hash(a)
        for value in twin._field_values():
            if isinstance(value, np.ndarray):
                assert not value.flags.writeable


def test_a_hash_does_not_travel():
    domain = ps.Domain.of(sex=["F", "M"])
    hash(domain)
    text = f"import pickle; d = pickle.loads({pickle.dumps(domain)!r}); import psephos as ps; "
    text += "assert d in {ps.Domain.of(sex=['F', 'M']): 1}"
    subprocess.run([sys.executable, "-c", text], check=True, env={"PYTHONHASHSEED": "7"})


@pytest.mark.parametrize(
    ("name", "groups"),
    [("negative weights", 3), ("scaled by zero", 1), ("permuted groups", 3), ("zero columns", 3)],
)
def test_equal_columns_are_all_found(name, groups):
    a = CORNERS[name]
    numbers = a.column_groups()
    assert numbers.max() + 1 == groups == np.unique(a.dense(), axis=1).shape[1]


@pytest.mark.parametrize("block", [1, 16, 64])
def test_kron_in_small_blocks(block, monkeypatch):
    monkeypatch.setattr(kron, "BLOCK_CELLS", block)
    rng = np.random.default_rng(block)
    pool = [
        mx.Identity,
        mx.total,
        mx.Prefix,
        mx.Haar,
        lambda n: mx.Dense(rng.integers(-2, 3, (max(1, n - 1), n)).astype(float)),
        lambda n: mx.Dense(rng.integers(-2, 3, (n + 2, n))),
        lambda n: mx.PIdentity.of(np.ones((2, n))),
        lambda n: mx.Partition(np.arange(n) % 2 if n > 1 else [0]),
    ]
    for _ in range(150):
        sizes = rng.integers(1, 6, rng.integers(1, 6)).tolist()
        factors = tuple(pool[rng.integers(len(pool))](n) for n in sizes)
        whole = mx.Kron(factors)
        if whole.shape[0] * whole.shape[1] > 10**6:
            continue
        dense = np.ones((1, 1))
        for factor in factors:
            dense = np.kron(dense, factor.dense())
        for matrix, twin in ((whole, dense), (whole.T, dense.T)):
            x = rng.integers(-3, 4, (twin.shape[1], 3))
            assert_allclose(matrix @ x, twin @ x, atol=1e-9)


def test_kron_shrinks_first_and_keeps_no_more_than_it_must():
    a = mx.Kron((mx.Dense(np.ones((512, 8))), mx.total(512), mx.Prefix(64)))
    x = np.ones(a.shape[1])
    a @ x
    tracemalloc.start()
    a @ x
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 1.5 * 8 * max(a.shape) + 2**21
    small = mx.Kron((mx.Dense(np.ones((512, 512))), mx.total(64), mx.Dense(np.ones((1, 128)))))
    out = small @ np.ones(small.shape[1])
    assert out.base is None or out.base.nbytes <= 2 * out.nbytes


def test_values_are_told_apart():
    assert mx.Dense(np.zeros((1, 4))) != mx.Dense(np.zeros((2, 2)))
    assert mx.Dense([[0, 0]]) != mx.Dense([[0.0, 0.0]])
    coo = sp.coo_array((np.array([1, 2, 0]), ([0, 0, 1], [0, 0, 1])), shape=(2, 2))
    once = mx.Sparse(coo)
    assert once.entries.nnz == 1
    assert once.sqr().dense()[0, 0] == 9
    assert once == mx.Sparse(sp.csr_array(np.array([[3, 0], [0, 0]])))
    with pytest.raises(ValueError, match="read-only"):
        once.entries.data[0] = 5
    close = mx.Sparse(sp.csr_array(np.array([[2**60, 2**60 + 1]])))
    assert close.column_groups().tolist() == [0, 1]
    assert mx.Dense([[True]]).entry_type == np.int8
    p, i = mx.Prefix(2), mx.Identity(2)
    assert p @ i is p
    assert isinstance(i @ i, mx.Identity)
    shared = mx.Dense(np.ones((3, 4)))
    assert mx.Stack((shared, shared)).nbytes == shared.nbytes
    assert mx.Stack((once, mx.Identity(2))).nbytes == once.nbytes > 0


def test_limits_are_kept(monkeypatch):
    a = mx.Ranges.intervals(9, [1, 3], [5, 8])
    monkeypatch.setattr(ranges, "GROUPING_LIMIT", 0)
    d, g = a.dense(), a.column_groups()
    assert_array_equal(d, d[:, np.unique(g, return_index=True)[1][g]])
    monkeypatch.setattr(ranges, "RANGE_ANSWERS", 5)
    with pytest.raises(TooLargeError):
        mx.AllRange(3) @ np.ones(3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: mx.Scaled(True, mx.Identity(2)),
        lambda: mx.Haar(2, -1, -1),
        lambda: mx.Haar(2, -1, float("nan")),
        lambda: mx.Semiseparable([np.nan], [1]),
        lambda: mx.Diagonal([1j]),
        lambda: mx.Diagonal(["a"]),
        lambda: mx.Sparse(sp.csr_array([[1j]])),
        lambda: mx.Marginals.of((2, 3), {("a",): 1}),
        lambda: mx.Marginals.of((2, 3), {(0,): "x"}),
    ],
)
def test_what_is_no_matrix_is_refused(make):
    with pytest.raises(ShapeError):
        make()
