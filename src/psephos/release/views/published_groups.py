"""The published view where a vector of all cells does not fit: tables in groups.

Tables that look at the same few attributes form a group (psephos.infer.table_groups). A group has a
vector of cells of its own, estimated from all that the measurements tell of its attributes, by the
rule of `published`; groups are then brought to agree with each other, and rounded.
Inside a group published tables add up exactly, and all groups have the same total. Between groups
whole numbers agree nearly, and how nearly is counted and told.

Groups follow from the questions, and what can be told of them from what is measured: both are
public, so the plan knows them. A table is left out, with the reason, if it has too many cells
itself, if all groups together had too many, or if its numbers are known only through a combination
of blocks that no single one of them tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from psephos.infer.group_cells import GroupCells, agreeing
from psephos.infer.least_squares import LeastSquares
from psephos.infer.nonnegative import NONNEGATIVE_CELLS
from psephos.infer.normal_equations import possible_cells
from psephos.infer.some_attributes import of_attributes, tells
from psephos.infer.table_groups import Grouping, TableGroup
from psephos.matrix import Matrix, Ones
from psephos.release.spec.entries import View
from psephos.release.spec.job import Job
from psephos.release.spec.tables import Table
from psephos.release.views.published import PublishedRule, all_cells_fit
from psephos.values import Array, whole_numbers

LONG_VECTOR_CELLS = 10_000_000
"""Where there are more cells, tables come in groups if these serve them all. One vector is closer
where tables overlap (`benchmarks.groups`), so it stays as long as `release` and `verify` hold about
2 GB: they take some 200 bytes of each cell.
"""
MOST_GROUPED_CELLS = 20_000_000
"""The most cells of all groups together."""
TOTAL_TOLERANCE = 1e-6
"""How far the last digits of least squares may move a total."""
TOO_LARGE = "it looks at {cells:,} cells at a time, and {most:,} is the limit"
TOO_MANY = "the groups of all tables have more than {most:,} cells together"
NOT_TOLD = "its numbers are told only by several measured blocks together"


@dataclass(frozen=True, eq=False)
class PublishedGroups:
    """Which tables are published from which group, by which rule; and why some are not."""

    job: Job
    grouping: Grouping
    rules: tuple[PublishedRule, ...]
    reasons: Mapping[int, str]
    """Products that no group answers."""

    @classmethod
    def of(cls, job: Job, blocks: Sequence[Matrix]) -> PublishedGroups | None:
        """The groups of a release that measures these blocks; None where a vector serves better."""
        if not all_cells_fit(job):
            return cls._of(job, blocks)
        if job.workload.domain.size <= LONG_VECTOR_CELLS or needs_all_cells(job):
            return None
        groups = cls._of(job, blocks)
        return None if groups.left_out else groups

    @classmethod
    def _of(cls, job: Job, blocks: Sequence[Matrix]) -> PublishedGroups:
        workload, shape = job.workload, job.workload.domain.shape
        reasons: dict[int, str] = {}
        proposed, groups, cells = Grouping.of(workload), [], 0
        for i in set(range(len(workload.products))) - set(proposed.first):
            size = math.prod(shape[workload.domain.axis(n)] for n in workload.products[i].factors)
            reasons[i] = TOO_LARGE.format(cells=size, most=NONNEGATIVE_CELLS)
        for g, group in enumerate(proposed.groups):
            cells += proposed.cells(g)
            inner = proposed.inner(g)
            factors = [inner.factors(k) for k in range(len(group.products))]
            fits = cells <= MOST_GROUPED_CELLS
            told = tells(blocks, shape, group.axes, factors) if fits else [False] * len(factors)
            why = NOT_TOLD if fits else TOO_MANY.format(most=MOST_GROUPED_CELLS)
            pairs = list(zip(group.products, told, strict=True))
            reasons |= {i: why for i, known in pairs if not known}
            held = tuple(i for i, known in pairs if known)
            if held:
                groups.append(TableGroup(group.axes, held))
        grouping = Grouping(workload, tuple(groups))
        rules = [PublishedRule.of(job, grouping.inner(g)) for g in range(len(groups))]
        lacking = {i: why for i, why in sorted(reasons.items()) if i not in grouping.first}
        return cls(job, grouping, tuple(rules), lacking)

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """The tables that are published."""
        return tuple(table for table in self.job.tables if table.name not in self.left_out)

    @cached_property
    def left_out(self) -> dict[str, str]:
        """The tables that are not, by name, and why."""
        return {
            table.name: next(self.reasons[i] for i in table.products if i in self.reasons)
            for table in self.job.tables
            if any(i in self.reasons for i in table.products)
        }

    @property
    def cells(self) -> int:
        """The cells of all groups together."""
        return sum(self.grouping.cells(g) for g in range(len(self.rules)))

    def attributes(self, group: int) -> tuple[str, ...]:
        """The names of a group's attributes."""
        return self.grouping.names(self.grouping.groups[group].axes)

    def table_names(self, group: int) -> list[str]:
        """The published tables of which some numbers come from a group."""
        first = self.grouping.first
        return [t.name for t in self.tables if any(first[i] == group for i in t.products)]

    def zeros(self, group: int) -> Array | None:
        """Where no row can be: by conditions that look at a group's attributes alone."""
        domain = self.job.workload.domain
        parts = [
            part
            for name in self.attributes(group)
            for part in (domain[name].parts or ((name, domain[name]),))
        ]
        names = [name for name, _ in parts]
        flags = np.zeros([attribute.size for _, attribute in parts], dtype=bool)
        for impossible in self.job.impossible:
            mask = np.ones(flags.shape, dtype=bool)
            for members, declared in impossible.grids():
                if not set(members) <= set(names):
                    break
                order = np.argsort([names.index(n) for n in members])
                grid = self.job.cells.grid(members, declared).transpose(order)
                shape = [n if names[k] in members else 1 for k, n in enumerate(flags.shape)]
                mask &= grid.reshape(shape)
            else:
                flags |= mask
        return flags.reshape(-1) if flags.any() else None

    def total(self, estimate: LeastSquares, claim: int | None = None) -> int | None:
        """The number of rows that all groups have: the public one, or that of least squares.

        A claimed one is believed where the last digits of floats decide how a half is rounded.
        """
        if self.job.file.total is not None:
            return int(self.job.file.total)
        rows = total_of(estimate)
        if rows is None:
            return None
        halfway = claim is not None and abs(abs(rows - claim) - 0.5) <= TOTAL_TOLERANCE
        return claim if halfway else max(0, round(rows))

    def fit(
        self,
        estimate: LeastSquares,
        claim: Mapping[str, Any] | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> GroupedFit:
        """The cells of all groups before they are rounded.

        What a manifest claims of total, steps and sweeps settles near ties.
        """
        claim = {} if claim is None else claim
        total = self.total(estimate, claim.get("total"))
        claims = dict(enumerate(claim.get("groups", ())))
        zeros = [self.zeros(g) for g in range(len(self.rules))]
        fits, room = [], []
        for g, rule in enumerate(self.rules):
            if progress is not None:
                progress(f"published numbers: group {g + 1} of {len(self.rules)}")
            workload = self.grouping.inner(g)
            small = of_attributes(estimate, workload.domain.names)
            sizes = self.job.cells.sizes_of(workload.domain)
            fits.append(rule.fit_tables(workload, small, zeros[g], total, sizes, claims.get(g)))
            room.append(possible_cells(sizes, zeros[g]))
        vectors = tuple(fit.vector for fit in fits)
        cells, sweeps = agreeing(GroupCells(self.grouping, vectors), room, claim.get("sweeps"))
        steps_and_gaps = tuple((fit.steps, fit.gap) for fit in fits)
        return GroupedFit(cells, total, steps_and_gaps, sweeps)

    def facts(self, fit: GroupedFit) -> dict[str, Any]:
        """What the manifest says of them."""
        groups = [
            {
                "attributes": list(self.attributes(g)),
                "tables": self.table_names(g),
                **asdict(rule),
                "steps": steps,
                "gap": gap,
            }
            for g, (rule, (steps, gap)) in enumerate(zip(self.rules, fit.steps, strict=True))
        ]
        return {"groups": groups, "total": fit.total, "sweeps": fit.sweeps}


def needs_all_cells(job: Job) -> bool:
    """Does a release say something of all attributes together: a prior, zeros, or made-up rows?"""
    return job.prior is not None or bool(job.impossible) or job.file.synthetic is not None


def possible_views(job: Job, groups: PublishedGroups | None) -> tuple[View, ...]:
    """The views of a release: whole numbers need a vector of all cells, or groups of tables."""
    some = all_cells_fit(job) or (groups is not None and bool(groups.tables))
    return tuple(view for view in job.file.output.views if some or view != "published")


@dataclass(frozen=True, eq=False)
class GroupedFit:
    """The cells of all groups in real numbers, and how they were reached."""

    cells: GroupCells
    total: int | None
    steps: tuple[tuple[int, float], ...]
    """Of every group: the steps of its estimate, and how near that came to its limit."""
    sweeps: int
    """How often groups were brought to agree."""


def total_of(estimate: LeastSquares) -> float | None:
    """The number of rows by least squares; None if the measurements do not tell it."""
    factors = tuple(Ones(1, n) for n in estimate.domain.shape)
    if not estimate.form.covers(factors):
        return None
    return float(estimate.fitted.answers(factors)[0])


def grouped_answers(cells: GroupCells) -> Array:
    """The answers of all tables; zero where no group tells them."""
    counts, kind = cells.grouping.workload.query_counts, cells.vectors[0].dtype
    answers = [np.zeros(count, dtype=kind) for count in counts]
    for i in cells.grouping.first:
        numbers = cells.answers(i)
        answers[i] = whole_numbers(numbers) if kind.kind in "iu" else numbers.astype(kind)
    return np.concatenate(answers)
