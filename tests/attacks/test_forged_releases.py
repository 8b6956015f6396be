"""A publisher who forges his own bundle: `verify` recomputes, and believes nothing that follows.

The story: whoever makes a release has the noisy integers, the receipts and this code. He runs a
release whose published numbers are not those of the rule, or takes an honest bundle, changes what
he likes, and brings manifest, hashes and fingerprint up to date. The owner's ledger he cannot
change.
"""

import json
import shutil
from dataclasses import replace
from importlib import import_module

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.random import default_rng

import psephos as ps
from psephos.infer.entropy import EntropyClaim, maximum_entropy
from psephos.release.bundle.bundle import Bundle
from psephos.release.bundle.files import json_text, sha256_of
from psephos.release.preflight.checks import create_ledger
from psephos.release.spec.job import Job
from psephos.release.views.published import PublishedRule

published = import_module("psephos.release.views.published")
RELEASE = """
name = "people"
source = "people.csv"
privacy = { unit = "add_remove_row" }
ledger = { path = "people.ledger", dataset = "people", epsilon = "20" }
budget = { epsilon = "2" }
selection = { strategy = "identity" }
[schema]
a = { integers = [0, 19] }
b = { integers = [0, 19] }
[[tables]]
name = "pairs"
rows = ["a"]
columns = ["b"]
"""
VISITS = """
name = "visits"
source = "people.csv"
privacy = { unit = "person", column = "pid", max_rows = 2 }
ledger = { path = "people.ledger", dataset = "people", epsilon = "20" }
budget = { epsilon = "1" }
schema = { sex = { values = ["f", "m"] } }
[[tables]]
name = "rows"
rows = ["sex"]
[[persons]]
name = "sexes"
rows = ["sex"]
epsilon = "1"
[[persons]]
name = "everyone"
epsilon = "1"
"""


def people():
    """Half of the rows on the diagonal: independent attributes are far from the truth."""
    rng = default_rng(0)
    a = rng.integers(0, 20, 4000)
    b = np.where(rng.random(4000) < 0.5, a, rng.integers(0, 20, 4000))
    return pd.DataFrame({"a": a, "b": b})


def released(folder, text=RELEASE, rows=None):
    folder.mkdir(exist_ok=True)
    (people() if rows is None else rows).to_csv(folder / "people.csv", index=False)
    (folder / "release.toml").write_text(text)
    create_ledger(Job.read(folder / "release.toml"))
    return ps.release(folder / "release.toml", unchecked=True)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    return released(tmp_path_factory.mktemp("honest") / "job").path


@pytest.fixture
def bundle(honest, tmp_path):
    return Bundle.open(shutil.copytree(honest.parent, tmp_path / "job") / "bundle")


def failures(path):
    result = ps.verify(path, ledger=path.parent / "people.ledger")
    return {check.name: check.text for check in result.checks if not check.ok}


def sign(path, change=lambda _: None):
    """Change the manifest, then bring hashes and fingerprint up to date."""
    place = path / "manifest.json"
    manifest = json.loads(place.read_text())
    change(manifest)
    there = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
    manifest["files"] = {
        name: sha256_of(path / name) for name in manifest["files"] if name in there
    }
    place.write_text(json_text(manifest))
    manifest["fingerprint"] = Bundle.open(path).job.fingerprint
    place.write_text(json_text(manifest))


def say(path, **words):
    sign(path, lambda manifest: manifest["published"].update(words))


# ---- what the manifest says was chosen -----------------------------------------------------------


def test_an_honest_bundle_verifies(bundle):
    assert failures(bundle.path) == {}


@pytest.mark.parametrize("move", [-2, 1, 5, 100])
def test_another_number_of_steps_is_not_believed(bundle, move):
    steps = bundle.manifest["published"]["steps"] + move
    say(bundle.path, steps=max(0, steps))
    assert "steps of the published view" in failures(bundle.path)["published view"]


@pytest.mark.parametrize(
    ("key", "word"),
    [("prior", "latent classes"), ("prior", None), ("in_answers", True), ("gap", 3.0)],
)
def test_other_words_on_the_estimate_are_not_believed(bundle, key, word):
    say(bundle.path, **{key: word})
    assert f"{key} of the published view" in failures(bundle.path)["published view"]


@pytest.mark.parametrize("steps", [0, 1, 30])
def test_a_release_that_stops_where_it_likes_is_found(tmp_path, monkeypatch, steps):
    """All of its files agree with each other: only the rule does not lead there."""

    def stop(*given, claim=None, **facts):
        return maximum_entropy(*given, **{**facts, "steps": steps, "classes": False})

    with monkeypatch.context() as patch:
        patch.setattr(published, "maximum_entropy", stop)
        bundle = released(tmp_path / "job")
    assert bundle.manifest["published"]["steps"] == steps
    assert set(failures(bundle.path)) == {"published view"}


def test_more_draws_than_a_release_makes_are_not_drawn(bundle, monkeypatch):
    sign(bundle.path, lambda manifest: manifest.update(draws=10**12))
    assert "9,999 draws" in failures(bundle.path)["request"]


# ---- near ties ---------------------------------------------------------------------------------


def test_a_claim_settles_near_ties_and_nothing_else(honest, monkeypatch):
    """Another machine may have taken a choice whose estimated risk is all but the same."""
    views = Bundle.open(honest).views
    fit = views.estimate.fit
    given = (views.least_squares, views.job.workload)
    for steps in range(fit.steps + 4):
        claimed = maximum_entropy(*given, claim=EntropyClaim(steps, False))
        assert (claimed.steps == steps) == (steps == fit.steps)
        assert claimed.steps in (steps, fit.steps)
    entropy = import_module("psephos.infer.entropy")
    monkeypatch.setattr(entropy, "NEAR_TIE", np.inf)
    for steps in range(1, fit.steps + 1):  # as if all of them were tied
        assert maximum_entropy(*given, claim=EntropyClaim(steps, False)).steps == steps


# ---- one number ----------------------------------------------------------------------------------


@pytest.mark.parametrize("move", [0.5, 0.2, -0.2])
def test_one_number_off_by_half_a_standard_error_is_found(tmp_path, monkeypatch, move):
    """A mean square over all numbers has room for it."""
    fit = PublishedRule.fit

    def forged(self, job, estimate, claim=None):
        found = fit(self, job, estimate, claim)
        vector = found.vector.copy()
        stderr = float(np.sqrt(estimate.variances(job.workload)[0]))
        vector[vector.argmax()] += move * stderr
        return replace(found, vector=vector)

    with monkeypatch.context() as patch:
        patch.setattr(PublishedRule, "fit", forged)
        bundle = released(tmp_path / "job")
    text = failures(bundle.path)["published view"]
    assert "a number of 'pairs' is" in text or "typically" in text


def test_the_stored_estimate_is_compared_number_by_number(bundle):
    place = bundle.path / "estimate/cells.parquet"
    cells = pq.read_table(place)["count"].to_numpy().copy()
    stderr = float(bundle.table("pairs")["stderr"][0].as_py())
    for move, found in ((0.05, False), (0.3, True)):
        moved = cells.copy()
        moved[7] += move * stderr
        pq.write_table(pa.table({"count": moved}), place)
        sign(bundle.path)
        assert ("published view" in failures(bundle.path)) == found


# ---- tables that were paid for and left out ------------------------------------------------------


@pytest.fixture(scope="module")
def visits(tmp_path_factory):
    rows = pd.DataFrame({"pid": [1, 1, 2, 3, 4], "sex": ["f", "f", "m", "m", "f"]})
    return released(tmp_path_factory.mktemp("visits") / "job", VISITS, rows).path


@pytest.mark.parametrize("left", [0, 1])
def test_tables_of_persons_cannot_be_left_out(visits, tmp_path, left):
    path = shutil.copytree(visits.parent, tmp_path / "job") / "bundle"
    assert failures(path) == {}
    release = json.loads((path / "release.json").read_text())
    release["persons"] = release["persons"][:left]
    if not left:
        del release["persons"]
    (path / "release.json").write_text(json_text(release))
    for name in ["2", *(["1", "sexes.csv", "sexes.parquet"] if not left else [])]:
        place = path / "persons" / name
        shutil.rmtree(place) if place.is_dir() else place.unlink()
    for name in ("everyone.csv", "everyone.parquet"):
        (path / "persons" / name).unlink()
    if not left:
        (path / "persons").rmdir()

    def forget(manifest):
        manifest["persons"] = manifest["persons"][:left]
        if not left:
            del manifest["persons"]

    sign(path, forget)
    assert set(failures(path)) == {"ledger"}
    assert "leaves out what was paid for" in failures(path)["ledger"]
    assert "persons" in failures(path)["ledger"]


@pytest.mark.parametrize(("key", "fact"), [("spend", ["epsilon", "10"]), ("edition", "2020")])
def test_tables_of_persons_follow_from_the_release_file(visits, tmp_path, key, fact):
    path = shutil.copytree(visits.parent, tmp_path / "job") / "bundle"
    sign(path, lambda manifest: manifest["persons"][0].update({key: fact}))
    assert "at another spend or edition" in failures(path)["persons"]


def test_steps_of_another_edition_are_not_those_of_the_release(tmp_path):
    path = released(tmp_path / "job", PLANNED, people()[["a"]]).path

    def change(manifest):
        for request in manifest["requests"]:
            request["edition"] = "2020"

    sign(path, change)
    assert "request" in failures(path)


def test_synthetic_rows_cannot_go_without_being_looked_at(tmp_path):
    path = released(tmp_path / "job", RELEASE + "\n[synthetic]\nrows = 100\n").path
    assert failures(path) == {}
    (path / "synthetic" / "rows.csv").write_text("a,b\n1,1\n")
    sign(path, lambda manifest: manifest.pop("synthetic"))
    assert "request" in failures(path)


PLANNED = RELEASE.replace('selection = { strategy = "identity" }', 'method = { name = "DAWA" }')
PLANNED = PLANNED.replace("\nb = { integers = [0, 19] }", "").replace('\ncolumns = ["b"]', "")


def test_a_paid_step_of_a_plan_cannot_be_left_out(tmp_path):
    path = released(tmp_path / "job", PLANNED).path
    assert failures(path) == {}
    count = len(Bundle.open(path).requests)
    assert count > 1
    shutil.rmtree(path / "requests" / str(count))
    sign(path, lambda manifest: manifest["requests"].pop())
    wrong = failures(path)
    assert "leaves out what was paid for" in wrong["ledger"]
    assert "plan" in wrong


# ---- questions to a forged bundle ----------------------------------------------------------------

QUESTION = "SELECT COUNT(*) FROM people WHERE a < 5"


def test_a_forged_bundle_is_not_asked(bundle):
    assert "`psephos verify`" in ps.ask(bundle.path, QUESTION).checked
    place = bundle.path / "requests/1/measurements.parquet"
    values = pq.read_table(place)["value"].to_numpy().copy()
    values[0] += 50
    pq.write_table(pa.table({"value": values}), place)
    sign(bundle.path)
    with pytest.raises(ps.ReleaseError, match="fails verification and is not asked: the noisy"):
        ps.ask(bundle.path, QUESTION)


def test_a_bundle_with_any_changed_file_is_not_asked(bundle):
    with (bundle.path / "published/pairs.csv").open("a") as file:
        file.write(" ")
    with pytest.raises(ps.ReleaseError, match=r"pairs.csv has changed since the release"):
        ps.ask(bundle.path, QUESTION)


@pytest.mark.parametrize("older", [3, 8])
def test_an_older_format_is_not_for_the_forger_to_choose(bundle, older):
    """Its rules would check less."""
    with pytest.raises(ps.ReleaseError, match=f"has format {older}, and this psephos reads"):
        sign(bundle.path, lambda manifest: manifest.update(format=older))
    assert json.loads((bundle.path / "manifest.json").read_text())["format"] == older
    with pytest.raises(ps.ReleaseError, match=f"has format {older}, and this psephos reads"):
        ps.verify(bundle.path)
