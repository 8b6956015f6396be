"""The examples run from beginning to end, on made-up data."""

import runpy
from pathlib import Path

import pytest

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
