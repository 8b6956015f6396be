"""Rows that are taken once: the same counts as by the rules, in memory or in a nameless file."""

import os
import time
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psephos.domain.domain import Domain
from psephos.engines import as_source, row_store
from psephos.engines.duckdb import reader
from psephos.engines.duckdb.reader import OpenState
from psephos.engines.row_store import RowStore
from psephos.errors import SourceError
from psephos.kernel.cell_counts import CellCounts
from psephos.kernel.source import Cap, Conjunct

DOMAIN = Domain.of(a=300, b=["x", "y"])
ROWS = {"a": [299, 0, 7, 7, -1], "b": ["x", "y", "y", None, "x"], "who": [1, 1, 1, 2, 2]}


@pytest.fixture
def readings(monkeypatch):
    """How often rows are read."""
    number = []
    opened = OpenState.opened

    def noted(self, needed, **options):
        number.append(1)
        return opened(self, needed, **options)

    monkeypatch.setattr(OpenState, "opened", noted)
    return number


TABLES = [(), ("a",), ("b",), ("a", "b"), ("b", "a"), ("b",)]
SOME = Conjunct(("b",), np.array([False, True]))


@pytest.mark.parametrize("cap", [None, Cap("who", 1)])
@pytest.mark.parametrize("limit", [0, 2**14])
@pytest.mark.parametrize("on_disk", [False, True])
def test_all_counts_take_one_reading(cap, limit, on_disk, monkeypatch, readings, tmp_path):
    monkeypatch.setattr(reader, "GROUP_LIMIT", limit)
    folder = tmp_path if on_disk else None
    table = as_source(pa.table(ROWS)).take(DOMAIN, cap, folder)
    assert type(table) is (CellCounts if limit and cap is None else RowStore)
    cells = np.zeros((300, 2), int)
    for a, b in [(299, 0), (0, 1), (7, 1)] if cap is None else [(0, 1)]:
        cells[a, b] = 1
    for keep, kept in ((), cells), ((SOME,), cells * [0, 1]):
        counts = dict(zip(TABLES, table.counts(TABLES, keep), strict=True))
        assert counts[()] == kept.sum()
        np.testing.assert_array_equal(counts["a", "b"], kept)
        np.testing.assert_array_equal(counts["b", "a"], kept.T)
        np.testing.assert_array_equal(counts["a",], kept.sum(1))
        rows = np.bincount(table.row_cells(("b", "a"), keep), minlength=600)
        np.testing.assert_array_equal(rows, kept.T.ravel())
    assert len(readings) == 1
    assert os.listdir(tmp_path) == []
    empty = as_source(pa.table(ROWS).slice(0, 0)).take(DOMAIN, cap, folder)
    assert not any(counts.any() for counts in empty.counts(TABLES, ()))
    assert empty.row_cells(("a",), ()).tolist() == []


def test_a_file_has_no_name_before_its_first_byte(tmp_path, monkeypatch):
    listed = []

    def batches():
        for _ in range(2):
            listed.append(os.listdir(tmp_path))
            yield [np.array([1, 2]), np.array([0, 1])]

    store = RowStore.of(DOMAIN, batches(), folder=tmp_path)
    assert listed == [[], []]
    assert os.listdir(tmp_path) == []
    np.testing.assert_array_equal(store.counts([("b",)], ())[0], [2, 2])
    assert all(isinstance(column, np.memmap) for column in store._columns)


@given(
    persons=st.lists(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), max_size=4)),
    size=st.sampled_from([1, 2, 3, 100]),
    masked=st.booleans(),
)
def test_persons_are_counted_once_for_each_cell(persons, size, masked):
    domain = Domain.of(a=3, b=2)
    rows = [(a, b, i == 0) for cells in persons for i, (a, b) in enumerate(cells)]
    columns = [np.array([row[j] for row in rows], int) for j in range(3)]
    store = RowStore.of(domain, [columns], persons=True)
    keep = (Conjunct(("b",), np.array([True, False])),) if masked else ()
    groups = np.array([0, 0, 1])
    expected = np.zeros((2, 2), int)
    for cells in persons:
        for a, b in {(groups[a], b) for a, b in cells if not (masked and b)}:
            expected[a, b] += 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_store, "SLICE", size)
        axes = [("a", groups, 2), ("b", np.arange(2), 2)]
        np.testing.assert_array_equal(store.persons(axes, keep), expected)
        some = sum(any(not (masked and b) for _, b in cells) for cells in persons)
        assert store.persons([], keep) == some


def test_rows_are_copied_out_of_a_frame():
    sides = np.array([0, 0, 1])
    table = pa.table({"a": pa.array(sides), "b": ["x", "x", "y"]})
    store = as_source(table).take(DOMAIN, Cap("a", 9))
    sides[:] = 1
    np.testing.assert_array_equal(store.counts([("a",)], ())[0][:3], [2, 1, 0])


def test_every_taking_is_of_the_rows_as_they_are(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(ROWS), path)
    source = as_source(path)
    old = source.take(DOMAIN, None)
    more = {name: [*column, column[0]] for name, column in ROWS.items()}
    pq.write_table(pa.table(more), path)
    assert source.count(DOMAIN, (), (), None) == 4
    path.unlink()
    with pytest.raises(SourceError, match="could not be counted"):
        source.count(DOMAIN, (), (), None)
    assert old.counts([()], ())[0] == 3


def test_a_file_that_changes_while_it_is_read_is_refused_even_if_its_time_is_set_back(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("b\nx\nx\n")
    source, domain = as_source(path), Domain.of(b=["x", "y"])
    with source.snapshot() as snapshot:
        assert snapshot.read(("b",), lambda rows: 1) == 1
    before = path.stat()
    time.sleep(0.05)

    def changed():
        with source.snapshot():
            with path.open("r+") as file:
                file.write("b\ny\nx\n")
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    with pytest.raises(reader.StateError, match="written to while it was read"):
        changed()
    np.testing.assert_array_equal(source.count(domain, ("b",), (), None), [1, 1])


def test_slices_count_every_row_once(monkeypatch):
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 3, 1000), rng.integers(0, 2, 1000)]
    domain = Domain.of(a=3, b=2)
    few = Conjunct(("a",), np.arange(3) > 0)
    expected = np.histogram2d(*rows, bins=[range(4), range(3)])[0]
    for size in (1, 7, 1000, 10_000):
        monkeypatch.setattr(row_store, "SLICE", size)
        store = RowStore.of(domain, [rows])
        both, total = store.counts([("a", "b"), ()], ())
        np.testing.assert_array_equal(both, expected)
        np.testing.assert_array_equal(store.counts([("b",)], (few,))[0], expected[1:].sum(axis=0))
        assert total == 1000


def test_counting_takes_little_memory_whatever_the_rows():
    domain, rows = Domain.of(a=5, b=2), 1 << 23
    column = np.zeros(rows, dtype=np.uint8)
    store = RowStore(domain, (column, column))
    tracemalloc.start()
    few = Conjunct(("b",), np.array([True, False]))
    assert store.counts([("a",)], (few,))[0][0] == rows
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 48 * row_store.SLICE  # and not of every row


@pytest.mark.parametrize("size", [2, 256, 257, 65_536, 65_537])
def test_an_attribute_takes_the_smallest_type_that_holds_it(size):
    store = RowStore.of(Domain.of(a=size), [[np.array([size - 1, 0])]])
    width = 1 if size <= 256 else 2 if size <= 65_536 else 4
    assert store._columns[0].dtype.itemsize == width
    assert store.counts([("a",)], ())[0][-1] == 1
