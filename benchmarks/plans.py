"""EKTELO's plans on public data, beside the numbers of Zhang et al. (2020) and of its public code.

    dpbench    1,000 random ranges over DPBench's histograms of 4,096 cells
    maps       1,000 random rectangles over its maps, cells merged to 64 x 64
    mwem       Table 4: MWEM's variants
    census     Table 5: 1.4 million cells, made-up rows
    reduction  Table 6: cells that no query tells apart are merged before the plan

The error is ‖W(x̂ - x)‖₂ / (m N), as in the paper: m queries, N rows. Plans that look at the data
are simulated, means and standard deviations over draws of the noise; the error of the others is an
exact expectation. A random range starts at a random cell and ends at a random cell after it. Times
are processor time of a whole run, the selection of a strategy included, at its least over draws.

Numbers of public code assume that the number of rows is public, and its DAWA's partition is not
private. Ours pay for everything: MWEM and grids spend 5 % of their budget on the number of rows.

`python -m benchmarks.plans SECTION FOLDER`, FOLDER with `dpbench1d` and `dpbench2d`; names of plans
after it run these alone in section `maps`.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import psephos as ps
from benchmarks.measure import table
from psephos.plans import partitions
from psephos.plans.fixed import hb_matrix
from psephos.values import Array
from psephos.workload.query_sets import MatrixQueries

CELLS = 4096
RANGES = 1000
DRAWS = 10
UNIT = ps.add_remove_row()
SPEND = ps.epsilon("0.1")
FIXED: dict[str, Callable[[ps.Workload], ps.Strategy]] = {
    "Identity": ps.select.identity,
    "Privelet": ps.select.privelet,
    "H2": ps.select.h2,
    "HB": ps.select.hb,
    "Greedy-H": ps.select.greedy_h,
    "HDMM": lambda w: ps.select.hdmm(w, restarts=1, time_limit=30),
}


class Runs:
    """Errors of several draws, and the least processor time of one."""

    def __init__(self, errors: list[float], seconds: float) -> None:
        self.mean, self.spread = float(np.mean(errors)), float(np.std(errors))
        self.root_mean_square = math.sqrt(float(np.mean(np.square(errors))))
        self.seconds = seconds

    def __str__(self) -> str:
        return f"{self.mean:.3g} ± {self.spread:.1g}" if self.spread else f"{self.mean:.3g}"


def simulated(
    plan: str,
    counts: Array,
    workload: ps.Workload,
    spend: ps.Budget = SPEND,
    draws: int = DRAWS,
    **options: Any,
) -> Runs:
    """A plan on known counts, draw after draw."""
    truth = workload.answer(counts.ravel())
    errors, times = [], []
    for seed in range(draws):
        data = ps.simulate(counts, workload.domain, unit=UNIT, budget=spend, seed=seed)
        vector = data.vectorise()
        begin = time.process_time()
        values = (
            ps.plans.run(plan, vector, workload, spend=spend, **options).answer(workload).values
        )
        times.append(time.process_time() - begin)
        errors.append(float(np.linalg.norm(values - truth)) / (truth.size * counts.sum()))
    return Runs(errors, min(times))


def expected(strategy: ps.Strategy, workload: ps.Workload, spend: ps.Budget, rows: float) -> float:
    """The root of the expected square of the error."""
    return strategy.rmse(workload, spend, UNIT) / (math.sqrt(workload.shape[0]) * rows)


def histograms(folder: Path) -> dict[str, Array]:
    """DPBench's histograms of 4,096 cells."""
    paths = sorted((folder / "dpbench1d").glob("*.n4096.npy"))
    return {path.name.split(".")[0]: np.load(path).astype(np.int64) for path in paths}


def small_map(folder: Path, name: str, side: int) -> Array:
    """One of DPBench's maps, cells merged to side x side."""
    cells = np.load(folder / "dpbench2d" / f"{name}_256_256.npy").astype(np.int64)
    step = 256 // side
    return np.asarray(cells.reshape(side, step, side, step).sum(axis=(1, 3)))


def ends_of(rng: np.random.Generator, n: int, longest: int) -> tuple[Array, Array]:
    """Random ranges: where they begin and, at most so many cells on, where they end."""
    low = rng.integers(0, n, RANGES)
    return low, rng.integers(low, np.minimum(low + longest, n))


def random_ranges(n: int, longest: int | None = None, seed: int = 0) -> ps.Workload:
    low, high = ends_of(np.random.default_rng(seed), n, longest or n)
    queries = ps.ranges(list(zip(low.tolist(), high.tolist(), strict=True)))
    return ps.Workload(ps.Domain.of(cell=n), [ps.product(cell=queries)])


def random_rectangles(side: int, longest: int | None = None, seed: int = 0) -> ps.Workload:
    rng = np.random.default_rng(seed)
    pairs = [ends_of(rng, side, longest or side) for _ in range(2)]
    axes = [[(int(a), int(b)) for a, b in zip(*pair, strict=True)] for pair in pairs]
    products = [ps.product(x=ps.ranges([x]), y=ps.ranges([y])) for x, y in zip(*axes, strict=True)]
    return ps.Workload(ps.Domain.of(x=side, y=side), products)


# ---- DPBench -------------------------------------------------------------------------------------

HEPTH = {
    "Identity": 3.95e-5, "Privelet": 2.49e-5, "HB": 1.90e-5, "Greedy-H": 2.72e-5,
    "DAWA": 1.87e-5, "MWEM": 1.02e-4, "AHP": 3.57e-4,
}  # fmt: skip
"""What the public code gave on HEPTH."""
MAP = {"HB": 2.0e-5, "AdaptiveGrid": 1.2e-5, "DAWA": 8.1e-6, "AHP": 4.7e-5}
"""And on cabspottingS, 64 x 64."""
ADAPTIVE: dict[str, tuple[str, dict[str, Any]]] = {
    "Uniform": ("Uniform", {}),
    "AHP": ("AHP", {}),
    "DAWA": ("DAWA", {}),
    "DAWA, HDMM for Greedy-H": ("DAWA", {"selector": "hdmm"}),
    "MWEM": ("MWEM", {}),
    "MWEM variant b": ("MWEM variant b", {}),
    "MWEM variant c": ("MWEM variant c", {}),
}
"""Plans that look at the data, and their options."""
ADAPTIVE_MAPS = ["DAWA", "AHP", "MWEM", "AdaptiveGrid", "UniformGrid", "Uniform"]
MAPS = ["cabspottingS", "Adult_2D", "BeijingTaxiE", "BeijingTaxiS"]


def dpbench(folder: Path) -> None:
    sets, workload = histograms(folder), random_ranges(CELLS)
    rows = []
    for name, select in FIXED.items():
        begin = time.process_time()
        strategy = select(workload)
        seconds = time.process_time() - begin
        error = expected(strategy, workload, SPEND, 1.0)
        errors = [error / x.sum() for x in sets.values()]
        runs = simulated(name, sets["HEPTH"], workload, **_given(name, strategy))
        ratio = runs.root_mean_square / (error / sets["HEPTH"].sum())
        seconds = max(seconds, runs.seconds)
        public = f"{HEPTH[name]:.3g}" if name in HEPTH else ""
        shown = [f"{each:.3g}" for each in errors]
        rows.append([name, public, *shown, f"{ratio:.2f}", f"{seconds:.2f} s"])
    for label, (name, options) in ADAPTIVE.items():
        several = [simulated(name, x, workload, **options) for x in sets.values()]
        public = f"{HEPTH[label]:.3g}" if label in HEPTH else ""
        seconds = max(run.seconds for run in several)
        rows.append([label, public, *map(str, several), "", f"{seconds:.2f} s"])
    head = ["plan", "public code, HEPTH", *sets, "drawn / exact", "CPU, at most"]
    table(head, rows)
    lengths_of_dawa(sets, workload)


def lengths_of_dawa(sets: dict[str, Array], workload: ps.Workload) -> None:
    """How DAWA looks for its buckets, and what the partition alone costs."""
    rows = []
    for search in ("tree", "aligned", "dyadic", "all"):
        draws = DRAWS if search != "all" else 1
        errors = []
        for name in ("HEPTH", "SEARCHLOGS", "MEDCOST"):
            errors.append(str(simulated("DAWA", sets[name], workload, draws=draws, search=search)))
        vector = ps.simulate(
            sets["HEPTH"], workload.domain, unit=UNIT, budget=SPEND, seed=0
        ).vectorise()
        begin = time.process_time()
        how = ps.PrivTree() if search == "tree" else ps.WholePartitions(lengths=search)
        vector.partition(how, spend=SPEND / 4)
        rows.append([search, str(draws), *errors, f"{time.process_time() - begin:.2f} s"])
    table(["search", "draws", "HEPTH", "SEARCHLOGS", "MEDCOST", "CPU of the partition"], rows)


def maps(folder: Path, *names: str) -> None:
    workload = random_rectangles(64)
    sets = {name: small_map(folder, name, 64) for name in MAPS}
    counts, rows = sets["cabspottingS"], []
    for name, select in {**FIXED, "Quadtree": ps.select.quadtree}.items():
        if name in ("Greedy-H", "HDMM") or (names and name not in names):
            continue  # the first is for one attribute, the second for products
        begin = time.process_time()
        error = expected(select(workload), workload, SPEND, 1.0)
        seconds = time.process_time() - begin
        runs = simulated(name, counts, workload)
        ratio = runs.root_mean_square / (error / counts.sum())
        public = f"{MAP[name]:.3g}" if name in MAP else ""
        shown = [f"{error / x.sum():.3g}" for x in sets.values()]
        rows.append([name, public, *shown, f"{ratio:.2f}", f"{seconds:.2f} s"])
    for name in [name for name in ADAPTIVE_MAPS if not names or name in names]:
        several = [simulated(name, x, workload) for x in sets.values()]
        public = f"{MAP[name]:.3g}" if name in MAP else ""
        seconds = max(run.seconds for run in several)
        rows.append([name, public, *map(str, several), "", f"{seconds:.2f} s"])
        print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    table(["plan", "public code", *sets, "drawn / exact", "CPU, at most"], rows)


def _given(name: str, strategy: ps.Strategy) -> dict[str, Any]:
    """HDMM's strategy is not searched again."""
    return {"strategy": strategy} if name == "HDMM" else {}


# ---- Table 4 -------------------------------------------------------------------------------------

ROUNDS = 10
"""For all alike, as in the paper; left open they would follow from the number of rows."""
VARIANTS = {
    "MWEM": ("1", "1", "1", "1"),
    "MWEM variant b": ("1.03", "2.80", "7.93", "354.9"),
    "MWEM variant c": ("0.78", "1.08", "1.54", "1.0"),
    "MWEM variant d": ("0.89", "2.64", "8.13", "9.0"),
}


def mwem(folder: Path) -> None:
    workload, sets = random_ranges(CELLS), histograms(folder)
    rows, details = [], []
    first: dict[str, Runs] = {}
    for name, paper in VARIANTS.items():
        runs = {s: simulated(name, x, workload, rounds=ROUNDS) for s, x in sets.items()}
        first = first or runs
        ratios = {s: first[s].mean / run.mean for s, run in runs.items()}
        slower = float(np.mean([run.seconds / first[s].seconds for s, run in runs.items()]))
        ours = [*(float(f(list(ratios.values()))) for f in (min, np.mean, max)), slower]
        both = [f"{mine:.2f} ({theirs})" for mine, theirs in zip(ours, paper, strict=True)]
        seconds = float(np.mean([run.seconds for run in runs.values()]))
        rows.append([name, *both, f"{seconds:.2f} s"])
        details.append([name, *(f"{runs[s]} ({ratios[s]:.2f})" for s in sets)])
        print(" | ".join(details[-1]), file=sys.stderr, flush=True)
    table(["error factor (paper)", "min", "mean", "max", "time factor", "CPU"], rows)
    table(["error (factor)", *sets], details)


# ---- Table 5 -------------------------------------------------------------------------------------

CENSUS = ps.Domain.of(income=5000, age=5, marital=7, race=4, gender=2)
CENSUS_ROWS = 49_436
TABLE_5 = {
    "Identity": ("24.18", "12.04", "18.97"),
    "HB-Striped_kron": ("70.31", "21.91", "4.13"),
    "PrivBayes": ("76.93", "65.31", "28.70"),
    "PrivBayesLS": ("5.86", "13.29", "36.81"),
    "DAWA-Striped": ("3.43", "1.96", "2.50"),
}
CENSUS_DRAWS = {"PrivBayes": 10, "PrivBayesLS": 10, "DAWA-Striped": 5}


def households(seed: int = 0) -> Array:
    """Made-up heads of household: skewed incomes, many of them round, that depend on the rest."""
    rng = np.random.default_rng(seed)
    age = rng.choice(5, CENSUS_ROWS, p=[0.05, 0.37, 0.36, 0.19, 0.03])
    gender = rng.choice(2, CENSUS_ROWS, p=[0.62, 0.38])
    by_age = np.array([[9, 1, 1, 1, 1, 5, 82], [50, 1, 1, 1, 14, 3, 30], [59, 1, 1, 4, 20, 3, 12],
                       [50, 1, 1, 34, 9, 1, 4], [30, 1, 1, 60, 3, 1, 4]], dtype=float)  # fmt: skip
    by_age /= by_age.sum(axis=1, keepdims=True)
    draws = rng.random(CENSUS_ROWS)[:, None]
    marital = np.minimum((draws > by_age.cumsum(axis=1)[age]).sum(axis=1), 6)
    race = rng.choice(4, CENSUS_ROWS, p=[0.84, 0.11, 0.01, 0.04])
    middle = np.array([18e3, 42e3, 52e3, 27e3, 20e3])[age]
    middle = middle * np.where(marital == 0, 1.3, 0.8) * np.where(gender == 0, 1.15, 0.85)
    income = middle * np.exp(rng.normal(0, 0.8, CENSUS_ROWS))
    rounded = np.where(rng.random(CENSUS_ROWS) < 0.5, np.rint(income / 1000) * 1000, income)
    bins = np.clip(rounded / 150, 0, 4999).astype(np.int64)
    cells = np.ravel_multi_index((bins, age, marital, race, gender), CENSUS.shape)
    return np.bincount(cells, minlength=CENSUS.size)


def spread(errors: list[float], scale: float) -> str:
    """The standard deviation, where there are draws to tell it."""
    return f" ± {np.std(errors) * scale:.2f}" if len(errors) > 1 else ""


def census(folder: Path) -> None:
    counts, spend = households(), ps.epsilon(1)
    others = {name: ps.identity_total() for name in CENSUS.names if name != "income"}
    workloads = {
        "cells (1e-9)": ps.Workload(CENSUS, [ps.product({n: ps.identity() for n in CENSUS.names})]),
        "2-way (1e-7)": ps.marginals(CENSUS, k=2),
        "Prefix(Income) (1e-7)": ps.Workload(CENSUS, [ps.product(income=ps.prefix(), **others)]),
    }
    scales = [1e9, 1e7, 1e7]
    truths = {name: workload.answer(counts) for name, workload in workloads.items()}
    striped = ps.matrix.Kron((hb_matrix(5000), *(ps.matrix.Identity(n) for n in CENSUS.shape[1:])))
    fixed = {
        "Identity": ps.select.identity(workloads["cells (1e-9)"]),
        "HB-Striped_kron": ps.Strategy(
            CENSUS, ps.NoiseKind.LAPLACE, ps.Query.of(striped), "HB-striped"
        ),
    }
    rows = []
    for name, strategy in fixed.items():
        errors = [expected(strategy, w, spend, CENSUS_ROWS) for w in workloads.values()]
        begin = time.process_time()
        vector = ps.simulate(counts, CENSUS, unit=UNIT, budget=spend, seed=0).vectorise()
        begin = time.process_time()
        ps.plans.run(name, vector, workloads["2-way (1e-7)"], spend=spend)
        cells = zip(errors, scales, TABLE_5[name], strict=True)
        both = [f"{error * scale:.2f} ({paper})" for error, scale, paper in cells]
        rows.append([name, *both, "exact", f"{time.process_time() - begin:.1f} s"])
    for name, draws in CENSUS_DRAWS.items():
        errors_of: dict[str, list[float]] = {w: [] for w in workloads}
        seconds = math.inf
        for seed in range(draws):
            vector = ps.simulate(counts, CENSUS, unit=UNIT, budget=spend, seed=seed).vectorise()
            begin = time.process_time()
            questions = workloads["Prefix(Income) (1e-7)"]
            done = ps.plans.run(name, vector, questions, spend=spend, key=f"draw {seed}")
            seconds = min(seconds, time.process_time() - begin)
            for w, workload in workloads.items():
                off = done.answer(workload).values - truths[w]
                errors_of[w].append(float(np.linalg.norm(off)) / (off.size * CENSUS_ROWS))
        cells = zip(errors_of.values(), scales, TABLE_5[name], strict=True)
        both = [
            f"{np.mean(e) * scale:.2f}{spread(e, scale)} ({paper})" for e, scale, paper in cells
        ]
        rows.append([name, *both, f"draws: {draws}", f"{seconds:.1f} s"])
    begin = time.process_time()
    best = [
        expected(ps.select.hdmm(w, restarts=1, time_limit=20), w, spend, CENSUS_ROWS)
        for w in workloads.values()
    ]
    both = [f"{error * scale:.2f}" for error, scale in zip(best, scales, strict=True)]
    rows.append(["HDMM, for each", *both, "exact", f"{time.process_time() - begin:.1f} s"])
    nothing = [
        float(np.linalg.norm(t)) / (t.size * CENSUS_ROWS) * scale
        for t, scale in zip(truths.values(), scales, strict=True)
    ]
    rows.append(["all answers zero", *(f"{error:.2f}" for error in nothing), "exact", ""])
    table(["plan, error (paper)", *workloads, "by", "CPU"], rows)


# ---- Table 6 -------------------------------------------------------------------------------------

TABLE_6 = {
    "AHP": ("1.29", "5.36"),
    "DAWA": ("0.99", "0.92"),
    "Identity": ("2.89", "0.73"),
    "HB": ("1.34", "0.62"),
}
SMALL_RANGE = 64
"""Cells of the longest small range; the paper does not say how small its ranges are."""


def reduction(folder: Path) -> None:
    line, hepth = random_ranges(CELLS, SMALL_RANGE), histograms(folder)["HEPTH"]
    cases = {
        "AHP": (small_map(folder, "cabspottingS", 128), random_rectangles(128, 16)),
        "DAWA": (hepth, line),
        "Identity": (small_map(folder, "cabspottingS", 256), random_rectangles(256, 16)),
        "HB": (hepth, line),
    }
    rows = []
    for name, (counts, workload) in cases.items():
        begin = time.process_time()
        groups = partitions.workload_based(workload)
        merged = merged_workload(workload, groups)
        merging = time.process_time() - begin
        sums = np.bincount(groups.groups, counts.ravel()).astype(np.int64)
        before, after = simulated(name, counts, workload), simulated(name, sums, merged)
        factors = before.mean / after.mean, before.seconds / (after.seconds + merging)
        paper = TABLE_6[name]
        rows.append(
            [
                f"{name}, {counts.size:,} cells",
                f"{groups.shape[0]:,}",
                str(before),
                str(after),
                f"{factors[0]:.2f} ({paper[0]})",
                f"{before.seconds:.2f} s",
                f"{merging:.2f} + {after.seconds:.2f} s",
                f"{factors[1]:.2f} ({paper[1]})",
            ]
        )
    table(
        [
            "plan",
            "groups",
            "error",
            "reduced",
            "factor (paper)",
            "CPU",
            "reduced",
            "factor (paper)",
        ],
        rows,
    )


def merged_workload(workload: ps.Workload, groups: ps.matrix.Partition) -> ps.Workload:
    """The same queries of groups of cells: a column of each group stands for all of them."""
    first = np.unique(groups.groups, return_index=True)[1]
    places = np.unravel_index(first, workload.domain.shape)
    if len(places) == 1:
        rows = workload.factors(0)[0].dense()[:, first]
    else:
        rows = np.ones((workload.shape[0], first.size), dtype=np.int8)
        for i, row in enumerate(rows):
            for factor, place in zip(workload.factors(i), places, strict=True):
                row *= factor.row(0).astype(np.int8)[place]
    queries = MatrixQueries(ps.matrix.Sparse(csr_array(rows)))
    return ps.Workload(ps.Domain.of(group=groups.shape[0]), [ps.product(group=queries)])


# ---- the rest ------------------------------------------------------------------------------------

SECTIONS = {
    "dpbench": dpbench,
    "maps": maps,
    "mwem": mwem,
    "census": census,
    "reduction": reduction,
}


def chosen(arguments: list[str]) -> Iterator[Callable[..., None]]:
    names = [name for name in arguments if name in SECTIONS] or list(SECTIONS)
    return (SECTIONS[name] for name in names)


if __name__ == "__main__":
    places = [word for word in sys.argv[1:] if word not in SECTIONS]
    for section in chosen(sys.argv[1:]):
        section(Path(places[0] if places else "../shared/data"), *places[1:])
