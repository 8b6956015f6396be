"""Plans by name, their simulated errors, and those of a release, for people and for programs."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from psephos.cli.render import budget_with_epsilon, number_columns, plain_plan, rows_text

if TYPE_CHECKING:
    from psephos.plans import NamedPlan
    from psephos.release.methods.plan_forecast import PlanForecast
    from psephos.release.preflight.comparison import PlanComparison


def plain_plans(plans: Iterable[NamedPlan]) -> list[dict[str, Any]]:
    """The list of plans."""
    return [
        {
            "name": plan.name,
            "signature": plan.signature,
            "reference": plan.reference,
            "when": plan.when,
            "adaptive": plan.adaptive,
            "options": {name: str(default) for name, default in plan.options.items()},
        }
        for plan in plans
    ]


def rich_plans(plans: Iterable[NamedPlan]) -> RenderableType:
    """The same as a table; a star marks plans that adapt to the data."""
    table = Table("plan", "operators", "when to use it", "by", title="plans", title_justify="left")
    for plan in plans:
        mark = "*" if plan.adaptive else ""
        table.add_row(f"{plan.name}{mark}", plan.signature, plan.when, plan.reference)
    note = "* adapts to the data: its error is not known beforehand (psephos compare tries it)"
    return Group(table, Text(note))


def plain_plan_errors(comparison: PlanComparison) -> dict[str, Any]:
    """Plans side by side; errors are simulated on a stand-in."""
    return {
        "simulated_on": comparison.stand_in,
        "spend": comparison.spend,
        "trials": comparison.trials,
        "plans": [
            {
                "name": row.name,
                "rmse": row.rmse,
                "spread": row.spread,
                "seconds": row.seconds,
                "adaptive": row.adaptive,
                "reason": row.reason or None,
            }
            for row in comparison.errors
        ],
    }


def rich_plan_errors(comparison: PlanComparison) -> RenderableType:
    """The same as a table, the best first."""
    title = f"root mean squared error, simulated on {comparison.stand_in} at {comparison.spend}"
    heads = number_columns("± rows", "from run to run", "seconds")
    table = Table("plan", *heads, title=title, title_justify="left")
    for row in comparison.errors:
        if not math.isnan(row.rmse):
            mark = "*" if row.adaptive else ""
            numbers = (f"{row.rmse:,.1f}", f"± {row.spread:,.1f}", f"{row.seconds:.2f}")
            table.add_row(f"{row.name}{mark}", *numbers)
    notes = [f"{row.name}: {row.reason}" for row in comparison.errors if row.reason]
    words = "* adapts to the data: another table may have another error"
    return Group(table, Text("\n".join([words, *notes])))


def plain_plan_forecast(plan: PlanForecast) -> dict[str, Any]:
    """A plan that adapts to the data as plain values: its errors are simulated."""
    from psephos.release.views.held_cells import held_words

    return {
        "name": plan.job.file.name,
        "budget": plan.budget,
        "unit": str(plan.job.unit),
        "method": plan.method,
        "simulated_on": plan.stand_in,
        "held": held_words(plan.job) or None,
        "outline": plan.method.outline(plan.job) or None,
        "trials": plan.trials,
        "cells": plan.job.workload.domain.size,
        "queries": plan.job.workload.shape[0],
        "simulated_rmse": plan.rmse,
        "simulated_spread": plan.spread,
        "simulated_published_rmse": plan.published,
        "without_data_rmse": plan.without_data,
        "tables": plan.tables,
        "measured": plain_plan(plan.measured),
        "seconds": plan.seconds,
    }


def rich_plan_forecast(plan: PlanForecast) -> RenderableType:
    """The same for people, beside what measuring the best strategy promises."""
    from psephos.release.views.held_cells import held_words

    title = (
        f"{plan.method.name} at {budget_with_epsilon(plan.budget)}: SIMULATED errors, "
        f"{plan.trials} runs"
    )
    heads = ("numbers", "estimate", "spread", "published", "best strategy")
    table = Table(Column("table", min_width=14), *number_columns(*heads), title=title)
    rows = [
        (t.name, t.queries, t.rmse, t.spread, t.published, m.rmse)
        for t, m in zip(plan.tables, plan.measured.tables, strict=True)
    ]
    whole = ("all tables", plan.job.workload.shape[0], plan.rmse, plan.spread, plan.published)
    for name, queries, error, spread, published, exact in (*rows, (*whole, plan.measured.rmse)):
        sizes = (rows_text(error), f"± {rows_text(spread)}", rows_text(published), rows_text(exact))
        table.add_row(name, f"{queries:,}", *sizes)
    notes = (
        f"Simulated on {plan.stand_in}; the spread is that of the noise, not between data sets. "
        f"{plan.method.name} adapts to the data ({plan.method.reason}): what it errs by depends on "
        "them, and the simulation promises nothing. Its tables have no intervals. method.name = "
        '"measure" has the exact errors of the last column, whatever the data are, and intervals. '
        f"A run takes about {plan.seconds:.2g} s. {plan.without_data_words}"
    )
    outline, held = plan.method.outline(plan.job), held_words(plan.job)
    if outline:
        notes = f"{outline}. {notes}"
    if held:
        notes += f" Its consistent and its published tables hold {held}."
    return Group(table, Text(notes))
