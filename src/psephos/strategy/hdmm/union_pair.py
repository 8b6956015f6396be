"""The parts of a union optimised together: two products, and the descent that any union may use.

Parts with shares w_j of the budget make X = Σ_j c_j ⊗_i X_ij with c_j = w_j² (Gaussian noise: w_j),
and joint least squares has the error C = (Σ_j w_j)² tr(X⁺G). A union says what C is, and which Gram
Γ each of its factors sees: dC = tr(Γ dY⁻¹). Then the gradient in Θ is that of OPT_0 for the Gram Γ,
and a Gaussian factor is stationary when it is the best for its own Γ.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from psephos.inverse.axis_classes import common_eigenvectors
from psephos.inverse.classes import outer
from psephos.matrix import Dense, Matrix
from psephos.strategy.deadline import NEVER, Deadline
from psephos.strategy.factors import Factor, GaussianFactor, PureFactor
from psephos.strategy.gram_terms import GramOperator, GramTerms, gram_operator
from psephos.strategy.hdmm import opt0
from psephos.strategy.hdmm.gaussian import optimise_gaussian
from psephos.strategy.hdmm.product import ROUND_GAIN
from psephos.values import Array
from psephos.variances import NoiseKind

JOINT_STEPS = 300
"""The most steps of one descent of shares and Θ together."""
FACTOR_TURNS = 20
"""The most turns over all Gaussian factors."""
LEAST_SHARE = 1e-6
"""No share of the budget is smaller while it is searched."""


@dataclass(frozen=True, eq=False)
class Slopes:
    """C, its derivative in every share, and the Gram Γ that every factor sees.

    A factor with nothing to optimise may have none.
    """

    error: float
    shares: Array
    grams: list[GramOperator | None]


class UnionObjective(Protocol):
    """A union as a function of the shares of its parts and of its factors."""

    @property
    def noise(self) -> NoiseKind:
        """Which norm the columns of the factors have."""

    def error(self, shares: Array, factors: Sequence[Factor]) -> float:
        """C."""

    def slopes(self, shares: Array, factors: Sequence[Factor]) -> Slopes:
        """C with its derivatives."""


@dataclass(frozen=True, eq=False)
class UnionPoint:
    """Shares, factors, and their C."""

    shares: Array
    factors: tuple[Factor, ...]
    error: float


@dataclass(frozen=True, eq=False)
class ProductPair:
    """Two products of any factors: on every axis V_i diagonalises both Grams at once.

    With V_iᵀ(X_i1 + X_i2)V_i = I, α_i and β_i the diagonals of V_iᵀX_i1V_i and V_iᵀX_i2V_i, and
    M_ij = V_iᵀG_ijV_i,

        C = (w₁ + w₂)² Σ_j ⟨D, ⊗_i diag M_ij⟩,    D = 1/(c₁ ⊗α_i + c₂ ⊗β_i).

    `groups` says, side by side and axis by axis, which merged cell of a factor every cell belongs
    to. The factors are those of the first side, then those of the second.
    """

    terms: GramTerms
    noise: NoiseKind
    groups: tuple[tuple[Array, ...], tuple[Array, ...]]

    @cached_property
    def _queries(self) -> list[tuple[list[Array], Array]]:
        """For every axis the Grams that differ, and which of them each product has."""
        return [_different(self.terms.axis(i)) for i in range(len(self.terms.shape))]

    def error(self, shares: Array, factors: Sequence[Factor]) -> float:
        return self._value(shares, self._solved(shares, factors))

    def _value(self, shares: Array, at: _PairSolution) -> float:
        return float(shares.sum()) ** self.noise.power * float(np.vdot(at.tau, at.inverse))

    def _solved(self, shares: Array, factors: Sequence[Factor]) -> _PairSolution:
        d = len(self.terms.shape)
        vectors: list[Array] = []
        spectra: tuple[list[Array], list[Array]] = ([], [])
        moments = []
        for i in range(d):
            sides = [
                Dense(factors[side * d + i].matrix.dense()[:, self.groups[side][i]])
                for side in range(2)
            ]
            v, alpha, beta = common_eigenvectors(sides[0], sides[1])
            vectors.append(v)
            spectra[0].append(alpha)
            spectra[1].append(beta)
            moments.append(np.array([v.T @ gram @ v for gram in self._queries[i][0]]))
        tau = np.zeros([v.shape[1] for v in vectors])
        for j, c in enumerate(self.terms.coefficients):
            tau += c * outer([self._diagonal(moments, i, j) for i in range(d)])
        inverse = self._inverse(shares, outer(spectra[0]), outer(spectra[1]))
        return _PairSolution(vectors, spectra, moments, inverse, tau)

    def _inverse(self, shares: Array, first: Array, second: Array) -> Array:
        """D, zero where nothing is known."""
        precisions = shares**self.noise.power
        whole = precisions[0] * first + precisions[1] * second
        known = whole > whole.max() * 1e-14
        return np.asarray(np.divide(1, whole, out=np.zeros_like(whole), where=known))

    def _diagonal(self, moments: list[Array], i: int, j: int) -> Array:
        return np.diagonal(moments[i][self._queries[i][1][j]])

    def split(self, factors: Sequence[Factor], start: Array) -> tuple[Array, float]:
        """The best shares for these factors, near a start, and C: one solve for all of them."""
        from scipy.optimize import minimize_scalar

        at = self._solved(start, factors)
        first, second = outer(at.spectra[0]), outer(at.spectra[1])

        def error(logit: float) -> float:
            w = 1 / (1 + np.exp(-logit))
            inverse = self._inverse(np.array([w, 1 - w]), first, second)
            return float(np.vdot(at.tau, inverse))

        middle = float(np.log(start[0] / start[1]))
        optimum = minimize_scalar(error, bounds=(middle - 3, middle + 3), method="bounded")
        w = 1 / (1 + np.exp(-optimum.x))
        return np.array([w, 1 - w]), float(optimum.fun)

    def slopes(self, shares: Array, factors: Sequence[Factor]) -> Slopes:
        """Through ∂C/∂X_i1, with D unfolded along axis i.

        ∂C/∂X_i1 = -(w₁ + w₂)² c₁ V_i [Σ_j M_ij ∘ (D diag(⊗_{k≠i} α_k ∘ diag M_kj) Dᵀ)] V_iᵀ. A
        factor on merged cells has X = PᵀYP, so that ∂C/∂Y = P ∂C/∂X Pᵀ, and Γ = -Y ∂C/∂Y Y.
        """
        d = len(self.terms.shape)
        power = self.noise.power
        at = self._solved(shares, factors)
        value, total = self._value(shares, at), float(shares.sum())
        twice = at.tau * at.inverse**2
        by_share = np.full(2, power * value / total)
        grams: list[GramOperator | None] = []
        for side in range(2):
            precision = total**power * shares[side] ** power
            spectra = at.spectra[side]
            by_share[side] -= (
                power * precision / shares[side] * float(np.vdot(twice, outer(spectra)))
            )
            for i in range(d):
                factor = factors[side * d + i]
                if isinstance(factor, PureFactor) and not len(factor.theta):
                    grams.append(None)
                    continue
                a = factor.matrix.dense()
                half = a.T @ (a @ _merged(at.vectors[i], self.groups[side][i]))
                grams.append(_written(half @ (precision * self._bracket(i, spectra, at)) @ half.T))
        return Slopes(value, by_share, grams)

    def _bracket(self, i: int, spectra: list[Array], at: _PairSolution) -> Array:
        """The bracket of `slopes`; products with one Gram on this axis are taken together."""
        unfolded = np.moveaxis(at.inverse, i, 0).reshape(len(spectra[i]), -1)
        which = self._queries[i][1]
        weights = np.zeros((len(at.moments[i]), unfolded.shape[1]))
        for j, c in enumerate(self.terms.coefficients):
            rest = [a * self._diagonal(at.moments, k, j) for k, a in enumerate(spectra) if k != i]
            weights[which[j]] += c * outer(rest).ravel()
        bracket = np.zeros_like(at.moments[i][0])
        for m, w in zip(at.moments[i], weights, strict=True):
            bracket += m * ((unfolded * w) @ unfolded.T)
        return np.asarray(bracket)


def descend(
    joint: UnionObjective,
    shares: Array,
    factors: Sequence[Factor],
    *,
    steps: int = JOINT_STEPS,
    deadline: Deadline = NEVER,
) -> UnionPoint:
    """Shares and factors improved together, by L-BFGS-B for Laplace noise; never made worse."""
    shares = np.maximum(shares / shares.sum(), LEAST_SHARE)
    start = UnionPoint(shares, tuple(factors), joint.error(shares, factors))
    if joint.noise is NoiseKind.GAUSSIAN:
        point = _turns(joint, start, deadline)
    else:
        point = _lbfgs(joint, start, steps, deadline)
    return UnionPoint(point.shares / point.shares.sum(), point.factors, point.error)


def gradient(
    joint: UnionObjective, shares: Array, thetas: Sequence[Array]
) -> tuple[float, list[Array], tuple[Factor, ...]]:
    """C, its derivatives in the shares and in every Θ, and the factors A(Θ)."""
    factors = tuple(PureFactor(theta) for theta in thetas)
    at = joint.slopes(shares, factors)
    slopes = [at.shares]
    for theta, gram in zip(thetas, at.grams, strict=True):
        if gram is None or not theta.size:
            slopes.append(np.zeros_like(theta))
        else:
            slopes.append(opt0.objective(theta, gram)[1])
    return at.error, slopes, factors


@dataclass(frozen=True, eq=False)
class _PairSolution:
    """V_i, then α_i and β_i, M_ij for the Grams that differ, D, and τ = Σ_j ⊗_i diag M_ij."""

    vectors: list[Array]
    spectra: tuple[list[Array], list[Array]]
    moments: list[Array]
    inverse: Array
    tau: Array


def _merged(v: Array, groups: Array) -> Array:
    """P V: the rows of every group added up."""
    sums = np.zeros((int(groups.max()) + 1, v.shape[1]))
    np.add.at(sums, groups, v)
    return sums


def _different(queries: Sequence[Matrix]) -> tuple[list[Array], Array]:
    known = {id(w): w for w in queries}
    index = {key: k for k, key in enumerate(known)}
    grams = [gram_operator([1.0], [w]).times(np.eye(w.shape[1])) for w in known.values()]
    return grams, np.array([index[id(w)] for w in queries])


def _written(gram: Array) -> GramOperator:
    return GramOperator(len(gram), np.diagonal(gram), lambda b: np.asarray(b @ gram))


def _lbfgs(joint: UnionObjective, start: UnionPoint, steps: int, deadline: Deadline) -> UnionPoint:
    from scipy.optimize import minimize

    best, scale = start, 1 / start.error
    thetas = [f.theta if isinstance(f, PureFactor) else np.eye(0, f.cells) for f in start.factors]
    shapes = [start.shares.shape, *(theta.shape for theta in thetas)]
    cuts = np.cumsum([start.shares.size, *(theta.size for theta in thetas)])[:-1]

    def scaled(x: Array) -> tuple[float, Array]:
        nonlocal best
        pieces = np.split(x.copy(), cuts)
        shares, *thetas_of_x = [piece.reshape(s) for piece, s in zip(pieces, shapes, strict=True)]
        value, slopes, factors = gradient(joint, shares, thetas_of_x)
        if 0 < value < best.error:  # below zero X was singular to the last digit
            best = UnionPoint(shares, factors, value)
        if deadline.passed:
            raise opt0.DeadlinePassed
        return value * scale, np.concatenate([slope.ravel() for slope in slopes]) * scale

    first = np.concatenate([start.shares, *(theta.ravel() for theta in thetas)])
    low = np.zeros(first.size)
    low[: start.shares.size] = LEAST_SHARE
    with suppress(opt0.DeadlinePassed):
        minimize(
            scaled,
            first,
            jac=True,
            method="L-BFGS-B",
            bounds=[(b, None) for b in low.tolist()],
            options={"maxiter": steps, "maxcor": 10, "ftol": 1e-9, "gtol": 1e-12},
        )
    return best


def _turns(joint: UnionObjective, best: UnionPoint, deadline: Deadline) -> UnionPoint:
    """Gaussian noise: each factor in turn made the best for the Gram it sees, then the shares."""
    for _ in range(FACTOR_TURNS):
        before = best.error
        for i, factor in enumerate(best.factors):
            if not isinstance(factor, GaussianFactor):
                continue
            gram = joint.slopes(best.shares, best.factors).grams[i]
            if gram is not None:
                certified = optimise_gaussian(gram.times(np.eye(gram.n)), deadline=deadline)
                trial = (
                    *best.factors[:i],
                    GaussianFactor(certified.factor),
                    *best.factors[i + 1 :],
                )
                best = _better(joint, best.shares, trial, best)
        # C is convex in the shares; this is the least of its bound by 1/w, as in `SharedFactors`.
        slope = joint.slopes(best.shares, best.factors).shares * best.shares.sum()
        next_shares = best.shares * np.sqrt(np.maximum(1 - slope / best.error, 0))
        best = _better(
            joint, np.maximum(next_shares / next_shares.sum(), LEAST_SHARE), best.factors, best
        )
        late = deadline.passed
        if before - best.error < ROUND_GAIN * before or late:
            break
    return best


def _better(
    joint: UnionObjective, shares: Array, factors: tuple[Factor, ...], best: UnionPoint
) -> UnionPoint:
    error = joint.error(shares, factors)
    return UnionPoint(shares, factors, error) if error < best.error else best
