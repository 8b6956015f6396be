"""The page of a release: one file of HTML that needs no network, no script and no other file.

The words that are the same for all releases stand in templates/; what differs is in `Page`.
"""

from __future__ import annotations

from dataclasses import dataclass

from psephos.report.figures import Figure, LegendKey
from psephos.report.html import STYLE_SHEET, Cell, HtmlTable, render
from psephos.report.page_table import PageTable

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
    """One table with its numbers, its figure, notes, and where its files are.

    Attributes:
        anchor: its place on the page
        title: what it is called, with its number
        name: as the release file has it
        subtitle: what its numbers are, and what holds for all of them
        tables: the table, or its panels
        shades: what the shades of its cells stand for, if they are shaded
        figure: its chart, if it has one
        notes: its precision, and what the page leaves out
        question: what was asked, as it was written
        source: whose numbers these are
        downloads: what a file holds, and where it lies beside the page
    """

    anchor: str
    title: str
    name: str
    subtitle: str
    tables: tuple[PageTable, ...]
    shades: tuple[LegendKey, ...]
    figure: Figure | None
    notes: tuple[str, ...]
    question: str | Cell
    source: str
    downloads: Pairs


@dataclass(frozen=True)
class ContentsGroup:
    """Tables that belong together, by what they are called and where they are."""

    title: str
    links: Pairs


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
    key_figures: Pairs
    contents: tuple[ContentsGroup, ...]
    questions: Questions
    spending: Spending
    results: tuple[Result, ...]
    rivals: Rivals | None
    shifts: Shifts | None
    groups: Groups | None
    """Where there are too many cells for all published tables to be sums of them."""
    guarantee: Guarantee
    intervals: IntervalMethod | None
    plan: PlanFacts | None = None
    """Where a plan was run that adapts to the data; there are no intervals and rivals then."""
    synthetic: SyntheticFacts | None = None
    """Where rows were made up."""


def page_html(page: Page) -> str:
    """The whole page as HTML."""
    return render("page.html", page=page, style=STYLE_SHEET.read_text(encoding="utf-8"))
