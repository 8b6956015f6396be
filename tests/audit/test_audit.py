"""The audit passes here, and finds every rule that is broken on purpose.

Bounds are judged at a confidence at which a sound kernel fails less than once in a million runs.
"""

import json
import math
import tempfile
import time

import numpy as np
import pytest

from psephos.audit import audit as audit_module
from psephos.audit import behaviour, runs, stage
from psephos.audit.audit import CAVEAT, AttackResult, AuditReport, audit
from psephos.audit.runs import SPENDS, check_draws
from psephos.engines.duckdb import reader
from psephos.errors import BudgetError
from psephos.kernel import noise, vault
from psephos.kernel.ledger import Ledger
from psephos.kernel.unit import add_remove_row
from tests.broken_rules import RULES, halve_drawn_noise, refund_charges

SURE = 1 - 1e-7
ALPHA = 1e-9


@pytest.mark.slow
def test_this_installation_withstands(tmp_path, monkeypatch):
    """Nothing is left behind, and nothing but the audit's own folder is used."""
    monkeypatch.chdir(tmp_path)
    steps = []
    report = audit(seconds=1, confidence=SURE, progress=lambda *step: steps.append(step))
    assert report.ok, str(report)
    assert {f.kind for f in report.findings} == set(audit_module.HEADINGS)
    assert steps[-1] == ("done", 1.0)
    assert [share for _, share in steps] == sorted(share for _, share in steps)
    assert list(tmp_path.iterdir()) == []
    for text in (str(report), report._repr_html_(), report.to_json()):
        assert "is private" not in text
        assert CAVEAT in text
    assert str(report).splitlines()[-1] == CAVEAT
    content = json.loads(report.to_json())
    assert content["ok"]
    assert len(content["findings"]) == len(report.findings)
    bounds = [f for f in report.findings if f.kind == "lower bound"]
    assert len(bounds) == len(runs.TRIALS)
    # The first runs on counts come near the charge, or the attack would be too weak to fail.
    assert max(f.loss / f.charge for f in bounds) > 0.8
    assert all(f.delta == float(runs.AUDIT_DELTA) for f in bounds if "rho" in f.claimed)


def test_a_report_of_failure():
    bad = AttackResult(
        "exact loss", "a count", "epsilon 1", "exact loss 2 > charge 1", False, 1, 1, 2
    )
    good = AttackResult("draws", "<draws>", "as they are", "p = 0.5", True, 10)
    report = AuditReport((bad, good), 0.999, 1.0)
    assert not report.ok
    assert str(report).startswith("NOT ok: 1 of 2 attacks")
    assert "!!  a count" in str(report)
    assert "&lt;draws&gt;" in report._repr_html_()
    assert json.loads(report.to_json())["ok"] is False


@pytest.mark.parametrize("wrong", [{"seconds": -1}, {"seconds": math.nan}, {"confidence": 1.0}])
def test_what_an_audit_takes(wrong):
    with pytest.raises(BudgetError):
        audit(**wrong)


def test_draws_that_are_not_what_the_record_says(monkeypatch, place):
    halve_drawn_noise(monkeypatch)
    for spend in SPENDS:
        assert not list(check_draws(place, 0.0, spend))[-1].ok, spend


def test_draws_that_repeat(monkeypatch, place):
    true = noise.DiscreteLaplace.draw
    twice = lambda self, size: np.repeat(true(self, size), 2)[:size]  # noqa: E731
    monkeypatch.setattr(noise.DiscreteLaplace, "draw", twice)
    pairs, _ = check_draws(place, 0.0, SPENDS[0])
    assert not pairs.ok


@pytest.mark.parametrize("attack", behaviour.BEHAVIOUR_ATTACKS, ids=lambda attack: attack.name)
def test_the_attack_fails(place, attack):
    attack.attempt(place)


@pytest.mark.parametrize("trial", runs.TRIALS, ids=lambda trial: f"{trial.name} at {trial.spend}")
def test_no_more_is_lost_in_many_runs(place, trial):
    (result,) = runs.lower_bound(place, 0.0, trial, ALPHA)
    assert result.ok, result


def seeded(monkeypatch):
    rng = np.random.default_rng(0)
    monkeypatch.setattr(noise, "_entropy", lambda size: rng.bytes(size))


def constant(monkeypatch):
    monkeypatch.setattr(noise, "_entropy", lambda size: np.random.default_rng(0).bytes(size))


def round_sums(monkeypatch):
    """As numeric libraries would that keep half of the digits."""
    short = lambda a, x, out: np.matmul(a.astype("f4"), x.astype("f4")).astype(int)  # noqa: E731
    monkeypatch.setattr("psephos.matrix.explicit._by_floats", short)


def skip_a_row(monkeypatch):
    """The first of each batch that an engine hands over."""
    true = reader._index_columns
    later = lambda *rows: ([x[1:] for x in batch] for batch in true(*rows))  # noqa: E731
    monkeypatch.setattr(reader, "GROUP_LIMIT", 0)  # rows in place of counts
    monkeypatch.setattr(reader, "_index_columns", later)


@pytest.mark.parametrize(
    ("broken", "name"),
    [
        (seeded, "a forked child"),
        (constant, "the same request on new ledgers"),
        (refund_charges, "processes at once, one of them killed"),
        (skip_a_row, "the same rows in files and frames"),
        (round_sums, "sums as large as floats are exact"),
    ],
)
def test_attacks_get_through_a_broken_kernel(monkeypatch, place, broken, name):
    broken(monkeypatch)
    (attack,) = (a for a in behaviour.BEHAVIOUR_ATTACKS if a.name == name)
    with pytest.raises(behaviour.GotThrough):
        attack.attempt(place)


def test_what_breaks_off_is_a_finding(monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("out of order")

    groups = [*audit_module._groups(ALPHA)][1:3]
    monkeypatch.setattr(audit_module, "_groups", lambda alpha: groups)
    monkeypatch.setattr(vault.Draws, "noise", fail)
    report = audit(seconds=0)
    assert not report.ok
    assert "IT BROKE OFF: SourceError: the request failed inside the kernel" in str(report)
    assert "out of order" not in str(report)


@pytest.mark.slow
@pytest.mark.parametrize("broken", [*RULES, halve_drawn_noise])
def test_the_whole_audit_finds_it(monkeypatch, broken):
    broken(monkeypatch)
    assert not audit(seconds=1, confidence=SURE).ok


def test_bounds_hold_as_often_as_they_say():
    """Of 2,000 bounds at 95 %, from 200 runs with a loss of ln 2, about 5 % may be wrong."""
    rng = np.random.default_rng(0)
    often, rarely = rng.binomial(200, 0.5, 2000), rng.binomial(200, 0.25, 2000)
    bounds = stage.lower_bounds(often, rarely, 200, 0.025)
    assert (bounds > math.log(2)).mean() < 0.05
    none = np.array([0])
    assert stage.lower_bounds(none, none, 200, 0.025)[0] == 0
    assert stage.lower_bounds(np.array([200]), none, 200, 0.025, 0.5)[0] > 3


def test_the_stage_is_cleared():
    with stage.temporary_stage() as temporary:
        assert str(temporary.folder).startswith(tempfile.gettempdir())
        ledger = temporary.endless_ledger(add_remove_row(), "epsilon")
        assert Ledger.open(ledger.path).spent().amount == 0
    assert not temporary.folder.exists()


def test_an_audit_keeps_its_time(monkeypatch):
    start = time.monotonic()
    monkeypatch.setattr(audit_module, "_groups", lambda alpha: [])
    assert audit(seconds=5).findings == ()
    assert time.monotonic() - start < 5
