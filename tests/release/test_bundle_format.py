"""The format of bundles: one that was written once is read as long as docs/releases.md promises.

The archive holds two releases of made-up people, the second built on the first, with their ledger.
`python -m tests.release.test_bundle_format` writes it, once for every format.
"""

import re
import tarfile
import tempfile
from pathlib import Path

import pytest

import psephos as ps
from psephos.release.bundle.bundle import Bundle
from psephos.release.bundle.requests import BUNDLE_FORMAT, ManifestShape
from psephos.release.preflight.checks import check_release, create_ledger
from psephos.release.run import release
from psephos.release.spec.job import Job
from tests.release.conftest import RELEASE, write_job

ARCHIVE = Path(__file__).parent / f"bundle_{BUNDLE_FORMAT}.tar.xz"
DOCS = Path(__file__).parents[2] / "docs" / "releases.md"
MORE = """
[[tables]]
name = "median age"
statistic = "median"
of = "age"
by = ["pet"]

[[tables]]
name = "curve"
queries = { age = "prefix" }

[synthetic]
"""
OUTPUT = '\n[output]\nformats = ["csv", "parquet", "datapackage", "jsonstat"]\n'
SECOND = 'name = "more pets"\nbuilds_on = ["bundle"]'


def write_archive():
    with tempfile.TemporaryDirectory() as folder:
        place = write_job(Path(folder) / "job", RELEASE + MORE + OUTPUT)
        job = Job.read(place)
        create_ledger(job)
        assert check_release(job).ok
        release(place)
        second = place.with_name("second.toml")
        text = RELEASE.replace('name = "pets"', SECOND, 1) + MORE + OUTPUT
        second.write_text(text + 'bundle = "second"\n')
        release(second, unchecked=True)
        with tarfile.open(ARCHIVE, "w:xz") as archive:
            archive.add(place.parent, "job")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "job"


@pytest.mark.parametrize(("name", "past"), [("bundle", 0), ("second", 1)])
def test_it_verifies(written, name, past):
    assert Bundle.open(written / name).manifest["format"] == BUNDLE_FORMAT
    found = ps.verify(written / name, ledger=written / "people.ledger")
    assert found.ok, str(found)
    assert len(Bundle.open(written / name).job.past) == past


def test_it_answers(written):
    reply = ps.ask(
        written / "second", "SELECT pet, COUNT(*) FROM people WHERE age < 6 GROUP BY pet"
    )
    assert reply.table.num_rows == 4


def test_it_is_built_on(written):
    text = RELEASE.replace('name = "pets"', 'name = "third"\nbuilds_on = ["second"]', 1)
    place = written / "third.toml"
    place.write_text(text + '\n[output]\nbundle = "third"\n')
    bundle = release(place, unchecked=True)
    assert [request.name for request in bundle.job.past] == ["pets", "more pets"]
    assert ps.verify(bundle.path, ledger=written / "people.ledger").ok


def test_every_key_of_the_manifest_is_described():
    section = DOCS.read_text(encoding="utf-8").split("### The manifest")[1].split("\n#")[0]
    keys = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert sorted(keys) == sorted(ManifestShape.model_fields)
    assert f"This is format {BUNDLE_FORMAT}." in section


if __name__ == "__main__":
    write_archive()
