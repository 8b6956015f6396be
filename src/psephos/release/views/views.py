"""Three views of the same numbers, each with its standard error and noise interval.

    raw          the noisy integers as they were drawn: unbiased answers to what was measured
    consistent   least squares: unbiased, and everything adds up
    published    non-negative whole numbers that add up, closer to the truth; where there are too
                 many cells, inside each group of tables (psephos.release.views.published_groups)

Intervals cover the privacy noise and nothing else. A published number is biased, by how much nobody
can tell from the noisy numbers, so its interval is that of the consistent one, which covers the
truth as often as it says whatever the data are; cut at zero, where no count is below, and extended
to the published number where that lies outside. Labels say in words what each number counts.

A release that builds on others averages with them only if their noisy integers agree with its own.
An edition is what the owner says about the source; this is what the numbers say. The comparison is
a function of what was paid for, so it costs nothing, and whoever has the bundle can repeat it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from psephos.errors import ReleaseError
from psephos.infer.agreement import Agreement, agreement
from psephos.infer.consistency import ConsistentTables, consistent
from psephos.infer.entropy import MaximumEntropy
from psephos.infer.estimate import CellEstimate
from psephos.infer.group_cells import Disagreement, GroupCells, rounded
from psephos.infer.intervals import Widths, half_widths
from psephos.infer.least_squares import BlockAnswers, LeastSquares, block_answers, least_squares
from psephos.infer.nonnegative import NonNegative
from psephos.infer.quantiles import noise_quantile
from psephos.infer.rounding import round_cells
from psephos.infer.statistics import StatisticValues, joint_noise
from psephos.kernel.measurement import Measurement
from psephos.release.spec.entries import View
from psephos.release.spec.job import Job
from psephos.release.spec.tables import Table
from psephos.release.views.labels import block_labels, marked, table_labels
from psephos.release.views.published import PublishedRule
from psephos.release.views.published_groups import (
    GroupedFit,
    PublishedGroups,
    grouped_answers,
    possible_views,
    total_of,
)
from psephos.release.views.statistics import (
    count_rows,
    counting_part,
    derived_values,
    plain_values,
    statistic_table,
)
from psephos.release.views.synthetic import public_generator, written_out
from psephos.report.cross_table import TOTAL
from psephos.synthesis.quality import SyntheticQuality, quality_of, quality_of_answers
from psephos.synthesis.sample import sample
from psephos.synthesis.table import SyntheticTable
from psephos.values import Array, whole_numbers
from psephos.workload.product import product
from psephos.workload.workload import Workload

WIDE_GAP = 3.0
"""In half-widths of the noisy total's interval: of intervals that cover 95 %, at most one in some
thousand numbers of rows that are declared rightly is further off."""


@dataclass(frozen=True, eq=False)
class Views:
    """All numbers of a release, from its noisy integers alone."""

    job: Job
    steps: tuple[Measurement, ...]
    """What was measured for this release, one for each step of its plan."""
    draws: int = 9999
    planned: Widths | None = None
    """The half-widths, where the plan of this very release worked them out."""
    progress: Callable[[str], None] | None = None
    """Told what is being worked out, where that takes long."""
    coordinates: Array | None = None
    """Of consistent tables that a bundle holds: how they differ from least squares."""
    claim: Mapping[str, Any] | None = None
    """What a bundle says of its published view: believed where last digits decide, only there."""

    @property
    def has_errors(self) -> bool:
        """Are standard errors and intervals known? Those of least squares are."""
        return self.job.file.output.consistency == "l2"

    @cached_property
    def measurements(self) -> tuple[Measurement, ...]:
        """What the release builds on, then its own steps."""
        return (*self.job.known, *self.steps)

    @property
    def simulation(self) -> bool:
        """Is it a rehearsal on made-up data?"""
        return any(step.simulation for step in self.steps)

    @cached_property
    def blocks(self) -> list[BlockAnswers]:
        """The blocks of all steps, in their order."""
        return block_answers(self.steps)

    @cached_property
    def estimate(self) -> LeastSquares:
        """Least squares."""
        return least_squares(self.measurements)

    @cached_property
    def nearest(self) -> ConsistentTables | None:
        """The consistent tables, where they are nearest in another norm than that of L2."""
        norm = self.job.file.output.consistency
        if norm == "l2":
            return None
        tables = consistent(self.measurements, norm)
        if not isinstance(tables, ConsistentTables):
            raise ReleaseError(f"there are no tables nearest in {norm}")
        return tables if self.coordinates is None else replace(tables, difference=self.coordinates)

    @cached_property
    def consistent(self) -> Array:
        """The answers of all tables, adding up; unbiased if they are those of least squares."""
        estimate = self.estimate if self.nearest is None else self.nearest
        return estimate.answer(self.job.workload).values

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
        return half_widths(
            self.estimate.form,
            [block.noise for block in block_answers(self.measurements)],
            [block.matrix.shape[0] for block in block_answers(self.measurements)],
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

    @cached_property
    def rule(self) -> PublishedRule:
        """What the published view is rounded from."""
        return PublishedRule.of(self.job)

    @cached_property
    def fit(self) -> MaximumEntropy | NonNegative:
        """Non-negative real numbers for every cell, zero where no row can be."""
        return self.rule.fit(self.job, self.estimate, self.claim)

    @property
    def solution(self) -> Array:
        """The cells that are rounded."""
        return self.fit.vector

    @property
    def published_facts(self) -> dict[str, Any]:
        """What the published view was rounded from, and how that was reached."""
        if self.groups is not None:
            return {
                **self.groups.facts(self.grouped_fit),
                "disagreement": disagreement_facts(self.group_cells),
                "left_out": self.groups.left_out,
            }
        return self.rule.facts(self.job, self.fit)

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

    def distance(self, published: Array | None = None) -> Distance:
        """How far the published numbers are from the consistent ones."""
        whole = self.published if published is None else published
        counting = count_rows(self.published_tables, self.job.questions)
        rows = counting if counting.size else self.published_rows
        gap = whole[rows] - self.consistent[rows]
        in_errors = None
        if self.has_errors:
            in_errors = float(np.abs(gap / np.maximum(self.stderr[rows], 1e-12)).max())
        largest, typical = float(np.abs(gap).max()), float(np.sqrt((gap**2).mean()))
        return Distance(largest, typical, in_errors)

    @cached_property
    def total_gap(self) -> TotalGap | None:
        """The declared number of rows beside the noisy one; None where one of them is not known.

        Made-up rows of a rehearsal are as many as was asked for, so there is nothing to compare.
        """
        declared = self.job.file.total
        if declared is None or not self.has_errors or self.simulation:
            return None
        noisy = total_of(self.estimate)
        if noisy is None:
            return None
        total = Workload(self.job.workload.domain, [product()])
        return TotalGap(declared, noisy, float(self.widths_of(total).per_query[0]))

    @cached_property
    def cells(self) -> Array:
        """The solution in whole numbers."""
        return round_cells(self.solution, self.job.workload)

    @property
    def has_cells(self) -> bool:
        """Are published tables sums of cells? Else they are counts of made-up rows."""
        return True

    @cached_property
    def groups(self) -> PublishedGroups | None:
        """Groups of published tables, where no vector of all cells fits."""
        return PublishedGroups.of(self.job, [b.matrix for b in block_answers(self.measurements)])

    @cached_property
    def grouped_fit(self) -> GroupedFit:
        """Non-negative real numbers for the cells of every group."""
        if self.groups is None:
            raise ReleaseError("all cells fit into one vector: see `fit`")
        return self.groups.fit(self.estimate, self.claim, self.progress)

    @cached_property
    def group_cells(self) -> GroupCells:
        """They in whole numbers."""
        return rounded(self.grouped_fit.cells, self.grouped_fit.total)

    @property
    def kinds(self) -> tuple[View, ...]:
        """The views that a bundle of this release has."""
        return possible_views(self.job, self.groups)

    @property
    def published_tables(self) -> tuple[Table, ...]:
        """The tables that have a published view, where there is one."""
        return self.job.tables if self.groups is None else self.groups.tables

    @property
    def published_rows(self) -> Array:
        """The places of their numbers."""
        slices = (table.rows(self.job.workload) for table in self.published_tables)
        return np.concatenate([np.arange(each.start, each.stop) for each in slices])

    @cached_property
    def published(self) -> Array:
        """The answers of all tables, counted from whole cells: so they add up, exactly.

        Where tables are in groups, inside each of them; zero for what no group tells.
        """
        if self.groups is not None:
            return grouped_answers(self.group_cells)
        return self.counted(self.cells)

    @cached_property
    def synthetic(self) -> SyntheticTable | None:
        """The made-up rows of the release, if it has any."""
        entry = self.job.file.synthetic
        if entry is None or "published" not in self.kinds:
            return None
        if self.groups is None:
            return written_out(self.job, self.cells, self.solution, self.simulation)
        cells, rows = self.grouped_fit.cells, entry.rows or self.grouped_fit.total
        table = sample(cells, generator=public_generator(self.job), rows=rows)
        return replace(table, simulation=self.simulation)

    @cached_property
    def quality(self) -> SyntheticQuality | None:
        """How far the made-up rows are from what is published; None if there are none."""
        return None if self.synthetic is None else self.quality_of(self.synthetic)

    def quality_of(self, table: SyntheticTable) -> SyntheticQuality:
        """How far some rows are from what is published."""
        workload = self.job.workload
        if self.groups is None:
            model = CellEstimate(workload.domain, self.solution, "published", self.simulation)
            return quality_of(table, model, counting_part(workload))
        answers, total = grouped_answers(self.grouped_fit.cells), self.grouped_fit.total
        places = count_rows(self.published_tables, self.job.questions)
        return quality_of_answers(table, workload, answers, places, float(total or 0))

    def compute(self, kinds: Collection[View]) -> None:
        """Work out the numbers of these views, which takes the time; they are then kept."""
        say = self.progress or (lambda _: None)
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
            _ = self.published
            say("made-up rows")
            _ = self.quality

    def counted(self, cells: Array) -> Array:
        """The answers of all tables, counted from some cells."""
        shaped = cells.reshape(self.job.workload.domain.shape)  # merging may have renumbered them
        return whole_numbers(self.job.workload.answer(shaped))

    def table(self, table: Table, view: View, published: Array | None = None) -> pa.Table:
        """One table in one view: labels, the number, its standard error and its interval."""
        if view == "raw":
            raise ReleaseError(
                "the raw view has one table for each measured block, not for each question; "
                "see `raw(block)`"
            )
        if table.statistics:
            whole = self.published if view == "published" and published is None else published
            return self._statistic_table(table, whole)
        rows = table.rows(self.job.workload)
        numbers: dict[str, Array] = {"count": self.consistent[rows]}
        if view == "published":
            whole = (self.published if published is None else published)[rows].astype(np.int64)
            numbers = {"count": whole, "consistent": self.consistent[rows]}
        if self.has_errors:
            numbers |= self._errors(rows, numbers)
        return marked(table_labels(self.job.questions, table), numbers, self.simulation)

    def _statistic_table(self, table: Table, published: Array | None) -> pa.Table:
        """A table of sums, means and so on, in the consistent view or beside published numbers."""
        questions = self.job.questions
        whole = None if published is None else plain_values(table, questions, published)
        stderr = None
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
                noise = joint_noise(self.estimate, table.workload(self.job.workload))
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

    def shifts(self, table: Table, published: Array | None = None) -> list[Shift]:
        """How far the published view lies from the consistent one, by what is summed over.

        Means of published minus consistent: estimates of the published view's bias, made from the
        noisy numbers alone; the consistent view is unbiased. Totals add up the shifts of what
        they sum, so they are told apart from single cells.
        """
        if table.statistics:
            return []
        rows = table.rows(self.job.workload)
        whole = self.published if published is None else published
        gaps = whole[rows] - self.consistent[rows]
        labels = table_labels(self.job.questions, table)
        labels.pop("part", None)
        if not labels:
            return [Shift((), gaps.size, float(gaps.mean()))]
        names = np.array(list(labels))
        apart = np.array([[word != TOTAL for word in words] for words in labels.values()])
        packed = np.packbits(apart, axis=0)  # a byte for eight columns
        _, first, part = np.unique(packed, axis=1, return_index=True, return_inverse=True)
        order = np.argsort(part.reshape(-1), kind="stable")
        parts = np.split(gaps[order], np.cumsum(np.bincount(part.reshape(-1)))[:-1])
        return [
            Shift(tuple(names[apart[:, first[k]]].tolist()), parts[k].size, float(parts[k].mean()))
            for k in np.argsort(first)
        ]


def disagreement_facts(whole: GroupCells) -> dict[str, Any]:
    """How far apart whole numbers of different groups are, as the manifest has it."""
    facts = asdict(Disagreement.of(whole))
    return {**facts, "attributes": list(facts["attributes"])}


class Distance(NamedTuple):
    """How far apart the published and the consistent view are, in rows and in standard errors."""

    largest: float
    root_mean_square: float
    in_standard_errors: float | None


class TotalGap(NamedTuple):
    """A declared number of rows, the noisy one, and the half-width of its interval."""

    declared: int
    noisy: float
    half_width: float

    @property
    def is_wide(self) -> bool:
        """Is the declared number so far off that noise is no explanation?"""
        return abs(self.declared - self.noisy) > WIDE_GAP * self.half_width

    def __str__(self) -> str:
        return (
            f"{self.declared:,} rows are declared, and the noisy numbers say {self.noisy:,.0f} "
            f"± {self.half_width:,.0f}"
        )


@dataclass(frozen=True)
class Shift:
    """The mean shift of a table's numbers that tell these columns apart and sum over the others."""

    by: tuple[str, ...]
    numbers: int
    mean: float


@dataclass(frozen=True)
class Comparison:
    """Some of the past releases beside all other measurements."""

    names: tuple[str, ...]
    table: str
    agreement: Agreement

    @property
    def ok(self) -> bool:
        """Noise alone can explain what parts them."""
        return self.agreement.ok

    def __str__(self) -> str:
        moves, names = self.agreement, ", ".join(map(repr, self.names))
        if moves.ok:
            return (
                f"{names}: within {moves.largest:,.1f} standard errors of what else was measured; "
                f"noise alone stays within {moves.largest_bound:,.1f}"
            )
        return (
            f"{names} contradict{'s' if len(self.names) == 1 else ''} what else was measured: they "
            f"are up to {moves.largest:,.0f} standard errors apart, most in table {self.table!r}, "
            f"where noise alone stays within {moves.largest_bound:,.0f}, and {moves.typical:,.1f} "
            f"over all tables, where it stays within {moves.typical_bound:,.1f}"
        )


def compare_past(views: Views) -> list[Comparison]:
    """All past releases together beside the new measurement, then each one beside all others."""
    past = views.job.past
    if not past:
        return []
    seed = int.from_bytes(hashlib.sha256(views.steps[0].key.encode()).digest()[:8], "big")
    everything = tuple(range(len(past)))
    groups = dict.fromkeys([everything, *((i,) for i in everything)])
    comparisons = []
    for group in groups:
        moves = agreement(views.estimate, views.job.workload, group, seed=seed)
        tables = views.job.tables
        table = next(t.name for t in tables if moves.query < t.rows(views.job.workload).stop)
        comparisons.append(Comparison(tuple(past[i].name for i in group), table, moves))
    return comparisons


def worst_of(comparisons: list[Comparison]) -> Comparison:
    """The one that is the farthest beyond noise."""
    return max(
        comparisons,
        key=lambda each: (not each.ok, each.agreement.largest, each.agreement.typical),
    )


def require_agreement(views: Views) -> None:
    """Refuse to average measurements that contradict each other; what was paid for is kept."""
    comparisons = compare_past(views)
    if all(each.ok for each in comparisons):
        return
    wider = "" if views.job.budget else "; its intervals are then wider than the targets ask for"
    raise ReleaseError(
        f"builds_on: {worst_of(comparisons)}. So the source is not the data that was measured "
        "then, and an average would be of neither. The charge stays, and what was measured is "
        "stored in the ledger: remove builds_on, leave the name and all else as it is, and release "
        f"again, which costs nothing more{wider}. Give the next state of the data an `edition`"
    )
