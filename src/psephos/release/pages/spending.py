"""What a release spent and on what: charges, and blocks or requests with their noise."""

from __future__ import annotations

import math
from collections.abc import Iterator

from psephos.kernel.measurement import Measurement
from psephos.matrix import Identity, Kron, Matrix, Ones
from psephos.release.methods.kind import named_plan
from psephos.release.methods.plan_forecast import PlanForecast
from psephos.release.pages.facts import ReleaseFacts, gap_text
from psephos.release.pages.words import amount_text, budget_text, unit_text
from psephos.release.verify.verification import times_text
from psephos.release.views.labels import row_multiplicity
from psephos.report.html import HtmlTable, Pairs
from psephos.report.page import Spending

NOISE_NAMES = {"laplace": "discrete Laplace", "gaussian": "discrete Gaussian"}
REQUEST_WORDS = {
    "measure": "noisy counts",
    "choose": "the choice of a query",
    "partition": "groups of cells",
    "draw": "numbers of queries that records undercount",
    "count": "noisy counts of single values",
}


def spending_of(release: ReleaseFacts) -> Spending:
    """The charges, and what they were spent on."""
    spent = budget_text(release.spend)
    if release.persons:
        spent += f", of which {budget_text(release.forecast.budget)} for tables of rows"
    noise, edition = NOISE_NAMES[release.measured.strategy.noise], release.file.edition
    facts = (
        ("Spent on this release", spent),
        ("Unit of privacy", unit_text(release.job.unit)),
        *([("Edition of the data", edition)] if edition else []),
        ("Noise", f"{noise}, exact, in whole numbers"),
        *_made_by(release),
        *_charge_facts(release),
        *_persons_facts(release),
    )
    heads = ["Noisy numbers", "Standard deviation of the noise, in rows", "Share of the budget"]
    if release.adaptive is not None:
        rows = _request_rows(release, release.adaptive)
        return Spending(facts, HtmlTable.of("Requests", ["Request", *heads], rows), weighted=False)
    table = HtmlTable.of("Measured blocks", ["What was counted", *heads], _block_rows(release))
    weighted = any(row_multiplicity(block.matrix) > 1 for block in release.views.blocks)
    return Spending(facts, table, weighted)


def _made_by(release: ReleaseFacts) -> Iterator[tuple[str, str]]:
    """The strategy, or the plan and what is known of its steps; and what it builds on."""
    forecast = release.adaptive
    if forecast is None:
        yield "Chosen strategy", release.measured.strategy.name
    else:
        plan, outline = named_plan(forecast.method.name), forecast.method.outline(release.job)
        by = "" if plan is None or not plan.reference else f" ({plan.reference})"
        yield "Plan", f"{forecast.method.name}{by}"
        if outline:
            yield "Played in", outline
    if release.job.past:
        past = "; ".join(f"{each.name} ({budget_text(each.spend)})" for each in release.job.past)
        yield "Builds on measurements of", f"{past}, each charged when it was made"


def _charge_facts(release: ReleaseFacts) -> Pairs:
    if release.views.simulation:
        return (("Ledger", "none: a rehearsal costs nothing"),)
    charge, receipt = release.charge, release.last_receipt
    if charge is None:
        return ()
    steps = len(release.requests)
    name = "Charge in the ledger" if release.adaptive is None else f"Last of {steps} charges"
    cost, anchor = amount_text(charge["booked"]), receipt["anchor"]
    past, persons = release.job.past, release.persons
    receipts = [release.receipt, *(r.receipt for r in past), *(r.receipt for r in persons)]
    times = times_text(receipts)
    return (
        ("Data set", str(receipt["dataset"])),
        *([("Rows", times)] if times else []),
        ("Budget for all its releases", amount_text(receipt["budget"])),
        ("Spent of it, this release included", amount_text(receipt["spent"])),
        (name, f"{cost}, entry {charge['number']}, {charge['time']}"),
        (
            f"Ledger's head after {'the release' if release.persons else 'it'}",
            f"{anchor['entries']} entries, {str(anchor['head'])[:16]}…",
        ),
    )


def _persons_facts(release: ReleaseFacts) -> Iterator[tuple[str, str]]:
    """What tables of persons cost, each by itself."""
    for request in release.persons:
        charge = request.receipt.get("charge")
        entry = "" if charge is None else f", entry {charge['number']}, {charge['time']}"
        yield f"Persons: {request.question.title}", f"{budget_text(request.spend)}{entry}"


def _block_rows(release: ReleaseFacts) -> Iterator[list[str]]:
    """What a strategy measured, block by block."""
    blocks = zip(release.measured.blocks(), release.views.blocks, strict=True)
    for (_, answers, share), block in blocks:
        spread = math.sqrt(block.noise.exact_variance) / row_multiplicity(block.matrix)
        words = block_text(block.matrix, release)
        yield [words, f"{answers:,}", gap_text(spread), f"{share * 100:.3g} %"]


def block_text(matrix: Matrix, release: ReleaseFacts) -> str:
    """What a block counts, in words where it has a product form."""
    domain = release.job.workload.domain
    fits = isinstance(matrix, Kron) and tuple(f.shape[1] for f in matrix.factors) == domain.shape
    if not fits or not isinstance(matrix, Kron):
        sums = matrix.shape[0]
        return f"{sums:,} sums over cells" if sums > 1 else "one sum over cells"
    words = []
    for name, factor in zip(domain.names, matrix.factors, strict=True):
        title = release.titles.get(name, name)
        if isinstance(factor, Identity):
            words.append(f"every value of {title}")
        elif not (isinstance(factor, Ones) and factor.shape[0] == 1):
            words.append(f"{factor.shape[0]:,} sums over values of {title}")
    return " × ".join(words) or "all rows together"


def _request_rows(release: ReleaseFacts, forecast: PlanForecast) -> Iterator[list[str]]:
    """What a plan asked, step by step."""
    measurements = iter(release.views.estimate.steps)
    for step, request in enumerate(release.requests):
        kind = request.question.kind
        share = request.price(forecast.budget.currency).amount / forecast.budget.amount
        answers = f"{len(request.values):,}" if kind in ("measure", "count") else "–"
        spread = _spread(next(measurements)) if kind == "measure" else "–"
        words = f"{step + 1}. {REQUEST_WORDS[kind]}"
        yield [words, answers, spread, f"{float(share) * 100:.3g} %"]


def _spread(measurement: Measurement) -> str:
    """The standard deviation of its noise in rows, or from the least of its blocks to the most."""
    spreads = [
        math.sqrt(noise.exact_variance) / row_multiplicity(block.matrix)
        for noise, block in zip(measurement.noise, measurement.query.blocks, strict=True)
    ]
    words = [gap_text(size) for size in (min(spreads), max(spreads))]
    return " to ".join(dict.fromkeys(words))
