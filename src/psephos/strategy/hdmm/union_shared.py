"""Unions that share factors: on every axis a part has either the factor Y_i or the total.

Y_i and 11ᵀ are diagonal in one basis V_i, V_iᵀY_iV_i = I, whose first column Y_i⁻¹1/√y_i with
y_i = 1ᵀY_i⁻¹1 alone sees the total. So the inverse of any union of such products is known, for any
number of parts and without an eigenproblem. Weighted marginals, OPT_M of McKenna et al. 2018, are
the case Y_i = I; here Y_i is any p-Identity strategy, optimised together with the shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psephos.kernel.budget import NoiseKind
from psephos.matrix import Matrix, is_total
from psephos.strategy.factors import Factor
from psephos.strategy.gram_terms import GramOperator, GramTerms, gram_operator
from psephos.strategy.hdmm.union_pair import Slopes
from psephos.values import Array

NOTABLE_SHARE = 1e-3
"""A part with less than this share of the budget is left out, unless only it sees something."""


@dataclass(frozen=True, eq=False)
class AxisMoments:
    """With z = Y⁻¹1: y = 1ᵀz, and for every Gram on the axis Gz, tr(Y⁻¹G) and zᵀGz."""

    y: float
    through: list[Array]
    traces: Array
    squares: Array


@dataclass(frozen=True, eq=False)
class SharedAxis:
    """The queries on one axis: those that differ, and which each product has (-1: the total)."""

    n: int
    queries: list[Matrix]
    which: Array

    @classmethod
    def of(cls, terms: GramTerms, i: int) -> SharedAxis:
        known = {id(w): w for w in terms.axis(i) if not is_total(w)}
        index = {key: k for k, key in enumerate(known)}
        which = np.array([index.get(id(w), -1) for w in terms.axis(i)])
        return cls(terms.shape[i], list(known.values()), which)

    @property
    def crossed(self) -> bool:
        """Is there a product that sums over this axis?"""
        return bool((self.which < 0).any())

    @cached_property
    def grams(self) -> list[GramOperator]:
        return [gram_operator([1.0], [w]) for w in self.queries]

    def moments(self, factor: Factor) -> AxisMoments:
        inverse = factor.inverse
        z = inverse.matvec(np.ones(self.n))
        through = [gram.times(z[None])[0] for gram in self.grams]
        traces = np.array([inverse.trace_with(w) for w in self.queries])
        return AxisMoments(float(z.sum()), through, traces, np.array([z @ g for g in through]))

    def gram_seen(
        self, at: AxisMoments, by_trace: Array, by_square: Array, by_y: float
    ) -> GramOperator:
        """Γ = Σ a G + b 11ᵀ + Σ e (1(Gz)ᵀ + (Gz)1ᵀ) for the derivatives a, e, b."""
        side = np.zeros(self.n)
        for e, g in zip(by_square, at.through, strict=True):
            side += e * g
        diagonal = by_y + 2 * side
        for a, gram in zip(by_trace, self.grams, strict=True):
            diagonal += a * gram.diagonal

        def times(b: Array) -> Array:
            out = np.multiply.outer(b.sum(axis=1), by_y + side)
            out += (b @ side)[:, None]
            for a, gram in zip(by_trace, self.grams, strict=True):
                out += a * gram.times(b)
            return np.asarray(out)

        return GramOperator(self.n, diagonal, times)


@dataclass(frozen=True, eq=False)
class SharedFactors:
    """Parts, each the set of crossed axes on which it has the factor and not the total.

    Crossed are the axes that some product of the workload sums over; on the others every part has
    the factor. With N_a = Π_{i∉a} y_i for a part a, precisions c_a, and sets S of crossed axes,

        λ_S = Σ_{a⊇S} c_a N_a   τ_S = Σ_j Π_{i∈S} (t_ij - m_ij) Π_{i∉S} m_ij   C = (Σw)² Σ_S τ_S/λ_S

    for t_ij = tr(Y_i⁻¹G_ij), m_ij = zᵀG_ijz/y_i and z = Y_i⁻¹1.
    """

    terms: GramTerms
    noise: NoiseKind
    parts: tuple[tuple[int, ...], ...]

    def only(self, kept: Sequence[int]) -> SharedFactors:
        """Some of the parts."""
        return SharedFactors(self.terms, self.noise, tuple(self.parts[k] for k in kept))

    @cached_property
    def axes(self) -> list[SharedAxis]:
        return [SharedAxis.of(self.terms, i) for i in range(len(self.terms.shape))]

    @cached_property
    def crossed(self) -> list[int]:
        return [i for i, axis in enumerate(self.axes) if axis.crossed]

    @cached_property
    def _inside(self) -> Array:
        """Does S hold the k-th crossed axis? One row for each of the 2^k sets."""
        k = len(self.crossed)
        return (np.arange(1 << k)[:, None] >> np.arange(k) & 1).astype(bool)

    @cached_property
    def _has(self) -> Array:
        """Has a part the factor on the k-th crossed axis?"""
        return np.array([[i in part for i in self.crossed] for part in self.parts])

    @cached_property
    def _holds(self) -> Array:
        """Is S ⊆ a? Parts by sets."""
        return (~self._inside[None] | self._has[:, None]).all(axis=2).astype(float)

    def moments(self, factors: Sequence[Factor]) -> list[AxisMoments]:
        return [axis.moments(factor) for axis, factor in zip(self.axes, factors, strict=True)]

    def _settled(self, at: list[AxisMoments]) -> tuple[Array, list[Array], Array]:
        """The weight of every product with its axes that are not crossed, (m, t - m), and N_a."""
        c = self.terms.coefficients.copy()
        pairs = []
        for axis, moments in zip(self.axes, at, strict=True):
            if not axis.crossed:
                c *= moments.traces[axis.which]
                continue
            m = np.append(moments.squares / moments.y, moments.y)
            rest = np.append(moments.traces, moments.y) - m
            pairs.append(np.array([m[axis.which], np.maximum(rest, 0)[axis.which]]))
        y = np.array([at[i].y for i in self.crossed])
        return c, pairs, np.where(self._has, 1.0, y).prod(axis=1)

    def _spread(self, pairs: list[Array], without: int = -1) -> Array:
        """Π_i (m or t - m) for every product and every S, one axis left out."""
        products = np.ones((len(self.terms.coefficients), len(self._inside)))
        for k, pair in enumerate(pairs):
            if k != without:
                products *= pair[self._inside[:, k].astype(int)].T
        return products

    def _sums(self, tau: Array, precisions: Array) -> tuple[Array, Array]:
        """τ_S/λ_S, and g_a = Σ_{S⊆a} τ_S/λ_S²."""
        eigenvalues = precisions @ self._holds
        needed = np.broadcast_to(tau > 0, eigenvalues.shape)
        once = np.divide(tau, eigenvalues, out=np.zeros(eigenvalues.shape), where=needed)
        twice = np.divide(once, eigenvalues, out=np.zeros(eigenvalues.shape), where=needed)
        return once, twice @ self._holds.T

    def shares(self, at: list[AxisMoments], starts: Array, steps: int = 300) -> tuple[Array, Array]:
        """The shares improved from every row of positive starts, and C of each.

        C is convex in the precisions, so at Σw = 1 it is at most Σ_a c°_a² N_a g_a / c_a, with
        equality at the present c°. The least of that bound comes next, and C never rises.
        """
        power = self.noise.power
        c, pairs, outside = self._settled(at)
        tau = c @ self._spread(pairs)
        w = starts / starts.sum(axis=1, keepdims=True)
        error = np.full(len(w), np.inf)
        for _ in range(steps):
            before = error
            once, g = self._sums(tau, w**power * outside)
            error = once.sum(axis=1)
            if (before - error <= 1e-9 * error).all():
                break
            w = w * (w ** (power - 1) * outside * g / error[:, None]) ** (1 / (power + 1))
            w = np.maximum(w / w.sum(axis=1, keepdims=True), 1e-12)
        return w / w.sum(axis=1, keepdims=True), error

    def notable(self, shares: Array) -> list[int]:
        """The parts with a notable share, and those without which a set S would be lost."""
        numbers = np.flatnonzero(shares > NOTABLE_SHARE).tolist()
        needed = self._needed
        for k in np.argsort(-shares, kind="stable").tolist():
            lost = needed & ~self._holds[numbers].any(axis=0)
            if not lost.any():
                break
            if k not in numbers and self._holds[k][lost].any():
                numbers.append(k)
        return sorted(numbers)

    @cached_property
    def _needed(self) -> Array:
        """The sets S with τ_S > 0: those inside what some product asks."""
        queried = np.array([[axis.which[j] >= 0 for axis in self.axes if axis.crossed]
                        for j in range(len(self.terms.coefficients))])  # fmt: skip
        return np.asarray((~self._inside[None] | queried[:, None]).all(axis=2).any(axis=0))

    def error(self, shares: Array, factors: Sequence[Factor]) -> float:
        power = self.noise.power
        c, pairs, outside = self._settled(self.moments(factors))
        once, _ = self._sums(c @ self._spread(pairs), shares**power * outside)
        return float(shares.sum()) ** power * float(once.sum())

    def slopes(self, shares: Array, factors: Sequence[Factor]) -> Slopes:
        power = self.noise.power
        at = self.moments(factors)
        c, pairs, outside = self._settled(at)
        spread = self._spread(pairs)
        tau = c @ spread
        precisions = shares**power * outside
        once, g = self._sums(tau, precisions)
        total = float(shares.sum())
        scale = total**power
        value = scale * float(once.sum())
        by_share = power * (value / total - scale * shares ** (power - 1) * outside * g)
        inverse = np.divide(scale, precisions @ self._holds, out=np.zeros_like(tau), where=tau > 0)
        grams: list[GramOperator | None] = []
        k = 0
        for axis, moments in zip(self.axes, at, strict=True):
            size = len(axis.queries)
            if not axis.crossed:
                each = c * (spread @ inverse) / moments.traces[axis.which]
                by_trace = np.bincount(axis.which, each, size)
                grams.append(axis.gram_seen(moments, by_trace, np.zeros(size), 0.0))
                continue
            alone = c[:, None] * self._spread(pairs, k) * inverse
            by_m, by_rest = alone @ ~self._inside[:, k], alone @ self._inside[:, k]
            queried, y = axis.which >= 0, moments.y
            which = axis.which[queried]
            by_trace = np.bincount(which, by_rest[queried], size)
            by_square = np.bincount(which, (by_m - by_rest)[queried], size) / y
            by_y = float(by_m[~queried].sum() - by_square @ moments.squares / y)
            by_y -= scale * float((precisions * g)[~self._has[:, k]].sum()) / y
            grams.append(axis.gram_seen(moments, by_trace, by_square, by_y))
            k += 1
        return Slopes(value, by_share, grams)
