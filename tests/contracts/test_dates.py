"""Dates as text, days, times and times in zones: every engine finds the same day."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import psephos as ps
from psephos.domain.attribute import Attribute
from psephos.domain.calendar import PERIODS
from psephos.domain.domain import Domain
from psephos.domain.values import is_run_of_days
from psephos.engines import as_source
from psephos.owner.check import check
from tests.contracts.test_engines import ENGINES, SERVICES, every_engine

FIRST, LAST = dt.date(1959, 12, 28), dt.date(1972, 3, 1)
DAYS = Attribute.dates(FIRST, LAST)
DOMAIN = Domain.of(day=DAYS.with_missing().with_unknown("other"))
MOMENTS = [
    dt.datetime(1959, 12, 28),
    dt.datetime(1959, 12, 27, 23, 59, 59),  # a second too early
    dt.datetime(1969, 12, 31, 23, 59, 59, 999_999),  # the last moment before 1970
    dt.datetime(1970, 1, 1),
    dt.datetime(1972, 2, 29, 12),
    dt.datetime(1972, 3, 1, 23, 59, 59),
    dt.datetime(1972, 3, 2),
    dt.datetime(1, 1, 1),
    dt.datetime(9999, 12, 31),
    None,
]
KINDS = {
    "text of days": (pa.string(), lambda m: None if m is None else m.date().isoformat()),
    "text of times": (pa.string(), lambda m: None if m is None else m.isoformat(sep=" ")),
    "text with T": (pa.string(), lambda m: None if m is None else m.isoformat()),
    "days": (pa.date32(), lambda m: m and m.date()),
    "days in ms": (pa.date64(), lambda m: m and m.date()),
    "seconds": (pa.timestamp("s"), lambda m: m and m.replace(microsecond=0)),
    "microseconds": (pa.timestamp("us"), lambda m: m),
    "in UTC": (pa.timestamp("us", tz="UTC"), lambda m: m and m.replace(tzinfo=dt.UTC)),
    "in Paris": (pa.timestamp("ms", tz="Europe/Paris"), lambda m: m and m.replace(tzinfo=dt.UTC)),
}


def cell(moment):
    if moment is None:
        return DAYS.size
    inside = FIRST <= moment.date() <= LAST
    return (moment.date() - FIRST).days if inside else DAYS.size + 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("dates")


@every_engine
@pytest.mark.parametrize("written", KINDS)
def test_every_engine_finds_the_day(kind, written, folder):
    if written == "in Paris" and kind in ("csv", "tsv", "multiline csv"):
        pytest.skip("text has no zone but the one that is written")
    if written == "days in ms" and kind == "postgres":
        pytest.skip("Postgres has no such type")
    arrow_type, entry = KINDS[written]
    table = pa.table({"day": pa.array([entry(m) for m in MOMENTS], arrow_type)})
    counts = as_source((ENGINES | SERVICES)[kind](table, folder)).count(DOMAIN, ("day",), (), None)
    expected = np.bincount([cell(m) for m in MOMENTS], minlength=DAYS.size + 2)
    np.testing.assert_array_equal(counts, expected)


BAD = ["1970-02-29", "1970-13-01", "31.12.1970", "1970", "", "yesterday", "infinity", "1970-01-01x"]


@every_engine
def test_what_is_no_day_is_undeclared(kind, folder):
    table = pa.table({"day": pa.array([*BAD, "1970-01-01", " 1970-01-02 "], pa.string())})
    source = as_source((ENGINES | SERVICES)[kind](table, folder))
    counts = source.count(DOMAIN, ("day",), (), None)
    assert counts[-2:].tolist() == [0, len(BAD)]
    assert counts[cell(dt.datetime(1970, 1, 1))] == counts[cell(dt.datetime(1970, 1, 2))] == 1
    report = check((ENGINES | SERVICES)[kind](table, folder), Domain.of(day=DAYS))
    (finding,) = [f for f in report.findings if f.kind == "undeclared"]
    assert finding.level == "error"


DAY = st.dates(dt.date(1890, 1, 1), dt.date(2110, 12, 31))


@settings(max_examples=100)
@given(day=DAY)
def test_periods_are_those_of_the_calendar(day):
    year, week, _ = day.isocalendar()
    assert PERIODS["week"](day) == f"{year}-W{week:02}"
    assert PERIODS["quarter"](day) == f"{day.year}-Q{(day.month - 1) // 3 + 1}"
    assert PERIODS["month"](day) == day.isoformat()[:7]
    attribute = Attribute.dates(day - dt.timedelta(days=3), day + dt.timedelta(days=3))
    attribute = attribute.with_level("week", "week")
    level = attribute.level("week")
    mondays = [i for i, each in enumerate(attribute.values) if each.weekday() == 0]
    starts = [i for i in range(1, 7) if level.groups[i] != level.groups[i - 1]]
    assert starts == [i for i in mondays if i > 0]


def test_week_numbers_at_the_ends_of_years():
    days = Attribute.dates("2015-12-28", "2016-01-04").with_level("week", "week")
    assert days.level("week").labels == ("2015-W53", "2016-W01")
    days = Attribute.dates("2018-12-30", "2018-12-31").with_level("week", "week")
    assert days.level("week").labels == ("2018-W52", "2019-W01")


def test_levels_of_dates():
    days = Attribute.dates("1999-12-31", "2001-01-01").with_level("month", "month")
    days = days.with_level("quarter", "quarter").with_level("year", "year")
    assert [len(level.labels) for level in days.levels] == [14, 6, 3]
    assert days.level("quarter").labels[:2] == ("1999-Q4", "2000-Q1")
    decades = Attribute.dates("1990-01-01", "2009-12-31")
    decades = decades.with_level("decade", ["1990-01-01", dt.date(2000, 1, 1)])
    assert decades.level("decade").labels == (
        "1990-01-01 to 1999-12-31",
        "2000-01-01 to 2009-12-31",
    )
    assert repr(days) == (
        "Attribute(368 days 1999-12-31 to 2001-01-01; levels: month, quarter, year)"
    )
    assert is_run_of_days(days.values)
    assert days.is_ordered
    assert not days.is_numeric


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Attribute.dates("2020-12-31", "2020-01-01"), "write the first day first"),
        (lambda: Attribute.dates("2020-02-30", "2020-12-31"), "a day is written"),
        (lambda: Attribute.dates(2020, 2021), "a day is written"),
        (lambda: Attribute.dates(dt.datetime(2020, 1, 1), "2021-01-01"), "a day is written"),
        (lambda: Attribute.dates("0001-01-01", "9999-12-31"), "over the limit of 200,000"),
        (lambda: DAYS.with_level("x", "decade"), "'decade' is none of day, week, month"),
        (lambda: Attribute.integers(1, 9).with_level("x", "year"), "declare dates"),
        (lambda: DAYS.with_level("x", ["1960-01-01"]), "begin with 1959-12-28"),
        (
            lambda: DAYS.with_level("week", "week").with_level("year", "year"),
            "cuts group '1959-W53' of level 'week'",
        ),
    ],
)
def test_mistakes_in_dates_are_told(make, words):
    with pytest.raises(ps.DomainError) as caught:
        make()
    assert words in str(caught.value)


# asked in SQL --------------------------------------------------------------------------------

BORN = Domain.of(
    born=Attribute.dates("1999-12-30", "2001-01-02").with_level("month", "month").with_missing(),
    sex=["F", "M"],
)


def counted(condition):
    """The days that a condition holds for, by the values of the schema."""
    sql = f"SELECT COUNT(*) FROM t WHERE {condition}"
    row = ps.Workload.from_sql(BORN, sql).matrix.dense().reshape(BORN.shape)[:, 0]
    return [BORN["born"].values[i] for i in np.flatnonzero(row)]


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("YEAR(born) = 2000", lambda d: d.year == 2000),
        ("EXTRACT(MONTH FROM born) = 2", lambda d: d.month == 2),
        ("QUARTER(born) = 4", lambda d: d.month > 9),
        ("born < DATE '2000-01-01'", lambda d: d.year < 2000),
        ("born BETWEEN '2000-02-29' AND DATE '2000-02-29'", lambda d: (d.month, d.day) == (2, 29)),
        ("DATE_TRUNC('month', born) = DATE '2000-02-01'", lambda d: d.isoformat()[:7] == "2000-02"),
        ("DATE_TRUNC('week', born) = '2000-01-03'", lambda d: d.isocalendar()[:2] == (2000, 1)),
        ("month = '2000-02'", lambda d: d.isoformat()[:7] == "2000-02"),
    ],
)
def test_conditions_on_dates(condition, holds):
    days = counted(condition)
    real = BORN["born"].values[:-1]
    assert days == [day for day in real if holds(day)]
    assert days


def test_keys_made_of_dates():
    year = ps.Workload.from_sql(BORN, "SELECT YEAR(born) y, COUNT(*) FROM t GROUP BY y")
    assert [year.label(i)[1]["born"] for i in range(4)] == ["1999", "2000", "2001", "(null)"]
    sql = "SELECT DATE_TRUNC('quarter', born) q, COUNT(*) FROM t GROUP BY q"
    quarter = ps.Workload.from_sql(BORN, sql)
    labels = [quarter.label(i)[1]["born"] for i in range(quarter.shape[0])]
    assert labels[:2] == ["1999-10-01", "2000-01-01"]
    big = "SELECT DATE_TRUNC(born, MONTH) m, COUNT(*) FROM t GROUP BY m"
    assert ps.Workload.from_sql(BORN, big, dialect="bigquery").shape[0] == 15


@pytest.mark.parametrize(
    ("sql", "dialect"),
    [
        ("DATE_TRUNC('century', born) = '2000-01-01'", "duckdb"),
        ("DATE_TRUNC(born, WEEK) = '2000-01-01'", "bigquery"),
    ],
)
def test_periods_without_a_single_meaning_are_refused(sql, dialect):
    with pytest.raises(ps.SqlError, match=r"DATE_TRUNC takes|not part of|not allowed"):
        ps.Workload.from_sql(BORN, f"SELECT COUNT(*) FROM t WHERE {sql}", dialect=dialect)


def test_predicates_on_dates():
    young = ps.col("born") >= dt.date(2001, 1, 1)
    assert young.mask(BORN).sum() == 2
    assert ps.col("born").in_level("month", "2000-02").mask(BORN).sum() == 29
