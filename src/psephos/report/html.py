"""Pieces of HTML: text is escaped unless it is markup already."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from html import escape
from typing import Any

EMPTY = {"br", "meta", "img"}


class Html(str):
    """Markup; any other text is escaped when it is put inside an element."""

    __slots__ = ()


def tag(name: str, /, *inside: str, **attributes: str) -> Html:
    """An element; `class_` stands for class, and `aria_label` for aria-label.

    >>> tag("p", "1 < 2, ", tag("b", "so"), class_="note")
    '<p class="note">1 &lt; 2, <b>so</b></p>'
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
    )
    if name in EMPTY:
        return Html(f"<{name}{shown}>")
    return Html(f"<{name}{shown}>{joined(inside)}</{name}>")


def joined(pieces: Iterable[str]) -> Html:
    """Pieces one after the other, escaped where they are not markup."""
    return Html("".join(p if isinstance(p, Html) else escape(p, quote=False) for p in pieces))


def section(name: str, title: str, *inside: str) -> Html:
    """A section under its heading, which names it."""
    heading = tag("h2", title, id=f"{name}-title")
    return tag("section", heading, *inside, id=name, aria_labelledby=f"{name}-title")


def table(
    caption: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    texts: int = 1,
    headed: bool = False,
) -> Html:
    """A table whose first columns are text and the others numbers; the first cell heads its row.

    Where a heading says the same as the caption (`headed`), the caption is only read aloud.
    """
    kinds = ["" if i < texts else "number" for i in range(len(heads))]
    top = [
        tag("th", head, scope="col", **_classed(kind))
        for head, kind in zip(heads, kinds, strict=True)
    ]
    body = []
    for row in rows:
        first, *rest = row
        cells = [tag("td", cell, **_classed(k)) for cell, k in zip(rest, kinds[1:], strict=True)]
        body.append(tag("tr", tag("th", first, scope="row", **_classed(kinds[0])), *cells))
    made = tag(
        "table",
        tag("caption", caption, **_classed("aloud" if headed else "")),
        tag("thead", tag("tr", *top)),
        tag("tbody", *body),
    )
    return tag("div", made, class_="scroll", tabindex="0", role="region", aria_label=caption)


def plain_table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """A table for a notebook, which brings its own style."""
    top = tag("tr", *(tag("th", head, scope="col") for head in heads))
    body = [tag("tr", *(tag("td", cell) for cell in row)) for row in rows]
    return tag("table", tag("caption", caption), tag("thead", top), tag("tbody", *body))


def listed(items: Iterable[str]) -> Html:
    """A list of points."""
    return tag("ul", *(tag("li", item) for item in items))


def facts(pairs: Iterable[tuple[str, str]]) -> Html:
    """Names and what they are."""
    inside = (tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs)
    return tag("dl", *inside)


def _classed(kind: str) -> dict[str, str]:
    return {"class_": kind} if kind else {}


# ---- numbers -----------------------------------------------------------------------------------


def digits_for(spread: float) -> int:
    """How many decimals are worth printing beside noise of this size."""
    return 0 if spread >= 10 else 1 if spread >= 1 else 2


def count(value: Any, digits: int = 0) -> str:
    """A number as people read it, with a true minus sign.

    >>> count(-1234.56, 1)
    '−1,234.6'
    """
    shown = f"{value:,}" if isinstance(value, int) else f"{_plain(value, digits):,.{digits}f}"
    return shown.replace("-", "−")


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


def _plain(value: Any, digits: int) -> float:
    shown = round(float(value), digits)
    return 0.0 if shown == 0 else shown  # no minus zero


def amount(value: Fraction, digits: int = 4) -> str:
    """An exact amount: as a decimal where it ends soon, else as a fraction and about what it is.

    >>> amount(Fraction(1, 10)), amount(Fraction(1, 3))
    ('0.1', '1/3 (about 0.3333)')
    """
    if (value * 10**6).denominator == 1:
        return f"{float(value):.6f}".rstrip("0").rstrip(".")
    near = f"about {float(value):.{digits}g}"
    return f"{value} ({near})" if value.denominator < 10**6 else near


def plus_minus(half: float, digits: int) -> str:
    """A half-width; the sign stays with its number."""
    return f"±\N{NO-BREAK SPACE}{count(half, digits)}"


def upwards(value: Fraction, digits: int = 3) -> str:
    """A bound as a decimal that is not less.

    >>> upwards(Fraction(1, 3))
    '0.334'
    """
    if value == 0:
        return "0"
    place = max(0, digits - 1 - math.floor(math.log10(value)))
    return f"{math.ceil(value * 10**place) / 10**place:.{place}f}"
