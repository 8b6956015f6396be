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
from psephos.strategy.hdmm.union_pair import Slopes
from psephos.strategy.terms import GramOperator, Terms, gram_operator
from psephos.values import Array

SMALL = 1e-3
"""A part with less than this share of the budget is left out, unless only it sees something."""


@dataclass(frozen=True, eq=False)
class Moments:
    """With z = Y⁻¹1: y = 1ᵀz, and for every Gram on the axis Gz, tr(Y⁻¹G) and zᵀGz."""

    y: float
    through: list[Array]
    traces: Array
    squares: Array


@dataclass(frozen=True, eq=False)
class Axis:
    """The queries on one axis: those that differ, and which each product has (-1: the total)."""

    n: int
    queries: list[Matrix]
    which: Array

    @classmethod
    def of(cls, terms: Terms, i: int) -> Axis:
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

    def moments(self, factor: Factor) -> Moments:
        inverse = factor.inverse
        z = inverse.matvec(np.ones(self.n))
        through = [gram.times(z[None])[0] for gram in self.grams]
        traces = np.array([inverse.trace_with(w) for w in self.queries])
        return Moments(float(z.sum()), through, traces, np.array([z @ g for g in through]))

    def seen(self, at: Moments, by_trace: Array, by_square: Array, by_y: float) -> GramOperator:
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
class Shared:
    """Parts, each the set of crossed axes on which it has the factor and not the total.

    Crossed are the axes that some product of the workload sums over; on the others every part has
    the factor. With N_a = Π_{i∉a} y_i for a part a, precisions c_a, and sets S of crossed axes,

        λ_S = Σ_{a⊇S} c_a N_a   τ_S = Σ_j Π_{i∈S} (t_ij - m_ij) Π_{i∉S} m_ij   C = (Σw)² Σ_S τ_S/λ_S

    for t_ij = tr(Y_i⁻¹G_ij), m_ij = zᵀG_ijz/y_i and z = Y_i⁻¹1.
    """

    terms: Terms
    noise: NoiseKind
    parts: tuple[tuple[int, ...], ...]

    def only(self, kept: Sequence[int]) -> Shared:
        """Some of the parts."""
        return Shared(self.terms, self.noise, tuple(self.parts[k] for k in kept))

    @cached_property
    def axes(self) -> list[Axis]:
        return [Axis.of(self.terms, i) for i in range(len(self.terms.shape))]

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

    def moments(self, factors: Sequence[Factor]) -> list[Moments]:
        return [axis.moments(factor) for axis, factor in zip(self.axes, factors, strict=True)]

    def _settled(self, at: list[Moments]) -> tuple[Array, list[Array], Array]:
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
        made = np.ones((len(self.terms.coefficients), len(self._inside)))
        for k, pair in enumerate(pairs):
            if k != without:
                made *= pair[self._inside[:, k].astype(int)].T
        return made

    def _sums(self, tau: Array, spent: Array) -> tuple[Array, Array]:
        """τ_S/λ_S, and g_a = Σ_{S⊆a} τ_S/λ_S²."""
        eigenvalues = spent @ self._holds
        needed = np.broadcast_to(tau > 0, eigenvalues.shape)
        once = np.divide(tau, eigenvalues, out=np.zeros(eigenvalues.shape), where=needed)
        twice = np.divide(once, eigenvalues, out=np.zeros(eigenvalues.shape), where=needed)
        return once, twice @ self._holds.T

    def shares(self, at: list[Moments], starts: Array, steps: int = 300) -> tuple[Array, Array]:
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

    def kept(self, shares: Array) -> list[int]:
        """The parts with a notable share, and those without which a set S would be lost."""
        kept = np.flatnonzero(shares > SMALL).tolist()
        asked = self._asked
        for k in np.argsort(-shares, kind="stable").tolist():
            lost = asked & ~self._holds[kept].any(axis=0)
            if not lost.any():
                break
            if k not in kept and self._holds[k][lost].any():
                kept.append(k)
        return sorted(kept)

    @cached_property
    def _asked(self) -> Array:
        """The sets S with τ_S > 0: those inside what some product asks."""
        own = np.array([[axis.which[j] >= 0 for axis in self.axes if axis.crossed]
                        for j in range(len(self.terms.coefficients))])  # fmt: skip
        return np.asarray((~self._inside[None] | own[:, None]).all(axis=2).any(axis=0))

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
        spent = shares**power * outside
        once, g = self._sums(tau, spent)
        total = float(shares.sum())
        scale = total**power
        value = scale * float(once.sum())
        by_share = power * (value / total - scale * shares ** (power - 1) * outside * g)
        inverse = np.divide(scale, spent @ self._holds, out=np.zeros_like(tau), where=tau > 0)
        grams: list[GramOperator | None] = []
        k = 0
        for axis, moments in zip(self.axes, at, strict=True):
            size = len(axis.queries)
            if not axis.crossed:
                each = c * (spread @ inverse) / moments.traces[axis.which]
                by_trace = np.bincount(axis.which, each, size)
                grams.append(axis.seen(moments, by_trace, np.zeros(size), 0.0))
                continue
            alone = c[:, None] * self._spread(pairs, k) * inverse
            by_m, by_rest = alone @ ~self._inside[:, k], alone @ self._inside[:, k]
            asked, y = axis.which >= 0, moments.y
            which = axis.which[asked]
            by_trace = np.bincount(which, by_rest[asked], size)
            by_square = np.bincount(which, (by_m - by_rest)[asked], size) / y
            by_y = float(by_m[~asked].sum() - by_square @ moments.squares / y)
            by_y -= scale * float((spent * g)[~self._has[:, k]].sum()) / y
            grams.append(axis.seen(moments, by_trace, by_square, by_y))
            k += 1
        return Slopes(value, by_share, grams)
