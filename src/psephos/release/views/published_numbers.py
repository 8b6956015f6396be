"""The published numbers of a release: whole, never negative, and the rows that are made up of them.

    cells     a vector of whole cells, which all tables are sums of
    groups    a vector for each group of tables (psephos.release.views.published_groups)
    rows      counts of made-up rows, where a plan's estimate has no vector of cells

They come from an estimate, or from the files of a bundle, which are then held against it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from psephos.infer.estimate import CellEstimate, Estimate
from psephos.infer.group_cells import Disagreement, GroupCells, rounded
from psephos.infer.records import counted_answers
from psephos.infer.rounding import round_cells
from psephos.release.spec.job import Job
from psephos.release.views.published_groups import GroupedFit, PublishedGroups, grouped_answers
from psephos.release.views.statistics import count_rows, counting_part
from psephos.release.views.synthetic import public_generator, written_out
from psephos.synthesis.quality import SyntheticQuality, quality_of, quality_of_answers
from psephos.synthesis.sample import sample
from psephos.synthesis.table import SyntheticTable
from psephos.values import Array, whole_numbers


class RoundedCells(NamedTuple):
    """Whole cells, and the real numbers that they are a rounding of."""

    whole: Array
    real: Array


class PublishedNumbers(Protocol):
    """Whole numbers that add up, and what they were rounded from."""

    @property
    def answers(self) -> Array:
        """The answers of all tables; zero for those that are not published."""

    @property
    def unrounded(self) -> Array:
        """The same before they were rounded."""

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the manifest says of them."""

    @property
    def vectors(self) -> tuple[RoundedCells, ...]:
        """The cells that tables are sums of: one vector, one for each group, or none."""

    @property
    def disagreement(self) -> Disagreement | None:
        """How far apart the numbers of several groups are; None where there are no groups."""

    def rows(self, count: int | None = None) -> SyntheticTable:
        """Made-up rows; as many as the release file says, or as are published."""

    def quality_of(self, table: SyntheticTable) -> SyntheticQuality:
        """How far some rows are from what is published."""


@dataclass(frozen=True, eq=False)
class PublishedCells:
    """Whole cells that all tables are sums of: so they add up, exactly."""

    job: Job
    real: Array
    """Of every cell, none negative, zero where no row can be."""
    facts: Mapping[str, Any]
    simulation: bool = False
    stored: Array | None = None
    """The whole cells of a bundle; else the real ones are rounded."""
    disagreement = None

    @cached_property
    def cells(self) -> Array:
        """The whole numbers."""
        return round_cells(self.real, self.job.workload) if self.stored is None else self.stored

    @property
    def vectors(self) -> tuple[RoundedCells, ...]:
        return (RoundedCells(self.cells, self.real),)

    @cached_property
    def answers(self) -> Array:
        return whole_numbers(self._answers_of(self.cells))

    @property
    def unrounded(self) -> Array:
        return self._answers_of(self.real)

    def _answers_of(self, cells: Array) -> Array:
        # Merging may have renumbered the attributes: an axis for each of them tells.
        return self.job.workload.answer(cells.reshape(self.job.workload.domain.shape))

    def rows(self, count: int | None = None) -> SyntheticTable:
        return written_out(self.job, self.cells, self.real, self.simulation, count)

    def quality_of(self, table: SyntheticTable) -> SyntheticQuality:
        workload = self.job.workload
        model = CellEstimate(workload.domain, self.real, "published", self.simulation)
        return quality_of(table, model, counting_part(workload))


@dataclass(frozen=True, eq=False)
class PublishedGroupCells:
    """Whole cells of each group of tables: inside a group they add up, between groups nearly."""

    groups: PublishedGroups
    fit: GroupedFit
    simulation: bool = False
    stored: GroupCells | None = None
    """The whole cells of a bundle; else the real ones are rounded."""

    @cached_property
    def cells(self) -> GroupCells:
        """The whole numbers."""
        return rounded(self.fit.cells, self.fit.total) if self.stored is None else self.stored

    @property
    def vectors(self) -> tuple[RoundedCells, ...]:
        pairs = zip(self.cells.vectors, self.fit.cells.vectors, strict=True)
        return tuple(RoundedCells(*pair) for pair in pairs)

    @cached_property
    def answers(self) -> Array:
        return grouped_answers(self.cells)

    @property
    def unrounded(self) -> Array:
        return grouped_answers(self.fit.cells)

    @cached_property
    def disagreement(self) -> Disagreement:
        return Disagreement.of(self.cells)

    @property
    def facts(self) -> dict[str, Any]:
        apart = asdict(self.disagreement)
        return {
            **self.groups.facts(self.fit),
            "disagreement": {**apart, "attributes": list(apart["attributes"])},
            "left_out": self.groups.left_out,
        }

    def rows(self, count: int | None = None) -> SyntheticTable:
        job = self.groups.job
        asked_for = None if job.file.synthetic is None else job.file.synthetic.rows
        number = count or asked_for or self.fit.total
        table = sample(self.fit.cells, generator=public_generator(job), rows=number)
        return replace(table, simulation=self.simulation)

    def quality_of(self, table: SyntheticTable) -> SyntheticQuality:
        job = self.groups.job
        places = count_rows(self.groups.tables, job.questions)
        total = float(self.fit.total or 0)
        return quality_of_answers(table, job.workload, self.unrounded, places, total)


@dataclass(frozen=True, eq=False)
class PublishedRows:
    """Made-up rows of an estimate that has no vector of cells; all tables are counts of them."""

    job: Job
    estimate: Estimate
    facts: Mapping[str, Any]
    simulation: bool = False
    stored: SyntheticTable | None = None
    """The rows of a bundle; else they are made up."""
    disagreement = None

    @property
    def vectors(self) -> tuple[RoundedCells, ...]:
        return ()

    @cached_property
    def _table(self) -> SyntheticTable:
        return self.rows() if self.stored is None else self.stored

    @cached_property
    def answers(self) -> Array:
        domain, workload = self.job.workload.domain, self.job.workload
        return whole_numbers(counted_answers(domain, self._table.records, workload))

    @property
    def unrounded(self) -> Array:
        return np.asarray(self.estimate.answer(self.job.workload).values, dtype=float)

    def rows(self, count: int | None = None) -> SyntheticTable:
        number = self.job.file.total if count is None else count
        table = sample(self.estimate, generator=public_generator(self.job), rows=number)
        return replace(table, simulation=self.simulation)

    def quality_of(self, table: SyntheticTable) -> SyntheticQuality:
        return quality_of(table, self.estimate, counting_part(self.job.workload))
