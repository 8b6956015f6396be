"""What goes with a forecast, in Python as on the command line."""

import json

import pytest
from typer.testing import CliRunner

import psephos as ps
from psephos.cli.app import app
from psephos.release.preflight.checks import create_ledger
from psephos.release.spec.job import Job
from tests.release.conftest import RELEASE, write_job


@pytest.fixture
def job(tmp_path):
    """A release that costs all that its ledger will ever hold."""
    return Job.read(write_job(tmp_path, RELEASE.replace("epsilon = 0.5", "epsilon = 2")))


def spend_half(job):
    """A ledger of which half is spent."""
    ledger = create_ledger(job)
    table = ps.protect(job.data, job.domain, ledger=ledger).vectorise()
    table.measure(ps.matrix.Identity(table.domain.size), spend=ps.epsilon("1"), key="before")


def test_without_a_ledger_nothing_is_short(job):
    beside = ps.outlook(ps.plan(job))
    assert (beside.left, beside.shortage, beside.lines) == (None, None, ())


def test_what_is_short_is_said_with_a_remedy(job):
    spend_half(job)
    beside = ps.outlook(ps.plan(job))
    assert beside.left == ps.epsilon("1")
    assert f"lower [budget] to {beside.left}" in beside.shortage
    assert beside.lines == (beside.shortage,)


def test_the_command_line_says_the_same(job):
    spend_half(job)
    beside = ps.outlook(ps.plan(job))
    result = CliRunner().invoke(app, ["plan", str(job.folder), "--json"])
    plain = json.loads(result.stdout)
    assert plain["left"]["exact"] == str(beside.left.amount)
    assert plain.get("shortage") == beside.shortage
    assert plain["persons"] == []
    shown = CliRunner().invoke(app, ["plan", str(job.folder)]).stdout
    assert beside.lines
    assert all(line in shown for line in beside.lines)
