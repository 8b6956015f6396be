"""Exact column sums for every matrix with a rule, and a refusal for everything else."""

import contextlib
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import example, given
from hypothesis import strategies as st

from psephos import matrix as mx
from psephos.errors import RefusedError
from psephos.kernel import gate
from psephos.kernel import sensitivity as rules
from psephos.kernel.query import Query
from psephos.kernel.sensitivity import (
    LARGEST,
    RULES,
    _largest_sum,
    answers,
    columns,
    largest_entry,
    sensitivity,
    stability,
)
from psephos.workload.product import rounded_weight
from tests.kernel.members import MEMBERS
from tests.strategies import matrices


def admit(matrix):
    return gate.admit(matrix, "matrix")


def admit_query(query):
    return gate.admit(query, "query")


def listed(a, p):
    return np.broadcast_to(columns(a, p), a.shape[1]).tolist()


def admitted(a):
    try:
        return admit(a)
    except RefusedError:
        return None


@given(a=matrices(), p=st.sampled_from([1, 2]))
def test_columns_are_exact_for_whatever_is_admitted(a, p):
    own = admitted(a)
    if own is None:
        return
    dense = a.dense()
    expected = (np.abs(dense) ** p).sum(axis=0)
    assert listed(own, p) == expected.tolist()
    assert largest_entry(own) == np.abs(dense).max()
    assert own == a
    x = np.arange(a.shape[1]) * 3 - 2
    assert answers(own, x).tolist() == (dense @ x).tolist()


@given(data=st.data())
def test_queries_take_the_largest_weighted_column(data):
    n = data.draw(st.integers(1, 5))
    rows = st.lists(st.lists(st.integers(-3, 3), min_size=n, max_size=n), min_size=1, max_size=3)
    weights = st.sampled_from([Fraction(1), Fraction(3, 2), Fraction(5), Fraction(1, 8)])
    blocks = data.draw(st.lists(st.tuples(rows.map(mx.Dense), weights), min_size=1, max_size=3))
    query = Query.of(blocks)
    for p in (1, 2):
        exact = [
            sum(w * sum(abs(int(v)) ** p for v in m.array[:, c]) for m, w in blocks)
            for c in range(n)
        ]
        if max(exact) == 0:
            with pytest.raises(RefusedError, match="zero everywhere"):
                sensitivity(query, p)
        else:
            assert sensitivity(admit_query(query), p) == max(exact)


GRID_FACTORS = {
    "each": mx.Identity,
    "total": mx.total,
    "prefixes": mx.Prefix,
    "some": lambda n: mx.Dense([[2, *[0] * (n - 1)], [-1] * n]),
}
GRID_PRODUCTS = st.lists(
    st.tuples(*[st.sampled_from(list(GRID_FACTORS))] * 3), min_size=1, max_size=4
)


@given(products=GRID_PRODUCTS, p=st.sampled_from([1, 2]))
@example(products=[("each", "total", "each"), ("total", "each", "total")], p=2)  # marginals
@example(products=[("prefixes", "total", "each"), ("some", "total", "total")], p=1)
def test_products_on_one_grid_are_summed_cell_by_cell(products, p):
    blocks = [
        (
            mx.Kron(tuple(GRID_FACTORS[name](n) for name, n in zip(names, (2, 3, 4), strict=True))),
            weight,
        )
        for names, weight in zip(products, (1, Fraction(3, 2), 5, 2), strict=False)
    ]
    sums = sum(float(w) * (np.abs(matrix.dense()) ** p).sum(axis=0) for matrix, w in blocks)
    assert sensitivity(admit_query(Query.of(blocks)), p) == sums.max()


def test_every_rule_is_tried():
    assert {type(member) for member in MEMBERS} == set(RULES) == set(LARGEST)
    for member in (each for each in MEMBERS if each.shape[0] * each.shape[1] < 10**5):
        for p in (1, 2):
            expected = (np.abs(member.dense()) ** p).sum(axis=0)
            assert listed(admit(member), p) == expected.tolist()
        assert largest_entry(admit(member)) == np.abs(member.dense()).max()


def test_large_products_need_no_vector_and_do_not_overflow():
    many = mx.Kron((mx.Ones(10**6, 10),) * 12)
    assert columns(many, 1).tolist() == [10**72]
    two = mx.Kron((mx.Prefix(3), mx.Ones(2**40, 2), mx.Ones(2**40, 2)))
    assert columns(two, 1).max() == 3 * 2**80
    assert sensitivity(Query.of([(two, 1), (mx.total(12), 1)]), 1) == 3 * 2**80 + 1


def test_only_groups_of_cells_stand_behind_a_matrix():
    groups = mx.Partition([0, 1, 1, 0])
    twice = mx.Partition([0, 0])
    twofold = mx.Sparse(sp.csr_array([[1, 1], [0, 1]]))
    heavy = mx.Sparse(sp.csr_array([[1, 0], [0, 2]]))
    for other in (mx.Diagonal([1, 9]), mx.Scaled(7, mx.Identity(2)), twofold, heavy):
        with pytest.raises(RefusedError, match="Compose of a matrix and of places of cells"):
            admit(mx.Compose((mx.Identity(2), other, groups)))
        with pytest.raises(RefusedError, match="no rule for"):
            admit(mx.Compose((groups.T, other)))
    assert admit(mx.Compose((twice, groups))).shape == (1, 4)


@given(st.integers(40, 62), st.integers(0, 2**30))
def test_answers_are_exact_on_both_sides_of_floats(bits, low):
    x = np.array([2**bits - 1 - low, 1, low, 3])
    for a in (mx.Dense([[1, 2, 0, 7], [0, 1, 1, 1]]), mx.PIdentity([1, 5, 1, 3], [[2, 1, 0, 1]])):
        exact = [sum(int(v) * int(w) for v, w in zip(row, x, strict=True)) for row in a.dense()]
        assert answers(a, x).tolist() == exact


FACTORS = st.sampled_from(
    [
        mx.PIdentity([3, 1, 7], [[2, -1, 5], [0, 4, -6]]),
        mx.PIdentity([2**20 + 1, 2**20, 1], [[2**20 - 1, -(2**20), 3]]),
        mx.PIdentity([2**52, 1, 2**53 + 1], [[1, 2**53 + 1, -1]]),
        mx.Dense([[5, -3, 2]]),
        mx.Dense([[2**26 + 1, -(2**26), 1], [2**52 - 1, 1, 0], [0, 0, 0]]),
        mx.Dense([[2**61, -(2**61), 2**62 - 1]]),
        mx.Dense(np.zeros((2, 3), dtype=int)),
        mx.Scaled(-(2**33), mx.PIdentity([1, 1, 2], [[1, 0, 1]])),
        mx.Diagonal([0, -(2**40), 3]),
        mx.Prefix(3),
        mx.Identity(3),
        mx.total(3),
        mx.Haar(3),
    ]
)


def in_python(a, x):
    """A x by Python's integers alone; of a product, axis by axis."""
    if isinstance(a, mx.Kron):
        for factor in reversed(a.factors):
            rows = np.array(
                [in_python(factor, column) for column in x.reshape(-1, 3)], dtype=object
            )
            x = rows.reshape(len(x) // 3, -1).T.reshape(-1)  # the axis that was last comes first
        return x
    if isinstance(a, mx.Scaled):
        return [a.factor * v for v in in_python(a.base, x)]
    rows = {
        mx.Dense: lambda: a.array.tolist(),
        mx.PIdentity: lambda: np.diag(a.diagonal).tolist() + a.rows.tolist(),
        mx.Diagonal: lambda: np.diag(a.weights).tolist(),
    }
    listed = rows[type(a)]() if type(a) in rows else a.dense().astype(int).tolist()
    return [sum(int(w) * int(v) for w, v in zip(row, x, strict=True)) for row in listed]


@given(
    factors=st.lists(FACTORS, min_size=1, max_size=3),
    size=st.sampled_from([1, 9, 2**20, 2**40, 2**53 + 1, 2**62]),
    seed=st.integers(0, 9),
)
def test_products_answer_as_python_integers_do(factors, size, seed):
    """Rows and counts on both sides of every limit: of floats, of limbs, of 64 bits."""
    x = np.random.default_rng(seed).integers(-size, size + 1, 3 ** len(factors))
    a = admit(mx.Kron(tuple(factors)))
    assert answers(a, x).tolist() == list(in_python(a, x))
    assert answers(a, np.abs(x)).tolist() == list(in_python(a, np.abs(x)))
    weighted = admit(mx.Stack((mx.Scaled(-5, a), a)))
    assert answers(weighted, x).tolist() == [c * v for c in (-5, 1) for v in in_python(a, x)]


def test_long_vectors_are_bounded_piece_by_piece():
    x = np.full(200_000, -(2**62))
    x[::2] = 2**62 - 1
    assert answers(mx.total(200_000), x).tolist() == [-100_000]
    assert answers(mx.Dense(np.ones((1, 200_000), dtype=int)), x).tolist() == [-100_000]


def test_answers_never_wrap_around():
    x = np.array([2**61, 2**61, 5])
    assert answers(mx.Prefix(3), x).tolist() == [2**61, 2**62, 2**62 + 5]
    assert answers(mx.Scaled(2**40, mx.Prefix(3)), x)[-1] == 2**40 * (2**62 + 5)
    assert answers(mx.Dense([[-1, -1, 0]]), x).tolist() == [-(2**62)]
    high = mx.Scaled(2**61, mx.Identity(1))
    nothing = mx.Kron((high, high, mx.Dense([[0]])))
    assert answers(mx.Stack((nothing, mx.Identity(1))), np.array([5])).tolist() == [0, 5]


def test_a_product_with_zero_at_its_end_answers_zero_whatever_is_counted():
    """On the way the numbers pass what floats can hold, and infinity times zero is none."""
    huge = mx.Kron((mx.Dense([[2**62]]),) * 17 + (mx.Dense([[0]]),))
    for x in (0, 1, 2**40):
        assert answers(admit(huge), np.array([x])).tolist() == [0]


def test_boxes_of_many_dimensions_are_counted_exactly_beside_dense_rows():
    grid = (2,) * 12
    boxes = mx.Ranges(grid, np.ones((1, 12), dtype=int), np.ones((1, 12), dtype=int))
    both = admit(mx.Stack((boxes, mx.Dense(np.ones((1, 2**12), dtype=int)))))
    for seed in range(5):
        x = np.random.default_rng(seed).integers(0, 2**36, 2**12)
        assert answers(both, x).tolist() == [x[-1], x.sum()]


def test_a_block_of_zeros_may_have_any_weight():
    query = Query.of([(mx.Dense([[0, 0]]), 2**80), (mx.Prefix(2), 1)])
    assert sensitivity(query, 1) == sensitivity(query, 2) == 2


class Liar(mx.Dense):
    """A matrix that hides its size from whoever asks."""

    def abs(self):
        return mx.Dense(np.zeros(self.array.shape, dtype=int))

    def column_norms(self, p):
        return np.zeros(self.shape[1])

    sqr = abs


@pytest.mark.parametrize(
    "matrix",
    [
        Liar([[10**6]]),
        mx.Dense([[0.5]]),
        mx.PIdentity.of([[1.0]]),
        mx.Identity(3).gram() + mx.Identity(3),
        mx.Compose((mx.Identity(2), mx.Prefix(2))),
        mx.Haar(4).pinv(),
        mx.Kron((mx.Identity(2), Liar([[7]]))),
        mx.Stack((mx.Identity(1), Liar([[7]]))),
        mx.Scaled(0.5, mx.Identity(2)),
        mx.Dense(np.array([[2**63 + 1]], dtype=np.uint64)),
        mx.AllRange(3).T,
        mx.Marginals.of((2,), {(0,): 2**70}),  # fails in 64 bits, which empty data would get
        mx.Haar(4, -1.0),  # answers would be floats
    ],
)
def test_what_has_no_rule_is_refused(matrix):
    with pytest.raises(RefusedError):
        admit(matrix)


def test_a_lying_query_is_refused():
    class Smooth(Query):
        pass

    with pytest.raises(RefusedError):
        admit_query(Smooth.of(mx.Identity(2)))


def test_arrays_are_copied_before_they_are_checked():
    held = mx.Dense(np.array([[1, 1]]))
    own = admit(held)
    held.array.setflags(write=True)
    held.array[:] = 10**6
    assert columns(own, 1).max() == 1
    assert answers(own, np.array([1, 1])).tolist() == [2]
    entries = sp.csr_array(np.array([[1, 1]]))
    matrix = mx.Sparse(entries)
    copy = admit(matrix)
    matrix.entries.data.setflags(write=True)
    matrix.entries.data[:] = 10**6
    assert columns(copy, 1).max() == 1


def test_stability_is_the_largest_column():
    assert stability(mx.Scaled(10**6, mx.Identity(2))) == 10**6
    assert stability(mx.Partition([0, 0, 1])) == 1
    assert stability(mx.Dense([[1, 1], [1, -1]])) == 2


def test_weights_have_a_short_form():
    assert rounded_weight(0.1) == Fraction(838861, 2**23)
    assert rounded_weight(3.0) == 3
    assert rounded_weight(1 - 2.0**-40) == 1
    for bad in ("1/3", Fraction(2**20 + 1)):
        with pytest.raises(RefusedError, match="below 2"):
            Query.of([(mx.Identity(2), bad)])
    with pytest.raises(RefusedError, match="at least one"):
        Query(())
    with pytest.raises(RefusedError, match="share one width"):
        Query.of([(mx.Identity(2), 1), (mx.Identity(3), 1)])


@st.composite
def sums_over_grid(draw):
    """Weights, and for each axis the numbers by which its values multiply every product."""
    products, big = draw(st.integers(1, 4)), draw(st.sampled_from([1, 1, 2**40]))
    number = st.integers(0, 4).map(lambda n: n * big)
    axes = [
        np.array(
            draw(
                st.lists(
                    st.lists(number, min_size=products, max_size=products), min_size=2, max_size=5
                )
            )
        ).T
        for _ in range(draw(st.integers(1, 4)))
    ]
    weights = draw(st.lists(st.integers(0, 3), min_size=products, max_size=products))
    return weights, axes


def column_sums(weights, axes):
    """The sum of every cell, in Python's integers."""
    cells = np.array(weights, dtype=object)[:, None]
    for axis in axes:
        cells = (cells[:, :, None] * axis.astype(object)[:, None, :]).reshape(len(weights), -1)
    return cells.sum(axis=0)


@given(sums_over_grid())
def test_largest_sums(terms):
    assert _largest_sum(*terms) == column_sums(*terms).max()


@given(terms=sums_over_grid(), most=st.integers(1, 40))
def test_bounds_in_place_of_largest_sums_are_never_below_them(terms, most):
    """Where cells are too many, noise is for a bound that is close, or nothing is measured."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "MOST_CASES", most)
        exact = column_sums(*terms).max()
        with contextlib.suppress(RefusedError):
            assert exact <= _largest_sum(*terms) <= exact * 1.001


def test_products_over_many_cells_need_no_vector():
    """Of 10^15 cells the one with the largest values is not the largest of all."""
    rng = np.random.default_rng(0)
    sums = [rng.integers(1, 900, 1000) for _ in range(5)]
    falling = mx.Stack((mx.Prefix(1000), mx.Partition(np.arange(1000) // 7)))
    krons = [
        mx.Kron(
            tuple({i: mx.Diagonal(sums[i]), j: falling}.get(k, mx.total(1000)) for k in range(5))
        )
        for i in range(5)
        for j in ((i + 1) % 5, (i + 2) % 5)
    ]
    for p in (1, 2):
        found = sensitivity(admit_query(Query.of([(kron, 1) for kron in krons])), p)
        fall = columns(falling, p)
        cell = [int(np.argmax(each.astype(float) ** p)) for each in sums]
        single = max(int(s.max()) ** p for s in sums)
        lower = sum(
            int(sums[i][cell[i]]) ** p * int(fall[cell[j]])
            for i in range(5)
            for j in ((i + 1) % 5, (i + 2) % 5)
        )
        assert lower <= found <= 10 * single * int(fall.max())


def test_a_vector_of_columns_is_counted_before_it_is_made():
    wide = mx.Kron((mx.Prefix(10**5), mx.Prefix(10**5)))
    other = mx.Kron((mx.Prefix(10**4), mx.Prefix(10**6)))
    with pytest.raises(RefusedError, match="10,000,000,000 cells; measure it in several requests"):
        sensitivity(Query.of([(wide, 1), (other, 1)]), 1)
