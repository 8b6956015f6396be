"""Open bins in words, and missing and undeclared entries outside of CDFs and curves."""

import pyarrow as pa
import pytest

from psephos.engines import as_source
from psephos.errors import ReleaseError
from psephos.release.preflight.checks import create_ledger
from psephos.release.run import release
from psephos.release.spec.file import parse_release
from psephos.release.spec.job import Job
from psephos.release.verify.verify import verify
from psephos.release.views.layout import cross_tables
from psephos.report.drawn_numbers import DrawnNumbers
from psephos.report.table_charts import chart_of
from tests.release.conftest import RELEASE, people, write_job

ASKED = (
    RELEASE[: RELEASE.index("[[tables]]")]
    .replace("zeros =", "# zeros =")
    .replace(
        "integers = [0, 19]\nlevels = { broad = [0, 6, 12] }",
        'bins = [0, 6, 12, inf]\nmissing = "not stated"\nlevels = { broad = [0, 6] }',
    )
    + """
[[tables]]
name = "cdf"
queries = { age = "prefix" }

[[tables]]
name = "groups"
rows = ["age.broad"]

[selection]
strategy = "identity"
"""
)


@pytest.fixture
def job(tmp_path):
    place = write_job(tmp_path / "job", ASKED, people(extra=",cat\n,dog\n"))
    return Job.read(place)


def test_a_cdf_runs_over_the_values_alone(job):
    create_ledger(job)
    bundle = release(job, unchecked=True)
    assert verify(bundle.path).ok
    cdf, groups = (bundle.table(name, "published") for name in ("cdf", "groups"))
    assert cdf["age"].to_pylist() == ["below 6", "below 12", "all numbers", "not stated"]
    counts = cdf["count"].to_pylist()
    assert abs(counts[2] - 600) < 100
    assert abs(counts[3] - 2) < 60
    assert groups["age"].to_pylist() == ["[0, 6)", "6 and over", "not stated", "total"]
    assert bundle.plot("cdf") is not None


def test_curves_leave_out_what_has_no_place_on_them(job):
    labels = ["below 6", "below 12", "all numbers", "not stated"]
    data = pa.table({"age": labels, "count": [1, 2, 3, 4]})
    (cross,) = cross_tables(job, job.tables[0], data)
    cells = DrawnNumbers.of(cross)
    assert [cells.labels(i) for i in range(len(cells.value))] == labels[:3]
    assert ">not stated<" not in chart_of([cross], "cdf", "").svg


def test_dates_in_a_release_file(tmp_path):
    text = (
        RELEASE[: RELEASE.index("[schema.age]")].replace("zeros =", "# zeros =")
        + """
[schema.born]
dates = ["1999-12-30", 2001-01-02]
levels = { month = "month", year = "year" }
missing = "not stated"
unknown = "other"

[[tables]]
name = "years"
rows = ["born.year"]

[[tables]]
name = "months of 2000"
sql = "SELECT MONTH(born), COUNT(*) FROM t WHERE YEAR(born) = 2000 GROUP BY 1"

[[tables]]
name = "until"
queries = { born = "prefix" }

[selection]
strategy = "identity"
"""
    )
    days = ["2000-02-29 10:00", "2000-12-31", "1999-12-31", "1970-01-01", "", "x"]
    place = write_job(tmp_path / "job", text, "born\n" + "\n".join(days) + "\n")
    (tmp_path / "job" / "people.csv").write_text("born,x\n" + ",\n".join(days) + ",\n")
    job = Job.read(place)
    assert as_source(job.data).count(job.domain, ("born",), (), None)[-2:].tolist() == [1, 2]
    create_ledger(job)
    bundle = release(job, unchecked=True)
    assert verify(bundle.path).ok
    years = bundle.table("years", "published")["born"].to_pylist()
    assert years == ["1999", "2000", "2001", "not stated", "(other)", "total"]
    assert bundle.table("months of 2000", "published").num_rows == 12
    until = bundle.table("until", "published")["born"].to_pylist()
    assert until[0] == "up to 1999-12-30"
    assert until[-2:] == ["not stated", "(other)"]


@pytest.mark.parametrize(
    ("dates", "words"),
    [
        ('["1999", "2001"]', 'schema.born.dates[1]: a day is written "1920-01-31"'),
        ('["1999-12-30"]', "schema.born.dates"),
        ("[5, 6]", 'a day is written "1920-01-31" (year, month, day), got 5'),
        ('"1999"', "must be a list, such as dates = ["),
        ('["2001-01-01", "1999-12-30"]', "write the first day first"),
    ],
)
def test_mistakes_in_dates_name_their_place(dates, words):
    text = RELEASE.replace("[schema.age]", f"[schema.born]\ndates = {dates}\n[schema.age]")
    with pytest.raises(ReleaseError) as caught:
        parse_release(text).domain()
    assert words in str(caught.value)
