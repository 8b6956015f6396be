"""The p-Identity matrices that OPT_0 searches: the identity and p further queries, normalised."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psephos.errors import ShapeError
from psephos.frozen import Array, frozen
from psephos.matrix.base import Matrix, Norm, first_appearance
from psephos.matrix.explicit import Dense, times


@dataclass(frozen=True, eq=False, repr=False)
class PIdentity(Matrix):
    """A(Θ) = [I; Θ] D with D = diag(1 / (1 + column sums of Θ)): every column has L1 norm 1.

    McKenna et al. 2018, Definition 9; the inverse is Woodbury's, with one p x p system.

    >>> PIdentity([[1.0, 1.0]]).dense()
    array([[0.5, 0. ],
           [0. , 0.5],
           [0.5, 0.5]])
    """

    theta: Array

    def __post_init__(self) -> None:
        theta = frozen(self.theta, float)
        if theta.ndim != 2 or 0 in theta.shape:
            raise ShapeError(f"Θ must be a non-empty p x n array, got shape {theta.shape}")
        if not np.isfinite(theta).all() or (theta < 0).any():
            raise ShapeError("Θ must be finite and not negative")
        object.__setattr__(self, "theta", theta)
        object.__setattr__(self, "entry_type", np.dtype(float))

    @cached_property
    def scale(self) -> Array:
        """The diagonal of D."""
        return frozen(1 / (1 + self.theta.sum(axis=0)))

    @cached_property
    def _weighted(self) -> Array:
        """Θ D, the rows below the identity, and zero rows up to a multiple of eight.

        BLAS multiplies eight rows faster than six.
        """
        p = len(self.theta)
        return frozen(np.pad(self.theta * self.scale, ((0, -p % 8 if p > 1 else 0), (0, 0))))

    @property
    def shape(self) -> tuple[int, int]:
        p, n = self.theta.shape
        return n + p, n

    def _apply(self, x: Array) -> Array:
        left, _, right = x.shape
        out = np.empty((left, self.shape[0], right))
        self._apply_into(x, out)
        return out

    _streams = True

    def _apply_into(self, x: Array, out: Array) -> None:
        p, n = self.theta.shape
        np.multiply(x, self.scale[None, :, None], out=out[:, :n])
        out[:, n:] = times(self._weighted, x)[:, :p]

    def _apply_t(self, y: Array) -> Array:
        n = self.shape[1]
        out = times(self.theta.T, y[:, n:])
        out += y[:, :n]
        out *= self.scale[None, :, None]
        return out

    @property
    def is_nonnegative(self) -> bool:
        return True

    def sqr(self) -> Matrix:
        from psephos.matrix.core import Diagonal
        from psephos.matrix.stack import Stack

        return Stack((Diagonal(self.scale**2), Dense((self.theta * self.scale) ** 2)))

    def column_norms(self, p: Norm) -> Array:
        return np.ones(self.shape[1]) if p == 1 else super().column_norms(p)

    def pinv(self) -> Matrix:
        """A⁺ = D⁻¹ (I - Θᵀ(I + ΘΘᵀ)⁻¹Θ) [I, Θᵀ]."""
        from psephos.matrix.combine import compose
        from psephos.matrix.core import Diagonal, Identity
        from psephos.matrix.stack import Stack

        p, n = self.theta.shape
        solved = np.linalg.solve(np.eye(p) + self.theta @ self.theta.T, self.theta)
        inner = Identity(n) - compose(Dense(self.theta.T), Dense(solved))
        both = Stack((Identity(n), Dense(self.theta))).T
        return compose(Diagonal(1 / self.scale), inner, both)

    def column_groups(self) -> Array:
        return first_appearance(np.arange(self.shape[1]))
