"""Bases of residuals: prefixes, ranges and levels among marginals, under Gaussian noise."""

import math
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import psephos as ps
from psephos import matrix as mx
from psephos.inverse.marginal_blocks import residual_basis
from psephos.inverse.subspaces import Subspaces
from psephos.kernel.budget import Budget, exact
from psephos.kernel.measurement import noise_for
from psephos.kernel.sensitivity import sensitivity
from psephos.strategy.hdmm import residual_bases
from psephos.strategy.hdmm.residual_bases import best_basis, integer_basis
from psephos.variances import NoiseKind

LINES = {"prefix": ps.prefix, "ranges": ps.all_range, "values": ps.identity}


def on_differences(queries):
    n = queries.shape[1]
    centre = np.eye(n) - 1 / n
    return centre @ queries.gram().dense() @ centre


def asked(kinds, up_to):
    """All products of up to so many attributes, each asked in its own way."""
    names = list(kinds)
    domain = ps.Domain.of({name: n for name, (n, _) in kinds.items()})
    sets = [s for k in range(up_to + 1) for s in combinations(names, k)]
    return ps.Workload(
        domain, [ps.product({name: LINES[kinds[name][1]]() for name in s}) for s in sets]
    )


# ---- one attribute -----------------------------------------------------------------------------


@pytest.mark.parametrize("queries", [mx.Prefix(30), mx.AllRange(30), mx.Haar(32)])
def test_no_diagonal_of_ones_does_better(queries):
    """X⁺GX⁺ as a certificate: its diagonal bounds the error of every X from below."""
    gram = on_differences(queries)
    x = best_basis(gram)
    assert x.diagonal().max() <= 1 + 1e-9
    assert_allclose(x.sum(axis=0), 0, atol=1e-9)
    inverse = np.linalg.pinv(x, hermitian=True, rcond=1e-10)
    error = float((inverse * gram).sum())
    weights = np.maximum((inverse @ gram @ inverse).diagonal(), 0)
    half = np.sqrt(weights)
    roots = np.sqrt(np.maximum(np.linalg.eigvalsh(gram * half * half[:, None]), 0))
    assert error <= 1.003 * roots.sum() ** 2 / weights.sum()


def test_values_one_by_one_need_no_basis():
    assert best_basis(on_differences(mx.Identity(9))) is None


@settings(max_examples=40)
@given(st.integers(4, 40), st.integers(6, 12), st.integers(0, 99))
def test_whole_rows_sum_to_zero_and_columns_have_one_length(n, bits, seed):
    queries = np.random.default_rng(seed).integers(-2, 3, (n + 1, n))
    x = best_basis(on_differences(mx.Dense(queries)))
    if x is None:
        return
    matrix = integer_basis(x, bits)
    if matrix is None:
        assert n < 7  # few columns cannot always be made equal
        return
    rows = matrix.array.astype(np.int64)
    assert not rows.sum(axis=1).any()
    assert np.unique((rows**2).sum(axis=0)).size == 1
    assert np.linalg.matrix_rank(rows) == n - 1
    assert len(rows) <= n - 1 + residual_bases.FILLING_ROWS


@pytest.mark.parametrize("n", [10, 100])
def test_rounding_costs_next_to_nothing(n):
    queries = mx.Prefix(n)
    x = best_basis(on_differences(queries))
    error = float((np.linalg.pinv(x, hermitian=True, rcond=1e-12) * on_differences(queries)).sum())
    matrix = integer_basis(x, 10)
    length = int((matrix.array[:, 0].astype(int) ** 2).sum())
    assert length * residual_basis(matrix).inverse.trace_with(queries) <= 1.001 * error


# ---- strategies --------------------------------------------------------------------------------

SMALL = {
    "prefixes and values": ({"age": (8, "prefix"), "sex": (2, "values"), "race": (5, "values")}, 2),
    "two lines": ({"age": (8, "prefix"), "pay": (6, "ranges"), "sex": (3, "values")}, 3),
    "equal sizes, different bases": (
        {"age": (7, "prefix"), "pay": (7, "ranges"), "job": (7, "values")},
        3,
    ),
}


def parts(strategy):
    return [(b.matrix.dense(), float(b.weight)) for b in strategy.query.blocks]


@pytest.mark.parametrize("case", SMALL)
def test_the_cost_rebuilt_from_what_is_measured_is_that_of_the_kernel(case):
    """Δ² from the written out matrices, column by column: no attribute has another one's basis."""
    workload = asked(*SMALL[case])
    strategy = ps.select.residual(workload)
    assert strategy.name == "residual bases"
    columns = sum(float(w) * (a**2).sum(axis=0) for a, w in parts(strategy))
    assert_allclose(columns, float(sensitivity(strategy.query, 2)))
    # The noise that is drawn for ρ costs one row at most ρ: Σ Δ²/(2σ²) over all blocks.
    rho = Budget("rho", exact("1/8", "spend"))
    noises = noise_for(strategy.query, rho, ps.add_remove_row(), 1)
    moved = [
        (a**2).sum(axis=0) / (2 * noise.variance)
        for (a, _), noise in zip(parts(strategy), noises, strict=True)
    ]
    assert sum(moved).max() == pytest.approx(1 / 8, rel=1e-3)


@pytest.mark.parametrize("case", SMALL)
def test_the_error_is_that_of_the_written_out_matrices(case):
    workload = asked(*SMALL[case])
    strategy = ps.select.residual(workload)
    assert isinstance(strategy._form, Subspaces)
    delta = float(sensitivity(strategy.query, 2))
    x = sum(w * a.T @ a for a, w in parts(strategy)) / delta
    w = workload.matrix.dense()
    inverse = np.linalg.pinv(x, hermitian=True, rcond=1e-12)
    assert strategy.expected_error(workload) == pytest.approx(np.trace(inverse @ w.T @ w), rel=1e-6)
    rival = next(rival.error for rival in strategy.rivals if rival.name == "residual")
    assert strategy.expected_error(workload) < rival


def test_each_attribute_has_the_basis_of_its_own_queries():
    """Two attributes of one size: exchanging what is asked of them exchanges what is measured."""
    kinds = {"age": (9, "prefix"), "pay": (9, "ranges")}
    turned = {"age": (9, "ranges"), "pay": (9, "prefix")}
    first, second = (ps.select.residual(asked(k, 2)) for k in (kinds, turned))

    def bases(strategy):
        both = next(b.matrix for b in strategy.query.blocks if len(b.matrix.active) == 2)
        return [factor.array for _, factor in both.active]

    assert not np.array_equal(*[b[: len(bases(first)[0])] for b in bases(first)])
    for a, b in zip(bases(first), reversed(bases(second)), strict=True):
        assert np.array_equal(a, b)


def test_queries_on_equal_axes_are_told_apart():
    """The same matrix asked of two attributes of one size, which have different bases."""
    kinds = {"age": (7, "prefix"), "pay": (7, "ranges")}
    form = ps.select.residual(asked(kinds, 2))._form
    prefix, total = mx.Prefix(7), mx.total(7)
    separate = [form.trace((prefix, total)), form.trace((total, prefix))]
    assert separate[0] != pytest.approx(separate[1], rel=1e-3)
    assert_allclose(form.variances((prefix, total)).sum(), separate[0])
    assert_allclose(form.variances((total, prefix)).sum(), separate[1])


def test_an_attribute_asked_in_several_ways_gets_one_basis_for_all():
    domain = ps.Domain.of(age=40, sex=2, job=6)
    products = [
        ps.product(age=ps.prefix()),
        ps.product(age=ps.identity(), sex=ps.identity()),
        ps.product(age=ps.all_range(), job=ps.identity(), weight=0.1),
        ps.product(sex=ps.identity(), job=ps.identity()),
    ]
    workload = ps.Workload(domain, products)
    strategy = ps.select.residual(workload)
    assert strategy.name == "residual bases"
    rival = next(rival.error for rival in strategy.rivals if rival.name == "residual")
    assert strategy.expected_error(workload) < 0.8 * rival


def test_levels_and_prefixes_of_many_attributes_are_answered():
    """20 attributes, 10²⁵ cells: z-scores of drawn answers, prefixes and values alike."""
    kinds = {"age": (60, "prefix"), "pay": (60, "ranges")}
    kinds |= {f"a{i}": (4, "values") for i in range(18)}
    workload = asked(kinds, 2)
    strategy = ps.select.hdmm(workload, "gaussian")
    assert strategy.name == "residual bases"
    assert strategy.error_is_exact
    rng = np.random.default_rng(5)
    columns = {name: rng.integers(0, n, 2000) for name, (n, _) in kinds.items()}
    budget = ps.rho("1/2")
    data = ps.simulate(
        pl.DataFrame(columns), workload.domain, unit=ps.add_remove_row(), budget=budget, seed=3
    )
    noisy = data.vectorise().measure(strategy.query, spend=budget)
    estimate = ps.infer.least_squares(noisy)
    few = ps.Workload(
        workload.domain,
        [ps.product(age=ps.prefix(), a3=ps.identity()), ps.product(age=ps.identity())],
    )
    answers = estimate.answer(few)
    table = np.zeros((60, 4))
    np.add.at(table, (columns["age"], columns["a3"]), 1)
    true = np.concatenate([table.cumsum(axis=0).ravel(), table.sum(axis=1)])
    z = (answers.values - true) / answers.stderr
    assert 0.6 < math.sqrt((z**2).mean()) < 1.5
    assert np.abs(z).max() < 6


def test_what_is_asked_by_values_alone_is_measured_by_values():
    workload = ps.marginals(ps.Domain.of(a=5, b=6), up_to=2)
    assert ps.select.residual(workload).name == "residual"


def test_blocks_leave_room_for_the_rows_of_a_table():
    kinds = {f"a{i}": (50, "prefix") for i in range(4)}
    strategy = ps.select.residual(asked(kinds, 3))
    largest = max(
        math.prod(int(np.abs(f.array).max()) for _, f in block.matrix.active)
        for block in strategy.query.blocks
    )
    assert largest < 1 << 31
    assert strategy.rounding_loss < 0.01
    assert strategy.noise is NoiseKind.GAUSSIAN
