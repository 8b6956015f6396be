"""The nearest tables that are marginals of one vector of cells, from tables that need not agree.

Tables v_S of some sets S of axes, with noise of variance σ_S² in every number, have a least-squares
estimate x of the cells; Πv, with (Πv)_S = the marginal S of x, is what all tables together say of
each. Let n_S be the number of cells of table S. By residual subspaces (psephos.inverse.subspaces),
the component R of the estimate, R a subset of some S, is the mean of what all S ⊇ R say of it, with
weights a_S = 1/(n_S σ_S²); written out, with s_SR the sums of v_S over the axes that R lacks,

    (Πv)_S = Σ_{R ⊆ S} repeat(z_SR),   z_SR = n_R/n_S Σ_{T ⊇ R} α_STR s_TR,
    α_STR = a_T Σ_{Q: R ⊆ Q ⊆ S∩T} (-1)^|Q∖R| / Σ_{U ⊇ Q} a_U.

Summing is a sparse matrix P of ones and repeating is Pᵀ, so Π = Pᵀ Z P with Z as sparse: a
projection in a few numbers for each measured one, without a vector of cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import scipy.sparse as sp

from psephos.infer.table_tree import TableTree, places
from psephos.matrix.marginals import Axes
from psephos.values import Array

MOST_SUMS_PER_CELL = 0.5
"""Entries of the sparse matrices, as a share of the cells, above which nothing is gained."""
FEW_SUMS = 1 << 17
"""So many entries cost next to nothing."""


@dataclass(frozen=True, eq=False)
class AgreeingTables:
    """Π = Pᵀ Z P, for numbers in the order of a tree."""

    sums: sp.csr_array
    repeats: sp.csr_array
    mixing: sp.csr_array

    @classmethod
    def of(cls, tree: TableTree, variances: Array) -> AgreeingTables | None:
        """None where blocks are no marginals, agree anyway, or are too large for a gain."""
        sets = tree.marginals
        if sets is None or len(sets) == 1:
            return None
        sizes = [math.prod(tree.shape[i] for i in axes) for axes in sets]
        entries = sum(2 ** len(axes) * n for axes, n in zip(sets, sizes, strict=True))
        if entries > max(FEW_SUMS, MOST_SUMS_PER_CELL * tree.cells):
            return None
        firsts = [float(variances[start]) for start in tree.starts[:-1]]
        weights = [1 / (n * v) for n, v in zip(sizes, firsts, strict=True)]
        families = _families(sets)
        summing, mixing, start = [], [], 0
        for subset, members in families.items():
            size = math.prod(tree.shape[i] for i in subset)
            heads = start + size * np.arange(len(members))
            for head, t in zip(heads, members, strict=True):
                rows = head + places(tree.shape, sets[t], subset)
                columns = np.arange(tree.starts[t], tree.starts[t + 1])
                summing.append((rows, columns, np.ones(rows.size)))
            shares = _shares(sets, members, subset, weights, families)
            shares *= [[size / sizes[t]] for t in members]
            below = np.add.outer(heads, np.arange(size))
            grid = np.broadcast_arrays(below[:, None], below[None], shares[:, :, None])
            mixing.append((grid[0], grid[1], grid[2]))
            start += size * len(members)
        sums = _sparse(summing, (start, tree.size))
        return cls(sums, sp.csr_array(sums.T), _sparse(mixing, (start, start)))

    def project(self, values: Array) -> Array:
        """Πv."""
        return np.asarray(self.repeats @ (self.mixing @ (self.sums @ values)))


def _sparse(entries: Sequence[tuple[Array, Array, Array]], shape: tuple[int, int]) -> sp.csr_array:
    """A sparse matrix from rows, columns and values."""
    rows, columns, values = (
        np.concatenate([part[k].ravel() for part in entries]) for k in range(3)
    )
    return sp.csr_array((values, (rows, columns)), shape=shape)


def _families(sets: Sequence[Axes]) -> dict[Axes, list[int]]:
    """For every subset of some set, which sets contain it."""
    families: dict[Axes, list[int]] = {}
    for t, axes in enumerate(sets):
        for k in range(len(axes) + 1):
            for subset in combinations(axes, k):
                families.setdefault(subset, []).append(t)
    return families


def _shares(
    sets: Sequence[Axes],
    members: Sequence[int],
    subset: Axes,
    weights: Sequence[float],
    families: dict[Axes, list[int]],
) -> Array:
    """α_STR of all S and T that contain R."""
    known: dict[Axes, float] = {}
    shares = np.empty((len(members), len(members)))
    for i, s in enumerate(members):
        for j, t in enumerate(members):
            others = tuple(a for a in sets[s] if a in sets[t] and a not in subset)
            if others not in known:
                known[others] = sum(
                    (-1) ** k / sum(weights[u] for u in families[tuple(sorted(subset + more))])
                    for k in range(len(others) + 1)
                    for more in combinations(others, k)
                )
            shares[i, j] = weights[t] * known[others]
    return shares
