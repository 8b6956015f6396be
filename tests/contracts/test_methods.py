"""Laws of all kinds of release; a new one joins by its file, and by a line in FILES."""

import math
import shutil
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest

import psephos as ps
from psephos.kernel.query import Block, Query
from psephos.kernel.sensitivity import sensitivity
from psephos.plans import step_key
from psephos.release.bundle.requests import StrategyQuestion
from psephos.release.methods.kind import MEMBERS, kind_of, register_kind
from psephos.release.methods.measured import Measured
from psephos.release.preflight.forecast import forecast_paid
from psephos.release.run import opened
from psephos.workload.product import rounded_weight

FILE = """
name = "visits"
source = "visits.csv"
privacy = { unit = "person", column = "patient", max_rows = 3 }
ledger = { path = "visits.ledger", dataset = "visits", epsilon = "100" }
budget = { epsilon = "30" }

[schema.ward]
values = ["a", "b", "c"]
levels = { site = { north = ["a", "b"], south = ["c"] } }

[schema.age]
integers = [0, 11]

[[tables]]
name = "ages"
queries = { age = "prefix" }

[selection]
strategy = "identity"
"""
TABLE = '[[tables]]\nname = "wards"\nrows = ["ward"]\n'
PERSONS = '[[persons]]\nname = "patients"\nrows = ["ward"]\nepsilon = "20"\n'


def with_head(line):
    return FILE.replace("\n[schema.ward]", f"\n{line}\n\n[schema.ward]", 1) + TABLE


FILES = {
    "measured": FILE + TABLE,
    "measured, with persons": FILE + TABLE + PERSONS,
    "adaptive": with_head('method = { name = "DAWA" }'),
    "adaptive, with persons": with_head('method = { name = "DAWA" }') + PERSONS,
    "in parts": FILE.replace('name = "visits"', 'name = "visits"\nby = ["ward"]', 1),
    "table by table": with_head('method = { name = "table by table" }') + PERSONS,
}
"""A release file of each kind; the last is of a kind that only this file knows."""
each_kind = pytest.mark.parametrize("name", FILES)


@dataclass(frozen=True)
class TableByTable(Measured):
    """A toy: each table is measured by itself, as it is, at an equal share of the budget."""

    def forecast(self, job, say=lambda _: None, *, paid=False, **options):
        noise, spend = job.noise, options.get("budget") or job.budget
        blocks = [
            Block(block.matrix, rounded_weight(1 / float(sensitivity(query, noise.norm))))
            for query in self.queries(job)
            for block in query.blocks
        ]
        query = Query(tuple(blocks))
        strategy = ps.Strategy(job.workload.domain, noise, query, "table by table")
        return forecast_paid(job, strategy, spend)

    def queries(self, job):
        blocks = job.workload.query.blocks
        for table in job.tables:
            yield Query(tuple(Block(blocks[i].matrix, Fraction(1)) for i in table.products))

    def keys(self, job):
        return [step_key(job.key, step) for step in range(len(job.tables))]

    def measure(self, forecast, handle):
        job, share = forecast.job, forecast.budget / len(forecast.job.tables)
        requests = []
        for step, query in enumerate(self.queries(job)):
            strategy = ps.Strategy(job.workload.domain, job.noise, query, job.tables[step].name)
            question = StrategyQuestion(strategy, job.cells)
            requests.append(handle.ask(handle.rows, question, share, step_key(handle.key, step)))
        return requests


register_kind("table by table", TableByTable())


@pytest.fixture
def place(tmp_path, name):
    rng = np.random.default_rng(3)
    lines = ["patient,ward,age"]
    for person in range(300):
        rows = rng.choice(["a", "b", "c"], int(rng.integers(1, 4)))
        lines += [f"{person},{ward},{rng.integers(0, 12)}" for ward in rows]
    (tmp_path / "visits.csv").write_text("\n".join(lines) + "\n")
    path = tmp_path / "release.toml"
    path.write_text(FILES[name])
    return path


@pytest.fixture
def ledger(place):
    job = ps.Job.read(place)
    limit = job.file.ledger.budget()
    ledger = ps.Ledger.create(job.ledger, dataset="visits", unit=job.unit, budget=limit)
    assert ps.check_release(job).ok
    return ledger


def price_of(job):
    return sum((table.spend for table in job.persons), start=job.budget)


def test_every_member_has_a_file():
    assert set(MEMBERS) <= set(FILES)


@each_kind
def test_a_forecast_touches_no_data(place):
    place.with_name("visits.csv").unlink()
    job = ps.Job.read(place)
    forecast = ps.plan(job)
    assert forecast.budget == job.budget
    assert forecast.disk_bytes > 0
    rows = forecast.rows
    assert {row.table for row in rows} == {table.name for table in job.tables}
    assert all(0 < row.rmse < math.inf for row in rows)
    assert {row.simulated for row in rows} == {job.method.name == "DAWA"}
    assert not job.ledger.exists()


@each_kind
def test_a_rehearsal_verifies_and_costs_nothing(place):
    place.with_name("visits.csv").unlink()
    bundle = ps.rehearse(place, rows=500)
    assert bundle.simulation
    assert ps.verify(bundle.path).ok, ps.verify(bundle.path)
    assert not ps.Job.read(place).ledger.exists()


@each_kind
def test_a_release_is_paid_once_and_verifies(place, ledger):
    job = ps.Job.read(place)
    bundle = ps.release(place)
    assert ledger.spent() == price_of(job)
    found = ps.verify(bundle.path, ledger=ledger)
    assert found.ok, found
    first = {entry.key: entry.values_hash for entry in ledger.history()}
    assert opened(ps.release(place).path).manifest == bundle.manifest
    bundle.path.rename(place.with_name("elsewhere"))
    again = ps.release(place)
    assert ledger.spent() == price_of(job)
    assert {entry.key: entry.values_hash for entry in ledger.history()} == first
    assert again.manifest["fingerprint"] == bundle.manifest["fingerprint"]


@each_kind
def test_what_was_answered_needs_no_data(place, ledger):
    job = ps.Job.read(place)
    bundle = ps.release(place)
    bundle.path.rename(place.with_name("elsewhere"))
    place.with_name("visits.csv").unlink()
    if kind_of(job).keys(job) is None:  # how many requests there were follows from the data
        with pytest.raises(ps.PsephosError):
            ps.release(place)
    else:
        assert ps.verify(ps.release(place).path, ledger=ledger).ok
    assert ledger.spent() == price_of(job)


@each_kind
def test_what_cannot_be_paid_is_refused_before_anything_is(place, ledger):
    spent = ps.epsilon("90")
    table = ps.protect(place.with_name("visits.csv"), ps.Job.read(place).domain, ledger=ledger)
    table.vectorise().noisy_count(spend=spent, key="something else")
    with pytest.raises(ps.BudgetExceededError):
        ps.release(place)
    assert ledger.spent() == spent
    assert not ps.Job.read(place).bundle.exists()


@each_kind
def test_a_full_disk_is_noticed_before_anything_is_paid(place, ledger, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 10, 0))
    with pytest.raises(ps.ReleaseError, match=r"make room first\. Nothing was charged"):
        ps.release(place)
    assert not ledger.spent().amount
