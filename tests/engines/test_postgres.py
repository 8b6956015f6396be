"""Tables of Postgres: URLs, which hold no secret, and (slow) a server of the tests' own."""

import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.engines import ConnectedTable, as_engine, as_source, postgres
from psephos.engines.postgres import PostgresUrl
from psephos.errors import DomainError, SourceError
from psephos.kernel.unit import Cap
from psephos.owner.check import check
from tests.engines.postgres_cluster import (
    PASSWORD,
    deadly,
    fill_table,
    mortal_view,
    run_sql,
    server,
)

AGE = Domain.of(age=Attribute.integers(0, 3))


@pytest.mark.parametrize(
    ("text", "relation"),
    [
        ("postgresql://db/census/people", '"people"'),
        ("postgres://me@db:5433/census/old/people", '"old"."people"'),
        ("postgresql:///census/the%20%22rows%22?service=town", '"the ""rows"""'),
    ],
)
def test_a_url_names_a_table(text, relation):
    assert PostgresUrl.of(text).relation == relation


REFUSED = {
    "postgresql://me:hush@db/census/people": "holds a password",
    "postgresql://me:@db/census/people": "holds a password",
    "postgresql://db/census/people?password=hush": "holds a password",
    "postgresql://db/census/people?sslmode=require&sslpassword=hush": "holds a password",
    "postgresql://db/census": "no table in it",
    "postgresql://db": "no table in it",
    "postgresql://db/census/a/b/c": "no table in it",
    "postgresql://db:hush/census/people": "cannot be taken apart",
    "postgresql://[db/hush/people": "cannot be taken apart",
    "postgresql://db/census/people?hush": "cannot be taken apart",
    "postgresql://db/census/people#hush": "cannot be taken apart",
    "postgresql://db/census/people?options=-c%20hush": "has the option 'options'",
    "mysql://me:hush@db/census/people": "a mysql:// address cannot be read",
    "s3://hush/people.parquet": "address cannot be read",
}


@pytest.mark.parametrize("text", REFUSED)
def test_other_urls_are_refused_and_never_repeated(text):
    with pytest.raises(DomainError, match=REFUSED[text]) as caught:
        as_engine(text)
    assert "hush" not in str(caught.value)
    assert caught.value.__context__ is None


def test_a_server_that_is_not_there_is_told():
    pytest.importorskip("adbc_driver_postgresql", reason="the driver of Postgres is not installed")
    with pytest.raises(
        SourceError, match=r"cannot be reached: .*refused.*correct the URL"
    ) as caught:
        as_source("postgresql://127.0.0.1:1/census/people")
    assert caught.value.__context__ is None


# with a server --------------------------------------------------------------------------------

slow = pytest.mark.slow


@slow
def test_what_cannot_be_read_is_told_without_an_entry(monkeypatch):
    url = fill_table("people", pa.table({"age": [1], "who": ["secret"]}))
    with pytest.raises(SourceError, match='no table or view "peopel"'):
        as_source(f"{server()}/peopel")
    with pytest.raises(SourceError, match=r'no table or view "old"\."people"'):
        as_source(f"{server()}/old/people")
    with pytest.raises(DomainError, match="no column 'Age'; close to it: 'age'"):
        as_source(url).count(Domain.of(Age=2), (), (), None)
    run_sql("DROP ROLE IF EXISTS guest", f"CREATE ROLE guest LOGIN PASSWORD '{PASSWORD}'")
    with pytest.raises(SourceError, match=r'you may not read "people".*GRANT SELECT'):
        as_source(f"{server('guest')}/people")
    with pytest.raises(SourceError, match=r"cannot be reached: .*does not exist"):
        as_source(f"{server().removesuffix('/postgres')}/none/people")
    monkeypatch.setenv("PGPASSWORD", "wrong-one")
    with pytest.raises(SourceError, match=r"cannot be reached: .*password") as caught:
        as_source(url)
    assert "wrong-one" not in str(caught.value)


@slow
def test_a_password_file_will_do(tmp_path, monkeypatch):
    url = fill_table("people", pa.table({"age": [1]}))
    (tmp_path / "pass").write_text(f"*:*:*:*:{PASSWORD}\n")
    (tmp_path / "pass").chmod(0o600)
    monkeypatch.delenv("PGPASSWORD")
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pass"))
    assert as_source(url).count(AGE, (), (), None) == 1


@slow
def test_every_type_is_read_as_its_text_says():
    run_sql(
        "DROP TABLE IF EXISTS kinds",
        "DROP DOMAIN IF EXISTS small",
        "DROP TYPE IF EXISTS mood",
        "CREATE DOMAIN small AS int CHECK (VALUE < 100)",
        "CREATE TYPE mood AS ENUM ('glad', 'sad')",
        "CREATE TABLE kinds (padded char(3), exact numeric, small small, mood mood, day date, "
        "moment timestamptz, id uuid, pets text[])",
        "SET TIME ZONE 'Asia/Tokyo'",
        "INSERT INTO kinds VALUES ('F', 7.50, 7, 'glad', '2020-02-29', '2020-02-29 01:00+09', "
        "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '{secret}'), ('M', 'NaN', 8, 'sad', 'infinity', "
        "'-infinity', NULL, NULL), ('M', 1e50, 8, 'sad', '0044-03-15 BC', '12000-01-01', NULL, "
        "NULL)",
    )
    source = as_source(f"{server()}/public/kinds")
    values = {
        "padded": ["F", "M"],
        "exact": Attribute.bins([7, 7.5, 8]),
        "small": Attribute.integers(7, 8),
        "mood": ["glad", "sad"],
        "day": Attribute.dates("2020-02-28", "2020-02-29"),
        "moment": Attribute.dates("2020-02-28", "2020-02-29"),
        "id": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", None],
    }
    counts = {
        name: source.count(Domain.of(**{name: kind}), (name,), (), None).tolist()
        for name, kind in values.items()
    }
    assert counts == {
        **{"padded": [1, 2], "exact": [0, 1], "small": [1, 2], "mood": [1, 2]},
        **{"day": [0, 1], "moment": [1, 0], "id": [1, 2]},
    }
    with pytest.raises(DomainError, match="column 'pets' is of type"):
        source.count(Domain.of(pets=["a"]), (), (), None)


SPELLINGS = [None, "", "a", "A", "a ", "\u00e9", "e\u0301", "\u00c9"]
NUMBERS = [None, "7.5", "7.50", "0", "-0", "NaN", "1e50"]
CHOICES = [SPELLINGS, SPELLINGS, SPELLINGS, NUMBERS, [False, True]]


@st.composite
def nearly_alike(draw):
    """Rows that differ from the first in one entry, some of them twice."""
    first = [draw(st.sampled_from(entries)) for entries in CHOICES]
    rows = [tuple(first)]
    for column, entries in enumerate(CHOICES):
        for entry in draw(st.lists(st.sampled_from(entries), max_size=6)):
            rows.append((*first[:column], entry, *first[column + 1 :]))
    return rows + rows[::2]


def literal(entry):
    return "NULL" if entry is None else f"'{entry}'"


@slow
@settings(max_examples=30)
@given(rows=nearly_alike())
def test_rows_are_put_together_only_if_they_are_the_same_to_the_byte(rows):
    """Whatever the database takes for equal: collations, citext, padding, decimals."""
    values = ", ".join(
        f"({literal(a)}, {literal(b)}, {literal(c)}, {literal(n)}, {yes}, {literal(a)})"
        for a, b, c, n, yes in rows
    )
    run_sql(
        "DROP TABLE IF EXISTS spellings",
        "DROP DOMAIN IF EXISTS anycase",
        "DROP COLLATION IF EXISTS loose",
        "CREATE EXTENSION IF NOT EXISTS citext",
        "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level1', "
        "deterministic = false)",
        "CREATE DOMAIN anycase AS text COLLATE loose",
        "CREATE TABLE spellings (a text COLLATE loose, b citext, c char(2), n numeric, yes bool, "
        "d anycase)",
        f"INSERT INTO spellings VALUES {values}",
    )
    names = ["a", "b", "c", "n", "yes", "d"]
    engine = as_engine(f"{server()}/spellings")
    with pytest.MonkeyPatch.context() as patch, engine.snapshot() as batches:
        patch.setattr(postgres, "WORTH_GROUPING", 0)
        single = Counter(zip(*batches.read(names).read_all().to_pydict().values(), strict=True))
        groups = batches.alike(names)().read_all().to_pydict()
        *columns, times = groups.values()
        together = dict(zip(zip(*columns, strict=True), times, strict=True))
    assert together == single
    assert len(together) == len(times)


@slow
def test_rows_that_are_alike_are_fetched_once_where_it_pays():
    run_sql(
        "DROP TABLE IF EXISTS people CASCADE",
        "CREATE TABLE people AS SELECT i % 4 AS age, CAST(i AS text) AS who, "
        "CAST(i % 4 AS float8) AS income FROM generate_series(1, 10000) t(i)",
        "ANALYZE people",
    )
    engine = as_engine(f"{server()}/people")
    with engine.snapshot() as batches:
        assert batches.alike(["age"])().read_all()["times"].to_pylist() == [2500] * 4
        assert batches.alike(["age", "who"]) is None  # hardly two are alike
        assert batches.alike(["income"]) is None  # -0.0 and 0.0 are equal
    source = as_source(engine)
    assert source.count(AGE, ("age",), (), None).tolist() == [2500] * 4
    assert np.bincount(source.take(AGE, None).row_cells(("age",), ())).tolist() == [2500] * 4
    assert source.count(AGE, ("age",), (), Cap("who", 1)).tolist() == [2500] * 4


@slow
def test_a_snapshot_does_not_see_what_others_write():
    engine = as_engine(fill_table("people", pa.table({"age": [1, 2]})))
    with engine.snapshot() as batches:
        run_sql("INSERT INTO people VALUES (3)")
        assert [len(batches.read(["age"]).read_all()) for _ in range(3)] == [2, 2, 2]
        assert len(batches.read([]).read_all()) == 2
    assert as_source(engine).count(AGE, (), (), None) == 3


@slow
def test_the_rows_are_read_only_and_by_their_columns():
    """A view that fails if a column is read which nobody needs."""
    run_sql("DROP TABLE IF EXISTS people CASCADE")
    fill_table("people", pa.table({"age": [1], "who": ["secret"]}))
    run_sql(
        "CREATE VIEW careful AS SELECT age, CAST(who AS int) AS who FROM people",
    )
    url = f"{server()}/careful"
    assert as_source(url).count(AGE, (), (), None) == 1
    with pytest.raises(SourceError, match="could not be counted") as caught:
        as_source(url).count(AGE, (), (), Cap("who", 1))
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None
    assert not check(url, Domain.of(who=2)).ok
    run_sql("DROP VIEW careful")


@slow
@pytest.mark.parametrize("worth", [0, math.inf], ids=["grouped", "row by row"])
def test_a_connection_that_is_ended_half_way_is_told_and_read_again(worth, monkeypatch):
    rows = 3_000_000
    run_sql(
        "DROP TABLE IF EXISTS people CASCADE",
        f"CREATE TABLE people AS SELECT i, i % 4 AS age FROM generate_series(1, {rows}) t(i)",
    )
    monkeypatch.setattr(postgres, "WORTH_GROUPING", worth)
    engine = as_engine(mortal_view("mortal", "people", f"i = {rows - 1}"))
    source = as_source(engine)
    with deadly():
        with engine.snapshot() as batches:
            reader = batches.read(["age"])
            assert 0 < reader.read_next_batch().num_rows < rows
            with pytest.raises(Exception, match="terminating connection"):
                reader.read_all()
        with pytest.raises(SourceError, match="could not be counted") as caught:
            source.count(AGE, ("age",), (), None)
        assert caught.value.__cause__ is caught.value.__context__ is None
        assert PASSWORD not in str(caught.value)
        report = check(source, AGE)
        assert [finding.kind for finding in report.findings] == ["unreadable"]
    assert source.count(AGE, (), (), None) == rows
    run_sql("DROP TABLE people CASCADE")


@slow
def test_a_connection_of_adbc_is_a_source_too():
    from adbc_driver_postgresql import dbapi

    fill_table("people", pa.table({"age": [1, 2, 2], "who": ["p", "q", "q"]}))
    with dbapi.connect(server()) as connection:
        table = ConnectedTable(connection, ("public", "people"))
        source = as_source(table)
        for _ in range(3):
            assert source.count(AGE, ("age",), (), None).tolist() == [0, 1, 2, 0]
        assert source.count(AGE, ("age",), (), Cap("who", 1)).tolist() == [0, 1, 1, 0]
        assert check(table, AGE).rows == 3
