"""The page of a release, put together from its facts and tables and written as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from psephos.release.forecast import Forecast
from psephos.release.page_facts import (
    ReleaseFacts,
    amount_text,
    budget_text,
    guarantee_of,
    interval_method,
    questions_of,
    rivals_of,
    shifts_of,
    spending_of,
    unit_text,
)
from psephos.release.page_results import result_of
from psephos.release.views import Views
from psephos.report import charts
from psephos.report.number_format import digits_for, plus_minus
from psephos.report.page import Page, Pairs, page_html
from psephos.version import __version__


def write_report(
    forecast: Forecast, views: Views, place: Path, receipt: Mapping[str, Any] | None = None
) -> None:
    """Write the page of a release.

    Args:
        forecast: what was planned, with its rivals
        views: the numbers
        place: where the page goes
        receipt: the ledger's record of the charge, as it lies in the bundle
    """
    page = page_of(ReleaseFacts(forecast, views, receipt or {}))
    place.write_text(page_html(page), encoding="utf-8")


def page_of(release: ReleaseFacts) -> Page:
    """All that the page shows of a release."""
    file, unit = release.file, release.job.unit
    charge = release.charge
    paragraphs = (part.strip() for part in file.description.split("\n\n"))
    return Page(
        title=file.title or file.name,
        publisher=file.publisher,
        description=tuple(part for part in paragraphs if part),
        simulation=release.simulation,
        maker=f"psephos {__version__}",
        year=None if charge is None else str(charge["time"])[:4],
        budget=budget_text(release.forecast.budget),
        unit=unit_text(unit),
        confidence=release.confidence,
        view=release.view,
        views=release.bundle_views,
        published_left_out="published" in file.output.views and release.view != "published",
        person_rows=None if unit.person is None else unit.max_rows,
        plots_extra=None if release.plots else charts.PLOTS_EXTRA,
        glance=_glance(release),
        questions=questions_of(release),
        spending=spending_of(release),
        results=tuple(result_of(release, k) for k in range(len(release.job.tables))),
        rivals=rivals_of(release),
        shifts=shifts_of(release) if "published" in release.bundle_views else None,
        guarantee=guarantee_of(release.forecast.budget),
        intervals=interval_method(release),
    )


def _glance(release: ReleaseFacts) -> Pairs:
    """The release in one box."""
    cost = budget_text(release.forecast.budget)
    if release.charge is not None:
        limit, sum_of_costs = (amount_text(release.receipt[key]) for key in ("budget", "spent"))
        cost += f"; with it {sum_of_costs} of {limit} that this data set may ever spend"
    half = release.views.widths.per_query
    digits = digits_for(float(half.min()))
    typical, low, high = (
        plus_minus(float(width), digits) for width in (np.median(half), half.min(), half.max())
    )
    published = release.view == "published"
    return (
        ("Tables", f"{len(release.job.tables):,}"),
        ("Numbers", f"{release.job.workload.shape[0]:,}"),
        ("Spent", cost),
        ("Unit of privacy", unit_text(release.job.unit)),
        (
            f"Typical noise, {release.confidence} interval",
            typical if low == high else f"{typical} (from {low} to {high})",
        ),
        (
            "Numbers shown",
            "whole, never negative, and they add up" if published else "unbiased, and they add up",
        ),
    )
