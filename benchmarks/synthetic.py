"""Synthetic tables of Adult: 14 attributes, 6e17 cells, (ε, δ) = (1, 1e-9).

    python -m benchmarks.synthetic FOLDER [runs]
    python -m benchmarks.synthetic FOLDER [runs] elsewhere

FOLDER holds the public table adult.csv, coded by whole numbers, and adult-domain.json, the number
of values of each attribute. The mean over all 91 tables of two and all 364 of three attributes of
‖true - estimate‖₁/N, and the processor time of

    AdaptiveMarginals   the model of the plan; and rows that are dealt out from it
    all pairs           all tables of one and two attributes, measured at once with the least sum of
                        variances (ps.select.residual), local tables from them; and rows that
                        follow a tree of pairs
    independent         one-way tables alone, at the whole budget; and at no noise
    uniform             every combination of values alike

PrivBayes has no row: it makes a vector of all cells. MST and AIM: benchmarks/synthetic_rivals.py.

`elsewhere` has tables that no constant was tuned on: six attributes of KDD99 (FOLDER with its
`dualquery`), and made-up rows, a mixture of six groups and a chain in which each attribute depends
on the one before. PrivBayes is paid there with a pure ε of 1, which is (1, 1e-9) as well.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
from numpy.random import default_rng

import psephos as ps
from benchmarks.dual_query import uci
from benchmarks.measure import table
from psephos.infer.local_tables import local_tables
from psephos.synthesis.sample import sample
from psephos.values import Array

BUDGET = ps.epsilon_delta("1", "1e-9")
Tables = Callable[[tuple[str, ...]], Array]
"""The counts of some attributes."""


class Data:
    """The data, and how far any tables are from them."""

    def __init__(self, frame: pa.Table, sizes: dict[str, int]) -> None:
        self.frame = frame.select(list(sizes))
        self.domain = ps.Domain.of(sizes)
        self.records = np.stack([column.to_numpy() for column in self.frame.columns], axis=1)
        self.rows = len(self.records)

    @classmethod
    def adult(cls, folder: Path) -> Data:
        """The public table."""
        sizes: dict[str, int] = json.loads((folder / "adult-domain.json").read_text())
        return cls(pa_csv.read_csv(folder / "adult.csv"), sizes)

    @classmethod
    def of_records(cls, records: Array, names: list[str], sizes: list[int]) -> Data:
        """Codes, a column for each attribute."""
        frame = pa.table(dict(zip(names, records.T, strict=True)))
        return cls(frame, dict(zip(names, sizes, strict=True)))

    def counts(self, names: tuple[str, ...]) -> Array:
        """The true counts of some attributes."""
        axes = [self.domain.axis(name) for name in names]
        shape = [self.domain.shape[axis] for axis in axes]
        cells = np.ravel_multi_index(tuple(self.records[:, axes].T), shape)
        return np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape)

    def errors(self, tables: Tables) -> list[float]:
        """The mean of ‖true - estimate‖₁/N over all tables of two and of three attributes."""
        return [
            float(
                np.mean(
                    [
                        np.abs(self.counts(names) - tables(names)).sum() / self.rows
                        for names in combinations(self.domain.names, k)
                    ]
                )
            )
            for k in (2, 3)
        ]

    def vector(self, budget: ps.Budget = BUDGET) -> ps.ProtectedVector:
        """A handle behind a new ledger that holds the budget."""
        place = Path(tempfile.mkdtemp()) / "ledger"
        unit = ps.add_remove_row()
        ledger = ps.Ledger.create(place, dataset="adult", unit=unit, budget=budget)
        return ps.protect(self.frame, self.domain, ledger=ledger).vectorise()


class Clock:
    """Processor seconds since the last look."""

    def __init__(self) -> None:
        self.last = time.process_time()

    def __call__(self) -> float:
        before, self.last = self.last, time.process_time()
        return self.last - before


def adaptive(adult: Data, run: int) -> dict[str, tuple[list[float], float]]:
    """The plan's model, and rows from it."""
    clock = Clock()
    workload = ps.marginals(adult.domain, up_to=3)
    spent = ps.plans.run("AdaptiveMarginals", adult.vector(), workload, spend=BUDGET)
    model, fitted = spent.estimate, clock()
    rows = sample(model, generator=default_rng(run))
    dealt = fitted + clock()
    return {
        "AdaptiveMarginals, model": (adult.errors(lambda names: model.table(*names)), fitted),
        "AdaptiveMarginals, rows": (adult.errors(rows.counts), dealt),
    }


def all_pairs(adult: Data, run: int) -> dict[str, tuple[list[float], float]]:
    """All pairs at once, local tables and rows from them."""
    clock = Clock()
    pairs = ps.marginals(adult.domain, up_to=2)
    strategy = ps.select.residual(pairs, ps.NoiseKind.GAUSSIAN)
    measured = adult.vector().measure(strategy.query, spend=BUDGET)
    tables = local_tables(ps.infer.least_squares(measured), pairs)
    fitted = clock()
    rows = sample(tables, generator=default_rng(run))
    dealt = fitted + clock()
    two = [
        np.abs(adult.counts(names) - tables.table(*names)).sum() / adult.rows
        for names in combinations(adult.domain.names, 2)
    ]
    return {
        "all pairs, local tables": ([float(np.mean(two)), float("nan")], fitted),
        "all pairs, rows": (adult.errors(rows.counts), dealt),
    }


def independent(adult: Data, run: int) -> dict[str, tuple[list[float], float]]:
    """One-way tables alone."""
    clock = Clock()
    measured = adult.vector().measure(ps.marginals(adult.domain, k=1).query, spend=BUDGET)
    model = ps.infer.graphical_model(measured)
    return {"independent": (adult.errors(lambda names: model.table(*names)), clock())}


def privbayes(adult: Data, run: int) -> dict[str, tuple[list[float], float]]:
    """PrivBayesLS at a pure epsilon of 1."""
    clock, spend = Clock(), ps.epsilon(1)
    workload = ps.marginals(adult.domain, up_to=3)
    cells = ps.plans.run("PrivBayesLS", adult.vector(spend), workload, spend=spend).estimate.vector
    grid, seconds = cells.reshape(adult.domain.shape), clock()

    def tables(names: tuple[str, ...]) -> Array:
        axes = [adult.domain.axis(name) for name in names]
        others = tuple(a for a in range(len(adult.domain)) if a not in axes)
        return np.asarray(grid.sum(axis=others))

    return {"PrivBayesLS": (adult.errors(tables), seconds)}


def kdd99(folder: Path) -> Data:
    """Six attributes of KDD99."""
    data = uci(folder, "kdd99")
    names = ["protocol_type", "service", "flag", "logged_in", "count", "attack"]
    axes = [data.domain.axis(name) for name in names]
    return Data.of_records(data.codes[:, axes], names, [data.domain.shape[a] for a in axes])


def mixture(rows: int = 20_000, seed: int = 0) -> Data:
    """Six groups of rows, each with shares of its own for nine attributes."""
    generator, sizes = default_rng(seed), [8, 7, 6, 5, 5, 4, 4, 3, 2]
    group = generator.integers(0, 6, rows)
    columns = []
    for size in sizes:
        ends = generator.dirichlet(np.full(size, 0.5), 6).cumsum(axis=1)
        column = (generator.random(rows)[:, None] > ends[group]).sum(axis=1)
        columns.append(np.minimum(column, size - 1))
    return Data.of_records(np.stack(columns, 1), [f"a{i}" for i in range(9)], sizes)


def chain(rows: int = 100_000, seed: int = 0) -> Data:
    """Twelve attributes of eight values, each a step up or down from the one before or any."""
    generator = default_rng(seed)
    columns = [generator.binomial(7, 0.4, rows)]
    for _ in range(11):
        step = np.clip(columns[-1] + generator.integers(-1, 2, rows), 0, 7)
        columns.append(np.where(generator.random(rows) < 0.2, generator.integers(0, 8, rows), step))
    return Data.of_records(np.stack(columns, 1), [f"a{i}" for i in range(12)], [8] * 12)


def elsewhere(folder: Path, runs: int) -> None:
    """The plan on other tables."""
    tables = {
        "KDD99, 6 attributes": kdd99(folder),
        "mixture, 9 attributes": mixture(),
        "chain, 12 attributes": chain(),
    }
    for name, data in tables.items():
        print(f"\n{name}: {data.rows:,} rows, {data.domain.size_text} cells\n")
        fits = data.domain.size <= 20_000_000
        compared(data, (adaptive, independent, *([privbayes] if fits else [])), runs)


def trivial(adult: Data) -> dict[str, list[float]]:
    """What needs no budget, or no noise."""
    shares = {name: adult.counts((name,)) / adult.rows for name in adult.domain.names}
    even = {name: np.full_like(share, 1 / share.size) for name, share in shares.items()}

    def product(parts: dict[str, Array]) -> Tables:
        def tables(names: tuple[str, ...]) -> Array:
            cells = np.array(float(adult.rows))
            for name in names:
                cells = np.multiply.outer(cells, parts[name])
            return cells

        return tables

    return {
        "independent, without noise": adult.errors(product(shares)),
        "uniform": adult.errors(product(even)),
    }


Method = Callable[[Data, int], dict[str, tuple[list[float], float]]]
"""Errors and seconds of one run, by name."""


def compared(adult: Data, methods: Iterable[Method], runs: int) -> None:
    """One table of all methods."""
    results: dict[str, list[tuple[list[float], float]]] = {}
    for run in range(runs):
        for method in methods:
            for name, result in method(adult, run).items():
                results.setdefault(name, []).append(result)
                errors = ", ".join(f"{error:.4f}" for error in result[0])
                print(f"run {run + 1}: {name} {errors}, {result[1]:.1f} CPU s", flush=True)
    rows = []
    for name, each in results.items():
        errors = np.array([errors for errors, _ in each])
        pairs = zip(errors.mean(0), errors.std(0), strict=True)
        shown = ["–" if np.isnan(m) else f"{m:.3f} ± {s:.3f}" for m, s in pairs]
        rows.append([name, *shown, f"{np.mean([seconds for _, seconds in each]):.1f} s"])
    rows += [[name, *(f"{e:.3f}" for e in errors), ""] for name, errors in trivial(adult).items()]
    table(["method", "two-way", "three-way", "CPU"], rows)


def main(folder: Path, runs: int, section: str = "adult") -> None:
    if section == "elsewhere":
        elsewhere(folder, runs)
    else:
        compared(Data.adult(folder), (adaptive, all_pairs, independent), runs)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3, *sys.argv[3:])
