"""Controlled rounding: integers for the cells that keep the sums of a workload where they are.

Cells that no query tells apart are rounded as one; what they get is shared out exactly. Between
those groups rounding starts from cumulative sums, so that all sums of neighbours are within one,
and goes on by moving groups to their other integer, some at a time, while

    f(z) = Σ_p ‖W_p (z - x)‖² / (number of queries of p)

falls; all ranges along an attribute count there as its prefixes. Most cells of a large domain hold
far less than one row, and each of many thousand moves then does little by itself. So first the
residual r = W(z - x) is fed back: with c the room that each cell has to move, the least correction
diag(c)Wᵀλ that takes r away, WCWᵀλ = -r, says how much to move in which direction, and cumulative
sums along the cells, their axes in a random order, turn shares of a move into whole moves without
adding up to much anywhere. Then single moves follow, each where f falls. Tables that are counted
from the result add up by construction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator, default_rng

from psephos.infer.table_tree import TableTree
from psephos.matrix import AllRange, Kron, Prefix
from psephos.values import Array
from psephos.workload.workload import Workload

MOVE_ROUNDS, FEEDBACK_ROUNDS = 200, 40
"""The most rounds of single moves, and before them of moves against the residual."""
FEEDBACK_STEPS = 20
"""Conjugate gradient steps for a correction."""
LEAST_FEEDBACK = 1e-3
"""Where less than this share of a correction helps, the rest is left to single moves."""
ROUNDING_WORK = 2_000_000_000
"""About how many numbers the search may compute."""
CELL_WORK, ANSWER_WORK = 6, 60
"""Those of one gradient, for each cell and for each number of a table."""


def round_cells(x: Array, workload: Workload) -> Array:
    """Integers near x, none negative, 0 where x is, whose sums are near those of x.

    The same x gives the same numbers.

    >>> from psephos import Domain, marginals
    >>> W = marginals(Domain.of(a=2, b=2), up_to=1)
    >>> round_cells(np.array([1.5, 1.5, 1.5, 1.5]), W)
    array([2, 1, 1, 2])
    """
    reduction = workload.reduce()
    count = reduction.domain.size
    groups = reduction.partition.rmatvec(np.arange(count))
    sums = np.bincount(groups, weights=x, minlength=count)
    rounded = _search_rounding(sums, reduction.workload)
    share = np.divide(rounded, sums, out=np.zeros(count), where=sums > 0)
    order = np.argsort(groups, kind="stable")
    result = np.empty(x.size, dtype=np.int64)
    result[order] = _round_running_sums((x * share[groups])[order])
    return result


@dataclass(frozen=True)
class RoundingGaps:
    """How far integers z are from the real ones x that they stand for.

    Rounding keeps `group` and `share` within one. `largest` and `typical` depend on the workload,
    and on the last digits of floats, which decide where the search for the best rounding ends.
    """

    group: float
    """The largest gap of a group of cells that no query tells apart."""
    share: float
    """The largest gap of a cell from its share of its group's integer."""
    even: bool
    """Do all cells of a group have the same share of it, or none?"""
    largest: tuple[float, ...]
    """The largest gap of an answer, for each product."""
    typical: float
    """The root mean square of the answers' gaps, all products alike: √(f(z) / products)."""

    @classmethod
    def of(cls, z: Array, x: Array, workload: Workload) -> RoundingGaps:
        """The gaps between two vectors over all cells of a workload."""
        reduction = workload.reduce()
        count = reduction.domain.size
        groups = reduction.partition.rmatvec(np.arange(count))
        sums, rounded = (np.bincount(groups, weights=cells, minlength=count) for cells in (x, z))
        share = np.divide(rounded, sums, out=np.ones(count), where=sums > 0)
        largest = np.zeros(count)
        np.maximum.at(largest, groups, x)
        uneven = (x > 0) & (x < (1 - 1e-6) * largest[groups])
        differences = [workload.kron(i).matvec(z - x) for i in range(len(workload.products))]
        return cls(
            float(np.abs(rounded - sums).max()),
            float(np.abs(z - x * share[groups]).max()),
            not uneven.any(),
            tuple(float(np.abs(gaps).max()) for gaps in differences),
            float(np.sqrt(np.mean([(gaps**2).mean() for gaps in differences]))),
        )


def _round_running_sums(x: Array) -> Array:
    """Differences of rounded cumulative sums: every sum of neighbours is within one of x's."""
    return np.diff(np.rint(np.cumsum(x)).astype(np.int64), prepend=0)


def _search_rounding(x: Array, workload: Workload) -> Array:
    """The rounding of x with the least f that corrections and moves of some cells find."""
    tables = _RoundedTables.of(workload)
    d = tables.tree.arrange(_round_running_sums(x) - x)
    d[np.abs(d) < 1e-9] = 0
    turns = ROUNDING_WORK // (CELL_WORK * x.size + ANSWER_WORK * tables.tree.size)
    generator = default_rng(0)
    d = _feed_back(tables, d, min(FEEDBACK_ROUNDS, turns // FEEDBACK_STEPS), generator)
    d = _move_cells(tables, d, min(MOVE_ROUNDS, max(10, turns)), generator)
    return np.asarray(np.rint(x + tables.tree.restore(d)), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _RoundedTables:
    """All tables of a workload, scaled so that f is the squared length of W d."""

    tree: TableTree
    roots: Array
    curvature: Array

    @classmethod
    def of(cls, workload: Workload) -> _RoundedTables:
        krons = [_without_ranges(workload.kron(i)) for i in range(len(workload.products))]
        tree = TableTree.of(krons, workload.domain.shape)
        roots = np.repeat([1 / math.sqrt(m) for m in tree.rows], tree.rows)
        curvature = sum(kron.column_norms(2) ** 2 / kron.shape[0] for kron in krons)
        return cls(tree, roots, tree.arrange(np.asarray(curvature)))

    def times(self, d: Array) -> Array:
        return self.roots * self.tree.apply(d)

    def transposed(self, r: Array) -> Array:
        return self.tree.transpose(self.roots * r)


def _without_ranges(kron: Kron) -> Kron:
    """Prefixes in place of all ranges, which are differences of two of them, and far more."""
    return Kron(tuple(Prefix(f.shape[1]) if isinstance(f, AllRange) else f for f in kron.factors))


def _feed_back(tables: _RoundedTables, d: Array, rounds: int, generator: Generator) -> Array:
    """Moves against the residual, as many as help."""
    residual, strength = tables.times(d), 1.0
    for _ in range(rounds):
        if strength < LEAST_FEEDBACK or not residual.any():
            break
        room = np.abs(d)
        correction = room * tables.transposed(_correction(tables, room, -residual))
        move = np.where(correction * d < 0, np.minimum(2 * strength * np.abs(correction), 1), 0.0)
        order = generator.permutation(len(tables.tree.shape))
        up = _spread_moves(np.where(d < 0, move, 0), tables.tree.shape, order, generator)
        down = _spread_moves(np.where(d > 0, move, 0), tables.tree.shape, order, generator)
        trial = d + up - down
        after = tables.times(trial)
        if after @ after < residual @ residual:
            d, residual, strength = trial, after, min(1.0, 1.3 * strength)
        else:
            strength /= 2
    return d


def _correction(tables: _RoundedTables, room: Array, target: Array) -> Array:
    """λ with W diag(room) Wᵀλ = target, about: conjugate gradients, a bounded number of steps."""
    solution, rest = np.zeros_like(target), target.copy()
    direction, size = rest.copy(), float(rest @ rest)
    enough = 1e-4 * size
    for _ in range(FEEDBACK_STEPS):
        image = tables.times(room * tables.transposed(direction))
        bend = float(direction @ image)
        if size <= enough or bend <= 0:
            break
        solution += size / bend * direction
        rest -= size / bend * image
        size, before = float(rest @ rest), size
        direction = rest + size / before * direction
    return solution


def _spread_moves(move: Array, shape: tuple[int, ...], order: Array, generator: Generator) -> Array:
    """Whole moves from shares of them; sums along the cells, axes in this order, stay near."""
    along = np.transpose(move.reshape(shape), order)
    steps = np.floor(np.cumsum(along.ravel()) + generator.random())
    whole = np.minimum(np.diff(steps, prepend=0), 1).reshape(along.shape)
    # What begins before the first share is no move, and a cell without a share makes none.
    whole = np.where(along > 0, whole, 0)
    return np.transpose(whole, np.argsort(order)).reshape(-1)


def _move_cells(tables: _RoundedTables, d: Array, rounds: int, generator: Generator) -> Array:
    """Single cells to their other integer, some at a time, while f falls."""
    residual, share = tables.times(d), 0.5
    gradient = tables.transposed(residual)
    for _ in range(rounds):
        moves = -np.sign(d)
        gain = -(2 * moves * gradient + tables.curvature)
        able = np.flatnonzero((gain > 0) & (moves != 0))
        if able.size == 0:
            break
        some = able[generator.random(able.size) < share]
        if some.size == 0:
            some = able[[np.argmax(gain[able])]]  # one alone always helps
        trial = d.copy()
        trial[some] += moves[some]
        after = tables.times(trial)
        if after @ after < residual @ residual:
            d, residual, share = trial, after, min(0.5, 1.5 * share)
            gradient = tables.transposed(residual)
        else:
            share /= 2
    return d
