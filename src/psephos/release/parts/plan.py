"""What a release in parts would measure, and the error of every table at every level: no data."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from psephos.domain.part_tree import PartTree
from psephos.errors import PsephosError, ReleaseError
from psephos.kernel.budget import Budget
from psephos.kernel.parts.law import part_noise
from psephos.release.bundle.files import read_json, write_json
from psephos.release.methods.kind import ForecastRow
from psephos.release.preflight.room import StepCost
from psephos.release.preflight.selection import strategy_for
from psephos.release.preflight.store import (
    ELSEWHERE,
    UNREADABLE,
    Progress,
    make_folder,
    selection_folder,
)
from psephos.release.spec.job import Job
from psephos.strategy import strategy as strategy_files
from psephos.strategy.level_plan import LevelPlan, PartTables, choose_levels
from psephos.strategy.strategy import Strategy
from psephos.workload.workload import Workload

BYTES_PER_ROW = 60
"""Of a table of parts, about, as Parquet."""


@dataclass(frozen=True, eq=False, repr=False)
class PartsForecast:
    """A plan for a release in parts, and what it errs by: everything known before any spend."""

    job: Job
    plan: LevelPlan
    budget: Budget

    @property
    def tree(self) -> PartTree:
        return self.plan.tree

    @property
    def rows(self) -> tuple[ForecastRow, ...]:
        """Root mean squared errors over all numbers of all parts of a level, exact."""
        job, errors = self.job, []
        for level, name in enumerate(self.tree.names):
            squares = self.plan.table_rmse(level, self.budget, job.unit) ** 2
            counts = job.workload.query_counts
            for table in job.tables:
                numbers = sum(counts[p] for p in table.products)
                total = sum(squares[p] * counts[p] for p in table.products)
                rmse = float((total / numbers) ** 0.5)
                errors.append(ForecastRow(table.name, name, self.tree.sizes[level], numbers, rmse))
        return tuple(errors)

    @property
    def answer_bytes(self) -> int:
        """What the noisy answers take on disk."""
        sizes = zip(self.tree.sizes, self.plan.weights, strict=True)
        return 8 * self.plan.query.shape[0] * sum(parts for parts, weight in sizes if weight)

    @property
    def table_rows(self) -> int:
        """Rows of all tables of all levels."""
        return self.job.workload.shape[0] * sum(self.tree.sizes)

    @property
    def disk_bytes(self) -> int:
        """About what it takes on disk: sealed answers, levels above the smallest, tables."""
        above = 32 * self.job.workload.domain.size * sum(self.tree.sizes[:-1])
        return self.answer_bytes + above + BYTES_PER_ROW * self.table_rows + 2**20

    @property
    def steps(self) -> tuple[StepCost, ...]:
        """Nothing grows with the number of parts, which are written run by run."""
        return ()

    def shortage(self, remaining: Budget) -> str:
        """What to do where it costs more than is left."""
        return f"this costs {self.budget}, and {remaining} is left in the ledger; lower [budget]"

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        shares = zip(self.tree.names, self.plan.shares, strict=True)
        return {
            "by": list(self.job.file.by),
            "levels": dict(zip(self.tree.names, self.tree.sizes, strict=True)),
            "shares": {name: float(share) for name, share in shares},
            "budget": [self.budget.currency, str(self.budget.amount)],
            "strategy": self.plan.strategy.name,
            "answer_bytes": self.answer_bytes,
            "table_rows": self.table_rows,
            "errors": [row.facts() for row in self.rows],
            "rivals": [
                {"name": rival.name, "times": (rival.error / self.plan.error) ** 0.5}
                for rival in self.plan.rivals
            ],
        }

    def __repr__(self) -> str:
        return f"PartsForecast({self.plan}, {self.budget})"


def forecast_parts(
    job: Job, *, progress: Progress | None = None, budget: Budget | None = None
) -> PartsForecast:
    """The plan that was stored for this release, or a new one.

    Every level counts alike, and none is worse off than if levels were published apart.
    """
    spend = budget or job.budget
    if job.tree is None or spend is None:
        raise ReleaseError("this release has no parts: write by = [...] at the top of the file")
    tables = PartTables.levels_alike(job.tree, job.workload)
    stored = None if budget is not None else _stored(job, tables)
    if stored is not None:
        return PartsForecast(job, stored, spend)

    def search(workload: Workload) -> Strategy:
        return strategy_for(job, workload, progress)

    try:
        plan = choose_levels(tables, job.noise.value, search=search)
        part_noise(plan.query, plan.weights, spend, job.unit, 1)  # refused early, if at all
    except ReleaseError:
        raise
    except PsephosError as error:
        raise ReleaseError(f"no strategy for these tables in parts: {error}") from None
    return PartsForecast(job, plan, spend)


def store_plan(forecast: PartsForecast) -> None:
    """Write down what is about to be charged, so that a run that was cut short asks the same."""
    job = forecast.job
    place = selection_folder(job) / f"{job.request[:32]}.parts"
    make_folder(place.parent)
    try:
        strategy_files.save(forecast.plan.strategy, place)
        write_json(place.with_suffix(".levels"), [int(v) for v in forecast.plan.weights])
    except (PsephosError, OSError) as error:
        raise ReleaseError(f"{error}; {ELSEWHERE}") from None


def _stored(job: Job, tables: PartTables) -> LevelPlan | None:
    place = selection_folder(job) / f"{job.request[:32]}.parts"
    try:
        weights = tuple(Fraction(int(v)) for v in read_json(place.with_suffix(".levels")))
        return LevelPlan(tables, strategy_files.load(place, job.workload.domain), weights)
    except UNREADABLE:
        return None
