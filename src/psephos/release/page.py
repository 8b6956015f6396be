"""The release for people: one page of HTML that needs no network, no script and no other file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from psephos.release.forecast import Forecast
from psephos.release.pages import asked, front, meaning, numbers, spent
from psephos.release.pages.facts import Facts
from psephos.release.views import Views
from psephos.report import charts
from psephos.report.html import Html, joined, tag

SECTIONS: list[tuple[str, str, Callable[[Facts], Html]]] = [
    ("asked", "What was asked", asked.asked),
    ("spent", "What was spent", spent.spent),
    ("tables", "The tables", numbers.numbers),
    ("rivals", "Accuracy beside other ways", spent.rivals),
    ("views", "Which view is which", meaning.views),
    ("privacy", "Privacy", meaning.privacy),
    ("intervals", "Intervals", meaning.intervals),
    ("limits", "Limits", meaning.limits),
    ("verify", "Verify and ask", meaning.verify),
    ("cite", "Cite", meaning.cite),
]


def write_report(
    plan: Forecast, views: Views, place: Path, receipt: Mapping[str, Any] | None = None
) -> None:
    """Write the page; all it holds is public: what was asked, the noisy numbers and what follows.

    Args:
        plan: what was planned, with its rivals
        views: the numbers
        place: where the page goes
        receipt: the ledger's record of the charge, as it lies in the bundle
    """
    place.write_text(page(Facts(plan, views, receipt or {})), encoding="utf-8")


def page(of: Facts) -> str:
    """The whole page."""
    made = [make(of) for _, _, make in SECTIONS]
    links = front.contents([(name, title) for name, title, _ in SECTIONS])
    mark = "Rehearsal: " if of.simulation else ""
    top = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", f"{mark}{of.title}"),
        tag("style", Html(style_sheet())),
    )
    body = tag(
        "body",
        front.head(of),
        tag("main", front.glance(of), links, joined(made)),
        tag("footer", front.banner(of), f"Made with {of.maker}."),
    )
    return f"<!DOCTYPE html>\n{tag('html', top, body, lang='en')}\n"


def style_sheet() -> str:
    """How the page looks: on light and dark screens, on phones and on paper."""
    return (Path(charts.__file__).parent / "page.css").read_text(encoding="utf-8")
