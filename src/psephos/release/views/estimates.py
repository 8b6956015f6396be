"""The estimate that the numbers of a release are answers of, and what is published of it.

measured    least squares on noisy integers: unbiased, with exact errors, published by a rule on
            public facts; or the tables nearest in another norm, whose errors nobody knows
plan        what a plan returned that adapts to the data: biased by what it assumes. An error of
            the noise alone would leave out what is wrong by assumption, for example that all
            cells of a bucket are alike, so none is told
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from psephos.errors import ReleaseError
from psephos.infer.consistency import ConsistentTables, consistent
from psephos.infer.entropy import MaximumEntropy
from psephos.infer.estimate import Answers, cells_of
from psephos.infer.least_squares import LeastSquares, block_answers, least_squares
from psephos.infer.nonnegative import NonNegative
from psephos.kernel.measurement import Measurement
from psephos.plans.registry import PlanRun
from psephos.release.spec.entries import View
from psephos.release.spec.job import Job
from psephos.release.views.held_cells import held_cells, held_words, nonnegative_cells
from psephos.release.views.published import PublishedRule
from psephos.release.views.published_groups import PublishedGroups, possible_views
from psephos.release.views.published_numbers import (
    PublishedCells,
    PublishedGroupCells,
    PublishedNumbers,
    PublishedRows,
)
from psephos.values import Array
from psephos.workload.workload import Workload

PLAN = "plan"
"""What the published view was rounded from, where it is a plan's own estimate."""


class ReleaseEstimate(Protocol):
    """What the requests of a release tell of its tables."""

    @property
    def job(self) -> Job:
        """What was asked."""

    @property
    def steps(self) -> tuple[Measurement, ...]:
        """The noisy integers of this release's own requests: its raw view."""

    @property
    def simulation(self) -> bool:
        """Is it a rehearsal on made-up data?"""

    @property
    def least_squares(self) -> LeastSquares | None:
        """Least squares on all measurements; None where a plan estimates."""

    @property
    def errors(self) -> LeastSquares | None:
        """The closed form that the errors of answers follow from; None where nobody knows them."""

    @property
    def nearest(self) -> ConsistentTables | None:
        """The consistent tables, where they are nearest in another norm than that of L2."""

    @property
    def groups(self) -> PublishedGroups | None:
        """Groups of published tables, where these serve better than a vector of all cells."""

    @property
    def has_cells(self) -> bool:
        """Are published tables sums of cells? Else they are counts of made-up rows."""

    @property
    def kinds(self) -> tuple[View, ...]:
        """The views that a bundle of it has."""

    @property
    def published(self) -> PublishedNumbers:
        """Whole numbers, by the rule of the release."""

    @property
    def repeated(self) -> tuple[bool, ...]:
        """Of each request of a plan: would this machine ask it to the letter?"""

    def answer(self, workload: Workload) -> Answers:
        """The consistent answers of any workload over the cells that were measured."""


@dataclass(frozen=True, eq=False)
class MeasuredEstimate:
    """What measurements of strategies tell: least squares, or the tables nearest in a norm."""

    job: Job
    steps: tuple[Measurement, ...]
    coordinates: Array | None = None
    """Of nearest tables that a bundle holds: how they differ from least squares."""
    claim: Mapping[str, Any] | None = None
    """What a bundle says of its published view: believed where last digits decide, only there."""
    progress: Callable[[str], None] | None = None
    """Hears what is being worked out, where that takes long."""
    has_cells = True
    repeated = ()

    @property
    def simulation(self) -> bool:
        return any(step.simulation for step in self.steps)

    @cached_property
    def measurements(self) -> tuple[Measurement, ...]:
        """What the release builds on, then its own steps."""
        return (*self.job.known, *self.steps)

    @cached_property
    def least_squares(self) -> LeastSquares:
        return least_squares(self.measurements)

    @property
    def errors(self) -> LeastSquares | None:
        return self.least_squares if self.job.file.output.consistency == "l2" else None

    @cached_property
    def nearest(self) -> ConsistentTables | None:
        norm = self.job.file.output.consistency
        if norm == "l2":
            return None
        tables = consistent(self.measurements, norm)
        if not isinstance(tables, ConsistentTables):
            raise ReleaseError(f"there are no tables nearest in {norm}")
        return tables if self.coordinates is None else replace(tables, difference=self.coordinates)

    def answer(self, workload: Workload) -> Answers:
        return (self.nearest or self.least_squares).answer(workload)

    @cached_property
    def groups(self) -> PublishedGroups | None:
        return PublishedGroups.of(self.job, [b.matrix for b in block_answers(self.measurements)])

    @property
    def kinds(self) -> tuple[View, ...]:
        return possible_views(self.job, self.groups)

    @cached_property
    def rule(self) -> PublishedRule:
        """What the published view is rounded from."""
        return PublishedRule.of(self.job)

    @cached_property
    def fit(self) -> MaximumEntropy | NonNegative:
        """Non-negative real numbers for every cell, zero where no row can be."""
        return self.rule.fit(self.job, self.least_squares, self.claim)

    @cached_property
    def published(self) -> PublishedNumbers:
        if self.groups is not None:
            fit = self.groups.fit(self.least_squares, self.claim, self.progress)
            return PublishedGroupCells(self.groups, fit, self.simulation)
        facts = self.rule.facts(self.job, self.fit)
        return PublishedCells(self.job, self.fit.vector, facts, self.simulation)


@dataclass(frozen=True, eq=False)
class PlanEstimate:
    """What a plan returned that adapts to the data; moved to hold what is declared of all cells."""

    job: Job
    run: PlanRun
    repeated: tuple[bool, ...]
    least_squares = None
    errors = None
    nearest = None
    groups = None

    @property
    def simulation(self) -> bool:
        return self.run.estimate.simulation

    @property
    def steps(self) -> tuple[Measurement, ...]:
        results = (request.result for request in self.run.requests)
        return tuple(result for result in results if isinstance(result, Measurement))

    @property
    def kinds(self) -> tuple[View, ...]:
        """Those that were asked for; a plan without noisy numbers has no raw ones."""
        return tuple(v for v in self.job.file.output.views if v != "raw" or self.steps)

    @cached_property
    def plan_cells(self) -> Array | None:
        """The plan's estimate of every cell as it is, if it makes one."""
        cells = cells_of(self.run.estimate)
        return None if cells is None else np.asarray(cells, dtype=float)

    @property
    def has_cells(self) -> bool:
        return self.plan_cells is not None

    @cached_property
    def vector(self) -> Array | None:
        """The same with what the release file declares of cells held."""
        return None if self.plan_cells is None else held_cells(self.job, self.plan_cells)

    def answer(self, workload: Workload) -> Answers:
        """The answers of a workload: biased, without errors."""
        if self.vector is None:
            return self.run.estimate.answer(workload)
        domain = self.job.workload.domain
        Workload.require(workload, domain, same_cells=True)
        values = workload.answer(self.vector.reshape(domain.shape))
        return Answers(workload, values, biased=True, simulation=self.simulation)

    @cached_property
    def published(self) -> PublishedNumbers:
        """The nearest cells of which none is negative; made-up rows where there are no cells."""
        name, held = self.run.name, held_words(self.job)
        reason = f"the estimate of {name}, in the nearest cells of which none is negative"
        reason += f"; it holds {held}, and so does the consistent view" if held else ""
        if not self.has_cells:
            reason = f"made-up rows, which come from the estimate of {name}"
        facts = {"method": PLAN, "reason": reason, "steps": 0, "gap": 0.0}
        if self.plan_cells is None:
            return PublishedRows(self.job, self.run.estimate, facts, self.simulation)
        real = nonnegative_cells(self.job, self.plan_cells)
        return PublishedCells(self.job, real, facts, self.simulation)
