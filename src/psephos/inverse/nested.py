"""Inverses of trees: groups within groups, each measured with a precision of its own.

Let X = Σ_v c_v 1_v1_vᵀ over sets of cells of which any two are nested or disjoint, every cell alone
among them. The part of X below a node v is that of its children, side by side, plus c_v11ᵀ. So if S
is the inverse of the children's part, u = S1 and k = 1ᵀu, the node's own inverse is

    S - c_v / (1 + c_v k) u uᵀ      (Sherman and Morrison 1950)

and in all X⁻¹ = diag(1/c) - Σ_v z_v z_vᵀ, where the z_v of one level have no cell in common. To
solve takes one pass up and one down (Hay et al. 2010), O(n · depth); the trace with a Gram needs
only its entries within groups. The inverse of the Haar wavelet is a sum of the same kind.

That trace is tr(X⁻¹G) = Σ_i G_ii/c_i - Σ_v z_vᵀGz_v for the Gram G of the queries. On one level,
with z = Σ_v z_v and P the partition into its groups, the sum is zᵀ (G ∘ PᵀP) z.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

from psephos.errors import TooLargeError
from psephos.inverse.axis import (
    HELD_ENTRIES,
    AxisInverse,
    DiagonalInverse,
    MergedInverse,
    sum_of_squares,
)
from psephos.matrix import (
    Dense,
    Diagonal,
    Difference,
    Haar,
    Identity,
    Kron,
    Matrix,
    Ones,
    Partition,
    Permuted,
    Prefix,
    Scaled,
    Semiseparable,
    Sparse,
    Stack,
    Sum,
)
from psephos.matrix.columns import gram_diagonal
from psephos.matrix.explicit import times
from psephos.values import Array, Value

DENSE_GRAM_CELLS = 4096
"""The most cells of an axis for which a Gram without structure is written out."""
PINV_CELLS = 30_000
"""The most cells for which a trace is added up column by column of an inverse."""


@dataclass(frozen=True, eq=False, repr=False)
class PartitionLevel(Value):
    """A partition of the cells, by one vector of groups for each axis, and a precision per group.

    Groups of several axes are numbered as cells are, the last axis fastest.
    """

    axes: tuple[Array, ...]
    precision: Array

    @cached_property
    def groups(self) -> Array:
        """The group of every cell."""
        return cell_groups(self.axes)

    def __repr__(self) -> str:
        return f"PartitionLevel({self.precision.size:,} groups)"


class UpwardStep(NamedTuple):
    """One level on the way up: the parent of each group below, Σ k of the children, 1/(1 + c k)."""

    parents: Array
    below: Array
    shrinkage: Array


@dataclass(frozen=True, eq=False, repr=False)
class NestedInverse(AxisInverse):
    """X⁻¹ for X = diag(c) + Σ_levels P_ℓᵀ diag(c_ℓ) P_ℓ; levels from fine to coarse, nested.

    >>> from psephos.matrix import total
    >>> NestedInverse.of(Stack((Identity(2), total(2)))).dense() * 3
    array([[ 2., -1.],
           [-1.,  2.]])
    """

    cells: Array
    levels: tuple[PartitionLevel, ...]

    @classmethod
    def of(cls, a: Matrix) -> AxisInverse:
        """Of stacked levels; refuses what `nested_inverse` does not recognise."""
        inverse = nested_inverse(a)
        if inverse is None:
            raise TypeError(f"{a} is not made of nested partitions")
        return inverse

    @property
    def shape(self) -> tuple[int, int]:
        return self.cells.size, self.cells.size

    @cached_property
    def steps(self) -> tuple[UpwardStep, ...]:
        """The k of the children (`below`) and 1/(1 + c k) for every group of every level."""
        steps = []
        before, k = np.arange(self.cells.size), 1 / self.cells
        for level in self.levels:
            parents = np.empty(k.size, dtype=np.int64)
            parents[before] = level.groups
            below = np.bincount(parents, weights=k, minlength=level.precision.size)
            shrinkage = 1 / (1 + level.precision * below)
            steps.append(UpwardStep(parents, below, shrinkage))
            before, k = level.groups, below * shrinkage
        return tuple(steps)

    @property
    def _coarsest(self) -> int:
        return self.levels[-1].precision.size if self.levels else self.cells.size

    def _apply(self, x: Array) -> Array:
        """Up: the totals t_v = 1ᵀS_v x. Down: x less what the groups around a cell correct."""
        share = (1 / self.cells)[None, :, None]
        totals = x * share
        stack = []
        for step in self.steps:
            totals = Partition(step.parents)._apply(totals) * step.shrinkage[None, :, None]
            stack.append(totals)
        correction = np.zeros((x.shape[0], 1, x.shape[2]))
        above: Array = np.zeros(self._coarsest, dtype=np.int64)
        for level, step, t in zip(self.levels[::-1], self.steps[::-1], stack[::-1], strict=True):
            correction = correction[:, above]
            c, k = level.precision[None, :, None], (step.below * step.shrinkage)[None, :, None]
            correction = correction + c * (t - correction * k)
            above = step.parents
        return np.asarray((x - correction[:, above]) * share)

    _apply_t = _apply

    def _vectors(self) -> Iterable[tuple[PartitionLevel, Array]]:
        """Every level with Σ_v z_v: one vector holds them all, each on cells of its own."""
        u = 1 / self.cells
        for level, step in zip(self.levels, self.steps, strict=True):
            yield level, u * np.sqrt(level.precision * step.shrinkage)[level.groups]
            u = u * step.shrinkage[level.groups]

    def trace_with(self, queries: Matrix) -> float:
        return self.trace_of(write_small_parts(queries.gram()), gram_diagonal(queries))

    def trace_of(self, gram: Matrix, diagonal: Array) -> float:
        """tr(X⁻¹G), from a Gram and its diagonal."""
        together = (z @ within_groups(gram, level.axes, z) for level, z in self._vectors())
        return float((diagonal / self.cells).sum()) - math.fsum(map(float, together))

    def variances(self, queries: Matrix) -> Array:
        if queries.shape[0] <= sum(level.precision.size for level in self.levels):
            return _variances_by_row(self, queries)
        out = queries.sqr().matvec(1 / self.cells)
        for level, z in self._vectors():
            out = out - _squares_by_group(queries, level.groups, z)
        return np.asarray(out)


@dataclass(frozen=True, eq=False, repr=False)
class PinvInverse(AxisInverse):
    """Y⁺ = A⁺A⁺ᵀ for a matrix whose A⁺ has a closed form, and whose columns are independent."""

    pinv_: Matrix

    @property
    def shape(self) -> tuple[int, int]:
        n = self.pinv_.shape[0]
        return n, n

    def _apply(self, x: Array) -> Array:
        return self.pinv_._apply(self.pinv_._apply_t(x))

    _apply_t = _apply

    def _columns(self) -> Iterable[Array]:
        """A⁺, some columns at a time."""
        n, m = self.pinv_.shape
        if n > PINV_CELLS:
            raise TooLargeError(
                f"the error of {m:,} queries on {n:,} cells is added up query by query, over the "
                f"limit of {PINV_CELLS:,} cells; use a p-Identity, a tree or marginals here",
                n,
                PINV_CELLS,
            )
        step = max(1, HELD_ENTRIES // n)
        for start in range(0, m, step):
            units = np.zeros((m, min(step, m - start)))
            units[np.arange(start, start + units.shape[1]), np.arange(units.shape[1])] = 1
            yield self.pinv_.matmat(units)

    def trace_with(self, queries: Matrix) -> float:
        gram = queries.gram()
        return math.fsum(float((v * gram.matmat(v)).sum()) for v in self._columns())

    def variances(self, queries: Matrix) -> Array:
        out = np.zeros(queries.shape[0])
        for v in self._columns():
            out += sum_of_squares(queries, v.T)
        return out


@dataclass(frozen=True, eq=False, repr=False)
class HaarInverse(PinvInverse):
    """Of the Haar wavelet: the columns of A⁺ that belong to one level have no cell in common."""

    pinv_: Matrix

    def trace_with(self, queries: Matrix) -> float:
        n = self.shape[0]
        cells, gram = np.arange(n), write_small_parts(queries.gram())
        terms, end, length, depth = [], n, n, 1
        while length > 1:
            level = np.zeros(n)
            level[end - length // 2 : end] = 1
            z = self.pinv_.matvec(level)
            terms.append(float(z @ within_groups(gram, (cells >> depth,), z)))
            end, length, depth = end - length // 2, (length + 1) // 2, depth + 1
        z = self.pinv_.matvec(np.eye(1, n)[0])
        terms.append(float(z @ within_groups(gram, (np.zeros(n, dtype=np.int64),), z)))
        return math.fsum(terms)


def nested_inverse(a: Matrix) -> AxisInverse | None:
    """(AᵀA)⁺ for stacked levels of a tree and for closed-form inverses; None for anything else."""
    if isinstance(a, Haar) and (a.sign, a.scale) == (-1, 1):
        return HaarInverse(a.pinv())
    if isinstance(a, Prefix | Difference):
        return PinvInverse(a.pinv())
    if isinstance(a, Permuted) and isinstance(nested_inverse(a.base), PinvInverse):
        return PinvInverse(a.pinv())
    parts = a.parts if isinstance(a, Stack) else (a,)
    levels = [level for level in map(level_of, parts) if level is not None]
    return nested_levels(levels) if len(levels) == len(parts) else None


def level_of(a: Matrix) -> PartitionLevel | None:
    """The level that a matrix measures; cells that it leaves out have group -1."""
    if isinstance(a, Identity):
        return PartitionLevel((np.arange(a.n),), np.ones(a.n))
    if isinstance(a, Ones):
        return PartitionLevel((np.zeros(a.n, dtype=np.int64),), np.full(1, float(a.m)))
    if isinstance(a, Partition):
        return PartitionLevel((a.groups,), np.ones(a.shape[0]))
    if isinstance(a, Diagonal):
        return PartitionLevel((np.arange(a.weights.size),), a.weights.astype(float) ** 2)
    if isinstance(a, Sparse):
        return _rows_of_sparse(a)
    if isinstance(a, Scaled):
        level = level_of(a.base)
        return level and PartitionLevel(level.axes, level.precision * float(a.factor) ** 2)
    if isinstance(a, Kron):
        parts = [level_of(factor) for factor in a.factors]
        axes: list[Array] = []
        precision = np.ones(1)
        for part in parts:
            if part is None or (len(parts) > 1 and any((g < 0).any() for g in part.axes)):
                return None
            axes.extend(part.axes)
            precision = np.multiply.outer(precision, part.precision).ravel()
        return PartitionLevel(tuple(axes), precision)
    return None


def cell_groups(axes: Sequence[Array]) -> Array:
    """One group for every cell, from groups by axis; numbered as cells are, the last axis fastest.

    >>> cell_groups([np.array([0, 1]), np.array([0, 0, 1])])
    array([0, 0, 1, 2, 2, 3])
    """
    flat = axes[0]
    for groups in axes[1:]:
        flat = (flat[:, None] * (int(groups.max()) + 1) + groups).ravel()
    return flat


def write_small_parts(gram: Matrix) -> Matrix:
    """The Gram with its small parts of no known structure written out."""
    n = gram.shape[0]
    if isinstance(gram, Sum):
        return Sum(tuple(write_small_parts(part) for part in gram.parts))
    if isinstance(gram, Scaled):
        return Scaled(gram.factor, write_small_parts(gram.base))
    if isinstance(gram, Kron):
        return Kron(tuple(write_small_parts(factor) for factor in gram.factors))
    if n > DENSE_GRAM_CELLS or _is_structured(gram):
        return gram
    return Dense(gram.dense(limit=n * n))


def _is_structured(gram: Matrix) -> bool:
    """Can a Gram be taken within groups without being written out, or is it already?"""
    reordered = _reordered(gram)
    if reordered is not None:
        return _is_structured(reordered[0])
    return isinstance(gram, Identity | Ones | Diagonal | Semiseparable | Dense)


def _reordered(gram: Matrix) -> tuple[Matrix, Array] | None:
    """G and the order of a Gram ΠᵀGΠ, of queries that read the cells in another order."""
    if not isinstance(gram, Permuted):
        return None
    half = gram.base.T
    if isinstance(half, Permuted) and np.array_equal(half.order, gram.order):
        return half.base, gram.order
    return None


def within_groups(gram: Matrix, axes: Sequence[Array], z: Array) -> Array:
    """(G ∘ PᵀP) z: a Gram without the pairs of cells of different groups.

    For G = ⊗G_i and groups that are boxes this is a Kronecker product too, applied axis by axis.

    >>> from psephos.matrix import Prefix
    >>> within_groups(Prefix(3).gram(), [np.array([0, 0, 1])], np.ones(3))
    array([5., 4., 1.])
    """
    if isinstance(gram, Sum):
        return np.asarray(sum(within_groups(part, axes, z) for part in gram.parts))
    if isinstance(gram, Scaled):
        return np.asarray(float(gram.factor) * within_groups(gram.base, axes, z))
    if isinstance(gram, Kron) and len(gram.factors) == len(axes):
        out, before, after = z, 1, z.size
        for factor, groups in zip(gram.factors, axes, strict=True):
            after //= groups.size
            out = _within_axis_groups(factor, groups, out.reshape(before, groups.size, after))
            before *= groups.size
        return out.reshape(-1)
    return _within_axis_groups(gram, cell_groups(axes), z[None, :, None]).reshape(-1)


def _rows_of_sparse(a: Sparse) -> PartitionLevel | None:
    """Rows that are constant on disjoint sets of cells."""
    entries = a.entries.tocoo()
    groups = np.full(a.shape[1], -1, dtype=np.int64)
    groups[entries.col] = entries.row
    weights = np.zeros(a.shape[0])
    weights[entries.row] = entries.data
    constant = np.array_equal(weights[entries.row], entries.data) and bool(weights.all())
    disjoint = np.unique(entries.col).size == entries.col.size
    return PartitionLevel((groups,), weights**2) if constant and disjoint else None


def nested_levels(levels: Sequence[PartitionLevel]) -> AxisInverse | None:
    """The inverse of levels, if each is made of groups of the next finer one."""
    finest, *rest = sorted(levels, key=_coarseness)
    if (finest.groups < 0).any() or (finest.precision <= 0).any():
        return None
    before, coarser = finest.groups, []
    for partial in rest:
        level = _fill(partial, before)
        parents = np.zeros(int(before.max()) + 1, dtype=np.int64)
        parents[before] = level.groups
        if not np.array_equal(parents[before], level.groups):
            return None
        coarser.append(level)
        before = level.groups
    n, groups = finest.groups.size, finest.precision.size
    if groups == n:
        cells = finest.precision[finest.groups]
        return NestedInverse(cells, tuple(coarser)) if coarser else DiagonalInverse(1 / cells)
    first = np.unique(finest.groups, return_index=True)[1]
    merged = tuple(PartitionLevel((level.groups[first],), level.precision) for level in coarser)
    inner = (
        NestedInverse(finest.precision, merged)
        if coarser
        else DiagonalInverse(1 / finest.precision)
    )
    return MergedInverse(inner, finest.groups)


def _coarseness(level: PartitionLevel) -> tuple[int, int]:
    """Small groups first; among equals many groups first."""
    sizes = [int(np.bincount(g[g >= 0], minlength=1).max()) for g in level.axes]
    return math.prod(sizes), -level.precision.size


def _fill(level: PartitionLevel, finer: Array) -> PartitionLevel:
    """Cells left out stay in the groups that they have one level below, with precision 0."""
    missing = level.groups < 0
    if not missing.any():
        return level
    count = level.precision.size
    finer_groups, numbers = np.unique(finer[missing], return_inverse=True)
    groups = level.groups.copy()
    groups[missing] = count + numbers.reshape(-1)
    return PartitionLevel((groups,), np.concatenate([level.precision, np.zeros(finer_groups.size)]))


def _variances_by_row(inverse: Matrix, queries: Matrix) -> Array:
    """The variance q Y⁺ qᵀ of one row q after another, some at a time."""
    m, n = queries.shape
    out = np.empty(m)
    step = max(1, HELD_ENTRIES // n)
    for start in range(0, m, step):
        units = np.zeros((m, min(step, m - start)))
        units[np.arange(start, start + units.shape[1]), np.arange(units.shape[1])] = 1
        rows = queries.rmatmat(units)
        out[start : start + step] = (rows * inverse.matmat(rows)).sum(axis=0)
    return out


def _squares_by_group(queries: Matrix, groups: Array, z: Array) -> Array:
    """Σ_v (W z_v)² where z_v is z on the cells of group v."""
    spread = sp.csr_array((z, (groups, np.arange(z.size))))
    out = np.zeros(queries.shape[0])
    step = max(1, HELD_ENTRIES // z.size)
    for start in range(0, spread.shape[0], step):
        out += sum_of_squares(queries, spread[start : start + step].toarray())
    return out


def _within_axis_groups(gram: Matrix, groups: Array, x: Array) -> Array:
    """(G ∘ PᵀP) x along the middle axis of an array, by the structure of the Gram."""
    n, count = groups.size, int(groups.max()) + 1
    if isinstance(gram, Sum):
        return np.asarray(sum(_within_axis_groups(part, groups, x) for part in gram.parts))
    if isinstance(gram, Scaled):
        return np.asarray(float(gram.factor) * _within_axis_groups(gram.base, groups, x))
    if isinstance(gram, Identity | Diagonal):
        return gram._apply(x)
    if isinstance(gram, Ones):
        members = Partition(groups)
        return members._apply_t(members._apply(x))
    reordered = _reordered(gram)
    if reordered is not None:
        inner, order = reordered
        out = np.empty(x.shape)
        out[:, order] = _within_axis_groups(inner, groups[order], x[:, order])
        return out
    if isinstance(gram, Semiseparable):
        return _running_sums(gram, groups, x)
    runs = np.concatenate([[0], np.cumsum(groups[1:] != groups[:-1])])
    if n > DENSE_GRAM_CELLS:
        out = np.empty_like(x)
        for i, j in np.ndindex(x.shape[0], x.shape[2]):
            out[i, :, j] = _group_by_group(gram, groups, x[i, :, j])
        return out
    written = gram.array if isinstance(gram, Dense) else gram.dense(limit=n * n)
    if count == n:
        return np.asarray(np.diagonal(written)[None, :, None] * x)
    if runs[-1] == count - 1:
        ends = np.searchsorted(runs, np.arange(count + 1)).tolist()
        blocks = [slice(a, b) for a, b in pairwise(ends)]
        return np.concatenate([times(written[b, b], x[:, b]) for b in blocks], axis=1)
    return times(np.where(groups[:, None] == groups, written, 0), x)


def _running_sums(gram: Semiseparable, groups: Array, x: Array) -> Array:
    """Entries u_min v_max: running sums that start anew with every group.

    Cells of a group need not be neighbours: one group after another, in the order of its cells, the
    entries are of the same form.
    """
    if (groups[1:] < groups[:-1]).any():
        order = np.argsort(groups, kind="stable")
        out = np.empty(x.shape)
        together = Semiseparable(gram.u[order], gram.v[order])
        out[:, order] = _running_sums(together, groups[order], x[:, order])
        return out
    starts = np.searchsorted(groups, groups)
    ends = np.searchsorted(groups, groups, side="right")
    u, v = gram.u[None, :, None], gram.v[None, :, None]
    shape = (x.shape[0], groups.size + 1, x.shape[2])
    up_to, after = np.zeros(shape), np.zeros(shape)
    np.cumsum(u * x, axis=1, out=up_to[:, 1:])
    np.cumsum(v * x, axis=1, out=after[:, 1:])
    inside = up_to[:, 1:] - up_to[:, starts]
    return np.asarray(v * inside + u * (after[:, ends] - after[:, 1:]))


def _group_by_group(gram: Matrix, groups: Array, z: Array) -> Array:
    """The Gram on one group after another, many cells but few entries at a time."""
    out = np.empty(z.size)
    spread = sp.csc_array((z, (np.arange(z.size), groups)))
    step = max(1, HELD_ENTRIES // z.size)
    for start in range(0, spread.shape[1], step):
        images = gram.matmat(spread[:, start : start + step].toarray())
        cells = np.flatnonzero((groups >= start) & (groups < start + step))
        out[cells] = images[cells, groups[cells] - start]
    return out
