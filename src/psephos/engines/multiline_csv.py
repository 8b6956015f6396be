"""A CSV whose entries in quotes may go on over several lines: rows are what DuckDB makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from psephos.engines.csv_lines import TEXT_KIND
from psephos.engines.duckdb.arrow import BATCH_ROWS
from psephos.engines.duckdb.rows import connect


class CsvBatches:
    """A CSV file as DuckDB reads it, handed over as Arrow text."""

    __slots__ = ("_connections", "_names", "_path", "_rows")

    def __init__(
        self, connections: ExitStack, path: Path, names: tuple[str, ...], rows: str
    ) -> None:
        self._connections = connections
        self._path = path
        self._names = names
        self._rows = rows

    @property
    def kinds(self) -> Sequence[pa.DataType]:
        return [TEXT_KIND] * len(self._names)

    def read(self, names: Sequence[str]) -> pa.RecordBatchReader:
        columns = ", ".join(f"c{self._names.index(name)}" for name in names)
        # One for each reader, because a connection gives one result at a time.
        connection = self._connections.enter_context(connect([self._path]))
        rows = connection.sql(f"SELECT {columns} FROM {self._rows}")
        schema = pa.schema([(name, TEXT_KIND) for name in names])
        batches = (
            pa.RecordBatch.from_arrays(batch.columns, schema=schema)
            for batch in rows.to_arrow_reader(BATCH_ROWS)
        )
        return pa.RecordBatchReader.from_batches(schema, batches)
