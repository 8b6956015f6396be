"""The owner's check reads columns together, and tells the same as if it read each by itself."""

import pyarrow as pa
import pyarrow.csv
import pytest

import psephos as ps
from psephos.engines.duckdb.reader import OpenState
from psephos.owner import check as owner_check
from psephos.owner.check import check

ROWS = 40
TABLE = pa.table(
    {
        "sex": ["F", "M", None, "x"] * 10,
        "age": [str(i) if i % 9 else "old" for i in range(ROWS)],
        "income": [float(i * 40) for i in range(ROWS)],
        "region": ["north", "south"] * 20,
        "flag": [True, False] * 20,
        "empty": pa.array([None] * ROWS, type=pa.string()),
    }
)
DOMAIN = ps.Domain.of(
    {
        "sex": ["F", "M"],
        "age": ps.Attribute.integers(0, 30).with_unknown("other"),
        "income": ps.Attribute.bins([0, 500, 1000]),
        "region": ["north", "south", "east"],
        "flag": [False, True],
        "empty": ps.Attribute.categories(["a", "b"]).with_unknown("other"),
    }
)


def sources(folder):
    place = folder / "people.csv"
    pa.csv.write_csv(TABLE, place)
    return {"csv": str(place), "arrow": TABLE, "pandas": TABLE.to_pandas()}


@pytest.mark.parametrize("source", ["csv", "arrow", "pandas"])
def test_what_is_told_does_not_depend_on_which_columns_are_read_together(
    tmp_path, monkeypatch, source
):
    data = sources(tmp_path)[source]
    reports = []
    for number in (1, 2, 4, 100):
        monkeypatch.setattr(owner_check, "COLUMNS_AT_ONCE", number)
        reports.append(str(check(data, DOMAIN, left_out=["income"])))
    assert len(set(reports)) == 1
    assert "40 rows, of which 13 have a cell" in reports[0]
    for words in ("'x' (10)", "10 rows with missing entries are dropped", "above 1000", "east"):
        assert words in reports[0], reports[0]


def test_columns_that_drop_no_row_are_read_once(monkeypatch):
    """What is counted at last needs only those that do, and all rows count where none does."""
    reads = []
    read = OpenState.read

    def noted(self, needed, work, **options):
        reads.append(tuple(needed))
        return read(self, needed, work, **options)

    monkeypatch.setattr(OpenState, "read", noted)
    good = DOMAIN.project(["region", "flag"])
    assert check(TABLE, good).counted == ROWS
    assert reads == [(), ("region", "flag")]
    reads.clear()
    some = DOMAIN.project(["sex", "region", "flag"])
    assert check(TABLE, some).counted == 20
    assert reads == [(), ("sex", "region", "flag"), ("sex",), ("sex",)]


def test_a_table_without_rows():
    report = check(TABLE.slice(0, 0), DOMAIN.project(["sex", "region"]))
    assert (report.rows, report.counted) == (0, 0)
    assert str(report).count("declared and never there") == 2
