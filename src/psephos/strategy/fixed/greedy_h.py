"""Greedy-H: a binary tree whose weights are chosen for the workload, node by node from the bottom.

Below a node, let S be the inverse of what its children measure, every column of norm one. The node
asks for its total with weight λ and leaves 1 - λ to its children, so that with r = λ/(1 - λ)

    tr(Y⁻¹G) = (1 + r)² (tr SG - r²/(1 + r²k) uᵀGu),     u = S1,  k = 1ᵀu

under Laplace noise, and λ is where that is least (Li, Hay and Miklau 2014). Under Gaussian noise
r² = λ/(1 - λ), and 1 + r² is the factor.

A node does not know what those above it will measure, so its own query looks worth more than it
turns out to be. At depth d the worth of r² is therefore taken as 2^(-βd) r², and of uᵀGu the part
between the children as 2^(-αd) of it. Several α and β are tried, and the tree with the least
error, which is exact, is kept.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from psephos.inverse.axis import AxisInverse
from psephos.inverse.nested import NestedInverse, PartitionLevel, within_groups, write_small_parts
from psephos.kernel.query import Query
from psephos.matrix import (
    Dense,
    Diagonal,
    Identity,
    Kron,
    Matrix,
    Partition,
    Scaled,
    Sparse,
    Stack,
    Sum,
    total,
)
from psephos.matrix.columns import gram_diagonal
from psephos.strategy.build import room
from psephos.strategy.factors import NoiseName, checked_selection
from psephos.strategy.fixed.baselines import axis_levels, check_tree, halves
from psephos.strategy.gram_terms import GramTerms
from psephos.strategy.strategy import Strategy
from psephos.values import Array
from psephos.variances import NoiseKind
from psephos.workload.workload import Workload

TREE_BITS = 12
DECAYS = [(a, b) for a in (0.0, 0.5) for b in (0.0, 0.25, 0.5, 0.75, 1.0)]
"""The α and β that are tried; the plans of EKTELO (Zhang et al. 2020) take ½ for both."""
FIRST_RATIOS = np.concatenate([[0.0], np.geomspace(1e-3, 1e3, 121)])
"""The r that are tried at first; the best is then refined."""
REFINEMENT = np.geomspace(0.9, 1 / 0.9, 61)
TRIED_NODES = 1 << 10
"""For so many nodes at a time, which stay near the core."""


@dataclass(frozen=True, eq=False)
class WeightedTree:
    """Groups of cells, level by level from the root down, and λ/(1 - λ) for every group.

    Under Gaussian noise it is the root of that: what is asked is λ's root times the total.
    """

    cells: int
    levels: tuple[Array, ...]
    ratios: tuple[Array, ...]


def greedy_h(workload: Workload, noise: NoiseName = "laplace") -> Strategy:
    """The product of one Greedy-H tree for each attribute, on cells that the workload tells apart.

    An attribute's tree is chosen for its own queries, each product counted by its weight and by
    the squared length of its queries on the other attributes.
    """
    kind = checked_selection(workload, noise)
    check_tree(workload)
    reduced = workload.reduce()
    terms = GramTerms.of(reduced.workload)
    squares = np.array([[float(gram_diagonal(w).sum()) for w in row] for row in _axes(terms)])
    trees = []
    for i, n in enumerate(terms.shape):
        others = terms.coefficients * np.delete(squares, i, axis=0).prod(axis=0)
        trees.append(greedy_tree(n, others, terms.axis(i), kind))
    bits = max(4, min(TREE_BITS, room() // max(1, sum(n > 1 for n in terms.shape))))
    groups = [_groups_of(p) for p in reduced.partition.children]
    matrices = [integer_tree(tree, bits, kind, g) for tree, g in zip(trees, groups, strict=True)]
    query = Query.of(Kron(tuple(matrices)))
    real = product_error(terms, [real_inverse(tree, kind) for tree in trees])
    whole = Strategy(workload.domain, kind, query, "greedy_h").expected_error(workload)
    loss = math.sqrt(whole / real) - 1 if real > 0 else 0.0
    return Strategy(workload.domain, kind, query, "greedy_h", max(0.0, loss))


def _axes(terms: GramTerms) -> list[list[Matrix]]:
    return [terms.axis(i) for i in range(len(terms.shape))]


def _groups_of(merged: Matrix) -> Array:
    return merged.groups if isinstance(merged, Partition) else np.arange(merged.shape[1])


def product_error(terms: GramTerms, inverses: Sequence[AxisInverse]) -> float:
    """Σ_j c_j Π_i tr(Y_i⁻¹G_ij)."""
    out = terms.coefficients
    for inverse, row in zip(inverses, _axes(terms), strict=True):
        known = {id(w): inverse.trace_with(w) for w in {id(w): w for w in row}.values()}
        out = out * [known[id(w)] for w in row]
    return float(out.sum())


def greedy_tree(
    n: int, coefficients: Sequence[float] | Array, queries: Sequence[Matrix], noise: NoiseKind
) -> WeightedTree:
    """The best tree for the Gram Σ_j c_j W_jᵀW_j on one attribute, of those with several decays.

    >>> queries = Stack((Identity(2), Scaled(3, total(2))))
    >>> tree = greedy_tree(2, [1.0], [queries], NoiseKind.GAUSSIAN)
    >>> round(float(tree.ratios[0][0]), 2)
    1.29
    """
    gram, diagonal = _summed(coefficients, queries)
    if n < 3:  # no node has one above it
        return _one_tree(gram, diagonal, noise, 0, 0)
    trees = [_one_tree(gram, diagonal, noise, *decay) for decay in DECAYS]
    return min(trees, key=lambda t: real_inverse(t, noise).trace_of(gram, diagonal))


def _summed(
    coefficients: Sequence[float] | Array, queries: Sequence[Matrix]
) -> tuple[Matrix, Array]:
    """Σ_j c_j W_jᵀW_j and its diagonal; written out if it has no structure."""
    together: dict[int, float] = {}
    for c, w in zip(coefficients, queries, strict=True):
        together[id(w)] = together.get(id(w), 0.0) + float(c)
    different = [(together[key], w) for key, w in {id(w): w for w in queries}.items()]
    diagonal = np.sum([c * gram_diagonal(w) for c, w in different], axis=0)
    gram = write_small_parts(Sum(tuple(Scaled(c, w.gram()) for c, w in different)))
    if any(isinstance(part, Dense) for part in gram.walk()):
        gram = Dense(gram.dense(limit=diagonal.size**2))
    return gram, diagonal


def _one_tree(
    gram: Matrix, diagonal: Array, noise: NoiseKind, spread: float, help_: float
) -> WeightedTree:
    n = diagonal.size
    levels = axis_levels(n, halves)
    u, error = np.ones(n), diagonal
    ratios = []
    for depth in range(len(levels) - 2, -1, -1):
        groups = levels[depth]
        seen, inside = (within_groups(gram, [each], u) for each in levels[depth : depth + 2])
        k = np.bincount(groups, weights=u)
        shared = 2 ** (-depth * spread) * (seen - inside) + inside
        alone, gain = (np.bincount(groups, weights=x) for x in (error, u * shared))
        ratio, least = _best_ratio(alone, gain, k, 2 ** (-depth * help_), noise)
        single = np.bincount(groups) == 1  # a cell on its own is asked at the end
        ratio[single] = 0
        u = u * (_scale(ratio, noise) / (1 + ratio**2 * k))[groups]
        first = _first_cells(groups)
        least[single] = alone[single]
        error = np.zeros(n)
        error[first] = least
        ratios.append(ratio)
    return WeightedTree(n, tuple(levels[:-1]), tuple(ratios[::-1]))


def _first_cells(groups: Array) -> Array:
    """The first cell of every group of a level, which are runs of cells."""
    return np.flatnonzero(np.diff(groups, prepend=-1))


def _scale(ratio: Array, noise: NoiseKind) -> Array:
    """How much the children's error grows when a share of the budget moves up to their parent."""
    return np.asarray((1 + ratio**noise.norm) ** noise.power)


def _best_ratio(
    alone: Array, shared: Array, k: Array, help_: float, noise: NoiseKind
) -> tuple[Array, Array]:
    """For every node the ratio with the least error, and that error; some nodes at a time."""
    ratio, least = np.empty(alone.size), np.empty(alone.size)
    for start in range(0, alone.size, TRIED_NODES):
        some = slice(start, start + TRIED_NODES)
        ratios = FIRST_RATIOS[None]
        for _ in range(2):
            odds = help_ * ratios**2
            inside = alone[some, None] - odds / (1 + odds * k[some, None]) * shared[some, None]
            errors = _scale(ratios, noise) * inside
            best = errors.argmin(axis=1)
            at = np.arange(best.size)
            ratio[some], least[some] = ratios[at % len(ratios), best], errors[at, best]
            ratios = ratio[some, None] * REFINEMENT
    return ratio, least


def real_inverse(tree: WeightedTree, noise: NoiseKind) -> NestedInverse:
    """(AᵀA)⁻¹ of the tree with real weights, all columns of norm one."""
    budget = np.ones(tree.cells)
    levels = []
    for groups, ratio in zip(tree.levels, tree.ratios, strict=True):
        share = _share(ratio, noise)
        first = _first_cells(groups)
        node_budget = budget[first] * share
        levels.append(PartitionLevel((groups,), node_budget**noise.power))
        budget = budget * (1 - share)[groups]
    return NestedInverse(budget**noise.power, tuple(levels[::-1]))


def _share(ratio: Array, noise: NoiseKind) -> Array:
    """λ, of the L1 norm or of the squared L2 norm."""
    odds = ratio**noise.norm
    return np.asarray(odds / (1 + odds))


def integer_tree(tree: WeightedTree, bits: int, noise: NoiseKind, groups: Array) -> Matrix:
    """The tree in whole numbers, each merged cell spread over its group of cells.

    Weights are handed down from the root: a node keeps its share of what has come to it, rounded,
    and all the rest goes on. So under Laplace noise every column sums to exactly 2^bits; under
    Gaussian noise its squares sum to at most 4^bits, and less only by the rounding at the leaf.
    """
    norm = noise.norm
    budget = np.full(tree.cells, 1 << norm * bits, dtype=np.int64)
    parts: list[Matrix] = []
    for level, ratio in zip(tree.levels, tree.ratios, strict=True):
        first = _first_cells(level)
        node_share = _share(ratio, noise) * budget[first]
        weights = np.rint(node_share) if norm == 1 else np.floor(np.sqrt(node_share))
        weights = np.where(weights**norm < budget[first], weights, 0).astype(np.int64)
        budget = budget - (weights**norm)[level]
        if weights.any():
            parts.append(_rows(weights, level[groups]))
    leaves = budget if norm == 1 else np.floor(np.sqrt(budget)).astype(np.int64)
    if not parts:
        return _cells(groups)
    alone = tree.cells == groups.size
    return Stack((*parts, Diagonal(leaves) if alone else _rows(leaves, groups)))


def _rows(weights: Array, groups: Array) -> Sparse:
    """A row for every group with a weight."""
    numbered = np.flatnonzero(weights)
    number = np.full(weights.size, -1)
    number[numbered] = np.arange(numbered.size)
    cells = np.flatnonzero(number[groups] >= 0)
    cell_groups = groups[cells]
    shape = (numbered.size, groups.size)
    return Sparse(sp.csr_array((weights[cell_groups], (number[cell_groups], cells)), shape=shape))


def _cells(groups: Array) -> Matrix:
    count = int(groups.max()) + 1
    if count == groups.size:
        return Identity(count)
    return total(groups.size) if count == 1 else Partition(groups)
