"""How uneven a vector is on each of its intervals: the sum of distances to the median.

dev(I) = min over m of Σ_{i ∈ I} |x_i - m|, reached at a median. It is a whole number. DAWA (Li,
Hay, Miklau and Wang 2014) takes the distances to the mean, which are at most twice these; but a row
moves those by up to 2, and these by 1, so these tell more for the same price.

Privacy: (1) Every Σ|x_i - m| moves by at most 1 if one x_i does, so their minimum does; dev of a
single cell is 0 always. (2) Counts are cut to ±2³⁰ first, which moves no two of them further apart,
so the lemma holds for any counts, and no sum below overflows: |Σ| ≤ cells·2³⁰ < 2⁶² for at most
2³¹ cells (tests/kernel/test_partition.py::test_a_row_moves_a_deviation_by_one,
test_deviations_are_those_of_the_definition).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Literal, NamedTuple, get_args

import numpy as np

from psephos.errors import RefusedError, TooLargeError
from psephos.values import Array

Lengths = Literal["aligned", "dyadic", "all"]
LARGEST_COUNT = 1 << 30
LARGEST_PENALTY = 1 << 30
MOST_INTERVALS = 1 << 25
AT_ONCE = 1 << 16


class Intervals(NamedTuple):
    """Intervals [start, end) of cells, by their ends, the shortest first."""

    starts: Array
    ends: Array


def blocks(cells: int, lengths: Lengths) -> Iterator[Intervals]:
    """All intervals of the lengths, those of a few ends at a time."""
    sizes = np.arange(1, cells + 1) if lengths == "all" else 1 << np.arange(cells.bit_length())
    step = max(1, AT_ONCE // sizes.size)
    for first in range(1, cells + 1, step):
        ends = np.arange(first, min(first + step, cells + 1))[:, None]
        fit = sizes <= ends if lengths != "aligned" else ends % sizes == 0
        places, picks = np.nonzero(fit)
        yield Intervals(ends[places, 0] - sizes[picks], ends[places, 0])


def by_end(intervals: Intervals) -> Iterator[slice]:
    """Those of one end, then those of the next."""
    cuts = np.flatnonzero(np.diff(intervals.ends)) + 1
    return (slice(low, high) for low, high in pairwise([0, *cuts, intervals.ends.size]))


def check_lengths(cells: int, lengths: Lengths) -> Lengths:
    """The kernel's own word for the lengths; strange ones and too many intervals are refused."""
    words = get_args(Lengths)
    if type(lengths) is not str or lengths not in words:
        raise RefusedError(f"lengths are one of {', '.join(words)}, got {lengths!r:.60}")
    sizes = cells if lengths == "all" else cells.bit_length()
    if cells * sizes > MOST_INTERVALS:
        remedy = 'write lengths="dyadic", or reduce the vector first'
        text = f"{cells:,} cells have too many intervals; {remedy}"
        raise TooLargeError(text, cells * sizes, MOST_INTERVALS)
    return lengths


def check_penalty(penalty: int | None) -> int | None:
    """A plain number of counts, small enough for sums of them."""
    if penalty is None or (type(penalty) is int and 0 <= penalty <= LARGEST_PENALTY):
        return penalty
    raise RefusedError(f"a penalty is a whole number of counts up to 2^30, got {penalty!r:.60}")


class Deviations:
    """The deviations of any intervals of a vector.

    A table for each bit of the cells' ranks, from the highest: how many cells before a place have
    it 0, and the sum of their counts; then cells go on in the order of that bit (a wavelet matrix:
    Claude, Navarro and Ordóñez 2015). So the k smallest of an interval are added up in as many
    steps as ranks have bits.
    """

    def __init__(self, counts: Array) -> None:
        x = np.clip(counts, -LARGEST_COUNT, LARGEST_COUNT).astype(np.int64)
        self._sums = _running(x)
        self._sorted = np.sort(x)
        ranks = np.empty(x.size, np.int32)
        ranks[np.argsort(x, kind="stable")] = np.arange(x.size)
        self._levels: list[tuple[int, Array, Array]] = []
        for bit in reversed(range((x.size - 1).bit_length())):
            low = ranks >> bit & 1 == 0
            counts_below = np.where(low, self._sorted[ranks], 0)
            self._levels.append((bit, _running(low).astype(np.int32), _running(counts_below)))
            ranks = np.concatenate([ranks[low], ranks[~low]])

    def of(self, intervals: Intervals) -> Array:
        """Σ of the upper half of the counts, less that of the lower half, for each interval."""
        start, end = (place.astype(np.int32) for place in intervals)
        length = end - start
        k = length // 2  # at each step, so many of those that are left belong to the lower half
        total = self._sums[end] - self._sums[start]
        lower, rank = np.zeros_like(total), np.zeros_like(k)
        for bit, zeros, sums in self._levels:
            first, last = zeros[start], zeros[end]
            high = k >= last - first
            lower += np.where(high, sums[end] - sums[start], 0)
            k = np.where(high, k - (last - first), k)
            rank += high * (1 << bit)
            start = np.where(high, zeros[-1] + start - first, first)
            end = np.where(high, zeros[-1] + end - last, last)
        middle = np.where(length % 2 == 1, self._sorted[rank], 0)
        return np.asarray(total - 2 * lower - middle)


def _running(x: Array) -> Array:
    return np.concatenate([[0], np.cumsum(x, dtype=np.int64)])
