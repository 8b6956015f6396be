"""Least squares over cells that are not negative: min Σ_j c_j |A_j x - y_j|² with x ≥ 0.

With X = Σ c_j A_jᵀA_j and b = Σ c_j A_jᵀy_j the minimum is where, for every cell i,

    x_i > 0 and (Xx - b)_i = 0,   or   x_i = 0 and (Xx - b)_i ≥ 0.

Two steps, both by conjugate gradients with X applied implicitly. An interior point method
(x_i z_i = μ → 0, Xx - b = z; Wright 1997, ch. 1) finds which cells are zero in some twenty rounds,
however many there are. Then semismooth Newton steps (Hintermüller, Ito and Kunisch 2002), which
converge fast from there, solve for the others until the conditions hold.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import ShapeError, UnsupportedError
from psephos.infer.estimate import Answers
from psephos.infer.least_squares import LeastSquares
from psephos.infer.normal_equations import LinearMap, NormalEquations, conjugate_gradients
from psephos.matrix import Ones
from psephos.values import Array
from psephos.workload.workload import Workload

NONNEGATIVE_CELLS = 20_000_000
"""The most cells for which a vector that is not negative is made."""
CONDITION_TOLERANCE = 1e-8
"""How far the conditions may be missed, as a share of what noise put below zero."""
FLOAT_ERROR = 1e-14
"""What floating point leaves of b - Xx, as a share of |b|/√d."""
NEWTON_DISTANCE = 0.03
"""When Newton steps are first tried: distances from the solution, as a share of the noise."""
ROUNDING_ERROR = 1e-10
"""What lies below zero by less than this share of |b|/√d is put there by floating point."""
HELD_TOTAL_TOLERANCE = 1e-3
"""Where a fit with a held total misses the conditions by more, the total is let go."""
INTERIOR_ROUNDS = 100


def nonnegative(
    estimate: LeastSquares, *, zeros: Array | None = None, hold_total: bool = False
) -> NonNegative:
    """The cells x ≥ 0, zero where `zeros` says so, that fit all measurements best.

    If the estimate has no negative cell it is the answer. Where measurements leave directions
    open, some minimiser is returned that spreads counts evenly.

    Raising what lies below zero makes totals too large, by more the more cells are empty. With
    `hold_total` the best fit is sought among cells that add up to the estimate's total, which is
    unbiased: other cells give way, and most answers come out closer to the truth.

    >>> import psephos as ps
    >>> domain, counts = ps.Domain.of(a=3), np.array([9, 0, 0])
    >>> data = ps.simulate(counts, domain, unit=ps.add_remove_row(), budget=ps.rho(1), seed=2)
    >>> W = ps.Workload(domain, [ps.product(a=ps.identity_total())])
    >>> estimate = ps.infer.least_squares(data.vectorise().measure(W.query, spend=ps.rho(1)))
    >>> estimate.vector.round(2)
    array([ 8., -1.,  1.])
    >>> nonnegative(estimate).vector.round(2)
    array([7.67, 0.  , 0.67])
    >>> nonnegative(estimate, hold_total=True).vector.round(2)
    array([7.5, 0. , 0.5])
    """
    cells = estimate.domain.size
    if cells > NONNEGATIVE_CELLS:
        raise UnsupportedError(
            f"the published view needs a vector of all cells, at most {NONNEGATIVE_CELLS:,}, and "
            f"{estimate.domain} has {cells:,}; the raw and the consistent view remain"
        )
    zeros = None if zeros is None else check_zeros(zeros, cells)
    normal = NormalEquations.of(estimate)
    allowed = ~normal.merged_zeros(zeros)
    equations = normal.with_total(_total(estimate)) if hold_total else normal
    x, violation = _solve(equations, allowed)
    if (
        hold_total and violation > HELD_TOTAL_TOLERANCE
    ):  # better a total that moved than no solution
        x, violation = _solve(normal, allowed)
    if violation > CONDITION_TOLERANCE:
        warnings.warn(
            f"the best fit without negative cells is met to {violation:.0e} of the noise, not to "
            f"{CONDITION_TOLERANCE:.0e}; these measurements differ too much in their precision",
            RuntimeWarning,
            stacklevel=2,
        )
    return NonNegative(estimate.domain, normal.spread(x, zeros), estimate.simulation)


@dataclass(frozen=True, eq=False, repr=False)
class NonNegative:
    """An estimate of every cell with none below zero; biased, since noise is cut off there."""

    domain: Domain
    vector: Array
    simulation: bool = False
    biased: ClassVar[bool] = True

    def answer(self, workload: Workload) -> Answers:
        """The answers W x of a workload; their standard errors are not known."""
        Workload.require(workload, self.domain)
        krons = [workload.kron(i) for i in range(len(workload.products))]
        values = np.concatenate([kron @ self.vector for kron in krons])
        return Answers(workload, values, biased=True, simulation=self.simulation)

    def __repr__(self) -> str:
        mark = "Simulated non-negative" if self.simulation else "Non-negative"
        return f"{mark} estimate({self.vector.size:,} cells over {self.domain})"


def _total(estimate: LeastSquares) -> float | None:
    """The estimate's total, not negative; None if the measurements do not tell it."""
    factors = tuple(Ones(1, n) for n in estimate.domain.shape)
    if not estimate.form.covers(factors):
        return None
    return max(0.0, float(estimate.fitted.answers(factors)[0]))


def check_zeros(zeros: Array, cells: int) -> Array:
    """A flag for every cell."""
    flags = np.asarray(zeros)
    if flags.dtype != bool or flags.size != cells:
        raise ShapeError(
            f"zeros is one truth value for each of {cells:,} cells, got {flags.dtype} of shape "
            f"{flags.shape}"
        )
    return flags.reshape(-1)


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

    @classmethod
    def of(cls, normal: NormalEquations, live: Array, noise: float) -> NonNegativeProblem:
        """Conditions are met to a share of the noise, or as far as floating point can tell."""
        diagonal = np.where(live, normal.diagonal, 1.0)
        largest = float(np.abs(normal.target / np.sqrt(diagonal)).max())
        tolerance = max(CONDITION_TOLERANCE, FLOAT_ERROR * largest / noise)
        return cls(normal.apply, normal.target, diagonal, live, noise, tolerance, normal.stiff)

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


def _solve(normal: NormalEquations, allowed: Array) -> tuple[Array, float]:
    """The best fit, and how far it misses the conditions beyond what floats can tell."""
    live = allowed & (normal.diagonal > 0)
    noise = _negative_size(normal, allowed)
    if noise == 0 or not live.any():
        return np.where(allowed, np.maximum(normal.solution, 0), 0.0), 0.0
    return _interior(NonNegativeProblem.of(normal, live, noise), normal.solution)


def _negative_size(normal: NormalEquations, allowed: Array) -> float:
    """The size of what noise put below zero, or where zeros must be; 0 if that is rounding."""
    root = np.sqrt(normal.diagonal)
    below = np.where(allowed, np.minimum(normal.solution, 0), normal.solution) * root
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


def _interior(problem: NonNegativeProblem, start: Array) -> tuple[Array, float]:
    """Interior point rounds, and Newton steps as soon as they may succeed."""
    d, live, noise = problem.diagonal, problem.live, problem.noise
    # On the central path of a diagonal X: x z = noise² and d (x - start) = z.
    x = (start + np.sqrt(start**2 + 4 * noise**2 / d)) / 2
    x = np.where(live, np.maximum(x, 1e-9 * noise / np.sqrt(d)), 0.0)
    point = _Point.at(problem, x, _ratio(noise**2, x, live))
    best, least, near = np.where(live, np.maximum(start, 0), 0.0), np.inf, NEWTON_DISTANCE
    for _ in range(INTERIOR_ROUNDS):
        if not np.isfinite(point.off + point.mean):
            break
        if max(point.off, point.mean) < near:
            candidate, violation = _newton(problem, point.x, point.x * d >= point.z)
            if violation < least:
                best, least = candidate, violation
            if least <= problem.tolerance:
                return best, 0.0
            near /= 30
        point = _round(problem, point)
    return best, float(least)


def _round(problem: NonNegativeProblem, point: _Point) -> _Point:
    """One step towards a fifth of the present x z."""
    d, live, x, z = problem.diagonal, problem.live, point.x, point.z
    aim = _ratio(0.2 * point.mean * problem.noise**2, x, live)
    ratio = _ratio(z, x, live)

    def apply(v: Array) -> Array:
        image = problem.apply(v)
        image *= live
        image += ratio * v
        return image

    stiff = problem.stiff_direction(live)
    step = conjugate_gradients(apply, d + ratio, aim - point.gradient, 1e-2, stiff=stiff)
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

        def apply(v: Array, free: Array = free) -> Array:
            image = problem.apply(v)
            image *= free
            return image

        x = np.where(free, x, 0.0)
        rest = np.where(free, -problem.gradient(x), 0.0)
        enough = 0.5 * problem.tolerance * problem.noise
        stiff = problem.stiff_direction(free)
        x = x + conjugate_gradients(apply, problem.diagonal, rest, 1e-3, enough, stiff=stiff)
        gradient = problem.gradient(x)
        violation = problem.violation(x, gradient)
        worse = worse + 1
        if violation < least:
            best, least, worse = np.maximum(x, 0), violation, 0
        if least <= problem.tolerance:
            break
        free = (x - gradient / problem.diagonal > 0) & problem.live
    return best, least
