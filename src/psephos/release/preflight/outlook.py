"""What goes with a forecast: what the ledger has left, what is short, and what else will be made.

A forecast says what numbers will be worth. Whether they can be paid for is in the ledger, and which
rows, tables of persons and sheets come with them is in the release file; no data are touched.
"""

from __future__ import annotations

from dataclasses import dataclass

from psephos.kernel.budget import Budget
from psephos.release.formats.workbook_size import left_out_of_workbook
from psephos.release.methods.kind import ReleaseForecast, ReleaseMethod
from psephos.release.methods.method import method_of
from psephos.release.preflight.checks import remaining_budget
from psephos.release.spec.job import Job, stand_in_words, uses_stand_in
from psephos.synthesis.method import SyntheticChoice


@dataclass(frozen=True)
class PersonsError:
    """A table of persons before it is measured: what it costs, and the ± of its numbers."""

    name: str
    numbers: int
    spend: Budget
    half_width: int


@dataclass(frozen=True)
class Outlook:
    """What goes with a forecast.

    Attributes:
        left: in the ledger; None where there is none yet
        shortage: what to do where the release costs more than is left
        method: by which plan the release is measured, and why
        stand_in: what decides the strategy where it is not the questions alone
        synthetic: how rows will be made up, if they are
        persons: the tables that count persons
        workbook: which tables an Excel file will not hold, and why
        confidence: of every ±
    """

    left: Budget | None
    shortage: str | None
    method: ReleaseMethod
    stand_in: str | None
    synthetic: SyntheticChoice | None
    persons: tuple[PersonsError, ...]
    workbook: str | None
    confidence: float

    @property
    def lines(self) -> tuple[str, ...]:
        """All of it but the budget that is left, a line each."""
        lines = [f"stand-in: {self.stand_in}."] if self.stand_in is not None else []
        if self.method.reason and not self.method.adaptive:
            lines.append(f"method: {self.method.name} ({self.method.reason}).")
        lines += [self.shortage] if self.shortage is not None else []
        if self.synthetic is not None:
            lines.append(f"made-up rows: by {self.synthetic.method} ({self.synthetic.reason}).")
        lines += [
            f"persons: {each.name!r}, {each.numbers:,} number{'s' * (each.numbers > 1)} within "
            f"± {each.half_width:,} at {self.confidence * 100:g} %, for {each.spend} of its own"
            for each in self.persons
        ]
        return (*lines, self.workbook) if self.workbook is not None else tuple(lines)


def outlook(forecast: ReleaseForecast) -> Outlook:
    """What the ledger has left for a forecast, what is short, and what else will be made."""
    job, method, left = forecast.job, method_of(forecast.job), remaining_budget(forecast.job)
    confidence = float(job.file.output.confidence)
    persons = tuple(
        PersonsError(
            table.name, table.domain.size, table.spend, table.half_width(job.unit, confidence)
        )
        for table in job.persons
    )
    return Outlook(
        left=left,
        shortage=None if left is None else _shortage(forecast, left),
        method=method,
        stand_in=stand_in_words(job) if uses_stand_in(job) and not method.adaptive else None,
        synthetic=job.synthetic_choice,
        persons=persons,
        workbook=_workbook_words(job),
        confidence=confidence,
    )


def _shortage(forecast: ReleaseForecast, left: Budget) -> str | None:
    budget = forecast.budget
    if left.currency != budget.currency or budget <= left:
        return None
    return forecast.shortage(left)


def _workbook_words(job: Job) -> str | None:
    if "xlsx" not in job.file.output.formats:
        return None
    lines = (
        f"tables.xlsx will not hold {name!r}: it has {why}; the other files do."
        for name, why in left_out_of_workbook(job).items()
    )
    return "\n".join(lines) or None
