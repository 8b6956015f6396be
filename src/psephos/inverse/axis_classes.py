"""How the factors of one axis fall apart together: V with VᵀY_jV block diagonal for all of them.

Grams Y_j = A_jᵀA_j of one axis rarely commute, but they often share invariant subspaces: the
levels of a hierarchy, every value and the total do, one strategy and the total do, and any two
factors have common eigenvectors. In the basis V

    VᵀY_jV = ⊕_k B_jk ⊗ I_{m_k}

with classes k of small blocks B_jk (b_k x b_k), each in m_k copies. The classes are the finest that
there are, computed from the matrices themselves: after scaling to Σ_j Y_j = I the eigenspaces of a
generic combination Σ ρ_jY_j are taken, those that some Y_j links belong to one class, and equal
copies are turned to agree (Murota, Kanno, Kojima and Kojima 2010). What does not split is one
block, so the result is right however little structure there is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import groupby

import numpy as np
import scipy.sparse as sp
from numpy.random import default_rng
from scipy.linalg import qr, solve_triangular
from scipy.linalg.lapack import dpocon, dpotrf
from scipy.sparse.csgraph import connected_components

from psephos.errors import TooLargeError, UnsupportedError
from psephos.matrix import Compose, Dense, DirectSum, Identity, Matrix, Sparse
from psephos.matrix.columns import select_columns
from psephos.matrix.combine import join_groups
from psephos.values import Array

LONGEST_CLASS_AXIS = 2048
"""The longest axis whose factors are taken apart: one array of its cells squared."""
EQUAL_EIGENVALUES = 1e-10
"""Eigenvalues of a generic combination that differ by less belong to one eigenspace."""
LINK = 1e-9
"""Entries below this, beside ones of size one, are rounding."""
NOTHING = 1e-13
"""What a factor sees of a class, beside what it sees of others, to count as something."""
SEEN = 1e-6
"""Singular values, beside the largest, of directions that a factor sees of a class."""
SPARSE_SHARE = 1 / 16
"""Below this share of numbers that are not zero, a sparse product takes less time than a dense."""
SECONDS_PER_CUBE = 5e-10
"""Seconds that a factor of n cells takes until its classes are known, for each of n³."""
HELD_SQUARES = 1 << 23
"""Numbers held at a time while many queries are squared."""


@dataclass(frozen=True, eq=False)
class Section:
    """Neighbouring classes of one block size that the same factors see."""

    size: int
    """b, of every block."""
    copies: Array
    """m of every class."""
    entries: slice
    """Where its blocks stand among all entries of blocks."""
    columns: slice
    """Where its vectors stand in V: copy by copy, each with the b columns of its block."""
    seen_by: tuple[bool, ...]

    @property
    def classes(self) -> int:
        return self.copies.size

    @cached_property
    def class_of_copy(self) -> Array:
        """For every copy, which class it is of."""
        return np.repeat(np.arange(self.copies.size), self.copies)


@dataclass(frozen=True, eq=False)
class AxisClasses:
    """The common classes of several factors on one axis."""

    vectors: Array
    sections: tuple[Section, ...]
    blocks: tuple[Array, ...]
    """For every factor the entries of its blocks, class by class, row by row."""
    groups: Array
    """The group of every value: a vector is constant in each, or sums to zero in each."""

    @property
    def entries(self) -> int:
        """Numbers in all blocks."""
        return int(self.sections[-1].entries.stop)

    def narrow(self, factor: Matrix, number: int) -> NarrowAxis | None:
        """The axis for what one of the factors alone sees; None if that is no less.

        Of a class it may see a few directions: a total sees one, however many cells it is of.
        Sections keep their numbers.
        """
        turns = [self._directions(factor, s) if s.seen_by[number] else None for s in self.sections]
        if all(turn is None for turn in turns):
            return None
        sections, vectors, start = [], [], 0
        for section, turn in zip(self.sections, turns, strict=True):
            size, some = section.size, self.vectors[:, section.columns]
            if turn is not None:
                some = (some.reshape(len(some), -1, size) @ turn).reshape(len(some), -1)
                size = turn.shape[1]
            columns = slice(start, start + some.shape[1])
            sections.append(replace(section, size=size, columns=columns))
            vectors.append(some)
            start = columns.stop
        axis = replace(self, vectors=np.concatenate(vectors, axis=1), sections=tuple(sections))
        return NarrowAxis(axis, tuple(turns))

    def _directions(self, factor: Matrix, section: Section) -> Array | None:
        """An orthonormal basis of what a factor of few rows sees of the blocks of one class."""
        if section.classes > 1 or factor.shape[0] >= section.size:
            return None
        first = self.vectors[:, section.columns][:, : section.size]
        _, sizes, turned = np.linalg.svd(factor.matmat(first), full_matrices=False)
        return np.asarray(turned[sizes > sizes[0] * SEEN].T)

    def image(self, queries: Matrix, sections: Sequence[int]) -> Matrix:
        """WV on the vectors of some sections: written out, or WS times T where that is less work.

        S spreads groups over their values, beside vectors that are not constant in groups; T holds
        those that are, a number for each group.
        """
        every = np.arange(self.vectors.shape[1])
        places = np.concatenate([every[self.sections[s].columns] for s in sections])
        written = _map(queries.matmat(self.vectors[:, places]))
        if self._first.size == len(self.vectors):
            return written
        spread: list[Array] = []
        inner: list[Matrix] = []
        for constant, run in groupby(places, key=self._is_constant.__getitem__):
            some = self.vectors[:, list(run)]
            spread.append(np.eye(self._first.size)[self.groups] if constant else some)
            inner.append(Dense(some[self._first]) if constant else Identity(some.shape[1]))
        outer = _map(queries.matmat(np.concatenate(spread, axis=1)))
        return min(written, Compose((outer, DirectSum(tuple(inner)))), key=_work)

    @cached_property
    def _first(self) -> Array:
        """The first value of every group."""
        return np.unique(self.groups, return_index=True)[1]

    @cached_property
    def _is_constant(self) -> Array:
        """For every vector: is it constant in each group?"""
        return np.asarray((self.vectors == self.vectors[self._first][self.groups]).all(axis=0))

    def _by_class(self, section: Section, left: Array, right: Array) -> Array:
        """Σ over copies of leftᵀright, for arrays of shape (..., rows, columns of the section)."""
        b = section.size
        starts = np.cumsum(section.copies) - section.copies
        if b == 1:
            return np.add.reduceat(left * right, starts, axis=-1)
        pairs = left.reshape(*left.shape[:-1], -1, b, 1) * right.reshape(
            *right.shape[:-1], -1, 1, b
        )
        sums = np.add.reduceat(pairs, starts, axis=-3)
        return sums.reshape(*left.shape[:-1], -1)

    def parts(self, most: int) -> Iterator[tuple[AxisClasses, slice]]:
        """At most so many classes at a time, all of blocks of one number, and their entries."""
        for section in self.sections:
            for start in range(section.entries.start, section.entries.stop, max(1, most)):
                place = slice(start, min(start + max(1, most), section.entries.stop))
                copies = section.copies[start - section.entries.start :][: place.stop - start]
                entries = slice(0, copies.size)
                some = Section(1, copies, entries, slice(0, int(copies.sum())), section.seen_by)
                blocks = tuple(block[place] for block in self.blocks)
                yield AxisClasses(self.vectors, (some,), blocks, self.groups), place

    def gram_blocks(self, queries: Matrix) -> Array:
        """The diagonal blocks of VᵀWᵀWV, summed over the copies of each class."""
        seen = queries.gram().matmat(self.vectors)
        blocks = [self._over_cells(s, seen) for s in self.sections]
        return _without_dust(np.concatenate(blocks))

    def _over_cells(self, section: Section, seen: Array) -> Array:
        """The blocks of one section, cells summed before copies: no array of pairs is formed."""
        n, b = len(seen), section.size
        left = self.vectors[:, section.columns].reshape(n, -1, b).transpose(1, 2, 0)
        right = seen[:, section.columns].reshape(n, -1, b).transpose(1, 0, 2)
        starts = np.cumsum(section.copies) - section.copies
        return np.asarray(np.add.reduceat(left @ right, starts, axis=0).ravel())

    def query_blocks(self, queries: Matrix) -> Array:
        """The same for each query by itself: a row of entries for every row of W."""
        return np.concatenate(list(self.query_blocks_in_turn(queries)))

    def query_blocks_in_turn(self, queries: Matrix) -> Iterator[Array]:
        """The rows of `query_blocks`, some at a time."""
        seen = queries.matmat(self.vectors)
        width = max(s.size * (s.columns.stop - s.columns.start) for s in self.sections)
        step = max(1, HELD_SQUARES // width)
        for start in range(0, len(seen), step):
            some = seen[start : start + step]
            blocks = [
                self._by_class(s, some[:, s.columns], some[:, s.columns]) for s in self.sections
            ]
            yield _without_dust(np.concatenate(blocks, axis=1))

    def unit_blocks(self) -> Array:
        """The entries of unit blocks."""
        parts = [np.tile(np.eye(s.size).ravel(), s.classes) for s in self.sections]
        return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class NarrowAxis:
    """An axis with the vectors that one factor sees; its blocks are those of the whole axis."""

    axis: AxisClasses
    turns: tuple[Array | None, ...]
    """For every section the directions of its block that are left; None where all are."""


@lru_cache(maxsize=16)
def axis_classes(factors: tuple[Matrix, ...]) -> AxisClasses:
    """The finest common classes of factors on one axis.

    >>> from psephos.matrix import Partition, total
    >>> halves = Partition([0, 0, 1, 1])
    >>> [(s.size, s.copies.tolist()) for s in axis_classes((Identity(4), halves)).sections]
    [(1, [2]), (1, [2])]
    """
    n = factors[0].shape[1]
    if n > LONGEST_CLASS_AXIS:
        raise TooLargeError(
            f"products are inverted together by common classes of each attribute, and {n:,} cells "
            f"of one attribute are over the limit of {LONGEST_CLASS_AXIS:,}",
            n,
            LONGEST_CLASS_AXIS,
        )
    return _with_blocks(factors, *_merged_classes(factors, n))


def _map(numbers: Array) -> Matrix:
    """A map from or to coordinates: most have few numbers where an axis is long."""
    sparse = np.count_nonzero(numbers) < SPARSE_SHARE * numbers.size
    return Sparse(sp.csr_array(numbers)) if sparse else Dense(numbers)


def _work(a: Matrix) -> float:
    """About the dense multiplications of a map in one product."""
    if isinstance(a, Compose | DirectSum):
        return sum(map(_work, a.parts))
    if isinstance(a, Sparse):
        return float(a.entries.nnz / SPARSE_SHARE)
    return 0.0 if isinstance(a, Identity) else float(math.prod(a.shape))


def _merged_classes(factors: Sequence[Matrix], n: int) -> tuple[list[Array], Array]:
    """The vectors of every class, and groups of which each is constant in all or sums to zero.

    Groups hold the values that one factor alone distinguishes, or none. With Y its Gram and P the
    sums of groups, no other factor sees a vector v with Pv = 0, so that all of these are one class;
    on what is left, the range of Y⁻¹Pᵀ, the factors are those of a cell for each group.
    """
    finest, groups = _finest_and_groups(factors)
    whole = np.arange(n)
    if groups is None:
        known = isinstance(factors[0], Identity)
        return [(np.eye(n) if known else common_root(_even_gram(factors[0])))[:, :, None]], whole
    sizes = np.bincount(groups)
    factor = factors[finest[0]] if finest else Identity(n)
    roots = _roots_of_sums(factor, groups) if sizes.size < n else None
    if roots is None:
        return _finest_classes([_even_gram(factor) for factor in factors]), whole
    seen, sums, rest = roots
    first = np.unique(groups, return_index=True)[1]
    grams = [
        np.eye(sizes.size) if k in finest else _even_gram(select_columns(factor, first), sums)
        for k, factor in enumerate(factors)
    ]
    small = [np.ones((1, 1, 1))] if sizes.size == 1 else _finest_classes(grams)
    classes = [np.tensordot(seen, v, axes=1) for v in small]
    classes += [rest[:, :, None]] * len(finest)
    return classes, groups if isinstance(factor, Identity) else whole


def _finest_and_groups(factors: Sequence[Matrix]) -> tuple[list[int], Array | None]:
    """Which factors tell all values apart, and groups that all but the first of these leave alone.

    A single such factor leaves none.
    """
    every = [_column_groups(factor) for factor in factors]
    finest = [k for k, groups in enumerate(every) if int(groups.max()) == groups.size - 1]
    others = [groups for k, groups in enumerate(every) if k not in finest[:1]]
    return finest, join_groups(others) if others else None


def classes_seconds(factors: Sequence[Matrix]) -> float:
    """About how long it takes to find the common classes of factors on one axis.

    >>> from psephos.matrix import Prefix, total
    >>> classes_seconds([Identity(99), total(99)]) < classes_seconds([Prefix(99), total(99)])
    True
    """
    finest, groups = _finest_and_groups(factors)
    if groups is None:
        return 0.0
    merged = int(groups.max()) + 1
    largest = float(merged) ** 3 * len(factors)
    if finest and not isinstance(factors[finest[0]], Identity):
        largest += float(groups.size) ** 3
    return SECONDS_PER_CUBE * largest


def _roots_of_sums(factor: Matrix, groups: Array) -> tuple[Array, Array, Array] | None:
    """With Y the factor's Gram and P the sums of groups: U, PU, and V with PV = 0.

    Together they are a basis in which Y is the identity, U that of the range of Y⁻¹Pᵀ. None if Y is
    singular, or nearly.
    """
    count = int(groups.max()) + 1
    if isinstance(factor, Identity):
        roots = np.sqrt(np.bincount(groups))
        return (np.eye(count) / roots)[groups], np.diag(roots), _zero_sums(groups)
    root = _regular_root(_even_gram(factor))
    if root is None:
        return None
    by_group = np.add.reduceat(root[np.argsort(groups, kind="stable")], _starts(groups), axis=0).T
    turn, upper = qr(by_group, check_finite=False)
    return root @ turn[:, :count], upper[:count].T, root @ turn[:, count:]


def _starts(groups: Array) -> Array:
    """Where each group begins once values are sorted by their groups."""
    sizes = np.bincount(groups)
    return np.asarray(np.cumsum(sizes) - sizes)


def _column_groups(factor: Matrix) -> Array:
    """Equal columns share a number; all are different where a matrix does not know."""
    try:
        return factor.column_groups()
    except UnsupportedError:
        return np.arange(factor.shape[1])


def _finest_classes(grams: Sequence[Array]) -> list[Array]:
    root = common_root(np.asarray(sum(grams)))
    scaled = [root.T @ gram @ root for gram in grams]
    classes = min(
        (_classes(scaled, seed) for seed in range(1 if len(grams) < 3 else 2)),
        key=lambda each: sum(v.shape[2] ** 3 for v in each),
    )
    return [np.tensordot(root, v, axes=1) for v in classes]


def _zero_sums(groups: Array) -> Array:
    """An orthonormal basis of what sums to zero in every group: halves of halves of its values.

    >>> (2 * _zero_sums(np.array([0, 0, 1]))).round(3).ravel().tolist()
    [1.414, -1.414, 0.0]
    """
    columns = []
    waiting = [np.flatnonzero(groups == k) for k in range(int(groups.max()) + 1)]
    while waiting:
        values = waiting.pop()
        if values.size > 1:
            left, right = np.split(values, [values.size // 2])
            column = np.zeros(groups.size)
            column[left] = np.sqrt(right.size / (left.size * values.size))
            column[right] = -np.sqrt(left.size / (right.size * values.size))
            columns.append(column)
            waiting += [left, right]
    return np.stack(columns, axis=1)


def common_eigenvectors(a: Matrix, b: Matrix) -> tuple[Array, Array, Array]:
    """V with Vᵀ(AᵀA/s + BᵀB/t)V = I on the span of both, and |AV|², |BV|² by columns."""
    n = a.shape[1]
    if n > LONGEST_CLASS_AXIS:
        raise TooLargeError(
            f"two products are inverted together by eigenvectors of each attribute, and {n:,} "
            f"cells of one attribute are over the limit of {LONGEST_CLASS_AXIS:,}",
            n,
            LONGEST_CLASS_AXIS,
        )
    x, y = _even_gram(a), _even_gram(b)
    root = common_root(x + y)
    v = root @ np.linalg.eigh(root.T @ x @ root)[1]
    # As lengths, not as 1 - the other: that would lose the digits of the small ones.
    return v, (a.matmat(v) ** 2).sum(axis=0), (b.matmat(v) ** 2).sum(axis=0)


def common_root(x: Array) -> Array:
    """R with RᵀXR = I, on the span of X."""
    root = _regular_root(x)
    if root is not None:
        return root
    values, vectors = np.linalg.eigh(x)
    inside = values > values[-1] * len(x) * 1e-15
    return np.asarray(vectors[:, inside] / np.sqrt(values[inside]))


def _regular_root(x: Array) -> Array | None:
    """R with RᵀXR = I by Cholesky; None if X is singular, or nearly."""
    root, failed = dpotrf(x, lower=1)
    if failed or dpocon(root, np.abs(x).sum(axis=0).max(), uplo="L")[0] < 1e-6:
        return None
    inverse = solve_triangular(root, np.eye(len(x)), lower=True, trans="T", check_finite=False)
    return np.asarray(inverse)


def _without_dust(entries: Array) -> Array:
    """Rows of entries, zero where rounding alone left something.

    A class that only a very noisy block sees would make much of it.
    """
    largest = np.abs(entries).max(axis=-1, keepdims=True, initial=0.0)
    return np.where(np.abs(entries) > NOTHING * largest, entries, 0.0)


def _even_gram(a: Matrix, basis: Array | None = None) -> Array:
    """AᵀA, in a basis if there is one, scaled to a diagonal of one on average."""
    n = a.shape[1]
    gram = a.gram().dense(limit=n * n)
    if basis is not None:
        gram = basis.T @ gram @ basis
    return np.asarray(gram / (float(np.trace(gram)) / n or 1.0))


def _classes(scaled: Sequence[Array], seed: int) -> list[Array]:
    """For every class its vectors: cells x copies x the columns of a block."""
    weights = default_rng(seed).uniform(0.5, 1.5, len(scaled))
    values, turn = np.linalg.eigh(
        np.asarray(sum(w * z for w, z in zip(weights, scaled, strict=True)))
    )
    starts = np.flatnonzero(np.diff(values, prepend=-np.inf) > EQUAL_EIGENVALUES)
    ends = np.append(starts[1:], len(values))
    turned = [turn.T @ z @ turn for z in scaled]
    links = np.zeros((starts.size, starts.size))
    for z in turned:
        largest = np.maximum.reduceat(
            np.maximum.reduceat(np.abs(z), starts, axis=0), starts, axis=1
        )
        np.maximum(links, largest, out=links)
    count, member = connected_components(links > LINK, directed=False)
    classes = []
    for k in range(count):
        spaces = [slice(starts[a], ends[a]) for a in np.flatnonzero(member == k)]
        classes.append(_agreeing(turn, turned, spaces))
    return classes


def _agreeing(turn: Array, turned: Sequence[Array], spaces: list[slice]) -> Array:
    """The vectors of one class, its eigenspaces turned so that every Y_j is B_j ⊗ I on them.

    Where they cannot be, the class is one block without copies.
    """
    first = spaces[0]
    m = first.stop - first.start
    everything = np.concatenate([turn[:, space] for space in spaces], axis=1)[:, None, :]
    if m == 1 or any(space.stop - space.start != m for space in spaces):
        return everything  # one copy agrees with itself
    turns = [np.eye(m)]
    for space in spaces[1:]:
        # By the strongest link to a space that has been turned.
        linked = [
            (z[space, spaces[a]] @ turns[a], float(np.abs(z[space, spaces[a]]).max()))
            for a in range(len(turns))
            for z in turned
        ]
        link, strength = max(linked, key=lambda pair: pair[1])
        if strength <= LINK:
            return everything
        left, sizes, right = np.linalg.svd(link)
        if sizes[0] - sizes[-1] > 1e-6 * sizes[0]:
            return everything
        turns.append(left @ right)
    for z in turned:
        for a, one in enumerate(spaces):
            for b, other in enumerate(spaces):
                block = turns[a].T @ z[one, other] @ turns[b]
                if np.abs(block - np.eye(m) * (np.trace(block) / m)).max() > 10 * LINK:
                    return everything
    return np.stack([turn[:, s] @ t for s, t in zip(spaces, turns, strict=True)], axis=2)


def _with_blocks(factors: Sequence[Matrix], vectors: Sequence[Array], groups: Array) -> AxisClasses:
    """Classes in the order of their block sizes and of who sees them, with all factors' blocks."""
    blocks = [[_block(factor, v) for v in vectors] for factor in factors]
    largest = [max(float(np.abs(b).max()) for b in row) for row in blocks]
    blocks = [
        [np.where(np.abs(b) > NOTHING * most, b, 0.0) for b in row]
        for row, most in zip(blocks, largest, strict=True)
    ]
    kinds = [
        (v.shape[2], tuple(bool(row[k].any()) for row in blocks)) for k, v in enumerate(vectors)
    ]
    order = sorted(range(len(vectors)), key=lambda k: (kinds[k], -vectors[k].shape[1]))
    sections: list[Section] = []
    entry = column = 0
    for (b, seen_by), run in groupby(order, key=lambda k: kinds[k]):
        members = list(run)
        copies = np.array([vectors[k].shape[1] for k in members])
        entry_end, column_end = entry + len(members) * b * b, column + int(copies.sum()) * b
        sections.append(
            Section(b, copies, slice(entry, entry_end), slice(column, column_end), seen_by)
        )
        entry, column = entry_end, column_end
    n = vectors[0].shape[0]
    return AxisClasses(
        np.concatenate([vectors[k].reshape(n, -1) for k in order], axis=1),
        tuple(sections),
        tuple(np.concatenate([row[k].ravel() for k in order]) for row in blocks),
        groups,
    )


def _block(factor: Matrix, v: Array) -> Array:
    """B with VᵀAᵀAV = B ⊗ I on the vectors of a class, from all its copies."""
    n, m, b = v.shape
    flat = v.reshape(n, -1)
    if factor.shape[0] <= 4 * n:
        seen = factor.matmat(flat).reshape(-1, m, b)
        other = seen
    else:
        seen, other = v, factor.gram().matmat(flat).reshape(n, m, b)
    block = np.einsum("nsa,nsb->ab", seen, other, optimize=True) / m
    return np.asarray((block + block.T) / 2)
