"""Tables and DataFrames of Spark: the needed columns are copied once, in private, and then read.

A DataFrame is a recipe that Spark may run anew for every look, on a table that may have changed. So
a snapshot is one run of it: Spark's executors write the needed columns as Parquet files into a
folder that only this user may open, from which everything is read and which is removed at the end.
No more than a few batches are in memory at a time, on either side.

Spark is asked for no cast, since ANSI casts fail on an entry and quote it. While it works its
logger is silent, because it logs what it fails on, and errors are told without its words. Times are
written in UTC whatever the session's zone is; `char(n)` comes without the blanks that pad it. Where
Spark keeps event logs, a page of its own or executors' logs on other machines, these hold numbers
of rows: they are the owner's.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from psephos.engines.folders import ParquetFolder
from psephos.engines.protocol import Batches, Columns
from psephos.errors import DomainError, SourceError

ARROW_TYPES = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
CHAR_MARK = "__CHAR_VARCHAR_TYPE_STRING"
"""Under this key Spark notes what a column of text was declared as."""
NOT_COPIED = pa.opaque(pa.binary(), "not copied", "Spark")
"""A type that no entry is read by."""
WRITE_SETTINGS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.compression.codec": "snappy",
}
JAVA_LOGGERS = "org.apache.spark"
PYTHON_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""They log the words of an error, which quote entries."""
NEW_SESSION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    "spark.io.encryption.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
}
"""For a session that is started here; one that is there is left as it is."""


def open_spark(data: Any) -> SparkTable | None:
    """The engine of a DataFrame of Spark; None for anything else."""
    kind = type(data)
    is_frame = kind.__module__.startswith("pyspark.sql.") and kind.__name__ == "DataFrame"
    return SparkTable(data) if is_frame else None


class SparkTable:
    """A table, a view or a DataFrame of Spark.

    Args:
        table: the name of a table or view, such as "census.people", or a DataFrame
        needed: the columns that will be read, if others need not be copied
        folder: a folder that this program and Spark's executors share, for the private copy; needed
            where Spark does not run on this machine
    """

    __slots__ = ("_folder", "_needed", "_table")

    def __init__(
        self,
        table: Any,
        *,
        needed: Sequence[str] | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        if not isinstance(table, str) and not hasattr(table, "sparkSession"):
            raise DomainError(
                'a table of Spark is written "database.table", or given as a DataFrame'
            )
        self._table = table
        self._needed = None if needed is None else tuple(needed)
        self._folder = None if folder is None else Path(folder).absolute()

    @property
    def place(self) -> tuple[str, ...]:
        """What tells this table from others."""
        return ("spark", self._table if isinstance(self._table, str) else repr(id(self._table)))

    def columns(self) -> Columns:
        schema = pa.schema([(f.name, _arrow_type(f.dataType)) for f in self._fields()])
        return Columns(tuple(schema.names), schema)

    def version(self) -> None:
        """Nothing tells when the rows have changed."""

    @contextmanager
    def snapshot(self) -> Iterator[Batches]:
        frame = self._frame()
        folder = Path(tempfile.mkdtemp(prefix="psephos-spark-", dir=self._shared_folder(frame)))
        try:
            names = self._copied()
            if not _written(frame, names, folder / "rows"):
                raise SourceError(
                    f"Spark could not read {self._words}: a job failed, or was ended. Its words "
                    "are not shown, because they may hold entries; try to write the table as "
                    "Parquet yourself"
                )
            yield SparkBatches(self.columns(), names, ParquetFolder(folder / "rows"))
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def _words(self) -> str:
        return f"the table {self._table!r}" if isinstance(self._table, str) else "the DataFrame"

    def _frame(self) -> Any:
        if not isinstance(self._table, str):
            return self._table
        session = _session()
        try:
            frame = session.table(self._table)
            frame.schema  # noqa: B018 - over Spark Connect only this looks for the table
            return frame
        except Exception:  # noqa: BLE001 - told below, without a context
            pass
        raise SourceError(
            f"Spark has no table or view {self._table!r}, or you may not read it; correct the name "
            '(in a release file, `source = { spark = "database.table" }`), or make the table known '
            "to this session's catalogue"
        )

    def _fields(self) -> list[Any]:
        try:
            return list(self._frame().schema.fields)
        except SourceError:
            raise
        except Exception:  # noqa: BLE001 - told below, without a context
            pass
        raise SourceError(f"{self._words} has no schema that Spark can tell; is its session open?")

    def _copied(self) -> list[str]:
        """The columns that are copied: those of a type that can be counted, each once."""
        columns = self.columns()
        schema: Any = columns.types
        readable = [
            field.name
            for field in schema
            if not isinstance(field.type, pa.BaseExtensionType)
            and columns.names.count(field.name) == 1
        ]
        wanted = columns.names if self._needed is None else self._needed
        return [name for name in readable if name in wanted] or readable[:1]

    def _shared_folder(self, frame: Any) -> Path | None:
        """Where the private copy lies; None for this machine's place of temporary files."""
        if self._folder is None and not _runs_here(frame.sparkSession):
            raise SourceError(
                "Spark does not run on this machine: name a folder that its executors and this "
                "program share and others may not open, for a private copy of the needed columns "
                '(source = { spark = "database.table", folder = "/shared/private" })'
            )
        if self._folder is not None and not self._folder.is_dir():
            raise SourceError(
                f"there is no folder {self._folder.name!r} in {self._folder.parent} for the "
                "private copy of a table of Spark; make it"
            )
        return self._folder

    def __repr__(self) -> str:
        return "SparkTable()"


class SparkBatches:
    """The columns that were copied, column j under the name x{j}."""

    __slots__ = ("_batches", "_columns", "_copy", "_names")

    def __init__(self, columns: Columns, names: Sequence[str], copy: ParquetFolder) -> None:
        self._columns = columns
        self._names = tuple(names)
        self._copy = copy
        with copy.snapshot() as batches:
            self._batches = batches

    @property
    def kinds(self) -> Sequence[pa.DataType]:
        copied = dict(zip(self._names, self._batches.kinds, strict=True))
        return [copied.get(name, NOT_COPIED) for name in self._columns.names]

    def read(self, names: Sequence[str]) -> pa.RecordBatchReader:
        # What was not copied is asked for only to count rows, by any column: see `kinds`.
        numbers = [self._names.index(name) if name in self._names else 0 for name in names]
        reader = self._batches.read([f"x{number}" for number in numbers])
        schema = pa.schema(list(zip(names, reader.schema.types, strict=True)))

        def batches() -> Iterator[pa.RecordBatch]:
            for batch in reader:
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema) if names else batch

        return pa.RecordBatchReader.from_batches(schema, batches())

    @property
    def files(self) -> Sequence[Path]:
        return self._copy.files

    def relation(self, connection: Any, places: Sequence[int]) -> str | None:
        """The copy as DuckDB reads it by itself, its columns under the numbers of the table's."""
        numbers = [self._names.index(self._columns.names[i]) for i in places]
        text = self._copy.relation(connection, numbers)
        if text is None or not places:
            return text
        renamed = ", ".join(f"c{j} AS c{i}" for i, j in zip(places, numbers, strict=True))
        return f"(SELECT {renamed} FROM {text}) AS u"


def _session() -> Any:
    """The session that is active, or a new one by the settings of this machine."""
    if find_spec("pyspark") is None:
        raise SourceError(
            "reading tables of Spark needs pyspark and Java 17; install it with pip install "
            "'psephos[spark]'"
        )
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers run what this program runs
    try:
        builder = SparkSession.builder.appName("psephos")
        if "SPARK_REMOTE" not in os.environ:
            for name, value in NEW_SESSION.items():
                builder = builder.config(name, value)
        return builder.getOrCreate()
    except Exception:  # noqa: BLE001 - told below, without a context
        pass
    raise SourceError(
        "Spark could not be started: is Java 17 or later there (java -version, JAVA_HOME), and are "
        "SPARK_HOME, SPARK_REMOTE and spark-defaults.conf right, if you use them?"
    )


def _written(frame: Any, names: Sequence[str], place: Path) -> bool:
    """Whether these columns are now written as Parquet, by one run of the frame's recipe."""
    from pyspark.sql import functions

    marks = {field.name: field.metadata.get(CHAR_MARK, "") for field in frame.schema.fields}
    columns = []
    for i, name in enumerate(names):
        column = functions.col(f"`{name.replace('`', '``')}`")
        if str(marks[name]).lower().startswith("char("):
            column = functions.rtrim(column)
        columns.append(column.alias(f"x{i}", metadata={}))
    session = frame.sparkSession
    try:
        with _silent(session), _set(session, WRITE_SETTINGS):
            frame.select(*columns).write.parquet(place.as_uri())
        return True
    except Exception:  # noqa: BLE001 - its words may hold an entry
        return False


@contextmanager
def _silent(session: Any) -> Iterator[None]:
    """Spark logs nothing of its own, on either side; over Spark Connect its log is the server's."""
    from pyspark.logger import PySparkLogger

    loggers = [PySparkLogger.getLogger(name) for name in PYTHON_LOGGERS]
    disabled = [logger.disabled for logger in loggers]
    with ExitStack() as stack:
        for logger, before in zip(loggers, disabled, strict=True):
            logger.disabled = True
            stack.callback(setattr, logger, "disabled", before)
        with suppress(Exception):
            stack.callback(_silence(session.sparkContext._jvm))
        yield


def _silence(java: Any) -> Callable[[], None]:
    """Turn the loggers of Spark's classes off; what is given back turns them on again."""
    log4j = java.org.apache.logging.log4j
    context = log4j.LogManager.getContext(False)
    settings = context.getConfiguration()
    logger = settings.getLoggerConfig(JAVA_LOGGERS)
    level = logger.getLevel() if logger.getName() == JAVA_LOGGERS else None

    def restore() -> None:
        if level is None:
            settings.removeLogger(JAVA_LOGGERS)
            context.updateLoggers()
        else:
            log4j.core.config.Configurator.setLevel(JAVA_LOGGERS, level)

    log4j.core.config.Configurator.setLevel(JAVA_LOGGERS, log4j.Level.OFF)
    return restore


@contextmanager
def _set(session: Any, settings: Mapping[str, str]) -> Iterator[None]:
    """The session with these settings, which are put back in the end."""
    before = {name: session.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, value in before.items():
            with suppress(Exception):
                session.conf.unset(name) if value is None else session.conf.set(name, value)


def _runs_here(session: Any) -> bool:
    try:
        return str(session.sparkContext.master).startswith("local")
    except Exception:  # noqa: BLE001 - a session of Spark Connect
        return False


def _arrow_type(kind: Any) -> pa.DataType:
    """The type of a column by its name in Spark; what no schema could speak of is refused by it."""
    name = kind.simpleString()
    if name in ARROW_TYPES:
        return ARROW_TYPES[name]
    if name.startswith("decimal("):
        return pa.decimal128(kind.precision, kind.scale)
    if name.startswith(("string", "char(", "varchar(")):
        return pa.string()
    return pa.opaque(pa.binary(), name, "Spark")
