"""A chart as one picture: the figures of a report with their words, as SVG that needs nothing else.

Colours are those of the page's style sheet by day, written out, since programs that show SVG know
no variables; the paper is white, so that a chart reads alike on dark pages.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from psephos.errors import UnsupportedError
from psephos.report.drawing import FIGURE_WIDTH, LETTER
from psephos.report.html import STYLE_SHEET

if TYPE_CHECKING:
    from psephos.report.figures import Figure, LegendKey

MARGIN, LINE, GAP = 12.0, 17.0, 16.0
"""Of a picture: around it, from line to line of its words, and between its pieces; in pixels."""
CHARTS_EXTRA = "pip install 'psephos[plots]'"


@dataclass(frozen=True)
class Chart:
    """A chart of one table or of several: a notebook shows it, and `save` writes it.

    Attributes:
        title: what it is called
        svg: the picture
    """

    title: str
    svg: str = field(repr=False)

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as .svg, as .html, where numbers show when pointed at, or as .png.

        PNG needs the extra `plots`.
        """
        place = Path(path)
        if place.suffix == ".svg":
            place.write_text(self.svg, encoding="utf-8")
        elif place.suffix == ".html":
            head = f'<meta charset="utf-8"><title>{escape(self.title)}</title>'
            place.write_text(f"<!DOCTYPE html>\n{head}\n{self.svg}\n", encoding="utf-8")
        elif place.suffix == ".png":
            place.write_bytes(_png(self.svg))
        else:
            raise UnsupportedError(f"a chart is saved as .svg, .html or .png, got {place.name!r}")


def stacked(title: str, figures: Sequence[tuple[str, str, Figure]], note: str = "") -> Chart:
    """Figures one below the other, each under what it is called and what holds for all of it."""
    sheet = _Sheet()
    sheet.write(title, "title")
    sheet.write(note, "soft")
    for name, fixed, figure in figures:
        sheet.height += GAP / 2 if name else 0
        sheet.write(name, "title")
        sheet.write(fixed, "soft")
        sheet.legend(figure.legend)
        sheet.panels(figure)
        sheet.write(figure.caption, "soft")
    return Chart(title, sheet.svg(title))


@dataclass
class _Sheet:
    """Pieces one below the other."""

    height: float = MARGIN
    pieces: list[str] = field(default_factory=list)

    def write(self, words: str, look: str) -> None:
        """Words in as many lines as they need."""
        for line in textwrap.wrap(words, int(FIGURE_WIDTH / LETTER * 1.05)):
            self.height += LINE
            self.pieces.append(_words(MARGIN, self.height - 4, line, look))

    def legend(self, keys: Sequence[LegendKey]) -> None:
        """What colours and marks stand for, side by side while there is room."""
        left = MARGIN
        self.height += LINE + GAP / 4
        for key in keys:
            width = 20 + len(key.text) * LETTER + GAP
            if left > MARGIN and left + width > FIGURE_WIDTH + MARGIN:
                left, self.height = MARGIN, self.height + LINE
            self.pieces.append(_mark(key.look, left, self.height - 4))
            self.pieces.append(_words(left + 20, self.height - 4, key.text, "soft"))
            left += width
        self.height += GAP / 2

    def panels(self, figure: Figure) -> None:
        """As many charts beside each other as fit the width."""
        left, tallest = MARGIN, 0.0
        for svg, (width, height) in zip(figure.chart, figure.sizes, strict=True):
            if left > MARGIN and left + width > FIGURE_WIDTH + GAP + MARGIN:
                self.height += tallest + GAP
                left, tallest = MARGIN, 0.0
            self.pieces.append(svg.replace("<svg", f'<svg x="{left:g}" y="{self.height:g}"', 1))
            left, tallest = left + width + GAP, max(tallest, height)
        self.height += tallest

    def svg(self, description: str) -> str:
        """The whole picture."""
        width, height = FIGURE_WIDTH + 2 * MARGIN + GAP, self.height + MARGIN
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="psephos" width="{width:g}" '
            f'height="{height:g}" viewBox="0 0 {width:g} {height:g}" role="img" '
            f'aria-label="{escape(description)}"><style>{_style()}</style>'
            f'<rect class="paper" width="100%" height="100%"/>{"".join(self.pieces)}</svg>'
        )


def _words(x: float, y: float, words: str, look: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{look}">{escape(words)}</text>'


def _mark(look: str, x: float, y: float) -> str:
    """The mark of a legend."""
    if look == "rule":
        return f'<g><path d="M{x:g} {y - 4:g}h14"/></g>'
    if look == "band":
        return f'<path class="shade" d="M{x:g} {y:g}h14v-9h-14Z"/>'
    shade = f' fill-opacity="{int(look[1:]) / 6:.2f}"' if look[0] == "h" else ""
    colour = "s1" if shade else look
    return f'<g class="{colour}"><rect x="{x:g}" y="{y - 9:g}" width="14" height="9"{shade}/></g>'


@cache
def _style() -> str:
    """How the marks of a figure look, as on a page by day, for this picture alone."""
    day = STYLE_SHEET.read_text(encoding="utf-8").split("}", 1)[0]
    colour = dict(re.findall(r"--([\w-]+): (#\w+)", day))
    return "".join(f".psephos {rule}" for rule in _rules(colour))


def _rules(colour: dict[str, str]) -> Iterator[str]:
    yield f"text{{fill:{colour['ink']};font:11.5px Arial,Liberation Sans,Helvetica,sans-serif}}"
    yield ".title{font-size:14px;font-weight:600}"
    yield ".panel{font-weight:600}"
    yield f".axis,.psephos .soft{{fill:{colour['soft']}}}"
    yield f".paper{{fill:{colour['paper']}}}"
    yield f".shade{{fill:{colour['soft']};fill-opacity:.4}}"
    yield f".grid{{stroke:{colour['rule']}}}"
    yield f".zero{{stroke:{colour['strong-rule']}}}"
    yield f"g path{{stroke:{colour['ink']};stroke-width:1.3;fill:none}}"
    yield "g rect{opacity:.7}"
    yield "g .line{stroke-width:1.8;stroke-linejoin:round}"
    for k in range(1, 6):
        mark = colour[f"s{k}"]
        yield f".s{k} rect{{fill:{mark}}}"
        yield f".s{k} .line{{stroke:{mark}}}"
        yield f".s{k} .band{{fill:{mark};fill-opacity:.25;stroke:none}}"


def _png(svg: str) -> bytes:
    try:
        import vl_convert
    except ImportError:
        raise UnsupportedError(f"PNG needs vl-convert: {CHARTS_EXTRA}") from None
    return bytes(vl_convert.svg_to_png(svg, scale=2))
