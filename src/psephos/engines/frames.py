"""Frames as Arrow tables whose columns DuckDB can read whatever they hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from psephos.errors import DomainError


def as_table(data: Any) -> pa.Table:
    """A pandas or Polars frame, or an Arrow table, as an Arrow table.

    In pandas NaN stands for a missing entry, and so it becomes NULL here.
    """
    library, kind = type(data).__module__.split(".")[0], type(data).__name__
    if isinstance(data, pa.Table):
        columns, names = data.columns, data.column_names
    elif library == "pandas" and kind == "DataFrame":
        columns = [_from_pandas(data.iloc[:, i]) for i in range(data.shape[1])]
        names = [str(name) for name in data.columns]
    elif library == "polars" and kind == "DataFrame":
        columns, names = [_from_polars(data[name]) for name in data.columns], list(data.columns)
    else:
        raise _not_a_table(library, kind)
    return pa.Table.from_arrays([_readable(column) for column in columns], names=names)


def _not_a_table(library: str, kind: str) -> DomainError:
    remedy = "write frame.collect()" if kind == "LazyFrame" else "write its path, or a frame"
    return DomainError(
        f"cannot count a {library}.{kind}; have CSV, TSV and Parquet files, pandas and Polars "
        f"frames and Arrow tables; {remedy}"
    )


def _from_pandas(series: Any) -> pa.Array:
    dtype = series.dtype
    if type(dtype).__name__ == "CategoricalDtype":
        labels, codes = _texts(series.cat.categories), np.asarray(series.cat.codes)
        indices = pa.array(codes, mask=codes < 0)
        return pa.DictionaryArray.from_arrays(indices, labels).dictionary_decode()
    if dtype.kind == "O" and not hasattr(dtype, "construct_array_type"):
        return _texts(series)
    try:
        return pa.array(series, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError):
        return _texts(series)


def _readable(column: Any) -> Any:
    """The column, or as text where DuckDB does not know its type or its bytes are not UTF-8."""
    if pa.types.is_float16(column.type) or pa.types.is_decimal256(column.type):
        return _texts(column.to_pylist())
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        torn = column.cast(pa.large_binary()).to_pylist()
        return pa.array([None if b is None else b.decode("utf-8", "replace") for b in torn])
    return column


def _from_polars(series: Any) -> Any:
    if str(series.dtype) == "Object":
        return _texts(series.to_list())
    return series.to_arrow()


def _texts(entries: Any) -> pa.Array:
    """Each entry as text; missing ones (None, NaN, NaT, NA) as NULL."""
    try:
        return pa.array(entries, type=pa.string(), from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError):
        return pa.array([_shown(entry) for entry in entries], type=pa.string())


def _shown(entry: Any) -> str | None:
    if entry is None or type(entry).__name__ in ("NAType", "NaTType"):
        return None
    if isinstance(entry, float | np.floating) and np.isnan(entry):
        return None
    try:
        shown = str(entry)
    except Exception:  # noqa: BLE001 - whatever an entry does, it is only an undeclared one
        return ""
    return shown.encode("utf-8", "replace").decode()
