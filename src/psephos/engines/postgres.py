"""Tables of Postgres over ADBC: the needed columns in one repeatable snapshot, nothing else.

    postgresql://user@host:5432/database/table        or …/database/schema/table

The password comes from the environment (PGPASSWORD), a password file (PGPASSFILE) or a service
file (PGSERVICEFILE); one in the URL is refused. A snapshot is a read-only transaction at the level
REPEATABLE READ, which exports what it sees: each reading joins it over a connection of its own.

Where no person's rows are capped, rows that are alike need not all be fetched: Postgres groups
them by their entries, byte by byte, if its planner expects a quarter as many groups at most.

Types that Arrow may have no room for (numbers of any length, times that are infinite) or that come
padded (char) are asked for as text, a cast that no entry makes fail.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import pyarrow as pa

from psephos.engines.databases import identifier
from psephos.engines.protocol import Batches, Columns
from psephos.errors import DomainError, SourceError

SCHEMES = ("postgresql", "postgres")
URL_FORM = "postgresql://user@host:5432/database/table (or …/database/schema/table)"
URL_OPTIONS = (
    *("host", "port", "user", "service", "passfile", "connect_timeout", "application_name"),
    *("sslmode", "sslcert", "sslkey", "sslrootcert", "sslcrl", "channel_binding", "gssencmode"),
    *("krbsrvname", "requirepeer", "target_session_attrs"),
)
"""What may stand behind the ? of a URL: nothing that is secret or changes how rows are read."""
NO_SECRETS = (
    "the source's URL holds a password; take it out, and give it in the environment (PGPASSWORD) "
    "or in a password file (PGPASSFILE, ~/.pgpass)"
)
NATIVE_TYPES = {
    16: ("bool", pa.bool_()),
    17: ("bytea", pa.binary()),
    20: ("int8", pa.int64()),
    21: ("int2", pa.int16()),
    23: ("int4", pa.int32()),
    25: ("text", pa.string()),
    700: ("float4", pa.float32()),
    701: ("float8", pa.float64()),
}
TOLD_APART = frozenset({"bool", "bytea", "int2", "int4", "int8", "text"})
"""Types whose equal entries are the same; -0.0 and 0.0 are equal and have two texts."""
WORTH_GROUPING = 4
"""Rows are grouped if so many of them are expected to be alike, on average."""
READ_AS_TEXT = frozenset({26, 114, 1700, 2950, 3802})  # oid, json, numeric, uuid, jsonb
TEXT_CATEGORIES = "SEDI"  # text, enumerations, dates and times, addresses
LAYOUT = """
SELECT CAST(a.attname AS text),
       CAST(CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END AS int8),
       CAST(t.typcategory AS text), CAST(t.typname AS text)
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = CAST(pg_catalog.to_regclass($1) AS oid) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
SESSION = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY",
    "SET LOCAL TIME ZONE 'UTC'",
    "SET LOCAL datestyle TO 'ISO, YMD'",
    "SET LOCAL bytea_output TO 'hex'",
    # A snapshot locks the table against ALTER; a reading must not queue behind one that waits.
    "SET LOCAL lock_timeout TO '30s'",
)


def open_postgres(data: Any) -> PostgresTable | None:
    """The engine of a URL of Postgres; None for anything else."""
    if not isinstance(data, str) or not is_database_url(data):
        return None
    return PostgresTable(PostgresUrl.of(data))


def is_database_url(text: str) -> bool:
    """Whether a source is a URL and not a path."""
    return "://" in text


@dataclass(frozen=True)
class PostgresUrl:
    """Where a table is; nothing in it is secret.

    >>> PostgresUrl.of("postgresql://db.example/census/people")
    PostgresUrl(server='postgresql://db.example/census', table=('people',))
    """

    server: str
    table: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> PostgresUrl:
        """The parts of a URL; messages never repeat it, because it may hold a password."""
        scheme = text.partition("://")[0].lower()
        if scheme not in SCHEMES:
            known = scheme if scheme.isalnum() and len(scheme) < 20 else "this"
            raise DomainError(
                f"a source at a {known}:// address cannot be read; write a path, or {URL_FORM}"
            )
        try:
            parts = urlsplit(text)
            options = (
                dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=True))
                if (parts.query)
                else {}
            )
            secret, port = parts.password, parts.port
        except ValueError:
            options, secret, port = {}, None, -1
        if secret is not None or {"password", "sslpassword"} & options.keys():
            raise DomainError(NO_SECRETS)
        if port == -1 or parts.fragment or "@" in (parts.hostname or ""):
            raise DomainError(
                f"the source's URL cannot be taken apart; write {URL_FORM}, with % codes for "
                "characters such as @ : / ? # in names"
            )
        strange = [name for name in options if name not in URL_OPTIONS]
        if strange:
            raise DomainError(
                f"the source's URL has the option {strange[0]!r}; take it out (have "
                f"{', '.join(URL_OPTIONS)})"
            )
        database, *table = [unquote(part) for part in parts.path.split("/")[1:]] or [""]
        if not database or len(table) not in (1, 2) or not all(table):
            raise DomainError(
                f"the source's URL names no database, or no table in it; write {URL_FORM}"
            )
        rest = f"?{urlencode(options, quote_via=quote)}" if options else ""
        server = f"postgresql://{parts.netloc}/{quote(database, safe='')}{rest}"
        return cls(server, tuple(table))

    @property
    def relation(self) -> str:
        return ".".join(identifier(part) for part in self.table)


class PostgresTable:
    """A table or view of Postgres."""

    __slots__ = ("_url",)

    def __init__(self, url: PostgresUrl) -> None:
        self._url = url

    def columns(self) -> Columns:
        with closing(self._connected()) as connection:
            layout = self._layout(connection)
            _run(connection, f"SELECT 1 FROM {self._url.relation} LIMIT 0", self._url)
        schema = pa.schema([(name, kind) for name, (_, kind) in layout])
        return Columns(tuple(schema.names), schema)

    def version(self) -> None:
        """Nothing tells when the rows have changed."""

    @contextmanager
    def snapshot(self) -> Iterator[Batches]:
        with closing(self._connected()) as connection:
            # It locks the table against TRUNCATE and ALTER, which no snapshot keeps out.
            _run(connection, f"SELECT 1 FROM {self._url.relation} LIMIT 0", self._url)
            layout = self._layout(connection)
            ((name,),) = _run(connection, "SELECT pg_catalog.pg_export_snapshot()", self._url)
            batches = PostgresBatches(self, layout, name)
            try:
                yield batches
            finally:
                batches.close()

    def _connected(self, snapshot: str | None = None) -> Any:
        """A connection in a read-only transaction: a new one, or one that sees a snapshot."""
        connection = _connection(self._url)
        try:
            first, *others = SESSION
            join = [] if snapshot is None else [f"SET TRANSACTION SNAPSHOT '{snapshot}'"]
            for statement in (first, *join, *others):
                _run(connection, statement, self._url, rows=False)
        except BaseException:
            connection.close()
            raise
        return connection

    def _layout(self, connection: Any) -> list[tuple[str, tuple[str, pa.DataType]]]:
        rows = _run(connection, LAYOUT, self._url, (self._url.relation,))
        if not rows:
            raise SourceError(
                f"there is no table or view {self._url.relation} in this Postgres database, or it "
                f"has no columns; correct the URL: {URL_FORM}"
            )
        return [(name, _entry_type(*facts)) for name, *facts in rows]

    def __repr__(self) -> str:
        return "PostgresTable()"


class PostgresBatches:
    """The rows that one snapshot sees; each reading has a connection of its own."""

    __slots__ = ("_layout", "_open", "_snapshot", "_table")

    def __init__(
        self,
        table: PostgresTable,
        layout: Sequence[tuple[str, tuple[str, pa.DataType]]],
        snapshot: str,
    ) -> None:
        self._table = table
        self._layout = layout
        self._snapshot = snapshot
        self._open: list[tuple[Any, ...]] = []

    @property
    def kinds(self) -> Sequence[pa.DataType]:
        return [kind for _, (_, kind) in self._layout]

    def read(self, names: Sequence[str]) -> pa.RecordBatchReader:
        entries = [f"{self._entry(name)} AS {identifier(name)}" for name in names]
        query = f"SELECT {', '.join(entries) or 'TRUE'} FROM {self._table._url.relation}"
        return self._fetched(query, self._schema(names))

    def alike(self, names: Sequence[str]) -> Callable[[], pa.RecordBatchReader] | None:
        """See `psephos.engines.protocol.AlikeRows`."""
        types = dict(self._layout)
        if not names or not all(types[name][0] in TOLD_APART for name in names):
            return None
        # Under another collation texts may be equal that are not the same.
        collated = {"text": ' COLLATE "C"'}
        entries = [f"{self._entry(name)}{collated.get(types[name][0], '')}" for name in names]
        rows = f"FROM {self._table._url.relation}"
        query = (
            f"SELECT {', '.join(entries)}, pg_catalog.count(*) {rows} "
            f"GROUP BY {', '.join(str(i + 1) for i in range(len(names)))}"
        )
        groups, single = self._expected_rows(query, f"SELECT 1 {rows}")
        if groups * WORTH_GROUPING > single:
            return None
        schema = self._schema(names).append(pa.field("times", pa.int64()))
        return partial(self._fetched, query, schema)

    def _entry(self, name: str) -> str:
        return f"CAST({identifier(name)} AS {dict(self._layout)[name][0]})"

    def _schema(self, names: Sequence[str]) -> pa.Schema:
        types = dict(self._layout)
        return pa.schema([(name, types[name][1]) for name in names])

    def _expected_rows(self, *queries: str) -> list[float]:
        """How many rows Postgres expects of each query, by its statistics."""
        with closing(self._table._connected(self._snapshot)) as connection:
            plans = [
                _run(connection, f"EXPLAIN (FORMAT JSON) {query}", self._table._url, copy=False)
                for query in queries
            ]
        return [float(json.loads(plan)[0]["Plan"]["Plan Rows"]) for ((plan,),) in plans]

    def _fetched(self, query: str, schema: pa.Schema) -> pa.RecordBatchReader:
        connection = self._table._connected(self._snapshot)
        cursor = connection.cursor()
        self._open.append((cursor, connection))
        cursor.execute(query)
        rows = cursor.fetch_record_batch()

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in rows:
                if schema.names:
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
                else:
                    yield batch.select([])
            self._close(cursor, connection)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def close(self) -> None:
        for pair in list(self._open):
            self._close(*pair)

    def _close(self, *pair: Any) -> None:
        if pair in self._open:
            self._open.remove(pair)
            for each in pair:
                with suppress(Exception):  # it may be lost already
                    each.close()


def _connection(url: PostgresUrl) -> Any:
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError:
        dbapi = None
    if dbapi is None:
        raise SourceError(
            "reading Postgres needs a driver; install it with pip install 'psephos[postgres]'"
        )
    mark = "&" if "?" in url.server else "?"
    words = ""
    try:
        return dbapi.connect(f"{url.server}{mark}client_encoding=UTF8")
    except Exception as error:  # noqa: BLE001 - no row is read yet, so its words hold no entry
        words = " ".join(str(error).split())[:400]
    raise SourceError(
        f"Postgres cannot be reached: {words}; correct the URL ({URL_FORM}), and see that the "
        "password is in PGPASSWORD or a password file"
    )


def _run(
    connection: Any,
    query: str,
    url: PostgresUrl,
    values: Any = None,
    *,
    rows: bool = True,
    copy: bool = True,
) -> list[tuple[Any, ...]]:
    """The rows of a query that reads no entry of the table; EXPLAIN cannot be copied."""
    state = ""
    try:
        with connection.cursor() as cursor:
            if not copy:
                cursor.adbc_statement.set_options(**{"adbc.postgresql.use_copy": False})
            cursor.execute(query, values)
            return cursor.fetchall() if rows else []
    except Exception as error:  # noqa: BLE001 - told without its words
        state = str(getattr(error, "sqlstate", None) or "")
    if state == "42501":
        raise SourceError(
            f"you may not read {url.relation}; let its owner GRANT SELECT on it (and USAGE on its "
            "schema) to the user of the URL"
        )
    if state == "55P03":
        raise SourceError(
            f"somebody is changing {url.relation}, and it could not be locked for reading in 30 "
            "seconds; read it when that is done"
        )
    code = f" (SQLSTATE {state})" if state.isalnum() else ""
    raise SourceError(
        f"Postgres cannot read {url.relation}{code}; try SELECT * FROM it in psql, as the same user"
    )


def _entry_type(base: int, category: str, name: str) -> tuple[str, pa.DataType]:
    """The type in which a column is asked for, in SQL and in Arrow."""
    if base in NATIVE_TYPES:
        return NATIVE_TYPES[base]
    if base in READ_AS_TEXT or category in TEXT_CATEGORIES:
        return NATIVE_TYPES[25]
    return "text", pa.opaque(pa.binary(), name, "PostgreSQL")  # refused by its type
