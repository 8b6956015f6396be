"""Generalised least squares by structure: X = Σ_j c_j A_jᵀA_j, inverted as a whole.

A measurement is blocks of queries A_j, each answered with noise of variance 1/c_j. The least
squares estimate is X⁺ Σ c_j A_jᵀy_j, and the answers of queries W have covariance W X⁺ Wᵀ. Expected
error (before any noise) and estimation (after it) are two uses of one form. Every form has a file
of its own; `choice` decides which one blocks get.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, overload

import numpy as np

from psephos.errors import TooLargeError
from psephos.matrix import Kron, Matrix
from psephos.matrix.kron import AxisTotals, NamedFactors
from psephos.values import Array

VECTOR_LIMIT = 500_000_000
"""The most cells for which an estimate of all of them is made."""
Factors = tuple[Matrix, ...]


@dataclass(frozen=True, eq=False)
class ListedProducts(Sequence[Factors]):
    """Products that name few of many attributes, by the numbers of their matrices.

    There may be 10⁵ of them over a hundred attributes: their factors are written down when one is
    looked at, and a form may go by the numbers instead.
    """

    totals: AxisTotals
    matrices: list[Matrix]
    axes: list[int]
    """The attribute of each matrix."""
    rows: list[list[int]]
    """The matrices of each product."""

    @cached_property
    def by_length(self) -> list[tuple[Array, Array]]:
        """Products of one length at a time: where they stand, and a row of numbers for each."""
        lengths = np.array([len(row) for row in self.rows])
        groups = []
        for k in np.unique(lengths).tolist():
            places = np.flatnonzero(lengths == k)
            numbers = [self.rows[j] for j in places.tolist()]
            groups.append((places, np.array(numbers, dtype=np.int64).reshape(len(places), k)))
        return groups

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, i: int) -> Factors: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Factors]: ...
    def __getitem__(self, i: int | slice) -> Factors | Sequence[Factors]:
        if isinstance(i, slice):
            return [self[j] for j in range(len(self))[i]]
        named = {self.axes[k]: self.matrices[k] for k in self.rows[i]}
        return NamedFactors.of(self.totals, named)


class Fitted(Protocol):
    """What is known after the measurements: answers to any product that the form covers."""

    def answers(self, factors: Factors) -> Array:
        """The answers of ⊗ W_i, in the order of its rows."""


@dataclass(frozen=True, eq=False)
class FittedVector:
    """An estimate of all cells."""

    vector: Array

    def answers(self, factors: Factors) -> Array:
        return multiply(Kron(factors), self.vector)


def multiply(matrix: Matrix, x: Array) -> Array:
    """A matrix times a vector, or times the columns of an array."""
    return matrix.matvec(x) if x.ndim == 1 else matrix.matmat(x)


class Form(ABC):
    """X⁺ by structure. A product of queries is given as one matrix for each axis."""

    infinite_where_open = False
    """Is the trace of what the blocks leave open infinite, so that it need not be asked before?"""
    exact = True
    """Are traces and variances exact, or estimated?"""

    def traces(self, products: Sequence[Factors]) -> Array:
        """tr(X⁺ WᵀW) for each product of queries."""
        return np.array([self.trace(factors) for factors in products])

    def trace_spreads(self, products: Sequence[Factors]) -> Array:
        """The standard error of each of `traces`: zero where they are exact."""
        return np.zeros(len(products))

    @abstractmethod
    def trace(self, factors: Factors) -> float:
        """tr(X⁺ WᵀW): the sum of `variances`."""

    @abstractmethod
    def variances(self, factors: Factors) -> Array:
        """The diagonal of W X⁺ Wᵀ: the variance of every answer."""

    @abstractmethod
    def covers(self, factors: Factors) -> bool:
        """Do the blocks determine every answer?"""

    @abstractmethod
    def fit(self, values: Sequence[Array]) -> Fitted:
        """The least squares estimate from the noisy answers of every block.

        Arrays with columns are as many fits at once; their answers have these columns.
        """

    @property
    @abstractmethod
    def work(self) -> int:
        """About how many numbers one fit goes through."""

    @property
    def work_of_column(self) -> int:
        """Of these, the numbers that each further column of values takes: not the form's own."""
        return self.work

    @property
    def sampling_work(self) -> int:
        """About how many numbers estimates of traces go through; none where they are exact."""
        return 0


def check_vector(cells: int) -> None:
    """Refuse an estimate of more cells than are held at a time."""
    if cells > VECTOR_LIMIT:
        raise TooLargeError(
            f"an estimate of {cells:,} cells is over the limit of {VECTOR_LIMIT:,}: the error of "
            "such a strategy is known, and it cannot be reconstructed; measure marginals "
            "(select.opt_marginals, select.residual), declare bins, or keep fewer attributes",
            cells,
            VECTOR_LIMIT,
        )


def weighted_transpose(
    blocks: Sequence[Matrix], precisions: Sequence[float], values: Sequence[Array]
) -> Array:
    """Σ c_j A_jᵀy_j."""
    parts = zip(blocks, precisions, values, strict=True)
    return np.asarray(sum(c * multiply(block.T, y.astype(float)) for block, c, y in parts))
