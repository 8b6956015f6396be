"""Columns that are declared and asked by nobody: the same plan, in the same time?

    python -m benchmarks.unasked_columns [first] [count]     files from which on, and how many

Ten release files of random schemas and tables are planned as they are, and with one, two and five
more columns that no table asks about: a date of 100 years, a code of 3,000 values, an income in 400
bins, an age, a yes or no. Every plan has a process of its own, five times each, the four in turn;
times are medians of processor seconds, in all and without the start of the process (what it takes
to import everything and to plan a table of one column). Results are gathered in
build/unasked_columns.json, so that files can be run a few at a time, and printed as a table.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from numpy.random import Generator, default_rng

import psephos as ps
from benchmarks.measure import table
from psephos.kernel import gate

SEED, FILES, REPEATS = 32_001, 10, 5
STORE = Path("build/unasked_columns.json")
HEAD = """name = "people"
source = "people.csv"
[privacy]
unit = "add_remove_row"
[ledger]
path = "people.ledger"
dataset = "people"
{currency} = "10"
[budget]
{currency} = "1"
"""
TINY = """[schema.kind]
values = ["a", "b"]
[[tables]]
name = "kinds"
rows = ["kind"]
"""


def listed(values: list[str]) -> str:
    return "[" + ", ".join(f'"{value}"' for value in values) + "]"


def code_lines(name: str, size: int, part: int) -> list[str]:
    values = [f"{name}-{i:04d}" for i in range(size)]
    parts = {f"{name} part {k}": values[start : start + part]
             for k, start in enumerate(range(0, size, part))}  # fmt: skip
    level = ", ".join(f'"{label}" = {listed(members)}' for label, members in parts.items())
    return [f"values = {listed(values)}", f"levels.part = {{ {level} }}"]


UNASKED = {
    "born": ['dates = ["1924-01-01", "2023-12-31"]', 'levels = { month = "month", year = "year" }'],
    "occupation": code_lines("occupation", 3000, 100),
    "earnings": ["bins = { first = 0, last = 400000, width = 1000, open = false }"],
    "seniority": ["integers = [0, 110]", "levels = { five = 5, twenty = 20 }"],
    "member": ['values = ["yes", "no"]'],
}


def asked_column(rng: Generator, name: str) -> tuple[list[str], list[str]]:
    """The lines of a schema, and how tables may name the column."""
    kind = rng.choice(["category", "age", "code", "bins"])
    if kind == "category":
        return [f"values = {listed([f'{name} {i}' for i in range(rng.integers(2, 13))])}"], [name]
    if kind == "age":
        return UNASKED["seniority"], [name, f"{name}.five", f"{name}.twenty"]
    if kind == "code":
        return code_lines(name, int(rng.choice([60, 200])), 10), [f"{name}.part"]
    return ["bins = { first = 0, last = 20000, width = 1000, open = false }"], [name]


def release_file(number: int, unasked: int) -> str:
    """A release file with some columns that no table asks about."""
    rng = default_rng([SEED, number])
    columns = {f"c{i}": asked_column(rng, f"c{i}") for i in range(rng.integers(3, 6))}
    lines = [HEAD.format(currency=rng.choice(["epsilon", "rho"]))]
    schema = {name: each for name, (each, _) in columns.items()}
    schema |= dict(list(UNASKED.items())[:unasked])
    for name, each in schema.items():
        lines += [f"[schema.{name}]", *each]
    for i in range(rng.integers(2, 6)):
        some = [str(name) for name in rng.permutation(list(columns))[: rng.integers(1, 4)]]
        words = [str(rng.choice(columns[name][1])) for name in some]
        lines += ["[[tables]]", f'name = "table {i}"', f"rows = {listed(words[:1])}"]
        lines += [f"columns = {listed(words[1:])}"] * (len(words) > 1)
        lines += ["totals = true"] * bool(rng.integers(2))
    return "\n".join(lines) + "\n"


def plan(text: str) -> dict[str, Any]:
    """Plan a file in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "release.toml"
        place.write_text(text, encoding="utf-8")
        begin = time.process_time()
        forecast = ps.plan(place)
        seconds = time.process_time() - begin
    query = gate.fingerprint(forecast.strategy.query)
    cells = forecast.job.questions.domain.size
    return {"query": query, "rmse": forecast.rmse, "cells": float(cells), "plan": seconds}


def in_a_process(number: int, unasked: int) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.unasked_columns",
        "plan",
        str(number),
        str(unasked),
    ]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    output = process.stdout.read() if process.stdout else ""
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    return {**json.loads(output.splitlines()[-1]), "all": usage.ru_utime + usage.ru_stime}


def run(first: int, count: int) -> None:
    """Plan some files, and keep what came of it."""
    for number in range(first, min(first + count, FILES)):
        runs: dict[int, list[dict[str, Any]]] = {0: [], 1: [], 2: [], 5: []}
        for _ in range(REPEATS):
            for unasked, several in runs.items():
                several.append(in_a_process(number, unasked))
        results = json.loads(STORE.read_text()) if STORE.exists() else {}
        STORE.parent.mkdir(exist_ok=True)
        STORE.write_text(json.dumps({**results, str(number): runs}, default=str))


def show() -> None:
    rows = []
    for number, runs in sorted(
        json.loads(STORE.read_text()).items(), key=lambda item: int(item[0])
    ):
        every = [one for several in runs.values() for one in several]
        same = len({one["query"] for one in every}) == len({one["rmse"] for one in every}) == 1
        for key in ("plan", "all"):
            times = [statistics.median(one[key] for one in several) for several in runs.values()]
            cells = [f"{several[0]['cells']:.0e}" for several in runs.values()]
            rows.append(
                [
                    number if key == "plan" else "",
                    " ".join(cells) if key == "plan" else "",
                    "as without" if same else "OTHER",
                    "planning" if key == "plan" else "with its start",
                    *(f"{seconds:.2f}" for seconds in times),
                    f"{max(times) / times[0] - 1:+.0%}",
                ]
            )
    heads = ["file", "declared cells", "strategy, error", "CPU s", "0", "1", "2", "5", "most"]
    table(heads, rows)


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[:1] == ["plan"]:
        plan(HEAD.format(currency="rho") + TINY)  # what comes after does not import any more
        print(json.dumps(plan(release_file(int(words[1]), int(words[2])))))
    else:
        if words != ["show"]:
            run(*(int(word) for word in (words or ["0", str(FILES)])))
        show()
