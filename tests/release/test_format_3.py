"""Bundles that psephos 0.2 wrote: their half-widths were simulated where they are computed now.

The archive holds a release of made-up people that measures every cell, with the ledger.
"""

import json
import tarfile
from pathlib import Path

import pytest

import psephos as ps
from psephos.release.bundle import Bundle

ARCHIVE = Path(__file__).parent / "format_3.tar.xz"


@pytest.fixture
def old(tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "job"


def test_they_verify(old):
    assert json.loads((old / "bundle/manifest.json").read_text())["format"] == 3
    verification = ps.verify(old / "bundle", ledger=old / "people.ledger")
    assert verification.ok, str(verification)


def test_their_widths_are_those_of_their_time(old):
    bundle = Bundle.open(old / "bundle")
    assert bundle.manifest["interval"]["method"] == bundle.views.widths.method == "simulated"
    assert 49 < bundle.views.widths.per_query.max() < 49.2  # the sum of 80 cells, clipped


def test_the_same_release_written_today_is_computed(old):
    (old / "bundle").rename(old / "before")
    bundle = ps.release(old / "release.toml", unchecked=True)
    assert bundle.manifest["format"] == 8
    assert bundle.manifest["interval"]["method"] == "computed"
    assert bundle.views.widths.per_query.max() == pytest.approx(49, abs=1e-6)
    assert ps.verify(bundle.path, ledger=old / "people.ledger").ok
