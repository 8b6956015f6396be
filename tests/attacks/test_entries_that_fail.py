"""An entry that makes a count fail: it tells that it is there, and wastes what was charged.

Who may add a row to the table chooses an entry that the engine cannot read. The request is admitted
and charged, the count fails, and the failure says that the row is there, with certainty and at
every request; the budget of all others is gone. So no entry may make a count fail, nor decide how
the entries of other rows are read.
"""

import datetime
import traceback
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import psephos as ps
from psephos import matrix as mx
from psephos.domain.attribute import Attribute
from psephos.engines import as_source
from psephos.engines.duckdb import reader
from psephos.errors import DomainError, SourceError
from psephos.kernel.unit import Cap

NOON = datetime.datetime(2020, 1, 2, 12)
DAYS = ps.Domain.of(a=Attribute.categories([NOON.date(), None]).with_unknown("other"))
WORDS = ps.Domain.of(a=Attribute.categories(["F", None]).with_unknown("other"))


class Silent:
    simulation = False

    def noise(self, noise, size):
        return np.zeros(size, dtype=np.int64)


def released(data, domain, folder):
    """What a release of all cells gives, without its noise, and what it has cost."""
    path = folder / "people.ledger"
    budget, unit = ps.epsilon("1"), ps.add_remove_row()
    ledger = ps.Ledger.create(path, dataset="people", unit=unit, budget=budget)
    table = ps.protect(data, domain, ledger=path)
    table._vault.draws = Silent()
    measured = table.vectorise().measure(mx.Identity(domain.size), spend=ps.epsilon("1"))
    return measured.values.tolist(), ledger.spent()


def file_of(column, folder):
    path = folder / "people.parquet"
    pq.write_table(pa.table({"a": column}), path)
    return path


def ticks(kind, *numbers):
    return pa.array([*numbers, None], pa.int64()).view(kind)


NOON_MS = int((NOON - datetime.datetime(1970, 1, 1)).total_seconds()) * 1000


@pytest.mark.parametrize(
    "column",
    [
        ticks(pa.timestamp("ms"), NOON_MS, 9_223_372_036_854_776),
        ticks(pa.timestamp("ms", "UTC"), NOON_MS, 2**63 - 2),
        ticks(pa.timestamp("us"), NOON_MS * 1000, -(2**63)),
    ],
    ids=["ms", "ms with zone", "us"],
)
@pytest.mark.parametrize("kind", ["file", "table"])
def test_a_timestamp_that_no_calendar_holds(column, kind, tmp_path):
    """A made-up date of birth of 9.3e15 milliseconds; its row is one of another kind, no more."""
    data = file_of(column, tmp_path) if kind == "file" else pa.table({"a": column})
    assert released(data, DAYS, tmp_path) == ([1, 1, 1], ps.epsilon("1"))


@pytest.mark.parametrize("ticked", [86_400 * 10**6 * 100, -1, 2**63 - 1])
@pytest.mark.parametrize("kind", ["file", "table"])
def test_a_time_of_day_past_midnight(ticked, kind, tmp_path):
    """A time of arrival of 2400 o'clock."""
    column = ticks(pa.time64("us"), 3_600 * 10**6, ticked)
    data = file_of(column, tmp_path) if kind == "file" else pa.table({"a": column})
    hours = ps.Domain.of(a=Attribute.categories(["01:00:00", None]).with_unknown("other"))
    assert released(data, hours, tmp_path)[0] == [1, 1, 1]


@pytest.mark.parametrize("entry", [b"\xff", b"\xed\xa0\x80", b"F\xc3"])
@pytest.mark.parametrize("coded", [False, True])
def test_a_name_that_is_not_utf8(entry, coded, tmp_path):
    """A name typed in another encoding, in a Parquet file that says it is UTF-8."""
    column = pa.array([b"F", entry, None]).view(pa.string())
    if coded:
        codes = pa.array([0, 1, None], pa.int8())
        column = pa.DictionaryArray.from_arrays(codes, column[:2])
    assert released(file_of(column, tmp_path), WORDS, tmp_path)[0] == [1, 1, 1]


@pytest.mark.parametrize("number", [2**127 - 1, 10**20])
def test_a_decimal_larger_than_its_type(number):
    """An amount of 39 digits in a column of 5; it was garbage, or an error of Arrow's."""
    kind = pa.decimal128(5, 2)
    stored = b"".join(n.to_bytes(16, "little", signed=True) for n in (700, number))
    column = pa.Array.from_buffers(kind, 2, [None, pa.py_buffer(stored)])
    amounts = ps.Domain.of(a=Attribute.integers(0, 9).with_unknown("other"))
    counts = as_source(pa.table({"a": column})).count(amounts, ("a",), (), None)
    assert counts.tolist() == [*[0] * 7, 1, 0, 0, 1]


def test_a_column_that_has_no_values_is_refused_before_a_charge(tmp_path):
    """Lists and lengths of time are refused by their type, be the table empty or not."""
    for kind in (pa.list_(pa.int8()), pa.duration("s")):
        for rows in (0, 2):
            path = tmp_path / f"{rows} {kind.id}.ledger"
            unit = ps.add_remove_row()
            ledger = ps.Ledger.create(path, dataset="d", unit=unit, budget=ps.epsilon("1"))
            with pytest.raises(DomainError, match="column 'a' is of type"):
                ps.protect(pa.table({"a": pa.nulls(rows, kind)}), WORDS, ledger=path)
            assert ledger.history() == []


def test_an_entry_that_decides_how_others_are_read():
    """A number among bytes: every entry of bytes was then read as its Python name.

    One row more moved as many rows as there were, against a noise for one.
    """
    column = [b"F"] * 50
    counts = [
        as_source(pd.DataFrame({"a": pd.Series(entries, dtype=object)})).count(
            WORDS, ("a",), (), None
        )
        for entries in (column, [*column, 7], [*column, Decimal("sNaN")])
    ]
    assert [np.abs(more - counts[0]).sum() for more in counts] == [0, 1, 1]


@pytest.mark.parametrize("kind", ["arrow", "pandas"])
def test_persons_who_share_a_broken_name(kind):
    """Ids that are not UTF-8 were all read as the same mark, and so as one person."""
    ids = [b"\xff", b"\xfe", b"\xff", b"?"]
    if kind == "arrow":
        table = pa.table({"id": pa.array(ids).view(pa.string()), "a": ["F"] * 4})
    else:
        names = [name.decode("utf-8", "surrogateescape") for name in ids]
        table = pd.DataFrame({"id": pd.Series(names, dtype=object), "a": ["F"] * 4})
    assert as_source(table).count(WORDS, (), (), Cap("id", 1)) == 3


def test_a_failure_tells_nothing_of_what_was_counted(tmp_path, monkeypatch):
    """Where a count does fail, for want of memory or a file, its error holds no row and no count.

    Tools that report errors print the locals of every frame on the way.
    """
    path = file_of(pa.array(["F", "secret"] * 1234), tmp_path)
    source = as_source(path)

    def fails(rows, domain):
        counts = np.array([1234, 1234])
        raise MemoryError(f"secret {counts}")

    failures = []
    monkeypatch.setattr(reader, "_cell_counts", fails)
    for spoil in (lambda: None, path.unlink):
        spoil()
        with pytest.raises(SourceError) as caught:
            source.count(WORDS, ("a",), (), None)
        failures.append(caught.value)
    for failure in failures:
        assert failure.__cause__ is failure.__context__ is None
        told = traceback.TracebackException.from_exception(failure, capture_locals=True)
        engine = [frame for frame in told.stack if "engines" in frame.filename]
        assert "count" in {frame.name for frame in engine}
        shown = "".join(f"{frame.locals}" for frame in engine)
        for secret in ("secret", "1234", "array", str(tmp_path)):
            assert secret not in shown + str(failure)
