"""The exact inverse of nested trees of counts, from blocks of a few children each.

Cells 0 … n-1 are the leaves of a tree with fan-outs b₁, …, b_L; where n < b₁⋯b_L the last blocks
are cut off. Level ℓ measures, in every block, the same small matrix A_ℓ on the totals of the
block's children, with precision c_ℓ (one over the noise variance):

    X_ℓ = I ⊗ X_{ℓ+1} + c_ℓ A_ℓᵀA_ℓ ⊗ 11ᵀ,     X = X₁.

With S = X_{ℓ+1}⁻¹, y = 1ᵀS1 and u = S1/y this has the inverse

    X_ℓ⁻¹ = I ⊗ (S - y uuᵀ) + R ⊗ uuᵀ,         R = (I/y + c_ℓ A_ℓᵀA_ℓ)⁻¹:

R is the covariance of the children's totals; what is left of a child once its total is known never
mixes with its siblings. So everything is a sum over levels of b x b problems, with R replaced by
R - R11ᵀR/1ᵀR1 below the root. The hierarchies of Hay et al. 2010 and Qardaji et al. 2013 are the
case A_ℓ = I. Sums over all ranges need a few numbers of each kind of block (`TreeBlock`); a single
range needs the two paths to its ends (`PathTables`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from psephos.errors import ShapeError, UnsupportedError
from psephos.inverse.axis import AxisInverse
from psephos.inverse.range_gram import LineGram, LineQueries, check_width, ends
from psephos.matrix import Compose, Identity, Kron, Matrix, Ones, Scaled, Sparse, Stack
from psephos.values import Array, frozen

SOLVED_ROWS = 4096
"""The most rows without a closed form that are solved for one by one."""
SOLVED_ENTRIES = 1 << 30
"""The most entries of these rows."""
RANGES_AT_ONCE = 1 << 18
"""Ranges whose variances are computed together."""


@dataclass(frozen=True, eq=False)
class Tree:
    """Nested levels of counts with their precisions, on the first `cells` leaves.

    >>> from psephos.matrix import Prefix
    >>> tree = Tree.of([np.eye(4), np.eye(4)], [1.0, 1.0])
    >>> round(tree.trace(Prefix(16)), 6)
    35.2
    """

    levels: tuple[Array, ...]
    """A_ℓ from the root to the leaves; any rows, b_ℓ columns."""
    precisions: Array
    cells: int

    def __post_init__(self) -> None:
        levels = tuple(frozen(level, float) for level in self.levels)
        precisions = frozen(self.precisions, float)
        if not levels or any(level.ndim != 2 or level.size == 0 for level in levels):
            raise ShapeError("a tree needs at least one level, and each is a matrix")
        leaves = math.prod(level.shape[1] for level in levels)
        if precisions.shape != (len(levels),) or not (precisions > 0).all():
            raise ShapeError(f"{len(levels)} levels need as many positive precisions")
        if not 1 <= self.cells <= leaves:
            raise ShapeError(f"a tree with {leaves} leaves has no room for {self.cells} cells")
        if np.linalg.matrix_rank(levels[-1]) < levels[-1].shape[1]:
            raise ShapeError("the last level must tell all its cells apart: full column rank")
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "precisions", precisions)

    @classmethod
    def of(
        cls, levels: Sequence[Any], precisions: Sequence[float] | Array, cells: int | None = None
    ) -> Tree:
        """From matrices, or pairs (d, B) that stand for diag(d) above B."""
        matrices = tuple(
            level_matrix(*x) if isinstance(x, tuple) else np.asarray(x) for x in levels
        )
        leaves = math.prod(level.shape[1] for level in matrices)
        return cls(matrices, np.asarray(precisions), leaves if cells is None else cells)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The cells of a whole block: b_ℓ⋯b_L for ℓ = 1, …, L, then 1."""
        sizes = [1]
        for level in reversed(self.levels):
            sizes.append(sizes[-1] * level.shape[1])
        return tuple(reversed(sizes))

    @cached_property
    def _blocks(self) -> list[tuple[TreeBlock, TreeBlock | None]]:
        """At each level a whole block, and the last block where it is cut off."""
        levels: list[tuple[TreeBlock, TreeBlock | None]] = []
        whole, cut = CELL, None
        for i in reversed(range(len(self.levels))):
            size, width = self.sizes[i], self.sizes[i + 1]
            gram = self.precisions[i] * (self.levels[i].T @ self.levels[i])
            remainder = self.cells % size
            last: list[TreeBlock] = [] if cut is None else [cut]
            full = [whole] * (remainder // width)
            cut = block_of(gram, width, full + last) if remainder else None
            whole = block_of(gram, width, [whole] * self.levels[i].shape[1])
            levels.append((whole, cut))
        return levels[::-1]

    @property
    def root(self) -> TreeBlock:
        """The block of all cells."""
        whole, cut = self._blocks[0]
        return whole if cut is None else cut

    # ---- errors --------------------------------------------------------------------------------

    def trace(self, queries: Matrix | LineQueries) -> float:
        """tr(X⁻¹WᵀW), the summed variance of all answers.

        Ranges, prefixes, cells and totals take a closed recursion in which n plays no part; listed
        ranges are summed one by one; a few thousand rows of another kind are each solved for.
        """
        if isinstance(queries, LineQueries):
            return self._line_trace(queries.gram(self.cells))
        check_width(queries, self.cells)
        line = LineQueries.of(queries)
        if line is not None:
            return self.trace(line)
        if isinstance(queries, Scaled):
            return float(queries.factor) ** 2 * self.trace(queries.base)
        if isinstance(queries, Stack):
            return math.fsum(self.trace(part) for part in queries.parts)
        return math.fsum(self.variances(queries).tolist())

    def _line_trace(self, gram: LineGram) -> float:
        errors = [self.root.root_error(gram)]
        for size, (whole, cut) in zip(self.sizes[1:-1], self._blocks[1:], strict=True):
            errors.append((self.cells // size) * whole.error(gram))
            if cut is not None:
                errors.append(cut.error(gram))
        return math.fsum(errors)

    def variance(self, low: Any, high: Any) -> Array:
        """Var of the counts in cells low[i] … high[i], both included; O(L) each."""
        low, high = np.asarray(low), np.asarray(high)
        wrong = (low < 0) | (high < low) | (high >= self.cells)
        if low.shape != high.shape or low.ndim != 1 or wrong.any():
            raise ShapeError(f"ranges need two vectors of ends, 0 ≤ low ≤ high < {self.cells}")
        out = np.empty(low.shape)
        for start in range(0, low.size, RANGES_AT_ONCE):
            part = slice(start, start + RANGES_AT_ONCE)
            out[part] = self._paths.variance(low[part], high[part])
        return out

    @cached_property
    def _paths(self) -> PathTables:
        return PathTables(
            self.sizes,
            self.cells,
            [
                [
                    (block.covariance if i == 0 else block.conditional, block.share)
                    for block in pair
                    if block
                ]
                for i, pair in enumerate(self._blocks)
            ],
        )

    def variances(self, queries: Matrix) -> Array:
        """Var of every answer, in the order of the rows."""
        check_width(queries, self.cells)
        if isinstance(queries, Scaled):
            return float(queries.factor) ** 2 * self.variances(queries.base)
        if isinstance(queries, Stack):
            return np.concatenate([self.variances(part) for part in queries.parts])
        pair = ends(queries)
        if pair is not None:
            return self.variance(*pair)
        m, n = queries.shape
        if m > SOLVED_ROWS or m * n > SOLVED_ENTRIES:
            raise UnsupportedError(
                f"a tree has no closed form for {queries} of shape {queries.shape}; it has one for "
                f"ranges, prefixes, cells and totals, and solves for up to {SOLVED_ROWS} other rows"
            )
        rows = [queries.row(i) for i in range(m)]
        return np.array([float(row @ self.solve(row)) for row in rows])

    # ---- solving -------------------------------------------------------------------------------

    def solve(self, x: Array) -> Array:
        """X⁻¹x along the middle axis of a (left, n, right) array, or of a vector.

        Up the tree go t = Σ_k v_k t_k, down come the estimates: z_k = (R̃t)_k + v_k z.
        """
        x = np.asarray(x, dtype=float)
        if x.ndim == 1:
            return self.solve(x[None, :, None])[0, :, 0]
        if x.ndim != 3 or x.shape[1] != self.cells:
            raise ShapeError(f"expected an array (left, {self.cells}, right), got {x.shape}")
        below = [x]
        for blocks in reversed(self._blocks[1:]):
            below.append(_each_block(blocks, below[-1], lambda block: block.share[None]))
        below.reverse()
        z: Array = np.matmul(self.root.covariance, below[0])
        for blocks, t in zip(self._blocks[1:], below[1:], strict=True):
            spread = _each_block(blocks, z, lambda block: block.share[:, None], one=True)
            spread += _each_block(blocks, t, lambda block: block.conditional)
            z = spread
        return z


def level_matrix(diagonal: Array, rows: Array) -> Array:
    """diag(d) above B; rows of diag(d) that are zero are left out.

    >>> level_matrix(np.array([1, 0]), np.array([[1, 2]]))
    array([[1, 0],
           [1, 2]])
    """
    diagonal, rows = np.asarray(diagonal), np.asarray(rows)
    return np.vstack([np.diag(diagonal)[np.flatnonzero(diagonal)], rows])


@dataclass(frozen=True, eq=False, repr=False)
class TreeInverse(AxisInverse):
    """Of nested levels: by recursion, see `tree`."""

    tree: Tree

    @property
    def shape(self) -> tuple[int, int]:
        return self.tree.cells, self.tree.cells

    def _apply(self, x: Array) -> Array:
        return self.tree.solve(x)

    _apply_t = _apply

    def trace_with(self, queries: Matrix) -> float:
        return self.tree.trace(queries)

    def variances(self, queries: Matrix) -> Array:
        return self.tree.variances(queries)


def tree_inverse(a: Matrix) -> TreeInverse | None:
    """Recognise Stack(w_ℓ · I ⊗ A_ℓ ⊗ total), cut to its first cells or not."""
    cells = a.shape[1]
    if isinstance(a, Compose) and len(a.parts) == 2 and _first_cells(a.parts[1]):
        a = a.parts[0]
    if not isinstance(a, Stack):
        return None
    fanouts: tuple[int, ...] | None = None
    levels, precisions = [], []
    for depth, part in enumerate(a.parts):
        weight, base = (part.factor, part.base) if isinstance(part, Scaled) else (1, part)
        if not isinstance(base, Kron) or len(base.factors) != len(a.parts):
            return None
        widths = tuple(f.shape[1] for f in base.factors)
        before, after = base.factors[:depth], base.factors[depth + 1 :]
        nested = all(isinstance(f, Identity) for f in before)
        nested = nested and all(isinstance(f, Ones) and f.m == 1 for f in after)
        if not nested or fanouts not in (None, widths):
            return None
        fanouts = widths
        levels.append(base.factors[depth].dense())
        precisions.append(float(weight) ** 2)
    if fanouts is None or math.prod(fanouts) < cells:
        return None
    if np.linalg.matrix_rank(levels[-1]) < levels[-1].shape[1]:
        return None
    return TreeInverse(Tree.of(levels, precisions, cells))


@dataclass(frozen=True, eq=False)
class TreeBlock:
    """One kind of block: the covariance of its children's totals, and what its parent must know.

    u spreads a known total over the cells; i and j are random cells with probabilities u.
    """

    covariance: Array
    """R, of the totals of the children."""
    conditional: Array
    """R - R11ᵀR/y: the same when the block's total is known; its rows sum to zero."""
    share: Array
    """R1/y: how a known total is spread over the children."""
    variance: float
    """y = 1ᵀR1, the variance of the block's total."""
    position: Array
    """For each child, the mean cell E[i] within this block."""
    gaps: Array
    """For each child E[i] - E[min(i, j)], half the mean distance of two cells."""
    energies: Array
    """For each child uᵀu."""

    @cached_property
    def mean(self) -> float:
        """E[i] within the block."""
        return float(self.share @ self.position)

    @cached_property
    def gap(self) -> float:
        """E[i] - E[min(i, j)] within the block."""
        v, a = self.share, self.position
        return float(v @ a - v @ np.minimum.outer(a, a) @ v + v**2 @ self.gaps)

    @cached_property
    def energy(self) -> float:
        """The sum of squares of u."""
        return float(self.share**2 @ self.energies)

    def children_gram(self, gram: LineGram) -> Array:
        """What G asks of the children's totals where the block's total is known, up to constants.

        Terms in i + j and constants have no part in it: the rows of `conditional` sum to zero.
        """
        a = self.position
        between = gram.minimum * np.minimum.outer(a, a) + gram.product * np.outer(a, a)
        inside = gram.identity * self.energies - gram.minimum * self.gaps
        return np.asarray(between + np.diag(inside))

    def error(self, gram: LineGram) -> float:
        """tr((X⁻¹ - y uuᵀ) G) without the parts inside the children."""
        return float((self.conditional * self.children_gram(gram)).sum())

    def root_error(self, gram: LineGram) -> float:
        """tr(X⁻¹G) without the parts inside the children."""
        a = self.position
        full = self.children_gram(gram) + gram.sum * np.add.outer(a, a) + gram.constant
        return float((self.covariance * full).sum())


CELL = TreeBlock(*(np.empty(0),) * 3, math.inf, *(np.empty(0),) * 3)
CELL.__dict__.update(mean=0.0, gap=0.0, energy=1.0)


def block_of(gram: Array, width: int, children: list[TreeBlock]) -> TreeBlock:
    """A block from c·AᵀA and its children, each `width` cells after the one before."""
    many = len(children)
    inverse = np.array([1 / child.variance for child in children])
    covariance = np.linalg.inv(gram[:many, :many] + np.diag(inverse))
    covariance = (covariance + covariance.T) / 2
    sums = covariance.sum(axis=1)
    y = float(sums.sum())
    offsets = width * np.arange(float(many))
    return TreeBlock(
        covariance,
        covariance - np.outer(sums, sums) / y,
        sums / y,
        y,
        offsets + [child.mean for child in children],
        np.array([child.gap for child in children]),
        np.array([child.energy for child in children]),
    )


@dataclass(frozen=True, eq=False)
class LevelTables:
    """Tables of one level; the first axis is 0 for whole blocks, 1 for the block cut off."""

    entries: Array
    """R̃ itself."""
    rows: Array
    """Σ_{j<t} R̃_ij at (i, t)."""
    corners: Array
    """Σ_{i<s, j<t} R̃_ij at (s, t)."""
    share: Array
    up_to: Array
    """Σ_{k<t} v_k."""

    @classmethod
    def of(cls, kinds: Sequence[tuple[Array, Array]]) -> LevelTables:
        """From (R̃, v) of the whole block and, maybe, of the block cut off."""
        b = kinds[0][1].size
        entries, share = np.zeros((len(kinds), b, b)), np.zeros((len(kinds), b))
        for i, (r, v) in enumerate(kinds):
            entries[i, : v.size, : v.size], share[i, : v.size] = r, v
        rows, up_to = np.zeros((len(kinds), b, b + 1)), np.zeros((len(kinds), b + 1))
        corners = np.zeros((len(kinds), b + 1, b + 1))
        rows[:, :, 1:], up_to[:, 1:] = entries.cumsum(axis=2), share.cumsum(axis=1)
        corners[:, 1:] = rows.cumsum(axis=1)
        return cls(entries, rows, corners, share, up_to)

    def run(self, kind: Array, start: Array, k: Array, part: Array) -> Array:
        """gᵀR̃g for g = 1 on the children start … k-1, `part` on child k."""
        box = (
            self.corners[kind, k, k]
            - 2 * self.corners[kind, start, k]
            + self.corners[kind, start, start]
        )
        across = self.rows[kind, k, k] - self.rows[kind, k, start]
        return np.asarray(box + part * (2 * across + part * self.entries[kind, k, k]))

    def from_part(self, kind: Array, i: Array, first: Array, k: Array, part: Array) -> Array:
        """The same with `first` on child i < k in front of the run i+1 … k-1."""
        across = self.rows[kind, i, k] - self.rows[kind, i, i + 1]
        across = across + part * self.entries[kind, i, k]
        corner = first * (2 * across + first * self.entries[kind, i, i])
        return np.asarray(self.run(kind, i + 1, k, part) + corner)


class PathTables:
    """What ranges need of a tree.

    A range is, at each level, some whole children between two that it holds in part. A block that
    it holds whole adds nothing below; so only the two paths to its ends count, and down to the
    block where they part there is one path. In a block, child k counts by g_k = u_kᵀ(range), the
    part of its spread that lies inside, and the block adds gᵀR̃g.
    """

    def __init__(
        self,
        sizes: tuple[int, ...],
        cells: int,
        kinds: Sequence[Sequence[tuple[Array, Array]]],
    ) -> None:
        self.sizes, self.cells = sizes, cells
        self.levels = [LevelTables.of(each) for each in kinds]

    def variance(self, low: Array, high: Array) -> Array:
        """Var of each range, both ends included."""
        # The spread of the low end's child that comes before the range, of the high end's child up
        # to the range's end and, where both ends are in one child, of what lies between.
        before, until, inside = np.zeros(low.shape), np.ones(low.shape), np.ones(low.shape)
        total = np.zeros(low.shape)
        for level, size, width in zip(
            reversed(self.levels), self.sizes[-2::-1], self.sizes[:0:-1], strict=True
        ):
            cut = level.share.shape[0] - 1
            i, k = (low // width) % (size // width), (high // width) % (size // width)
            kind_i = cut * (low // size == self.cells // size)
            kind = cut * (high // size == self.cells // size)
            apart = low // size != high // size
            split = ~apart & (i != k)
            alone = i == k
            total += np.where(~apart & alone, inside**2 * level.entries[kind, k, k], 0.0)
            at = np.flatnonzero(split)
            total[at] += level.from_part(kind[at], i[at], 1 - before[at], k[at], until[at])
            at = np.flatnonzero(apart)
            none = np.zeros(at.shape, np.int64)
            total[at] += level.run(kind[at], none, k[at], until[at])
            total[at] += level.run(kind_i[at], none, i[at], before[at])
            v_i, v_k = level.share[kind_i, i], level.share[kind, k]
            between = level.up_to[kind, k] - level.up_to[kind, np.minimum(i + 1, k)]
            several = (1 - before) * v_i + between + until * v_k
            inside = np.where(alone, v_k * inside, several)
            before = level.up_to[kind_i, i] + v_i * before
            until = level.up_to[kind, k] + v_k * until
        return total


def _each_block(
    blocks: tuple[TreeBlock, TreeBlock | None], x: Array, pick: Any, *, one: bool = False
) -> Array:
    """A small matrix of each block applied to its children (or, `one`, to its own number)."""
    whole, cut = blocks
    matrix = pick(whole)
    before, many, after = x.shape
    rows, columns = matrix.shape
    last = 0 if cut is None else (1 if one else cut.share.size)
    full = (many - last) // columns
    body = x[:, : full * columns]
    if after == 1:
        images = body.reshape(before * full, columns) @ matrix.T
    else:
        images = np.matmul(matrix, body.reshape(before * full, columns, after))
    images = images.reshape(before, full * rows, after)
    if cut is None:
        return np.asarray(images)
    return np.concatenate([images, np.matmul(pick(cut), x[:, full * columns :])], axis=1)


def _first_cells(part: Matrix) -> bool:
    """Cell j as position j of a longer line: the columns that are kept are the first."""
    if not isinstance(part, Sparse):
        return False
    e = part.entries
    n = e.shape[1]
    diagonal = e.nnz == n and (e.indices == np.arange(n)).all() and (e.data == 1).all()
    return bool(diagonal and (e.indptr[: n + 1] == np.arange(n + 1)).all())
