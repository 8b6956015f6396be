"""Answers by table, and their charts."""

import re

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import psephos as ps
from psephos.numbers import count_text

DOMAIN = ps.Domain.of(sex=["F", "M"], age=30)
WORKLOAD = ps.Workload(
    DOMAIN,
    [
        ps.product(sex=ps.identity()),
        ps.product(age=ps.prefix(), name="ages"),
        ps.product(sex=ps.identity(), age=ps.identity()),
        ps.product(name="ages"),
    ],
)


@pytest.fixture(scope="module")
def answers():
    counts = np.arange(60)
    data = ps.simulate(counts, DOMAIN, unit=ps.add_remove_row(), budget=ps.epsilon("1"), seed=0)
    y = data.vectorise().measure(ps.select.identity(WORKLOAD).query, spend=ps.epsilon("1"))
    return ps.infer.least_squares(y).answer(WORKLOAD)


def test_tables_hold_all_answers_under_their_titles(answers):
    tables = answers.tables()
    assert list(tables) == ["sex", "ages", "sex × age"]
    assert [len(table) for table in tables.values()] == [2, 31, 60]
    assert_array_equal(tables["ages"].values, [*answers.values[2:32], answers.values[-1]])
    assert_array_equal(tables["ages"].stderr, [*answers.stderr[2:32], answers.stderr[-1]])
    assert tables["sex"].simulation


def test_a_table_is_found_by_its_title(answers):
    assert_array_equal(answers["sex"].values, answers.values[:2])
    frame = answers["sex"].to_pandas()
    assert frame.columns.tolist() == ["table", "sex", "estimate", "stderr"]
    with pytest.raises(ps.WorkloadError, match="no table 'age' in these answers; did you mean"):
        answers["age"]
    with pytest.raises(ps.WorkloadError, match="no table 7 in these answers; have sex, ages"):
        answers[7]


def panels(chart):
    """The charts of a picture, each with its marks: what they say when pointed at."""
    pieces = chart.svg.split("<svg")[2:]
    return [re.findall(r"<title>([^<]*)</title>(?=<rect|<path)", piece) for piece in pieces]


def test_charts_have_intervals_where_errors_are_known(answers):
    sex = answers["sex"]
    (marks,) = panels(sex.plot())
    half = [f"±\xa0{int(np.ceil(2 * error - 1e-9))}" for error in sex.stderr]
    assert len(marks) == 2
    for mark, label, value, words in zip(marks, ("F", "M"), sex.values, half, strict=True):
        assert mark == f"{label}: {count_text(value)} {words}"
    chart = answers["ages"].plot()
    assert chart.svg.count('class="band"') == 1
    assert "about 95 % noise interval" in chart.svg
    assert "Simulated: ages" in chart.svg
    assert answers.plot("ages") == chart


def test_all_tables_are_drawn_below_each_other(answers):
    assert len(panels(answers.plot())) == 3


def test_biased_answers_are_drawn_without_intervals(answers):
    estimate = ps.CellEstimate(DOMAIN, np.ones(60), "uniform")
    chart = estimate.answer(ps.Workload(DOMAIN, [ps.product(sex=ps.identity())])).plot()
    assert panels(chart) == [["F: 30", "M: 30"]]
    assert 'd="' not in "".join(re.findall(r'<g class="s\d">.*?</g>', chart.svg))


def test_entries_without_a_place_in_the_order_are_on_no_curve():
    domain = ps.Domain.of(age=ps.Attribute.integers(0, 29).with_missing("not stated"))
    W = ps.Workload(domain, [ps.product(age=ps.identity())])
    chart = ps.CellEstimate(domain, np.arange(31), "exact").answer(W).plot()
    (line,) = re.findall(r'class="line" d="M([^"]*)"', chart.svg)
    assert len(line.split("L")) == 30
    assert "not stated" not in chart.svg
