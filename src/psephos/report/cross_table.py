"""A table as people read it: headings down the side and across the top, totals last.

The numbers stay where they are, in the long table of a view, one row for each; a cross-table says
at which place of the grid each of them stands. So every number is there once, whatever its view
and whatever it is: a count, a sum or a mean.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from psephos.numbers import ALMOST_SURE, count_text, digits_for, plus_minus

NOWHERE = -1
"""In the grid, where the table has no number."""
RADIX_LIMIT = 2**62
PLUS_MINUS = "±"
TOTAL = "total"
"""The label of all values together, unless a value is called so."""
PART = "part"
"""The column that says which part of a builder's table a number is in."""
Grid = npt.NDArray[Any]


@dataclass(frozen=True)
class HeadingAxis:
    """One thing that headings tell apart: a column of labels in the long table.

    Attributes:
        column: its name in the long table
        title: what it is called: an attribute, or a level of it
        labels: in the order of the table, totals last
        totals: which of them stand for all values together
        depths: how far below the coarsest level of a hierarchy each label is
        ordered: the values follow each other, as ages do
        cumulative: each label counts everything up to it
        widths: how many units each label spans, where that is known; for densities
        apart: which labels have no place in the order, if any, such as missing entries
    """

    column: str
    title: str
    labels: tuple[str, ...]
    totals: tuple[bool, ...]
    depths: tuple[int, ...]
    ordered: bool = False
    cumulative: bool = False
    widths: tuple[float, ...] | None = None
    apart: tuple[bool, ...] = ()

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Edge:
    """The headings along one side: for each line of the grid, a label of every axis."""

    axes: tuple[HeadingAxis, ...]
    codes: Grid
    """One row for each line, one column for each axis: which of its labels."""

    def __len__(self) -> int:
        return len(self.codes)

    def words(self, line: int) -> tuple[str, ...]:
        """The labels of a line, the outermost first."""
        return tuple(
            a.labels[int(code)] for a, code in zip(self.axes, self.codes[line], strict=True)
        )

    def depth(self, line: int) -> int:
        """How far the innermost label is indented."""
        return self.axes[-1].depths[int(self.codes[line, -1])] if self.axes else 0

    @cached_property
    def totals(self) -> Grid:
        """Which lines are totals: of one axis or of several."""
        return np.asarray(self._marks.any(axis=1))

    @cached_property
    def grand_totals(self) -> Grid:
        """Which lines are totals of all axes."""
        return np.asarray(self._marks.all(axis=1) & bool(self.axes))

    @cached_property
    def _marks(self) -> Grid:
        marks = [np.array(a.totals, dtype=bool)[self.codes[:, k]] for k, a in enumerate(self.axes)]
        return np.stack(marks, axis=1) if marks else np.zeros((len(self), 0), dtype=bool)

    def spans(self, axis: int) -> Iterator[tuple[str, bool, int, int]]:
        """The headings of an axis with the lines that each spans: label, is total, first, count."""
        outer = self.codes[:, : axis + 1]
        new = np.ones(len(self), dtype=bool)
        new[1:] = (outer[1:] != outer[:-1]).any(axis=1)
        starts = [*np.flatnonzero(new).tolist(), len(self)]
        for first, end in pairwise(starts):
            code = int(self.codes[first, axis])
            labels = self.axes[axis]
            yield labels.labels[code], labels.totals[code], first, end - first

    def pick(self, lines: Sequence[int] | Grid) -> Edge:
        """Some of the lines."""
        return Edge(self.axes, self.codes[np.asarray(lines, dtype=np.int64)])


@dataclass(frozen=True, eq=False)
class CrossTable:
    """One table laid out: headings, and where in the long table each number stands.

    Attributes:
        name: of the table, or of one part of it; files are called by it
        title: for people
        rows: headings down the side
        columns: headings across the top; one line without axes if there are none
        places: for each row and column the row of the long table, or `NOWHERE`
        numbers: the long table
        value: the column of it that holds the numbers
        fixed: what is the same for all numbers, such as a condition: names and labels
        part: what this part of a table is called, where it has several
        statistic: what the numbers are called for people, if not as their column
    """

    name: str
    title: str
    rows: Edge
    columns: Edge
    places: Grid
    numbers: pa.Table
    value: str = "count"
    fixed: tuple[tuple[str, str], ...] = ()
    part: str = ""
    statistic: str = ""

    @property
    def heading(self) -> str:
        """What the numbers are called."""
        return self.statistic or self.value

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.columns)

    @property
    def axes(self) -> tuple[HeadingAxis, ...]:
        """Those of the rows, then those of the columns."""
        return (*self.rows.axes, *self.columns.axes)

    @property
    def has_errors(self) -> bool:
        """Do the numbers have intervals?"""
        return "low" in self.numbers.column_names

    def grid(self, column: str) -> Grid:
        """A column of numbers at its places, not-a-number where there is none."""
        values = self.numbers[column].to_numpy(zero_copy_only=False)
        if values.dtype == object:  # beyond 64 bits they are text
            values = np.array([float(value) for value in values])
        grid = np.full(self.shape, math.nan)
        filled = self.places != NOWHERE
        grid[filled] = values[self.places[filled]]
        return grid

    @cached_property
    def values(self) -> Grid:
        """The numbers."""
        return self.grid(self.value)

    @cached_property
    def margins(self) -> Grid | None:
        """The ± of each number: half its interval, or more where that does not cover it.

        A published number need not lie in the middle of its interval, which is cut at zero and
        reaches to the number; its ± is never less than half the interval before the cut, and
        covers what is left of it on both sides.
        """
        if not self.has_errors:
            return None
        low, high = self.grid("low"), self.grid("high")
        sides = np.maximum(high - self.values, self.values - low)
        if not {"consistent", "stderr"} <= set(self.numbers.column_names):
            return _without_dust(sides)
        centre, stderr = self.grid("consistent"), self.grid("stderr")
        half = np.where(high > self.values, high - centre, math.nan)
        uncut = np.isnan(half) & (low > 0) & (low < self.values)
        half[uncut] = (centre - low)[uncut]
        known = ~np.isnan(half) & (stderr > 0)
        ratio = (half[known] / stderr[known]).max(initial=0.0)
        return _without_dust(np.fmax(sides, np.where(np.isnan(half), ratio * stderr, half)))

    @cached_property
    def totals(self) -> Grid:
        """Which numbers are totals of something."""
        return np.logical_or.outer(self.rows.totals, self.columns.totals)

    @cached_property
    def digits(self) -> int:
        """Decimals that are worth printing beside the least ±; none for whole numbers."""
        if pa.types.is_integer(self.numbers.schema.field(self.value).type):
            return 0
        return 1 if self.margins is None else _decimals(self.margins)

    @cached_property
    def margin_digits(self) -> int:
        """Decimals of a ±; none beside whole numbers."""
        if pa.types.is_integer(self.numbers.schema.field(self.value).type):
            return 0
        return 0 if self.margins is None else _decimals(self.margins)

    @property
    def largest_margin(self) -> str:
        """The largest ± of all numbers, as people read it; empty where there is none."""
        if self.margins is None or np.isnan(self.margins).all():
            return ""
        largest = rounded_up(np.nanmax(self.margins), self.margin_digits)
        return plus_minus(float(largest), self.margin_digits)

    def texts(self, row: int, column: int) -> tuple[str, str]:
        """A number and its ± as people read them; empty where there is none."""
        number = float(self.values[row, column])
        if math.isnan(number):
            return "", ""
        text = count_text(number, self.digits)
        if self.margins is None or not math.isfinite(self.margins[row, column]):
            return text, ""
        margin = float(rounded_up(self.margins[row, column], self.margin_digits))
        return text, plus_minus(margin, self.margin_digits if margin else 0)

    def pick(self, rows: Sequence[int] | Grid, columns: Sequence[int] | Grid) -> CrossTable:
        """Some rows and columns of it."""
        places = self.places[np.asarray(rows)][:, np.asarray(columns)]
        return replace(
            self, rows=self.rows.pick(rows), columns=self.columns.pick(columns), places=places
        )

    def head(self, rows: int, columns: int) -> CrossTable:
        """The first rows and columns, and the grand totals among the rest."""
        if self.shape[0] <= rows and self.shape[1] <= columns:
            return self
        return self.pick(_first(self.rows, rows), _first(self.columns, columns))

    def wide(self) -> pa.Table:
        """One row for each line: its labels, then each number with its ± beside it.

        Numbers have as many decimals as their ± is worth, and a ± is rounded up.
        """
        columns = _Columns()
        for k, axis in enumerate(self.rows.axes):
            labels = [axis.labels[int(code)] for code in self.rows.codes[:, k]]
            columns.add(axis.title, pa.array(labels, type=pa.string()))
        whole = pa.types.is_integer(self.numbers.schema.field(self.value).type)
        for j in range(len(self.columns)):
            words = ", ".join(self.columns.words(j)) or self.heading
            numbers = np.round(self.values[:, j], self.digits)
            columns.add(words, _nullable(numbers, pa.int64() if whole else pa.float64()))
            if self.margins is not None:
                margin = rounded_up(self.margins[:, j], self.margin_digits)
                columns.add(f"{words} {PLUS_MINUS}", _nullable(margin, pa.float64()))
        if "made_up" in self.numbers.column_names:
            columns.add("made_up", pa.array([True] * len(self.rows)))
        return pa.table(columns.arrays)


def _without_dust(margins: Grid) -> Grid:
    """Zero for numbers that are sure, such as 100 %, where arithmetic leaves next to nothing."""
    widest = margins[np.isfinite(margins)].max(initial=0.0)
    return np.asarray(np.where(margins <= ALMOST_SURE * widest, 0.0, margins))


def _decimals(margins: Grid) -> int:
    """Decimals beside the least ± that there is."""
    known = margins[np.isfinite(margins) & (margins > 0)]
    if not known.size:
        return 1
    least = float(known.min())
    return digits_for(least) if least >= 0.1 else min(6, 1 - math.floor(math.log10(least)))


def rounded_up(values: Grid, digits: int) -> Grid:
    """Rounded away from zero to so many decimals, if it is more than float noise above them."""
    scale = 10.0**digits
    return np.ceil(values * scale - 1e-9) / scale + 0.0  # no minus zero


@dataclass
class _Columns:
    """Columns of a table under names of their own."""

    arrays: dict[str, pa.Array] = field(default_factory=dict)
    times: Counter[str] = field(default_factory=Counter)

    def add(self, name: str, values: pa.Array) -> None:
        unique = name
        while unique in self.arrays:
            self.times[name] += 1
            unique = f"{name} ({self.times[name] + 1})"
        self.arrays[unique] = values


def _nullable(values: Grid, kind: pa.DataType) -> pa.Array:
    missing = np.isnan(values)
    return pa.array(np.where(missing, 0, values), mask=missing, from_pandas=False).cast(kind)


def _first(edge: Edge, most: int) -> Grid:
    """The first lines of an edge, and the grand totals among the rest."""
    lines = np.arange(len(edge))
    return np.asarray(lines[(lines < most) | edge.grand_totals])


def laid_out(
    name: str,
    title: str,
    numbers: pa.Table,
    axes: tuple[Sequence[HeadingAxis], Sequence[HeadingAxis]],
    *,
    value: str = "count",
    fixed: tuple[tuple[str, str], ...] = (),
    part: str = "",
) -> CrossTable:
    """The long table with some of its columns down the side and others across the top.

    Args:
        name: of the table
        title: for people
        numbers: the long table; no two rows have the same labels on all axes
        axes: those of the rows and those of the columns, the outermost first
        value: the column of the numbers
        fixed: what is the same for all numbers
        part: what this part of a table is called
    """
    sides = [_edge(side, numbers) for side in axes]
    (rows, row_of), (columns, column_of) = sides
    places = np.full((len(rows), len(columns)), NOWHERE, dtype=np.int64)
    places[row_of, column_of] = np.arange(numbers.num_rows)
    return CrossTable(name, title, rows, columns, places, numbers, value, fixed, part)


def with_distinct_labels(data: pa.Table, names: Sequence[str]) -> pa.Table:
    """Rows that share all these labels get a number each, so that none hides another."""
    if not names:
        labels = [TOTAL] + [f"{TOTAL} ({i + 1})" for i in range(1, data.num_rows)]
        return data if data.num_rows == 1 else data.add_column(0, "", pa.array(labels))
    times: Counter[tuple[str, ...]] = Counter()
    words = []
    for key in zip(*(data[name].to_pylist() for name in names), strict=True):
        times[key] += 1
        words.append(key[-1] if times[key] == 1 else f"{key[-1]} ({times[key]})")
    place = data.column_names.index(names[-1])
    return data.set_column(place, names[-1], pa.array(words, type=pa.string()))


def _edge(axes: Sequence[HeadingAxis], numbers: pa.Table) -> tuple[Edge, Grid]:
    """The lines that occur, in the order of the axes' labels, and the line of each number."""
    if not axes:
        nothing = np.zeros((1, 0), dtype=np.int64)
        return Edge((), nothing), np.zeros(numbers.num_rows, dtype=np.int64)
    codes = np.stack([_codes(axis, numbers[axis.column]) for axis in axes], axis=1)
    sizes = tuple(len(axis) for axis in axes)
    if math.prod(sizes) < RADIX_LIMIT:
        flat = np.ravel_multi_index(tuple(codes.T), sizes)
        lines, line_of = np.unique(flat, return_inverse=True)
        unique = np.stack(np.unravel_index(lines, sizes), axis=1)
    else:
        unique, line_of = np.unique(codes, axis=0, return_inverse=True)
    return Edge(tuple(axes), unique), line_of.ravel()


def _codes(axis: HeadingAxis, column: pa.ChunkedArray) -> Grid:
    encoded = column.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    position = {label: i for i, label in enumerate(axis.labels)}
    ranks = np.array([position[label] for label in encoded.dictionary.to_pylist()], dtype=np.int64)
    return np.asarray(ranks[encoded.indices.to_numpy(zero_copy_only=False)])
