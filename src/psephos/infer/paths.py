"""The variance of any range of a tree, from the two paths to its ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from psephos.frozen import Array


@dataclass(frozen=True, eq=False)
class Level:
    """Tables of one level; the first axis is 0 for whole blocks, 1 for the block cut off."""

    entries: Array
    """R̃ itself."""
    rows: Array
    """Σ_{j<t} R̃_ij at (i, t)."""
    corners: Array
    """Σ_{i<s, j<t} R̃_ij at (s, t)."""
    share: Array
    up_to: Array
    """Σ_{k<t} v_k."""

    @classmethod
    def of(cls, kinds: Sequence[tuple[Array, Array]]) -> Level:
        """From (R̃, v) of the whole block and, maybe, of the block cut off."""
        b = kinds[0][1].size
        entries, share = np.zeros((len(kinds), b, b)), np.zeros((len(kinds), b))
        for i, (r, v) in enumerate(kinds):
            entries[i, : v.size, : v.size], share[i, : v.size] = r, v
        rows, up_to = np.zeros((len(kinds), b, b + 1)), np.zeros((len(kinds), b + 1))
        corners = np.zeros((len(kinds), b + 1, b + 1))
        rows[:, :, 1:], up_to[:, 1:] = entries.cumsum(axis=2), share.cumsum(axis=1)
        corners[:, 1:] = rows.cumsum(axis=1)
        return cls(entries, rows, corners, share, up_to)

    def run(self, kind: Array, start: Array, k: Array, part: Array) -> Array:
        """gᵀR̃g for g = 1 on the children start … k-1, `part` on child k."""
        box = (
            self.corners[kind, k, k]
            - 2 * self.corners[kind, start, k]
            + self.corners[kind, start, start]
        )
        across = self.rows[kind, k, k] - self.rows[kind, k, start]
        return np.asarray(box + part * (2 * across + part * self.entries[kind, k, k]))

    def from_part(self, kind: Array, i: Array, first: Array, k: Array, part: Array) -> Array:
        """The same with `first` on child i < k in front of the run i+1 … k-1."""
        across = self.rows[kind, i, k] - self.rows[kind, i, i + 1]
        across = across + part * self.entries[kind, i, k]
        own = first * (2 * across + first * self.entries[kind, i, i])
        return np.asarray(self.run(kind, i + 1, k, part) + own)


class PathTables:
    """What ranges need of a tree.

    A range is, at each level, some whole children between two that it holds in part. A block that
    it holds whole adds nothing below; so only the two paths to its ends count, and down to the
    block where they part there is one path. In a block, child k counts by g_k = u_kᵀ(range), the
    part of its spread that lies inside, and the block adds gᵀR̃g.
    """

    def __init__(
        self,
        sizes: tuple[int, ...],
        cells: int,
        kinds: Sequence[Sequence[tuple[Array, Array]]],
    ) -> None:
        self.sizes, self.cells = sizes, cells
        self.levels = [Level.of(each) for each in kinds]

    def variance(self, low: Array, high: Array) -> Array:
        """Var of each range, both ends included."""
        before = np.zeros(
            low.shape
        )  # the spread of the low end's child that comes before the range
        until = np.ones(low.shape)  # the spread of the high end's child up to the range's end
        inside = np.ones(low.shape)  # where both ends are in one child: what lies between
        total = np.zeros(low.shape)
        for level, size, width in zip(
            reversed(self.levels), self.sizes[-2::-1], self.sizes[:0:-1], strict=True
        ):
            cut = level.share.shape[0] - 1
            i, k = (low // width) % (size // width), (high // width) % (size // width)
            kind_i = cut * (low // size == self.cells // size)
            kind = cut * (high // size == self.cells // size)
            apart = low // size != high // size
            split = ~apart & (i != k)
            alone = i == k
            total += np.where(~apart & alone, inside**2 * level.entries[kind, k, k], 0.0)
            at = np.flatnonzero(split)
            total[at] += level.from_part(kind[at], i[at], 1 - before[at], k[at], until[at])
            at = np.flatnonzero(apart)
            none = np.zeros(at.shape, np.int64)
            total[at] += level.run(kind[at], none, k[at], until[at])
            total[at] += level.run(kind_i[at], none, i[at], before[at])
            v_i, v_k = level.share[kind_i, i], level.share[kind, k]
            between = level.up_to[kind, k] - level.up_to[kind, np.minimum(i + 1, k)]
            several = (1 - before) * v_i + between + until * v_k
            inside = np.where(alone, v_k * inside, several)
            before = level.up_to[kind_i, i] + v_i * before
            until = level.up_to[kind, k] + v_k * until
        return total
