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

from psephos.kernel.budget import NoiseKind
from psephos.matrix import Matrix
from psephos.matrix.columns import gram_diagonal
from psephos.strategy.factors import Factor, GaussianFactor, PureFactor, identity_factor
from psephos.strategy.gram_terms import GramOperator, GramTerms
from psephos.strategy.hdmm.gaussian import optimise_gaussian
from psephos.strategy.hdmm.opt0 import opt0, optimise, tree
from psephos.values import Array

DESCENT_ROUNDS = 12
"""The most rounds over all attributes."""
ROUND_GAIN = 1e-4
"""A round that gains relatively less than this is the last."""
LONGEST_AXIS = {NoiseKind.LAPLACE: 10_000, NoiseKind.GAUSSIAN: 2048}
"""Attributes with more cells than this keep Identity here; trees serve them."""


@dataclass(frozen=True, eq=False)
class ProductFactors:
    """A factor for each attribute, and the error of their product, real-valued."""

    factors: tuple[Factor, ...]
    error: float


def opt_product(
    terms: GramTerms,
    noise: NoiseKind,
    *,
    rng: Generator,
    restarts: int,
    deadline: float | None = None,
    start: Sequence[Factor] | None = None,
    progress: Callable[[float], None] | None = None,
) -> ProductFactors:
    """The best of several block-cyclic descents, and of Identity."""
    best = product_of(terms, [identity_factor(n) for n in terms.shape])
    if start is not None:
        best = _better(_descent(terms, noise, list(start), rng, deadline), best)
    for _ in range(restarts):
        for factors in _starts(terms, noise, rng, deadline):
            if len(terms.coefficients) > 1:
                product = _descent(terms, noise, factors, rng, deadline)
            else:
                product = product_of(terms, factors)
            best = _better(product, best)
        if progress is not None:
            progress(best.error)
        if deadline is not None and time.monotonic() > deadline:
            break
        if noise is NoiseKind.GAUSSIAN and len(terms.coefficients) == 1:
            break  # convex: another start ends where this one did
    return best


def product_of(terms: GramTerms, factors: Sequence[Factor]) -> ProductFactors:
    """The factors with Σ_j c_j Π_i t_ij."""
    traces = np.array([axis_traces(terms, i, factor) for i, factor in enumerate(factors)])
    return ProductFactors(tuple(factors), float(terms.coefficients @ traces.prod(axis=0)))


def axis_traces(terms: GramTerms, i: int, factor: Factor) -> Array:
    """tr(Y_i⁻¹G_ij) for every product j."""
    traces = {id(w): factor.inverse.trace_with(w) for w in _different(terms, i)}
    return np.array([traces[id(w)] for w in terms.axis(i)])


def _different(terms: GramTerms, i: int) -> list[Matrix]:
    return list({id(w): w for w in terms.axis(i)}.values())


def _starts(
    terms: GramTerms, noise: NoiseKind, rng: Generator, deadline: float | None
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
    return PureFactor(rows(n)) if 1 < n <= LONGEST_AXIS[noise] else identity_factor(n)


def _best_alone(
    terms: GramTerms, i: int, noise: NoiseKind, rng: Generator, deadline: float | None
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
    if gram.n == 1 or gram.n > LONGEST_AXIS[noise]:
        return identity_factor(gram.n)
    if noise is NoiseKind.GAUSSIAN:
        return GaussianFactor(
            optimise_gaussian(gram.times(np.eye(gram.n)), deadline=deadline).factor
        )
    if isinstance(current, PureFactor) and len(current.theta):
        solution = optimise(gram, rng=rng, start=current.theta, deadline=deadline)
    else:
        solution = opt0(gram, rng=rng, restarts=1, deadline=deadline)
    return PureFactor(solution.theta)


def _descent(
    terms: GramTerms,
    noise: NoiseKind,
    factors: list[Factor],
    rng: Generator,
    deadline: float | None,
) -> ProductFactors:
    """Improve the factors in turn until a round gains nothing."""
    traces = np.array([axis_traces(terms, i, factor) for i, factor in enumerate(factors)])
    error = float(terms.coefficients @ traces.prod(axis=0))
    for _ in range(DESCENT_ROUNDS):
        before = error
        for i, n in enumerate(terms.shape):
            if n == 1:
                continue
            others = np.delete(traces, i, axis=0).prod(axis=0)
            gram = terms.gram(i, terms.coefficients * others)
            trial = _solved(gram, noise, rng, deadline, factors[i])
            trial_traces = axis_traces(terms, i, trial)
            trial_error = float((terms.coefficients * others) @ trial_traces)
            if trial_error < error:
                factors[i], traces[i], error = trial, trial_traces, trial_error
        late = deadline is not None and time.monotonic() > deadline
        if before - error < ROUND_GAIN * before or late:
            break
    return ProductFactors(tuple(factors), error)


def _better(a: ProductFactors, b: ProductFactors) -> ProductFactors:
    return a if a.error < b.error else b
