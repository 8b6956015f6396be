"""Arrow batches as a relation of DuckDB, in one of two readings.

The fast one takes text for UTF-8, or lets DuckDB read a Parquet file by itself, or rows once that
are alike, and fails on an entry that is not so. Then the count starts again with the safe one,
which reads everything, row by row. Both read every entry alike that the fast one can read, or
another row would decide what becomes of a row
(tests/engines/test_types.py::test_both_readings_of_a_file_agree,
tests/contracts/test_engines.py::test_the_fast_and_the_safe_reading_agree).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from psephos.engines.duckdb.arrow_types import convert, reading
from psephos.engines.duckdb.reading import TEXT_READING, Reading, is_text
from psephos.engines.protocol import AlikeRows, Batches
from psephos.errors import SourceError

BATCH_ROWS = 2**17
COLUMNS_CHANGED = "the columns of the source have changed since it was opened"
ROW = ("row", pa.bool_())
"""A column that is always there, so that rows can be counted where no other is needed."""
TIMES = ("times", pa.int64())
"""In its place: for how many rows a row stands, where those that are alike come once."""
Relation = tuple[str, Callable[[], Any] | None]
"""What stands behind FROM, and what gives the frame that it speaks of, if it does."""


def arrow_relation(
    batches: Batches,
    names: Sequence[str],
    needed: Sequence[str],
    *,
    safe: bool,
    alike: bool = False,
) -> Relation:
    """Some of the named columns, as entries that no query can fail on: in the safe reading.

    With `alike` a row may stand for several; then there is the column `times`.
    """
    if len(batches.kinds) != len(names):
        raise SourceError(COLUMNS_CHANGED)
    places = [names.index(name) for name in needed]
    kinds = [batches.kinds[i] for i in places]
    readings = [_reading_now(kind, safe) for kind in kinds]
    combined = None
    if alike and needed and not safe and isinstance(batches, AlikeRows):
        combined = batches.alike(needed)
    last = ROW if combined is None else TIMES
    expected = [*zip(needed, kinds, strict=True), *([] if combined is None else [TIMES])]
    target = pa.schema(
        [*((f"x{i}", how.arrow_type) for i, how in zip(places, readings, strict=True)), last]
    )

    def converted() -> Iterator[pa.RecordBatch]:
        some = needed or names[:1]  # some column, so that rows can be counted
        reader = batches.read(some) if combined is None else combined()
        given = list(zip(reader.schema.names, reader.schema.types, strict=True))
        if needed and given != expected:
            raise SourceError(COLUMNS_CHANGED)
        for batch in reader:
            batch.validate()
            columns = zip(batch.columns[: len(needed)], readings, strict=True)
            arrays = [_handover(column, how.arrow_type) for column, how in columns]
            single = pa.nulls(batch.num_rows, pa.bool_())
            arrays.append(single if combined is None else batch.columns[-1])
            whole = pa.RecordBatch.from_arrays(arrays, schema=target)
            for start in range(0, batch.num_rows, BATCH_ROWS):  # a thread takes one of them
                yield whole.slice(start, BATCH_ROWS)

    entries = [last[0]]
    for i, how in zip(places, readings, strict=True):
        entries.append(f"{how.entry.format(c=f'x{i}')} AS c{i}")
        if how.is_text:
            entries.append(f"x{i} AS p{i}")
    return (
        f"(SELECT {', '.join(entries)} FROM frame) AS t",
        lambda: pa.RecordBatchReader.from_batches(target, converted()),
    )


def _reading_now(kind: pa.DataType, safe: bool) -> Reading:
    """How a column is read; in the fast reading text is taken for UTF-8."""
    how = TEXT_READING if is_text(kind) else reading(kind)
    if how is None:  # when the source was opened it was of another type
        raise SourceError(COLUMNS_CHANGED)
    if safe or not how.is_text:
        return how
    return Reading(kind if is_text(kind) else pa.large_string())


def _handover(column: pa.Array, target: pa.DataType) -> pa.Array:
    """The column in the type in which DuckDB gets it; text is checked to be UTF-8."""
    text = is_text(column.type)
    array = column.cast(target, safe=False) if text else convert(column, target)
    if is_text(target):
        array.validate(full=True)
    return array
