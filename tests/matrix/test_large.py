"""Nothing is written out in secret: every question at a million cells, in a few vectors' memory."""

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from psephos import matrix as mx
from psephos.errors import UnsupportedError

N = 1 << 20
RNG = np.random.default_rng(0)
ENDS = np.sort(RNG.integers(0, N, (1000, 2)), axis=1)
LARGE = {
    "Identity": mx.Identity(N),
    "Ones": mx.Ones(3, N),
    "Prefix": mx.Prefix(N),
    "Suffix": mx.suffix(N),
    "Difference": mx.Difference(N),
    "Diagonal": mx.Diagonal(np.arange(N)),
    "Haar": mx.Haar(N - 1),
    "Ranges": mx.Ranges.intervals(N, ENDS[:, 0], ENDS[:, 1]),
    "Ranges2": mx.Ranges((1024, 1024), [[0, 1], [5, 7]], [[1000, 2], [5, 1023]]),
    "WidthRange": mx.WidthRange(N, N // 3),
    "Permuted": mx.Permuted(mx.Prefix(N), RNG.permutation(N)),
    "Partition": mx.Partition(np.arange(N) % 1000),
    "Dense": mx.Dense(np.ones((2, N))),
    "Sparse": mx.Sparse(sp.eye_array(N, format="csr") * 2),
    "SparseRow": mx.Sparse(sp.csr_array(np.ones((1, N)))),
    "PIdentity": mx.PIdentity.of(np.ones((2, N))),
    "Semiseparable": mx.Semiseparable(np.ones(N), np.arange(N)),
    "Marginals": mx.Marginals.of((32, 32, 1024), {(0, 1): 1, (2,): 2, (): 1}),
    "MarginalsGram": mx.MarginalsGram((32, 32, 1024), ((0, 1), (2,)), (1, 2)),
    "Kron": mx.Kron((mx.Prefix(1024), mx.Haar(32), mx.total(32))),
    "KronPrefix": mx.Kron((mx.Prefix(1 << 10), mx.AllRange(2), mx.Prefix(1 << 9))),
    "Stack": mx.Stack((mx.Identity(N), mx.Prefix(N), mx.total(N))),
    "Sum": mx.Sum((mx.Identity(N), mx.Prefix(N))),
    "Compose": mx.Compose((mx.Dense(np.ones((2, 1000))), mx.Partition(np.arange(N) % 1000))),
    "Scaled": mx.Scaled(-0.5, mx.Prefix(N)),
    "DirectSum": mx.DirectSum((mx.Haar(N // 2), mx.Prefix(N // 2))),
}
QUESTIONS = {
    "matvec": lambda a: a @ np.ones(a.shape[1]),
    "rmatvec": lambda a: a.T @ np.ones(a.shape[0]),
    "gram": lambda a: a.gram() @ np.ones(a.shape[1]),
    "gram_trace": lambda a: a.gram().trace(),
    "gram_sum": lambda a: a.gram().sum(),
    "abs": lambda a: a.abs(),
    "sqr": lambda a: a.sqr(),
    "norm1": lambda a: a.sensitivity(1),
    "norm2": lambda a: a.sensitivity(2),
    "sum": lambda a: a.sum(),
    "row": lambda a: a.row(a.shape[0] - 1),
    "column_groups": lambda a: a.column_groups(),
    "repr": repr,
    "hash": hash,
}


@pytest.mark.parametrize("name", LARGE)
def test_no_question_takes_more_than_a_few_vectors(name):
    a = LARGE[name]
    vector = 8 * max(a.shape)
    for question, ask in QUESTIONS.items():
        tracemalloc.start()
        try:
            ask(a)
        except UnsupportedError:
            pass
        finally:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak < 24 * vector, f"{name}.{question} took {peak / vector:.1f} vectors"


def test_pinv_stays_implicit():
    for name in ("Prefix", "Haar", "Partition", "Marginals", "Diagonal", "Permuted"):
        a = LARGE[name]
        x = a @ RNG.integers(0, 5, a.shape[1])
        tracemalloc.start()
        back = a.pinv() @ x
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 16 * 8 * max(a.shape)
        np.testing.assert_allclose(a @ back, x, atol=1e-3)


def test_questions_without_a_vector_reach_any_size():
    huge = mx.Kron((mx.Prefix(10**6), mx.AllRange(10**6), mx.total(10**6)))
    n = 10**6
    assert huge.shape == (n * n * (n + 1) // 2, 10**18)
    assert huge.sensitivity(1) == n * (n // 2) * (n // 2 + 1)
    assert huge.gram().trace() == pytest.approx(
        (n * (n + 1) / 2) * (n * (n + 1) * (n + 2) / 6) * n, rel=1e-12
    )
    assert huge.nbytes == 0
    many = mx.Kron(tuple(mx.Prefix(10) for _ in range(100)))
    assert many.sensitivity(1) == pytest.approx(1e100, rel=1e-12)


@pytest.mark.parametrize(
    "factors",
    [
        (mx.Identity(64), mx.PIdentity.of(RNG.random((4, 64))), mx.Identity(256)),
        (
            mx.PIdentity.of(RNG.random((6, 128))),
            mx.total(8),
            mx.PIdentity.of(RNG.random((60, 1024))),
        ),
        (mx.Prefix(1024), mx.Prefix(1024)),
        (mx.Dense(RNG.random((16, 16))),) * 5,
        (mx.Dense(RNG.random((20, 16))),) * 5,
        (
            mx.Dense(RNG.random((12, 16))),
            mx.Prefix(64),
            mx.Dense(RNG.random((70, 64))),
            mx.Haar(16),
        ),
        (mx.total(2), mx.Prefix(1 << 16), mx.Identity(8)),
        (mx.Dense(RNG.random((3, 2))), mx.Dense(RNG.random((130, 128))), mx.Identity(4096)),
    ],
    ids=str,
)
def test_kron_holds_at_most_one_and_a_half_vectors(factors):
    a = mx.Kron(factors)
    x = RNG.random(a.shape[1])
    y = RNG.random(a.shape[0])
    for matrix, vector in ((a, x), (a.T, y)):
        matrix @ vector
        tracemalloc.start()
        out = matrix @ vector
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= 1.5 * 8 * max(a.shape) + 2**21
        slow = vector
        for i, factor in enumerate(matrix.factors):
            left = int(np.prod([f.shape[0] for f in matrix.factors[:i]]))
            slow = factor._apply(slow.reshape(left, factor.shape[1], -1)).ravel()
        np.testing.assert_allclose(out, slow, rtol=1e-9, atol=1e-12 * np.abs(slow).max())
