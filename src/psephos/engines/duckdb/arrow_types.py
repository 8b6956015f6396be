"""How columns of every Arrow type are read: so that no entry can make it fail, or not at all.

DuckDB is handed truth values, numbers, days, text and bytes; times as integers, decimals as text.
What has no text that a schema could speak of (lists, structs, durations, …) is refused by its type
alone. A time outside the years 1 to 9999 is undeclared; its text is its number with the unit.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from psephos.engines.duckdb.reading import TEXT_READING, Reading, is_text

NATIVE = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.uint64(): "UBIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.date32(): "DATE",
}
"""Types whose every entry DuckDB reads, from Arrow and from Parquet, and its names for them."""
STORED = ("arrow.json", "arrow.bool8")
"""Extension types that mean what they are stored as."""
UUID = "arrow.uuid"
YEAR_1, YEAR_10000 = -62_135_596_800, 253_402_300_800
"""Where the years 1 to 9999 begin and end, in seconds since 1970."""
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
DAY = 86_400


def reading(kind: pa.DataType) -> Reading | None:
    """How a column of that type is read; None if it is not.

    >>> reading(pa.float16())
    Reading(arrow_type=DataType(float), entry='{c}', is_text=False)
    >>> reading(pa.list_(pa.int8())) is None
    True
    """
    kind = _bare(kind)
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name != UUID:
            return None
        return Reading(pa.large_binary(), "CAST(TRY_CAST(hex({c}) AS UUID) AS VARCHAR)")
    if kind in NATIVE:
        return Reading(kind)
    if is_text(kind):
        return TEXT_READING
    if is_bytes(kind) or pa.types.is_fixed_size_binary(kind):
        return Reading(pa.large_binary())
    if pa.types.is_float16(kind):
        return Reading(pa.float32())
    if pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return Reading(pa.large_string())
    if pa.types.is_timestamp(kind):
        return Reading(pa.int64(), _moment(kind.unit, "'+00'" if kind.tz else ""))
    if pa.types.is_date64(kind):
        return Reading(pa.int64(), _day())
    if pa.types.is_time(kind):
        ticks = pa.int32() if pa.types.is_time32(kind) else pa.int64()
        return Reading(ticks, _time(kind.unit))
    return None


def type_problem(name: str, kind: pa.DataType) -> str | None:
    """Why a column of that type cannot be counted, if so; it speaks of the type alone.

    >>> type_problem("pets", pa.list_(pa.string()))
    "column 'pets' is of type list<item: string>, whose entries are no values of an attribute; \
make of it a column of text, numbers, dates or times"
    """
    if reading(kind) is not None:
        return None
    shown = str(kind) if len(str(kind)) <= 60 else f"{str(kind)[:60]}…"
    return (
        f"column {name!r} is of type {shown}, whose entries are no values of an attribute; make of "
        "it a column of text, numbers, dates or times"
    )


def native_kind(kind: pa.DataType) -> str | None:
    """DuckDB's name of a Parquet column that it may read by itself; None if it may not."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if is_text(kind):
        return "VARCHAR"
    if is_bytes(kind):
        return "BLOB"
    if pa.types.is_timestamp(kind):
        nano = kind.unit == "ns"
        zoned = None if nano else "TIMESTAMP WITH TIME ZONE"
        return zoned if kind.tz else "TIMESTAMP_NS" if nano else "TIMESTAMP"
    return None if isinstance(kind, pa.BaseExtensionType) else NATIVE.get(kind)


def native_entry(column: str, kind: str) -> str:
    """The entry of a column that DuckDB reads by itself; a time that it may not know is an error.

    The reading then starts again through Arrow, where such a time has a text.
    """
    ends = {
        "TIMESTAMP": ("TIMESTAMP '0001-01-01'", "TIMESTAMP '9999-12-31 23:59:59.999999'"),
        "TIMESTAMP WITH TIME ZONE": (
            "TIMESTAMPTZ '0001-01-01 00:00:00+00'",
            "TIMESTAMPTZ '9999-12-31 23:59:59.999999+00'",
        ),
        "TIMESTAMP_NS": tuple(f"make_timestamp_ns({end})" for end in _ends("ns")),
    }.get(kind)
    if ends is None:
        return column
    inside = f"{column} IS NULL OR {column} BETWEEN {ends[0]} AND {ends[1]}"
    return f"CASE WHEN {inside} THEN {column} ELSE error('out of range') END"


def is_bytes(kind: pa.DataType) -> bool:
    """Whether entries are bytes of any number."""
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    )


def convert(column: Any, target: pa.DataType) -> Any:
    """An array, or an array in chunks, in the type in which DuckDB gets it."""
    kind = column.type
    if kind == target:
        return column
    if isinstance(kind, pa.BaseExtensionType):
        return convert(column.cast(kind.storage_type), target)
    if pa.types.is_run_end_encoded(kind):
        return convert(pc.run_end_decode(column), target)
    if pa.types.is_dictionary(kind):
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        parts = [_decode(chunk, target) for chunk in chunks]
        return pa.chunked_array(parts, target) if isinstance(column, pa.ChunkedArray) else parts[0]
    return column.cast(target, safe=False)


def _decode(column: pa.DictionaryArray, target: pa.DataType) -> pa.Array:
    """The values behind the codes; a code without a value is missing."""
    values = convert(column.dictionary, target)
    codes = column.indices.cast(pa.int64(), safe=False)
    known = pc.and_(pc.greater_equal(codes, 0), pc.less(codes, len(values)))
    return values.take(pc.if_else(known, codes, pa.scalar(None, pa.int64())))


def _bare(kind: pa.DataType) -> pa.DataType:
    """The type of the entries themselves, without codes, runs and names for what is stored."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _bare(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType) and kind.extension_name in STORED:
        return _bare(kind.storage_type)
    return kind


def _ends(unit: str) -> tuple[int, int]:
    if unit == "ns":  # 64 bits hold fewer years, and DuckDB takes the outermost for infinite
        return -(2**63) + 2, 2**63 - 2
    return YEAR_1 * TICKS[unit], YEAR_10000 * TICKS[unit] - 1


def _moment(unit: str, zone: str) -> str:
    low, high = _ends(unit)
    text = f"CAST({_timestamp(_clamp(low, high), unit)} AS VARCHAR)"
    return _text_or_ticks(low, high, f"{text} || {zone}" if zone else text, unit)


def _day() -> str:
    low, high = _ends("ms")
    # Counted from the first day, because division rounds towards 0.
    days = f"CAST(({_clamp(low, high)} - ({low})) // {DAY * TICKS['ms']} AS INTEGER)"
    return _text_or_ticks(low, high, f"CAST(DATE '0001-01-01' + {days} AS VARCHAR)", "ms")


def _time(unit: str) -> str:
    """A time of day: what follows the day in the text of that time on a day."""
    high = DAY * TICKS[unit] - 1
    moment = _timestamp(f"CAST({_clamp(0, high)} AS BIGINT)", unit)
    return _text_or_ticks(0, high, f"substr(CAST({moment} AS VARCHAR), 12)", unit)


def _timestamp(ticks: str, unit: str) -> str:
    if unit == "ns":
        return f"make_timestamp_ns({ticks})"
    return f"make_timestamp({ticks} * {TICKS['us'] // TICKS[unit]})"


def _clamp(low: int, high: int) -> str:
    # So that what is computed of it cannot overflow wherever it is evaluated.
    return f"least(greatest({{c}}, {low}), {high})"


def _text_or_ticks(low: int, high: int, text: str, unit: str) -> str:
    other = f"WHEN {{c}} IS NOT NULL THEN CAST({{c}} AS VARCHAR) || ' {unit}'"
    return f"CASE WHEN {{c}} BETWEEN {low} AND {high} THEN {text} {other} END"
