"""Every source counts the same, and as a slow reading in plain Python does."""

import datetime
import json
import math
from decimal import Decimal, InvalidOperation
from itertools import pairwise

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.engines import as_source
from psephos.engines.duckdb import reader
from psephos.engines.duckdb.rows import first_of_each
from psephos.errors import DomainError, ShapeError, SourceError
from psephos.kernel.source import Cap, Conjunct
from psephos.kernel.unit import person
from psephos.owner.check import check

DAY = datetime.date(2020, 1, 2)
ATTRIBUTES = [
    Attribute.of(3),
    Attribute.integers(-1, 7),
    Attribute.of(range(1, 9, 2)),
    Attribute.of(range(7, 0, -3)),
    Attribute.categories([7, 0, 10**18]),
    Attribute.categories([0, None, 1]),
    Attribute.categories([10**20, 7]),
    Attribute.categories(["F", "M", "", "é"]),
    Attribute.categories(["x", None, "'", '"', "a,b", "line\nbreak", "07"]),
    Attribute.categories([0.5, 7, None]),
    Attribute.categories([False, True]),
    Attribute.categories([DAY, datetime.date(1999, 12, 31)]),
    Attribute.categories([datetime.datetime(2020, 1, 2)]),
    Attribute.categories([1, "x", None]),
    Attribute.categories([None]),
    Attribute.bins([0, 1, 7]),
    Attribute.bins([0, 1, math.inf]).with_missing(),
    Attribute.integers(0, 7).with_missing("not stated"),
    Attribute.bins([-math.inf, 0, 0.5, 8, math.inf]),
]
CLIPPED = [a for a in ATTRIBUTES if a.edges or (isinstance(a.values, range) and a.values.step == 1)]
FILLED = [
    *(a.with_unknown("other") for a in ATTRIBUTES),
    *(a.with_unknown("clip") for a in CLIPPED),
]
SCHEMAS = [*ATTRIBUTES, *FILLED]
ENTRIES = [
    *[
        "0",
        "1",
        "2",
        "7",
        "07",
        "7.0",
        "7.5",
        "-1",
        "+1",
        " 1 ",
        "0.5",
        "1e0",
        "8",
        "99",
        "-3",
        "x",
    ],
    *["1e20", "1e400", "-1e400", "nan", "inf", "-inf", "NULL", "(other)", "0x10", "", " ", "\t"],
    *["F", "M", "é", "🙂", "'", '"', "a,b", "line\nbreak", "; DROP TABLE t", "true", "False"],
    *[
        "9223372036854775807",
        "-9223372036854775808",
        "100000000000000000000",
        "1000000000000000000",
    ],
    *["2020-01-02", "2020-01-02 00:00:00", "1999-12-31", "2020-13-45", "x" * 300],
]
KINDS = ["csv", "tsv", "parquet", "pandas", "polars", "arrow"]


# a slow reading of the rules -----------------------------------------------------------------


def decimal(text):
    try:
        return Decimal(text.strip())
    except InvalidOperation:
        return None


def whole(text):
    number = decimal(text)
    finite = number is not None and number.is_finite() and abs(number) < 2**63
    return int(number) if finite and number == int(number) else None


def moment(text):
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        return None


def readings(attribute, text):
    """The declared values that the text may stand for."""
    kinds = {type(v) for v in attribute.declared if v is not None}
    big = any(isinstance(v, int) and abs(v) > 2**62 for v in attribute.declared)
    if kinds == {int} and not big:
        return [whole(text)]
    if kinds == {int, float}:
        number = decimal(text)
        return [] if number is None or number.is_nan() else [float(number)]
    if kinds == {bool}:
        spelled = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
        return [spelled.get(text.lower())]
    if kinds == {datetime.date}:
        time = moment(text)
        return [time and time.date()]
    if kinds == {datetime.datetime}:
        return [moment(text)]
    return [v for v in attribute.declared if v is not None and str(v) == text]


def cell_of(attribute, text):
    """The cell of an entry, or None where its row is dropped."""
    last = attribute.size - 1
    fallback = last if attribute.unknown == "other" else None
    if text is None:
        known = None in attribute.declared
        return attribute.declared.index(None) if known else fallback
    if attribute.edges is None:
        for value in readings(attribute, text):
            if value is not None and value in attribute.declared:
                return attribute.declared.index(value)
        edges = (attribute.declared[0], attribute.declared[-1])
    else:
        edges = attribute.edges
    number = decimal(text)
    if attribute.edges is not None and number is not None and not number.is_nan():
        for i, (lo, hi) in enumerate(pairwise(attribute.edges)):
            if lo <= float(number) < hi:
                return i
    if attribute.unknown == "clip" and number is not None and not number.is_nan():
        if number < edges[0]:
            return 0
        if number > edges[-1] or (attribute.edges is not None and float(number) == edges[-1]):
            return last if attribute.edges is None else len(edges) - 2
    return fallback


def slow_count(domain, rows, attributes, keep=(), cap=None):
    placed = []
    for who, *entries in rows:
        cells = [cell_of(a, e) for a, e in zip(domain.attributes, entries, strict=True)]
        if None not in cells and (cap is None or who is not None):
            placed.append((who, tuple(cells)))
    if cap is not None:
        people = {who for who, _ in placed}
        first_rows = [sorted(c for w, c in placed if w == who)[: cap.max_rows] for who in people]
        placed = [(None, cells) for rows in first_rows for cells in rows]
    counts = np.zeros([domain[name].size for name in attributes], dtype=np.int64)
    for _, cells in placed:
        if all(c.mask[tuple(cells[domain.axis(n)] for n in c.names)] for c in keep):
            counts[tuple(cells[domain.axis(n)] for n in attributes)] += 1
    return counts


# the same rows in every kind of source -------------------------------------------------------


def separated(rows, names, mark):
    def field(entry):
        return "" if entry is None else '"' + entry.replace('"', '""') + '"'

    return "".join(mark.join(map(field, row)) + "\n" for row in [names, *rows])


def source_of(kind, names, rows, folder):
    columns = {n: [row[i] for row in rows] for i, n in enumerate(names)}
    table = pa.table({n: pa.array(c, pa.string()) for n, c in columns.items()})
    path = folder / f"rows.{kind}"
    if kind in ("csv", "tsv"):
        mark = "," if kind == "csv" else "\t"
        path.write_text(separated(rows, names, mark), encoding="utf-8", newline="")
        return as_source(path)
    if kind == "parquet":
        pq.write_table(table, path)
        return as_source(str(path))
    if kind == "pandas":
        return as_source(pd.DataFrame(columns, columns=names, dtype=object))
    if kind == "polars":
        return as_source(pl.DataFrame(columns, schema=dict.fromkeys(names, pl.String)))
    return as_source(table)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("rows")


@st.composite
def tables(draw, most=12):
    domain = Domain.of(
        {f"a {i}": draw(st.sampled_from(SCHEMAS)) for i in range(draw(st.integers(1, 3)))}
    )
    entries = []
    for attribute in domain.attributes:
        near = [str(v) for v in attribute.values if not isinstance(v, tuple)][:4]
        entries.append(st.none() | st.sampled_from([*near, *near, *ENTRIES]))
    who = st.sampled_from(["p", "q", "", "7", None])
    rows = draw(st.lists(st.tuples(who, *entries), min_size=1, max_size=most))
    return domain, rows


@st.composite
def keeps(draw, domain):
    conjuncts = []
    for _ in range(draw(st.integers(0, 2))):
        names = draw(st.lists(st.sampled_from(domain.names), min_size=1, max_size=2, unique=True))
        shape = [domain[name].size for name in names]
        bits = draw(st.lists(st.booleans(), min_size=math.prod(shape), max_size=math.prod(shape)))
        conjuncts.append(Conjunct(tuple(names), np.array(bits).reshape(shape)))
    return tuple(conjuncts)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_every_source_counts_as_the_rules_say(kind, folder, data):
    domain, rows = data.draw(tables())
    names = tuple(data.draw(st.lists(st.sampled_from(domain.names), unique=True)))
    keep = data.draw(keeps(domain))
    cap = data.draw(st.none() | st.builds(Cap, st.just("who"), st.integers(1, 3)))
    source = source_of(kind, ["who", *domain.names], rows, folder)
    for _ in range(3):  # from the second count on, of rows that were kept
        counts = source.count(domain, names, keep, cap)
        assert counts.dtype == np.int64
        np.testing.assert_array_equal(counts, slow_count(domain, rows, names, keep, cap))


@given(data=st.data())
def test_order_of_rows_and_way_of_adding_do_not_matter(folder, data):
    domain, rows = data.draw(tables())
    cap = Cap("who", 1)
    keep = data.draw(keeps(domain))
    names = ["who", *domain.names]
    counts = source_of("arrow", names, rows, folder).count(domain, domain.names, keep, cap)
    shuffled = source_of("arrow", names, data.draw(st.permutations(rows)), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "GROUP_LIMIT", 0)
        again = shuffled.count(domain, domain.names, keep, cap)
    np.testing.assert_array_equal(counts, again)


@given(data=st.data())
def test_a_person_moves_only_their_own_rows(folder, data):
    domain, rows = data.draw(tables())
    most = data.draw(st.integers(1, 2))
    names = ["who", *domain.names]

    def count(some):
        source = source_of("arrow", names, some, folder)
        return source.count(domain, domain.names, (), Cap("who", most))

    people = {row[0] for row in rows} - {None}
    alone = {who: count([row for row in rows if row[0] == who]) for who in people}
    assert all(0 <= counts.sum() <= most for counts in alone.values())
    np.testing.assert_array_equal(count(rows), sum(alone.values(), np.zeros(domain.shape, int)))


def test_a_person_in_ten_children_keeps_three_rows():
    domain = Domain.of(region=10, sex=["F", "M"])
    table = pa.table(
        {"region": [*range(9, -1, -1), 5], "sex": ["F"] * 11, "id": ["p"] * 10 + ["q"]}
    )
    cap, source = Cap("id", 3), as_source(table)
    children = [
        source.count(domain, (), (Conjunct(("region",), np.arange(10) == r),), cap)
        for r in range(10)
    ]
    assert [int(c) for c in children] == [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]


def test_the_cap_orders_by_all_attributes_of_wide_domains():
    names = [f"a{i}" for i in range(70)]
    domain = Domain.of(dict.fromkeys(names, 4))
    assert domain.size > 2**64
    columns = {name: [1, 1] for name in names} | {"a69": [3, 2], "id": [1, 1]}
    counts = as_source(pa.table(columns)).count(domain, ("a69",), (), Cap("id", 1))
    assert counts.tolist() == [0, 0, 1, 0]


@given(people=st.lists(st.sampled_from(["p", "q", "r"])), cuts=st.lists(st.integers(0, 9)))
def test_the_cap_goes_on_where_a_batch_ends(people, cuts):
    people.sort()
    ends = sorted({min(cut, len(people)) for cut in cuts} | {0, len(people)})
    batches = [
        pa.record_batch({"i": list(range(a, b)), "who": pa.array(people[a:b], pa.string())})
        for a, b in zip([0, *ends], ends, strict=False)
    ]
    taken = [pair for batch in first_of_each(batches, 2) for pair in zip(*batch, strict=True)]
    rows = [i for i in range(len(people)) if people[: i + 1].count(people[i]) <= 2]
    assert taken == [(i, people[:i].count(people[i]) == 0) for i in rows]


# columns with types of their own -------------------------------------------------------------

TYPED = {
    "small": pa.array([0, 1, 2, -1, 7, None], pa.int8()),
    "unsigned": pa.array([0, 1, 2, 2**64 - 1, 7, None], pa.uint64()),
    "double": pa.array([0.0, 1.0, 7.5, math.inf, -1e300, None], pa.float64()),
    "single": pa.array([0.0, 0.5, 0.1, -math.inf, 7.0, None], pa.float32()),
    "truth": pa.array([True, False, True, True, False, None]),
    "day": pa.array([DAY, datetime.date(1, 1, 1), DAY, None, DAY, None]),
    "time": pa.array([datetime.datetime(2020, 1, 2, h) for h in range(6)]),
    "decimal": pa.array([Decimal("7.00"), Decimal("0.50"), None, None, None, Decimal("-1.00")]),
}


def shown(value):
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value == float(np.float32(0.1)):
        return "0.1"
    return None if value is None else str(value)


def counts_of_each(source, name, schemas):
    """Counts by each schema, with one connection for all of them."""

    def count(rows):
        for attribute in schemas:
            domain = Domain.of({name: attribute})
            cells = rows.run(rows.indices(domain, [domain.names], None)).fetchall()
            yield domain, np.bincount([i for (i,) in cells], minlength=attribute.size)

    with source.snapshot() as snapshot:
        return snapshot.read([name], lambda rows: list(count(rows)))


@pytest.mark.parametrize("kind", ["parquet", "pandas", "polars"])
@pytest.mark.parametrize("name", TYPED)
def test_typed_columns_count_as_their_text(kind, name, folder):
    table = pa.table({name: TYPED[name]})
    path = folder / "typed.parquet"
    pq.write_table(table, path)
    data = {"parquet": path, "pandas": table.to_pandas(), "polars": pl.from_arrow(table)}[kind]
    rows = [(None, shown(value)) for value in TYPED[name].to_pylist()]
    if kind == "pandas" and name in ("small", "unsigned"):
        rows = [(None, text and str(float(text))) for _, text in rows]  # pandas made them floats
    for domain, counts in counts_of_each(as_source(data), name, FILLED):
        expected = slow_count(domain, rows, (name,))
        np.testing.assert_array_equal(counts, expected, err_msg=f"{domain.attributes[0]}")


class Strange:
    def __str__(self):
        raise RuntimeError("secret")


HOSTILE = {
    "objects": [1, "x", 2.5, None, float("nan"), 10**5000, b"\xff", [1, 2], {"a": 1}, Strange()],
    "surrogates": ["\ud800", "a\x00b", "F", "", " ", "\u202e", "é", "e\u0301", "'); --", '"'],
    "mixed": [True, 1, 1.0, "1", DAY, pd.Timestamp(DAY), pd.NaT, pd.NA, Decimal("NaN"), ()],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_entry_makes_it_fail(name):
    entries = pd.Series(HOSTILE[name], dtype=object)
    for attributes in (ATTRIBUTES, FILLED[: len(ATTRIBUTES)], FILLED[len(ATTRIBUTES) :]):
        domain = Domain.of({f"a{i}": attribute for i, attribute in enumerate(attributes)})
        source = as_source(pd.DataFrame(dict.fromkeys(domain.names, entries)))
        # The cap orders by all attributes, so all entries are read.
        assert 0 <= source.count(domain, (), (), Cap("a0", 2)) <= len(entries)


def test_what_frames_may_hold():
    columns = {
        "half": pa.array([np.float16(1), None], pa.float16()),
        "wide": pa.array([Decimal("1"), Decimal(10) ** 40], pa.decimal256(50, 0)),
        "zone": pa.array([datetime.datetime(2020, 1, 2)] * 2, pa.timestamp("us", "Asia/Tokyo")),
        "coded": pa.array(["1", "0"]).dictionary_encode(),
        "null": pa.nulls(2),
        "bytes": pa.array([b"1", b"\xff"]),
        "torn": pa.Array.from_buffers(pa.string(), 2, pa.array([b"1", b"\xff\xfe"]).buffers()),
    }
    frames = [
        pa.table(columns),
        pl.DataFrame({"object": pl.Series([1, "x"], dtype=pl.Object)}),
        pd.DataFrame({"category": pd.Categorical(["1", None]), 7: pd.array([1, None], "Int64")}),
    ]
    counts_by = {}
    for source in map(as_source, frames):
        for name in source.columns.names:
            for domain, counts in counts_of_each(source, name, SCHEMAS):
                assert counts.sum() <= 2
                counts_by[name, domain] = counts.tolist()
    cells = {name: counts_by[name, Domain.of({name: 3})] for name, _ in counts_by}
    assert {name for name, counts in cells.items() if counts[1] == 1} == {
        *("half", "wide", "coded", "bytes", "torn", "object", "category", "7")
    }


def test_broken_lines_of_a_csv_are_left_out(tmp_path):
    path = tmp_path / "broken.csv"
    lines = [b"who,a", b"1,0", b"2", b"3,1,extra", b"4,\xff\xfe", b"", b'5,"1"', b"6,1" + b" " * 3]
    lines += [b"7," + b"9" * 2_100_000, b"8,1"]
    path.write_bytes(b"\r\n".join([*lines, b'9,"never closed\r\n']))
    counts = as_source(path).count(Domain.of(a=2), ("a",), (), Cap("who", 1))
    assert counts.tolist() == [1, 3]


# names, errors, lock ---------------------------------------------------------------------------


def test_names_are_quoted_and_merged_attributes_are_read_from_their_parts(folder):
    names = ['"; DROP', "Age", "age", "é 'x'", "_"]
    rows = [("0", "1", "0", "1", "0"), ("1", "1", "0", "1", "1")]
    domain = Domain.of(dict.fromkeys(names, 2))
    merged = domain.merge(["age", "_"]).merge(["age*_", "Age"], "both")
    for kind in KINDS:
        source = source_of(kind, names, rows, folder)
        assert source.columns.names == tuple(names)
        counts = source.count(domain, (names[0], "_"), (), None)
        assert counts.tolist() == [[1, 0], [0, 1]]
        joined = source.count(merged, ("both",), (), None)
        both = [merged["both"].label(int(i)) for i in np.flatnonzero(joined)]
        assert both == ["1, 0, 0", "1, 0, 1"]


def test_missing_and_doubled_columns_are_refused_by_name(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("Age,sex,sex\n1,2,3\n")
    with pytest.raises(DomainError, match="no column 'age'; close to it: 'Age'; column 'sex'"):
        as_source(path).count(Domain.of(age=2, sex=2), (), (), None)
    with pytest.raises(DomainError, match="no column 'who'"):
        as_source(path).count(Domain.of(Age=2), (), (), Cap("who", 1))
    with pytest.raises(ShapeError, match="mask over"):
        as_source(path).count(Domain.of(Age=2), (), (Conjunct(("Age",), [True]),), None)
    with pytest.raises(ShapeError, match="2 axes"):
        Conjunct(("Age", "sex"), [True])


def test_what_cannot_be_a_source(tmp_path):
    for text, match in [("a.xlsx", "none of"), ("a[1].csv", "many files")]:
        with pytest.raises(DomainError, match=match):
            as_source(tmp_path / text)
    with pytest.raises(SourceError, match="no file"):
        as_source(tmp_path / "none.csv")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "text.parquet").write_text("secret")
    for name in ("empty.csv", "text.parquet"):
        with pytest.raises(SourceError, match="no columns"):
            as_source(tmp_path / name)
    with pytest.raises(DomainError, match=r"collect\(\)"):
        as_source(pl.LazyFrame({"a": [1]}))
    with pytest.raises(DomainError, match="cannot count a"):
        as_source([1, 2])


def test_a_file_that_goes_or_changes_gives_one_fixed_text(tmp_path):
    domain = Domain.of(a=2)
    texts = set()
    for change in ("gone", "columns", "damaged"):
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"a": ["secret", "1"] * 1000}), path)
        source = as_source(path)
        if change == "gone":
            path.unlink()
        elif change == "columns":
            pq.write_table(pa.table({"secret": [1]}), path)
        else:
            content = bytearray(path.read_bytes())
            content[4:40] = b"\xff" * 36
            path.write_bytes(content)
        with pytest.raises(SourceError) as caught:
            source.count(domain, ("a",), (), None)
        assert caught.value.__cause__ is caught.value.__context__ is None
        texts.add(str(caught.value))
    assert len(texts) == 1
    assert "secret" not in texts.pop()


def test_the_engine_reaches_nothing_but_its_file(tmp_path):
    path, other = tmp_path / "it's a.csv", tmp_path / "other.csv"
    for file in (path, other):
        file.write_text("a\n1\n0\n")
    frame = pd.DataFrame({"a": [1]})
    assert as_source(path).count(Domain.of(a=2), ("a",), (), None).tolist() == [1, 1]
    for source in (as_source(path), as_source(frame)):
        with source.snapshot() as snapshot, snapshot.opened(["a"]) as rows:
            for text in (
                f"SELECT * FROM read_csv('{other}')",
                f"COPY (SELECT 1) TO '{other}'",
                "SET enable_external_access = true",
                "SELECT * FROM frame_of_the_caller",
                "INSTALL httpfs",
            ):
                with pytest.raises(Exception, match=r"(?i)permission|lock|not exist|disabled"):
                    rows.connection.execute(text).fetchall()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["it's a.csv", "other.csv"]


# the owner's check ---------------------------------------------------------------------------


def test_check_lists_everything_at_once_and_says_that_it_is_private():
    frame = pd.DataFrame(
        {
            "id": ["p", "p", "p", None, "q"],
            "age": ["7", "07", "7.5", None, "200"],
            "sex": ["F", "X", "X", "X", "F"],
            "income": ["low", "high", "x", "y", "z"],
        }
    )
    domain = Domain.of(
        sex=["F", "M"],
        age=Attribute.integers(0, 9).with_unknown("clip"),
        income=Attribute.bins([0, 10]),
        Race=2,
    )
    report = check(as_source(frame), domain, unit=person("id", max_rows=2), max_rows_total=4)
    kinds = {(f.column, f.kind): f for f in report.findings}
    assert set(kinds) == {
        *{("columns", "columns"), ("rows", "bound"), ("sex", "undeclared"), ("sex", "absent")},
        *{("age", "undeclared"), ("age", "missing"), ("age", "range"), ("age", "absent")},
        *{("income", "type"), ("income", "undeclared"), ("income", "absent")},
        *{("id", "missing"), ("id", "cap")},
    }
    assert kinds["sex", "undeclared"].entries == (("X", 3),)
    assert "0 numbers below 0 and 1 above 9 are clipped" in kinds["age", "range"].text
    assert not report.ok
    assert report.rows == 5
    for text in (str(report), repr(report), report._repr_html_(), json.loads(report.to_json())):
        first = text["private"] if isinstance(text, dict) else text.splitlines()[0]
        assert "PRIVATE: for the data owner only" in first


def test_check_is_ok_where_nothing_is_left_out(tmp_path):
    frame = pl.DataFrame({"id": [1, 2, 3], "sex": ["F", "M", None], "age": [1, 0, 5]})
    other = Attribute.of(2).with_unknown("other")
    domain = Domain.of(sex=["F", "M", None], age=other)
    report = check(as_source(frame), domain, unit=person("id", max_rows=1), max_rows_total=3)
    assert report.ok
    assert [(f.column, f.kind) for f in report.findings] == [
        ("sex", "missing"),
        ("age", "undeclared"),
        ("age", "range"),
    ]
    path = tmp_path / "gone.csv"
    path.write_text("sex\nF\n")
    source = as_source(path)
    path.unlink()
    assert not check(source, Domain.of(sex=["F"])).ok
