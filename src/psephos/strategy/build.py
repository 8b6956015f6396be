"""From what a search has found to a Strategy: integer blocks with short rational weights.

From a real-valued product strategy to the integers that are measured.

Every rounded factor gets some bits: its columns are scaled to 2^bits and rounded. Measured values
grow by the sum of all bits, and should leave room for the rows of the table and the noise in 64
bits, so bits go, one at a time, to the factor where the error falls most.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import WorkloadError
from psephos.inverse.product import axis_inverse
from psephos.kernel.budget import NoiseKind
from psephos.kernel.query import Block, Query
from psephos.kernel.sensitivity import sensitivity
from psephos.matrix import Dense, Identity, Kron, Matrix, total
from psephos.matrix.base import Norm
from psephos.strategy.factors import Factor, spread
from psephos.strategy.hdmm.residual import residual_matrix
from psephos.strategy.strategy import Strategy
from psephos.strategy.terms import Terms
from psephos.values import Array
from psephos.workload.product import rounded_weight

ROWS = 3 * 10**8
"""Tables up to this many rows are measured in 64 bits; larger ones by longer integers."""
LEAST, MOST = 4, 14
"""Bits of one factor."""
ENOUGH = 1e-4
"""A loss of error so small that no more bits are spent on it."""
ALLOWED = 1.5e-3
"""A loss of error (0.075 % of the RMSE) above which 64 bits are left for longer integers: the
kernel then takes more time on tables so large that they need them."""


SHORT = 10**6
"""Fractions of masks that are measured as they are have no larger denominator in common."""
MASKS = 10**6
"""The most entries of masks with fractions."""


def room() -> int:
    """Bits that all factors may use together: 62, less those of the rows, less four for noise."""
    return 62 - ROWS.bit_length() - 4


def integer_product(
    terms: Terms, factors: Sequence[Factor], norm: Norm
) -> tuple[list[Matrix], float]:
    """Integer matrices of the factors, and how much the RMSE grows by them."""
    real = np.array([_axis_errors(terms, i, f.matrix, norm) for i, f in enumerate(factors)])
    wanted = float(terms.coefficients @ real.prod(axis=0))
    open_axes = [i for i, factor in enumerate(factors) if factor.rounded]
    bits = dict.fromkeys(open_axes, LEAST)
    known: dict[tuple[int, int], tuple[Matrix, Array]] = {}

    def at(i: int, b: int) -> tuple[Matrix, Array]:
        if (i, b) not in known:
            made = factors[i].integer(b)
            known[i, b] = (made, _axis_errors(terms, i, made, norm))
        return known[i, b]

    def error(with_bits: dict[int, int]) -> float:
        traces = real.copy()
        for i, b in with_bits.items():
            traces[i] = at(i, b)[1]
        return float(terms.coefficients @ traces.prod(axis=0))

    now = error(bits)
    while now > wanted * (1 + (ENOUGH if sum(bits.values()) < room() else ALLOWED)):
        tried = [(error(bits | {i: b + 1}), i) for i, b in bits.items() if b < MOST]
        if not tried:
            break
        now, best = min(tried)
        bits[best] += 1
    made = [at(i, bits[i])[0] if i in bits else factors[i].integer(0) for i in range(len(factors))]
    return made, float(np.sqrt(now / wanted)) - 1


def _axis_errors(terms: Terms, i: int, matrix: Matrix, norm: Norm) -> Array:
    """‖A‖²·tr(Y⁻¹G_ij) for every product j."""
    scale = matrix.sensitivity(norm) ** 2
    inverse = axis_inverse(matrix)
    known = {id(w): w for w in terms.axis(i)}
    traces = {key: scale * inverse.trace_with(w) for key, w in known.items()}
    return np.array([traces[id(w)] for w in terms.axis(i)])


def in_whole_numbers(queries: Matrix, name: str, title: str) -> tuple[Matrix, int]:
    """Queries times the least whole number that leaves no fractions, and that number.

    An entry is the shortest fraction that floats cannot tell from it: 0.1 is 1/10.

    >>> matrix, times = in_whole_numbers(Dense(np.array([[0.5, 1.0], [0.0, 1 / 3]])), "age", "age")
    >>> matrix.dense(), times
    (array([[3., 6.], [0., 2.]]), 6)
    """
    if queries.entry_type.kind == "i":
        return queries, 1
    entries = queries.dense() if math.prod(queries.shape) <= MASKS else None
    if entries is not None and (abs(entries) < SHORT).all():
        different, places = np.unique(entries, return_inverse=True)
        short = [Fraction(float(x)).limit_denominator(SHORT) for x in different]
        times = math.lcm(*(x.denominator for x in short))
        if times <= SHORT and all(float(x) == y for x, y in zip(short, different, strict=True)):
            whole = np.array([int(x * times) for x in short])
            return Dense(whole[places].reshape(entries.shape)), times
    raise WorkloadError(
        f"table {title!r} asks {queries} of {name!r}, whose entries have no common denominator up "
        f"to {SHORT:,}, and what is measured is whole numbers; round the entries, or use "
        "select.hdmm, which measures other queries to answer these"
    )


UNION_BITS = {NoiseKind.LAPLACE: 9, NoiseKind.GAUSSIAN: 11}
"""Bits of the factors of a union, where they fit: a loss below 0.02 %."""


def product_strategy(
    domain: Domain,
    noise: NoiseKind,
    terms: Terms,
    factors: Sequence[Factor],
    merged: Sequence[Matrix],
    name: str,
) -> Strategy:
    """One Kronecker product of integer factors, each brought back from its merged cells."""
    made, loss = integer_product(terms, factors, noise.norm)
    return Strategy(domain, noise, Query.of(_spread(made, merged)), name, loss)


def union_strategy(
    domain: Domain,
    noise: NoiseKind,
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
        size = sensitivity(Query.of(whole), noise.norm)
        blocks.append(Block(whole, _weight(float(share) / float(size))))
    return Strategy(domain, noise, Query(tuple(blocks)), name)


def marginals_strategy(
    domain: Domain,
    noise: NoiseKind,
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
    return Strategy(domain, NoiseKind.GAUSSIAN, Query(tuple(blocks)), name)


def whole_strategy(
    domain: Domain, noise: NoiseKind, terms: Terms, factor: Factor, merged: Matrix, name: str
) -> Strategy:
    """One matrix over all (merged) cells."""
    made, loss = integer_product(terms, [factor], noise.norm)
    return Strategy(domain, noise, Query.of(spread(made[0], merged)), name, loss)


def _spread(made: Sequence[Matrix], merged: Sequence[Matrix]) -> Kron:
    return Kron(tuple(spread(a, p) for a, p in zip(made, merged, strict=True)))


def _weight(share: float) -> Fraction:
    return rounded_weight(share)
