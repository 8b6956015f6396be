"""Weights of levels and the query within parts: exact errors, and as small as they can be."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import psephos as ps
from psephos.errors import WorkloadError
from psephos.kernel.measurement import noise_for
from psephos.kernel.query import Block, Query
from psephos.kernel.sensitivity import sensitivity
from psephos.matrix import Kron, Partition
from psephos.strategy.fixed.baselines import workload_itself
from psephos.strategy.level_plan import LevelPlan, PartTables, choose_levels
from tests.part_trees import level_matrices, part_trees, tree_of

DOMAIN = ps.Domain.of(a=3, b=2)
CELLS = ps.Workload(DOMAIN, [ps.product(a=ps.identity(), b=ps.identity())])
MIXED = ps.Workload(DOMAIN, [ps.product(a=ps.prefix(), weight=2.0), ps.product(b=ps.identity())])
TREE = tree_of([[3], [4, 1, 2]])
NOISES = st.sampled_from(["laplace", "gaussian"])
UNIT = ps.add_remove_row()


def measure_itself(noise):
    """The workload itself as the query: quick, and good enough where A does not matter."""
    return lambda workload: workload_itself(workload, noise)


def dense_level_errors(plan):
    """Σ over tables of w² tr(W X⁺ Wᵀ), of each level, with everything written out."""
    P, power = level_matrices(plan.tree), plan.noise.power
    size = float(sensitivity(plan.query, plan.noise.norm))
    A = [block.matrix.dense() for block in plan.query.blocks]
    w = [float(block.weight) / size for block in plan.query.blocks]
    inner = sum(c**power * a.T @ a for c, a in zip(w, A, strict=True))
    H = sum(float(s) ** power * p.T @ p for s, p in zip(plan.shares, P, strict=True))
    inverse = np.linalg.pinv(np.kron(H, inner), rcond=1e-11)
    errors = []
    for p, workload in zip(P, plan.tables.workloads, strict=True):
        if workload is None:
            errors.append(0.0)
            continue
        W = np.kron(p, workload.matrix.dense())
        errors.append(np.trace(W @ inverse @ W.T))
    return errors


@pytest.mark.slow
@given(tree=part_trees(most_levels=2, most_children=3), noise=NOISES, data=st.data())
def test_errors_are_exact(tree, noise, data):
    levels = len(tree.names)
    choice = st.sampled_from([CELLS, MIXED, None])
    workloads = data.draw(st.lists(choice, min_size=levels, max_size=levels))
    workloads[data.draw(st.integers(0, levels - 1))] = MIXED
    tables = PartTables(tree, tuple(workloads))
    plan = choose_levels(tables, noise, search=measure_itself(noise))
    assert plan.level_errors == pytest.approx(dense_level_errors(plan), rel=1e-8)
    assert plan.error == pytest.approx(sum(plan.level_errors))
    for level, workload in enumerate(workloads):
        if workload is not None:
            weights = np.array([each.weight**2 for each in workload.products])
            total = weights @ plan.table_errors(level)
            assert total == pytest.approx(plan.level_errors[level])
    below = plan.weights[tables.last + 1 :]
    assert below == (0,) * len(below)
    assert plan.weights[tables.last] > 0


@given(tree=part_trees(), noise=NOISES, alike=st.booleans(), trade=st.booleans())
def test_never_worse_than_equal_weights_or_the_smallest_parts_alone(tree, noise, alike, trade):
    tables = PartTables.levels_alike(tree, CELLS) if alike else PartTables.same(tree, CELLS)
    plan = choose_levels(tables, noise, trade=trade, search=measure_itself(noise))
    errors = {rival.name: rival.error for rival in plan.rivals}
    for name, error in errors.items():
        assert plan.error <= error * (1 + 1e-9), name
    levels = len(tree.names)
    equal = LevelPlan(tables, plan.strategy, (Fraction(1),) * levels)
    assert equal.error == pytest.approx(errors["equal weights"])
    alone = LevelPlan(tables, plan.strategy, (Fraction(0),) * (levels - 1) + (Fraction(1),))
    assert alone.error == pytest.approx(errors["smallest parts alone"])


@pytest.mark.slow
@given(tree=part_trees(), noise=NOISES)
def test_no_level_pays_for_another(tree, noise):
    tables = PartTables.same(tree, CELLS)
    plan = choose_levels(tables, noise, search=measure_itself(noise))
    single = np.array(tree.sizes) * tables.traces(plan.strategy)
    split = single ** (1 / (1 + plan.noise.power))
    apart = single / (split / split.sum()) ** plan.noise.power
    assert (np.array(plan.level_errors) <= apart * (1 + 1e-9)).all()


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("children", [[[3], [4, 1, 2]], [[40], [2] * 40], [[2], [30, 50]]])
def test_no_weights_on_a_grid_are_better(noise, children):
    tables = PartTables.same(tree_of(children), CELLS)
    plan = choose_levels(tables, noise, trade=True, search=measure_itself(noise))
    shares = np.linspace(0, 1, 21)
    for first, second in product(shares, shares):
        if first + second < 0.99:
            weights = [Fraction(round(100 * x)) for x in (first, second, 1 - first - second)]
            rival = LevelPlan(tables, plan.strategy, tuple(weights))
            assert plan.error <= rival.error * (1 + 1e-6)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_query_fits_the_tables_of_all_levels(noise):
    """A level with few parts and other tables moves the query little; alone it decides it."""
    line = ps.Domain.of(age=32)
    ranges = ps.Workload(line, [ps.product(age=ps.prefix())])
    cells = ps.Workload(line, [ps.product(age=ps.identity())])
    tree = tree_of([[30]])
    both = choose_levels(PartTables(tree, (ranges, cells)), noise, restarts=1)
    for search in (
        lambda _: ps.select.hdmm(cells, noise, restarts=1),
        lambda _: ps.select.hdmm(ranges, noise, restarts=1),
    ):
        other = choose_levels(PartTables(tree, (ranges, cells)), noise, search=search)
        assert both.error <= other.error * 1.001
    upper = choose_levels(PartTables(tree, (ranges, None)), noise, restarts=1)
    assert upper.weights[1] == 0
    alone = ps.select.hdmm(ranges, noise, restarts=1).expected_error(ranges)
    assert upper.error == pytest.approx(alone)


@pytest.mark.parametrize("budget", [ps.epsilon("1/2"), ps.rho("1/3"), ps.epsilon(8)])
def test_noise_is_what_the_kernel_draws(budget):
    """Beside one query over leaves and cells: blocks P_l ⊗ A_j with weight v_l w_j."""
    kind = "laplace" if budget.currency == "epsilon" else "gaussian"
    query = Query.of([(CELLS.kron(0), 1), (MIXED.kron(0), "3/4")])
    strategy = ps.select.Strategy(DOMAIN, kind, query)
    tables = PartTables(TREE, (MIXED, None, CELLS))
    plan = choose_levels(tables, kind, search=lambda _: strategy)
    blocks = [
        Block(Kron((Partition(TREE.groups(level)), block.matrix)), weight * block.weight)
        for level, weight in enumerate(plan.weights)
        if weight
        for block in plan.query.blocks
    ]
    laws = noise_for(Query(tuple(blocks)), budget, UNIT, 1)
    noise = plan.level_noise(budget, UNIT)
    measured = [scale for scale in noise.scales if scale < np.inf]
    assert len(measured) * len(noise.block_variances) == len(laws)
    variances = np.outer(measured, noise.block_variances).ravel()
    exact = np.array([law.exact_variance for law in laws])
    assert (variances >= exact * (1 - 1e-12)).all()
    assert variances == pytest.approx(exact, rel=0.2 if budget == ps.epsilon(8) else 0.02)


@settings(max_examples=20)
@given(noise=NOISES)
def test_rmse_at_a_budget(noise):
    budget = ps.epsilon("1/100") if noise == "laplace" else ps.rho("1/1000")
    tables = PartTables.same(TREE, MIXED)
    plan = choose_levels(tables, noise, search=measure_itself(noise))
    scale = 2 / 0.01**2 if noise == "laplace" else 1 / (2 * 0.001)
    for level, parts in enumerate(TREE.sizes):
        squares = scale * plan.table_errors(level) / np.array(MIXED.query_counts) / parts
        assert plan.table_rmse(level, budget, UNIT) ** 2 == pytest.approx(squares, rel=1e-4)
    assert plan.variance_factors(2).shape == (7,)


def test_weights_are_short():
    plan = choose_levels(PartTables.same(TREE, CELLS), search=measure_itself("laplace"))
    assert sum(plan.weights) == 10_000
    assert sum(plan.shares) == 1
    assert all(weight.denominator == 1 for weight in plan.weights)
    assert repr(plan).startswith("LevelPlan(")


def test_refusals():
    with pytest.raises(WorkloadError, match=r"has 3 levels, got tables for 1"):
        PartTables(TREE, (CELLS,))
    with pytest.raises(WorkloadError, match="no tables are asked of any level"):
        PartTables(TREE, (None, None, None))
    other = ps.Workload(ps.Domain.of(a=9), [ps.product(a=ps.identity())])
    with pytest.raises(WorkloadError, match="the workload is over"):
        PartTables(TREE, (CELLS, other, None))
    plan = choose_levels(PartTables(TREE, (None, None, CELLS)), search=measure_itself("laplace"))
    assert plan.weights[:2] == (0, 0)
    with pytest.raises(WorkloadError, match="no tables are asked of the parts of 'all'"):
        plan.table_errors(0)
