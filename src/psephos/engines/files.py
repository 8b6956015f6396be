"""CSV, TSV and Parquet files on this machine, which DuckDB reads fastest by itself.

Columns come from a schema or a header line, never from a row. A CSV has a header and double quotes,
and is read as text; a line of it is a row, or none, by itself (`csv_lines`). Files whose every line
is a row that all readers take for the same are read by DuckDB, others line by line. The owner's
check says which lines are broken (`CsvFile.broken_lines`).

With `multiline` an entry in quotes may go on over several lines. Rows are then what DuckDB makes of
the file: one written entry can join any number of lines that other people wrote, and the guarantee
holds for the table of these rows, not for the lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from psephos.engines.csv_lines import (
    FEW_FIELDS,
    MANY_FIELDS,
    NOT_UTF8,
    OVER_2_MB,
    TEXT_KIND,
    CsvHeader,
    csv_header,
    without_columns,
)
from psephos.engines.duckdb.arrow import BATCH_ROWS, COLUMNS_CHANGED, native_entry, native_kind
from psephos.engines.duckdb.cells import quote
from psephos.engines.duckdb.rows import connect
from psephos.engines.protocol import Batches, Columns
from psephos.errors import DomainError, SourceError

PARQUET = (".parquet", ".pq")
TEXT = {".csv": ",", ".tsv": "\t"}
CSV_OPTIONS = (
    "auto_detect = false, header = true, quote = '\"', escape = '\"', "
    "allow_quoted_nulls = false, hive_partitioning = false, max_line_size = 2100000"
)
REJECT_REASONS = {
    "MISSING COLUMNS": FEW_FIELDS,
    "TOO MANY_FIELDS COLUMNS": MANY_FIELDS.replace("and are left out", "and the last are ignored"),
    "INVALID ENCODING": NOT_UTF8,
    "LINE SIZE OVER MAXIMUM": OVER_2_MB,
}


def open_file(data: Any) -> CsvFile | ParquetFile | None:
    """The engine of the file at a path; None for what is no path."""
    if not isinstance(data, str | Path):
        return None
    path = checked_file(Path(data).absolute())
    return ParquetFile(path) if _is_parquet(path) else CsvFile(path)


class ParquetFile:
    """A Parquet file; DuckDB reads it by itself where it takes the columns for what they are."""

    __slots__ = ("_names", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names = file_columns(path).names

    def columns(self) -> Columns:
        return file_columns(self._path)

    def version(self) -> tuple[int, ...]:
        return file_state(self._path)

    @contextmanager
    def snapshot(self) -> Iterator[Batches]:
        yield ParquetBatches(self._path)

    @property
    def files(self) -> Sequence[Path]:
        return (self._path,)

    def relation(self, connection: Any, places: Sequence[int]) -> str | None:
        schema = pq.read_schema(self._path)
        names = ", ".join(f"s{i}" for i in range(len(schema)))
        file = f"read_parquet({quote(str(self._path))}, hive_partitioning = false) AS s({names})"
        if not places:
            return file
        kinds = [native_kind(schema.field(i).type) for i in places]
        columns = ", ".join(f"s{i}" for i in places)
        described = connection.execute(f"DESCRIBE SELECT {columns} FROM {file}").fetchall()
        if kinds != [row[1] for row in described]:
            return None
        entries = [
            f"{native_entry(f's{i}', str(kind))} AS c{i}"
            for i, kind in zip(places, kinds, strict=True)
        ]
        return f"(SELECT {', '.join(entries)} FROM {file}) AS t"

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


class CsvFile:
    r"""A CSV or TSV file as it was opened: its header says how lines are split.

    Args:
        path: of a file whose name ends in .csv or .tsv
        multiline: whether an entry in quotes may go on over several lines; see the head of `files`

    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = path.write_text("sex,note\nF,fine\n")
    >>> CsvFile(path, multiline=True)
    CsvFile(2 columns: sex, note)
    """

    __slots__ = ("_header", "_path", "_regular", "is_multiline")

    def __init__(self, path: str | Path, *, multiline: bool = False) -> None:
        self._path = checked_file(Path(path).absolute())
        if _is_parquet(self._path):
            raise DomainError(f"{self._path.name!r} is no CSV file; give its path as it is")
        self._header = _csv_header(self._path)
        self._regular: tuple[tuple[int, ...], bool] | None = None
        self.is_multiline = multiline

    @property
    def place(self) -> tuple[str, ...]:
        """What distinguishes this table from others: the file, and how it is read."""
        return (str(self._path.resolve()), *(["multiline"] if self.is_multiline else []))

    def columns(self) -> Columns:
        return file_columns(self._path)

    def version(self) -> tuple[int, ...]:
        return file_state(self._path)

    @contextmanager
    def snapshot(self) -> Iterator[Batches]:
        if _csv_header(self._path) != self._header:
            raise SourceError(COLUMNS_CHANGED)
        if not self.is_multiline:
            yield LineBatches(self._path, self._header)
            return
        with ExitStack() as connections:
            yield CsvBatches(connections, self._path, self._header.names, self._rows())

    @property
    def files(self) -> Sequence[Path]:
        return (self._path,)

    def relation(self, connection: Any, places: Sequence[int]) -> str | None:
        return self._rows() if self.is_multiline or self._is_regular() else None

    def _is_regular(self) -> bool:
        """Whether DuckDB reads the file as it is now by the rules of `csv_lines`."""
        version = self.version()
        if self._regular is None or self._regular[0] != version:
            blocks = self._header.blocks(self._path)
            self._regular = version, all(map(self._header.is_regular, blocks))
        return self._regular[1]

    def broken_lines(self) -> Iterator[tuple[int, str]]:
        """The numbers of lines that are no rows, from 1 for the header, and what is wrong there."""
        if not self.is_multiline:
            yield from self._header.broken_lines(self._path)
            return
        columns = "".join(f", COUNT(c{i})" for i in range(len(self._header.names)))
        rejects = "strict_mode = true, store_rejects = true, rejects_limit = 0"
        with connect(self.files) as connection:
            connection.sql(f"SELECT COUNT(*){columns} FROM {self._rows(rejects)}").fetchall()
            rejected = connection.sql(
                "SELECT line, MIN(error_type) FROM reject_errors GROUP BY line ORDER BY line"
            ).fetchall()
        for line, kind in rejected:
            yield line, REJECT_REASONS.get(kind, "are left out")

    def _rows(self, errors: str = "strict_mode = false, ignore_errors = true") -> str:
        """The file behind FROM as DuckDB reads it, columns c0 and on."""
        header = self._header
        kinds = ", ".join(f"c{i}: 'VARCHAR'" for i in range(len(header.names)))
        options = f"{CSV_OPTIONS}, {errors}, delim = '{header.separator}'"
        if header.newline == b"\n":
            options += ", new_line = '\\n'"  # then a stray CR ends no line
        return f"read_csv({quote(str(self._path))}, {options}, columns = {{{kinds}}})"

    def __repr__(self) -> str:
        return f"CsvFile({Columns(self._header.names).summary})"


@dataclass(frozen=True, eq=False, repr=False)
class LineBatches:
    """A CSV file line by line, handed over as Arrow text."""

    path: Path
    header: CsvHeader

    @property
    def kinds(self) -> Sequence[pa.DataType]:
        return [TEXT_KIND] * len(self.header.names)

    def read(self, names: Sequence[str]) -> pa.RecordBatchReader:
        places = [self.header.names.index(name) for name in names]
        schema = pa.schema([(name, TEXT_KIND) for name in names])
        batches = (
            batch.rename_columns(names)
            for block in self.header.blocks(self.path)
            for batch in self.header.table(block, places).to_batches()
        )
        return pa.RecordBatchReader.from_batches(schema, batches)


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


def checked_file(path: Path) -> Path:
    """The path, if it is that of one file of a kind that can be counted."""
    if path.suffix.lower() not in (*TEXT, *PARQUET):
        raise DomainError(
            f"{path.name!r} is none of .csv, .tsv and .parquet, nor a folder of Parquet files; "
            "export the table as CSV or Parquet"
        )
    if any(mark in str(path) for mark in "*?["):
        raise DomainError(
            f"{str(path)!r} holds one of * ? [, which stand for many files, and many files are one "
            'table if all are Parquet ("folder/*/*.parquet"); rename the file, or make one of many'
        )
    if not path.is_file():
        raise SourceError(
            f"there is no file {path.name!r} in {path.absolute().parent}; correct the path (in a "
            "release file, `source`)"
        )
    return path


def file_columns(path: Path) -> Columns:
    """The columns of a Parquet file's schema or a CSV's first line; no row is looked at."""
    if not _is_parquet(path):
        return Columns(_csv_header(path).names)
    try:
        # Without its notes, which may tell the number of rows.
        schema = pq.read_schema(path).remove_metadata()
    except (OSError, pa.ArrowException):
        raise without_columns(path, "is it a Parquet file?") from None
    return Columns(tuple(schema.names), schema)


def _csv_header(path: Path) -> CsvHeader:
    return csv_header(path, TEXT[path.suffix.lower()])


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in PARQUET


def file_state(path: Path) -> tuple[int, ...]:
    """What changes when the file does."""
    state = path.stat()
    return state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino
