"""The error of a range tree and its gradient, by one pass up the levels and one down.

In `inverse.tree` each level is one b x b problem, and hands three numbers to the level above: with
v the shares of the children, a their positions, and y, λ, e those of one child,

    R = (I/y + c AᵀA)⁻¹     y' = 1ᵀR1     λ' = vᵀa - vᵀmin(a, a)v + λ vᵀv     e' = e vᵀv.

Where the block's total is known, a Gram asks of it N blocks times tr(R̃ Γ) with R̃ = R - R11ᵀR/y'
and Γ = α min(a, a) + β aaᵀ + (ι e - α λ) I. The gradient runs back through the same numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from psephos.inverse.range_gram import LineGram
from psephos.values import Array
from psephos.variances import NoiseKind

TreeLevels = tuple[tuple[Array, Array], ...]


@dataclass(frozen=True, eq=False)
class _BlockSummary:
    """What one block tells its parent: y, λ, uᵀu and the mean position of u."""

    variance: float = math.inf
    gap: float = 0.0
    energy: float = 1.0
    mean: float = 0.0


@dataclass(frozen=True, eq=False)
class _LevelPass:
    """One level on the way up, kept for the way down."""

    below: _BlockSummary
    blocks: float  # N
    precision: float
    diagonal: Array
    rows: Array
    gram: Array  # AᵀA
    covariance: Array  # R
    sums: Array  # R1
    total: float  # y'
    share: Array  # v = R1/y'
    offsets: Array
    reduced_gram: Array  # N Γ, or the whole reduced Gram at the root


@dataclass(frozen=True, eq=False)
class RangeTreeObjective:
    """log of ‖A‖²·tr(X⁻¹G) as a function of the levels' entries and of log weights.

    Level ℓ has entries E ≥ 0 of p_ℓ + 1 rows, the first being the diagonal; its columns are scaled
    to norm one (L1 for Laplace noise, L2 for Gaussian). Weights sum to one, and a level of weight w
    has precision w² under Laplace noise and w under Gaussian noise, so that ‖A‖ = 1.
    """

    fanouts: tuple[int, ...]
    rows: tuple[int, ...]
    gram: LineGram
    noise: NoiseKind

    @property
    def cells(self) -> int:
        """All leaves of the tree."""
        return math.prod(self.fanouts)

    def pack(self, logs: Array, entries: list[Array]) -> Array:
        """One vector of all that varies."""
        return np.concatenate([logs, *(e.ravel() for e in entries)])

    def unpack(self, x: Array) -> tuple[Array, list[Array]]:
        """Weights, and the unscaled entries of each level."""
        depth = len(self.fanouts)
        logs = x[:depth]
        weights = np.exp(logs - logs.max())
        entries, start = [], depth
        for b, p in zip(self.fanouts, self.rows, strict=True):
            entries.append(x[start : start + (p + 1) * b].reshape(p + 1, b))
            start += (p + 1) * b
        return weights / weights.sum(), entries

    def levels(self, x: Array) -> tuple[Array, TreeLevels]:
        """Weights, and (d, B) of each level with columns of norm one."""
        weights, entries = self.unpack(x)
        scaled = [e / self._norms(e) for e in entries]
        return weights, tuple((e[0].copy(), e[1:].copy()) for e in scaled)

    def _norms(self, entries: Array) -> Array:
        if self.noise.norm == 1:
            return np.asarray(entries.sum(axis=0))
        return np.asarray(np.sqrt((entries**2).sum(axis=0)))

    def __call__(self, x: Array) -> tuple[float, Array]:
        """The value and the gradient."""
        weights, entries = self.unpack(x)
        precisions = weights**self.noise.power
        norms = [self._norms(e) for e in entries]
        steps: list[_LevelPass] = []
        error, width, below = 0.0, 1, _BlockSummary()
        for i in reversed(range(len(self.fanouts))):
            step = self._up(entries[i] / norms[i], float(precisions[i]), width, below, i == 0)
            error += float((step.covariance * step.reduced_gram).sum())
            if i > 0:
                error -= float(step.sums @ step.reduced_gram @ step.sums) / step.total
            steps.append(step)
            below = _summary(step)
            width *= self.fanouts[i]
        slopes, by_precision, by_below = [], [], np.zeros(4)
        for i, step in enumerate(reversed(steps)):
            by_level, by_c, by_below = self._down(step, by_below, i == 0)
            scaled = entries[i] / norms[i]
            along = (by_level * scaled).sum(axis=0)
            along = along if self.noise.norm == 1 else scaled * along
            slopes.append((by_level - along) / norms[i])
            by_precision.append(by_c)
        power = self.noise.power
        by_weight = np.array(by_precision) * (power * weights ** (power - 1))
        by_log = weights * (by_weight - by_weight @ weights)
        return math.log(error), self.pack(by_log, slopes) / error

    def _up(
        self, level: Array, precision: float, width: int, below: _BlockSummary, is_root: bool
    ) -> _LevelPass:
        """R and what is asked of it, for one level."""
        b = level.shape[1]
        diagonal, rows = level[0], level[1:]
        level_gram = rows.T @ rows
        level_gram.flat[:: b + 1] += diagonal**2
        covariance = np.linalg.inv(precision * level_gram + np.eye(b) / below.variance)
        sums = covariance.sum(axis=1)
        total = float(sums.sum())
        g = self.gram
        offsets = width * np.arange(float(b))
        a = offsets + below.mean if is_root else offsets
        reduced_gram = g.minimum * np.minimum.outer(a, a) + g.product * np.outer(a, a)
        reduced_gram.flat[:: b + 1] += g.identity * below.energy - g.minimum * below.gap
        if is_root:
            reduced_gram += g.sum * np.add.outer(a, a) + g.constant
        blocks = float(self.cells // (b * width))
        reduced_gram *= blocks
        level_terms = (precision, diagonal, rows, level_gram, covariance, sums, total, sums / total)
        return _LevelPass(below, blocks, *level_terms, offsets, reduced_gram)

    def _down(self, step: _LevelPass, by_above: Array, is_root: bool) -> tuple[Array, float, Array]:
        """Derivatives by the level's entries, its precision, and the four numbers of its child."""
        by_y, by_gap, by_energy, by_mean = by_above
        r, y, v, a, below = step.sums, step.total, step.share, step.offsets, step.below
        least = np.minimum.outer(a, a)
        by_v = by_gap * (a - 2 * least @ v + 2 * below.gap * v)
        by_v += 2 * by_energy * below.energy * v + by_mean * a
        spread = float(np.trace(step.covariance))
        g = self.gram
        if is_root:
            by_r = np.zeros(r.shape)
            at = a + below.mean
            by_mean = g.minimum * y + 2 * g.product * float(r @ at) + 2 * g.sum * y
        else:
            through = step.reduced_gram @ r
            by_r = -2 * through / y
            by_y = by_y + float(r @ through) / y**2
            spread = step.blocks * (spread - float(r @ r) / y)
        by_r = by_r + by_v / y + (by_y - float(by_v @ v) / y)
        side = np.outer(step.covariance @ by_r, r)
        by_inverse = -(step.covariance @ step.reduced_gram @ step.covariance) - (side + side.T) / 2
        by_level = np.vstack([step.diagonal * np.diagonal(by_inverse), step.rows @ by_inverse])
        by_level *= 2 * step.precision
        vv = float(v @ v)
        by_below = [
            -float(np.trace(by_inverse)) / below.variance**2,
            by_gap * vv - g.minimum * spread,
            by_energy * vv + g.identity * spread,
            by_mean,
        ]
        return by_level, float((by_inverse * step.gram).sum()), np.array(by_below)


def _summary(step: _LevelPass) -> _BlockSummary:
    """The four numbers of a block, from those of its children."""
    v, a, below = step.share, step.offsets, step.below
    vv = float(v @ v)
    return _BlockSummary(
        step.total,
        float(v @ a - v @ np.minimum.outer(a, a) @ v) + below.gap * vv,
        below.energy * vv,
        float(v @ a) + below.mean,
    )
