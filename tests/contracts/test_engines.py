"""One set of laws for all engines; an engine joins by one line in ENGINES."""

import math
import shutil
from collections import Counter
from contextlib import contextmanager
from urllib.parse import quote

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from adbc_driver_manager import Error as DatabaseError
from hypothesis import given, settings
from hypothesis import strategies as st

import psephos as ps
from psephos.domain.attribute import Attribute
from psephos.domain.conjunctions import Conjunctions
from psephos.domain.domain import Domain
from psephos.engines import (
    Columns,
    ConnectedTable,
    CsvFile,
    DuckdbTable,
    as_engine,
    as_source,
    in_one_state,
    register,
    registry,
    row_store,
)
from psephos.engines.duckdb import reader
from psephos.engines.protocol import NativeRelation
from psephos.errors import DomainError, ShapeError, SourceError, WorkloadError
from psephos.kernel.source import Conjunct
from psephos.kernel.unit import Cap, person
from psephos.owner.check import check
from tests.engines.postgres_cluster import fill_table
from tests.engines.spark_session import spark_frame
from tests.engines.test_duck import slow_count


class Minimal:
    """No more than the protocol asks for; rows come in batches of two."""

    def __init__(self, table, version=None):
        self.table = table
        self.rows_version = version
        self.reads = []
        self.snapshots = 0

    def columns(self):
        return Columns(tuple(self.table.column_names))

    def version(self):
        return self.rows_version

    @contextmanager
    def snapshot(self):
        self.snapshots += 1
        yield MinimalBatches(self.table, self.reads)


class MinimalBatches:
    def __init__(self, table, reads):
        self.table = table
        self.reads = reads

    @property
    def kinds(self):
        return self.table.schema.types

    def read(self, names):
        self.reads.append(tuple(names))
        some = self.table.select(list(names))
        return pa.RecordBatchReader.from_batches(some.schema, some.to_batches(max_chunksize=2))


class Grouping(Minimal):
    """Rows that are alike can be had once, with their number."""

    @contextmanager
    def snapshot(self):
        yield GroupingBatches(self.table, self.reads)


class GroupingBatches(MinimalBatches):
    def alike(self, names):
        some = self.table.select(list(names))
        # By their texts, which tell -0.0 from 0.0.
        groups = Counter(map(repr, some.to_pylist()))
        first = {repr(row): i for i, row in reversed(list(enumerate(some.to_pylist())))}
        rows = some.take(list(first.values()))
        times = pa.array([groups[key] for key in first], pa.int64())
        return lambda: rows.append_column("times", times).to_reader(max_chunksize=2)


def separated(table, path):
    mark = "," if path.suffix == ".csv" else "\t"
    columns = {n: table.column(n).cast(pa.string()) for n in table.column_names}
    options = pa.csv.WriteOptions(delimiter=mark, quoting_style="all_valid")
    pa.csv.write_csv(pa.table(columns), path, options)
    return path


def parquet(table, path):
    pq.write_table(table, path)
    return path


def partitioned(table, folder):
    """Files of a row each, in folders that are named by place and person where there are any."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    keys = [name for name in ("place", "who") if name in table.column_names]
    for i, row in enumerate(table.select(keys).to_pylist() if keys else [{}] * len(table)):
        parts = [
            f"{key}={'__HIVE_DEFAULT_PARTITION__' if entry is None else quote(entry, safe='')}"
            for key, entry in row.items()
        ]
        folder.joinpath(*parts).mkdir(parents=True, exist_ok=True)
        parquet(table.drop_columns(keys).slice(i, 1), folder.joinpath(*parts, f"{i}.parquet"))
    (folder / "_SUCCESS").touch()
    return folder


def files(table, folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    half = len(table) // 2
    parquet(table.slice(0, half), folder / "a.parquet")
    parquet(table.slice(half), folder / "b.pq")
    return folder


def fill(connection, table):
    connection.register("given", table)
    connection.execute('CREATE OR REPLACE TABLE "the rows" AS FROM given')
    connection.unregister("given")
    return connection


def database(table, folder):
    with duckdb.connect(folder / "rows.db") as connection:
        fill(connection, table)
    return folder / "rows.db"


def connected(table):
    return fill(duckdb.connect(), table)


NAME = ("main", "the rows")


class Pages:
    """A connection that gives Arrow tables, some rows at a time."""

    def __init__(self, connection):
        self.connection = connection

    def cursor(self):
        return Pages(self.connection)

    def execute(self, text):
        self.reader = self.connection.cursor().sql(text).to_arrow_reader(2)

    def fetchmany_arrow(self, rows):
        batch = next(iter(self.reader), None)
        return pa.Table.from_batches([] if batch is None else [batch], self.reader.schema)


class Plain:
    """A DB-API connection, which gives rows of Python's objects."""

    def __init__(self, connection):
        self.connection = connection

    def cursor(self):
        return Plain(self.connection.cursor())

    def execute(self, text):
        self.connection.execute(text)
        self.description = self.connection.description

    def fetchmany(self, rows):
        return self.connection.fetchmany(min(rows, 2))


ENGINES = {
    "csv": lambda table, folder: as_engine(separated(table, folder / "rows.csv")),
    "tsv": lambda table, folder: as_engine(separated(table, folder / "rows.tsv")),
    "multiline csv": lambda table, folder: CsvFile(
        separated(table, folder / "lines.csv"), multiline=True
    ),
    "parquet": lambda table, folder: as_engine(parquet(table, folder / "rows.parquet")),
    "pandas": lambda table, folder: as_engine(table.to_pandas(types_mapper=pd.ArrowDtype)),
    "polars": lambda table, folder: as_engine(pl.from_arrow(table)),
    "arrow": lambda table, folder: as_engine(table),
    "folder": lambda table, folder: as_engine(files(table, folder / "files")),
    "glob": lambda table, folder: as_engine(str(files(table, folder / "files") / "[ab].p*")),
    "hive": lambda table, folder: as_engine(partitioned(table, folder / "hive")),
    "dataset": lambda table, folder: as_engine(ds.dataset(files(table, folder / "files"))),
    "duckdb": lambda table, folder: as_engine(DuckdbTable(database(table, folder), "the rows")),
    "query": lambda table, folder: as_engine(ConnectedTable(connected(table), "the rows")),
    "pages": lambda table, folder: as_engine(
        ConnectedTable(Pages(connected(table)), ("main", "the rows"))
    ),
    "rows": lambda table, folder: as_engine(
        ConnectedTable(Plain(connected(table)), ("main", "the rows"))
    ),
    "minimal": lambda table, folder: as_engine(Minimal(table)),
    "minimal, kept": lambda table, folder: as_engine(Minimal(table, version=1)),
    "grouping": lambda table, folder: as_engine(Grouping(table)),
    "grouping, kept": lambda table, folder: as_engine(Grouping(table, version=1)),
}
SERVICES = {
    "postgres": lambda table, folder: as_engine(fill_table("the rows", table)),
    "spark": lambda table, folder: as_engine(spark_frame(table, folder)),
}
ALIKE = {"glob", "dataset", "pages"}
"""Engines that share all but a line with another: they are held to the laws by `make test-all`."""
every_engine = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.slow) if kind in ALIKE or kind in SERVICES else kind
        for kind in (*ENGINES, *SERVICES)
    ],
)

CAFE, CAFE_IN_TWO = "caf\u00e9", "cafe\u0301"
DOMAIN = Domain.of(
    income=Attribute.bins([-math.inf, 0, 0.5, 8, math.inf]).with_unknown("other"),
    place=Attribute.categories([CAFE, "Bar", None]).with_unknown("other"),
    age=Attribute.integers(0, 3).with_unknown("clip"),
)
NUMBERS = [None, math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5, 8.0, 7.999, -1.0, 1e300]
PLACES = [None, CAFE, CAFE_IN_TWO, "Bar", "bar", "BAR ", "", "x,\t\"y\r'"]
AGES = [None, -5, 0, 1, 3, 4, 2**40]
PEOPLE = [None, "p", "P", "q", CAFE, CAFE_IN_TWO]


@st.composite
def tables(draw):
    columns = [st.sampled_from(values) for values in (PEOPLE, NUMBERS, PLACES, AGES)]
    return draw(st.lists(st.tuples(*columns), min_size=1, max_size=9))


def arrow(rows):
    who, income, place, age = map(list, zip(*rows, strict=True))
    columns = {"who": pa.array(who, pa.string()), "income": pa.array(income, pa.float64())}
    columns |= {"place": pa.array(place, pa.string()), "age": pa.array(age, pa.int64())}
    return pa.table(columns)


def in_text(rows):
    """The rows as the slow reading of the rules takes them: entries as their texts."""
    return [tuple(None if entry is None else str(entry) for entry in row) for row in rows]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("engines")


@st.composite
def requests(draw):
    names = tuple(draw(st.lists(st.sampled_from(DOMAIN.names), unique=True)))
    bits = draw(st.lists(st.booleans(), min_size=4, max_size=4))
    keep = draw(st.sampled_from([(), (Conjunct(("place",), bits),)]))
    cap = draw(st.none() | st.builds(Cap, st.just("who"), st.integers(1, 2)))
    return names, keep, cap


@every_engine
@settings(max_examples=12)
@given(rows=tables(), request=requests(), limit=st.sampled_from([0, 2**14]))
def test_all_engines_count_as_the_rules_say(kind, folder, rows, request, limit):
    source = as_source((ENGINES | SERVICES)[kind](arrow(rows), folder))
    names, keep, cap = request
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "GROUP_LIMIT", limit)  # rows are kept, or added up
        table = source.take(DOMAIN, cap)
    (counts,) = table.counts([names], keep)
    np.testing.assert_array_equal(counts, slow_count(DOMAIN, in_text(rows), *request))
    cells = table.row_cells(names, keep)
    np.testing.assert_array_equal(np.bincount(cells, minlength=counts.size), counts.reshape(-1))


@st.composite
def asked(draw):
    """Conjunctions of the domain."""
    names = st.sets(st.sampled_from(DOMAIN.names), min_size=1)
    rows = [
        [
            (DOMAIN.axis(name), draw(st.integers(0, DOMAIN[name].size - 1)))
            for name in sorted(draw(names), key=DOMAIN.axis)
        ]
        for _ in range(draw(st.integers(1, 8)))
    ]
    padded = np.array([row + [(-1, 0)] * (3 - len(row)) for row in rows])
    return Conjunctions(padded[:, :, 0], padded[:, :, 1])


def from_tables(source, conjunctions, keep, cap):
    """Each count of its own, from the table of the attributes that it names."""
    counts = []
    for axes, values in zip(conjunctions.attributes, conjunctions.values, strict=True):
        names = tuple(DOMAIN.names[axis] for axis in axes if axis >= 0)
        counts.append(int(source.count(DOMAIN, names, keep, cap)[tuple(values[: len(names)])]))
    return counts


@pytest.mark.slow
@every_engine
@settings(max_examples=12)
@given(rows=tables(), request=requests(), conjunctions=asked(), cost=st.sampled_from([0, 100]))
def test_conjunctions_are_entries_of_the_counts(kind, folder, rows, request, conjunctions, cost):
    _, keep, cap = request
    engine = (ENGINES | SERVICES)[kind](arrow(rows), folder)
    expected = from_tables(as_source(engine), conjunctions, keep, cap)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_store, "TABLE_COST", cost)  # by tables, or as bits
        for limit in (0, 2**14):  # rows that are kept, or added up
            patch.setattr(reader, "GROUP_LIMIT", limit)
            counts = as_source(engine).take(DOMAIN, cap).conjunctions(conjunctions, keep)
            assert counts.tolist() == expected
            assert counts.dtype == np.int64


ROWS = list(
    zip(PEOPLE * 2, [*NUMBERS, 1.0], [*PLACES, *PLACES[:4]], [*AGES, *AGES[:5]], strict=True)
)


def indices(source, safe):
    """Each row as its cells."""
    needed = [*DOMAIN.names, "who"]
    with source.snapshot() as snapshot, snapshot.opened(needed, safe=safe) as rows:
        text = rows.indices(DOMAIN, [(name,) for name in DOMAIN.names], Cap("who", 1))
        return rows.run(text).fetchall()


@every_engine
def test_the_fast_and_the_safe_reading_agree(kind, folder):
    source = as_source((ENGINES | SERVICES)[kind](arrow(ROWS), folder))
    fast, safe = ([row[:-1] for row in indices(source, safe)] for safe in (False, True))
    assert fast == safe
    assert len(fast) > 0


@every_engine
def test_rows_that_are_alike_make_no_difference(kind, folder):
    source = as_source((ENGINES | SERVICES)[kind](arrow(ROWS * 3), folder))
    axes = [(name,) for name in DOMAIN.names]
    cells = []
    for alike in (True, False):
        with source.snapshot() as snapshot, snapshot.opened(DOMAIN.names, alike=alike) as rows:
            groups = rows.run(rows.indices(DOMAIN, axes, None)).fetchall()
            times = [group[3] if rows.alike else 1 for group in groups]
            assert rows.alike == (alike and "grouping" in kind)
            assert not rows.alike or len(groups) == 10
        cells.append(Counter())
        for group, number in zip(groups, times, strict=True):
            cells[-1][group[:3]] += number
    assert cells[0] == cells[1]
    assert cells[0].total() == 30


@every_engine
def test_a_snapshot_is_read_several_times(kind, folder):
    table = arrow(ROWS)
    engine = (ENGINES | SERVICES)[kind](table, folder)
    names = ["place", "who"]
    with engine.snapshot() as batches:
        assert len(batches.kinds) == len(engine.columns().names) == 4
        first = batches.read(names)
        again = batches.read(names)
        some = first.read_next_batch()
        assert again.read_all().to_pydict() == batches.read(names).read_all().to_pydict()
        assert some.schema.names == first.schema.names == names
        kinds = [batches.kinds[engine.columns().names.index(name)] for name in names]
        assert first.schema.types == kinds
        entries = batches.read(names).read_all().to_pydict()
    pairs = zip(*entries.values(), strict=True)
    expected = zip(*table.select(names).to_pydict().values(), strict=True)
    assert sorted(pairs, key=repr) == sorted(expected, key=repr)


@every_engine
def test_wrong_columns_are_refused_before_counting(kind, folder):
    engine = (ENGINES | SERVICES)[kind](arrow(ROWS), folder)
    source = as_source(engine)
    before = getattr(engine, "snapshots", 0)
    with pytest.raises(DomainError, match="no column 'Age'; close to it: 'age'"):
        source.count(Domain.of(Age=2), (), (), None)
    with pytest.raises(DomainError, match="no column 'id'"):
        source.count(DOMAIN, (), (), Cap("id", 1))
    conjunctions = Conjunctions([[2]], [[1]])
    with pytest.raises(DomainError, match="no column 'id'"):
        source.take(DOMAIN, Cap("id", 1))
    assert getattr(engine, "snapshots", 0) == before
    with pytest.raises(WorkloadError, match="beyond the 1"):
        source.take(DOMAIN.project(["age"]), None).conjunctions(conjunctions, ())
    with pytest.raises(ShapeError, match="a mask over"):
        source.count(DOMAIN, ("age",), (Conjunct(("age",), [True]),), None)


@every_engine
def test_the_check_finds_the_same(kind, folder):
    domain = Domain.of(
        place=Attribute.categories([CAFE, "Bar"]),
        age=Attribute.integers(0, 3),
        income=Attribute.bins([0, 8]),
        Age=2,
    )
    rows = [row for row in ROWS if row[1] is None or not math.isnan(row[1])]  # its text differs
    reports = [
        check(data, domain, unit=person("who", max_rows=1), max_rows_total=3, left_out=["age"])
        for data in ((ENGINES | SERVICES)[kind](arrow(rows), folder), arrow(rows))
    ]
    lines = [f for f in reports[0].findings if f.column == "lines"]
    assert [f.kind for f in lines] == []
    kinds = {(f.column, f.kind) for f in reports[0].findings if f.kind != "mend"}
    assert kinds == {
        *{("columns", "columns"), ("rows", "bound"), ("who", "missing"), ("who", "cap")},
        *{(name, "undeclared") for name in ("place", "age", "income")},
        *{(name, "missing") for name in ("place", "age", "income")},
        *{("age", "range"), ("age", "absent"), ("income", "range")},
    }
    texts = [
        [str(f) for f in report.findings if f.column != "lines" and f.kind != "undeclared"]
        for report in reports
    ]
    assert texts[0] == texts[1]
    entries = [
        [(f.text, sorted(n for _, n in f.entries)) for f in report.findings if f.entries]
        for report in reports
    ]
    assert entries[0] == entries[1]


@every_engine
def test_an_engine_shows_nothing_of_its_rows(kind, folder):
    engine = (ENGINES | SERVICES)[kind](arrow([("secret", 1.0, "secret", 1)] * 1234), folder)
    source = as_source(engine)
    for _ in range(2):
        source.count(DOMAIN, (), (), None)
    for shown in (repr(source), repr(engine)):
        assert "secret" not in shown
        assert "1234" not in shown
        assert str(folder) not in shown


# one state of the rows -----------------------------------------------------------------------


@every_engine
def test_in_one_state_all_counts_are_of_the_same_rows_or_refused(kind, folder):
    """The table is written to between counts, where it can be: the old rows, or a refusal."""
    make = (ENGINES | SERVICES)[kind]
    before, after = arrow(ROWS), arrow(ROWS + [("p", 0.0, "Bar", 3)] * 100)
    with in_one_state(make(before, folder)) as held:
        counts = [int(held.count(DOMAIN, (), (), None))]
        try:
            make(after, folder)
        except (duckdb.Error, DatabaseError):  # what is open for reading is locked
            assert kind in ("duckdb", "postgres")
        refusals = []
        for names in ((), ("age",), ("age", "income")):
            try:
                counts.append(int(held.count(DOMAIN, names, (), None).sum()))
            except SourceError as error:
                refusals.append(str(error))
    assert set(counts) == {10}
    assert all("written to while it was read" in words for words in refusals)
    for read in (lambda: held.count(DOMAIN, (), (), None), lambda: check(held, DOMAIN)):
        try:
            told = str(read())
        except SourceError as error:
            told = str(error)
        assert "has ended" in told


# what a minimal engine shows of the seam -----------------------------------------------------


def test_a_table_is_read_once_for_all_its_counts():
    engine = Minimal(arrow(ROWS))
    table = as_source(engine).take(DOMAIN, None)
    engine.table = arrow(ROWS[4:6])
    for _ in range(4):
        assert table.counts([()], ())[0] == 10
    assert engine.snapshots == 1


def test_only_needed_columns_are_read():
    engine = Minimal(arrow(ROWS))
    as_source(engine).count(DOMAIN.project(["age"]), ("age",), (), Cap("who", 1))
    assert set(engine.reads) == {("age", "who")}


def changed_names(engine):
    engine.table = engine.table.rename_columns(["who", "income", "place", "years"])


def changed_order(engine):
    engine.table = engine.table.select(["age", "income", "place", "who"])


def one_more(engine):
    engine.table = engine.table.append_column("secret", engine.table.column("age"))


def changed_type(engine):
    lists = pa.array([["secret"]] * len(engine.table))
    engine.table = engine.table.set_column(2, "place", lists)


@pytest.mark.parametrize("change", [changed_names, changed_order, one_more, changed_type])
@pytest.mark.parametrize("version", [None, "changes"])
def test_columns_that_change_after_opening_are_refused(change, version):
    engine = Minimal(arrow(ROWS), version)
    source = as_source(engine)
    source.count(DOMAIN, (), (), None)
    change(engine)
    with pytest.raises(SourceError, match="could not be counted") as caught:
        source.count(DOMAIN, (), (), None)
    assert caught.value.__cause__ is caught.value.__context__ is None
    report = check(source, DOMAIN)
    assert report.findings[-1].text.endswith("have changed since it was opened")


class OtherRows(Minimal):
    """Its reader gives other columns than it was asked for."""

    def __init__(self, spoil):
        super().__init__(arrow(ROWS))
        self.spoil = spoil

    @contextmanager
    def snapshot(self):
        batches = MinimalBatches(self.table, self.reads)
        read = batches.read
        batches.read = lambda names: self.spoil(read(names).read_all()).to_reader()
        yield batches


SPOILED = {
    "turned": lambda table: table.select(table.column_names[::-1]),
    "one less": lambda table: table.select(table.column_names[1:]),
    "other types": lambda table: table.set_column(2, "age", table.column("age").cast(pa.float64())),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_rows_of_other_columns_are_refused(spoil):
    source = as_source(OtherRows(spoil))
    with pytest.raises(SourceError, match="could not be counted"):
        source.count(DOMAIN, (), (), None)
    assert check(source, DOMAIN).findings[-1].kind == "unreadable"


class Failing(Minimal):
    """Fails at one of its methods, with an entry in its words."""

    def __init__(self, where):
        super().__init__(arrow(ROWS))
        self.where = where

    def fail(self, where):
        if where == self.where:
            raise RuntimeError("secret")

    def columns(self):
        self.fail("columns")
        return super().columns()

    def version(self):
        self.fail("version")
        return super().version()

    @contextmanager
    def snapshot(self):
        self.fail("snapshot")
        batches = MinimalBatches(self.table, self.reads)
        read = batches.read

        def failing(names):
            self.fail("read")
            reader = read(names)

            def some():
                yield reader.read_next_batch()
                self.fail("batch")

            return pa.RecordBatchReader.from_batches(reader.schema, some())

        batches.read = failing
        yield batches
        self.fail("end")


@pytest.mark.parametrize("where", ["version", "snapshot", "read", "batch", "end"])
def test_the_words_of_an_engine_that_fails_reach_the_owner_alone(where):
    source = as_source(Failing(where))
    with pytest.raises(SourceError, match="could not be counted") as caught:
        source.count(DOMAIN, ("age",), (), None)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert "secret" not in str(caught.value)
    with (
        pytest.raises(SourceError, match="could not be counted") as caught,
        in_one_state(source) as held,
    ):
        held.count(DOMAIN, ("age",), (), None)
    assert caught.value.__cause__ is caught.value.__context__ is None
    report = check(source, DOMAIN)
    assert not report.ok
    assert "secret" in str(report)


def test_an_engine_that_does_not_tell_its_columns_is_refused():
    class Wordy(Minimal):
        def columns(self):
            return ("who", "income")

    for engine in (Failing("columns"), Wordy(arrow(ROWS))):
        with pytest.raises(SourceError, match="does not tell its columns") as caught:
            as_source(engine)
        assert caught.value.__context__ is None
        assert "secret" not in str(caught.value)


@pytest.mark.parametrize("torn", [b"\xff", b"caf\xc3"])
def test_text_that_is_not_utf8_is_only_undeclared(torn):
    entries = pa.array([b"Bar", torn, None, b"Bar"]).view(pa.string())
    domain = Domain.of(place=Attribute.categories(["Bar", None]).with_unknown("other"))
    source = as_source(Minimal(pa.table({"place": entries, "who": entries})))
    assert source.count(domain, ("place",), (), None).tolist() == [2, 1, 1]
    assert source.count(domain, (), (), Cap("who", 1)) == 2


def test_native_reading_is_an_ability_of_files_alone(folder):
    able = {kind for kind, engine in ENGINES.items() if is_native(engine(arrow(ROWS), folder))}
    assert able == {"csv", "tsv", "multiline csv", "parquet", "folder", "glob", "hive"}


def is_native(engine):
    return isinstance(engine, NativeRelation)


# joining -------------------------------------------------------------------------------------


def test_an_engine_joins_by_being_given_as_source(tmp_path):
    engine, domain = Minimal(arrow(ROWS)), DOMAIN.project(["age"])
    unit, budget = ps.add_remove_row(), ps.epsilon("1")
    ps.Ledger.create(tmp_path / "l", dataset="d", unit=unit, budget=budget)
    table = ps.protect(engine, domain, ledger=tmp_path / "l")
    assert not table.noisy_count(spend=ps.epsilon("1/2")).simulation
    simulated = ps.simulate(engine, domain, unit=unit, budget=budget, seed=0)
    assert simulated.noisy_count(spend=ps.epsilon("1")).simulation
    assert ps.check(engine, domain).rows == len(ROWS)


def test_an_engine_joins_by_its_opener(monkeypatch):
    monkeypatch.setattr(registry, "OPENERS", list(registry.OPENERS))
    with pytest.raises(DomainError, match="none of"):
        as_engine("memory:rows")
    register(lambda data: Minimal(arrow(ROWS)) if data == "memory:rows" else None)
    assert as_source("memory:rows").count(DOMAIN, (), (), None) == 10
    assert repr(as_engine(arrow(ROWS))).startswith("ArrowTable")


def test_an_opener_that_fails_is_told_without_its_words(monkeypatch):
    def fails(data):
        raise RuntimeError("secret")

    monkeypatch.setattr(registry, "OPENERS", [fails])
    with pytest.raises(SourceError, match="cannot be opened; write") as caught:
        as_engine("memory:rows")
    assert caught.value.__cause__ is caught.value.__context__ is None


def test_a_frame_with_columns_named_as_an_engine_has_methods_is_a_frame():
    frame = pd.DataFrame({"columns": [1], "version": [2], "snapshot": [3]})
    assert as_source(frame).columns.names == ("columns", "version", "snapshot")
    for no_engine in (Minimal, frame["version"]):
        with pytest.raises(DomainError, match="cannot count a"):
            as_engine(no_engine)


def test_the_laws_see_a_reading_that_is_wrong(monkeypatch, folder):
    """A test of the tests: a reader that takes text for lower case."""
    plain = reader.arrow_relation

    def lower(batches, names, needed, *, safe, alike):
        text, frame = plain(batches, names, needed, safe=safe, alike=alike)
        return (text if safe else text.replace("x2 AS c2", "lower(x2) AS c2")), frame

    monkeypatch.setattr(reader, "arrow_relation", lower)
    for kind in ("minimal", "arrow"):
        with pytest.raises(AssertionError):
            test_the_fast_and_the_safe_reading_agree(kind, folder)
