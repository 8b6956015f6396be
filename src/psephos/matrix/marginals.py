"""Weighted marginals, and the algebra their Grams live in.

For a set a of axes let C(a) = ⊗ (I if i ∈ a else 11ᵀ). These matrices commute: they share
eigenspaces, one for each set S of axes (coordinates in S orthogonal to 1, the others constant), and
the eigenvalue of C(a) on S is Π_{i∉a} nᵢ if S ⊆ a, else 0. So Σ w_a C(a) is inverted by one
superset sum over the 2^d sets, and products go down a tree of partial sums, each marginal taken
from a smaller table than the last.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from psephos.errors import ShapeError
from psephos.matrix.base import Matrix, positive
from psephos.matrix.core import totals
from psephos.values import Array, frozen

Axes = tuple[int, ...]
MARGINAL_AXES = 300
"""The most axes of a grid: partial sums recurse once for each axis."""


@dataclass(frozen=True, eq=False, repr=False)
class Marginals(Matrix):
    """Marginal tables one below the other, each times its weight.

    >>> Marginals.of((2, 2), {(0,): 1, (): 2}).dense()
    array([[1., 1., 0., 0.],
           [0., 0., 1., 1.],
           [2., 2., 2., 2.]])
    """

    grid: tuple[int, ...]
    sets: tuple[Axes, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        _check(self)

    @classmethod
    def of(cls, grid: Sequence[int], weights: Mapping[Axes, float]) -> Marginals:
        """Marginals over a grid from axes → weight."""
        return cls(tuple(grid), tuple(weights), tuple(weights.values()))

    @property
    def sizes(self) -> list[int]:
        """Cells of each marginal."""
        return [math.prod(self.grid[i] for i in axes) for axes in self.sets]

    @property
    def shape(self) -> tuple[int, int]:
        return sum(self.sizes), math.prod(self.grid)

    def _apply(self, x: Array) -> Array:
        left, _, right = x.shape
        dtype = np.result_type(self.entry_type, x)
        out = np.empty((left, self.shape[0], right), dtype=dtype)
        ends = np.cumsum([0, *self.sizes])

        def down(x: Array, cells: int, axis: int, family: list[int]) -> None:
            if axis == len(self.grid):
                for b in family:
                    table = x.reshape(left, cells, right)
                    np.multiply(self.weights[b], table, out=out[:, ends[b] : ends[b + 1]])
                return
            n = self.grid[axis]
            keep, drop = self._split(axis, family)
            if drop:
                down(totals(x.reshape(left * cells, n, -1)), cells, axis + 1, drop)
            if keep:
                down(x, cells * n, axis + 1, keep)

        down(x, 1, 0, list(range(len(self.sets))))
        return out

    def _apply_t(self, y: Array) -> Array:
        left, _, right = y.shape
        ends = np.cumsum([0, *self.sizes])

        def up(cells: int, axis: int, family: list[int]) -> Array:
            if axis == len(self.grid):
                tables = (self.weights[b] * y[:, ends[b] : ends[b + 1]] for b in family)
                return np.asarray(sum(tables))
            n = self.grid[axis]
            keep, drop = self._split(axis, family)
            part = up(cells * n, axis + 1, keep) if keep else None
            spread = up(cells, axis + 1, drop) if drop else None
            return _merge_branches(part, spread, left * cells, n)

        return up(1, 0, list(range(len(self.sets)))).reshape(left, -1, right)

    def _split(self, axis: int, family: list[int]) -> tuple[list[int], list[int]]:
        keep = [b for b in family if axis in self.sets[b]]
        return keep, [b for b in family if axis not in self.sets[b]]

    @property
    def is_nonnegative(self) -> bool:
        return min(self.weights) >= 0

    def gram(self) -> Matrix:
        """Σ w_a² C(a)."""
        return MarginalsGram(self.grid, self.sets, tuple(w**2 for w in self.weights))

    def abs(self) -> Matrix:
        return Marginals(self.grid, self.sets, tuple(abs(w) for w in self.weights))

    def sqr(self) -> Matrix:
        return Marginals(self.grid, self.sets, tuple(w**2 for w in self.weights))

    def _column_sums(self) -> Array:
        return np.full(self.shape[1], float(sum(self.weights)))

    def _largest_column_sum(self) -> float:
        return float(sum(self.weights))

    def sum(self) -> float:
        return float(sum(self.weights)) * self.shape[1]

    def pinv(self) -> Matrix:
        return self.gram().pinv() @ self.T  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"Marginals(grid={self.grid}, {len(self.sets)} sets)"


@dataclass(frozen=True, eq=False, repr=False)
class MarginalsGram(Matrix):
    """Σ w_a C(a), symmetric; products, inverse and eigenvalues in closed form."""

    grid: tuple[int, ...]
    sets: tuple[Axes, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        _check(self)

    @property
    def shape(self) -> tuple[int, int]:
        n = math.prod(self.grid)
        return n, n

    def _apply(self, x: Array) -> Array:
        left, _, right = x.shape

        def go(x: Array, cells: int, axis: int, family: list[int]) -> Array:
            if axis == len(self.grid):
                return np.asarray(sum(self.weights[b] for b in family) * x)
            n = self.grid[axis]
            keep = [b for b in family if axis in self.sets[b]]
            drop = [b for b in family if axis not in self.sets[b]]
            part = go(x, cells * n, axis + 1, keep) if keep else None
            table = x.reshape(left * cells, n, -1)
            spread = go(totals(table), cells, axis + 1, drop) if drop else None
            return _merge_branches(part, spread, left * cells, n)

        return go(x, 1, 0, list(range(len(self.sets)))).reshape(left, -1, right)

    _apply_t = _apply

    def _transpose(self) -> Matrix:
        return self

    @property
    def is_nonnegative(self) -> bool:
        return min(self.weights) >= 0

    def sqr(self) -> Matrix:
        """Entrywise C(a)·C(b) = C(a ∪ b)."""
        pairs: dict[Axes, float] = {}
        for a, v in zip(self.sets, self.weights, strict=True):
            for b, w in zip(self.sets, self.weights, strict=True):
                union = tuple(sorted({*a, *b}))
                pairs[union] = pairs.get(union, 0) + v * w
        return MarginalsGram(self.grid, tuple(pairs), tuple(pairs.values()))

    def _column_sums(self) -> Array:
        return np.full(self.shape[1], float(self._row_sum()))

    def _row_sum(self) -> float:
        cells = math.prod(self.grid)
        inside = (math.prod(self.grid[i] for i in axes) for axes in self.sets)
        return sum(w * (cells // n) for w, n in zip(self.weights, inside, strict=True))

    def sum(self) -> float:
        return float(self._row_sum()) * self.shape[1]

    def trace(self) -> float:
        return float(sum(self.weights)) * self.shape[1]

    def eigenvalues(self) -> Array:
        """λ_S for every set S of axes, numbered by Σ_{i∈S} 2^i."""
        return superset_sums(self._coefficients() * self._outside())

    def _coefficients(self) -> Array:
        dense = np.zeros(1 << len(self.grid))
        for axes, w in zip(self.sets, self.weights, strict=True):
            dense[sum(1 << i for i in axes)] += w
        return dense

    def _outside(self) -> Array:
        """Π_{i∉a} nᵢ for every set a."""
        outside = np.ones(1)
        for n in self.grid:
            outside = np.concatenate([outside * n, outside])
        return outside

    def pinv(self) -> Matrix:
        """The same eigenspaces with inverted eigenvalues."""
        values = self.eigenvalues()
        # Sums of what is not negative are zero only if all of it is; else rounding leaves dust.
        dust = 0.0 if self.is_nonnegative else 1e-12 * float(np.abs(values).max())
        some = np.abs(values) > dust
        return Eigenspaces(self.grid, np.divide(1, values, out=np.zeros_like(values), where=some))

    def __repr__(self) -> str:
        return f"MarginalsGram(grid={self.grid}, {len(self.sets)} sets)"


@dataclass(frozen=True, eq=False, repr=False)
class Eigenspaces(Matrix):
    """Symmetric, with one eigenvalue on each of the 2^d eigenspaces (numbered by Σ 2^i).

    Axis by axis a vector is split into its mean and the rest; no large numbers cancel, however
    far apart the eigenvalues are.

    >>> Eigenspaces((2,), [1.0, 3.0]).dense()
    array([[ 2., -1.],
           [-1.,  2.]])
    """

    grid: tuple[int, ...]
    values: Array

    def __post_init__(self) -> None:
        grid = tuple(positive(n, "an axis of the grid") for n in self.grid)
        values = frozen(self.values, float)
        if not grid or values.shape != (1 << len(grid),) or not np.isfinite(values).all():
            raise ShapeError(f"{len(grid)} axes need 2^{len(grid)} finite eigenvalues")
        object.__setattr__(self, "grid", grid)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "entry_type", np.dtype(float))

    @property
    def shape(self) -> tuple[int, int]:
        n = math.prod(self.grid)
        return n, n

    def _apply(self, x: Array) -> Array:
        left, _, right = x.shape

        def go(x: Array, cells: int, axis: int, code: int) -> Array:
            if axis == len(self.grid):
                return np.asarray(self.values[code] * x)
            n = self.grid[axis]
            table = x.reshape(left * cells, n, -1)
            mean = totals(table) / n
            constant = go(mean, cells, axis + 1, code)
            rest = go(table - mean, cells * n, axis + 1, code | 1 << axis)
            return _merge_branches(rest, constant, left * cells, n)

        return go(x.astype(float), 1, 0, 0).reshape(left, -1, right)

    _apply_t = _apply

    def _transpose(self) -> Matrix:
        return self

    def gram(self) -> Matrix:
        return Eigenspaces(self.grid, self.values**2)

    def pinv(self) -> Matrix:
        some = self.values != 0
        inverse = np.divide(1, self.values, out=np.zeros_like(self.values), where=some)
        return Eigenspaces(self.grid, inverse)

    def trace(self) -> float:
        sizes = np.ones(1)
        for n in self.grid:
            sizes = np.concatenate([sizes, sizes * (n - 1)])
        return float((sizes * self.values).sum())

    def sum(self) -> float:
        return float(self.values[0]) * self.shape[1]

    def __repr__(self) -> str:
        return f"Eigenspaces(grid={self.grid})"


def superset_sums(values: Array, sign: int = 1) -> Array:
    """f(S) → Σ_{a ⊇ S} f(a) over all sets coded in binary; sign -1 takes it back.

    >>> superset_sums(np.array([1.0, 2.0, 4.0, 8.0]))
    array([15., 10., 12.,  8.])
    """
    out = values.copy()
    for i in range(len(values).bit_length() - 1):
        pairs = out.reshape(-1, 2, 1 << i)
        pairs[:, 0] += sign * pairs[:, 1]
    return out


def _merge_branches(part: Array | None, spread: Array | None, outer: int, n: int) -> Array:
    """The tables that keep an axis plus those summed over it, spread evenly; one may be absent."""
    branches = [b.reshape(outer, -1, 1) for b in (part, spread) if b is not None]
    if part is None:
        return np.repeat(branches[0].reshape(outer, 1, -1), n, axis=1)
    table = part.reshape(outer, n, -1)
    if spread is None:
        return table
    other = branches[-1].reshape(outer, 1, -1)
    # The part is a table of its own, so it can be written to.
    return np.add(table, other, out=table if table.dtype == other.dtype else None)


def _check(matrix: Marginals | MarginalsGram) -> None:
    grid = tuple(positive(n, "an axis of the grid") for n in matrix.grid)
    try:
        sets = tuple(tuple(operator.index(i) for i in axes) for axes in matrix.sets)
    except TypeError:
        raise ShapeError(
            f"axes are tuples of numbers such as (0, 2), got {matrix.sets!r}"
        ) from None
    if len(grid) > MARGINAL_AXES:
        raise ShapeError(f"marginals of {len(grid):,} axes are over the limit of {MARGINAL_AXES}")
    if not grid or not sets or len(sets) != len(matrix.weights):
        raise ShapeError("marginals need a grid, at least one set of axes, and a weight for each")
    for axes in sets:
        if any(a >= b for a, b in pairwise(axes)) or any(not 0 <= i < len(grid) for i in axes):
            raise ShapeError(f"axes {axes} must increase and lie in 0..{len(grid) - 1}")
    weights = tuple(w.item() if isinstance(w, np.generic) else w for w in matrix.weights)
    if not all(isinstance(w, int | float) and math.isfinite(w) for w in weights):
        raise ShapeError(f"weights must be finite numbers, got {weights}")
    whole = all(isinstance(w, int) and abs(w) < 1 << 62 for w in weights)
    if not whole:
        weights = tuple(float(w) for w in weights)
    object.__setattr__(matrix, "grid", grid)
    object.__setattr__(matrix, "sets", sets)
    object.__setattr__(matrix, "weights", weights)
    object.__setattr__(matrix, "entry_type", np.dtype(np.int64 if whole else float))
