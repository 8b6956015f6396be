"""Frames of every library: each entry read by itself, each error in words and without an entry."""

import datetime
import enum
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.engines import as_source
from psephos.engines.frames import as_table
from psephos.errors import PsephosError


class Colour(str, enum.Enum):  # noqa: UP042 - which shows itself as Colour.RED
    RED = "red"


class Silent:
    def __str__(self):
        raise RuntimeError("secret")


ENTRIES = [
    *["a", "", "7", "\ud800", np.str_("f"), Colour.RED],
    *[b"b", b"\xff", bytearray(b"c"), memoryview(b"d"), np.bytes_(b"e")],
    *[None, float("nan"), np.float32("nan"), Decimal("NaN"), Decimal("sNaN"), pd.NA, pd.NaT],
    *[np.datetime64("NaT"), np.timedelta64("NaT"), complex("nan")],
    *[1, 1.0, True, np.int64(3), Decimal("1.0"), 10**5000, [1], (), {}, np.array("z")],
    *[datetime.date(2020, 1, 2), pd.Timestamp(0), pa.scalar("x"), Silent()],
]


def texts(entries):
    column = as_table(pd.DataFrame({"a": pd.Series(entries, dtype=object)})).column("a")
    return column.cast(pa.large_binary()).to_pylist()


@pytest.mark.parametrize("place", range(len(ENTRIES)))
def test_an_entry_reads_the_same_beside_any_other(place):
    entry = ENTRIES[place]
    alone = texts([entry])
    assert all(texts([entry, other])[:1] == alone for other in ENTRIES)


def test_what_an_entry_of_no_single_type_reads_as():
    entries = [Colour.RED, b"x", 7, 7.5, True, Decimal("1.50"), "\ud800", Silent(), float("nan")]
    expected = [b"red", b"x", b"7", b"7.5", b"True", b"1.50", b"\xed\xa0\x80", None, None]
    assert texts(entries) == expected


FRAMES = {
    "periods": pd.DataFrame({"a": pd.period_range("2020-01", periods=2, freq="M")}),
    "intervals": pd.DataFrame({"a": pd.interval_range(0, 2)}),
    "sparse": pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}),
    "complex": pd.DataFrame({"a": [1j, 2]}),
    "categories": pd.DataFrame({"a": pd.Categorical([b"\xff", None])}),
    "pairs": pd.DataFrame({"a": pd.MultiIndex.from_tuples([(1, 2), (3, 4)]).to_flat_index()}),
    "128 bits": pl.DataFrame({"a": pl.Series([2**100, None], dtype=pl.Int128)}),
    "objects": pl.DataFrame({"a": pl.Series([Silent(), 1], dtype=pl.Object)}),
    "null": pl.DataFrame({"a": [None, None]}),
    "enum": pl.DataFrame({"a": pl.Series(["x", None], dtype=pl.Enum(["x"]))}),
    "decimal": pl.DataFrame({"a": pl.Series([Decimal("1"), None], dtype=pl.Decimal(38, 2))}),
    "codes": pa.table({"a": pa.DictionaryArray.from_arrays([5, None], ["x"], safe=False)}),
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames_that_arrow_does_not_hold_are_counted_by_their_texts(name):
    domain = Domain.of(a=Attribute.categories(["x", None]).with_unknown("other"))
    assert as_source(FRAMES[name]).count(domain, ("a",), (), None).sum() == 2


def test_texts_of_types_that_arrow_does_not_have():
    domain = Domain.of(a=["2020-01", "2020-02"])
    assert as_source(FRAMES["periods"]).count(domain, ("a",), (), None).tolist() == [1, 1]
    domain = Domain.of(a=[2**100, None])
    assert as_source(FRAMES["128 bits"]).count(domain, ("a",), (), None).tolist() == [1, 1]


class Untold:
    def __str__(self):
        raise RuntimeError("secret")

    def __hash__(self):
        return 1


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame([["secret"]], columns=pd.Index(["\ud800"], dtype=object)),
        pd.DataFrame([["secret"]], columns=[Untold()]),
        pd.Series(["secret"]),
        pl.Series(["secret"]),
        pa.array(["secret"]),
        pa.record_batch({"a": ["secret"]}),
        {"a": ["secret"]},
        pl.LazyFrame({"a": ["secret"]}),
        np.array([["secret"]]),
        None,
    ],
    ids=lambda frame: type(frame).__name__,
)
def test_a_frame_that_cannot_be_opened_is_refused_in_words(frame):
    with pytest.raises(PsephosError) as caught:
        as_source(frame)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert "secret" not in str(caught.value)
    assert "; write " in str(caught.value)


def test_a_column_that_nobody_needs_does_no_harm():
    table = pa.table(
        {"a": ["x", None], "lists": [[1], [2]], "times": pa.nulls(2, pa.duration("s"))}
    )
    for frame in (table, pl.from_arrow(table)):
        assert as_source(frame).count(Domain.of(a=["x"]), (), (), None) == 1
