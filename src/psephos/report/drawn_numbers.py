"""The numbers of a cross-table that a figure draws: of one level, in their order, no totals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from psephos.numbers import count_text, plus_minus
from psephos.report.cross_table import TOTAL, CrossTable, Grid, HeadingAxis, rounded_up

MOST_BAR_ROWS = 60
ALL_ROWS = HeadingAxis("", "", (TOTAL,), totals=(False,), depths=(0,))
"""What a table of a single number tells apart."""


@dataclass(frozen=True, eq=False)
class DrawnNumbers:
    """Numbers to draw: for each its label on every axis, its value and its interval."""

    axes: tuple[HeadingAxis, ...]
    codes: Grid
    value: Grid
    low: Grid
    high: Grid
    margin: Grid | None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, cross: CrossTable) -> DrawnNumbers:
        """The numbers of a table without totals, unless there is nothing else."""
        there = np.isfinite(cross.values)
        if cross.has_errors:
            there &= np.isfinite(cross.grid("low")) & np.isfinite(cross.grid("high"))
        lines = np.argwhere((cross.places >= 0) & there)
        codes = np.hstack([cross.rows.codes[lines[:, 0]], cross.columns.codes[lines[:, 1]]])
        at, axes = tuple(lines.T), cross.axes
        if not axes:  # one number: all rows
            axes, codes = (ALL_ROWS,), np.zeros((len(lines), 1), dtype=np.int64)
        value = cross.values[at]
        low, high = (cross.grid(n)[at] if cross.has_errors else value for n in ("low", "high"))
        margin = None if cross.margins is None else cross.margins[at]
        cells = cls(axes, codes, value, low, high, margin)
        return cells._without_totals()._one_level()._in_order()

    def _without_totals(self) -> DrawnNumbers:
        keep = np.ones(len(self.value), dtype=bool)
        for k, axis in enumerate(self.axes):
            keep &= ~np.array(axis.totals, dtype=bool)[self.codes[:, k]]
        return self._pick(keep) if keep.any() else self

    def _one_level(self) -> DrawnNumbers:
        """Of hierarchies only the lowest level, or the highest where that has too many labels."""
        cells = self
        for k, axis in enumerate(self.axes):
            depths = np.array(axis.depths)
            levels = np.unique(depths[np.unique(cells.codes[:, k])])
            if len(levels) < 2:
                continue
            lowest = int(np.count_nonzero(depths == levels[-1]))
            level = levels[0] if lowest > MOST_BAR_ROWS and not axis.ordered else levels[-1]
            cells = cells._pick(depths[cells.codes[:, k]] == level)
        return cells

    def _in_order(self) -> DrawnNumbers:
        """Without what has no place on a curve, such as missing entries."""
        cells = self
        for k, axis in enumerate(self.axes):
            if axis.ordered and any(axis.apart):
                keep = ~np.array(axis.apart, dtype=bool)[cells.codes[:, k]]
                words = "what has no place in the order is in the table"
                cells = cells._pick(keep, words) if keep.any() else cells
        return cells

    def _pick(self, keep: Grid, note: str = "") -> DrawnNumbers:
        margin = None if self.margin is None else self.margin[keep]
        notes = (*self.notes, note) if note else self.notes
        numbers = self.value[keep], self.low[keep], self.high[keep]
        return DrawnNumbers(self.axes, self.codes[keep], *numbers, margin, notes)

    def used(self, axis: int) -> list[int]:
        """The labels of an axis that are there, in their order."""
        return [int(code) for code in np.unique(self.codes[:, axis])]

    @property
    def live(self) -> list[int]:
        """The axes that tell numbers apart."""
        return [k for k in range(len(self.axes)) if len(self.used(k)) > 1]

    def first(self, axis: int, most: int, words: str) -> DrawnNumbers:
        """The numbers under the first labels of an axis."""
        used = self.used(axis)
        if len(used) <= most:
            return self
        keep = np.isin(self.codes[:, axis], used[:most])
        return self._pick(keep, f"the first {most} of {len(used):,} {words}")

    def finite(self, axis: int) -> DrawnNumbers:
        """Those whose width is known."""
        widths = np.array(self.axes[axis].widths, dtype=float)
        keep = np.isfinite(widths[self.codes[:, axis]])
        if keep.all():
            return self
        return self._pick(keep, "groups without an end are in the table")

    def split(self, axes: Sequence[int]) -> Iterator[tuple[str, DrawnNumbers]]:
        """The numbers under each combination of labels, with what it is called."""
        if not axes:
            yield "", self
            return
        keys = self.codes[:, list(axes)]
        for key in np.unique(keys, axis=0):
            words = ", ".join(self.axes[k].labels[int(c)] for k, c in zip(axes, key, strict=True))
            yield words, replace(self._pick((keys == key).all(axis=1)), notes=())

    @property
    def extent(self) -> tuple[float, float]:
        """From the least number to the largest, zero and intervals included."""
        return min(0.0, float(self.low.min())), max(0.0, float(self.high.max()))

    def labels(self, i: int, axes: Sequence[int] | None = None) -> str:
        """What a number is called, along all axes that tell numbers apart or some of them."""
        along = self.live if axes is None else axes
        return ", ".join(self.axes[k].labels[int(self.codes[i, k])] for k in along)

    def words(self, i: int, axes: Sequence[int]) -> str:
        """A number in words, for those who point at it."""
        labels = self.labels(i, axes)
        text = count_text(float(self.value[i]), _digits(self))
        if self.margin is not None:
            text += f" {plus_minus(float(rounded_up(self.margin[i], 0)), 0)}"
        return f"{labels}: {text}" if labels else text


def _digits(cells: DrawnNumbers) -> int:
    whole = bool((cells.value == np.round(cells.value)).all())
    return 0 if whole or float(np.abs(cells.value).max(initial=0)) >= 100 else 1
