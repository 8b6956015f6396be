"""The published view where no vector of all cells fits: tables in groups, on made-up rows.

Population and housing have fewer cells: there groups stand beside one vector of all.

    python -m benchmarks.groups [FOLDER] [draws]

FOLDER holds releases/hospital.toml, survey.toml, population.toml and housing.toml (without it
`shared` beside the repository). They are planned as they are and measured on 20,000 made-up rows,
dense (a mixture of twelve groups of independent attributes) and sparse (200 different rows). Root
mean square errors over all asked numbers, against the true counts, as means over draws:

    consistent   least squares
    published    whole numbers of groups of tables
    local        psephos.infer.local_tables before rounding, where marginals are measured

"apart" is the largest difference, in rows, of the same number told by two groups, over all draws;
"covered" the share of true counts in the published 95 % intervals. Processor time is that of the
estimate of all groups and of its rounding.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa

import psephos as ps
from benchmarks.measure import table
from psephos.engines.columns import columns_of
from psephos.infer.local_tables import local_tables
from psephos.infer.records import counted_answers
from psephos.release.preflight.synthetic_rows import entries_of
from psephos.release.spec.job import Job
from psephos.release.views import published_groups
from psephos.release.views.estimates import MeasuredEstimate
from psephos.release.views.views import Views
from psephos.values import Array

ROWS = 20_000


def dense(shape: tuple[int, ...], seed: int = 5) -> Array:
    """Rows from a mixture of independent attributes."""
    rng, parts = np.random.default_rng(seed), []
    for some in rng.multinomial(ROWS, rng.dirichlet(np.ones(12))):
        columns = [rng.choice(n, size=some, p=rng.dirichlet(np.full(n, 0.5))) for n in shape]
        parts.append(np.stack(columns, axis=1))
    return np.concatenate(parts)


def sparse(shape: tuple[int, ...], seed: int = 5) -> Array:
    """Rows of 200 kinds, some of which are most."""
    rng = np.random.default_rng(seed)
    kinds = np.stack([rng.integers(0, n, 200) for n in shape], axis=1)
    return kinds[rng.choice(200, size=ROWS, p=rng.dirichlet(np.full(200, 0.3)))]


def source_of(job: Job, columns: Array) -> pa.Table:
    """Rows as a table that can be measured."""
    pairs = zip(columns_of(job.domain), columns.T, strict=True)
    return pa.table({name: entries_of(attribute, cells) for (name, attribute), cells in pairs})


def rmse(gaps: Array) -> float:
    return float(np.sqrt(np.mean(gaps**2)))


def row(job: Job, strategy: ps.Strategy, kind: str, draws: int) -> list[str]:
    """One release on one kind of rows."""
    columns = dense(job.domain.shape) if kind == "dense" else sparse(job.domain.shape)
    records, source = job.cells.records(columns), source_of(job, columns)
    truth = counted_answers(job.workload.domain, records, job.workload)
    budget, half = job.budget, None
    if budget is None:
        raise SystemExit(f"{job.file.name} names no budget")
    errors: dict[str, list[float]] = {"consistent": [], "published": [], "local": []}
    apart, covered, seconds = 0, [], []
    for seed in range(draws):
        people = ps.simulate(source, job.domain, unit=job.unit, budget=budget, seed=seed)
        data = job.cells.of(people)
        measurement = data.vectorise().measure(strategy.query, spend=budget)
        views = Views(MeasuredEstimate(job, (measurement,)))
        began = time.process_time()
        _ = views.published.unrounded
        fitted = time.process_time()
        whole = views.published.answers
        seconds.append((fitted - began, time.process_time() - fitted))
        errors["consistent"].append(rmse(views.consistent - truth))
        errors["published"].append(rmse(whole - truth))
        try:
            local = local_tables(views.least_squares, job.workload).answer(job.workload).values
            errors["local"].append(rmse(local - truth))
        except ps.UnsupportedError:
            pass
        if views.groups is not None:
            apart = max(apart, views.published.disagreement.largest)
        half = views.widths.per_query if half is None else half
        low = np.maximum(np.minimum(views.consistent - half, whole), 0)
        high = np.maximum(views.consistent + half, whole)
        covered.append(float(np.mean((low <= truth) & (truth <= high))))
    means = {name: np.mean(each) for name, each in errors.items() if each}
    groups = views.groups
    one = f"one vector / {job.workload.domain.size:,}"
    cells = f"{len(groups.rules)} / {groups.cells:,}" if groups is not None else one
    local_words = f"{means['local']:.4g}" if "local" in means else "–"
    fit, rounding = np.mean(seconds, axis=0)
    return [
        f"{job.file.name}, {kind}",
        f"{job.workload.shape[0]:,}",
        cells,
        str(draws),
        f"{means['consistent']:.4g}",
        f"{means['published']:.4g}",
        f"{means['consistent'] / means['published']:.2f} ×",
        local_words,
        str(apart),
        f"{np.mean(covered):.3f}",
        f"{fit:.1f} + {rounding:.1f} s",
    ]


def main(arguments: list[str]) -> None:
    numbers = [word for word in arguments if word.isdigit()]
    folders = [Path(word) for word in arguments if not word.isdigit()]
    folder = folders[0] if folders else Path(__file__).parents[2] / "shared"
    rows = []
    most = published_groups.LONG_VECTOR_CELLS
    for name, limits in (
        ("hospital", [most]),
        ("survey", [most]),
        ("population", [0, most]),
        ("housing", [0, most]),
    ):
        with tempfile.TemporaryDirectory() as place:
            shutil.copy(folder / f"releases/{name}.toml", Path(place) / "release.toml")
            job = Job.read(Path(place))
            strategy = ps.plan(job).strategy
        for kind, limit in product(("dense", "sparse"), limits):
            published_groups.LONG_VECTOR_CELLS = limit
            rows.append(row(job, strategy, kind, int(numbers[0]) if numbers else 5))
    published_groups.LONG_VECTOR_CELLS = most
    heads = ["release, rows", "numbers", "groups / cells", "draws", "consistent", "published"]
    table([*heads, "closer", "local", "apart", "covered", "CPU"], rows)


if __name__ == "__main__":
    main(sys.argv[1:])
