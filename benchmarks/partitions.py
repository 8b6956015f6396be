"""Private partitions: their time, and the error of DAWA's plan with them, beside rivals.

    python -m benchmarks.partitions FOLDER

The folder has a histogram of 4,096 cells in each file *.npy. The plan spends a quarter of ε = 0.1
on a partition and the rest on a tree of counts over its intervals (HB's: Qardaji, Yang and Li
2013), and spreads every count evenly. The error is ‖Wx - Wx̂‖₂/(m·N) for m = 1,000 random ranges,
the squared noise by its exact expectation; the mean of several partitions.

"none" is the tree of all cells at ε.
Aims: 0.3 s of processor time for aligned and dyadic intervals, 4 s for all.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from benchmarks.measure import table
from psephos.kernel.scores import NoisyIntervals, PrivateSearch, PrivTree, WholePartitions
from psephos.kernel.scores.mechanisms import Draws
from psephos.values import Array

CELLS, RANGES, TRIALS = 4096, 1000, 5
EPSILON, SHARE = Fraction(1, 10), Fraction(1, 4)
Partitioner = Callable[[Array, Fraction], Array]


def searched(search: PrivateSearch) -> Partitioner:
    return lambda x, epsilon: search.draw([x], epsilon, Draws())


PARTITIONERS: dict[str, Partitioner] = {
    "whole, aligned": searched(WholePartitions(lengths="aligned")),
    "whole, dyadic": searched(WholePartitions(lengths="dyadic")),
    "whole, all": searched(WholePartitions(lengths="all")),
    "noisy, aligned": searched(NoisyIntervals(lengths="aligned")),
    "noisy, dyadic": searched(NoisyIntervals(lengths="dyadic")),
    "PrivTree": searched(PrivTree()),
}


def ranges() -> Array:
    """Both ends of each range, the same in every run."""
    drawn = np.random.default_rng(7).integers(0, CELLS, (RANGES, 2))
    return np.asarray(np.sort(drawn, axis=1) + np.array([0, 1]))


def tree_noise(queries: Array) -> float:
    """Σ over queries of their variance at ε = 1, by HB's tree without its root: 2Δ²‖L⁻¹qᵀ‖²."""
    cells = queries.shape[1]

    def rank(fanout: int) -> float:
        height = max(1, math.ceil(math.log(cells) / math.log(fanout) - 1e-9))
        return (fanout - 1) * height**3 - 2 / 3 * (fanout + 1) * height**2

    fanout = min(range(2, 65), key=rank)
    levels = [np.eye(cells)]
    while levels[-1].shape[0] > fanout:
        below = levels[-1]
        levels.append(np.add.reduceat(below, np.arange(0, below.shape[0], fanout)))
    gram = sum(level.T @ level for level in levels[1:]) + np.eye(cells)
    solved = solve_triangular(cholesky(gram, lower=True), queries.T, lower=True)
    return float(2 * len(levels) ** 2 * (solved**2).sum())


def error(x: Array, lengths: Array, epsilon: float) -> float:
    """Of one partition, in expectation over the noise of its counts."""
    edges = np.append(0, np.cumsum(lengths))
    sums = np.append(0, np.cumsum(x))
    places = np.arange(CELLS + 1)
    spread = np.interp(places, edges, sums[edges])
    shares = np.stack([np.interp(places, edges, row) for row in _steps(lengths.size)], axis=1)
    starts, ends = ranges().T
    bias = (sums - spread)[ends] - (sums - spread)[starts]
    queries = shares[ends] - shares[starts]
    noise = tree_noise(queries) / epsilon**2
    return math.sqrt(float(bias @ bias) + noise) / (RANGES * float(sums[-1]))


def _steps(size: int) -> Array:
    """For every interval, which share of it lies before each edge: 0 or 1."""
    return np.tril(np.ones((size + 1, size)), -1).T


def rows(name: str, x: Array, whole: float) -> list[list[str]]:
    """A line for each way to cut the cells, the first for none."""
    lines = [[name, f"{x.sum():,}", "none", f"{whole / x.sum():.2e}", f"{CELLS}", ""]]
    for how, partition in PARTITIONERS.items():
        before = time.process_time()
        drawn = [partition(x, EPSILON * SHARE) for _ in range(TRIALS)]
        seconds = (time.process_time() - before) / TRIALS
        rest = float(EPSILON * (1 - SHARE))
        mean = np.mean([error(x, lengths, rest) for lengths in drawn])
        intervals = np.mean([lengths.size for lengths in drawn])
        lines.append(["", "", how, f"{mean:.2e}", f"{intervals:.0f}", f"{seconds:.2f} s"])
    return lines


def main() -> None:
    print(__doc__)
    one = np.eye(1, CELLS, dtype=np.int64)[0]
    whole = error(one, np.ones(CELLS, int), float(EPSILON))  # for each row there is
    head = ["data", "rows", "partition", "error", "intervals", "processor time"]
    for file in sorted(Path(sys.argv[1]).glob("*.npy")):
        x = np.load(file).astype(np.int64)
        table(head, rows(file.name.split(".")[0], x, whole))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
