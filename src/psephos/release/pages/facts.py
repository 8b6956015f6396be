"""What all sections of a report look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import pyarrow as pa

from psephos.kernel.budget import Budget
from psephos.kernel.unit import Unit
from psephos.release.forecast import Forecast
from psephos.release.request import Job, column_titles
from psephos.release.spec.entries import ReleaseFile, View
from psephos.release.spec.tables import Table
from psephos.release.views import Views, possible_views
from psephos.report.html import Html, amount, joined, tag
from psephos.version import __version__

SYMBOLS = {"epsilon": "ε", "rho": "ρ"}


@dataclass(frozen=True, eq=False)
class Facts:
    """A release, for people: what was planned, what came out, and the charge if there is one."""

    plan: Forecast
    views: Views
    receipt: Mapping[str, Any]

    @property
    def job(self) -> Job:
        return self.plan.job

    @property
    def file(self) -> ReleaseFile:
        return self.job.file

    @property
    def title(self) -> str:
        return self.file.title or self.file.name

    @property
    def maker(self) -> str:
        """What made the release."""
        return f"psephos {__version__}"

    @property
    def simulation(self) -> bool:
        return self.views.simulation

    @cached_property
    def written(self) -> tuple[View, ...]:
        """The views that are part of the bundle."""
        return possible_views(self.job, self.file.output.views)

    @property
    def view(self) -> View:
        """The view that the page shows."""
        return "published" if "published" in self.written else "consistent"

    @cached_property
    def titles(self) -> Mapping[str, str]:
        """What attributes are called."""
        return column_titles(self.job)

    @property
    def confidence(self) -> str:
        return f"{float(self.file.output.confidence) * 100:g} %"

    def table(self, table: Table) -> pa.Table:
        """A table in the view that the page shows."""
        return self.views.table(table, self.view)

    @property
    def charge(self) -> Mapping[str, Any] | None:
        """The ledger's own record, if it was handed in."""
        found: Mapping[str, Any] | None = self.receipt.get("charge")
        return found

    @property
    def year(self) -> str | None:
        """The year of the charge."""
        return None if self.charge is None else str(self.charge["time"])[:4]


def budget_text(budget: Budget) -> str:
    """`ε = 0.1`."""
    return f"{SYMBOLS[budget.currency]} = {amount(budget.amount)}"


def entry_text(entry: Sequence[str]) -> str:
    """A budget as receipts write it: its currency and its amount."""
    currency, value = entry
    return f"{SYMBOLS[currency]} = {amount(Fraction(value))}"


def unit_text(unit: Unit) -> str:
    """How neighbouring data sets differ, in words."""
    row = "one row" if unit.person is None else "all rows of one person"
    verb = "replaced by others" if unit.person is not None else "replaced by another"
    text = f"{row} {'added or removed' if unit.change == 'add_remove' else verb}"
    if unit.person is None:
        return text
    cap = f"at most {unit.max_rows} row{'s' * (unit.max_rows > 1)}"
    return f"{text} (persons are named by “{unit.person}”; {cap} of each are counted)"


def command(text: str) -> Html:
    """Something to type."""
    return tag("pre", tag("code", text), class_="command")


def paragraphs(text: str) -> Html:
    """Text with empty lines between its paragraphs."""
    parts = [part.strip() for part in text.split("\n\n")]
    return joined(tag("p", part) for part in parts if part)
