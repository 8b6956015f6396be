"""Tables of databases: DuckDB files, and connections that hand over Arrow batches or rows.

The remote side runs `SELECT needed columns` and nothing else. No cast is asked of it that could
fail on an entry, since it would quote the entry.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa

from psephos.engines.duckdb.arrow import BATCH_ROWS
from psephos.engines.duckdb.cells import quote
from psephos.engines.duckdb.rows import connect
from psephos.engines.files import file_state
from psephos.engines.frames import encoded
from psephos.engines.protocol import Batches, Columns
from psephos.errors import DomainError, SourceError

AS_TEXT = ("HUGEINT", "UHUGEINT", "BIGNUM", "VARINT", "BIT", "TIME WITH TIME ZONE")
"""Types that Arrow has no room for, or no zone; their text holds every entry."""


def identifier(name: str, mark: str = '"') -> str:
    """A name as SQL has it.

    >>> print(identifier("the rows"))
    "the rows"
    """
    return f"{mark}{name.replace(mark, mark * 2)}{mark}"


class DuckdbTable:
    """A table or view of a DuckDB file, opened read-only each time it is read.

    Args:
        path: the file
        table: the name of the table or view
        schema: where the table is, if not in the schema main
    """

    __slots__ = ("_path", "_schema", "_table")

    def __init__(self, path: str | os.PathLike[str], table: str, *, schema: str = "main") -> None:
        self._path = Path(path).absolute()
        self._table = table
        self._schema = schema

    @property
    def place(self) -> tuple[str, str, str]:
        """What tells this table from others: the file, the schema, the table."""
        return str(self._path.resolve()), self._schema, self._table

    def columns(self) -> Columns:
        with self._opened() as connection:
            schema = self._batches(connection).schema
        return Columns(tuple(schema.names), schema)

    def version(self) -> tuple[tuple[int, ...], ...]:
        files = (self._path, self._log)
        return tuple(file_state(file) for file in files if file.exists())

    @contextmanager
    def snapshot(self) -> Iterator[Batches]:
        with self._opened() as connection:  # while it is open, nobody else may write
            yield self._batches(connection)

    @property
    def _log(self) -> Path:
        return self._path.with_name(f"{self._path.name}.wal")

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        name = self._path.name
        if not self._path.is_file():
            raise SourceError(
                f"there is no DuckDB file {name!r} in {self._path.parent}; correct the path (in a "
                "release file, `source`)"
            )
        with connect([self._path, self._log]) as connection:
            if not _attached(connection, self._path):
                raise SourceError(
                    f"{name!r} cannot be opened read-only: it is none, or of a newer DuckDB, "
                    "open for writing elsewhere, or you may not read it; close other programs that "
                    "use it, or export the table as Parquet"
                )
            yield connection

    def _batches(self, connection: Any) -> DuckdbBatches:
        tables = _relations(connection, self._schema)
        if self._table not in tables:
            close = get_close_matches(self._table, tables, n=3)
            hint = f"; close to it: {', '.join(map(repr, close))}" if close else ""
            raise SourceError(
                f"{self._path.name!r} has no table or view {self._table!r} in the schema "
                f"{self._schema!r}{hint}; correct the table (in a release file, `source`)"
            )
        table = f"source.{identifier(self._schema)}.{identifier(self._table)}"
        batches: DuckdbBatches | None = _unless_it_fails(lambda: DuckdbBatches(connection, table))
        if batches is None:
            raise SourceError(
                f"{self._table!r} of {self._path.name!r} cannot be read: a view may only speak of "
                "tables of the same file; make a table of it"
            )
        return batches

    def __repr__(self) -> str:
        return "DuckdbTable()"


class DuckdbBatches:
    """A table of an attached file as Arrow batches."""

    __slots__ = ("_connection", "_entries", "_table", "schema")

    def __init__(self, connection: Any, table: str) -> None:
        self._connection = connection
        self._table = table
        described = connection.execute(f"DESCRIBE SELECT * FROM {table}").fetchall()
        self._entries = {name: _entry(identifier(name), kind) for name, kind, *_ in described}
        names = [row[0] for row in described]
        self.schema = _bare(names, self._query(names, " LIMIT 0").schema)

    @property
    def kinds(self) -> Sequence[pa.DataType]:
        return list(self.schema.types)

    def read(self, names: Sequence[str]) -> pa.RecordBatchReader:
        return _renamed(self._query(names), names)

    def _query(self, names: Sequence[str], rest: str = "") -> pa.RecordBatchReader:
        entries = ", ".join(self._entries[name] for name in names) or "TRUE"
        query = f"SELECT {entries} FROM {self._table}{rest}"
        # One cursor for each reader, because a connection gives one result at a time.
        return self._connection.cursor().sql(query).to_arrow_reader(BATCH_ROWS)


class ConnectedTable:
    """A table behind an open connection: of ADBC, DuckDB, Databricks, or of any DB-API driver.

    What comes as Arrow batches is read by its types; rows of other drivers are Python's objects,
    which are read as their texts, some hundred thousand rows at a time.

    The rows are those that the connection sees. Let it be in a read-only transaction that sees one
    state of the table (REPEATABLE READ, or what the database calls it) until the release is done;
    it is neither committed nor closed here.

    Args:
        connection: an open connection whose cursors have `fetch_record_batch` (ADBC),
            `fetchmany_arrow` (Databricks) or `fetchmany` (DB-API), or a connection of duckdb; other
            threads must be able to use it
        table: the name of the table or view, or its parts: ("schema", "table")
        mark: what stands around names in this database's SQL, such as ` in MySQL
    """

    __slots__ = ("_connection", "_mark", "_table")

    def __init__(self, connection: Any, table: str | Sequence[str], *, mark: str = '"') -> None:
        parts = (table,) if isinstance(table, str) else tuple(table)
        if not parts or not all(isinstance(part, str) and part for part in parts):
            raise DomainError('the table is written "people" or ("schema", "people")')
        if not callable(getattr(connection, "cursor", None)):
            raise DomainError(
                f"a {type(connection).__name__} is no connection: it has no method cursor()"
            )
        self._connection = connection
        self._mark = mark
        self._table = ".".join(identifier(part, mark) for part in parts)

    def columns(self) -> Columns:
        here = _unless_it_fails(lambda: _opens(self._connection))
        if here and not _unless_it_fails(lambda: _opens_elsewhere(self._connection)):
            raise SourceError(
                "this connection can be used by the thread that opened it alone, and rows are read "
                "by others; open it for all (sqlite3.connect(..., check_same_thread=False))"
            )
        schema = _unless_it_fails(self._schema)
        if schema is None:  # outside the handler, and without the database's words
            raise SourceError(
                f"the table {self._table} cannot be read over this connection: it is not there, "
                "you may not read it, or the connection is closed; try SELECT * FROM it yourself, "
                "and see what your database puts around names (ConnectedTable(..., mark='`'))"
            )
        return Columns(tuple(schema.names), schema)

    def version(self) -> None:
        """Nothing tells when the rows have changed."""

    @contextmanager
    def snapshot(self) -> Iterator[Batches]:
        schema = self._schema()
        with ExitStack() as cursors:
            yield ConnectedBatches(self._select, schema, cursors)

    def _schema(self) -> pa.Schema:
        with ExitStack() as cursors:
            schema = self._select("*", " WHERE 1 = 0", cursors).schema
            return _bare(schema.names, schema)

    def _select(self, names: Sequence[str], rest: str, cursors: ExitStack) -> pa.RecordBatchReader:
        listed = ", ".join(identifier(name, self._mark) for name in names if names != "*")
        columns = listed or ("*" if names == "*" else "1")
        query = f"SELECT {columns} FROM {self._table}{rest}"
        return _arrow_reader(self._connection, query, cursors)

    def __repr__(self) -> str:
        return "ConnectedTable()"


class ConnectedBatches:
    """What a connection gives for a table, asked anew each time."""

    __slots__ = ("_cursors", "_schema", "_select")

    def __init__(self, select: Any, schema: pa.Schema, cursors: ExitStack) -> None:
        self._select = select
        self._schema = schema
        self._cursors = cursors

    @property
    def kinds(self) -> Sequence[pa.DataType]:
        return list(self._schema.types)

    def read(self, names: Sequence[str]) -> pa.RecordBatchReader:
        self._cursors.close()  # drivers such as that of Postgres give one result at a time
        return _renamed(self._select(names, "", self._cursors), names)


def _arrow_reader(connection: Any, query: str, cursors: ExitStack) -> pa.RecordBatchReader:
    """The rows of a query, in the way that this connection has."""
    cursor = connection.cursor()
    if type(cursor).__module__.split(".")[0] in ("duckdb", "_duckdb"):
        return cursor.sql(query).to_arrow_reader(BATCH_ROWS)
    cursors.callback(_close, cursor)
    cursor.execute(query)
    if hasattr(cursor, "fetch_record_batch"):
        return cursor.fetch_record_batch()
    if not hasattr(cursor, "fetchmany_arrow"):
        return _texts_of_rows(cursor)
    first = cursor.fetchmany_arrow(BATCH_ROWS)

    def batches() -> Iterator[pa.RecordBatch]:
        table = first
        while len(table):
            yield from table.to_batches()
            table = cursor.fetchmany_arrow(BATCH_ROWS)

    return pa.RecordBatchReader.from_batches(first.schema, batches())


def _texts_of_rows(cursor: Any) -> pa.RecordBatchReader:
    """Rows of a DB-API cursor, every entry as its text: drivers need not tell types."""
    schema = pa.schema([(column[0], pa.large_string()) for column in cursor.description])

    def batches() -> Iterator[pa.RecordBatch]:
        while rows := cursor.fetchmany(BATCH_ROWS):
            columns = [
                [_entry_text(entry) for entry in column] for column in zip(*rows, strict=True)
            ]
            arrays = [pa.array(column, pa.large_binary()) for column in columns]
            texts = [array.view(pa.large_string()) for array in arrays]
            yield pa.RecordBatch.from_arrays(texts, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _entry_text(entry: Any) -> bytes | None:
    """The text of an entry; moments are told in UTC, and NaN is no missing entry."""
    if isinstance(entry, datetime) and entry.tzinfo is not None:
        entry = entry.astimezone(UTC)
    if isinstance(entry, float) and math.isnan(entry):
        return b"nan"
    return str(entry).encode() if type(entry) is float else encoded(entry)


def _opens(connection: Any) -> bool:
    """Does it give a cursor?"""
    cursor = connection.cursor()
    if type(cursor).__module__.split(".")[0] not in ("duckdb", "_duckdb"):
        _close(cursor)
    return True


def _opens_elsewhere(connection: Any) -> bool:
    """Does it give another thread a cursor?"""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_opens, connection).result()


def _close(cursor: Any) -> None:
    with suppress(Exception):  # it may be lost already, or have nothing to close
        cursor.close()


def _renamed(reader: pa.RecordBatchReader, names: Sequence[str]) -> pa.RecordBatchReader:
    """The same rows under the names that were asked for, without notes on columns."""
    schema = _bare(names, reader.schema)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            if names:
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
            else:
                yield batch.select([])

    return pa.RecordBatchReader.from_batches(schema, batches())


def _bare(names: Sequence[str], schema: pa.Schema) -> pa.Schema:
    return pa.schema(list(zip(names, schema.types, strict=False)))


def _entry(column: str, kind: str) -> str:
    return f"CAST({column} AS VARCHAR) AS {column}" if kind in AS_TEXT else column


def _attached(connection: Any, path: Path) -> bool:
    return _unless_it_fails(
        lambda: connection.execute(f"ATTACH {quote(str(path))} AS source (TYPE duckdb, READ_ONLY)")
    ) is not None  # fmt: skip


def _relations(connection: Any, schema: str) -> list[str]:
    """The names of the tables and views of a schema."""
    rows = connection.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = 'source' UNION "
        "SELECT schema_name, view_name FROM duckdb_views() WHERE database_name = 'source'"
    ).fetchall()
    return sorted(name for place, name in rows if place == schema)


def _unless_it_fails(work: Any) -> Any:
    """What the work gives; None where it fails, in words that may hold an entry."""
    try:
        return work()
    except Exception:  # noqa: BLE001 - see above
        return None
