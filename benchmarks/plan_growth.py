"""Time of plans and of inference over the number of cells: Figures 4 and 5 of Zhang et al. (2020).

- Figure 4: whole runs of plans, single cells asked, on squares and lines of growing size. The
  paper stops at 1,000 s, and says that implicit matrices take HB, Quadtree and UniformGrid to
  domains a thousand times larger than others; DAWA, Greedy-H and AdaptiveGrid gain little.
- Figure 5: least squares, and least squares without negatives, from a binary hierarchy, n a power
  of two. "Dense" solves the normal equations, "sparse" iterates on a sparse matrix (LSMR), "tree"
  goes up and down the tree (Hay et al. 2010), all three as a user would write them with numpy
  and scipy; "here" is `ps.infer`. The paper: sparse and iterative, millions of cells in less than a
  minute; implicit further; a thousand times larger vectors than direct and dense.

Processor time of one run. A plan or method that took longer than LIMIT at one size is not tried at
the next. `python -m benchmarks.plan_growth [quick]`
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import lsmr

import psephos as ps
from benchmarks.figures import draw
from benchmarks.measure import table
from psephos.errors import PsephosError
from psephos.values import Array

LIMIT = 20.0
UNIT = ps.add_remove_row()
SPEND = ps.epsilon("0.1")
LINES = ["Greedy-H", "DAWA", "AHP", "MWEM variant b"]
SQUARES = ["Identity", "Privelet", "H2", "HB", "Quadtree", "UniformGrid", "AdaptiveGrid", "HDMM"]
STRIPED = ["PrivBayesLS", "DAWA-Striped", "HB-Striped", "HB-Striped_kron"]


def seconds_of(call: Callable[[], Any]) -> float:
    begin = time.process_time()
    call()
    return time.process_time() - begin


def counts_of(cells: int) -> Array:
    """Rows in a few crowds, ten for every cell on average up to a million rows."""
    rng = np.random.default_rng(0)
    rows = min(10 * cells, 10**6)
    crowds = rng.integers(0, cells, 20)
    places = crowds[rng.integers(0, 20, rows)] + rng.normal(0, cells / 100, rows).astype(np.int64)
    return np.bincount(places % cells, minlength=cells)


def plans(sizes: list[int]) -> None:
    """Figure 4."""
    rows, lines = [], []
    for name in [*LINES, *SQUARES, *STRIPED]:
        cells, known, reached = [], [], []
        last = 0.0
        for size in sizes:
            if last > LIMIT:
                cells.append("")
                continue
            domain = domain_for(name, size)
            asked = ps.Workload(domain, [ps.product({n: ps.identity() for n in domain.names})])
            data = ps.simulate(
                counts_of(domain.size), domain, unit=UNIT, budget=SPEND, seed=0
            ).vectorise()
            try:
                last = seconds_of(lambda: ps.plans.run(name, data, asked, spend=SPEND))  # noqa: B023
            except PsephosError as refusal:
                cells.append(f"refused ({type(refusal).__name__})")
                last = math.inf
                continue
            cells.append(f"{last:.2f} s")
            known.append(max(last, 1e-3))
            reached.append(float(domain.size))
        rows.append([name, *cells])
        if len(known) > 1:
            lines.append((name, reached, known))
    print("Figure 4: whole runs of plans\n")
    table(["plan", *(f"{size:,} cells" for size in sizes)], rows)
    draw("plans_growth", "Plans over cells", ("cells", "CPU s"), lines, "xy")


def domain_for(name: str, size: int) -> ps.Domain:
    """A line, a square, or an attribute of a thousand values beside small ones."""
    if name in LINES:
        return ps.Domain.of(x=size)
    if name in SQUARES:
        side = round(math.sqrt(size))
        return ps.Domain.of(x=side, y=side)
    return ps.Domain.of(x=max(4, size // 64), a=4, b=4, c=4)


# ---- Figure 5 ------------------------------------------------------------------------------------


def hierarchy(n: int) -> sp.csr_array:
    """All nodes of a binary tree over n cells, the root first."""
    cells = np.arange(n)
    levels = [
        sp.csr_array((np.ones(n), (cells >> k, cells)), shape=(n >> k, n))
        for k in reversed(range(n.bit_length()))
    ]
    return sp.csr_array(sp.vstack(levels))


def by_normal_equations(a: Array, y: Array) -> Array:
    return np.linalg.solve(a.T @ a, a.T @ y)


def by_tree(y: Array, n: int) -> Array:
    """Up and down the tree: means of a node and its children, then what is left shared out."""
    sizes = [1 << k for k in range(n.bit_length())]
    levels = np.split(y.astype(float), np.cumsum(sizes)[:-1])
    for k in range(len(levels) - 2, -1, -1):
        height = 1 << (len(levels) - k)
        both = levels[k + 1].reshape(-1, 2).sum(axis=1)
        levels[k] = ((height - height / 2) * levels[k] + (height / 2 - 1) * both) / (height - 1)
    x = levels[0]
    for children in levels[1:]:
        off = (x - children.reshape(-1, 2).sum(axis=1)) / 2
        x = children + np.repeat(off, 2)
    return x


def inference(sizes: list[int]) -> None:
    """Figure 5."""
    names = ["dense", "sparse", "tree", "here", "here, no negatives"]
    times: dict[str, list[float]] = {name: [] for name in names}
    stopped: set[str] = set()
    for n in sizes:
        domain = ps.Domain.of(x=n)
        counts = counts_of(n)
        asked = ps.Workload(domain, [ps.product(x=ps.all_range())])
        vector = ps.simulate(counts, domain, unit=UNIT, budget=SPEND, seed=0).vectorise()
        measured = vector.measure(ps.select.h2(asked).query, spend=SPEND)
        a = hierarchy(n)
        y = a @ counts + np.random.default_rng(0).laplace(0, 10, a.shape[0])
        calls: dict[str, Callable[[], Any]] = {
            "dense": lambda: by_normal_equations(a.toarray(), y),  # noqa: B023
            "sparse": lambda: lsmr(a, y, atol=1e-10, btol=1e-10),  # noqa: B023
            "tree": lambda: by_tree(y, n),  # noqa: B023
            "here": lambda: ps.infer.least_squares(measured).answer(ps.Workload(domain, [ps.product(x=ps.identity())])),  # noqa: B023, E501
            "here, no negatives": lambda: ps.infer.nonnegative(ps.infer.least_squares(measured)),  # noqa: B023
        }  # fmt: skip
        for name in names:
            many = name == "dense" and n > 1 << 12
            if name in stopped or many:
                times[name].append(math.nan)
                continue
            try:
                seconds = seconds_of(calls[name])
            except PsephosError:
                seconds = math.nan
            times[name].append(seconds)
            if not seconds < LIMIT:
                stopped.add(name)
    shown = [
        [f"{n:,}", *("" if math.isnan(times[m][i]) else f"{times[m][i]:.3f} s" for m in names)]
        for i, n in enumerate(sizes)
    ]
    print("Figure 5: inference from a binary hierarchy\n")
    table(["cells", *names], shown)
    lines = []
    for name in names:
        pairs = [(n, t) for n, t in zip(sizes, times[name], strict=True) if not math.isnan(t)]
        lines.append((name, [float(n) for n, _ in pairs], [max(t, 1e-4) for _, t in pairs]))
    draw("inference_growth", "Inference over cells", ("cells", "CPU s"), lines, "xy")


def main(quick: bool) -> None:
    inference([1 << k for k in ((10, 12, 14) if quick else (10, 12, 14, 16, 18, 20, 22, 24))])
    plans([1 << k for k in ((10, 12) if quick else (10, 12, 14, 16, 18, 20, 22, 24))])


if __name__ == "__main__":
    main("quick" in sys.argv[1:])
