"""From what a user has (a path, a frame, a table, an engine) to an engine, and to its counts.

An engine joins by being given as `source`, or by an opener that makes one of what users write:

    register(lambda data: Warehouse(data) if str(data).startswith("warehouse:") else None)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psephos.engines.bit_matrix import BitMatrix, open_bits
from psephos.engines.duckdb.reader import Reader
from psephos.engines.files import open_file
from psephos.engines.frames import open_frame
from psephos.engines.protocol import Engine
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


OPENERS: list[Opener] = [open_file, open_frame, open_bits, open_engine]


def register(opener: Opener) -> None:
    """Let an opener decide before all others whether it takes what a user gives."""
    OPENERS.insert(0, opener)


def as_engine(data: Any) -> Engine:
    """The engine for a path to a .csv, .tsv or .parquet file, a frame, an Arrow table, an engine.

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
    opened = _opened(data)
    return opened if isinstance(opened, BitMatrix) else Reader(opened)


def _type_name(data: Any) -> str:
    return f"{type(data).__module__.split('.')[0]}.{type(data).__name__}"


def _not_a_source(data: Any) -> DomainError:
    lazy = type(data).__name__ == "LazyFrame"
    remedy = "write frame.collect()" if lazy else "write its path, or a frame"
    return DomainError(
        f"cannot count a {_type_name(data)}; have CSV, TSV and Parquet files, pandas and Polars "
        f"frames, Arrow tables and matrices of 0 and 1; {remedy}"
    )
