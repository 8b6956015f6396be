"""Controlled rounding: integers for the cells that keep the sums of a workload where they are.

Cells that no query tells apart are rounded as one; what they get is shared out exactly. Between
those groups rounding starts from cumulative sums, so that all sums of neighbours are within one,
and goes on by moving single groups to their other integer, some at a time, while

    f(z) = Σ_p ‖W_p (z - x)‖² / (number of queries of p)

falls. Tables that are counted from the result add up by construction.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import default_rng

from psephos.values import Array
from psephos.workload.workload import Workload

MOVE_ROUNDS = 400
"""The most rounds of moves."""
ROUNDING_WORK = 2_000_000_000
"""About how many numbers the search may compute."""


def round_cells(x: Array, workload: Workload) -> Array:
    """Integers near x, none negative, 0 where x is, whose sums are near those of x.

    The same x gives the same numbers.

    >>> from psephos import Domain, marginals
    >>> W = marginals(Domain.of(a=2, b=2), up_to=1)
    >>> round_cells(np.array([1.5, 1.5, 1.5, 1.5]), W)
    array([2, 1, 1, 2])
    """
    reduction = workload.reduce()
    count = reduction.domain.size
    groups = reduction.partition.rmatvec(np.arange(count))
    sums = np.bincount(groups, weights=x, minlength=count)
    rounded = _search_rounding(sums, reduction.workload)
    share = np.divide(rounded, sums, out=np.zeros(count), where=sums > 0)
    order = np.argsort(groups, kind="stable")
    result = np.empty(x.size, dtype=np.int64)
    result[order] = _round_running_sums((x * share[groups])[order])
    return result


@dataclass(frozen=True)
class RoundingGaps:
    """How far integers z are from the real ones x that they stand for.

    Rounding keeps `group` and `share` within one. `largest` and `typical` depend on the workload,
    and on the last digits of floats, which decide where the search for the best rounding ends.
    """

    group: float
    """The largest gap of a group of cells that no query tells apart."""
    share: float
    """The largest gap of a cell from its share of its group's integer."""
    even: bool
    """Do all cells of a group have the same share of it, or none?"""
    largest: tuple[float, ...]
    """The largest gap of an answer, for each product."""
    typical: float
    """The root mean square of the answers' gaps, all products alike: √(f(z) / products)."""

    @classmethod
    def of(cls, z: Array, x: Array, workload: Workload) -> RoundingGaps:
        """The gaps between two vectors over all cells of a workload."""
        reduction = workload.reduce()
        count = reduction.domain.size
        groups = reduction.partition.rmatvec(np.arange(count))
        sums, rounded = (np.bincount(groups, weights=cells, minlength=count) for cells in (x, z))
        share = np.divide(rounded, sums, out=np.ones(count), where=sums > 0)
        largest = np.zeros(count)
        np.maximum.at(largest, groups, x)
        uneven = (x > 0) & (x < (1 - 1e-6) * largest[groups])
        differences = [workload.kron(i).matvec(z - x) for i in range(len(workload.products))]
        return cls(
            float(np.abs(rounded - sums).max()),
            float(np.abs(z - x * share[groups]).max()),
            not uneven.any(),
            tuple(float(np.abs(gaps).max()) for gaps in differences),
            float(np.sqrt(np.mean([(gaps**2).mean() for gaps in differences]))),
        )


def _round_running_sums(x: Array) -> Array:
    """Differences of rounded cumulative sums: every sum of neighbours is within one of x's."""
    return np.diff(np.rint(np.cumsum(x)).astype(np.int64), prepend=0)


def _search_rounding(x: Array, workload: Workload) -> Array:
    """The rounding of x with the least f that moves of some cells at a time find."""
    krons = [workload.kron(i) for i in range(len(workload.products))]
    shares = [1 / kron.shape[0] for kron in krons]

    def gradient(d: Array) -> Array:
        pairs = zip(krons, shares, strict=True)
        return np.asarray(sum(s * kron.rmatvec(kron.matvec(d)) for kron, s in pairs))

    pairs = zip(krons, shares, strict=True)
    curvature = np.asarray(sum(s * kron.column_norms(2) ** 2 for kron, s in pairs))
    d = _round_running_sums(x) - x
    d[np.abs(d) < 1e-9] = 0
    g = gradient(d)
    value, share, generator = d @ g, 0.5, default_rng(0)
    cost = sum(sum(kron.shape) for kron in krons)
    for _ in range(min(MOVE_ROUNDS, max(10, ROUNDING_WORK // max(1, cost)))):
        moves = -np.sign(d)
        gain = -(2 * moves * g + curvature)
        able = np.flatnonzero((gain > 0) & (moves != 0))
        if able.size == 0:
            break
        some = able[generator.random(able.size) < share]
        if some.size == 0:
            some = able[[np.argmax(gain[able])]]  # one alone always helps
        trial = d.copy()
        trial[some] += moves[some]
        after = gradient(trial)
        better = trial @ after
        if better < value:
            d, g, value, share = trial, after, better, min(0.5, 1.5 * share)
        else:
            share /= 2
    return np.asarray(np.rint(x + d), dtype=np.int64)
