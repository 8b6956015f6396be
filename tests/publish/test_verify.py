"""Verification: every change to a bundle is found, by the check that it concerns."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import psephos as ps
from psephos.publish.bundle import sha256_of
from psephos.publish.job import Job
from psephos.publish.release import create_ledger, release
from psephos.publish.verify import verify
from tests.publish.conftest import RELEASE, write_job


@pytest.fixture
def bundle(release_path):
    return release(release_path)


def failed(path, **options):
    return {check.name for check in verify(path, **options).checks if not check.ok}


def rewrite(path, change):
    """Change a column `count` or `value` of a Parquet file."""
    table = pq.read_table(path)
    name = "value" if "value" in table.column_names else "count"
    column = table[name].to_numpy().copy()
    change(column)
    at = table.column_names.index(name)
    pq.write_table(table.set_column(at, name, pa.array(column)), path)


def resign(bundle):
    """What a forger would do: bring the manifest's hashes up to date."""
    place = bundle.path / "manifest.json"
    manifest = json.loads(place.read_text())
    manifest["files"] = {name: sha256_of(bundle.path / name) for name in manifest["files"]}
    place.write_text(json.dumps(manifest))


def test_a_whole_bundle_verifies_and_says_what_it_cannot_show(bundle):
    found = verify(bundle.path)
    assert found.ok
    assert "cannot be shown: that the noisy integers came from the data" in str(found)


@pytest.mark.parametrize(
    "name", ["release.json", "receipt.json", "strategy.npz", "report.html", "raw/block-1.csv"]
)
def test_any_changed_file_is_named(bundle, name):
    with (bundle.path / name).open("ab") as file:
        file.write(b" ")
    found = verify(bundle.path)
    assert not found.ok
    assert name in str(found)


def test_missing_and_added_files_are_named(bundle):
    (bundle.path / "report.html").unlink()
    (bundle.path / "note.txt").write_text("hello")
    text = verify(bundle.path).checks[0].text
    assert "report.html is missing" in text
    assert "note.txt is not in the manifest" in text


def add(amount, at=0):
    def change(column):
        column[at] += amount

    return change


@pytest.mark.parametrize(
    ("name", "amount", "wrong"),
    [
        ("measurements.parquet", 1, {"receipt", "raw view", "consistent view"}),
        ("raw/block-1.parquet", 1, {"raw view"}),
        ("consistent/pets.parquet", 1e-3, {"consistent view"}),
        ("published/pets.parquet", 1, {"published view"}),
        ("published/cells.parquet", 1, {"published view"}),
    ],
)
def test_forged_numbers_are_found_behind_good_hashes(bundle, name, amount, wrong):
    rewrite(bundle.path / name, add(amount))
    resign(bundle)
    assert wrong <= failed(bundle.path) <= wrong | {"published view"}


def test_zeros_and_signs_of_the_cells_are_checked(bundle):
    zeros = np.flatnonzero(bundle.job.zeros)
    rewrite(bundle.path / "published/cells.parquet", add(1, zeros[0]))
    resign(bundle)
    assert "no row can lie in" in str(verify(bundle.path))
    rewrite(bundle.path / "published/cells.parquet", add(-(10**6)))
    resign(bundle)
    assert "non-negative" in str(verify(bundle.path))


def test_a_smaller_charge_than_the_noise_is_found(bundle):
    place = bundle.path / "receipt.json"
    receipt = json.loads(place.read_text())
    receipt["charge"]["cost"][1] = "3/4"
    place.write_text(json.dumps(receipt))
    resign(bundle)
    assert failed(bundle.path) == {"receipt"}


def test_the_ledger_knows_the_charge(bundle, tmp_path):
    ledger = bundle.path.parent / "people.ledger"
    assert verify(bundle.path, ledger=ledger).ok
    other = write_job(tmp_path / "other", RELEASE)
    create_ledger(Job.read(other))
    assert failed(bundle.path, ledger=tmp_path / "other" / "people.ledger") == {"ledger"}


def test_what_is_no_bundle_is_refused(tmp_path, bundle):
    with pytest.raises(ps.ReleaseError, match="there is no bundle at"):
        verify(tmp_path / "nowhere")
    (bundle.path / "manifest.json").write_text("{")
    with pytest.raises(ps.ReleaseError, match="is damaged"):
        verify(bundle.path)
