"""The commands that list plans and try them on stand-ins."""

import shutil

import pytest

from psephos.plans import PLANS
from tests.cli.test_cli import run, told
from tests.release.conftest import write_job


@pytest.fixture
def folder(tmp_path):
    return write_job(tmp_path / "job").parent


def test_plans_are_listed_with_what_they_are_good_for():
    listed = told("plans")
    assert [plan["name"] for plan in listed] == list(PLANS)
    dawa = next(plan for plan in listed if plan["name"] == "DAWA")
    assert dawa["adaptive"]
    assert dawa["options"]["share"] == "1/4"
    shown = run("plans").stdout
    assert "DAWA*" in shown
    assert "adapts to the data" in shown


def test_plans_are_compared_on_made_up_rows_without_data_or_ledger(folder):
    for place in folder.glob("people*"):
        place.unlink()
    told_of = told("compare", folder, "--plans", "Identity, DAWA,UniformGrid", "--trials", 2)
    assert told_of["simulated_on"] == "10,000 made-up rows"
    errors = {row["name"]: row["rmse"] for row in told_of["plans"]}
    assert set(errors) == {"Identity", "DAWA", "UniformGrid"}
    assert told_of["plans"][0]["rmse"] == min(x for x in errors.values() if x is not None)
    assert told_of["spend"]["exact"] == "1/2"
    assert not (folder / "people.ledger").exists()


def test_plans_are_compared_on_a_public_table(folder):
    older = folder / "older.csv"
    shutil.copyfile(folder / "people.csv", older)
    words = ("compare", folder, "--plans", "Identity", "--trials", 2, "--stand-in", older)
    assert told(*words)["simulated_on"] == "the public table older.csv (600 rows)"
    assert "older.csv" in run(*words).stdout


def test_unknown_plans_are_named(folder):
    result = run("compare", folder, "--plans", "DAVA")
    assert result.exit_code == 2
    assert "no plan called 'DAVA'" in result.output
