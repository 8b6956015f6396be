"""Frames as Arrow tables, column by column; what Arrow has no type for goes by its text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from psephos.engines.arrow import reading
from psephos.errors import DomainError


def as_table(data: Any) -> pa.Table:
    """A pandas or Polars frame, or an Arrow table, as an Arrow table.

    In pandas NaN stands for a missing entry, and so it becomes NULL here.
    """
    library, kind = type(data).__module__.split(".")[0], type(data).__name__
    read: Callable[[Any], pa.Table]
    if isinstance(data, pa.Table):
        read = _checked
    elif (library, kind) == ("pandas", "DataFrame"):
        read = _pandas_table
    elif (library, kind) == ("polars", "DataFrame"):
        read = _polars_table
    else:
        raise _not_a_table(library, kind)
    try:
        return read(data)
    except Exception:  # noqa: BLE001 - the words of a library may hold an entry
        pass
    raise DomainError(  # outside the handler, so that it has no context
        f"the {library} {kind} cannot be read: a column of it is damaged, or has a name that is no "
        "text; write it to a Parquet file, and that file's path here"
    )


def _not_a_table(library: str, kind: str) -> DomainError:
    remedy = "write frame.collect()" if kind == "LazyFrame" else "write its path, or a frame"
    return DomainError(
        f"cannot count a {library}.{kind}; have CSV, TSV and Parquet files, pandas and Polars "
        f"frames and Arrow tables; {remedy}"
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
    column = pa.array([_encoded(entry) for entry in entries], type=pa.large_binary())
    return column.view(pa.large_string())


def _encoded(entry: Any) -> bytes | None:
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
