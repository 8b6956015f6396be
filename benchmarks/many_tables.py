"""Hundreds of small tables over few cells: 16 binary attributes, every table of up to three.

20,000 simulated rows from four classes, rho 1/2. Each row of the table is a process of its own, and
its processor time begins with the imports: the published view (selection, measurement, maximum
entropy, whole numbers), and `ps.synthesize` as it is. Aim: 20 s each.

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.many_tables
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np

import psephos as ps
from benchmarks.measure import table
from psephos.infer.entropy import maximum_entropy
from psephos.infer.rounding import round_cells
from psephos.values import Array

ATTRIBUTES, UP_TO, ROWS, CLASSES = 16, 3, 20_000, 4
BUDGET = ps.rho("1/2")


def main() -> None:
    """A row for each job, or one of them."""
    if len(sys.argv) > 1:
        run(sys.argv[1])
        return
    rows = []
    for job in JOBS:
        command = [sys.executable, "-m", "benchmarks.many_tables", job]
        rows.append(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    table(["job", "CPU", "peak", "RMSE of answers", "least squares"], [r.split("|") for r in rows])


def run(job: str) -> None:
    """One job, and the root mean square error of all its answers."""
    domain = ps.Domain.of({f"x{i}": 2 for i in range(ATTRIBUTES)})
    workload = ps.marginals(domain, up_to=UP_TO)
    counts = simulated_counts(domain.shape)
    data = ps.simulate(counts, domain, unit=ps.add_remove_row(), budget=BUDGET, seed=1)
    answers, noise = JOBS[job](data, workload)
    error = np.sqrt(np.mean((answers - workload.answer(counts)) ** 2))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    times = f"{time.process_time():.1f} s", f"{memory:.0f} MB"
    print("|".join([job, *times, f"{error:.1f}", f"{noise:.1f}"]), end="")


def simulated_counts(shape: tuple[int, ...]) -> Array:
    """Rows of some classes, inside each of which attributes are independent."""
    rng = np.random.default_rng(7)
    shares = rng.uniform(0.1, 0.9, size=(CLASSES, len(shape)))
    rows = rng.random((ROWS, len(shape))) < shares[rng.integers(CLASSES, size=ROWS)]
    cells = np.ravel_multi_index(tuple(rows.T.astype(int)), shape)
    return np.bincount(cells, minlength=int(np.prod(shape)))


def published(data: ps.ProtectedTable, workload: ps.Workload) -> tuple[Array, float]:
    """The answers of the published view, and the error of least squares."""
    strategy = ps.select.hdmm(workload, "gaussian")
    measurement = data.vectorise().measure(strategy.query, spend=BUDGET)
    estimate = ps.infer.least_squares(measurement)
    cells = round_cells(maximum_entropy(estimate, workload).vector, workload)
    return workload.answer(cells), expected(strategy, workload)


def synthesized(data: ps.ProtectedTable, workload: ps.Workload) -> tuple[Array, float]:
    """The answers of synthetic rows, and the error of least squares."""
    rows = ps.synthesize(data, workload, spend=BUDGET).table
    return rows.answer(workload).values, expected(ps.select.hdmm(workload, "gaussian"), workload)


def expected(strategy: ps.Strategy, workload: ps.Workload) -> float:
    """The root mean square error of least squares that is forecast: 1/(2ρ) is 1."""
    return float(np.sqrt(strategy.expected_error(workload) / sum(workload.query_counts)))


JOBS: dict[str, Callable[[ps.ProtectedTable, ps.Workload], tuple[Array, float]]] = {
    "published view": published,
    "synthesize": synthesized,
}

if __name__ == "__main__":
    main()
