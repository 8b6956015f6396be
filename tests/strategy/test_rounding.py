import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psephos.matrix import AllRange, Prefix
from psephos.strategy.factors import round_columns, round_pidentity
from psephos.strategy.gram_terms import gram_operator
from psephos.strategy.hdmm.gaussian import optimise_gaussian
from psephos.strategy.hdmm.opt0 import opt0


@st.composite
def thetas(draw):
    n, p = draw(st.integers(1, 6)), draw(st.integers(0, 5))
    flat = draw(st.lists(st.integers(0, 4000), min_size=n * p, max_size=n * p))
    return np.array(flat, dtype=float).reshape(p, n) / 4


@given(theta=thetas(), bits=st.integers(3, 12))
def test_all_columns_sum_to_the_same_power_of_two(theta, bits):
    diagonal, rows = round_pidentity(theta, bits)
    assert (diagonal + rows.sum(axis=0) == 2**bits).all()
    assert (diagonal >= 1).all()
    assert (rows >= 0).all()
    assert (rows[theta == 0] == 0).all()
    exact = theta / (1 + theta.sum(axis=0)) * 2**bits
    assert (np.abs(rows - exact) < 2).all()


@given(a=thetas().filter(lambda t: len(t) and t.any(axis=0).all()), bits=st.integers(2, 12))
def test_no_column_is_too_long_and_all_are_nearly_as_long(a, bits):
    signs = np.where(np.arange(a.size).reshape(a.shape) % 2, -1, 1)
    rounded = round_columns(a * signs, bits)
    lengths = np.sqrt((rounded**2).sum(axis=0))
    assert (lengths <= 2**bits).all()
    assert (lengths >= 2**bits - np.sqrt(len(a))).all()
    exact = a * signs / np.sqrt((a**2).sum(axis=0)) * 2**bits
    assert (np.abs(rounded - exact) <= 1.5 + 1e-9).all()


def rmse(a, g, norm):
    sensitivity = np.linalg.norm(a, norm) if norm == 1 else np.sqrt((a**2).sum(axis=0).max())
    return sensitivity * np.sqrt(np.trace(np.linalg.solve(a.T @ a, g)))


@pytest.mark.parametrize("queries", [AllRange(64), Prefix(115)], ids=repr)
def test_what_rounding_costs_under_laplace_noise(queries):
    gram = gram_operator([1.0], [queries])
    best = opt0(gram, rng=np.random.default_rng(0), restarts=1)
    g = queries.gram().dense()
    losses = []
    for bits in (5, 6, 7, 8, 9):
        diagonal, rows = round_pidentity(best.theta, bits)
        a = np.vstack([np.diag(diagonal), rows]).astype(float)
        losses.append(rmse(a, g, 1) / np.sqrt(best.error) - 1)
    assert (np.array(losses) <= [0.011, 0.003, 0.0008, 0.0002, 0.0001]).all()
    a = np.vstack([np.eye(len(g)), best.theta]) / (1 + best.theta.sum(axis=0))
    assert rmse(np.rint(256 * a), g, 1) / np.sqrt(best.error) - 1 > 0.002


@pytest.mark.parametrize("queries", [AllRange(64), Prefix(115)], ids=repr)
def test_what_rounding_costs_under_gaussian_noise(queries):
    g = queries.gram().dense()
    best = optimise_gaussian(g)
    losses = [
        rmse(round_columns(best.factor, bits).astype(float), g, 2) / np.sqrt(best.error) - 1
        for bits in (8, 10, 12)
    ]
    assert (np.array(losses) <= [0.001, 0.0002, 0.00005]).all()
