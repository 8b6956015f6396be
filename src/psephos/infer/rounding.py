"""Controlled rounding: integers for the cells that keep the sums of a workload where they are.

Cells that no query tells apart are rounded as one; what they get is shared out exactly. Between
those groups rounding starts from cumulative sums, so that all sums of neighbours are within one,
and goes on by moving groups to their other integer while

    f(z) = ‖W(z - x)‖² + a multiple of (Σz - Σx)²

falls; all ranges along an attribute count there as its prefixes. Most cells of a large domain hold
far less than one row, and each of many thousand moves then does little by itself. So first the
residual r = W(z - x) is fed back: with c the room that each cell has to move, the least correction
diag(c)Wᵀλ that takes r away, WCWᵀλ = -r, says how much to move in which direction, and cumulative
sums along the cells, their axes in a random order, turn shares of a move into whole moves without
adding up to much anywhere.

Then cells are moved one by one, and two by two, one up and one down: most moves that help a table
of pairs harm the total, and only two together leave it alone. Going through all pairs is too much.
So among some thousand cells, drawn at random, a hundred whose moves harm least are looked at more
closely: their inner products in W say what any of their moves do together, and they are moved
greedily, and back, while f falls; then others are drawn. Tables that are counted from the result
add up by construction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator, default_rng

from psephos.infer.table_tree import TableTree
from psephos.matrix import AllRange, Dense, Identity, Kron, Matrix, Ones, Prefix, total
from psephos.values import Array
from psephos.workload.workload import Workload

EXCHANGE_ROUNDS, FEEDBACK_ROUNDS = 200, 40
"""The most rounds of single moves and pairs, and before them of moves against the residual."""
FEEDBACK_STEPS = 20
"""Conjugate gradient steps for a correction."""
LEAST_FEEDBACK = 1e-3
"""Where less than this share of a correction helps, the rest is left to single moves."""
LOOKED_AT, BATCH_CELLS = 20_000, 128
"""Cells drawn for a round of moves up, and for moves down; and how many of these are compared."""
BATCH_ENTRIES = 1 << 21
"""The most entries of a factor's columns that are written out for a comparison."""
KEPT_GRAM_AXIS = 2048
"""The longest axis whose inner products are all kept."""
IDLE_ROUNDS = 6
"""After so many rounds without a move there are hardly any left."""
LEAST_FALL = 1e-9
"""What f has to fall by, so that the last digits of floats move nothing."""
TOTAL_WEIGHT = 4.0
"""How much the sum of all cells counts, as a multiple of all else that a cell is part of."""
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
    """The largest gap of an answer, for each product; of a sum, in its largest numbers."""
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
        krons = [workload.kron(i) for i in range(len(workload.products))]
        differences = [kron.matvec(z - x) / largest_number(kron) for kron in krons]
        return cls(
            float(np.abs(rounded - sums).max()),
            float(np.abs(z - x * share[groups]).max()),
            not uneven.any(),
            tuple(float(np.abs(gaps).max()) for gaps in differences),
            float(np.sqrt(np.mean([(gaps**2).mean() for gaps in differences]))),
        )


def largest_number(kron: Kron) -> float:
    """By how much a row moves a number of a product at most: 1 for counts, more for sums."""
    dense = [factor for factor in kron.factors if isinstance(factor, Dense)]
    return max(1.0, math.prod(float(np.abs(factor.dense()).max()) for factor in dense))


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
    d = _exchange(tables, d, min(EXCHANGE_ROUNDS, max(10, turns)), generator)
    return np.asarray(np.rint(x + tables.tree.restore(d)), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class _RoundedTables:
    """All tables of a workload and the sum of all cells, scaled so that f is a squared length."""

    tree: TableTree
    weights: tuple[float, ...]
    """What the square of a number counts, for each block of the tree."""
    roots: Array
    curvature: Array
    """The squared length of what a cell adds to."""

    @classmethod
    def of(cls, workload: Workload) -> _RoundedTables:
        shape = workload.domain.shape
        krons = [_without_ranges(workload.kron(i)) for i in range(len(workload.products))]
        counts = [1 / largest_number(kron) ** 2 for kron in krons]
        tree = TableTree.of([*krons, Kron(tuple(total(n) for n in shape))], shape)
        curvature = tree.squares.transpose(np.repeat([*counts, 0.0], tree.rows))
        whole = TOTAL_WEIGHT * float(curvature.mean())
        curvature += whole
        weights = (*counts, whole)
        return cls(tree, weights, np.repeat(np.sqrt(weights), tree.rows), curvature)

    def times(self, d: Array) -> Array:
        return self.roots * self.tree.apply(d)

    def transposed(self, r: Array) -> Array:
        return self.tree.transpose(self.roots * r)

    @cached_property
    def batch(self) -> int:
        """How many cells are compared at once, each way."""
        factors = {factor for factors in self.tree.blocks for factor in factors}
        longest = max((max(f.shape) for f in factors if not _has_gram(f)), default=1)
        return max(1, min(BATCH_CELLS, BATCH_ENTRIES // longest))

    def gram(self, cells: Array) -> Array:
        """The inner products of some cells' columns."""
        places = np.unravel_index(cells, self.tree.shape)
        known: dict[tuple[tuple[int, Matrix], ...], Array] = {}
        result = np.zeros((cells.size, cells.size))
        counts: dict[float, Array] = {}
        for factors, weight in zip(self.tree.blocks, self.weights, strict=True):
            copies, product = weight, np.ones(1, dtype=bool)
            begin: tuple[tuple[int, Matrix], ...] = ()
            for axis, factor in enumerate(factors):
                if isinstance(factor, Ones):
                    copies *= factor.m
                    continue
                last, begin = begin, (*begin, (axis, factor))
                if begin not in known:  # most tables begin like another one
                    alone = ((axis, factor),)
                    if alone not in known:
                        known[alone] = self._inner_products(factor, places[axis])
                    known[begin] = product * known[alone] if last else known[alone]
                product = known[begin]
            if product.dtype != bool:
                result += copies * product
                continue
            if copies not in counts:  # how many tables of this weight have two cells in one
                counts[copies] = np.zeros(result.shape, dtype=np.int32)
            counts[copies] += product
        for copies, several in counts.items():
            result += copies * several
        return result

    def _inner_products(self, factor: Matrix, places: Array) -> Array:
        """Those of some columns of a factor."""
        if isinstance(factor, Identity):
            return np.equal.outer(places, places)  # whose products are a byte each, too
        n = factor.shape[1]
        if isinstance(factor, Prefix):
            return np.asarray(n - np.maximum.outer(places, places), dtype=float)
        if n > KEPT_GRAM_AXIS:
            units = np.zeros((n, places.size))
            units[places, np.arange(places.size)] = 1
            columns = factor.matmat(units)
            return np.asarray(columns.T @ columns)
        return np.asarray(self._grams[factor][np.ix_(places, places)])

    @cached_property
    def _grams(self) -> dict[Matrix, Array]:
        """All inner products of the columns of factors that have not many."""
        factors = {factor for factors in self.tree.blocks for factor in factors}
        few = [f for f in factors if not isinstance(f, Identity | Ones | Prefix)]
        limit = KEPT_GRAM_AXIS**2
        return {
            f: f.gram().dense(limit=limit).astype(float)
            for f in few
            if f.shape[1] <= KEPT_GRAM_AXIS
        }


def _has_gram(factor: Matrix) -> bool:
    """Are a few inner products of columns known without writing the columns?"""
    return isinstance(factor, Identity | Ones | Prefix) or factor.shape[1] <= KEPT_GRAM_AXIS


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


def _exchange(tables: _RoundedTables, d: Array, rounds: int, generator: Generator) -> Array:
    """Single cells and pairs of cells to their other integer, while f falls."""
    residual, idle = tables.times(d), 0
    for _ in range(rounds):
        if idle == IDLE_ROUNDS or not residual.any():
            break
        gradient = tables.transposed(residual)
        gradient *= -2 * np.sign(d)
        gradient += tables.curvature  # how f changes with a cell alone
        raised = _promising(gradient, np.flatnonzero(d < 0), tables.batch, generator)
        lowered = _promising(gradient, np.flatnonzero(d > 0), tables.batch, generator)
        cells = np.concatenate([raised, lowered])
        moved = cells[_best_moves(tables.gram(cells), gradient[cells], raised.size)]
        idle = 0 if moved.size else idle + 1
        if moved.size:
            d[moved] -= np.sign(d[moved])
            residual = tables.times(d)
    return d


def _promising(change: Array, cells: Array, count: int, generator: Generator) -> Array:
    """Those of some cells, drawn at random, whose moves change f by the least."""
    if cells.size > LOOKED_AT:
        cells = np.unique(cells[generator.integers(0, cells.size, LOOKED_AT)])
    if cells.size <= count:
        return cells
    return cells[np.argpartition(change[cells], count)[:count]]


def _best_moves(gram: Array, change: Array, raised: int) -> Array:
    """Which cells to move, the first `raised` up and the others down: greedily, one or a pair.

    f changes by `change` with a cell alone, and by ±2 gram more with two.
    """
    signs = np.where(np.arange(change.size) < raised, 1.0, -1.0)
    across = 2 * gram * np.multiply.outer(signs, signs)
    change = change.copy()
    moves = np.zeros(change.size, dtype=bool)
    for _ in range(2 * change.size):
        single = int(np.argmin(change))
        chosen, least = [single], float(change[single])
        if 0 < raised < change.size:
            turned = np.where(moves, -1.0, 1.0)
            both = across[:raised, raised:] * np.multiply.outer(turned[:raised], turned[raised:])
            both += change[:raised, None]
            both += change[raised:]
            up, down = divmod(int(np.argmin(both)), both.shape[1])
            if both[up, down] < least:
                chosen, least = [up, raised + down], float(both[up, down])
        if least > -LEAST_FALL:
            break
        for k in chosen:
            turn = -1.0 if moves[k] else 1.0
            before = change[k]
            change += turn * np.where(moves, -1.0, 1.0) * across[k]
            moves[k] = not moves[k]
            change[k] = -before
    return np.flatnonzero(moves)
