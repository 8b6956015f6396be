"""Rows that are kept between counts: the same counts, of the table as it is now."""

import os
import time
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from psephos.domain.domain import Domain
from psephos.engines import as_source
from psephos.engines.duckdb import row_cache
from psephos.engines.duckdb.reader import Snapshot
from psephos.errors import SourceError
from psephos.kernel.source import Cap, Conjunct

DOMAIN = Domain.of(a=300, b=["x", "y"])
ROWS = {"a": [299, 0, 7, 7, -1], "b": ["x", "y", "y", None, "x"], "who": [1, 1, 1, 2, 2]}


def readings(monkeypatch):
    """How often rows are read."""
    number = []
    opened = Snapshot.opened

    def counted(self, needed, **options):
        number.append(1)
        return opened(self, needed, **options)

    monkeypatch.setattr(Snapshot, "opened", counted)
    return number


def test_many_counts_take_two_readings(monkeypatch):
    source = as_source(pa.table(ROWS))
    number = readings(monkeypatch)
    for _ in range(5):
        counts = source.count(DOMAIN, ("b",), (), None)
        np.testing.assert_array_equal(counts, [1, 2])
    assert source.count(DOMAIN, ("b", "a"), (), None)[0, 299] == 1
    assert source.count(DOMAIN, (), (), None) == 3
    few = Conjunct(("a",), np.arange(300) < 100)
    np.testing.assert_array_equal(source.count(DOMAIN, ("b",), (few,), None), [0, 2])
    assert len(number) == 2


TABLES = [(), ("a",), ("b",), ("a", "b"), ("b", "a"), ("b",)]


@pytest.mark.parametrize("cap", [None, Cap("who", 1)])
@pytest.mark.parametrize("kept", [True, False])
def test_many_tables_take_one_reading(cap, kept, monkeypatch):
    few = Conjunct(("b",), np.array([False, True]))
    each = [
        [as_source(pa.table(ROWS)).count(DOMAIN, names, keep, cap) for names in TABLES]
        for keep in ((), (few,))
    ]
    monkeypatch.setattr(row_cache, "MOST_BYTES", 1 << 28 if kept else 0)
    number = readings(monkeypatch)
    for keep, expected in zip(((), (few,)), each, strict=True):
        source = as_source(pa.table(ROWS))
        del number[:]
        for table, alone in zip(source.counts(DOMAIN, TABLES, keep, cap), expected, strict=True):
            np.testing.assert_array_equal(table, alone)
        assert len(number) == (1 if kept else 2)  # the first finds that they are too many
        empty = as_source(pa.table(ROWS).slice(0, 0)).counts(DOMAIN, TABLES, keep, cap)
        assert [table.shape for table in empty] == [table.shape for table in expected]
        assert not any(table.any() for table in empty)


def test_another_domain_or_cap_is_read_anew():
    source = as_source(pa.table(ROWS))
    small = Domain.of(b=["x", "y"])
    for _ in range(3):
        for domain, cap, expected in [
            (DOMAIN, None, [1, 2]),
            (small, None, [2, 2]),
            (DOMAIN, Cap("who", 1), [0, 1]),
        ]:
            for _ in range(2):
                np.testing.assert_array_equal(source.count(domain, ("b",), (), cap), expected)


def test_large_tables_are_read_for_every_count(monkeypatch):
    monkeypatch.setattr(row_cache, "MOST_BYTES", 8)  # two rows of three bytes
    source = as_source(pa.table(ROWS))
    number = readings(monkeypatch)
    for _ in range(3):
        np.testing.assert_array_equal(source.count(DOMAIN, ("b",), (), None), [1, 2])
    assert len(number) == 4  # one of them to find out


def test_a_file_that_changes_is_read_again(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(ROWS), path)
    source = as_source(path)
    for _ in range(3):
        assert source.count(DOMAIN, (), (), None) == 3
    more = {name: [*column, column[0]] for name, column in ROWS.items()}
    pq.write_table(pa.table(more), path)
    for _ in range(3):
        assert source.count(DOMAIN, (), (), None) == 4
    path.unlink()
    with pytest.raises(SourceError, match="could not be counted"):
        source.count(DOMAIN, (), (), None)


def test_a_file_that_changes_is_read_again_even_if_its_time_is_set_back(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("b\nx\nx\n")
    source, domain = as_source(path), Domain.of(b=["x", "y"])
    for _ in range(3):
        np.testing.assert_array_equal(source.count(domain, ("b",), (), None), [2, 0])
    before = path.stat()
    time.sleep(0.05)
    with path.open("r+") as file:
        file.write("b\ny\nx\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_mtime_ns, after.st_size, after.st_ino) == (
        before.st_mtime_ns,
        before.st_size,
        before.st_ino,
    )
    np.testing.assert_array_equal(source.count(domain, ("b",), (), None), [1, 1])


def test_slices_count_every_row_once(monkeypatch):
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 3, 1000), rng.integers(0, 2, 1000)]
    domain = Domain.of(a=3, b=2)
    few = Conjunct(("a",), np.arange(3) > 0)
    expected = np.histogram2d(*rows, bins=[range(4), range(3)])[0]
    for size in (1, 7, 1000, 10_000):
        monkeypatch.setattr(row_cache, "SLICE", size)
        cache = row_cache.RowCache.of(domain, [rows])
        both, total = cache.counts([("a", "b"), ()], ())
        np.testing.assert_array_equal(both.reshape(expected.shape), expected)
        np.testing.assert_array_equal(cache.counts([("b",)], (few,))[0], expected[1:].sum(axis=0))
        assert total == 1000


def test_counting_takes_little_memory_whatever_the_rows():
    domain, rows = Domain.of(a=5, b=2), 1 << 23
    column = np.zeros(rows, dtype=np.uint8)
    cache = row_cache.RowCache(domain, (column, column))
    tracemalloc.start()
    few = Conjunct(("b",), np.array([True, False]))
    assert cache.counts([("a",)], (few,))[0][0] == rows
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 48 * row_cache.SLICE  # and not of every row


def test_an_empty_table():
    source = as_source(pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())}))
    for _ in range(3):
        np.testing.assert_array_equal(source.count(DOMAIN, ("b",), (), None), [0, 0])
