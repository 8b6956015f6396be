"""A stand-in with the source's counts is found out, and independent tables are not."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from psephos.domain.domain import Domain
from psephos.engines import as_source
from psephos.owner.stand_in import MOST_COINS, TRIED, _bound, are_alike, is_copy

SHAPES = [(50.0, 20), (50.0, 2000), (3.0, 200), (0.3, 5000), (0.001, 100_000), (3000.0, 500)]


@pytest.mark.slow
@pytest.mark.parametrize(("rate", "cells"), SHAPES)
@pytest.mark.parametrize("times", [1, 1.5, 20, 1000])
def test_independent_tables_pass(rate, cells, times):
    rng = np.random.default_rng(0)
    rates = rate * rng.gamma(2, 0.5, cells)
    for _ in range(20):
        assert not are_alike(rng.poisson(rates), rng.poisson(times * rates))


@pytest.mark.parametrize(("rate", "cells"), SHAPES)
def test_copies_with_a_line_more_are_refused(rate, cells):
    rng = np.random.default_rng(1)
    counts = rng.poisson(rate, cells)
    more = counts.copy()
    more[rng.integers(cells)] += 1
    assert are_alike(counts, counts)
    assert are_alike(counts, more)
    assert are_alike(more, counts)


def test_rows_that_are_all_different_are_compared():
    cells = np.arange(100_000) % 100 == 0
    assert are_alike(cells.astype(int), cells.astype(int))
    assert not are_alike(cells.astype(int), np.roll(cells, 1).astype(int))
    assert not are_alike(np.zeros(3), np.zeros(3))


@given(sizes=st.lists(st.integers(2, 4), min_size=1, max_size=4))
def test_the_bound_is_never_below_the_probability(sizes):
    """By all outcomes of fair coins."""
    sums, chances = np.zeros(1), np.ones(1)
    for n in sizes:
        heads = np.arange(n + 1)
        sums = np.add.outer(sums, (2 * heads - n) ** 2 / n).ravel()
        chances = np.multiply.outer(chances, binom.pmf(heads, n, 0.5)).ravel()
    for value in np.unique(sums):
        exact = chances[sums <= value + 1e-9].sum()
        assert _bound(float(value), np.array(sizes)) >= exact - 1e-9


@pytest.mark.parametrize("n", [1025, 1026, 1500, 2001, 20_000])
def test_large_cells_are_taken_for_smaller_ones_that_decide_less(n):
    """exp(-sT) has no larger mean than that of the cell it is taken for."""
    heads, most = np.arange(n + 1), MOST_COINS
    for s in TRIED:
        mean = binom.pmf(heads, n, 0.5) @ np.exp(-s * (2 * heads - n) ** 2 / n)
        law = binom.pmf(np.arange(most + 1), most, 0.5)
        smaller = law @ np.exp(-s * (2 * np.arange(most + 1) - most) ** 2 / most)
        assert mean <= max(smaller, (1 + 2 * s) ** -0.5) + 1e-12


def test_tables_are_compared_by_their_cells_whatever_their_form(tmp_path):
    rng = np.random.default_rng(2)
    domain = Domain.of({"sex": ["f", "m"], **{f"a{i}": 100 for i in range(12)}})  # 10²⁴ cells
    columns = {name: rng.integers(0, 3, 400) for name in domain.names[1:]}
    table = pa.table({"sex": rng.choice(["f", "m"], 400), **columns})
    order = rng.permutation(400)
    path = tmp_path / "again.csv"
    table.take(order).to_pandas().to_csv(path, index=False)
    again = as_source(path)
    other = pa.table({"sex": table["sex"], **{n: rng.integers(0, 3, 400) for n in columns}})
    assert is_copy(as_source(table), again, domain)
    assert is_copy(again, as_source(table.slice(1)), domain)
    assert not is_copy(as_source(table), as_source(other), domain)
