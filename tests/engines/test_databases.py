"""DuckDB files and connections as sources: what is read, what is refused, and in which words."""

import math
import sqlite3
from datetime import datetime, timedelta, timezone

import duckdb
import pytest

import psephos as ps
from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.engines import ConnectedTable, DuckdbTable, as_source
from psephos.engines.databases import _entry_text
from psephos.errors import DomainError, SourceError
from psephos.kernel.unit import Cap

AGE = Domain.of(age=Attribute.integers(0, 3))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "town.db"
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE people AS SELECT 1 AS age, 'secret' AS who")
        connection.execute("CREATE VIEW adults AS FROM people WHERE age > 2")
        connection.execute("CREATE SCHEMA old")
        connection.execute("CREATE TABLE old.people AS SELECT 2 AS age FROM range(3)")
    return path


def test_tables_and_views_of_a_file_are_counted(file):
    assert as_source(DuckdbTable(file, "people")).count(AGE, (), (), None) == 1
    assert as_source(DuckdbTable(file, "adults")).count(AGE, (), (), None) == 0
    old = as_source(DuckdbTable(file, "people", schema="old"))
    assert old.count(AGE, ("age",), (), None).tolist() == [0, 0, 3, 0]


def test_new_rows_of_a_file_are_counted(file):
    source = as_source(DuckdbTable(file, "people"))
    for _ in range(3):
        assert source.count(AGE, (), (), None) == 1
    with duckdb.connect(file) as connection:
        connection.execute("INSERT INTO people VALUES (2, 'secret')")
    assert source.count(AGE, (), (), None) == 2


def test_types_that_arrow_has_no_room_for_are_text(tmp_path):
    path = tmp_path / "wide.db"
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE t (age HUGEINT)")
        connection.execute("INSERT INTO t VALUES (1), ((2::HUGEINT ** 126)::HUGEINT * 1), (NULL)")
    domain = Domain.of(age=Attribute.integers(0, 3).with_unknown("other"))
    counts = as_source(DuckdbTable(path, "t")).count(domain, ("age",), (), None)
    assert counts.tolist() == [0, 1, 0, 0, 2]


def test_what_is_not_there_is_named(file, tmp_path):
    with pytest.raises(SourceError, match=r"no table or view 'peopl'.*close to it: 'people'"):
        as_source(DuckdbTable(file, "peopl"))
    with pytest.raises(SourceError, match=r"no DuckDB file 'none\.db' in"):
        as_source(DuckdbTable(tmp_path / "none.db", "people"))
    (tmp_path / "text.db").write_text("secret")
    with pytest.raises(SourceError, match="cannot be opened read-only") as caught:
        as_source(DuckdbTable(tmp_path / "text.db", "people"))
    assert caught.value.__context__ is None
    with pytest.raises(DomainError, match="no column 'Age'; close to it: 'age'"):
        as_source(DuckdbTable(file, "people")).count(Domain.of(Age=2), (), (), None)


def test_a_view_reaches_no_other_file(tmp_path):
    (tmp_path / "other.csv").write_text("age\n1\n")
    with duckdb.connect(tmp_path / "a.db") as connection:
        connection.execute(f"CREATE VIEW v AS FROM read_csv('{tmp_path / 'other.csv'}')")
    with pytest.raises(SourceError, match="may only speak of tables of the same file"):
        as_source(DuckdbTable(tmp_path / "a.db", "v"))


def test_nothing_is_written_to_a_file(file):
    before = file.read_bytes()
    as_source(DuckdbTable(file, "people")).count(AGE, (), (), None)
    assert file.read_bytes() == before
    assert sorted(p.name for p in file.parent.iterdir()) == ["town.db"]


def test_a_connection_that_cannot_be_read_is_told_without_its_words():
    connection = duckdb.connect()
    with pytest.raises(SourceError, match='the table "secret-free" cannot be read') as caught:
        as_source(ConnectedTable(connection, "secret-free"))
    assert caught.value.__context__ is None
    with pytest.raises(DomainError, match="has no method cursor"):
        ConnectedTable("postgresql://host", "people")
    with pytest.raises(DomainError, match="the table is written"):
        ConnectedTable(connection, ())


def test_any_connection_of_the_db_api_is_read_as_texts(tmp_path):
    connection = sqlite3.connect(tmp_path / "town.sqlite", check_same_thread=False)
    connection.execute('CREATE TABLE "the people" (age, who)')
    entries = [(1, "p"), (2.0, "q"), ("3", b"q"), (None, None), ("secret", 4)]
    connection.executemany('INSERT INTO "the people" VALUES (?, ?)', entries)
    source = as_source(ConnectedTable(connection, "the people"))
    assert source.count(AGE, ("age",), (), None).tolist() == [0, 1, 1, 1]
    assert source.count(AGE, ("age",), (), Cap("who", 1)).tolist() == [0, 1, 1, 0]
    report = ps.check(source, AGE)
    assert report.rows == 5
    assert "'secret' (1)" in str(report)


def test_a_connection_of_one_thread_alone_is_refused():
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE people (age)")
    with pytest.raises(SourceError, match=r"check_same_thread=False") as caught:
        as_source(ConnectedTable(connection, "people"))
    assert caught.value.__context__ is None


def test_moments_of_rows_are_told_in_utc():
    zone = timezone(timedelta(hours=9))
    entries = [datetime(2020, 2, 29, 1, tzinfo=zone), datetime(2020, 2, 29, 1), math.nan, 7.0, True]
    texts = [_entry_text(entry) for entry in entries]
    assert texts == [b"2020-02-28 16:00:00+00:00", b"2020-02-29 01:00:00", b"nan", b"7.0", b"True"]


class Lost:
    """A connection that is lost after some rows, as often as it is told to."""

    def __init__(self, connection, losses):
        self.connection = connection
        self.losses = losses

    def cursor(self):
        return LostCursor(self)


class LostCursor:
    def __init__(self, owner):
        self.owner = owner

    def execute(self, text):
        self.reader = self.owner.connection.cursor().sql(text).to_arrow_reader(2)
        self.is_count = "WHERE 1 = 0" not in text

    def fetch_record_batch(self):
        import pyarrow as pa

        def batches():
            for batch in self.reader:
                yield batch
                if self.is_count and self.owner.losses:
                    self.owner.losses -= 1
                    raise ConnectionError("lost at secret")

        return pa.RecordBatchReader.from_batches(self.reader.schema, batches())


def test_a_connection_lost_half_way_costs_one_charge_and_is_resumed(tmp_path):
    connection = duckdb.connect()
    connection.execute("CREATE TABLE people AS SELECT i % 4 AS age FROM range(5000) t(i)")
    unit, budget = ps.add_remove_row(), ps.epsilon("1")
    ps.Ledger.create(tmp_path / "l", dataset="d", unit=unit, budget=budget)
    lost = Lost(connection, losses=2)  # in the fast reading and in the safe one
    table = ps.protect(ConnectedTable(lost, "people"), AGE, ledger=tmp_path / "l")
    with pytest.raises(SourceError, match="could not be counted") as caught:
        table.noisy_count(spend=ps.epsilon("1/2"), key="all")
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None
    assert len(ps.Ledger.open(tmp_path / "l").history()) == 1
    (number,) = table.noisy_count(spend=ps.epsilon("1/2"), key="all").values
    assert abs(float(number) - 5000) < 200
    assert len(ps.Ledger.open(tmp_path / "l").history()) == 1
