"""Lines among marginals under Gaussian noise: a basis for each attribute, or value by value.

    python -m benchmarks.residual_bases

Some attributes of 100 values are asked by prefixes or by all ranges, the others have 10 values; all
products up to k-way. RMSE at ρ = 1/2, exact, of residuals measured value by value and by bases, the
processor time of selecting both, and of measuring, estimating and answering all numbers with their
standard errors on 10,000 made-up rows in a simulation; the root mean square of some z-scores.
"""

from __future__ import annotations

import math
import sys
import time
from itertools import combinations

import numpy as np
import polars as pl

import psephos as ps
from benchmarks.measure import table

ROWS = 10_000
CASES = [
    (6, 2, 1, "prefixes"),
    (6, 3, 1, "prefixes"),
    (15, 2, 2, "prefixes"),
    (15, 3, 2, "prefixes"),
    (15, 3, 2, "ranges"),
    (30, 2, 1, "prefixes"),
    (30, 2, 3, "prefixes"),
    (30, 3, 1, "prefixes"),
    (100, 2, 3, "prefixes"),
]
"""Attributes, how many at a time, how many of them are lines, and how these are asked."""


def asked(attributes: int, up_to: int, lines: int, how: str) -> ps.Workload:
    """All products of up to so many attributes."""
    queries = ps.prefix() if how == "prefixes" else ps.all_range()
    kinds = [queries if i < lines else ps.identity() for i in range(attributes)]
    domain = ps.Domain.of({f"a{i}": 100 if i < lines else 10 for i in range(attributes)})
    sets = [s for k in range(up_to + 1) for s in combinations(range(attributes), k)]
    return ps.Workload(domain, [ps.product({f"a{i}": kinds[i] for i in s}) for s in sets])


def row(attributes: int, up_to: int, lines: int, how: str) -> list[str]:
    workload = asked(attributes, up_to, lines, how)
    budget, unit = ps.rho("1/2"), ps.add_remove_row()
    begin = time.process_time()
    strategy = ps.select.residual(workload)
    selected = time.process_time() - begin
    by_value = next(rival.error for rival in strategy.rivals if rival.name == "residual")
    rng = np.random.default_rng(0)
    sizes = dict(zip(workload.domain.names, workload.domain.shape, strict=True))
    columns = {name: rng.integers(0, n, ROWS) for name, n in sizes.items()}
    data = ps.simulate(pl.DataFrame(columns), workload.domain, unit=unit, budget=budget, seed=1)
    begin = time.process_time()
    estimate = ps.infer.least_squares(data.vectorise().measure(strategy.query, spend=budget))
    few = ps.Workload(workload.domain, [p for p in workload.products if len(p.items) == 1])
    answers = estimate.answer(workload if workload.shape[0] <= 10**7 else few)
    run = time.process_time() - begin
    counts = [np.bincount(columns[name], minlength=n) for name, n in sizes.items()]
    single = estimate.answer(few)
    true = np.concatenate(
        [few.kron(i).factors[i].matvec(c.astype(float)) for i, c in enumerate(counts)]
    )
    z = (single.values - true) / single.stderr
    rmse = math.sqrt(strategy.expected_error(workload) / workload.shape[0])
    gain = math.sqrt(by_value / strategy.expected_error(workload))
    return [
        f"{attributes}, {lines} by {how}",
        str(up_to),
        f"{workload.shape[0]:,}",
        f"{gain * rmse:.2f}",
        f"{rmse:.2f}",
        f"{gain:.2f} ×",
        f"{100 * abs(strategy.rounding_loss):.3f} %",
        f"{selected:.2f} s",
        f"{run:.1f} s" + ("" if len(answers) == workload.shape[0] else " (one-way answers)"),
        f"{math.sqrt((z**2).mean()):.2f}",
    ]


def main() -> None:
    print(__doc__)
    rows = []
    for case in CASES:
        rows.append(row(*case))
        print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    head = ["attributes", "k", "numbers", "by value", "bases", "gain", "rounding", "select", "run"]
    table([*head, "RMS z"], rows)


if __name__ == "__main__":
    main()
