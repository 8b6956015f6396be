"""Open bins in words, and missing and undeclared entries outside of CDFs and curves."""

import pyarrow as pa
import pytest

from psephos.release.preflight import create_ledger
from psephos.release.request import Job, in_order
from psephos.release.run import release
from psephos.release.verify import verify
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
    shown = in_order(job, job.tables[0], data)
    assert shown["age"].to_pylist() == labels[:3]


def test_bundles_of_released_versions_are_read_in_their_words(job):
    old = Job.alone(job.file, job.folder, old=True)
    queries = old.workload.products[0].items[0][1]
    attribute = old.workload.domain["age"]
    assert queries.labels(attribute) == ["below 6", "below 12", "below inf", "up to not stated"]
    assert queries.matrix(attribute).dense().sum() == 10
    assert attribute.level("broad").labels == ("[0, 6)", "[6, inf)", "not stated")
    assert queries == job.workload.products[0].items[0][1]  # what it is called did not change
