"""The page of a release that a plan made which adapts to the data: no intervals, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from psephos.kernel.measurement import Measurement
from psephos.release.methods.kind import PersonsRequest, named_plan
from psephos.release.methods.plan_forecast import PlanForecast
from psephos.release.methods.plan_steps import PlannedRequest
from psephos.release.pages.facts import (
    CHARGE,
    NOISE_NAMES,
    ReleaseFacts,
    cost_text,
    ledger_facts,
    spent_text,
    unit_text,
)
from psephos.release.pages.page import framed_page
from psephos.release.views.held_cells import held_words
from psephos.release.views.labels import row_multiplicity
from psephos.release.views.views import Views
from psephos.report.html import Cell, HtmlTable
from psephos.report.numbers import count_text, digits_for
from psephos.report.page import Page, Pairs, PlanFacts, Spending, page_html

REQUEST_WORDS = {
    "measure": "noisy counts",
    "choose": "the choice of a query",
    "partition": "groups of cells",
    "draw": "numbers of queries that records undercount",
    "count": "noisy counts of single values",
}


def write_plan_report(
    forecast: PlanForecast,
    views: Views,
    place: Path,
    requests: Sequence[PlannedRequest],
    persons: Sequence[PersonsRequest] = (),
) -> None:
    """Write the page of a plan's release; `persons` are its tables that count persons."""
    page = plan_page(forecast, views, requests, persons)
    place.write_text(page_html(page), encoding="utf-8")


def plan_page(
    forecast: PlanForecast,
    views: Views,
    requests: Sequence[PlannedRequest],
    persons: Sequence[PersonsRequest] = (),
) -> Page:
    """All that the page shows of the release."""
    release = ReleaseFacts(forecast.measured, views, requests[-1].receipt, tuple(persons))
    facts = PlanFacts(
        forecast.method.name,
        forecast.method.reason,
        forecast.stand_in,
        _errors(forecast),
        held_words(forecast.job),
        forecast.without_data_words,
    )
    spending = _spending(release, forecast, requests)
    return framed_page(release, _key_figures(release, forecast), spending, None, facts)


def _key_figures(release: ReleaseFacts, forecast: PlanForecast) -> Pairs:
    cost = cost_text(release)
    whole = release.view == "published"
    return (
        ("Numbers", f"{release.job.workload.shape[0]:,}"),
        ("Spent", cost),
        ("Unit of privacy", unit_text(release.job.unit)),
        ("Made by", f"{forecast.method.name}, a plan that adapts to the data"),
        (
            "Numbers shown",
            "whole, never negative, they add up, and they are biased"
            if whole
            else "they add up, and they are biased",
        ),
    )


def _spending(
    release: ReleaseFacts, forecast: PlanForecast, requests: Sequence[PlannedRequest]
) -> Spending:
    """The charges, request by request."""
    plan, outline = named_plan(forecast.method.name), forecast.method.outline(release.job)
    by = "" if plan is None or not plan.reference else f" ({plan.reference})"
    edition = release.file.edition
    facts = (
        ("Spent on this release", spent_text(release)),
        ("Unit of privacy", unit_text(release.job.unit)),
        *([("Edition of the data", edition)] if edition else []),
        ("Noise", f"{NOISE_NAMES[release.job.noise]}, exact, in whole numbers"),
        ("Plan", f"{forecast.method.name}{by}"),
        *([("Played in", outline)] if outline else []),
        *(
            (f"Last of {len(requests)} charges", words) if name == CHARGE else (name, words)
            for name, words in ledger_facts(release)
        ),
    )
    measurements = iter(release.views.estimate.steps)
    rows: list[list[str | Cell]] = []
    for step, request in enumerate(requests):
        price = request.price(forecast.budget.currency)
        share = float(price.amount / forecast.budget.amount)
        spread = answers = "–"
        if request.question.kind == "measure":
            answers, spread = f"{len(request.values):,}", _spread(next(measurements))
        elif request.question.kind == "count":
            answers = f"{len(request.values):,}"
        words = f"{step + 1}. {REQUEST_WORDS[request.question.kind]}"
        rows.append([words, answers, spread, f"{share * 100:.3g} %"])
    heads = ["Request", "Noisy numbers", "Standard deviation of the noise, in rows"]
    table = HtmlTable.of("Requests", [*heads, "Share of the budget"], rows)
    return Spending(facts, table, weighted=False)


def _spread(measurement: Measurement) -> str:
    """The standard deviation of its noise in rows, or from the least of its blocks to the most."""
    spreads = [
        math.sqrt(noise.exact_variance) / row_multiplicity(block.matrix)
        for noise, block in zip(measurement.noise, measurement.query.blocks, strict=True)
    ]
    words = [count_text(size, digits_for(size)) for size in (min(spreads), max(spreads))]
    return " to ".join(dict.fromkeys(words))


def _errors(forecast: PlanForecast) -> HtmlTable:
    """Simulated errors, beside the exact ones of measuring."""
    pairs = zip(forecast.tables, forecast.measured.tables, strict=True)
    rows: list[list[str | Cell]] = [
        [
            table.title,
            count_text(table.published, digits_for(table.published)),
            count_text(table.rmse, digits_for(table.rmse)),
            count_text(exact.rmse, digits_for(exact.rmse)),
        ]
        for table, exact in pairs
    ]
    heads = ["Table", "Published, simulated", "Estimate, simulated", "Best strategy, exact"]
    return HtmlTable.of("Root mean squared errors, in rows", heads, rows)
