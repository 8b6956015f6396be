"""The head of the page: what it is, who publishes it, and the release at a glance."""

from __future__ import annotations

import numpy as np

from psephos.release.pages.facts import Facts, budget_text, entry_text, paragraphs, unit_text
from psephos.report.html import Html, digits_for, facts, joined, plus_minus, section, tag


def banner(of: Facts) -> Html:
    """A loud word if the numbers are made up."""
    if not of.simulation:
        return Html()
    return tag(
        "p",
        "REHEARSAL on made-up data. ",
        "No number on this page says anything about real people.",
        class_="rehearsal",
        role="note",
    )


def head(of: Facts) -> Html:
    """Title, publisher, description."""
    by = tag("p", of.file.publisher, class_="publisher") if of.file.publisher else Html()
    return tag(
        "header", tag("h1", of.title), by, banner(of), paragraphs(of.file.description), class_="top"
    )


def glance(of: Facts) -> Html:
    """The release in one box."""
    tables, numbers = len(of.job.tables), of.job.workload.shape[0]
    spent = budget_text(of.plan.budget)
    if of.charge is not None:
        whole, by_then = (entry_text(of.receipt[key]) for key in ("budget", "spent"))
        spent += f"; with it {by_then} of {whole} that this data set may ever spend"
    half = of.views.widths.per_query
    digits = digits_for(float(half.min()))
    typical, low, high = (plus_minus(float(x), digits) for x in (np.median(half), *_ends(half)))
    spread = typical if low == high else f"{typical} (from {low} to {high})"
    pairs = [
        ("Tables", f"{tables:,}"),
        ("Numbers", f"{numbers:,}"),
        ("Spent", spent),
        ("Unit of privacy", unit_text(of.job.unit)),
        (f"Typical noise, {of.confidence} interval", spread),
        (
            "Numbers shown",
            "whole, never negative, and they add up"
            if of.view == "published"
            else "unbiased, and they add up",
        ),
    ]
    return tag("div", section("glance", "At a glance", facts(pairs)), class_="glance")


def contents(sections: list[tuple[str, str]]) -> Html:
    """Links to all sections."""
    links = (tag("li", tag("a", title, href=f"#{name}")) for name, title in sections)
    return tag("nav", tag("ul", joined(links)), aria_label="Contents")


def _ends(half: np.ndarray) -> tuple[float, float]:
    return float(half.min()), float(half.max())
