"""Consistent tables in L1 and L∞: published without intervals, verified by how near they are."""

import hashlib
import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import psephos as ps
from psephos.release.formats.csv_text import write_csv
from psephos.release.formats.digits import printed
from psephos.release.preflight.checks import check_release, create_ledger
from psephos.release.spec.job import Job
from tests.release.conftest import RELEASE, write_job

NORMS = ["l1", "linf"]


def ready(folder, norm, extra=""):
    text = RELEASE.replace("[selection]", f'[output]\nconsistency = "{norm}"\n\n[selection]')
    place = write_job(folder, text.replace("zeros = [\"age < 6 AND pet = 'horse'\"]\n", "") + extra)
    job = Job.read(place)
    create_ledger(job)
    assert check_release(job).ok
    return place


@pytest.fixture(scope="module", params=NORMS)
def bundle(request, tmp_path_factory):
    return ps.release(ready(tmp_path_factory.mktemp(request.param) / "job", request.param))


def test_tables_add_up_and_have_no_errors(bundle):
    table = bundle.table("pets").to_pandas()
    assert not {"stderr", "low", "high"} & set(table.columns)
    totals = table[table["pet"] == "total"].set_index("age")["count"]
    sums = table[table["pet"] != "total"].groupby("age")["count"].sum()
    np.testing.assert_allclose(totals.sort_index(), sums.sort_index(), atol=1e-6)
    assert bundle.manifest["interval"] is None
    assert "Why there are no intervals" in bundle.report.read_text()


def test_it_verifies_by_how_near_it_is(bundle):
    verification = ps.verify(bundle.path)
    assert verification.ok, verification
    (text,) = [c.text for c in verification.checks if c.name == "consistent view"]
    assert "the least" in text
    reply = ps.ask(bundle, "SELECT COUNT(*) FROM people WHERE age < 6")
    assert reply.view == "nearest"
    assert "stderr" not in reply.table.column_names


def test_tables_that_are_not_the_nearest_are_found_out(bundle, tmp_path):
    import shutil

    place = tmp_path / "bundle"
    shutil.copytree(bundle.path, place)
    file = place / "estimate" / "coordinates.parquet"
    table = pq.read_table(file)
    values = table["value"].to_numpy().copy()
    values[0] += 100  # the total, which all tables share
    pq.write_table(type(table).from_pydict({"value": values}), file)
    moved = ps.Bundle.open(place)
    manifest = json.loads((place / "manifest.json").read_text())
    manifest["files"]["estimate/coordinates.parquet"] = hashlib.sha256(
        file.read_bytes()
    ).hexdigest()
    (place / "manifest.json").write_text(json.dumps(manifest))
    moved = ps.Bundle.open(place)
    for each in moved.job.tables:
        for kind in ("csv", "parquet"):
            (name,) = [
                n
                for n in manifest["files"]
                if n.startswith("consistent/") and n.endswith(kind) and each.name.split()[0] in n
            ]
            data = moved.views.table(each, "consistent")
            target = place / name
            if kind == "csv":
                write_csv(printed(data, 2), target)
            else:
                pq.write_table(data, target)
            manifest["files"][name] = hashlib.sha256(target.read_bytes()).hexdigest()
    (place / "manifest.json").write_text(json.dumps(manifest))
    wrong = {c.name: c.text for c in ps.verify(place).checks if not c.ok}
    assert "is enough for tables that add up" in wrong["consistent view"]


def test_targets_want_least_squares(tmp_path):
    place = ready(tmp_path / "job", "l1")
    text = place.read_text().replace("[budget]\nepsilon = 0.5\n", "")
    place.write_text(text.replace("weight = 2", "target = { plus_minus = 50 }"))
    with pytest.raises(ps.ReleaseError, match="only tables of least squares"):
        ps.plan(place)


def test_too_many_numbers_are_refused_before_the_charge(tmp_path, monkeypatch):
    place = ready(tmp_path / "job", "l1")
    monkeypatch.setattr("psephos.infer.consistency.LARGEST_PROGRAMME", 5)
    with pytest.raises(ps.ReleaseError, match=r"over its limit of 5; use \"l2\""):
        ps.release(place)
    assert not ps.Ledger.open(place.parent / "people.ledger").history()
