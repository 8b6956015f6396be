"""Best response: the record that satisfies the most of some drawn queries.

The data player of DualQuery (Gaboardi, Gallego Arias, Hsu, Roth, Wu 2014) answers the queries that
were drawn with one record. What was drawn is public, so nothing here touches data or budget, and
the answer need not be the best: it only has to be a valid record, and the same one every time.
Records have one cell of every attribute, so each can be decoded; those of the paper's integer
program often have two or none.

Nothing is timed. Effort is counted in sweeps and nodes, sums are of whole numbers and ties are
broken by the given generator, so that no machine decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal, Protocol

import numpy as np
from numpy.random import Generator

from psephos.domain.conjunctions import Conjunctions
from psephos.errors import ShapeError, WorkloadError
from psephos.values import Array, Value, frozen

NEAR = 8
"""Conjunctions with so many conditions open, or more, do not pull at a search."""
HARDENING = (2, 4)
"""Each open condition weakens the pull by so many bits, in one sweep after the other."""
OPTIMAL, INFEASIBLE = 0, 2
"""What HiGHS may say of a program that it has searched through."""
NOISE = 16
"""Ties between equal scores are broken by numbers below this."""


@dataclass(frozen=True, eq=False)
class DrawnQueries(Value):
    """Conjunctions, each as it is or negated; one that was drawn twice is there twice."""

    conjunctions: Conjunctions
    negated: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "negated", frozen(self.negated, dtype=bool))
        if self.negated.shape != (len(self.conjunctions),):
            raise ShapeError(
                f"{len(self.conjunctions)} drawn conjunctions need as many signs, got shape "
                f"{self.negated.shape}"
            )

    def satisfied(self, records: Any) -> Array:
        """How many of them each record satisfies.

        >>> drawn = DrawnQueries(Conjunctions([[0], [1]], [[1], [1]]), [False, True])
        >>> drawn.satisfied([[1, 0], [1, 1], [0, 1]])
        array([2, 1, 0])
        """
        return np.asarray((self.conjunctions.holds(records) != self.negated[:, None]).sum(axis=0))


class BestResponse(Protocol):
    """A record, one cell number for each attribute, that satisfies many of the drawn queries.

    It depends on its arguments alone: not on the clock, and on no randomness but the generator's.
    """

    def __call__(
        self, drawn: DrawnQueries, sizes: Sequence[int] | Array, generator: Generator
    ) -> Array:
        """The record."""


@dataclass(frozen=True, eq=False)
class LocalSearch(Value):
    """Many starts at once; each attribute in turn takes the value that satisfies the most.

    A conjunction pulls at its attributes before it holds, the more the fewer conditions are open;
    the pull hardens from sweep to sweep, until only queries that are satisfied count. Then
    a few attributes are thrown anew and settle again, and the better record of each start stays.

    Args:
        starts: how many records are searched from, side by side
        throws: how often a few attributes of each are thrown anew
        sweeps: how often all attributes are gone through at most, before records settle
        free: the cells of attributes that no drawn query names: the "first" of each, one drawn
            "uniform"ly, or a list of codes, one for each attribute of the domain
    """

    starts: int = 16
    throws: int = 4
    sweeps: int = 6
    free: Literal["first", "uniform"] | Array = "first"

    def __post_init__(self) -> None:
        if not isinstance(self.free, str):
            object.__setattr__(self, "free", frozen(self.free, dtype=np.int32))
        elif self.free not in ("first", "uniform"):
            raise WorkloadError(
                f'free attributes are "first", "uniform" or a list of codes, got {self.free!r}'
            )

    def __call__(
        self, drawn: DrawnQueries, sizes: Sequence[int] | Array, generator: Generator
    ) -> Array:
        problem = _Clauses.of(drawn, np.asarray(sizes))
        return problem.record(self._choices(problem, generator), self.free, generator)

    def _choices(self, problem: _Clauses, generator: Generator) -> Array:
        """The best options of the named attributes that any start came to."""
        if not problem.axes.size:
            return np.zeros(0, dtype=np.int64)
        search = _Search(problem, generator, problem.random(self.starts, generator))
        for bits in HARDENING:
            search.sweep(_soft(bits))
        search.settle(self.sweeps)
        best, score = search.options.copy(), search.score()
        for _ in range(self.throws):
            if score.max() == problem.most:
                break
            search.throw(best)
            search.settle(self.sweeps)
            better = search.score() >= score
            best[:, better] = search.options[:, better]
            score = np.maximum(score, search.score())
        return np.asarray(best[:, np.argmax(score)])


@dataclass(frozen=True, eq=False)
class SolverImproved(Value):
    """The record of a local search, or a better one if an integer program has it.

    HiGHS is asked for a record that satisfies more queries than the local search's. It stops after
    a number of nodes, never by the clock. Where there are many queries on few attributes its
    bounds are of no use, and it is not asked.

    Args:
        search: what it starts from
        nodes: the most nodes of the search tree
        most_queries: with more different queries than this the local search's record stays
    """

    search: LocalSearch = field(default_factory=LocalSearch)
    nodes: int = 50
    most_queries: int = 100

    def __call__(
        self, drawn: DrawnQueries, sizes: Sequence[int] | Array, generator: Generator
    ) -> Array:
        problem = _Clauses.of(drawn, np.asarray(sizes))
        options = self.search._choices(problem, generator)
        if 0 < len(problem.weights) <= self.most_queries:
            options, _ = improved(problem, options, self.nodes)
        return problem.record(options, self.search.free, generator)


@dataclass(frozen=True, eq=False)
class _Clauses:
    """Drawn queries over the attributes that they name, equal ones joined.

    An attribute's options are numbered from 0, which stands for all its values that nobody names,
    if there is one; the values that are named follow, from 1. A literal is one condition of a
    clause, and a clause is worth `weights` where it holds.
    """

    sizes: Array
    axes: Array
    options: tuple[Array, ...]
    weights: Array
    clause: Array
    attribute: Array
    option: Array

    @classmethod
    def of(cls, drawn: DrawnQueries, sizes: Array) -> _Clauses:
        attributes, values = drawn.conjunctions.attributes, drawn.conjunctions.values
        if attributes.size and int(attributes.max()) >= sizes.size:
            raise ShapeError(
                f"a drawn query names attribute {int(attributes.max())} of {sizes.size}"
            )
        rows = np.hstack([attributes, values])
        rows, inverse = np.unique(rows, axis=0, return_inverse=True)
        signs = np.where(drawn.negated, -1, 1)
        weights = np.bincount(inverse.reshape(-1), signs, minlength=len(rows)).astype(np.int64)
        rows, weights = rows[weights != 0], weights[weights != 0]
        attributes, values = np.hsplit(rows, 2)
        clause, place = np.nonzero(attributes >= 0)
        axes, attribute = np.unique(attributes[clause, place], return_inverse=True)
        keys = (attribute.reshape(-1).astype(np.int64) << 32) + values[clause, place]
        named, where = np.unique(keys, return_inverse=True)
        firsts = np.searchsorted(named, np.arange(axes.size + 1) << 32)
        codes = (named & (2**32 - 1)).astype(np.int64)
        if (codes >= sizes[axes[named >> 32]]).any():
            raise ShapeError("a drawn query names a value that its attribute does not have")
        options = tuple(codes[a:b] for a, b in pairwise(firsts.tolist()))
        attribute = attribute.reshape(-1)
        option = where.reshape(-1) - firsts[attribute] + 1
        return cls(sizes, axes, options, weights, clause, attribute, option)

    @property
    def most(self) -> int:
        """More than this no record is worth."""
        return int(np.maximum(self.weights, 0).sum())

    def worth(self, options: Array) -> int:
        """What the clauses are worth that hold."""
        open_literals = options[self.attribute] != self.option
        return int(self.weights @ (np.bincount(self.clause, open_literals) == 0))

    @property
    def lowest(self) -> Array:
        """The first option of each attribute: 1 where all its values are named."""
        named = np.array([len(codes) for codes in self.options])
        return np.asarray((named == self.sizes[self.axes]).astype(np.int64))

    def random(self, number: int, generator: Generator) -> Array:
        """Options of all attributes at random, a column for each record."""
        ends = np.array([len(codes) + 1 for codes in self.options])
        shape = (len(ends), number)
        return generator.integers(self.lowest[:, None], ends[:, None], size=shape)

    def record(self, options: Array, free: str | Array, generator: Generator) -> Array:
        """The record of these options, other attributes as the policy says."""
        record = _free_cells(self.sizes, free, generator)
        for axis, codes, option in zip(
            self.axes.tolist(), self.options, options.tolist(), strict=True
        ):
            if option:
                record[axis] = codes[option - 1]
            elif record[axis] in codes:  # any value that nobody names will do: the first
                gaps = np.flatnonzero(codes != np.arange(codes.size))
                record[axis] = gaps[0] if gaps.size else codes.size
        return record


class _Search:
    """Records side by side, one a column, and how many conditions of each clause are open.

    Attributes that share no clause do not see each other, so they are moved together: greedy
    colours put them into few groups.
    """

    def __init__(self, problem: _Clauses, generator: Generator, options: Array) -> None:
        self.problem, self.generator, self.options = problem, generator, options
        self.groups = [_Group.of(problem, attributes) for attributes in _colours(problem)]
        self.open = self._open()

    def _open(self) -> Array:
        open_literals = self.options[self.problem.attribute] != self.problem.option[:, None]
        starts = np.flatnonzero(np.diff(self.problem.clause, prepend=-1))
        return np.add.reduceat(open_literals, starts, axis=0, dtype=np.int64)

    def score(self) -> Array:
        """What each record's clauses are worth."""
        return np.asarray(self.problem.weights @ (self.open == 0))

    def sweep(self, pull: Array) -> None:
        """Every attribute takes its best option, once."""
        for group in self.groups:
            group.move(self.options, self.open, pull, self.generator)

    def settle(self, sweeps: int) -> None:
        """Only clauses that hold count, until no record gets better."""
        score = self.score()
        for _ in range(sweeps):
            self.sweep(HARD)
            after = self.score()
            if (after == score).all():
                break
            score = after

    def throw(self, best: Array) -> None:
        """The best records so far, with a few of their attributes at random."""
        few = self.generator.random(best.shape) < max(2 / len(best), 0.08)
        self.options[:] = np.where(few, self.problem.random(best.shape[1], self.generator), best)
        self.open[:] = self._open()


@dataclass(frozen=True, eq=False)
class _Group:
    """Attributes that share no clause, their literals, and their options as columns of scores."""

    attributes: Array
    clause: Array
    attribute: Array
    option: Array
    weight: Array
    starts: Array
    places: Array
    numbers: Array
    firsts: Array

    @classmethod
    def of(cls, problem: _Clauses, attributes: Array) -> _Group:
        mine = np.flatnonzero(np.isin(problem.attribute, attributes))
        mine = mine[np.lexsort((problem.option[mine], problem.attribute[mine]))]
        attribute, option = problem.attribute[mine], problem.option[mine]
        new = (np.diff(attribute, prepend=-1) != 0) | (np.diff(option, prepend=-1) != 0)
        lowest = problem.lowest[attributes]
        counts = np.array([len(problem.options[a]) + 1 for a in attributes.tolist()]) - lowest
        firsts = np.cumsum(counts) - counts
        owner = np.repeat(np.arange(attributes.size), counts)
        numbers = np.arange(counts.sum()) - firsts[owner] + lowest[owner]
        where = np.searchsorted(attributes, attribute)
        places = (firsts[where] + option - lowest[where])[new]
        clause, starts = problem.clause[mine], np.flatnonzero(new)
        weight = problem.weights[clause]
        return cls(attributes, clause, where, option, weight, starts, places, numbers, firsts)

    def move(self, options: Array, open_: Array, pull: Array, generator: Generator) -> None:
        """The best option of each attribute, in every record."""
        records = options.shape[1]
        before = options[self.attributes]
        rest = open_[self.clause] - (before[self.attribute] != self.option[:, None])
        worth = pull[np.minimum(rest, NEAR)] * self.weight[:, None]
        scores = np.zeros((self.numbers.size, records), dtype=np.int64)
        scores[self.places] = np.add.reduceat(worth, self.starts, axis=0)
        scores = scores * NOISE + generator.integers(NOISE, size=scores.shape)
        most = int(self.numbers.max()) + 1
        # The option's number rides along, so that the largest score tells whose it is.
        scores = scores * most + self.numbers[:, None]
        after = np.maximum.reduceat(scores, self.firsts, axis=0) % most
        options[self.attributes] = after
        open_[self.clause] = rest + (after[self.attribute] != self.option[:, None])


def with_free_cells(
    drawn: DrawnQueries, record: Array, free: Array, sizes: Sequence[int] | Array, worth: Fraction
) -> Array:
    """Copies of a record with free cells, of which each copy has its own, wherever these do.

    An attribute keeps the record's cell if that satisfies over `worth` drawn queries more than the
    free ones, on the average of all copies. What was drawn is a sample: a query that was drawn once
    among many is more likely noise than one that records undercount.

    Args:
        drawn: the drawn queries
        record: the answer to them
        free: the cells that a record would have were nothing drawn, a row for each copy
        sizes: of the attributes
        worth: in drawn queries

    >>> drawn = DrawnQueries(Conjunctions([[0], [0], [1]], [[1], [1], [1]]), [False] * 3)
    >>> free = np.array([[0, 0, 4], [0, 0, 3]])
    >>> with_free_cells(drawn, np.array([1, 1, 0]), free, (2, 2, 5), Fraction(1)).tolist()
    [[1, 0, 4], [1, 0, 3]]
    """
    problem = _Clauses.of(drawn, np.asarray(sizes))
    copies = np.array(free, dtype=np.int32)
    if not problem.axes.size:
        return copies
    codes = np.concatenate(problem.options)
    firsts = np.cumsum([0, *map(len, problem.options)])
    axis = problem.axes[problem.attribute]
    code = codes[firsts[problem.attribute] + problem.option - 1]
    wrong = np.repeat((record[axis] != code)[:, None], len(copies), axis=1)
    wrong_if_free = (copies[:, axis] != code).T
    starts = np.flatnonzero(np.diff(problem.clause, prepend=-1))
    open_ = np.add.reduceat(wrong, starts, axis=0, dtype=np.int64)
    groups = [np.isin(problem.attribute, some).nonzero()[0] for some in _colours(problem)]
    kept = np.ones(problem.axes.size, dtype=bool)
    for most in (0, worth):  # first what is worth nothing
        changed = True
        while changed:
            changed = False
            for literals in groups:  # whose attributes share no clause
                clause, attribute = problem.clause[literals], problem.attribute[literals]
                rest = open_[clause] - wrong[literals]
                gains = wrong_if_free[literals].astype(np.int64) - wrong[literals]
                gains = ((rest == 0) * gains).sum(axis=1) * problem.weights[clause]
                loss = np.bincount(attribute, gains, minlength=kept.size).astype(np.int64)
                some = np.bincount(attribute, minlength=kept.size) > 0
                freed = some & kept & (loss <= int(most * len(copies)))
                if freed.any():
                    changed = True
                    kept &= ~freed
                    moved = literals[freed[attribute]]
                    wrong[moved] = wrong_if_free[moved]
                    open_[clause] = rest + wrong[literals]
    copies[:, problem.axes[kept]] = record[problem.axes[kept]]
    return copies


def _soft(bits: int) -> Array:
    """How much a clause pulls by the number of its conditions that are open beside one."""
    return np.array([1 << (bits * (NEAR - j)) for j in range(NEAR)] + [0], dtype=np.int64)


HARD = np.array([1] + [0] * NEAR, dtype=np.int64)


def _colours(problem: _Clauses) -> list[Array]:
    """Attributes in groups whose members share no clause, by greedy colouring."""
    taken = [0] * len(problem.weights)
    order = np.argsort(problem.attribute, kind="stable")
    clauses = problem.clause[order].tolist()
    ends = np.searchsorted(problem.attribute[order], np.arange(problem.axes.size + 1)).tolist()
    groups: list[list[int]] = []
    for attribute in range(problem.axes.size):
        mine = clauses[ends[attribute] : ends[attribute + 1]]
        used = 0
        for clause in mine:
            used |= taken[clause]
        colour = (~used & (used + 1)).bit_length() - 1
        for clause in mine:
            taken[clause] |= 1 << colour
        if colour == len(groups):
            groups.append([])
        groups[colour].append(attribute)
    return [np.array(group) for group in groups]


def _free_cells(sizes: Array, free: str | Array, generator: Generator) -> Array:
    """A cell for each attribute, by the policy for those that no query names."""
    if isinstance(free, str):
        cells = generator.integers(sizes) if free == "uniform" else np.zeros(sizes.size)
        return cells.astype(np.int32)
    if free.shape != sizes.shape or (free < 0).any() or (free >= sizes).any():
        raise WorkloadError(
            f"the codes of free attributes are one cell for each of {sizes.size} attributes"
        )
    return free.copy()


def improved(problem: _Clauses, options: Array, nodes: int) -> tuple[Array, bool]:
    """Options that are worth more than the given ones, if HiGHS comes to some; else the given.

    Beside them, whether they are proven to be the best. The program has a variable for every named
    option, of which an attribute takes one at most, and one for every clause: at most each of its
    literals if it is wanted, else at least their sum less all but one.
    """
    import scipy.sparse as sp
    from scipy.optimize import Bounds, LinearConstraint, milp

    counts = np.array([len(codes) for codes in problem.options])
    firsts = np.cumsum(counts) - counts
    features, clauses = int(counts.sum()), len(problem.weights)
    literal = firsts[problem.attribute] + problem.option - 1
    lengths = np.bincount(problem.clause, minlength=clauses)
    worth = problem.worth(options)
    positive = problem.weights > 0
    if worth == problem.most:
        return options, True
    one = sp.csr_array(
        (np.ones(features), (np.repeat(np.arange(counts.size), counts), np.arange(features))),
        shape=(counts.size, features + clauses),
    )
    least = np.where(problem.lowest == 1, 1, 0)
    rising = np.flatnonzero(positive[problem.clause])
    number = np.arange(rising.size)  # z_c <= y_f for each literal f of a clause that is wanted
    below = sp.csr_array(
        (
            np.repeat([1.0, -1.0], rising.size),
            (np.tile(number, 2), np.append(features + problem.clause[rising], literal[rising])),
        ),
        shape=(rising.size, features + clauses),
    )
    falling = np.flatnonzero(~positive)  # sum of y_f - z_c <= k - 1, of one that is not
    row = np.full(clauses, -1)
    row[falling] = np.arange(falling.size)
    inside = ~positive[problem.clause]
    above = sp.csr_array(
        (
            np.append(np.ones(inside.sum()), -np.ones(falling.size)),
            (
                np.append(row[problem.clause[inside]], np.arange(falling.size)),
                np.append(literal[inside], features + falling),
            ),
        ),
        shape=(falling.size, features + clauses),
    )
    gain = np.append(np.zeros(features), problem.weights)
    constraints = [
        LinearConstraint(one, least, 1),
        LinearConstraint(gain[None], worth + 1, np.inf),
    ]
    if rising.size:
        constraints.append(LinearConstraint(below, -np.inf, 0))
    if falling.size:
        constraints.append(LinearConstraint(above, -np.inf, lengths[falling] - 1))
    integral = np.append(np.ones(features), np.zeros(clauses))
    solution = milp(
        -gain,
        integrality=integral,
        bounds=Bounds(0, 1),
        constraints=constraints,
        options={"node_limit": nodes, "mip_rel_gap": 0.0},
    )
    proven = solution.status in (OPTIMAL, INFEASIBLE)
    if solution.x is None:
        return options, proven
    chosen = np.round(solution.x[:features]).astype(np.int64)
    numbers = np.arange(features) - np.repeat(firsts, counts) + 1
    better = np.maximum(np.maximum.reduceat(chosen * numbers, firsts), problem.lowest)
    return (better if problem.worth(better) > worth else options), proven
