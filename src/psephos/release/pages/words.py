"""Words that pages, formats and parts of a release share: budgets, units, guarantees, questions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from psephos.kernel.budget import Budget
from psephos.kernel.unit import Unit
from psephos.numbers import amount, upwards
from psephos.release.methods.persons import persons_spend
from psephos.release.spec.entries import TableEntry
from psephos.release.spec.job import Job
from psephos.report.html import Cell, Pairs
from psephos.report.page import Guarantee, PageHead
from psephos.version import __version__

READOUT_DELTA = "1e-6"
"""The δ at which a guarantee in ρ is read out as ε."""
CURRENCY_SYMBOLS = {"epsilon": "ε", "rho": "ρ"}


def page_head(job: Job, spend: Budget, simulation: bool, key_figures: Pairs) -> PageHead:
    """What all pages begin with."""
    file = job.file
    paragraphs = (part.strip() for part in file.description.split("\n\n"))
    return PageHead(
        title=file.title or file.name,
        publisher=file.publisher,
        description=tuple(part for part in paragraphs if part),
        simulation=simulation,
        maker=f"psephos {__version__}",
        budget=budget_text(spend),
        unit=unit_text(job.unit),
        confidence=confidence_text(job),
        guarantee=guarantee_of(spend),
        key_figures=key_figures,
    )


def confidence_text(job: Job) -> str:
    """`95 %`."""
    return f"{float(job.file.output.confidence) * 100:g} %"


def budget_text(budget: Budget) -> str:
    """`ε = 0.1`."""
    return f"{CURRENCY_SYMBOLS[budget.currency]} = {amount(budget.amount)}"


def amount_text(entry: Sequence[str]) -> str:
    """A budget as receipts write it: its currency and its amount."""
    currency, value = entry
    return f"{CURRENCY_SYMBOLS[currency]} = {amount(Fraction(value))}"


def whole_spend(job: Job, rows: Budget) -> Budget:
    """What tables of rows and of persons cost together, in the currency of the ledger."""
    if not job.persons:
        return rows
    currency = job.file.ledger.budget().currency
    return rows.booked(currency) + persons_spend(job.persons, currency)


def unit_text(unit: Unit) -> str:
    """How neighbouring data sets differ, in words."""
    row = "one row" if unit.person is None else "all rows of one person"
    verb = "replaced by others" if unit.person is not None else "replaced by another"
    text = f"{row} {'added or removed' if unit.change == 'add_remove' else verb}"
    if unit.person is None:
        return text
    cap = f"at most {unit.max_rows} row{'s' * (unit.max_rows > 1)}"
    return f"{text} (persons are named by “{unit.person}”; {cap} of each are counted)"


def guarantee_of(budget: Budget) -> Guarantee:
    """The ε of a budget, and about how much its power of e is."""
    concentrated = budget.currency == "rho"
    if concentrated:
        text = upwards(budget.at_delta(READOUT_DELTA).amount)
        bound = float(text)
    else:
        text, bound = amount(budget.amount), float(budget.amount)
    factor = f"{math.exp(bound):,.3g}" if bound < 10 else f"{math.exp(min(bound, 700)):.1e}"
    return Guarantee(concentrated, text, factor)


def question(entry: TableEntry) -> str | Cell:
    """What a table asks, as it was written."""
    if entry.sql is not None:
        return Cell(entry.sql.strip(), look="code")
    if entry.queries is not None:
        return "queries: " + ", ".join(f"{name}: {text}" for name, text in entry.queries.items())
    if entry.builder is not None:
        size = f"of {entry.k}" if entry.k is not None else f"of up to {entry.up_to}"
        size = "" if entry.builder == "sf1" else f" {size} attributes"
        among = f" among {', '.join(entry.attributes)}" if entry.attributes else ""
        return f"{entry.builder.replace('_', ' ')}{size}{among}"
    parts = {
        "by": entry.by,
        "rows": entry.rows,
        "columns": entry.columns,
        "broken down by": entry.breakdowns,
    }
    words = "; ".join(f"{name}: {', '.join(names)}" for name, names in parts.items() if names)
    if entry.statistic is not None:
        levels = f" at {', '.join(f'{p:g}' for p in entry.quantiles)}" if entry.quantiles else ""
        whole = f" of the {entry.share_of or 'total'}" if entry.statistic == "share" else ""
        what = f"{entry.statistic}{whole}{f' of {entry.of}' if entry.of else ''}{levels}"
        words = f"{what}; {words}" if words else what
    return f"{words}; with{'' if entry.totals else 'out'} totals"
