"""Inference of plans: estimates from a few chosen queries, from groups, and stripe by stripe.

    few queries      ranges over DPBench's HEPTH (4,096 cells), groups of its cells, with a total
    stripes          one strategy for each of 5,000 stripes of 280 cells (1.4 million cells): as a
                     Kronecker product, as one request for all stripes (`matrix.by_group`), with
                     other buckets in each stripe, and by measuring the parts of a split one by one
    no negatives     trees over 4,096 cells, best fits without negative cells, total held or not

Aims: 0.1 s for a few queries, 1 s for 100 passes of multiplicative weights over hundreds of rows,
stripes about as fast as their Kronecker product, 0.2 s for fits without negatives. The last table
has the error ‖W(x̂ - x)‖ / (m N) of 1,000 random ranges, means over draws of simulated noise: fits
without negative cells may cost accuracy on sparse data unless the total is held.

The folder of DPBench's histograms is the first argument (without it `../shared/data/dpbench1d`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import psephos as ps
from benchmarks.measure import table
from psephos import matrix as mx
from psephos.values import Array

CELLS = 4096
STRIPES, STRIPE = 5000, 280
DRAWS = 10
UNIT = ps.add_remove_row()
SPEND = ps.epsilon("0.1")
LINE = ps.Domain.of(cell=CELLS)
PREFIXES = ps.Workload(LINE, [ps.product(cell=ps.prefix())])


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of one call, and its result."""
    begin = time.process_time()
    result = call()
    return time.process_time() - begin, result


def vector_of(counts: Array, domain: ps.Domain, seed: int = 0) -> ps.ProtectedVector:
    budget = ps.epsilon(10**6)
    return ps.simulate(counts, domain, unit=UNIT, budget=budget, seed=seed).vectorise()


def random_ranges(count: int, seed: int = 0) -> mx.Ranges:
    ends = np.sort(np.random.default_rng(seed).integers(0, CELLS, (count, 2)), axis=1)
    return mx.Ranges.intervals(CELLS, ends[:, 0], ends[:, 1])


def few_queries(counts: Array) -> None:
    """Estimates from what MWEM, AHP, DAWA and Uniform measure."""
    vector, total = vector_of(counts, LINE), float(counts.sum())
    groups = vector.reduce(mx.Partition(np.arange(CELLS) // 16))
    requests = {
        "three ranges": [vector.measure(random_ranges(3), spend=SPEND)],
        "groups, and the total": [
            groups.measure(mx.Identity(CELLS // 16), spend=SPEND),
            vector.noisy_count(spend=SPEND),
        ],
        "300 ranges": [vector.measure(random_ranges(300), spend=SPEND)],
        "1,000 ranges": [vector.measure(random_ranges(1000), spend=SPEND)],
        "all cells": [vector.measure(mx.Identity(CELLS), spend=SPEND)],
    }
    rows = []
    for name, several in requests.items():
        fits = [
            lambda s=several: ps.infer.least_squares(s),
            lambda s=several: ps.infer.expanded(s),
            lambda s=several: ps.infer.expanded(s, total=total),
            lambda s=several: ps.infer.multiplicative_weights(s, total=total, passes=100),
        ]
        rows.append([name, *(f"{min(seconds(fit)[0] for _ in range(2)):.3f} s" for fit in fits)])
    head = ["measured", "least squares", "expanded", "total public", "100 passes of weights"]
    table(head, rows)


def stripes() -> None:
    """The same strategy on all stripes, in three ways, and another one on each."""
    rng = np.random.default_rng(0)
    domain = ps.Domain.of(stripe=STRIPES, cell=STRIPE)
    counts = rng.poisson(0.5, domain.size)
    asked = ps.Workload(domain, [ps.product(cell=ps.prefix())])
    one = ps.Workload(ps.Domain.of(cell=STRIPE), [ps.product(cell=ps.prefix())])
    tree = ps.select.hb(one).query.blocks[0].matrix
    labels = np.repeat(np.arange(STRIPES), STRIPE)

    def buckets() -> mx.Matrix:
        count = int(rng.integers(3, 30))
        groups = np.sort(np.append(np.arange(count), rng.integers(0, count, STRIPE - count)))
        return mx.Compose((mx.Stack((mx.Identity(count), mx.total(count))), mx.Partition(groups)))

    requests = {
        "Kronecker product": mx.Kron((mx.Identity(STRIPES), tree)),
        "one request for all stripes": mx.by_group(labels, tree),
        "other buckets in each": mx.by_group(labels, [buckets() for _ in range(STRIPES)]),
    }
    rows = []
    for name, matrix in requests.items():
        vector = vector_of(counts, domain)
        measuring, measurement = seconds(lambda m=matrix, v=vector: v.measure(m, spend=SPEND))
        unlike = name.startswith("other")
        method = ps.infer.expanded if unlike else ps.infer.least_squares
        fitting, estimate = seconds(lambda m=measurement, fit=method: fit(m))
        answering, answers = seconds(lambda e=estimate: e.answer(asked))
        errors = "none" if unlike else f"{seconds(lambda a=answers: a.stderr)[0]:.3f} s"
        rows.append([name, f"{measuring:.2f} s", f"{fitting:.2f} s", f"{answering:.3f} s", errors])
    vector = vector_of(counts, domain)
    splitting, parts = seconds(lambda: vector.split(mx.Partition(labels)))
    measuring, several = seconds(lambda: [part.measure(tree, spend=SPEND) for part in parts])
    fitting, estimate = seconds(lambda: ps.infer.least_squares(several))
    answering, answers = seconds(lambda: estimate.answer(asked))
    errors = f"{seconds(lambda: answers.stderr)[0]:.3f} s"
    rows.append(
        [
            "parts of a split",
            f"{splitting + measuring:.2f} s",
            f"{fitting:.2f} s",
            f"{answering:.3f} s",
            errors,
        ]
    )
    table(["asked", "measure", "estimate", "280 answers", "their errors"], rows)


def no_negatives(histograms: dict[str, Array]) -> None:
    """Time and error of best fits with and without negative cells."""
    ranges = random_ranges(1000, seed=1)
    rows = []
    for name, counts in histograms.items():
        total = float(counts.sum())
        for strategy in ("identity", "hb", "h2", "greedy_h"):
            query = getattr(ps.select, strategy)(PREFIXES).query
            errors: dict[str, list[float]] = {}
            times: dict[str, list[float]] = {}
            for draw in range(DRAWS):
                measurement = vector_of(counts, LINE, draw).measure(query, spend=SPEND)
                spent, estimate = seconds(lambda m=measurement: ps.infer.least_squares(m))
                vectors = {"least squares": (spent, estimate.vector)}
                for word, options in {
                    "no negatives": {},
                    "total held": {"hold_total": True},
                    "total public": {"total": total},
                }.items():
                    spent, fit = seconds(lambda e=estimate, o=options: ps.infer.nonnegative(e, **o))
                    vectors[word] = spent, fit.vector
                for word, (spent, vector) in vectors.items():
                    off = np.linalg.norm(ranges @ (vector - counts))
                    errors.setdefault(word, []).append(off / (ranges.shape[0] * total))
                    times.setdefault(word, []).append(spent)
            slowest = max(max(each) for word, each in times.items() if word != "least squares")
            means = [f"{np.mean(each):.2e}" for each in errors.values()]
            rows.append([name, strategy, *means, f"{slowest * 1000:.0f} ms"])
    head = ["data", "strategy", "least squares", "no negatives", "total held", "total public"]
    table([*head, "slowest fit"], rows)


def main() -> None:
    """All tables."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/data/dpbench1d")
    histograms = {
        name: np.load(folder / f"{name}.n{CELLS}.npy").astype(np.int64)
        for name in ("HEPTH", "NETTRACE", "MEDCOST", "SEARCHLOGS")
    }
    few_queries(histograms["HEPTH"])
    stripes()
    no_negatives(histograms)


if __name__ == "__main__":
    main()
