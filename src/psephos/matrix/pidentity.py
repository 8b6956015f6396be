"""The p-Identity matrices that OPT_0 searches: the identity and p further queries, weighted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psephos.errors import ShapeError
from psephos.matrix.base import Matrix, first_appearance
from psephos.matrix.explicit import times, weigh
from psephos.values import Array, absolute, frozen, squared


@dataclass(frozen=True, eq=False, repr=False)
class PIdentity(Matrix):
    """[diag(d); B]: every cell with a positive weight of its own, and p further rows.

    The inverse is Woodbury's, with one p x p system.

    >>> PIdentity([2, 1], [[1, 2]]).dense()
    array([[2., 0.],
           [0., 1.],
           [1., 2.]])
    """

    diagonal: Array
    rows: Array

    def __post_init__(self) -> None:
        diagonal, rows = frozen(self.diagonal), frozen(self.rows)
        kind = np.result_type(diagonal, rows)
        if kind.kind not in "iuf":
            raise ShapeError(f"a p-Identity needs numbers, got {diagonal.dtype} and {rows.dtype}")
        if diagonal.ndim != 1 or rows.ndim != 2 or rows.shape[1:] != diagonal.shape:
            raise ShapeError(
                "a p-Identity needs a diagonal of n numbers and p x n rows, got shapes "
                f"{diagonal.shape} and {rows.shape}"
            )
        if 0 in rows.shape:
            raise ShapeError(f"a p-Identity needs at least one row and one cell, got {rows.shape}")
        if not np.isfinite(rows).all() or not np.isfinite(diagonal).all() or diagonal.min() <= 0:
            raise ShapeError("a p-Identity needs finite rows and a positive, finite diagonal")
        object.__setattr__(self, "diagonal", frozen(diagonal, kind))
        object.__setattr__(self, "rows", frozen(rows, kind))
        object.__setattr__(self, "entry_type", kind)

    @classmethod
    def of(cls, theta: Array) -> PIdentity:
        """A(Θ) = [I; Θ] D with D = diag(1 / (1 + column sums of Θ)): every column has L1 norm 1.

        McKenna et al. 2018, Definition 9.

        >>> PIdentity.of([[1.0, 1.0]]).dense()
        array([[0.5, 0. ],
               [0. , 0.5],
               [0.5, 0.5]])
        """
        theta = frozen(theta, float)
        if theta.ndim != 2 or not np.isfinite(theta).all() or (theta < 0).any():
            raise ShapeError("Θ must be a p x n array, finite and not negative")
        scale = 1 / (1 + theta.sum(axis=0))
        return cls(scale, theta * scale)

    @cached_property
    def _padded(self) -> Array:
        """B, and zero rows up to a multiple of eight, which BLAS multiplies faster than six."""
        p = len(self.rows)
        return frozen(np.pad(self.rows, ((0, -p % 8 if p > 1 else 0), (0, 0))))

    @property
    def shape(self) -> tuple[int, int]:
        p, n = self.rows.shape
        return n + p, n

    def _apply(self, x: Array) -> Array:
        left, _, right = x.shape
        out = np.empty((left, self.shape[0], right), dtype=np.result_type(x, self.entry_type))
        self._apply_into(x, out)
        return out

    _streams = True

    def _apply_into(self, x: Array, out: Array) -> None:
        p, n = self.rows.shape
        weigh(self.diagonal, x, out[:, :n])
        out[:, n:] = times(self._padded, x)[:, :p]

    def _apply_t(self, y: Array) -> Array:
        n = self.shape[1]
        out = times(self.rows.T, y[:, n:])
        out += weigh(self.diagonal, y[:, :n])
        return out

    @property
    def is_nonnegative(self) -> bool:
        return bool((self.rows >= 0).all())

    def abs(self) -> Matrix:
        return self if self.is_nonnegative else PIdentity(self.diagonal, absolute(self.rows))

    def sqr(self) -> Matrix:
        return PIdentity(squared(self.diagonal), squared(self.rows))

    def _column_sums(self) -> Array:
        return np.asarray(self.diagonal.astype(float) + self.rows.sum(axis=0, dtype=float))

    def pinv(self) -> Matrix:
        return PIdentityPinv.of(self)

    def column_groups(self) -> Array:
        return first_appearance(np.arange(self.shape[1]))


@dataclass(frozen=True, eq=False, repr=False)
class PIdentityPinv(Matrix):
    """A⁺ of a p-Identity [diag(d); B]: (y, z) → e y + G (z - B e y), with e = 1/d.

    What the further rows say beyond the cells' own answers is spread by G = E²Bᵀ(I + BE²Bᵀ)⁻¹.

    >>> PIdentityPinv.of(PIdentity([1, 1], [[1, 1]])).dense() * 3
    array([[ 2., -1.,  1.],
           [-1.,  2.,  1.]])
    """

    inverse: Array
    rows: Array
    spread: Array

    def __post_init__(self) -> None:
        for name in ("inverse", "rows", "spread"):
            object.__setattr__(self, name, frozen(getattr(self, name), float))
        object.__setattr__(self, "entry_type", np.dtype(float))

    @classmethod
    def of(cls, a: PIdentity) -> PIdentityPinv:
        from scipy.linalg import solve_triangular

        inverse = 1 / a.diagonal.astype(float)
        root, v = _woodbury(a)
        spread = solve_triangular(root, v, lower=True, trans="T", check_finite=False).T
        return cls(inverse, a.rows, spread)

    @property
    def shape(self) -> tuple[int, int]:
        p, n = self.rows.shape
        return n, n + p

    def _apply(self, x: Array) -> Array:
        kind = np.result_type(x, self.entry_type)
        out = np.empty((x.shape[0], self.shape[0], x.shape[2]), dtype=kind)
        self._apply_into(x, out)
        return out

    _streams = True

    def _apply_into(self, x: Array, out: Array) -> None:
        n = self.shape[0]
        cells = weigh(self.inverse, x[:, :n])
        times(self.spread, x[:, n:] - times(self.rows, cells), out)
        out += cells

    def _apply_t(self, y: Array) -> Array:
        n = self.shape[0]
        kind = np.result_type(y, self.entry_type)
        out = np.empty((y.shape[0], self.shape[1], y.shape[2]), dtype=kind)
        out[:, n:] = times(self.spread.T, y)
        weigh(self.inverse, y - times(self.rows.T, out[:, n:]), out[:, :n])
        return out


@dataclass(frozen=True, eq=False, repr=False)
class Downdate(Matrix):
    """diag(e) - VᵀV, symmetric.

    >>> Downdate([1, 2], [[1, 1]]).dense()
    array([[ 0., -1.],
           [-1.,  1.]])
    """

    diagonal: Array
    rows: Array

    def __post_init__(self) -> None:
        diagonal, rows = frozen(self.diagonal, float), frozen(self.rows, float)
        if diagonal.ndim != 1 or rows.ndim != 2 or rows.shape[1:] != diagonal.shape:
            raise ShapeError(
                f"Downdate needs n numbers and p x n rows, got {diagonal.shape} and {rows.shape}"
            )
        if 0 in rows.shape or not (np.isfinite(diagonal).all() and np.isfinite(rows).all()):
            raise ShapeError("Downdate needs at least one row, one cell and finite numbers")
        object.__setattr__(self, "diagonal", diagonal)
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "entry_type", np.dtype(float))

    @classmethod
    def of(cls, a: PIdentity) -> Downdate:
        """(AᵀA)⁻¹ = D⁻² - VᵀV with V = L⁻¹BD⁻² and LLᵀ = I + BD⁻²Bᵀ (Woodbury)."""
        return cls(1 / a.diagonal.astype(float) ** 2, _woodbury(a)[1])

    @property
    def shape(self) -> tuple[int, int]:
        return self.diagonal.size, self.diagonal.size

    def _apply(self, x: Array) -> Array:
        out = -times(self.rows.T, times(self.rows, x))
        out += weigh(self.diagonal, x)
        return out

    _apply_t = _apply

    def _transpose(self) -> Matrix:
        return self

    def trace(self) -> float:
        return float(self.diagonal.sum() - (self.rows**2).sum())

    def _column_sums(self) -> Array:
        return np.asarray(self.diagonal - self.rows.T @ self.rows.sum(axis=1))

    def sum(self) -> float:
        return float(self.diagonal.sum() - (self.rows.sum(axis=1) ** 2).sum())


def _woodbury(a: PIdentity) -> tuple[Array, Array]:
    """L and V = L⁻¹BD⁻² with LLᵀ = I + BD⁻²Bᵀ."""
    from scipy.linalg import solve_triangular

    scaled = a.rows / a.diagonal.astype(float) ** 2
    root = np.linalg.cholesky(np.eye(len(a.rows)) + scaled @ a.rows.T)
    return root, solve_triangular(root, scaled, lower=True, check_finite=False)


def with_rows(diagonal: Array, rows: Array) -> Matrix:
    """[diag(d); B], or only what is there if B has no rows."""
    from psephos.matrix.core import Diagonal, Identity

    if len(rows):
        return PIdentity(diagonal, rows)
    return Identity(len(diagonal)) if (diagonal == 1).all() else Diagonal(diagonal)
