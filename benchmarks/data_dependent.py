"""Tables 3 and 6 of the HDMM paper where they depend on data: DAWA and PrivBayes beside HDMM.

    rivals   Table 3's columns DAWA and PrivBayes at ε = 1: sqrt(Err(plan) / Err(HDMM))
    buckets  Table 6: DAWA with HDMM in place of Greedy-H, ε = √2, prefixes

Errors of plans are means of squared errors over simulated draws; HDMM's are exact. PATENT and the
map of taxis are DPBench's, merged to the size; Adult's rows are public; persons (SF1) and CPS are
made up, with independent attributes of uneven shares, in the paper's shapes. Table 6 draws 10³ or
10⁷ rows from the shape of each histogram, as DPBench does; its errors are exact expectations over
the noise of the second stage for each of a few partitions, which both selectors share.

`python -m benchmarks.data_dependent SECTION FOLDER`, FOLDER with `dpbench1d`, `dpbench2d`, `adult`;
a number after it is the row of Table 3 to begin with, or cells of Table 6.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import psephos as ps
from benchmarks.measure import table
from benchmarks.plans import histograms, small_map
from psephos.plans.buckets import on_buckets
from psephos.values import Array

UNIT = ps.add_remove_row()
DRAWS = 5


@dataclass(frozen=True)
class Draws:
    """Squared errors of a plan, draw by draw, and the processor time of one."""

    squares: list[float]
    seconds: float

    @property
    def mean(self) -> float:
        return float(np.mean(self.squares))


def drawn(
    plan: str,
    counts: Array,
    workload: ps.Workload,
    spend: ps.Budget,
    draws: int = DRAWS,
    **options: Any,
) -> Draws:
    """‖W(x̂ - x)‖² of simulated runs, by WᵀW: CPS has 8e8 queries."""
    gram = workload.gram()
    squares, begin = [], time.process_time()
    for seed in range(draws):
        data = ps.simulate(counts, workload.domain, unit=UNIT, budget=spend, seed=seed)
        run = ps.plans.run(plan, data.vectorise(), workload, spend=spend, **options)
        off = run.estimate.vector - counts.ravel()
        squares.append(float(off @ (gram @ off)))
    return Draws(squares, (time.process_time() - begin) / draws)


# ---- Table 3 -------------------------------------------------------------------------------------


def adult(folder: Path) -> Array:
    """Adult's five attributes in the paper's 75 x 16 x 5 x 2 x 20 cells, hours by fives."""
    path = next((folder / "adult").glob("*.csv"))
    with path.open() as file:
        names = file.readline().strip().split(",")
        rows = np.loadtxt(file, delimiter=",", dtype=np.int64)
    columns = {name: rows[:, k] for k, name in enumerate(names)}
    sizes = ADULT.shape
    parts = [columns["age"], columns["education-num"], columns["race"], columns["sex"]]
    parts.append(columns["hours-per-week"] * sizes[4] // (columns["hours-per-week"].max() + 1))
    clipped = [np.clip(part, 0, n - 1) for part, n in zip(parts, sizes, strict=True)]
    return np.bincount(np.ravel_multi_index(clipped, sizes), minlength=ADULT.size)


def made_up(domain: ps.Domain, rows: int, seed: int = 0) -> Array:
    """Rows of independent attributes, some values far more common than others."""
    rng = np.random.default_rng(seed)
    shares = [np.sort(rng.dirichlet(np.full(n, 0.5)))[::-1] for n in domain.shape]
    draws = [rng.choice(n, rows, p=s) for n, s in zip(domain.shape, shares, strict=True)]
    return np.bincount(np.ravel_multi_index(draws, domain.shape), minlength=domain.size)


ADULT = ps.Domain.of(age=75, education=16, race=5, sex=2, hours=20)
CPS = ps.Domain.of(income=100, age=50, marital=7, race=4, sex=2)
ORDERED = ["income", "age"]


@dataclass(frozen=True)
class Row:
    """A configuration of Table 3 and the paper's ratios of the plans on it."""

    name: str
    data: str
    counts: Callable[[Path], Array]
    workload: Callable[[], ps.Workload]
    paper: dict[str, str]


def line(queries: ps.QuerySet) -> Callable[[], ps.Workload]:
    return lambda: ps.Workload(ps.Domain.of(cell=1024), [ps.product(cell=queries)])


def map_of(*pairs: tuple[ps.QuerySet, ps.QuerySet]) -> Callable[[], ps.Workload]:
    products = [ps.product(x=x, y=y) for x, y in pairs]
    return lambda: ps.Workload(ps.Domain.of(x=256, y=256), products)


def patent(folder: Path) -> Array:
    return np.asarray(histograms(folder)["PATENT"].reshape(1024, -1).sum(axis=1))


def taxis(folder: Path) -> Array:
    return small_map(folder, "BeijingTaxiE", 256)


P, I = ps.prefix(), ps.identity()  # noqa: E741
ROWS = [
    Row("Width-32 1024", "PATENT", patent, line(ps.width_range(32)), {"DAWA": "2.45"}),
    Row("Prefix 1024", "PATENT", patent, line(P), {"DAWA": "2.96"}),
    Row(
        "Permuted range 1024", "PATENT", patent,
        line(ps.permuted(ps.all_range(), np.random.default_rng(0).permutation(1024))),
        {"DAWA": "*"},
    ),
    Row("[P⊗I;I⊗P] 256²", "taxis", taxis, map_of((P, I), (I, P)), {"DAWA": "*"}),
    Row("P⊗P 256²", "taxis", taxis, map_of((P, P)), {"DAWA": "*"}),
    Row(
        "SF1", "made up, 20,000 rows",
        lambda folder: made_up(ps.census.sf1().domain, 20_000), ps.census.sf1,
        {"PrivBayes": "66700"},
    ),
    Row(
        "Adult, all marginals", "Adult", adult, lambda: ps.marginals(ADULT, up_to=5),
        {"PrivBayes": "20.5"},
    ),
    Row(
        "Adult, 2-way", "Adult", adult, lambda: ps.marginals(ADULT, k=2), {"PrivBayes": "155"},
    ),
    Row(
        "CPS, all range-marginals", "made up, 49,436 rows", lambda folder: made_up(CPS, 49_436),
        lambda: ps.range_marginals(CPS, up_to=5, ordered=ORDERED), {"PrivBayes": "4.74"},
    ),
    Row(
        "CPS, 2-way range-marginals", "made up, 49,436 rows",
        lambda folder: made_up(CPS, 49_436),
        lambda: ps.range_marginals(CPS, k=2, ordered=ORDERED), {"PrivBayes": "24.8"},
    ),
]  # fmt: skip


def rivals(folder: Path, sizes: list[int]) -> None:
    spend, lines = ps.epsilon(1), []
    for row in ROWS[sizes[0] if sizes else 0 :]:
        counts, workload = row.counts(folder), row.workload()
        best = ps.select.hdmm(workload, restarts=1, time_limit=60)
        least = best.rmse(workload, spend, UNIT) ** 2 * workload.shape[0]
        for plan, paper in row.paper.items():
            try:
                runs = drawn(plan, counts, workload, spend)
            except ps.PsephosError as error:
                lines.append([row.name, row.data, plan, "-", paper, "-", str(error)])
                continue
            ratios = [math.sqrt(square / least) for square in runs.squares]
            lines.append([
                row.name, row.data, plan, f"{math.sqrt(runs.mean / least):.3g}", paper,
                f"{min(ratios):.3g} to {max(ratios):.3g}", f"{runs.seconds:.2f} s",
            ])  # fmt: skip
            print(" | ".join(lines[-1]), file=sys.stderr, flush=True)
    head = ["workload", "data", "plan", "Err ratio to HDMM", "paper", "single draws", "CPU"]
    table(head, lines)


# ---- Table 6 -------------------------------------------------------------------------------------

TABLE_6 = {
    (256, 10**3): "1.04, 1.12, 1.7",
    (256, 10**7): "1.18, 1.25, 1.44",
    (1024, 10**3): "1.04, 1.15, 1.91",
    (1024, 10**7): "1.15, 1.37, 1.92",
    (4096, 10**3): "1.08, 1.20, 1.84",
    (4096, 10**7): "1.45, 1.80, 2.28",
}
"""Minimum, median and maximum over the data sets."""
TABLE_6_SETS = ["HEPTH", "MEDCOST", "NETTRACE", "PATENT", "SEARCHLOGS"]


def bucket_errors(counts: Array, workload: ps.Workload, spend: ps.Budget, seed: int) -> list[float]:
    """Expected squared errors of DAWA by Greedy-H and by HDMM, for one draw of its partition."""
    data = ps.simulate(counts, workload.domain, unit=UNIT, budget=spend, seed=seed)
    partition = ps.plans.run("DAWA", data.vectorise(), workload, spend=spend).requests[0].result
    sizes = np.bincount(partition.groups)
    even = (np.bincount(partition.groups, counts) / sizes)[partition.groups]
    bias = float(np.sum((workload.matrix @ (counts - even)) ** 2))
    questions, rest = on_buckets(workload, partition), spend - spend / 4
    strategies = (ps.select.greedy_h(questions), ps.select.hdmm(questions, restarts=1))
    return [bias + s.rmse(questions, rest, UNIT) ** 2 * questions.shape[0] for s in strategies]


def buckets(folder: Path, sizes: list[int]) -> None:
    sets, spend, lines = histograms(folder), ps.epsilon("1.4142"), []
    for (n, rows), paper in TABLE_6.items():
        if sizes and n not in sizes:
            continue
        workload = ps.Workload(ps.Domain.of(cell=n), [ps.product(cell=ps.prefix())])
        ratios: list[float] = []
        begin = time.process_time()
        draws = DRAWS if n < 4096 else 1
        for name in TABLE_6_SETS:
            shape = sets[name].reshape(n, -1).sum(axis=1)
            counts = np.random.default_rng(0).multinomial(rows, shape / shape.sum())
            errors = [bucket_errors(counts, workload, spend, seed) for seed in range(draws)]
            trees, searched = np.mean(errors, axis=0)
            ratios.append(math.sqrt(trees / searched))
        seconds = (time.process_time() - begin) / (draws * len(TABLE_6_SETS))
        marks = ", ".join(f"{f(ratios):.2f}" for f in (min, np.median, max))
        lines.append([
            f"{n}", f"{rows:,}", marks, paper, *(f"{ratio:.2f}" for ratio in ratios), f"{draws}",
            f"{seconds:.1f} s",
        ])  # fmt: skip
        print(" | ".join(lines[-1]), file=sys.stderr, flush=True)
    head = ["cells", "rows", "least, median, most", "paper", *TABLE_6_SETS, "partitions", "CPU"]
    table(head, lines)


SECTIONS = {"rivals": rivals, "buckets": buckets}

if __name__ == "__main__":
    words = sys.argv[1:]
    places = [word for word in words if word not in SECTIONS and not word.isdigit()]
    numbers = [int(word) for word in words if word.isdigit()]
    for section in [word for word in words if word in SECTIONS] or SECTIONS:
        SECTIONS[section](Path(places[0] if places else "../shared/data"), numbers)
