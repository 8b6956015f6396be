"""From what a search has found to a Strategy: integer blocks with short rational weights."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from psephos.domain import Domain
from psephos.frozen import Array
from psephos.kernel.query import Block, Query
from psephos.kernel.sensitivity import sensitivity
from psephos.matrix import Identity, Kron, Matrix, total
from psephos.matrix.base import Norm
from psephos.strategy.factors import Factor, Noise, spread
from psephos.strategy.integers import integer_product, room
from psephos.strategy.residual import residual_matrix
from psephos.strategy.strategy import Strategy
from psephos.strategy.terms import Terms
from psephos.workload.product import rounded_weight

UNION_BITS = {"laplace": 9, "gaussian": 11}
"""Bits of the factors of a union, where they fit: a loss below 0.02 %."""


def norm_of(noise: Noise) -> Norm:
    """Laplace noise follows the L1 norm of columns, Gaussian noise the L2 norm."""
    return 1 if noise == "laplace" else 2


def product_strategy(
    domain: Domain,
    noise: Noise,
    terms: Terms,
    factors: Sequence[Factor],
    merged: Sequence[Matrix],
    name: str,
) -> Strategy:
    """One Kronecker product of integer factors, each brought back from its merged cells."""
    made, loss = integer_product(terms, factors, norm_of(noise))
    return Strategy(domain, noise, Query.of(_spread(made, merged)), name, loss)


def union_strategy(
    domain: Domain,
    noise: Noise,
    parts: Sequence[tuple[Sequence[Factor], Sequence[Matrix]]],
    shares: Array,
    name: str,
) -> Strategy:
    """Several products, each with its share of the budget.

    A factor that several parts have in common gets the same bits in all of them, so that it stays
    one matrix: inference is in closed form then.
    """
    most = max(sum(factor.rounded for factor in factors) for factors, _ in parts)
    bits = min(UNION_BITS[noise], room() // max(1, most))
    made: dict[int, Matrix] = {}
    blocks = []
    for (factors, merged), share in zip(parts, shares, strict=True):
        for factor in factors:
            if id(factor) not in made:
                made[id(factor)] = factor.integer(bits)
        whole = _spread([made[id(factor)] for factor in factors], merged)
        # A part of share s has columns of norm s: its weight undoes the integers' scale.
        size = sensitivity(Query.of(whole), norm_of(noise))
        blocks.append(Block(whole, _weight(float(share) / float(size))))
    return Strategy(domain, noise, Query(tuple(blocks)), name)


def marginals_strategy(
    domain: Domain,
    noise: Noise,
    sets: Sequence[tuple[int, ...]],
    weights: Array,
    merged: Sequence[Matrix],
    name: str,
) -> Strategy:
    """Marginals over (merged) attributes, each with a weight of its own."""
    kept = [spread(Identity(m.shape[0]), m) for m in merged]
    gone: list[Matrix] = [total(m.shape[1]) for m in merged]
    blocks = []
    scale = float(np.max(weights))
    for axes, weight in zip(sets, weights, strict=True):
        factors = list(gone)
        for i in axes:
            factors[i] = kept[i]
        blocks.append(Block(Kron(tuple(factors)), _weight(float(weight) / scale)))
    return Strategy(domain, noise, Query(tuple(blocks)), name)


def residual_strategy(
    domain: Domain,
    sets: Sequence[tuple[int, ...]],
    weights: Array,
    merged: Sequence[Matrix],
    name: str,
) -> Strategy:
    """Residual subspaces of (merged) attributes for Gaussian noise, each with its own weight."""
    inside = {i: residual_matrix((merged[i].shape[0],), (0,)) for axes in sets for i in axes}
    kept = {i: spread(kron.factors[0], merged[i]) for i, kron in inside.items()}
    gone: list[Matrix] = [total(m.shape[1]) for m in merged]
    scale = float(np.max(weights))
    blocks = []
    for axes, weight in zip(sets, weights, strict=True):
        factors = list(gone)
        for i in axes:
            factors[i] = kept[i]
        blocks.append(Block(Kron(tuple(factors)), _weight(float(weight) / scale)))
    return Strategy(domain, "gaussian", Query(tuple(blocks)), name)


def whole_strategy(
    domain: Domain, noise: Noise, terms: Terms, factor: Factor, merged: Matrix, name: str
) -> Strategy:
    """One matrix over all (merged) cells."""
    made, loss = integer_product(terms, [factor], norm_of(noise))
    return Strategy(domain, noise, Query.of(spread(made[0], merged)), name, loss)


def _spread(made: Sequence[Matrix], merged: Sequence[Matrix]) -> Kron:
    return Kron(tuple(spread(a, p) for a, p in zip(made, merged, strict=True)))


def _weight(share: float) -> Fraction:
    return rounded_weight(share)
