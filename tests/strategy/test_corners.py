"""Selection at the edge: extreme weights, fractions, huge domains, numpy's numbers."""

import math
import time

import numpy as np
import pytest
from numpy.testing import assert_allclose

import psephos as ps
from psephos.inverse.merged_cells import Merging
from psephos.matrix import Identity

GRID = ps.Domain.of(a=4, b=3)
CDF = ps.Workload(GRID, [ps.product(a=ps.prefix())])


def two_weights(weight):
    both = [ps.product(a=ps.prefix(), weight=weight), ps.product(b=ps.identity())]
    return ps.Workload(GRID, both)


@pytest.mark.parametrize("weight", [1e-300, 1e-101, 1e101, 1e300])
def test_weights_whose_squares_would_overflow_are_refused(weight):
    with pytest.raises(ps.WorkloadError, match="a weight lies between 1e-100 and 1e"):
        two_weights(weight)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("weight", [1e-100, 1e-30, 1e30, 1e100])
def test_extreme_weights_select_what_still_answers_everything(weight, noise):
    workload = two_weights(weight)
    heavy = 0 if weight > 1 else 1
    alone = ps.Workload(GRID, [workload.products[heavy]])
    best = ps.select.hdmm(alone, noise, restarts=1).product_errors(alone)[0]
    strategy = ps.select.hdmm(workload, noise, restarts=1)
    errors = strategy.product_errors(workload)
    assert np.isfinite(errors).all()
    assert errors[heavy] <= best * 1.001
    assert math.isfinite(strategy.expected_error(workload))
    assert math.isfinite(ps.select.workload(workload, noise).expected_error(workload))


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_only_the_ratios_of_weights_matter(noise):
    one, other = (
        ps.Workload(GRID, [ps.product(a=ps.prefix(), weight=w), ps.product(weight=w / 3)])
        for w in (1.0, 2.0**40)
    )
    assert ps.select.hdmm(one, noise, restarts=1).query == (
        ps.select.hdmm(other, noise, restarts=1).query
    )


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_masks_with_short_fractions_are_measured_in_whole_numbers(noise):
    """Halves and thirds become sixths: the mechanism on the queries themselves."""
    masks = np.array([[0.5, 0, 1, 0], [1 / 3, 1, 0, 0.1]])
    workload = [ps.product(a=ps.masks(masks), weight=2.0), ps.product(b=ps.identity())]
    workload = ps.Workload(GRID, workload)
    strategy = ps.select.workload(workload, noise)
    assert strategy.query.blocks[0].matrix.entry_type.kind == "i"
    assert_allclose(strategy.query.blocks[0].matrix.factors[0].dense(), 30 * masks)
    power = 1.0 if noise == "laplace" else 0.5
    a = np.vstack([float(b.weight) ** power * b.matrix.dense() for b in strategy.query.blocks])
    asked_rows = workload.matrix.dense()
    assert_allclose(a / np.abs(a).max(), asked_rows / np.abs(asked_rows).max(), rtol=1e-5)


def test_masks_without_a_common_denominator_are_refused():
    for entry in (2**0.5, 1e-9, 1e9 + 0.5):
        workload = ps.Workload(GRID, [ps.product(a=ps.masks([[entry, 1, 0, 0]]))])
        with pytest.raises(ps.WorkloadError, match="no common denominator"):
            ps.select.workload(workload)
        ps.select.hdmm(workload, restarts=1)


@pytest.mark.parametrize("maker", ["h2", "hb", "greedy_h"])
def test_trees_over_huge_domains_are_refused_at_once(maker):
    many = ps.marginals(ps.Domain.of({f"a{i}": 10 for i in range(100)}), k=1)
    long = ps.Workload(ps.Domain.of(a=10**12), [ps.product()])
    begin = time.monotonic()
    with pytest.raises(ps.TooLargeError, match=r"10\^100 or more .* use select.hdmm"):
        getattr(ps.select, maker)(many)
    with pytest.raises(ps.TooLargeError, match="attribute 'a' has 1,000,000,000,000 cells"):
        getattr(ps.select, maker)(long)
    assert time.monotonic() - begin < 1


@pytest.mark.parametrize("maker", ["hdmm", "opt0", "opt_product", "opt_marginals", "tied"])
def test_searches_refuse_attributes_that_are_too_long(maker):
    long = ps.Workload(ps.Domain.of(a=10**12), [ps.product()])
    with pytest.raises(ps.TooLargeError, match="declare bins"):
        getattr(ps.select, maker)(long)


def test_numpy_numbers_are_numbers():
    plain = ps.select.hdmm(CDF, restarts=2, seed=3, cores=1)
    given = {"restarts": np.int32(2), "seed": np.uint8(3), "cores": np.int64(1)}
    assert ps.select.hdmm(CDF, **given, time_limit=np.float32(60)) == plain
    assert ps.select.hb(CDF, branching=np.int64(2)) == ps.select.hb(CDF, branching=2)
    for name in ("restarts", "seed", "cores"):
        for wrong in (np.float64(2), -1, True, "2"):
            with pytest.raises(ps.WorkloadError, match=f"{name} is a whole number"):
                ps.select.hdmm(CDF, **{name: wrong})
    with pytest.raises(ps.WorkloadError, match="time_limit is a positive number"):
        ps.select.hdmm(CDF, time_limit=np.int64(0))


def test_a_domain_of_one_cell_has_a_strategy():
    domain = ps.Domain.of(a=1, b=1)
    for noise in ("laplace", "gaussian"):
        strategy = ps.select.hdmm(ps.marginals(domain, k=1), noise, restarts=1)
        assert_allclose(strategy.product_errors(ps.marginals(domain, k=1)), 1)


def test_only_products_are_merged_by_attribute():
    merging = Merging((np.array([0, 0]),) * 2, (np.array([0]),) * 2)
    with pytest.raises(ps.ShapeError, match="no product"):
        merging.blocks([Identity(4)])
