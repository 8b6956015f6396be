"""A source behind FROM: the columns that are needed, as entries that no query can fail on.

DuckDB reads a Parquet file by itself, which is fast, as long as it meets nothing that it cannot
read: text that is not UTF-8, a time out of range. Then the reading starts again through Arrow,
which reads everything. Both read every entry alike that the first can read, or another row would
decide what becomes of a row (tests/engines/test_types.py::test_both_readings_of_a_file_agree).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from psephos.engines.arrow import Reading, as_text, handed, native_entry, native_kind, reading
from psephos.errors import SourceError

BATCH = 2**17
ROW = ("row", pa.bool_())
"""A column that is always there, so that rows can be counted where no other is needed."""

Relation = tuple[str, Callable[[], Any] | None]
"""What stands behind FROM, and what gives the frame that it speaks of, if it does."""


def native_parquet(
    connection: Any, path: Path, schema: pa.Schema, places: Sequence[int]
) -> Relation | None:
    """A Parquet file as DuckDB reads it; None if it takes a column for something else."""
    names = ", ".join(f"s{i}" for i in range(len(schema)))
    file = f"read_parquet({quoted(str(path))}, hive_partitioning = false) AS s({names})"
    if not places:
        return file, None
    known = [native_kind(schema.field(i).type) for i in places]
    kinds = [kind for kind in known if kind is not None]
    if len(kinds) < len(places):
        return None
    chosen = ", ".join(f"s{i}" for i in places)
    described = connection.execute(f"DESCRIBE SELECT {chosen} FROM {file}").fetchall()
    if kinds != [row[1] for row in described]:
        return None
    entries = [
        f"{native_entry(f's{i}', kind)} AS c{i}" for i, kind in zip(places, kinds, strict=True)
    ]
    return f"(SELECT {', '.join(entries)} FROM {file}) AS t", None


def parquet_by_arrow(path: Path, places: Sequence[int]) -> Relation:
    """A Parquet file as Arrow reads it, a batch at a time."""
    # The old timestamps of 96 bits reach further than nanoseconds do. Large text is read as it is
    # stored; made of it again, codes of fewer than 32 bits would fail on text that is not UTF-8.
    form = ds.ParquetFileFormat(coerce_int96_timestamp_unit="us", binary_type=pa.large_binary())
    schema = form.inspect(str(path), LocalFileSystem())
    needed = pa.schema([schema.field(i) for i in places])
    dataset = ds.dataset(str(path), needed, form, filesystem=LocalFileSystem())
    columns = {f"x{i}": ds.field(schema.field(i).name) for i in places}
    readings = {f"x{i}": _reading(schema.field(i).type) for i in places}
    target = pa.schema([*((x, r.handed) for x, r in readings.items()), ROW])

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in dataset.to_batches(columns=columns, batch_size=BATCH):
            arrays = [handed(batch.column(x), r.handed) for x, r in readings.items()]
            arrays.append(pa.nulls(batch.num_rows, pa.bool_()))
            yield pa.RecordBatch.from_arrays(arrays, schema=target)

    def reader() -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(target, batches())

    return _selected(places, list(readings.values())), reader


def arrow_table(table: pa.Table, places: Sequence[int]) -> Relation:
    """Columns of an Arrow table; text as text where all of it is UTF-8."""
    columns, readings = [], []
    for i in places:
        column, how = table.column(i), _reading(table.column(i).type)
        text = as_text(column) if how.is_text else None
        columns.append(handed(column, how.handed) if text is None else text)
        readings.append(how if text is None else Reading(columns[-1].type))
    columns.append(pa.nulls(table.num_rows, pa.bool_()))
    frame = pa.Table.from_arrays(columns, names=[*(f"x{i}" for i in places), ROW[0]])
    return _selected(places, readings), lambda: frame


def _selected(places: Sequence[int], readings: Sequence[Reading]) -> str:
    entries = [ROW[0]]
    for i, how in zip(places, readings, strict=True):
        entries.append(f"{how.entry.format(c=f'x{i}')} AS c{i}")
        if how.is_text:
            entries.append(f"x{i} AS p{i}")
    return f"(SELECT {', '.join(entries)} FROM frame) AS t"


def _reading(kind: pa.DataType) -> Reading:
    how = reading(kind)
    if how is None:
        raise SourceError("the columns of the file have changed since it was opened")
    return how


def quoted(text: str) -> str:
    """Text as SQL writes it."""
    return "'" + text.replace("'", "''") + "'"
