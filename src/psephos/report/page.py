"""The page of a release: one file of HTML that needs no network, no script and no other file.

The words that are the same for all releases stand in templates/; what differs is in `Page`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from psephos.report import charts
from psephos.report.html import HtmlTable, render
from psephos.report.points import PART, Points, shape_of

STYLE_SHEET = Path(__file__).parent / "page.css"
Pairs = tuple[tuple[str, str], ...]
"""Names and what they are, as a list of facts shows them."""


CHART_CAPTIONS = {
    "bars": "Bars are counts; the lines across them are {} noise intervals.",
    "groups": "Bars are counts; the lines across them are {} noise intervals.",
    "panels": "Lines across bars, or bands around lines, are {} noise intervals.",
    "line": "The line runs through the counts; the band is made of {} noise intervals.",
    "lines": "Lines run through the counts; bands are made of {} noise intervals.",
    "heat": "The stronger the colour, the larger the count; {} noise intervals are in the table.",
}


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


@dataclass(frozen=True, eq=False)
class TableChart:
    """What the chart of a table draws, and what a screen reader says of it."""

    data: pa.Table
    ordered: Sequence[str]
    titles: Mapping[str, str]
    description: str
    confidence: str | None
    """Of the intervals; None where there are none."""

    def svg(self, prefix: str) -> str:
        """The chart; ids in it begin with the prefix."""
        chart = charts.table_chart(self.data, "", ordered=self.ordered, titles=self.titles)
        return charts.inline_svg(chart, prefix, self.description)

    @property
    def caption(self) -> str:
        """How to read the chart."""
        if self.confidence is None:
            return "Counts without intervals: how far they are off is not known."
        points = Points.of(self.data)
        if PART in points.labels:
            return CHART_CAPTIONS["panels"].format(self.confidence)
        shape, _ = shape_of(points.without_totals().distinct(), self.ordered)
        return CHART_CAPTIONS[shape].format(self.confidence)


@dataclass(frozen=True)
class ErrorChart:
    """Errors at the same budget: of the way that is used, which comes first, and of others."""

    errors: tuple[tuple[str, float], ...]
    description: str

    def svg(self, prefix: str) -> str:
        """The chart; ids in it begin with the prefix."""
        return charts.inline_svg(charts.errors_chart(self.errors), prefix, self.description)


@dataclass(frozen=True)
class Result:
    """One table with its numbers, and a chart if charts can be made."""

    title: str
    name: str
    table: HtmlTable
    chart: TableChart | None
    precision: str


@dataclass(frozen=True)
class Rivals:
    """The error of other ways at the same budget: in all, as a chart if there is one, by table."""

    errors: HtmlTable
    chart: ErrorChart | None
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
    plots_extra: str | None
    """What installs the packages for charts, where they are missing."""
    glance: Pairs
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
