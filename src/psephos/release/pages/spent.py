"""What was spent and on what, and what other ways of measuring would have given."""

from __future__ import annotations

import math

from psephos.matrix import Identity, Kron, Matrix, Ones
from psephos.release.pages.facts import Facts, budget_text, entry_text, unit_text
from psephos.release.raw_labels import largest_entry
from psephos.report import charts
from psephos.report.html import Html, count, digits_for, facts, joined, section, table, tag

NOISE = {"laplace": "discrete Laplace", "gaussian": "discrete Gaussian"}


def spent(of: Facts) -> Html:
    """The charge, and the blocks it was spent on."""
    pairs = [
        ("Spent on this release", budget_text(of.plan.budget)),
        ("Unit of privacy", unit_text(of.job.unit)),
        *([("Edition of the data", of.file.edition)] if of.file.edition else []),
        ("Noise", f"{NOISE[of.plan.strategy.noise]}, exact, in whole numbers"),
        ("Chosen strategy", of.plan.strategy.name),
    ]
    if of.job.past:
        known = "; ".join(f"{past.name} ({budget_text(past.spend)})" for past in of.job.past)
        pairs.append(("Builds on measurements of", f"{known}, each charged when it was made"))
    return section(
        "spent", "What was spent, and on what", facts([*pairs, *_receipt(of)]), _blocks(of)
    )


def _receipt(of: Facts) -> list[tuple[str, str]]:
    if of.simulation:
        return [("Ledger", "none: a rehearsal costs nothing")]
    charge = of.charge
    if charge is None:
        return []
    cost, whole, anchor = charge["booked"], of.receipt["budget"], of.receipt["anchor"]
    return [
        ("Data set", str(of.receipt["dataset"])),
        ("Budget for all its releases", entry_text(whole)),
        ("Spent of it, this release included", entry_text(of.receipt["spent"])),
        ("Charge in the ledger", f"{entry_text(cost)}, entry {charge['number']}, {charge['time']}"),
        ("Ledger's head after it", f"{anchor['entries']} entries, {str(anchor['head'])[:16]}…"),
    ]


def _blocks(of: Facts) -> Html:
    rows = []
    blocks = zip(of.plan.blocks(), of.views.blocks, strict=True)
    noises = [block.noise for block in of.views.blocks]
    for ((_, answers, share), block), noise in zip(blocks, noises, strict=True):
        spread = math.sqrt(noise.exact_variance) / largest_entry(block.matrix)
        what = block_text(block.matrix, of)
        rows.append(
            [what, f"{answers:,}", count(spread, digits_for(spread)), f"{share * 100:.3g} %"]
        )
    heads = [
        "What was counted",
        "Noisy numbers",
        "Standard deviation of the noise, in rows",
        "Share of the budget",
    ]
    note = (
        "These noisy numbers are all that was taken from the data; every table follows from them."
    )
    if len(rows) > 1:
        note += " A share is what the block would cost alone, with the noise it was given."
    if any(largest_entry(block.matrix) > 1 for block in of.views.blocks):
        note += (
            " Weighted sums count a row many times, so that weights are whole; the noise is told "
            "in units of the largest weight."
        )
    return joined([table("Measured blocks", heads, rows), tag("p", note, class_="note")])


def block_text(matrix: Matrix, of: Facts) -> str:
    """What a block counts, in words where it has a product form."""
    domain = of.job.workload.domain
    fits = isinstance(matrix, Kron) and tuple(f.shape[1] for f in matrix.factors) == domain.shape
    if not fits or not isinstance(matrix, Kron):
        return (
            f"{matrix.shape[0]:,} sums over cells" if matrix.shape[0] > 1 else "one sum over cells"
        )
    words = []
    for name, factor in zip(domain.names, matrix.factors, strict=True):
        title = of.titles.get(name, name)
        if isinstance(factor, Identity):
            words.append(f"every value of {title}")
        elif not (isinstance(factor, Ones) and factor.shape[0] == 1):
            words.append(f"{factor.shape[0]:,} sums over values of {title}")
    return " × ".join(words) or "all rows together"


def rivals(of: Facts) -> Html:
    """The error of other strategies at the same budget."""
    plan = of.plan
    shown = [(plan.strategy.name, plan.rmse, True)]
    shown += [(rival.name, rival.rmse, False) for rival in plan.rivals]
    digits = digits_for(min(error for _, error, _ in shown))
    rows = [
        [
            tag("strong", f"{name} (used)") if own else name,
            count(error, digits),
            f"{error / plan.rmse:,.2f} ×" if plan.rmse > 0 else "–",
        ]
        for name, error, own in shown
    ]
    heads = ["Way of measuring", "Error", "Beside the one used"]
    intro = tag(
        "p",
        "The root mean squared error of all numbers, weighted as the tables are, in "
        "rows. It follows from the schema, the tables and the budget alone, so it was "
        "known before anything was spent.",
    )
    pieces = [table("Error at the same budget", heads, rows)]
    if charts.available():
        words = f"Bars: {plan.strategy.name}, which was used, beside {len(plan.rivals)} other ways."
        errors = [(plan.strategy.name, plan.rmse), *((r.name, r.rmse) for r in plan.rivals)]
        svg = charts.inline_svg(charts.errors_chart(errors), "rivals", words)
        pieces.append(tag("figure", Html(svg)))
    pair = tag("div", *pieces, class_="pair")
    return section("rivals", "Accuracy beside other ways", intro, pair, _by_table(of))


def _by_table(of: Facts) -> Html:
    """The plain mechanisms, table by table."""
    plain = [rival for rival in of.plan.rivals if rival.tables]
    if not plain:
        return Html()
    rows = []
    for k, own in enumerate(of.plan.tables):
        errors = [own.rmse, *(rival.tables[k] for rival in plain)]
        rows.append([own.title, *(count(e, digits_for(own.rmse)) for e in errors)])
    heads = ["Table", f"{of.plan.strategy.name} (used)", *(rival.name for rival in plain)]
    return table("Error of each table at the same budget", heads, rows)
