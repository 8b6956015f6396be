"""The page of a release as HTML: key figures, every table with its figure, and an annex."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from psephos.release.methods.kind import PersonsRequest
from psephos.release.pages.facts import (
    ReleaseFacts,
    budget_text,
    cost_text,
    groups_of,
    guarantee_of,
    interval_method,
    questions_of,
    rivals_of,
    shifts_of,
    spending_of,
    synthetic_of,
    unit_text,
)
from psephos.release.pages.results import results_of
from psephos.release.preflight.forecast import Forecast
from psephos.release.views.statistics import count_rows
from psephos.release.views.views import Views
from psephos.report.numbers import digits_for, plus_minus
from psephos.report.page import Page, Pairs, PlanFacts, Rivals, Spending, page_html
from psephos.version import __version__


def write_report(
    forecast: Forecast,
    views: Views,
    place: Path,
    receipt: Mapping[str, Any] | None = None,
    reason: str = "",
    persons: Sequence[PersonsRequest] = (),
) -> None:
    """Write the page of a release.

    Args:
        forecast: what was planned, with its rivals
        views: the numbers
        place: where the page goes
        receipt: the ledger's record of the charge, as it lies in the bundle
        reason: why the best strategy was measured, where "auto" decided that
        persons: the tables that count persons
    """
    page = page_of(ReleaseFacts(forecast, views, receipt or {}, tuple(persons)), reason)
    place.write_text(page_html(page), encoding="utf-8")


def page_of(release: ReleaseFacts, reason: str = "") -> Page:
    """All that the page shows of a release; the reason is why no other plan was taken."""
    spending, rivals = spending_of(release), replace(rivals_of(release), reason=reason)
    return framed_page(release, _key_figures(release), spending, rivals)


def framed_page(
    release: ReleaseFacts,
    key_figures: Pairs,
    spending: Spending,
    rivals: Rivals | None,
    plan: PlanFacts | None = None,
) -> Page:
    """The page around what differs between releases by a strategy and by a plan that adapts."""
    file, unit = release.file, release.job.unit
    charge, tables = release.charge, results_of(release)
    total: Pairs = () if tables.total is None else (("Rows in all", tables.total),)
    total = (*total, ("Tables", f"{len(tables.results):,}"))
    paragraphs = (part.strip() for part in file.description.split("\n\n"))
    return Page(
        title=file.title or file.name,
        publisher=file.publisher,
        description=tuple(part for part in paragraphs if part),
        simulation=release.simulation,
        maker=f"psephos {__version__}",
        year=None if charge is None else str(charge["time"])[:4],
        budget=budget_text(release.spend),
        unit=unit_text(unit),
        confidence=release.confidence,
        view=release.view,
        views=release.bundle_views,
        published_left_out="published" in file.output.views and release.view != "published",
        person_rows=None if unit.person is None else unit.max_rows,
        key_figures=(*total, *key_figures),
        contents=tables.contents,
        questions=questions_of(release),
        spending=spending,
        results=tables.results,
        rivals=rivals,
        shifts=shifts_of(release) if "published" in release.bundle_views else None,
        groups=groups_of(release),
        guarantee=guarantee_of(release.spend),
        intervals=interval_method(release),
        plan=plan,
        synthetic=synthetic_of(release),
    )


def _key_figures(release: ReleaseFacts) -> Pairs:
    """The release in a few numbers."""
    cost = cost_text(release)
    noise: Pairs = ()
    if release.views.has_errors:
        counting = count_rows(release.job.tables, release.job.questions)
        half = release.views.widths.per_query[counting if counting.size else slice(None)]
        digits = digits_for(float(half.min()))
        typical, low, high = (
            plus_minus(float(width), digits) for width in (np.median(half), half.min(), half.max())
        )
        words = typical if low == high else f"{typical} (from {low} to {high})"
        noise = ((f"Typical noise, {release.confidence} interval", words),)
    return (
        ("Numbers", f"{release.job.workload.shape[0]:,}"),
        ("Spent", cost),
        ("Unit of privacy", unit_text(release.job.unit)),
        *noise,
        (
            "Numbers shown",
            _numbers_shown(release),
        ),
    )


def _numbers_shown(release: ReleaseFacts) -> str:
    """What the numbers on the page are like."""
    if release.view != "published":
        return "unbiased, and they add up" if release.views.has_errors else "they add up"
    groups = release.views.groups
    if groups is None or len(groups.rules) == 1:
        return "whole, never negative, and they add up"
    return "whole, never negative, and they add up inside each group of tables"
