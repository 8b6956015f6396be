"""Estimates that answer what measurements leave open: laws against dense formulas."""

import importlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import nnls

import psephos as ps
from psephos import matrix as mx
from psephos.errors import RefusedError, UnsupportedError
from psephos.infer.least_squares import block_answers
from psephos.inverse import least_norm as norm
from psephos.inverse.least_norm import least_norm
from psephos.inverse.merged_cells import Merging
from tests.inverse.generators import BLOCKS, SHAPE

weights = importlib.import_module("psephos.infer.multiplicative_weights")  # not the function
DOMAIN = ps.Domain.of(a=3, b=4)
COUNTS = np.array([30, 1, 0, 0, 9, 9, 50, 2, 0, 1, 0, 0])
SPENDS = ["3", "2", "7/2"]
GROUPS = mx.Partition([0, 0, 0, 1, 1, 2, 2, 2, 2, 2, 0, 3])


@st.composite
def ranges(draw):
    ends = st.tuples(st.integers(0, 11), st.integers(0, 11)).map(sorted)
    pairs = np.array(draw(st.lists(ends, min_size=1, max_size=5)))
    return mx.Ranges.intervals(12, pairs[:, 0], pairs[:, 1])


@st.composite
def striped(draw):
    parts = [mx.total(4), mx.Compose((mx.Prefix(2), mx.Partition([0, 0, 0, 1]))), mx.Prefix(4)]
    order = draw(st.permutations(np.repeat(np.arange(3), 4).tolist()))
    return mx.by_group(
        np.array(order), draw(st.lists(st.sampled_from(parts), min_size=3, max_size=3))
    )


@st.composite
def reduced(draw):
    labels = draw(st.lists(st.integers(0, 4), min_size=12, max_size=12))
    partition = mx.Partition(np.unique(labels, return_inverse=True)[1])
    inner = draw(st.sampled_from([mx.Identity, mx.Prefix, mx.total]))
    return mx.Compose((inner(partition.shape[0]), partition))


BLOCK = BLOCKS | ranges() | reduced() | striped()


@st.composite
def problems(draw):
    """Blocks, their precisions and answers."""
    blocks = draw(st.lists(BLOCK, min_size=1, max_size=3))
    precisions = [draw(st.sampled_from([0.25, 1.0, 4.0])) for _ in blocks]
    numbers = st.integers(-9, 20)
    values = [
        np.array(draw(st.lists(numbers, min_size=b.shape[0], max_size=b.shape[0]))) for b in blocks
    ]
    return blocks, precisions, values


def dense_solution(blocks, precisions, values):
    roots = np.sqrt(precisions)
    rows = np.concatenate([r * b.dense() for r, b in zip(roots, blocks, strict=True)])
    y = np.concatenate([r * v for r, v in zip(roots, values, strict=True)])
    return np.linalg.pinv(rows, rcond=1e-9) @ y


# ---- expanded ------------------------------------------------------------------------------------


@given(problems())
def test_the_expansion_is_the_pseudo_inverse(problem):
    blocks, precisions, values = problem
    assert_allclose(
        least_norm(blocks, precisions, values, SHAPE), dense_solution(*problem), atol=1e-6
    )


@pytest.mark.parametrize("limit", ["WRITTEN_ROWS", "WRITTEN_CELLS"])
@given(problem=problems())
def test_so_it_is_where_it_is_not_written_out(limit, problem):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(norm, "WRITTEN_ROWS", 0)
        if limit == "WRITTEN_CELLS":
            patch.setattr(norm, "WRITTEN_CELLS", 0)
        x = least_norm(*problem, SHAPE)
    assert_allclose(x, dense_solution(*problem), atol=1e-5)


@given(problems())
def test_columns_are_solved_as_if_alone(problem):
    blocks, precisions, values = problem
    columns = [np.stack([y, 2 * y + 1], axis=1) for y in values]
    together = least_norm(blocks, precisions, columns, SHAPE)
    for k in range(2):
        alone = least_norm(blocks, precisions, [y[:, k] for y in columns], SHAPE)
        assert_allclose(together[:, k], alone, atol=1e-6)


@given(st.lists(st.integers(0, 4), min_size=12, max_size=12), st.integers(0, 20))
def test_groups_within_groups_need_no_form_of_an_inverse(coarse, seed):
    fine = np.unique([10 * g + (i % 3) for i, g in enumerate(coarse)], return_inverse=True)[1]
    coarse = np.unique(coarse, return_inverse=True)[1]
    blocks = [mx.Partition(coarse), mx.Partition(fine), mx.total(12)]
    values = [np.random.default_rng(seed).normal(size=block.shape[0]) for block in blocks]
    problem = blocks, [0.5, 2.0, 1.0], values
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(norm, "form_of", None)
        x = least_norm(*problem, SHAPE)
    assert_allclose(x, dense_solution(*problem), atol=1e-9)


def test_a_reduced_vector_is_expanded_evenly():
    vector = vector_of(COUNTS)
    measurement = vector.reduce(GROUPS).measure(mx.Identity(4), spend=ps.epsilon(1))
    x = ps.infer.expanded(measurement).vector
    sizes = np.bincount(GROUPS.groups)
    assert_allclose(x, (measurement.values / sizes)[GROUPS.groups])


@given(st.integers(0, 300), st.integers(0, 20))
def test_a_public_total_is_met_by_the_best_such_fit(total, seed):
    """Lagrange: the gradient is constant on all cells that can pay for it."""
    vector = vector_of(COUNTS, seed)
    several = [
        vector.reduce(GROUPS).measure(mx.Prefix(4), spend=ps.epsilon(1)),
        vector.measure(mx.Kron((mx.Identity(3), mx.total(4))), spend=ps.epsilon(2)),
    ]
    x = ps.infer.expanded(several, total=total).vector
    assert_allclose(x.sum(), total, atol=1e-8)
    gradient = np.zeros(12)
    for matrix, noise, values in block_answers(several):
        gradient += matrix.rmatvec(matrix.matvec(x) - values) / noise.exact_variance
    assert_allclose(gradient, gradient[0], atol=1e-8)


@given(st.integers(0, 300), st.integers(0, 20))
def test_a_public_total_reaches_all_stripes(total, seed):
    parts = [mx.Prefix(4), mx.total(4), mx.Compose((mx.Prefix(2), mx.Partition([0, 0, 0, 1])))]
    measurement = vector_of(COUNTS, seed).measure(
        mx.by_group(np.arange(12) % 3, parts), spend=ps.epsilon(1)
    )
    x = ps.infer.expanded(measurement, total=total).vector
    assert_allclose(x.sum(), total, atol=1e-8)
    rows = measurement.query.blocks[0].matrix
    gradient = rows.rmatvec(rows.matvec(x) - measurement.values)
    assert_allclose(gradient, gradient[0], atol=1e-8)
    assert_allclose(x[1::3], x[1])


def test_a_total_that_nobody_measured_is_spread_over_what_is_open():
    vector = vector_of(COUNTS)
    measurement = vector.measure(mx.Ranges.intervals(12, [0], [3]), spend=ps.epsilon(1))
    x = ps.infer.expanded(measurement, total=102).vector
    known = float(measurement.values[0])
    assert_allclose(x[:4], known / 4)
    assert_allclose(x[4:], (102 - known) / 8)


def test_few_tables_over_more_cells_than_are_written_out(monkeypatch):
    """They are fitted by iterations, whatever their forms; what was paid for must not be lost."""
    module = importlib.import_module("psephos.inverse.least_norm")
    vector = vector_of(COUNTS)
    measured = [
        vector.transform(mx.Kron((mx.Identity(3), mx.total(4))))
        .reduce(mx.Partition([0, 1, 1]))
        .measure(mx.Identity(2), spend=ps.epsilon(1)),
        vector.measure(mx.Kron((mx.total(3), mx.Identity(4))), spend=ps.epsilon(2)),
    ]
    written = ps.infer.expanded(measured).vector
    monkeypatch.setattr(module, "DENSE_AXIS", 0)
    assert_allclose(ps.infer.expanded(measured).vector, written, atol=1e-8)


# ---- multiplicative weights ----------------------------------------------------------------------


def naive_weights(rows, values, precisions, start, total, passes):
    """The two steps as they are written, on dense rows."""
    x = start * (total / start.sum())
    sizes = np.abs(rows).max(axis=1)
    steps = sizes**2 * precisions
    for _ in range(passes):
        for q, y, size, step in zip(rows, values, sizes, steps / steps.max(), strict=True):
            q, y = q / size, y / size
            x = x * np.exp(step * q * (y - q @ x) / (2 * total))
            x *= total / x.sum()
    return x


def without_empty_rows(matrix):
    return bool(np.abs(matrix.dense()).max(axis=1).all())


@given(
    st.lists(BLOCK.filter(without_empty_rows), min_size=1, max_size=3),
    st.lists(st.integers(0, 9), min_size=12, max_size=12).filter(any),
    st.integers(0, 5),
)
def test_weights_are_those_of_the_dense_loop(blocks, start, seed):
    vector = vector_of(COUNTS, seed)
    several = [vector.measure(block, spend=ps.epsilon(SPENDS[i])) for i, block in enumerate(blocks)]
    start = np.array(start, dtype=float)
    x = ps.infer.multiplicative_weights(several, total=102, passes=3, start=start).vector
    answers = block_answers(several)
    rows = np.concatenate([each.matrix.dense() for each in answers])
    values = np.concatenate([each.values for each in answers])
    variances = np.concatenate([m.variances for m in several])
    assert_allclose(x, naive_weights(rows, values, 1 / variances, start, 102, 3), atol=1e-8)


def test_rows_that_move_together_keep_the_total_and_come_near(monkeypatch):
    monkeypatch.setattr(weights, "WRITTEN_ROW_ENTRIES", 0)
    moved = vector_of(COUNTS).transform(mx.Partition(np.arange(12)[::-1]))
    measurement = moved.measure(mx.AllRange(12), spend=ps.epsilon(50))
    few, many = (
        ps.infer.multiplicative_weights(measurement, total=102, passes=passes).vector
        for passes in (10, 3000)
    )
    assert_allclose([few.sum(), many.sum()], 102)
    assert np.abs(many - COUNTS).max() < 2 < np.abs(few - COUNTS).max()


def test_disjoint_rows_alone_or_together_are_nearly_the_same(monkeypatch):
    """Only the total between the rows differs, and with it terms of second order."""
    monkeypatch.setattr(weights, "level_of", lambda _: None)
    measurement = vector_of(COUNTS).measure(mx.Identity(12), spend=ps.epsilon(50))
    one_by_one = ps.infer.multiplicative_weights(measurement, total=102, passes=400).vector
    monkeypatch.setattr(weights, "WRITTEN_ROW_ENTRIES", 0)
    together = ps.infer.multiplicative_weights(measurement, total=102, passes=400).vector
    assert_allclose(one_by_one, together, atol=0.5)


def test_cells_that_no_row_tells_apart_keep_the_start():
    measurement = vector_of(COUNTS).reduce(GROUPS).measure(mx.Identity(4), spend=ps.epsilon(1))
    start = np.arange(1.0, 13)
    x = ps.infer.multiplicative_weights(measurement, total=102, start=start).vector
    ratios = x / start
    for g in range(4):
        assert_allclose(ratios[GROUPS.groups == g], ratios[GROUPS.groups == g][0])


# ---- thresholds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("eta", [0, 0.35, 2])
def test_what_stands_out_stays_and_all_else_is_zero(eta):
    measurement = vector_of(COUNTS).measure(mx.Identity(12), spend=ps.epsilon("1/2"))
    x = ps.infer.thresholded(measurement, eta=eta).vector
    limit = eta * np.log(12) * float(measurement.noise[0].scale)
    assert_allclose(x, np.where(measurement.values > limit, measurement.values, 0))


def test_thresholds_of_groups_are_those_of_their_sums():
    measurement = vector_of(COUNTS).reduce(GROUPS).measure(mx.Identity(4), spend=ps.epsilon("1/9"))
    x = ps.infer.thresholded(measurement, eta=1).vector
    values = measurement.values
    kept = np.where(values > np.log(4) * float(measurement.noise[0].scale), values, 0)
    assert_allclose(x, (kept / np.bincount(GROUPS.groups))[GROUPS.groups])
    assert 0 < np.count_nonzero(x) < 12


# ---- merged cells --------------------------------------------------------------------------------


@given(problems())
def test_merging_equal_columns_changes_no_determined_answer(problem):
    blocks, precisions, values = problem
    form = ps.inverse.form_of(blocks, precisions, SHAPE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Merging, "of_columns", lambda *_: None)
        alone = ps.inverse.form_of(blocks, precisions, SHAPE)
    for factors in [(mx.Identity(3), mx.total(4)), (mx.total(3), mx.Prefix(4))]:
        assert form.covers(factors) == alone.covers(factors)
        if form.covers(factors):
            assert_allclose(form.variances(factors), alone.variances(factors), atol=1e-7)
            one, other = (f.fit(values).answers(factors) for f in (form, alone))
            assert_allclose(one, other, atol=1e-6)


# ---- non-negative fits of what is not determined -------------------------------------------------


@given(ranges(), st.integers(0, 30), st.none() | st.just(102.0))
def test_the_gap_bounds_the_distance_to_the_best_fit(matrix, seed, total):
    estimate = ps.infer.least_squares(
        vector_of(COUNTS, seed).measure(matrix, spend=ps.epsilon("1/2"))
    )
    fit = ps.infer.nonnegative(estimate, total=total)
    rows, values = matrix.dense(), estimate.measurements[0].values.astype(float)
    if total is not None:  # next to no noise
        rows, values = np.vstack([rows, np.full(12, 1e4)]), np.append(values, 1e4 * total)
        assert fit.vector.sum() == pytest.approx(total)
    best = nnls(rows, values)[0]
    deviation = estimate.measurements[0].noise[0].exact_variance ** 0.5
    noise = deviation * np.sqrt(matrix.shape[0])
    distance = np.linalg.norm(matrix.matvec(fit.vector - best))
    assert fit.gap < 0.01
    assert distance <= fit.gap * noise + 1e-4 * noise
    assert fit.vector.min() >= 0


def test_a_fit_without_negatives_spreads_groups_evenly_but_over_zeros():
    vector = vector_of(COUNTS)
    measurement = vector.reduce(GROUPS).measure(mx.Identity(4), spend=ps.epsilon(1))
    zeros = np.arange(12) == 5
    x = ps.infer.nonnegative(ps.infer.least_squares(measurement), zeros=zeros, total=102).vector
    assert x.sum() == pytest.approx(102)
    assert x[5] == 0
    others = [x[(GROUPS.groups == g) & ~zeros] for g in range(4)]
    for each in others:
        assert_allclose(each, each[0])


# ---- stripes -------------------------------------------------------------------------------------


def test_a_strategy_for_each_group_costs_its_largest_part():
    """One request for all groups has the noise of the part with the largest sensitivity."""
    parts = [mx.Prefix(4), mx.total(4), mx.Compose((mx.Prefix(2), mx.Partition([0, 0, 1, 1])))]
    labels = np.arange(12) % 3
    measurement = vector_of(COUNTS).measure(mx.by_group(labels, parts), spend=ps.epsilon(1))
    assert float(measurement.noise[0].scale) == 4
    rows = measurement.query.blocks[0].matrix.dense()
    for g, part in enumerate(parts):
        inside = rows[:, labels == g]
        assert_allclose(inside[inside.any(axis=1)], part.dense()[part.dense().any(axis=1)])
        assert not rows[inside.any(axis=1)][:, labels != g].any()


@pytest.mark.parametrize("axis", [0, 1])
def test_stripes_are_estimated_as_their_product_is(axis):
    width = DOMAIN.shape[axis]
    labels = np.arange(12) % 4 if axis == 0 else np.arange(12) // 4
    tree = mx.Stack((mx.Identity(width), mx.total(width)))
    measurement = vector_of(COUNTS).measure(mx.by_group(labels, tree), spend=ps.epsilon(1))
    estimate = ps.infer.least_squares(measurement)
    factors = [mx.Identity(3), mx.Identity(4)]
    factors[axis] = tree
    order = np.moveaxis(measurement.values.reshape(-1, width + 1), 1, axis).ravel()
    again = replace(measurement, query=ps.Query.of(mx.Kron(tuple(factors))), values=order)
    product = ps.infer.least_squares(again)
    workload = ps.Workload(DOMAIN, [ps.product(b=ps.prefix()), ps.product(a=ps.all_range())])
    one, other = estimate.answer(workload), product.answer(workload)
    assert_allclose(estimate.vector, product.vector)
    assert_allclose(one.values, other.values)
    assert_allclose(one.stderr, other.stderr)


def test_parts_of_a_split_are_estimated_together():
    vector = vector_of(COUNTS)
    labels = np.arange(12) % 3
    tree = mx.Stack((mx.Identity(4), mx.total(4)))
    several = [
        part.measure(tree, spend=ps.epsilon(1)) for part in vector.split(mx.Partition(labels))
    ]
    x = ps.infer.least_squares(several).vector
    for g, measurement in enumerate(several):
        assert_allclose(x[labels == g], np.linalg.pinv(tree.dense()) @ measurement.values)


def test_groups_need_matrices_of_their_sizes():
    with pytest.raises(ps.ShapeError, match="as many columns"):
        mx.by_group(np.array([0, 0, 1]), mx.Identity(2))


# ---- what is refused -----------------------------------------------------------------------------


def test_refusals_say_what_to_do():
    vector = vector_of(COUNTS)
    measurement = vector.measure(mx.Ranges.intervals(12, [0, 3], [5, 8]), spend=ps.epsilon(1))
    with pytest.raises(UnsupportedError, match="measure every cell"):
        ps.infer.thresholded(measurement)
    for eta in (-1, np.nan):
        with pytest.raises(RefusedError, match="eta"):
            ps.infer.thresholded(measurement, eta=eta)
    for total in (-1, np.inf):
        with pytest.raises(RefusedError, match="total"):
            ps.infer.expanded(measurement, total=total)
    with pytest.raises(RefusedError, match="above zero"):
        ps.infer.multiplicative_weights(measurement, total=0)
    with pytest.raises(RefusedError, match="passes"):
        ps.infer.multiplicative_weights(measurement, total=1, passes=1.5)
    with pytest.raises(RefusedError, match="different"):
        ps.infer.expanded([measurement, replace(measurement, dataset_id="another")])


def test_they_say_what_they_are():
    measurement = vector_of(COUNTS).measure(mx.Identity(12), spend=ps.epsilon(1))
    assert repr(ps.infer.expanded(measurement)).startswith("Simulated expanded estimate(12 cells")
    real = ps.infer.thresholded(replace(measurement, simulation=False))
    assert repr(real).startswith("Thresholded estimate(12 cells")


def vector_of(counts, seed=0):
    data = ps.simulate(counts, DOMAIN, unit=ps.add_remove_row(), budget=ps.epsilon(99), seed=seed)
    return data.vectorise()
