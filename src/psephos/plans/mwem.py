"""MWEM and its variants: choose the query answered worst, measure it, learn from it, again.

Hardt, Ligett and McSherry 2012; Zhang et al. 2020, section 9.1. A round's budget is halved between
choosing and measuring. Variants b and d measure more for the same price: beside the chosen query,
groups of 2, 4, 8, … of the cells outside of it, which no row counts in twice. Variants c and d
learn by non-negative least squares. The last estimate is returned.

How many rounds pay depends on how far counts stand above the noise: with few rows every round has
to be a loud one. Left open, rounds follow from rows·ε, declared or noisy, as in DPBench's table for
MWEM (Hay et al. 2016), which goes from 8 at a thousand to 140 at ten million.
"""

from __future__ import annotations

import math

import numpy as np

from psephos.errors import WorkloadError
from psephos.infer import multiplicative_weights
from psephos.infer.estimate import Estimate
from psephos.infer.nonnegative import NONNEGATIVE_CELLS, best_nonnegative
from psephos.kernel.budget import Budget
from psephos.kernel.scores import WorstApproximated
from psephos.matrix import Dense, Kron, Matrix, Ones, Partition, Ranges, Stack
from psephos.matrix.base import first_appearance
from psephos.plans.registry import plan
from psephos.plans.session import PlanVector, check_epsilon, known_rows
from psephos.values import Array
from psephos.workload.workload import Workload

ROUNDS_POWER = 0.3
"""Rounds are (rows·ε) to this power, which is DPBench's table to within a factor of two."""
LEAST_ROUNDS, MOST_ROUNDS, MOST_WIDE_ROUNDS = 5, 40, 20
"""And their limits: a run of T rounds takes T² time, and rounds that measure the cells outside of
the query as well learn most in the first ones."""


@plan(
    "MWEM",
    signature="I:(SW LM MW)",
    reference="Hardt, Ligett and McSherry 2012",
    adaptive=True,
    most_cells=NONNEGATIVE_CELLS,
)
def mwem(
    vector: PlanVector,
    workload: Workload,
    budget: Budget,
    *,
    rounds: int | None = None,
    rows: float | None = None,
) -> Estimate:
    """Far more queries than the budget can answer one by one, on data near to uniform."""
    return _rounds(vector, workload, budget, rounds, rows, wider=False, weights=True)


@plan(
    "MWEM variant b",
    signature="I:(SW SH2 LM MW)",
    reference="Zhang et al. 2020, section 9.1",
    adaptive=True,
    most_cells=NONNEGATIVE_CELLS,
)
def mwem_b(
    vector: PlanVector,
    workload: Workload,
    budget: Budget,
    *,
    rounds: int | None = None,
    rows: float | None = None,
) -> Estimate:
    """As MWEM, with as much again measured at no further price."""
    return _rounds(vector, workload, budget, rounds, rows, wider=True, weights=True)


@plan(
    "MWEM variant c",
    signature="I:(SW LM NLS)",
    reference="Zhang et al. 2020, section 9.1",
    adaptive=True,
    most_cells=NONNEGATIVE_CELLS,
)
def mwem_c(
    vector: PlanVector,
    workload: Workload,
    budget: Budget,
    *,
    rounds: int | None = None,
    rows: float | None = None,
) -> Estimate:
    """As MWEM, learning by least squares."""
    return _rounds(vector, workload, budget, rounds, rows, wider=False, weights=False)


@plan(
    "MWEM variant d",
    signature="I:(SW SH2 LM NLS)",
    reference="Zhang et al. 2020, section 9.1",
    adaptive=True,
    most_cells=NONNEGATIVE_CELLS,
)
def mwem_d(
    vector: PlanVector,
    workload: Workload,
    budget: Budget,
    *,
    rounds: int | None = None,
    rows: float | None = None,
) -> Estimate:
    """The best of the variants on sparse data."""
    return _rounds(vector, workload, budget, rounds, rows, wider=True, weights=False)


def _rounds(
    vector: PlanVector,
    workload: Workload,
    budget: Budget,
    rounds: int | None,
    rows: float | None,
    *,
    wider: bool,
    weights: bool,
) -> Estimate:
    check_epsilon(budget, "MWEM chooses queries")
    if rounds is not None and (isinstance(rounds, bool) or not isinstance(rounds, int)):
        raise WorkloadError(f"rounds is a whole number, or None, got {rounds!r}")
    if rounds is not None and rounds < 1:
        raise WorkloadError(f"rounds is a whole number from 1, got {rounds!r}")
    rows, budget, measured = known_rows(vector, budget, rows)
    if rounds is None:
        rounds = fitting_rounds(rows * float(budget.amount), wider)
    queries = _listed_boxes(workload.matrix)
    cells = np.full(vector.size, rows / vector.size)
    half = budget / (2 * rounds)
    for i in range(1, rounds + 1):
        chosen = vector.choose(
            WorstApproximated(queries, np.rint(cells).astype(np.int64)), spend=half
        )
        row = queries.row(chosen)
        matrix: Matrix = _with_groups(row, 1 << i) if wider else _single(row)
        measured.append(vector.measure(matrix, spend=half))
        if weights:
            estimate: Estimate = multiplicative_weights(measured, total=rows, start=cells)
        else:
            estimate = best_nonnegative(measured, total=rows)
        cells = estimate.vector  # type: ignore[attr-defined]
    return estimate


def fitting_rounds(counts: float, wider: bool) -> int:
    """How many rounds suit so many rows times ε.

    >>> [fitting_rounds(counts, wider=False) for counts in (10, 1e3, 3.5e4, 1e7)]
    [5, 8, 23, 40]
    """
    most = MOST_WIDE_ROUNDS if wider else MOST_ROUNDS
    return min(max(LEAST_ROUNDS, round(math.pow(counts, ROUNDS_POWER))), most)


def _listed_boxes(queries: Matrix) -> Matrix:
    """Boxes that are asked for one by one as one list: a thousand products take a second a round.

    >>> line = Ranges.intervals(3, [1], [2])
    >>> _listed_boxes(Stack((Kron((line, line)), Kron((Ones(1, 3), line))))).low.tolist()
    [[1, 1], [0, 1]]
    """
    parts = queries.parts if isinstance(queries, Stack) else ()
    ends = [_box(part) for part in parts]
    boxes = [each for each in ends if each is not None]
    grids = {grid for grid, _, _ in boxes}
    if len(boxes) < len(parts) or len(grids) != 1:
        return queries
    (grid,) = grids
    return Ranges(grid, np.array([low for _, low, _ in boxes]), np.array([b for _, _, b in boxes]))


def _box(matrix: Matrix) -> tuple[tuple[int, ...], list[int], list[int]] | None:
    """The grid, the lowest and the highest corner of a single box; None of anything else."""
    low, high = [], []
    for factor in matrix.factors if isinstance(matrix, Kron) else ():
        if isinstance(factor, Ranges) and factor.low.shape == (1, 1):
            low.append(int(factor.low[0, 0]))
            high.append(int(factor.high[0, 0]))
        elif isinstance(factor, Ones) and factor.m == 1:
            low.append(0)
            high.append(factor.n - 1)
        else:
            return None
    grid = tuple(f.shape[1] for f in matrix.factors) if isinstance(matrix, Kron) else ()
    return (grid, low, high) if grid else None


def _single(row: Array) -> Matrix:
    """One query, in whole numbers."""
    return Dense(row.astype(np.int64)[None])


def _with_groups(row: Array, length: int) -> Matrix:
    """The query, and the cells outside of it in groups of one length: no cell counts twice."""
    outside = np.flatnonzero(row == 0)
    if not outside.size or (row[row != 0] != 1).any():
        return _single(row)
    groups = np.zeros(row.size, dtype=np.int64)
    groups[outside] = 1 + np.arange(outside.size) // length
    return Partition(first_appearance(groups))
