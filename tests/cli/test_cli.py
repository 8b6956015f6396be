"""The command line: each command as a person and as a program would call it."""

import errno
import json
import re
import sys
import tomllib

import pytest
from typer.testing import CliRunner

import psephos as ps
from psephos.cli.app import app, main
from psephos.cli.render import search_words
from psephos.cli.terminal import SparseLines
from psephos.kernel.budget import epsilon
from psephos.kernel.ledger import Charge
from psephos.release import run as release_run
from psephos.release.bundle.bundle import Bundle
from psephos.release.methods import measured
from psephos.release.preflight.checks import open_ledger
from psephos.release.spec import job as request
from psephos.release.spec.job import Job
from tests.release.conftest import RELEASE, write_job

OTHER_BUNDLE = '[output]\nbundle = "second"\n'


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args], env={"NO_COLOR": "1"})


def told(*args, code=0):
    result = run(*args, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


@pytest.fixture
def folder(tmp_path):
    return write_job(tmp_path / "job").parent


def test_from_check_to_ask(folder):
    checked = told("check", folder, "--create-ledger", code=0)
    assert checked["private"].startswith("PRIVATE")
    assert (folder / "people.ledger").exists()
    plan = told("plan", folder)
    assert [t["name"] for t in plan["tables"]] == ["pets", "young"]
    assert plan["left"]["exact"] == "2"
    assert plan["rivals"][0]["rmse"] >= 0.99 * plan["rmse"]
    assert set(plan["cost"]) == {"seconds", "bytes"}
    assert plan["cost"]["seconds"] > 0
    names = ["measuring and estimating", "intervals", "tables and report", "published numbers"]
    assert [step["name"] for step in plan["steps"]] == names
    assert all(step["seconds"] > 0 and step["bytes"] > 0 for step in plan["steps"])
    rehearsed = told("rehearse", folder, "--rows", 200)
    assert rehearsed["simulation"]
    released = told("release", folder)
    assert released["ledger"]["spent"]["exact"] == "1/2"
    assert told("release", folder)["ledger"]["spent"]["exact"] == "1/2"
    bundle = folder / "bundle"
    assert told("verify", bundle, "--ledger", folder / "people.ledger")["ok"]
    free = told("ask", bundle, "SELECT pet, COUNT(*) FROM people GROUP BY pet")
    assert free["cost"] == 0
    assert free["view"] == "consistent"
    assert [row["pet"] for row in free["rows"]] == ["cat", "dog", "horse", "(other)"]
    priced = told("ask", bundle, "SELECT age, COUNT(*) FROM t GROUP BY age", "--plus-minus", "20")
    assert priced["needs"]["about"] <= priced["without_past_measurements"]["about"]
    deep = f"SELECT COUNT(*) FROM people WHERE {'(' * 500}age < 1{')' * 500}"
    assert "nested too deeply" in told("ask", bundle, deep, code=2)["error"]["message"]
    (charge,) = told("budget", folder)["charges"]
    assert charge["answered"]
    assert (charge["number"], charge["release"]) == (1, "pets")
    assert charge["key"].startswith("release pets ")
    assert charge["what"].startswith("Query(")


def test_people_see_tables_and_words(folder):
    assert "PRIVATE" in run("check", folder, "--create-ledger").stdout
    shown = run("plan", folder).stdout
    for words in ("chosen: ", "every cell (Identity)", "The expensive table is", "± 95%"):
        assert words in shown
    shown = run("rehearse", folder, "--rows", 10).stdout
    assert "REHEARSAL" in shown
    assert "True" not in shown
    shown = run("release", folder).stdout
    for words in ("±", "this run spent epsilon 1/2", "report: "):
        assert words in shown
    assert "this run spent nothing" in run("release", folder).stdout
    assert "ok      receipt" in run("verify", folder / "bundle").stdout
    assert "left epsilon 3/2" in run("budget", folder / "people.ledger").stdout
    asked = run("ask", folder / "bundle", "SELECT pet, COUNT(*) FROM people GROUP BY pet").stdout
    assert "numbers of the consistent view" in " ".join(asked.split())


def test_the_budget_lists_charges_as_people_name_them(folder):
    run("check", folder, "--create-ledger")
    for name in ("pets", "more [pets]"):
        text = RELEASE.replace('name = "pets"\ntitle', f'name = "{name}"\ntitle')
        write_job(folder, text + f'\n[output]\nbundle = "of {name}"\n')
        assert run("release", folder).exit_code == 0
    ledger = open_ledger(Job.read(folder))
    tiny = epsilon("1/100")
    other = ledger._charge(
        Charge("another key", "f", tiny, label="by hand", schema="s", snapshot="rows")
    )
    other._store(b"1")
    lines = run("budget", folder).stdout.splitlines()
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if "│" in line]
    times = [entry.time[:16].replace("T", " ") for entry in ledger.history()]
    assert [row[0] for row in rows] == ["1", "2", "3"]
    assert [row[1] for row in rows] == times
    assert [row[2] for row in rows] == ["pets", "more [pets]", "another key"]
    assert rows[0][3].isdigit()
    assert [row[3] for row in rows][2] == "by hand"
    assert [row[4] for row in rows] == ["0.5", "0.5", "0.01"]


def test_a_budget_in_rho_is_readable(folder):
    text = RELEASE.replace('epsilon = "2"', "epsilon = 2\ndelta = 1e-6")
    write_job(folder, text.replace("epsilon = 0.5", "epsilon = 0.5\ndelta = 1e-6"))
    run("check", folder, "--create-ledger")
    shown = (
        run("plan", folder).stdout + run("release", folder).stdout + run("budget", folder).stdout
    )
    flat = " ".join(shown.split())
    assert not re.search(r"\d{5,}/\d", flat)
    assert "left rho ~" in flat
    assert "(at delta 1e-6: epsilon ~" in flat
    assert "/" in told("budget", folder)["spent"]["exact"]
    wrong = run("plan", folder, "--epsilon", "0.5,1")
    assert "planned in rho, got epsilon 1/2 (~0.5); give --rho" in " ".join(wrong.output.split())


def test_budgets_are_compared(folder):
    plans = told("plan", folder, "--epsilon", "0.5,1,2")
    widths = [plan["tables"][0]["half_width"] for plan in plans]
    assert widths[0] == pytest.approx(2 * widths[1], rel=0.1)
    assert "epsilon 2" in run("plan", folder, "--epsilon", "0.5,2").stdout


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["plan", "nowhere.toml"], 2, "there is no release file at nowhere.toml"),
        (["plan", "{folder}", "--epsilon", "one"], 2, "'one' is not a finite number"),
        (["plan", "{folder}", "--epsilon", "-1"], 2, "more than 0"),
        (["plan", "{folder}", "--rho", "1"], 2, "planned in epsilon, got rho 1; give --epsilon"),
        (["release", "{folder}"], 4, "--create-ledger"),
        (["budget", "{folder}/no.ledger"], 4, "there is no ledger at"),
        (["verify", "{folder}"], 2, "there is no bundle at"),
        (["verify", "{folder}/release.toml"], 2, "toml is a file, not a bundle's folder"),
        (["ask", "{folder}/people.csv", "SELECT"], 2, "csv is a file, not a bundle's folder"),
        (["init", "{folder}/no.csv"], 5, "there is no file"),
        (["check", "{folder}"], 0, "PRIVATE"),
        (["rehearse", "{folder}", "--rows", "-1"], 2, "rows is a whole number from 0"),
    ],
)
def test_mistakes_have_codes_and_words(folder, args, code, words):
    args = [arg.format(folder=folder) for arg in args]
    result = run(*args)
    assert result.exit_code == code, result.output
    assert words in " ".join(result.output.split())
    if code:
        assert words in json.loads(run(*args, "--json").stdout)["error"]["message"]


@pytest.mark.parametrize("json_wanted", [True, False])
@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["rehearse", "--rows", "many"], "Invalid value for '--rows'"),
        (["plan", "--no-such"], "No such option: --no-such"),
        (["ask"], "Missing argument 'bundle'"),
        (["no-such-command"], "No such command 'no-such-command'"),
    ],
)
def test_mistakes_in_arguments_are_json_when_asked(args, words, json_wanted, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["psephos", *args, *["--json"] * json_wanted])
    with pytest.raises(SystemExit) as exit_code:
        main()
    assert exit_code.value.code == 2
    shown = capsys.readouterr()
    if json_wanted:
        error = json.loads(shown.out)["error"]
        assert error["kind"] == "UsageError"
        assert words in error["message"]
    else:
        assert words in " ".join(shown.err.split())
        assert shown.out == ""


def test_main_runs_commands_with_json_too(folder, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["psephos", "verify", str(folder), "--json"])
    with pytest.raises(SystemExit) as exit_code:
        main()
    assert exit_code.value.code == 2
    assert json.loads(capsys.readouterr().out)["error"]["kind"] == "ReleaseError"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("release", "stopped; what was charged stays in the ledger: run the same"),
        ("rehearse", "stopped; nothing was charged"),
    ],
)
@pytest.mark.parametrize("disguise", [KeyboardInterrupt, SystemError])
def test_ctrl_c_says_what_is_charged(folder, command, words, disguise, monkeypatch):
    run("check", folder, "--create-ledger")

    def interrupted(*_, **__):
        raise disguise

    monkeypatch.setattr(
        "psephos.cli.terminal.INTERRUPTS", [2] * (disguise is not KeyboardInterrupt)
    )
    monkeypatch.setattr(release_run, command, interrupted)
    result = run(command, folder)
    assert result.exit_code == 130
    assert result.output.startswith(words)
    assert len(result.output.splitlines()) == 1
    assert words in told(command, folder, code=130)["error"]["message"]


@pytest.mark.parametrize(
    ("command", "words"), [("release", "run the same command again"), ("plan", "nothing was")]
)
def test_too_little_memory_ends_in_a_sentence(folder, command, words, monkeypatch):
    run("check", folder, "--create-ledger")

    def full(workload, noise, **_):
        raise MemoryError

    monkeypatch.setattr("psephos.strategy.select.opt_product", full)
    result = run(command, folder)
    assert result.exit_code == 2
    assert "not enough memory" in result.output
    assert words in " ".join(result.output.split())
    assert told(command, folder, code=2)["error"]["kind"] == "MemoryError"


def test_too_little_memory_names_the_largest_table(folder, monkeypatch):
    def full(workload, noise=None, **_):  # as selections and readers are called
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    monkeypatch.setattr("psephos.strategy.select.opt_product", full)
    words = " ".join(run("plan", folder).output.split())
    assert "leave out table 'pets', the largest with" in words
    monkeypatch.setattr(Bundle, "open", full)
    words = " ".join(run("ask", folder / "bundle", "SELECT COUNT(*) FROM people").output.split())
    assert "not enough memory for this: go where more is free" in words


def test_memory_that_runs_out_after_the_charge_loses_nothing(folder, monkeypatch):
    run("check", folder, "--create-ledger")

    def full(*_, **__):
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(measured, "write_bundle", full)
        result = run("release", folder)
    assert result.exit_code == 2
    assert "without a second charge" in " ".join(result.output.split())
    spent = open_ledger(Job.read(folder)).spent()
    assert spent == ps.epsilon("1/2")
    assert run("release", folder).exit_code == 0
    assert open_ledger(Job.read(folder)).spent() == spent
    assert run("verify", folder / "bundle").exit_code == 0


def test_what_is_too_large_says_so_in_its_own_words(folder, monkeypatch):
    monkeypatch.setattr(request, "MOST_NUMBERS", 5)
    result = run("plan", folder)
    assert result.exit_code == 2
    assert "tables 'pets': it asks for" in result.output


@pytest.mark.parametrize("as_json", [False, True])
def test_a_release_that_cannot_be_shown_is_there(folder, as_json, monkeypatch):
    """What was paid for and written is no mistake because a terminal cannot have it."""
    run("check", folder, "--create-ledger")

    def broken(*_):
        raise KeyError("unit")

    monkeypatch.setattr("psephos.cli.render.made_up_words", broken)
    result = run("release", folder, *["--json"] * as_json)
    assert result.exit_code == 0
    assert str(Job.read(folder).bundle.name) in result.output
    assert run("verify", Job.read(folder).bundle).exit_code == 0


def test_a_spent_budget_exits_with_3(folder):
    run("check", folder, "--create-ledger")
    run("release", folder)
    write_job(folder, RELEASE.replace("epsilon = 0.5", "epsilon = 1.8") + OTHER_BUNDLE)
    result = run("release", folder)
    assert result.exit_code == 3
    assert "is left" in result.output
    assert open_ledger(Job.read(folder)).spent() == ps.epsilon("1/2")


def test_a_bundle_is_not_written_over_a_file(folder):
    run("check", folder, "--create-ledger")
    write_job(folder, RELEASE + '\n[output]\nbundle = "people.csv"\n')
    assert "people.csv is a file, not a bundle's folder" in run("release", folder).output


def test_findings_of_the_check_exit_with_1(folder):
    write_job(
        folder, RELEASE.replace('unknown = "other"', ""), data="age,pet\nold,cat\n3,newt\n,dog\n"
    )
    result = run("check", folder)
    assert result.exit_code == 1
    assert "newt" in result.output
    assert "PRIVATE" in result.output


def test_init_writes_a_draft_once(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert run("init", "people.csv", "-o", "draft.toml").exit_code == 0
    assert 'source = "people.csv"' in (folder / "draft.toml").read_text()
    assert run("init", "people.csv", "-o", "draft.toml").exit_code == 2
    assert "privacy.unit is missing" in run("plan", "draft.toml").output


def test_the_schema_is_for_editors():
    assert json.loads(run("schema").stdout)["title"] == "ReleaseFile"


def test_plans_at_other_budgets_measure_the_same(folder):
    target = "target = { plus_minus = 60, simultaneous = true, confidence = 0.9 }"
    text = RELEASE.replace("[budget]\nepsilon = 0.5", "").replace("weight = 2", target)
    write_job(folder, text)
    made = told("plan", folder)
    (young,) = (t for t in made["tables"] if t["target"] is not None)
    assert young["target"] == {"half_width": 60, "confidence": 0.9, "simultaneous": True}
    assert young["reached"] <= 60 * (1 + 1e-6) < young["simultaneous_half_width"]  # at 95 %
    assert "± 60 at 90%, all" in run("plan", folder).stdout
    exact = made["budget"]["exact"]
    (same, double) = told("plan", folder, "--epsilon", f"{exact},1")
    assert same["tables"] == made["tables"]
    assert double["tables"][0]["half_width"] < made["tables"][0]["half_width"]


def test_noise_beyond_64_bits_is_refused_before_the_charge(folder):
    write_job(folder, RELEASE.replace("epsilon = 0.5", 'epsilon = "1e-20"'))
    run("check", folder, "--create-ledger")
    for command in ("plan", "release"):
        found = run(command, folder)
        assert found.exit_code == 2
        assert "more than whole numbers of 64 bits hold; spend at least" in found.stderr
    assert told("budget", folder)["charges"] == []


@pytest.mark.parametrize(
    "target", ["plus_minus = 0.99", "plus_minus = 5", "relative = 0.1, guess = 90"]
)
def test_targets_are_met(folder, target):
    text = RELEASE.replace("[budget]\nepsilon = 0.5", "").replace(
        "weight = 2", f"target = {{ {target} }}"
    )
    write_job(folder, text)
    (young,) = (t for t in told("plan", folder)["tables"] if t["target"] is not None)
    assert young["reached"] <= young["target"]["half_width"] * (1 + 1e-6)
    assert young["reached"] == young["half_width"]


def test_a_plan_names_the_number_that_decides(folder):
    text = RELEASE.replace("[budget]\nepsilon = 0.5", "").replace('"opt_product"', '"identity"')
    text = text.replace('columns = ["pet"]', 'columns = ["pet"]\ntarget = { plus_minus = 30 }')
    write_job(folder, text.replace("weight = 2", "target = { plus_minus = 30 }"))
    plan = told("plan", folder)
    assert plan["bottleneck"] == {"table": "pets", "number": "total", "ties": 1}
    pets, young = plan["tables"]
    assert pets["bottleneck"] == {"number": "total", "ties": 1}
    assert young["bottleneck"] == {"number": "age < 12, pet = cat", "ties": 4}
    assert pets["needs"] == plan["budget"]
    assert young["needs"]["about"] < pets["needs"]["about"]
    shown = " ".join(run("plan", folder).stdout.split())
    assert "'pets': it decides the budget; the number that needs it is total." in shown
    assert "for the number" in shown
    assert "age < 12" in shown


def test_a_plan_at_a_given_budget_names_the_widest_number(folder):
    shown = " ".join(run("plan", folder).stdout.split())
    assert "of the error; its widest number is" in shown
    assert told("plan", folder)["bottleneck"]["number"]


def test_questions_may_look_at_columns_together(folder):
    run("check", folder, "--create-ledger")
    run("release", folder)
    conditions = ["pet = 'cat' OR age < 6", "pet = 'cat'", "age < 6", "pet = 'cat' AND age < 6"]
    questions = [f"SELECT COUNT(*) FROM t WHERE {condition}" for condition in conditions]
    replies = [told("ask", folder / "bundle", question)["rows"] for question in questions]
    either, cat, young, both = (rows[0]["count"] for rows in replies)
    assert either == pytest.approx(cat + young - both, abs=1e-6)


MORE_TABLES = """
[[tables]]
name = "all pets"
rows = ["pet"]

[[tables]]
name = "mean age"
statistic = "mean"
of = "age"
rows = ["pet"]

[[tables]]
name = "ages"
rows = ["age"]
"""


def test_what_is_not_shown_or_not_known_is_said(folder):
    text = RELEASE.replace("[selection]", f"{MORE_TABLES}\n[selection]")
    (folder / "release.toml").write_text(text, encoding="utf-8")
    assert "above are the errors of the counts" in run("plan", folder, "--epsilon", "0.5,1").stdout
    run("check", folder, "--create-ledger")
    assert "and 2 more tables in the files and the report" in run("release", folder).stdout
    question = "SELECT pet, AVG(age) FROM t WHERE age < 15 GROUP BY pet"
    shown = run("ask", folder / "bundle", question, "--model").stdout
    rows = told("ask", folder / "bundle", question, "--model")["rows"]
    for row in rows:
        assert re.search(rf"{re.escape(row['pet'])} .*mean of age.* {row['value']:.5g} ", shown)
    assert "A model answers" in shown


def test_a_question_that_is_precise_enough_is_free(folder):
    run("check", folder, "--create-ledger")
    run("release", folder)
    question = "SELECT pet, COUNT(*) FROM people GROUP BY pet"
    assert told("ask", folder / "bundle", question, "--plus-minus", "500")["needs"]["exact"] == "0"
    shown = run("ask", folder / "bundle", question, "--plus-minus", "500").stdout
    assert "free: past measurements are that precise" in shown


def test_a_check_tells_of_a_ledger_that_does_not_fit(folder):
    run("check", folder, "--create-ledger")
    before = (folder / "people.ledger").read_bytes()
    write_job(folder, RELEASE.replace('"add_remove_row"', '"substitute_row"'))
    found = run("check", folder)
    assert found.exit_code == 4
    assert "PRIVATE" in found.stdout
    assert "the unit of a ledger is for life, so correct [privacy]" in found.stderr
    write_job(folder, RELEASE.replace('epsilon = "2"', 'epsilon = "3"'))
    error = told("check", folder, code=4)["error"]
    assert "holds epsilon 2 for life, the release file says epsilon 3" in error["message"]
    assert (folder / "people.ledger").read_bytes() == before


def test_budgets_beyond_the_ledger_are_told(folder):
    shown = run("plan", folder, "--epsilon", "0.5,9").stdout
    assert "epsilon 9 is more than what the ledger will hold, epsilon 2" in shown
    run("check", folder, "--create-ledger")
    small, large = told("plan", folder, "--epsilon", "2,9")
    assert small["shortage"] is None
    assert large["shortage"] == "epsilon 9 is more than what is left in the ledger, epsilon 2"


def test_a_release_file_in_this_folder_needs_no_name(folder, monkeypatch):
    content = tomllib.loads((folder / "release.toml").read_text())
    (folder / "release.toml").rename(folder / "old.toml")
    (folder / "release.json").write_text(json.dumps(content))
    monkeypatch.chdir(folder)
    assert told("plan")["name"] == "pets"


def test_a_price_says_where_its_lines_go(folder, monkeypatch):
    run("check", folder, "--create-ledger")
    run("release", folder)
    monkeypatch.chdir(folder)
    question = "SELECT age, COUNT(*) FROM t GROUP BY age"
    said = run("ask", "bundle", question, "--plus-minus", "20").stdout
    assert "put builds_on at the top, before any [section]" in said
    top, table = said.partition("builds_on =")[2].split("\n\n", 1)
    copy = RELEASE.replace('name = "pets"\ntitle', f'builds_on ={top}\nname = "more"\ntitle')
    copy = copy.replace("[budget]\nepsilon = 0.5\n", "")
    copy = copy[: copy.index("[[tables]]")] + table + '\n[output]\nbundle = "more"\n'
    (folder / "more.toml").write_text(copy)
    assert told("plan", "more.toml")["builds_on"] == ["pets"]
    assert told("release", "more.toml")["bundle"].endswith("more")


def test_a_thorough_plan_is_what_will_be_measured(folder):
    text = (folder / "release.toml").read_text().replace('"opt_product"', '"hdmm"')
    (folder / "release.toml").write_text(text)
    quick = told("plan", folder)
    thorough = told("plan", folder, "--thorough")
    assert thorough["rmse"] <= quick["rmse"] * (1 + 1e-9)
    assert told("plan", folder)["rmse"] == thorough["rmse"]


def test_an_interrupted_plan_shows_the_best_so_far(folder, monkeypatch):
    text = (folder / "release.toml").read_text().replace('"opt_product"', '"hdmm"')
    (folder / "release.toml").write_text(text)
    calls = []

    def interrupt(name, gain, cells):
        calls.append((name, gain, cells))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return name

    monkeypatch.setattr("psephos.cli.render.search_words", interrupt)
    plan = run("plan", folder)
    assert plan.exit_code == 0
    assert "The search was cut short" in " ".join(plan.stdout.split())
    assert all(gain >= 1 and cells > 0 for _, gain, cells in calls)


def test_a_release_that_is_interrupted_while_it_searches_spends_nothing(folder, monkeypatch):
    text = (folder / "release.toml").read_text().replace('"opt_product"', '"hdmm"')
    (folder / "release.toml").write_text(text)
    assert run("check", folder, "--create-ledger").exit_code == 0
    calls = []

    def interrupt(watch, name, ratio):
        calls.append(name)
        if len(calls) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("psephos.strategy.hdmm.search.Watch.tried", interrupt)
    done = run("release", folder)
    assert done.exit_code == 130
    ledger = ps.Ledger.open(ps.Job.read(folder).ledger)
    assert ledger.spent().amount == 0


def test_progress_is_lines_where_there_is_no_terminal(capsys, monkeypatch):
    moments = iter([0.0, 1.0, 3.0, 4.0, 9.0])
    monkeypatch.setattr("psephos.cli.terminal.time.monotonic", lambda: next(moments))
    lines = SparseLines()
    for words in ("first", "second", "third", "second"):
        lines(words)
    assert capsys.readouterr().err == "3 s: second\n"


def test_a_search_says_the_present_error():
    assert "error now 2.5;" in search_words("OPT_+", 4.0, 10.0)
    assert "4 times better" in search_words("OPT_+", 4.0, None)
