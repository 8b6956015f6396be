"""Estimates where no vector of cells fits: Adult's 14 attributes, 6e17 cells, Laplace noise.

    python -m benchmarks.local_tables FOLDER [2 | 3 | chain] [draws]

FOLDER holds the public table adult.csv, coded by whole numbers, and adult-domain.json, the number
of values of each attribute. Measured and asked are all marginals up to 2-way, up to 3-way, or of
each attribute alone and of each with the next (a chain, for which there is a junction tree), all
with equal noise. The root mean square error over all cells of all asked tables, against the true
counts, and the processor time of

    least squares   unbiased
    clipped         its cells cut at zero and scaled to its total, table by table
    local tables    psephos.infer.local_tables
    mbi             the package of McKenna and others, from the same noisy numbers, if it is there:
                    mirror descent with the relaxed marginal polytope (2021), for the chain with an
                    exact oracle (2019). Its error is that of the best of its iterations in
                    hindsight, which nobody could know from noisy numbers; its time includes
                    compiling. Not run for 3-way marginals.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pa_csv

import psephos as ps
from benchmarks.measure import table
from psephos.infer.local_tables import local_tables

EPSILONS = {"1/10": 1000, "1": 1000, "10": 5000}
"""Every epsilon, and the iterations of mbi, about twice as many as the best ones."""
LOOKS = 25
"""Iterations of mbi between two looks at its error."""


class Asked:
    """A workload over the data, and its true answers."""

    def __init__(self, folder: Path, kind: str) -> None:
        sizes: dict[str, int] = json.loads((folder / "adult-domain.json").read_text())
        self.frame = pa_csv.read_csv(folder / "adult.csv").select(list(sizes))
        self.domain = ps.Domain.of(sizes)
        names = list(sizes)
        if kind == "chain":
            chain = [{name: ps.identity()} for name in names]
            chain += [{a: ps.identity(), b: ps.identity()} for a, b in pairwise(names)]
            self.workload = ps.Workload(self.domain, [ps.product(**each) for each in chain])
        else:
            self.workload = ps.marginals(self.domain, up_to=int(kind))
        products = range(len(self.workload.products))
        self.axes = [
            tuple(i for i, f in enumerate(self.workload.factors(k)) if f.shape[0] > 1)
            for k in products
        ]
        columns = [np.asarray(self.frame.column(name)) for name in names]
        self.true = [self._count(columns, axes) for axes in self.axes]

    def _count(self, columns: list[Any], axes: tuple[int, ...]) -> Any:
        if not axes:
            return np.array([len(columns[0])])
        shape = [self.domain.shape[i] for i in axes]
        cells = np.ravel_multi_index([columns[i] for i in axes], shape)
        return np.bincount(cells, minlength=int(np.prod(shape)))

    def split(self, values: Any) -> list[Any]:
        """Answers by tables."""
        return np.split(values, np.cumsum(self.workload.query_counts)[:-1])

    def error(self, tables: list[Any]) -> float:
        """The root mean square error over all cells."""
        pairs = zip(tables, self.true, strict=True)
        squares = sum(float(((cells - true) ** 2).sum()) for cells, true in pairs)
        return float(np.sqrt(squares / sum(self.workload.query_counts)))

    def measure(self, epsilon: str, seed: int) -> Any:
        budget = ps.epsilon(epsilon)
        data = ps.simulate(
            self.frame, self.domain, unit=ps.add_remove_row(), budget=budget, seed=seed
        )
        return data.vectorise().measure(self.workload.query, spend=budget)


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.process_time()
    result = call()
    return result, time.process_time() - begin


def clipped(tables: list[Any], total: float) -> list[Any]:
    positive = [np.maximum(cells, 0) for cells in tables]
    return [cells * (total / max(cells.sum(), 1e-9)) for cells in positive]


def mbi_error(
    question: Asked, measurement: Any, total: float, iterations: int, *, exact: bool
) -> tuple[float, int, float]:
    """The least error of all iterations looked at, which one has it, and the time of looking."""
    import jax
    import mbi
    from mbi import approximate_oracles, estimation

    names = [f"{i:02d}" for i in range(len(question.domain.shape))]
    cliques = [tuple(names[i] for i in axes) for axes in question.axes]
    deviation = float(np.sqrt(measurement.noise[0].exact_variance))
    noisy = [
        mbi.LinearMeasurement(cells.astype(float), clique, stddev=deviation)
        for cells, clique in zip(question.split(measurement.values), cliques, strict=True)
        if clique
    ]
    errors: dict[int, float] = {}
    count, looking = [0], [0.0]

    def look(marginals: Any) -> None:
        jax.block_until_ready(marginals)  # or its work would count as looking
        begin = time.process_time()
        count[0] += 50 if exact else 1  # the exact estimators call back once in 50 iterations
        if count[0] % LOOKS == 0:
            tables = [
                np.asarray(marginals.project(c).datavector(), float) if c else np.array([total])
                for c in cliques
            ]
            errors[count[0]] = question.error(tables)
        looking[0] += time.process_time() - begin

    domain = mbi.Domain(names, question.domain.shape)
    if exact:
        estimator = estimation.MirrorDescent()
        estimator.estimate(domain, noisy, known_total=total, iters=iterations, callback_fn=look)
    else:
        step = deviation**2 / total  # four times as much diverges at epsilon 10
        approximate_oracles.mirror_descent(
            domain, noisy, known_total=total, stepsize=step, iters=iterations, callback_fn=look
        )
    best = min(errors, key=lambda k: errors[k])
    return errors[best], best, looking[0]


def main(folder: Path, kind: str, draws: int) -> None:
    print(__doc__)
    question = Asked(folder, kind)
    everything = ps.Workload(question.domain, [ps.product()])
    with_mbi = find_spec("mbi") is not None and kind != "3"
    rows = []
    for epsilon, iterations in EPSILONS.items():
        for seed in range(1, draws + 1):
            measurement = question.measure(epsilon, seed)

            def unbiased(measurement: Any = measurement) -> Any:
                estimate = ps.infer.least_squares(measurement)
                return estimate, estimate.answer(question.workload).values

            (estimate, values), unbiased_time = timed(unbiased)
            total = float(estimate.answer(everything).values[0])
            tables = question.split(values)
            local, local_time = timed(
                lambda estimate=estimate: local_tables(estimate, question.workload)
            )
            gaps = local.inconsistency
            row = [
                epsilon,
                str(seed),
                f"{question.error(tables):.2f}",
                f"{question.error(clipped(tables, total)):.2f}",
                f"{question.error(question.split(local.answer(question.workload).values)):.2f}",
                f"{unbiased_time:.1f} s",
                f"{local_time:.1f} s",
                f"{gaps.largest:.3f}, {gaps.root_mean_square:.4f}",
            ]
            if with_mbi:
                (error, best, looking), mbi_time = timed(
                    lambda m=measurement, t=total, k=iterations: mbi_error(
                        question, m, t, k, exact=kind == "chain"
                    )
                )
                row += [f"{error:.2f}", f"{best} of {iterations}", f"{mbi_time - looking:.0f} s"]
            rows.append(row)
            print("  ".join(row), file=sys.stderr, flush=True)
    heads = ["ε", "draw", "least squares", "clipped", "local tables", "cpu", "cpu of local tables"]
    heads += ["gaps: largest, rms", *(["mbi", "best iteration", "cpu of mbi"] if with_mbi else [])]
    table(heads, rows)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    arguments = [*sys.argv[2:], *["2", "3"][len(sys.argv) - 2 :]]
    main(Path(sys.argv[1]), arguments[0], int(arguments[1]))
