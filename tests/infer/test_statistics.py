"""Sums, means, variances, shares and quantiles: what they are, and how often intervals cover."""

import math
import pickle

import duckdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import psephos as ps
from psephos.infer.joint_noise import JointNoise
from psephos.infer.statistics import joint_noise, statistic_intervals, statistic_values

DOMAIN = ps.Domain.of(
    sex=["F", "M"],
    age=ps.Attribute.integers(-3, 8).with_level("broad", [-3, 0, 5]),
    income=ps.Attribute.bins([0, 2.5, 10, 30]).with_unknown("other"),
)
CELLS = math.prod(DOMAIN.shape)
counts = st.lists(st.integers(0, 5), min_size=CELLS, max_size=CELLS).map(np.array)


def exact_answers(statistics, x):
    """The statistics of counts without noise."""
    answers = statistics.workload.answer(x.reshape(statistics.domain.shape))
    parts, start = [], 0
    for item in statistics.statistics:
        inner = ps.Workload(statistics.domain, item.products)
        end = start + inner.shape[0]
        parts.append(statistic_values(item, statistics.domain, answers[start:end]))
        start = end
    return parts


def rows_of(x):
    """One row of numbers for each count, missing incomes as None."""
    cells = np.repeat(np.arange(CELLS), x)
    sex, age, income = np.unravel_index(cells, DOMAIN.shape)
    middles = np.array([1.25, 6.25, 20.0, np.nan])
    return pd.DataFrame({"sex": sex, "age": age - 3, "income": middles[income]})


@given(x=counts)
@settings(max_examples=20)
def test_they_are_those_of_the_rows(x):
    rows = rows_of(x)
    asked_for = [
        ps.mean("age", by="sex"),
        ps.variance("income", by="sex"),
        ps.stddev("age"),
        ps.quantiles("age", [0.1, 0.5, 0.9], by="sex"),
        ps.share(["sex", "age.broad"], within="sex"),
    ]
    mean, variance, stddev, quantiles, share = exact_answers(ps.Statistics(DOMAIN, asked_for), x)
    broad = np.select([rows.age < 0, rows.age < 5], [0, 1], 2)
    for sex in (0, 1):
        some = rows[rows.sex == sex]
        if len(some):
            assert_allclose(mean[sex], some.age.mean())
            lower = [np.quantile(some.age, p, method="inverted_cdf") for p in (0.1, 0.5, 0.9)]
            assert_allclose(quantiles[3 * sex : 3 * sex + 3], lower)
        else:
            assert np.isnan(mean[sex])
            assert np.isnan(quantiles[3 * sex])
        if some.income.notna().any():
            assert_allclose(variance[sex], some.income.var(ddof=0), atol=1e-9)
        for group in range(3):
            whole = (broad == group).sum()
            part = ((broad == group) & (rows.sex == sex)).sum()
            if whole:
                assert_allclose(share[3 * sex + group], 100 * part / whole)
    if len(rows):
        assert_allclose(stddev, rows.age.std(ddof=0), atol=1e-9)


@given(x=counts, weight=st.sampled_from([0.5, 1.0, 3.0]))
def test_a_sum_is_linear_and_weighs_as_a_count(x, weight):
    W = ps.Workload(DOMAIN, [ps.product(sex=ps.identity(), age=ps.sums(), weight=weight)])
    rows = rows_of(x)
    assert W.answer(x.reshape(DOMAIN.shape)).tolist() == [
        rows.age[rows.sex == sex].sum() for sex in (0, 1)
    ]
    assert W.products[0].weight == weight / 8  # the largest number
    assert_allclose(np.abs(W.matrix.dense()).max(), weight)


def test_numbers_of_bins_are_their_representatives():
    bins = ps.Attribute.bins([0, 10, math.inf])
    with pytest.raises(ps.WorkloadError, match=r"'x': the bin from 10 to inf.*representatives ="):
        ps.Workload(ps.Domain.of(x=bins), [ps.product(x=ps.sums())])
    declared = bins.with_representatives([4, 25.5]).with_level("all", [0])
    assert declared.with_missing("none").representatives == (4, 25.5)
    declared = declared.with_unknown("other")
    W = ps.Workload(ps.Domain.of(x=declared), [ps.product(x=ps.sums())])
    assert W.answer(np.array([2, 2, 7])).tolist() == [59.0]
    assert pickle.loads(pickle.dumps(declared)).representatives == (4, 25.5)
    assert pickle.loads(pickle.dumps(W)) == W
    with pytest.raises(ps.DomainError, match="inside of it, got 12"):
        bins.with_representatives([12, 25])


REFUSED = [
    (ps.mean("sex"), "'sex': it holds F, M, which are no numbers"),
    (ps.mean("height"), "no attribute 'height'"),
    (ps.quantiles("odd", [0.5]), "'odd': its values are not in increasing order"),
    (ps.mean("open"), "representatives"),
    (ps.share(["sex"], within="age"), "not of 'age'"),
]


@pytest.mark.parametrize(("question", "words"), REFUSED)
def test_what_has_no_numbers_is_refused(question, words):
    domain = ps.Domain.of(
        sex=["F", "M"], age=range(9), odd=[3, 1, 2], open=ps.Attribute.bins([0, 5, math.inf])
    )
    with pytest.raises(ps.PsephosError, match=words):
        ps.Statistics(domain, [question])


@pytest.mark.parametrize("level", [0, 1, 1.5, -0.5])
def test_quantiles_are_at_shares_of_rows(level):
    with pytest.raises(ps.WorkloadError, match="between 0 and 1"):
        ps.quantiles("age", [level])


# ---- SQL, beside DuckDB ------------------------------------------------------------------------

STATEMENTS = [
    "SELECT sex, COUNT(*), SUM(age), AVG(age), VAR_POP(age), STDDEV_POP(age), "
    "QUANTILE_DISC(age, 0.5) FROM t GROUP BY sex",
    "SELECT sex, AVG(age) FILTER (WHERE age > 0) FROM t WHERE income < 10 GROUP BY sex",
    "SELECT sex, 100.0 * COUNT(*) / SUM(COUNT(*)) OVER () FROM t GROUP BY sex",
    "SELECT AVG(age), SUM(CASE WHEN age < 2 THEN 3 ELSE 0.5 END) FROM t WHERE sex = 'F' OR age > 2",
    "SELECT sex, age > 2 AS older, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER (PARTITION BY sex) FROM t "
    "GROUP BY sex, older",
    "SELECT age >= 0 AS positive, SUM(age), AVG(age) FROM t GROUP BY positive",
    "SELECT PERCENTILE_DISC(0.25) WITHIN GROUP (ORDER BY age) FROM t",
]


@pytest.mark.parametrize("sql", STATEMENTS)
def test_sql_means_what_duckdb_does(sql):
    x = np.random.default_rng(5).integers(0, 6, CELLS)
    statistics = ps.Statistics.from_sql(DOMAIN, sql)
    values = np.concatenate(
        exact_answers(statistics, statistics.domain.arrange(x.reshape(DOMAIN.shape)))
    )
    rows = rows_of(x)
    rows["sex"] = np.where(rows.sex == 0, "F", "M")
    with duckdb.connect() as connection:
        connection.register("t", rows)
        columns = connection.execute(f"{sql} ORDER BY ALL").fetchall()
    keys = sql.count("GROUP BY") and len(sql.split("GROUP BY")[1].split(","))
    expected = np.array([row[keys:] for row in columns], dtype=float)
    assert_allclose(np.sort(values), np.sort(expected.T.reshape(-1)))


def test_sql_that_is_no_statistic_is_refused():
    for sql, words in [
        ("SELECT AVG(sex) FROM t", "no numbers"),
        ("SELECT AVG(DISTINCT age) FROM t", "DISTINCT looks at other rows"),
        ("SELECT QUANTILE(age, 2) FROM t", "between 0 and 1"),
        ("SELECT AVG(age) / COUNT(*) FROM t", "comes afterwards"),
        ("SELECT COUNT(*) / SUM(age) OVER () FROM t", "sum of the same counts"),
        ("SELECT SUM(age * income) FROM t", "one column decides|bin"),
    ]:
        with pytest.raises(ps.SqlError, match=words):
            ps.Statistics.from_sql(DOMAIN, sql)


# ---- intervals ---------------------------------------------------------------------------------


def coverage(question, x, noise, spend, trials, confidence=0.9):
    """How often every interval held the truth, and all intervals with their numbers."""
    statistics = ps.Statistics(DOMAIN, [question])
    (item,) = statistics.statistics
    (truth,) = exact_answers(statistics, x)
    strategy = ps.select.identity(statistics.workload, noise)
    held = np.zeros(truth.size)
    for seed in range(trials):
        data = ps.simulate(
            x.reshape(DOMAIN.shape), DOMAIN, unit=ps.add_remove_row(), budget=spend, seed=seed
        )
        measurement = data.vectorise().measure(strategy.query, spend=spend)
        estimate = ps.infer.least_squares(measurement)
        if seed == 0:
            noise_of = joint_noise(estimate, statistics.workload)
        answers = estimate.answer(statistics.workload).values
        numbers = statistic_intervals(item, DOMAIN, answers, noise_of, confidence)
        low, high = item.range
        assert (numbers.low >= low).all()
        assert (numbers.high <= high).all()
        inside = np.isnan(numbers.values) | (
            (numbers.low <= numbers.values) & (numbers.values <= numbers.high)
        )
        assert inside.all()
        held += (numbers.low - 1e-9 <= truth) & (truth <= numbers.high + 1e-9)
    return held / trials


QUESTIONS = [
    ps.mean("age", by="sex"),
    ps.share(["sex", "age.broad"], within="sex"),
    ps.quantiles("age", [0.25, 0.5], by="sex"),
    ps.variance("age", by="sex"),
]


@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q.kind)
@pytest.mark.parametrize("rows", [3, 60])
@pytest.mark.parametrize(
    ("noise", "spend"), [("laplace", ps.epsilon(1)), ("gaussian", ps.rho("1/4"))]
)
def test_intervals_cover_small_groups_and_large(question, rows, noise, spend):
    """At 90 %: 76 % of 60 trials is three and a half standard errors below."""
    rng = np.random.default_rng(rows)
    x = rng.multinomial(rows * 10, rng.dirichlet(np.ones(CELLS)))
    assert coverage(question, x, noise, spend, trials=60).min() >= 0.76


def test_too_few_rows_give_the_declared_range():
    x = np.zeros(CELLS, dtype=int)
    statistics = ps.Statistics(DOMAIN, [ps.mean("age"), ps.median("age"), ps.stddev("age")])
    strategy = ps.select.identity(statistics.workload)
    spend = ps.epsilon("1/10")
    data = ps.simulate(
        x.reshape(DOMAIN.shape), DOMAIN, unit=ps.add_remove_row(), budget=spend, seed=2
    )
    answers = statistics.answer(
        ps.infer.least_squares(data.vectorise().measure(strategy.query, spend=spend))
    )
    assert [(part.low[0], part.high[0]) for part in answers.parts] == [(-3, 8), (-3, 8), (0, 5.5)]
    assert all(part.whole_range.all() for part in answers.parts)


def test_bounds_by_standard_errors_are_wider_than_the_exact_ones():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 50, CELLS)
    statistics = ps.Statistics(DOMAIN, QUESTIONS)
    spend = ps.epsilon(1)
    data = ps.simulate(
        x.reshape(DOMAIN.shape), DOMAIN, unit=ps.add_remove_row(), budget=spend, seed=0
    )
    strategy = ps.select.identity(statistics.workload)
    estimate = ps.infer.least_squares(data.vectorise().measure(strategy.query, spend=spend))
    exact = joint_noise(estimate, statistics.workload)
    bound = JointNoise(exact.noises, exact.rows, exact.stderr)
    answers, start = estimate.answer(statistics.workload).values, 0
    for item in statistics.statistics:
        end = start + ps.Workload(DOMAIN, item.products).shape[0]
        pieces = []
        for noise in (exact, bound):
            columns = None if noise.columns is None else noise.columns[start:end]
            some = JointNoise(noise.noises, noise.rows, noise.stderr[start:end], columns)
            pieces.append(statistic_intervals(item, DOMAIN, answers[start:end], some, 0.95))
        assert (pieces[1].low <= pieces[0].low + 1e-9).all()
        assert (pieces[1].high >= pieces[0].high - 1e-9).all()
        start = end


def test_an_estimate_without_errors_gives_numbers_alone():
    statistics = ps.Statistics(DOMAIN, ps.mean("age", by="sex"))
    estimate = ps.CellEstimate(DOMAIN, np.ones(CELLS), "even")
    columns = statistics.answer(estimate).columns()
    assert columns["value"] == [2.5, 2.5]
    assert "low" not in columns
    assert columns["statistic"] == ["mean of age"] * 2
