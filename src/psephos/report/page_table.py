"""A cross-table as a page sets it: texts, how far they span, and what is a total.

Outer headings of rows are lines of their own above what they hold, so a table needs no more width
than its innermost labels; one with many columns is set in several panels, one below the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from psephos.numbers import count_text, plus_minus
from psephos.report.cross_table import CrossTable, Grid

PANEL_PIXELS = 1040
"""The width of a page's tables."""
LETTER_PIXELS, CELL_PIXELS, HEADING_PIXELS = 7.3, 18.0, 260.0
"""About as wide are a digit, the space around a number, and the longest label that stays whole."""
LEAST_ROWS, MOST_ROWS = 12, 60
"""As many rows are shown of a table, however many tables there are, and however few."""
MOST_PANELS_OF_COLUMNS = 3


@dataclass(frozen=True)
class HeadCell:
    """A heading across the top, over some columns."""

    text: str
    span: int
    group: bool
    """It is above other headings."""
    total: bool


@dataclass(frozen=True)
class NumberText:
    """A number, its ±, the heading above it, and how dark its cell is."""

    text: str
    margin: str
    heading: str
    total: bool
    shade: int


@dataclass(frozen=True)
class PageRow:
    """A line of a table; without numbers it is a heading over the lines below it."""

    heading: str
    depth: int
    total: bool
    numbers: tuple[NumberText, ...]


@dataclass(frozen=True)
class PageTable:
    """A table, or a panel of one, as a page sets it."""

    caption: str
    corner: str
    across: str
    """What the headings tell apart; empty if there is one column of numbers."""
    heads: tuple[tuple[HeadCell, ...], ...]
    rows: tuple[PageRow, ...]
    margin_letters: int
    """Of the longest ±: so that all begin at the same place."""

    @property
    def columns(self) -> int:
        """Of numbers."""
        return sum(head.span for head in self.heads[-1])

    @property
    def panelled(self) -> bool:
        """Has it headings that a narrow screen repeats beside every number?"""
        return bool(self.across)


def shown_part(cross: CrossTable, numbers: int) -> CrossTable:
    """As many rows as have about so many numbers, and the grand totals."""
    most = min(cross.shape[1], MOST_PANELS_OF_COLUMNS * panel_columns(cross))
    rows = min(MOST_ROWS, max(LEAST_ROWS, numbers // most))
    # A table that is a little longer is shown whole: the total alone is no saving.
    whole = cross.shape[0] <= rows * 1.15 and most == cross.shape[1]
    return cross if whole else cross.head(rows, most)


def panel_columns(cross: CrossTable) -> int:
    """How many columns of numbers stand side by side; whole groups of them where they fit."""
    known = np.abs(cross.values[np.isfinite(cross.values)])
    largest = float(known.max(initial=0.0))
    letters = len(count_text(largest, cross.digits)) + _margin_letters(cross) * 0.85 + 1
    label = max((len(label) for axis in cross.rows.axes[-1:] for label in axis.labels), default=3)
    room = PANEL_PIXELS - min(HEADING_PIXELS, label * LETTER_PIXELS + CELL_PIXELS)
    columns = max(3, int(room / (letters * LETTER_PIXELS + CELL_PIXELS)))
    if len(cross.columns.axes) < 2 or columns >= len(cross.columns):
        return columns
    group = max(count for *_, count in cross.columns.spans(0))
    return columns // group * group or columns


def _margin_letters(cross: CrossTable) -> int:
    """Of the longest ±."""
    if cross.margins is None or not np.isfinite(cross.margins).any():
        return 0
    longest = float(cross.margins[np.isfinite(cross.margins)].max())
    return len(plus_minus(math.ceil(longest), cross.margin_digits))


def page_tables(cross: CrossTable, shades: Grid | None = None) -> tuple[PageTable, ...]:
    """A table for a page: one, or a panel for every few columns."""
    columns, size = cross.shape[1], panel_columns(cross)
    panels = math.ceil(columns / size)
    if len(cross.columns.axes) < 2:
        size = math.ceil(columns / panels)  # panels of about the same width
    tables = []
    for k in range(panels):
        some = np.arange(k * size, min(columns, (k + 1) * size))
        part = cross.pick(np.arange(len(cross.rows)), some)
        caption = cross.title if panels == 1 else f"{cross.title}, part {k + 1} of {panels}"
        tables.append(_panel(part, caption, None if shades is None else shades[:, some]))
    return tuple(tables)


def _panel(cross: CrossTable, caption: str, shades: Grid | None) -> PageTable:
    columns = cross.columns
    heads = [
        tuple(
            HeadCell(label, count, k < len(columns.axes) - 1, total)
            for label, total, _, count in columns.spans(k)
        )
        for k in range(len(columns.axes))
    ]
    value = cross.heading.capitalize()
    axes = cross.rows.axes
    return PageTable(
        caption,
        axes[-1].title if axes else "",
        " / ".join(axis.title for axis in columns.axes),
        tuple(heads) or ((HeadCell(value, 1, group=False, total=False),),),
        tuple(_rows(cross, shades)),
        _margin_letters(cross),
    )


def _rows(cross: CrossTable, shades: Grid | None) -> Iterator[PageRow]:
    rows = cross.rows
    outer = len(rows.axes) - 1
    texts = _number_texts(cross, shades)
    above: tuple[str, ...] = ()
    for i in range(len(rows)):
        words = rows.words(i)
        if outer > 0 and words[:-1] != above:
            above = words[:-1]
            pairs = zip(rows.axes, above, strict=False)
            title = ", ".join(f"{axis.title}: {word}" for axis, word in pairs)
            codes = rows.codes[i]
            total = any(a.totals[int(c)] for a, c in zip(rows.axes[:-1], codes, strict=False))
            yield PageRow(title, 0, total, ())
        label = words[-1] if words else "all"
        innermost = bool(words) and rows.axes[-1].totals[int(rows.codes[i, -1])]
        yield PageRow(label, rows.depth(i), innermost, texts[i])


def _number_texts(cross: CrossTable, shades: Grid | None) -> list[tuple[NumberText, ...]]:
    """All numbers, in their rows."""
    headings = [", ".join(cross.columns.words(j)) for j in range(len(cross.columns))]
    totals = cross.columns.totals
    lines = []
    for i in range(len(cross.rows)):
        line = []
        for j, heading in enumerate(headings):
            text, margin = cross.texts(i, j)
            shade = 0 if shades is None else int(shades[i, j])
            line.append(NumberText(text, margin, heading, bool(totals[j]), shade))
        lines.append(tuple(line))
    return lines
