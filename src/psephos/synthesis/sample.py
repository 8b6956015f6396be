"""Rows that answer like an estimate without negative cells: rounded, not drawn one by one.

Independent draws would add their own noise, about √count to every count. So rows are dealt out:

- where there is a vector of all cells, each cell becomes a whole number near its own such that
  tables stay where they are (psephos.infer.rounding), and that many rows;
- where there are tables of few attributes, attributes are filled in one table after another. Of the
  n_s rows that have the values s of the attributes before, n_s·p(v | s) should get the values v:
  cumulative sums of these numbers from a random start, and a row for each whole number that they
  pass. So no count is off by one or more from its share of n_s. Which of the n_s rows these are is
  left open by the tables, and up to chance it would move tables of attributes that do not share one
  by about √count. So rows are sorted by what else they have, the attributes of few values first,
  and every v goes to every so-manieth of them.

Randomness is public: whoever has the generator's seed deals out the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.random import Generator

from psephos.domain.domain import Domain
from psephos.errors import UnsupportedError, WorkloadError
from psephos.infer.estimate import Estimate, cells_of
from psephos.infer.graphical_model import GraphicalModel
from psephos.infer.group_cells import GroupCells, with_sum
from psephos.infer.least_squares import LeastSquares
from psephos.infer.local_tables import LocalTables
from psephos.infer.records import RecordEstimate
from psephos.infer.rounding import round_cells
from psephos.matrix.marginals import Axes
from psephos.synthesis.table import SyntheticTable
from psephos.values import Array
from psephos.workload.builders import marginals
from psephos.workload.workload import Workload

SAMPLED_ROWS = 10**8
"""The most rows of a synthetic table."""
NEGATIVE = -1e-9
"""Cells above this are zero to the last digits of floats."""
MOST_GIVEN = 3
"""How many attributes, at most, the next one is made to depend on."""


def sample(
    estimate: Estimate | GroupCells,
    *,
    generator: Generator,
    rows: int | None = None,
    workload: Workload | None = None,
) -> SyntheticTable:
    """A synthetic table from an estimate that is nowhere negative.

    Args:
        estimate: a graphical model, records, local tables, groups of tables, or one of all cells
        generator: public randomness, such as `PlanVector.public_random` makes from a key
        rows: how many rows; else as many as the estimate has
        workload: what rounding keeps near, for a vector of cells; else tables of two attributes

    >>> import psephos as ps
    >>> from numpy.random import default_rng
    >>> from psephos.infer import CellEstimate
    >>> model = CellEstimate(ps.Domain.of(a=2, b=2), np.array([1.2, 0.9, 0.1, 1.8]), "made up")
    >>> sample(model, generator=default_rng(0)).counts(["a", "b"])
    array([[1, 1],
           [0, 2]])
    """
    simulation = bool(getattr(estimate, "simulation", False))
    if isinstance(estimate, GraphicalModel):
        number = checked_rows(rows, estimate.total)
        return SyntheticTable(estimate.domain, _of_model(estimate, number, generator), simulation)
    if isinstance(estimate, RecordEstimate):
        number = checked_rows(rows, estimate.rows)
        return SyntheticTable(estimate.domain, _of_records(estimate, number, generator), simulation)
    if isinstance(estimate, LocalTables | GroupCells):
        domain, tables = _tables_of(estimate)
        number = checked_rows(rows, max(float(table.sum()) for table in tables.values()))
        steps = _chain(domain, tables)
        return SyntheticTable(domain, _dealt(len(domain), number, steps, generator), simulation)
    vector = None if isinstance(estimate, LeastSquares) else cells_of(estimate)
    if not isinstance(vector, np.ndarray):
        raise UnsupportedError(
            f"rows are made from cells or tables, and {type(estimate).__name__} has none that are "
            "not negative; take ps.infer.local_tables, nonnegative or maximum_entropy first"
        )
    return _of_cells(estimate.domain, vector, rows, generator, workload, simulation)


def checked_rows(rows: Any, total: float) -> int:
    """The number of rows that was asked for, or that of an estimate."""
    if rows is None:
        return max(0, round(total))
    if isinstance(rows, bool) or not isinstance(rows, int) or not 0 <= rows <= SAMPLED_ROWS:
        raise WorkloadError(f"rows is a whole number from 0 to {SAMPLED_ROWS:,}, got {rows!r}")
    return rows


def _of_cells(
    domain: Domain,
    vector: Array,
    rows: int | None,
    generator: Generator,
    workload: Workload | None,
    simulation: bool,
) -> SyntheticTable:
    if float(vector.min()) < NEGATIVE:
        raise UnsupportedError(
            "some cells of this estimate are negative, and there are no negative rows; take "
            "ps.infer.nonnegative or maximum_entropy"
        )
    cells = np.maximum(vector, 0.0)
    total = float(cells.sum())
    number = checked_rows(rows, total)
    if total > 0:
        cells = cells * (number / total)
    questions = marginals(domain, up_to=min(2, len(domain))) if workload is None else workload
    counts = with_sum(round_cells(cells, questions), cells, number)
    places = generator.permutation(np.repeat(np.arange(domain.size), counts))
    return SyntheticTable(domain, np.stack(np.unravel_index(places, domain.shape), 1), simulation)


@dataclass(frozen=True, eq=False)
class _Step:
    """Attributes to fill in, by their shares given those before."""

    given: Axes
    new: Axes
    table: Array
    """An axis for each of `given`, then for each of `new`."""


def _of_model(model: GraphicalModel, rows: int, generator: Generator) -> Array:
    """Cells clique by clique, then a value of each attribute's cell."""
    steps = []
    for clique, shared, table in zip(
        model.tree.cliques, model.tree.separators, model.tables, strict=True
    ):
        new = tuple(a for a in clique if a not in shared)
        order = [clique.index(a) for a in (*shared, *new)]
        steps.append(_Step(shared, new, table.transpose(order)))
    cells = _dealt(len(model.domain), rows, steps, generator)
    records = np.empty_like(cells)
    for axis, (groups, shares) in enumerate(zip(model.groups, model.within, strict=True)):
        members = np.argsort(groups, kind="stable")
        sizes = np.bincount(groups)
        table = np.zeros((sizes.size, int(sizes.max())))
        column = np.arange(groups.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        table[groups[members], column] = shares[members]
        others = _sorted_others(cells, [*range(axis), *range(axis + 1, cells.shape[1])])
        place = deal(cells[:, axis], table, generator, others)
        records[:, axis] = members[(np.cumsum(sizes) - sizes)[cells[:, axis]] + place]
    return records


def _of_records(estimate: RecordEstimate, rows: int, generator: Generator) -> Array:
    """Each record as often as any other, within one: a step of equal length for every row."""
    steps = (np.arange(rows) + generator.random()) * (len(estimate.records) / max(rows, 1))
    places = np.minimum(steps.astype(np.int64), len(estimate.records) - 1)
    return np.asarray(estimate.records)[places]


def _dealt(width: int, rows: int, steps: Sequence[_Step], generator: Generator) -> Array:
    """Rows whose attributes are filled in step by step."""
    records, placed = np.zeros((rows, width), dtype=np.int64), list[int]()
    for step in steps:
        shape = step.table.shape
        count = len(step.given)
        state = _places(records, step.given, shape[:count])
        table = step.table.reshape(math.prod(shape[:count]), -1)
        others = _sorted_others(records, [a for a in placed if a not in step.given])
        values = np.unravel_index(deal(state, table, generator, others), shape[count:] or (1,))
        for axis, column in zip(step.new, values, strict=False):
            records[:, axis] = column
        placed.extend(step.new)
    return records


def _sorted_others(records: Array, axes: Sequence[int]) -> list[Array]:
    """Columns to sort rows by, those of few values first, as many as can tell rows apart."""
    sizes = {axis: int(records[:, axis].max(initial=0)) + 1 for axis in axes}
    columns, cells = [], 1
    for axis in sorted(axes, key=lambda axis: sizes[axis]):
        if cells > len(records):
            break
        columns.append(records[:, axis])
        cells *= sizes[axis]
    return columns


def deal(state: Array, table: Array, generator: Generator, others: Sequence[Array] = ()) -> Array:
    """A column of the table for each row of a state: so many of each as its shares say, within 1.

    Among rows of a state that are alike in `others`, and in the first few of these, columns are
    about as frequent as among all.

    >>> from numpy.random import default_rng
    >>> deal(np.zeros(4, int), np.array([[3.0, 1.0]]), default_rng(0)).tolist()
    [0, 0, 0, 1]
    """
    if not state.size:
        return np.zeros(0, dtype=np.int64)
    order = generator.permutation(state.size)
    order = order[np.lexsort([each[order] for each in (*reversed(others), state)])]
    sizes = np.bincount(state, minlength=table.shape[0])
    present = np.flatnonzero(sizes)
    starts = np.zeros(sizes.size)
    starts[present] = (generator.permutation(present.size) + generator.random()) / present.size
    sums = table[present].sum(axis=1, keepdims=True)
    shares = np.divide(
        table[present], sums, out=np.full((present.size, table.shape[1]), 1 / table.shape[1]),
        where=sums > 0,
    )  # fmt: skip
    below = np.cumsum(shares, axis=1)
    below /= below[:, -1:]
    sorted_states = np.repeat(np.arange(present.size), sizes[present])
    rank = np.arange(state.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    point = (rank + starts[state[order]]) / sizes[state[order]]
    chosen = np.searchsorted(
        (below + np.arange(present.size)[:, None]).ravel(), point + sorted_states, side="right"
    )
    columns = np.minimum(chosen - sorted_states * table.shape[1], table.shape[1] - 1)
    columns = _spread_evenly(columns, sorted_states, generator)
    result = np.empty(state.size, dtype=np.int64)
    result[order] = columns
    return result


def _spread_evenly(columns: Array, states: Array, generator: Generator) -> Array:
    """Columns that are sorted inside of every state, so mixed that each comes at even steps."""
    first = np.flatnonzero(np.diff(columns, prepend=-1) | np.diff(states, prepend=-1))
    sizes = np.diff(first, append=columns.size)
    begin = generator.random(first.size)
    rank = np.arange(columns.size) - np.repeat(first, sizes)
    place = (rank + np.repeat(begin, sizes)) / np.repeat(sizes, sizes)
    return np.asarray(columns[np.lexsort([place, states])])


def _places(records: Array, axes: Axes, sizes: Sequence[int]) -> Array:
    place = np.zeros(records.shape[0], dtype=np.int64)
    for axis, n in zip(axes, sizes, strict=True):
        place = place * n + records[:, axis]
    return place


def _tables_of(estimate: LocalTables | GroupCells) -> tuple[Domain, dict[Axes, Array]]:
    """Tables of few attributes, by the places of these."""
    if isinstance(estimate, LocalTables):
        shape = estimate.domain.shape
        return estimate.domain, {
            axes: cells.reshape([shape[a] for a in axes]) for axes, cells in estimate.tables.items()
        }
    groups = estimate.grouping.groups
    tables = {tuple(group.axes): estimate.grid(g) for g, group in enumerate(groups)}
    return estimate.grouping.workload.domain, tables


def _chain(domain: Domain, tables: Mapping[Axes, Array]) -> list[_Step]:
    """Attributes one after another, each given those before that tell most about it.

    What they tell is the mutual information in a table. Attributes without a table are filled in
    evenly.
    """
    sources = _subsets(tables)
    told: dict[tuple[Axes, int], float] = {}
    placed: list[int] = []
    steps: list[_Step] = []
    while len(placed) < len(domain):
        options = [
            (axes, next(a for a in axes if a not in placed))
            for axes in sources
            if sum(a not in placed for a in axes) == 1
        ]
        for axes, axis in options:
            if (axes, axis) not in told:
                told[axes, axis] = _information(_marginal(tables, sources, axes), axes.index(axis))
        if options:
            axes, axis = max(options, key=lambda option: told[option])
            table = np.moveaxis(_marginal(tables, sources, axes), axes.index(axis), -1)
            steps.append(_Step(tuple(a for a in axes if a != axis), (axis,), table))
        else:
            axis = min(set(range(len(domain))) - set(placed))
            steps.append(_Step((), (axis,), np.ones(domain.shape[axis])))
        placed.append(axis)
    return steps


def _subsets(tables: Mapping[Axes, Array]) -> dict[Axes, Axes]:
    """All sets of few attributes that a table has, each with the smallest such table."""
    sources: dict[Axes, Axes] = {}
    for axes in sorted(tables, key=lambda axes: tables[axes].size):
        for k in range(1, min(len(axes), MOST_GIVEN + 1) + 1):
            for some in combinations(axes, k):
                sources.setdefault(some, axes)
    return sources


def _marginal(tables: Mapping[Axes, Array], sources: Mapping[Axes, Axes], axes: Axes) -> Array:
    whole = sources[axes]
    drop = tuple(k for k, a in enumerate(whole) if a not in axes)
    return np.asarray(np.maximum(tables[whole].sum(axis=drop), 0.0))


def _information(table: Array, place: int) -> float:
    """How much the other attributes of a table tell about one of them, in nats."""
    joint = np.moveaxis(table, place, -1).reshape(-1, table.shape[place])
    joint = joint / max(float(joint.sum()), 1e-300)
    apart = np.outer(joint.sum(axis=1), joint.sum(axis=0))
    inside = joint > 0
    return float((joint[inside] * np.log(joint[inside] / apart[inside])).sum())
