"""How to read and use the numbers: views, privacy, intervals, limits, verification, citation."""

from __future__ import annotations

import math

from psephos.release.bundle import distance
from psephos.release.pages.facts import Facts, budget_text, command, unit_text
from psephos.report.html import (
    Html,
    amount,
    count,
    digits_for,
    facts,
    joined,
    listed,
    section,
    table,
    tag,
    upwards,
)

DELTA = "1e-6"
VIEWS = {
    "raw": "the noisy whole numbers as they were drawn: unbiased answers to what was measured, one "
    "file for each measured block",
    "consistent": "least squares of the raw numbers: unbiased, and everything adds up; fractions "
    "and numbers below zero are part of it. Use it for statistics",
    "published": "whole numbers, never negative, that add up and lie near the consistent ones. Use "
    "it to read and to print; cutting at zero shifts small counts upwards",
}


def views(of: Facts) -> Html:
    """Which view is which, and how far the published one is from the unbiased one."""
    items = [joined([tag("strong", view), ": ", VIEWS[view], "."]) for view in of.written]
    pieces: list[str] = [listed(items)]
    if "published" in of.written:
        pieces += [_shifts(of)]
    elif "published" in of.file.output.views:
        pieces += [tag("p", "The published view is left out: the domain has too many cells.")]
    return section("views", "Which view is which", *pieces)


def _by(of: Facts, names: tuple[str, ...]) -> str:
    return " × ".join(of.titles.get(name, name) for name in names) or "nothing: the total"


def _shifts(of: Facts) -> Html:
    gaps = distance(of.views)
    rows = [
        [own.title, _by(of, shift.by), f"{shift.numbers:,}", _sized(shift.mean)]
        for own in of.job.tables
        for shift in of.views.shifts(own)
    ]
    heads = ["Table", "Counts by", "Numbers", "Mean shift (estimate)"]
    note = (
        "The shift is the mean of published minus consistent. It estimates the bias of the "
        "published view from the noisy numbers; no true count was looked at."
    )
    pairs = [
        ("Largest distance between the two views", _sized(gaps["largest"])),
        ("Root mean square distance", _sized(gaps["root_mean_square"])),
        ("Largest distance, in standard errors", count(gaps["in_standard_errors"], 2)),
    ]
    shifts = table("Estimated shift of the published view, in rows", heads, rows)
    return joined([shifts, tag("p", note, class_="note"), facts(pairs)])


def _sized(gap: float) -> str:
    return count(gap, digits_for(abs(gap)))


# ---- privacy -----------------------------------------------------------------------------------


def privacy(of: Facts) -> Html:
    """The guarantee, in words and in symbols."""
    words = _pure(of) if of.plan.budget.currency == "epsilon" else _concentrated(of)
    more = tag(
        "p",
        "The guarantee needs no assumption about what a reader knows or computes, and it is not "
        "weakened by further work on the numbers. It adds up over releases from the same data: "
        "the ledger keeps the sum, and refuses what exceeds the budget it was made with.",
    )
    made_up = tag("p", "This is a rehearsal: the guarantee is the one that the release would have.")
    return section("privacy", "Privacy", words, more, made_up if of.simulation else Html())


def _neighbours(of: Facts) -> str:
    return f"Call two data sets neighbours if they differ by {unit_text(of.job.unit)}."


def _pure(of: Facts) -> Html:
    bound = of.plan.budget.amount
    words = tag(
        "p",
        f"{_neighbours(of)} Whatever this release could have said, it was almost as likely to say "
        "from a neighbour of the data: no result is more than ",
        *_factor(amount(bound), float(bound)),
        " times as likely with one as with the other. So nobody who reads it can change their odds "
        "on which of the two the data are by more than that factor, whatever else they know. This "
        f"is differential privacy with {budget_text(of.plan.budget)}.",
    )
    formula = tag("p", "Pr[M(D) ∈ S] ≤ e", tag("sup", "ε"), " · Pr[M(D′) ∈ S]", class_="formula")
    where = tag(
        "p",
        f"for all neighbours D, D′ and all sets S of results, with M the release and "
        f"{budget_text(of.plan.budget)}.",
    )
    return joined([words, formula, where])


def _factor(shown: str, bound: float) -> list[str]:
    """The power of e to a bound, and about how much that is."""
    about = f"{math.exp(bound):,.3g}" if bound < 10 else f"{math.exp(min(bound, 700)):.1e}"
    return ["e", tag("sup", shown), f" ≈ {about}"]


def _concentrated(of: Facts) -> Html:
    budget = of.plan.budget
    bound = upwards(budget.at_delta(DELTA).amount)
    words = tag(
        "p",
        f"{_neighbours(of)} Whatever this release could have said, it was almost as likely to say "
        "from a neighbour of the data. How likely is bounded on average over all results: this is "
        f"zero-concentrated differential privacy (zCDP) with {budget_text(budget)}. Read out at "
        f"δ = 10⁻⁶ it gives ε = {bound}: no set of results is more than ",
        *_factor(bound, float(bound)),
        " times as likely with one as with the other, plus 10⁻⁶.",
    )
    alpha = tag("sub", "α")
    formulas = [
        tag("p", "D", alpha, "(M(D) ‖ M(D′)) ≤ ρ α for all α > 1,", class_="formula"),
        tag("p", "Pr[M(D) ∈ S] ≤ e", tag("sup", "ε"), " · Pr[M(D′) ∈ S] + δ", class_="formula"),
    ]
    where = tag(
        "p",
        "for all neighbours D, D′ and all sets S of results, with M the release, D",
        alpha,
        f" the Rényi divergence of order α, {budget_text(budget)}, ε = {bound} and δ = 10⁻⁶.",
    )
    return joined([words, *formulas, where])


# ---- intervals and limits ----------------------------------------------------------------------


def intervals(of: Facts) -> Html:
    """What the noise intervals cover, and how they were found."""
    widths = of.views.widths
    if widths.method == "computed":
        how = (
            "Their widths were computed from the noise's public distribution; those for a whole "
            f"table at once were found by drawing it {widths.draws:,} times anew, without the data."
        )
    elif widths.method == "simulated":
        how = (
            f"Their widths were found by drawing the noise {widths.draws:,} times anew, without "
            "the data: its distribution is public."
        )
    else:
        drawn = f" ({widths.draws:,} draws of the noise)" if widths.draws else ""
        how = (
            f"Their widths were found from the noise's public distribution: {widths.method}{drawn}."
        )
    centre = (
        "The published view prints the interval of the consistent view, centre included; rounding "
        "and cutting at zero have no interval of their own, so a published count may lie outside."
    )
    points = [
        f"An interval covers the privacy noise and nothing else: in {of.confidence} of releases "
        "from the same data, the interval of a number would hold that number as counted from the "
        "data without noise.",
        how,
        *([centre] if "published" in of.written else []),
        f"Each interval is for one number by itself. Among many, about {_misses(of)} miss; the "
        "wider half-width “at once” under each table holds for all its numbers together.",
    ]
    return section("intervals", "What the intervals cover", listed(points))


def _misses(of: Facts) -> str:
    share = 1 - float(of.file.output.confidence)
    return f"{share * 100:.3g} in 100"


def limits(of: Facts) -> Html:
    """What neither this page nor a check of the bundle can show."""
    points = [
        "That the noisy numbers were measured on the data they claim to describe. A check of the "
        "bundle re-derives every table from them; it does not see the data.",
        "Errors of the source: sampling, non-response, wrong or missing entries, and rows that the "
        "schema leaves out. The intervals do not cover them.",
        "That the declared values, caps and facts are true; they are statements of the publisher.",
    ]
    return section("limits", "What this page cannot show", listed(points))


def verify(of: Facts) -> Html:
    """How to check the bundle, and how to ask more of it."""
    return section(
        "verify",
        "Verify, and ask further questions for free",
        tag("p", "BUNDLE is the folder that holds this page. Neither command needs the data."),
        command("psephos verify BUNDLE"),
        tag("p", "re-derives every published number from the noisy ones and checks all files."),
        command('psephos ask BUNDLE "SELECT ..."'),
        tag(
            "p",
            "answers a new question from the same noisy numbers, with its error. It costs no "
            "budget; a question that they do not determine is refused.",
        ),
    )


def cite(of: Facts) -> Html:
    """How to name the release in a paper."""
    when = of.year or "n.d."
    named = f"{of.file.publisher} ({when}). {of.title}." if of.file.publisher else ""
    kind = "Rehearsal on made-up data" if of.simulation else "Differentially private tables"
    text = (
        f"{named or f'{of.title} ({when}).'} {kind}, {budget_text(of.plan.budget)} "
        f"({unit_text(of.job.unit)}). Made with {of.maker}."
    )
    return section("cite", "How to cite", tag("p", text))
