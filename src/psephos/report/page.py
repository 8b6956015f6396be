"""The page of a release: one file of HTML that needs no network, no script and no other file.

The words that are the same for all releases stand in templates/; what differs is in `Page`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from psephos.report.html import HtmlTable, render

STYLE_SHEET = Path(__file__).parent / "page.css"
Pairs = tuple[tuple[str, str], ...]
"""Names and what they are, as a list of facts shows them."""


@dataclass(frozen=True)
class Questions:
    """What was asked: the public schema, the facts it rests on, and the tables."""

    cells: str
    schema: HtmlTable
    facts: tuple[str, ...]
    zeros: tuple[str, ...]
    tables: HtmlTable


@dataclass(frozen=True)
class Spending:
    """What was spent and on what."""

    facts: Pairs
    blocks: HtmlTable
    weighted: bool
    """Some blocks count a row more than once."""


@dataclass(frozen=True)
class Result:
    """One table with its numbers, and a chart as SVG if charts can be made."""

    title: str
    name: str
    table: HtmlTable
    chart: str | None
    chart_caption: str
    outliers: bool
    """Some published counts lie outside their intervals."""
    precision: str


@dataclass(frozen=True)
class Rivals:
    """The error of other ways at the same budget: in all, as a chart if there is one, by table."""

    errors: HtmlTable
    chart: str | None
    by_table: HtmlTable | None


@dataclass(frozen=True)
class Shifts:
    """How far the published view lies from the consistent one."""

    table: HtmlTable
    distances: Pairs


@dataclass(frozen=True)
class Guarantee:
    """The privacy guarantee in symbols: no result is more than e^epsilon times as likely."""

    concentrated: bool
    """In ρ, read out as ε at δ = 10⁻⁶; else in ε alone."""
    epsilon: str
    factor: str


@dataclass(frozen=True)
class IntervalMethod:
    """How the widths of intervals were computed, and how many of 100 miss."""

    method: str
    draws: int
    misses: str


@dataclass(frozen=True)
class Page:
    """Everything on the page that depends on the release; all of it is public."""

    title: str
    publisher: str
    description: tuple[str, ...]
    simulation: bool
    maker: str
    year: str | None
    budget: str
    unit: str
    confidence: str
    view: str
    views: tuple[str, ...]
    published_left_out: bool
    """The published view was to be written, but the domain has too many cells for it."""
    person_rows: int | None
    """The most rows of a person that are counted; None if the unit is a row."""
    plots_extra: str | None
    """What installs the packages for charts, where they are missing."""
    glance: Pairs
    questions: Questions
    spending: Spending
    results: tuple[Result, ...]
    rivals: Rivals
    shifts: Shifts | None
    guarantee: Guarantee
    intervals: IntervalMethod


def page_html(page: Page) -> str:
    """The whole page as HTML."""
    return render("page.html", page=page, style=STYLE_SHEET.read_text(encoding="utf-8"))
