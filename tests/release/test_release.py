"""The main job: run whole, run twice, cut short anywhere, and on neighbouring data."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from itertools import count

import numpy as np
import pytest

import psephos as ps
from psephos.kernel import noise
from psephos.release.bundle.bundle import Bundle
from psephos.release.bundle.table_files import TableFile
from psephos.release.methods import measured
from psephos.release.preflight.checks import create_ledger, open_ledger
from psephos.release.run import rehearse, release
from psephos.release.spec.job import Job
from psephos.release.verify.verify import verify
from tests.release.conftest import RELEASE, people, write_job

HALF = ps.epsilon("1/2")


def test_a_release_is_charged_once_and_verifies(release_path):
    made = release(release_path)
    ledger = open_ledger(made_job := Job.read(release_path))
    assert ledger.spent() == HALF
    assert verify(made.path, ledger=ledger).ok
    again = release(release_path)
    assert again.path == made.path
    assert open_ledger(made_job).spent() == HALF


def test_the_views_add_up(release_path):
    made = release(release_path)
    published = made.table("pets", "published").to_pandas()
    counts = published["count"].to_numpy().reshape(4, 5)  # age groups and total, pets and total
    assert (counts >= 0).all()
    assert counts.dtype.kind == "i"
    np.testing.assert_array_equal(counts[:-1].sum(axis=0), counts[-1])
    np.testing.assert_array_equal(counts[:, :-1].sum(axis=1), counts[:, -1])
    assert counts[0, 2] == 0  # no horses under 6
    consistent = made.table("pets", "consistent").to_pandas()
    floats = consistent["count"].to_numpy().reshape(4, 5)
    np.testing.assert_allclose(floats[:-1].sum(axis=0), floats[-1])
    assert (consistent["low"] < consistent["count"]).all()
    high = np.maximum(consistent["high"], published["count"])
    low = np.maximum(np.minimum(consistent["low"], published["count"]), 0)
    np.testing.assert_allclose(published["high"], high)
    np.testing.assert_allclose(published["low"], low)
    np.testing.assert_array_equal(consistent["count"], published["consistent"])


def test_a_rehearsal_touches_neither_data_nor_ledger(tmp_path):
    place = write_job(tmp_path / "job")
    (tmp_path / "job" / "people.csv").unlink()
    made = rehearse(place, rows=500)
    assert made.simulation
    assert made.table("young").column_names[-1] == "made_up"
    assert verify(made.path).ok
    assert not list((tmp_path / "job").glob("*.ledger*"))
    assert rehearse(place, rows=300).simulation  # a new one takes its place
    os.rename(made.path, tmp_path / "job" / "bundle")
    with pytest.raises(ps.ReleaseError, match="holds another release"):
        release(place, unchecked=True)


def test_what_is_missing_is_said_before_anything_is_charged(tmp_path):
    place = write_job(tmp_path / "job")
    with pytest.raises(ps.LedgerError, match=r"there is no ledger at .*--create-ledger"):
        release(place, unchecked=True)
    create_ledger(Job.read(place))
    for old, new, said in (
        ('"people"\nepsilon', '"folk"\nepsilon', "is the ledger of 'people'"),
        ('"add_remove_row"', '"substitute_row"', "the unit of a ledger is for life"),
        ('epsilon = "2"', 'epsilon = "3"', "holds epsilon 2 for life"),
    ):
        with pytest.raises(ps.LedgerError, match=said):
            release(write_job(tmp_path / "job", RELEASE.replace(old, new)), unchecked=True)
    write_job(tmp_path / "job")
    (tmp_path / "job" / "people.csv").unlink()
    with pytest.raises(ps.SourceError, match=r"people\.csv"):
        release(place, unchecked=True)
    assert open_ledger(Job.read(place)).spent().amount == 0


def test_a_wrong_column_is_named(tmp_path):
    place = write_job(tmp_path / "job", data="Age,pet\n3,cat\n")
    create_ledger(Job.read(place))
    with pytest.raises(ps.DomainError, match="no column 'age'; close to it: 'Age'"):
        release(place, unchecked=True)
    assert open_ledger(Job.read(place)).spent().amount == 0


def test_a_spent_budget_says_what_would_do(release_path):
    text = RELEASE.replace("epsilon = 0.5", "epsilon = 1.8")
    release(write_job(release_path.parent, text), unchecked=True)
    more = (
        text.replace('name = "pets"\ntitle', 'name = "more"\ntitle') + '[output]\nbundle = "more"\n'
    )
    with pytest.raises(ps.BudgetExceededError) as told:
        release(write_job(release_path.parent, more), unchecked=True)
    assert "needs epsilon 9/5 (~1.8), and epsilon 1/5 (~0.2) is left" in str(told.value)
    assert "lower [budget] to epsilon 1/5 (~0.2)" in str(told.value)
    assert "Nothing was charged" in str(told.value)


def test_targets_that_cost_too_much_name_the_table(release_path):
    text = RELEASE.replace("[budget]\nepsilon = 0.5", "").replace(
        "weight = 2", "target = { plus_minus = 1 }"
    )
    text = text.replace('columns = ["pet"]', 'columns = ["pet"]\ntarget = { plus_minus = 60 }')
    with pytest.raises(ps.BudgetExceededError) as told:
        release(write_job(release_path.parent, text), unchecked=True)
    assert "drop 'young' (the rest needs epsilon" in str(told.value)
    assert "instead of ± 1 for 'young'" in str(told.value)


def test_another_question_needs_another_bundle(release_path):
    release(release_path)
    place = write_job(release_path.parent, RELEASE.replace("age < 12", "age < 6"))
    with pytest.raises(ps.ReleaseError, match=r"holds another release .* another output.bundle"):
        release(place, unchecked=True)


# ---- cut short -----------------------------------------------------------------------------------


DIE = """
import importlib, os, signal, sys
from psephos.release.run import release

module, _, name = sys.argv[1].partition(":")
*parts, name = name.split(".")
where = importlib.import_module(module)
for part in parts:
    where = getattr(where, part)
setattr(where, name, lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL))
release(sys.argv[2], unchecked=True)
"""


STEPS = [
    ("psephos.kernel.gate:admit", 0),
    ("psephos.kernel.vault:Draws.noise", 1),
    ("psephos.kernel.ledger:Request._store", 1),
    ("psephos.release.run:receipt_of", 1),
    ("psephos.release.bundle.write:view_tables", 1),
    ("psephos.release.bundle.write:sync_all", 1),
]


@pytest.mark.parametrize(("where", "charged"), STEPS, ids=[where for where, _ in STEPS])
def test_killed_at_any_step_a_second_run_goes_on(release_path, where, charged):
    job = Job.read(release_path)
    ran = subprocess.run(
        [sys.executable, "-c", DIE, where, str(release_path)], timeout=120, check=False
    )
    assert ran.returncode == -signal.SIGKILL
    assert not job.bundle.exists()
    ledger = open_ledger(job)
    ledger.verify()
    assert ledger.spent() == charged * HALF if charged else ledger.spent().amount == 0
    stored = [entry.values_hash for entry in ledger.history()]
    made = release(job, unchecked=True)
    assert ledger.spent() == HALF
    assert verify(made.path, ledger=ledger).ok
    if stored and stored[0] is not None:  # the answer that was drawn is the one that is shown
        assert made.receipt["charge"]["values_hash"] == stored[0]


def test_a_full_disk_loses_nothing(release_path, monkeypatch):
    job = Job.read(release_path)
    real = TableFile.write
    calls = count()

    def full(*args):
        if next(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args)

    monkeypatch.setattr(TableFile, "write", full)
    with pytest.raises(ps.ReleaseError, match=r"No space left on device\. Nothing is lost"):
        release(job, unchecked=True)
    assert [p.name for p in job.folder.iterdir() if "bundle" in p.name] == []
    first = open_ledger(job).history()[0].values_hash
    made = release(job, unchecked=True)
    assert open_ledger(job).spent() == HALF
    assert made.receipt["charge"]["values_hash"] == first


def test_no_room_is_said_before_the_charge(release_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 0))
    with pytest.raises(ps.ReleaseError, match=r"make room first\. Nothing was charged"):
        release(release_path)
    assert open_ledger(Job.read(release_path)).spent().amount == 0


# ---- neighbours ----------------------------------------------------------------------------------


def test_neighbours_differ_in_the_measured_numbers_only(tmp_path, monkeypatch, capfd):
    place = write_job(tmp_path / "a")
    create_ledger(Job.read(place))
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (tmp_path / "b" / "people.csv").write_text(people(extra="3,newt\n"))
    said = []
    found = []
    for side in ("a", "b"):
        stream = np.random.default_rng(5)
        monkeypatch.setattr(noise, "_entropy", stream.bytes)
        monkeypatch.chdir(tmp_path / side)
        words = []
        found.append(release("release.toml", progress=words.append, unchecked=True))
        said.append((words, capfd.readouterr()))
    assert said[0] == said[1]
    first, second = ({p.relative_to(b.path).as_posix() for p in b.path.rglob("*")} for b in found)
    assert first == second
    one, two = found
    assert not np.array_equal(one.measurement.values, two.measurement.values)
    for name in ("release.json", "requests/1/strategy.bin"):
        assert (one.path / name).read_bytes() == (two.path / name).read_bytes()
    for name in ("pets", "young"):
        for view in ("consistent", "published"):
            a, b = one.table(name, view), two.table(name, view)
            numbers = {"count", "consistent", "low", "high"}
            same = [c for c in a.column_names if c not in numbers]
            assert a.select(same).equals(b.select(same))
    depends = {"files", "distance", "tables", "published"}
    plain = [{k: v for k, v in b.manifest.items() if k not in depends} for b in found]
    assert plain[0] == plain[1]
    charges = [b.receipt["charge"] for b in found]
    free = {"values_hash", "time", "link", "snapshot"}
    plain = [{k: v for k, v in charge.items() if k not in free} for charge in charges]
    assert plain[0] == plain[1]


def test_nothing_in_a_bundle_tells_of_the_source(release_path):
    source = release_path.parent / "people.csv"
    os.utime(source, (1_234_567_890, 1_234_567_890))
    made = release(release_path)
    import hashlib

    marks = [
        "people.csv",
        hashlib.sha256(source.read_bytes()).hexdigest(),
        "1234567890",
        "2009-02-13",
        str(release_path.parent),
    ]
    for file in made.path.rglob("*"):
        if file.is_file():
            held = file.read_bytes()
            assert not any(mark.encode() in held for mark in marks), file
    assert "source" not in json.loads((made.path / "release.json").read_text())


def test_a_bundle_answers_as_tables(release_path):
    made = release(release_path)
    assert isinstance(made, Bundle)
    frame = made.table("pets").to_pandas()
    assert list(frame.columns) == ["age", "pet", "count", "stderr", "low", "high"]
    with pytest.raises(ps.ReleaseError, match="no table 'cats'; have pets, young"):
        made.table("cats")
    with pytest.raises(ps.ReleaseError, match="no view 'best'"):
        made.table("pets", "best")
    with pytest.raises(ps.ReleaseError, match="there is no bundle at"):
        Bundle.open(release_path.parent)


def test_attributes_may_be_called_like_other_columns(release_path):
    text = RELEASE.replace("pet = 'horse'", "low = 'horse'").replace("schema.pet", "schema.low")
    text = text.replace('columns = ["pet"]', 'columns = ["low"]')
    text = text.replace("SELECT pet", "SELECT low").replace("BY pet", "BY low")
    place = write_job(release_path.parent, text, people().replace("age,pet", "age,low"))
    made = release(place, unchecked=True)
    assert made.table("young").column_names == ["age", "low_", "count", "stderr", "low", "high"]
    assert verify(made.path).ok


def test_a_report_that_cannot_be_made_holds_nothing_back(release_path, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(measured, "write_report", broken)
    with pytest.warns(RuntimeWarning, match="report could not be made"):
        bundle = release(release_path)
    assert "could not be made (ZeroDivisionError)" in bundle.report.read_text(encoding="utf-8")
    assert verify(bundle.path).ok
