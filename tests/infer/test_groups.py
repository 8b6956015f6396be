"""Tables in groups of few attributes: what is known of them, how they agree, whole numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng
from numpy.testing import assert_allclose

import psephos as ps
from psephos.infer import table_groups
from psephos.infer.group_cells import Disagreement, GroupCells, agreeing, rounded, scaled, with_sum
from psephos.infer.least_squares import NoisyBlock, fit_blocks, least_squares
from psephos.infer.some_attributes import as_marginals, of_attributes, tells
from psephos.infer.table_groups import Grouping
from psephos.inverse.subspaces import Subspaces
from psephos.matrix import Identity, Kron, Ones, Prefix
from psephos.strategy.hdmm.residual import residual_matrix

DOMAIN = ps.Domain.of(a=4, b=3, c=5)


def measured(workload, strategy=None, seed=0):
    counts = default_rng(seed).integers(0, 40, workload.domain.size)
    data = ps.simulate(
        counts, workload.domain, unit=ps.add_remove_row(), budget=ps.epsilon(1), seed=seed
    )
    query = (strategy or workload).query
    return least_squares(data.vectorise().measure(query, spend=ps.epsilon(1)))


# ---- what is known of some attributes ----------------------------------------------------------


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["b", "c"], ["a", "b", "c"]])
def test_nothing_is_lost_of_marginals(names):
    workload = ps.marginals(DOMAIN, up_to=3)
    estimate = measured(workload)
    small = of_attributes(estimate, names)
    alone = ps.marginals(small.domain, k=len(names))
    whole = ps.Workload(DOMAIN, [ps.product(dict.fromkeys(names, ps.identity()))])
    assert_allclose(small.answer(alone).values, estimate.answer(whole).values, atol=1e-9)
    assert_allclose(small.answer(alone).stderr, estimate.answer(whole).stderr, rtol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_residuals_of_few_attributes_are_told_by_marginals(seed):
    """The same X and the same answers, with errors, wherever no precision comes out negative."""
    rng = default_rng(seed)
    shape, sets = (3, 4), [(), (0,), (1,), (0, 1)]
    strengths = {(): 40.0, (0,): 9.0, (1,): 8.0, (0, 1): rng.uniform(0.5, 1)}
    matrices = [residual_matrix(shape, s) for s in sets]
    plain = Subspaces.of(shape, matrices, [1.0] * 4).information
    residuals = [
        NoisyBlock(m, plain[s] / strengths[s], rng.normal(size=m.shape[0]))
        for s, m in zip(sets, matrices, strict=True)
    ]
    marginals = as_marginals(shape, residuals)
    x = [sum(b.matrix.gram().dense() / b.variance for b in some) for some in (residuals, marginals)]
    assert_allclose(x[0], x[1], atol=1e-9)
    domain = ps.Domain.of(a=3, b=4)
    workload = ps.marginals(domain, up_to=2)
    first, second = (
        fit_blocks(domain, some, ()).answer(workload) for some in (residuals, marginals)
    )
    assert_allclose(first.values, second.values, atol=1e-9)
    assert_allclose(first.stderr, second.stderr)


def test_residuals_that_no_marginals_tell_stay():
    shape = (3, 4)
    pair = NoisyBlock(residual_matrix(shape, (0, 1)), 0.01, np.zeros(12))
    total = NoisyBlock(residual_matrix(shape, ()), 1.0, np.zeros(1))
    single = [NoisyBlock(residual_matrix(shape, (i,)), 100.0, np.zeros(shape[i])) for i in (0, 1)]
    assert as_marginals(shape, [pair, total]) is None  # nothing is known along one axis alone
    assert as_marginals(shape, [pair, *single, total]) is None  # a pair would tell too much of it
    assert (
        as_marginals(shape, [NoisyBlock(Kron((Identity(3), Ones(1, 4))), 1.0, np.zeros(3))]) is None
    )


def test_any_factor_that_tells_the_sum_is_summed():
    workload = ps.Workload(DOMAIN, [ps.product(a=ps.prefix(), c=ps.all_range())])
    estimate = measured(workload)
    small = of_attributes(estimate, ["a"])
    assert len(small.blocks) == 1
    assert small.blocks[0].matrix == Kron((Prefix(4),))
    (block,) = estimate.blocks
    ranges = ps.matrix.AllRange(5).dense()
    v = np.linalg.pinv(ranges.T) @ np.ones(5)
    assert_allclose(small.blocks[0].values, block.values.reshape(4, -1) @ v)
    assert small.blocks[0].variance == pytest.approx(block.variance * (v @ v))


def test_blocks_that_do_not_tell_the_sum_are_left_out():
    shape = (4, 5)
    inner = [(Identity(4),)]
    assert tells([Kron((Identity(4), Ones(1, 5)))], shape, (0,), inner) == [True]
    assert tells([Kron((Identity(4), Identity(5)))], shape, (0,), inner) == [True]
    assert tells([Kron((Ones(1, 4), Identity(5)))], shape, (0,), inner) == [False]
    centred = ps.matrix.Dense(np.array([[1, -1, 0, 0, 0], [0, 0, 1, -1, 0]]))
    assert tells([Kron((Identity(4), centred))], shape, (0,), inner) == [False]


def test_what_nobody_measured_is_refused():
    workload = ps.Workload(DOMAIN, [ps.product(a=ps.identity())])
    estimate = measured(workload)
    assert of_attributes(estimate, ["b"]).blocks[0].matrix == Kron((Ones(1, 3),))
    with pytest.raises(ps.UnsupportedError, match="order of the domain"):
        of_attributes(estimate, ["b", "a"])


# ---- groups ------------------------------------------------------------------------------------


@given(
    shape=st.lists(st.integers(2, 6), min_size=3, max_size=5),
    most=st.integers(4, 200),
    order=st.integers(1, 3),
)
def test_every_product_has_a_group_that_holds_it(shape, most, order):
    domain = ps.Domain.of({f"a{i}": n for i, n in enumerate(shape)})
    workload = ps.marginals(domain, up_to=order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_groups, "GROUP_CELLS", most)
        grouping = Grouping.of(workload)
    assert set(grouping.first) == set(range(len(workload.products)))
    for g, group in enumerate(grouping.groups):
        sizes = [grouping.inner(g, [i]).products[0].factors for i in group.products]
        assert all(set(each) <= set(grouping.names(group.axes)) for each in sizes)
        alone = max(np.prod([domain[n].size for n in each], initial=1) for each in sizes)
        assert grouping.cells(g) <= max(most, alone)
    assert grouping.groups == _again(workload, most)


def _again(workload, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_groups, "GROUP_CELLS", most)
        return Grouping.of(workload).groups


def test_common_tables_go_down_to_what_both_tell_apart(monkeypatch):
    monkeypatch.setattr(table_groups, "GROUP_CELLS", 1)
    age = ps.Attribute.of(range(8)).with_level("pair", 2)
    domain = ps.Domain.of(age=age, a=3, b=3)
    workload = ps.Workload(
        domain,
        [ps.product(age=ps.identity(), a=ps.identity()),
         ps.product(age=ps.level("pair"), b=ps.identity())],
    )  # fmt: skip
    grouping = Grouping.of(workload)
    assert [group.axes for group in grouping.groups] == [(0, 1), (0, 2)]
    assert [table.axes for table in grouping.shared] == [(0,)]
    assert [table.axes for table in grouping.commons] == [(), (0,)]
    cells = GroupCells(grouping, (np.arange(24), np.arange(24)))
    pairs = cells.common(0, grouping.commons[1])
    assert_allclose(pairs, np.arange(24).reshape(4, 6).sum(axis=1))


# ---- cells that agree, and whole numbers -------------------------------------------------------


def grouped(shape, most, seed, evenness=1.0):
    """Made-up cells of all groups of the pairs of attributes, with one total."""
    domain = ps.Domain.of({f"a{i}": n for i, n in enumerate(shape)})
    workload = ps.marginals(domain, up_to=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_groups, "GROUP_CELLS", most)
        grouping = Grouping.of(workload)
    rng = default_rng(seed)
    sizes = [grouping.cells(g) for g in range(len(grouping.groups))]
    vectors = [50 * rng.dirichlet(np.full(size, evenness)) for size in sizes]
    return GroupCells(grouping, tuple(vectors))


SHAPES = st.lists(st.integers(2, 4), min_size=3, max_size=4)


@given(shape=SHAPES, seed=st.integers(0, 50))
def test_groups_agree_and_keep_the_total(shape, seed):
    cells = grouped(shape, 1, seed)
    agreed, sweeps = agreeing(cells, [None] * len(cells.vectors))
    assert sweeps >= 1
    for axes, members in cells.grouping.shared:
        tables = [agreed.table(g, axes).reshape(-1) for g in members]
        assert np.ptp(tables, axis=0).max() <= 0.2
    for vector in agreed.vectors:
        assert vector.min() >= 0
        assert vector.sum() == pytest.approx(50)
    again, count = agreeing(cells, [None] * len(cells.vectors), sweeps)
    assert count == sweeps
    assert_allclose(again.vectors[0], agreed.vectors[0])


@given(shape=SHAPES, seed=st.integers(0, 50), most=st.sampled_from([1, 16, 10**6]))
def test_whole_groups_are_not_negative_and_have_the_total(shape, seed, most):
    cells = grouped(shape, most, seed, 0.2)
    cells, _ = agreeing(cells, [None] * len(cells.vectors))
    whole = rounded(cells, 50)
    for x, z in zip(cells.vectors, whole.vectors, strict=True):
        assert z.dtype == np.int64
        assert z.min() >= 0
        assert z.sum() == 50
        assert np.abs(z - x).max() <= 3
        assert not z[x == 0].any()


def test_empty_slices_are_filled_where_rows_can_be():
    grid = np.array([[1.0, 3.0], [0.0, 0.0]])
    margin, target = np.array([[4.0], [0.0]]), np.array([[2.0], [2.0]])
    room = np.array([True, True, False, True])
    assert_allclose(scaled(grid, margin, target, room), [0.5, 1.5, 0, 2])


def test_sums_are_met_by_other_neighbours():
    whole, target = np.array([1, 2, 0, 5]), np.array([1.4, 2.0, 0.3, 4.2])
    assert with_sum(whole, target, None) is whole
    assert with_sum(whole, target, 9).tolist() == [2, 2, 0, 5]
    assert with_sum(whole, target, 10).tolist() == [2, 2, 1, 5]
    assert with_sum(whole, target, 7).tolist() == [1, 2, 0, 4]


def test_the_disagreement_is_what_the_tables_show():
    whole = rounded(grouped((3, 3, 3), 1, 4), 50)  # nobody made them agree
    grouping = whole.grouping
    tables = {}
    for i, product in enumerate(grouping.workload.products):
        names = list(product.factors)
        table = whole.answers(i).reshape([3] * len(names))
        for k, name in enumerate(names):
            others = tuple(j for j in range(len(names)) if j != k)
            tables.setdefault(name, []).append(table.sum(axis=others))
    spreads = [np.ptp(each, axis=0) for each in tables.values()]
    disagreement = Disagreement.of(whole)
    assert disagreement.largest == max(spread.max() for spread in spreads)
    assert disagreement.numbers == 10  # three attributes of three values, and the total
    squares = sum((spread**2).sum() for spread in spreads)
    assert disagreement.root_mean_square == pytest.approx(np.sqrt(squares / 10))
    moved = whole.vectors[0].copy()
    moved[[0, -1]] += [7, -7]
    other = Disagreement.of(whole.replaced(0, moved))
    assert other.largest > disagreement.largest
    assert len(other.attributes) == 1


def test_one_group_has_nothing_to_disagree_with():
    whole = rounded(grouped((3, 3, 2), 10**6, 1), 50)
    assert len(whole.vectors) == 1
    assert Disagreement.of(whole) == Disagreement(0, 0.0, 0, ())


@given(sizes=st.tuples(*[st.integers(2, 5)] * 3), seed=st.integers(0, 50))
def test_groups_that_share_separate_attributes_agree_exactly(sizes, seed):
    domain = ps.Domain.of(a=sizes[0], b=sizes[1], c=sizes[2], d=3)
    pairs = [("a", "b"), ("b", "c"), ("c", "d")]
    products = [ps.product(dict.fromkeys(pair, ps.identity())) for pair in pairs]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table_groups, "GROUP_CELLS", 1)
        grouping = Grouping.of(ps.Workload(domain, products))
    rng = default_rng(seed)
    cells = [grouping.cells(g) for g in range(3)]
    vectors = tuple(300 * rng.dirichlet(np.full(size, 0.5)) for size in cells)
    agreed, _ = agreeing(GroupCells(grouping, vectors), [None] * 3)
    whole = rounded(agreed, 300)
    assert Disagreement.of(whole).largest == 0
    assert all(z.min() >= 0 and z.sum() == 300 for z in whole.vectors)


def test_attributes_that_no_table_needs_are_left_to_other_groups(monkeypatch):
    monkeypatch.setattr(table_groups, "GROUP_CELLS", 60)
    domain = ps.Domain.of(a=2, b=5, c=4, d=6)
    pairs = [("a", "d"), ("a", "b"), ("b", "c"), ("a", "c")]
    products = [ps.product(dict.fromkeys(pair, ps.identity())) for pair in pairs]
    grouping = Grouping.of(ps.Workload(domain, products))
    axes = [group.axes for group in grouping.groups]
    assert axes == [(0, 1, 2), (0, 3)]
    assert [grouping.first[i] for i in range(4)] == [1, 0, 0, 0]
