"""Non-negative least squares by splitting, for millions of cells: min ½xᵀXx - bᵀx over a region.

The region C is x ≥ 0, zero on some cells, perhaps with a given sum. Splitting (the alternating
direction method of multipliers; Gabay and Mercier 1976, over-relaxed as in Eckstein and Bertsekas
1992) takes turns between X alone and C alone, which are both easy:

    z ← the point of C nearest to w
    x ← (X + μI)⁻¹(b + μ(2z - w))          a closed form for most blocks (`inverse.shifted`)
    w ← w + α(x - z)

With u = w - z, what the region cut off, these are the usual steps x ← (X + μI)⁻¹(b + μ(z - u)) and
u ← u + αx + (1-α)z - z'. Only b and w are kept from step to step: z is told by w and the level that
was cut off, and the memory of one vector goes round as z, as the right side and as z again.

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
    Haar,
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
PART_CELLS = 1 << 16
"""Cells that are gone through at once, where no vector of all would fit."""
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

    def project(self, v: Array, level: float) -> RegionCut:
        """Replace v by the nearest point; return what was taken off all its positive cells.

        Σ(v - τ)₊ = total is solved for τ by Newton's method, which ends after a few steps from any
        guess since the sum is convex and piecewise linear in τ.
        """
        if self._forbidden is not None:
            np.putmask(v, self._forbidden, -np.inf)
        if self.total is None:
            np.maximum(v, 0, out=v)
            return RegionCut(0.0, 1.0)
        if self.total <= 0 or not self.allowed.any():
            v[:] = 0
            return RegionCut(level, 0.0)
        level = min(level, float(v.max()) - self.total / v.size)  # some cell is above it
        count = -1
        for _ in range(100):
            before = count
            sum_above, count = _above(v, level)
            if count == before:
                break
            level = (sum_above - self.total) / count
        v -= level
        np.maximum(v, 0, out=v)
        scale = self.total / float(v.sum())
        v *= scale
        return RegionCut(level, scale)

    def cut(self, w: Array, cut: RegionCut, out: Array) -> None:
        """The nearest point to w once more, by what is known to be taken off."""
        np.subtract(w, cut.level, out=out)
        np.maximum(out, 0, out=out)
        out *= cut.scale
        if self._forbidden is not None:
            np.putmask(out, self._forbidden, 0.0)


def _above(v: Array, level: float) -> tuple[float, int]:
    """The sum and the number of cells above a level, some cells after the other."""
    sums, count = [], 0
    for start in range(0, v.size, PART_CELLS):
        part = v[start : start + PART_CELLS]
        above = part[part > level]
        sums.append(float(above.sum()))
        count += above.size
    return math.fsum(sums), count


@dataclass(frozen=True)
class RegionCut:
    """The nearest point z of a region to w: scale · (w - level)₊, the scale all but 1."""

    level: float
    scale: float


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
    shift, gap, step = FIRST_SHIFT * form.scale, math.inf, 0
    solve = form.at(shift)
    w, v, x = np.zeros(n), np.zeros(n), np.zeros(n if form.takes_steps else 0)
    cut = region.project(v, 0.0)  # v is z from here on, until it is the right side
    most = min(max(FEWEST_STEPS, int(SPLIT_CELLS / (n * form.effort))), MOST_STEPS_OF_SPLITTING)
    while step < most and gap > tolerance:
        step += 1
        v *= 2
        v -= w
        v *= shift
        v += normal.target
        if not form.takes_steps:
            x = v  # let go of the last one: a closed form needs no guess
        x = solve(v, x)
        region.cut(w, cut, v)
        last = v.copy() if step % CHECKED_STEPS == 0 or step == most else None
        np.subtract(x, v, out=v)
        v *= RELAXATION
        w += v
        np.copyto(v, w)
        cut = region.project(v, cut.level)
        if last is None:
            continue
        last -= v
        moved = float(np.linalg.norm(last))
        np.subtract(x, v, out=last)
        apart = float(np.linalg.norm(last))
        del last
        gap = gap_of(normal, region, v, x, -shift * cut.level, floors)
        if not (apart < BALANCE * moved and moved < BALANCE * apart) and step <= most // 2:
            factor = min(max(math.sqrt(apart / max(moved, 1e-300)), 0.2), 5.0) if apart else 0.2
            shift *= factor
            w -= v
            w /= factor
            w += v
            np.copyto(v, w)
            cut = region.project(v, cut.level / factor)
            solve = form.at(shift)
    return Split(v, step, gap)


def gap_of(
    normal: NormalEquations,
    region: Region,
    z: Array,
    x: Array,
    kappa: float,
    floors: Sequence[tuple[Axes, float]],
) -> float:
    """The bound on |z - x*|_X over the noise, from any x and κ; see above."""
    distance = 0.0
    if x is not z:
        x -= z  # for a while: x - z in a vector of its own would be one more
        distance = max(float(x @ normal.apply(x)), 0.0)
        x += z
    slope = normal.apply(x)
    slope -= normal.target
    slope -= kappa
    rest = distance + 2 * float(slope @ z)
    np.negative(slope, out=slope)
    np.maximum(slope, 0, out=slope)
    slope *= region.allowed
    best = math.inf
    if region.total is not None:
        best = math.sqrt(max(rest + 2 * region.total * float(slope.max(initial=0.0)), 0.0))
    for axes, strength in floors:
        others = tuple(i for i in range(len(normal.shape)) if i not in axes)
        largest, table = slope, z
        if others:
            largest = slope.reshape(normal.shape).max(axis=others).reshape(-1)
            table = z.reshape(normal.shape).sum(axis=others).reshape(-1)
        beta = math.sqrt(float(largest @ largest) / strength)
        gamma = rest + 2 * float(largest @ table)
        best = min(best, beta + math.sqrt(max(beta**2 + gamma, 0.0)))
    cover = normal.cover
    if not cover.misses(slope):
        steepest = float(slope.max(initial=0.0))
        beta = steepest * cover.width
        gamma = rest + 2 * steepest * cover.total(z)
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
    if isinstance(a, Haar) and a.sign == -1 and a.scale == 1:
        # Of a sum s and a difference d of halves l and r, s² + d² = 2(l² + r²).
        return True, 2.0 if n > 1 else 1.0
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
