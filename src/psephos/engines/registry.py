"""From what a user has (a path, a frame, a table, an engine) to an engine, and to its counts.

An engine joins by being given as `source`, or by an opener that makes one of what users write:

    register(lambda data: Warehouse(data) if str(data).startswith("warehouse:") else None)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from psephos.engines.bit_matrix import BitMatrix, open_bits
from psephos.engines.cleaned import CleanedSource
from psephos.engines.duckdb.reader import UNCOUNTABLE, Reader, T
from psephos.engines.files import open_csv
from psephos.engines.folders import open_dataset, open_folder
from psephos.engines.frames import open_frame
from psephos.engines.parquet import open_parquet
from psephos.engines.postgres import open_postgres
from psephos.engines.protocol import Engine
from psephos.engines.spark import open_spark
from psephos.errors import DomainError, PsephosError, SourceError

Opener = Callable[[Any], Engine | BitMatrix | None]
"""Gives the engine (or the bits) for an object that it takes, and None for any other.

Its errors reach the user if they are of psephos (`SourceError`, `DomainError`).
"""


def open_engine(data: Any) -> Engine | None:
    """An object that is an engine already: its class has the methods of one."""
    # Not `isinstance`, which looks at attributes of the object: a frame's may be its columns.
    methods = ("columns", "version", "snapshot")
    is_engine = all(callable(getattr(type(data), name, None)) for name in methods)
    return data if is_engine else None


OPENERS: list[Opener] = [
    open_postgres,
    open_folder,
    open_parquet,
    open_csv,
    open_frame,
    open_spark,
    open_dataset,
    open_bits,
    open_engine,
]


def register(opener: Opener) -> None:
    """Let an opener decide before all others whether it takes what a user gives."""
    OPENERS.insert(0, opener)


def as_engine(data: Any) -> Engine:
    """The engine for a path (.csv, .tsv, .parquet, a folder or glob of these), a frame, an engine.

    >>> import pyarrow as pa
    >>> as_engine(pa.table({"sex": ["F", "M"]}))
    ArrowTable(1 column: sex)
    """
    engine = _opened(data)
    if isinstance(engine, BitMatrix):
        raise DomainError(
            f"the {_type_name(data)} is a matrix of 0 and 1, which is counted as it is and hands "
            "over no rows; write as_source(matrix)"
        )
    return engine


def _opened(data: Any) -> Engine | BitMatrix:
    for opener in OPENERS:
        try:
            engine = opener(data)
        except PsephosError:
            raise
        except Exception:  # noqa: BLE001 - another library's words may hold an entry
            break
        if engine is not None:
            return engine
    else:
        raise _not_a_source(data)
    raise SourceError(  # outside the handler, so that it has no context
        f"the {_type_name(data)} cannot be opened; write the path of a CSV or Parquet file, or a "
        "frame"
    )


def as_source(data: Any) -> Reader | BitMatrix:
    """The counts of whatever `as_engine` takes, and of matrices of 0 and 1.

    >>> import pyarrow as pa
    >>> from psephos.domain.domain import Domain
    >>> table = pa.table({"sex": ["F", "M", "F"], "age": ["1", "0", None]})
    >>> domain = Domain.of(sex=["F", "M"], age=2)
    >>> as_source(table).count(domain, ("sex", "age"), (), None)
    array([[0, 1],
           [1, 0]])
    """
    if isinstance(data, Reader):
        return data
    if isinstance(data, CleanedSource):
        return _cleaned_reader(data)
    opened = _opened(data)
    return opened if isinstance(opened, BitMatrix) else Reader(opened)


@contextmanager
def in_one_state(source: Any) -> Iterator[Reader | BitMatrix]:
    """The source as it is now: until the block ends, `check` and `protect` see the same rows of it.

    A database is read in one transaction. Files that are written to meanwhile are refused, and so
    is every count after the block.

    >>> import pyarrow as pa
    >>> from psephos.domain.domain import Domain
    >>> with in_one_state(pa.table({"sex": ["F", "M"]})) as table:
    ...     int(table.count(Domain.of(sex=["F", "M"]), (), (), None))
    2
    """
    reader = as_source(source)
    if isinstance(reader, BitMatrix):
        yield reader
        return
    stack = ExitStack()
    held = _safely(lambda: stack.enter_context(reader.in_one_state()))
    try:
        yield held
    except BaseException:
        with suppress(Exception):  # what went wrong before is told
            stack.close()
        raise
    _safely(stack.close)


def _safely(work: Callable[[], T]) -> T:
    """What the work gives; an engine's own words are not told, since they may hold an entry."""
    try:
        return work()
    except PsephosError as error:
        error.__cause__ = error.__context__ = None
        raise
    except Exception:  # noqa: BLE001 - see above
        pass
    raise SourceError(UNCOUNTABLE)  # outside the handler, so that it has no context


def _cleaned_reader(data: CleanedSource) -> Reader:
    """The rows as they are cleaned; a rule for a column that is not there is refused."""
    engine = _opened(data.source)
    if isinstance(engine, BitMatrix):
        raise DomainError("a matrix of 0 and 1 has nothing to clean; give it as it is")
    reader = Reader(engine, data.rules)
    reader.check_columns(tuple(data.rules))
    return reader


def _type_name(data: Any) -> str:
    return f"{type(data).__module__.split('.')[0]}.{type(data).__name__}"


def _not_a_source(data: Any) -> DomainError:
    lazy = type(data).__name__ == "LazyFrame"
    remedy = "write frame.collect()" if lazy else "write its path, or a frame"
    return DomainError(
        f"cannot count a {_type_name(data)}; have CSV, TSV and Parquet files, folders of Parquet, "
        "tables of Postgres, DuckDB and Spark, pandas and Polars frames, Arrow tables and "
        f"datasets, and matrices of 0 and 1; {remedy}"
    )
