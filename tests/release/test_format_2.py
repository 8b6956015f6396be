"""Bundles that psephos 0.1 wrote: they verify, answer and are built on like those of today.

The archive holds a release and a second one that builds on it, of made-up people, with the ledger.
"""

import json
import shutil
import tarfile
from pathlib import Path

import pytest

import psephos as ps
from psephos.release.bundle import Bundle
from tests.release.conftest import RELEASE

ARCHIVE = Path(__file__).parent / "format_2.tar.xz"


@pytest.fixture
def old(tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "job"


@pytest.mark.parametrize(("name", "requests"), [("bundle", 1), ("second", 2)])
def test_they_verify(old, name, requests):
    assert json.loads((old / name / "manifest.json").read_text())["format"] == 2
    found = ps.verify(old / name, ledger=old / "people.ledger")
    assert found.ok, str(found)
    bundle = Bundle.open(old / name)
    assert len(bundle.job.past) == requests - 1
    assert len(bundle.requests) == 1


def test_they_answer(old):
    reply = ps.ask(old / "second", "SELECT pet, COUNT(*) FROM people GROUP BY pet")
    assert reply.table.num_rows == 4


def test_they_are_built_on(old):
    text = RELEASE.replace('name = "pets"', 'name = "third"\nbuilds_on = ["second"]', 1)
    place = old / "third.toml"
    place.write_text(text + '\n[output]\nbundle = "third"\n')
    bundle = ps.release(place, unchecked=True)
    assert bundle.manifest["format"] == 8
    assert [request.name for request in bundle.job.past] == ["pets", "more pets"]
    assert ps.verify(bundle.path, ledger=old / "people.ledger").ok


def test_the_same_release_is_replayed_from_its_ledger(old):
    """What was asked keeps its name from version to version, so nothing is charged again."""
    values = Bundle.open(old / "bundle").measurement.values
    shutil.rmtree(old / "bundle")
    ledger = ps.Ledger.open(old / "people.ledger")
    before = ledger.spent()
    again = ps.release(old / "release.toml", unchecked=True)
    assert (again.measurement.values == values).all()
    assert ledger.spent() == before


def test_a_manifest_that_says_more_is_damaged(old):
    place = old / "second" / "past/1/manifest.json"
    place.write_text(json.dumps({**json.loads(place.read_text()), "title": "more"}))
    with pytest.raises(ps.ReleaseError, match="is damaged: 'title' does not belong there"):
        ps.verify(old / "second")


@pytest.mark.parametrize(
    ("file", "change"),
    [
        ("past/1/manifest.json", {"name": "other"}),
        ("past/1/receipt.json", {"dataset": "others"}),
        ("manifest.json", {"key": "release pets 0"}),
    ],
)
def test_forgeries_are_found(old, file, change):
    place = old / "second" / file
    place.write_text(json.dumps({**json.loads(place.read_text()), **change}))
    assert not ps.verify(old / "second").ok


def test_other_formats_are_told_by_version(old):
    place = old / "bundle" / "manifest.json"
    for number in (1, 9):
        content = json.loads(place.read_text())
        place.write_text(json.dumps({**content, "format": number}))
        with pytest.raises(ps.ReleaseError, match=rf"has format {number}, .*from psephos 0\.3 on"):
            ps.verify(old / "bundle")
