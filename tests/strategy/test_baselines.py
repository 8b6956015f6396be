"""Rival strategies: exact errors against the dense formula, equal columns, published numbers."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from psephos.domain.domain import Domain
from psephos.errors import TooLargeError, WorkloadError
from psephos.inverse.nested import NestedInverse, nested_inverse
from psephos.inverse.product import axis_inverse
from psephos.kernel import gate
from psephos.kernel.query import Query
from psephos.kernel.sensitivity import sensitivity
from psephos.matrix import Identity, Kron, Partition, Stack
from psephos.strategy.datacube.cuboids import choose
from psephos.strategy.datacube.strategies import datacube
from psephos.strategy.fixed import baselines
from psephos.strategy.fixed.greedy_h import greedy_h
from psephos.strategy.fixed.low_rank import completed, low_rank, project
from psephos.strategy.fixed.matrix_mechanism import matrix_mechanism, round_signed
from psephos.workload.builders import marginals
from psephos.workload.product import product
from psephos.workload.queries import (
    all_range,
    identity,
    identity_total,
    masks,
    permuted,
    prefix,
    total,
    width_range,
)
from psephos.workload.workload import Workload

TREES = [baselines.h2, baselines.hb, baselines.quadtree]
ANY = [baselines.identity, baselines.workload_itself, baselines.privelet, *TREES, greedy_h]
SMALL = [matrix_mechanism, low_rank]


@st.composite
def workloads(draw, most=2):
    """One or two attributes of a few cells, one to three products with small weights."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=most))
    domain = Domain.of({f"a{i}": n for i, n in enumerate(sizes)})
    products = []
    for _ in range(draw(st.integers(1, 3))):
        chosen = {}
        for i, n in enumerate(sizes):
            sets = [identity(), total(), prefix(), all_range(), identity_total()]
            sets += [masks((np.arange(2 * n) % 3 == 0).astype(int).reshape(2, n))]
            sets += [permuted(prefix(), list(range(n))[::-1])]
            chosen[f"a{i}"] = draw(st.sampled_from(sets))
        products.append(product(chosen, weight=draw(st.sampled_from([0.5, 1.0, 2.0]))))
    return Workload(domain, products)


def dense_error(strategy, workload):
    """‖A‖²‖W A⁺‖² from arrays, every block scaled by its weight, or its root (Gaussian)."""
    power = 1 if strategy.noise == "laplace" else 2
    blocks = [float(b.weight) ** (1 / power) * b.matrix.dense() for b in strategy.query.blocks]
    a = np.vstack(blocks)
    w = np.vstack([p.weight * workload.kron(i).dense() for i, p in enumerate(workload.products)])
    norm = (np.abs(a) ** power).sum(axis=0).max() ** (1 / power)
    return norm**2 * ((w @ np.linalg.pinv(a)) ** 2).sum()


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("select", ANY, ids=lambda f: f.__name__)
@settings(max_examples=15)
@given(workload=workloads())
def test_errors_are_exact(select, noise, workload):
    strategy = select(workload, noise)
    gate.admit(strategy.query, "query")
    error = strategy.expected_error(workload)
    assert error == pytest.approx(dense_error(strategy, workload), rel=1e-6)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("select", SMALL, ids=lambda f: f.__name__)
@settings(max_examples=3)
@given(workload=workloads(most=1))
def test_errors_of_searched_strategies_are_exact(select, noise, workload):
    strategy = select(workload, noise)
    gate.admit(strategy.query, "query")
    error = strategy.expected_error(workload)
    assert error == pytest.approx(dense_error(strategy, workload), rel=1e-5)


@pytest.mark.parametrize("select", [*TREES, greedy_h, baselines.privelet], ids=lambda f: f.__name__)
@settings(max_examples=15)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=2))
def test_columns_are_equal(select, sizes):
    domain = Domain.of({f"a{i}": n for i, n in enumerate(sizes)})
    chosen = dict.fromkeys(domain.names, prefix())
    strategy = select(Workload(domain, [product(chosen)]))
    dense = np.vstack([b.matrix.dense() for b in strategy.query.blocks])
    sums = np.abs(dense).sum(axis=0)
    assert sums.max() == sensitivity(strategy.query, 1)
    if select is not baselines.privelet or all(n & (n - 1) == 0 for n in sizes):
        assert (sums == sums[0]).all()


def ratio(select, workload, noise="laplace"):
    base = baselines.identity(workload, noise).expected_error(workload)
    return math.sqrt(base / select(workload, noise).expected_error(workload))


def one(n, queries):
    return Workload(Domain.of(a=n), [product(a=queries)])


# Error ratios to Identity, from those to HDMM that McKenna et al. 2018 print in Table 4a; two
# rounded figures are divided, so they are good to a percent.
@pytest.mark.parametrize(
    ("n", "queries", "wavelet", "hb", "greedy"),
    [
        (128, all_range(), 1.38 / 1.85, 1.38 / 1.38, 1.38 / 1.16),
        (1024, all_range(), 2.36 / 1.83, 2.36 / 1.16, 2.36 / 1.33),
        (8192, all_range(), 4.51 / 1.79, 4.51 / 1.12, 4.51 / 1.67),
        (128, prefix(), 1.80 / 1.78, 1.80 / 1.80, 1.80 / 1.20),
        (1024, prefix(), 3.34 / 1.80, 3.34 / 1.34, 3.34 / 1.49),
        (8192, prefix(), 6.40 / 1.70, 6.40 / 1.20, 6.40 / 2.09),
    ],
    ids=lambda x: x if isinstance(x, int) else "",
)
def test_published_ratios_on_a_line(n, queries, wavelet, hb, greedy):
    workload = one(n, queries)
    assert ratio(baselines.privelet, workload) == pytest.approx(wavelet, rel=0.01)
    assert ratio(baselines.hb, workload) == pytest.approx(hb, rel=0.01)
    # Several decays are tried, so most come out better; AllRange 8192 is 1 % worse.
    assert ratio(greedy_h, workload) >= greedy * 0.985


def test_published_ratios_on_a_grid():
    """Table 4b, R ⊗ R on 256 x 256: Wavelet 3.37 and QuadTree 1.79, Identity 2.64."""
    domain = Domain.of(a=256, b=256)
    workload = Workload(domain, [product(a=all_range(), b=all_range())])
    assert ratio(baselines.privelet, workload) == pytest.approx(2.64 / 3.37, rel=0.015)
    assert ratio(baselines.quadtree, workload) == pytest.approx(2.64 / 1.79, rel=0.015)


def test_width_and_permuted_ranges():
    """Table 3: HB 1.48, Privelet 2.59 on Width 32 (Identity 1.25); GreedyH 2.16 on Permuted."""
    workload = one(1024, width_range(32))
    assert ratio(baselines.privelet, workload) == pytest.approx(1.25 / 2.59, rel=0.01)
    assert ratio(baselines.hb, workload) == pytest.approx(1.25 / 1.48, rel=0.01)
    order = default_rng(0).permutation(1024)
    assert ratio(greedy_h, one(1024, permuted(all_range(), order))) >= 2.36 / 2.16


def test_branching():
    """Qardaji et al. 2013, by brute force over all b in whole numbers."""

    def height(b, n):
        h = 1
        while b**h < n:
            h += 1
        return h

    for n in [1, 2, 3, 5, 16, 64, 100, 125, 256, 512, 1000, 1024, 4096]:
        bs = range(2, max(3, n + 1))
        costs = [3 * (b - 1) * height(b, n) ** 3 - 2 * (b + 1) * height(b, n) ** 2 for b in bs]
        assert baselines.best_branching(n) == bs[int(np.argmin(costs))]
    assert [baselines.best_branching(n) for n in (16384, 1 << 18)] == [26, 23]
    with pytest.raises(WorkloadError, match="at least 2"):
        baselines.hb(one(4, prefix()), branching=1)
    assert len(baselines.hb(one(4, prefix()), branching=2).query.blocks[0].matrix.parts) == 2


def test_trees_over_attributes_of_different_length():
    workload = Workload(Domain.of(a=2, b=8), [product(a=prefix(), b=prefix())])
    levels = baselines.h2(workload).query.blocks[0].matrix.parts
    assert [level.shape[0] for level in levels] == [1, 4, 8, 16]
    flat = baselines.hb(workload).query.blocks[0].matrix
    assert isinstance(flat, Kron)
    assert all(isinstance(factor, Identity) for factor in flat.factors)
    three = Workload(Domain.of(a=2, b=2, c=2), [product()])
    with pytest.raises(WorkloadError, match="one or two"):
        baselines.quadtree(three)
    assert baselines.h2(three).expected_error(three) > 0


def test_trees_are_inverted_as_trees():
    workload = Workload(Domain.of(a=5, b=12), [product(a=prefix(), b=prefix())])
    for select in TREES:
        matrix = select(workload).query.blocks[0].matrix
        assert isinstance(axis_inverse(matrix), NestedInverse) or not isinstance(matrix, Stack)
    (tree,) = greedy_h(one(200, prefix())).query.blocks[0].matrix.factors
    assert isinstance(nested_inverse(tree), NestedInverse)


def test_weights_of_the_workload_count_as_asked():
    workload = Workload(Domain.of(a=3), [product(a=identity(), weight=2.0), product()])
    assert [b.weight for b in baselines.workload_itself(workload).query.blocks] == [2, 1]
    squares = baselines.workload_itself(workload, "gaussian").query.blocks
    assert [b.weight for b in squares] == [4, 1]


def test_greedy_h_merges_cells_and_rounds_little():
    workload = Workload(Domain.of(a=100), [product(a=masks(np.repeat([[1, 0], [0, 1]], 50, 1)))])
    assert greedy_h(workload).query.shape[0] == 2
    assert greedy_h(Workload(Domain.of(a=9), [product()])).query.shape[0] == 1
    for noise in ("laplace", "gaussian"):
        assert greedy_h(one(256, prefix()), noise).rounding_loss < 1e-3


def test_datacube_chooses_few_marginals():
    domain = Domain.of({f"a{i}": 3 for i in range(4)})
    workload = marginals(domain, up_to=2)
    strategy = datacube(workload)
    assert len(strategy.query.blocks) < 11
    direct = baselines.workload_itself(workload).expected_error(workload)
    assert strategy.expected_error(workload) < direct
    assert strategy.expected_error(workload) == pytest.approx(dense_error(strategy, workload))
    assert datacube(workload, "gaussian").expected_error(workload) > 0
    with pytest.raises(WorkloadError, match="for marginals"):
        datacube(Workload(domain, [product(a0=prefix())]))


def test_datacube_over_many_attributes_looks_at_unions():
    requests = {(i,): 1.0 for i in range(12)}
    assert choose((2,) * 12, requests, 2) != [tuple(range(12))]
    assert choose((1000,) * 12, requests, 2) == [(i,) for i in range(12)]


def test_the_reference_optimum():
    """On 16 cells the general search and the convex optimum; AllRange has no better than cells."""
    for queries, least, best in [(prefix(), 1.13, 1.726), (all_range(), 1.0, 1.405)]:
        workload = one(16, queries)
        searched = ratio(lambda w, noise: matrix_mechanism(w, noise, restarts=1), workload)
        assert searched >= least - 1e-9
        assert ratio(matrix_mechanism, workload, "gaussian") == pytest.approx(best, rel=1e-3)
    with pytest.raises(TooLargeError, match="matrix mechanism"):
        matrix_mechanism(one(65, prefix()))


def test_low_rank():
    workload = one(32, prefix())
    assert ratio(low_rank, workload) > 1
    assert ratio(low_rank, workload, "gaussian") == pytest.approx(2.147, rel=0.01)
    with pytest.raises(TooLargeError, match="low-rank"):
        low_rank(one(1025, prefix()))
    assert ratio(low_rank, one(12, width_range(6))) > 0.5  # seven of twelve dimensions


def test_low_rank_reports_and_ends_in_time():
    reports = []
    workload = one(64, prefix())
    strategy = low_rank(workload, time_limit=1e-9, progress=lambda *each: reports.append(each))
    assert strategy.name == "low_rank (time limit)"
    assert not strategy.complete
    error = baselines.identity(workload).expected_error(workload)
    assert [name for name, _ in reports] == ["low_rank"]
    reached = (error / strategy.expected_error(workload)) ** 0.5
    assert reports[0][1] == pytest.approx(reached, rel=0.01)
    strategy = low_rank(workload, steps=5)
    assert strategy.complete


def test_projection_and_completion():
    a = np.array([[3.0, 0.1, -2.0], [0.0, 0.2, 2.0]])
    for power in (1, 2):
        projected = project(a, power)
        assert ((np.abs(projected) ** power).sum(axis=0) <= 1 + 1e-12).all()
        assert np.array_equal(projected[:, 1], a[:, 1])
    assert len(completed(np.array([[1, 1]]), np.eye(2), 1)) == 3
    assert len(completed(np.array([[1, 1]]), np.ones((1, 2)), 1)) == 1
    equal = round_signed(np.array([[0.3, -0.7], [-0.7, 0.3]]), 5)
    assert (np.abs(equal).sum(axis=0) == 32).all()


def test_admitted_by_the_kernel_as_they_are():
    workload = one(6, all_range())
    for select in [*ANY, *SMALL]:
        query = select(workload).query
        assert gate.admit(query, "query") == query
    assert Query.of(Stack((Identity(2), Partition([0, 0])))).shape == (3, 2)
