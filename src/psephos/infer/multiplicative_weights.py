"""Multiplicative weights: from a start, row after row pulls its cells up or down, the total kept.

    x ← x · exp(q (y - q·x) / 2N),    x ← x · N / Σx

for every measured row q with its noisy answer y, in order, a number of times (Hardt, Ligett and
McSherry 2012; Zhang et al. 2020). Cells stay positive and add up to N; where no row tells cells
apart they keep the proportions of the start. A row whose largest entry is not 1 is divided by it,
with its answer, and the step of a noisier row is shortened in proportion to its precision: with 0/1
rows of equal noise both change nothing.

*No row is written out that need not be.* Cells with equal columns are one cell here, exactly, since
they get the same factors. A row of one weight multiplies its cells by one number f, and the sum
outside of it is known, so the second step is a factor for all cells, N / (N + (f - 1) q·x), which
is kept as one number beside them. Rows that have no cell in common need each other for that number
only: with their sums S_i at hand a whole partition is a recursion c_i+1 = c_i N / (N + (f_i - 1)
c_i S_i) on single numbers, f_i a function of c_i, and its cells are written once. The recursion is
solved for all rows at once, from c_i = c_1 on: every repetition makes one more c_i right for good,
and the factors are so near to 1 that a few repetitions do for all.

*Rows without structure that are too many to write out* move together,

    x ← x · exp(Aᵀ(y - Ax) / (2N a Δ)),

with a the largest entry of A and Δ its largest column sum: no cell moves further than by the rows
one after the other, and disjoint 0/1 rows move as they would alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from psephos.errors import RefusedError, UnsupportedError
from psephos.infer.estimate import CellEstimate
from psephos.infer.expanded import check_total
from psephos.infer.least_squares import block_answers, common_domain
from psephos.infer.nonnegative import NONNEGATIVE_CELLS
from psephos.infer.normal_equations import merged_cells
from psephos.infer.prior_model import check_prior
from psephos.inverse.choice import precision
from psephos.inverse.merged_cells import Merging
from psephos.inverse.nested import level_of
from psephos.kernel.measurement import Measurement
from psephos.kernel.sensitivity import largest_entry
from psephos.matrix import Compose, Kron, Matrix, Stack, compose
from psephos.matrix.combine import places_of
from psephos.values import Array

WRITTEN_ROW_ENTRIES = 20_000_000
"""The most entries of rows that are written out, of one block, on merged cells."""
LARGEST_EXPONENT = 100.0
"""Steps beyond this are cut: noise far above the total would overflow."""
SCALE_REPETITIONS = 20
"""How often the scales of disjoint rows are worked out anew before they are taken one by one."""
SETTLED = 1e-11
"""Scales that move by less, as a share of the first, are right."""
FEW_ROWS = 32
"""So few disjoint rows are quicker one by one."""


def multiplicative_weights(
    measurements: Measurement | Iterable[Measurement],
    *,
    total: float,
    passes: int = 50,
    start: Array | None = None,
) -> CellEstimate:
    """Positive cells that add up to a total, pulled from a start towards all measurements.

    Args:
        measurements: of one data set; rows are gone through in their order
        total: the number of rows of the table, which has to be public or estimated before
        passes: how often to go through all rows
        start: a public table, or an earlier estimate; uniform if left out

    >>> import psephos as ps
    >>> domain, counts = ps.Domain.of(a=4), np.array([6, 1, 1, 4])
    >>> data = ps.simulate(counts, domain, unit=ps.add_remove_row(), budget=ps.rho(900), seed=0)
    >>> query = ps.matrix.Ranges.intervals(4, [0, 1], [0, 2])
    >>> measurement = data.vectorise().measure(query, spend=ps.rho(400))
    >>> multiplicative_weights(measurement, total=12).vector.round(2)
    array([6.04, 1.04, 1.04, 3.88])
    """
    several = tuple(measurements) if isinstance(measurements, Iterable) else (measurements,)
    domain = common_domain(several)
    public = check_total(total)
    if not public:
        raise RefusedError(f"multiplicative weights need a total above zero, got {total!r}")
    if isinstance(passes, bool) or not isinstance(passes, int) or passes < 0:
        raise RefusedError(f"passes is a whole number from 0, got {passes!r}")
    if domain.size > NONNEGATIVE_CELLS:
        raise UnsupportedError(
            f"multiplicative weights need a vector of all cells, at most {NONNEGATIVE_CELLS:,}, "
            f"and {domain} has {domain.size_text}; reduce the vector first"
        )
    cells = np.ones(domain.size) if start is None else check_prior(start, domain.size)
    answers = block_answers(several)
    blocks = [each.matrix for each in answers]
    parts = [
        part
        for block, each in zip(blocks, answers, strict=True)
        for part in _parts(block, each.values.astype(float), each.noise.exact_variance)
    ]
    merging = Merging.of_columns(blocks, domain.shape)
    groups = None if merging is None else merged_cells(merging)
    merged = cells if groups is None else np.bincount(groups, cells)
    if merging is not None:
        narrow = merging.blocks([part.matrix for part in parts])
        parts = [part._replace(matrix=a) for part, a in zip(parts, narrow, strict=True)]
    x = _Weights.of(merged, public)
    moves = [move for part in parts for move in _moves(part)]
    most = max((float(move.precision.max()) for move in moves), default=1.0)
    for _ in range(passes):
        for move in moves:
            move.make(x, move.precision / most)
        x.settle()
    vector = x.cells
    if groups is not None:
        ratios = np.divide(vector, merged, out=np.zeros(merged.size), where=merged > 0)
        vector = cells * ratios[groups]
    simulation = any(m.simulation for m in several)
    return CellEstimate(domain, vector, "multiplicative weights", simulation)


class _Part(NamedTuple):
    """A matrix as it was asked and on merged cells, its noisy answers, their noise's variance."""

    asked_as: Matrix
    matrix: Matrix
    values: Array
    variance: float


def _parts(matrix: Matrix, values: Array, variance: float) -> Iterator[_Part]:
    """The parts of a union one by one, in order."""
    if isinstance(matrix, Kron) and len(matrix.factors) == 1:
        yield from _parts(matrix.factors[0], values, variance)
    elif isinstance(matrix, Stack):
        begin = 0
        for part in matrix.parts:
            end = begin + part.shape[0]
            yield from _parts(part, values[begin:end], variance)
            begin = end
    else:
        yield _Part(matrix, matrix, values, variance)


def _largest(matrix: Matrix) -> float:
    """The largest entry; of a map that only moves cells before, that of the rest."""
    while isinstance(matrix, Compose) and places_of(matrix.parts[-1]) is not None:
        matrix = compose(*matrix.parts[:-1])
    return float(largest_entry(matrix))


@dataclass
class _Weights:
    """Cells x = scale · z that add up to `total`; moves write z and the scale."""

    z: Array
    scale: float
    total: float

    @classmethod
    def of(cls, start: Array, total: float) -> _Weights:
        return cls(start * (total / float(start.sum())), 1.0, total)

    @property
    def cells(self) -> Array:
        return self.z * self.scale

    def settle(self) -> None:
        """Take the scale into the cells, and rounding out of their sum."""
        self.z *= self.total / float(self.z.sum())
        self.scale = 1.0


class _Move(ABC):
    """Rows that are gone through at once; `precision` is relative to a largest entry of 1."""

    precision: Array

    @abstractmethod
    def make(self, x: _Weights, steps: Array) -> None:
        """Move the cells, by steps that count as much as `steps` says, 0 to 1."""


@dataclass(frozen=True, eq=False)
class _Disjoint(_Move):
    """Rows of one weight each without common cells: groups of cells, -1 for those in none."""

    groups: Array
    values: Array
    precision: Array

    @cached_property
    def inside(self) -> Array | None:
        """The cells that are in a row; None if all are."""
        inside = self.groups >= 0
        return None if inside.all() else inside

    def make(self, x: _Weights, steps: Array) -> None:
        z, total, inside = x.z, x.total, self.inside
        whole = inside is None
        groups = self.groups if whole else self.groups[inside]
        held = z if whole else z[inside]
        sums = np.bincount(groups, held, minlength=self.values.size)
        factors, x.scale = _factors(sums, self.values, steps / (2 * total), x.scale, total)
        held = held * factors[groups]
        if whole:
            z[:] = held
        else:
            z[inside] = held


@dataclass(frozen=True, eq=False)
class _Row(_Move):
    """One row that is 1 on a run of cells, or on listed ones."""

    where: Array | slice
    value: float
    precision: Array

    def make(self, x: _Weights, steps: Array) -> None:
        view = x.z[self.where]
        count = float(np.add.reduce(view)) * x.scale
        factor = math.exp(_cut(float(steps[0]) * (self.value - count) * (0.5 / x.total)))
        if isinstance(self.where, slice):
            np.multiply(view, factor, out=view)
        else:
            x.z[self.where] = view * factor
        x.scale *= x.total / _grown(x.total, count, factor)


@dataclass(frozen=True, eq=False)
class _WeightedRow(_Move):
    """One row of several weights."""

    where: Array
    weights: Array
    value: float
    precision: Array

    def make(self, x: _Weights, steps: Array) -> None:
        view = x.z[self.where]
        off = (self.value - float(self.weights @ view) * x.scale) * (0.5 / x.total)
        exponents = np.clip(
            (float(steps[0]) * off) * self.weights, -LARGEST_EXPONENT, LARGEST_EXPONENT
        )
        moved = view * np.exp(exponents)
        x.z[self.where] = moved
        gain = float(np.add.reduce(moved) - np.add.reduce(view)) * x.scale
        x.scale *= x.total / (x.total + gain)


@dataclass(frozen=True, eq=False)
class _Together(_Move):
    """All rows of a matrix at once."""

    matrix: Matrix
    values: Array
    reach: float
    """The largest entry times the largest column sum."""
    precision: Array

    def make(self, x: _Weights, steps: Array) -> None:
        x.settle()
        off = self.values - self.matrix.matvec(x.z)
        exponents = self.matrix.rmatvec(off) * (float(steps[0]) * 0.5 / (x.total * self.reach))
        x.z *= np.exp(np.clip(exponents, -LARGEST_EXPONENT, LARGEST_EXPONENT))
        x.settle()


def _factors(
    sums: Array, values: Array, rates: Array, scale: float, total: float
) -> tuple[Array, float]:
    """By what disjoint rows multiply their cells, one after the other, and the scale after them."""
    scales = np.full(sums.size, scale)
    for _ in range(SCALE_REPETITIONS if sums.size > FEW_ROWS else 0):
        counts = sums * scales
        exponents = rates * (values - counts)
        np.minimum(np.maximum(exponents, -LARGEST_EXPONENT), LARGEST_EXPONENT, out=exponents)
        factors = np.exp(exponents)
        after = scale * np.cumprod(total / (np.maximum(total - counts, 0.0) + factors * counts))
        off = np.abs(after[:-1] - scales[1:]).max() / scale
        scales[1:] = after[:-1]
        if off < SETTLED:
            return factors, float(after[-1])
    one_by_one = []
    for s, y, rate in zip(sums.tolist(), values.tolist(), rates.tolist(), strict=True):
        factor = math.exp(_cut(rate * (y - s * scale)))
        scale *= total / _grown(total, s * scale, factor)
        one_by_one.append(factor)
    return np.array(one_by_one), scale


def _grown(total: float, count: float, factor: float) -> float:
    """The total once a part of it was multiplied: N + (f - 1)·part, above zero for the least f."""
    return max(total - count, 0.0) + factor * count


def _cut(exponent: float) -> float:
    return min(max(exponent, -LARGEST_EXPONENT), LARGEST_EXPONENT)


def _moves(part: _Part) -> Iterator[_Move]:
    """The moves of a part: its rows at once where they are disjoint, else one by one."""
    asked_as, matrix, values, variance = part
    level = level_of(_unwrapped(matrix)) if matrix.is_nonnegative else None
    if level is not None and matrix.shape[0] == level.precision.size and level.precision.all():
        weights = np.sqrt(level.precision)
        yield _Disjoint(level.groups, values / weights, level.precision * precision(variance))
        return
    m, n = matrix.shape
    if m * n > WRITTEN_ROW_ENTRIES:
        largest = _largest(asked_as)
        reach = largest * matrix.sensitivity(1)
        if reach > 0:
            yield _Together(matrix, values, reach, np.array([largest**2 * precision(variance)]))
        return
    for row, y in zip(matrix.dense(limit=m * n), values, strict=True):
        where = np.flatnonzero(row)
        if not where.size:
            continue
        size = float(np.abs(row[where]).max())
        weights, value = row[where] / size, float(y) / size
        exact = np.array([size**2 * precision(variance)])
        if not (weights == 1).all():
            yield _WeightedRow(where, weights, value, exact)
        elif where[-1] - where[0] + 1 == where.size:
            yield _Row(slice(int(where[0]), int(where[-1]) + 1), value, exact)
        else:
            yield _Row(where, value, exact)


def _unwrapped(matrix: Matrix) -> Matrix:
    return matrix.factors[0] if isinstance(matrix, Kron) and len(matrix.factors) == 1 else matrix
