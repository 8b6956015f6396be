"""No Gaussian mechanism is below the limit, and strategies come close to it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import psephos as ps
from psephos.strategy import limits
from psephos.strategy.gram_terms import GramTerms

QUERIES = [ps.identity(), ps.prefix(), ps.all_range(), ps.total(), ps.ranges([(0, 0), (0, 1)])]


def weighted_gram(workload):
    """WᵀW on all cells."""
    terms = GramTerms.of(workload).whole()
    return terms.times(np.eye(terms.n))


def root_trace(gram, law):
    scale = np.sqrt(law)
    return np.sqrt(np.maximum(np.linalg.eigvalsh(scale[:, None] * gram * scale), 0)).sum()


def best_bound(gram, rounds=400):
    """The best λ for all cells at once: what any Gaussian strategy errs by at least."""
    law, best = np.full(len(gram), 1 / len(gram)), 0.0
    for _ in range(rounds):
        scale = np.sqrt(law)
        values, vectors = np.linalg.eigh(scale[:, None] * gram * scale)
        roots = np.sqrt(np.maximum(values, 0))
        best = max(best, roots.sum() ** 2)
        law = (vectors**2) @ roots
        law /= law.sum()
    return best


@st.composite
def unions(draw):
    sizes = draw(st.lists(st.integers(2, 5), min_size=1, max_size=3))
    names = "abc"[: len(sizes)]
    products = []
    for _ in range(draw(st.integers(1, 3))):
        sets = {n: draw(st.sampled_from(QUERIES)) for n in names if draw(st.booleans())}
        products.append(ps.product(**sets, weight=draw(st.sampled_from([1.0, 2.0, 0.5]))))
    return ps.Workload(ps.Domain.of(dict(zip(names, sizes, strict=True))), products)


@settings(max_examples=60, deadline=None)
@given(unions())
def test_the_limit_is_below_the_best_and_not_far(workload):
    gram = weighted_gram(workload)
    limit, best = limits.gaussian_limit(workload), best_bound(gram)
    assert limit <= best * (1 + 1e-6)
    assert limit >= 0.85 * best
    n = len(gram)
    assert_allclose(limits.svd_bound(workload), root_trace(gram, np.full(n, 1 / n)) ** 2, rtol=1e-6)


@settings(max_examples=60, deadline=None)
@given(unions(), st.integers(0, 2**32 - 1))
def test_pieces_of_scaled_grams_add_up(workload, seed):
    """With any product of laws, uneven ones above all, tuples of pieces have the roots of all."""
    rng = np.random.default_rng(seed)
    laws = [rng.dirichlet(np.ones(n)) for n in workload.domain.shape]
    for i, axis in enumerate(limits._factors_by_axis(workload)):
        if all(limits._is_table(w) for w in axis):
            laws[i] = np.full(laws[i].size, 1 / laws[i].size)  # in closed form, for even laws
    by_axis = limits._factors_by_axis(workload)
    axes = [limits._axis(w, law) for w, law in zip(by_axis, laws, strict=True)]
    for axis, law in zip(axes, laws, strict=True):
        assert sum(piece.size * piece.copies for piece in axis.pieces) == law.size
    whole = laws[0]
    for law in laws[1:]:
        whole = np.multiply.outer(whole, law).ravel()
    expected = root_trace(weighted_gram(workload), whole) ** 2
    assert_allclose(limits._bound(axes, limits._squares(workload)), expected, rtol=1e-6)


def test_blocks_of_unscaled_grams_would_be_wrong():
    """A 4 x 3 union whose optimum is below what blocks of Grams give that λ was left out of."""
    domain = ps.Domain.of(a=4, b=3)
    union = [ps.product(a=ps.prefix(), b=ps.prefix()), ps.product(a=ps.prefix()), ps.product()]
    workload = ps.Workload(domain, union)
    assert limits.gaussian_limit(workload) <= best_bound(weighted_gram(workload)) * (1 + 1e-6)


def test_equal_pieces_are_counted_once():
    domain = ps.Domain.of(a=6, b=40)
    union = [ps.product(a=ps.prefix(), b=ps.identity()), ps.product(b=ps.identity()), ps.product()]
    by_axis = limits._factors_by_axis(ps.Workload(domain, union))
    axis = limits._axis(by_axis[1], np.full(40, 1 / 40))
    assert sorted((piece.size, piece.copies) for piece in axis.pieces) == [(1, 1), (1, 39)]


@pytest.mark.parametrize("name", ["prefix", "all_range"])
def test_one_attribute_of_256_is_met(name):
    workload = ps.Workload(ps.Domain.of(a=256), [ps.product(a=getattr(ps, name)())])
    error = ps.select.hdmm(workload, "gaussian", restarts=1).expected_error(workload)
    assert 1 - 1e-6 <= math.sqrt(error / limits.gaussian_limit(workload)) < 1.005


def test_what_is_too_wide_is_bounded_by_its_largest_product(monkeypatch):
    domain = ps.Domain.of(a=5, b=5)
    union = [ps.product(a=ps.prefix(), b=ps.prefix()), ps.product(a=ps.identity())]
    workload = ps.Workload(domain, union)
    limit = limits.gaussian_limit(workload)
    monkeypatch.setattr(limits, "MOST_WORK", 0)
    looser = limits.gaussian_limit(workload)
    first = ps.Workload(domain, union[:1])
    assert limits.svd_bound(first) * (1 - 1e-9) <= looser < limit


def test_sizes_are_refused_before_memory_is_taken(monkeypatch):
    long = ps.Workload(ps.Domain.of(a=7000), [ps.product(a=ps.prefix())])
    with pytest.raises(ps.TooLargeError, match="a Gram of 7,000"):
        limits.gaussian_limit(long)
    monkeypatch.setattr(limits, "MOST_TUPLES", 0)
    union = [ps.product(a=ps.prefix(), b=ps.prefix()), ps.product(a=ps.identity())]
    with pytest.raises(ps.TooLargeError, match="combinations"):
        limits.gaussian_limit(ps.Workload(ps.Domain.of(a=5, b=5), union))


def test_unions_over_many_cells_come_near_the_limit():
    """Prefixes of one attribute beside tables of others, over more cells than are ever listed."""
    domain = ps.Domain.of(diagnosis=20, age=105, sex=2, month=12, ward=30, stay=60)
    cells = ps.identity_total()
    fives = ps.ranges([(i, i + 4) for i in range(0, 105, 5)])
    sites = ps.ranges([(0, 7), (8, 14), (15, 22), (23, 29)])
    products = [
        ps.product(diagnosis=cells, age=fives, sex=cells),
        ps.product(diagnosis=cells, month=cells),
        ps.product(ward=cells, month=cells),
        ps.product(ward=sites, diagnosis=cells),
        ps.product(stay=ps.prefix()),
        ps.product(stay=ps.prefix(), diagnosis=ps.identity()),
        ps.product(age=cells),
    ]
    workload = ps.Workload(domain, products)
    error = ps.select.hdmm(workload, "gaussian").expected_error(workload)
    assert error <= 1.01 * limits.gaussian_limit(workload)
