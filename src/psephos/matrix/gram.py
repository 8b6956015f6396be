"""Grams: AᵀA kept as a product, and the semiseparable closed form of prefixes and ranges."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psephos.errors import ShapeError
from psephos.matrix.base import Matrix
from psephos.matrix.core import running_sums
from psephos.values import Array, frozen


@dataclass(frozen=True, eq=False, repr=False)
class Gram(Matrix):
    """AᵀA, applied as A and then its transpose."""

    base: Matrix

    def __post_init__(self) -> None:
        object.__setattr__(self, "entry_type", self.base.entry_type)

    @property
    def shape(self) -> tuple[int, int]:
        n = self.base.shape[1]
        return n, n

    @cached_property
    def _inner(self) -> tuple[Matrix, Matrix] | None:
        """(B, AᵀA) of a product A B whose left part has a Gram in closed form."""
        from psephos.matrix.combine import Compose

        if not isinstance(self.base, Compose) or len(self.base.parts) < 2:
            return None
        first, *rest = self.base.parts
        gram = first.gram()
        if isinstance(gram, Gram) or any(isinstance(part, Gram) for part in gram.walk()):
            return None
        return (rest[0] if len(rest) == 1 else Compose(tuple(rest))), gram

    def _apply(self, x: Array) -> Array:
        inner = self._inner if x.dtype.kind == "f" else None  # closed forms may hold floats
        if inner is None:
            return self.base._apply_t(self.base._apply(x))
        right, gram = inner
        return right._apply_t(gram._apply(right._apply(x)))

    _apply_t = _apply

    def _transpose(self) -> Matrix:
        return self

    @property
    def is_nonnegative(self) -> bool:
        return self.base.is_nonnegative

    def pinv(self) -> Matrix:
        """(AᵀA)⁺ = A⁺A⁺ᵀ."""
        return self.base.pinv().T.gram()

    def trace(self) -> float:
        """Tr AᵀA is the sum of all squared entries of A."""
        return self.base.sqr().sum()

    def sum(self) -> float:
        """1ᵀAᵀA1 is the squared length of the row sums."""
        ones = np.ones((1, self.base.shape[1], 1))
        return float((self.base._apply(ones) ** 2).sum())

    def column_groups(self) -> Array:
        return self.base.column_groups()


@dataclass(frozen=True, eq=False, repr=False)
class Semiseparable(Matrix):
    """Symmetric, entry (i, j) = u[min(i, j)] · v[max(i, j)]; products by two scans.

    >>> Semiseparable([1, 2], [2, 1]).dense()
    array([[2., 1.],
           [1., 2.]])
    """

    u: Array
    v: Array

    def __post_init__(self) -> None:
        # Floats, because the entries soon pass 64 bits: (n/2)² per entry of AllRange's Gram.
        u, v = frozen(self.u, float), frozen(self.v, float)
        if u.ndim != 1 or u.shape != v.shape or u.size == 0:
            raise ShapeError(f"u and v must be vectors of one length, got {u.shape} and {v.shape}")
        if not (np.isfinite(u).all() and np.isfinite(v).all()):
            raise ShapeError("u and v must be finite")
        object.__setattr__(self, "u", u)
        object.__setattr__(self, "v", v)
        object.__setattr__(self, "entry_type", np.dtype(float))

    @property
    def shape(self) -> tuple[int, int]:
        return self.u.size, self.u.size

    def _apply(self, x: Array) -> Array:
        u, v = self.u[None, :, None], self.v[None, :, None]
        up_to = running_sums(u * x)
        weighted = v * x
        after = running_sums(weighted[:, ::-1])[:, ::-1] - weighted
        return np.asarray(v * up_to + u * after)

    _apply_t = _apply

    def _transpose(self) -> Matrix:
        return self

    @property
    def is_nonnegative(self) -> bool:
        return bool((self.u >= 0).all() and (self.v >= 0).all())

    def abs(self) -> Matrix:
        return Semiseparable(np.abs(self.u), np.abs(self.v))

    def sqr(self) -> Matrix:
        return Semiseparable(self.u**2, self.v**2)

    def trace(self) -> float:
        return float((self.u.astype(float) * self.v).sum())

    def pinv(self) -> Matrix:
        """Tridiagonal, when the matrix is regular."""
        from scipy.sparse import diags_array

        from psephos.matrix.explicit import Sparse

        u, v = self.u.astype(float), self.v.astype(float)
        if u.size == 1 and u[0] * v[0] != 0:
            return Sparse(diags_array([1 / (u * v)], offsets=[0]))
        gap = u[1:] * v[:-1] - u[:-1] * v[1:]
        if u.size == 1 or not gap.all() or u[0] == 0 or v[-1] == 0:
            raise self._unsupported("pinv()")
        main = np.empty(u.size)
        main[0] = u[1] / (u[0] * gap[0])
        main[-1] = v[-2] / (v[-1] * gap[-1])
        main[1:-1] = (u[2:] * v[:-2] - u[:-2] * v[2:]) / (gap[:-1] * gap[1:])
        return Sparse(diags_array([-1 / gap, main, -1 / gap], offsets=[-1, 0, 1]))
