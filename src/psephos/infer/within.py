"""The Gram of queries within groups of cells: all that the trace with a tree's inverse needs.

For disjoint vectors z_v, each on the cells of one group v, Σ_v z_vᵀGz_v = zᵀ (G ∘ PᵀP) z with
z = Σ_v z_v and P the partition into groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from psephos.frozen import Array
from psephos.infer.axes import CHUNK
from psephos.matrix import (
    Dense,
    Diagonal,
    Identity,
    Kron,
    Matrix,
    Ones,
    Partition,
    Scaled,
    Semiseparable,
    Sum,
)
from psephos.matrix.products import times

WRITTEN = 4096
"""The most cells of an axis for which a Gram without structure is written out."""


def joined(axes: Sequence[Array]) -> Array:
    """One group for every cell, from groups by axis; numbered as cells are, the last axis fastest.

    >>> joined([np.array([0, 1]), np.array([0, 0, 1])])
    array([0, 0, 1, 2, 2, 3])
    """
    flat = axes[0]
    for groups in axes[1:]:
        flat = (flat[:, None] * (int(groups.max()) + 1) + groups).ravel()
    return flat


def settled(gram: Matrix) -> Matrix:
    """The Gram with its parts of no known structure written out, where they are small."""
    n = gram.shape[0]
    if isinstance(gram, Sum):
        return Sum(tuple(settled(part) for part in gram.parts))
    if isinstance(gram, Scaled):
        return Scaled(gram.factor, settled(gram.base))
    if isinstance(gram, Kron):
        return Kron(tuple(settled(factor) for factor in gram.factors))
    known = isinstance(gram, Identity | Ones | Diagonal | Semiseparable | Dense)
    return gram if known or n > WRITTEN else Dense(gram.dense(limit=n * n))


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
        out, left, right = z, 1, z.size
        for factor, groups in zip(gram.factors, axes, strict=True):
            right //= groups.size
            out = _within(factor, groups, out.reshape(left, groups.size, right))
            left *= groups.size
        return out.reshape(-1)
    return _within(gram, joined(axes), z[None, :, None]).reshape(-1)


def _within(gram: Matrix, groups: Array, x: Array) -> Array:
    """The same along the middle axis, by the structure of the Gram."""
    n, count = groups.size, int(groups.max()) + 1
    if isinstance(gram, Sum):
        return np.asarray(sum(_within(part, groups, x) for part in gram.parts))
    if isinstance(gram, Scaled):
        return np.asarray(float(gram.factor) * _within(gram.base, groups, x))
    if isinstance(gram, Identity | Diagonal):
        return gram._apply(x)
    if isinstance(gram, Ones):
        members = Partition(groups)
        return members._apply_t(members._apply(x))
    runs = np.concatenate([[0], np.cumsum(groups[1:] != groups[:-1])])
    if isinstance(gram, Semiseparable) and runs[-1] == count - 1:
        return _scanned(gram, runs, x)
    if n > WRITTEN:
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


def _scanned(gram: Semiseparable, groups: Array, x: Array) -> Array:
    """Entries u_min v_max: running sums that start anew with every group."""
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
    step = max(1, CHUNK // z.size)
    for start in range(0, spread.shape[1], step):
        through = gram.matmat(spread[:, start : start + step].toarray())
        own = np.flatnonzero((groups >= start) & (groups < start + step))
        out[own] = through[own, groups[own] - start]
    return out
