"""Strategy, budgets and recovery of Yaroslavtsev et al. (2013), by their numbers and by arrays."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import minimize

import psephos as ps
from psephos.kernel.query import Query
from psephos.matrix import Dense, Haar, Identity, Kron, Prefix, Stack, total
from psephos.strategy.datacube.budgets import budgeted, group_weights, row_groups, row_weights
from psephos.strategy.datacube.strategies import PlainStrategy
from psephos.variances import NoiseKind

LAPLACE, GAUSSIAN = NoiseKind
ADULT = ps.Domain.of(
    workclass=9, education=16, marital=7, occupation=15, relationship=6, race=5, sex=2, salary=2
)
"""The attributes of the paper's Adult table."""
INTRODUCTION = ps.marginals(ps.Domain.of(a=2, b=2, c=2), of=[("a",), ("a", "b")])
SEVEN = [("I", "uniform"), *((s, b) for s in "QFC" for b in ("uniform", "optimal"))]


@st.composite
def marginal_workloads(draw):
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    sets = [s for k in range(len(shape) + 1) for s in combinations(range(len(shape)), k)]
    some = draw(st.lists(st.sampled_from(sets), min_size=1, max_size=4, unique=True))
    domain = ps.Domain.of({f"x{i}": n for i, n in enumerate(shape)})
    names = [tuple(f"x{i}" for i in s) for s in some]
    weights = {each: draw(st.sampled_from([0.5, 1.0, 3.0])) for each in names}
    return ps.marginals(domain, of=names, weight=weights)


def realised(strategy, workload):
    """Blocks at noise of cost one, and the weighted queries, as arrays."""
    kind = strategy.noise
    blocks = [(float(b.weight), b.matrix.dense()) for b in strategy.query.blocks]
    size = sum(w * (np.abs(b) ** kind.norm).sum(axis=0) for w, b in blocks).max()
    return [(b, (w / size) ** kind.power) for w, b in blocks]


def least_squares_error(strategy, workload):
    blocks = realised(strategy, workload)
    x = sum(c * b.T @ b for b, c in blocks)
    w = workload.matrix.dense()
    return np.trace(np.linalg.pinv(x, rcond=1e-10, hermitian=True) @ w.T @ w)


def plain_error(strategy, workload):
    """Every product from its best block R_b: the least of ‖W B⁺‖² over the blocks that have it."""
    total_error = 0.0
    for i, product in enumerate(workload.products):
        w = workload.kron(i).dense()
        errors = []
        for b, c in realised(strategy, workload):
            r = w @ np.linalg.pinv(b)
            if np.allclose(r @ b, w):
                errors.append((r**2).sum() / c)
        total_error += product.weight**2 * min(errors)
    return total_error


# ---- the paper's numbers ------------------------------------------------------------------------


def test_the_six_numbers_of_the_introduction():
    """Sums of variances times ε²; the paper divides the budget 4 : 5 where the optimum is near."""
    w = INTRODUCTION
    a, ab = (w.kron(i) for i in range(2))
    hand = Query.of([(a, 4), (ab, 5)])
    plain = PlainStrategy(w.domain, LAPLACE, hand)
    even = ps.select.datacube(w, strategy="Q", recovery="plain")
    assert 2 * even.expected_error(w) == pytest.approx(48)
    assert 2 * plain.expected_error(w) == pytest.approx(46.17, abs=5e-3)
    # Half of the marginal's own answer and half of the sum of the larger one; and its reverse.
    scales = np.repeat([9 / 4, 9 / 5], [2, 4])
    halves = np.zeros((6, 6))
    halves[[0, 0, 0, 1, 1, 1], [0, 2, 3, 1, 4, 5]] = 0.5
    halves[2:4, :4] = [[0.5, 0, 0.5, -0.5], [0.5, 0, -0.5, 0.5]]
    halves[4:, [1, 4, 5]] = [[0.5, 0.5, -0.5], [0.5, -0.5, 0.5]]
    assert_allclose(halves @ w.matrix.dense(), w.matrix.dense())
    assert 2 * (halves**2 @ scales**2).sum() == pytest.approx(34.63, abs=5e-3)
    assert 2 * ps.Strategy(w.domain, LAPLACE, hand).expected_error(w) == pytest.approx(
        30.01, abs=5e-3
    )
    assert 2 * ps.select.datacube(w, strategy="Q").expected_error(w) == pytest.approx(32)
    assert 2 * ps.select.datacube(w).expected_error(w) == pytest.approx(16)
    assert 2 * ps.select.hdmm(w, restarts=1).expected_error(w) <= 16 * (1 + 1e-9)
    best = ps.select.datacube(w, strategy="Q", budgets="optimal", recovery="plain")
    assert best.expected_error(w) == pytest.approx((2 ** (1 / 3) + 4 ** (1 / 3)) ** 3)


@pytest.mark.parametrize(
    ("k", "rmse"),
    [
        (1, [684.27, 11.31, 10.46, 10.66, 9.61, 9.93]),
        (2, [253.43, 39.60, 34.48, 34.93, 29.07, 26.97]),
    ],
)
def test_errors_on_the_attributes_of_adult(k, rmse):
    """RMSE at ε = 1: I, Q and Q⁺ plain, Q and Q⁺ by least squares, C."""
    w = ps.marginals(ADULT, k=k)
    choices = [
        {"strategy": "I"},
        {"strategy": "Q", "recovery": "plain"},
        {"strategy": "Q", "budgets": "optimal", "recovery": "plain"},
        {"strategy": "Q"},
        {"strategy": "Q", "budgets": "optimal"},
        {"strategy": "C"},
    ]
    errors = [ps.select.datacube(w, **choice).expected_error(w) for choice in choices]
    assert_allclose(np.sqrt(2 * np.array(errors) / w.shape[0]), rmse, atol=5.1e-3)


def test_workloads_of_section_v():
    domain = ps.Domain.of({f"x{i}": 2 for i in range(6)})
    assert len(ps.marginals(domain, k=2).products) == 15
    assert len(ps.marginals(domain, k=2, half_above=True).products) == 15 + 10
    with_one = ps.marginals(domain, k=2, above_with="x3").products[15:]
    assert len(with_one) == 10
    assert all("x3" in product.factors for product in with_one)
    weighted = ps.marginals(domain, k=1, weight={("x2",): 4.0})
    assert [product.weight for product in weighted.products] == [1, 1, 4, 1, 1, 1]
    for options, message in [
        ({"up_to": 1, "half_above": True}, "goes with k"),
        ({"k": 1, "half_above": True, "above_with": "x1"}, "one of them"),
        ({"k": 1, "weight": {("x1", "x2"): 1.0}}, "no table of these"),
    ]:
        with pytest.raises(ps.WorkloadError, match=message):
            ps.marginals(domain, **options)
    with pytest.raises(ps.DomainError):
        ps.marginals(domain, k=1, above_with="y")


# ---- laws ---------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(workload=marginal_workloads(), noise=st.sampled_from(NoiseKind))
def test_errors_are_those_of_arrays(workload, noise):
    for letter, budgets in SEVEN:
        choice = {"strategy": letter, "budgets": budgets}
        strategy = ps.select.datacube(workload, noise, **choice)
        error = strategy.expected_error(workload)
        assert_allclose(error, least_squares_error(strategy, workload), rtol=1e-8)
        plain = ps.select.datacube(workload, noise, recovery="plain", **choice)
        assert plain.query == strategy.query
        recovered = plain.expected_error(workload)
        assert recovered >= error * (1 - 1e-9)
        if letter == "F":  # its rows are independent on each subspace: one recovery
            assert recovered == error
        else:
            assert_allclose(recovered, plain_error(plain, workload), rtol=1e-9)


@settings(max_examples=25)
@given(workload=marginal_workloads(), noise=st.sampled_from(NoiseKind))
def test_optimal_budgets_are_never_worse_for_plain_recovery(workload, noise):
    """Theorem 3.4 for a fixed recovery; weights are rounded to 20 bits."""
    for letter in "QFC":
        even, best = (
            ps.select.datacube(
                workload, noise, strategy=letter, budgets=budgets, recovery="plain"
            ).expected_error(workload)
            for budgets in ("uniform", "optimal")
        )
        assert best <= even * (1 + 1e-6)


@pytest.mark.parametrize("noise", NoiseKind)
def test_the_closed_form_is_corollary_3_3(noise):
    """(Σ s_r^⅓)³, or (Σ √s_r)²: in units of 2/ε² and 1/(2ρ), which count no 2 twice."""
    w = ps.marginals(ADULT, k=2)
    cells = np.array(w.query_counts, dtype=float)
    strategy = ps.select.datacube(w, noise, strategy="Q", budgets="optimal", recovery="plain")
    root = 1 / (noise.power + 1)
    assert strategy.expected_error(w) == pytest.approx((cells**root).sum() ** (1 / root), rel=1e-5)
    demands, sizes = np.array([3.0, 1.0, 7.0]), np.array([1.0, 4.0, 2.0])
    weights = group_weights(demands, sizes, noise)
    assert sizes @ weights == pytest.approx(1)
    closed = ((demands * sizes**noise.power) ** root).sum() ** (1 / root)
    assert (demands / weights**noise.power).sum() == pytest.approx(closed)


def test_fourier_rows_of_binary_attributes():
    """One row of ±1 for each set of attributes, whose L1 cost is that of the Hadamard transform."""
    w = ps.marginals(ps.Domain.of({f"x{i}": 2 for i in range(4)}), k=2)
    strategy = ps.select.datacube(w, strategy="F")
    rows = np.concatenate([block.matrix.dense() for block in strategy.query.blocks])
    assert rows.shape == (1 + 4 + 6, 16)
    assert (np.abs(rows) == 1).all()
    assert_allclose(rows @ rows.T, 16 * np.eye(11))
    # Σ over tables of 11²·(1/4 + 2/4 + 1/4): each of four coefficients gives a cell 1/16.
    assert strategy.expected_error(w) == pytest.approx(11**2 * 6 * 4 * 4 / 16)
    better = ps.select.datacube(w, strategy="F", budgets="optimal")
    assert better.expected_error(w) < strategy.expected_error(w)


def test_coefficients_are_estimated_from():
    """The contrast x₀ - x₁ goes through measurement and least squares like its residual."""
    domain = ps.Domain.of(a=2, b=3, c=2)
    w = ps.marginals(domain, up_to=2)
    strategy = ps.select.datacube(w, strategy="F", budgets="optimal")
    counts = np.arange(12) * 1000
    data = ps.simulate(counts, domain, unit=ps.add_remove_row(), budget=ps.epsilon(200), seed=1)
    measured = data.vectorise().measure(strategy.query, spend=ps.epsilon(100))
    answers = ps.infer.least_squares(measured).answer(w)
    matrix = np.concatenate([b.matrix.dense() for b in strategy.query.blocks])
    variances = np.repeat(
        [noise.exact_variance for noise in measured.noise],
        [b.matrix.shape[0] for b in strategy.query.blocks],
    )
    x = np.linalg.pinv(matrix.T @ (matrix / variances[:, None]), rcond=1e-10)
    cells = x @ matrix.T @ (measured.values / variances)
    assert_allclose(answers.values, w.matrix.dense() @ cells, atol=1e-6)
    assert_allclose(
        answers.stderr**2, np.diag(w.matrix.dense() @ x @ w.matrix.dense().T), rtol=1e-6
    )


def test_choices_are_checked():
    for options in ({"strategy": "W"}, {"budgets": "best"}, {"recovery": "simple"}):
        with pytest.raises(ps.WorkloadError, match="is one of"):
            ps.select.datacube(INTRODUCTION, **options)


# ---- plain recovery -----------------------------------------------------------------------------


def test_plain_recovery_sums_one_noisy_marginal():
    domain = ps.Domain.of(a=2, b=3, c=2)
    w = ps.marginals(domain, of=[("a", "b"), ("c",)])
    strategy = ps.select.datacube(w, strategy="Q", budgets="optimal", recovery="plain")
    counts = np.arange(12)
    data = ps.simulate(counts, domain, unit=ps.add_remove_row(), budget=ps.epsilon(9), seed=1)
    measured = data.vectorise().measure(strategy.query, spend=ps.epsilon(1))
    estimate = ps.infer.plain_recovery(measured)
    assert not estimate.biased
    assert "2 marginals" in repr(estimate)
    assert_allclose(estimate.answer(w).values, measured.values)
    spread = np.repeat([noise.exact_variance for noise in measured.noise], [6, 2])
    assert_allclose(estimate.answer(w).stderr ** 2, spread)
    budget, unit = ps.epsilon(1), ps.add_remove_row()
    assert_allclose(strategy.query_variances(w, budget, unit), spread)
    # Prefixes of b, the total (from c, which has fewer cells), and twice the same rows.
    other = ps.Workload(domain, [ps.product(b=ps.prefix()), ps.product(), ps.product(c=ps.total())])
    table, c = measured.values[:6].reshape(2, 3).sum(axis=0), measured.values[6:]
    assert_allclose(estimate.answer(other).values, [*np.cumsum(table), c.sum(), c.sum()])
    one = measured.noise[0].exact_variance, measured.noise[1].exact_variance
    expected = [2 * one[0], 4 * one[0], 6 * one[0], 2 * one[1], 2 * one[1]]
    assert_allclose(estimate.answer(other).stderr ** 2, expected)
    with pytest.raises(ps.UnsupportedError, match="not determined"):
        estimate.answer(ps.marginals(domain, k=3))
    residuals = ps.select.datacube(w, strategy="F").query
    coefficients = data.vectorise().measure(residuals, spend=ps.epsilon(1))
    with pytest.raises(ps.UnsupportedError, match="plain recovery sums"):
        ps.infer.plain_recovery(coefficients)


# ---- groups of any strategy ---------------------------------------------------------------------


def sketch(rng, repeats, buckets, cells):
    """Repeated random partitions with random signs."""
    rows = np.zeros((repeats, buckets, cells), dtype=np.int64)
    for each in rows:
        each[rng.integers(buckets, size=cells), np.arange(cells)] = rng.choice([-1, 1], cells)
    flat = rows.reshape(-1, cells)
    return Dense(flat[np.abs(flat).any(axis=1)])


def test_grouping_numbers_of_the_paper():
    """Section III-A: what groups there are, and the size C_r of their entries."""
    w = ps.Workload(ps.Domain.of(age=16), [ps.product(age=ps.prefix())])
    tree = row_groups(ps.select.h2(w).query.blocks[0].matrix)
    assert (tree.count, set(tree.sizes)) == (1 + 4, {1})  # the root too
    wavelet = row_groups(Haar(16))
    assert (wavelet.count, set(wavelet.sizes)) == (1 + 4, {1})
    assert row_groups(Kron((Haar(8), Haar(8)))).count == 4**2
    assert row_groups(Identity(7)).count == 1
    q = INTRODUCTION.matrix
    assert row_groups(q).numbers.tolist() == [0, 0, 1, 1, 1, 1]
    hadamard = Dense(np.array([[1, 1], [1, -1]]))
    assert row_groups(Kron((hadamard,) * 4)).count == 16
    projections = row_groups(sketch(np.random.default_rng(0), 5, 4, 32))
    assert (projections.count, set(projections.sizes)) == (5, {1})
    assert row_groups(Stack((Dense(3 * np.eye(4, dtype=int)), total(4)))).sizes == (3, 1)
    assert row_groups(Prefix(4)) is None  # rows overlap, and do not cover all cells
    assert row_groups(Dense(np.array([[1, 2]]))) is None


@pytest.mark.parametrize("noise", NoiseKind)
def test_budgets_of_groups_are_those_of_the_convex_programme(noise):
    """Where a grouping exists and R treats a group alike, it loses nothing (Theorem 3.4)."""
    groups = row_groups(Haar(8))
    matrix = np.abs(Haar(8).dense()) ** noise.norm
    sums = np.array([1.0, 5.0, 2.0, 9.0])
    demands = (sums / np.bincount(groups.numbers))[groups.numbers]
    weights = row_weights(demands, matrix, noise.power)
    closed = group_weights(sums, np.ones(4), noise)
    assert_allclose(weights, closed[groups.numbers], rtol=2e-3)


@pytest.mark.parametrize("noise", NoiseKind)
def test_the_convex_programme_is_solved(noise):
    rng = np.random.default_rng(3)
    sizes = rng.integers(0, 4, (5, 4)).astype(float) ** noise.norm + np.eye(5, 4)
    demands = rng.uniform(1, 9, 5)
    weights = row_weights(demands, sizes, noise.power)
    assert (sizes.T @ weights <= 1 + 1e-9).all()
    reference = minimize(
        lambda x: (demands / x**noise.power).sum(),
        np.full(5, 0.5 / sizes.sum(axis=0).max()),
        jac=lambda x: -noise.power * demands / x ** (noise.power + 1),
        bounds=[(1e-6, None)] * 5,
        constraints={"type": "ineq", "fun": lambda x: 1 - sizes.T @ x, "jac": lambda x: -sizes.T},
        method="SLSQP",
        options={"maxiter": 500, "ftol": 1e-12},
    )
    assert (demands / weights**noise.power).sum() <= reference.fun * (1 + 1e-4)


@pytest.mark.parametrize("noise", NoiseKind)
def test_any_strategy_gets_budgets(noise):
    line = ps.Workload(ps.Domain.of(age=16), [ps.product(age=ps.all_range())])
    for select, groups in ((ps.select.h2, 5), (ps.select.privelet, 5), (ps.select.workload, None)):
        even = select(line, noise)
        best = budgeted(even, line)
        assert best.name == f"{even.name}⁺"
        assert groups in (None, len(best.query.blocks))
        assert best.expected_error(line) < even.expected_error(line)
    # Marginals come out as Q⁺ does where least squares has nothing to combine.
    apart = ps.marginals(ps.Domain.of(a=2, b=3), of=[("a", "b")])
    assert budgeted(ps.select.workload(apart, noise), apart).expected_error(apart) == 6
    with pytest.raises(ps.TooLargeError, match="row by row"):
        budgeted(ps.select.identity(ps.marginals(ADULT, k=1), noise), ps.marginals(ADULT, k=1))
    with pytest.raises(ps.WorkloadError, match="for a Strategy"):
        budgeted("h2", line)


# ---- privacy ------------------------------------------------------------------------------------


EQUAL = ps.Domain.of(a=range(4), b=range(4), c=range(4), d=range(2))
DIFFERENT = ps.Workload(
    EQUAL,
    [
        ps.product(a=ps.prefix(), b=ps.identity()),
        ps.product(b=ps.identity(), c=ps.all_range()),
        ps.product(a=ps.identity(), c=ps.identity(), d=ps.identity()),
        ps.product(a=ps.prefix(), c=ps.prefix()),
    ],
)
"""Attributes of one size, asked by different queries."""


def realised_costs(measurement):
    """What one row more or less costs in every cell, from the measured matrices and their noise."""
    costs = 0
    for block, noise in zip(measurement.query.blocks, measurement.noise, strict=True):
        matrix = block.matrix.dense()
        if isinstance(noise, ps.DiscreteLaplace):
            costs = costs + np.abs(matrix).sum(axis=0) / float(noise.scale)
        else:
            costs = costs + (matrix**2).sum(axis=0) / (2 * float(noise.variance))
    return costs


@pytest.mark.parametrize("noise", NoiseKind)
@pytest.mark.parametrize(
    "name", ["hdmm", "workload", "privelet", pytest.param("opt_union", marks=pytest.mark.slow)]
)
def test_equal_sizes_with_different_bases_keep_the_claim(name, noise):
    """A basis is an attribute's own: mixing up those of one size would cost more than charged."""
    options = {"restarts": 1, "cores": 1} if name in ("hdmm", "opt_union") else {}
    options |= {"effort": 0.5} if name == "hdmm" else {}
    strategy = getattr(ps.select, name)(DIFFERENT, noise, **options)
    assert_claim(strategy, ps.Budget(noise.currency, ps.epsilon("1/3").amount))


@pytest.mark.parametrize("noise", NoiseKind)
@pytest.mark.parametrize(("letter", "budgets"), SEVEN)
def test_datacubes_keep_the_claim(letter, budgets, noise):
    cube = ps.marginals(EQUAL, k=1, half_above=True, weight={("a",): 3.0})
    strategy = ps.select.datacube(cube, noise, strategy=letter, budgets=budgets)
    assert_claim(strategy, ps.Budget(noise.currency, ps.epsilon("1/3").amount))


def assert_claim(strategy, spend):
    """No cell costs more than was spent, and some cell costs all of it."""
    counts = np.zeros(EQUAL.size, dtype=int)
    data = ps.simulate(counts, EQUAL, unit=ps.add_remove_row(), budget=spend, seed=0)
    costs = realised_costs(data.vectorise().measure(strategy.query, spend=spend))
    assert costs.max() <= float(spend.amount) * (1 + 1e-12)
    assert costs.max() >= float(spend.amount) * (1 - 1e-6)
