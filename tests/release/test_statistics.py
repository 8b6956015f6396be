"""Sums, means, shares and quantiles in a release: written, verified, asked, compared."""

import json
import math
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from typer.testing import CliRunner

import psephos as ps
from psephos.cli.app import app
from psephos.release.bundle.files import sha256_of
from psephos.release.preflight.checks import check_release, create_ledger
from psephos.release.preflight.statistic_forecast import statistic_forecasts
from psephos.release.preflight.synthetic_rows import synthetic_rows
from psephos.release.spec.file import parse_release
from psephos.release.spec.job import Job
from tests.release.conftest import people, write_job

RELEASE = """
name = "pets"
source = "people.csv"
edition = "2025"

[privacy]
unit = "add_remove_row"

[ledger]
path = "people.ledger"
dataset = "people"
epsilon = "4"

[budget]
epsilon = "1"

[schema.age]
bins = [0, 5, 10, 20]
unit = "years"

[schema.pet]
values = ["cat", "dog", "horse"]
unknown = "other"

[[tables]]
name = "pets"
rows = ["pet"]

[[tables]]
name = "years"
queries = { age = "sum", pet = "identity" }

[[tables]]
name = "mean"
statistic = "mean"
of = "age"
by = ["pet"]

[[tables]]
name = "ages"
statistic = "quantiles"
of = "age"
quantiles = [0.25, 0.75]
by = ["pet"]
totals = false

[[tables]]
name = "percent"
statistic = "share"
rows = ["pet"]
columns = ["age"]
share_of = "row"

[[tables]]
name = "sql"
sql = "SELECT pet, COUNT(*), SUM(age), STDDEV(age) FROM people WHERE age < 10 GROUP BY pet"

[selection]
strategy = "identity"
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return released(tmp_path_factory.mktemp("job") / "old", RELEASE)


def released(folder, text, seed=0):
    place = write_job(folder, text, people(2000, seed=seed))
    job = Job.read(place)
    create_ledger(job)
    check_release(job)
    return ps.release(place)


def test_tables_say_what_they_hold(bundle):
    table = bundle.table("years", "published")
    names = ["pet", "statistic", "unit", "value", "consistent", "stderr", "low", "high"]
    assert table.column_names == names
    assert table["statistic"].to_pylist() == ["sum of age"] * 4
    assert table["unit"].to_pylist() == ["years"] * 4
    mean = bundle.table("mean").to_pydict()
    assert "stderr" not in mean
    assert mean["pet"][-1] == "total"
    sums, counts = bundle.table("years")["value"], bundle.table("pets")["count"]
    assert mean["value"][:4] == pytest.approx(
        [s.as_py() / n.as_py() for s, n in zip(sums, counts.slice(0, 4), strict=True)]
    )
    ages = bundle.table("ages").to_pylist()
    assert [row["statistic"] for row in ages[:2]] == [
        "0.25 quantile of age",
        "0.75 quantile of age",
    ]
    shares = bundle.table("percent", "published").to_pydict()
    cats = [v for v, p, a in zip(*(shares[k] for k in ("value", "pet", "age")), strict=True)
            if p == "cat" and a != "total"]  # fmt: skip
    assert sum(cats) == pytest.approx(100)
    kinds = bundle.table("sql")["statistic"].unique().to_pylist()
    assert kinds == ["count", "sum of age", "standard deviation of age"]


def test_published_sums_are_of_the_published_cells(bundle):
    published = bundle.table("years", "published")["value"].to_numpy()
    ages = np.array([2.5, 7.5, 15.0])
    cells = pa.parquet.read_table(bundle.path / "published" / "cells.parquet")["count"].to_numpy()
    assert published.tolist() == (ages @ cells.reshape(3, 4)).tolist()


def test_verify_works_them_out_again_and_finds_a_changed_mean(bundle, tmp_path):
    assert ps.verify(bundle.path, ledger=bundle.path.parent / "people.ledger").ok
    for view in ("consistent", "published"):
        copy = tmp_path / view
        shutil.copytree(bundle.path, copy)
        for kind in ("csv", "parquet"):
            place = copy / view / f"mean.{kind}"
            table = bundle.table("mean", view)
            values = table["value"].to_numpy().copy()
            values[0] += 0.01
            i = table.column_names.index("value")
            changed = table.set_column(i, "value", pa.array(values))
            if kind == "csv":
                pa.csv.write_csv(changed, place)
            else:
                pa.parquet.write_table(changed, place)
        manifest = json.loads((copy / "manifest.json").read_text())
        for kind in ("csv", "parquet"):
            name = f"{view}/mean.{kind}"
            manifest["files"][name] = sha256_of(copy / name)
        (copy / "manifest.json").write_text(json.dumps(manifest))
        wrong = [check for check in ps.verify(copy).checks if not check.ok]
        assert [check.name for check in wrong] == [f"{view} view"]
        assert "mean" in wrong[0].text


def test_the_page_and_the_terminal_show_them(bundle):
    page = bundle.report.read_text()
    for words in ("Mean of age (years)", "known by its bins", "counts as declared, from 2.5 to 15"):
        assert words in page
    result = CliRunner().invoke(app, ["release", str(bundle.path.parent)])
    assert result.exit_code == 0
    assert "sum of age" in result.output


def test_files_for_other_programs_hold_them_or_leave_them_out(tmp_path):
    kinds = ["csv", "xlsx", "datapackage", "csvw", "jsonstat", "sdmx"]
    place = write_job(tmp_path, f"{RELEASE}\n[output]\nformats = {json.dumps(kinds)}\n")
    bundle = ps.rehearse(place, rows=8)  # some pets have no rows, and so no mean
    assert ps.verify(bundle.path).ok
    assert np.isnan(bundle.table("mean")["value"].to_numpy()).any()
    assert [file.name for file in (bundle.path / "jsonstat").iterdir()] == ["pets.json"]
    columns = json.loads((bundle.path / "datapackage.json").read_text())["resources"]
    (mean,) = [each for each in columns if each["path"] == "published/mean.csv"]
    types = {field["name"]: field["type"] for field in mean["schema"]["fields"]}
    assert (types["statistic"], types["value"]) == ("string", "number")


def test_statistics_of_other_groups_are_free(bundle):
    reply = ps.ask(bundle, "SELECT AVG(age), MEDIAN(age), SUM(age) FROM people WHERE pet = 'cat'")
    rows = reply.table.to_pylist()
    assert [row["statistic"] for row in rows] == ["mean of age", "median of age", "sum of age"]
    mean = bundle.table("mean").to_pylist()[0]
    assert rows[0]["value"] == pytest.approx(mean["value"])
    assert (rows[0]["low"], rows[0]["high"]) == pytest.approx((mean["low"], mean["high"]))
    sums = ps.ask(bundle, "SELECT pet, SUM(age) FROM people GROUP BY pet").table
    assert sums["stderr"].to_pylist() == pytest.approx(bundle.table("years")["stderr"].to_pylist())
    model = ps.ask(bundle, "SELECT AVG(age) FROM people", model=True).table
    assert model.column_names == ["statistic", "unit", "value", "model"]
    with pytest.raises(ps.SqlError, match="follows from some"):
        ps.price(bundle, "SELECT AVG(age) FROM people", 1)
    assert ps.price(bundle, "SELECT SUM(age) FROM people", 500).budget.amount >= 0
    plain = CliRunner().invoke(
        app, ["ask", str(bundle.path), "SELECT AVG(age) FROM people WHERE pet = 'cat' OR age < 5",
              "--json"],
    )  # fmt: skip
    assert json.loads(plain.output)["rows"][0]["statistic"] == "mean of age"


def test_plans_forecast_them_on_made_up_rows(tmp_path):
    forecast = ps.plan(write_job(tmp_path, RELEASE))
    words, forecasts = statistic_forecasts(forecast)
    assert words == "10,000 made-up rows"
    assert [each.table for each in forecasts] == ["mean", "ages", "percent", "sql", "sql", "sql"]
    assert all(0 <= each.typical <= each.widest < math.inf for each in forecasts)
    (years,) = [table for table in forecast.tables if table.name == "years"]
    (pets,) = [table for table in forecast.tables if table.name == "pets"]
    assert years.worst > 5 * pets.rmse  # in years, not in rows
    result = CliRunner().invoke(app, ["plan", str(tmp_path)])
    assert "a forecast, no promise" in result.output


def test_a_sum_can_have_a_target(tmp_path):
    text = RELEASE.split("[[tables]]")[0].replace('[budget]\nepsilon = "1"\n', "")
    text += '[[tables]]\nname = "years"\nstatistic = "sum"\nof = "age"\nby = ["pet"]\n'
    forecast = ps.plan(write_job(tmp_path, text + "target = { plus_minus = 150 }\n"))
    (table,) = forecast.tables
    assert 100 < table.reached <= 150
    dearer = ps.plan(write_job(tmp_path, text + "target = { plus_minus = 75 }\n"))
    assert dearer.budget.amount / forecast.budget.amount == pytest.approx(2, rel=0.1)


MEAN = '\n[[tables]]\nname = "m"\nstatistic = "mean"\nof = "age"\n'
MISTAKES = [
    (MEAN + "target = { plus_minus = 5 }", "a mean has none.*counts.*sums"),
    (MEAN.replace('"age"', '"pet"'), "'m': attribute 'pet'.*no numbers"),
    (MEAN.replace('of = "age"\n', ""), "mean of what"),
    (MEAN + 'sql = "SELECT COUNT(*) FROM t"', "not with sql"),
    (MEAN + 'by = ["pet"]\nrows = ["pet"]', "by `by`, or by rows and columns"),
    (MEAN + "quantiles = [0.5]", 'go with statistic = "quantiles"'),
    (MEAN.replace("mean", "quantiles"), "between 0 and 1"),
    (MEAN.replace("mean", "share"), "leave `of` out"),
    (MEAN.replace("mean", "share").replace('of = "age"', 'share_of = "row"'), "shares of what"),
    (MEAN.replace("mean", "share").replace('of = "age"', 'by = ["pet"]\nshare_of = "row"'),
     "needs rows and columns"),
    ('\n[[tables]]\nname = "m"\nrows = ["pet"]\nshare_of = "row"', "go with a statistic"),
    ('\n[[tables]]\nname = "m"\nby = ["pet"]', 'write statistic = "mean"'),
]  # fmt: skip


@pytest.mark.parametrize(("more", "words"), MISTAKES)
def test_mistakes_are_told(tmp_path, more, words):
    text = RELEASE.replace("[selection]", f"{more}\n\n[selection]")
    if "target" in more:
        text = text.replace('[budget]\nepsilon = "1"\n', "")
    with pytest.raises(ps.ReleaseError, match=words):
        Job.read(write_job(tmp_path, text))


def test_a_target_of_sql_statistics_is_refused(tmp_path):
    text = RELEASE.replace('[budget]\nepsilon = "1"\n', "")
    mixed = text.replace("\n[selection]", "target = { plus_minus = 50 }\n\n[selection]")
    with pytest.raises(ps.ReleaseError, match="'sql': target: its precision depends on the data"):
        Job.read(write_job(tmp_path, mixed))
    with pytest.raises(ps.ReleaseError, match="in rows and in years, and ± is in one unit"):
        Job.read(write_job(tmp_path, mixed.replace(", STDDEV(age)", "")))


def test_open_bins_need_a_representative(tmp_path):
    text = RELEASE.replace("[0, 5, 10, 20]", "[0, 5, 10, inf]")
    with pytest.raises(ps.ReleaseError, match=r"bin from 10 to inf.*representatives = \["):
        Job.read(write_job(tmp_path, text))
    text = text.replace('unit = "years"', 'unit = "years"\nrepresentatives = [2, 7, 14]')
    job = Job.read(write_job(tmp_path, text))
    assert job.domain["age"].representatives == (2, 7, 14)
    assert job.tables[1].statistics[0].numbers.values.tolist() == [2, 7, 14]
    with pytest.raises(ps.ReleaseError, match="representatives go with bins"):
        parse_release(text.replace("bins = [0, 5, 10, inf]", "integers = [0, 2]"))


def test_what_a_statistic_is_counts_in_the_fingerprint(tmp_path):
    jobs = [
        Job.read(write_job(tmp_path, RELEASE.replace('"mean"\nof', f'"{name}"\nof')))
        for name in ("stddev", "variance")
    ]
    assert jobs[0].request == jobs[1].request  # the same is measured
    assert jobs[0].fingerprint != jobs[1].fingerprint


# ---- change ------------------------------------------------------------------------------------


def test_change_between_editions(bundle, tmp_path):
    new = released(tmp_path / "new", RELEASE.replace("2025", "2026"), seed=1)
    changes = ps.change(bundle, new)
    assert changes.editions == ("2025", "2026")
    pets = changes.table("pets").to_pydict()
    old, other = bundle.table("pets").to_pydict(), new.table("pets").to_pydict()
    assert pets["change"] == pytest.approx(np.subtract(other["count"], old["count"]))
    assert pets["stderr"] == pytest.approx(np.hypot(other["stderr"], old["stderr"]))
    half = (np.array(pets["high"]) - pets["low"]) / 2
    alone = (np.array(other["high"]) - other["low"]) / 2
    assert (half > alone).all()
    assert (half < 2 * alone).all()
    assert all(low <= p <= high for low, p, high in zip(
        pets["percent_low"], pets["percent"], pets["percent_high"], strict=True))  # fmt: skip
    mean = changes.table("mean").to_pydict()
    assert "percent" not in mean
    assert all(low <= c <= high for low, c, high in zip(
        mean["low"], mean["change"], mean["high"], strict=True))  # fmt: skip
    output = tmp_path / "change.csv"
    arguments = ["change", str(bundle.path), str(new.path), "--table", "pets", "--output", output]
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    assert "independent noise" in result.output
    assert output.read_text().startswith('"pet","old","new","change"')


def test_one_state_of_the_data_does_not_change(bundle):
    with pytest.raises(ps.ReleaseError, match="edition '2025' of the same data"):
        ps.change(bundle, bundle)
    with pytest.raises(ps.ReleaseError):
        ps.change(bundle, bundle.path.parent / "nothing")


@pytest.mark.slow
def test_intervals_of_changes_cover(tmp_path):
    """At 95 %, over 30 pairs of rehearsals and the counts of each: 85 % is far below."""
    held = []
    for seed in range(30):
        pair, truths = [], []
        for k, edition in enumerate(("2025", "2026")):
            text = RELEASE.replace("2025", edition)
            place = write_job(tmp_path / f"{seed}-{edition}", text)
            pair.append(ps.rehearse(place, rows=500, seed=100 * seed + k))
            truths.append(counted(Job.read(place), 100 * seed + k))
        table = ps.change(*pair).table("pets").to_pydict()
        gap = np.subtract(truths[1], truths[0])
        held.append((np.array(table["low"]) <= gap) & (gap <= np.array(table["high"])))
    assert np.mean(held) > 0.85


def counted(job, seed):
    """The table `pets` of the made-up rows behind a rehearsal."""
    many = ps.epsilon(10**6)
    source = synthetic_rows(job, 500, seed)
    data = ps.simulate(source, job.domain, unit=ps.add_remove_row(), budget=many, seed=0)
    cells = data.vectorise().measure(ps.matrix.Identity(job.domain.size), spend=many)
    return job.tables[0].workload(job.workload).answer(cells.values.reshape(job.domain.shape))
