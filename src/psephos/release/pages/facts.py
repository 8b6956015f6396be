"""What the page of a release says of it, tables aside: numbers as text, words that depend on it.

All of it is public: what was asked, the noisy numbers and what follows from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from psephos.domain.attribute import Attribute
from psephos.kernel.budget import Budget
from psephos.numbers import count_text, digits_for, plus_minus
from psephos.release.bundle.requests import ReleaseRequest
from psephos.release.methods.kind import PersonsRequest
from psephos.release.methods.plan_forecast import PlanForecast
from psephos.release.pages.words import (
    amount_text,
    budget_text,
    confidence_text,
    question,
    unit_text,
    whole_spend,
)
from psephos.release.preflight.forecast import Forecast, TableError
from psephos.release.spec.entries import ReleaseFile, TableEntry, View
from psephos.release.spec.job import Job
from psephos.release.views.held_cells import held_words
from psephos.release.views.statistics import count_rows
from psephos.release.views.views import Views
from psephos.report.html import Cell, HtmlTable, Pairs
from psephos.report.page import (
    Groups,
    IntervalMethod,
    PlanFacts,
    Questions,
    Rivals,
    Shifts,
    SyntheticFacts,
)
from psephos.synthesis.quality import MISUSES, RIVALS

UNKNOWN_ENTRIES = {
    "drop": "their rows are left out",
    "clip": "numbers beyond the ends count in the first or last cell, all else is left out",
    "other": "they count in a cell of their own, “(other)”",
}


@dataclass(frozen=True, eq=False)
class ReleaseFacts:
    """What was planned, what came out, and the charges if there are any.

    Attributes:
        forecast: the plan, of the best strategy or of a plan that adapts to the data
        views: the numbers
        requests: what was asked, each with its receipt
        persons: the tables that count persons, each with its receipt
        reason: why the best strategy was measured, where "auto" decided that
    """

    forecast: Forecast | PlanForecast
    views: Views
    requests: Sequence[ReleaseRequest[Any]] = ()
    persons: Sequence[PersonsRequest] = ()
    reason: str = ""

    @property
    def job(self) -> Job:
        return self.forecast.job

    @property
    def file(self) -> ReleaseFile:
        return self.job.file

    @property
    def adaptive(self) -> PlanForecast | None:
        """The forecast of a plan that adapts to the data, if that made the release."""
        return self.forecast if isinstance(self.forecast, PlanForecast) else None

    @property
    def measured(self) -> Forecast:
        """The forecast of the best strategy."""
        return self.forecast.measured if isinstance(self.forecast, PlanForecast) else self.forecast

    @property
    def view(self) -> View:
        """The view that the page shows."""
        return "published" if "published" in self.views.kinds else "consistent"

    @cached_property
    def titles(self) -> Mapping[str, str]:
        """What attributes are called."""
        return self.job.titles

    @property
    def spend(self) -> Budget:
        """What the release cost, tables of persons included."""
        return whole_spend(self.job, self.forecast.budget)

    @property
    def receipt(self) -> Mapping[str, Any]:
        """That of the last charge for tables of rows."""
        return self.requests[-1].receipt if self.requests else {}

    @property
    def last_receipt(self) -> Mapping[str, Any]:
        """That of the last charge: tables of persons are paid for after those of rows."""
        return self.persons[-1].receipt if self.persons else self.receipt

    @property
    def charge(self) -> Mapping[str, Any] | None:
        """The ledger's own record, if it was handed in."""
        charge: Mapping[str, Any] | None = self.receipt.get("charge")
        return charge

    def along(self, names: Sequence[str]) -> str:
        """What numbers are counted by."""
        return " × ".join(self.titles.get(name, name) for name in names)

    def title_of(self, name: str) -> str:
        """What a table is called."""
        return next(table.title for table in self.job.tables if table.name == name)


def key_figures(release: ReleaseFacts) -> Pairs:
    """The release in a few numbers."""
    plan = release.adaptive
    made_by = () if plan is None else (f"{plan.method.name}, a plan that adapts to the data",)
    return (
        ("Numbers", f"{release.job.workload.shape[0]:,}"),
        ("Spent", _cost_text(release)),
        ("Unit of privacy", unit_text(release.job.unit)),
        *(("Made by", words) for words in made_by),
        *_typical_noise(release),
        ("Numbers shown", _numbers_shown(release)),
    )


def _cost_text(release: ReleaseFacts) -> str:
    """What the release cost, and what the data set has spent with it."""
    text = budget_text(release.spend)
    if release.persons:
        rows = budget_text(release.forecast.budget)
        spends = ", ".join(budget_text(request.spend) for request in release.persons)
        text += f": {rows} for tables of rows, {spends} for those of persons"
    if release.charge is not None:
        limit, total = (amount_text(release.last_receipt[key]) for key in ("budget", "spent"))
        text += f"; with it {total} of {limit} that this data set may ever spend"
    return text


def _typical_noise(release: ReleaseFacts) -> Pairs:
    if not release.views.has_errors:
        return ()
    counting = count_rows(release.job.tables, release.job.questions)
    half = release.views.widths.per_query[counting if counting.size else slice(None)]
    digits = digits_for(float(half.min()))
    typical, low, high = (
        plus_minus(float(width), digits) for width in (np.median(half), half.min(), half.max())
    )
    words = typical if low == high else f"{typical} (from {low} to {high})"
    return ((f"Typical noise, {confidence_text(release.job)} interval", words),)


def _numbers_shown(release: ReleaseFacts) -> str:
    """What the numbers on the page are like."""
    whole = "whole, never negative, " if release.view == "published" else ""
    if release.adaptive is not None:
        return f"{whole}they add up, and they are biased"
    if not whole:
        return "unbiased, and they add up" if release.views.has_errors else "they add up"
    groups = release.views.groups
    inside = "" if groups is None or len(groups.rules) == 1 else " inside each group of tables"
    return f"{whole}and they add up{inside}"


# ---- what was asked ----------------------------------------------------------------------------


def questions_of(release: ReleaseFacts) -> Questions:
    """Schema, facts, impossible cells and tables."""
    return Questions(
        cells=f"{release.job.domain.size_text}",
        schema=_schema(release),
        facts=tuple(release.file.facts),
        zeros=tuple(release.file.zeros),
        tables=_question_table(release),
    )


def _schema(release: ReleaseFacts) -> HtmlTable:
    rows: list[list[str | Cell]] = []
    for name, entry in release.file.attributes.items():
        attribute = release.job.domain[name]
        rows.append(
            [
                Cell(release.titles[name], name=name),
                attribute.some_values(),
                _levels(attribute),
                UNKNOWN_ENTRIES[entry.unknown],
                entry.fact or "–",
                f"{attribute.size:,}",
            ]
        )
    heads = ["Attribute", "Values", "Groupings", "Entries that are not declared"]
    heads += ["Why this is public", "Cells"]
    return HtmlTable.of("Public schema", heads, rows, text_columns=5)


def _levels(attribute: Attribute) -> str:
    levels = [f"{level.name} ({len(level.labels):,})" for level in attribute.levels]
    return ", ".join(levels) or "–"


def _question_table(release: ReleaseFacts) -> HtmlTable:
    rows = [
        [
            Cell(entry.title or entry.name, name=entry.name),
            question(entry),
            _target_text(entry, error),
            f"{entry.weight:g}",
            f"{error.queries:,}",
        ]
        for entry, error in zip(release.file.tables, release.measured.tables, strict=True)
    ]
    heads = ["Table", "Question", "Target", "Weight", "Numbers"]
    return HtmlTable.of("Tables", heads, rows, text_columns=3)


def _target_text(entry: TableEntry, error: TableError) -> str:
    if error.target is None:
        return "–"
    confidence = ""
    if entry.target is not None:
        together = ", all at once" if entry.target.simultaneous else ""
        confidence = f"{float(entry.target.confidence) * 100:g} %{together}"
    return f"± {error.target.half_width:g} at {confidence}"


# ---- how precise it is -------------------------------------------------------------------------


def plan_facts(release: ReleaseFacts) -> PlanFacts | None:
    """A plan that adapts to the data: its simulated errors, beside the exact ones of measuring."""
    forecast = release.adaptive
    if forecast is None:
        return None
    rows = [
        [table.title, *map(gap_text, (table.published, table.rmse, exact.rmse))]
        for table, exact in zip(forecast.tables, forecast.measured.tables, strict=True)
    ]
    heads = ["Table", "Published, simulated", "Estimate, simulated", "Best strategy, exact"]
    return PlanFacts(
        forecast.method.name,
        forecast.method.reason,
        forecast.stand_in,
        HtmlTable.of("Root mean squared errors, in rows", heads, rows),
        held_words(forecast.job),
        forecast.without_data_words,
    )


def rivals_of(release: ReleaseFacts) -> Rivals | None:
    """The error of other strategies at the same budget; not beside a plan's, which is simulated."""
    if release.adaptive is not None:
        return None
    forecast = release.measured
    errors = [(forecast.strategy.name, forecast.rmse), *((r.name, r.rmse) for r in forecast.rivals)]
    digits = digits_for(min(error for _, error in errors))
    rows = [
        [
            Cell(f"{name} (used)", look="strong") if k == 0 else name,
            count_text(error, digits),
            f"{error / forecast.rmse:,.2f} ×" if forecast.rmse > 0 else "–",
        ]
        for k, (name, error) in enumerate(errors)
    ]
    heads = ["Way of measuring", "Error", "Beside the one used"]
    table = HtmlTable.of("Error at the same budget", heads, rows)
    return Rivals(table, _errors_by_table(forecast), release.reason)


def _errors_by_table(forecast: Forecast) -> HtmlTable | None:
    """The plain mechanisms, table by table."""
    rivals = [rival for rival in forecast.rivals if rival.tables]
    if not rivals:
        return None
    rows = []
    for k, table in enumerate(forecast.tables):
        errors = [table.rmse, *(rival.tables[k] for rival in rivals)]
        rows.append([table.title, *(count_text(error, digits_for(table.rmse)) for error in errors)])
    heads = ["Table", f"{forecast.strategy.name} (used)", *(rival.name for rival in rivals)]
    return HtmlTable.of("Error of each table at the same budget", heads, rows)


# ---- how to read them --------------------------------------------------------------------------


def shifts_of(release: ReleaseFacts) -> Shifts | None:
    """How far the published view is from the unbiased one, where there is one."""
    views = release.views
    if "published" not in views.kinds:
        return None
    rows = [
        [
            table.title,
            release.along(shift.by) or "nothing: the total",
            f"{shift.numbers:,}",
            gap_text(shift.mean),
        ]
        for table in views.published_tables
        for shift in views.shifts(table)
    ]
    heads = ["Table", "Counts by", "Numbers", "Mean shift (estimate)"]
    gaps, total = views.distance, views.total_gap
    distances = [
        ("Largest distance between the two views", gap_text(gaps.largest)),
        ("Root mean square distance", gap_text(gaps.root_mean_square)),
    ]
    if gaps.in_standard_errors is not None:
        words = count_text(gaps.in_standard_errors, 2)
        distances.append(("Largest distance, in standard errors", words))
    if total is not None:
        doubt = " (more than noise explains)" if total.is_wide else ""
        distances.append(("Number of rows", f"{total}{doubt}"))
    caption = "Estimated shift of the published view, in rows"
    return Shifts(HtmlTable.of(caption, heads, rows, text_columns=2), tuple(distances))


def groups_of(release: ReleaseFacts) -> Groups | None:
    """The groups of published tables, and how far they are apart."""
    groups = release.views.groups
    shown = groups is not None and "published" in release.views.kinds
    gap = release.views.published.disagreement if shown else None
    if groups is None or gap is None:
        return None
    rows = [
        [
            str(g + 1),
            release.along(groups.attributes(g)),
            ", ".join(release.title_of(name) for name in groups.table_names(g)),
            f"{groups.grouping.cells(g):,}",
        ]
        for g in range(len(groups.rules))
    ]
    by = release.along(gap.attributes) or "nothing: the total"
    where = f" (counts by {by})" if gap.largest else ""
    rows_apart = f"{gap.largest:,} row{'' if gap.largest == 1 else 's'}"
    facts = (
        ("Largest difference of a number between two groups", f"{rows_apart}{where}"),
        ("Root mean square difference", gap_text(gap.root_mean_square)),
        ("Numbers that two groups or more tell", f"{gap.numbers:,}"),
    )
    heads = ["Group", "Attributes", "Tables", "Combinations"]
    table = HtmlTable.of("Groups of published tables", heads, rows, text_columns=3)
    left_out = tuple((release.title_of(name), why) for name, why in groups.left_out.items())
    return Groups(table, facts, left_out)


def gap_text(gap: float) -> str:
    """A distance in rows, with the digits that mean something."""
    return count_text(gap, digits_for(abs(gap)))


def interval_method(release: ReleaseFacts) -> IntervalMethod | None:
    """How the noise intervals were computed; None where there are none."""
    if not release.views.has_errors:
        return None
    widths, misses = release.views.widths, 1 - float(release.file.output.confidence)
    return IntervalMethod(widths.method, widths.draws, f"{misses * 100:.3g}")


def synthetic_of(release: ReleaseFacts) -> SyntheticFacts | None:
    """The made-up rows of a release, if it has any."""
    quality, choice = release.views.quality, release.job.synthetic_choice
    if quality is None:
        return None
    facts = (
        ("Rows", f"{quality.rows:,}"),
        *([] if choice is None else [("Made by", f"{choice.method}: {choice.reason}")]),
        ("Largest gap to the model", f"{count_text(quality.largest, 1)} rows, over all tables"),
        ("Mean gap to the model", f"{count_text(quality.mean, 2)} rows"),
    )
    heads = ["Tables", "How many", "Made-up rows", *(name.capitalize() for name in RIVALS)]
    rows = [
        [each.tables.capitalize(), f"{each.number:,}"]
        + [f"{gap:.3f}" for gap in (each.sample, *(each.rivals[name] for name in RIVALS))]
        for each in quality.distances
    ]
    table = HtmlTable.of("Distance from the model", heads, rows) if rows else None
    return SyntheticFacts(facts, table, MISUSES)
