"""Partitions chosen in public: from the domain, the workload, or noisy numbers alone.

EKTELO's partition selection operators that cost nothing: Grid, Stripe, Marginal, the workload-based
one, and the second half of AHP's, which clusters noisy counts. Those that look at the data are
private searches of the kernel (`ps.WholePartitions`, `ps.NoisyIntervals`).
"""

from __future__ import annotations

import math

import numpy as np

from psephos.domain.domain import Domain
from psephos.matrix import Partition
from psephos.matrix.base import first_appearance
from psephos.matrix.combine import join_groups
from psephos.values import Array
from psephos.workload.workload import Workload

EXACT_GROUPS = 1 << 22
"""The most cells whose groups are found from the columns of the workload."""


def grid(shape: tuple[int, ...], side: int) -> Partition:
    """Boxes of `side` cells along every attribute; those at the end may be smaller.

    >>> grid((4, 3), 2).groups.reshape(4, 3)
    array([[0, 0, 1],
           [0, 0, 1],
           [2, 2, 3],
           [2, 2, 3]])
    """
    return boxes([np.arange(n) // side for n in shape])


def boxes(axes: list[Array]) -> Partition:
    """The product of groups along every attribute."""
    groups = np.zeros(1, dtype=np.int64)
    for numbers in axes:
        groups = (groups[:, None] * (int(numbers.max()) + 1) + numbers).ravel()
    return Partition(first_appearance(groups))


def stripes(domain: Domain, name: str) -> Partition:
    """One group for each combination of the other attributes.

    >>> stripes(Domain.of(a=2, b=3), "b").groups
    array([0, 0, 0, 1, 1, 1])
    """
    return marginal(domain, *(other for other in domain.names if other != name))


def marginal(domain: Domain, *names: str) -> Partition:
    """One group for each combination of the named attributes."""
    pairs = zip(domain.names, domain.shape, strict=True)
    return boxes([np.arange(n) if name in names else np.zeros(n, int) for name, n in pairs])


def workload_based(workload: Workload) -> Partition:
    """Cells that no query tells apart, found by structure (Zhang et al. 2020, section 8)."""
    return Partition(np.asarray(workload.reduce_cells().partition.groups))  # type: ignore[attr-defined]


def clusters(noisy: Array, spread: float) -> Partition:
    """Cells of like noisy counts, whatever their place (Zhang et al. 2014, AHP).

    The counts are sorted and cut such that the expected squared error of all cells is least: in a
    cluster of L cells, the squared deviations from its mean, and spread²/L for the noise to come,
    of which every cell gets an L-th. A dynamic programme finds the best cuts; its last cut only
    moves to the right as cells are added, by the quadrangle inequality.

    >>> clusters(np.array([0.0, 5.0, 0.1, 5.2, 0.0]), 1.0).groups
    array([0, 1, 0, 1, 0])
    """
    order = np.argsort(noisy, kind="stable")
    cuts = _best_cuts(noisy[order], spread**2)
    numbers = np.zeros(noisy.size, dtype=np.int64)
    numbers[cuts] = 1
    groups = np.empty(noisy.size, dtype=np.int64)
    groups[order] = np.cumsum(numbers)
    return Partition(first_appearance(groups))


def _best_cuts(values: Array, variance: float) -> list[int]:
    """Where clusters of sorted values begin, the first one left out."""
    # Equal values, such as the zeros of a threshold, stay together: they are one item.
    different, starts = np.unique(values, return_index=True)
    ends = np.append(starts[1:], values.size)
    n = different.size
    first = np.concatenate([[0.0], np.cumsum(values)])
    second = np.concatenate([[0.0], np.cumsum(values**2)])

    def cost(i: Array, j: int) -> Array:
        """Of the items i to j - 1 as one cluster."""
        low, high = starts[i], ends[j - 1]
        length = high - low
        sums = first[high] - first[low]
        out: Array = (
            np.maximum(second[high] - second[low] - sums**2 / length, 0) + variance / length
        )
        return out

    best = np.full(n + 1, math.inf)
    best[0] = 0
    last = np.zeros(n + 1, dtype=np.int64)
    low = 0
    for j in range(1, n + 1):
        i = np.arange(low, j)
        total = best[i] + cost(i, j)
        pick = int(np.argmin(total))
        best[j], last[j] = total[pick], low + pick
        low = int(last[j])
    cuts = []
    j = n
    while j:
        j = int(last[j])
        if j:
            cuts.append(int(starts[j]))
    return cuts[::-1]


def hilbert_order(side_bits: int) -> Array:
    """The cells of a square of 2^bits, in the order of the Hilbert curve, row by row numbered.

    >>> hilbert_order(1)
    array([0, 1, 3, 2])
    """
    order = np.zeros((1, 1), dtype=np.int64)  # the place of every cell on the curve
    for _ in range(side_bits):
        quarter = order.size
        top = np.hstack([order.T, order + quarter])
        bottom = np.hstack([order[::-1, ::-1].T + 3 * quarter, order + 2 * quarter])
        order = np.vstack([top, bottom])
    return np.argsort(order.ravel())


def along_curve(shape: tuple[int, ...]) -> Array:
    """The cells of any rectangle along a Hilbert curve through the square around it."""
    bits = max(1, (max(shape) - 1).bit_length())
    rows, columns = np.divmod(hilbert_order(bits), 1 << bits)
    inside = (rows < shape[0]) & (columns < shape[1])
    return np.asarray(rows[inside] * shape[1] + columns[inside])


def refined(*partitions: Partition) -> Partition:
    """The coarsest partition that is finer than all of these."""
    return Partition(join_groups([partition.groups for partition in partitions]))
