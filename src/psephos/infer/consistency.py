"""Consistent tables nearest to the noisy ones in L1 or L∞, by linear programmes.

Yaroslavtsev et al. (2013), sections III-C and IV-C: tables are consistent if they are those of some
vector of cells. No such vector is needed: all tables on some attributes are linear in the counts of
those values that are not the last of their attribute, for every subset S of the attributes. On one
attribute

    (x_1, …, x_n) = T (x_1 + … + x_n, x_1, …, x_{n-1})        x_n is the rest of the sum

and a product of queries ⊗W_i is ⊗W_iT_i applied to these coordinates, of which there are as many as
the tables have dimensions (Π_{i∈S} (n_i - 1) for each S, as the Fourier coefficients of the binary
case). Every measured number counts by how many standard deviations it is moved:

    min Σ |y - A g| / σ        or        min max |y - A g| / σ

Under Laplace noise the first is the most likely set of tables. The second alone says little about
most numbers; among its solutions the one with the least sum is taken. The moves are no larger, in
the norm, than the noise was, so that consistency at most doubles the error of what was measured.

What is looked for is the difference h to least squares, from its residuals r: they are a linear map
of the noise alone. The nearest h(r) need not be unique. With it -h(-r) is as near, and so is the
mean of both, which turns round with the noise. So errors are a function of the noise that is odd,
noise is symmetric, and answers are unbiased.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp

from psephos.domain.domain import Domain
from psephos.errors import RefusedError, TooLargeError, UnsupportedError
from psephos.infer.estimate import Answers, Estimate
from psephos.infer.least_squares import LeastSquares, least_squares
from psephos.kernel.measurement import Measurement
from psephos.matrix import Kron, Matrix, is_total
from psephos.matrix.marginals import Axes
from psephos.values import Array
from psephos.workload.workload import Workload

ConsistencyNorm = Literal["l2", "l1", "linf"]
LARGEST_PROGRAMME = 20_000
"""The most noisy numbers of a linear programme."""
MOVE_SLACK = 1e-9
"""By how much the largest move may grow, relatively, while the sum is made small."""


def consistent(
    measurements: Measurement | Iterable[Measurement], norm: ConsistencyNorm = "l2"
) -> Estimate:
    """Consistent tables nearest to what was measured, in units of each number's noise.

    Args:
        measurements: of marginals, or of other products over the attributes
        norm: "l2" is least squares, unbiased and with the least variance; "l1" moves numbers by
            the least sum, "linf" the most moved number by the least

    All of them are unbiased; standard errors are known for "l2" alone.
    """
    if norm not in ("l2", "l1", "linf"):
        raise RefusedError(f'the norm is "l2", "l1" or "linf", got {norm!r}')
    estimate = least_squares(measurements)
    if norm == "l2":
        return estimate
    check_programme([block.matrix for block in estimate.blocks], estimate.domain.shape)
    coordinates = _Coordinates.of(estimate)
    problem = _Nearest.of(estimate, coordinates)
    difference = (problem.solved(norm, 1) - problem.solved(norm, -1)) / 2
    return ConsistentTables(estimate, norm, coordinates, difference)


def check_programme(blocks: Sequence[Matrix], shape: tuple[int, ...]) -> None:
    """Refuse what no linear programme is made of, or one of too many numbers; data play no part."""
    numbers = sum(block.shape[0] for block in blocks)
    if numbers > LARGEST_PROGRAMME:
        raise TooLargeError(
            f'consistency in "l1" or "linf" is a linear programme, and {numbers:,} noisy numbers '
            f'are over its limit of {LARGEST_PROGRAMME:,}; use "l2"',
            numbers,
            LARGEST_PROGRAMME,
        )
    for block in blocks:
        _active(block, shape)


@dataclass(frozen=True, eq=False, repr=False)
class ConsistentTables:
    """Tables that add up, nearest to the noisy ones in L1 or L∞: unbiased."""

    least_squares: LeastSquares
    norm: ConsistencyNorm
    coordinates: _Coordinates
    difference: Array
    """To least squares, in coordinates."""
    biased: ClassVar[bool] = False

    @property
    def domain(self) -> Domain:
        """The domain that was measured."""
        return self.least_squares.domain

    @property
    def simulation(self) -> bool:
        """Is any of it made up?"""
        return self.least_squares.simulation

    @property
    def moves(self) -> Array:
        """By how many standard deviations every measured number was moved."""
        moves = []
        for block, residuals in zip(
            self.least_squares.blocks, _residuals(self.least_squares), strict=True
        ):
            rows = self.coordinates.rows(block.matrix)
            moves.append((rows @ self.difference - residuals) / block.variance**0.5)
        return np.concatenate(moves)

    @property
    def size_of_moves(self) -> float:
        """What was made small: the sum of all moves, or the largest."""
        sizes = np.abs(self.moves)
        return float(sizes.sum() if self.norm == "l1" else sizes.max(initial=0.0))

    def answer(self, workload: Workload) -> Answers:
        """The answers of a workload; their standard errors are not known."""
        values = self.least_squares.answer(workload).values
        krons = [workload.kron(i) for i in range(len(workload.products))]
        change = np.concatenate([self.coordinates.rows(k) @ self.difference for k in krons])
        return Answers(workload, values + change, simulation=self.simulation)

    def __repr__(self) -> str:
        mark = "Simulated tables" if self.simulation else "Tables"
        return f"{mark}(nearest in {self.norm} to {self.moves.size:,} noisy answers)"


@dataclass(frozen=True, eq=False)
class _Coordinates:
    """Where the coordinates of each set S of axes begin among all."""

    shape: tuple[int, ...]
    starts: dict[Axes, int]
    count: int

    @classmethod
    def of(cls, estimate: LeastSquares) -> _Coordinates:
        shape = estimate.domain.shape
        starts: dict[Axes, int] = {}
        count = 0
        for block in estimate.blocks:
            axes = tuple(i for i, _ in _active(block.matrix, shape))
            for k in range(len(axes) + 1):
                for s in combinations(axes, k):
                    if s not in starts:
                        starts[s] = count
                        count += int(np.prod([shape[i] - 1 for i in s], dtype=np.int64))
        return cls(shape, starts, count)

    def rows(self, queries: Matrix) -> Any:
        """Queries as a sparse matrix of the coordinates."""
        active = _active(queries, self.shape)
        inner = sp.csr_array(np.ones((1, 1)))
        for i, factor in active:
            inner = sp.kron(inner, factor.dense() @ _corner(self.shape[i]), format="csr")
        places = self._places(tuple(i for i, _ in active))
        rows = inner.tocoo()
        return sp.csr_array(
            (rows.data, (rows.row, places[rows.col])), shape=(inner.shape[0], self.count)
        )

    def _places(self, axes: Axes) -> Array:
        """The coordinate of each column of ⊗T_i: 0 on an axis stands for its sum."""
        sizes = [self.shape[i] for i in axes]
        places = np.empty(sizes, dtype=np.int64)
        for k in range(len(axes) + 1):
            for s in combinations(range(len(axes)), k):
                inside = tuple(axes[j] for j in s)
                if inside not in self.starts:
                    raise UnsupportedError("no measured table has all attributes of a query")
                block = tuple(slice(1, None) if j in s else 0 for j in range(len(axes)))
                part = places[block]
                places[block] = self.starts[inside] + np.arange(part.size).reshape(part.shape)
        return places.ravel()


@dataclass(frozen=True, eq=False)
class _Nearest:
    """min |r - A h| over h: residuals and rows in units of their noise."""

    matrix: Any
    residuals: Array

    @classmethod
    def of(cls, estimate: LeastSquares, coordinates: _Coordinates) -> _Nearest:
        blocks = estimate.blocks
        scales = np.concatenate([np.full(len(b.values), b.variance**-0.5) for b in blocks])
        rows = sp.vstack([coordinates.rows(b.matrix) for b in blocks])
        return cls(sp.diags_array(scales) @ rows, scales * np.concatenate(_residuals(estimate)))

    def solved(self, norm: ConsistencyNorm, sign: int) -> Array:
        """The coordinates nearest to the residuals, or to their opposites."""
        residuals = sign * self.residuals
        largest = None if norm == "l1" else self._least_largest(residuals) * (1 + MOVE_SLACK)
        m, n = self.matrix.shape
        # A h + up - down = r: what a number is moved by is split in its two directions.
        equal = sp.hstack([self.matrix, sp.eye_array(m), -sp.eye_array(m)], format="csc")
        cost = np.concatenate([np.zeros(n), np.ones(2 * m)])
        bounds = [(None, None)] * n + [(0, largest)] * (2 * m)
        return np.asarray(_solved(cost, A_eq=equal, b_eq=residuals, bounds=bounds)[:n])

    def _least_largest(self, residuals: Array) -> float:
        """The least t with |r - A h| ≤ t for all numbers."""
        m, n = self.matrix.shape
        t = sp.csc_array(np.ones((m, 1)))
        within = sp.vstack(
            [sp.hstack([self.matrix, -t]), sp.hstack([-self.matrix, -t])], format="csc"
        )
        cost = np.concatenate([np.zeros(n), [1.0]])
        bounds = [(None, None)] * n + [(0, None)]
        limits = np.concatenate([residuals, -residuals])
        # A move of so many numbers at once is found sooner from inside.
        return float(_solved(cost, "highs-ipm", A_ub=within, b_ub=limits, bounds=bounds)[-1])


def _residuals(estimate: LeastSquares) -> list[Array]:
    """What least squares leaves of every block's answers."""
    residuals = []
    for block in estimate.blocks:
        kron = _product(block.matrix, estimate.domain.shape)
        residuals.append(block.values - estimate.fitted.answers(kron.factors))
    return residuals


def _solved(cost: Array, method: str = "highs", **constraints: Any) -> Array:
    from scipy.optimize import linprog

    result = linprog(cost, method=method, **constraints)
    if result.status != 0:
        raise UnsupportedError(
            f'the linear programme of consistency was not solved ({result.message}); use "l2"'
        )
    return np.asarray(result.x)


def _active(queries: Matrix, shape: tuple[int, ...]) -> list[tuple[int, Matrix]]:
    """The attributes that are not merely summed over, with their queries."""
    return [(i, factor) for i, factor in _product(queries, shape).active if not is_total(factor)]


def _product(queries: Matrix, shape: tuple[int, ...]) -> Kron:
    kron = queries if isinstance(queries, Kron) else Kron((queries,))
    if kron.grid != shape:
        raise UnsupportedError(
            f'consistency in "l1" and "linf" is for products over the attributes, and {queries} is '
            'none; use "l2"'
        )
    return kron


def _corner(n: int) -> Array:
    """T: the sum and all values but the last, to all values."""
    corner = np.eye(n, k=1)
    corner[-1] = -1
    corner[-1, 0] = 1
    return corner
