"""What holds rows or counts shows none of them."""

import dataclasses

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from psephos.domain.domain import Domain
from psephos.engines import as_source
from psephos.engines.parquet import parquet_columns
from psephos.engines.row_store import RowStore

DOMAIN = Domain.of(a=["x"], b=300)
ROWS = {"a": ["x", "secret"] * 1234, "b": [7] * 2468}


def values(tmp_path):
    """All that an engine holds rows, counts or connections in, and the columns."""
    path = tmp_path / "people.parquet"
    pa.table(ROWS).to_pandas().to_parquet(path)  # with notes that tell the number of rows
    yield parquet_columns(path)
    for source in (as_source(path), as_source(pa.table(ROWS))):
        for _ in range(3):
            source.count(DOMAIN, ("a",), (), None)
        yield source
        yield source.engine
        yield source.take(DOMAIN, None)
        with source.snapshot() as snapshot:
            yield snapshot
            yield snapshot.batches
            for safe in (False, True):
                with snapshot.opened(["a"], safe=safe) as rows:
                    yield rows
    yield RowStore(DOMAIN, (np.zeros(1234, np.uint8), np.full(1234, 7, np.uint16)))


def test_no_value_of_the_engines_shows_what_it_holds(tmp_path):
    for value in values(tmp_path):
        for shown in (repr(value), str(value), f"{value}"):
            for secret in ("secret", "1234", "2468", "array", str(tmp_path)):
                assert secret not in shown


def test_what_holds_rows_is_no_dataclass(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table(ROWS), path)
    for value in (
        as_source(path),
        as_source(path).engine,
        as_source(pa.table(ROWS)).engine,
        RowStore(DOMAIN, (np.zeros(1), np.zeros(1))),
    ):
        assert not dataclasses.is_dataclass(value)
        with pytest.raises(TypeError):
            vars(value)


def test_shown_by_what_is_public():
    assert repr(RowStore(DOMAIN, (np.zeros(5), np.zeros(5)))) == "RowStore(2 attributes)"
    assert repr(as_source(pa.table(ROWS))) == "Reader(2 columns: a, b)"
    assert repr(as_source(pa.table(ROWS)).engine) == "ArrowTable(2 columns: a, b)"
