"""Three views of the same numbers, each with its standard error and noise interval.

    raw          the noisy integers as they were drawn: unbiased answers to what was measured
    consistent   least squares: unbiased, and everything adds up
    published    non-negative whole numbers that add up, closer to the truth; where there are too
                 many cells, inside each group of tables (psephos.release.published_groups)

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
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.errors import ReleaseError
from psephos.infer.agreement import Agreement, agreement
from psephos.infer.entropy import MaximumEntropy
from psephos.infer.group_cells import GroupCells, rounded
from psephos.infer.intervals import Widths, half_widths
from psephos.infer.least_squares import BlockAnswers, LeastSquares, block_answers, least_squares
from psephos.infer.nonnegative import NonNegative, nonnegative
from psephos.infer.quantiles import noise_quantile
from psephos.infer.rounding import round_cells
from psephos.kernel.measurement import Measurement
from psephos.matrix import Compose, Identity, Kron, Matrix, Ones, Partition
from psephos.release.published import PublishedRule
from psephos.release.published_groups import (
    GroupedFit,
    PublishedGroups,
    grouped_answers,
    possible_views,
)
from psephos.release.request import Job
from psephos.release.requests import (
    BUNDLE_FORMAT,
    ESTIMATE_FORMAT,
    GROUPS_FORMAT,
    LATTICE_FORMAT,
)
from psephos.release.spec.entries import View
from psephos.release.spec.tables import Table, column_name
from psephos.report.points import TOTAL
from psephos.values import Array
from psephos.workload.query_sets import (
    IdentityQueries,
    JointQueries,
    QuerySet,
    TotalQueries,
)
from psephos.workload.workload import Workload

FACTOR_ENTRIES = 2_000_000
"""The most entries of a factor that are looked at one by one."""


@dataclass(frozen=True, eq=False)
class Views:
    """All numbers of a release, from its noisy integers alone."""

    job: Job
    steps: tuple[Measurement, ...]
    """What was measured for this release, one for each step of its plan."""
    draws: int = 9999
    bundle_format: int = BUNDLE_FORMAT
    """Of the bundle whose numbers these are: older ones made intervals in other ways."""
    planned: Widths | None = None
    """The half-widths, where the plan of this very release worked them out."""

    @cached_property
    def measurements(self) -> tuple[Measurement, ...]:
        """What the release builds on, then its own steps."""
        return (*(request.measurement for request in self.job.past), *self.steps)

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
    def consistent(self) -> Array:
        """The answers of all tables, unbiased and adding up."""
        return self.estimate.answer(self.job.workload).values

    @cached_property
    def stderr(self) -> Array:
        """The standard deviation of the noise in every consistent answer."""
        return self.widths.stderr

    @cached_property
    def widths(self) -> Widths:
        """The half-widths of the noise intervals of the consistent answers."""
        if self.planned is not None:
            return self.planned
        tables = [table.products for table in self.job.tables]
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
            lattice=self.bundle_format >= LATTICE_FORMAT,
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
        if self.bundle_format < ESTIMATE_FORMAT:
            return nonnegative(self.estimate, zeros=self.job.zeros, hold_total=True)
        return self.rule.fit(self.job, self.estimate)

    @property
    def solution(self) -> Array:
        """The cells that are rounded."""
        return self.fit.vector

    @cached_property
    def cells(self) -> Array:
        """The solution in whole numbers."""
        return round_cells(self.solution, self.job.workload)

    @cached_property
    def groups(self) -> PublishedGroups | None:
        """Groups of published tables, where no vector of all cells fits."""
        if self.bundle_format < GROUPS_FORMAT:
            return None
        return PublishedGroups.of(self.job, [b.matrix for b in block_answers(self.measurements)])

    @cached_property
    def grouped_fit(self) -> GroupedFit:
        """Non-negative real numbers for the cells of every group."""
        if self.groups is None:
            raise ReleaseError("all cells fit into one vector: see `fit`")
        return self.groups.fit(self.estimate)

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

    def compute(self, kinds: Collection[View]) -> None:
        """Work out the numbers of these views, which takes the time; they are then kept."""
        if "raw" in kinds:
            _ = self.raw_widths
        if {"consistent", "published"} & set(kinds):
            _ = self.consistent, self.widths
        if "published" in kinds:
            _ = self.published

    def counted(self, cells: Array) -> Array:
        """The answers of all tables, counted from some cells."""
        shaped = cells.reshape(self.job.workload.domain.shape)  # merging may have renumbered them
        return self.job.workload.answer(shaped).astype(np.int64)

    def table(self, table: Table, view: View, published: Array | None = None) -> pa.Table:
        """One table in one view: labels, the number, its standard error and its interval."""
        if view == "raw":
            raise ReleaseError(
                "the raw view has one table for each measured block, not for each question; "
                "see `raw(block)`"
            )
        rows = table.rows(self.job.workload)
        centre, half = self.consistent[rows], self.widths.per_query[rows]
        labels = table_labels(self.job.workload, table)
        numbers: dict[str, Array] = {"count": centre}
        low, high = centre - half, centre + half
        if view == "published":
            whole = (self.published if published is None else published)[rows]
            numbers = {"count": whole, "consistent": centre}
            if self.bundle_format >= ESTIMATE_FORMAT:
                low, high = np.maximum(np.minimum(low, whole), 0), np.maximum(high, whole)
        numbers |= {"stderr": self.stderr[rows], "low": low, "high": high}
        return marked(labels, numbers, self.simulation)

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
        rows = table.rows(self.job.workload)
        whole = self.published if published is None else published
        gaps = whole[rows] - self.consistent[rows]
        labels = table_labels(self.job.workload, table)
        labels.pop("part", None)
        by = [tuple(n for n, words in labels.items() if words[i] != TOTAL)
              for i in range(gaps.size)]  # fmt: skip
        shifts = []
        for names in dict.fromkeys(by):
            some = gaps[[each == names for each in by]]
            shifts.append(Shift(names, some.size, float(some.mean())))
        return shifts


@dataclass(frozen=True)
class Shift:
    """The mean shift of a table's numbers that tell these columns apart and sum over the others."""

    by: tuple[str, ...]
    numbers: int
    mean: float


def table_labels(workload: Workload, table: Table) -> dict[str, list[str]]:
    """The labels of a table's queries: one column for each attribute that it asks about.

    Attributes that were merged have their columns back, unless the table itself looks at them
    together: then its queries have one label for all of them.
    """
    domain = workload.domain
    lists = _table_lists(workload, table)
    parts = [_combined(labels) for labels in lists]
    counts = [workload.query_counts[p] for p in table.products]
    names = [name for name in _column_order(domain) if any(name in part for part in lists)]
    named = (domain.origin or domain).names
    columns: dict[str, list[str]] = {column_name(name): [] for name in names}
    if len(parts) > 1:
        columns = {"part": [], **columns}
    for p, part, count in zip(table.products, parts, counts, strict=True):
        for name in names:
            whole = (domain.origin or domain)[name].total_label if name in named else TOTAL
            columns[column_name(name)] += part.get(name, [whole] * count)
        if len(parts) > 1:
            title = workload.products[p].title
            columns["part"] += [title.removeprefix(f"{table.name}: ")] * count
    return columns


def table_schema(workload: Workload, table: Table, view: View, simulation: bool) -> pa.Schema:
    """The columns of a table in a view, and their types."""
    lists = _table_lists(workload, table)
    order = _column_order(workload.domain)
    labels = ["part"] if len(lists) > 1 else []
    labels += [column_name(name) for name in order if any(name in labels_of for labels_of in lists)]
    numbers = [("count", pa.int64() if view == "published" else pa.float64())]
    names = ["consistent"] if view == "published" else []
    numbers += [(name, pa.float64()) for name in (*names, "stderr", "low", "high")]
    numbers += [("made_up", pa.bool_())] if simulation else []
    return pa.schema([*((label, pa.string()) for label in labels), *numbers])


def _table_lists(workload: Workload, table: Table) -> list[dict[str, list[str]]]:
    """The labels along each column, for each product of a table."""
    domain = workload.domain
    products = [workload.products[p].factors for p in table.products]
    together = {
        name
        for factors in products
        for name, queries in factors.items()
        if domain[name].parts and _of_parts(domain[name], queries) is None
    }
    return [_product_lists(domain, factors, together) for factors in products]


def _of_parts(merged: Attribute, queries: QuerySet) -> tuple[QuerySet, ...] | None:
    """The query sets of a merged attribute's parts; None if they are asked about together."""
    if isinstance(queries, JointQueries):
        return queries.parts
    if isinstance(queries, IdentityQueries | TotalQueries):
        return (queries,) * len(merged.parts)
    return None


def _product_lists(
    domain: Domain, factors: dict[str, QuerySet], together: set[str]
) -> dict[str, list[str]]:
    """The labels of one product's factors, merged attributes in parts if not `together`."""
    lists: dict[str, list[str]] = {}
    for name in domain.names:
        if name not in factors:
            continue
        attribute, queries = domain[name], factors[name]
        split = _of_parts(attribute, queries) if attribute.parts else None
        if split is None or name in together:
            lists[name] = _bare(name, queries.labels(attribute))
            continue
        for (part, attribute_of_part), set_of_part in zip(attribute.parts, split, strict=True):
            if not isinstance(set_of_part, TotalQueries):
                lists[part] = _bare(part, set_of_part.labels(attribute_of_part))
    return lists


def _bare(name: str, words: list[str]) -> list[str]:
    """Labels in a column that has the attribute's name already."""
    return [word.removeprefix(f"{name} = ") for word in words]


def _column_order(domain: Domain) -> list[str]:
    """All names a column can have, in the order of the domain before attributes were merged."""
    if domain.origin is None:
        return list(domain.names)
    first = {domain[n].parts[0][0]: n for n in domain.names if domain[n].parts}
    order: list[str] = []
    for name in domain.origin.names:
        order += [first[name], name] if name in first else [name]
    return order


def _combined(lists: dict[str, list[str]]) -> dict[str, list[str]]:
    """All combinations of labels, the last column fastest."""
    grids = [grid.ravel() for grid in np.indices([len(words) for words in lists.values()])]
    pairs = zip(lists.items(), grids, strict=True)
    return {name: [words[k] for k in grid] for (name, words), grid in pairs}


def block_labels(matrix: Matrix, domain: Domain) -> dict[str, list[str]]:
    """What each answer of a measured block counts."""
    lists = block_lists(matrix, domain)
    if lists is None:
        return {"answer": [f"combination {i + 1}" for i in range(matrix.shape[0])]}
    named = {column_name(name): words for name, words in lists.items()}
    return _combined(named) if named else {"answer": [TOTAL]}


def block_lists(matrix: Matrix, domain: Domain) -> dict[str, list[str]] | None:
    """Words for the rows of every factor, by attribute; None if it is no product of attributes."""
    fits = isinstance(matrix, Kron) and tuple(f.shape[1] for f in matrix.factors) == domain.shape
    if not fits or not isinstance(matrix, Kron):
        return None
    lists: dict[str, list[str]] = {}
    for name, factor in zip(domain.names, matrix.factors, strict=True):
        parts = domain[name].parts
        if isinstance(factor, Ones):
            continue
        if isinstance(factor, Identity) and parts:
            lists |= {part: list(attribute.labels) for part, attribute in parts}
        else:
            lists[name] = row_words(factor, domain[name].labels)
    return lists


def row_words(factor: Matrix, labels: Sequence[str]) -> list[str]:
    """A label, a range of them, some times a label, or else the number of a weighted sum.

    >>> from psephos.matrix import Dense
    >>> row_words(Dense([[1, 1, 0], [0, 0, 3], [2, 1, 1]]), ["a", "b", "c"])
    ['a to b', '3 × c', 'weighted sum 1']
    """
    if isinstance(factor, Identity):
        return list(labels)
    if isinstance(factor, Compose) and isinstance(factor.parts[-1], Partition):
        inner = factor.parts[0] if len(factor.parts) == 2 else Compose(factor.parts[:-1])
        return row_words(inner, row_words(factor.parts[-1], labels))
    if isinstance(factor, Partition):
        members = [np.flatnonzero(factor.groups == g) for g in range(factor.shape[0])]
        return [_label_range(cells, labels) or f"group {g + 1}" for g, cells in enumerate(members)]
    rows, cells = factor.shape
    if rows * cells > FACTOR_ENTRIES:
        return [f"combination {i + 1}" for i in range(rows)]
    words, sums = [], 0
    for row in factor.dense(limit=FACTOR_ENTRIES):
        text = _row_text(row, labels)
        sums += text is None
        words.append(f"weighted sum {sums}" if text is None else text)
    return words


def _row_text(row: Array, labels: Sequence[str]) -> str | None:
    """The cells that a row counts, and how often; None if some count more often than others."""
    cells = np.flatnonzero(row)
    if cells.size == 0 or np.ptp(row[cells]):
        return None
    text, times = _label_range(cells, labels), row[cells[0]]
    return text if text is None or times == 1 else f"{times:,.0f} × {text}"


def _label_range(cells: Array, labels: Sequence[str]) -> str | None:
    """The first and last label of neighbouring cells; None if they are no neighbours."""
    first, last = int(cells[0]), int(cells[-1])
    if cells.size == len(labels) > 1:
        return TOTAL
    if cells.size == 1:
        return labels[first]
    return f"{labels[first]} to {labels[last]}" if last - first == cells.size - 1 else None


def row_multiplicity(matrix: Matrix) -> float:
    """How often a block counts a row at most; 1 for what is too large to look at."""
    if isinstance(matrix, Kron):
        return math.prod(row_multiplicity(factor) for factor in matrix.factors)
    if isinstance(matrix, Compose) and isinstance(matrix.parts[-1], Partition):
        return math.prod(row_multiplicity(part) for part in matrix.parts[:-1])
    if isinstance(matrix, Identity | Ones | Partition) or math.prod(matrix.shape) > FACTOR_ENTRIES:
        return 1.0
    return float(np.abs(matrix.dense(limit=FACTOR_ENTRIES)).max())


def marked(labels: dict[str, list[str]], numbers: dict[str, Any], simulation: bool) -> pa.Table:
    """Labels and numbers as one table; made-up numbers say so in every row."""
    columns: dict[str, Any] = dict(labels)
    for name, values in numbers.items():
        wide = values.dtype == object
        columns[name] = [str(value) for value in values] if wide else values
    if simulation:
        columns["made_up"] = [True] * len(next(iter(columns.values())))
    return pa.table(columns)


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
    seed = int.from_bytes(hashlib.sha256(views.steps[0].key.encode()).digest()[:8], "big")
    everything = tuple(range(len(past)))
    groups = dict.fromkeys([everything, *((i,) for i in everything)])
    comparisons = []
    for group in groups if past else ():
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
