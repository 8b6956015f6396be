"""The options of a union on one axis: levels, every value, a strategy, the total; and its classes.

What a release asks of an attribute is a few groupings of its values: none at all (the total), the
levels of a hierarchy, every value. A part of a union takes one of these options on each axis, and
every value may be asked by a strategy Y (a p-Identity, or a Gaussian factor) instead of one by one.

Where all options but Y factor through P, the finest of the levels, their common classes are known
without an eigenproblem: with N = Y⁻¹ and K = PNPᵀ the columns of NPᵀ are one block, where Y is K,
a level PᵀLP is KLK and a Gram G is R = PNGNPᵀ; all the rest is one class, on which Y is 1 and G has
trace tr NG - tr K⁻¹R. An axis on which parts have strategies of their own is one block of all its
cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np

from psephos.inverse.axis_classes import axis_classes
from psephos.matrix import Identity, Matrix, Ones, Partition, Stack, compose, total
from psephos.matrix.combine import join_groups
from psephos.strategy.factors import Factor, identity_factor
from psephos.strategy.gram_terms import GramOperator, GramTerms, gram_operator
from psephos.values import Array

MOST_OPTIONS = 8
"""The most groupings of one axis."""
PartOptions = tuple[int, ...]
"""The number of an option on every axis."""


@dataclass(frozen=True, eq=False)
class AxisOption:
    """A grouping of the cells of an axis, and what is measured of the groups."""

    groups: Array
    factor: Factor

    @property
    def matrix(self) -> Matrix:
        """The option as a matrix over all cells."""
        count, n = int(self.groups.max()) + 1, self.groups.size
        if count == 1:
            return total(n)
        if count == n:
            return self.factor.matrix
        partition = Partition(self.groups)
        return partition if _is_plain(self.factor) else compose(self.factor.matrix, partition)


@dataclass(frozen=True, eq=False)
class LevelAxis:
    """The queries of one axis: those that differ, their grouping, and which each product has."""

    n: int
    queries: list[Matrix]
    which: Array
    options: tuple[Array, ...]
    """Groupings that queries need and their joins, each as the group of every cell; fine ones last.

    Where there are too many, every value stands for some of them.
    """
    needs: tuple[tuple[int, ...], ...]
    """For each of the queries the option that it needs, then those that some of its rows need."""

    @classmethod
    def of(cls, terms: GramTerms, i: int) -> LevelAxis:
        different = {id(w): w for w in terms.axis(i)}
        index = {key: k for k, key in enumerate(different)}
        n = terms.shape[i]
        groups = [[piece.column_groups() for piece in (w, *_pieces(w))] for w in different.values()]
        options = _options([g for several in groups for g in several], n)
        needs = [[_finer_option(options, g) for g in several] for several in groups]
        return cls(
            n,
            list(different.values()),
            np.array([index[id(w)] for w in terms.axis(i)]),
            options,
            tuple(tuple(dict.fromkeys(numbers)) for numbers in needs),
        )

    @cached_property
    def joins(self) -> Array:
        """The number of the coarsest option finer than every two of them."""
        pairs = [
            [_finer_option(self.options, join_groups([a, b])) for b in self.options]
            for a in self.options
        ]
        return np.array(pairs)

    def is_plain(self, option: int) -> bool:
        """Do the queries that need an option ask for groups one by one, its own or coarser ones?"""
        return all(
            isinstance(piece, Identity | Partition | Ones)
            for w, needs in zip(self.queries, self.needs, strict=True)
            if needs[0] == option
            for piece in _pieces(w) or [w]
        )

    @cached_property
    def grams(self) -> list[GramOperator]:
        return [gram_operator([1.0], [w]) for w in self.queries]

    @cached_property
    def written_grams(self) -> Array:
        """The Gram of every query matrix, in a row."""
        return np.array([gram.times(np.eye(self.n)).ravel() for gram in self.grams])


@dataclass(frozen=True, eq=False)
class AxisBlocks:
    """One axis in its classes: their sizes, and the entries of every option and every query."""

    sizes: tuple[tuple[int, int], ...]
    """Runs of classes: the size of their blocks, and their number."""
    options: Array
    queries: Array
    moments: AxisMoments | None = None

    @property
    def entries(self) -> int:
        return int(self.options.shape[1])


@dataclass(frozen=True, eq=False)
class AxisMoments:
    """With N = Y⁻¹: P, K = PNPᵀ, and for every Gram on the axis GNPᵀ and R = PNGNPᵀ."""

    levels: CommonLevels
    kernel: Array
    through: list[Array]
    squares: Array


def fixed_blocks(axis: LevelAxis, options: Sequence[AxisOption], used: Sequence[int]) -> AxisBlocks:
    """An axis on which no option is optimised."""
    classes = axis_classes(tuple(options[o].matrix for o in used))
    entries = np.zeros((len(options), classes.entries))
    entries[list(used)] = classes.blocks
    return AxisBlocks(
        tuple((section.size, section.classes) for section in classes.sections),
        entries,
        np.array([classes.gram_blocks(w) for w in axis.queries]),
    )


@dataclass(frozen=True, eq=False)
class CommonLevels:
    """The coarsest grouping finer than all levels that are used on an axis."""

    partition: Array
    """P, groups by cells."""
    grams: dict[int, Array]
    """What each level that is used measures of the groups."""
    is_level: Array
    """For every query matrix: does it ask about groups alone?"""

    @classmethod
    def of(
        cls, axis: LevelAxis, options: Sequence[AxisOption], used: Sequence[int]
    ) -> CommonLevels | None:
        """None if no level is used."""
        levels = [o for o in used if o < len(options) - 1]
        if not levels:
            return None
        groups = join_groups([options[o].groups for o in levels])
        count = int(groups.max()) + 1
        partition = np.zeros((count, axis.n))
        partition[groups, np.arange(axis.n)] = 1
        first = np.unique(groups, return_index=True)[1]
        grams = {}
        for o in levels:
            columns = options[o].factor.matrix.dense()[:, options[o].groups[first]]
            grams[o] = columns.T @ columns
        is_level = [
            int(join_groups([groups, axis.options[needs[0]]]).max()) + 1 == count
            for needs in axis.needs
        ]
        return cls(partition, grams, np.array(is_level))


def strategy_blocks(
    axis: LevelAxis, options: Sequence[AxisOption], levels: CommonLevels | None
) -> AxisBlocks:
    """An axis whose last option is a strategy of every value, the others levels of it."""
    inverse = options[-1].factor.inverse
    rest = np.array([inverse.trace_with(w) for w in axis.queries])
    if levels is None:
        return AxisBlocks(((1, 1),), np.ones((len(options), 1)), rest[:, None])
    partition = levels.partition
    count = len(partition)
    columns = inverse.matmat(partition.T)
    kernel = partition @ columns
    through = [gram.times(columns.T.copy()).T for gram in axis.grams]
    squares = np.array([columns.T @ g for g in through])
    seen = (np.linalg.inv(kernel) * squares).sum(axis=(1, 2))
    rest = np.where(levels.is_level, 0.0, np.maximum(rest - seen, 0.0))
    entries = np.zeros((len(options), 1 + count * count))
    for o, gram in levels.grams.items():
        entries[o, 1:] = (kernel @ gram @ kernel).ravel()
    entries[-1] = np.append(1.0, kernel)
    return AxisBlocks(
        ((1, 1), (count, 1)),
        entries,
        np.column_stack([rest, squares.reshape(len(squares), -1)]),
        AxisMoments(levels, kernel, through, squares),
    )


def divided_blocks(axis: LevelAxis, options: Sequence[AxisOption]) -> AxisBlocks:
    """An axis with several strategies of every value: all its cells are one block."""
    grams = [option.matrix.gram().dense(limit=axis.n**2).ravel() for option in options]
    return AxisBlocks(((axis.n, 1),), np.array(grams), axis.written_grams)


def plain_option(groups: Array) -> AxisOption:
    """Every group on its own."""
    return AxisOption(groups, identity_factor(int(groups.max()) + 1))


def kinds_of(axes: Sequence[LevelAxis]) -> list[PartOptions]:
    """The option on every axis that each product needs, without repeats."""
    needs = [[axis.needs[k][0] for k in axis.which] for axis in axes]
    return list(dict.fromkeys(zip(*needs, strict=True)))


def joined_parts(axes: Sequence[LevelAxis], most: int) -> list[PartOptions]:
    """What can answer products on exactly their cells, up to a number of parts.

    These are the kinds of products and their joins, then what parts of products need and its joins.
    """
    parts = dict.fromkeys(kinds_of(axes))
    pieces: dict[PartOptions, None] = {}
    for j in range(len(axes[0].which)):
        choices = [axis.needs[axis.which[j]] for axis in axes]
        if math.prod(map(len, choices)) <= most:
            pieces.update(dict.fromkeys(product(*choices)))
    for seeds in (list(parts), list(pieces)):
        parts.update(dict.fromkeys(seeds[: most - len(parts)]))
        pending = list(parts)
        for one in pending:
            for other in seeds:
                both = tuple(
                    int(axis.joins[a, b]) for axis, a, b in zip(axes, one, other, strict=True)
                )
                if both not in parts and len(parts) < most:
                    parts[both] = None
                    pending.append(both)
    return list(parts)


def _options(groupings: Sequence[Array], n: int) -> tuple[Array, ...]:
    """Groupings with their joins, from coarse to fine; without joins, or without some, if many."""
    every = np.arange(n)
    base = {g.tobytes(): g for g in [*groupings, every]}
    options = dict(base)
    pending = list(options.values())
    while pending and len(options) <= MOST_OPTIONS:
        one = pending.pop()
        for other in list(options.values()):
            both = join_groups([one, other])
            if both.tobytes() not in options:
                options[both.tobytes()] = both
                pending.append(both)
    chosen = options if len(options) <= MOST_OPTIONS else base
    ordered = sorted(chosen.values(), key=lambda g: (int(g.max()), g.tolist()))
    return (*ordered[:-1][: MOST_OPTIONS - 1], every)


def _finer_option(options: Sequence[Array], groups: Array) -> int:
    """The number of the coarsest option that tells all groups apart."""
    return next(
        k for k, option in enumerate(options)
        if int(join_groups([option, groups]).max()) == int(option.max())
    )  # fmt: skip


def gram_seen_with_levels(
    axis: LevelAxis, at: AxisMoments, by_query: Array, by_option: Array
) -> GramOperator:
    """Γ = Σ γG + PᵀHP + Σ (GNPᵀ E P + its transpose), γ, H and E the derivatives in tr NG, K, R."""
    p, kernel = at.levels.partition, at.kernel
    count = len(kernel)
    inverse = np.linalg.inv(kernel)
    gamma = by_query[:, 0]
    by_square = _symmetric(by_query[:, 1:], count) - gamma[:, None, None] * inverse
    by_kernel = inverse @ np.tensordot(gamma, at.squares, axes=1) @ inverse
    by_block = _symmetric(by_option[:, 1:], count)
    by_kernel += by_block[-1]
    for o, gram in at.levels.grams.items():
        half = by_block[o] @ kernel @ gram
        by_kernel += half + half.T
    side = np.zeros((axis.n, count))
    for through, e in zip(at.through, by_square, strict=True):
        side += through @ e
    diagonal = ((by_kernel @ p + 2 * side.T) * p).sum(axis=0)
    for g, gram_of_queries in zip(gamma, axis.grams, strict=True):
        diagonal += g * gram_of_queries.diagonal

    def times(b: Array) -> Array:
        sums = b @ p.T
        out = (sums @ by_kernel + b @ side) @ p + sums @ side.T
        for g, gram_of_queries in zip(gamma, axis.grams, strict=True):
            out += g * gram_of_queries.times(b)
        return np.asarray(out)

    return GramOperator(axis.n, diagonal, times)


def gram_seen_alone(slope: Array, gram: Array, n: int) -> GramOperator:
    """Γ = -Y (∂C/∂Y) Y, since dY = -Y dN Y."""
    y = gram.reshape(n, n)
    seen = -y @ _symmetric(slope[None], n)[0] @ y
    return GramOperator(n, np.diagonal(seen).copy(), lambda b: np.asarray(b @ seen))


def _symmetric(entries: Array, size: int) -> Array:
    """Rows of entries as matrices, each the mean of itself and its transpose."""
    blocks = entries.reshape(-1, size, size)
    return np.asarray((blocks + np.swapaxes(blocks, 1, 2)) / 2)


def _pieces(queries: Matrix) -> tuple[Matrix, ...]:
    """The parts of stacked queries."""
    return queries.parts if isinstance(queries, Stack) else ()


def _is_plain(factor: Factor) -> bool:
    return not factor.rounded
