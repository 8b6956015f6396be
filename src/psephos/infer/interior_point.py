"""Non-negative least squares to many digits, for some thousand cells or nested groups of millions.

With X = Σ c_j A_jᵀA_j and b = Σ c_j A_jᵀy_j the minimum of ½xᵀXx - bᵀx is where, for every cell i,

    x_i > 0 and (Xx - b)_i = 0,   or   x_i = 0 and (Xx - b)_i ≥ 0.

Two steps, each a system with X and a diagonal, solved by conjugate gradients with X applied
implicitly, or exactly where blocks are nested groups (`inverse.nested_gram`). An interior point
method (x_i z_i = μ → 0, Xx - b = z; Wright 1997, ch. 1) finds which cells are zero in some twenty
rounds, however many there are. Then semismooth Newton steps (Hintermüller, Ito and Kunisch 2002),
which converge fast from there, solve for the others until the conditions hold. A total that is held
counts as one more measurement, a thousand times as precise as what there is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from psephos.infer.normal_equations import NormalEquations, conjugate_gradients
from psephos.inverse.gram_map import LinearMap
from psephos.inverse.nested_gram import NestedGram
from psephos.values import Array

CONDITION_TOLERANCE = 1e-8
"""How far the conditions may be missed, as a share of what noise put below zero."""
FLOAT_ERROR = 1e-14
"""What floating point leaves of b - Xx, as a share of |b|/√d."""
NEWTON_DISTANCE = 0.03
"""When Newton steps are first tried: distances from the solution, as a share of the noise."""
ROUNDING_ERROR = 1e-10
"""What lies below zero by less than this share of |b|/√d is put there by floating point."""
INTERIOR_ROUNDS = 100
TOTAL_CORRECTIONS = 2
"""Corrections of a held total, each of which leaves a thousandth of its error."""


@dataclass(frozen=True, eq=False)
class NonNegativeProblem:
    """min ½xᵀXx - bᵀx over x ≥ 0 on some cells; d is the diagonal of X, `noise` a size of √d·x.

    `stiff` is the multiple of 11ᵀ in X, where a total is held; d leaves it out.
    """

    apply: LinearMap
    target: Array
    diagonal: Array
    live: Array
    noise: float
    tolerance: float
    stiff: float
    tree: NestedGram | None
    """X as nested groups, the total included, where that is what it is."""

    @classmethod
    def of(cls, normal: NormalEquations, live: Array, noise: float) -> NonNegativeProblem:
        """Conditions are met to a share of the noise, or as far as floating point can tell."""
        diagonal = np.where(live, normal.diagonal, 1.0)
        largest = float(np.abs(normal.target / np.sqrt(diagonal)).max())
        tolerance = max(CONDITION_TOLERANCE, FLOAT_ERROR * largest / noise)
        tree = normal.nested
        apply = normal.apply if tree is None else tree.apply
        return cls(apply, normal.target, diagonal, live, noise, tolerance, normal.stiff, tree)

    def solve(
        self, cells: Array, extra: Array, r: Array, share: float, floor: float = 0.0
    ) -> Array:
        """A p on some cells with (X + diag(extra)) p ≈ r there, zero elsewhere; r is zero there."""
        if self.tree is not None:
            return self.tree.solve(np.where(cells, extra, np.inf), r)

        def apply(v: Array) -> Array:
            image = self.apply(v)
            image *= cells
            image += extra * v
            return image

        stiff = self.stiff_direction(cells)
        return conjugate_gradients(apply, self.diagonal + extra, r, share, floor, stiff=stiff)

    def stiff_direction(self, cells: Array) -> tuple[float, Array] | None:
        """The direction of a held total, among some cells."""
        return (self.stiff, cells.astype(float)) if self.stiff else None

    def gradient(self, x: Array) -> Array:
        """Xx - b, on the live cells."""
        gradient = self.apply(x)
        gradient -= self.target
        gradient *= self.live
        return gradient

    def violation(self, x: Array, gradient: Array) -> float:
        """How far the conditions are missed: |x - max(x - g/d, 0)|, as a share of the noise."""
        gap = np.abs(x - np.maximum(x - gradient / self.diagonal, 0))
        return float((gap * np.sqrt(self.diagonal)).max()) / self.noise


def interior_point(
    normal: NormalEquations, allowed: Array, total: float | None
) -> tuple[Array, int]:
    """The best fit, or as near as it came, and the number of rounds."""
    live = allowed & (normal.diagonal > 0)
    # Something is below zero, or a total differs; a cell's own noise is the scale if it is that.
    noise = negative_size(normal, allowed) or normal.noise / math.sqrt(allowed.size)
    if not live.any():
        return np.where(allowed, np.maximum(normal.solution(), 0), 0.0), 0
    problem = NonNegativeProblem.of(normal.with_total(total), live, noise)
    x, rounds = _interior(problem, normal.solution())
    if total is None:
        return x, rounds
    for _ in range(TOTAL_CORRECTIONS):
        # The method of multipliers: what the total is short of is asked for on top.
        short = total - float(x.sum())
        problem = replace(problem, target=problem.target + problem.stiff * short)
        x, rounds = _newton(problem, x, x > 0)[0], rounds + 1
    return x, rounds


def negative_size(normal: NormalEquations, allowed: Array) -> float:
    """The size of what noise put below zero, or where zeros must be; 0 if that is rounding."""
    root = np.sqrt(normal.diagonal)
    solution = normal.solution()
    below = np.where(allowed, np.minimum(solution, 0), solution) * root
    size = float(np.sqrt((below**2).sum() / max(np.count_nonzero(below), 1)))
    root[root == 0] = 1
    return size if size > ROUNDING_ERROR * float(np.abs(normal.target / root).max()) else 0.0


@dataclass(frozen=True, eq=False)
class _Point:
    """x and z > 0; `off` is how far Xx - b is from z, `mean` that of x z, both as noise."""

    x: Array
    z: Array
    gradient: Array
    off: float
    mean: float

    @classmethod
    def at(cls, problem: NonNegativeProblem, x: Array, z: Array) -> _Point:
        gradient, count = problem.gradient(x), problem.live.sum()
        off = np.sqrt(((gradient - z) ** 2 / problem.diagonal).sum() / count)
        mean = x @ z / count
        return cls(x, z, gradient, float(off) / problem.noise, float(mean) / problem.noise**2)


def _interior(problem: NonNegativeProblem, start: Array) -> tuple[Array, int]:
    """Interior point rounds, and Newton steps as soon as they may succeed."""
    d, live, noise = problem.diagonal, problem.live, problem.noise
    # On the central path of a diagonal X: x z = noise² and d (x - start) = z.
    x = (start + np.sqrt(start**2 + 4 * noise**2 / d)) / 2
    x = np.where(live, np.maximum(x, 1e-9 * noise / np.sqrt(d)), 0.0)
    point = _Point.at(problem, x, _ratio(noise**2, x, live))
    best, least, near = np.where(live, np.maximum(start, 0), 0.0), np.inf, NEWTON_DISTANCE
    rounds = 0
    while rounds < INTERIOR_ROUNDS:
        rounds += 1
        if not np.isfinite(point.off + point.mean):
            break
        if max(point.off, point.mean) < near:
            candidate, violation = _newton(problem, point.x, point.x * d >= point.z)
            if violation < least:
                best, least = candidate, violation
            if least <= problem.tolerance:
                break
            near /= 30
        point = _round(problem, point)
    return best, rounds


def _round(problem: NonNegativeProblem, point: _Point) -> _Point:
    """One step towards a fifth of the present x z."""
    live, x, z = problem.live, point.x, point.z
    aim = _ratio(0.2 * point.mean * problem.noise**2, x, live)
    ratio = _ratio(z, x, live)
    step = problem.solve(live, ratio, aim - point.gradient, 1e-2)
    z_step = aim - z - ratio * step
    length = min(1.0, 0.99 * _longest_step(x, step, live), 0.99 * _longest_step(z, z_step, live))
    if length < 0.9:
        # A few cells near zero shorten the step of all; it is better to hold just them back.
        cut = _Point.at(problem, np.maximum(x + step, 0.1 * x), np.maximum(z + z_step, 0.1 * z))
        if cut.off + cut.mean < (1 - length) * (point.off + point.mean):
            return cut
    return _Point.at(problem, x + length * step, z + length * z_step)


def _ratio(a: Array | float, x: Array, live: Array) -> Array:
    """a/x on the live cells, zero elsewhere."""
    return np.divide(a, x, out=np.zeros_like(x), where=live)


def _longest_step(x: Array, step: Array, live: Array) -> float:
    """The longest multiple of a step that keeps x ≥ 0."""
    fall = float(_ratio(-step, x, live).max())
    return 1 / fall if fall > 0 else np.inf


def _newton(problem: NonNegativeProblem, x: Array, free: Array) -> tuple[Array, float]:
    """Solve on the free cells, hold those that go below zero, free those that push up; repeat."""
    best, least, worse = x, np.inf, 0
    free = free & problem.live
    while worse < 6:
        x = np.where(free, x, 0.0)
        rest = np.where(free, -problem.gradient(x), 0.0)
        enough = 0.5 * problem.tolerance * problem.noise
        x = x + problem.solve(free, np.zeros(x.size), rest, 1e-3, enough)
        gradient = problem.gradient(x)
        violation = problem.violation(x, gradient)
        worse = worse + 1
        if violation < least:
            best, least, worse = np.maximum(x, 0), violation, 0
        if least <= problem.tolerance:
            break
        free = (x - gradient / problem.diagonal > 0) & problem.live
    return best, least
