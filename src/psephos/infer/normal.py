"""The normal equations X x = b of an estimate: X = Σ_j c_j A_jᵀA_j, b = Σ_j c_j A_jᵀy_j.

Solvers with constraints need three things: X on a vector, never written out, its diagonal, and b.
Precisions are taken relative to the largest, which changes no minimiser.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from psephos.frozen import Array
from psephos.infer.axes import gram_diagonal
from psephos.infer.estimate import Estimate
from psephos.infer.forms import Fitted, Form
from psephos.infer.least_squares import precision
from psephos.infer.merged import MergedFitted, MergedForm, Merging
from psephos.infer.subspaces import Commuting
from psephos.infer.subspaces import Fitted as FittedTables
from psephos.matrix import Dense, Identity, Kron, Matrix, Ones, compose

WRITTEN_GRAM = 256
"""The longest axis on which a Gram is written out: one product instead of two."""
TURNED = 512
"""The longest axis on which eigenvectors of marginals are written out."""


@dataclass(frozen=True, eq=False)
class Normal:
    """X, its diagonal, b and the least squares solution of least norm, on cells told apart."""

    apply: Callable[[Array], Array]
    diagonal: Array
    target: Array
    solution: Array
    groups: Array | None
    """For every cell of the domain its merged cell; None where none are merged."""

    @classmethod
    def of(cls, estimate: Estimate) -> Normal:
        """The normal equations of all measurements of an estimate."""
        blocks: list[Matrix] = []
        precisions, values = [], []
        for measurement in estimate.measurements:
            start = 0
            for asked, noise in zip(measurement.query.blocks, measurement.noise, strict=True):
                through, rows = measurement.transform, asked.matrix.shape[0]
                blocks.append(asked.matrix if through is None else compose(asked.matrix, through))
                precisions.append(precision(noise))
                values.append(measurement.values[start : start + rows].astype(float))
                start += rows
        form, fitted, shape = estimate.form, estimate.fitted, estimate.domain.shape
        groups: Array | None = None
        while isinstance(form, MergedForm) and isinstance(fitted, MergedFitted):
            merging, made = form.merging, dict[tuple[int, int], Matrix]()
            blocks = [merging.block(block, made) for block in blocks]
            own = merged_cells(merging)
            groups = own if groups is None else own[groups]
            shape, form, fitted = merging.shape, form.inner, fitted.inner
        most = max(precisions)
        weights = [c / most for c in precisions]
        target, diagonal = np.zeros(math.prod(shape)), np.zeros(math.prod(shape))
        for block, c, y in zip(blocks, weights, values, strict=True):
            target += c * block.rmatvec(y)
            diagonal += c * gram_diagonal(block)
        return cls(
            _turned(form, most) or _summed(blocks, weights),
            diagonal,
            target,
            _cells(fitted, len(shape)),
            groups,
        )

    def merged(self, zeros: Array | None) -> Array:
        """Which of the cells told apart are zero: those with no other member."""
        if zeros is None:
            return np.zeros(self.target.size, dtype=bool)
        if self.groups is None:
            return zeros
        return np.asarray(np.bincount(self.groups[~zeros], minlength=self.target.size) == 0)

    def spread(self, x: Array, zeros: Array | None) -> Array:
        """An even share of its merged cell for every cell that is not zero."""
        if self.groups is None:
            return x
        live = np.ones(self.groups.size, dtype=bool) if zeros is None else ~zeros
        members = np.bincount(self.groups[live], minlength=x.size)
        share = np.divide(x, members, out=np.zeros_like(x), where=members > 0)
        return np.where(live, share[self.groups], 0.0)


def merged_cells(merging: Merging) -> Array:
    """For every cell, the number of the merged cell it lies in."""
    cells: Array = np.zeros(1, dtype=np.int64)
    for own, n in zip(merging.groups, merging.shape, strict=True):
        cells = np.add.outer(cells * n, own).ravel()
    return cells


def _cells(fitted: Fitted, axes: int) -> Array:
    """Least squares with least norm: what nobody measured counts as zero."""
    if isinstance(fitted, FittedTables):
        return fitted.averaged.table(tuple(range(axes)))
    return fitted.vector  # type: ignore[attr-defined, no-any-return]


def _summed(blocks: Sequence[Matrix], weights: Sequence[float]) -> Callable[[Array], Array]:
    """Block by block; what a block sums over is summed first and spread last."""
    pairs = [_halves(block) for block in blocks]

    def apply(x: Array) -> Array:
        out = np.zeros(x.size)
        for (down, up), c in zip(pairs, weights, strict=True):
            out += c * up.matvec(down.matvec(x))
        return out

    return apply


def _halves(block: Matrix) -> tuple[Matrix, Matrix]:
    """Two matrices whose product is AᵀA."""
    if not isinstance(block, Kron):
        return Identity(block.shape[1]), _gram(block)
    down: list[Matrix] = []
    up: list[Matrix] = []
    for factor in block.factors:
        total = isinstance(factor, Ones)
        down.append(factor if total else _gram(factor))
        up.append(factor.T if total else Identity(factor.shape[1]))
    return Kron(tuple(down)), Kron(tuple(up))


def _gram(factor: Matrix) -> Matrix:
    n = factor.shape[1]
    if n <= WRITTEN_GRAM and not isinstance(factor, Identity):
        return Dense(factor.gram().dense(limit=n * n))
    return factor.gram()


def _turned(form: Form, most: float) -> Callable[[Array], Array] | None:
    """Many marginals: X = V diag(λ) Vᵀ, the first column of each V_i constant."""
    if not isinstance(form, Commuting) or max(form.shape) > TURNED or len(form.blocks) < 3:
        return None
    if len(form.shape) > 30:
        return None  # most axes have one value then; an array has no room for them
    values = np.zeros((2,) * len(form.shape))
    for axes, information in form.information.items():
        values[tuple(int(i in axes) for i in range(len(form.shape)))] = information / most
    for axis, n in enumerate(form.shape):
        values = np.repeat(values, [1, n - 1], axis=axis)
    spectrum = values.reshape(-1)
    turn = Kron(tuple(Dense(_constant_first(n)) for n in form.shape))
    return lambda x: turn.matvec(spectrum * turn.rmatvec(x))


def _constant_first(n: int) -> Array:
    """Orthogonal, with a constant first column: the reflection of the first unit vector on it."""
    if n == 1:
        return np.ones((1, 1))
    u = np.full(n, 1 / math.sqrt(n))
    u[0] -= 1
    return np.asarray(np.eye(n) - 2 * np.outer(u, u) / (u @ u))
