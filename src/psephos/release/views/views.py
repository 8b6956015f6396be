"""Three views of the same numbers, each with its standard error and noise interval.

    raw          the noisy integers as they were drawn: unbiased answers to what was measured
    consistent   least squares: unbiased, and everything adds up; or the estimate of a plan
    published    non-negative whole numbers that add up, closer to the truth; where there are too
                 many cells, inside each group of tables (psephos.release.views.published_groups)

Intervals cover the privacy noise and nothing else. A published number is biased, by how much nobody
can tell from the noisy numbers, so its interval is that of the consistent one, which covers the
truth as often as it says whatever the data are; cut at zero, where no count is below, and extended
to the published number where that lies outside. Labels say in words what each number counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from psephos.errors import ReleaseError
from psephos.infer.intervals import Widths, half_widths
from psephos.infer.least_squares import BlockAnswers, LeastSquares, block_answers
from psephos.infer.quantiles import noise_quantile
from psephos.infer.statistics import StatisticValues, joint_noise
from psephos.release.spec.entries import View
from psephos.release.spec.job import Job
from psephos.release.spec.tables import Table
from psephos.release.views.estimates import ReleaseEstimate
from psephos.release.views.gaps import Distance, Shift, TotalGap, mean_shifts
from psephos.release.views.labels import block_labels, marked, table_labels
from psephos.release.views.published_groups import PublishedGroups, total_of
from psephos.release.views.published_numbers import PublishedNumbers
from psephos.release.views.statistics import (
    count_rows,
    derived_values,
    plain_values,
    statistic_table,
)
from psephos.synthesis.quality import SyntheticQuality
from psephos.synthesis.table import SyntheticTable
from psephos.values import Array
from psephos.workload.product import product
from psephos.workload.workload import Workload


@dataclass(frozen=True, eq=False)
class Views:
    """All numbers of a release, from the estimate that its requests give."""

    estimate: ReleaseEstimate
    draws: int = 9999
    planned: Widths | None = None
    """The half-widths, where the plan of this very release worked them out."""
    stored: PublishedNumbers | None = None
    """The published numbers that a bundle shows; else those of the estimate."""

    @property
    def job(self) -> Job:
        """What was asked."""
        return self.estimate.job

    @property
    def simulation(self) -> bool:
        """Is it a rehearsal on made-up data?"""
        return self.estimate.simulation

    @property
    def kinds(self) -> tuple[View, ...]:
        """The views that a bundle of this release has."""
        return self.estimate.kinds

    @property
    def has_errors(self) -> bool:
        """Are standard errors and intervals known? Those of least squares are."""
        return self.estimate.errors is not None

    @property
    def groups(self) -> PublishedGroups | None:
        """Groups of published tables, where these serve better than a vector of all cells."""
        return self.estimate.groups

    @property
    def least_squares(self) -> LeastSquares:
        """Least squares on all measurements."""
        if self.estimate.least_squares is None:
            raise ReleaseError("the estimate of this release is biased and has no closed form")
        return self.estimate.least_squares

    @cached_property
    def blocks(self) -> list[BlockAnswers]:
        """The blocks of all steps, in their order."""
        return block_answers(self.estimate.steps)

    @cached_property
    def consistent(self) -> Array:
        """The answers of all tables, adding up; unbiased if they are those of least squares."""
        return np.asarray(self.estimate.answer(self.job.workload).values, dtype=float)

    @cached_property
    def stderr(self) -> Array:
        """The standard deviation of the noise in every consistent answer."""
        return self.widths.stderr

    @cached_property
    def widths(self) -> Widths:
        """The half-widths of the noise intervals of the consistent answers."""
        if self.planned is not None:
            return self.planned
        tables = [table.error_products for table in self.job.tables]
        return self.widths_of(self.job.workload, tables)

    def widths_of(
        self, workload: Workload, tables: Sequence[Sequence[int]] | None = None
    ) -> Widths:
        """The half-widths of the noise intervals of any workload's answers."""
        blocks = block_answers(self.least_squares.measurements)
        return half_widths(
            self.least_squares.form,
            [block.noise for block in blocks],
            [block.matrix.shape[0] for block in blocks],
            workload,
            tables=tables,
            confidence=float(self.job.file.output.confidence),
            draws=self.draws,
        )

    @cached_property
    def raw_widths(self) -> list[int]:
        """The half-width of the noise interval of every measured block."""
        confidence = float(self.job.file.output.confidence)
        return [noise_quantile(block.noise, confidence) for block in self.blocks]

    @property
    def interval_facts(self) -> dict[str, Any] | None:
        """What the intervals are; None where there are none."""
        if not self.has_errors:
            return None
        return {
            "confidence": float(self.job.file.output.confidence),
            "method": self.widths.method,
            "draws": self.widths.draws,
        }

    @property
    def published(self) -> PublishedNumbers:
        """Whole numbers of all tables that add up, none negative."""
        return self.estimate.published if self.stored is None else self.stored

    def showing(self, published: PublishedNumbers) -> Views:
        """The same with other published numbers; what does not depend on them is kept."""
        views, worked_out = replace(self, stored=published), vars(self)
        kept = ("consistent", "widths", "statistics")
        vars(views).update({name: worked_out[name] for name in kept if name in worked_out})
        return views

    @property
    def published_tables(self) -> tuple[Table, ...]:
        """The tables that have a published view, where there is one."""
        return self.job.tables if self.groups is None else self.groups.tables

    @property
    def published_rows(self) -> Array:
        """The places of their numbers."""
        slices = (table.rows(self.job.workload) for table in self.published_tables)
        return np.concatenate([np.arange(each.start, each.stop) for each in slices])

    @property
    def has_rows(self) -> bool:
        """Has the release made-up rows? Without cells its tables are counts of them."""
        asked_for = self.job.file.synthetic is not None and "published" in self.kinds
        return asked_for or not self.estimate.has_cells

    @cached_property
    def synthetic(self) -> SyntheticTable | None:
        """The made-up rows of the release, if it has any."""
        return self.published.rows() if self.has_rows else None

    @cached_property
    def quality(self) -> SyntheticQuality | None:
        """How far the made-up rows are from what is published; None if there are none."""
        return None if self.synthetic is None else self.published.quality_of(self.synthetic)

    @cached_property
    def total_gap(self) -> TotalGap | None:
        """The declared number of rows beside the noisy one; None where one of them is not known.

        Made-up rows of a rehearsal are as many as was asked for, so there is nothing to compare.
        """
        declared, exact = self.job.file.total, self.estimate.errors
        if declared is None or exact is None or self.simulation:
            return None
        noisy = total_of(exact)
        if noisy is None:
            return None
        total = Workload(self.job.workload.domain, [product()])
        return TotalGap(declared, noisy, float(self.widths_of(total).per_query[0]))

    def compute(
        self, kinds: Collection[View], progress: Callable[[str], None] | None = None
    ) -> None:
        """Work out the numbers of these views, which takes the time; they are then kept."""
        say = progress or (lambda _: None)
        if "raw" in kinds:
            _ = self.raw_widths
        if {"consistent", "published"} & set(kinds):
            say("consistent tables")
            _ = self.consistent
            say("intervals")
            _ = self.widths if self.has_errors else None
            _ = self.statistics
        if "published" in kinds:
            say("published numbers")
            _ = self.published.answers
            say("made-up rows")
            _ = self.quality

    def table(self, table: Table, view: View) -> pa.Table:
        """One table in one view: labels, the number, its standard error and its interval."""
        if view == "raw":
            raise ReleaseError(
                "the raw view has one table for each measured block, not for each question; "
                "see `raw(block)`"
            )
        if table.statistics:
            return self._statistic_table(table, view)
        rows = table.rows(self.job.workload)
        numbers: dict[str, Array] = {"count": self.consistent[rows]}
        if view == "published":
            whole = self.published.answers[rows].astype(np.int64)
            numbers = {"count": whole, "consistent": self.consistent[rows]}
        if self.has_errors:
            numbers |= self._errors(rows, numbers)
        return marked(table_labels(self.job.questions, table), numbers, self.simulation)

    def _statistic_table(self, table: Table, view: View) -> pa.Table:
        """A table of sums, means and so on, in the consistent view or beside published numbers."""
        questions = self.job.questions
        whole = stderr = None
        if view == "published":
            whole = plain_values(table, questions, self.published.answers)
        if self.has_errors and not table.derived:
            stderr = self.stderr[table.rows(questions)]
        consistent = self.statistics[table.name]
        return statistic_table(table, questions.domain, consistent, stderr, whole, self.simulation)

    @cached_property
    def statistics(self) -> dict[str, StatisticValues]:
        """The consistent numbers of all tables of statistics, with intervals if these are known."""
        numbers, questions = {}, self.job.questions
        for table in self.job.tables:
            if not table.statistics:
                continue
            rows = table.rows(questions)
            values = plain_values(table, questions, self.consistent)
            if not self.has_errors:
                numbers[table.name] = StatisticValues(values)
            elif not table.derived:
                half = self.widths.per_query[rows]
                numbers[table.name] = StatisticValues(values, values - half, values + half)
            else:
                noise = joint_noise(self.least_squares, table.workload(self.job.workload))
                confidence = float(self.job.file.output.confidence)
                numbers[table.name] = derived_values(
                    table, questions, self.consistent, noise, confidence
                )
        return numbers

    def _errors(self, rows: slice, numbers: dict[str, Array]) -> dict[str, Array]:
        """Standard errors and intervals of some numbers; `consistent` stands beside whole ones."""
        centre, half = self.consistent[rows], self.widths.per_query[rows]
        low, high = centre - half, centre + half
        if "consistent" in numbers:
            whole = numbers["count"]
            low, high = np.maximum(np.minimum(low, whole), 0), np.maximum(high, whole)
        return {"stderr": self.stderr[rows], "low": low, "high": high}

    def raw(self, number: int) -> pa.Table:
        """The noisy integers of one measured block; their intervals are exact quantiles."""
        matrix, noise, values = self.blocks[number]
        half = self.raw_widths[number]
        spread = np.full(len(values), np.sqrt(noise.exact_variance))
        numbers = {"value": values, "stderr": spread, "low": values - half, "high": values + half}
        labels = block_labels(matrix, self.job.workload.domain)
        return marked(labels, numbers, self.simulation)

    @property
    def distance(self) -> Distance:
        """How far the published numbers are from the consistent ones."""
        counting = count_rows(self.published_tables, self.job.questions)
        rows = counting if counting.size else self.published_rows
        gap = self.published.answers[rows] - self.consistent[rows]
        return Distance.of(gap, self.stderr[rows] if self.has_errors else None)

    def shifts(self, table: Table) -> list[Shift]:
        """How far the published view lies from the consistent one, by what is summed over.

        Means of published minus consistent: estimates of the published view's bias, made from the
        noisy numbers alone; the consistent view is unbiased. Totals add up the shifts of what
        they sum, so they are told apart from single cells.
        """
        if table.statistics:
            return []
        rows = table.rows(self.job.workload)
        labels = table_labels(self.job.questions, table)
        labels.pop("part", None)
        return mean_shifts(self.published.answers[rows] - self.consistent[rows], labels)
