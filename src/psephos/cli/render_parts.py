"""Releases in parts in the terminal: the plan, and what was published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from psephos.cli.render import budget_with_epsilon, number_columns, rows_text
from psephos.cli.render_tables import rich_numbers

if TYPE_CHECKING:
    from psephos.kernel.ledger import Ledger
    from psephos.release.parts.bundle import PartsBundle
    from psephos.release.parts.plan import PartsForecast

SHOWN_PART_TABLES = 3


def rich_parts_plan(plan: PartsForecast) -> RenderableType:
    """The error of every table at every level, and what the levels get of the budget."""
    title = f"Levels of {plan.job.file.name!r} at {budget_with_epsilon(plan.budget)}"
    levels = Table("level", *number_columns("parts", "share of the budget"), title=title)
    for name, size, share in zip(plan.tree.names, plan.tree.sizes, plan.plan.shares, strict=True):
        levels.add_row(name, f"{size:,}", f"{float(share):.1%}")
    title = "Error of one number, before anything is spent"
    tables = Table("table", *number_columns(*plan.tree.names), title=title)
    rows: dict[str, list[str]] = {}
    for error in plan.rows:
        rows.setdefault(error.table, []).append(rows_text(error.rmse))
    for table, cells in rows.items():
        tables.add_row(table, *cells)
    heads = number_columns("error beside the chosen weights")
    rivals = Table("what is measured", *heads, title="The same budget, spent in other ways")
    for rival in plan.plan.rivals:
        rivals.add_row(rival.name, f"{(rival.error / plan.plan.error) ** 0.5:.2f}×")
    words = (
        f"{plan.table_rows:,} numbers in all; every part is asked {plan.plan.query.shape[0]:,} "
        f"queries ({plan.plan.strategy.name}). The bundle takes about {_size(plan.disk_bytes)} "
        f"on disk, {_size(plan.answer_bytes)} of it sealed answers; tables are partitioned Parquet."
    )
    return Group(levels, tables, rivals, Text(words))


def plain_parts(bundle: PartsBundle, ledger: Ledger | None) -> dict[str, Any]:
    """What a release in parts has written."""
    return {
        "bundle": str(bundle.path),
        "report": str(bundle.report),
        "simulation": bundle.simulation,
        "spend": bundle.spend,
        "levels": bundle.manifest["levels"],
        "tables": bundle.names(),
        "ledger": None if ledger is None else {"left": ledger.remaining()},
    }


def rich_parts(bundle: PartsBundle) -> list[RenderableType]:
    """The first tables of the whole, and where the others are."""
    tables: list[RenderableType] = [
        rich_numbers(f"{table.title} (whole)", bundle.table(table.name))
        for table in bundle.job.tables[:SHOWN_PART_TABLES]
    ]
    levels = ", ".join(f"{size:,} × {name}" for name, size in bundle.manifest["levels"].items())
    where = f"tables of all parts ({levels}): {bundle.path / 'tables'}"
    return [*tables, Text(f"{where}\nbundle: {bundle.path}\nreport: {bundle.report}")]


def _size(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 10**9 else f"{count / 1e6:,.1f} MB"
