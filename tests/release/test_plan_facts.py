"""What releases by plans hold of what is declared, and what they tell their users."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import psephos as ps
from psephos.cli.app import app
from psephos.release.preflight.checks import check_release
from psephos.release.preflight.comparison import compare_plans
from psephos.release.spec.job import Job
from psephos.release.views.held_cells import held_cells
from tests.release.test_plan_releases import LINE, ready, with_stand_in

# ---- what a release file declares of its cells --------------------------------------------------

HELD = LINE.replace(
    "[schema.days]", 'zeros = ["days = 0", "days BETWEEN 22 AND 24"]\ntotal = 400\n\n[schema.days]'
)


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    return ps.release(ready(tmp_path_factory.mktemp("held") / "job", "DAWA", HELD))


def test_plans_hold_what_is_declared_of_cells(held):
    for view in ("consistent", "published"):
        counts = held.table("up to", view)["count"].to_pylist()
        assert counts[0] == pytest.approx(0)
        assert counts[21] == pytest.approx(counts[24])
        assert counts[31] == pytest.approx(400)
    assert not held.views.estimate.vector[held.job.zeros].any()
    answer = ps.ask(held, "SELECT COUNT(*) FROM people WHERE days < 32").table["count"].to_pylist()
    assert answer == [pytest.approx(400)]
    assert held.answer(held.job.workload).values[31] == pytest.approx(400)
    assert ps.verify(held.path).ok


def test_what_is_held_is_told(held):
    words = "the declared total of 400 rows and the 4 cells declared to be empty"
    assert words in held.manifest["published"]["reason"]
    assert f"it was moved to hold {words}" in (held.path / "report.html").read_text()
    place = held.path.parent / "release.toml"
    assert words in " ".join(CliRunner().invoke(app, ["plan", str(place)]).stdout.split())
    plain = json.loads(CliRunner().invoke(app, ["plan", str(place), "--json"]).stdout)
    assert plain["held"] == words


@given(st.data())
def test_holding_facts_never_takes_cells_further_from_the_truth(held, data):
    """The nearest cells with both facts: the true ones have them too."""
    size = held.job.workload.domain.size
    zeros = held.job.zeros
    numbers = st.lists(st.integers(0, 50), min_size=size, max_size=size)
    truth = np.where(zeros, 0, data.draw(numbers)).astype(float)
    noise = np.array(data.draw(st.lists(st.integers(-9, 9), min_size=size, max_size=size)))
    for declared in (int(truth.sum()), None):
        file = held.job.file.model_copy(update={"total": declared})
        cells = truth + noise
        moved = held_cells(replace(held.job, file=file), cells)
        assert not moved[zeros].any()
        assert moved.sum() == pytest.approx(cells.sum() if declared is None else declared)
        if declared is not None:
            assert np.sum((moved - truth) ** 2) <= np.sum(noise**2) + 1e-6


# ---- what a user is told -----------------------------------------------------------------------


def test_rows_of_a_stand_in_without_a_cell_are_told(tmp_path):
    place = with_stand_in(tmp_path / "job", LINE, [3] * 50 + ["never"] * 2 + [99] + [""] * 4)
    words = "50 of 57 rows have a cell; days has undeclared entries: 'never' (2), '99' (1)"
    job = Job.read(place)
    assert words in compare_plans(job, plans=["Identity"], trials=1).stand_in
    assert (
        words
        in compare_plans(
            job, plans=["Identity"], trials=1, stand_in=place.parent / "old.csv"
        ).stand_in
    )
    plain = json.loads(CliRunner().invoke(app, ["plan", str(place), "--json"]).stdout)
    assert plain["method"]["name"] == "measure"
    assert words in plain["stand_in"]
    assert "days has missing entries" in plain["stand_in"]
    assert "50 rows with a cell" in plain["method"]["reason"]
    place.write_text(place.read_text().replace('"auto"', '"DAWA"'))
    assert words in ps.plan(place).stand_in


def test_a_copy_of_the_source_does_not_stand_in(tmp_path):
    place = with_stand_in(tmp_path / "job", LINE, [3])
    ledger = ps.Ledger.open(place.parent / "people.ledger")
    shutil.copy(place.parent / "people.csv", place.parent / "old.csv")
    for command in (check_release, lambda path: ps.release(path, unchecked=True)):
        with pytest.raises(ps.ReleaseError, match=r"old\.csv is a copy of the source"):
            command(place)
    assert not ledger.history()
    (place.parent / "old.csv").unlink()
    (place.parent / "old.csv").hardlink_to(place.parent / "people.csv")
    for command in (ps.plan, check_release, ps.release):
        with pytest.raises(ps.ReleaseError, match="is the source itself"):
            command(place)
    with pytest.raises(ps.ReleaseError, match="is the source itself"):
        compare_plans(place, plans=["Identity"], stand_in=place.parent / "people.csv")
    assert not ledger.history()


def test_the_report_says_why_auto_measured(tmp_path):
    bundle = ps.release(ready(tmp_path / "auto", "auto"))
    page = (bundle.path / "report.html").read_text()
    assert page.count(bundle.manifest["method"]["reason"]) == 1
    assert "leaves the choice of a plan to" in page
    other = ps.release(ready(tmp_path / "HB", "HB"))
    assert "leaves the choice of a plan to" not in (other.path / "report.html").read_text()


def test_all_steps_of_a_plan_are_numbered_in_the_budget(held, tmp_path):
    ledger = held.path.parent / "people.ledger"
    plain = json.loads(CliRunner().invoke(app, ["budget", str(ledger), "--json"]).stdout)
    assert [charge["release"] for charge in plain["charges"]] == ["waits step 1", "waits step 2"]
    assert "waits step 1" in CliRunner().invoke(app, ["budget", str(ledger)]).stdout
    place = ready(tmp_path / "job", "HB")
    ps.release(place)
    ledger = place.parent / "people.ledger"
    plain = json.loads(CliRunner().invoke(app, ["budget", str(ledger), "--json"]).stdout)
    assert [charge["release"] for charge in plain["charges"]] == ["waits"]
