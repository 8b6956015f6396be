"""Many Parquet files as one table: folders, globs, and folders named key=value (hive partitions).

All files have one schema. A folder called sex=F adds a column sex to the files below it, whose
entries are text: its type must not depend on what folders are called, since that is data. So is
the name of such a folder, and no message holds it. Files and folders whose names begin with . or _
are left alone, as all programs that write such folders mean it.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import pyarrow as pa
from pyarrow.fs import LocalFileSystem

from psephos.engines.duckdb.arrow import BATCH_ROWS, COLUMNS_CHANGED
from psephos.engines.duckdb.cells import quote
from psephos.engines.files import PARQUET, TEXT, file_state
from psephos.engines.parquet import ParquetBatches, native_rows, parquet_columns, relation_of
from psephos.engines.protocol import Batches, Columns
from psephos.errors import DomainError, SourceError

GLOB_MARKS = "*?["
NULL_PARTITION = b"__HIVE_DEFAULT_PARTITION__"
PARTITION_KIND = pa.large_string()


def open_folder(data: Any) -> ParquetFolder | None:
    """The engine of a folder or a glob of Parquet files; None for anything else."""
    if not isinstance(data, str | Path):
        return None
    path = Path(data).absolute()
    pattern = is_glob(path) and path.suffix.lower() not in TEXT and not path.is_file()
    many = path.is_dir() or pattern
    return ParquetFolder(path) if many else None


def open_dataset(data: Any) -> ArrowDataset | None:
    """The engine of a dataset of pyarrow; None for anything else."""
    module = type(data).__module__
    is_dataset = module.startswith("pyarrow._dataset") and hasattr(type(data), "scanner")
    return ArrowDataset(data) if is_dataset else None


def is_glob(path: Path) -> bool:
    """Whether a path stands for many files."""
    return any(mark in str(path) for mark in GLOB_MARKS)


def source_files(path: Path) -> list[Path]:
    """The files that a path, a folder or a glob stands for, in order; none if there are none."""
    if path.is_file():
        return [path]
    if path.is_dir():
        return sorted(_visible(path, path.rglob("*")))
    root = _root(path)
    matches = glob.glob(str(path.relative_to(root)), root_dir=root, recursive=True)
    return sorted(_visible(root, (root / match for match in matches)))


class ParquetFolder:
    """Parquet files of one schema; DuckDB reads them by itself where it can."""

    __slots__ = ("_columns", "_path", "_place", "_version")

    def __init__(self, path: Path) -> None:
        self._path = path
        self._place = repr(f"{path.name}/" if path.is_dir() else str(path.relative_to(_root(path))))
        self._version: object = None
        self._columns = self.columns()

    def columns(self) -> Columns:
        version = self.version()
        if version != self._version:  # reading thousands of schemas takes a second
            self._columns = self._schema()
            self._version = version
        return self._columns

    def version(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        return tuple((str(file), file_state(file)) for file in self.files)

    @contextmanager
    def snapshot(self) -> Iterator[Batches]:
        columns = self.columns()
        files = [(file, self._entries(file)) for file in self.files]
        yield FolderBatches(files, columns, self._keys(files[0][0]) if files else ())

    @property
    def files(self) -> Sequence[Path]:
        files = source_files(self._path)
        others = [file for file in files if file.suffix.lower() not in PARQUET]
        if others and is_glob(self._path):
            raise DomainError(
                f"{self._place} stands for files that are not Parquet; many files are read as one "
                'table if all of them are, as in "folder/*/*.parquet"; make one CSV file of many'
            )
        return [file for file in files if file.suffix.lower() in PARQUET]

    def relation(self, connection: Any, places: Sequence[int]) -> str | None:
        files = self.files
        keys = self._keys(files[0])
        schema: Any = self.columns().types
        width = len(schema) - len(keys)
        stored = pa.schema([schema.field(i) for i in range(width)])
        rows = native_rows(connection, files, stored, [i for i in places if i < width])
        if rows is None:
            return None
        table, entries = rows
        partitions = [self._entries(file) for file in files]
        for i in places:
            if i >= width:
                texts = ", ".join(_sql_text(entry[i - width]) for entry in partitions)
                entries.append(f"([{texts}]::VARCHAR[])[CAST(file_index AS BIGINT) + 1] AS c{i}")
        return relation_of(table, entries)

    def _schema(self) -> Columns:
        files = self.files
        if not files:
            raise SourceError(
                f"{self._place} stands for no Parquet file in {self._root}; correct the path (in a "
                'release file, `source`), as in "folder/" or "folder/*/*.parquet"'
            )
        keys = self._keys(files[0])
        if any(self._keys(file) != keys for file in files):
            raise SourceError(
                f"the files of {self._place} lie in folders of different keys (key=value); let all "
                "files lie below the same keys, in the same order"
            )
        first: Any = self._file_columns(files[0])
        for file in files[1:]:
            _check_same(self._place, first, self._file_columns(file))
        partitions = [pa.field(key, PARTITION_KIND) for key in keys]
        schema = pa.schema([*first.types, *partitions])
        return Columns(tuple(schema.names), schema)

    def _file_columns(self, file: Path) -> Columns:
        try:
            return parquet_columns(file)
        except SourceError:  # it names the file alone, which may be one of thousands
            inside = "" if self._keys(file) else f" ({file.relative_to(self._root)})"
        raise SourceError(
            f"a file of {self._place} has no columns that can be read{inside}; is it a Parquet "
            "file, and written to its end?"
        )

    @property
    def _root(self) -> Path:
        return self._path if self._path.is_dir() else _root(self._path)

    def _parts(self, file: Path) -> list[tuple[str, bytes]]:
        """The keys and values of the folders that a file lies in."""
        folders = file.relative_to(self._root).parts[:-1]
        pairs = [folder.partition("=") for folder in folders if "=" in folder]
        return [
            (unquote_to_bytes(os.fsencode(key)).decode(errors="replace"), os.fsencode(value))
            for key, _, value in pairs
        ]

    def _keys(self, file: Path) -> tuple[str, ...]:
        return tuple(key for key, _ in self._parts(file))

    def _entries(self, file: Path) -> tuple[bytes | None, ...]:
        values = [value for _, value in self._parts(file)]
        return tuple(None if v == NULL_PARTITION else unquote_to_bytes(v) for v in values)

    def __repr__(self) -> str:
        return f"ParquetFolder({self._columns.summary})"


class FolderBatches:
    """The files one after the other, each with the entries of its folders as columns."""

    __slots__ = ("_columns", "_files", "_keys")

    def __init__(
        self,
        files: Sequence[tuple[Path, tuple[bytes | None, ...]]],
        columns: Columns,
        keys: Sequence[str],
    ) -> None:
        self._files = files
        self._columns = columns
        self._keys = tuple(keys)

    @property
    def kinds(self) -> Sequence[pa.DataType]:
        stored = ParquetBatches(self._files[0][0]).kinds  # as they are read, not as they are told
        return [*stored, *(PARTITION_KIND for _ in self._keys)]

    def read(self, names: Sequence[str]) -> pa.RecordBatchReader:
        inside = [name for name in names if name not in self._keys]
        kinds = dict(zip(self._columns.names, self.kinds, strict=True))
        schema = pa.schema([(name, kinds[name]) for name in names])

        def batches() -> Iterator[pa.RecordBatch]:
            for path, values in self._files:
                entries = dict(zip(self._keys, values, strict=True))
                for batch in ParquetBatches(path).read(inside):
                    stored = dict(zip(inside, batch.columns, strict=True))
                    if any(stored[name].type != kinds[name] for name in inside):
                        raise SourceError(COLUMNS_CHANGED)
                    if not names:
                        yield batch
                        continue
                    arrays = [
                        stored[n] if n in stored else _repeated(entries[n], batch.num_rows)
                        for n in names
                    ]
                    yield pa.RecordBatch.from_arrays(arrays, schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())


class ArrowDataset:
    """A dataset of pyarrow: its schema is the owner's, partitions included."""

    __slots__ = ("_dataset",)

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def columns(self) -> Columns:
        schema = self._dataset.schema.remove_metadata()
        return Columns(tuple(schema.names), schema)

    def version(self) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
        """The states of its files, if it has files of this machine; else nothing tells."""
        files = getattr(self._dataset, "files", None)
        if files is None or not isinstance(self._dataset.filesystem, LocalFileSystem):
            return None
        return tuple((str(file), file_state(Path(file))) for file in files)

    def snapshot(self) -> AbstractContextManager[ArrowDataset]:
        return nullcontext(self)

    @property
    def kinds(self) -> Sequence[pa.DataType]:
        return list(self._dataset.schema.types)

    def read(self, names: Sequence[str]) -> pa.RecordBatchReader:
        return self._dataset.scanner(columns=list(names), batch_size=BATCH_ROWS).to_reader()

    def __repr__(self) -> str:
        return f"ArrowDataset({self.columns().summary})"


def _visible(root: Path, paths: Iterator[Path]) -> Iterator[Path]:
    for path in paths:
        names = path.relative_to(root).parts
        if not any(name.startswith((".", "_")) for name in names) and path.is_file():
            yield path


def _root(path: Path) -> Path:
    """The folder of a glob that its first mark stands below."""
    parts = path.parts
    first = next((i for i, part in enumerate(parts) if is_glob(Path(part))), len(parts) - 1)
    return Path(*parts[:first])


def _check_same(place: str, first: Any, other: Any) -> None:
    """Refuse files of different columns; names and types are the schema's, so they may be told."""
    kinds = [dict(zip(c.names, c.types.types, strict=True)) for c in (first, other)]
    if first.names == other.names and first.types.types == other.types.types:
        return
    for name in dict.fromkeys((*first.names, *other.names)):
        one, two = (each.get(name) for each in kinds)
        if one != two:
            words = [f"of type {kind}" if kind is not None else "missing" for kind in (one, two)]
            what = f"column {name!r} is {words[0]} in one and {words[1]} in another"
            break
    else:
        what = "their columns have different orders"
    raise SourceError(f"the files of {place} have no schema in common: {what}; write them alike")


def _repeated(entry: bytes | None, rows: int) -> pa.Array:
    column = pa.repeat(pa.scalar(entry, pa.large_binary()), rows)
    return column.view(PARTITION_KIND)


def _sql_text(entry: bytes | None) -> str:
    # What is not UTF-8 raises here, and is then read through Arrow.
    return "NULL" if entry is None else quote(entry.decode())
