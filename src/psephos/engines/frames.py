"""Frames as engines: Arrow tables made column by column; what Arrow has no type for is text."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pyarrow as pa

from psephos.engines.duckdb.arrow_types import reading
from psephos.engines.protocol import Columns
from psephos.errors import DomainError


class ArrowTable:
    """A table in memory, which is its own snapshot: it never changes."""

    __slots__ = ("_table",)

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def columns(self) -> Columns:
        schema = self._table.schema.remove_metadata()
        return Columns(tuple(schema.names), schema)

    def version(self) -> tuple[()]:
        return ()

    def snapshot(self) -> AbstractContextManager[ArrowTable]:
        return nullcontext(self)

    @property
    def kinds(self) -> Sequence[pa.DataType]:
        return list(self._table.schema.types)

    def read(self, names: Sequence[str]) -> pa.RecordBatchReader:
        # By place: other columns may have one name twice.
        places = [self._table.column_names.index(name) for name in names]
        return self._table.select(places).to_reader()

    def __repr__(self) -> str:
        return f"ArrowTable({self.columns().summary})"


def open_frame(data: Any) -> ArrowTable | None:
    """The engine of a pandas or Polars frame or an Arrow table; None for anything else."""
    table = as_table(data)
    return None if table is None else ArrowTable(table)


def as_table(data: Any) -> pa.Table | None:
    """A pandas or Polars frame, or an Arrow table, as an Arrow table; None if it is none of them.

    In pandas NaN stands for a missing entry, and so it becomes NULL here.
    """
    library, kind = type(data).__module__.split(".")[0], type(data).__name__
    makers = {("pandas", "DataFrame"): _pandas_table, ("polars", "DataFrame"): _polars_table}
    make = _checked if isinstance(data, pa.Table) else makers.get((library, kind))
    if make is None:
        return None
    try:
        return make(data)
    except Exception:  # noqa: BLE001 - the words of a library may hold an entry
        pass
    raise DomainError(  # outside the handler, so that it has no context
        f"the {library} {kind} cannot be read: a column of it is damaged, or has a name that is no "
        "text; write it to a Parquet file, and that file's path here"
    )


def _checked(table: pa.Table) -> pa.Table:
    """The table, if its columns lie in memory as they say; their entries are not looked at."""
    table.validate()
    for name in table.column_names:
        name.encode()
    return table


def _pandas_table(frame: Any) -> pa.Table:
    columns = [_from_pandas(frame.iloc[:, i]) for i in range(frame.shape[1])]
    return _checked(pa.Table.from_arrays(columns, names=[str(name) for name in frame.columns]))


def _polars_table(frame: Any) -> pa.Table:
    columns = [_from_polars(frame[name]) for name in frame.columns]
    return _checked(pa.Table.from_arrays(columns, names=list(frame.columns)))


def _from_pandas(series: Any) -> Any:
    dtype = series.dtype
    if type(dtype).__name__ == "CategoricalDtype":
        labels, codes = _texts(series.cat.categories), np.asarray(series.cat.codes)
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), labels)
    if dtype.kind == "O" and not hasattr(dtype, "construct_array_type"):
        return _texts(series)
    try:
        column = pa.array(series, from_pandas=True)
    except Exception:  # noqa: BLE001 - a type that Arrow does not have, such as complex numbers
        return _texts(series)
    unknown = isinstance(column.type, pa.BaseExtensionType) and reading(column.type) is None
    return _texts(series) if unknown else column  # periods and intervals, say


def _from_polars(series: Any) -> Any:
    if str(series.dtype) == "Object":
        return _texts(series.to_list())
    try:
        return series.to_arrow()
    except Exception:  # noqa: BLE001 - a type that Arrow does not have, such as Int128
        return _texts(series.to_list())


def _texts(entries: Any) -> pa.Array:
    """Each entry as text; missing ones (None, NaN, NaT, NA) as NULL.

    Privacy: an entry's text is its own, whatever other entries there are
    (tests/engines/test_frames.py::test_an_entry_reads_the_same_beside_any_other).
    """
    try:
        return pa.array(entries, type=pa.large_string(), from_pandas=True)
    except Exception:  # noqa: BLE001 - some entry is no text
        pass
    column = pa.array([encoded(entry) for entry in entries], type=pa.large_binary())
    return column.view(pa.large_string())


def encoded(entry: Any) -> bytes | None:
    """The text of an entry, as bytes that may not be UTF-8; what has no text is missing."""
    if type(entry) not in (str, int):
        try:  # as it would be read in a column of text
            (text,) = pa.array([entry], type=pa.large_string(), from_pandas=True).to_pylist()
            return None if text is None else bytes(text, "utf-8")
        except Exception:  # noqa: BLE001 - it is no text
            pass
    if isinstance(entry, bytes):
        return entry
    try:
        missing = isinstance(entry, float | np.floating) and bool(np.isnan(entry))
        return None if missing else str(entry).encode("utf-8", "surrogatepass")
    except Exception:  # noqa: BLE001 - whatever an entry does, it is only an undeclared one
        return None
