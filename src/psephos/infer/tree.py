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
case A_ℓ = I.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from psephos.errors import ShapeError, UnsupportedError
from psephos.frozen import Array, frozen
from psephos.infer.blocks import CELL, Node, node_of
from psephos.infer.line import LineGram, LineQueries, check_width, ends
from psephos.infer.paths import PathTables
from psephos.matrix import Matrix, Scaled, Stack

ROWS_LIMIT = 4096
ENTRIES_LIMIT = 1 << 30
CHUNK = 1 << 18


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
        whole = math.prod(level.shape[1] for level in levels)
        if precisions.shape != (len(levels),) or not (precisions > 0).all():
            raise ShapeError(f"{len(levels)} levels need as many positive precisions")
        if not 1 <= self.cells <= whole:
            raise ShapeError(f"a tree with {whole} leaves has no room for {self.cells} cells")
        if np.linalg.matrix_rank(levels[-1]) < levels[-1].shape[1]:
            raise ShapeError("the last level must tell all its cells apart: full column rank")
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "precisions", precisions)

    @classmethod
    def of(
        cls, levels: Sequence[Any], precisions: Sequence[float] | Array, cells: int | None = None
    ) -> Tree:
        """From matrices, or pairs (d, B) that stand for diag(d) above B."""
        made = tuple(level_matrix(*x) if isinstance(x, tuple) else np.asarray(x) for x in levels)
        whole = math.prod(level.shape[1] for level in made)
        return cls(made, np.asarray(precisions), whole if cells is None else cells)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The cells of a whole block: b_ℓ⋯b_L for ℓ = 1, …, L, then 1."""
        made = [1]
        for level in reversed(self.levels):
            made.append(made[-1] * level.shape[1])
        return tuple(reversed(made))

    @cached_property
    def _blocks(self) -> list[tuple[Node, Node | None]]:
        """At each level a whole block, and the last block where it is cut off."""
        made: list[tuple[Node, Node | None]] = []
        whole, cut = CELL, None
        for i in reversed(range(len(self.levels))):
            size, width = self.sizes[i], self.sizes[i + 1]
            gram = self.precisions[i] * (self.levels[i].T @ self.levels[i])
            left_over = self.cells % size
            last: list[Node] = [] if cut is None else [cut]
            cut = node_of(gram, width, [whole] * (left_over // width) + last) if left_over else None
            whole = node_of(gram, width, [whole] * self.levels[i].shape[1])
            made.append((whole, cut))
        return made[::-1]

    @property
    def root(self) -> Node:
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
        found = [self.root.root_error(gram)]
        for size, (whole, cut) in zip(self.sizes[1:-1], self._blocks[1:], strict=True):
            found.append((self.cells // size) * whole.error(gram))
            if cut is not None:
                found.append(cut.error(gram))
        return math.fsum(found)

    def variance(self, low: Any, high: Any) -> Array:
        """Var of the counts in cells low[i] … high[i], both included; O(L) each."""
        low, high = np.asarray(low), np.asarray(high)
        wrong = (low < 0) | (high < low) | (high >= self.cells)
        if low.shape != high.shape or low.ndim != 1 or wrong.any():
            raise ShapeError(f"ranges need two vectors of ends, 0 ≤ low ≤ high < {self.cells}")
        out = np.empty(low.shape)
        for start in range(0, low.size, CHUNK):
            part = slice(start, start + CHUNK)
            out[part] = self._paths.variance(low[part], high[part])
        return out

    @cached_property
    def _paths(self) -> PathTables:
        return PathTables(
            self.sizes,
            self.cells,
            [
                [(node.covariance if i == 0 else node.given, node.share) for node in pair if node]
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
        if m > ROWS_LIMIT or m * n > ENTRIES_LIMIT:
            raise UnsupportedError(
                f"a tree has no closed form for {queries} of shape {queries.shape}; it has one for "
                f"ranges, prefixes, cells and totals, and solves for up to {ROWS_LIMIT} other rows"
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
            below.append(_each_block(blocks, below[-1], lambda node: node.share[None]))
        below.reverse()
        z: Array = np.matmul(self.root.covariance, below[0])
        for blocks, t in zip(self._blocks[1:], below[1:], strict=True):
            spread = _each_block(blocks, z, lambda node: node.share[:, None], one=True)
            spread += _each_block(blocks, t, lambda node: node.given)
            z = spread
        return z


def _each_block(
    blocks: tuple[Node, Node | None], x: Array, pick: Any, *, one: bool = False
) -> Array:
    """A small matrix of each block applied to its children (or, `one`, to its own number)."""
    whole, cut = blocks
    matrix = pick(whole)
    left, many, right = x.shape
    rows, columns = matrix.shape
    last = 0 if cut is None else (1 if one else cut.share.size)
    full = (many - last) // columns
    body = x[:, : full * columns]
    if right == 1:
        made = body.reshape(left * full, columns) @ matrix.T
    else:
        made = np.matmul(matrix, body.reshape(left * full, columns, right))
    made = made.reshape(left, full * rows, right)
    if cut is None:
        return np.asarray(made)
    return np.concatenate([made, np.matmul(pick(cut), x[:, full * columns :])], axis=1)


def level_matrix(diagonal: Array, rows: Array) -> Array:
    """diag(d) above B; rows of diag(d) that are zero are left out.

    >>> level_matrix(np.array([1, 0]), np.array([[1, 2]]))
    array([[1, 0],
           [1, 2]])
    """
    diagonal, rows = np.asarray(diagonal), np.asarray(rows)
    return np.vstack([np.diag(diagonal)[np.flatnonzero(diagonal)], rows])
