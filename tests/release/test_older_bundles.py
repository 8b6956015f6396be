"""Bundles of formats that are not read any more: what was paid for them is not lost.

The archive holds a release of made-up people that measured every cell, with its ledger, in a format
of an early version.
"""

import json
import tarfile
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import psephos as ps
from psephos.release.bundle.requests import BUNDLE_FORMAT

ARCHIVE = Path(__file__).parent / "older_bundle.tar.xz"


@pytest.fixture
def old(tmp_path):
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "job"


def test_they_are_refused_with_the_remedy(old):
    assert json.loads((old / "bundle/manifest.json").read_text())["format"] == 3
    remedy = f"has format 3, and this psephos reads {BUNDLE_FORMAT}; `psephos release` writes it"
    with pytest.raises(ps.ReleaseError, match=remedy):
        ps.verify(old / "bundle")
    with pytest.raises(ps.ReleaseError, match=remedy):
        ps.ask(old / "bundle", "SELECT COUNT(*) FROM people")


def test_what_was_paid_is_written_anew_without_a_charge(old):
    (old / "bundle").rename(old / "before")
    paid = pq.read_table(old / "before/requests/1/measurements.parquet")["value"].to_pylist()
    ledger = ps.Ledger.open(old / "people.ledger")
    before = ledger.spent()
    bundle = ps.release(old / "release.toml", unchecked=True)
    assert ledger.spent() == before
    assert bundle.measurement.values.tolist() == paid
    assert bundle.manifest["format"] == BUNDLE_FORMAT
    assert bundle.manifest["interval"]["method"] == "computed"
    assert bundle.views.widths.per_query.max() == pytest.approx(49, abs=1e-6)
    assert ps.verify(bundle.path, ledger=old / "people.ledger").ok


def test_other_formats_are_refused_by_their_number(old):
    place = old / "bundle" / "manifest.json"
    for number in (1, BUNDLE_FORMAT + 1):
        place.write_text(json.dumps({**json.loads(place.read_text()), "format": number}))
        with pytest.raises(ps.ReleaseError, match=f"has format {number}, and this psephos reads"):
            ps.verify(old / "bundle")
