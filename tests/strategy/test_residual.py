"""Residual matrices under Gaussian noise: the SVD bound, and the errors published for it."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from psephos.domain.domain import Domain
from psephos.errors import ShapeError
from psephos.inverse.subspaces import Subspaces
from psephos.kernel.query import Query
from psephos.matrix import Kron
from psephos.strategy.hdmm.residual import (
    largest_variance_weights,
    residual_blocks,
    residual_error,
    residual_matrix,
)
from psephos.workload import marginals
from psephos.workload.product import rounded_weight

ADULT = (85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2)
CPS = (50, 100, 7, 4, 2)


def domain_of(shape):
    return Domain.of({f"a{i}": n for i, n in enumerate(shape)})


def up_to(d, k):
    return [s for j in range(k + 1) for s in combinations(range(d), j)]


def dense_parts(shape, blocks):
    """Δ² and AᵀV⁻¹A with V = Δ²/w per block (ρ = 1/2)."""
    parts = [(residual_matrix(shape, s).dense(), w) for s, w in blocks]
    delta = max(sum(w * (a**2).sum(axis=0) for a, w in parts))
    return delta, sum(w / delta * a.T @ a for a, w in parts)


@pytest.mark.parametrize("shape", [(3, 4, 2), (2, 1, 5), (4,)])
def test_error_is_the_svd_bound(shape):
    for k in range(len(shape) + 1):
        workload = marginals(domain_of(shape), up_to=k)
        traces = workload.subset_traces()
        w = workload.matrix.dense()
        singular = np.linalg.svd(w, compute_uv=False)
        bound = singular.sum() ** 2 / w.shape[1]
        assert_allclose(residual_error(shape, traces), bound)
        _, x = dense_parts(shape, residual_blocks(shape, traces))
        assert_allclose(np.trace(np.linalg.pinv(x) @ (w.T @ w)), bound)


@given(shape=st.lists(st.integers(1, 5), min_size=1, max_size=3), data=st.data())
def test_residual_matrices(shape, data):
    axes = tuple(i for i in range(len(shape)) if data.draw(st.booleans()))
    a = residual_matrix(shape, axes)
    norms = a.column_norms(2) ** 2
    assert_allclose(norms, math.prod(shape[i] * (shape[i] - 1) for i in axes))
    scale = math.prod(n**2 if i in axes else n for i, n in enumerate(shape))
    gram = a.gram().dense()
    assert_allclose(gram @ gram, scale * gram)
    assert a.entry_type.kind == "i"


# At ρ = 1/2, add or remove a row; the values that ResidualPlanner's authors report.
@pytest.mark.parametrize(
    ("shape", "k", "rmse"),
    [
        ((10,) * 6, 3, 4.2752),
        ((10,) * 10, 3, 9.3481),
        ((10,) * 15, 3, 17.3782),
        ((10,) * 20, 3, 26.9168),
        ((10,) * 30, 3, 49.7132),
        ((10,) * 50, 3, 107.2581),
        ((10,) * 20, 2, 11.8220),
        ((10,) * 50, 2, 29.2899),
        (CPS, 3, 2.2759),
        (ADULT, 3, 10.6650),
        (ADULT, 2, 6.4111),
    ],
)
def test_published_errors(shape, k, rmse):
    workload = marginals(domain_of(shape), up_to=k)
    error = residual_error(shape, workload.closure_traces())
    assert_allclose(math.sqrt(error / workload.shape[0]), rmse, atol=6e-5)


@pytest.mark.parametrize(
    ("shape", "variance"),
    [((10,) * 6, 26.90), ((10,) * 10, 105.03), ((10,) * 20, 768.94), (ADULT, 253.61)],
)
def test_published_largest_variances(shape, variance):
    _, largest = largest_variance_weights(shape, up_to(len(shape), 3))
    assert_allclose(largest, variance, atol=6e-3)


@pytest.mark.parametrize("shape", [(3, 4, 2), (2, 1, 5)])
def test_largest_variance_is_that_of_the_blocks(shape):
    marginal_sets = [(0, 1), (1, 2), (2,)]
    blocks, largest = largest_variance_weights(shape, marginal_sets)
    delta, x = dense_parts(shape, blocks)
    inverse = np.linalg.pinv(x)
    domain = domain_of(shape)
    names = [tuple(domain.names[i] for i in s) for s in marginal_sets]
    rows = marginals(domain, of=names).matrix.dense()
    variances = np.einsum("ij,jk,ik->i", rows, inverse, rows)
    assert_allclose(variances.max(), largest, rtol=1e-9)
    # No other division of the budget does better: the sum's optimum does not.
    traces = marginals(domain, of=names).subset_traces()
    _, x = dense_parts(shape, residual_blocks(shape, traces))
    other = np.einsum("ij,jk,ik->i", rows, np.linalg.pinv(x), rows)
    assert other.max() >= largest * (1 - 1e-6)
    assert delta > 0


def test_the_kernel_and_inference_take_the_blocks():
    shape = (3, 4, 2)
    workload = marginals(domain_of(shape), up_to=2)
    blocks = residual_blocks(shape, workload.subset_traces())
    query = Query.of([(residual_matrix(shape, s), rounded_weight(w)) for s, w in blocks])
    delta = sum(
        float(block.weight) * float(block.matrix.column_norms(2)[0]) ** 2 for block in query.blocks
    )
    precisions = [float(block.weight) / delta for block in query.blocks]
    space = Subspaces.of(shape, [block.matrix for block in query.blocks], precisions)
    factors = [workload.kron(i).factors for i in range(len(workload.products))]
    error = space.traces(factors).sum()
    assert_allclose(error, residual_error(shape, workload.subset_traces()), rtol=1e-5)
    assert all(isinstance(block.matrix, Kron) for block in query.blocks)


def test_nothing_asked_is_refused():
    with pytest.raises(ShapeError, match="at least one"):
        largest_variance_weights((2, 2), [])
