"""Selection where domains or attributes are large: products beyond any vector, trees as factors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

import psephos as ps
from psephos.matrix import AllRange, Dense, Identity, Prefix, Stack, WidthRange, total
from psephos.strategy.deadline import Deadline
from psephos.strategy.factors import PureFactor
from psephos.strategy.fixed.baselines import direct_error
from psephos.strategy.hdmm import operators, product
from psephos.strategy.hdmm.axis_tree import tree_factor
from psephos.strategy.hdmm.range_tree import (
    TreeFactor,
    hb_levels,
    improve_range_tree,
    optimise_range_tree,
    tree_error,
    uniform_tree,
)
from psephos.variances import NoiseKind

NOISES = list(NoiseKind)


# ---- domains larger than any vector -----------------------------------------------------------


@pytest.mark.slow
def test_a_product_is_scored_beyond_any_vector():
    """The error of a product is a product: four lines alike, though 4.3e9 cells in all."""
    line = ps.Workload(ps.Domain.of(a=256), [ps.product(a=ps.prefix())])
    four = ps.Workload(
        ps.Domain.of(dict.fromkeys("abcd", 256)), [ps.product(**dict.fromkeys("abcd", ps.prefix()))]
    )
    alone = ps.select.hdmm(line, restarts=1)
    factors = alone.query.blocks[0].matrix.factors
    powers = ps.Strategy(four.domain, "laplace", ps.Query.of(ps.matrix.Kron(factors * 4)))
    error = alone.expected_error(line) ** 4
    assert_allclose(powers.expected_error(four), error)
    strategy = ps.select.hdmm(four, restarts=1)
    assert strategy.name == "OPT_⊗"
    assert strategy.expected_error(four) < 1.05 * error
    assert not strategy.is_reconstructible
    with pytest.raises(ps.TooLargeError, match="4,294,967,296 cells is over the limit"):
        strategy.check_reconstructible()


def test_what_can_be_estimated_from_comes_first(monkeypatch):
    """Parts that can be held, if a product over all cells could not be."""
    domain = ps.Domain.of(a=32, b=32, c=32)
    pairs = [("a", "b"), ("a", "c"), ("b", "c")]
    workload = ps.Workload(
        domain, [ps.product(**dict.fromkeys(pair, ps.prefix())) for pair in pairs]
    )
    assert ps.select.opt_product(workload, restarts=1).is_reconstructible
    monkeypatch.setattr("psephos.inverse.form.VECTOR_LIMIT", 5000)
    assert not ps.select.opt_product(workload, restarts=1).is_reconstructible
    small = ps.select.hdmm(workload, restarts=1)
    assert small.is_reconstructible
    assert small.name in ("OPT_M", "OPT_+")
    error = small.expected_error(workload)
    assert all(rival.error >= error for rival in small.rivals if rival.name != "workload")


# ---- trees as factors --------------------------------------------------------------------------


def weighted_error(factor, queries):
    """Σ c·tr(Y⁻¹WᵀW) from arrays, with every column of norm one at most."""
    a = factor.matrix.dense()
    inverse = np.linalg.inv(a.T @ a)
    return sum(c * np.trace(inverse @ w.dense().T @ w.dense()) for c, w in queries)


QUERIES = {
    "prefixes": [(1.0, Prefix(60))],
    "several": [(2.0, Prefix(60)), (0.5, Identity(60)), (0.1, AllRange(60)), (3.0, total(60))],
    "stacked": [(1.0, Stack((3 * Prefix(60), Identity(60))))],
    "windows": [(1.0, WidthRange(60, 25)), (0.3, Prefix(60))],
}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("name", QUERIES)
def test_a_tree_for_weighted_queries_is_better_than_identity_and_as_it_says(name, noise):
    queries = QUERIES[name]
    factor = tree_factor(queries, 60, noise)
    assert isinstance(factor, TreeFactor)
    norms = (abs(factor.matrix.dense()) ** noise.norm).sum(axis=0)
    assert norms.max() == pytest.approx(1)
    error = sum(c * factor.inverse.trace_with(w) for c, w in queries)
    assert error == pytest.approx(weighted_error(factor, queries))
    assert error < sum(c * np.trace(w.dense().T @ w.dense()) for c, w in queries)
    uniform = TreeFactor(uniform_tree(hb_levels(60), AllRange(60), 60, noise=noise))
    assert error <= weighted_error(uniform, queries) * (1 + 1e-9)


@pytest.mark.parametrize("noise", NOISES)
def test_identity_where_no_tree_helps_or_none_has_a_closed_form(noise):
    for queries in (
        Identity(60),
        WidthRange(60, 1),
        Dense(np.random.default_rng(0).random((9, 60))),
    ):
        factor = tree_factor([(1.0, queries)], 60, noise)
        assert isinstance(factor, PureFactor)
        assert not len(factor.theta)


@pytest.mark.parametrize("noise", NOISES)
def test_a_tree_is_improved_for_other_queries_from_where_it_stands(noise):
    tree = optimise_range_tree(
        AllRange(300), 300, noise=noise, rng=np.random.default_rng(0), lists=[(6, 50)]
    )
    before = tree_error(tree.levels, tree.weights, Prefix(300), 300, noise=noise)
    better = improve_range_tree(tree, Prefix(300))
    assert better.fanouts == tree.fanouts
    assert better.error < 0.99 * before
    after = tree_error(better.levels, better.weights, Prefix(300), 300, noise=noise)
    assert better.error == pytest.approx(after)
    assert improve_range_tree(better, Prefix(300), deadline=Deadline(0.0)).error <= better.error
    factor = tree_factor([(1.0, Prefix(300))], 300, noise, current=TreeFactor(tree))
    assert factor.tree.error == pytest.approx(better.error)


@pytest.mark.parametrize("noise", NOISES)
def test_products_with_trees_are_measured_and_estimated_like_others(noise, monkeypatch):
    """Long attributes, here of more than eight cells, get trees; all else is as ever."""
    monkeypatch.setattr(product, "LONGEST_AXIS", dict.fromkeys(NoiseKind, 8))
    domain = ps.Domain.of(a=50, b=3)
    workload = ps.Workload(
        domain,
        [
            ps.product(a=ps.prefix(), b=ps.identity()),
            ps.product(a=ps.all_range(), weight=0.2),
            ps.product(a=ps.identity(), b=ps.prefix()),
        ],
    )
    strategy = ps.select.opt_product(workload, noise, restarts=1)
    a = np.vstack([block.matrix.dense() for block in strategy.query.blocks])
    assert len(a) > domain.size
    size = (abs(a) ** noise.norm).sum(axis=0).max() ** (2 / noise.norm)
    inverse = np.linalg.inv(a.T @ a)
    queries = workload.matrix.dense()
    expected = size * np.trace(inverse @ queries.T @ queries)
    assert_allclose(strategy.expected_error(workload), expected, rtol=1e-7)
    assert expected < ps.select.identity(workload, noise).expected_error(workload)
    # With next to no noise the estimate is the truth.
    spend = ps.epsilon("1e6") if noise is NoiseKind.LAPLACE else ps.rho("1e9")
    counts = np.arange(domain.size) % 7
    table = ps.simulate(counts, domain, unit=ps.add_remove_row(), budget=spend, seed=0)
    estimate = ps.infer.least_squares(table.vectorise().measure(strategy.query, spend=spend))
    assert_allclose(estimate.vector, counts, atol=1e-3)


@pytest.mark.parametrize(("noise", "least"), [("laplace", 8.95), ("gaussian", 23.6)])
def test_a_long_attribute_beside_another(noise, least):
    """As good as alone: 8.99 and 23.7 for prefixes of 20,000 cells (HB: 7.26 and 12.6)."""
    domain = ps.Domain.of(a=20_000, b=5)
    workload = ps.Workload(domain, [ps.product(a=ps.prefix(), b=ps.identity())])
    strategy = ps.select.hdmm(workload, noise, restarts=1)
    errors = [s.expected_error(workload) for s in (ps.select.identity(workload, noise), strategy)]
    assert (errors[0] / errors[1]) ** 0.5 > least


def test_residuals_of_long_attributes_are_not_written_out(monkeypatch):
    monkeypatch.setattr(operators, "RESIDUAL_AXIS", 9)
    workload = ps.marginals(ps.Domain.of(a=10, b=3), k=1)
    with pytest.raises(ps.UnsupportedError, match="residual does not fit"):
        ps.select.residual(workload)
    assert ps.select.hdmm(workload, "gaussian", restarts=1).name != "residual"


# ---- the workload itself -----------------------------------------------------------------------


@pytest.mark.parametrize("noise", list(NoiseKind))
@pytest.mark.parametrize(
    ("tables", "meeting"),
    [
        ([{"a": ps.prefix(), "b": ps.prefix()}, {"a": ps.identity()}], True),
        ([{"a": ps.all_range()}, {"a": ps.prefix(), "b": ps.identity()}], False),
        ([{"a": ps.identity()}, {"b": ps.identity()}], True),
    ],
)
def test_noise_on_the_workload_itself_at_any_size(tables, meeting, noise, monkeypatch):
    """Its largest column is found axis by axis where one cell is largest in all products."""
    domain = ps.Domain.of(a=6, b=5)
    workload = ps.Workload(domain, [ps.product(t, weight=2.0) for t in tables])
    columns = np.abs(workload.matrix.dense()) ** noise.norm
    size = columns.sum(axis=0).max()
    exact = (size**2 if noise.norm == 1 else size) * workload.shape[0]
    assert_allclose(direct_error(workload, noise), exact)
    monkeypatch.setattr("psephos.strategy.fixed.baselines.LISTED_CELLS", 1)
    bound = direct_error(workload, noise)
    assert bound >= exact * (1 - 1e-12)
    assert (bound > exact * (1 + 1e-9)) == (not meeting)


def test_cells_are_compared_only_where_more_than_values_can_merge(monkeypatch):
    """Without values that a product sees nothing of, cells merge by attribute or not at all."""
    domain = ps.Domain.of(a=300, b=100)
    lower = ps.ranges([(i, i) for i in range(150)])
    upper = ps.ranges([(i, i) for i in range(150, 300)])
    partly = ps.Workload(domain, [ps.product(a=lower, b=ps.identity()), ps.product(a=upper)])
    flat = operators.SelectionProblem.of(partly, NoiseKind.LAPLACE).flat
    assert flat is not None
    assert flat.domain.size == 150 * 100 + 150

    full = ps.Workload(domain, [ps.product(a=ps.prefix(), b=ps.identity()), ps.product(a=lower)])
    everywhere = ps.Workload(domain, [ps.product(a=ps.prefix(), b=ps.prefix())])
    assert operators.SelectionProblem.of(full, NoiseKind.LAPLACE).flat is None
    monkeypatch.delattr(ps.Workload, "reduce_cells")
    assert operators.SelectionProblem.of(everywhere, NoiseKind.LAPLACE).flat is None
