"""How precisely each group of queries is best measured (Yaroslavtsev et al. 2013, section III-A).

A fixed recovery R answers queries of weights a from noisy answers to a strategy. The summed
variance is Σ_i b_i / η_i^k with b_i = Σ_j a_j R_ji²: under Laplace noise η is one over the noise's
scale and k = 2, under Gaussian noise it is a precision and k = 1, as the weights of blocks are. A
row of the table in cell j costs Σ_i |S_ij|^p η_i. In a group r of strategy rows (Definition 3.1)
every column has one entry, of size |S_ij|^p = C_r: all cells cost Σ_r C_r η_r, and with
s_r = Σ_{i∈r} b_i

    η_r ∝ (s_r / C_r)^(1/(k+1))        cube roots for Laplace, square roots for Gaussian

is best, with variance (Σ_r (s_r C_r^k)^(1/(k+1)))^(k+1) for a cost of one. That is best for R;
least squares on the same numbers is better than R, and by how much depends on the budgets. Where
rows do not fall into groups, the convex programme with one constraint for each cell is solved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from psephos.errors import TooLargeError, WorkloadError
from psephos.kernel.query import Block, Query
from psephos.matrix import Matrix, Partition, Sparse
from psephos.strategy.factors import checked_selection
from psephos.strategy.strategy import Strategy
from psephos.values import Array
from psephos.variances import NoiseKind
from psephos.workload.product import rounded_weight
from psephos.workload.workload import Workload

BUDGETED_CELLS = 2048
"""Strategies over more cells are not looked at row by row."""
BUDGETED_ENTRIES = 1 << 25
BUDGET_GAP = 1e-6
"""How near to the least variance the convex programme ends, if its steps suffice."""
BUDGET_STEPS = 20_000
WEIGHT_DIGITS = 3
"""Digits of the weights of single rows: rows of one weight are one block."""


def group_weights(demands: Array, sizes: Array, noise: NoiseKind) -> Array:
    """The η_r that are best for demands s_r and column sizes C_r, at a cost Σ C_r η_r of one.

    >>> group_weights(np.array([2.0, 4.0]), np.ones(2), NoiseKind.LAPLACE).round(4)
    array([0.4425, 0.5575])
    """
    weights = (demands / sizes) ** (1 / (noise.power + 1))
    return np.asarray(weights / (sizes @ weights))


@dataclass(frozen=True, eq=False)
class RowGroups:
    """The group of every row of a strategy, and the size |entry| of each group's columns."""

    numbers: Array
    sizes: tuple[int, ...]

    @property
    def count(self) -> int:
        """The grouping number."""
        return len(self.sizes)


def row_groups(matrix: Matrix) -> RowGroups | None:
    """Rows put greedily into groups in which every column has one entry, all of one size.

    A row joins the first group that has nothing in its columns and the same size of entries, or
    begins a new one. None where a row has entries of different sizes, or a group misses columns.

    >>> from psephos.matrix import Haar
    >>> groups = row_groups(Haar(4))
    >>> groups.numbers.tolist(), groups.sizes
    ([0, 1, 2, 2], (1, 1, 1))
    """
    rows = _rows(matrix)
    sizes: list[int] = []
    seen: list[Array] = []
    numbers = np.zeros(rows.shape[0], dtype=np.int64)
    for i in range(rows.shape[0]):
        entries = slice(rows.indptr[i], rows.indptr[i + 1])
        cells, values = rows.indices[entries], np.abs(rows.data[entries])
        if not len(values) or (values != values[0]).any():
            return None
        size = int(values[0])
        for g, columns in enumerate(seen):
            if sizes[g] == size and not columns[cells].any():
                break
        else:
            g = len(sizes)
            sizes.append(size)
            seen.append(np.zeros(rows.shape[1], dtype=bool))
        seen[g][cells] = True
        numbers[i] = g
    return RowGroups(numbers, tuple(sizes)) if all(each.all() for each in seen) else None


def row_weights(demands: Array, sizes: Array, power: int) -> Array:
    """The η_i that minimise Σ b_i/η_i^k where every column j of `sizes` bounds Σ_i S_ij η_i by one.

    For shares λ of the columns, u = Sλ, the bound Σ u_i η_i ≤ 1 alone leaves Φ(λ)^(k+1) at least,
    Φ = Σ_i (b_i u_i^k)^(1/(k+1)), and η_i ∝ (b_i/u_i)^(1/(k+1)) attains it. Φ is concave and
    λ_j ← λ_j (Sᵀη)_j climbs it; η scaled to fit all columns is as near as the two values are.

    >>> row_weights(np.array([1.0, 1.0]), np.array([[1.0, 0.0], [1.0, 3.0]]), 2).round(3)
    array([0.667, 0.333])
    """
    shares = np.full(sizes.shape[1], 1 / sizes.shape[1])
    best, least = np.zeros(len(demands)), np.inf
    for _ in range(BUDGET_STEPS):
        outer = sizes @ shares
        weights = (demands / outer) ** (1 / (power + 1))
        costs = sizes.T @ weights
        weights, costs = weights / costs.max(), costs / (outer @ weights)
        value = float((demands / weights**power).sum())
        if value < least:
            best, least = weights, value
        bound = float(((demands * outer**power) ** (1 / (power + 1))).sum()) ** (power + 1)
        if least <= (1 + BUDGET_GAP) * bound:
            break
        shares = shares * costs
        shares /= shares.sum()
    return best


def budgeted(strategy: Strategy, workload: Workload) -> Strategy:
    """The same queries, each group of them with the budget that is best for the recovery at hand.

    The recovery is that of least squares as the strategy stands. Its rows are grouped greedily, as
    levels of trees and wavelets, rows of one partition of a sketch, and marginals are; without a
    grouping every row gets a budget of its own. Queries that the recovery makes no use of are left
    out. For marginals of any size there is `datacube`.

    >>> from psephos import Domain, prefix, product
    >>> from psephos.strategy.fixed.baselines import h2
    >>> W = Workload(Domain.of(age=64), [product(age=prefix())])
    >>> round(h2(W).expected_error(W)), round(budgeted(h2(W), W).expected_error(W))
    (2840, 2535)
    """
    if not isinstance(strategy, Strategy):
        raise WorkloadError(f"budgets are for a Strategy, got {type(strategy).__name__}")
    Workload.require(workload, strategy.domain)
    noise = checked_selection(workload, strategy.noise)
    workload.check_covered(strategy._form)
    _check_size(strategy)
    rows = sp.vstack([_rows(block.matrix) for block in strategy.query.blocks], format="csr")
    demands = _demands(strategy, workload, rows)
    used = demands > demands.max() * 1e-12
    rows, demands = rows[used], demands[used]
    groups = row_groups(Sparse(rows))
    if groups is not None:
        numbers = groups.numbers
        sums = np.bincount(numbers, weights=demands)
        sizes = np.array(groups.sizes, dtype=float) ** noise.norm
        weights = group_weights(sums, sizes, noise)
    else:
        entries = np.abs(rows.toarray()).astype(float) ** noise.norm
        each = row_weights(demands, entries, noise.power)
        short = [float(f"{x:.{WEIGHT_DIGITS}g}") for x in each / each.max()]
        weights, numbers = np.unique(short, return_inverse=True)
    scale = float(weights.max())
    blocks = [
        Block(_block(rows[numbers == g]), rounded_weight(float(weight) / scale))
        for g, weight in enumerate(weights)
    ]
    return Strategy(strategy.domain, noise, Query(tuple(blocks)), f"{strategy.name}⁺")


def _check_size(strategy: Strategy) -> None:
    rows, cells = strategy.query.shape
    if cells > BUDGETED_CELLS or rows * cells > BUDGETED_ENTRIES:
        raise TooLargeError(
            f"budgets of any strategy are found row by row, and {rows:,} queries over {cells:,} "
            f"cells are over the limit of {BUDGETED_CELLS:,} cells; for marginals use datacube",
            cells,
            BUDGETED_CELLS,
        )


def _demands(strategy: Strategy, workload: Workload, rows: sp.csr_array) -> Array:
    """b_i = Σ_j a_j R_ji² for R = W X⁺ Sᵀ C, X = SᵀCS, C the precisions of the strategy."""
    counts = [block.matrix.shape[0] for block in strategy.query.blocks]
    powers = [float(block.weight) ** strategy.noise.power for block in strategy.query.blocks]
    precisions = np.repeat(powers, counts)
    dense = rows.toarray().astype(float)
    inverse = np.linalg.pinv(dense.T @ (precisions[:, None] * dense), rcond=1e-12, hermitian=True)
    recovery = (inverse @ dense.T) * precisions
    gram = workload.matrix.gram().dense(limit=BUDGETED_ENTRIES)
    return np.asarray(np.maximum(np.einsum("ij,ij->j", recovery, gram @ recovery), 0))


def _rows(matrix: Matrix) -> sp.csr_array:
    return sp.csr_array(matrix.dense(limit=BUDGETED_ENTRIES).astype(np.int64))


def _block(rows: sp.csr_array) -> Matrix:
    """Rows as a partition of the cells where they are one."""
    cells = rows.shape[1]
    if rows.nnz == cells and (rows.data == 1).all() and len(np.unique(rows.indices)) == cells:
        groups = np.zeros(cells, dtype=np.int64)
        groups[rows.indices] = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        return Partition(groups)
    return Sparse(rows)
