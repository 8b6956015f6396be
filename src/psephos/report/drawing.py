"""The pieces of a figure: a scale, a frame with its axes, and marks, as SVG with classes.

Colours and strokes come from the style sheet of the page, so that a figure reads alike on light
and dark pages and on paper. Coordinates have one decimal, which is enough and keeps pages light.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

import numpy.typing as npt

from psephos.numbers import count_text

FIGURE_WIDTH = 460.0
PANEL_WIDTH = 226.0
PLOT_HEIGHT = 190.0
LETTER = 6.6
"""The width of a letter of a label, about."""


class Scale(NamedTuple):
    """Numbers to pixels, in a straight line."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low or 1.0
        return self.start + (value - self.low) / span * (self.end - self.start)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Round numbers between two ends.

    >>> ticks(0, 23)
    [0.0, 5.0, 10.0, 15.0, 20.0]
    """
    span = high - low or 1.0
    size = 10.0 ** math.floor(math.log10(span / most))
    step = next(size * k for k in (1, 2, 5, 10) if span / (size * k) <= most)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [step * k + 0.0 for k in range(first, last + 1)]


def short_number(value: float) -> str:
    """A number on an axis.

    >>> short_number(1_200_000.0), short_number(1500.0), short_number(0.25)
    ('1.2 M', '1,500', '0.25')
    """
    if abs(value) >= 1e6:
        return f"{count_text(value / 1e6, 3).rstrip('0').rstrip('.')} M"
    text = count_text(value, 3)
    return text.rstrip("0").rstrip(".") if "." in text else text


def _n(number: float) -> str:
    text = f"{number:.1f}"
    return text[:-2] if text.endswith(".0") else text


@dataclass(frozen=True)
class Frame:
    """What the pictures of one figure share: the ends of their scale and their width."""

    low: float
    high: float
    width: float
    values: str

    @classmethod
    def of(cls, extent: tuple[float, float], *, small: bool, values: str) -> Frame:
        """The frame of some numbers; small for one of several panels."""
        low, high = extent
        return cls(low, high or 1.0, PANEL_WIDTH if small else FIGURE_WIDTH, values)

    def rows(self, labels: Sequence[str], step: float, name: str, title: str) -> RowPicture:
        """Labels one below the other, bars to the right."""
        return RowPicture(self, name, title, tuple(labels), step)

    def run(self, labels: Sequence[str], ends: Sequence[float], name: str, title: str) -> Run:
        """Values that follow each other from the left to the right."""
        return Run(self, name, title, tuple(labels), tuple(ends))

    def heat(
        self, labels: tuple[Sequence[str], Sequence[str]], name: str, titles: tuple[str, str]
    ) -> HeatMap:
        """A grid of cells; labels and titles are those of its rows, then of its columns."""
        (down, across), (title, title_across) = labels, titles
        wide = (self.width - 14) / max(1, len(across))
        step = min(24.0, max(13.0, wide / 2))
        return HeatMap(self, name, title, tuple(down), step, tuple(across), title_across)


@dataclass
class Picture(ABC):
    """Marks in a frame; `svg` puts axes and words around them."""

    frame: Frame
    name: str
    title: str
    labels: tuple[str, ...]
    marks: list[str] = field(default_factory=list, init=False)

    @property
    def top(self) -> float:
        return 34.0 if self.name else 18.0

    @property
    @abstractmethod
    def height(self) -> float:
        """Of the whole, in pixels."""

    @abstractmethod
    def _axes(self) -> list[str]:
        """Axes and their words."""

    def svg(self, description: str) -> str:
        """The whole picture, for a page."""
        width, height = _n(self.frame.width), _n(self.height)
        words = [_text(0, 12, self.name, "panel")] if self.name else []
        inside = "".join([*self._axes(), *self.marks, *words])
        return (
            f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img" '
            f'aria-label="{escape(description)}">{inside}</svg>'
        )


@dataclass
class RowPicture(Picture):
    """Bars from the left."""

    step: float = 18.0

    @property
    def left(self) -> float:
        longest = max((len(label) for label in self.labels), default=0)
        return min(longest * LETTER + 14, self.frame.width * 0.42)

    @property
    def height(self) -> float:
        return self.top + self.step * len(self.labels) + 22

    @property
    def scale(self) -> Scale:
        return Scale(self.frame.low, self.frame.high, self.left, self.frame.width - 14)

    def row(self, i: int) -> float:
        """The top of a row."""
        return self.top + i * self.step

    def bar(
        self,
        y: float,
        thickness: float,
        numbers: tuple[float, float, float],
        colour: int,
        words: str,
        bare: bool,
    ) -> float:
        """A number as a bar with its interval; returns how wide that is in pixels."""
        value, low, high = (self.scale(number) for number in numbers)
        zero = self.scale(0.0)
        x, width = min(zero, value), abs(value - zero)
        rule = "" if bare else f'<path d="M{_n(low)} {_n(y + thickness / 2)}H{_n(high)}"/>'
        self.marks.append(
            f'<g class="s{colour}"><title>{escape(words)}</title><rect x="{_n(x)}" y="{_n(y)}" '
            f'width="{_n(width)}" height="{_n(thickness)}"/>{rule}</g>'
        )
        return high - low

    def _axes(self) -> list[str]:
        bottom = self.height - 18
        pieces = _value_axis_below(self.scale, self.top, bottom, self.frame)
        pieces.append(_text(self.scale.end, self.top - 6, self.frame.values, "axis", "end"))
        return pieces + self._row_labels()

    def _row_labels(self) -> list[str]:
        """What the rows are called, and above them what tells them apart."""
        room = max(3, round((self.left - 14) / LETTER))
        half = round(self.frame.width / 2 / LETTER)
        pieces = [_text(0, self.top - 6, _cut(self.title, half), "axis", "", self.title)]
        for i, label in enumerate(self.labels):
            y = self.row(i) + self.step / 2 + 4
            pieces.append(_text(self.left - 6, y, _cut(label, room), "", "end", label))
        return pieces


@dataclass
class HeatMap(RowPicture):
    """Cells in a grid, as dark as their numbers are large."""

    across: tuple[str, ...] = ()
    title_across: str = ""

    @property
    def height(self) -> float:
        return super().height + 18

    def _column(self, j: float) -> float:
        return Scale(0.0, len(self.across), self.left, self.frame.width - 14)(j)

    def cell(self, i: int, j: int, strength: float, words: str) -> None:
        """A number as a cell of a strength from 0 to 1."""
        left, width = self._column(j), self._column(j + 1) - self._column(j)
        self.marks.append(
            f'<g class="s1"><title>{escape(words)}</title><rect x="{_n(left)}" '
            f'y="{_n(self.row(i))}" width="{_n(max(0.5, width - 0.8))}" '
            f'height="{_n(self.step - 0.8)}" fill-opacity="{max(0.03, strength):.2f}"/></g>'
        )

    def _axes(self) -> list[str]:
        bottom = self.row(len(self.labels))
        middles = [self._column(j + 0.5) for j in range(len(self.across))]
        pieces = _labels_below(self.across, middles, self.frame.width, bottom + 14)
        title = _text(self.frame.width - 14, bottom + 32, self.title_across, "axis", "end")
        return [*self._row_labels(), *pieces, title]


@dataclass
class Run(Picture):
    """Values that follow each other, numbers upwards."""

    ends: tuple[float, ...] = ()

    @property
    def height(self) -> float:
        return self.top + self._plot + 40

    @property
    def _plot(self) -> float:
        return PLOT_HEIGHT if self.frame.width == FIGURE_WIDTH else PLOT_HEIGHT * 0.6

    @property
    def left(self) -> float:
        words = [short_number(tick) for tick in ticks(self.frame.low, self.frame.high)]
        return max(len(word) for word in words) * LETTER + 10

    @property
    def up(self) -> Scale:
        return Scale(self.frame.low, self.frame.high, self.top + self._plot, self.top)

    @property
    def along(self) -> Scale:
        return Scale(0.0, 1.0, self.left, self.frame.width - 12)

    def _middle(self, i: int) -> float:
        start = self.ends[i - 1] if i else 0.0
        return self.along((start + self.ends[i]) / 2)

    def column(self, i: int, numbers: tuple[float, ...], words: str, bare: bool) -> float:
        """A number as a bar over its values, with its interval; returns how tall that is."""
        left, right = self.along(self.ends[i - 1] if i else 0.0), self.along(self.ends[i])
        value, low, high = (self.up(number) for number in numbers)
        zero, middle = self.up(0.0), (left + right) / 2
        rule = "" if bare else f'<path d="M{_n(middle)} {_n(low)}V{_n(high)}"/>'
        self.marks.append(
            f'<g class="s1"><title>{escape(words)}</title><rect x="{_n(left)}" '
            f'y="{_n(min(zero, value))}" width="{_n(max(0.5, right - left - 0.8))}" '
            f'height="{_n(abs(zero - value))}"/>{rule}</g>'
        )
        return low - high

    def curve(
        self,
        at: Sequence[int],
        numbers: tuple[npt.NDArray[Any], ...],
        colour: int,
        words: str,
        steps: bool,
        bare: bool,
    ) -> float:
        """Numbers as a line, or as steps, in the band of their intervals; its greatest height."""
        value, low, high = ([self.up(float(y)) for y in each] for each in numbers)
        path = self._steps if steps else self._points
        line = path(at, value)
        band = ""
        if not bare:
            above, below = path(at, high), path(at, low)
            outline = [*above, *reversed(below)]
            band = f'<path class="band" d="{_path(outline)}Z"/>'
        title = f"<title>{escape(words)}</title>" if words else ""
        self.marks.append(
            f'<g class="s{colour}">{title}{band}<path class="line" d="{_path(line)}"/></g>'
        )
        return max(b - a for a, b in zip(high, low, strict=True))

    def _points(self, at: Sequence[int], heights: Sequence[float]) -> list[tuple[float, float]]:
        return [(self._middle(i), y) for i, y in zip(at, heights, strict=True)]

    def _steps(self, at: Sequence[int], heights: Sequence[float]) -> list[tuple[float, float]]:
        """Up at the end of each value, since what lies below it is counted there."""
        corners: list[tuple[float, float]] = []
        last = self.up(0.0)
        for i, y in zip(at, heights, strict=True):
            x = self.along(self.ends[i])
            corners += [(x, last), (x, y)]
            last = y
        return [(self.along(0.0), self.up(0.0)), *corners]

    def _axes(self) -> list[str]:
        bottom, right = self.top + self._plot, self.frame.width - 12
        pieces = []
        for tick in ticks(self.frame.low, self.frame.high):
            y = self.up(tick)
            look = "zero" if tick == 0 else "grid"
            pieces.append(f'<path class="{look}" d="M{_n(self.left)} {_n(y)}H{_n(right)}"/>')
            pieces.append(_text(self.left - 5, y + 4, short_number(tick), "", "end"))
        pieces.append(_text(0, self.top - 6, self.frame.values, "axis"))
        pieces.append(_text(right, bottom + 34, self.title, "axis", "end"))
        middles = [self._middle(i) for i in range(len(self.labels))]
        return pieces + _labels_below(self.labels, middles, self.frame.width, bottom + 17)


def _labels_below(
    labels: Sequence[str], middles: Sequence[float], right: float, y: float
) -> list[str]:
    """As many labels as fit side by side."""
    pieces, free = [], -math.inf
    for label, place in zip(labels, middles, strict=True):
        text = _cut(label, 18)
        half = len(text) * LETTER / 2
        middle = min(max(place, half), right - half)
        if middle - half > free:
            pieces.append(_text(middle, y, text, "", "middle", label))
            free = middle + half + 8
    return pieces


def _value_axis_below(scale: Scale, top: float, bottom: float, frame: Frame) -> list[str]:
    pieces = []
    most = 5 if frame.width == FIGURE_WIDTH else 2
    for tick in ticks(frame.low, frame.high, most):
        x = scale(tick)
        look = "zero" if tick == 0 else "grid"
        pieces.append(f'<path class="{look}" d="M{_n(x)} {_n(top)}V{_n(bottom)}"/>')
        pieces.append(_text(x, bottom + 13, short_number(tick), "", "middle"))
    return pieces


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points)


def _text(x: float, y: float, words: str, look: str = "", anchor: str = "", whole: str = "") -> str:
    """A text, with the whole of it for those who point at it where it was cut."""
    attributes = f' class="{look}"' if look else ""
    attributes += f' text-anchor="{anchor}"' if anchor else ""
    title = f"<title>{escape(whole)}</title>" if whole and whole != words else ""
    return f'<text x="{_n(x)}" y="{_n(y)}"{attributes}>{escape(words)}{title}</text>'


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: max(1, room - 1)]}…"
