"""Factors of OPT_⊗ for attributes too long for a p-Identity: trees, or Identity.

Where the queries of all products are prefixes, ranges, cells and totals, their weighted Gram is
five numbers, and a tree is optimised for them. Of other ranges only the error of a tree is known in
closed form: then HB and the best tree for all ranges are compared with Identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from numpy.random import default_rng

from psephos.inverse.range_gram import LineQueries, ends
from psephos.matrix import Matrix, Scaled, Stack
from psephos.matrix.columns import gram_diagonal
from psephos.strategy.deadline import NEVER, Deadline
from psephos.strategy.factors import Factor, identity_factor
from psephos.strategy.hdmm.range_tree import (
    RangeTree,
    TreeFactor,
    hb_levels,
    improve_range_tree,
    optimise_range_tree,
    uniform_tree,
)
from psephos.variances import NoiseKind

LISTED_QUERIES = 10**6
"""The most ranges whose variances are summed one by one, again and again."""
ALL_RANGES = LineQueries(all_range=1.0)


def tree_factor(
    queries: Sequence[tuple[float, Matrix]],
    n: int,
    noise: NoiseKind,
    *,
    deadline: Deadline = NEVER,
    current: Factor | None = None,
) -> Factor:
    """The best tree found for Σ c·WᵀW on n cells, or Identity where that is no worse.

    Args:
        queries: coefficients, and the queries of every product
        n: cells
        noise: laplace or gaussian
        deadline: when the best so far is taken
        current: a tree to start from, if there is one
    """
    together: dict[int, tuple[float, Matrix]] = {}
    for c, w in queries:
        together[id(w)] = (together.get(id(w), (0.0, w))[0] + float(c), w)
    pairs = list(together.values())
    line = LineQueries.of_terms(pairs)
    trees: list[RangeTree] = []
    if line is not None and line.asks_more_than_cells:
        if isinstance(current, TreeFactor) and current.tree.has_rows:
            trees = [improve_range_tree(current.tree, line, deadline=deadline)]
        else:
            trees = [_tree(line, n, noise, deadline)]
    elif line is None and all(_are_ranges(w) for _, w in pairs):
        trees = [
            uniform_tree(hb_levels(n), ALL_RANGES, n, noise=noise),
            _tree(ALL_RANGES, n, noise, deadline),
        ]

    def error(factor: Factor) -> float:
        return sum(c * factor.inverse.trace_with(w) for c, w in pairs)

    best, least = identity_factor(n), sum(c * float(gram_diagonal(w).sum()) for c, w in pairs)
    for factor in map(TreeFactor, trees):
        tree_error = error(factor)
        if tree_error < least:
            best, least = factor, tree_error
    return best


def _are_ranges(queries: Matrix) -> bool:
    """Runs of cells, not too many to list, whose variances a tree knows."""
    if isinstance(queries, Scaled):
        return _are_ranges(queries.base)
    if isinstance(queries, Stack):
        return all(map(_are_ranges, queries.parts))
    if LineQueries.of(queries) is not None:
        return True
    return queries.shape[0] <= LISTED_QUERIES and ends(queries) is not None


def _tree(line: LineQueries, n: int, noise: NoiseKind, deadline: Deadline) -> RangeTree:
    if deadline.is_never:
        return _best_tree(line, n, noise)
    return optimise_range_tree(line, n, noise=noise, rng=default_rng(n), deadline=deadline)


@lru_cache(maxsize=32)
def _best_tree(line: LineQueries, n: int, noise: NoiseKind) -> RangeTree:
    """Random starts matter little to trees, so that every start of OPT_⊗ may have the same."""
    return optimise_range_tree(line, n, noise=noise, rng=default_rng(n))
