"""A Parquet file, which DuckDB reads by itself where it takes the columns for what they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from psephos.engines.csv_lines import without_columns
from psephos.engines.duckdb.arrow import BATCH_ROWS
from psephos.engines.duckdb.arrow_types import native_entry, native_kind
from psephos.engines.duckdb.cells import quote
from psephos.engines.files import PARQUET, checked_file, file_state
from psephos.engines.protocol import Batches, Columns


def open_parquet(data: Any) -> ParquetFile | None:
    """The engine of the Parquet file at a path; None for anything else."""
    named = isinstance(data, str | Path) and Path(data).suffix.lower() in PARQUET
    return ParquetFile(checked_file(Path(data).absolute())) if named else None


class ParquetFile:
    """A Parquet file; DuckDB reads it by itself where it takes the columns for what they are."""

    __slots__ = ("_names", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names = parquet_columns(path).names

    def columns(self) -> Columns:
        return parquet_columns(self._path)

    def version(self) -> tuple[int, ...]:
        return file_state(self._path)

    @contextmanager
    def snapshot(self) -> Iterator[Batches]:
        yield ParquetBatches(self._path)

    @property
    def files(self) -> Sequence[Path]:
        return (self._path,)

    def relation(self, connection: Any, places: Sequence[int]) -> str | None:
        rows = native_rows(connection, self.files, pq.read_schema(self._path), places)
        return None if rows is None else relation_of(*rows)

    def __repr__(self) -> str:
        return f"ParquetFile({Columns(self._names).summary})"


class ParquetBatches:
    """A Parquet file as Arrow reads it, a batch at a time."""

    __slots__ = ("_form", "_path", "_schema")

    def __init__(self, path: Path) -> None:
        import pyarrow.dataset as ds  # it imports pandas, which CSV files are read without

        # The old timestamps of 96 bits reach further than nanoseconds do. Large text is read as it
        # is stored; made of it again, codes of fewer than 32 bits would fail on text that is not
        # UTF-8.
        self._form = ds.ParquetFileFormat(
            coerce_int96_timestamp_unit="us", binary_type=pa.large_binary()
        )
        self._path = path
        self._schema = self._form.inspect(str(path), LocalFileSystem())

    @property
    def kinds(self) -> Sequence[pa.DataType]:
        return list(self._schema.types)

    def read(self, names: Sequence[str]) -> pa.RecordBatchReader:
        import pyarrow.dataset as ds

        fields = [self._schema.field(self._schema.names.index(name)) for name in names]
        schema = pa.schema(fields)  # of these alone, because others may have one name twice
        dataset = ds.dataset(str(self._path), schema, self._form, filesystem=LocalFileSystem())
        columns = {name: ds.field(name) for name in names}
        return dataset.scanner(columns=columns, batch_size=BATCH_ROWS).to_reader()


def parquet_columns(path: Path) -> Columns:
    """The columns of the file's schema; no row is looked at."""
    try:
        # Without its notes, which may tell the number of rows.
        schema = pq.read_schema(path).remove_metadata()
    except (OSError, pa.ArrowException):
        raise without_columns(path, "is it a Parquet file?") from None
    return Columns(tuple(schema.names), schema)


def native_rows(
    connection: Any, files: Sequence[Path], schema: pa.Schema, places: Sequence[int]
) -> tuple[str, list[str]] | None:
    """Files of one schema behind FROM, and some entries; None if DuckDB reads them differently."""
    names = ", ".join(f"s{i}" for i in range(len(schema)))
    paths = ", ".join(quote(str(file)) for file in files)
    table = f"read_parquet([{paths}], hive_partitioning = false) AS s({names})"
    kinds = [native_kind(schema.field(i).type) for i in places]
    if places:
        columns = ", ".join(f"s{i}" for i in places)
        described = connection.execute(f"DESCRIBE SELECT {columns} FROM {table}").fetchall()
        if kinds != [row[1] for row in described]:
            return None
    pairs = zip(places, kinds, strict=True)
    return table, [f"{native_entry(f's{i}', str(kind))} AS c{i}" for i, kind in pairs]


def relation_of(table: str, entries: Sequence[str]) -> str:
    """What stands behind FROM: these entries of the table, or its rows alone."""
    return f"(SELECT {', '.join(entries)} FROM {table}) AS t" if entries else table
