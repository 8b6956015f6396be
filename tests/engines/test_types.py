"""All Arrow types, all kinds of attributes, extreme entries: counted, or refused by type."""

import datetime
import math

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.engines import as_source
from psephos.engines.duckdb.arrow_types import native_kind
from psephos.errors import DomainError
from psephos.kernel.unit import Cap, person
from psephos.owner.check import check
from tests.engines.arrow_types import CASES, IN_PARQUET, ONE, REFUSED, REFUSED_IN_PARQUET, TORN
from tests.engines.test_duck import slow_count

DAY = datetime.date(2020, 1, 2)
SCHEMAS = [
    Attribute.categories(["F", "é", "07", "a\x00b", "infinity", str(ONE), "2020-01-02", None]),
    Attribute.integers(0, 7),
    Attribute.categories([7, -128, 10**18, None]),
    Attribute.categories([2**63, 7]),
    Attribute.bins([-math.inf, 0, 0.5, 7]),
    Attribute.categories([0.5, 1, 7.5]),
    Attribute.categories([False, True]),
    Attribute.categories([DAY, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    Attribute.categories([datetime.datetime(2020, 1, 2), datetime.datetime.max, None]),
    Attribute.categories([7, "x", DAY, None]),
]
CLIPPED = [a.with_unknown("clip") for a in (Attribute.integers(0, 7), Attribute.bins([0, 1, 7]))]
OTHERS = Domain.of({f"a{i}": schema.with_unknown("other") for i, schema in enumerate(SCHEMAS)})
CLIPS = Domain.of({f"a{i}": schema for i, schema in enumerate(CLIPPED)})
BY_DUCKDB = [name for name in IN_PARQUET if native_kind(CASES[name].column.type) is not None]
SOURCES = [*((name, "arrow") for name in CASES), *((name, "parquet") for name in IN_PARQUET)]
FEW = OTHERS.project(["a0", "a1", "a5", "a8"])


def source_of(column, names, kind, folder):
    """A source that has the column under all the names."""
    table = pa.table([column] * len(names), names=list(names))
    if kind == "arrow":
        return as_source(table)
    path = folder / "t.parquet"
    pq.write_table(table, path)
    assert pq.read_schema(path).field(0).type == column.type
    return as_source(path)


def rows_of(case, domain):
    return [(text, *[text] * len(domain.names)) for text in case.texts]


def assert_counts(source, case, domain, names, cap=None):
    expected = slow_count(domain, rows_of(case, domain), names, cap=cap)
    counts = source.count(domain, names, (), cap)
    np.testing.assert_array_equal(counts, expected, err_msg=f"{[domain[name] for name in names]}")


@pytest.mark.parametrize("name", CASES)
def test_every_entry_of_every_type_counts_as_its_text(name, tmp_path):
    source = source_of(CASES[name].column, ["id", *OTHERS.names], "arrow", tmp_path)
    for attribute in OTHERS.names:  # all but the first of one reading
        assert_counts(source, CASES[name], OTHERS, (attribute,), Cap("id", 1))
    assert_counts(source, CASES[name], CLIPS, CLIPS.names)


@pytest.mark.parametrize("name", IN_PARQUET)
def test_every_entry_of_a_file_counts_as_its_text(name, tmp_path):
    source = source_of(CASES[name].column, ["id", *FEW.names], "parquet", tmp_path)
    assert_counts(source, CASES[name], FEW, FEW.names, Cap("id", 1))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), SOURCES)
def test_every_kind_of_attribute_counts_every_type(name, kind, tmp_path):
    source = source_of(CASES[name].column, ["a"], kind, tmp_path)
    for schema in [*SCHEMAS, *CLIPPED, *OTHERS.attributes]:
        assert_counts(source, CASES[name], Domain.of(a=schema), ("a",))


@pytest.mark.parametrize("name", BY_DUCKDB)
def test_both_readings_of_a_file_agree(name, tmp_path):
    """Entry by entry: DuckDB alone gives up, or reads what Arrow reads."""
    source = source_of(CASES[name].column, FEW.names, "parquet", tmp_path)
    cells = {}
    for safe in (False, True):
        try:
            with source.snapshot() as snapshot, snapshot.opened(FEW.names, safe=safe) as rows:
                text = rows.indices(FEW, [(attribute,) for attribute in FEW.names], None)
                cells[safe] = sorted(rows.run(text).fetchall())
        except duckdb.Error:
            cells[safe] = None
    gives_up = any(word in name for word in ("timestamp", "string", "text"))
    assert cells[False] == (None if gives_up else cells[True])
    assert cells[True] is not None


@pytest.mark.parametrize("name", [name for name in BY_DUCKDB if name.startswith("timestamp")])
def test_both_readings_of_known_times_agree(name, tmp_path):
    case = CASES[name]
    known = [i for i, text in enumerate(case.texts) if text is None or " " not in text[-3:]]
    column = case.column.take(pa.array(known))
    source = source_of(column, ["a"], "parquet", tmp_path)
    entries = []
    for safe in (False, True):
        with source.snapshot() as snapshot, snapshot.opened(["a"], safe=safe) as rows:
            text = f"SELECT CAST(c0 AS VARCHAR) FROM {rows.relation}"
            entries.append([entry for (entry,) in rows.run(text).fetchall()])
    assert entries[0] == entries[1]
    assert [entry and entry.removesuffix("+00") for entry in entries[0]] == [
        case.texts[i] for i in known
    ]


def test_old_timestamps_of_96_bits_reach_the_year_9999(tmp_path):
    path, last = tmp_path / "t.parquet", datetime.datetime(9999, 12, 31)
    column = pa.array([datetime.datetime(2020, 1, 2), None], pa.timestamp("us"))
    pq.write_table(pa.table({"a": column}), path, use_deprecated_int96_timestamps=True)
    domain = Domain.of(a=Attribute.categories([datetime.datetime(2020, 1, 2), last, None]))
    np.testing.assert_array_equal(as_source(path).count(domain, ("a",), (), None), [1, 0, 1])


# types that are refused ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "arrow") for name in REFUSED),
        *((name, "parquet") for name in REFUSED_IN_PARQUET),
    ],
)
def test_a_type_without_values_is_refused_by_name_whatever_it_holds(name, kind, tmp_path):
    domain = Domain.of(a=2)
    texts = set()
    for column in (REFUSED[name], REFUSED[name][:0]):
        table = pa.table({"a": column, "b": pa.array([1] * len(column), pa.int8())})
        path = tmp_path / "t.parquet"
        if kind == "parquet":
            pq.write_table(table, path)
        source = as_source(table if kind == "arrow" else path)
        for refuse in (
            lambda source=source: source.check_columns(("a",)),
            lambda source=source: source.count(domain, ("a",), (), None),
            lambda source=source: source.count(Domain.of(b=2), ("b",), (), Cap("a", 1)),
        ):
            with pytest.raises(DomainError, match=r"numbers, dates or times$") as caught:
                refuse()
            texts.add(str(caught.value))
        # One that nobody needs does no harm.
        assert source.count(Domain.of(b=2), (), (), None) == len(column)
        report = check(source, domain, unit=person("b", max_rows=9))
        assert [f.kind for f in report.findings] == ["columns"]
    assert len(texts) == 1
    assert "'a' is of type" in texts.pop()


def test_an_empty_column_is_counted_if_a_full_one_is():
    source = as_source(pa.table({name: case.column[:0] for name, case in CASES.items()}))
    domain = Domain.of({name: Attribute.categories(["x", None]) for name in CASES})
    assert source.count(domain, (), (), None) == 0


def test_torn_text_tells_persons_apart(tmp_path):
    column = pa.array([*TORN, *TORN], pa.binary()).cast(pa.string(), safe=False)
    for kind in ("arrow", "parquet"):
        source = source_of(column, ["id", "a"], kind, tmp_path)
        domain = Domain.of(a=Attribute.categories(["x"]).with_unknown("other"))
        assert source.count(domain, (), (), Cap("id", 1)) == len(TORN)
        report = check(source, domain, unit=person("id", max_rows=1))
        assert {f.kind for f in report.findings} == {"undeclared", "absent", "cap"}
        assert ("\\xFF", 2) in report.findings[0].entries


def test_a_file_that_arrow_reads_may_have_any_name_and_any_names_in_it(tmp_path):
    torn = pa.array([b"x", b"\xff"]).view(pa.string())
    nested = pa.array([{"b": 1}] * 2)
    table = pa.table([torn, nested, nested, torn], names=["a.b", "twice", "twice", "a"])
    domain = Domain.of({"a.b": ["x"], "a": Attribute.categories(["y"]).with_unknown("other")})
    for name in ("it's 100%25 #ü:", "_hidden", ".dot"):
        path = tmp_path / f"{name}.parquet"
        pq.write_table(table, path)
        counts = as_source(path).count(domain, domain.names, (), None)
        np.testing.assert_array_equal(counts, [[0, 1]])
