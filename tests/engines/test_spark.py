"""Tables of Spark, in a session of the tests' own: what is read, refused and logged."""

import datetime
import decimal
import os
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import psephos as ps
from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.engines import SparkTable, as_engine, as_source, in_one_state
from psephos.errors import DomainError, SourceError
from psephos.kernel.unit import Cap
from psephos.owner.check import check
from tests.engines.spark_session import ROWS, spark, spark_frame, spark_table

AGE = Domain.of(age=Attribute.integers(0, 3))


def test_what_is_no_table_of_spark_is_refused():
    with pytest.raises(DomainError, match=r"written \"database\.table\""):
        SparkTable(3)


pytestmark = pytest.mark.slow


def copies():
    import tempfile

    return [
        name
        for name in os.listdir(tempfile.gettempdir())
        if re.match("psephos-spark-(?!tests)", name)
    ]


def test_frames_and_names_are_sources_and_leave_nothing_behind(tmp_path):
    before = copies()
    frame = spark_frame(ROWS, tmp_path)
    unit, budget = ps.add_remove_row(), ps.epsilon("100")
    ps.Ledger.create(tmp_path / "l", dataset="d", unit=unit, budget=budget)
    protected = ps.protect(frame, AGE, ledger=tmp_path / "l")
    (number,) = protected.noisy_count(spend=ps.epsilon("100")).values
    assert number == 3
    table = SparkTable(spark_table("people", ROWS, tmp_path), needed=["age"])
    assert as_source(table).count(AGE, ("age",), (), None).tolist() == [0, 1, 2, 0]
    assert check(table, AGE).rows == 3
    assert sorted(copies()) == sorted(before)


def test_entries_are_read_as_their_types_say(tmp_path, capfd):
    """The session is in Tokyo; times are instants, and read in UTC."""
    moment = datetime.datetime(
        2020, 2, 29, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=9))
    )
    table = pa.table(
        {
            "moment": pa.array([moment, None, None], pa.timestamp("us", "UTC")),
            "day": pa.array([datetime.date(2020, 2, 29), datetime.date(1, 1, 1), None]),
            "exact": pa.array([decimal.Decimal("7.50"), None, decimal.Decimal("7.49")]),
            "real": [7.0, float("nan"), 1e20],
            "small": pa.array([7, 8, 8], pa.int8()),
            "text": ["7.0", "NaN", "x"],
            "pets": [["secret"], None, None],
        }
    )
    source = as_source(spark_frame(table, tmp_path))
    values = {
        "moment": Attribute.dates("2020-02-28", "2020-02-29"),
        "day": Attribute.dates("2020-02-28", "2020-02-29"),
        "exact": Attribute.bins([7, 7.5, 8]),
        "real": Attribute.bins([0, 7, 8, 1e21]),
        "small": Attribute.integers(7, 8),
        "text": Attribute.integers(7, 8),
    }
    counts = {
        name: source.count(Domain.of(**{name: kind}), (name,), (), None).tolist()
        for name, kind in values.items()
    }
    local = as_source(table)
    for name, kind in values.items():
        plain = local.count(Domain.of(**{name: kind}), (name,), (), None).tolist()
        assert counts[name] == plain, name
    assert counts["moment"] == [1, 0]
    assert counts["real"] == [0, 1, 1]
    with pytest.raises(DomainError, match="column 'pets' is of type"):
        source.count(Domain.of(pets=["a"]), (), (), None)
    assert "secret" not in "".join(capfd.readouterr())


def test_padded_text_comes_without_its_blanks(tmp_path):
    spark().sql("DROP TABLE IF EXISTS padded")
    spark().sql("CREATE TABLE padded (sex CHAR(3), name VARCHAR(3)) USING parquet")
    spark().sql("INSERT INTO padded VALUES ('F', 'a '), ('M', 'b')")
    domain = Domain.of(sex=["F", "M"], name=["a ", "b"])
    assert as_source(SparkTable("padded")).count(domain, ("sex",), (), None).tolist() == [1, 1]
    assert as_source(SparkTable("default.padded")).count(domain, (), (), None) == 2
    spark().sql("DROP TABLE padded")


def test_a_cast_that_fails_on_an_entry_is_told_and_logged_without_it(tmp_path, capfd):
    spark_table("people", ROWS, tmp_path)
    frame = spark().sql("SELECT age, CAST(who AS INT) AS who FROM people")
    settings = spark().conf.get("spark.sql.parquet.outputTimestampType")
    source = as_source(frame)
    with pytest.raises(SourceError, match="could not be counted") as caught:
        source.count(AGE, (), (), Cap("who", 1))
    assert caught.value.__cause__ is caught.value.__context__ is None
    with (
        pytest.raises(SourceError, match="Spark could not read the DataFrame"),
        in_one_state(frame),
    ):
        pass
    report = check(frame, AGE)
    assert not report.ok
    written = "".join(capfd.readouterr())
    assert "secret" not in str(caught.value) + str(report) + written
    assert "CAST_INVALID_INPUT" not in written
    assert spark().conf.get("spark.sql.parquet.outputTimestampType") == settings
    # A column that nobody needs is not computed.
    assert as_source(SparkTable(frame, needed=["age"])).count(AGE, (), (), None) == 3


def test_what_is_not_there_is_named(tmp_path):
    spark()
    with pytest.raises(SourceError, match=r"no table or view 'peopel'.*correct the name") as caught:
        as_source(SparkTable("peopel"))
    assert caught.value.__context__ is None
    frame = spark_frame(ROWS, tmp_path)
    with pytest.raises(DomainError, match="no column 'Age'; close to it: 'age'"):
        as_source(frame).count(Domain.of(Age=2), (), (), None)
    with (
        pytest.raises(SourceError, match=r"no folder 'none'.*make it"),
        in_one_state(SparkTable(frame, folder=tmp_path / "none")),
    ):
        pass


def test_a_table_written_to_meanwhile_is_one_state(tmp_path):
    place = tmp_path / "rows"
    spark_frame(ROWS, tmp_path).write.parquet(str(place))
    with in_one_state(spark().read.parquet(str(place))) as held:
        counts = [int(held.count(AGE, (), (), None))]
        for file in place.glob("*.parquet"):
            pq.write_table(pa.concat_tables([ROWS] * 9), file)
        counts += [int(held.count(AGE, names, (), None).sum()) for names in ((), ("age",))]
        assert check(held, AGE).rows == 3
    assert counts == [3, 3, 3]


def test_no_rows_are_no_rows(tmp_path):
    frame = spark_frame(ROWS, tmp_path).limit(0)
    assert as_source(frame).count(AGE, ("age",), (), None).tolist() == [0] * 4


def test_frames_that_are_engines_show_nothing(tmp_path):
    assert repr(as_engine(spark_frame(ROWS, tmp_path))) == "SparkTable()"
