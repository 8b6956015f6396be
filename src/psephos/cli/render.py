"""Plans, tables and ledgers, for people as rich tables and for programs as plain values."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

if TYPE_CHECKING:
    from psephos.kernel.budget import Budget
    from psephos.kernel.ledger import Ledger
    from psephos.kernel.ledger_history import Entry
    from psephos.release.ask.price import Price
    from psephos.release.bundle.bundle import Bundle
    from psephos.release.preflight.forecast import Forecast, TableError
    from psephos.release.preflight.outlook import Outlook
    from psephos.release.preflight.simulated import SimulatedError
    from psephos.release.spec.entries import TargetEntry
    from psephos.release.views.published import PublishedRule
    from psephos.release.views.published_groups import PublishedGroups
    from psephos.synthesis.quality import SyntheticQuality

MOST_LINES = 12
"""The most rows of a table in the terminal, and blocks of a plan in JSON."""
SHOWN_GROUPS = 4
"""The most groups of tables that a plan names for one estimate."""
LONG_BUDGET = re.compile(r"\b(epsilon|rho) (?=\S{10})(\d+/\d+) \(~[^)]*\)")
RELEASE_KEY = re.compile(r"release (.*) [0-9a-f]{24}( step \d+)?", re.DOTALL)
QUERY_LABEL = re.compile(r"Query\(([\d,]+) answers .*\)")
PLAN_CAUTION = (
    "A plan that adapts fills in what it did not measure, for example evenly within groups of "
    "cells: these numbers are biased by that, and have no interval."
)
STATISTICS_NOTE = (
    "Errors of sums are in the unit of what is summed. Those of means, variances, shares and "
    "quantiles depend on the data: above are the errors of the counts behind them."
)


def shorten(text: str) -> str:
    """Budgets in a text with their long fractions as decimals; the exact ones are in JSON.

    >>> shorten("rho 101742996697/549755813888 (~0.185069) of epsilon 1/2 (~0.5)")
    'rho ~0.18507 of epsilon 1/2 (~0.5)'
    """
    return LONG_BUDGET.sub(lambda match: f"{match[1]} ~{float(Fraction(match[2])):.5g}", text)


def number_columns(*heads: str, no_wrap: bool = False) -> list[Column]:
    """Columns of numbers, which end at the same place."""
    return [Column(head, justify="right", no_wrap=no_wrap) for head in heads]


def rest_words(rest: int, where: str) -> str | None:
    """That a table has more rows, and where they are."""
    return f"and {rest:,} more rows {where}" if rest > 0 else None


def plain_plan(plan: Forecast, simulated: SimulatedError | None = None) -> dict[str, Any]:
    """A plan as plain values."""
    return {
        "name": plan.job.file.name,
        "budget": plan.budget,
        "unit": str(plan.job.unit),
        "noise": plan.strategy.noise.value,
        "strategy": plan.strategy.name,
        "builds_on": [past.name for past in plan.job.past],
        "consistency": plan.job.file.output.consistency,
        "complete": plan.strategy.complete,
        "exact_error": plan.strategy.error_is_exact,
        "cells": plan.job.workload.domain.size,
        "queries": plan.job.workload.shape[0],
        "rmse": plan.rmse,
        "rmse_spread": plan.rmse_spread,
        "above_limit": plan.above_limit,
        "gaussian_rmse": plan.gaussian_rmse,
        "published": _plain_published(plan),
        "made_up": simulated,
        "expensive": plan.expensive.name,
        "bottleneck": {"table": plan.expensive.name, **_plain_bottleneck(plan.expensive)},
        "interval": {
            "confidence": plan.widths.confidence,
            "method": plan.widths.method,
            "draws": plan.widths.draws,
        },
        "tables": [
            {
                "name": table.name,
                "queries": table.queries,
                "rmse": table.rmse,
                "largest_stderr": table.worst,
                "half_width": table.half_width,
                "simultaneous_half_width": table.simultaneous,
                "share_of_error": table.share,
                "target": None if table.target is None else _plain_target(table.target),
                "reached": table.reached,
                "needs": table.needs,
                "bottleneck": _plain_bottleneck(table),
            }
            for table in plan.tables
        ],
        "rivals": [
            {"name": rival.name, "rmse": rival.rmse, "tables": rival.tables}
            for rival in plan.rivals
        ],
        "blocks": [
            {"what": what, "answers": answers, "share": share}
            for what, answers, share in plan.blocks()[:MOST_LINES]
        ],
        "cost": {"seconds": plan.strategy.cost.seconds, "bytes": plan.strategy.cost.bytes},
        "steps": plan.steps,
    }


def search_words(name: str, gain: float, cell_rmse: float | None) -> str:
    """What a search has come to: the error now, or its gain over measuring every cell."""
    if cell_rmse is None:
        return f"searching: {name}, {gain:,.3g} times better than every cell"
    return f"searching: {name}, error now {cell_rmse / gain:,.4g}; Ctrl-C takes the best so far"


def rich_plan(plan: Forecast, simulated: SimulatedError | None = None) -> RenderableType:
    """A plan for people: tables, rivals, what is measured and what it takes."""
    percent = f"{plan.widths.confidence:.0%}"
    spend = budget_with_epsilon(plan.budget)
    heads = ("numbers", "error", "worst", f"± {percent}", "± all", "share")
    tables = Table(
        Column("table", min_width=14),
        *number_columns(*heads, no_wrap=True),
        title=f"Error of every table at {spend}, before anything is spent",
    )
    for table in plan.tables:
        sizes = (table.rmse, table.worst, table.half_width, table.simultaneous)
        row = [table.name, f"{table.queries:,}", *map(rows_text, sizes), f"{table.share:.0%}"]
        tables.add_row(*row)
    rivals = Table(
        "what is measured",
        *number_columns("root mean squared error", "beside the chosen one"),
        title="The same budget, spent in other ways",
    )
    rivals.add_row(f"chosen: {plan.strategy.name}", rows_text(plan.rmse), "1.00×", style="bold")
    for rival in plan.rivals:
        rivals.add_row(rival.name, rows_text(rival.rmse), f"{rival.rmse / plan.rmse:.2f}×")
    notes = f"{_notes(plan)}\n{_published_notes(plan, simulated)}".rstrip()
    return Group(tables, *_targets(plan), rivals, Text(notes))


def plain_outlook(beside: Outlook) -> dict[str, Any]:
    """What goes with a plan, as plain values."""
    plain = {name: getattr(beside, name) for name in ("left", "synthetic", "persons", "workbook")}
    short = {name: getattr(beside, name) for name in ("shortage", "stand_in")}
    return plain | {name: words for name, words in short.items() if words is not None}


def rich_comparison(plans: Sequence[Forecast]) -> RenderableType:
    """The ± of every table at several budgets."""
    first = plans[0]
    table = Table(
        "table",
        *number_columns(*(budget_with_epsilon(plan.budget) for plan in plans)),
        title=f"± at {first.widths.confidence:.0%} for every number, by budget",
    )
    for i, row in enumerate(first.tables):
        table.add_row(row.name, *(rows_text(plan.tables[i].half_width) for plan in plans))
    return Group(table, Text(STATISTICS_NOTE)) if _has_statistics(first) else table


def plain_price(bundle: Bundle, cost: Price) -> dict[str, Any]:
    """What a question would cost, as plain values."""
    return {
        "half_width": cost.half_width,
        "needs": cost.budget,
        "without_past_measurements": cost.alone,
        "builds_on": str(bundle.path),
    }


def price_words(bundle: Bundle, sql: str, cost: Price) -> str:
    """What a question would cost, and how to buy it."""
    if not cost.budget.amount:
        return "free: past measurements are that precise; leave --plus-minus out"
    return (
        f"± {cost.half_width:,.6g} for every answer costs {cost.budget} on top of what is "
        f"known ({cost.alone} without it). To buy it, copy the release file. In the copy, change "
        "`name` and `output.bundle`, remove [budget] and output.consistency, put builds_on at the "
        "top, before any [section], and the table in place of the others:"
        f"\n\n{follow_up(bundle, sql, cost.half_width)}"
    )


def follow_up(bundle: Bundle, sql: str, half_width: float) -> str:
    """The lines of a release file that buy a question on top of a bundle."""
    lines = [
        f"builds_on = [{json.dumps(str(bundle.path))}]",
        "",
        "[[tables]]",
        'name = "a further question"',
        f"sql = {json.dumps(sql, ensure_ascii=False)}",
        f"target = {{ plus_minus = {half_width:g} }}",
    ]
    return "\n".join(lines)


def plain_ledger(ledger: Ledger) -> dict[str, Any]:
    """A ledger as plain values."""
    entries = ledger.history()
    return {
        "dataset": ledger.dataset,
        "dataset_id": ledger.dataset_id,
        "unit": str(ledger.unit),
        "budget": ledger.budget,
        "spent": ledger.spent(),
        "left": ledger.remaining(),
        "charges": [
            {
                "number": number,
                "record": entry.number,
                "time": entry.time,
                "release": name,
                "key": entry.key,
                "what": entry.label,
                "cost": entry.booked,
                "answered": entry.values_hash is not None,
            }
            for number, (entry, name) in enumerate(zip(entries, _releases(entries), strict=True), 1)
        ],
        "anchor": ledger.anchor(),
    }


def rich_ledger(ledger: Ledger, plain: dict[str, Any]) -> RenderableType:
    """A ledger for people."""
    table = Table(
        *number_columns("no.", no_wrap=True),
        Column("time (UTC)", no_wrap=True),
        Column("release", overflow="fold"),
        Column("answers", justify="right", overflow="fold"),
        *number_columns(f"cost in {ledger.budget.currency}", no_wrap=True),
        title=f"{ledger.dataset} ({ledger.unit})",
    )
    for charge in plain["charges"]:
        query = QUERY_LABEL.fullmatch(charge["what"])
        table.add_row(
            str(charge["number"]),
            charge["time"][:16].replace("T", " "),
            escape(charge["release"] or charge["key"]),
            query[1] if query else escape(charge["what"]),
            f"{float(charge['cost'].amount):.6g}",
        )
    return Group(table, Text(ledger_words(ledger)))


def ledger_words(ledger: Ledger) -> str:
    """What was spent and what is left, in one line; of rho also what it means in epsilon."""
    budget, rest = budget_with_epsilon(ledger.budget), budget_with_epsilon(ledger.remaining())
    return shorten(f"spent {ledger.spent()} of {budget}; left {rest}")


def _targets(plan: Forecast) -> list[RenderableType]:
    """The targets of tables and what is reached, if any table has one."""
    targets = Table(
        Column("table", min_width=14),
        *number_columns("target", "reached", "needs", no_wrap=True),
        Column("for the number", min_width=14),
        title="Targets",
    )
    for table in plan.tables:
        if table.target is not None and table.reached is not None:
            needs = "" if table.needs is None else f"{float(table.needs.amount):.3g}"
            reached = f"± {rows_text(table.reached)}"
            targets.add_row(
                table.name, _target(table.target), reached, needs, escape(_bottleneck(table))
            )
    return [targets] if targets.row_count else []


def _plain_bottleneck(table: TableError) -> dict[str, Any]:
    return {"number": table.bottleneck, "ties": table.bottleneck_ties}


def _bottleneck(table: TableError) -> str:
    """The widest number of a table, and how many are as wide."""
    more = table.bottleneck_ties - 1
    return table.bottleneck + (f" (and {more:,} as wide)" if more else "")


def _plain_target(target: TargetEntry) -> dict[str, Any]:
    return {
        "half_width": target.half_width,
        "confidence": float(target.confidence),
        "simultaneous": target.simultaneous,
    }


def _target(target: TargetEntry) -> str:
    """A target in short: ± 50 of all numbers at once, at 90 %."""
    together = ", all" if target.simultaneous else ""
    return f"± {rows_text(target.half_width)} at {float(target.confidence) * 100:g}%{together}"


def _cost_words(plan: Forecast) -> str:
    """What the release will take and what each step has of it, right within a factor of a few."""
    from psephos.inverse.choice import memory_words, time_words

    seconds = sum(step.seconds for step in plan.steps)
    most = max(step.bytes for step in plan.steps)
    steps = ", ".join(f"{step.name} {time_words(step.seconds)}" for step in plan.steps)
    return (
        f"After the rows are read, the release will take about {time_words(seconds)} and "
        f"{memory_words(most)}: {steps}."
    )


def _published_notes(plan: Forecast, simulated: SimulatedError | None) -> str:
    """What the published view is rounded from, and its error on made-up rows."""
    from psephos.release.views.published import PublishedRule

    groups = plan.groups
    if "published" not in plan.job.file.output.views:
        return ""
    if groups is None:
        rule = PublishedRule.of(plan.job)
        text = f"The published view is rounded from the {rule.method} estimate: {rule.reason}."
    else:
        text = _group_notes(groups)
    if simulated is not None:
        text += (
            f" On {simulated.rows:,} made-up rows its error, before rounding, was "
            f"{rows_text(simulated.published)}, and that of the consistent view "
            f"{rows_text(simulated.consistent)}; on real rows it may be more or less."
        )
    return text


def _plain_published(plan: Forecast) -> dict[str, Any] | None:
    """What the published view will be rounded from, as plain values."""
    from psephos.release.preflight.step_costs import published_cost
    from psephos.release.views.published import PublishedRule

    groups = plan.groups
    if "published" not in plan.job.file.output.views:
        return None
    if groups is None:
        return {**vars(PublishedRule.of(plan.job))}
    return {
        "groups": [
            {
                "attributes": list(groups.attributes(g)),
                "tables": groups.table_names(g),
                "cells": groups.grouping.cells(g),
                **vars(rule),
            }
            for g, rule in enumerate(groups.rules)
        ],
        "left_out": groups.left_out,
        "bytes": published_cost(plan.job, groups).bytes if groups.rules else 0,
    }


def _group_notes(groups: PublishedGroups) -> str:
    """In which groups tables are published, by which rule, and which are not."""
    size = f"{groups.job.workload.domain.size_text} cells are too many for one vector of them"
    left_out = " ".join(
        f"Table {name!r} has no published view: {why}." for name, why in groups.left_out.items()
    )
    if not groups.tables:
        return f"There is no published view: {size}. {left_out}"
    names: dict[PublishedRule, list[str]] = {}
    for g, rule in enumerate(groups.rules):
        names.setdefault(rule, []).append(" × ".join(groups.attributes(g)))
    rules = "; ".join(_rule_words(rule, those) for rule, those in names.items())
    plural = "group" if len(groups.rules) == 1 else "groups"
    text = (
        f"{size}, so published tables come in {len(groups.rules)} {plural} of attributes with "
        f"{groups.cells:,} cells in all: {rules}."
    )
    if len(groups.rules) > 1:
        text += (
            " Tables of one group add up exactly, and all groups have the same total; numbers of "
            "different groups agree nearly, and the release says how nearly."
        )
    return f"{text} {left_out}".rstrip()


def _rule_words(rule: PublishedRule, names: list[str]) -> str:
    """Some groups, and the estimate that they have in common."""
    more = len(names) - SHOWN_GROUPS
    text = f"{', '.join(names[:SHOWN_GROUPS])}{f' and {more} more' if more > 0 else ''}"
    return f"{text} by the {rule.method} estimate ({rule.reason})"


def disagreement_words(bundle: Bundle) -> str:
    """How far published tables of different groups are apart; nothing where all add up."""
    facts = bundle.manifest.get("published") or {}
    if len(facts.get("groups", ())) < 2:
        return ""
    gap = facts["disagreement"]
    text = f"published tables come in {len(facts['groups'])} groups: inside each they add up"
    if not gap["largest"]:
        return f"{text}, and all groups agree with each other"
    where = " × ".join(gap["attributes"]) or "the total"
    rows = f"{gap['largest']:,} row{'' if gap['largest'] == 1 else 's'}"
    return (
        f"{text}; the same number computed from two groups differs by up to {rows} (by {where}), "
        f"typically {gap['root_mean_square']:,.2g}"
    )


def _notes(plan: Forecast) -> str:
    deciding = plan.expensive
    if deciding.needs is None or deciding.target is None:
        why = f"has {deciding.share:.0%} of the error; its widest number is"
    elif deciding.target.simultaneous:
        why = "decides the budget, all its numbers at once; the widest of them is"
    else:
        why = "decides the budget; the number that needs it is"
    shares = ", ".join(f"{share:.0%} on {answers:,}" for _, answers, share in plan.blocks()[:6])
    more = len(plan.strategy.query.blocks) - 6
    lines = [
        "Errors are standard errors in rows: typical, and of the worst number; ± is half a noise "
        "interval, of each number and of all numbers of the table at once.",
        f"The expensive table is {deciding.name!r}: it {why} {_bottleneck(deciding)}.",
        f"Measured: {plan.strategy.query.shape[0]:,} answers with {plan.strategy.noise} noise; "
        f"budget by block: {shares}{f' and {more} more' if more > 0 else ''}.",
        _cost_words(plan),
        f"Intervals cover the privacy noise alone ({plan.widths.method}, {plan.widths.draws:,} "
        "draws).",
    ]
    if (limit := _limit_words(plan)) is not None:
        lines.append(limit)
    if _has_statistics(plan):
        lines.append(STATISTICS_NOTE)
    norm = plan.job.file.output.consistency
    if norm != "l2":
        lines.append(
            f'consistency = "{norm}": the tables will have NO intervals. Errors and ± above are of '
            f"least squares; what tables nearest in {norm} err by is not known."
        )
    if plan.job.file.selection.error == "relative":
        lines.append("What is measured was chosen for small errors beside the size of a number.")
    if plan.job.past:
        names = ", ".join(f"{past.name!r} ({shorten(str(past.spend))})" for past in plan.job.past)
        lines.append(f"Builds on what is known from {names}; the other ways start afresh.")
    if not plan.strategy.complete:
        lines.append("The search was cut short; more time may find less error (`plan --thorough`).")
    if not plan.strategy.error_is_exact:
        lines.append(
            "These errors are estimates, since no closed form is known for such strategies; the "
            f"one of all numbers has a standard error of {100 * plan.rmse_spread:.2g} % itself."
        )
    return "\n".join(lines)


def _limit_words(plan: Forecast) -> str | None:
    """How much better anybody could do, or what another guarantee would buy."""
    if plan.above_limit is not None:
        return (
            f"The error is at most {max(100 * plan.above_limit, 0.01):.2g} % above the least that "
            "any Gaussian mechanism can reach (declared zeros left out of account)."
        )
    if plan.gaussian_rmse is not None and plan.gaussian_rmse < plan.rmse:
        return (
            "Gaussian noise at delta 1e-6 would err by about "
            f"{rows_text(plan.gaussian_rmse)} where Laplace noise errs by {rows_text(plan.rmse)}; "
            'for that, write delta = "1e-6" beside epsilon under [budget].'
        )
    return None


def _has_statistics(plan: Forecast) -> bool:
    return any(table.statistics for table in plan.job.tables)


def budget_with_epsilon(budget: Budget) -> str:
    """A budget, and for rho about which epsilon that is."""
    text = str(budget)
    if budget.currency == "rho" and budget.amount:
        text += f" (at delta 1e-6: {budget.at_delta('1e-6')})"
    return shorten(text)


def _releases(entries: Sequence[Entry]) -> list[str | None]:
    """The names of the releases that charges were made for, with the step if there are several."""
    keys = {entry.key for entry in entries}
    names: list[str | None] = []
    for entry in entries:
        match = RELEASE_KEY.fullmatch(entry.key)
        first = " step 1" if f"{entry.key} step 2" in keys else ""
        names.append(f"{match[1]}{match[2] or first}" if match else None)
    return names


def rows_text(number: float) -> str:
    """A number of rows with about three digits."""
    return f"{number:,.0f}" if number >= 100 else f"{number:,.3g}"


def rich_quality(quality: SyntheticQuality, place: str) -> RenderableType:
    """How far made-up rows are from the numbers that they come from, beside rivals."""
    from psephos.synthesis.quality import MISUSES, RIVALS

    words = [
        f"{quality.rows:,} made-up rows: {place}",
        f"gap to the published numbers: {quality.mean:,.2f} rows on average, at most "
        f"{quality.largest:,.1f}; how far those are from the data, the report says",
        f"not to be used {MISUSES[0]}; {MISUSES[1]}",
    ]
    if not quality.distances:
        return Text("\n".join(words))
    table = Table(
        "tables",
        *number_columns("how many", "made-up rows", *RIVALS),
        title="distance from the published numbers",
        title_justify="left",
    )
    for each in quality.distances:
        rivals = (f"{each.rivals[name]:.3f}" for name in RIVALS)
        table.add_row(each.tables, f"{each.number:,}", f"{each.sample:.3f}", *rivals)
    return Group(table, Text("\n".join(words)))


def made_up_words(bundle: Bundle) -> str:
    """What a release says of its made-up rows."""
    facts = bundle.manifest.get("synthetic")
    if facts is None:
        return ""
    place = bundle.path / "synthetic"
    return (
        f"made-up rows: {facts['rows']:,} in {place}, by {facts['method']}; on average "
        f"{facts['mean']:,.2f} and at most {facts['largest']:,.1f} from the numbers they come from"
    )
