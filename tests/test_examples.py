"""The examples run from beginning to end, on made-up data."""

import ast
import json
import runpy
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import psephos as ps
from psephos.cli.app import app

RUNNER = CliRunner()
EXAMPLES = Path(__file__).parent.parent / "examples"


def own_workload(trials, output):
    compare = runpy.run_path(str(EXAMPLES / "own_workload" / "compare.py"))["compare"]
    return [row for row in compare(trials, output) if "simulated" in row]


def test_nine_strategies_for_a_workload_of_ones_own(tmp_path):
    rows = own_workload(3, tmp_path / "error.svg")
    assert len(rows) == 9
    best = min(rows, key=lambda row: row["exact"])
    assert best["exact"] == pytest.approx(rows[0]["exact"], rel=0.01)  # HDMM comes first
    assert "<svg" in (tmp_path / "error.svg").read_text()


@pytest.mark.slow
def test_a_thousand_trials_err_by_what_was_announced(tmp_path):
    for row in own_workload(1000, tmp_path / "error.svg"):
        assert row["simulated"] == pytest.approx(row["exact"], rel=0.05)


def command(*words):
    result = RUNNER.invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.slow
def test_an_office_publishes_a_messy_file_and_something_more_later(tmp_path):
    folder = tmp_path / "office"
    shutil.copytree(EXAMPLES / "office", folder, ignore=shutil.ignore_patterns("*.csv", "bundle*"))
    data = runpy.run_path(str(folder / "make_data.py"))
    data["write"](folder / "people.csv")
    assert "ok; 50,000 rows" in command("check", folder, "--create-ledger")
    command("release", folder)
    bundle = ps.Bundle.open(folder / "bundle")
    assert (bundle.path / "tables.xlsx").exists()

    # Within 1 % at 95 % is within 3 % but once in a hundred million times.
    regions = np.array([row[0][0] for row in data["people"](50_000)])
    published = bundle.table("regions", "published").to_pandas().set_index("district")["count"]
    for name in ("North", "East", "South", "West"):
        truth = int((regions == name[0]).sum())
        assert published[name] == pytest.approx(truth, rel=0.03)
    median = bundle.table("median income", "consistent").to_pandas()
    assert (median["low"] < median["high"]).all()

    command("release", folder / "second.toml")
    left = ps.Ledger.open(folder / "people.ledger").remaining()
    assert left == ps.epsilon("2") - bundle.spend - ps.epsilon("1/2")
    assert ps.verify(folder / "second").ok
    assert ps.verify(folder / "bundle").ok


def run_cells(notebook):
    """Run all cells of a notebook in one namespace; returns it, and what its cells show."""
    names, shown = {}, []
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, notebook.name, "exec"), names)
            if last is not None:
                expression = compile(ast.Expression(last.value), notebook.name, "eval")
                shown.append(eval(expression, names))
    return names, shown


def test_a_notebook_of_nine_columns():
    names, shown = run_cells(EXAMPLES / "notebook" / "analysis.ipynb")
    assert len(names["domain"].names) == 9
    assert len(names["tables"].products) == 1 + 9 + 36 + 84  # all tables of up to three columns
    charts = [each for each in shown if isinstance(each, ps.Chart)]
    assert len(charts) == 3
    income = names["frame"].groupby("region")["income"].sum()
    sums = names["estimate"].answer(names["sums"]).to_pandas().set_index("region")
    # Incomes are counted as the middle of their bin, and noise is within six standard errors.
    gap = (sums["estimate"] - income).abs()
    assert (gap < 6 * sums["stderr"] + 0.1 * income).all()
    results = names["results"].to_pandas()
    assert (results["low"] <= results["high"]).all()
    assert str(names["ledger"].remaining()) == "rho 0"
