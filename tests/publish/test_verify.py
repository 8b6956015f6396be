"""Verification: every change to a bundle is found, by the check that it concerns."""

import hashlib
import json
import shutil
from dataclasses import asdict

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import psephos as ps
from psephos.kernel.measurement import pack
from psephos.publish.bundle import Bundle, distance
from psephos.publish.disk import sha256_of
from psephos.publish.job import Job
from psephos.publish.release import create_ledger, release
from psephos.publish.verify import verify
from tests.publish.conftest import RELEASE, write_job


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One release, made once; every test tampers with a copy of it."""
    place = write_job(tmp_path_factory.mktemp("verify") / "job")
    create_ledger(Job.read(place))
    return release(place)


@pytest.fixture
def bundle(made, tmp_path):
    shutil.copytree(made.path.parent, tmp_path / "job")
    return Bundle.open(tmp_path / "job" / "bundle")


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
    "name", ["release.json", "receipt.json", "strategy.bin", "report.html", "raw/block-1.csv"]
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
    assert "note.txt does not belong here" in text


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
    receipt["charge"]["booked"][1] = "3/4"
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


# ---- forgers who bring the hashes up to date ---------------------------------------------------


def edit(bundle, name, change):
    """Change a JSON file of the bundle."""
    place = bundle.path / name
    content = json.loads(place.read_text())
    change(content)
    place.write_text(json.dumps(content))


def edit_csv(bundle):
    place = bundle.path / "consistent" / "pets.csv"
    place.write_text(place.read_text().replace("cat", "cow"))


def forged_throughout(bundle):
    """Other integers, with a receipt made to match them."""
    count = len(bundle.measurement.values)
    rewrite(bundle.path / "measurements.parquet", lambda column: column.fill(1000))
    mark = hashlib.sha256(bytes(pack(np.full(count, 1000)))).hexdigest()
    edit(bundle, "receipt.json", lambda r: r["charge"].update(values_hash=mark))


def people_moved(bundle):
    """Two hundred people in another cell, and all that follows from it in every published file."""
    cells = pq.read_table(bundle.path / "published/cells.parquet")["count"].to_numpy().copy()
    cells[np.argmax(cells)] += 200
    views = bundle.views
    published = views.counted(cells)
    pq.write_table(pa.table({"count": cells}), bundle.path / "published/cells.parquet")
    for table in bundle.job.tables:
        name = bundle.path / "published" / table.name
        made = views.table(table, "published", published)
        pq.write_table(made, name.with_suffix(".parquet"))
        pa_csv.write_csv(made, name.with_suffix(".csv"))
    shifts = [[asdict(s) for s in views.shifts(t, published)] for t in bundle.job.tables]

    def follow(manifest):
        manifest["distance"] = distance(views, published)
        for entry, own in zip(manifest["tables"], shifts, strict=True):
            entry["shifts"] = own

    edit(bundle, "manifest.json", follow)


def charged(*cost):
    return lambda b: edit(b, "receipt.json", lambda r: r["charge"].update(booked=list(cost)))


def said(**changes):
    return lambda b: edit(b, "manifest.json", lambda m: m.update(changes))


FORGERIES = {
    "a label in a CSV": (edit_csv, "consistent view"),
    "a view left out": (said(views=["raw"]), "request"),
    "one count that is no number": (
        lambda b: rewrite(b.path / "consistent/pets.parquet", add(np.nan)),
        "consistent view",
    ),
    "a smaller charge": (charged("epsilon", "1/9"), "receipt"),
    "another currency": (charged("rho", "1/2"), "receipt"),
    "another budget asked": (
        lambda b: edit(b, "release.json", lambda r: r["budget"].update(epsilon="0.1")),
        "request",
    ),
    "zeros dropped": (lambda b: edit(b, "release.json", lambda r: r.pop("zeros")), "request"),
    "another ledger's budget": (
        lambda b: edit(b, "receipt.json", lambda r: r.update(budget=["epsilon", "9"])),
        "request",
    ),
    "a shift that is not": (
        lambda b: edit(
            b, "manifest.json", lambda m: m["tables"][0]["shifts"][0].update(mean=1234.5)
        ),
        "published view",
    ),
    "a distance that is not": (
        lambda b: edit(b, "manifest.json", lambda m: m["distance"].update(in_standard_errors=0.1)),
        "published view",
    ),
    "people moved between cells": (people_moved, "published view"),
    "another noise": (said(noise="gaussian"), "request"),
    "another strategy": (said(strategy="OPT_X"), "request"),
    "another title": (said(title="The truth"), "request"),
    "more draws claimed": (
        lambda b: edit(b, "manifest.json", lambda m: m["interval"].update(draws=10**6)),
        "request",
    ),
    "a second manifest": (lambda b: (b.path / "raw/manifest.json").write_text("{}"), "files"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_what_a_forger_signs_again_is_found(bundle, name):
    change, wrong = FORGERIES[name]
    change(bundle)
    resign(bundle)
    assert wrong in failed(bundle.path)


def test_a_link_to_elsewhere_is_found(bundle, tmp_path):
    place = bundle.path / "report.html"
    place.rename(tmp_path / "elsewhere.html")
    place.symlink_to(tmp_path / "elsewhere.html")
    assert "files" in failed(bundle.path)


def test_labels_and_columns_are_compared(bundle):
    place = bundle.path / "published" / "pets.parquet"
    table = pq.read_table(place)
    swapped = pa.array(list(reversed(table["pet"].to_pylist())))
    pq.write_table(table.set_column(table.column_names.index("pet"), "pet", swapped), place)
    resign(bundle)
    assert failed(bundle.path) == {"published view"}
    pq.write_table(table.append_column("truth", table["count"]), place)
    resign(bundle)
    assert failed(bundle.path) == {"published view"}


def test_a_bundle_forged_throughout_is_not_what_the_ledger_holds(bundle):
    forged_throughout(bundle)
    resign(bundle)
    assert "receipt" not in failed(bundle.path)
    assert "ledger" in failed(bundle.path, ledger=bundle.path.parent / "people.ledger")


@pytest.mark.parametrize("key", ["spend", "views", "simulation", "files", "draws"])
def test_a_damaged_manifest_is_said_in_words(bundle, key):
    edit(bundle, "manifest.json", lambda m: m.pop(key))
    with pytest.raises(ps.ReleaseError, match=f"is damaged: '{key}'"):
        verify(bundle.path)
