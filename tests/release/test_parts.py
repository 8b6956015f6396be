"""Releases in parts: one charge, tables of every part that add up, resumed, verified, asked."""

import hashlib
import json
import math
import os
import re
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import psephos as ps
from psephos.cli import render_tables
from psephos.cli.app import app
from psephos.errors import ReleaseError
from psephos.kernel.ledger import Request
from psephos.kernel.parts.runners import Processes
from psephos.release.parts import write
from psephos.release.parts.bundle import PartsBundle
from psephos.release.parts.estimates import PartEstimates, half_width_factor

COUNTIES = [f"c{i}" for i in range(7)]
STATES = {"North": COUNTIES[:4], "South": COUNTIES[4:6], "Isle": COUNTIES[6:]}
FILE = """
name = "people by county"
source = "people.csv"
by = ["state", "county"]

[privacy]
unit = "add_remove_row"

[ledger]
path = "people.ledger"
dataset = "people"
epsilon = "4"

[budget]
epsilon = "2"

[schema.county]
list = "counties.csv"

[schema.sex]
values = ["F", "M"]

[schema.age]
integers = [0, 9]

[[tables]]
name = "sex by age"
rows = ["age", "sex"]

[[tables]]
name = "everyone"
rows = []
queries = { sex = "total" }
"""


@pytest.fixture
def folder(tmp_path):
    lines = [f"{county},{state}" for state, inside in STATES.items() for county in inside]
    (tmp_path / "counties.csv").write_text("\n".join(["county,state", *lines[::-1]]))
    (tmp_path / "release.toml").write_text(FILE.replace("rows = []\n", ""))
    rng = np.random.default_rng(0)
    rows = {"county": rng.choice(COUNTIES[:6], 3000), "sex": rng.choice(["F", "M"], 3000)}
    pd.DataFrame({**rows, "age": rng.integers(0, 10, 3000)}).to_csv(
        tmp_path / "people.csv", index=False
    )
    return tmp_path


@pytest.fixture
def released(folder):
    job = ps.Job.read(folder)
    ps.Ledger.create(job.ledger, dataset="people", unit=job.unit, budget=job.file.ledger.budget())
    assert ps.check_release(job).ok
    return folder, ps.release(folder)


def cells(bundle, level):
    """Counts of cells of a level's parts, as the first table has them without its totals."""
    frame = bundle.table("sex by age", level).to_pandas()
    return frame[(frame["age"] != "total") & (frame["sex"] != "total")]


def test_a_release_adds_up_over_all_levels(released):
    folder, bundle = released
    county, state, whole = (cells(bundle, level) for level in ("county", "state", "all"))
    assert len(county) == 7 * 20
    keys = ["state", "age", "sex"]
    sums = county.groupby(keys, observed=True)["count"].sum()
    assert (sums == state.set_index(keys)["count"].sort_index()).all()
    sums = state.groupby(keys[1:], observed=True)["count"].sum()
    assert (sums == whole.set_index(keys[1:])["count"].sort_index()).all()
    assert (county["count"] >= 0).all()
    consistent = county.groupby(keys, observed=True)["consistent"].sum()
    assert np.allclose(consistent, state.set_index(keys)["consistent"].sort_index())
    everyone = bundle.table("everyone").to_pandas()
    assert abs(everyone["count"][0] - 3000) < 60
    assert ps.Ledger.open(folder / "people.ledger").spent() == ps.epsilon("2")


def test_parts_are_named_by_their_way(released):
    _, bundle = released
    part = bundle.table("sex by age", part="North / c2").to_pandas()
    both = bundle.table("sex by age", "county").to_pandas()
    both = both[both["county"] == "c2"]
    assert (part["count"].to_numpy() == both["count"].to_numpy()).all()
    empty = bundle.table("everyone", part=["Isle", "c6"]).to_pandas()
    assert empty["count"][0] < 60
    for wrong in ({"part": "North / c6"}, {"level": "town"}):
        with pytest.raises(ps.PsephosError, match=r"c6|town"):
            bundle.table("sex by age", **wrong)
    with pytest.raises(ReleaseError, match="have sex by age, everyone"):
        bundle.table("ages")


def test_all_levels_of_a_table_are_one_data_set(released):
    _, bundle = released
    whole = pq.read_table(bundle.path / "tables" / "sex-by-age").to_pandas()
    assert set(whole["level"]) == {"all", "state", "county"}
    assert (whole[whole["level"] == "county"]["county"] != "total").all()
    assert (whole[whole["level"] != "county"]["county"] == "total").all()
    assert "county" not in bundle.table("sex by age", "state").column_names


def test_answers_that_were_paid_for_and_are_gone_are_told(released):
    folder, bundle = released
    shutil.rmtree(bundle.path)
    for place in folder.glob(".psephos/*.answers"):
        shutil.rmtree(place)
    with pytest.raises(ps.PsephosError, match="put that folder back"):
        ps.release(folder)


def test_an_attribute_that_is_also_a_level_is_told(folder):
    place = folder / "release.toml"
    place.write_text(place.read_text() + '[schema.state]\nvalues = ["North", "South"]\n')
    with pytest.raises(ReleaseError, match="an attribute and a level of 'county'"):
        ps.Job.read(folder)


def test_a_release_verifies_and_answers_questions(released):
    folder, bundle = released
    result = ps.verify(bundle.path, ledger=folder / "people.ledger")
    assert result.ok, str(result)
    assert len(result.checks) == 6
    sql = "SELECT sex, COUNT(*) FROM people WHERE age >= 5 GROUP BY sex"
    level = ps.ask(bundle, sql, level="county").table.to_pandas()
    one = ps.ask(bundle.path, sql, part="South / c4").table.to_pandas()
    assert np.allclose(one["count"], level[level["county"] == "c4"]["count"])
    table = cells(bundle, "county")
    old = table[(table["county"] == "c4") & (table["age"].astype(str) >= "5")]
    wanted = old.groupby("sex", observed=True)["consistent"].sum()
    assert np.allclose(sorted(one["count"]), sorted(wanted))
    assert (one["high"] - one["count"] > 0).all()
    with pytest.raises(ps.PsephosError):
        ps.ask(bundle, "SELECT AVG(age) FROM people")
    with pytest.raises(ReleaseError, match="by no model"):
        ps.ask(bundle, sql, model=True)
    reply = ps.ask(bundle, sql, level="state")
    assert repr(reply).startswith("Reply(6 answers, free, at most ± ")


@pytest.mark.parametrize("what", ["table", "receipts", "estimate", "answers", "strange", "missing"])
def test_what_was_changed_is_told(released, what):
    """Also where whoever changed it has mended the manifest's hashes."""
    _, bundle = released
    files = sorted(path for path in bundle.path.rglob("*") if path.is_file())
    if what == "table":
        place = next(file for file in files if "level=county" in str(file))
        table = pq.read_table(place, partitioning=None).to_pandas()
        table.loc[3, "count"] += 1
        pq.write_table(pa.Table.from_pandas(table, preserve_index=False), place)
    elif what == "receipts":
        place = bundle.path / "receipts.bin"
        data = place.read_bytes()
        place.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif what == "estimate":
        place = bundle.path / "estimate" / "handed-down-1.npy"
        array = np.load(place)
        array[0, 0] += 1
        np.save(place, array)
    elif what == "answers":
        place = next(iter((bundle.path / "answers").iterdir()))
        data = bytearray(place.read_bytes())
        place.unlink()  # it has a second name outside of the bundle
        place.write_bytes(bytes([data[0] ^ 1]) + data[1:])
    elif what == "strange":
        place = bundle.path / "tables" / "sex-by-age" / "level=state" / "00000009.parquet"
        shutil.copy(next(file for file in files if file.suffix == ".parquet"), place)
    else:
        next(file for file in files if "level=state" in str(file)).unlink()
    manifest = json.loads((bundle.path / "manifest.json").read_text())
    manifest["files"] = {
        path.relative_to(bundle.path).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(bundle.path.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }
    (bundle.path / "manifest.json").write_text(json.dumps(manifest))
    assert not ps.verify(bundle.path).ok


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("format", 99, "has format 99"),
        ("simulation", True, "it was charged"),
        ("simulation", 0, "'simulation' makes no sense"),
        ("psephos", "<b>", "'psephos' makes no sense"),
        ("weights", [10000], "'weights.0' makes no sense"),
        ("files", None, "'files' makes no sense"),
        ("note", "x", "'note' does not belong there"),
        ("errors", [], "errors in the manifest do not follow"),
    ],
)
def test_a_manifest_says_nothing_else(released, key, value, words):
    _, bundle = released
    manifest = {**bundle.manifest, key: value}
    (bundle.path / "manifest.json").write_text(json.dumps(manifest))
    result = CliRunner().invoke(app, ["verify", str(bundle.path)], env={"COLUMNS": "1000"})
    assert result.exit_code
    assert words in " ".join(result.output.split())


def test_errors_that_the_manifest_tells_are_worked_out_again(released):
    _, bundle = released
    bundle.manifest["errors"][3]["rmse"] /= 2
    (bundle.path / "manifest.json").write_text(json.dumps(bundle.manifest))
    assert "errors in the manifest do not follow" in str(ps.verify(bundle.path))


@pytest.mark.parametrize("where", ["answers/deeper", "estimate/deeper", "tables"])
def test_files_and_pipes_that_do_not_belong_are_told(released, where):
    _, bundle = released
    file = next(iter((bundle.path / "answers").iterdir()))
    (bundle.path / where).mkdir(exist_ok=True)
    if where == "tables":
        os.mkfifo(bundle.path / where / "pipe")
    else:
        shutil.copy(file, bundle.path / where / file.name)
    bundle.manifest["files"][f"{where}/{file.name}"] = hashlib.sha256(file.read_bytes()).hexdigest()
    (bundle.path / "manifest.json").write_text(json.dumps(bundle.manifest))
    (check,) = [each for each in ps.verify(bundle.path).checks if each.name == "files"]
    assert not check.ok


def test_tables_that_would_fill_the_memory_are_not_read(released):
    _, bundle = released
    place = next(bundle.path.glob("tables/*/level=county/*.parquet"))
    table = pq.read_table(place, partitioning=None)
    pq.write_table(table, place, compression="zstd")
    manifest = bundle.manifest
    name = place.relative_to(bundle.path).as_posix()
    manifest["files"][name] = hashlib.sha256(place.read_bytes()).hexdigest()
    (bundle.path / "manifest.json").write_text(json.dumps(manifest))
    assert "is packed otherwise than it was written" in str(ps.verify(bundle.path))


def test_a_second_run_charges_nothing(released):
    folder, bundle = released
    again = ps.release(folder)
    assert again.manifest == bundle.manifest
    shutil.rmtree(bundle.path)
    rebuilt = ps.release(folder, runner=Processes(2))
    assert rebuilt.manifest["files"]["receipts.bin"] == bundle.manifest["files"]["receipts.bin"]
    assert {k: v for k, v in rebuilt.manifest["files"].items() if k.startswith("tables/")} == {
        k: v for k, v in bundle.manifest["files"].items() if k.startswith("tables/")
    }
    assert ps.Ledger.open(folder / "people.ledger").spent() == ps.epsilon("2")


@pytest.mark.parametrize("place", ["store", "write"])
def test_a_run_that_was_cut_short_goes_on(folder, monkeypatch, place):
    job = ps.Job.read(folder)
    ps.Ledger.create(job.ledger, dataset="people", unit=job.unit, budget=job.file.ledger.budget())
    ps.check_release(job)

    def cut_short(*_, **__):
        raise KeyboardInterrupt

    target = (Request, "_store") if place == "store" else (write, "_write_tables")
    monkeypatch.setattr(*target, cut_short)
    with pytest.raises(KeyboardInterrupt):
        ps.release(folder)
    monkeypatch.undo()
    bundle = ps.release(folder)
    assert ps.verify(bundle.path, ledger=job.ledger).ok
    assert ps.Ledger.open(job.ledger).spent() == ps.epsilon("2")
    assert not list(folder.glob(".bundle.draft-*"))


def test_what_is_paid_for_and_answered_is_written_without_the_data(released):
    folder, bundle = released
    shutil.rmtree(bundle.path)
    (folder / "people.csv").unlink()
    rebuilt = ps.release(folder)
    assert ps.verify(rebuilt.path, ledger=folder / "people.ledger").ok
    assert rebuilt.manifest["files"]["receipts.bin"] == bundle.manifest["files"]["receipts.bin"]
    assert ps.Ledger.open(folder / "people.ledger").spent() == ps.epsilon("2")


@pytest.mark.parametrize("change", ["rows", "columns", "footer", "missing"])
def test_a_table_is_not_read_from_a_file_that_holds_something_else(folder, change):
    bundle = ps.rehearse(folder, rows=50)
    (place,) = bundle.path.glob("tables/everyone/level=county/*.parquet")
    rows = pq.read_table(place)
    if change == "rows":  # a small file may say that it holds very many
        pq.write_table(rows.take(np.zeros(10**6, dtype=int)), place)
    elif change == "columns":
        pq.write_table(rows.drop_columns("low"), place)
    elif change == "footer":
        place.write_bytes(place.read_bytes()[:-9])
    else:
        place.unlink()
    for asked in ({"level": "county"}, {"part": "South / c4"}):
        with pytest.raises(ReleaseError, match=re.escape(str(place))):
            bundle.table("everyone", **asked)
    assert bundle.table("everyone", level="state").num_rows == 3


@pytest.mark.parametrize("level", ["s" * 300, "a/../../../../up", "land / state"])
def test_levels_may_have_any_name(folder, level):
    for place in (folder / "release.toml", folder / "counties.csv"):
        place.write_text(place.read_text().replace("state", level))
    bundle = ps.rehearse(folder, rows=50)
    assert ps.verify(bundle.path).ok
    assert bundle.table("everyone", level).num_rows == 3
    assert len(list(bundle.path.glob("tables/*/level=*/*.parquet"))) == 6


STATE_OF = {county: state for state, inside in STATES.items() for county in inside}


@pytest.mark.parametrize(
    ("changed", "level", "words"),
    [
        ({}, None, ""),
        (
            {0: "South", 1: "South", 2: "Narnia", 3: None},
            "warning",
            r"^2 rows .* and 1 in one that",
        ),
        (dict.fromkeys(range(3000), "ND"), "note", "were not compared"),
    ],
)
def test_the_owner_hears_of_rows_whose_state_is_not_the_declared_one(folder, changed, level, words):
    rows = pd.read_csv(folder / "people.csv")
    rows["state"] = rows["county"].map(STATE_OF)
    north = rows.index[rows["county"] == "c1"]
    for i, state in changed.items():
        rows.loc[north[i] if len(changed) < 9 else i, "state"] = state
    rows.to_csv(folder / "people.csv", index=False)
    report = ps.check_release(folder)
    findings = [finding for finding in report.findings if finding.kind == "level"]
    assert [finding.level for finding in findings] == ([level] if level else [])
    for finding in findings:
        assert re.search(words, finding.text)
        assert not finding.entries
    assert report.ok


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('formats = ["parquet", "xlsx"]', r"output.formats: .* writes partitioned Parquet"),
        ('formats = ["csv", "parquet"]', r'write formats = \["parquet"\], or leave it out'),
        ('views = ["published"]', "output.views: a release in parts .* has none"),
        ('published = "entropy"', "output.published: a release in parts"),
    ],
)
def test_files_and_views_that_parts_do_not_have_are_refused(folder, line, words):
    place = folder / "release.toml"
    text = place.read_text()
    place.write_text(f"{text}\n[output]\n{line}\n")
    with pytest.raises(ReleaseError, match=words):
        ps.plan(folder)
    place.write_text(f'{text}\n[output]\nformats = ["parquet"]\n')
    bundle = ps.rehearse(folder, rows=50)
    assert ps.verify(bundle.path).ok


def test_the_page_draws_the_rows_of_large_parts(released):
    _, bundle = released
    page = bundle.report.read_text()
    everyone = bundle.table("everyone", level="state").to_pandas()
    assert "Rows in each state" in page
    for name, count in zip(everyone["state"], everyone["count"], strict=True):
        assert f"{name}: {count:,}" in page
    assert page.count("<figure") == 1


def test_the_page_draws_nothing_that_is_not_known(folder, monkeypatch):
    """Where what was measured does not determine the number of all rows."""
    known = PartEstimates.standard_errors

    def not_of_totals(estimates, workload):
        if workload.shape[0] == 1:
            raise ps.UnsupportedError("not determined")
        return known(estimates, workload)

    monkeypatch.setattr(PartEstimates, "standard_errors", not_of_totals)
    bundle = ps.rehearse(folder, rows=500)
    assert "<figure" not in bundle.report.read_text()


@pytest.mark.parametrize("name", ["estimate/estimates-0.npy", "receipts.bin"])
def test_nothing_is_answered_from_files_that_changed(folder, name):
    bundle = ps.rehearse(folder, rows=50)
    place, sql = bundle.path / name, "SELECT COUNT(*) FROM people WHERE age >= 5"
    data = place.read_bytes()
    place.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ReleaseError, match="has changed since the release"):
        ps.ask(bundle, sql)
    place.unlink()
    with pytest.raises(ReleaseError, match="has changed since the release"):
        ps.ask(bundle, sql)


def test_a_rehearsal_opens_nothing(folder):
    (folder / "people.csv").unlink()
    bundle = ps.rehearse(folder, rows=500)
    assert isinstance(bundle, PartsBundle)
    assert bundle.simulation
    assert ps.verify(bundle.path).ok
    assert ps.rehearse(folder, rows=500).simulation
    assert "REHEARSAL" in bundle.report.read_text()


def test_the_plan_tells_every_error_before_anything_is_spent(folder):
    """Exact errors against those of many rehearsals, over all numbers of all parts of a level."""
    forecast = ps.plan(folder)
    errors = {(e.table, e.level): e.rmse for e in forecast.rows}
    assert {level for _, level in errors} == {"all", "state", "county"}
    squares = {"all": [], "state": [], "county": []}
    for seed in range(5):
        bundle = ps.rehearse(folder, rows=1, seed=seed)  # a single row: nearly all of it is noise
        for level in squares:
            table = bundle.table("sex by age", level).to_pandas()
            squares[level].append((table["consistent"] ** 2).mean())
    for level, values in squares.items():
        assert math.sqrt(np.mean(values)) == pytest.approx(errors["sex by age", level], rel=0.2)


def test_intervals_are_wide_enough(folder):
    """95 % of intervals hold the truth, of three rehearsals with one row."""
    inside = []
    for seed in range(3):
        table = ps.rehearse(folder, rows=1, seed=seed).table("sex by age", "county").to_pandas()
        inside.append(((table["low"] <= 0.5) & (table["high"] >= 0.0)).mean())
    assert np.mean(inside) > 0.93
    assert half_width_factor(0.9, "epsilon") >= half_width_factor(0.9, "rho")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('by = ["state", "county"]', 'by = ["town"]', "by names 'town'"),
        ('by = ["state", "county"]', 'by = ["county", "sex", "age"]', "leaves no attribute"),
        ("[privacy]", 'zeros = ["age < 1"]\n[privacy]', "zeros: a release in parts"),
        ("[privacy]", "total = 5\n[privacy]", "total: a release in parts"),
        ('list = "counties.csv"', 'list = "towns.csv"', "no file towns.csv"),
        ('[budget]\nepsilon = "2"', "", "say what may be spent"),
        ('queries = { sex = "total" }', 'statistic = "mean"\nof = "age"', "counts rows"),
    ],
)
def test_bad_files_are_told_with_their_place(folder, old, new, words):
    place = folder / "release.toml"
    text = place.read_text()
    assert old in text
    place.write_text(text.replace(old, new))
    with pytest.raises(ReleaseError, match=words):
        ps.Job.read(folder)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("county,state\nc0,North,x\n", "line 2 .* 3 entries"),
        ("county\n", "1 lines"),
        ("county,state\nc0,\n", "line 2 .* empty"),
        ("county,county\na,b\n", "a heading for each column"),
    ],
)
def test_bad_lists_are_told_with_their_place(folder, lines, words):
    (folder / "counties.csv").write_text(lines)
    with pytest.raises(ReleaseError, match=f"schema.county.list: .*{words}"):
        ps.Job.read(folder)


def test_the_commands(released, monkeypatch):
    folder, _ = released
    monkeypatch.chdir(folder)

    def run(*words):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        return done.stdout

    plan = json.loads(run("plan", "release.toml", "--json"))
    assert plan["levels"] == {"all": 1, "state": 3, "county": 7}
    assert "share of the budget" in run("plan", "release.toml")
    assert "this run spent nothing" in run("release", "release.toml")
    sql = "SELECT COUNT(*) FROM people WHERE age < 5"
    assert len(json.loads(run("ask", "bundle", sql, "--level", "state", "--json"))["rows"]) == 3
    each = "SELECT age, sex, COUNT(*) FROM people WHERE age < 20 GROUP BY age, sex"
    told = run("ask", "bundle", each, "--level", "county", "--output", "answers.csv")
    assert "written: answers.csv" in told
    rows = len(pd.read_csv(folder / "answers.csv"))
    assert rows == ps.ask("bundle", each, level="county").table.num_rows
    monkeypatch.setattr(render_tables, "REPLY_LINES", 100)
    told = " ".join(run("ask", "bundle", each, "--level", "county").split())
    assert f"and {rows - 100} more rows with --output FILE.csv" in told
    assert CliRunner().invoke(app, ["ask", "bundle", sql, "--plus-minus", "3"]).exit_code != 0
    assert "ok" in run("verify", "bundle")


def test_other_bundles_say_what_they_are(released):
    _, bundle = released
    with pytest.raises(ReleaseError, match="release in parts"):
        ps.Bundle.open(bundle.path)
    assert repr(bundle).startswith("PartsBundle('people by county'")
