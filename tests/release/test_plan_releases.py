"""Releases by plans that adapt to the data: published, resumed and verified like any other."""

import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.random import default_rng
from numpy.testing import assert_allclose
from typer.testing import CliRunner

import psephos as ps
from psephos.cli.app import app
from psephos.kernel import gate
from psephos.plans import PLANS
from psephos.release.methods.method import method_of, weighted_rmse
from psephos.release.methods.plan_forecast import stand_in_of
from psephos.release.methods.plan_steps import QuestionFiles
from psephos.release.preflight.checks import check_release, create_ledger
from psephos.release.preflight.comparison import compare_plans
from psephos.release.spec.job import Job
from tests.release.conftest import write_job

LINE = """
name = "waits"
title = "Days of waiting"
source = "people.csv"
privacy = { unit = "add_remove_row" }
ledger = { path = "people.ledger", dataset = "people", epsilon = "2" }
budget = { epsilon = 0.5 }
method = { name = "PLAN" }
selection = { strategy = "identity" }

[schema.days]
integers = [0, 31]

[[tables]]
name = "up to"
queries = { days = "prefix" }
"""
PLANE = LINE.replace("[[tables]]", "[schema.ward]\nintegers = [0, 3]\n\n[[tables]]")
PLANE += '\n[[tables]]\nname = "wards"\nrows = ["ward"]\ncolumns = ["days"]\n'
FOR_PLANES = ("UniformGrid", "AdaptiveGrid", "PrivBayes", "PrivBayesLS", "SelectLS", "DAWA-Striped")
FOR_PLANES += ("AdaptiveMarginals",)
SOME = ["DAWA", "MWEM", "PrivBayes"]
"""One of each kind of private search."""
ALL_OTHERS = [
    pytest.param(name, marks=pytest.mark.slow)
    for name, plan in PLANS.items()
    if plan.adaptive and name not in (*SOME, "DualQuery")  # in rho: tests/release/test_synthetic.py
]


def waits(columns, rows=400):
    rng = default_rng(1)
    days = np.minimum(rng.geometric(0.2, rows), 31)
    wards = rng.integers(0, 4, rows)
    lines = [f"{d},{w}" if columns == 2 else f"{d}" for d, w in zip(days, wards, strict=True)]
    return ("days,ward" if columns == 2 else "days") + "\n" + "\n".join(lines) + "\n"


def ready(folder, plan, text=None, options=""):
    plane = plan in FOR_PLANES
    text = (PLANE if plane else LINE) if text is None else text
    text = text.replace('name = "PLAN"', f'name = "{plan}"{options}')
    place = write_job(folder, text, waits(2 if "ward" in text else 1))
    job = Job.read(place)
    create_ledger(job)
    assert check_release(job).ok
    return place


def options_of(plan):
    return ", options = { rounds = 3 }" if plan.startswith("MWEM") else ""


@pytest.mark.parametrize("plan", SOME + ALL_OTHERS)
def test_every_plan_is_released_and_verified(tmp_path, plan):
    place = ready(tmp_path / "job", plan, options=options_of(plan))
    bundle = ps.release(place)
    assert bundle.method.name == plan
    assert sum(r.spend.amount for r in bundle.requests) == bundle.spend.amount
    ledger = ps.Ledger.open(place.parent / "people.ledger")
    assert ledger.spent() == bundle.spend
    verification = ps.verify(bundle.path, ledger=ledger)
    assert verification.ok, verification
    (steps,) = [check.text for check in verification.checks if check.name == "plan"]
    assert "to the letter" in steps
    table = bundle.table("up to", "published")
    assert not {"stderr", "low", "high"} & set(table.column_names)
    counts = table["count"].to_numpy()
    assert (counts >= 0).all()
    assert "interval" in bundle.report.read_text()
    # A second run finds the bundle, and without it pays nothing.
    shutil.rmtree(bundle.path)
    again = ps.release(place)
    assert ledger.spent() == bundle.spend
    assert_allclose(
        again.table("up to", "consistent")["count"].to_numpy(),
        bundle.views.consistent[: table.num_rows],
        atol=1e-6,
    )


def test_choices_in_epsilon_and_noise_in_rho_are_one_release(tmp_path):
    text = PLANE.replace('epsilon = "2"', 'rho = "1"').replace("epsilon = 0.5", 'rho = "1/8"')
    place = ready(tmp_path / "job", "AdaptiveMarginals", text, ", options = { rounds = 2 }")
    bundle = ps.release(place)
    assert {request.spend.currency for request in bundle.requests} == {"epsilon", "rho"}
    assert bundle.spend == ps.rho("1/8")
    ledger = ps.Ledger.open(place.parent / "people.ledger")
    assert ledger.spent() == bundle.spend
    verification = ps.verify(bundle.path, ledger=ledger)
    assert verification.ok, verification


@pytest.fixture(scope="module")
def dawa(tmp_path_factory):
    """A whole release by DAWA."""
    place = ready(tmp_path_factory.mktemp("dawa") / "job", "DAWA")
    return ps.release(place)


@pytest.fixture
def copy(dawa, tmp_path):
    """A bundle that a test may spoil."""
    shutil.copytree(dawa.path, tmp_path / "bundle")
    return tmp_path / "bundle"


def failures(place):
    return {check.name: check.text for check in ps.verify(place).checks if not check.ok}


def rehashed(place):
    """The hashes brought up to date, as a forger would."""
    manifest = json.loads((place / "manifest.json").read_text())
    for name in manifest["files"]:
        manifest["files"][name] = hashlib.sha256((place / name).read_bytes()).hexdigest()
    (place / "manifest.json").write_text(json.dumps(manifest))


def edited(place, change):
    manifest = json.loads((place / "manifest.json").read_text())
    change(manifest)
    (place / "manifest.json").write_text(json.dumps(manifest))


def test_another_partition_is_not_what_was_paid_for(copy):
    file = copy / "requests" / "1" / "measurements.parquet"
    lengths = pq.read_table(file)["value"].to_pylist()
    lengths = [lengths[0] + lengths[1], *lengths[2:]] if len(lengths) > 1 else [1, lengths[0] - 1]
    pq.write_table(type(pq.read_table(file)).from_pydict({"value": lengths}), file)
    edited(copy, lambda m: m["requests"][0].update(answers=len(lengths)))
    rehashed(copy)
    wrong = failures(copy)
    assert "the noisy integers are not those that the ledger stored" in wrong["receipt"]
    assert "plan" in wrong


def test_another_question_is_not_what_was_paid_for(copy):
    file = copy / "requests" / "2" / "question.bin"
    kind, query, spend = gate.from_bytes(file.read_bytes())
    other = ps.Query.of(ps.matrix.Identity(query.shape[1]))
    file.write_bytes(gate.to_bytes((kind, other, spend)))
    rehashed(copy)
    assert "request 2 was paid for another query" in failures(copy)["plan"]


@pytest.mark.parametrize(
    ("change", "check", "text"),
    [
        (lambda m: m["method"].update(name="AHP"), "request", "the plan 'DAWA'"),
        (lambda m: m["method"].update(name="DAVA"), "plan", "leads to 'DAWA'"),
        (lambda m: m["method"].update(options={"share": "1/2"}), "plan", "leads to 'DAWA' with {}"),
        (lambda m: m["requests"][0].update(spend=["epsilon", "1/4"]), "request", "did not spend"),
        (lambda m: m["requests"][0].update(kind="choose"), "plan", ""),
        (lambda m: m["published"].update(reason="it is best"), "published view", "something else"),
    ],
)
def test_a_manifest_that_says_otherwise(copy, change, check, text):
    edited(copy, change)
    assert text in failures(copy)[check]


def test_numbers_that_were_touched(copy):
    file = next((copy / "consistent").glob("*.csv"))
    lines = file.read_text().splitlines()
    label, number = lines[5].rsplit(",", 1)
    lines[5] = f"{label},{float(number) + 1}"
    file.write_text("\n".join(lines) + "\n")
    rehashed(copy)
    assert "from its recomputation" in failures(copy)["consistent view"]


def test_questions_of_floats_are_asked_as_they_were(copy, monkeypatch):
    """Where a machine works a question out otherwise, the one that was paid for is asked."""
    from psephos.plans import buckets

    tree = buckets.select.greedy_h
    monkeypatch.setattr(buckets.select, "greedy_h", lambda w, noise: ps.select.identity(w, noise))
    verification = ps.verify(copy)
    monkeypatch.setattr(buckets.select, "greedy_h", tree)
    assert verification.ok, verification
    (text,) = [check.text for check in verification.checks if check.name == "plan"]
    assert "request 2" in text
    assert "NOT checked" in text


def test_free_answers_are_biased_and_say_so(dawa):
    reply = ps.ask(dawa, "SELECT COUNT(*) FROM people WHERE days < 8")
    assert reply.view == "plan"
    assert "stderr" not in reply.table.column_names
    assert "by a plan's estimate" in repr(reply)
    prefix = dawa.table("up to", "consistent")["count"].to_pylist()[7]
    assert reply.table["count"].to_pylist() == [pytest.approx(prefix)]
    assert dawa.answer(dawa.job.workload).biased
    with pytest.raises(ps.ReleaseError, match="no price on top of it"):
        ps.price(dawa, "SELECT COUNT(*) FROM people", 10)


KILLED = """
import os, signal, sys
import psephos as ps
from psephos.kernel.protected import ProtectedVector
place, steps = sys.argv[1], int(sys.argv[2])
count, measure, choose = [0], ProtectedVector.measure, ProtectedVector.choose
def counted(request):
    def ask(self, *args, **more):
        result = request(self, *args, **more)
        count[0] += "release waits" in str(more.get("key"))
        if count[0] == steps:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return ask
ProtectedVector.measure, ProtectedVector.choose = counted(measure), counted(choose)
ps.release(place)
"""


@pytest.mark.slow
def test_killed_between_requests_it_goes_on_and_pays_once(tmp_path):
    place = ready(tmp_path / "job", "MWEM", options=", options = { rounds = 2 }")
    ledger = ps.Ledger.open(place.parent / "people.ledger")
    for steps in (1, 3, 99):
        words = [sys.executable, "-c", KILLED, str(place), str(steps)]
        ended = subprocess.run(words, capture_output=True, text=True)
        assert ended.returncode == (0 if steps == 99 else -9), ended.stderr
        assert len(ledger.history()) == min(steps, 5)
    assert ledger.spent() == ps.epsilon("1/2")
    assert ps.verify(place.parent / "bundle", ledger=ledger).ok


def test_a_question_on_disk_is_asked_again_to_the_letter(tmp_path):
    place = ready(tmp_path / "job", "DAWA")
    job = Job.read(place)
    files = QuestionFiles.of(job)
    assert files.settled(0, b"first") == b"first"
    assert files.settled(0, b"second") == b"first"


# ---- what a release file may say ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("DAWA", "DAVA", "no plan called 'DAVA'; did you mean 'DAWA'?.*measure"),
        ('"DAWA"', '"DAWA", options = { ratio = "1/4" }', "no option 'ratio'; it has"),
        ('"DAWA"', '"measure", options = { rounds = 4 }', "'measure' has none"),
        ("budget = { epsilon = 0.5 }", "", "no budget can be promised to reach a target"),
        ('name = "waits"', 'name = "waits"\nbuilds_on = ["older"]', "no bundle at"),
    ],
)
def test_mistakes_are_named_before_a_charge(tmp_path, old, new, words):
    text = LINE.replace("PLAN", "DAWA").replace(old, new)
    if not new:
        text += "target = { plus_minus = 50 }\n"
    place = write_job(tmp_path / "job", text, waits(1))
    with pytest.raises(ps.ReleaseError, match=f"(?s){words}"):
        ps.plan(place)


def test_a_plan_is_not_built_on(dawa, tmp_path):
    text = LINE.replace("PLAN", "measure").replace(
        'title = "Days', f'builds_on = ["{dawa.path}"]\ntitle = "Days'
    )
    place = write_job(tmp_path / "job", text, waits(1))
    with pytest.raises(ps.ReleaseError, match="made by 'DAWA', a plan that adapts"):
        ps.plan(place)


def test_rho_buys_no_private_choice(tmp_path):
    text = LINE.replace("PLAN", "DAWA").replace("epsilon = 0.5", 'rho = "1/8"')
    place = write_job(tmp_path / "job", text.replace('epsilon = "2"', 'rho = "2"'), waits(1))
    with pytest.raises(ps.ReleaseError, match=r"paid in epsilon.*which a ledger in rho books too"):
        ps.plan(place)


def test_a_spent_ledger_pays_for_no_step(tmp_path):
    place = ready(tmp_path / "job", "DAWA", LINE.replace('epsilon = "2"', 'epsilon = "1/2"'))
    ps.release(place)
    text = place.read_text().replace('name = "waits"', 'name = "more waits"')
    place.write_text(text.replace("[schema", 'output = { bundle = "more" }\n\n[schema', 1))
    ledger = ps.Ledger.open(place.parent / "people.ledger")
    with pytest.raises(ps.BudgetExceededError, match="remains"):
        ps.release(place)
    assert len(ledger.history()) == 2


def test_fixed_plans_choose_a_strategy(tmp_path):
    text = LINE.replace("PLAN", "HB")
    place = ready(tmp_path / "job", "HB", text)
    forecast = ps.plan(place)
    assert forecast.strategy.name == "HB"
    bundle = ps.release(place)
    assert bundle.method is None
    assert bundle.manifest["strategy"] == "HB"
    assert "stderr" in bundle.table("up to").column_names
    assert ps.verify(bundle.path).ok


def test_plans_show_simulated_errors_beside_exact_ones(tmp_path):
    place = ready(tmp_path / "job", "DAWA")
    forecast = ps.plan(place)
    assert isinstance(forecast, ps.PlanForecast)
    assert "simulated error" in repr(forecast)
    assert forecast.stand_in == "10,000 made-up rows"
    shown = CliRunner().invoke(app, ["plan", str(place), "--json"])
    plain = json.loads(shown.stdout)
    assert plain["simulated_rmse"] == pytest.approx(forecast.rmse)
    assert plain["without_data_rmse"] == forecast.without_data
    assert plain["method"]["name"] == "DAWA"
    assert plain["measured"]["rmse"] == pytest.approx(forecast.measured.rmse)
    words = CliRunner().invoke(app, ["plan", str(place)]).stdout
    assert "SIMULATED" in words
    assert "zero for every number errs by" in " ".join(words.split())
    refused = CliRunner().invoke(app, ["plan", str(place), "--epsilon", "1,2"])
    assert refused.exit_code
    assert "simulated at the file's budget" in refused.output


def test_answers_without_data_are_set_beside_a_plan(tmp_path):
    """By their definition; and a plan that is no closer is not recommended."""
    forecast = ps.plan(ready(tmp_path / "job", "DAWA"))
    job, (_, counts) = forecast.job, stand_in_of(forecast.job)
    truth = job.workload.answer(counts)
    even = job.workload.answer(np.full(counts.size, counts.sum() / counts.size))
    expected = {"zero": weighted_rmse(job, truth), "uniform": weighted_rmse(job, even - truth)}
    assert forecast.without_data == pytest.approx(expected)
    assert "spend more" not in forecast.without_data_words
    blind = replace(forecast, published=2 * max(expected.values()))
    assert "as close as DAWA" in blind.without_data_words
    assert "spend more, or ask for fewer tables" in blind.without_data_words


def test_rehearsals_are_whole_and_say_so(tmp_path):
    place = ready(tmp_path / "job", "DAWA")
    bundle = ps.rehearse(place, rows=300)
    assert bundle.simulation
    assert ps.verify(bundle.path).ok
    assert "made_up" in bundle.table("up to", "published").column_names
    assert not ps.Ledger.open(place.parent / "people.ledger").history()


# ---- stand-ins ---------------------------------------------------------------------------------


def with_stand_in(folder, text, days):
    place = ready(
        folder, "auto", text.replace('"people.csv"', '"people.csv"\nstand_in = "old.csv"')
    )
    (folder / "old.csv").write_text("days\n" + "\n".join(map(str, days)) + "\n")
    return place


def test_auto_measures_where_nothing_speaks_for_another_plan(tmp_path):
    place = ready(tmp_path / "job", "auto")
    method = method_of(Job.read(place))
    assert method.name == "measure"
    assert "no public table" in method.reason
    plain = json.loads(CliRunner().invoke(app, ["plan", str(place), "--json"]).stdout)
    assert plain["method"] == {"name": "measure", "reason": method.reason}
    bundle = ps.release(place)
    assert bundle.method is None
    assert bundle.manifest["method"]["reason"] == method.reason
    assert ps.verify(bundle.path).ok


def test_a_lost_decision_is_told_from_a_new_request(tmp_path, monkeypatch):
    """Where what was decided is gone, and comes out otherwise, nothing is charged again."""
    decided = {"DAWA": ps.ReleaseMethod("DAWA", {}, "it was closer")}
    monkeypatch.setattr(sys.modules[method_of.__module__], "_decided", lambda _: decided["DAWA"])
    place = ready(tmp_path / "job", "auto")
    bundle = ps.release(place)
    assert bundle.method.name == "DAWA"
    ledger = ps.Ledger.open(place.parent / "people.ledger")
    spent = ledger.spent()
    shutil.rmtree(bundle.path)
    shutil.rmtree(place.parent / ".psephos")
    assert check_release(place).ok
    decided["DAWA"] = ps.ReleaseMethod("measure", {}, "it was not")
    with pytest.raises(ps.LedgerError, match="put that folder back"):
        ps.release(place)
    assert ledger.spent() == spent


@pytest.mark.slow
def test_auto_takes_the_plan_that_is_closest_on_the_stand_in(tmp_path):
    text = LINE.replace("[0, 31]", "[0, 255]").replace("epsilon = 0.5", "epsilon = 0.05")
    job = Job.read(with_stand_in(tmp_path / "job", text, [100] * 5000))
    method = method_of(job)
    assert method.adaptive
    assert "on the stand-in" in method.reason
    assert method_of(job) == method  # stored, and not decided anew
    bundle = ps.release(job)
    assert bundle.method.name == method.name
    assert ps.verify(bundle.path).ok
    assert "old.csv" not in (bundle.path / "release.json").read_text()


def test_the_source_does_not_stand_in_for_itself(tmp_path):
    text = LINE.replace('"people.csv"', '"people.csv"\nstand_in = "people.csv"')
    with pytest.raises(ps.ReleaseError, match="the source itself"):
        ready(tmp_path / "job", "DAWA", text)
    with pytest.raises(ps.ReleaseError, match="the source itself"):
        ps.plan(tmp_path / "job" / "release.toml")


PRIOR = LINE.replace('name = "PLAN"', 'name = "measure"').replace(
    "[schema.days]", 'output = { prior = "stand_in" }\nstand_in = "old.csv"\n\n[schema.days]'
)


def test_published_numbers_are_drawn_towards_a_public_table(tmp_path):
    place = write_job(tmp_path / "job", "total = 400\n" + PRIOR.replace("0.5", "0.01"), waits(1))
    (place.parent / "old.csv").write_text(waits(1, rows=4000))
    job = Job.read(place)
    create_ledger(job)
    assert check_release(job).ok
    bundle = ps.release(place)
    assert bundle.manifest["published"]["method"] == "entropy"
    assert "stands in" in bundle.manifest["published"]["reason"]
    assert ps.verify(bundle.path).ok
    old = np.bincount([int(d) for d in waits(1, rows=4000).split()[1:]], minlength=32)
    assert_allclose(bundle.job.prior, old)
    # Before its first step it is the prior, but for a hundredth that is spread evenly.
    views = bundle.views
    facts = {"prior": bundle.job.prior, "total": 400, "steps": 0}
    start = ps.infer.maximum_entropy(views.least_squares, bundle.job.workload, **facts).vector
    assert_allclose(start / 400, 0.99 * old / 4000 + 0.01 / 32, atol=1e-9)
    file = bundle.path / "estimate" / "prior.parquet"
    table = pq.read_table(file)
    counts = table["count"].to_pylist()[::-1]
    pq.write_table(type(table).from_pydict({"count": counts}), file)
    assert not ps.verify(bundle.path).ok


def test_a_prior_needs_a_stand_in(tmp_path):
    place = write_job(tmp_path / "job", PRIOR.replace('stand_in = "old.csv"', ""), waits(1))
    with pytest.raises(ps.ReleaseError, match=r"output\.prior: there is no stand-in"):
        ps.plan(place)
    place.write_text(PRIOR)
    with pytest.raises(ps.ReleaseError, match=r"stand_in: .*old\.csv"):
        ps.plan(place)


def test_relative_errors_are_small_beside_the_numbers(tmp_path):
    text = LINE.replace('name = "PLAN"', 'name = "measure"').replace('"identity"', '"opt0"')
    plain = ps.plan(ready(tmp_path / "plain", "measure", text))
    kind = '"opt0", restarts = 1, error = "relative"'
    beside = ps.plan(ready(tmp_path / "beside", "measure", text.replace('"opt0"', kind)))
    sizes = np.arange(1, 33)  # a prefix counts so many cells
    shares = [np.mean((f.widths.stderr / sizes) ** 2) for f in (plain, beside)]
    assert shares[1] < 0.9 * shares[0]
    assert beside.rmse > plain.rmse


def test_plans_are_compared_on_the_file_s_stand_in(tmp_path):
    job = Job.read(with_stand_in(tmp_path / "job", LINE, [3] * 50))
    table = compare_plans(job, plans=["Identity"], trials=1)
    assert table.stand_in == "the public table old.csv (50 rows)"


def test_what_no_table_asks_about_is_a_model_s_to_answer(tmp_path):
    text = PLANE[: PLANE.index('\n[[tables]]\nname = "wards"')]
    bundle = ps.release(ready(tmp_path / "job", "DAWA", text))
    question = "SELECT COUNT(*) FROM people WHERE ward = 1"
    with pytest.raises(ps.UnsupportedError, match="asks about ward, so its plan had no reason"):
        ps.ask(bundle, question)
    assert ps.ask(bundle, question, model=True).is_model


def test_a_damaged_question_is_named(copy):
    file = copy / "requests" / "2" / "question.bin"
    file.write_bytes(file.read_bytes()[:-3])
    assert "requests/2/question.bin is damaged" in failures(copy)["request"]


def test_all_charges_are_looked_up(dawa):
    ledger = dawa.path.parent / "people.ledger"
    verification = ps.verify(dawa.path, ledger=ledger)
    (text,) = [check.text for check in verification.checks if check.name == "ledger"]
    assert text.startswith("2 records")
    assert not [text for text in verification.cannot if "without the ledger" in text]
