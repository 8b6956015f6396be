"""OPT_⊗: the best product of one strategy for each attribute, for unions of products too.

The error of a product strategy is Σ_j c_j Π_i t_ij with t_ij = tr(Y_i⁻¹G_ij). With all factors but
one fixed it is a one-attribute problem for the Gram Σ_j (c_j Π_{i'≠i} t_i'j) G_ij, so the factors
are improved in turn (McKenna et al. 2018, section 6.2), never made worse, until a round of turns
gains nothing. A single product is solved in one round, its attributes being independent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from psephos.errors import UnsupportedError
from psephos.matrix import Matrix
from psephos.matrix.columns import gram_diagonal, select_columns
from psephos.strategy.deadline import NEVER, Deadline
from psephos.strategy.factors import Factor, GaussianFactor, PureFactor, identity_factor
from psephos.strategy.gram_terms import GramTerms
from psephos.strategy.hdmm.axis_tree import tree_factor
from psephos.strategy.hdmm.gaussian import optimise_gaussian
from psephos.strategy.hdmm.opt0 import opt0, optimise, tree
from psephos.values import Array
from psephos.variances import NoiseKind

DESCENT_ROUNDS = 12
"""The most rounds over all attributes."""
COARSE_FROM, COARSE_CELLS = 512, 256
"""Attributes from the first number of cells on start from what is best for about the second."""
ROUND_GAIN = 1e-4
"""A round that gains relatively less than this is the last."""
LONGEST_AXIS = {NoiseKind.LAPLACE: 10_000, NoiseKind.GAUSSIAN: 2048}
"""Attributes with more cells than this get trees."""


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
    deadline: Deadline = NEVER,
    start: Sequence[Factor] | None = None,
    trees: bool = False,
    progress: Callable[[float], None] | None = None,
) -> ProductFactors:
    """The best of several block-cyclic descents, and of Identity.

    Long attributes keep Identity unless `trees` are allowed: a product with trees has its error in
    closed form, but as a part of a union it has none.
    """
    search = _ProductSearch(terms, noise, rng, deadline, trees)
    best = product_of(terms, [identity_factor(n) for n in terms.shape])
    if start is not None:
        best = _better(search.descent(list(start)), best)
    for _ in range(restarts):
        for factors in search.starts():
            product = search.descent(factors) if search.several else product_of(terms, factors)
            best = _better(product, best)
        if progress is not None:
            progress(best.error)
        if search.late:
            break
        if noise is NoiseKind.GAUSSIAN and not search.several:
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


def _trace(queries: Matrix) -> float:
    return float(gram_diagonal(queries).sum())


def _better(a: ProductFactors, b: ProductFactors) -> ProductFactors:
    return a if a.error < b.error else b


@dataclass(frozen=True, eq=False)
class _ProductSearch:
    """Starts, and descents from them."""

    terms: GramTerms
    noise: NoiseKind
    rng: Generator
    deadline: Deadline
    trees: bool

    @property
    def several(self) -> bool:
        """Is there more than one product?"""
        return len(self.terms.coefficients) > 1

    @property
    def late(self) -> bool:
        return self.deadline.passed

    def starts(self) -> list[list[Factor]]:
        """Starts for every attribute; all leave Identity at once, one by one they might never.

        A single product needs no more than the best strategy of each attribute. For a union random
        rows on all attributes do better than what would be best for each alone, and on long
        attributes a few halves, quarters and so on, better still; there random rows give way to
        what is best for some of the cells.
        """
        shape = self.terms.shape
        if not self.several or self.noise is NoiseKind.GAUSSIAN:
            return [[self._best_alone(i) for i in range(len(shape))]]
        share = self.rng.choice([16, 16, 8])
        halving = tree(int(self.rng.choice([2, 2, 4])))
        kinds: list[Callable[[int], Array]] = [
            lambda n: self.rng.random((max(1, n // share), n)),
            lambda n: halving(max(1, min(n // 16, 8)), n, self.rng),
        ]
        without_rows = {
            i: self._best_alone(i)
            for i, n in enumerate(shape)
            if n == 1 or n > LONGEST_AXIS[self.noise]
        }
        starts = [
            [
                without_rows[i] if i in without_rows else PureFactor(rows(n))
                for i, n in enumerate(shape)
            ]
            for rows in kinds
        ]
        coarse = self._coarse_start(without_rows)
        return starts if coarse is None else [coarse, starts[1]]

    def _coarse_start(self, without_rows: Mapping[int, Factor]) -> list[Factor] | None:
        """The best product for some of the cells of long attributes, each standing for its run."""
        shape = self.terms.shape
        strides = [
            1 if i in without_rows or n < COARSE_FROM else -(-n // COARSE_CELLS)
            for i, n in enumerate(shape)
        ]
        if max(strides) == 1:
            return None
        columns = [np.arange(0, n, stride) for n, stride in zip(shape, strides, strict=True)]
        some: dict[tuple[int, int], Matrix] = {}
        for i, stride in enumerate(strides):
            for w in _different(self.terms, i):
                some[i, id(w)] = w if stride == 1 else select_columns(w, columns[i])
        factors = tuple(
            tuple(some[i, id(w)] for i, w in enumerate(each)) for each in self.terms.factors
        )
        coarse = GramTerms(tuple(c.size for c in columns), self.terms.coefficients, factors)
        try:
            best = opt_product(
                coarse, self.noise, rng=self.rng, restarts=2, deadline=self.deadline
            ).factors
        except UnsupportedError:  # queries whose Gram on some cells has no closed form
            return None
        return [
            without_rows[i] if i in without_rows else self._on_all_cells(best[i], n, strides[i])
            for i, n in enumerate(shape)
        ]

    def _on_all_cells(self, factor: Factor, n: int, stride: int) -> Factor:
        """Rows repeated over the runs of cells, with faint random ones that may grow."""
        if not isinstance(factor, PureFactor) or stride == 1:
            return factor
        rows = np.repeat(factor.theta, stride, axis=1)[:, :n]
        more = max(0, n // 25 - len(rows))
        return PureFactor(np.vstack([rows, 0.3 * self.rng.random((more, n))]))

    def _best_alone(self, i: int) -> Factor:
        """The best factor for the queries on one attribute, each product counted alike."""
        identity = np.array([_trace(w) for w in self.terms.axis(i)])
        return self._solved(i, self.terms.coefficients / identity)

    def _solved(self, i: int, coefficients: Array, current: Factor | None = None) -> Factor:
        """The best factor found for Σ_j c_j W_ijᵀW_ij; from the current one if it is given."""
        n = self.terms.shape[i]
        if n > LONGEST_AXIS[self.noise] and self.trees:
            pairs = list(zip(coefficients, self.terms.axis(i), strict=True))
            return tree_factor(pairs, n, self.noise, deadline=self.deadline, current=current)
        if n == 1 or n > LONGEST_AXIS[self.noise]:
            return identity_factor(n)
        gram = self.terms.gram(i, coefficients)
        if self.noise is NoiseKind.GAUSSIAN:
            dense = gram.times(np.eye(gram.n))
            return GaussianFactor(optimise_gaussian(dense, deadline=self.deadline).factor)
        if isinstance(current, PureFactor) and len(current.theta):
            solution = optimise(gram, rng=self.rng, start=current.theta, deadline=self.deadline)
        else:
            solution = opt0(gram, rng=self.rng, restarts=1, deadline=self.deadline)
        return PureFactor(solution.theta)

    def descent(self, factors: list[Factor]) -> ProductFactors:
        """Improve the factors in turn until a round gains nothing."""
        terms = self.terms
        traces = np.array([axis_traces(terms, i, factor) for i, factor in enumerate(factors)])
        error = float(terms.coefficients @ traces.prod(axis=0))
        for _ in range(DESCENT_ROUNDS):
            before = error
            for i, n in enumerate(terms.shape):
                if n == 1:
                    continue
                weights = terms.coefficients * np.delete(traces, i, axis=0).prod(axis=0)
                trial = self._solved(i, weights, factors[i])
                trial_traces = axis_traces(terms, i, trial)
                trial_error = float(weights @ trial_traces)
                if trial_error < error:
                    factors[i], traces[i], error = trial, trial_traces, trial_error
            if before - error < ROUND_GAIN * before or self.late:
                break
        return ProductFactors(tuple(factors), error)
