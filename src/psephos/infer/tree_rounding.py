"""Whole numbers down a tree of parts: none is negative, and children add up to their parent.

The whole is rounded first (`rounding`), from the cells x ≥ 0 whose tables are nearest to those of
its estimate, with its total held. Then every parent's children are a problem by themselves: given
the parent's whole numbers N, the estimates x̂_c of K children and their factors g_c (`two_pass`),

    min Σ_c |W(x_c - x̂_c)|² / g_c    over x_c ≥ 0, Σ_c x_c = N, cell by cell.

Cells of small parts are mostly empty, and noise makes half of them negative. To cut these off cell
by cell (W = I) is quick and right for cells, but the sum of what is cut off is taken from other
children: on made-up counties of 2,000 persons it made totals seven times worse than least squares.
Nearest in the tables W that are asked, no weighted sum of squared errors of tables is larger than
that of x̂ if N is true, by the argument of `nonnegative`, and all tables were closer than least
squares there (`python -m benchmarks.levels`).

It is found by splitting (`splitting`): in turns the nearest point in the region, cell by cell,

    z_c = (w_c - τ g_c)₊    with τ such that Σ_c z_c = N,

which needs one sort, and (X + μI)⁻¹ with X = WᵀW, which is the same for all children. Where nothing
is cut off the first z is the answer, whatever W.

Real numbers become whole ones cell by cell: each child gets its floor, and what is missing to N is
given to the children that are furthest behind, in this cell and in the sums of the tables that the
cell is part of, as far as cells have been gone through. So sums over the cells of a child stay
near, and sums over children are exact. The same estimates give the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from psephos.errors import ShapeError
from psephos.infer.nonnegative import nearest_nonnegative
from psephos.infer.rounding import round_cells
from psephos.infer.two_pass import TreeFit, level_table, runs
from psephos.inverse.shifted import ShiftedForm, shifted_form
from psephos.matrix import Matrix, is_total
from psephos.values import Array
from psephos.workload.workload import Workload

FAMILY_NUMBERS = 1 << 22
"""Numbers of children that are rounded together; a larger family is first divided into a few."""
FAMILY_STEPS, LOOK_AFTER = 60, 10
"""The most steps of splitting for a family, and those between two looks at how near it is."""
FAMILY_RELAXATION = 1.8
NEAR_ENOUGH = 1e-4
"""x and z differ by this share of what the region cut off: enough before rounding."""
FEW_DIGITS = 6
"""Real numbers are rounded to so many digits first, so that the last digits of floats move none."""
FOLLOWED_SUMS = 2
"""The most sums that are followed while cells are rounded, for each cell of a part."""


class WholeRun(NamedTuple):
    """Whole numbers for the cells of parts start to stop - 1 of a level."""

    level: int
    start: int
    stop: int
    cells: Array


def whole_numbers_down(
    fit: TreeFit, workloads: Sequence[Workload], folder: Path | None = None
) -> Iterator[WholeRun]:
    """Whole numbers for all parts, level by level from the whole, runs of parts in their order.

    Args:
        fit: the estimates of all parts
        workloads: for each level the tables that should stay near, over the cells of a part
        folder: where levels of many numbers are kept until the next one is done

    >>> import psephos as ps
    >>> from psephos.domain.part_tree import PartTree
    >>> from psephos.infer.two_pass import two_pass
    >>> from psephos.inverse.part_levels import LevelNoise
    >>> tree = PartTree.of(ps.Domain.of(county=["a", "b"]), ["county"])
    >>> z = [np.array([[9.2, 1.4]]), np.array([[9.0, -2.0], [0.4, 3.0]])]
    >>> fit = two_pass(tree, LevelNoise.of([[1], [1]]), lambda i, a, b: z[i][a:b], 2)
    >>> W = ps.Workload(ps.Domain.of(sex=2), [ps.product(sex=ps.identity())])
    >>> [run.cells.tolist() for run in whole_numbers_down(fit, [W, W])]
    [[[9, 1]], [[9, 0], [0, 1]]]
    """
    for workload in workloads:
        if workload.domain.size != fit.cells:
            raise ShapeError(f"a part has {fit.cells:,} cells, got tables over {workload.domain}")
    whole = fit.estimates(0, 0, 1)[0]
    total = max(0.0, float(whole.sum()))
    above = round_cells(nearest_nonnegative(whole, workloads[0], total=total), workloads[0])[None]
    yield WholeRun(0, 0, 1, above)
    for level in range(1, fit.factors.last + 1):
        family = _Families.of(workloads[level])
        kept = level < fit.factors.last
        parts = fit.tree.sizes[level]
        below = level_table(folder, f"whole-{level}", parts if kept else 0, fit.cells, np.int64)
        for start, stop, parents in _family_runs(fit, level):
            cells = _divide(fit, family, level, start, stop, parents, above)
            for run in cells:
                if kept:
                    below[run.start : run.stop] = run.cells
                yield run
        above = below


def _family_runs(fit: TreeFit, level: int) -> Iterator[tuple[int, int, Array]]:
    """Whole families that fit together: their children start to stop - 1, and these's parents."""
    parents = fit.tree.parents(level)
    edges = np.append(np.flatnonzero(np.diff(parents, prepend=-1)), parents.size)
    most = max(1, FAMILY_NUMBERS // fit.cells)
    i = 0
    while i < edges.size - 1:
        j = max(i + 1, int(np.searchsorted(edges, edges[i] + most, side="right")) - 1)
        yield int(edges[i]), int(edges[j]), parents[edges[i] : edges[j]]
        i = j


def _divide(
    fit: TreeFit,
    family: _Families,
    level: int,
    start: int,
    stop: int,
    parents: Array,
    above: Array,
) -> Iterator[WholeRun]:
    """The children of some parents; those of one that has too many by way of groups of them."""
    first = int(parents[0])
    sums = np.asarray(above[first : int(parents[-1]) + 1])
    factors = fit.variance_factors(level)[start:stop]
    most = max(2, FAMILY_NUMBERS // fit.cells)
    if stop - start <= most or first != int(parents[-1]):
        cells = family.whole(fit.estimates(level, start, stop), factors, parents - first, sums)
        yield WholeRun(level, start, stop, cells)
        return
    size = max(most, -(-(stop - start) // most))
    edges = np.append(np.arange(start, stop, size), stop)
    groups = np.zeros((edges.size - 1, fit.cells))
    for low, high in runs(stop - start, fit.cells):
        member = np.searchsorted(edges, np.arange(start + low, start + high), side="right") - 1
        np.add.at(groups, member, fit.estimates(level, start + low, start + high))
    variances = np.add.reduceat(factors, edges[:-1] - start)
    of_groups = family.whole(groups, variances, np.zeros(len(groups), dtype=np.int64), sums)
    for i in range(len(groups)):
        low, high = int(edges[i]), int(edges[i + 1])
        inside = np.full(high - low, i)
        yield from _divide(fit, family, level, low, high, inside, of_groups)


@dataclass(frozen=True, eq=False)
class _Families:
    """How children are made whole for the sake of some tables."""

    gram: Matrix
    form: ShiftedForm
    order: Array
    """Cells in the order in which they are rounded."""
    followed: tuple[Array, ...]
    """For each table whose sums are followed, the group of each cell."""

    @classmethod
    def of(cls, workload: Workload) -> _Families:
        blocks = [workload.kron(i) for i in range(len(workload.products))]
        weights = [float(product.weight) ** 2 for product in workload.products]
        largest = max(weights)
        form = shifted_form(blocks, [w / largest for w in weights], workload.domain.shape)
        scaled = workload * (1 / math.sqrt(largest))
        return cls(scaled.gram(), form, *_followed_tables(workload))

    def whole(self, estimates: Array, factors: Array, owner: Array, sums: Array) -> Array:
        """Whole numbers for children, of parent `owner`, whose sums are the parents' whole ones."""
        edges = np.append(np.flatnonzero(np.diff(owner, prepend=-1)), owner.size)
        cells = self._nearest(estimates, factors, edges, sums)
        return self._rounded(np.round(cells, FEW_DIGITS), edges, sums)

    def _nearest(self, estimates: Array, factors: Array, edges: Array, sums: Array) -> Array:
        """The children in the region whose tables are nearest to those of the estimates."""
        z = _projected(estimates, factors, edges, sums)
        rows = np.flatnonzero(np.repeat(_is_cut(estimates, z, factors, edges), np.diff(edges)))
        if not rows.size:
            return z
        # Families in which nothing is cut off are done.
        some = np.repeat(np.arange(edges.size - 1), np.diff(edges))[rows]
        inside = np.unique(some, return_inverse=True)[1]
        part = np.append(np.flatnonzero(np.diff(inside, prepend=-1)), rows.size)
        z[rows] = self._split(estimates[rows], factors[rows], part, sums[np.unique(some)])
        return z

    def _split(self, estimates: Array, factors: Array, edges: Array, sums: Array) -> Array:
        """Splitting, as in `splitting`, for all children at once."""
        shift = self.form.scale
        solve = self.form.at(shift)
        target = np.ascontiguousarray(self.gram.matmat(np.ascontiguousarray(estimates.T)).T)
        w, x = estimates.copy(), estimates.copy()
        z = _projected(w, factors, edges, sums)
        cut = float(np.linalg.norm(estimates - z))
        for step in range(1, FAMILY_STEPS + 1):
            right = 2 * z
            right -= w
            right *= shift
            right += target
            if self.form.takes_columns:
                x = np.ascontiguousarray(solve(np.ascontiguousarray(right.T), x).T)
            else:
                for i in range(len(x)):
                    x[i] = solve(right[i], x[i])
            apart = x - z
            if step % LOOK_AFTER == 0 and float(np.linalg.norm(apart)) <= NEAR_ENOUGH * cut:
                break
            apart *= FAMILY_RELAXATION
            w += apart
            z = _projected(w, factors, edges, sums)
        return z

    def _rounded(self, cells: Array, edges: Array, sums: Array) -> Array:
        """Floors, and one more for those that are furthest behind, cell after cell."""
        floors = np.floor(cells)
        behind = cells - floors
        missing = sums - np.add.reduceat(floors, edges[:-1], axis=0)
        whole = floors.astype(np.int64)
        owner = np.repeat(np.arange(edges.size - 1), np.diff(edges))
        places = np.arange(owner.size) - edges[owner]
        debts = [np.zeros((int(groups.max()) + 1, owner.size)) for groups in self.followed]
        for i in self.order.tolist():
            rest, count = behind[:, i], missing[:, i]
            score = rest.copy()
            for debt, groups in zip(debts, self.followed, strict=True):
                row = debt[groups[i]]
                row += rest
                score += row
            if not count.any():
                continue
            # A child that is whole here as it is comes last.
            ranked = np.lexsort((-score, rest == 0, owner))
            more = ranked[places < count[owner]]
            whole[more, i] += 1
            for debt, groups in zip(debts, self.followed, strict=True):
                debt[groups[i]][more] -= 1
        return whole


def _projected(w: Array, factors: Array, edges: Array, sums: Array) -> Array:
    """The nearest point of the region for each family: (w - τg)₊, its sum that of the parent.

    In the order of w/g, with N the sum, τ = (Σ w - N) / Σ g over the children that stay positive.
    """
    z = np.empty_like(w)
    for family, (start, stop) in enumerate(pairwise(edges.tolist())):
        part, g = w[start:stop], factors[start:stop, None]
        order = np.argsort(-part / g, axis=0, kind="stable")
        ratio = np.take_along_axis(part / g, order, axis=0)
        running = np.cumsum(np.take_along_axis(part, order, axis=0), axis=0)
        level = (running - sums[family]) / np.cumsum(g[order, 0], axis=0)
        positive = ratio > level
        positive[0] = True
        last = len(part) - 1 - positive[::-1].argmax(axis=0)
        tau = np.take_along_axis(level, last[None], axis=0)
        np.maximum(part - tau * g, 0, out=z[start:stop])
    return z


def _is_cut(estimates: Array, z: Array, factors: Array, edges: Array) -> Array:
    """For each family: is anything cut off, beyond what all children give in proportion to g?"""
    moved = (z - estimates) / factors[:, None]
    largest = np.maximum.reduceat(moved, edges[:-1], axis=0)
    least = np.minimum.reduceat(moved, edges[:-1], axis=0)
    slack = 1e-9 * (1 + np.abs(largest))
    return np.asarray((largest - least > slack).any(axis=1))


def _followed_tables(workload: Workload) -> tuple[Array, tuple[Array, ...]]:
    """The order in which cells are rounded, and the group of each cell in tables that are followed.

    These are the tables asked, with values that no query tells apart as one, and their margins.
    Ranges along an attribute are differences of running sums: cells are gone through along these
    attributes first, and running sums of the margins are then followed.
    """
    shape = workload.domain.shape
    cells = math.prod(shape)
    ranged: set[int] = set()
    tables: dict[tuple[tuple[int, bytes], ...], Array] = {}
    for i in range(len(workload.products)):
        groups = {}
        for axis, factor in enumerate(workload.factors(i)):
            if not is_total(factor):
                groups[axis] = np.unique(factor.column_groups(), return_inverse=True)[1]
                if float(factor.column_norms(1).max()) > 1:
                    ranged.add(axis)
        margins = (combinations(groups, k) for k in range(min(len(groups), 3) + 1))
        for axes in chain(chain.from_iterable(margins), [tuple(groups)]):
            key = tuple((axis, groups[axis].tobytes()) for axis in axes)
            if key not in tables:
                tables[key] = _cell_groups(shape, {axis: groups[axis] for axis in axes})
    followed, sums = [], 0
    for table in sorted(tables.values(), key=lambda each: int(each.max())):
        sums += int(table.max()) + 1
        if table.max() + 1 < cells and sums <= FOLLOWED_SUMS * cells:
            followed.append(table)
    rest = [axis for axis in range(len(shape)) if axis not in ranged]
    order = np.arange(cells).reshape(shape).transpose([*sorted(ranged), *rest]).ravel()
    return order, tuple(followed)


def _cell_groups(shape: tuple[int, ...], groups: Mapping[int, Array]) -> Array:
    """The group of every cell in a table over some axes."""
    number: Array = np.zeros(1, dtype=np.int64)
    for axis, n in enumerate(shape):
        each = groups.get(axis, np.zeros(n, dtype=np.int64))
        number = np.add.outer(number * (int(each.max()) + 1), each).ravel()
    return number
