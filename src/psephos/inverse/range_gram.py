"""Queries on one line of cells, as trees see them: five numbers, or the two ends of each query.

Prefixes, suffixes and ranges have Grams made of min(i, j) and of a polynomial in i and j. Cut down
to a block of cells such a Gram keeps its form, and where the block's total is known only the parts
with min(i, j), i·j and the identity still matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from psephos.errors import ShapeError, TooLargeError
from psephos.matrix import (
    AllRange,
    Identity,
    Matrix,
    Ones,
    Prefix,
    Ranges,
    Scaled,
    Stack,
    WidthRange,
)
from psephos.matrix.base import Transposed
from psephos.values import Array

ENDS_LIMIT = 10**8
"""Queries whose ends are listed at most."""


@dataclass(frozen=True)
class LineGram:
    """G_ij = α·min(i, j) + β·i·j + γ·(i + j) + δ + ι·[i = j]."""

    minimum: float
    product: float
    sum: float
    constant: float
    identity: float

    def dense(self, n: int) -> Array:
        """The n x n array, for tests and small lines."""
        i = np.arange(float(n))
        gram = self.minimum * np.minimum.outer(i, i) + self.product * np.outer(i, i)
        return np.asarray(
            gram + self.sum * np.add.outer(i, i) + self.constant + self.identity * np.eye(n)
        )


@dataclass(frozen=True)
class LineQueries:
    """Σ c·WᵀW over all ranges, prefixes, suffixes, cells and the total of a line of any length."""

    all_range: float = 0.0
    prefix: float = 0.0
    suffix: float = 0.0
    identity: float = 0.0
    total: float = 0.0

    @classmethod
    def of(cls, queries: Matrix) -> LineQueries | None:
        """The same queries by kind; None where one of them is of another kind.

        >>> LineQueries.of(Stack((Prefix(8), 3 * Identity(8))))
        LineQueries(all_range=0.0, prefix=1.0, suffix=0.0, identity=9.0, total=0.0)
        """
        if isinstance(queries, Scaled):
            base = cls.of(queries.base)
            return None if base is None else base.times(float(queries.factor) ** 2)
        if isinstance(queries, Stack):
            return cls.of_terms((1.0, part) for part in queries.parts)
        if isinstance(queries, AllRange):
            return cls(all_range=1.0)
        if isinstance(queries, Prefix):
            return cls(prefix=1.0)
        if isinstance(queries, Transposed) and isinstance(queries.base, Prefix):
            return cls(suffix=1.0)
        if isinstance(queries, Identity):
            return cls(identity=1.0)
        if isinstance(queries, Ones):
            return cls(total=float(queries.m))
        return None

    @classmethod
    def of_terms(cls, terms: Iterable[tuple[float, Matrix]]) -> LineQueries | None:
        """Σ_j c_j W_jᵀW_j by kind; None where one of the matrices is of another kind."""
        total = cls()
        for coefficient, queries in terms:
            one = cls.of(queries)
            if one is None:
                return None
            total = total.plus(one.times(float(coefficient)))
        return total

    def times(self, factor: float) -> LineQueries:
        """The same queries with all coefficients multiplied."""
        return LineQueries(*(factor * c for c in self._coefficients))

    def plus(self, other: LineQueries) -> LineQueries:
        """Both sets of queries."""
        pairs = zip(self._coefficients, other._coefficients, strict=True)
        return LineQueries(*(a + b for a, b in pairs))

    @property
    def _coefficients(self) -> tuple[float, ...]:
        return self.all_range, self.prefix, self.suffix, self.identity, self.total

    @property
    def asks_more_than_cells(self) -> bool:
        """Are there queries about more than one cell?"""
        return any((self.all_range, self.prefix, self.suffix, self.total))

    def gram(self, n: int) -> LineGram:
        """On n cells: (min + 1)(n - max) for ranges, n - max for prefixes, min + 1 for suffixes.

        Here max = i + j - min and min·max = i·j.
        """
        ranges, prefix, suffix = self.all_range, self.prefix, self.suffix
        return LineGram(
            minimum=(n + 1) * ranges + prefix + suffix,
            product=-ranges,
            sum=-ranges - prefix,
            constant=n * (ranges + prefix) + suffix + self.total,
            identity=self.identity,
        )

    def trace(self, n: int) -> float:
        """Tr WᵀW on n cells, the squared error of Identity.

        >>> LineQueries(prefix=1.0).trace(4)
        10.0
        """
        each = n * (n + 1) * (n + 2) // 6, n * (n + 1) // 2, n * (n + 1) // 2, n, n
        return float(sum(c * t for c, t in zip(self._coefficients, each, strict=True)))


def ends(queries: Matrix) -> tuple[Array, Array] | None:
    """The first and last cell of every query, or None where queries are not runs of cells.

    >>> ends(Prefix(3))
    (array([0, 0, 0]), array([0, 1, 2]))
    """
    m, n = queries.shape
    kinds = (Prefix, Identity, Ones, AllRange, WidthRange, Ranges)
    is_suffix = isinstance(queries, Transposed) and isinstance(queries.base, Prefix)
    if not (is_suffix or isinstance(queries, kinds)):
        return None
    if m > ENDS_LIMIT:
        raise TooLargeError(
            f"{queries} has {m:.1e} answers; ask for listed Ranges, or for a trace", m, ENDS_LIMIT
        )
    if isinstance(queries, Ranges):
        return (queries.low[:, 0], queries.high[:, 0]) if len(queries.grid) == 1 else None
    if isinstance(queries, AllRange):
        return np.triu_indices(n)
    rows = np.arange(m)
    if isinstance(queries, Ones):
        return np.zeros(m, np.int64), np.full(m, n - 1)
    if isinstance(queries, WidthRange):
        return rows, rows + queries.width - 1
    if isinstance(queries, Identity):
        return rows, rows
    return (rows, np.full(m, n - 1)) if is_suffix else (np.zeros(m, np.int64), rows)


def check_width(queries: Matrix, n: int) -> None:
    """Queries about n cells."""
    if queries.shape[1] != n:
        raise ShapeError(f"the tree has {n} cells, {queries} asks about {queries.shape[1]}")
