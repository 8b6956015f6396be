"""The page of a release as HTML: its facts are gathered here, once, and set in `report`."""

from __future__ import annotations

from pathlib import Path

from psephos.release.pages.facts import (
    ReleaseFacts,
    groups_of,
    interval_method,
    key_figures,
    plan_facts,
    questions_of,
    rivals_of,
    shifts_of,
    synthetic_of,
)
from psephos.release.pages.spending import spending_of
from psephos.release.pages.tables import shown_tables
from psephos.release.pages.words import page_head
from psephos.report.page import Page, page_html
from psephos.report.results import page_results


def write_report(release: ReleaseFacts, place: Path) -> None:
    """Write the page of a release."""
    place.write_text(page_html(page_of(release)), encoding="utf-8")


def page_of(release: ReleaseFacts) -> Page:
    """All that the page shows of a release, whichever way it was made."""
    views, unit, charge = release.views, release.job.unit, release.charge
    head = page_head(release.job, release.spend, views.simulation, key_figures(release))
    questions, spending, rivals = questions_of(release), spending_of(release), rivals_of(release)
    shifts, groups, intervals = shifts_of(release), groups_of(release), interval_method(release)
    plan, synthetic = plan_facts(release), synthetic_of(release)
    tables = page_results(list(shown_tables(release)))  # the last: from here on, all is in `report`
    return Page(
        **{**vars(head), "key_figures": (*tables.figures, *head.key_figures)},
        year=None if charge is None else str(charge["time"])[:4],
        view=release.view,
        views=views.kinds,
        published_left_out="published" in release.file.output.views and release.view != "published",
        person_rows=None if unit.person is None else unit.max_rows,
        contents=tables.contents,
        questions=questions,
        spending=spending,
        results=tables.results,
        rivals=rivals,
        shifts=shifts,
        groups=groups,
        intervals=intervals,
        plan=plan,
        synthetic=synthetic,
    )
