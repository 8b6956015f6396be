"""Strategies on one attribute: real-valued while they are searched, integers once they are chosen.

A factor lives on the merged cells of its attribute, where no two are alike to the workload, and is
brought back to all cells by a partition. Its columns are rounded so that all norms stay equal or
below 2^bits: the sensitivity is the largest of them. The checks of what selectors are given, which
all of them share, stand first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from psephos.errors import TooLargeError, WorkloadError
from psephos.inverse.axis import AxisInverse
from psephos.inverse.product import axis_inverse
from psephos.matrix import Compose, Dense, Identity, Matrix, Partition, PIdentity, compose, total
from psephos.matrix.columns import is_zero
from psephos.matrix.pidentity import with_rows
from psephos.values import Array
from psephos.variances import NoiseKind
from psephos.workload.workload import Workload, workload_hint

NoiseName = Literal["laplace", "gaussian"] | NoiseKind
"""A kind of noise as callers write it."""
LONGEST_ATTRIBUTE = 1 << 30
"""The most cells of one attribute."""


def checked_noise(noise: object) -> NoiseKind:
    """The kind of noise that a name stands for."""
    for kind in NoiseKind:
        if noise == kind:
            return kind
    raise WorkloadError(f'noise is "laplace" or "gaussian", got {noise!r}')


def checked_selection(workload: object, noise: object, *, by_value: bool = False) -> NoiseKind:
    """The kind of noise, for a workload that has something to ask.

    What is searched `by_value` looks at every value of an attribute, so these must not be too many.
    """
    if not isinstance(workload, Workload):
        raise WorkloadError(
            f"a strategy is selected for a workload, got {type(workload).__name__}"
            f"{workload_hint(workload)}"
        )
    kind = checked_noise(noise)
    if by_value:
        checked_size(workload)
    every = range(len(workload.products))
    if all(any(is_zero(factor) for factor in workload.factors(i)) for i in every):
        raise WorkloadError("every query of this workload counts nothing; there is no strategy")
    return kind


def checked_size(workload: Workload) -> None:
    """Refuse attributes that are too long to be looked at value by value."""
    for name, n in zip(workload.domain.names, workload.domain.shape, strict=True):
        if n > LONGEST_ATTRIBUTE:
            raise TooLargeError(
                f"attribute {name!r} has {n:,} cells, and strategies are found for up to "
                f"{LONGEST_ATTRIBUTE:,}; declare bins for it",
                n,
                LONGEST_ATTRIBUTE,
            )


@dataclass(frozen=True, eq=False)
class Factor(ABC):
    """What is measured on one attribute, every column of norm one."""

    @property
    @abstractmethod
    def cells(self) -> int:
        """How many (merged) cells it is about."""

    @cached_property
    @abstractmethod
    def matrix(self) -> Matrix:
        """The real-valued strategy."""

    @abstractmethod
    def integer(self, bits: int) -> Matrix:
        """The strategy in whole numbers; columns have norm at most 2^bits."""

    @property
    @abstractmethod
    def rounded(self) -> bool:
        """Whether whole numbers stand for it only approximately."""

    @cached_property
    def inverse(self) -> AxisInverse:
        """(AᵀA)⁻¹ of the real-valued strategy."""
        return axis_inverse(self.matrix)


@dataclass(frozen=True, eq=False)
class PureFactor(Factor):
    """A(Θ) for Laplace noise; Identity if Θ has no rows."""

    theta: Array

    @property
    def cells(self) -> int:
        return int(self.theta.shape[1])

    @cached_property
    def matrix(self) -> Matrix:
        return PIdentity.of(self.theta) if len(self.theta) else Identity(self.cells)

    def integer(self, bits: int) -> Matrix:
        if not len(self.theta):
            return Identity(self.cells)
        diagonal, rows = round_pidentity(self.theta, bits)
        return with_rows(diagonal, rows[rows.any(axis=1)])

    @property
    def rounded(self) -> bool:
        return len(self.theta) > 0


@dataclass(frozen=True, eq=False)
class GaussianFactor(Factor):
    """A square root of the optimal X for Gaussian noise, columns of L2 norm one."""

    root: Array

    @property
    def cells(self) -> int:
        return int(self.root.shape[1])

    @cached_property
    def matrix(self) -> Matrix:
        return Dense(self.root) if self.rounded else Identity(self.cells)

    def integer(self, bits: int) -> Matrix:
        if not self.rounded:
            return Identity(self.cells)
        rows = round_columns(self.root, bits)
        return Dense(rows[rows.any(axis=1)])

    @cached_property
    def rounded(self) -> bool:
        n = self.cells
        return self.root.shape != (n, n) or not np.array_equal(self.root, np.eye(n))


def identity_factor(n: int) -> Factor:
    """Every cell on its own, for any noise."""
    return PureFactor(np.zeros((0, n)))


def spread(matrix: Matrix, merged: Matrix) -> Matrix:
    """A P: a matrix on merged cells as one on all cells, P being the partition that merges them."""
    if isinstance(merged, Identity):
        return matrix
    if merged.shape[0] == 1 and isinstance(matrix, Identity):
        return total(merged.shape[1])
    product = compose(matrix, merged)
    return product if isinstance(product, Compose | Partition) else Compose((matrix, merged))


def round_pidentity(theta: Array, bits: int) -> tuple[Array, Array]:
    """The p-Identity strategy of Θ in whole numbers: columns of [diag(d); B] that sum to 2^bits.

    Each column is scaled and rounded by largest remainder, so that all sums stay equal; plain
    rounding would lose more to the one column that comes out largest than to all the rest.

    >>> round_pidentity(np.array([[1.0, 0.5]]), 4)
    (array([ 8, 11]), array([[8, 5]]))
    """
    p, n = theta.shape
    whole = 1 << bits
    exact = np.vstack([np.ones(n), theta])
    exact *= whole / exact.sum(axis=0)
    rounded = np.floor(exact).astype(np.int64)
    missing = whole - rounded.sum(axis=0)
    order = np.argsort(-(exact - rounded), axis=0, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(p + 1)[:, None], axis=0)
    rounded += rank < missing
    # The identity's entry must stay, or the cell could not be told from its neighbours.
    for j in np.flatnonzero(rounded[0] == 0):
        rounded[1 + rounded[1:, j].argmax(), j] -= 1
        rounded[0, j] = 1
    return rounded[0], rounded[1:]


def round_columns(a: Array, bits: int) -> Array:
    """A strategy of unit columns in whole numbers, no column longer than 2^bits.

    Entries are rounded to the nearest whole number and then repaired column by column: a common
    factor instead would shrink all columns by what the worst of them needs.

    >>> round_columns(np.array([[1.0, 0.6], [0.0, 0.8]]), 3)
    array([[8, 5],
           [0, 6]])
    """
    exact = np.asarray(a, dtype=float)
    exact = exact * ((1 << bits) / np.sqrt((exact**2).sum(axis=0)))
    rounded = np.rint(exact).astype(np.int64)
    for j in range(rounded.shape[1]):
        _repair(rounded[:, j], exact[:, j], 1 << (2 * bits))
    return np.asarray(rounded)


def _repair(column: Array, exact: Array, limit: int) -> None:
    """Shorten entries that were rounded up until the column fits, then lengthen what still fits."""
    room = limit - int((column**2).sum())
    while room < 0:
        outward = np.where(column != 0, np.abs(column) - np.abs(exact), -np.inf)
        worst = int(outward.argmax())
        room += 2 * abs(int(column[worst])) - 1
        column[worst] -= np.sign(column[worst])
    inward = np.abs(exact) - np.abs(column)
    for i in np.argsort(-inward, kind="stable"):
        longer = 2 * abs(int(column[i])) + 1
        if inward[i] <= 0:
            break
        if longer <= room:
            room -= longer
            column[i] += 1 if exact[i] > 0 else -1
