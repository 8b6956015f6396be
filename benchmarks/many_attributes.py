"""100 attributes of 10 values, end to end: 10,000 rows, all marginals up to 2-way or 3-way.

Stages: build the workload, select, predict the cost, measure (count from a frame, add noise, as a
simulation), least squares, answer all marginals, and their standard errors. The domain has 10^100
cells; nothing of that size is ever made. By the argument 3 the 166,751 marginals up to 3-way are
asked, and every stage is printed as it ends: that takes long, and 1.6e8 answers some GB.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl

import psephos as ps
from benchmarks.measure import table

ATTRIBUTES, VALUES, ROWS = 100, 10, 10_000
BUDGETS = {"gaussian": ps.rho("1/2"), "laplace": ps.epsilon(10)}


class Stages:
    """Wall time and the peak of memory after each stage."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.rows: list[list[str]] = []

    def run(self, name: str, call: Callable[[], Any], about: Callable[[Any], str]) -> Any:
        begin = time.perf_counter()
        made = call()
        seconds = time.perf_counter() - begin
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        self.rows.append([self.title, name, f"{seconds:.2f} s", f"{peak:.2f} GB", about(made)])
        print("  ".join(self.rows[-1]), file=sys.stderr, flush=True)
        return made


def whole(noise: Any, up_to: int) -> Stages:
    """From a domain to answers with standard errors."""
    names = [f"a{i}" for i in range(ATTRIBUTES)]
    rows = np.random.default_rng(0).integers(0, VALUES, (ROWS, ATTRIBUTES))
    frame = pl.DataFrame({name: rows[:, i] for i, name in enumerate(names)})
    domain = ps.Domain.of(dict.fromkeys(names, VALUES))
    budget = BUDGETS[noise]
    stages = Stages(f"{noise}, up to {up_to}-way")
    asked = stages.run(
        "workload", lambda: ps.marginals(domain, up_to=up_to), lambda w: f"{w.shape[0]:,} queries"
    )
    strategy = stages.run("select", lambda: ps.select.hdmm(asked, noise), repr)
    stages.run("cost", lambda: strategy.cost, repr)
    data = ps.simulate(frame, domain, unit=ps.add_remove_row(), budget=budget, seed=0)
    measured = stages.run(
        "measure",
        lambda: data.vectorise().measure(strategy.query, spend=budget),
        lambda y: f"{len(y.query.blocks):,} counts",
    )
    estimate = stages.run("least squares", lambda: ps.infer.least_squares([measured]), lambda e: "")
    answers = stages.run("answer", lambda: estimate.answer(asked), lambda a: f"{len(a):,} answers")
    stages.run("stderr", lambda: answers.stderr, lambda s: f"on average {s.mean():.1f}")
    true = np.concatenate([[ROWS], *(np.bincount(c, minlength=VALUES) for c in rows.T)])
    few = slice(0, true.size)
    z = (answers.values[few] - true) / answers.stderr[few]
    stages.rows.append([stages.title, "check", "", "", f"RMS z {np.sqrt((z**2).mean()):.2f}"])
    return stages


def main(up_to: int) -> None:
    print(__doc__)
    rows = [row for noise in BUDGETS for row in whole(noise, up_to).rows]
    table(["job", "stage", "time", "peak so far", "result"], rows)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
