"""The cells that a release measures: groups of declared values that nothing it asks distinguishes.

Values of an attribute that no table, level, range, condition, statistic or declared zero
distinguishes are one cell; an attribute that nobody asks about is left out. Answers are the same
sums of fewer cells (Zhang et al. 2020, section 8), so declared and unasked columns cost nothing.

Whole stay attributes under `ask_later`, and all attributes of releases that make up rows, are in
parts, or follow a plan: widths of cells matter to many plans. The cells of a release that builds on
others are the common refinement of all their cells. What is measured so is charged under the name
of the declared questions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.random import Generator

from psephos.domain.domain import Domain
from psephos.errors import (
    DomainError,
    PsephosError,
    ReleaseError,
    name_list,
)
from psephos.infer.least_squares import edition_of
from psephos.kernel import gate
from psephos.kernel.lineage import root_name
from psephos.kernel.measurement import Measurement
from psephos.kernel.protected import ProtectedTable, coarsen_step
from psephos.kernel.query import Block, Query
from psephos.matrix import Compose, Identity, Kron, Matrix, Partition, Sparse, total
from psephos.matrix.combine import compose, join_groups
from psephos.release.bundle.files import read_bytes
from psephos.release.spec.entries import ReleaseFile
from psephos.release.spec.tables import Impossible
from psephos.values import Array
from psephos.workload.query_sets import (
    MatrixQueries,
    QuerySet,
    SetLabels,
    TotalQueries,
)
from psephos.workload.reduction import asked_groups, coarse_products
from psephos.workload.workload import Workload

ASKED_FILE = "asked.bin"
"""Of a request: which declared values are one cell; not there if every one is by itself."""

MOST_NAMED = 3
"""The most parts of a question that a message names."""


@dataclass(frozen=True, eq=False)
class AskedCells:
    """For each attribute that is measured, the group of every declared value."""

    declared: Domain
    groups: Mapping[str, Array]

    @classmethod
    def whole(cls, declared: Domain) -> AskedCells:
        """Every declared cell by itself."""
        pairs = zip(declared.names, declared.shape, strict=True)
        return cls(declared, {name: np.arange(n) for name, n in pairs})

    @classmethod
    def read(cls, place: Path, declared: Domain) -> AskedCells:
        """Those of a file; without one, every declared cell by itself."""
        if not place.exists():
            return cls.whole(declared)
        try:
            pairs = gate.from_bytes(read_bytes(place))
            cells = cls(declared, {name: partition.groups for name, partition in pairs})
            in_order = list(cells.groups) == [name for name in declared if name in cells.groups]
            if not in_order or not cells.domain.names:
                raise DomainError("other attributes")
        except (PsephosError, ValueError, TypeError, AttributeError):
            raise ReleaseError(f"{place} is damaged; get the bundle again") from None
        return cells

    def to_bytes(self) -> bytes:
        """The content of a file that `read` reads."""
        return gate.to_bytes(tuple((n, Partition(each)) for n, each in self.groups.items()))

    @cached_property
    def partitions(self) -> dict[str, Partition]:
        """Those of attributes whose values are not all by themselves."""
        coarse = {name: each for name, each in self.groups.items() if each.max() + 1 < each.size}
        return {name: Partition(each) for name, each in coarse.items()}

    @cached_property
    def domain(self) -> Domain:
        """The cells."""
        if self.is_whole:
            return self.declared
        groups = {name: each.groups for name, each in self.partitions.items()}
        return self.declared.project(tuple(self.groups)).coarsen(groups)

    @property
    def is_whole(self) -> bool:
        """Is every declared cell one of them?"""
        return not self.partitions and len(self.groups) == len(self.declared)

    def sizes_of(self, domain: Domain) -> list[Array]:
        """How many declared values each value has, of the cells' attributes or some of them."""
        return [np.bincount(self.groups[name]) for name in domain]

    @cached_property
    def first(self) -> dict[str, Array]:
        """The first declared value of each group."""
        return {name: np.unique(each, return_index=True)[1] for name, each in self.groups.items()}

    def of(self, table: ProtectedTable) -> ProtectedTable:
        """These cells of a table over the declared domain."""
        return table if self.is_whole else table.keep(*self.groups).coarsen(**self.partitions)

    def lineage(self, edition: str) -> tuple[str, ...]:
        """What the kernel calls the way from the rows to the vector of these cells."""
        root = root_name(gate.fingerprint(self.declared), edition)
        if self.is_whole:
            return (root, "vectorise")
        coarse = coarsen_step(tuple(self.partitions.items()))
        return (root, f"keep {tuple(self.groups)}", coarse, "vectorise")

    @property
    def schema(self) -> str:
        """By which name the ledger knows the table that is counted."""
        return gate.fingerprint(self.domain)

    def joined(self, others: Iterable[AskedCells]) -> AskedCells:
        """The coarsest cells that distinguish all that these and others do."""
        groups, several = {}, (self, *others)
        for name in self.declared:
            some = [each.groups[name] for each in several if name in each.groups]
            if some:
                groups[name] = join_groups(some)
        return AskedCells(self.declared, groups)

    def is_same(self, other: AskedCells) -> bool:
        """Are they the same cells?"""
        return list(self.groups) == list(other.groups) and all(
            np.array_equal(each, other.groups[name]) for name, each in self.groups.items()
        )

    def refines(self, other: AskedCells) -> bool:
        """Does every cell of others consist of some of these?"""
        return self.is_same(self.joined([other]))

    def lifted(self, measurement: Measurement, finer: AskedCells) -> Measurement:
        """A measurement of these cells as one of finer ones."""
        maps: list[Matrix] = []
        for name, n in zip(finer.domain.names, finer.domain.shape, strict=True):
            if name not in self.groups:
                maps.append(total(n))
                continue
            groups = self.groups[name][finer.first[name]]
            maps.append(Identity(n) if groups.max() + 1 == n else Partition(groups))
        axes = [axis for axis, name in enumerate(finer.domain) if name in self.groups]

        def lift(matrix: Matrix) -> Matrix:
            factors = matrix.factors if isinstance(matrix, Kron) else (matrix,)
            if tuple(factor.shape[1] for factor in factors) != self.domain.shape:
                return compose(matrix, Kron(tuple(maps)))
            lifted = list(maps)
            for axis, factor in zip(axes, factors, strict=True):
                lifted[axis] = compose(factor, maps[axis])
            return Kron(tuple(lifted))

        blocks = [Block(lift(block.matrix), block.weight) for block in measurement.query.blocks]
        query, lineage = Query(tuple(blocks)), finer.lineage(edition_of(measurement))
        return replace(measurement, domain=finer.domain, query=query, lineage=lineage)

    def over(self, questions: Workload) -> Workload:
        """Questions over declared values that distinguish no values of a cell, over the cells."""
        if self.is_whole or questions.domain == self.domain:
            return questions
        declared, factor = questions.domain, questions.factor
        groups, domain = _with_merged(self.groups, self.domain, declared)
        return Workload(domain, coarse_products(declared, questions.products, groups, factor))

    def records(self, records: Array) -> Array:
        """Rows of declared codes, as rows of codes of these cells."""
        columns = [self.groups[n][records[:, self.declared.axis(n)]] for n in self.groups]
        return np.stack(columns, axis=1)

    def drawn_values(self, records: Array, generator: Generator) -> Array:
        """Rows of codes of these cells, as rows of declared codes: each of a cell's as likely."""
        columns = []
        for name, size in zip(self.declared.names, self.declared.shape, strict=True):
            groups, codes = np.zeros(size, dtype=np.int64), np.zeros(len(records), dtype=np.int64)
            if name in self.groups:
                groups, codes = self.groups[name], records[:, self.domain.axis(name)]
            sizes, members = np.bincount(groups), np.argsort(groups, kind="stable")
            first = np.cumsum(sizes) - sizes
            columns.append(members[first[codes] + generator.integers(sizes[codes])])
        return np.stack(columns, axis=1)

    def zeros(self, impossible: Sequence[Impossible]) -> Array:
        """Which cells no row can lie in, as a vector."""
        columns = self.domain.origin or self.domain
        flags = np.zeros(columns.shape, dtype=bool)
        for each in impossible:
            mask: Array = np.ones((1,) * len(columns), dtype=bool)
            for members, grid in each.grids():
                axes = [columns.axis(name) for name in members]
                some = self.grid(members, grid)
                shape = [n if i in axes else 1 for i, n in enumerate(columns.shape)]
                mask = mask & some.transpose(np.argsort(axes)).reshape(shape)
            flags |= mask
        return self.domain.arrange(flags)

    def grid(self, columns: Sequence[str], declared: Array) -> Array:
        """An array over declared values of some columns, over their groups."""
        for axis, name in enumerate(columns):  # a column of merged ones has no groups of its own
            declared = declared.take(self.first[name], axis) if name in self.first else declared
        return declared


def measured_schema(place: Path, declared: Domain) -> str:
    """By which name the ledger knows what a request counted; empty if the file does not fit."""
    try:
        return AskedCells.read(place, declared).schema
    except ReleaseError:
        return ""


def asked_cells(
    questions: Workload, file: ReleaseFile, impossible: Sequence[Impossible]
) -> AskedCells:
    """The cells that the questions of a release file are about."""
    plan = file.method.name != "measure" or file.synthetic is not None
    if plan or file.by:
        return AskedCells.whole(questions.domain)
    groups = asked_groups(
        questions.domain,
        questions.products,
        questions.factor,
        _condition_marks(questions.domain, impossible),
        file.ask_later,
    )
    if not groups:  # the number of all rows alone is asked for
        name = min(questions.domain, key=lambda each: questions.domain[each].size)
        groups = {name: np.zeros(questions.domain[name].size, dtype=np.int64)}
    return AskedCells(questions.domain, groups)


def _condition_marks(domain: Domain, impossible: Sequence[Impossible]) -> dict[str, list[Array]]:
    """For each attribute of a condition, vectors that differ where the condition does."""
    marks: dict[str, list[Array]] = {}
    for each in impossible:
        for members, grid in each.grids():
            for axis, name in enumerate(members):
                if name in domain:  # a merged one stays whole
                    rows = np.moveaxis(grid, axis, 0).reshape(grid.shape[axis], -1)
                    marks.setdefault(name, []).append(
                        np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
                    )
    return marks


def over_cells(cells: AskedCells, workload: Workload) -> Workload | None:
    """Questions over declared values, or some of them merged, over the cells; None if finer."""
    return None if finer_words(cells, workload) else cells.over(workload)


def finer_attributes(cells: AskedCells, workload: Workload) -> list[str]:
    """The attributes on which a question distinguishes values that are one cell."""
    finer = []
    pairs = zip(workload.domain.names, workload.domain.attributes, strict=True)
    for (name, attribute), matrices in zip(pairs, workload.different_factors(), strict=True):
        merged = name not in cells.groups and attribute.parts
        parts = attribute.parts if merged else ((name, attribute),)
        for part, inner in parts:
            lost = merged and part not in cells.groups
            groups = {each: np.arange(other.size) for each, other in parts}
            groups[part] = cells.groups.get(part, np.zeros(inner.size, dtype=np.int64))
            if lost or not all(_is_constant(each, _joint_groups(groups)) for each in matrices):
                finer.append(part)
    return finer


def finer_words(cells: AskedCells, workload: Workload) -> str:
    """What is not known of a question because values are one cell, and how it would be."""
    if cells.is_whole or workload.domain == cells.domain:
        return ""
    words = []
    for name in (finer := finer_attributes(cells, workload)):
        levels = [level.name for level in cells.domain[name].levels] if name in cells.groups else []
        words.append(unknown_words(name, levels))
    if not words:
        return ""
    question = question_words(workload, merged=workload.domain != cells.declared)
    later = ", ".join(f'"{name}"' for name in finer)
    return (
        f"This release does not tell {question}: {'; '.join(words)}. With ask_later = [{later}] in "
        "its file, every value would have been measured"
    )


def unknown_words(name: str, levels: Sequence[str]) -> str:
    """What is not known of an attribute of which these levels are."""
    if not levels:
        return f"nothing measured tells values of {name} apart"
    return f"{name} was measured by {name_list(levels)} and not finer"


def question_words(workload: Workload, *, merged: bool) -> str:
    """The first questions of a workload in words."""
    numbers = range(len(workload.products))[:MOST_NAMED]
    question = " and ".join(workload.question(i) for i in numbers)
    return f"{question}, which looks at several columns together" if merged else question


def spread_evenly(cells: AskedCells, workload: Workload) -> Workload:
    """Questions over declared values, over cells whose rows are shared out evenly among these.

    Attributes that were left out are there with one cell, so the vector of cells is the same.
    """
    sizes = dict(zip(cells.declared.names, cells.declared.shape, strict=True))
    every = {n: cells.groups.get(n, np.zeros(size, dtype=np.int64)) for n, size in sizes.items()}
    domain = cells.declared.coarsen({n: g for n, g in every.items() if g.max() + 1 < g.size})
    every, domain = _with_merged(every, domain, workload.domain)

    def shared(name: str, queries: QuerySet) -> QuerySet:
        shares = 1 / np.bincount(every[name])[every[name]]
        spread = sp.csr_array((shares, (np.arange(shares.size), every[name])))
        rows = Compose((workload.factor(name, queries), Sparse(spread)))
        return MatrixQueries(rows, SetLabels(queries, workload.domain[name]))

    products = []
    for each in workload.products:
        items = [(n, q) for n, q in each.items if not isinstance(q, TotalQueries)]
        products.append(replace(each, items=tuple((n, shared(n, q)) for n, q in items)))
    return Workload(domain, products)


def _with_merged(
    groups: Mapping[str, Array], domain: Domain, questions: Domain
) -> tuple[dict[str, Array], Domain]:
    """Groups and their domain, with the attributes that questions look at together merged."""
    joint = dict(groups)
    for name, attribute in zip(questions.names, questions.attributes, strict=True):
        members = [part for part, _ in attribute.parts]
        if name not in joint and members and joint.keys() >= set(members):
            joint[name] = _joint_groups({member: joint[member] for member in members})
            domain = domain.merge(members, name)
    return joint, domain


def _joint_groups(groups: Mapping[str, Array]) -> Array:
    """The groups of combinations of declared values of some attributes."""
    joint: Array = np.zeros(1, dtype=np.int64)
    for each in groups.values():
        joint = (joint[:, None] * (int(each.max()) + 1) + each).ravel()
    return joint


def _is_constant(matrix: Matrix, groups: Array) -> bool:
    columns = matrix.column_groups()
    first = np.unique(groups, return_index=True)[1]
    return bool((columns[first][groups] == columns).all())
