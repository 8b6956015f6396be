"""From real-valued factors to a Strategy: integer blocks with short rational weights.

The columns of a factor are scaled to 2^bits and rounded. What is measured grows by the bits of all
factors together, and should leave room in 64 bits for the rows of the table and for the noise. So
bits are given one at a time, each to the factor where it lowers the error most.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import WorkloadError
from psephos.inverse.product import axis_inverse
from psephos.kernel.query import Block, Query
from psephos.kernel.sensitivity import sensitivity
from psephos.matrix import Dense, Identity, Kron, Matrix
from psephos.matrix.base import Norm
from psephos.matrix.kron import AxisTotals, NamedFactors
from psephos.strategy.factors import Factor, spread
from psephos.strategy.gram_terms import GramTerms
from psephos.strategy.hdmm.residual import residual_matrix
from psephos.strategy.strategy import Strategy
from psephos.values import Array
from psephos.variances import NoiseKind
from psephos.workload.product import rounded_weight

MOST_TABLE_ROWS = 3 * 10**8
"""Tables up to this many rows are measured in 64 bits; larger ones by longer integers."""
LEAST_BITS, LARGEST_BITS = 4, 14
"""Bits of one factor."""
UNION_BITS = {NoiseKind.LAPLACE: 9, NoiseKind.GAUSSIAN: 11}
"""Bits of the factors of a union, where they fit: a loss below 0.02 %."""
NEGLIGIBLE_LOSS = 1e-4
"""A relative growth of the error so small that no more bits are given against it."""
TOLERABLE_LOSS = 1.5e-3
"""A growth of the error (0.075 % of the RMSE) above which factors get bits beyond the room of 64:
the kernel then measures very large tables by longer integers, which takes more time."""
LARGEST_DENOMINATOR = 10**6
"""Of the common denominator of fractional masks that can be measured in whole numbers."""
MASK_ENTRIES = 10**6
"""The most entries of masks with fractions."""


def product_strategy(
    domain: Domain,
    noise: NoiseKind,
    terms: GramTerms,
    factors: Sequence[Factor],
    merged: Sequence[Matrix],
    name: str,
) -> Strategy:
    """One Kronecker product of integer factors, each brought back from its merged cells."""
    matrices, loss = integer_product(terms, factors, noise.norm)
    return Strategy(domain, noise, Query.of(_spread(matrices, merged)), name, loss)


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
    matrices: dict[int, Matrix] = {}
    blocks = []
    for (factors, merged), share in zip(parts, shares, strict=True):
        for factor in factors:
            if id(factor) not in matrices:
                matrices[id(factor)] = factor.integer(bits)
        whole = _spread([matrices[id(factor)] for factor in factors], merged)
        # A part of share s has columns of norm s: its weight undoes the integers' scale.
        size = sensitivity(Query.of(whole), noise.norm)
        blocks.append(Block(whole, rounded_weight(float(share) / float(size))))
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
    cells = [spread(Identity(m.shape[0]), m) for m in merged]
    totals = AxisTotals(tuple(m.shape[1] for m in merged))
    blocks = []
    scale = float(np.max(weights))
    for axes, weight in zip(sets, weights, strict=True):
        factors = NamedFactors.of(totals, {i: cells[i] for i in axes})
        blocks.append(Block(Kron(factors), rounded_weight(float(weight) / scale)))
    return Strategy.trusted(domain, noise, Query(tuple(blocks)), name)


def residual_strategy(
    domain: Domain,
    sets: Sequence[tuple[int, ...]],
    weights: Array,
    merged: Sequence[Matrix],
    name: str,
    bases: Mapping[int, Matrix] | None = None,
    loss: float = 0.0,
) -> Strategy:
    """Residual subspaces of (merged) attributes for Gaussian noise, each with its own weight.

    On every attribute nI - 11ᵀ is measured, or the basis that it has.
    """
    if bases is None:
        axes_asked = {i for axes in sets for i in axes}
        bases = {i: residual_matrix((merged[i].shape[0],), (0,)).factors[0] for i in axes_asked}
    residuals = {i: spread(basis, merged[i]) for i, basis in bases.items()}
    totals = AxisTotals(tuple(m.shape[1] for m in merged))
    scale = float(np.max(weights))
    blocks = []
    for axes, weight in zip(sets, weights, strict=True):
        factors = NamedFactors.of(totals, {i: residuals[i] for i in axes})
        blocks.append(Block(Kron(factors), rounded_weight(float(weight) / scale)))
    return Strategy.trusted(domain, NoiseKind.GAUSSIAN, Query(tuple(blocks)), name, loss)


def whole_strategy(
    domain: Domain, noise: NoiseKind, terms: GramTerms, factor: Factor, merged: Matrix, name: str
) -> Strategy:
    """One matrix over all (merged) cells."""
    matrices, loss = integer_product(terms, [factor], noise.norm)
    return Strategy(domain, noise, Query.of(spread(matrices[0], merged)), name, loss)


def integer_product(
    terms: GramTerms, factors: Sequence[Factor], norm: Norm
) -> tuple[list[Matrix], float]:
    """Integer matrices of the factors, and how much the RMSE grows by them."""
    real = np.array([_axis_errors(terms, i, f.matrix, norm) for i, f in enumerate(factors)])
    real_error = float(terms.coefficients @ real.prod(axis=0))
    open_axes = [i for i, factor in enumerate(factors) if factor.rounded]
    bits = dict.fromkeys(open_axes, LEAST_BITS)
    known: dict[tuple[int, int], tuple[Matrix, Array]] = {}

    def at(i: int, b: int) -> tuple[Matrix, Array]:
        if (i, b) not in known:
            matrix = factors[i].integer(b)
            known[i, b] = (matrix, _axis_errors(terms, i, matrix, norm))
        return known[i, b]

    def error(with_bits: dict[int, int]) -> float:
        traces = real.copy()
        for i, b in with_bits.items():
            traces[i] = at(i, b)[1]
        return float(terms.coefficients @ traces.prod(axis=0))

    whole_error = error(bits)
    while whole_error > real_error * (
        1 + (NEGLIGIBLE_LOSS if sum(bits.values()) < room() else TOLERABLE_LOSS)
    ):
        candidates = [(error(bits | {i: b + 1}), i) for i, b in bits.items() if b < LARGEST_BITS]
        if not candidates:
            break
        whole_error, best = min(candidates)
        bits[best] += 1
    matrices = [
        at(i, bits[i])[0] if i in bits else factors[i].integer(0) for i in range(len(factors))
    ]
    return matrices, float(np.sqrt(whole_error / real_error)) - 1


def room() -> int:
    """Bits that all factors may use together: 62, less those of the rows, less four for noise."""
    return 62 - MOST_TABLE_ROWS.bit_length() - 4


def in_whole_numbers(queries: Matrix, name: str, title: str) -> tuple[Matrix, int]:
    """Queries times the least whole number that leaves no fractions, and that number.

    An entry is the shortest fraction that floats cannot tell from it: 0.1 is 1/10.

    >>> matrix, times = in_whole_numbers(Dense(np.array([[0.5, 1.0], [0.0, 1 / 3]])), "age", "age")
    >>> matrix.dense(), times
    (array([[3., 6.], [0., 2.]]), 6)
    """
    if queries.entry_type.kind == "i":
        return queries, 1
    entries = queries.dense() if math.prod(queries.shape) <= MASK_ENTRIES else None
    if entries is not None and (abs(entries) < LARGEST_DENOMINATOR).all():
        different, places = np.unique(entries, return_inverse=True)
        short = [Fraction(float(x)).limit_denominator(LARGEST_DENOMINATOR) for x in different]
        times = math.lcm(*(x.denominator for x in short))
        if times <= LARGEST_DENOMINATOR and all(
            float(x) == y for x, y in zip(short, different, strict=True)
        ):
            whole = np.array([int(x * times) for x in short])
            return Dense(whole[places].reshape(entries.shape)), times
    raise WorkloadError(
        f"table {title!r} asks {queries} of {name!r}, whose entries have no common denominator up "
        f"to {LARGEST_DENOMINATOR:,}, and what is measured is whole numbers; round the entries, or "
        "use select.hdmm, which measures other queries to answer these"
    )


def _axis_errors(terms: GramTerms, i: int, matrix: Matrix, norm: Norm) -> Array:
    """‖A‖²·tr(Y⁻¹G_ij) for every product j."""
    scale = matrix.sensitivity(norm) ** 2
    inverse = axis_inverse(matrix)
    known = {id(w): w for w in terms.axis(i)}
    traces = {key: scale * inverse.trace_with(w) for key, w in known.items()}
    return np.array([traces[id(w)] for w in terms.axis(i)])


def _spread(matrices: Sequence[Matrix], merged: Sequence[Matrix]) -> Kron:
    return Kron(tuple(spread(a, p) for a, p in zip(matrices, merged, strict=True)))
