"""What the page of a release says of it, tables aside: numbers as text, words that depend on it.

All of it is public: what was asked, the noisy numbers and what follows from them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from psephos.domain.attribute import Attribute
from psephos.kernel.budget import Budget
from psephos.kernel.unit import Unit
from psephos.matrix import Identity, Kron, Matrix, Ones
from psephos.release.methods.kind import PersonsRequest
from psephos.release.methods.persons import persons_spend
from psephos.release.preflight.forecast import Forecast, TableError
from psephos.release.spec.entries import ReleaseFile, TableEntry, View
from psephos.release.spec.job import Job
from psephos.release.verify.verification import times_text
from psephos.release.views.labels import row_multiplicity
from psephos.release.views.views import Views
from psephos.report.html import Cell, HtmlTable
from psephos.report.numbers import amount, count_text, digits_for, upwards
from psephos.report.page import (
    Groups,
    Guarantee,
    IntervalMethod,
    Pairs,
    Questions,
    Rivals,
    Shifts,
    Spending,
    SyntheticFacts,
)
from psephos.synthesis.quality import MISUSES, RIVALS

READOUT_DELTA = "1e-6"
"""The δ at which a guarantee in ρ is read out as ε."""
CHARGE = "Charge in the ledger"
CURRENCY_SYMBOLS = {"epsilon": "ε", "rho": "ρ"}
NOISE_NAMES = {"laplace": "discrete Laplace", "gaussian": "discrete Gaussian"}
UNKNOWN_ENTRIES = {
    "drop": "their rows are left out",
    "clip": "numbers beyond the ends count in the first or last cell, all else is left out",
    "other": "they count in a cell of their own, “(other)”",
}


@dataclass(frozen=True, eq=False)
class ReleaseFacts:
    """What was planned, what came out, and the charge if there is one."""

    forecast: Forecast
    views: Views
    receipt: Mapping[str, Any]
    persons: tuple[PersonsRequest, ...] = ()
    """The tables of persons, each with its receipt."""

    @property
    def job(self) -> Job:
        return self.forecast.job

    @property
    def file(self) -> ReleaseFile:
        return self.job.file

    @property
    def simulation(self) -> bool:
        return self.views.simulation

    @cached_property
    def bundle_views(self) -> tuple[View, ...]:
        """The views that are part of the bundle."""
        return self.views.kinds

    @property
    def view(self) -> View:
        """The view that the page shows."""
        return "published" if "published" in self.bundle_views else "consistent"

    @cached_property
    def titles(self) -> Mapping[str, str]:
        """What attributes are called."""
        return self.job.titles

    @property
    def confidence(self) -> str:
        return f"{float(self.file.output.confidence) * 100:g} %"

    @property
    def spend(self) -> Budget:
        """What the release cost, tables of persons included."""
        return whole_spend(self.job, self.forecast.budget)

    @property
    def last_receipt(self) -> Mapping[str, Any]:
        """That of the last charge: tables of persons are paid for after those of rows."""
        return self.persons[-1].receipt if self.persons else self.receipt

    @property
    def charge(self) -> Mapping[str, Any] | None:
        """The ledger's own record, if it was handed in."""
        charge: Mapping[str, Any] | None = self.receipt.get("charge")
        return charge


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
        for entry, error in zip(release.file.tables, release.forecast.tables, strict=True)
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


# ---- what was spent ----------------------------------------------------------------------------


def whole_spend(job: Job, rows: Budget) -> Budget:
    """What tables of rows and of persons cost together, in the currency of the ledger."""
    if not job.persons:
        return rows
    currency = job.file.ledger.budget().currency
    return rows.booked(currency) + persons_spend(job.persons, currency)


def spent_text(release: ReleaseFacts) -> str:
    """What the release cost, and which part of it was for tables of rows."""
    text = budget_text(release.spend)
    if release.persons:
        text += f", of which {budget_text(release.forecast.budget)} for tables of rows"
    return text


def spending_of(release: ReleaseFacts) -> Spending:
    """The charge, and the blocks it was spent on."""
    forecast, past = release.forecast, release.job.past
    edition = release.file.edition
    names = "; ".join(f"{each.name} ({budget_text(each.spend)})" for each in past)
    facts = [
        ("Spent on this release", spent_text(release)),
        ("Unit of privacy", unit_text(release.job.unit)),
        *([("Edition of the data", edition)] if edition else []),
        ("Noise", f"{NOISE_NAMES[forecast.strategy.noise]}, exact, in whole numbers"),
        ("Chosen strategy", forecast.strategy.name),
        *([("Builds on measurements of", f"{names}, each charged when it was made")] * bool(past)),
        *ledger_facts(release),
    ]
    weighted = any(row_multiplicity(block.matrix) > 1 for block in release.views.blocks)
    return Spending(tuple(facts), _blocks(release), weighted)


def cost_text(release: ReleaseFacts) -> str:
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


def persons_facts(release: ReleaseFacts) -> Pairs:
    """What tables of persons cost, each by itself."""
    facts = []
    for request in release.persons:
        charge = request.receipt.get("charge")
        entry = "" if charge is None else f", entry {charge['number']}, {charge['time']}"
        words = f"{budget_text(request.spend)}{entry}"
        facts.append((f"Persons: {request.question.title}", words))
    return tuple(facts)


def ledger_facts(release: ReleaseFacts) -> Pairs:
    """The charge, and what the data set has spent in all."""
    return (*_charge_facts(release), *persons_facts(release))


def _charge_facts(release: ReleaseFacts) -> Pairs:
    if release.simulation:
        return (("Ledger", "none: a rehearsal costs nothing"),)
    charge, receipt = release.charge, release.last_receipt
    if charge is None:
        return ()
    cost, anchor = amount_text(charge["booked"]), receipt["anchor"]
    last = "the release" if release.persons else "it"
    past, persons = release.job.past, release.persons
    receipts = [release.receipt, *(r.receipt for r in past), *(r.receipt for r in persons)]
    times = times_text(receipts)
    return (
        ("Data set", str(receipt["dataset"])),
        *([("Rows", times)] if times else []),
        ("Budget for all its releases", amount_text(receipt["budget"])),
        ("Spent of it, this release included", amount_text(receipt["spent"])),
        (CHARGE, f"{cost}, entry {charge['number']}, {charge['time']}"),
        (
            f"Ledger's head after {last}",
            f"{anchor['entries']} entries, {str(anchor['head'])[:16]}…",
        ),
    )


def _blocks(release: ReleaseFacts) -> HtmlTable:
    rows = []
    blocks = zip(release.forecast.blocks(), release.views.blocks, strict=True)
    for (_, answers, share), block in blocks:
        spread = math.sqrt(block.noise.exact_variance) / row_multiplicity(block.matrix)
        words = block_text(block.matrix, release)
        rows.append(
            [words, f"{answers:,}", count_text(spread, digits_for(spread)), f"{share * 100:.3g} %"]
        )
    heads = ["What was counted", "Noisy numbers", "Standard deviation of the noise, in rows"]
    return HtmlTable.of("Measured blocks", [*heads, "Share of the budget"], rows)


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


def rivals_of(release: ReleaseFacts) -> Rivals:
    """The error of other strategies at the same budget."""
    forecast = release.forecast
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
    return Rivals(table, _errors_by_table(forecast))


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


def shifts_of(release: ReleaseFacts) -> Shifts:
    """How far the published view is from the unbiased one."""
    rows = [
        [table.title, _by(release, shift.by), f"{shift.numbers:,}", _gap_text(shift.mean)]
        for table in release.views.published_tables
        for shift in release.views.shifts(table)
    ]
    heads = ["Table", "Counts by", "Numbers", "Mean shift (estimate)"]
    gaps = release.views.distance
    distances: Pairs = (
        ("Largest distance between the two views", _gap_text(gaps.largest)),
        ("Root mean square distance", _gap_text(gaps.root_mean_square)),
    )
    if gaps.in_standard_errors is not None:
        words = count_text(gaps.in_standard_errors, 2)
        distances = (*distances, ("Largest distance, in standard errors", words))
    if release.views.total_gap is not None:
        doubt = " (more than noise explains)" if release.views.total_gap.is_wide else ""
        distances = (*distances, ("Number of rows", f"{release.views.total_gap}{doubt}"))
    caption = "Estimated shift of the published view, in rows"
    return Shifts(HtmlTable.of(caption, heads, rows, text_columns=2), distances)


def groups_of(release: ReleaseFacts) -> Groups | None:
    """The groups of published tables, and how far they are apart."""
    groups = release.views.groups
    shown = groups is not None and "published" in release.bundle_views
    gap = release.views.published.disagreement if shown else None
    if groups is None or gap is None:
        return None
    rows = [
        [
            str(g + 1),
            " × ".join(release.titles.get(name, name) for name in groups.attributes(g)),
            ", ".join(title_of(release, name) for name in groups.table_names(g)),
            f"{groups.grouping.cells(g):,}",
        ]
        for g in range(len(groups.rules))
    ]
    where = f" (counts by {_by(release, gap.attributes)})" if gap.largest else ""
    rows_apart = f"{gap.largest:,} row{'' if gap.largest == 1 else 's'}"
    facts = (
        ("Largest difference of a number between two groups", f"{rows_apart}{where}"),
        ("Root mean square difference", _gap_text(gap.root_mean_square)),
        ("Numbers that two groups or more tell", f"{gap.numbers:,}"),
    )
    heads = ["Group", "Attributes", "Tables", "Combinations"]
    table = HtmlTable.of("Groups of published tables", heads, rows, text_columns=3)
    left_out = tuple((title_of(release, name), why) for name, why in groups.left_out.items())
    return Groups(table, facts, left_out)


def title_of(release: ReleaseFacts, name: str) -> str:
    """What a table is called."""
    return next(table.title for table in release.job.tables if table.name == name)


def _by(release: ReleaseFacts, names: tuple[str, ...]) -> str:
    return " × ".join(release.titles.get(name, name) for name in names) or "nothing: the total"


def _gap_text(gap: float) -> str:
    return count_text(gap, digits_for(abs(gap)))


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


def interval_method(release: ReleaseFacts) -> IntervalMethod | None:
    """How the noise intervals were computed; None where there are none."""
    if not release.views.has_errors:
        return None
    widths, misses = release.views.widths, 1 - float(release.file.output.confidence)
    return IntervalMethod(widths.method, widths.draws, f"{misses * 100:.3g}")


# ---- budgets and units -------------------------------------------------------------------------


def budget_text(budget: Budget) -> str:
    """`ε = 0.1`."""
    return f"{CURRENCY_SYMBOLS[budget.currency]} = {amount(budget.amount)}"


def amount_text(entry: Sequence[str]) -> str:
    """A budget as receipts write it: its currency and its amount."""
    currency, value = entry
    return f"{CURRENCY_SYMBOLS[currency]} = {amount(Fraction(value))}"


def unit_text(unit: Unit) -> str:
    """How neighbouring data sets differ, in words."""
    row = "one row" if unit.person is None else "all rows of one person"
    verb = "replaced by others" if unit.person is not None else "replaced by another"
    text = f"{row} {'added or removed' if unit.change == 'add_remove' else verb}"
    if unit.person is None:
        return text
    cap = f"at most {unit.max_rows} row{'s' * (unit.max_rows > 1)}"
    return f"{text} (persons are named by “{unit.person}”; {cap} of each are counted)"


def synthetic_of(release: ReleaseFacts) -> SyntheticFacts | None:
    """The made-up rows of a release, if it has any."""
    quality = release.views.quality
    if quality is None:
        return None
    choice = release.job.synthetic_choice
    maker = "" if choice is None else f"{choice.method}: {choice.reason}"
    facts = (
        ("Rows", f"{quality.rows:,}"),
        *([("Made by", maker)] if maker else []),
        ("Largest gap to the model", f"{count_text(quality.largest, 1)} rows, over all tables"),
        ("Mean gap to the model", f"{count_text(quality.mean, 2)} rows"),
    )
    table = None
    if quality.distances:
        heads = ["Tables", "How many", "Made-up rows", *(name.capitalize() for name in RIVALS)]
        rows: list[list[str | Cell]] = [
            [
                each.tables.capitalize(),
                f"{each.number:,}",
                f"{each.sample:.3f}",
                *(f"{each.rivals[name]:.3f}" for name in RIVALS),
            ]
            for each in quality.distances
        ]
        table = HtmlTable.of("Distance from the model", heads, rows)
    return SyntheticFacts(facts, table, MISUSES)
