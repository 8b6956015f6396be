"""Blocks that fall apart into residual subspaces: what they are made of, read off their factors.

On every attribute such a block has the total, Identity, or rows that sum to zero and tell all
values apart but for their total. Of the last there are two sorts. Where RᵀR = c(I - 11ᵀ/n), as for
nI - 11ᵀ and for x₀ - x₁, all directions are known equally well, and other such factors and Identity
may stand beside it. Any other R is a basis: it may be the only one of its attribute, beside totals.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from psephos.inverse.axis import DENSE_AXIS, DenseInverse, inverse_factor
from psephos.inverse.components import MarginalBlock
from psephos.matrix import Dense, Identity, Kron, Matrix, Ones
from psephos.matrix.marginals import Axes
from psephos.values import Array

MOST_SUBSPACES = 1 << 22
"""A block that sees more subspaces than this is left to other solvers."""


@dataclass(frozen=True, eq=False)
class ResidualBasis:
    """Rows R on one attribute that sum to zero and tell all else: (RᵀR)⁺, and n R⁺."""

    inverse: DenseInverse
    turn: Array
    """Takes answers of R to those of nI - 11ᵀ."""


@dataclass(frozen=True)
class _FactorKind:
    """What one factor sees: the constant direction, differences of values, or both."""

    constant: bool
    varying: bool
    eigenvalue: float = 1.0
    """What it multiplies everything with that it sees; a basis has its own inverse instead."""
    turn: Array | None = field(default=None, compare=False)
    """What makes answers of nI - 11ᵀ of its answers, where these are others."""
    basis: ResidualBasis | None = field(default=None, compare=False)


def is_commuting(shape: tuple[int, ...], blocks: Sequence[Matrix]) -> bool:
    """Do all blocks fall apart into subspaces that each knows equally well in all directions?"""
    reading = BlockReading(shape)
    return all(reading.block(matrix, 1.0) is not None for matrix in blocks) and not reading.bases


def falls_into_subspaces(shape: tuple[int, ...], blocks: Sequence[Matrix]) -> bool:
    """Do all blocks fall apart into subspaces, perhaps with a basis on some attributes?"""
    reading = BlockReading(shape)
    return all(reading.block(matrix, 1.0) is not None for matrix in blocks)


def marginal_axes(shape: tuple[int, ...], matrix: Matrix) -> Axes | None:
    """The axes of a marginal; None for anything else, residuals too.

    >>> marginal_axes((2, 3), Kron((Identity(2), Ones(1, 3))))
    (0,)
    """
    block = BlockReading(shape).block(matrix, 1.0)
    return None if block is None or block.residual else block.axes


class BlockReading:
    """Blocks read one after the other: every factor is looked at once, axes keep their basis."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.shape = shape
        self._kinds: dict[int, _FactorKind | None] = {}
        self._sole: dict[int, Matrix] = {}
        """The basis of an axis."""
        self._plain: set[int] = set()
        """Axes on which some block has Identity or a residual, so that no basis fits."""

    @property
    def bases(self) -> Mapping[int, ResidualBasis]:
        """Axes with a basis."""
        return {axis: self._known_basis(matrix) for axis, matrix in self._sole.items()}

    def _known_basis(self, matrix: Matrix) -> ResidualBasis:
        kind = self._kinds[id(matrix)]
        if kind is None or kind.basis is None:
            raise LookupError(f"{matrix} was not read as a basis")
        return kind.basis

    def block(self, matrix: Matrix, precision: float) -> MarginalBlock | None:
        """A block by its axes; None if a factor is of another kind, or it sees too many S."""
        shape, cells = self.shape, number_of_cells(self.shape)
        if isinstance(matrix, Identity) and matrix.n == math.prod(shape):
            axes = [i for i, n in enumerate(shape) if n > 1]
            self._plain.update(axes)
            block = MarginalBlock(tuple(axes), (), precision)
            return None if self._sole or block.count > MOST_SUBSPACES else block
        if isinstance(matrix, Ones) and matrix.shape == (1, math.prod(shape)):
            return MarginalBlock((), (), cells * precision)
        kron = matrix if isinstance(matrix, Kron) else Kron((matrix,))
        if kron.grid != shape:
            return None
        axes, residual, turned = [], [], []
        eigenvalue = cells
        for i, factor in kron.active:
            if id(factor) not in self._kinds:  # the blocks hold it, so no other gets its id
                self._kinds[id(factor)] = _kind(factor)
            kind = self._kinds[id(factor)]
            if kind is None or not self._fits(i, factor, kind):
                return None
            if kind.varying:
                axes.append(i)
                eigenvalue *= kind.eigenvalue / shape[i]
                if not kind.constant:
                    residual.append(i)
                if kind.turn is not None:
                    turned.append((i, kind.turn))
        block = MarginalBlock(tuple(axes), tuple(residual), eigenvalue * precision, tuple(turned))
        return None if block.count > MOST_SUBSPACES else block

    def _fits(self, axis: int, factor: Matrix, kind: _FactorKind) -> bool:
        """May a factor stand beside those that the axis has in other blocks?"""
        if not kind.varying:
            return True
        if kind.basis is None:
            self._plain.add(axis)
            return axis not in self._sole
        sole = self._sole.setdefault(axis, factor)
        return axis not in self._plain and (sole is factor or sole == factor)


@lru_cache(maxsize=64)
def number_of_cells(shape: tuple[int, ...]) -> float:
    """All cells, as a float: there may be 10¹⁰⁰."""
    return math.prod(map(float, shape))


def _kind(factor: Matrix) -> _FactorKind | None:
    n = factor.shape[1]
    if isinstance(factor, Ones) and factor.m == 1:
        return _FactorKind(True, False)
    if isinstance(factor, Identity):
        return _FactorKind(True, n > 1)
    if not isinstance(factor, Dense) or n < 2 or factor.array.dtype.kind != "i":
        return None
    array = factor.array
    if array.shape == (n, n):
        if (array.diagonal() == n - 1).all() and (array == -1).sum() == n * n - n:
            return _FactorKind(False, True, float(n) ** 2)
    elif array.tolist() == [[1, -1]]:
        return _FactorKind(False, True, 2.0, np.array([[1.0], [-1.0]]))
    if n > DENSE_AXIS or len(array) < n - 1 or array.sum(axis=1).any():
        return None
    basis = residual_basis(factor)
    return None if basis is None else _FactorKind(False, True, 1.0, basis.turn, basis)


@lru_cache(maxsize=64)
def residual_basis(factor: Dense) -> ResidualBasis | None:
    """The inverse of rows that sum to zero; None if they leave differences of values open."""
    rows, n = factor.array.astype(float), factor.shape[1]
    gram = rows.T @ rows
    # With some of the total beside it X has an inverse, which on differences is that of X alone.
    gram += gram.trace() / n**2
    half = inverse_factor(gram)
    if half is None:
        return None
    root = half - half.mean(axis=0)
    return ResidualBasis(DenseInverse(root, np.empty((n, 0))), n * (root @ (root.T @ rows.T)))
