"""Every Arrow type with its most extreme entries, each beside the text that it is to be read as."""

import datetime
import math
import uuid
from dataclasses import dataclass
from decimal import Context, Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

EPOCH = datetime.datetime(1970, 1, 1)
TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
TORN = [b"\xff", b"\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\xe2\x82", b"7\xff", b"\xf8\x88\x80\x80"]
DAY = int((datetime.datetime(2020, 1, 2) - EPOCH).total_seconds())
EXACT = Context(prec=100)
YEARS = range(-62_135_596_800, 253_402_300_800)  # 1 to 9999, in seconds


@dataclass(frozen=True)
class Case:
    """A column, and the texts of its entries."""

    column: pa.Array
    texts: list

    def __post_init__(self):
        assert len(self.column) == len(self.texts)


def whole(kind):
    low, high = (0, 2**kind.bit_width - 1)
    if pa.types.is_signed_integer(kind):
        low, high = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
    numbers = [low, low + 1, high - 1, high, 0, 1, 7, None]
    return Case(pa.array(numbers, kind), [None if n is None else str(n) for n in numbers])


def floats(kind):
    limits = np.finfo(kind.to_pandas_dtype())
    numbers = [0.0, -0.0, 1.0, 0.5, 7.5, math.nan, math.inf, -math.inf, None]
    numbers += [float(limits.max), float(limits.min), float(limits.smallest_subnormal)]
    array = pa.array(np.array(numbers, dtype=float).astype(kind.to_pandas_dtype()), kind)
    missing = [n is None for n in numbers]
    column = pc.if_else(pa.array(missing), pa.scalar(None, kind), array)
    return Case(column, [None if n is None else str(n) for n in numbers])


def ticked(kind, numbers, text):
    """Integers taken for what a type makes of them, checked by nobody."""
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    low, high = -(2 ** (kind.bit_width - 1)), 2 ** (kind.bit_width - 1) - 1
    numbers = [low, low + 1, low + 2, high - 2, high - 1, high, *numbers]
    numbers = [*dict.fromkeys(n for n in numbers if low <= n <= high), None]
    return Case(
        pa.array(numbers, width).view(kind), [None if n is None else text(n) for n in numbers]
    )


def moments(unit, zone=None):
    ticks = TICKS[unit]
    first, last = YEARS[0] * ticks, (YEARS[-1] + 1) * ticks
    ends = range(first, last) if unit != "ns" else range(-(2**63) + 2, 2**63 - 1)

    def text(n):
        if n not in ends:
            return f"{n} {unit}"
        moment = EPOCH + datetime.timedelta(seconds=n // ticks)
        rest = f"{n % ticks:0{len(str(ticks)) - 1}d}".rstrip("0") if n % ticks else ""
        return f"{moment}.{rest}" if rest else str(moment)

    near = [first - 1, first, first + 1, last - 1, last, -1, 0, 1, DAY * ticks, DAY * ticks + 1]
    near += [
        sign * 2**63 // scale + step
        for scale in (10**3, 10**6, 10**9)
        for sign in (-1, 1)
        for step in (-1, 0, 1)
    ]
    return ticked(pa.timestamp(unit, zone), near, text)


def times(kind):
    ticks = TICKS[kind.unit]

    def text(n):
        if n not in range(86_400 * ticks):
            return f"{n} {kind.unit}"
        rest = f"{n % ticks:0{len(str(ticks)) - 1}d}".rstrip("0") if n % ticks else ""
        clock = str((EPOCH + datetime.timedelta(seconds=n // ticks)).time())
        return f"{clock}.{rest}" if rest else clock

    return ticked(kind, [-1, 0, 1, 7, 86_400 * ticks - 1, 86_400 * ticks, 86_400 * ticks + 1], text)


def days32():
    special = {2**31 - 1: "infinity", -(2**31) + 1: "-infinity"}

    def text(n):
        known = YEARS[0] <= n * 86_400 <= YEARS[-1]
        shown = str((EPOCH + datetime.timedelta(days=n)).date()) if known else f"no day {n}"
        return special.get(n, shown)

    near = [DAY // 86_400, 0, -1, YEARS[0] // 86_400, YEARS[-1] // 86_400, YEARS[-1] // 86_400 + 1]
    return ticked(pa.date32(), near, text)


def days64():
    def text(n):
        if n // 1000 not in YEARS:
            return f"{n} ms"
        return str((EPOCH + datetime.timedelta(seconds=n // 1000)).date())

    day, first, last = DAY * 1000, YEARS[0] * 1000, (YEARS[-1] + 1) * 1000
    near = [day, day + 1, 0, -1, first, first - 1, first - 86_400_000, last, last - 1]
    return ticked(pa.date64(), near, text)


def decimals(kind, beyond=True):
    """Up to the largest integers that the bytes hold, whatever the type says, or that it says."""
    top, most = 2 ** (8 * kind.byte_width - 1), 10**kind.precision
    numbers = [0, 1, -1, 7 * 10 ** max(kind.scale, 0)]
    numbers += [most, -most, top - 1, -top] if beyond else []
    # Fractions that a double takes for whole are left out.
    numbers += [most - 1, 1 - most] if kind.scale < 16 else [most // 2]
    numbers = [n for n in numbers if -top <= n < top and (beyond or abs(n) < most)]
    stored = b"".join(n.to_bytes(kind.byte_width, "little", signed=True) for n in numbers)
    column = pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(stored)])
    texts = [str(Decimal(n).scaleb(-kind.scale, context=EXACT)) for n in numbers]
    return Case(pa.concat_arrays([column, pa.nulls(1, kind)]), [*texts, None])


def torn_text(kind):
    good = [
        b"",
        b"F",
        "é".encode(),
        b"7",
        b"07",
        b"x",
        b"a\x00b",
        b"2020-01-02",
        b"true",
        b"infinity",
        b"1e400",
    ]
    column = pa.array([*good, *TORN, None], pa.large_binary()).view(pa.large_string())
    texts = [*(b.decode() for b in good), *(f"no text {i}" for i in range(len(TORN))), None]
    return Case(column.cast(kind, safe=False), texts)


def bytes_of(kind):
    entries = [b"7", b"F", b"\\", b"\xff", b"\x00", b"'"]
    texts = ["7", "F", "\\x5C", "\\xFF", "\\x00", "\\x27", None]
    return Case(pa.array([*entries, None], kind), texts)


def coded(case, index):
    """The same entries behind codes: for a missing value, for nothing, and out of range."""
    last = len(case.texts)
    codes = [*range(last), None, last - 1, last, -1, 127]
    column = pa.DictionaryArray.from_arrays(pa.array(codes, index), case.column, safe=False)
    return Case(column, [*case.texts, None, case.texts[-1], None, None, None])


def simply_coded(case):
    """The same entries behind codes, as Parquet can hold them."""
    codes = pa.array([*range(len(case.texts) - 1), None], pa.int8())
    column = pa.DictionaryArray.from_arrays(codes, case.column[:-1])
    return Case(column, case.texts)


def in_runs(case):
    ends = pa.array([2 * i + 2 for i in range(len(case.texts))], pa.int32())
    kind = pa.run_end_encoded(pa.int32(), case.column.type)
    column = pa.Array.from_buffers(kind, 2 * len(ends), [None], children=[ends, case.column])
    return Case(column, [text for text in case.texts for _ in range(2)])


def extended(kind, stored, texts):
    return Case(pa.ExtensionArray.from_storage(kind, stored), texts)


ONE = uuid.UUID("550e8400-e29b-41d4-a716-446655440000")
INTEGERS = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
]
DECIMALS = [
    *[pa.decimal128(1, 0), pa.decimal128(5, 2), pa.decimal128(38, 2), pa.decimal128(38, 38)],
    *[pa.decimal128(10, -2), pa.decimal256(50, 3), pa.decimal256(76, 0), pa.decimal256(76, 76)],
]
TEXTS = [pa.string(), pa.large_string(), pa.string_view()]
BYTES = [pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(1)]
TIMES = [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")]
NOTHING = Case(pa.nulls(3), [None] * 3)
LAST = uuid.UUID(int=2**128 - 1)
CASES = {
    "null": NOTHING,
    "bool": Case(pa.array([True, False, None]), ["true", "false", None]),
    **{str(kind): whole(kind) for kind in INTEGERS},
    **{str(kind): floats(kind) for kind in (pa.float16(), pa.float32(), pa.float64())},
    **{f"{kind} and beyond": decimals(kind) for kind in DECIMALS},
    **{str(kind): decimals(kind, beyond=False) for kind in DECIMALS if kind.scale in (2, 0)},
    **{str(kind): torn_text(kind) for kind in TEXTS},
    **{str(kind): bytes_of(kind) for kind in BYTES},
    "date32": days32(),
    "date64": days64(),
    **{f"timestamp {unit}": moments(unit) for unit in TICKS},
    **{f"timestamp {unit} with zone": moments(unit, "Asia/Tokyo") for unit in TICKS},
    **{str(kind): times(kind) for kind in TIMES},
    "codes of text": coded(torn_text(pa.string()), pa.int8()),
    "simple codes of text": simply_coded(torn_text(pa.string())),
    "codes of integers": coded(whole(pa.int64()), pa.int64()),
    "codes of times": coded(times(pa.time64("us")), pa.int8()),
    "codes of timestamps": coded(moments("ms"), pa.int16()),
    "codes of decimals": coded(decimals(pa.decimal128(5, 2)), pa.int32()),
    "codes of null": coded(NOTHING, pa.int8()),
    "runs of text": in_runs(torn_text(pa.string())),
    "runs of timestamps": in_runs(moments("s")),
    "uuid": extended(
        pa.uuid(),
        pa.array([ONE.bytes, LAST.bytes, None], pa.binary(16)),
        [str(ONE), str(LAST), None],
    ),
    "json": extended(pa.json_(), torn_text(pa.string()).column, torn_text(pa.string()).texts),
    "bool8": extended(pa.bool8(), whole(pa.int8()).column, whole(pa.int8()).texts),
}

# What a Parquet file keeps, type and all.
IN_PARQUET = [
    name
    for name in CASES
    if not name.startswith(("codes", "runs", "timestamp s"))
    and not name.endswith("beyond")
    and name not in ("date64", "time32[s]")
]


class Unheard(pa.ExtensionType):
    """An extension type that nobody registered."""

    def __init__(self):
        super().__init__(pa.int64(), "tests.unheard")

    def __arrow_ext_serialize__(self):
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls()


FEW = pa.struct([("a", pa.int8())])
REFUSED = {
    "list": pa.array([[1], None]),
    "large list": pa.array([[1], None], pa.large_list(pa.int8())),
    "fixed list": pa.array([[1, 2], None], pa.list_(pa.int8(), 2)),
    "list view": pa.array([[1], None], pa.list_view(pa.int8())),
    "struct": pa.array([{"a": 1}, None], FEW),
    "map": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int8())),
    "dense union": pa.UnionArray.from_dense(
        pa.array([0, 1], pa.int8()), pa.array([0, 0], pa.int32()), [pa.array([1]), pa.array(["x"])]
    ),
    "sparse union": pa.UnionArray.from_sparse(
        pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["x", "y"])]
    ),
    **{
        f"duration {unit}": pa.array([-(2**63), 2**63 - 1]).view(pa.duration(unit))
        for unit in TICKS
    },
    "interval": pa.array([(1, 2, 3), None], pa.month_day_nano_interval()),
    "unheard": pa.ExtensionArray.from_storage(Unheard(), pa.array([1, None])),
    "codes of lists": pa.DictionaryArray.from_arrays([0, None], pa.array([[1], None])),
    "runs of durations": pa.RunEndEncodedArray.from_arrays(
        pa.array([2], pa.int32()), pa.array([1], pa.duration("s"))
    ),
}
REFUSED_IN_PARQUET = [
    name for name in REFUSED if "list" in name or name.startswith(("struct", "map", "duration"))
]
REFUSED_IN_PARQUET.remove("codes of lists")
