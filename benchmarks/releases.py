"""The main job: its time from file to verified bundle, its intervals, and its published numbers.

Jobs are the three examples, each in a process of its own: search and errors (plan), charge, noise,
estimates and report (release), and verification. "beside" is the error of the Laplace mechanism and
of counting every cell at the same budget, as a multiple of ours.

Coverage is that of 95 % intervals of the consistent view over fresh noise from another generator:
the mean of all numbers and the worst of them (which chance alone moves by about three points), and
the share of runs in which a whole table lies inside its intervals for all numbers at once.

Closeness compares least squares, non-negative least squares, and what is published: non-negative
least squares that hold the total, rounded. Many cells are empty, as in real tables.

Published numbers are non-negative least squares and controlled rounding on made-up counts, most
cells empty, with noise on marginals of up to two attributes at epsilon 1.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import psephos as ps
from benchmarks.measure import table
from psephos.cli.demo import prepare
from psephos.infer.intervals import half_widths
from psephos.infer.nonnegative import nonnegative
from psephos.infer.rounding import round_cells
from psephos.kernel.measurement import noise_for
from psephos.release.preflight.checks import create_ledger
from psephos.release.spec.job import Job

EXAMPLES = Path(__file__).parent.parent / "examples"
UNIT = ps.add_remove_row()


def job(folder: Path) -> dict[str, float]:
    """One whole release, timed."""
    asked = Job.read(folder)
    create_ledger(asked)
    started = time.perf_counter()
    plan = ps.plan(asked)
    planned = time.perf_counter()
    bundle = ps.release(asked, unchecked=True)
    released = time.perf_counter()
    found = ps.verify(bundle.path)
    ended = time.perf_counter()
    if not found.ok:
        raise SystemExit(str(found))
    rivals = {rival.name.split(" (")[0]: rival.rmse / plan.rmse for rival in plan.rivals}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    seconds = (planned - started, released - planned, ended - released)
    return {
        "numbers": asked.workload.shape[0],
        "cells": asked.workload.domain.size,
        "plan": seconds[0],
        "release": seconds[1],
        "verify": seconds[2],
        "gigabytes": peak,
        "rmse": plan.rmse,
        "laplace": rivals.get("the tables themselves", float("nan")),
        "identity": rivals.get("every cell", float("nan")),
    }


def jobs() -> None:
    """All examples."""
    rows = []
    for name in ("home_ownership", "wages", "census"):
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / name
            if name == "home_ownership":
                prepare(folder)
            else:
                folder.mkdir()
                for file in ("release.toml", "make_data.py"):
                    shutil.copy(EXAMPLES / name / file, folder / file)
                subprocess.run([sys.executable, folder / "make_data.py"], check=True)
            command = [sys.executable, "-m", "benchmarks.releases", str(folder)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found = json.loads(done.stdout)
        times = [f"{found[key]:.1f} s" for key in ("plan", "release", "verify")]
        beside = f"{found['laplace']:.1f}× / {found['identity']:.1f}×"
        size = [f"{found['numbers']:,}", f"{found['cells']:,}"]
        rows.append(
            [name, *size, *times, f"{found['gigabytes']:.2f} GB", f"{found['rmse']:.3g}", beside]
        )
    heads = ["job", "numbers", "cells", "plan", "release", "verify", "peak", "RMSE", "beside"]
    print("### From file to verified bundle\n")
    table(heads, rows)


def coverage(runs: int = 2000) -> None:
    """How often intervals hold what they should, with noise that had no part in making them."""
    rows = []
    for name, workload, strategy, budget in _settings():
        noises = noise_for(strategy.query, budget, UNIT, 1)
        sizes = [block.matrix.shape[0] for block in strategy.query.blocks]
        form = strategy.form(budget, UNIT)
        started = time.perf_counter()
        widths = half_widths(form, noises, sizes, workload)
        seconds = time.perf_counter() - started
        rng = np.random.default_rng(12345)
        laplace = strategy.noise == "laplace"
        fresh = []
        for noise, size in zip(noises, sizes, strict=True):
            if laplace:
                p = -np.expm1(-1 / float(noise.scale))  # type: ignore[union-attr]
                fresh.append(rng.geometric(p, (size, runs)) - rng.geometric(p, (size, runs)))
            else:
                sigma = float(noise.exact_variance) ** 0.5
                fresh.append(np.rint(rng.normal(0, sigma, (size, runs))).astype(int))
        fitted = form.fit(fresh)
        products = [fitted.answers(workload.factors(i)) for i in range(len(workload.products))]
        inside = np.abs(np.concatenate(products)) <= widths.per_query[:, None]
        each = inside.mean(axis=1)
        all_inside = [
            (np.abs(own).max(axis=0) <= width).mean()
            for own, width in zip(products, widths.per_table, strict=True)
        ]
        shares = [f"{each.mean():.4f}", f"{each.min():.3f}", f"{np.mean(all_inside):.3f}"]
        rows.append([name, f"{widths.draws:,}", f"{seconds:.2f} s", *shares])
    heads = ["workload and noise", "draws", "time", "each, mean", "each, worst", "all at once"]
    print("### Coverage of 95 % intervals\n")
    table(heads, rows)


def _settings() -> list[tuple[str, ps.Workload, ps.Strategy, ps.Budget]]:
    line = ps.Domain.of(income=512)
    ranges = ps.Workload(line, [ps.product(income=ps.prefix())])
    cube = ps.Domain.of(a=10, b=8, c=6, d=4)
    pairs = ps.marginals(cube, up_to=2)
    many = ps.marginals(ps.Domain.of({f"q{i}": 3 for i in range(30)}), k=2)
    plane = ps.Domain.of(x=64, y=64)
    two = ps.Workload(plane, [ps.product(x=ps.prefix()), ps.product(y=ps.prefix())])
    searched = [ps.select.hdmm(workload, restarts=1) for workload in (ranges, pairs, two)]
    residual = ps.select.residual(pairs, "gaussian")
    low = ps.epsilon("1/10")
    return [
        ("prefix 512, Laplace", ranges, searched[0], low),
        ("2-way of 10·8·6·4, Laplace", pairs, searched[1], low),
        ("2-way of 10·8·6·4, Gaussian", pairs, residual, ps.rho("1/200")),
        ("2-way of 30 attributes, Laplace", many, ps.select.opt_marginals(many), ps.epsilon("1")),
        ("two prefixes 64 × 64, Laplace", two, searched[2], low),
    ]


def published() -> None:
    """Non-negative whole numbers, by the number of cells."""
    rows = []
    for shape in ((10, 10, 10), (20, 20, 25), (40, 50, 50), (100, 100, 100)):
        domain = ps.Domain.of({f"a{i}": n for i, n in enumerate(shape)})
        workload = ps.marginals(domain, up_to=2)
        rng = np.random.default_rng(1)
        counts = rng.poisson(rng.gamma(0.1, 20.0, domain.size))
        strategy = ps.select.opt_marginals(workload)
        data = ps.simulate(counts, domain, unit=UNIT, budget=ps.epsilon(1), seed=0)
        measured = data.vectorise().measure(strategy.query, spend=ps.epsilon(1))
        estimate = ps.infer.least_squares(measured)
        started = time.process_time()
        cells = nonnegative(estimate, hold_total=True).vector
        solved = time.process_time()
        made = round_cells(cells, workload)
        ended = time.process_time()
        shift = workload.answer(made) - workload.answer(cells)
        root = float(np.sqrt((shift**2).mean()))
        size = f"{domain.size:,}"
        rows.append([size, f"{solved - started:.2f} s", f"{ended - solved:.2f} s", f"{root:.2f}"])
    heads = ["cells", "non-negative", "rounding", "rounding moves tables by (rms)"]
    print("### Published numbers (processor time)\n")
    table(heads, rows)


def closeness(runs: int = 20) -> None:
    """The error of the three ways to make numbers, in simulation: here the truth is known."""
    rows = []
    for name, shape, count, make in (
        ("2-way of 20·4·4, 400 rows, cells measured", (20, 4, 4), 400, ps.select.identity),
        ("2-way of 20·4·4, 400 rows, OPT_M", (20, 4, 4), 400, ps.select.opt_marginals),
        ("2-way of 10·10·10, 5,000 rows, OPT_M", (10, 10, 10), 5000, ps.select.opt_marginals),
        ("2-way of 10·10·10, 500,000 rows, OPT_M", (10, 10, 10), 500000, ps.select.opt_marginals),
    ):
        domain = ps.Domain.of({f"a{i}": n for i, n in enumerate(shape)})
        workload = ps.marginals(domain, up_to=2)
        rng = np.random.default_rng(0)
        counts = rng.multinomial(count, rng.dirichlet(np.full(domain.size, 0.1)))
        strategy, spend = make(workload), ps.epsilon("0.3")
        gaps: list[list[np.ndarray]] = [[], [], []]
        for seed in range(runs):
            data = ps.simulate(counts, domain, unit=UNIT, budget=spend, seed=seed)
            estimate = ps.infer.least_squares(data.vectorise().measure(strategy.query, spend=spend))
            plain, held = nonnegative(estimate), nonnegative(estimate, hold_total=True)
            answers = [estimate.answer(workload).values, plain.answer(workload).values]
            answers.append(workload.answer(round_cells(held.vector, workload)))
            for own, found in zip(gaps, answers, strict=True):
                own.append(found - workload.answer(counts))
        errors = [f"{np.sqrt(np.square(own).mean()):.1f}" for own in gaps]
        totals = [f"{np.mean([gap[0] for gap in own]):+.0f}" for own in gaps]  # the 0-way marginal
        rows.append([name, *(f"{e} ({t})" for e, t in zip(errors, totals, strict=True))])
    heads = ["RMSE of all tables (bias of the total)", "consistent", "non-negative", "published"]
    print("### Closeness to the truth, epsilon 0.3, in simulation\n")
    table(heads, rows)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.stdout.write(json.dumps(job(Path(sys.argv[1]))))
    else:
        jobs()  # first: a process starts with the peak of the one that started it
        coverage()
        closeness()
        published()
