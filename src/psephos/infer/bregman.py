"""Steps towards noisy answers that never leave the positive cells: iterated relative entropy.

Measured are y = A x + noise, with variance σ_j² in row j; x ≥ 0 adds up to T, and KL is Kullback
and Leibler's Σ x log(x/x'). From x_0, a prior, step k of strength τ goes to the minimum of

    P(x) = ½ Σ_j (Ax - y)_j²/σ_j² + τ KL(x ‖ x_{k-1}),   Σ x = T.

*Dual.* With a multiplier ν for the total, the minimum has Aᵀ((Ax - y)/σ²) + τ log(x/x_{k-1}) = ν,
so x_k is x_{k-1} times the exponential of Aᵀ of something, and by induction all x_k lie in

    x(θ) = T q exp(Aᵀθ)/Z(θ),   Z(θ) = Σ q exp(Aᵀθ),   q = x_0/T.

Put λ_j = τ σ_j² and c = θ_{k-1}; then the minimum is where

    g(θ) = A x(θ) - y + λ (θ - c) = 0,

the gradient of the convex D(θ) = T log Z(θ) - y·θ + ½ Σ λ (θ - c)², whose second derivative is
H + λ with H = A (diag(x) - xxᵀ/T) Aᵀ. That needs one Aᵀ and one A, for x·Aᵀv = (Ax)·v. Newton steps
solve it, by conjugate gradients. These are guided by the diagonal Σ_i a_ji² x_i - (Ax)_j²/T + λ_j;
where numbers are few, by a factor of H + λ from the step before (psephos.infer.few_numbers); where
a few cells rule, by a factor of these (psephos.infer.heavy_cells); and where numbers are marginals,
which repeat each other, by

    Πᵀ diag⁻¹ Π + λ⁻¹(1 - Π),   Π the least-squares projection onto tables that agree

(psephos.infer.agreeing_tables): what contradicts itself in the tables is left alone by H, since
HΠ' = 0 for Π' = λ⁻¹(1 - Π), so that there the second term is exact. The parts on which tables agree
are a few hundred where there are thousands of numbers, and far more alike. The diagonal alone takes
H for large counts there too, which was half of all directions and a condition number of 10⁴; with Π
a quarter of the steps was enough.

*Certificate.* KL(x(θ) ‖ x_{k-1}) = (Ax)·(θ - c) - T log(Z(θ)/Z(c)), so P(x(θ)) lies above the dual
value -τ (D(θ) - D(c)) by exactly

    ½ Σ (Ax - y)²/σ² + τ (Ax - y)·(θ - c) + ½ τ² Σ σ² (θ - c)² = ½ Σ g²/σ²,

and since P grows from its minimum x* by at least ½ |A(x - x*)/σ|², |A(x - x*)/σ| ≤ |g/σ|: the root
mean square of g/σ bounds how far answers are from those of the minimum, in standard deviations.

Osher, Burger, Goldfarb, Xu and Yin (2005) iterate such steps: a few fit what is there, many fit the
noise as well. Their number is chosen elsewhere (psephos.infer.asked_risk).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from psephos.infer.agreeing_tables import AgreeingTables
from psephos.infer.few_numbers import Factored, WrittenCurvature
from psephos.infer.heavy_cells import HeavyCells
from psephos.infer.normal_equations import guided_gradients
from psephos.infer.table_tree import TableTree
from psephos.values import Array

GAP_TOLERANCE = 0.01
"""How far a step may end from its minimum, in standard deviations of the noise."""
FIRST_STRENGTH = 4.0
"""The first τ, as a multiple of the largest precision with which a number tells the cells."""
STRENGTH_RATIO = 0.7
"""Each step's strength, as a share of that of the step before."""
MOST_NEWTON_STEPS = 30
MOST_HALVINGS = 25
LONGEST_EXPONENT_STEP = 5.0
"""The most by which a Newton step raises the logarithm of a cell against the mean."""
NEWTON_SHARE = 0.1
"""The share of the gradient that conjugate gradients leave."""
SHRINKAGE = 0.4
"""A Newton step that falls short of what it promised is cut to this share."""


@dataclass(frozen=True, eq=False)
class ExponentialPoint:
    """x(θ), its answers A x and log Z."""

    theta: Array
    x: Array
    answers: Array
    log_mass: float


@dataclass
class Effort:
    """What all steps took so far: counted, so that it is the same on every machine."""

    directions: int = 0


@dataclass(frozen=True, eq=False)
class EntropyProblem:
    """Noisy answers with their variances, a prior and a total; all in the order of the tree."""

    tree: TableTree
    values: Array
    variances: Array
    log_prior: Array
    """-∞ where a cell is zero."""
    total: float
    effort: Effort = field(default_factory=Effort)

    def start(self) -> ExponentialPoint:
        """The prior, at θ = 0."""
        return self._at(np.zeros(self.tree.size), self.log_prior.copy())

    def point(self, theta: Array) -> ExponentialPoint:
        """x(θ)."""
        exponent = self.tree.transpose(theta)
        exponent += self.log_prior
        return self._at(theta, exponent)

    def _at(self, theta: Array, exponent: Array) -> ExponentialPoint:
        """x(θ), written over its exponent log q + Aᵀθ."""
        top = float(exponent.max())
        exponent -= top
        x = np.exp(exponent, out=exponent)
        mass = float(x.sum())
        x *= self.total / mass
        return ExponentialPoint(theta, x, self.tree.apply(x), top + math.log(mass))

    def first_strength(self) -> float:
        """A τ at which the first step goes a small part of the way: a power of two.

        Where the prior misses the numbers by many standard deviations, small steps are lost time,
        so the first is longer by the root of that. Small changes of y leave the power of two as it
        is, so that it takes no part in derivatives.
        """
        start = self.start()
        largest = float((self.diagonal(start) / self.variances).max())
        largest /= math.sqrt(max(1.0, self.gap(start.answers - self.values)))
        # Where numbers say nothing beyond the total, any strength will do that is not dust.
        least = 1e-9 * float((np.abs(start.answers) / self.variances).max())
        return 2.0 ** math.ceil(math.log2(max(FIRST_STRENGTH * largest, least, 1e-300)))

    def diagonal(self, point: ExponentialPoint) -> Array:
        """The diagonal of H."""
        squares = self.tree.squares
        sums = point.answers if squares is self.tree else squares.apply(point.x)
        return np.asarray(np.maximum(sums - point.answers**2 / self.total, 0))

    def ridge(self, strength: float) -> Array:
        """λ = τσ²; without memory where all are the same."""
        if self.variances.strides == (0,):
            return np.broadcast_to(strength * self.variances[0], self.variances.shape)
        return np.asarray(strength * self.variances)

    def curvature(self, point: ExponentialPoint, v: Array) -> Array:
        """H v."""
        self.effort.directions += 1
        cells = self.tree.transpose(v)
        cells *= point.x
        image = self.tree.apply(cells)
        image -= point.answers * (float(point.answers @ v) / self.total)
        return image

    @cached_property
    def written(self) -> WrittenCurvature | None:
        """H written out, where numbers are few."""
        return WrittenCurvature.of(self.tree)

    @cached_property
    def consistent(self) -> AgreeingTables | None:
        """Π, where marginals were measured."""
        return AgreeingTables.of(self.tree, self.variances)

    @cached_property
    def heavy(self) -> HeavyCells | None:
        """What tells the columns of few cells, where these can be written out."""
        return HeavyCells.of(self.tree, self.variances)

    def factor(self, point: ExponentialPoint, strength: float) -> Factored | None:
        """The factor of H + λ; None where numbers are many."""
        return None if self.written is None else self.factored(self.written, point, strength)

    def factored(
        self, written: WrittenCurvature, point: ExponentialPoint, strength: float
    ) -> Factored:
        """The same for few numbers."""
        curvature = written.at(point.x)
        curvature -= np.outer(point.answers, point.answers / self.total)
        return Factored.of(curvature, self.ridge(strength))

    def solve(
        self,
        point: ExponentialPoint,
        strength: float,
        r: Array,
        share: float,
        near: Factored | None = None,
    ) -> Array:
        """A v with (H + λ) v ≈ r, guided by the factor of a point nearby if there is one."""
        ridge = self.ridge(strength)

        def apply(v: Array) -> Array:
            image = self.curvature(point, v)
            image += ridge * v
            return image

        guide = near.solve if near is not None else self._guide(point, strength)
        return guided_gradients(apply, guide, r, share)

    def _guide(self, point: ExponentialPoint, strength: float) -> Callable[[Array], Array]:
        ridge, diagonal, consistent = self.ridge(strength), self.diagonal(point), self.consistent
        if consistent is None:
            cells = self.heavy
            heavy = None if cells is None else cells.guide(point.x, strength, diagonal, ridge)
            if heavy is not None:
                return heavy
        diagonal += ridge
        if consistent is None:
            return lambda r: r / diagonal

        def guide(r: Array) -> Array:
            agreeing = consistent.project(r)
            scaled = agreeing * (ridge / diagonal)
            scaled = consistent.project(scaled)  # Πᵀ is λ⁻¹Πλ
            scaled += r
            scaled -= agreeing
            scaled /= ridge
            return scaled

        return guide

    def gap(self, gradient: Array) -> float:
        """The certificate: the root mean square of g/σ."""
        return math.sqrt(float((gradient / self.variances) @ gradient) / gradient.size)

    def step(
        self, start: ExponentialPoint, strength: float, near: Factored | None = None
    ) -> tuple[ExponentialPoint, float]:
        """The minimum of one step from a point, and its certificate."""
        near = near or self.factor(start, strength)
        objective = _Dual(self, start.theta, strength)
        point, g = start, objective.gradient(start)
        for _ in range(MOST_NEWTON_STEPS):
            if self.gap(g) <= GAP_TOLERANCE:
                break
            p = self.solve(point, strength, g, NEWTON_SHARE, near)
            np.negative(p, out=p)
            longer = objective.descend(point, g, p)
            if longer is None:
                break
            point, g = longer, objective.gradient(longer)
        return point, self.gap(g)


@dataclass(frozen=True, eq=False)
class _Dual:
    """D(θ) of one step."""

    problem: EntropyProblem
    centre: Array
    strength: float

    def gradient(self, point: ExponentialPoint) -> Array:
        gradient = point.theta - self.centre
        gradient *= self.problem.ridge(self.strength)
        gradient += point.answers
        gradient -= self.problem.values
        return np.asarray(gradient)

    def value(self, point: ExponentialPoint) -> float:
        move = point.theta - self.centre
        ridge = self.problem.ridge(self.strength)
        linear = self.problem.total * point.log_mass - float(self.problem.values @ point.theta)
        return linear + 0.5 * float(np.einsum("i,i,i", ridge, move, move))

    def descend(self, point: ExponentialPoint, g: Array, p: Array) -> ExponentialPoint | None:
        """A point along p that is lower as promised (Armijo 1966); None if there is none."""
        problem = self.problem
        most = float(problem.tree.transpose(p).max()) - float(point.answers @ p) / problem.total
        length = 1.0 if most <= LONGEST_EXPONENT_STEP else LONGEST_EXPONENT_STEP / most
        value, slope = self.value(point), float(g @ p)
        dust = 1e-13 * (abs(value) + abs(problem.total * point.log_mass))
        for _ in range(MOST_HALVINGS):
            longer = problem.point(point.theta + length * p)
            if self.value(longer) <= value + 1e-4 * length * slope + dust:
                return longer
            length *= SHRINKAGE
            del longer  # a vector of cells less while the next is made
        return None
