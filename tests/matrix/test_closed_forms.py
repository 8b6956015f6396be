"""Which closed forms must exist, worked numbers, and what each matrix stores."""

import math

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from psephos import matrix as mx
from psephos.errors import ShapeError, TooLargeError, UnsupportedError

N = 6
MEMBERS = {
    "Identity": mx.Identity(N),
    "Ones": mx.Ones(3, N),
    "Total": mx.total(N),
    "Prefix": mx.Prefix(N),
    "Suffix": mx.suffix(N),
    "Difference": mx.Difference(N),
    "Diagonal": mx.Diagonal(np.arange(N)),
    "Haar": mx.Haar(N),
    "Ranges": mx.Ranges.intervals(N, [0, 2], [3, 5]),
    "Ranges2": mx.Ranges((2, 3), [[0, 1]], [[1, 2]]),
    "AllRange": mx.AllRange(N),
    "WidthRange": mx.WidthRange(N, 2),
    "Permuted": mx.Permuted(mx.Prefix(N), [3, 1, 0, 2, 5, 4]),
    "Partition": mx.Partition([0, 1, 0, 2, 2, 2]),
    "Dense": mx.Dense(np.arange(12).reshape(2, N) - 5),
    "Sparse": mx.Sparse(sp.csr_array(np.eye(N)[:2])),
    "PIdentity": mx.PIdentity(np.arange(1, N + 1), np.ones((1, N), dtype=int)),
    "Downdate": mx.Downdate(np.ones(N), np.ones((1, N))),
    "Semiseparable": mx.Semiseparable(np.arange(1, N + 1), N - np.arange(N)),
    "Marginals": mx.Marginals.of((2, 3), {(0,): 1, (1,): 0.5}),
    "MarginalsGram": mx.MarginalsGram((2, 3), ((0,), (1,)), (1, 2)),
    "Eigenspaces": mx.Eigenspaces((2, 3), [1, 0, -2, 3]),
    "Kron": mx.Kron((mx.Prefix(2), mx.Haar(3))),
    "Stack": mx.Stack((mx.Identity(N), mx.Prefix(N))),
    "Sum": mx.Sum((mx.Identity(N), mx.Prefix(N))),
    "Compose": mx.Compose((mx.Dense(np.ones((2, 3))), mx.Partition([0, 1, 0, 2, 2, 2]))),
    "Scaled": mx.Scaled(-0.5, mx.Prefix(N)),
    "DirectSum": mx.DirectSum((mx.Haar(2), mx.Prefix(4))),
}
MAY_LACK = {
    "abs": {"Eigenspaces", "Downdate"},
    "sqr": {"Eigenspaces", "Sum", "Downdate"},
    "norm1": {"Eigenspaces", "Downdate"},
    "norm2": {"Eigenspaces", "Sum", "Downdate"},
    "gram_trace": {"Sum", "Downdate"},
    "gram_sum": set(),
    "pinv": {"Ranges", "Ranges2", "WidthRange", "Sparse", "Stack", "Sum", "Compose", "Downdate"},
    "row": set(),
    "dense": set(),
    "column_groups": {
        "Downdate",
        "Suffix",
        "Semiseparable",
        "Marginals",
        "MarginalsGram",
        "Eigenspaces",
    },
}
QUESTIONS = {
    "abs": lambda a: a.abs(),
    "sqr": lambda a: a.sqr(),
    "norm1": lambda a: a.column_norms(1),
    "norm2": lambda a: a.column_norms(2),
    "gram_trace": lambda a: a.gram().trace(),
    "gram_sum": lambda a: a.gram().sum(),
    "pinv": lambda a: a.pinv(),
    "row": lambda a: a.row(0),
    "dense": lambda a: a.dense(),
    "column_groups": lambda a: a.column_groups(),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_every_member_answers_all_but_the_listed_exceptions(question):
    lacking = set()
    for name, member in MEMBERS.items():
        try:
            QUESTIONS[question](member)
        except UnsupportedError as error:
            assert "write Dense(A.dense())" in str(error)  # noqa: PT017 - collected over members
            lacking.add(name)
    assert lacking == MAY_LACK[question]


def test_every_public_matrix_is_a_member_of_the_suite():
    public = {
        value
        for value in vars(mx).values()
        if isinstance(value, type) and issubclass(value, mx.Matrix) and value is not mx.Matrix
    }
    tried = {type(part) for member in MEMBERS.values() for part in member.walk()}
    tried |= {type(member.gram()) for member in MEMBERS.values()}
    assert public <= tried


def test_ektelo_example_7_4():
    four = mx.Ranges.intervals(5, [1, 3, 0, 1], [3, 4, 3, 1])
    rows = [[0, 1, 1, 1, 0], [0, 0, 0, 1, 1], [1, 1, 1, 1, 0], [0, 1, 0, 0, 0]]
    assert_array_equal(four.dense(), rows)
    assert_array_equal(
        four._corners.toarray(),
        [[-1, 0, 0, 1, 0], [0, 0, -1, 0, 1], [0, 0, 0, 1, 0], [-1, 1, 0, 0, 0]],
    )


@pytest.mark.parametrize("n", [1, 2, 3, 5, 7, 8, 13, 64, 100])
def test_haar_of_any_length_is_inverted_exactly(n):
    haar = mx.Haar(n)
    assert_array_equal(haar.pinv().dense() @ haar.dense(), np.eye(n))
    assert_array_equal(haar.pinv().pinv().dense(), haar.dense())
    assert haar.dense()[0].tolist() == [1.0] * n
    if n & (n - 1) == 0:
        assert haar.sensitivity(1) == math.log2(n) + 1


def test_closed_grams():
    n = 7
    i, j = np.indices((n, n))
    assert_array_equal(mx.Prefix(n).gram().dense(), n - np.maximum(i, j))
    assert_array_equal(
        mx.AllRange(n).gram().dense(), (np.minimum(i, j) + 1) * (n - np.maximum(i, j))
    )
    tridiagonal = 2 * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)
    assert_allclose(mx.AllRange(n).gram().pinv().dense(), tridiagonal / (n + 1), atol=1e-15)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 57])
def test_all_range_rows_know_their_ends(n):
    every = mx.AllRange(n)
    listed = [(a, b) for a in range(n) for b in range(a, n)]
    assert [every.ends(i) for i in range(every.shape[0])] == listed


def test_kron_of_sensitivities():
    a, b = mx.Dense([[1, -2], [3, 0]]), mx.Prefix(4)
    assert mx.Kron((a, b)).sensitivity(1) == 4 * 4
    assert_allclose(mx.Kron((a, b)).sensitivity(2), math.sqrt(10) * 2)


def test_pidentity_has_unit_columns_and_inverts():
    theta = np.random.default_rng(0).random((3, 8))
    a = mx.PIdentity.of(theta)
    assert_allclose(np.abs(a.dense()).sum(axis=0), 1)
    assert_allclose(a.pinv().dense(), np.linalg.pinv(a.dense()), atol=1e-12)


def test_marginal_eigenvalues():
    gram = mx.Marginals.of((3, 4, 2), {(0, 1): 1.5, (2,): 1, (): 2, (0,): 0.5}).gram()
    expected = np.sort(np.linalg.eigvalsh(gram.dense()))
    dims = [1]
    for n in (3, 4, 2):
        dims += [d * (n - 1) for d in dims]
    assert_allclose(np.sort(np.repeat(gram.eigenvalues(), dims)), expected, atol=1e-9)
    assert_allclose(gram.pinv().dense(), np.linalg.pinv(gram.dense()), atol=1e-12)


def test_marginal_inverses_keep_small_eigenvalues():
    """Weights as far apart as OPT_M makes them on large domains."""
    a = mx.Marginals.of((3, 4), {(0, 1): 1e-4, (): 1.0})
    assert_allclose(a.pinv().dense() @ a.dense(), np.eye(12), atol=1e-6)
    wide = mx.Marginals.of((2, 64, 17, 115), {(0, 1, 2, 3): 1e-3, (): 1.0, (0,): 1.0})
    assert (wide.gram().pinv().values > 0).all()
    assert_allclose(wide.gram().pinv().values * wide.gram().eigenvalues(), 1)


def test_closed_forms_do_not_overflow():
    n = 200_000
    ones = np.ones(n)
    assert_allclose(mx.AllRange(n).gram().sum(), (mx.AllRange(n).gram() @ ones).sum(), rtol=1e-12)
    # Σ over ranges of their squared length, Σ_k k²(n + 1 - k)
    assert_allclose(mx.AllRange(n).gram().sum(), n * (n + 1) ** 2 * (n + 2) / 12, rtol=1e-9)
    assert mx.Prefix(5_000_000).gram().sum() > 4.1e19
    assert np.isfinite(mx.AllRange(20_000).gram().column_norms(2)).all()
    assert mx.Dense([[2**40]]).column_norms(2) == [2.0**40]
    assert mx.Diagonal([2**40]).gram().dense() == [[2.0**80]]
    assert mx.Kron([2**22 * mx.Identity(2)] * 3).column_norms(1).tolist() == [2.0**66] * 8
    assert (2**40 * mx.Identity(2)).sensitivity(2) == 2.0**40
    assert (mx.Scaled(2**70, mx.Identity(2)) @ np.array([1, 2])).tolist() == [2.0**70, 2.0**71]
    for small in (mx.Dense, lambda a: mx.Sparse(sp.csr_array(a)), lambda a: mx.Diagonal(a[0])):
        narrow = small(np.array([[-128]], dtype=np.int8))
        assert narrow.sensitivity(1) == 128
        assert narrow.sensitivity(2) == 128
        assert narrow.gram().dense() == [[16384]]


def test_inputs_of_any_width_are_exact():
    assert (mx.Prefix(2) @ np.array([2**63, 5], np.uint64)).tolist() == [2**63, 2**63 + 5]
    assert (mx.Prefix(2**25) @ np.ones(2**25, np.float32))[-1] == 2**25
    big = np.array([2**70, 1, 1], dtype=object)
    assert (mx.Partition([0, 0, 1]) @ big).tolist() == [2**70 + 1, 1]
    assert (mx.Ranges.intervals(3, [0, 1], [2, 2]) @ big).tolist() == [2**70 + 2, 2]
    assert (mx.Sparse(sp.csr_array([[2, 0, 1]])) @ big).tolist() == [2**71 + 1]


def test_sensitivity_of_unions_needs_no_cells():
    marginals = [
        mx.Kron(tuple(mx.Identity(10) if i in (a, b) else mx.total(10) for i in range(20)))
        for a in range(20)
        for b in range(a)
    ]
    assert mx.Stack(tuple(marginals)).sensitivity(1) == 190
    mixed = mx.Stack(
        (mx.Kron((mx.Prefix(4), mx.Haar(3))), 2 * mx.Kron((mx.Dense([[1, -3, 0, 2]]), mx.total(3))))
    )
    for p in (1, 2):
        assert_allclose(mixed.sensitivity(p), np.linalg.norm(mixed.dense(), ord=p, axis=0).max())


def test_sparse_and_dense_are_copied_and_frozen():
    array = np.ones((2, 2))
    held = mx.Dense(array)
    array[0, 0] = 99
    assert held.dense()[0, 0] == 1
    entries = sp.csr_array(np.ones((2, 2)))
    matrix = mx.Sparse(entries)
    entries.data[:] = 99
    assert matrix.dense().max() == 1
    with pytest.raises(ValueError, match="read-only"):
        held.array[0, 0] = 2
    with pytest.raises(AttributeError):
        held.array = array


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: mx.Stack((mx.Identity(8), mx.Identity(16))), "share one width, got [8, 16]"),
        (lambda: mx.Stack(()), "at least one matrix"),
        (lambda: mx.Sum((mx.Identity(2), mx.Ones(1, 2))), "share one shape, got [(1, 2), (2, 2)]"),
        (lambda: mx.Compose((mx.Identity(2), mx.Identity(3))), "2 columns against 3 rows"),
        (lambda: mx.Kron((np.eye(2),)), "wrap arrays as Dense"),
        (lambda: mx.Kron(()), "at least one"),
        (lambda: mx.DirectSum((1,)), "got int"),
        (lambda: mx.Scaled(math.nan, mx.Identity(2)), "finite number, got nan"),
        (lambda: mx.Scaled("2", mx.Identity(2)), "scaled by a number, got '2'"),
        (lambda: mx.Identity(0), "positive whole number, got 0"),
        (lambda: mx.Prefix(2.5), "positive whole number, got 2.5"),
        (lambda: mx.Dense([[1, math.inf]]), "finite"),
        (lambda: mx.Dense([1, 2]), "2-D"),
        (lambda: mx.Dense([["a"]]), "numbers"),
        (lambda: mx.Sparse(np.eye(2)), "scipy sparse matrix, got ndarray"),
        (lambda: mx.Partition([0, 2]), "without gaps"),
        (lambda: mx.Partition([0.5]), "whole group numbers"),
        (lambda: mx.Permuted(mx.Identity(3), [0, 1, 1]), "each once"),
        (lambda: mx.Ranges.intervals(3, [2], [1]), "empty or leaves the grid"),
        (lambda: mx.Ranges.intervals(3, [0], [3]), "[0] to [3]"),
        (lambda: mx.WidthRange(3, 4), "does not fit in 3 cells"),
        (lambda: mx.Marginals.of((2, 2), {(1, 0): 1}), "must increase"),
        (lambda: mx.Marginals.of((2, 2), {(2,): 1}), "lie in 0..1"),
        (lambda: mx.PIdentity.of([[-1.0]]), "not negative"),
        (lambda: mx.PIdentity([1, 0], [[1, 1]]), "positive, finite diagonal"),
        (lambda: mx.PIdentity([1, 2], [[1]]), "shapes (2,) and (1, 1)"),
        (lambda: mx.Diagonal([math.inf]), "finite"),
        (lambda: mx.Identity(3) @ np.ones(4), "needs a vector of 3, got an array of shape (4,)"),
        (lambda: mx.Identity(3) @ np.ones((4, 2)), "needs a matrix of 3 rows"),
        (lambda: mx.Identity(2) @ np.array(["a", "b"]), "acts on numbers"),
        (lambda: mx.Ones(2, 3).trace(), "not square"),
        (lambda: mx.Identity(3).column_norms(3), "p = 1 and p = 2, got 3"),
    ],
)
def test_misfits_are_refused_in_words(make, words):
    with pytest.raises(ShapeError) as error:
        make()
    assert words in str(error.value)


def test_going_dense_is_refused_above_the_limit():
    cells = mx.Kron((mx.Prefix(10**6), mx.Prefix(10**6)))
    with pytest.raises(TooLargeError, match=r"over the limit of 5e\+07; use `A @ x`") as error:
        cells.dense()
    assert error.value.entries == 10**24
    with pytest.raises(TooLargeError, match=r"Prefix\(n=200000\) has 200000 x 200000 = 4e\+10"):
        mx.Prefix(200_000).dense()
    assert mx.Prefix(20).dense(limit=400).shape == (20, 20)
    with pytest.raises(TooLargeError):
        mx.Prefix(20).dense(limit=399)


def test_grams_of_whole_numbers_are_exact():
    for largest in (1, 1 << 20, (1 << 25) + 1, (1 << 29) + 1):
        array = np.random.default_rng(largest).integers(-largest, largest, size=(9, 4))
        array[0] = largest
        gram = mx.Dense(array).gram()
        assert gram.entry_type.kind == "i"
        exact = array.astype(object).T @ array.astype(object)
        assert (gram @ np.eye(4, dtype=np.int64) == exact).all()
