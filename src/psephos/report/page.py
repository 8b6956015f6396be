"""The page of a release: one file of HTML that needs no network, no script and no other file.

The words that are the same for all releases stand in templates/; what differs is in `Page`.
"""

from __future__ import annotations

from dataclasses import dataclass

from psephos.report.figures import Figure
from psephos.report.html import STYLE_SHEET, HtmlTable, Pairs, render
from psephos.report.results import ContentsGroup, Result


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
class Rivals:
    """The error of other ways at the same budget: in all, and by table."""

    errors: HtmlTable
    by_table: HtmlTable | None
    reason: str = ""
    """Why the best strategy was measured, where the release file left that open."""


@dataclass(frozen=True)
class Shifts:
    """How far the published view lies from the consistent one."""

    table: HtmlTable
    distances: Pairs


@dataclass(frozen=True)
class Groups:
    """Groups of published tables, how far they are apart, and the tables that are in none."""

    table: HtmlTable
    facts: Pairs
    left_out: Pairs


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
class PlanFacts:
    """The plan that adapts to the data, why it was taken, and what it erred by in simulation."""

    name: str
    reason: str
    stand_in: str
    errors: HtmlTable
    held: str = ""
    without_data: str = ""
    """What the consistent view was made to hold."""


@dataclass(frozen=True)
class SyntheticFacts:
    """Made-up rows: how many, from what, how far from it, and what they are not for."""

    facts: Pairs
    distances: HtmlTable | None
    misuses: tuple[str, ...]


@dataclass(frozen=True)
class PageHead:
    """What every page begins with, and what it promises; all of it is public."""

    title: str
    publisher: str
    description: tuple[str, ...]
    simulation: bool
    maker: str
    budget: str
    unit: str
    confidence: str
    guarantee: Guarantee
    key_figures: Pairs


@dataclass(frozen=True)
class Page(PageHead):
    """Everything on the page of a release that depends on the release."""

    year: str | None
    view: str
    views: tuple[str, ...]
    published_left_out: bool
    """The published view was to be written, but the domain has too many cells for it."""
    person_rows: int | None
    """The most rows of a person that are counted; None if the unit is a row."""
    contents: tuple[ContentsGroup, ...]
    questions: Questions
    spending: Spending
    results: tuple[Result, ...]
    rivals: Rivals | None
    shifts: Shifts | None
    groups: Groups | None
    """Where there are too many cells for all published tables to be sums of them."""
    intervals: IntervalMethod | None
    plan: PlanFacts | None = None
    """Where a plan was run that adapts to the data; there are no intervals and rivals then."""
    synthetic: SyntheticFacts | None = None
    """Where rows were made up."""


@dataclass(frozen=True)
class PartsPage(PageHead):
    """Everything on the page of a release in parts that depends on the release.

    Attributes:
        levels: how many parts each level has, and its share of the budget
        errors: of a number of each table, level by level
        figure: the rows of each part of the first level
        tables: those of the whole, each with how many of its rows are left out
        first_level: what the largest parts are called
        last_level: what the smallest are called
        first_table: the folder of the first table
    """

    levels: HtmlTable
    errors: HtmlTable
    figure: Figure | None
    tables: tuple[tuple[HtmlTable, int], ...]
    first_level: str
    last_level: str
    first_table: str


def page_html(page: PageHead) -> str:
    """The whole page as HTML."""
    template = "parts.html" if isinstance(page, PartsPage) else "page.html"
    return render(template, page=page, style=STYLE_SHEET.read_text(encoding="utf-8"))
