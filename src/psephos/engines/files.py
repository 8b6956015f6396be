"""CSV, TSV and Parquet files on this machine, which DuckDB reads fastest by itself.

Columns come from a schema or a header line, never from a row. A CSV's separator comes from its
header line too, which is public: the one of , ; tab and | that is there most often outside quotes,
and in a tie the one that the file's name promises.

A CSV has a header and double quotes, and is read as text. An empty field is missing, a quoted empty
one is empty text. Lines with too few fields, bytes that are not UTF-8 or more than 2 MB are left
out; fields too many are ignored. Its rows are what this reading makes of it: a stray quote can join
lines, so prefer Parquet where people typed the entries. The owner's check tells how many lines are
of any of these kinds (`CsvFile.line_findings`).
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.fs import LocalFileSystem

from psephos.engines.duckdb.arrow import BATCH_ROWS, COLUMNS_CHANGED, native_entry, native_kind
from psephos.engines.duckdb.clean_text import quote
from psephos.engines.duckdb.rows import connect
from psephos.engines.protocol import Batches, Columns, Mismatch
from psephos.errors import DomainError, SourceError

PARQUET = (".parquet", ".pq")
TEXT = {".csv": ",", ".tsv": "\t"}
SEPARATORS = (",", ";", "\t", "|")
HEADER_BYTES = 1 << 20
"""Bytes of a line; what goes on beyond them is no header."""
CSV_OPTIONS = (
    "auto_detect = false, header = true, quote = '\"', escape = '\"', strict_mode = false, "
    "allow_quoted_nulls = false, hive_partitioning = false"
)
MAX_REJECTS = 10_000
"""Lines that are left out are counted up to this number."""
REJECT_REASONS = {
    "MISSING COLUMNS": "have fewer fields than the header and are left out; complete them",
    "INVALID ENCODING": "hold bytes that are not UTF-8 and are left out; save the file as UTF-8",
    "LINE SIZE OVER MAXIMUM": "are longer than 2 MB and are left out; look for an open quote",
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
    """A CSV or TSV file as it was opened: its header says how lines are split."""

    __slots__ = ("_header", "_path")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._header = csv_header(path)

    def columns(self) -> Columns:
        return file_columns(self._path)

    def version(self) -> tuple[int, ...]:
        return file_state(self._path)

    @contextmanager
    def snapshot(self) -> Iterator[Batches]:
        if csv_header(self._path) != self._header:
            raise SourceError(COLUMNS_CHANGED)
        with ExitStack() as connections:
            yield CsvBatches(connections, self._path, self._header.names, self._lines())

    @property
    def files(self) -> Sequence[Path]:
        return (self._path,)

    def relation(self, connection: Any, places: Sequence[int]) -> str:
        return self._lines()

    def line_findings(self, names: Sequence[str]) -> Iterator[Mismatch]:
        """Lines left out, lines with fields too many, and entries that go on over several lines.

        Only columns that are read can hold wrong bytes.
        """
        columns = [f"c{self._header.names.index(name)}" for name in names]
        width = len(self._header.names)
        with connect(self.files) as connection:
            rejects = f"store_rejects = true, rejects_limit = {MAX_REJECTS}"
            entries = "".join(f", COUNT({column})" for column in columns)
            connection.sql(
                f"SELECT COUNT(*){entries} FROM {self._lines(errors=rejects)}"
            ).fetchall()
            for kind, number in connection.sql(
                "SELECT error_type, COUNT(DISTINCT line_byte_position) FROM reject_errors "
                "GROUP BY ALL ORDER BY ALL"
            ).fetchall():
                lines = f"{number:,}{' or more' if number >= MAX_REJECTS else ''} lines"
                text = f"{lines} {REJECT_REASONS.get(kind, 'are left out')}"
                yield Mismatch("lines", "lines left out", "error", text)
            too_long = f"SELECT COUNT(c{width}) FROM {self._lines(width + 1)}"
            (number,) = connection.sql(too_long).fetchall()[0]
            if number:
                text = (
                    f"{number:,} lines have more fields than the header, and the last are ignored; "
                    'put quotes around entries that hold a separator ("a, b")'
                )
                yield Mismatch("lines", "too many fields", "error", text)
            breaks = " OR ".join(f"contains({c}, chr(10))" for c in columns) or "FALSE"
            joined = f"SELECT COUNT(*) FILTER ({breaks}) FROM {self._lines()}"
            (number,) = connection.sql(joined).fetchall()[0]
            if number:
                text = (
                    f"{number:,} rows hold an entry of several lines; has a stray quote joined "
                    "lines?"
                )
                yield Mismatch("lines", "joined", "warning", text)

    def _lines(self, width: int | None = None, errors: str = "ignore_errors = true") -> str:
        """The file behind FROM, read as so many columns of text, c0 and on."""
        header = self._header
        columns = range(len(header.names) if width is None else width)
        kinds = ", ".join(f"c{i}: 'VARCHAR'" for i in columns)
        options = f"{CSV_OPTIONS}, {errors}, delim = '{header.separator}'"
        if header.newline is not None:
            options += f", new_line = '{header.newline}'"
        return f"read_csv({quote(str(self._path))}, {options}, columns = {{{kinds}}})"

    def __repr__(self) -> str:
        return f"CsvFile({Columns(self._header.names).summary})"


class CsvBatches:
    """A CSV file as DuckDB reads it, handed over as Arrow text."""

    __slots__ = ("_connections", "_lines", "_names", "_path")

    def __init__(
        self, connections: ExitStack, path: Path, names: tuple[str, ...], lines: str
    ) -> None:
        self._connections = connections
        self._path = path
        self._names = names
        self._lines = lines

    @property
    def kinds(self) -> Sequence[pa.DataType]:
        return [pa.large_string()] * len(self._names)

    def read(self, names: Sequence[str]) -> pa.RecordBatchReader:
        columns = ", ".join(f"c{self._names.index(name)}" for name in names)
        # One for each reader, because a connection gives one result at a time.
        connection = self._connections.enter_context(connect([self._path]))
        lines = connection.sql(f"SELECT {columns} FROM {self._lines}")
        schema = pa.schema([(name, pa.large_string()) for name in names])
        batches = (
            pa.RecordBatch.from_arrays(batch.columns, schema=schema)
            for batch in lines.to_arrow_reader(BATCH_ROWS)
        )
        return pa.RecordBatchReader.from_batches(schema, batches)


@dataclass(frozen=True)
class CsvHeader:
    """The first line of a CSV file: the names, and how this and other lines are split."""

    names: tuple[str, ...]
    separator: str
    newline: str | None
    """How lines end, if with LF: then a stray CR ends none and takes no row along."""


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
        return Columns(csv_header(path).names)
    try:
        # Without its notes, which may tell the number of rows.
        schema = pq.read_schema(path).remove_metadata()
    except (OSError, pa.ArrowException):
        raise _without_columns(path, "is it a Parquet file?") from None
    return Columns(tuple(schema.names), schema)


def csv_header(path: Path) -> CsvHeader:
    """The first line of a CSV file; names are taken without the blanks around them."""
    try:
        with path.open("rb") as file:
            line = file.readline(HEADER_BYTES)
        header = _text(_first_line(line), path)
        separator = _separator(header, TEXT[path.suffix.lower()])
        # Strictly: an open quote is refused, for read on, rows would be taken for names.
        fields = csv.reader([header], delimiter=separator, strict=True)
        names = tuple(map(str.strip, next(fields, ())))
    except (OSError, csv.Error):
        why = "its first line cannot be read as column names: is a quote not closed there?"
        raise _without_columns(path, why) from None
    if not any(names):
        raise _without_columns(path, "it needs a header, a first line of column names")
    plain = line.endswith(b"\n") and b"\r" not in line.rstrip(b"\r\n")
    return CsvHeader(names, separator, "\\n" if plain else None)


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() in PARQUET


def file_state(path: Path) -> tuple[int, ...]:
    """What changes when the file does."""
    state = path.stat()
    return state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino


def _without_columns(path: Path, why: str) -> SourceError:
    return SourceError(f"{path.name!r} has no columns that can be read; {why}")


def _first_line(line: bytes) -> bytes:
    """The header, however lines end."""
    return line.rstrip(b"\r\n").partition(b"\r")[0]


def _text(line: bytes, path: Path) -> str:
    """A line of the header; bytes that are no text are refused without a look at what follows."""
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SourceError(
            f"the first line of {path.name!r} is not in UTF-8; save the file as UTF-8 (in a "
            'spreadsheet: "CSV UTF-8")'
        ) from None
    if re.search(r"[\x00-\x08\x0e-\x1f]", text):
        raise SourceError(
            f"{path.name!r} is not a CSV or Parquet file: its first line is no text; export the "
            "table as CSV, in UTF-8"
        )
    return text


def _separator(line: str, promised: str) -> str:
    bare = re.sub(r'"(?:[^"]|"")*"', "", line)
    return max((promised, *SEPARATORS), key=bare.count)
