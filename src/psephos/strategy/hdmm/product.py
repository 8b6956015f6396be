"""OPT_⊗: the best product of one strategy for each attribute, for unions of products too.

The error of a product strategy is Σ_j c_j Π_i t_ij with t_ij = tr(Y_i⁻¹G_ij). With all factors but
one fixed it is a one-attribute problem for the Gram Σ_j (c_j Π_{i'≠i} t_i'j) G_ij, so the factors
are improved in turn (McKenna et al. 2018, section 6.2), never made worse, until a round of turns
gains nothing. A single product is solved in one round, its attributes being independent.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from psephos.inverse.axis import gram_diagonal
from psephos.kernel.budget import NoiseKind
from psephos.matrix import Matrix
from psephos.strategy.factors import Factor, GaussianFactor, PureFactor, identity_factor
from psephos.strategy.hdmm.gaussian import optimise_gaussian
from psephos.strategy.hdmm.opt0 import opt0, optimise, tree
from psephos.strategy.terms import GramOperator, Terms
from psephos.values import Array

ROUNDS = 12
GAIN = 1e-4
LONGEST = {NoiseKind.LAPLACE: 10_000, NoiseKind.GAUSSIAN: 2048}
"""Attributes with more cells than this keep Identity here; trees serve them."""


@dataclass(frozen=True, eq=False)
class Product:
    """A factor for each attribute, and the error of their product, real-valued."""

    factors: tuple[Factor, ...]
    error: float


def opt_product(
    terms: Terms,
    noise: NoiseKind,
    *,
    rng: Generator,
    restarts: int,
    deadline: float | None = None,
    start: Sequence[Factor] | None = None,
    progress: Callable[[float], None] | None = None,
) -> Product:
    """The best of several block-cyclic descents, and of Identity."""
    best = product_error(terms, [identity_factor(n) for n in terms.shape])
    if start is not None:
        best = _better(_descent(terms, noise, list(start), rng, deadline), best)
    for _ in range(restarts):
        for factors in _starts(terms, noise, rng, deadline):
            if len(terms.coefficients) > 1:
                made = _descent(terms, noise, factors, rng, deadline)
            else:
                made = product_error(terms, factors)
            best = _better(made, best)
        if progress is not None:
            progress(best.error)
        if deadline is not None and time.monotonic() > deadline:
            break
        if noise is NoiseKind.GAUSSIAN and len(terms.coefficients) == 1:
            break  # convex: another start ends where this one did
    return best


def product_error(terms: Terms, factors: Sequence[Factor]) -> Product:
    """The factors with Σ_j c_j Π_i t_ij."""
    traces = np.array([axis_traces(terms, i, factor) for i, factor in enumerate(factors)])
    return Product(tuple(factors), float(terms.coefficients @ traces.prod(axis=0)))


def axis_traces(terms: Terms, i: int, factor: Factor) -> Array:
    """tr(Y_i⁻¹G_ij) for every product j."""
    found = {id(w): factor.inverse.trace_with(w) for w in _different(terms, i)}
    return np.array([found[id(w)] for w in terms.axis(i)])


def _different(terms: Terms, i: int) -> list[Matrix]:
    return list({id(w): w for w in terms.axis(i)}.values())


def _starts(
    terms: Terms, noise: NoiseKind, rng: Generator, deadline: float | None
) -> list[list[Factor]]:
    """Starts for every attribute; all leave Identity at once, one by one they might never.

    A single product needs no more than the best strategy of each attribute. For a union random rows
    on all attributes do better than what would be best for each alone, and on long attributes a few
    halves, quarters and so on, better still.
    """
    if len(terms.coefficients) == 1 or noise is NoiseKind.GAUSSIAN:
        return [[_best_alone(terms, i, noise, rng, deadline) for i in range(len(terms.shape))]]
    share = rng.choice([16, 16, 8])
    halving = tree(int(rng.choice([2, 2, 4])))
    return [
        [_started(n, noise, lambda n: rng.random((max(1, n // share), n))) for n in terms.shape],
        [
            _started(n, noise, lambda n: halving(max(1, min(n // 16, 8)), n, rng))
            for n in terms.shape
        ],
    ]


def _started(n: int, noise: NoiseKind, rows: Callable[[int], Array]) -> Factor:
    return PureFactor(rows(n)) if 1 < n <= LONGEST[noise] else identity_factor(n)


def _best_alone(
    terms: Terms, i: int, noise: NoiseKind, rng: Generator, deadline: float | None
) -> Factor:
    """The best factor for the queries on one attribute, each product counted alike."""
    identity = np.array([_trace(w) for w in terms.axis(i)])
    return _solved(terms.gram(i, terms.coefficients / identity), noise, rng, deadline, None)


def _trace(queries: Matrix) -> float:
    return float(gram_diagonal(queries).sum())


def _solved(
    gram: GramOperator,
    noise: NoiseKind,
    rng: Generator,
    deadline: float | None,
    current: Factor | None,
) -> Factor:
    """The best factor found for a Gram; from the current one if it is given."""
    if gram.n == 1 or gram.n > LONGEST[noise]:
        return identity_factor(gram.n)
    if noise is NoiseKind.GAUSSIAN:
        return GaussianFactor(
            optimise_gaussian(gram.times(np.eye(gram.n)), deadline=deadline).factor
        )
    if isinstance(current, PureFactor) and len(current.theta):
        found = optimise(gram, rng=rng, start=current.theta, deadline=deadline)
    else:
        found = opt0(gram, rng=rng, restarts=1, deadline=deadline)
    return PureFactor(found.theta)


def _descent(
    terms: Terms, noise: NoiseKind, factors: list[Factor], rng: Generator, deadline: float | None
) -> Product:
    """Improve the factors in turn until a round gains nothing."""
    traces = np.array([axis_traces(terms, i, factor) for i, factor in enumerate(factors)])
    error = float(terms.coefficients @ traces.prod(axis=0))
    for _ in range(ROUNDS):
        before = error
        for i, n in enumerate(terms.shape):
            if n == 1:
                continue
            others = np.delete(traces, i, axis=0).prod(axis=0)
            gram = terms.gram(i, terms.coefficients * others)
            tried = _solved(gram, noise, rng, deadline, factors[i])
            own = axis_traces(terms, i, tried)
            made = float((terms.coefficients * others) @ own)
            if made < error:
                factors[i], traces[i], error = tried, own, made
        late = deadline is not None and time.monotonic() > deadline
        if before - error < GAIN * before or late:
            break
    return Product(tuple(factors), error)


def _better(a: Product, b: Product) -> Product:
    return a if a.error < b.error else b
