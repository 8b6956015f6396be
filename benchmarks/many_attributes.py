"""Marginals of many attributes, end to end: 10,000 rows, from a frame to all answers.

Stages, in processor time: the workload and its selection; the measurement, through the kernel and a
ledger on disk; least squares; all answers. Answers come a part of the tables at a time and are not
held, the sums of their squared z-scores are. Libraries are imported before the clock starts.
Attributes have 10 values each, or are those of Adult (FOLDER/adult/adult.csv and
adult-domain.json, coded by whole numbers). The published times are those of ResidualPlanner's own
code for selection, measurement and reconstruction. Each job is a process of its own; a drawing goes
to build/figures/many_attributes.svg.

    python -m benchmarks.many_attributes FOLDER [JOB ...]
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import psephos as ps
from benchmarks.figures import draw
from benchmarks.measure import table

ROWS = 10_000
AT_ONCE = 4_000_000
"""Answers that are made together."""
BUDGETS = {"gaussian": ps.rho("1/2"), "laplace": ps.epsilon(10)}


@dataclass(frozen=True)
class Job:
    """What is asked, and what it should take."""

    attributes: int | None
    up_to: int = 3
    noise: Any = "gaussian"
    aim: str = ""
    published: str = ""


JOBS = {
    "10^10": Job(10, aim="0.3 s", published="1 s"),
    "10^20": Job(20, aim="1.5 s", published="9 s"),
    "10^30": Job(30, aim="5 s", published="34 s"),
    "10^50": Job(50, aim="25 s"),
    "10^100": Job(100, aim="240 s, 4 GB"),
    "Adult": Job(None, aim="12 s"),
    "10^100, up to 2-way": Job(100, up_to=2),
    "10^100, up to 2-way, Laplace": Job(100, up_to=2, noise="laplace"),
}


def rows_of(job: Job, folder: Path) -> tuple[ps.Domain, dict[str, Any]]:
    """The domain, and a column of cells for each attribute."""
    if job.attributes is None:
        sizes: dict[str, int] = json.loads((folder / "adult/adult-domain.json").read_text())
        frame = pl.read_csv(folder / "adult/adult.csv").select(list(sizes)).head(ROWS)
        return ps.Domain.of(sizes), {name: frame[name].to_numpy() for name in sizes}
    names = [f"a{i}" for i in range(job.attributes)]
    rng = np.random.default_rng(0)
    return ps.Domain.of(dict.fromkeys(names, 10)), {n: rng.integers(0, 10, ROWS) for n in names}


def end_to_end(job: Job, domain: ps.Domain, columns: dict[str, Any]) -> dict[str, float]:
    """Seconds of every stage, the numbers answered, and the RMS of some z-scores."""
    seconds: dict[str, float] = {}

    def stage(name: str, call: Callable[[], Any]) -> Any:
        begin = time.process_time()
        result = call()
        seconds[name] = seconds.get(name, 0.0) + time.process_time() - begin
        return result

    frame, budget = pl.DataFrame(columns), BUDGETS[job.noise]
    workload = stage("select", lambda: ps.marginals(domain, up_to=job.up_to))
    strategy = stage("select", lambda: ps.select.hdmm(workload, job.noise))
    with tempfile.TemporaryDirectory() as folder:
        ledger = ps.Ledger.create(
            Path(folder) / "rows.ledger", dataset="rows", unit=ps.add_remove_row(), budget=budget
        )
        vector = stage("measure", lambda: ps.protect(frame, domain, ledger=ledger).vectorise())
        noisy = stage("measure", lambda: vector.measure(strategy.query, spend=budget))
    estimate = stage("estimate", lambda: ps.infer.least_squares([noisy]))
    count = 0
    ends = np.cumsum(workload.query_counts)
    edges = sorted({0, *np.searchsorted(ends, np.arange(AT_ONCE, ends[-1], AT_ONCE)), len(ends)})
    for start, end in pairwise(edges):
        some = workload if len(edges) == 2 else ps.Workload(domain, workload.products[start:end])
        answers = stage("answers", lambda some=some: estimate.answer(some))
        if start == 0:
            few = ps.marginals(domain, up_to=1)
            single = [np.bincount(columns[n], minlength=domain[n].size) for n in domain.names]
            true = np.concatenate([[len(frame)], *single])
            z = (answers.values[: true.size] - true) / estimate.answer(few).stderr
        count += len(answers)
    return seconds | {"numbers": count, "z": math.sqrt((z**2).mean())}


def alone(name: str, folder: Path) -> None:
    """One job, printed as JSON."""
    small = ps.Domain.of(a=3, b=3, c=3)
    end_to_end(JOBS[name], small, {n: np.arange(30) % 3 for n in small.names})
    facts = end_to_end(JOBS[name], *rows_of(JOBS[name], folder))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(json.dumps(facts | {"peak": peak}))


def main(folder: str, names: list[str]) -> None:
    print(__doc__)
    rows, growth = [], []
    stages = ("select", "measure", "estimate", "answers")
    for name in names or list(JOBS):
        command = [sys.executable, "-m", "benchmarks.many_attributes", folder, "--alone", name]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        facts = json.loads(output)
        job, total = JOBS[name], sum(facts[s] for s in stages)
        times = [f"{facts[s]:.2f} s" for s in stages]
        last = [job.aim, job.published, f"{facts['peak']:.2f} GB", f"{facts['z']:.2f}"]
        rows.append([name, f"{facts['numbers']:,}", *times, f"{total:.2f} s", *last])
        print("  ".join(rows[-1]), file=sys.stderr, flush=True)
        if job.attributes is not None and job.up_to == 3:
            growth.append((job.attributes, total))
    head = ["job", "numbers", *stages, "in all", "aim", "ResidualPlanner", "peak", "RMS z"]
    table(head, rows)
    if len(growth) > 1:
        sizes, seconds = zip(*growth, strict=True)
        lines = [("psephos", sizes, seconds), ("ResidualPlanner", (10, 20, 30), (1.0, 9.0, 34.0))]
        axes = ("attributes of 10 values", "seconds")
        draw("many_attributes", "All marginals up to 3-way, end to end", axes, lines, "xy")


if __name__ == "__main__":
    if sys.argv[2:3] == ["--alone"]:
        alone(sys.argv[3], Path(sys.argv[1]))
    else:
        main(sys.argv[1], sys.argv[2:])
