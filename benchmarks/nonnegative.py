"""Non-negative least squares here and by scipy's L-BFGS-B, on the same problems in one run.

Counts lie in every twentieth cell of a line or a square, twice as many rows as cells; measured are,
at epsilon 1, hierarchies, a wavelet, prefixes, products of optimised factors, and tables. Both get
the same least squares, and the same map x ↦ AᵀA x of psephos; L-BFGS-B starts from the positive
part of least squares, in units of the noise, and stops by its own tolerances. Each job is a process
of its own: processor seconds of the fit alone, and the peak memory of the whole process.

    excess     ½|Ax - y|²/σ² above the least of the two
    KKT        the largest |x_i - (x_i - g_i/d_i)₊| √d_i/σ, with g the gradient and d its diagonal:
               how many standard deviations a cell is from where its own condition has it
    gap        the bound on the distance to the best cells that psephos states of its own

    OPENBLAS_NUM_THREADS=1 python -m benchmarks.nonnegative [CELLS ...]
"""

from __future__ import annotations

import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable

import numpy as np
from scipy.optimize import minimize

import psephos as ps
from benchmarks.measure import table
from psephos.infer.least_squares import LeastSquares
from psephos.infer.normal_equations import NormalEquations
from psephos.kernel.query import Query
from psephos.values import Array

SIZES = (16_384, 1 << 20, 1 << 22)
SECONDS = 120
"""What a job may take; a longer one is left out."""


def main() -> None:
    """All jobs, each in a process of its own."""
    if len(sys.argv) == 4 and sys.argv[1] in KINDS:
        print(json.dumps(run(sys.argv[1], int(sys.argv[2]), sys.argv[3])))
        return
    rows = []
    for cells in [int(each) for each in sys.argv[1:]] or SIZES:
        for kind in KINDS:
            found = {by: started(kind, cells, by) for by in FITS}
            least = min((f["objective"] for f in found.values() if f), default=0.0)
            rows += [row(kind, cells, by, f, least) for by, f in found.items()]
            print(rows[-2:], file=sys.stderr, flush=True)
    table(["measured", "cells", "by", "CPU", "excess", "KKT", "gap", "peak"], rows)


def started(kind: str, cells: int, by: str) -> dict[str, float] | None:
    """What a job of its own finds; nothing where it takes too long."""
    command = [sys.executable, "-m", "benchmarks.nonnegative", kind, str(cells), by]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=True)
    except subprocess.TimeoutExpired:
        return None
    found: dict[str, float] = json.loads(done.stdout)
    return found


def row(kind: str, cells: int, by: str, found: dict[str, float] | None, least: float) -> list[str]:
    """A line of the table."""
    if found is None:
        return [kind, f"{cells:,}", by, f"over {SECONDS} s on the clock", "", "", "", ""]
    gap = "" if math.isnan(found["gap"]) else f"{found['gap']:.1e}"
    excess = f"{found['objective'] - least:.2g}"
    memory = f"{found['memory']:.0f} MB"
    return [
        kind, f"{cells:,}", by, f"{found['seconds']:.2f} s", excess, f"{found['kkt']:.1e}", gap,
        memory,
    ]  # fmt: skip


def run(kind: str, cells: int, by: str) -> dict[str, float]:
    """One fit."""
    estimate = least_squares(kind, cells)
    normal = NormalEquations.of(estimate)
    sigma = normal.noise / math.sqrt(sum(each.values.size for each in estimate.blocks))
    begin = time.process_time()
    x, gap = FITS[by](estimate, normal, sigma)
    seconds = time.process_time() - begin
    gradient = normal.apply(x) - normal.target
    objective = 0.5 * float(x @ (gradient - normal.target)) / sigma**2
    diagonal = normal.diagonal
    off = np.abs(x - np.maximum(x - gradient / diagonal, 0)) * np.sqrt(diagonal) / sigma
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    values = {"seconds": seconds, "objective": objective, "kkt": float(off.max()), "gap": gap}
    return {**values, "memory": memory}


def here(estimate: LeastSquares, normal: NormalEquations, sigma: float) -> tuple[Array, float]:
    """By psephos."""
    fit = ps.infer.nonnegative(estimate)
    return fit.vector, fit.gap


def by_quasi_newton(
    estimate: LeastSquares, normal: NormalEquations, sigma: float
) -> tuple[Array, float]:
    """By scipy, from what psephos starts from too."""

    def squares(x: Array) -> tuple[float, Array]:
        image = normal.apply(x)
        value = float(x @ image) / 2 - float(normal.target @ x)
        return value / sigma**2, (image - normal.target) / sigma**2

    start = np.maximum(normal.solution(), 0)
    bounds = [(0, None)] * start.size
    return minimize(squares, start, jac=True, method="L-BFGS-B", bounds=bounds).x, math.nan


FITS: dict[str, Callable[[LeastSquares, NormalEquations, float], tuple[Array, float]]] = {
    "here": here,
    "L-BFGS-B": by_quasi_newton,
}


def least_squares(kind: str, cells: int) -> LeastSquares:
    """What a fit begins with."""
    sides = (cells,) if kind in LINES else (math.isqrt(cells),) * 2
    domain = ps.Domain.of(dict(zip("xy", sides, strict=False)))
    rng = np.random.default_rng(11)
    counts = np.zeros(domain.size, dtype=np.int64)
    some = rng.choice(domain.size, domain.size // 20, replace=False)
    counts[some] = rng.multinomial(2 * domain.size, rng.dirichlet(np.full(some.size, 0.2)))
    one = ps.epsilon(1)
    data = ps.simulate(counts, domain, unit=ps.add_remove_row(), budget=one, seed=0)
    return ps.infer.least_squares(data.vectorise().measure(KINDS[kind](domain), spend=one))


def ranges(domain: ps.Domain) -> ps.Workload:
    """All ranges, along every attribute."""
    return ps.Workload(domain, [ps.product({name: ps.all_range() for name in domain.names})])


def levels(domain: ps.Domain) -> ps.Workload:
    """Ranges of either attribute, and all cells."""
    x, y = domain.names
    cells = ps.product({x: ps.identity(), y: ps.identity()})
    tables = [ps.product({x: ps.all_range()}), ps.product({y: ps.all_range()}), cells]
    return ps.Workload(domain, tables)


LINES: dict[str, Callable[[ps.Domain], Query]] = {
    "H2": lambda domain: ps.select.h2(ranges(domain)).query,
    "HB": lambda domain: ps.select.hb(ranges(domain)).query,
    "Privelet": lambda domain: ps.select.privelet(ranges(domain)).query,
    "prefixes": lambda domain: ps.select.workload(ps.prefix_product(domain)).query,
}
KINDS: dict[str, Callable[[ps.Domain], Query]] = {
    **LINES,
    "quadtree": lambda domain: ps.select.quadtree(ranges(domain)).query,
    "OPT_⊗": lambda domain: ps.select.opt_product(ranges(domain), restarts=1).query,
    "tables": lambda domain: ps.select.hdmm(levels(domain), restarts=1).query,
}

if __name__ == "__main__":
    main()
