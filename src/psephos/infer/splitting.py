"""Non-negative least squares by splitting, for millions of cells: min ½xᵀXx - bᵀx over a region.

The region C is x ≥ 0, zero on some cells, perhaps with a given sum. Splitting (the alternating
direction method of multipliers; Gabay and Mercier 1976, over-relaxed as in Eckstein and Bertsekas
1992) takes turns between X alone and C alone, which are both easy:

    x ← (X + μI)⁻¹(b + μ(z - u))          a closed form for most blocks (`inverse.shifted`)
    z ← the point of C nearest to αx + (1-α)z + u,     u ← αx + (1-α)z + u - z

Every z is in C, exactly, so it can end at any step. How far it then is from the best x* is bounded
without knowing x*. Let g = Xx - b for any x, κ any number (zero unless sums are given), and
v = (κ - g)₊ on the cells that may be positive. Convexity gives

    ½|z - x*|²_X ≤ f(z) - f(x*) ≤ ½|z - x|²_X + g·(z - x*)
                ≤ ½|z - x|²_X + (g - κ)·z + v·x*,

the first step because x* is best in C, the second from f(x*) ≥ f(x) + g·(x* - x), the third
because z and x* have one sum (or κ = 0) and x* ≥ 0. What is left is v·x*. A block that dominates a
marginal, X ≥ ωMᵀM, gives with q the largest v in every cell of that marginal

    v·x* ≤ q·Mx* ≤ q·Mz + |q| |z - x*|_X / √ω,

so d = |z - x*|_X has d² ≤ 2βd + γ with β = |q|/√ω and γ = |z - x|²_X + 2(g - κ)·z + 2q·Mz, that is
d ≤ β + √(β² + γ). If sums are given, v·x* ≤ (the sum)·max v as well. Where no block dominates a
marginal but rows that are whole and not negative reach every cell with v > 0, all of these rows
serve as M, with the number max v for each in place of q: v·x* ≤ max v · 1ᵀMx*. The least bound,
over the size of the noise in the same norm, is the `gap`: in the norm of the measurements it bounds
the root mean square of A(z - x*)/σ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psephos.infer.normal_equations import NormalEquations
from psephos.inverse.shifted import shifted_form
from psephos.matrix import (
    AllRange,
    Diagonal,
    Identity,
    Kron,
    Matrix,
    Ones,
    PIdentity,
    Prefix,
    Scaled,
    Stack,
)
from psephos.matrix.marginals import Axes
from psephos.values import Array

RELAXATION = 1.8
"""α, between 1 and 2."""
FIRST_SHIFT = 0.1
"""μ at first, as a share of the geometric mean of X's eigenvalues."""
CHECKED_STEPS = 20
"""Steps between two looks at the gap and at μ."""
BALANCE = 4.0
"""Where x - z and the last change of z differ by more than this factor, μ is changed."""
FEWEST_STEPS, MOST_STEPS_OF_SPLITTING = 200, 20_000
"""The most steps for very many cells, and for very few."""
SPLIT_CELLS = 700_000_000
"""Cells gone through by all steps, between these."""
MOST_FLOORS = 4
"""Marginals, the finest ones, from which the gap is bounded."""
WRITTEN_FLOOR_AXIS = 512
"""The longest axis on which the least eigenvalue of a factor is computed."""


@dataclass(frozen=True, eq=False)
class Region:
    """Cells x ≥ 0, zero where not `allowed`, that add up to `total` if there is one.

    >>> Region(np.array([True, True, False]), 4.0).nearest(np.array([3.0, 2.0, 9.0]))
    array([2.5, 1.5, 0. ])
    """

    allowed: Array
    total: float | None = None

    @cached_property
    def _forbidden(self) -> Array | None:
        return None if self.allowed.all() else ~self.allowed

    def nearest(self, v: Array) -> Array:
        """The nearest point of the region."""
        z = np.array(v, dtype=float)
        self.project(z, 0.0)
        return z

    def project(self, v: Array, level: float) -> float:
        """Replace v by the nearest point; return what was taken off all its positive cells.

        Σ(v - τ)₊ = total is solved for τ by Newton's method, which ends after a few steps from any
        guess since the sum is convex and piecewise linear in τ.
        """
        if self._forbidden is not None:
            np.putmask(v, self._forbidden, -np.inf)
        if self.total is None:
            np.maximum(v, 0, out=v)
            return 0.0
        if self.total <= 0 or not self.allowed.any():
            v[:] = 0
            return level
        level = min(level, float(v.max()) - self.total / v.size)  # some cell is above it
        count = -1
        for _ in range(100):
            above = v[v > level]
            before, count = count, above.size
            if count == before:
                break
            level = (float(above.sum()) - self.total) / count
        v -= level
        np.maximum(v, 0, out=v)
        v *= self.total / float(v.sum())
        return level


@dataclass(frozen=True, eq=False)
class Split:
    """A point of the region, the steps taken to it, and the bound on its distance to the best."""

    cells: Array
    steps: int
    gap: float


def split(normal: NormalEquations, region: Region, tolerance: float) -> Split:
    """The best point of a region, to a gap of `tolerance` or after a number of steps."""
    n = normal.target.size
    form, floors = shifted_form(normal.blocks, normal.weights, normal.shape), floors_of(normal)
    shift, level, gap, step = FIRST_SHIFT * form.scale, 0.0, math.inf, 0
    solve = form.at(shift)
    x, u, z, v = np.zeros(n), np.zeros(n), np.zeros(n), np.empty(n)
    most = min(max(FEWEST_STEPS, int(SPLIT_CELLS / (n * form.effort))), MOST_STEPS_OF_SPLITTING)
    while step < most and gap > tolerance:
        step += 1
        np.subtract(z, u, out=v)
        v *= shift
        v += normal.target
        x = solve(v, x)
        np.multiply(z, 1 - RELAXATION, out=v)
        u += v
        u += np.multiply(x, RELAXATION, out=v)
        np.copyto(v, u)
        level = region.project(v, level)
        u -= v
        z, v = v, z
        if step % CHECKED_STEPS and step < most:
            continue
        gap = gap_of(normal, region, z, x, -shift * level, floors)
        v -= z  # the last change
        moved = float(np.linalg.norm(v))
        apart = float(np.linalg.norm(np.subtract(x, z, out=v)))
        if not (apart < BALANCE * moved and moved < BALANCE * apart) and step <= most // 2:
            factor = min(max(math.sqrt(apart / max(moved, 1e-300)), 0.2), 5.0) if apart else 0.2
            shift, level = shift * factor, level / factor
            u /= factor
            solve = form.at(shift)
    return Split(z, step, gap)


def gap_of(
    normal: NormalEquations,
    region: Region,
    z: Array,
    x: Array,
    kappa: float,
    floors: Sequence[tuple[Axes, float]],
) -> float:
    """The bound on |z - x*|_X over the noise, from any x and κ; see above."""
    slope = normal.apply(x)
    across = normal.apply(z)
    across -= slope
    slope -= normal.target
    slope -= kappa
    rest = max(float(z @ across) - float(x @ across), 0.0) + 2 * float(slope @ z)
    np.negative(slope, out=slope)
    np.maximum(slope, 0, out=slope)
    slope *= region.allowed
    best = math.inf
    if region.total is not None:
        best = math.sqrt(max(rest + 2 * region.total * float(slope.max(initial=0.0)), 0.0))
    for axes, strength in floors:
        others = tuple(i for i in range(len(normal.shape)) if i not in axes)
        largest = slope.reshape(normal.shape).max(axis=others)
        table = z.reshape(normal.shape).sum(axis=others)
        beta = math.sqrt(float((largest**2).sum()) / strength)
        gamma = rest + 2 * float((largest * table).sum())
        best = min(best, beta + math.sqrt(max(beta**2 + gamma, 0.0)))
    cover = normal.cover
    if not slope[cover.sums == 0].any():
        steepest = float(slope.max(initial=0.0))
        beta = steepest * cover.width
        gamma = rest + 2 * steepest * float(cover.sums @ z)
        best = min(best, beta + math.sqrt(max(beta**2 + gamma, 0.0)))
    return best / normal.noise if normal.noise else best


def floors_of(normal: NormalEquations) -> list[tuple[Axes, float]]:
    """Marginals M by their axes, and ω with X ≥ ωMᵀM: the finest ones that blocks dominate.

    A product of factors with A_iᵀA_i ≥ ωI or ≥ ω11ᵀ dominates such a marginal.
    """
    floors: dict[Axes, float] = {}
    known: dict[int, tuple[bool, float]] = {}
    for block, c in zip(normal.blocks, normal.weights, strict=True):
        factors = block.factors if isinstance(block, Kron) else (block,)
        whole = tuple(f.shape[1] for f in factors) != normal.shape
        axes: list[int] = []
        strength = c
        for i, factor in enumerate((block,) if whole else factors):
            if id(factor) not in known:
                known[id(factor)] = factor_floor(factor)
            each, floor = known[id(factor)]
            strength *= floor
            if each:
                axes.extend(range(len(normal.shape)) if whole else [i])
        if strength > 0:
            floors[tuple(axes)] = floors.get(tuple(axes), 0.0) + strength

    def finest(item: tuple[Axes, float]) -> float:
        return -math.prod(float(normal.shape[i]) for i in item[0])

    return sorted(floors.items(), key=finest)[:MOST_FLOORS]


def factor_floor(a: Matrix) -> tuple[bool, float]:
    """(True, ω) with AᵀA ≥ ωI, else (False, ω) with AᵀA ≥ ω11ᵀ; zero where neither is known.

    >>> factor_floor(PIdentity([3, 2], [[1, 1]])), factor_floor(Ones(4, 5))
    ((True, 4.0), (False, 4.0))
    """
    n = a.shape[1]
    if isinstance(a, Identity | AllRange):
        return True, 1.0
    if isinstance(a, Prefix):  # cells are differences of two prefixes: |x|² ≤ 4|Ax|²
        return True, 0.25
    if isinstance(a, Ones):
        return False, float(a.m)
    if isinstance(a, PIdentity):
        return True, float(a.diagonal.min()) ** 2
    if isinstance(a, Diagonal) and (a.weights != 0).all():
        return True, float(np.abs(a.weights).min()) ** 2
    if isinstance(a, Scaled):
        each, floor = factor_floor(a.base)
        return each, floor * float(a.factor) ** 2
    if isinstance(a, Kron):
        floors = [factor_floor(f) for f in a.factors]
        same = len({each for each, _ in floors}) == 1
        return floors[0][0], math.prod(floor for _, floor in floors) if same else 0.0
    if isinstance(a, Stack):
        floors = [factor_floor(part) for part in a.parts]
        return max((floor for floor in floors if floor[1] > 0), default=(False, 0.0))
    if n > WRITTEN_FLOOR_AXIS:
        return False, 0.0
    values, vectors = np.linalg.eigh(a.gram().dense(limit=n * n).astype(float))
    inside = values > 1e-10 * values[-1]
    if inside.all():
        return True, float(values[0])
    ones = vectors.sum(axis=0)
    if (ones[~inside] ** 2).sum() > 1e-9 * n:
        return False, 0.0
    return False, float(1 / (ones[inside] ** 2 / values[inside]).sum())
