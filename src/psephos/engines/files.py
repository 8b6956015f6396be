"""CSV and TSV files on this machine, which DuckDB reads fastest by itself.

Columns come from the header line, never from a row. A CSV has a header and double quotes, and is
read as text; a line of it is a row, or none, by itself (`csv_lines`). Files whose every line is a
row that all readers take for the same are read by DuckDB, others line by line. The owner's check
says which lines are broken (`psephos.owner.broken_lines`).

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

from psephos.engines.csv_lines import TEXT_KIND, CsvHeader, csv_header
from psephos.engines.duckdb.arrow import COLUMNS_CHANGED
from psephos.engines.duckdb.cells import quote
from psephos.engines.multiline_csv import CsvBatches
from psephos.engines.protocol import Batches, Columns
from psephos.errors import DomainError, SourceError

PARQUET = (".parquet", ".pq")
TEXT = {".csv": ",", ".tsv": "\t"}
CSV_OPTIONS = (
    "auto_detect = false, header = true, quote = '\"', escape = '\"', "
    "allow_quoted_nulls = false, hive_partitioning = false, max_line_size = 2100000"
)


def open_csv(data: Any) -> CsvFile | None:
    """The engine of the CSV or TSV file at a path; None for what is no path."""
    return CsvFile(data) if isinstance(data, str | Path) else None


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

    __slots__ = ("_regular", "header", "is_multiline", "path")

    def __init__(self, path: str | Path, *, multiline: bool = False) -> None:
        self.path = checked_file(Path(path).absolute())
        if self.path.suffix.lower() not in TEXT:
            raise DomainError(f"{self.path.name!r} is no CSV file; give its path as it is")
        self.header = _csv_header(self.path)
        self._regular: tuple[tuple[int, ...], bool] | None = None
        self.is_multiline = multiline

    @property
    def place(self) -> tuple[str, ...]:
        """What distinguishes this table from others: the file, and how it is read."""
        return (str(self.path.resolve()), *(["multiline"] if self.is_multiline else []))

    def columns(self) -> Columns:
        return Columns(_csv_header(self.path).names)

    def version(self) -> tuple[int, ...]:
        return file_state(self.path)

    @contextmanager
    def snapshot(self) -> Iterator[Batches]:
        if _csv_header(self.path) != self.header:
            raise SourceError(COLUMNS_CHANGED)
        if not self.is_multiline:
            yield LineBatches(self.path, self.header)
            return
        with ExitStack() as connections:
            yield CsvBatches(connections, self.path, self.header.names, self.rows())

    @property
    def files(self) -> Sequence[Path]:
        return (self.path,)

    def relation(self, connection: Any, places: Sequence[int]) -> str | None:
        return self.rows() if self.is_multiline or self._is_regular() else None

    def _is_regular(self) -> bool:
        """Whether DuckDB reads the file as it is now by the rules of `csv_lines`."""
        version = self.version()
        if self._regular is None or self._regular[0] != version:
            blocks = self.header.blocks(self.path)
            self._regular = version, all(map(self.header.is_regular, blocks))
        return self._regular[1]

    def rows(self, errors: str = "strict_mode = false, ignore_errors = true") -> str:
        """The file behind FROM as DuckDB reads it, columns c0 and on."""
        header = self.header
        kinds = ", ".join(f"c{i}: 'VARCHAR'" for i in range(len(header.names)))
        options = f"{CSV_OPTIONS}, {errors}, delim = '{header.separator}'"
        if header.newline == b"\n":
            options += ", new_line = '\\n'"  # then a stray CR ends no line
        return f"read_csv({quote(str(self.path))}, {options}, columns = {{{kinds}}})"

    def __repr__(self) -> str:
        return f"CsvFile({Columns(self.header.names).summary})"


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


def _csv_header(path: Path) -> CsvHeader:
    return csv_header(path, TEXT[path.suffix.lower()])


def file_state(path: Path) -> tuple[int, ...]:
    """What changes when the file does."""
    state = path.stat()
    return state.st_mtime_ns, state.st_ctime_ns, state.st_size, state.st_ino
