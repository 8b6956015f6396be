"""What would keep a release from being written is told before anything is charged."""

import json
import os
from functools import partial

import pytest

import psephos as ps
from psephos.inverse import form as forms
from psephos.release import run as releases
from psephos.release.formats.names import table_files
from psephos.release.preflight.checks import create_ledger, open_ledger
from psephos.release.preflight.selection import strategy_for
from psephos.release.run import rehearse, release
from psephos.release.spec.file import parse_release
from psephos.release.spec.job import Job
from psephos.release.verify.verify import verify
from tests.cli.test_cli import run, told
from tests.release.conftest import RELEASE, people, write_job


def uncharged(folder, text, said, data=None):
    """The release and its rehearsal are refused with these words, and nothing is spent."""
    place = write_job(folder, text, data)
    create_ledger(Job.read(place))
    for act in (rehearse, partial(release, unchecked=True)):
        with pytest.raises(ps.PsephosError, match=said):
            act(place)
    assert open_ledger(Job.read(place)).spent().amount == 0


@pytest.mark.parametrize("amount", ["1e-17", "1e-25", "1e-30"])
def test_noise_that_no_number_holds(tmp_path, amount):
    text = RELEASE.replace("epsilon = 0.5", f'epsilon = "{amount}"')
    uncharged(tmp_path / "job", text, "more than whole numbers of 64 bits hold")


def test_an_estimate_that_could_not_be_held(tmp_path, monkeypatch):
    """What is measured would be paid for, and nothing could be made of it."""
    monkeypatch.setattr(forms, "VECTOR_LIMIT", 5)
    said = "could be paid for in vain: an estimate of .* cells is over the limit of 5"
    uncharged(tmp_path / "job", RELEASE, said)


def test_a_small_budget_is_allowed(tmp_path):
    text = RELEASE.replace("epsilon = 0.5", 'epsilon = "1e-12"')
    place = write_job(tmp_path / "job", text)
    create_ledger(Job.read(place))
    assert verify(release(place, unchecked=True).path).ok


def test_attributes_that_would_share_a_column(tmp_path):
    text = RELEASE.replace("zeros", "facts").replace("schema.pet", "schema.low_")
    text = text.replace("schema.age", "schema.low").replace('"age.broad"', '"low.broad"')
    text = text.replace('columns = ["pet"]', 'columns = ["low_"]')
    text = text.replace("SELECT pet", "SELECT low_").replace("BY pet", "BY low_")
    text = text.replace("WHERE age", "WHERE low")
    data = people().replace("age,pet", "low,low_")
    with pytest.raises(ps.ReleaseError, match="'low' and 'low_' would both be the column 'low_'"):
        Job.read(write_job(tmp_path / "job", text, data))


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch):
    place = write_job(tmp_path / "job")
    create_ledger(Job.read(place))
    real = os.access
    monkeypatch.setattr(releases.os, "access", lambda p, mode: p != place.parent and real(p, mode))
    with pytest.raises(ps.ReleaseError, match="cannot be written to, where the bundle goes"):
        release(place, unchecked=True)
    assert open_ledger(Job.read(place)).spent().amount == 0


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ('views = ["raw", "raw"]', "output.views: 'raw' is there twice"),
        ('formats = ["csv", "csv"]', "output.formats: 'csv' is there twice"),
        ("views = []", "output.views"),
        ("formats = []", "output.formats"),
        ('bundle = ""', "output.bundle: this is no name for a new folder"),
        ('bundle = "."', "output.bundle"),
        ('bundle = ".psephos"', "output.bundle"),
        (f'bundle = "{"x" * 300}"', "output.bundle"),
    ],
)
def test_output_that_cannot_be_written_is_refused_with_the_file(output, said):
    with pytest.raises(ps.ReleaseError) as told_:
        parse_release(f"{RELEASE}[output]\n{output}\n")
    assert said in str(told_.value)


@pytest.mark.parametrize("char", ["\x00", "\x07", "\x7f", "\ud800", "\uffff"])
@pytest.mark.parametrize(
    ("old", "place"),
    [
        ('"cat"', "schema.pet.values[1]"),
        ('"The town"', "publisher"),
        ('"young"', "tables[2].name"),
    ],
)
def test_characters_that_cannot_be_shown_are_refused_by_their_place(char, old, place):
    content = json.loads(parse_release(RELEASE).model_dump_json(by_alias=True))
    text = json.dumps(content).replace(old, json.dumps(f"a{char}b"))
    with pytest.raises(ps.ReleaseError) as told_:
        parse_release(text, "release.json")
    assert f"{place}: " in str(told_.value)
    assert "cannot be shown" in str(told_.value)


def test_tables_never_share_a_file(tmp_path):
    long = "y" * 90
    names = ["pets", f"{long}1", f"{long}2", long[:80], "cells"]
    assert table_files(names)["pets"] == "pets"
    assert len(set(table_files(names).values()) - {"cells"}) == 5
    text = RELEASE.replace('name = "young"', 'name = "cells"')
    text = text.replace('name = "pets"\nrows', f'name = "{long}"\nrows')
    place = write_job(tmp_path / "job", text)
    create_ledger(Job.read(place))
    made = release(place, unchecked=True)
    assert verify(made.path).ok
    assert made.table("cells", "published").num_rows == 4


@pytest.mark.parametrize("views", [["raw"], ["consistent"], ["published"]])
def test_every_choice_of_views_is_shown(tmp_path, views):
    folder = write_job(tmp_path / "job", f"{RELEASE}[output]\nviews = {json.dumps(views)}\n").parent
    run("check", folder, "--create-ledger")
    result = run("release", folder)
    assert result.exit_code == 0
    assert ("±" in result.stdout) is (views != ["raw"])
    assert told("release", folder)["tables"] == ["pets", "young"]


def test_only_strategies_are_offered(tmp_path):
    job = Job.read(write_job(tmp_path, RELEASE.replace('"opt_product"', '"Cost"')))
    with pytest.raises(ps.ReleaseError, match=r"no 'Cost'; have datacube, "):
        strategy_for(job, job.workload)


def test_a_strategy_that_cannot_be_kept_is_told_with_a_remedy(tmp_path):
    place = write_job(tmp_path / "job")
    job = Job.read(place)
    (place.parent / ".psephos").write_text("in the way")
    with pytest.raises(ps.ReleaseError, match="copy the release file to a folder you can write to"):
        strategy_for(job, job.workload)
