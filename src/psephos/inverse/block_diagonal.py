"""Blocks that fall apart: parts over disjoint groups of cells, each inverted on its own.

A strategy for every stripe of a table, all asked at once, is a direct sum A = ⊕_g A_g behind a
permutation of the cells; strategies asked of the parts of a split are one block for each part. Both
ways X = Σ_j c_j A_jᵀA_j is block diagonal, and so is X⁺:

    X⁺ = ⊕_g X_g⁺,    wᵀX⁺w = Σ_g w_gᵀ X_g⁺ w_g,

with w_g the query on the cells of group g. `Components.of` takes blocks apart (`pieces_of`) and
joins the pieces that share cells. Groups whose pieces are equal, up to which cells they are, form a
`Family`: it has one form, and one fit with a column for each member.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from numpy.random import default_rng
from scipy.sparse.csgraph import connected_components

from psephos.errors import TooLargeError
from psephos.inverse.axis import HELD_ENTRIES
from psephos.inverse.form import Factors, Fitted, FittedVector, Form
from psephos.inverse.product import ProductForm
from psephos.matrix import (
    Compose,
    Dense,
    DirectSum,
    Identity,
    Kron,
    Matrix,
    Partition,
    Permuted,
    Sparse,
)
from psephos.matrix.columns import select_columns
from psephos.matrix.combine import compose, places_of
from psephos.values import Array

MOST_QUERY_ENTRIES = 2 * 10**9
"""Entries of the queries that are gone through for their variances, some at a time."""
COMBINATIONS = 3
"""Random combinations of queries by which coverage is checked where it is not plain."""

FamilyKey = tuple[tuple[Matrix, ...], tuple[float, ...]]
"""What the groups of a family have in common: matrices and their precisions."""
FormOf = Callable[[Sequence[Matrix], Sequence[float], tuple[int, ...]], Form]


class Piece(NamedTuple):
    """A matrix, the cells that it looks at, and the first of its rows in its block."""

    matrix: Matrix
    cells: Array
    start: int


@dataclass(frozen=True, eq=False)
class Family:
    """Groups of cells with equal matrices, precisions and so inverses."""

    matrices: tuple[Matrix, ...]
    precisions: tuple[float, ...]
    cells: Array
    """The cells of every member: a row each."""
    starts: Array
    """Where the answers of every matrix (a column each) begin among all answers."""

    @property
    def width(self) -> int:
        return int(self.cells.shape[1])

    def answers(self, values: Array) -> list[Array]:
        """Of every matrix its answers, a column for each member, from the answers of all blocks."""
        return [
            np.moveaxis(values[self.starts[:, k, None] + np.arange(a.shape[0])], 0, 1)
            for k, a in enumerate(self.matrices)
        ]


FamilyFit = Callable[[Family, list[Array]], Array]


@dataclass(frozen=True, eq=False)
class Components:
    """Families of groups of cells that no block joins, and the cells that no block looks at."""

    cells: int
    families: tuple[Family, ...]
    unseen: Array

    @classmethod
    def of(cls, blocks: Sequence[Matrix], precisions: Sequence[float]) -> Components | None:
        """None where a block looks at all cells at once, or all are joined."""
        n = blocks[0].shape[1]
        pieces: list[Piece] = []
        weights: list[float] = []
        start = 0
        for block, c in zip(blocks, precisions, strict=True):
            apart = pieces_of(block)
            if apart is None:
                return None
            for matrix, cells, row in apart:
                pieces.append(Piece(matrix, cells, start + row))
                weights.append(c)
            start += block.shape[0]
        joined = _joined(pieces, n)
        members: dict[FamilyKey, list[tuple[Array, list[int]]]] = {}
        for together in joined:
            matrices, cells = _on_common_cells([pieces[i] for i in together])
            if cells.size == n:
                return None
            kind = (matrices, tuple(weights[i] for i in together))
            members.setdefault(kind, []).append((cells, [pieces[i].start for i in together]))
        families = tuple(
            Family(*kind, np.array([c for c, _ in each]), np.array([s for _, s in each]))
            for kind, each in members.items()
        )
        seen = np.zeros(n, dtype=bool)
        for family in families:
            seen[family.cells] = True
        return cls(n, families, np.flatnonzero(~seen))

    def gathered(self, values: Sequence[Array], fit: FamilyFit) -> Array:
        """The cells of all groups, from a fit of each family; those unseen are zero.

        `fit` gets a column for each member and returns cells with these columns.
        """
        flat = np.concatenate([np.asarray(y, dtype=float) for y in values])
        many = flat.shape[1:]
        x = np.zeros((self.cells, *many))
        for family in self.families:
            answers = family.answers(flat)
            columns = [y.reshape(y.shape[0], -1) for y in answers]
            cells = fit(family, columns).reshape(family.width, len(family.cells), *many)
            x[family.cells] = np.moveaxis(cells, 0, 1)
        return x


def pieces_of(block: Matrix) -> list[Piece] | None:
    """A block taken apart into matrices over disjoint cells; None if it is all of a piece.

    >>> from psephos.matrix import total
    >>> [cells.tolist() for _, cells, _ in pieces_of(DirectSum((Identity(1), total(2))))]
    [[0], [1, 2]]
    """
    if isinstance(block, Kron) and len(block.factors) == 1:
        return pieces_of(block.factors[0])
    if isinstance(block, DirectSum):
        pieces, cell, row = [], 0, 0
        for part in block.parts:
            pieces.append(Piece(part, np.arange(cell, cell + part.shape[1]), row))
            cell, row = cell + part.shape[1], row + part.shape[0]
        return pieces
    if isinstance(block, Permuted):
        inside = pieces_of(block.base)
        return inside and [Piece(a, block.order[cells], row) for a, cells, row in inside]
    if not isinstance(block, Compose):
        return None
    rest, last = compose(*block.parts[:-1]), block.parts[-1]
    inside = pieces_of(rest)
    if inside is None:
        if isinstance(last, Partition):  # it looks at all cells, and the rest joins them
            return None
        inside = [Piece(rest, np.arange(rest.shape[1]), 0)]
    picked = _picked_cells(last)
    if picked is not None:
        moved = [Piece(a, picked[cells], row) for a, cells, row in inside]
        return None if any(piece.cells.size == last.shape[1] for piece in moved) else moved
    places = places_of(last)
    if places is None:
        return None
    moved = _behind(inside, places)
    return None if any(piece.cells.size == places.size for piece in moved) else moved


def _picked_cells(matrix: Matrix) -> Array | None:
    """The cells that the rows of a matrix pick, each another one; None if it does something else.

    A part of a split is such a matrix, of few rows over many cells: only its rows are looked at.
    """
    if not isinstance(matrix, Sparse):
        return None
    entries = matrix.entries
    single = entries.nnz == matrix.shape[0] and bool((np.diff(entries.indptr) == 1).all())
    if not single or (entries.data != 1).any() or np.unique(entries.indices).size < entries.nnz:
        return None
    return np.asarray(entries.indices)


def _behind(pieces: list[Piece], places: Array) -> list[Piece]:
    """Pieces behind a map that moves cells to places, several to one maybe, or leaves them out."""
    order = np.argsort(places, kind="stable")
    sorted_places = places[order]
    moved = []
    for matrix, positions, row in pieces:
        low = np.searchsorted(sorted_places, positions)
        high = np.searchsorted(sorted_places, positions, side="right")
        counts = high - low
        columns = np.repeat(np.arange(positions.size), counts)
        first = np.repeat(low - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
        cells = order[first + np.arange(columns.size)]
        whole = np.array_equal(columns, np.arange(matrix.shape[1]))
        if cells.size:
            moved.append(Piece(matrix if whole else select_columns(matrix, columns), cells, row))
    return moved


def _joined(pieces: list[Piece], n: int) -> list[list[int]]:
    """Which pieces share cells, directly or through others."""
    if not pieces:
        return []
    owner = np.full(n, -1, dtype=np.int64)
    groups: list[list[int]] = []
    for i, piece in enumerate(pieces):
        owners = owner[piece.cells]
        first = int(owners[0])
        if (owners != first).any():
            break
        if first < 0:
            owner[piece.cells] = len(groups)
            groups.append([i])
        else:
            groups[first].append(i)
    else:
        return groups
    rows = np.repeat(np.arange(len(pieces)), [piece.cells.size for piece in pieces])
    cells = len(pieces) + np.concatenate([piece.cells for piece in pieces])
    size = len(pieces) + n
    edges = sp.coo_array((np.ones(rows.size, dtype=np.int8), (rows, cells)), shape=(size, size))
    labels = connected_components(edges.tocsr(), directed=False)[1][: len(pieces)]
    members: dict[int, list[int]] = {}
    for i, label in enumerate(labels.tolist()):
        members.setdefault(label, []).append(i)
    return list(members.values())


def _on_common_cells(pieces: list[Piece]) -> tuple[tuple[Matrix, ...], Array]:
    """The matrices of pieces over the cells that any of them looks at, and these cells."""
    cells = pieces[0].cells
    if all(piece.cells is cells or np.array_equal(piece.cells, cells) for piece in pieces[1:]):
        return tuple(piece.matrix for piece in pieces), cells
    cells = np.unique(np.concatenate([piece.cells for piece in pieces]))
    matrices = []
    for piece in pieces:
        if np.array_equal(piece.cells, cells):
            matrices.append(piece.matrix)
            continue
        k = piece.cells.size
        ones = np.ones(k, dtype=np.int8)
        where = (np.arange(k), np.searchsorted(cells, piece.cells))
        matrices.append(
            compose(piece.matrix, Sparse(sp.csr_array((ones, where), shape=(k, cells.size))))
        )
    return tuple(matrices), cells


@dataclass(frozen=True, eq=False)
class DiagonalForm(Form):
    """X⁺ of every group of cells, one form for each family."""

    components: Components
    shape: tuple[int, ...]
    forms: tuple[Form, ...]

    @classmethod
    def of(cls, components: Components, shape: tuple[int, ...], form_of: FormOf) -> DiagonalForm:
        """`form_of` chooses the form of each family."""
        forms = [form_of(f.matrices, f.precisions, (f.width,)) for f in components.families]
        return cls(components, shape, tuple(forms))

    @property
    def exact(self) -> bool:  # type: ignore[override]
        return all(form.exact for form in self.forms)

    @cached_property
    def _stripes(self) -> ProductForm | None:
        """The form of a product, if groups are all stripes along one axis, alike and in order.

        Its variances are the same; its answers may come in another order.
        """
        families = self.components.families
        if len(families) != 1 or len(families[0].matrices) > 1 or self.components.unseen.size:
            return None
        family = families[0]
        table = np.arange(self.components.cells).reshape(self.shape)
        for axis, n in enumerate(self.shape):
            stripes = np.moveaxis(table, axis, -1).reshape(-1, n)
            if stripes.shape == family.cells.shape and np.array_equal(stripes, family.cells):
                factors = [Identity(size) for size in self.shape]
                block = Kron((*factors[:axis], family.matrices[0], *factors[axis + 1 :]))
                return ProductForm.of(block, family.precisions[0], self.shape)
        return None

    def _rows(self, factors: Factors) -> Iterator[Array]:
        """The queries written out, some at a time."""
        queries = Kron(factors)
        m, n = queries.shape
        if m * n > MOST_QUERY_ENTRIES:
            raise TooLargeError(
                f"the variances of {m:,} queries over {n:,} cells go through {m * n:,} numbers, "
                f"over the limit of {MOST_QUERY_ENTRIES:,}; ask for fewer queries",
                m * n,
                MOST_QUERY_ENTRIES,
            )
        step = max(1, HELD_ENTRIES // n)
        for start in range(0, m, step):
            units = np.zeros((m, min(step, m - start)))
            units[np.arange(start, start + units.shape[1]), np.arange(units.shape[1])] = 1
            yield queries.rmatmat(units).T

    def trace(self, factors: Factors) -> float:
        if self._stripes is not None:
            return self._stripes.trace(factors)
        return float(self.variances(factors).sum())

    def variances(self, factors: Factors) -> Array:
        if self._stripes is not None:
            return self._stripes.variances(factors)
        out = []
        for rows in self._rows(factors):
            total = np.zeros(len(rows))
            for family, form in zip(self.components.families, self.forms, strict=True):
                each = rows[:, family.cells].reshape(-1, family.width)
                queries, which = np.unique(each, axis=0, return_inverse=True)
                variances = form.variances((Dense(queries),))[which.reshape(-1)]
                total += variances.reshape(len(rows), -1).sum(axis=1)
            out.append(total)
        return np.concatenate(out)

    def covers(self, factors: Factors) -> bool:
        """By all cells of a group; else by random combinations of the queries."""
        if not self.components.unseen.size and self._covers_cells:
            return True
        queries = Kron(factors)
        signs = default_rng(2).integers(0, 2, (queries.shape[0], COMBINATIONS))
        rows = queries.rmatmat(2.0 * signs - 1).T
        if rows[:, self.components.unseen].any():
            return False
        for family, form in zip(self.components.families, self.forms, strict=True):
            each = np.unique(rows[:, family.cells].reshape(-1, family.width), axis=0)
            if not form.covers((Dense(each),)):
                return False
        return True

    @cached_property
    def _covers_cells(self) -> bool:
        pairs = zip(self.components.families, self.forms, strict=True)
        return all(form.covers((Identity(family.width),)) for family, form in pairs)

    def fit(self, values: Sequence[Array]) -> FittedVector:
        forms = dict(zip(map(id, self.components.families), self.forms, strict=True))

        def fit(family: Family, columns: list[Array]) -> Array:
            return cells_of(forms[id(family)].fit(columns), family.width)

        return FittedVector(self.components.gathered(values, fit))

    @property
    def work(self) -> int:
        pairs = zip(self.components.families, self.forms, strict=True)
        return sum(len(family.cells) * form.work for family, form in pairs)


def cells_of(fitted: Fitted, width: int) -> Array:
    """The estimate of every cell of one axis."""
    vector: Array | None = getattr(fitted, "vector", None)
    return fitted.answers((Identity(width),)) if vector is None else vector
