"""Accuracy first: the least budget of three digits, and the number that decides it."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import psephos as ps
from psephos.infer.quantiles import noise_quantile
from psephos.kernel.noise import DiscreteGaussian, DiscreteLaplace
from psephos.release.preflight import targets
from psephos.release.preflight.targets import FLOOR, amount_of, reached_at, rounded_up, step_of
from psephos.release.spec.job import Job
from tests.release.conftest import RELEASE, write_job

FILE = """
name = "counts"
source = "people.csv"
privacy = {{ unit = "add_remove_row" }}
ledger = {{ path = "people.ledger", dataset = "people", {currency} = "100" }}

[schema.region]
values = ["North", "South", "East", "West"]

[schema.age]
integers = [0, 19]
levels = {{ broad = [0, 5, 10, 15] }}

{tables}
[selection]
strategy = "{strategy}"
restarts = 1
"""


def written(folder, *tables, currency="epsilon", strategy="identity"):
    """A release file of tables with targets: (name, the table's lines, its target)."""
    texts = [
        f'[[tables]]\nname = "{name}"\n{lines}\n' + (f"target = {{ {target} }}\n" if target else "")
        for name, lines, target in tables
    ]
    text = FILE.format(currency=currency, tables="\n".join(texts), strategy=strategy)
    return write_job(folder, text)


REGIONS = ("regions", 'queries = { region = "identity" }')
TOTAL = ("everyone", 'sql = "SELECT COUNT(*) FROM people"')
CELLS = ("cells", 'queries = { region = "identity", age = "identity" }')
BROAD = ("by region and age", 'rows = ["region"]\ncolumns = ["age.broad"]')


# ---- budgets of three digits -------------------------------------------------------------------


@given(step=st.integers(-20_000, 20_000))
def test_steps_number_the_decimals_of_three_digits(step):
    amount = amount_of(step)
    digits = amount / Fraction(10) ** (math.floor(math.log10(float(amount) * (1 + 1e-9))) - 2)
    assert digits.denominator == 1
    assert 100 <= digits <= 999
    assert step_of(amount) == step
    assert amount_of(step - 1) < amount
    between = (amount_of(step - 1) + amount) / 2
    assert rounded_up(between) == amount


# ---- worked numbers ----------------------------------------------------------------------------


def least_epsilon(k, confidence):
    """The least ε with P(|X| > k) = 2 qᵏ⁺¹/(1 + q) ≤ 1 - confidence, q = exp(-ε), to 3 digits."""
    low, high = 1e-6, 100.0
    for _ in range(200):
        epsilon = (low + high) / 2
        q = math.exp(-epsilon)
        missed = 2 * q ** (k + 1) / (1 + q)
        low, high = (low, epsilon) if missed <= 1 - confidence else (epsilon, high)
    return rounded_up(Fraction(high))


@pytest.mark.parametrize(
    ("wanted", "k", "confidence"),
    [("0.5", 0, 0.95), ("1", 1, 0.95), ("1.9", 1, 0.95), ("50", 50, 0.95), ("7", 7, 0.9)],
)
def test_a_count_costs_what_the_closed_form_says(tmp_path, wanted, k, confidence):
    target = f"plus_minus = {wanted}, confidence = {confidence}"
    forecast = ps.plan(written(tmp_path / "job", (*CELLS, target)))
    assert forecast.budget.amount == least_epsilon(k, confidence)
    assert forecast.tables[0].reached == pytest.approx(k, abs=1e-6)


def test_one_row_at_95_percent():
    assert [float(least_epsilon(k, 0.95)) for k in (0, 1, 50)] == [3.67, 1.77, 0.0594]


@pytest.mark.parametrize("k", [0, 1, 50])
def test_gaussian_noise_too(tmp_path, k):
    """The least ρ for which a discrete Gaussian of variance 1/2ρ lies within ± k."""
    target = f"plus_minus = {max(k, 0.5)}"
    forecast = ps.plan(written(tmp_path / "job", (*CELLS, target), currency="rho"))
    step = step_of(forecast.budget.amount)
    quantiles = [
        noise_quantile(DiscreteGaussian(1 / (2 * amount_of(each))), 0.95)
        for each in (step, step - 1)
    ]
    assert quantiles == [k, k + 1]
    x = np.arange(2000)
    weights = np.exp(-(x**2) * float(forecast.budget.amount)) * np.where(x == 0, 1, 2)
    assert weights[: k + 1].sum() / weights.sum() >= 0.95


def test_sums_of_cells_are_exact_too(tmp_path):
    """A region is a sum of 20 measured cells; ± 20 is the least that covers 95 % of their noise."""
    forecast = ps.plan(written(tmp_path / "job", (*CELLS, ""), (*REGIONS, "plus_minus = 20")))
    x = np.arange(-400, 401)

    def covered(step):
        one = np.exp(-np.abs(x) * float(amount_of(step)))
        total = np.ones(1)
        for _ in range(20):
            total = np.convolve(total, one / one.sum())
        away = np.abs(np.arange(total.size) - total.size // 2)
        return total[away <= 20].sum()

    step = step_of(forecast.budget.amount)
    assert covered(step) >= 0.95 > covered(step - 1)


# ---- laws --------------------------------------------------------------------------------------

EXAMPLES = {
    "steps": ([(*CELLS, "plus_minus = 1"), (*REGIONS, "plus_minus = 4")], {}),
    "wide": ([(*CELLS, "plus_minus = 900"), (*TOTAL, "plus_minus = 500")], {}),
    "searched": (
        [
            (*BROAD, "plus_minus = 10"),
            ("ages", 'queries = { age = "prefix" }', "plus_minus = 25, confidence = 0.9"),
        ],
        {"strategy": "opt_product"},
    ),
    "at once": (
        [(*BROAD, "plus_minus = 6, simultaneous = true"), (*TOTAL, "plus_minus = 30")],
        {"strategy": "workload"},
    ),
    "gaussian": (
        [(*BROAD, "plus_minus = 3"), (*TOTAL, "relative = 0.1, guess = 90")],
        {"strategy": "opt_product", "currency": "rho"},
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_budgets_are_the_least_of_three_digits(tmp_path, name):
    tables, options = EXAMPLES[name]
    job = Job.read(written(tmp_path / "job", *tables, **options))
    forecast = ps.plan(job)

    def reached(budget, step=0):
        spend = job.budget_of(amount_of(step_of(budget.amount) + step))
        return reached_at(job, forecast.strategy, spend, 9999)

    assert all(each.met for each in reached(forecast.budget).values())
    below = reached(forecast.budget, -1)
    assert not below[forecast.expensive.name].met
    assert forecast.expensive.needs == forecast.budget
    for table in forecast.tables:
        assert table.needs <= forecast.budget
        assert reached(table.needs)[table.name].met
        assert step_of(table.needs.amount) > FLOOR
        assert not reached(table.needs, -1)[table.name].met
        assert table.simultaneous >= table.half_width
    again = ps.plan(job)
    assert (again.budget, again.tables) == (forecast.budget, forecast.tables)


def test_more_precision_never_costs_less(tmp_path):
    budgets = [
        ps.plan(written(tmp_path / "job", (*REGIONS, f"plus_minus = {wanted}"))).budget
        for wanted in (1, 1.5, 2, 5, 20, 100, 1e4, 1e6)
    ]
    assert budgets == sorted(budgets, reverse=True)
    assert len(set(budgets)) == len(budgets) - 1  # ± 1.5 is ± 1, in whole numbers


# ---- the number that decides -------------------------------------------------------------------


def test_a_total_that_decides_is_named(tmp_path):
    alone = ps.plan(written(tmp_path / "one", (*CELLS, "plus_minus = 20")))
    assert alone.tables[0].bottleneck == "region = North, age = 0"
    assert alone.tables[0].bottleneck_ties == 80
    both = ps.plan(
        written(tmp_path / "two", (*CELLS, "plus_minus = 20"), (*TOTAL, "plus_minus = 20"))
    )
    assert both.budget > alone.budget
    assert both.bottleneck == "everyone: total"
    assert both.tables[0].needs == alone.budget


def test_the_number_within_a_table_is_named(tmp_path):
    forecast = ps.plan(written(tmp_path / "job", (*BROAD, "plus_minus = 20")))
    assert forecast.bottleneck == "by region and age: total"
    assert forecast.expensive.bottleneck_ties == 1
    lines = f"{BROAD[1]}\ntotals = false"
    forecast = ps.plan(written(tmp_path / "job", (BROAD[0], lines, "plus_minus = 20")))
    assert forecast.expensive.bottleneck == "region = North, age = 0–4"
    assert forecast.expensive.bottleneck_ties == 16


def test_tables_without_a_target_have_a_widest_number(tmp_path):
    forecast = ps.plan(written(tmp_path / "job", (*BROAD, ""), (*REGIONS, "plus_minus = 9")))
    assert [table.bottleneck for table in forecast.tables] == ["total", "region = North"]
    at = ps.plan(write_job(tmp_path / "other", RELEASE))
    assert at.expensive.bottleneck
    assert at.bottleneck.startswith(f"{at.expensive.name}: ")


def test_what_is_left_decides_which_tables_go_wider(tmp_path):
    forecast = ps.plan(
        written(tmp_path / "job", (*CELLS, "plus_minus = 20"), (*TOTAL, "plus_minus = 20"))
    )
    text = forecast.shortage(forecast.tables[0].needs)
    assert "drop 'everyone' (the rest needs" in text
    assert "instead of ± 20 for 'everyone'" in text
    assert "'cells'" not in text


def test_the_noise_of_the_budget_is_the_noise_of_the_release(tmp_path):
    """± 1 costs ε = 1.77, where one noise of scale 1/1.77 lies within ± 1."""
    forecast = ps.plan(written(tmp_path / "job", (*CELLS, "plus_minus = 1")))
    assert forecast.budget == ps.epsilon("1.77")
    assert noise_quantile(DiscreteLaplace(1 / forecast.budget.amount), 0.95) == 1


@pytest.mark.parametrize("currency", [pytest.param("epsilon", marks=pytest.mark.slow), "rho"])
def test_marginals_are_made_for_their_targets(tmp_path, monkeypatch, currency):
    """Less is spent than by two searches, the second with more weight on what is too wide."""
    monkeypatch.setattr(targets, "ROUNDS", 2)
    tables = [
        (*CELLS, "plus_minus = 60"),
        (*REGIONS, "plus_minus = 5"),
        ("ages", 'queries = { age = "identity" }', "plus_minus = 25"),
        (*TOTAL, "plus_minus = 30"),
    ]
    options = {"strategy": "hdmm", "currency": currency}
    aimed = ps.plan(written(tmp_path / "aimed", *tables, **options))
    monkeypatch.setattr(targets, "_balanced", lambda *_: [])
    searched = ps.plan(written(tmp_path / "searched", *tables, **options))
    assert aimed.strategy.name.endswith("largest variance")
    assert aimed.budget < searched.budget


@pytest.mark.parametrize("currency", ["epsilon", "rho"])
def test_tables_without_a_target_cost_little_and_are_about_as_good_as_plain_noise(
    tmp_path, currency
):
    """Whatever the targets are in size, and beside sums, whose numbers are large."""
    aimed = (*REGIONS, "plus_minus = 2000")
    others = [
        (*CELLS, ""),
        ("up to an age", 'queries = { age = "prefix" }', ""),
        ("ages in all", 'statistic = "sum"\nof = "age"\nby = ["region"]', ""),
    ]
    options = {"strategy": "hdmm", "currency": currency}
    alone = ps.plan(written(tmp_path / "alone", aimed, **options))
    together = ps.plan(written(tmp_path / "together", aimed, *others, **options))
    assert together.budget.amount <= alone.budget.amount * Fraction("1.22")
    plain = next(r for r in together.rivals if r.name.startswith("the tables themselves"))
    assert together.rmse <= 1.5 * plain.rmse
