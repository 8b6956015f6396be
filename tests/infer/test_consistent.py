"""Consistency in L1 and L∞: tables of some cells, as near as can be."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.optimize import linprog

import psephos as ps
from psephos.infer import consistency

DOMAIN = ps.Domain.of(a=2, b=3, c=2)
CUBE = ps.marginals(DOMAIN, up_to=2)
COUNTS = np.array([5, 0, 12, 3, 7, 0, 9, 25, 1, 0, 2, 30])
NORMS = ("l1", "linf")


def measured(seed, strategy, spend="1/2"):
    data = ps.simulate(COUNTS, DOMAIN, unit=ps.add_remove_row(), budget=ps.epsilon(9), seed=seed)
    return data.vectorise().measure(strategy.query, spend=ps.epsilon(spend))


def distance(moves, norm):
    return np.abs(moves).sum() if norm == "l1" else np.abs(moves).max()


def nearest_by_cells(measurement, norm):
    """The same least distance, by a programme whose variables are all cells."""
    blocks = measurement.query.blocks
    matrix = np.concatenate([b.matrix.dense() for b in blocks])
    scale = 1 / np.sqrt(measurement.variances)
    a, y = scale[:, None] * matrix, scale * measurement.values
    m, n = a.shape
    columns = m if norm == "l1" else 1
    t = np.eye(m) if norm == "l1" else np.ones((m, 1))
    result = linprog(
        np.concatenate([np.zeros(n), np.ones(columns)]),
        A_ub=np.block([[a, -t], [-a, -t]]),
        b_ub=np.concatenate([y, -y]),
        bounds=[(None, None)] * (n + columns),
    )
    return result.fun


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), norm=st.sampled_from(NORMS), budgets=st.booleans())
def test_nothing_consistent_is_nearer(seed, norm, budgets):
    choice = "optimal" if budgets else "uniform"
    strategy = ps.select.datacube(CUBE, strategy="Q", budgets=choice)
    measurement = measured(seed, strategy)
    estimate = ps.infer.consistent(measurement, norm)
    least = nearest_by_cells(measurement, norm)
    assert_allclose(distance(estimate.moves, norm), least, rtol=1e-6, atol=1e-9)
    # The noise was as large at least: so the error at most doubles (section III-C).
    true = np.concatenate([b.matrix.dense() for b in strategy.query.blocks]) @ COUNTS
    noise = (measurement.values - true) / np.sqrt(measurement.variances)
    assert least <= distance(noise, norm) + 1e-9
    # Tables of some vector of cells: there is one with all their numbers.
    answers = estimate.answer(CUBE).values
    cells = np.linalg.lstsq(CUBE.matrix.dense(), answers, rcond=None)[0]
    assert_allclose(CUBE.matrix.dense() @ cells, answers, atol=1e-6)


def test_all_norms_agree_where_numbers_fit_by_themselves():
    """Independent queries are consistent as they are: Fourier coefficients, one marginal."""
    binary = ps.marginals(DOMAIN, of=[(), ("a",), ("a", "c")])
    for strategy in (ps.select.datacube(binary, strategy="F"), ps.select.identity(binary)):
        measurement = measured(1, strategy)
        plain = ps.infer.consistent(measurement).answer(binary).values
        for norm in NORMS:
            answers = ps.infer.consistent(measurement, norm).answer(binary)
            assert answers.stderr is None
            assert_allclose(answers.values, plain, atol=1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_errors_are_odd_in_the_noise_and_do_not_depend_on_counts(norm):
    """So they are unbiased: with the opposite noise, on other counts, the opposite error."""
    strategy = ps.select.workload(CUBE)
    matrix = np.concatenate([b.matrix.dense() for b in strategy.query.blocks]).astype(np.int64)
    measurement = measured(5, strategy)
    noise = measurement.values - matrix @ COUNTS
    other = COUNTS[::-1] + 7
    turned = replace(measurement, values=matrix @ other - noise)
    errors = ps.infer.consistent(measurement, norm).answer(CUBE).values - CUBE.answer(COUNTS)
    opposite = ps.infer.consistent(turned, norm).answer(CUBE).values - CUBE.answer(other)
    assert_allclose(errors, -opposite, atol=1e-6)


def test_l2_is_least_squares():
    measurement = measured(2, ps.select.workload(CUBE))
    estimate = ps.infer.consistent([measurement])
    assert isinstance(estimate, ps.LeastSquares)
    assert not estimate.biased


def test_other_products_are_made_consistent_too():
    w = ps.Workload(DOMAIN, [ps.product(b=ps.prefix(), a=ps.identity()), ps.product(b=ps.total())])
    measurement = measured(3, ps.select.workload(w))
    for norm in NORMS:
        estimate = ps.infer.consistent(measurement, norm)
        answers = estimate.answer(w).values
        assert answers[2] + answers[5] == pytest.approx(answers[6])
        assert_allclose(distance(estimate.moves, norm), nearest_by_cells(measurement, norm))
        assert norm in repr(estimate)


def test_what_is_refused(monkeypatch):
    measurement = measured(4, ps.select.datacube(ps.marginals(DOMAIN, k=1), strategy="Q"))
    estimate = ps.infer.consistent(measurement, "l1")
    with pytest.raises(ps.UnsupportedError, match="not determined"):
        estimate.answer(CUBE)
    with pytest.raises(ps.RefusedError, match='"l2", "l1" or "linf"'):
        ps.infer.consistent(measurement, "l3")
    monkeypatch.setattr(consistency, "LARGEST_PROGRAMME", 3)
    with pytest.raises(ps.TooLargeError, match="over its limit of 3"):
        ps.infer.consistent(measurement, "linf")
    stacked = ps.Query.of(ps.matrix.Prefix(12))
    data = ps.simulate(COUNTS, DOMAIN, unit=ps.add_remove_row(), budget=ps.epsilon(1), seed=0)
    monkeypatch.setattr(consistency, "LARGEST_PROGRAMME", 100)
    with pytest.raises(ps.UnsupportedError, match="products over the attributes"):
        ps.infer.consistent(data.vectorise().measure(stacked, spend=ps.epsilon(1)), "l1")
