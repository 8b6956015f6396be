"""Tables without a vector of cells: their constraints, their agreement and their error."""

import math
import sys
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.integrate import quad

import psephos as ps
from psephos import matrix as mx
from psephos.errors import ShapeError, UnsupportedError
from psephos.infer import ratio_prior
from psephos.infer.entropy import maximum_entropy
from psephos.infer.local_tables import AGREEMENT, local_tables
from psephos.infer.ratio_prior import NoisyCells, family_weights, table_weights
from psephos.kernel.query import Query

module = sys.modules["psephos.infer.local_tables"]  # the function hides it

DOMAIN = ps.Domain.of(a=3, b=4, c=2)
PAIRS, TRIPLES = ps.marginals(DOMAIN, up_to=2), ps.marginals(DOMAIN, up_to=3)
COUNTS = st.lists(st.sampled_from([0, 0, 1, 5, 40]), min_size=24, max_size=24).map(np.array)
SPENDS = st.sampled_from([ps.epsilon("1/20"), ps.epsilon(2), ps.rho("1/100"), ps.rho(3)])


def fitted(query, counts, *, spend=None, seed=0, domain=DOMAIN):
    spend = ps.epsilon(1) if spend is None else spend
    unit = ps.add_remove_row()
    data = ps.simulate(np.asarray(counts), domain, unit=unit, budget=spend, seed=seed)
    return ps.infer.least_squares(data.vectorise().measure(query, spend=spend))


# ---- constraints -------------------------------------------------------------------------------


@settings(max_examples=40)
@given(COUNTS, SPENDS, st.integers(0, 99), st.sampled_from([None, 0, 7, 100.5]), st.booleans())
def test_no_cell_is_negative_and_every_table_has_the_total(counts, spend, seed, total, triples):
    workload = TRIPLES if triples else PAIRS
    estimate = fitted(workload.query, counts, spend=spend, seed=seed)
    tables = local_tables(estimate, workload, total=total)
    rows = ps.Workload(DOMAIN, [ps.product()])
    expected = max(0.0, estimate.answer(rows).values[0]) if total is None else total
    for cells in tables.tables.values():
        assert (cells >= 0).all()
        assert_allclose(cells.sum(), expected, atol=1e-6)
    assert set(tables.tables) == {s for k in range(3 + triples) for s in combinations(range(3), k)}
    assert tables.biased
    assert tables.simulation
    assert (tables.answer(workload).values >= 0).all()
    assert isinstance(tables, ps.infer.Estimate)


@settings(max_examples=20)
@given(COUNTS, SPENDS, st.integers(0, 99))
def test_inconsistency_is_what_tables_differ_by(counts, spend, seed):
    estimate = fitted(TRIPLES.query, counts, spend=spend, seed=seed)
    local = local_tables(estimate, TRIPLES)
    gaps = []
    for axes, cells in local.tables.items():
        grid = cells.reshape([DOMAIN.shape[i] for i in axes])
        for k in range(len(axes)):
            fewer = axes[:k] + axes[k + 1 :]
            names = {DOMAIN.names[i]: ps.identity() for i in fewer}
            asked_table = ps.Workload(DOMAIN, [ps.product(**names)])
            deviation = math.sqrt(estimate.variances(asked_table).mean())
            gaps.append((grid.sum(axis=k).reshape(-1) - local.tables[fewer]) / deviation)
    each = np.abs(np.concatenate(gaps))
    assert_allclose(local.inconsistency.largest, each.max(), atol=1e-9)
    assert_allclose(local.inconsistency.root_mean_square, math.sqrt((each**2).mean()), atol=1e-9)


def test_pairs_always_agree():
    """Two tables of one attribute have a table of both; three of two need not have one of three."""
    estimate = fitted(PAIRS.query, np.arange(24) % 5 * 20)
    assert local_tables(estimate, PAIRS).inconsistency.largest <= 10 * AGREEMENT


def test_gaps_go_where_cells_are_known_least():
    margin = module._Margin(0, np.array([24.0]), 1.0)
    moved = module._corrected(np.array([10.0, 10.0]), np.array([3.0, 1.0]), [margin])
    assert_allclose(moved, [13, 11])


def test_tables_that_contradict_each_other_give_way(monkeypatch):
    domain, counts = ps.Domain.of(a=3, b=3, c=3), np.eye(27)[13] * 60 + np.eye(27)[0] * 60
    workload = ps.marginals(domain, up_to=3)
    estimates = [
        fitted(workload.query, counts.astype(int), seed=k, domain=domain) for k in range(8)
    ]
    after = [local_tables(each, workload).inconsistency.largest for each in estimates]
    monkeypatch.setattr(module, "SWEEPS", 0)
    before = [local_tables(each, workload).inconsistency.largest for each in estimates]
    assert max(after) < 0.5 * max(before)


@given(COUNTS)
@settings(max_examples=10)
def test_the_same_input_gives_the_same_output(counts):
    estimate = fitted(TRIPLES.query, counts)
    one, other = (local_tables(estimate, TRIPLES) for _ in range(2))
    assert (one.answer(TRIPLES).values == other.answer(TRIPLES).values).all()
    assert one.inconsistency == other.inconsistency


def test_the_order_of_tables_does_not_matter():
    estimate = fitted(PAIRS.query, np.arange(24))
    turned = ps.Workload(DOMAIN, PAIRS.products[::-1])
    one, other = local_tables(estimate, PAIRS), local_tables(estimate, turned)
    assert (one.answer(PAIRS).values == other.answer(PAIRS).values).all()


# ---- answers -----------------------------------------------------------------------------------


def test_answers_of_ranges_come_from_tables():
    estimate = fitted(PAIRS.query, np.arange(24))
    workload = ps.Workload(
        DOMAIN,
        [ps.product(b=ps.prefix(), c=ps.identity()), ps.product(), ps.product(b=ps.prefix())],
    )
    local = local_tables(estimate, workload + PAIRS)
    prefixes = local.table("b", "c").cumsum(axis=0)
    total = local.tables[()]
    expected = np.concatenate([prefixes.reshape(-1), total, local.table("b").cumsum()])
    values = local.answer(workload)
    assert_allclose(values.values, expected, rtol=1e-9)
    assert values.stderr is None
    assert values.biased
    assert_allclose(local.table("c", "b"), local.table("b", "c").T)


def test_progress_counts_tables():
    calls = []
    local_tables(fitted(PAIRS.query, np.arange(24)), PAIRS, progress=lambda *n: calls.append(n))
    assert calls == [(k, 6) for k in range(1, 7)]


def test_what_cannot_be_answered_is_refused():
    estimate = fitted(PAIRS.query, np.arange(24))
    with pytest.raises(UnsupportedError, match="not determined"):
        local_tables(estimate, TRIPLES)
    with pytest.raises(UnsupportedError, match="no table of a, b, c together"):
        local_tables(estimate, PAIRS).answer(TRIPLES)
    ranges = ps.Workload(DOMAIN, [ps.product(b=ps.prefix())])
    tree = fitted(Query.of([(mx.Kron((mx.Ones(1, 3), mx.Prefix(4), mx.Ones(1, 2))), 1)]), [9] * 24)
    with pytest.raises(UnsupportedError, match="asks for sums of cells"):
        local_tables(tree, ranges)
    cells = ps.Workload(DOMAIN, [ps.product(b=ps.identity())])
    assert_allclose(local_tables(tree, cells, total=216).table("b").sum(), 216)
    with pytest.raises(ShapeError, match="a total is a number from 0"):
        local_tables(estimate, PAIRS, total=-1)
    wide = ps.Domain.of(a=5000, b=5000)
    blocks = [(mx.Kron((mx.Identity(5000), mx.Ones(1, 5000))), 1)]
    estimate = fitted_rows(wide, Query.of(blocks))
    with pytest.raises(UnsupportedError, match="25,000,000 cells at a time"):
        local_tables(estimate, ps.marginals(wide, k=2))
    assert set(local_tables(estimate, ps.marginals(wide, k=0)).tables) == {()}


def fitted_rows(domain, query):
    import polars as pl

    frame = pl.DataFrame({name: [1, 2] for name in domain.names})
    spend = ps.epsilon(1)
    data = ps.simulate(frame, domain, unit=ps.add_remove_row(), budget=spend, seed=0)
    return ps.infer.least_squares(data.vectorise().measure(query, spend=spend))


# ---- error, in simulations ---------------------------------------------------------------------


def errors(counts, domain, up_to, epsilon, draws=3):
    """Root mean square errors of least squares, of maximum entropy and of local tables."""
    workload = ps.marginals(domain, up_to=up_to)
    true, squares = workload.answer(counts), np.zeros(3)
    for seed in range(draws):
        estimate = fitted(
            workload.query, counts, spend=ps.epsilon(epsilon), seed=seed, domain=domain
        )
        several = (estimate, maximum_entropy(estimate, workload), local_tables(estimate, workload))
        squares += [((each.answer(workload).values - true) ** 2).mean() for each in several]
    return np.sqrt(squares / draws)


def mixture(domain, rows, parts, seed=5):
    """Counts of a mixture of distributions with independent attributes."""
    generator = np.random.default_rng(seed)
    cells = np.zeros(domain.shape)
    for share in generator.dirichlet(np.ones(parts)):
        part = np.array(share)
        for n in domain.shape:
            part = np.multiply.outer(part, generator.dirichlet(np.full(n, 0.4)))
        cells += part
    return generator.multinomial(rows, cells.reshape(-1) / cells.sum())


@pytest.mark.parametrize(
    ("rows", "up_to", "epsilon", "share"),
    [
        (20_000, 2, "1/10", 0.9),
        (20_000, 3, "1/10", 0.53),
        (20_000, 3, 1, 0.82),
        (500, 2, "1/10", 0.21),
        (500, 3, 1, 0.38),
        (500, 3, 10, 0.7),
    ],
)
def test_closer_than_least_squares_and_about_as_close_as_cells(rows, up_to, epsilon, share):
    domain = ps.Domain.of(a=6, b=5, c=4, d=8)
    linear, cells, local = errors(mixture(domain, rows, 6), domain, up_to, epsilon)
    assert local <= share * linear
    assert local <= 1.2 * cells


def test_large_counts_are_left_to_least_squares():
    domain = ps.Domain.of(a=6, b=5, c=4)
    counts = 2000 + np.arange(120) * 37 % 1000
    linear, _, local = errors(counts, domain, 3, 10)
    assert local <= 1.02 * linear


# ---- the distribution of ratios ----------------------------------------------------------------


@pytest.mark.parametrize("shape", ["laplace", "normal"])
@pytest.mark.parametrize(("value", "guess"), [(-2.0, 0.4), (0.3, 2.0), (9.0, 1.0), (30.0, 25.0)])
def test_posterior_is_that_of_the_mixture(shape, value, guess):
    """Against numerical integration over the mixture."""
    deviation = 1.7
    cell = NoisyCells(np.array([value]), np.array([guess]), deviation, shape)
    weights = np.random.default_rng(3).dirichlet(np.ones(ratio_prior.EDGES.size + 1))
    scale = deviation / math.sqrt(2)

    def density(x):
        if shape == "laplace":
            return math.exp(-abs(value - x) / scale) / (2 * scale)
        z = (value - x) / deviation
        return math.exp(-0.5 * z**2) / (deviation * math.sqrt(2 * math.pi))

    moments = []
    for k in range(3):
        total = weights[0] * density(0) * 0**k + weights[1] * density(guess) * guess**k
        edges = guess * ratio_prior.EDGES
        for weight, low, high in zip(weights[2:], edges[:-1], edges[1:], strict=True):
            end = min(high, max(low, value) + 60 * deviation)
            near = [value] if low < value < end else None
            integral = quad(lambda x, k=k: x**k * density(x), low, end, points=near)[0]
            total += weight * integral / (high - low)
        moments.append(total)
    mean, variance = cell.posterior(dict.fromkeys(range(9), weights))
    assert_allclose(mean, moments[1] / moments[0], rtol=1e-5)
    assert_allclose(variance, moments[2] / moments[0] - (moments[1] / moments[0]) ** 2, rtol=1e-4)


def test_weights_find_out_whether_guesses_are_right_or_cells_empty():
    generator = np.random.default_rng(2)
    guesses = generator.uniform(2, 6, 4000)
    for ratio, atom in ((1.0, 1), (0.0, 0)):
        values = ratio * guesses + generator.laplace(0, math.sqrt(0.5), 4000)
        table = NoisyCells(values, guesses, 1.0, "laplace")
        weights = table_weights(table, family_weights([table]))
        mean, _ = table.posterior(weights)
        assert ((mean - ratio * guesses) ** 2).mean() < 0.05
        assert np.argmax(weights[int(table.sizes()[0])]) == atom


def test_a_cell_that_no_ratio_explains_stays_where_it_is():
    table = NoisyCells(np.array([1e9, -1e9]), np.full(2, 1e-9), 1.0, "normal")
    mean, variance = table.posterior(table_weights(table, family_weights([table])))
    assert_allclose(mean, [1e9, 0])
    assert_allclose(variance, [1, 1])
