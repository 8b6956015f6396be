"""The maximum-entropy estimate: its constraints, its optimality, its derivative and its risk."""

from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import psephos as ps
from psephos import matrix as mx
from psephos.errors import ShapeError, UnsupportedError
from psephos.infer import bregman, entropy
from psephos.infer import tangents as tangents_module
from psephos.infer.asked_risk import AskedRisk
from psephos.infer.entropy import maximum_entropy
from psephos.infer.least_squares import LeastSquares, least_squares
from psephos.infer.measured_cells import MeasuredCells
from psephos.infer.nonnegative import nonnegative
from psephos.infer.prior_model import PriorModel, positive_mean
from psephos.inverse.merged_cells import Merging
from psephos.kernel.query import Query

DOMAIN = ps.Domain.of(a=3, b=4)
TABLES = ps.Workload(DOMAIN, [ps.product(a=ps.identity()), ps.product(b=ps.prefix())])
TABLES += ps.marginals(DOMAIN, k=2)
BLOCKS = (
    mx.Kron((mx.Identity(3), mx.Identity(4))),
    mx.Kron((mx.Identity(3), mx.Ones(1, 4))),
    mx.Kron((mx.Ones(1, 3), mx.Identity(4))),
    mx.Kron((mx.Ones(1, 3), mx.Ones(1, 4))),
    mx.Kron((mx.PIdentity([1, 2, 1], [[1, 1, 1]]), mx.Partition([0, 0, 1, 1]))),
    mx.Kron((mx.Dense([[1, -1, 0], [0, 2, 1]]), mx.Identity(4))),
    mx.Kron((mx.Ones(1, 3), mx.Prefix(4))),
)
QUERIES = st.lists(
    st.tuples(st.sampled_from(BLOCKS), st.sampled_from([1, 2, Fraction(1, 4)])),
    min_size=1,
    max_size=4,
).map(Query.of)
COUNTS = st.lists(st.sampled_from([0, 0, 1, 5, 40]), min_size=12, max_size=12).map(np.array)


def measured(query, counts, *, spend="1/2", seed=0, domain=DOMAIN):
    unit, budget = ps.add_remove_row(), ps.rho(1000)
    data = ps.simulate(np.asarray(counts), domain, unit=unit, budget=budget, seed=seed)
    return data.vectorise().measure(query, spend=ps.rho(spend))


def fitted(query, counts, **options):
    return ps.infer.least_squares(measured(query, counts, **options))


def problem_of(estimate, **options):
    """The steps that an estimate takes, and their derivatives along its probes."""
    cells = MeasuredCells.of(estimate)
    given_facts = {"zeros": None, "given": None, "total": None} | options
    model = PriorModel.of(cells, cells.probes(), **given_facts)
    return cells, model


def dense(tree):
    return np.array([tree.transpose(row) for row in np.eye(tree.size)])


# ---- constraints -------------------------------------------------------------------------------


@settings(max_examples=40)
@given(QUERIES, COUNTS, st.integers(0, 99), st.data())
def test_no_cell_is_negative_and_facts_hold(query, counts, seed, data):
    zeros = np.array(data.draw(st.lists(st.booleans(), min_size=12, max_size=12)))
    total = data.draw(st.sampled_from([None, 0, 7, 100.5]))
    estimate = maximum_entropy(fitted(query, counts, seed=seed), TABLES, zeros=zeros, total=total)
    x = estimate.vector
    assert (x >= 0).all()
    assert (x[zeros] == 0).all()
    if total is not None and not zeros.all():
        assert_allclose(x.sum(), total)
    assert 0 <= estimate.gap <= bregman.GAP_TOLERANCE
    assert estimate.biased
    assert estimate.simulation
    assert_allclose(estimate.answer(TABLES).values, TABLES.answer(x))


@settings(max_examples=20)
@given(QUERIES, COUNTS)
def test_the_total_is_that_of_least_squares(query, counts):
    query = Query.of([*((b.matrix, b.weight) for b in query.blocks), (BLOCKS[0], 1)])
    estimate = fitted(query, counts)
    everything = ps.Workload(DOMAIN, [ps.product()])
    total = max(0.0, estimate.answer(everything).values[0])
    assert_allclose(maximum_entropy(estimate, TABLES).vector.sum(), total, atol=1e-8)


@given(QUERIES, COUNTS)
@settings(max_examples=10)
def test_the_same_input_gives_the_same_output(query, counts):
    estimate = fitted(query, counts)
    one, other = (maximum_entropy(estimate, TABLES) for _ in range(2))
    assert (one.vector == other.vector).all()
    assert one.steps == other.steps


def test_an_undetermined_total_is_the_multiple_of_the_prior_that_fits_best():
    query = Query.of([(mx.Kron((mx.Dense([[1, 0, 0]]), mx.Identity(4))), 1)])
    estimate = fitted(query, [8] * 12, spend=100)
    x = maximum_entropy(estimate, TABLES).vector
    assert_allclose(x.sum(), 96, atol=3)
    assert_allclose(x[4:], 8, atol=1)  # what was not measured follows the prior, which is even


def test_no_rows_at_all():
    estimate = fitted(Query.of([(BLOCKS[0], 1)]), [0] * 12)
    assert not maximum_entropy(estimate, TABLES, total=0).vector.any()
    assert not maximum_entropy(estimate, TABLES, zeros=np.ones(12, bool)).vector.any()


def test_single_cells_take_the_total():
    domain = ps.Domain.of(a=1)
    estimate = fitted(Query.of([(mx.Identity(1), 1)]), [30], domain=domain)
    workload = ps.Workload(domain, [ps.product(a=ps.identity())])
    assert_allclose(maximum_entropy(estimate, workload, total=12).vector, [12])


def test_cells_that_are_not_told_apart_share_by_the_prior():
    query = Query.of([(mx.Kron((mx.Identity(3), mx.Partition([0, 0, 1, 1]))), 1)])
    estimate = fitted(query, np.arange(12) * 10, spend=5)
    rows = ps.Workload(DOMAIN, [ps.product(a=ps.identity())])
    prior = np.tile([3.0, 1.0, 1.0, 1.0], 3)
    x = maximum_entropy(estimate, rows, prior=prior).vector.reshape(3, 4)
    share = 0.99 * 3 / 18 + 0.01 / 12
    other = 0.99 * 1 / 18 + 0.01 / 12
    assert_allclose(x[:, 0] / x[:, 1], share / other)
    assert_allclose(x[:, 2], x[:, 3])
    zeros = np.zeros((3, 4), bool)
    zeros[:, 0] = True
    x = maximum_entropy(estimate, rows, zeros=zeros).vector.reshape(3, 4)
    assert (x[:, 0] == 0).all()
    assert_allclose(x[:, 2], x[:, 3])


def test_merging_cells_loses_nothing(monkeypatch):
    monkeypatch.setattr(Merging, "of_columns", lambda *_: None)
    coarse = mx.Kron((mx.Identity(3), mx.Partition([0, 0, 1, 1])))
    counts = np.array([30, 1, 0, 0, 9, 9, 50, 2, 0, 1, 0, 0])
    rows = ps.Workload(DOMAIN, [ps.product(a=ps.identity())])
    prior = np.arange(1.0, 13)
    merged = fitted(Query.of([(coarse, 1)]), counts)
    (m,) = merged.measurements
    written = replace(m, query=Query.of([(mx.Dense(coarse.dense().astype(int)), 1)]))
    alone = ps.infer.least_squares(written)
    one, other = (maximum_entropy(e, rows, prior=prior) for e in (merged, alone))
    assert MeasuredCells.of(merged).groups is not None
    assert MeasuredCells.of(alone).groups is None
    assert one.steps == other.steps
    assert_allclose(one.vector, other.vector, rtol=1e-6)


def test_a_prior_that_is_right_is_kept():
    counts = np.array([40, 0, 0, 0, 0, 30, 0, 0, 0, 0, 20, 10])
    estimate = fitted(Query.of([(BLOCKS[0], 1)]), counts, spend=Fraction(1, 200))
    plain, informed = (
        maximum_entropy(estimate, TABLES, total=100, prior=prior) for prior in (None, counts)
    )
    errors = [np.abs(TABLES.answer(e.vector - counts)).mean() for e in (plain, informed)]
    assert errors[1] < errors[0]
    _, problem, point, tangents = after(estimate, 0, total=100, given=counts)
    assert not tangents[0].cells(problem, point).any()  # both are public: no noise is in them


def test_what_is_refused():
    estimate = fitted(Query.of([(BLOCKS[0], 1)]), [1] * 12)
    with pytest.raises(ShapeError, match="one number for each of 12 cells, got 3"):
        maximum_entropy(estimate, TABLES, prior=np.ones(3))
    for prior in (np.zeros(12), np.full(12, -1.0), np.full(12, np.nan)):
        with pytest.raises(ShapeError, match="not negative"):
            maximum_entropy(estimate, TABLES, prior=prior)
    for total in (-1, np.inf):
        with pytest.raises(ShapeError, match="a total is a number from 0"):
            maximum_entropy(estimate, TABLES, total=total)


def test_too_many_cells_are_refused(monkeypatch):
    monkeypatch.setattr(entropy, "NONNEGATIVE_CELLS", 11)
    with pytest.raises(UnsupportedError, match="at most 11"):
        maximum_entropy(fitted(Query.of([(BLOCKS[0], 1)]), [1] * 12), TABLES)


def test_progress_is_told_of_every_step():
    steps = []
    estimate = fitted(Query.of([(BLOCKS[0], 1)]), [40, 0, 0, 0, 0, 30, 0, 0, 0, 0, 20, 10])
    result = maximum_entropy(estimate, TABLES, progress=lambda *step: steps.append(step))
    assert [k for k, _ in steps] == list(range(len(steps)))
    assert dict(steps)[result.steps] == result.risk


# ---- optimality --------------------------------------------------------------------------------


def primal(a, problem, x, start, strength):
    """The sum that a step makes small."""
    live = start > 0
    divergence = (x[live] * np.log(x[live] / start[live])).sum()
    return 0.5 * (((a @ x - problem.values) ** 2) / problem.variances).sum() + strength * divergence


def minimum(a, problem, start, strength):
    """The minimum of one step, from its conditions, by damped Newton steps on a dense dual."""
    theta, ridge = np.zeros(len(a)), strength * problem.variances

    def cells(theta):
        x = start * np.exp(theta @ a - (theta @ a).max())
        return x * (problem.total / x.sum())

    def dual(theta):
        top = (theta @ a).max()
        mass = (start * np.exp(theta @ a - top)).sum()
        return (
            problem.total * (top + np.log(mass)) - problem.values @ theta
            + 0.5 * (ridge * theta) @ theta
        )  # fmt: skip

    for _ in range(200):
        x = cells(theta)
        g = a @ x - problem.values + ridge * theta
        h = (a * x) @ a.T - np.outer(a @ x, a @ x) / problem.total + np.diag(ridge)
        p, t = np.linalg.solve(h, -g), 1.0
        while dual(theta + t * p) > dual(theta) + 1e-9 * abs(dual(theta)) and t > 1e-6:
            t /= 2
        theta = theta + t * p
    return cells(theta)


@settings(max_examples=30)
@given(QUERIES, COUNTS, st.integers(0, 99), st.sampled_from([4.0, 0.5, 0.05]))
def test_a_certificate_bounds_the_distance_to_the_minimum(query, counts, seed, share):
    _, model = problem_of(fitted(query, counts, seed=seed), total=90)
    problem = model.problem
    a, start = dense(problem.tree), problem.start()
    strength = share * problem.first_strength()
    best = minimum(a, problem, start.x, strength)
    # At the minimum this is the same for all cells: the derivation in the head of bregman.py.
    slope = ((a @ best - problem.values) / problem.variances) @ a
    slope += strength * np.log(best / start.x)
    assert np.ptp(slope) <= 1e-6 * (1 + np.abs(slope).max())
    for tolerance in (3.0, 0.3, 0.01):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bregman, "GAP_TOLERANCE", tolerance)
            point, gap = problem.step(start, strength)
        assert gap <= tolerance
        bound = len(a) * gap**2
        distance = ((a @ (point.x - best)) ** 2 / problem.variances).sum()
        assert distance <= bound + 1e-9
        excess = primal(a, problem, point.x, start.x, strength)
        excess -= primal(a, problem, best, start.x, strength)
        assert -1e-6 <= excess <= bound / 2 + 1e-6 * (1 + abs(excess))


# ---- derivative --------------------------------------------------------------------------------


def after(estimate, steps, strength=None, **options):
    """Where some steps end, and the derivative of the cells along the first probe."""
    cells, model = problem_of(estimate, **options)
    problem, tangents = model.problem, model.tangents
    point = problem.start()
    strength = strength or problem.first_strength()
    for k in range(steps):
        point, _ = problem.step(point, strength / 4**k)
        tangents = tuple(t.step(problem, point, strength / 4**k) for t in tangents)
    return cells, problem, point, tangents


@settings(max_examples=20)
@given(QUERIES, COUNTS, st.sampled_from([0, 1, 3]), st.sampled_from([None, 90]))
def test_the_derivative_is_that_of_the_whole_iteration(query, counts, steps, total):
    query = Query.of([*((b.matrix, b.weight) for b in query.blocks), (BLOCKS[0], 1)])
    estimate = fitted(query, counts + 3, spend=2)
    (m,) = estimate.measurements
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bregman, "GAP_TOLERANCE", 1e-9)
        patch.setattr(tangents_module, "TANGENT_SHARE", 1e-10)
        _, problem, point, tangents = after(estimate, steps, total=total)
        tree, move = problem.tree, tangents[0].values
        starts = tree.starts
        dy = np.concatenate([
            tree.restore_answers(b, move[starts[b] : starts[b + 1]])
            for b in range(len(tree.blocks))
        ])  # fmt: skip
        ends = []
        for h in (1e-4, -1e-4):
            moved = ps.infer.least_squares(replace(m, values=m.values + h * dy))
            ends.append(after(moved, steps, problem.first_strength(), total=total)[2].x)
    expected = (ends[0] - ends[1]) / 2e-4
    scale = np.abs(expected).max() + 1e-6
    assert_allclose(tangents[0].cells(problem, point), expected, atol=1e-4 * scale)


def test_the_mean_of_what_is_positive():
    means, deviations = np.linspace(-40, 30, 701), np.full(701, 1.5)
    values, slopes = positive_mean(means, deviations)
    assert (values > 0).all()
    assert (np.diff(values) > 0).all()
    assert_allclose(values[-1], 30)
    assert_allclose(slopes[1:-1], (values[2:] - values[:-2]) / 0.2, atol=2e-3)


# ---- risk --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_estimated_risk_is_unbiased():
    counts = np.array([60, 3, 0, 0, 5, 40, 0, 1, 0, 0, 25, 9])
    query = Query.of([(BLOCKS[0], 1), (BLOCKS[1], 2)])
    workload = ps.Workload(
        DOMAIN, [ps.product(a=ps.identity(), b=ps.prefix(), weight=2.0), ps.product()]
    )
    weights = np.repeat([2.0, 1.0], workload.query_counts)
    for steps in (0, 3):
        gaps = []
        for seed in range(120):
            estimate = fitted(query, counts, spend=Fraction(1, 20), seed=seed)
            cells, problem, point, tangents = after(estimate, steps, 16.0)
            risk = cells.risk(workload, cells.probes())
            moves = [risk.answers(t.cells(problem, point)) for t in tangents]
            truth = weights * workload.answer(problem.tree.restore(point.x) - counts)
            loss = (truth**2).sum()
            gaps.append((risk.risk(risk.answers(point.x), risk.passed(moves)) - loss, loss))
        bias, loss = np.mean(gaps, axis=0)
        error = np.std([gap for gap, _ in gaps]) / np.sqrt(len(gaps))
        assert abs(bias) < 5 * error
        assert error < 0.4 * loss


def test_many_ranges_have_the_risk_of_as_many_numbers_as_cells():
    domain = ps.Domain.of(a=9)
    estimate = fitted(Query.of([(mx.Identity(9), 1)]), range(9), domain=domain)
    cells = MeasuredCells.of(estimate)
    workload = ps.Workload(domain, [ps.product(a=ps.all_range())])
    risk = cells.risk(workload, cells.probes())
    x = np.arange(9.0)[::-1]
    assert risk.tree.size == 9
    assert risk.numbers == 45
    assert_allclose((risk.answers(x) ** 2).sum(), (workload.answer(x) ** 2).sum())
    cell_answers = [probe.fitted.answers((mx.Identity(9),)) for probe in cells.probes()]
    changes = [risk.answers(vector) for vector in cell_answers]
    # Least squares itself has the risk that it is known to have.
    noise = estimate.variances(workload).sum()
    assert_allclose(risk.risk(risk.answers(estimate.vector), risk.passed(changes)), noise)


def test_queries_that_are_not_determined_leave_the_judgement_to_the_measured():
    estimate = fitted(Query.of([(BLOCKS[1], 1)]), np.arange(12))
    workload = ps.Workload(DOMAIN, [ps.product(b=ps.identity())])
    cells = MeasuredCells.of(estimate)
    assert cells.risk(workload, cells.probes()).tree is cells.tree
    result = maximum_entropy(estimate, workload)
    assert_allclose(result.answer(workload).values, result.vector.sum() / 4)


def test_more_steps_have_to_be_better_by_more_than_chance():
    tree = MeasuredCells.of(fitted(Query.of([(BLOCKS[0], 1)]), [1] * 12)).tree
    risk = AskedRisk.of_measured(tree, np.zeros(12), np.full(12, 4.0), [np.full(12, 2.0)])
    near, far = np.zeros(12), np.full(12, 2.0)
    errors = 0.2 * np.sqrt(12)
    assert_allclose(risk.margin(near, far), errors * 2 * np.linalg.norm(far))
    assert risk.margin(near, near) == 0


def test_closer_than_least_squares_on_tables_of_small_counts():
    domain = ps.Domain.of(a=6, b=5, c=4)
    generator = np.random.default_rng(1)
    counts = generator.multinomial(200, generator.dirichlet(np.full(120, 0.2)))
    workload = ps.marginals(domain, k=2)
    errors = []
    for seed in range(5):
        estimate = fitted(workload.query, counts, domain=domain, seed=seed, spend=Fraction(1, 200))
        truth = workload.answer(counts)
        pair = (estimate, maximum_entropy(estimate, workload))
        errors.append([np.sqrt(np.mean((e.answer(workload).values - truth) ** 2)) for e in pair])
    plain, close = np.mean(errors, axis=0)
    assert close < 0.8 * plain


def test_steps_go_on_while_least_squares_is_better(monkeypatch):
    """The risk may rise for some steps while large counts are still far from where they belong."""
    shares = iter([90.0, 70.0, 72.0, 75.0, 74.0, 71.0, 0.5, 0.6, 0.7, 0.8])
    monkeypatch.setattr(AskedRisk, "risk", lambda self, *_: next(shares) * self.noise)
    monkeypatch.setattr(AskedRisk, "margin", lambda *_: 0.0)
    assert maximum_entropy(fitted(Query.of([(BLOCKS[0], 1)]), [9] * 12), TABLES).steps == 6


@cache
def two_pairs() -> tuple[ps.Workload, ps.Strategy]:
    """Prefixes of two pairs of attributes, and what is measured for them."""
    domain = ps.Domain.of(a=16, b=9, c=7)
    products = [ps.product(a=ps.prefix(), b=ps.prefix()), ps.product(a=ps.prefix(), c=ps.prefix())]
    workload = ps.Workload(domain, products)
    return workload, ps.select.hdmm(workload, restarts=1)


@cache
def many_ranges(seed: int) -> tuple[LeastSquares, ps.Workload, np.ndarray]:
    """Rows in a few cells, and their least squares."""
    (workload, strategy), rng = two_pairs(), np.random.default_rng(5)
    domain = workload.domain
    counts = np.zeros(domain.size, dtype=np.int64)
    counts[rng.choice(domain.size, 40, replace=False)] = rng.multinomial(
        4000, rng.dirichlet(np.ones(40))
    )
    spend = ps.epsilon(5)
    data = ps.simulate(
        counts.reshape(domain.shape), domain, unit=ps.add_remove_row(), budget=spend, seed=seed
    )
    return least_squares(data.vectorise().measure(strategy.query, spend=spend)), workload, counts


@pytest.mark.slow
def test_steps_towards_answers_come_nearer_to_those_of_least_squares():
    estimate, workload, _ = many_ranges(1)
    plain = estimate.answer(workload).values
    total = float(estimate.answer(ps.marginals(workload.domain, k=0)).values[0])
    nearest = nonnegative(estimate, workload=workload, total=total)
    fits = [maximum_entropy(estimate, workload, steps=k, in_answers=True) for k in (3, 6, 10)]
    assert all(fit.in_answers for fit in fits)
    distances = [np.linalg.norm(e.answer(workload).values - plain) for e in (*fits, nearest)]
    assert distances == sorted(distances, reverse=True)
    assert distances[2] <= 1.2 * distances[3]


@pytest.mark.slow
def test_steps_towards_answers_are_closer_than_least_squares_and_can_be_taken_again():
    errors = []
    for seed in range(3):
        estimate, workload, counts = many_ranges(seed)
        free = maximum_entropy(estimate, workload, in_answers=True)
        assert free.in_answers
        assert not free.classes
        again = maximum_entropy(
            estimate, workload, steps=free.steps, classes=False, in_answers=True
        )
        assert_allclose(again.vector, free.vector, rtol=1e-6, atol=1e-6)
        truth = workload.answer(counts)
        errors.append([np.mean((e.answer(workload).values - truth) ** 2) for e in (estimate, free)])
    plain, closer = np.mean(errors, axis=0)
    assert closer < plain


def test_steps_towards_answers_end_when_they_take_long(monkeypatch):
    """At once where the risk is low enough, and at another limit where it is not."""
    estimate, workload, _ = many_ranges(1)
    free = maximum_entropy(estimate, workload, in_answers=True)
    monkeypatch.setattr(entropy, "ANSWER_CELLS", 1)
    monkeypatch.setattr(entropy, "ENOUGH_RISK", np.inf)
    assert maximum_entropy(estimate, workload, in_answers=True).steps <= 1
    monkeypatch.setattr(entropy, "ENOUGH_RISK", 0.0)
    assert maximum_entropy(estimate, workload, in_answers=True).steps == free.steps
    monkeypatch.setattr(entropy, "MOST_ANSWER_CELLS", 1)
    assert maximum_entropy(estimate, workload, in_answers=True).steps <= 1
