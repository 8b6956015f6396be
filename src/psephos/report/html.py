"""Tables as HTML, for notebooks and for the page of a release, with numbers as people read them.

One template sets all tables. Numbers have as many digits as mean something, and are exact where
they end soon.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from psephos.errors import ShapeError

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class IntervalBar:
    """A count and its noise interval as a small picture: places from 0 to 100, from the left."""

    start: float
    end: float
    low: float
    high: float


@dataclass(frozen=True)
class Cell:
    """A cell that is more than text: text in a look, text with a name in code, or a picture."""

    text: str = ""
    look: Literal["plain", "strong", "code"] = "plain"
    name: str = ""
    bar: IntervalBar | None = None


@dataclass(frozen=True)
class HtmlTable:
    """A table for people; every text in it is escaped when it is set.

    Attributes:
        caption: what the table is called
        heads: the columns' headings; a table may have none
        rows: the cells
        text_columns: on a page, the first columns that are text; the others are numbers
        under_heading: a heading says the same as the caption, which is then only read aloud
    """

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    text_columns: int = 1
    under_heading: bool = False

    def __post_init__(self) -> None:
        for row in self.rows:
            if self.heads and len(row) != len(self.heads):
                raise ShapeError(
                    f"the table {self.caption!r} has {len(self.heads)} headings, got a row of "
                    f"{len(row)} cells"
                )

    @classmethod
    def of(
        cls,
        caption: str,
        heads: Iterable[str],
        rows: Iterable[Sequence[str | Cell]],
        *,
        text_columns: int = 1,
        under_heading: bool = False,
    ) -> HtmlTable:
        """The table of any sequences."""
        cells = tuple(tuple(row) for row in rows)
        return cls(caption, tuple(heads), cells, text_columns, under_heading)


def notebook_html(*pieces: str | Cell | HtmlTable) -> str:
    """Paragraphs and tables for a notebook, which brings its own style.

    >>> print(notebook_html("1 < 2", HtmlTable.of("sizes", ["name"], [["<b>"]])))
    <p>1 &lt; 2</p>
    <table><caption>sizes</caption>
    <thead><tr><th scope="col">name</th></tr></thead>
    <tbody>
    <tr><td>&lt;b&gt;</td></tr>
    </tbody></table>
    """
    return render("notebook.html", pieces=pieces).strip()


def render(template: str, **context: Any) -> str:
    """A template of this room, filled in; what it does not know is an error, never a blank."""
    return environment().get_template(template).render(context)


@cache
def environment() -> Environment:
    """How templates are read: everything is escaped, nothing may be undefined."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined  # only when there is a page

    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def digits_for(spread: float) -> int:
    """How many decimals are worth printing beside noise of this size."""
    return 0 if spread >= 10 else 1 if spread >= 1 else 2


def count_text(value: Any, digits: int = 0) -> str:
    """A number as people read it, with a true minus sign.

    >>> count_text(-1234.56, 1)
    '−1,234.6'
    """
    text = f"{value:,}" if isinstance(value, int) else f"{_rounded(value, digits):,.{digits}f}"
    return text.replace("-", "−")


def _rounded(value: Any, digits: int) -> float:
    number = round(float(value), digits)
    return 0.0 if number == 0 else number  # no minus zero


def interval(low: Any, high: Any, digits: int) -> str:
    """An interval, rounded outwards so that it covers what it covered.

    >>> interval(1.21, 3.49, 1)
    '1.2 to 3.5'
    """
    down, up = bounds(low, high, digits)
    return f"{down:,} to {up:,}".replace("-", "−")


def bounds(low: Any, high: Any, digits: int) -> tuple[Decimal, Decimal]:
    """The ends of an interval as they are shown."""
    step = Decimal(1).scaleb(-digits)
    down = Decimal(str(low)).quantize(step, ROUND_FLOOR)
    return down, Decimal(str(high)).quantize(step, ROUND_CEILING)


def amount(value: Fraction, digits: int = 4) -> str:
    """An exact amount: as a decimal where it ends soon, else as a fraction and about what it is.

    >>> amount(Fraction(1, 10)), amount(Fraction(1, 3))
    ('0.1', '1/3 (about 0.3333)')
    """
    if (value * 10**6).denominator == 1:
        return f"{float(value):.6f}".rstrip("0").rstrip(".")
    about = f"about {float(value):.{digits}g}"
    return f"{value} ({about})" if value.denominator < 10**6 else about


def plus_minus(half: float, digits: int) -> str:
    """A half-width; the sign stays with its number."""
    return f"±\N{NO-BREAK SPACE}{count_text(half, digits)}"


def upwards(value: Fraction, digits: int = 3) -> str:
    """A bound as a decimal that is not less.

    >>> upwards(Fraction(1, 3))
    '0.334'
    """
    if value == 0:
        return "0"
    place = max(0, digits - 1 - math.floor(math.log10(value)))
    return f"{math.ceil(value * 10**place) / 10**place:.{place}f}"
