"""Figures of cross-tables for a page, drawn as small SVG that takes its colours from the page.

Bars for categories, densities where groups of numbers are of unequal width, lines for values that
follow each other, steps for distribution functions, each with its noise intervals; one panel for
each combination where more than two things are told apart. All scales start at zero. Where two
attributes have many labels each, a page shades the cells of the table instead (`shades`), and a
chart that stands alone is a heat map.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal

import numpy as np

from psephos.numbers import count_text, plus_minus
from psephos.report.cross_table import CrossTable, Grid, HeadingAxis, rounded_up
from psephos.report.drawing import Frame, Picture
from psephos.report.drawn_numbers import MOST_BAR_ROWS, DrawnNumbers

MOST_HEAT_COLUMNS = 120
"""Beside each other in a heat map as wide as a figure: cells of some three pixels."""
MOST_FACETS = 12
MOST_SERIES = 5
"""As many colours as can be told apart."""
RUN = 12
"""Values that follow each other from which a line reads better than bars."""
SHADES = 6
VISIBLE = 1.2
"""Pixels from which an interval can be seen."""

FigureShape = Literal["bars", "groups", "line", "lines", "steps", "density", "shades"]


@dataclass(frozen=True)
class LegendKey:
    """A colour or a mark, by its class in the style sheet, and what it stands for."""

    look: str
    text: str


@dataclass(frozen=True)
class Figure:
    """A chart, or one for each panel, with its legend and how to read it.

    Attributes:
        chart: the SVG of each panel
        sizes: the width and the height of each panel in pixels
        legend: what its colours and marks stand for
        caption: how to read it, and what it leaves out
    """

    chart: tuple[str, ...]
    sizes: tuple[tuple[float, float], ...]
    legend: tuple[LegendKey, ...]
    caption: str


def shape_of_figure(cells: DrawnNumbers) -> tuple[FigureShape, list[int], list[int]]:
    """The shape that suits some numbers, the axes it draws (the long one first), and the facets."""
    live = cells.live
    sizes = {k: len(cells.used(k)) for k in live}
    runs = [k for k in live if cells.axes[k].cumulative]
    runs = runs or [k for k in live if cells.axes[k].ordered and sizes[k] > RUN]
    if runs:
        return _shape_along(cells, max(runs, key=lambda k: sizes[k]), sizes)
    if len(live) < 2:
        unequal = any(_unequal(cells, k) for k in live)
        return ("density" if unequal else "bars"), live, []
    return _shape_across(live, sizes)


def _shape_along(
    cells: DrawnNumbers, long: int, sizes: Mapping[int, int]
) -> tuple[FigureShape, list[int], list[int]]:
    """The shape of numbers along an axis of many values."""
    others = [k for k in sizes if k != long]
    few = [k for k in others if sizes[k] <= MOST_SERIES]
    series = [min(few, key=lambda k: sizes[k])] if few else []
    facets = [k for k in others if k not in series]
    if cells.axes[long].cumulative:
        return "steps", [long, *series], facets
    if not series and _unequal(cells, long):
        return "density", [long], facets
    return ("lines" if series else "line"), [long, *series], facets


def _shape_across(
    live: list[int], sizes: Mapping[int, int]
) -> tuple[FigureShape, list[int], list[int]]:
    """The shape of numbers by several axes of few values."""
    few = sorted((k for k in live if sizes[k] <= MOST_SERIES), key=lambda k: sizes[k])
    if len(live) == 2 and not few:
        return "shades", live, []
    long = max(live, key=lambda k: sizes[k])
    series = [k for k in few if k != long][-1:]
    facets = [k for k in live if k not in (long, *series)]
    if math.prod(sizes[k] for k in facets) > MOST_FACETS or sizes[long] > MOST_BAR_ROWS:
        return "shades", live, []
    return ("groups" if series else "bars"), [long, *series], facets


def _unequal(cells: DrawnNumbers, axis: int) -> bool:
    """Are groups of numbers of different widths, so that counts say less than densities?"""
    if cells.axes[axis].widths is None:
        return False
    widths = np.array(cells.axes[axis].widths)[cells.used(axis)]
    known = widths[np.isfinite(widths)]
    return len(known) > 1 and bool(np.ptp(known) > 1e-9 * known.max())


def figure_of(
    cross: CrossTable, confidence: str | None, description: str, *, alone: bool = False
) -> Figure | None:
    """The figure of a table; None where its cells are shaded instead, or there is but one number.

    Args:
        cross: the table
        confidence: of the intervals, in words; None where there are none
        description: what a screen reader says
        alone: there is no table beside the figure; so it is a heat map, or one bar, and never None
    """
    cells = DrawnNumbers.of(cross)
    shape, drawn, facets = shape_of_figure(cells)
    if alone:
        drawn, facets = _heat_axes(cells) if shape == "shades" else (drawn or [0], facets)
    elif shape == "shades" or not drawn or not len(cells.value):
        return None
    cells = _with_room(cells, shape, drawn)
    panels = list(islice(cells.split(facets), MOST_FACETS))  # of what may be thousands
    notes, count = list(cells.notes), len(np.unique(cells.codes[:, facets], axis=0))
    if count > MOST_FACETS:
        notes.append(f"the first {MOST_FACETS} of {count:,} panels")
    values = f"{cross.heading} per unit" if shape == "density" else cross.heading
    small = bool(facets) and shape != "shades"
    frame = Frame.of(_extent(cells, shape, drawn[0]), small=small, values=values)
    charts, sizes, widest = [], [], 0.0
    for name, panel in panels:
        picture, pixels = DRAWERS[shape](panel, drawn, frame, name)
        charts.append(picture.svg(f"{description} {name}".strip()))
        sizes.append((frame.width, picture.height))
        widest = max(widest, pixels)
    if shape == "shades":
        return Figure(tuple(charts), tuple(sizes), _shade_keys(frame.high), _sentence(notes))
    series = cells.axes[drawn[1]] if len(drawn) > 1 else None
    legend = _legend(cells, drawn, shape, series, confidence, values)
    caption = _caption(cells, shape, drawn[0], confidence, widest, notes)
    return Figure(tuple(charts), tuple(sizes), legend, caption)


def _with_room(cells: DrawnNumbers, shape: FigureShape, drawn: list[int]) -> DrawnNumbers:
    """The numbers that a shape has room for."""
    if shape == "density":
        return cells.finite(drawn[0])
    if shape in ("bars", "groups", "shades"):
        cells = cells.first(drawn[0], MOST_BAR_ROWS, f"rows of {cells.axes[drawn[0]].title}")
    if shape == "shades":
        title = cells.axes[drawn[1]].title
        cells = cells.first(drawn[1], MOST_HEAT_COLUMNS, f"values of {title}")
    return cells


def _extent(cells: DrawnNumbers, shape: FigureShape, long: int) -> tuple[float, float]:
    """The ends of the scale that all panels share."""
    if shape == "shades":
        return 0.0, max(0.0, float(cells.value.max(initial=0.0)))
    return _densities(cells, long)[0] if shape == "density" else cells.extent


def _heat_axes(cells: DrawnNumbers) -> tuple[list[int], list[int]]:
    """The axes of a heat map's rows and columns, and its facets; time and age run to the right."""
    rows, columns, *facets = sorted(cells.live, key=lambda k: -len(cells.used(k)))
    if cells.axes[rows].ordered:
        rows, columns = columns, rows
    return [rows, columns], sorted(facets)


def description_of(cross: CrossTable) -> str:
    """What a screen reader says of a figure."""
    inner = np.where(cross.totals, np.nan, cross.values)
    values = cross.values if np.isnan(inner).all() else inner
    if np.isnan(values).all():
        return f"Chart of “{cross.title}”: no group has rows."

    def words(place: int) -> str:
        i, j = np.unravel_index(place, cross.shape)
        labels = ", ".join((*cross.rows.words(int(i)), *cross.columns.words(int(j)))) or "all"
        return f"{count_text(float(values[i, j]), cross.digits)} ({labels})"

    count = int(np.count_nonzero(~np.isnan(values)))
    low, high = words(int(np.nanargmin(values))), words(int(np.nanargmax(values)))
    return f"Chart of “{cross.title}”: {count:,} numbers, from {low} to {high}."


def _legend(
    cells: DrawnNumbers,
    drawn: list[int],
    shape: str,
    series: HeadingAxis | None,
    confidence: str | None,
    heading: str,
) -> tuple[LegendKey, ...]:
    if series is None:
        keys = [LegendKey("s1", heading)]
    else:
        used = cells.used(drawn[1])
        keys = [LegendKey(f"s{i + 1}", series.labels[code]) for i, code in enumerate(used)]
    if confidence is not None:
        look = "band" if shape in ("line", "lines", "steps") else "rule"
        keys.append(LegendKey(look, f"{confidence} noise interval".strip()))
    return tuple(keys)


def _caption(
    cells: DrawnNumbers,
    shape: str,
    long: int,
    confidence: str | None,
    widest: float,
    notes: list[str],
) -> str:
    title = cells.axes[long].title
    texts = {
        "steps": f"The height of a step is the number up to that value of {title}.",
        "density": (
            f"Groups are of unequal width: the area of a bar is the count, its height the count "
            f"per unit of {title}."
        ),
    }
    words = [texts[shape]] if shape in texts else []
    if confidence is None:
        words.append("How far the numbers are off is not known, so no interval is drawn.")
    elif widest < VISIBLE and cells.margin is not None:
        margin = plus_minus(float(rounded_up(cells.margin.max(), 0)), 0)
        words.append(f"The noise intervals, at most {margin}, are too narrow to see at this scale.")
    return " ".join(filter(None, (*words, _sentence(notes))))


def _sentence(notes: Sequence[str]) -> str:
    text = "; ".join(notes)
    return f"{text[0].upper()}{text[1:]}." if text else ""


# ---- shapes ------------------------------------------------------------------------------------


def _bars(cells: DrawnNumbers, drawn: list[int], frame: Frame, name: str) -> tuple[Picture, float]:
    """Bars from the left, in groups if there are series; and the widest interval in pixels."""
    long, series = drawn[0], drawn[1:]
    rows = cells.used(long)
    colours = cells.used(series[0]) if series else [0]
    step = 11.0 if series else (18.0 if len(rows) <= 15 else 12.0)
    gap = 6.0 if series else (4.0 if len(rows) <= 15 else 1.5)
    labels = [cells.axes[long].labels[code] for code in rows]
    picture = frame.rows(labels, step * len(colours) + gap, name, cells.axes[long].title)
    place = {code: i for i, code in enumerate(rows)}
    colour = {code: i for i, code in enumerate(colours)}
    widest = 0.0
    for i in range(len(cells.value)):
        s = colour[int(cells.codes[i, series[0]])] if series else 0
        y = picture.row(place[int(cells.codes[i, long])]) + gap / 2 + s * step
        words = cells.words(i, drawn)
        numbers = float(cells.value[i]), float(cells.low[i]), float(cells.high[i])
        widest = max(widest, picture.bar(y, step - 2, numbers, s + 1, words, cells.margin is None))
    return picture, widest


def _line(cells: DrawnNumbers, drawn: list[int], frame: Frame, name: str) -> tuple[Picture, float]:
    """Lines or steps to the right, one for each series, each in its band."""
    long, series = drawn[0], drawn[1:]
    axis = cells.axes[long]
    used = cells.used(long)
    ends = _ends(axis, used)
    picture = frame.run([axis.labels[code] for code in used], ends, name, axis.title)
    widest = 0.0
    place = {code: i for i, code in enumerate(used)}
    groups = cells.used(series[0]) if series else [None]
    for s, group in enumerate(groups):
        lines = np.arange(len(cells.value))
        if group is not None:
            lines = np.flatnonzero(cells.codes[:, series[0]] == group)
        order = lines[np.argsort(cells.codes[lines, long], kind="stable")]
        at = [place[int(code)] for code in cells.codes[order, long]]
        label = "" if group is None else cells.axes[series[0]].labels[group]
        numbers = cells.value[order], cells.low[order], cells.high[order]
        widest = max(
            widest,
            picture.curve(at, numbers, s + 1, label, axis.cumulative, cells.margin is None),
        )
    return picture, widest


def _ends(axis: HeadingAxis, used: Sequence[int]) -> list[float]:
    """Where values end on a scale from 0 to 1: by their widths, or else evenly."""
    widths = np.ones(len(used))
    if axis.widths is not None:
        known = np.array(axis.widths)[list(used)]
        widths = known if np.isfinite(known).all() else widths
    return [float(x) for x in np.cumsum(widths) / widths.sum()]


def _densities(cells: DrawnNumbers, axis: int) -> tuple[tuple[float, float], Grid]:
    """From the least to the largest count per unit, and each number's width."""
    widths = np.array(cells.axes[axis].widths, dtype=float)[cells.codes[:, axis]]
    low, high = float((cells.low / widths).min()), float((cells.high / widths).max())
    return (min(0.0, low), max(0.0, high)), widths


def _density(
    cells: DrawnNumbers, drawn: list[int], frame: Frame, name: str
) -> tuple[Picture, float]:
    """Bars as wide as what they count; their areas are the counts."""
    long = drawn[0]
    axis, used = cells.axes[long], cells.used(long)
    ends = _ends(axis, used)
    picture = frame.run([axis.labels[code] for code in used], ends, name, axis.title)
    _, widths = _densities(cells, long)
    place = {code: i for i, code in enumerate(used)}
    widest = 0.0
    for i, width in enumerate(widths):
        numbers = tuple(float(x[i] / width) for x in (cells.value, cells.low, cells.high))
        words, at = cells.words(i, drawn), place[int(cells.codes[i, long])]
        widest = max(widest, picture.column(at, numbers, words, cells.margin is None))
    return picture, widest


def _heat(cells: DrawnNumbers, drawn: list[int], frame: Frame, name: str) -> tuple[Picture, float]:
    """A cell for each number, as dark as it would be in a table; intervals are not drawn."""
    rows, columns = (cells.axes[k] for k in drawn)
    used = [cells.used(k) for k in drawn]
    down, across = ([a.labels[c] for c in u] for a, u in zip((rows, columns), used, strict=True))
    picture = frame.heat((down, across), name, (rows.title, columns.title))
    row_of, column_of = ({code: i for i, code in enumerate(codes)} for codes in used)
    levels = _shade_levels(cells.value, frame.high)
    for i, level in enumerate(levels):
        place = row_of[int(cells.codes[i, drawn[0]])], column_of[int(cells.codes[i, drawn[1]])]
        picture.cell(*place, float(level) / SHADES, cells.words(i, drawn))
    return picture, 0.0


DRAWERS: Mapping[FigureShape, Callable[..., tuple[Picture, float]]] = {
    "bars": _bars,
    "groups": _bars,
    "density": _density,
    "line": _line,
    "lines": _line,
    "steps": _line,
    "shades": _heat,
}


# ---- shades ------------------------------------------------------------------------------------


def shades(cross: CrossTable) -> tuple[Grid, tuple[LegendKey, ...]] | None:
    """How dark each cell of a table is, from 0 to `SHADES`, with what that means.

    None for tables that have a figure of their own. Totals are not shaded.
    """
    shape, drawn, _ = shape_of_figure(DrawnNumbers.of(cross))
    if shape != "shades" or not drawn:
        return None
    inner = np.where(cross.totals, math.nan, cross.values)
    most = float(np.nanmax(inner)) if not np.isnan(inner).all() else 0.0
    if most <= 0:
        return None
    return _shade_levels(inner, most), _shade_keys(most)


def _shade_levels(values: Grid, most: float) -> Grid:
    levels = np.nan_to_num(np.ceil(np.clip(values, 0, most) / most * SHADES), nan=0.0)
    return levels.astype(np.int64)


def _shade_keys(most: float) -> tuple[LegendKey, ...]:
    bounds = [most * k / SHADES for k in range(SHADES + 1)]
    return tuple(LegendKey(f"h{k}", f"up to {count_text(bounds[k])}") for k in range(1, SHADES + 1))
