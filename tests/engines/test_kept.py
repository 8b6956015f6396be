"""Rows that are kept between counts: the same counts, of the table as it is now."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from psephos.domain import Domain
from psephos.engines import as_source, kept
from psephos.errors import SourceError
from psephos.kernel.source import Cap, Conjunct

DOMAIN = Domain.of(a=300, b=["x", "y"])
ROWS = {"a": [299, 0, 7, 7, -1], "b": ["x", "y", "y", None, "x"], "who": [1, 1, 1, 2, 2]}


def readings(source, monkeypatch):
    """How often rows are read."""
    read = []
    opened = type(source).opened
    monkeypatch.setattr(type(source), "opened", lambda self: read.append(1) or opened(self))
    return read


def test_many_counts_take_two_readings(monkeypatch):
    source = as_source(pa.table(ROWS))
    read = readings(source, monkeypatch)
    for _ in range(5):
        counts = source.count(DOMAIN, ("b",), (), None)
        np.testing.assert_array_equal(counts, [1, 2])
    assert source.count(DOMAIN, ("b", "a"), (), None)[0, 299] == 1
    assert source.count(DOMAIN, (), (), None) == 3
    few = Conjunct(("a",), np.arange(300) < 100)
    np.testing.assert_array_equal(source.count(DOMAIN, ("b",), (few,), None), [0, 2])
    assert len(read) == 2


def test_another_domain_or_cap_is_read_anew():
    source = as_source(pa.table(ROWS))
    small = Domain.of(b=["x", "y"])
    for _ in range(3):
        for domain, cap, wanted in [
            (DOMAIN, None, [1, 2]),
            (small, None, [2, 2]),
            (DOMAIN, Cap("who", 1), [0, 1]),
        ]:
            for _ in range(2):
                np.testing.assert_array_equal(source.count(domain, ("b",), (), cap), wanted)


def test_large_tables_are_read_for_every_count(monkeypatch):
    monkeypatch.setattr(kept, "MOST_BYTES", 8)  # two rows of three bytes
    source = as_source(pa.table(ROWS))
    read = readings(source, monkeypatch)
    for _ in range(3):
        np.testing.assert_array_equal(source.count(DOMAIN, ("b",), (), None), [1, 2])
    assert len(read) == 4  # one of them to find out


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


def test_an_empty_table():
    source = as_source(pa.table({"a": pa.array([], pa.int64()), "b": pa.array([], pa.string())}))
    for _ in range(3):
        np.testing.assert_array_equal(source.count(DOMAIN, ("b",), (), None), [0, 0])
