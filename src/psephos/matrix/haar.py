"""The Haar wavelet of any length, without storage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from psephos.errors import ShapeError
from psephos.matrix.base import Matrix, positive
from psephos.values import Array


@dataclass(frozen=True, eq=False, repr=False)
class Haar(Matrix):
    """The total, then for every node of a binary tree its left half minus its right.

    Neighbours are paired from the bottom up; where a level has an odd number of nodes the last
    waits for the level above, so any length will do. Rows go from coarse to fine.

    >>> Haar(4).dense()
    array([[ 1.,  1.,  1.,  1.],
           [ 1.,  1., -1., -1.],
           [ 1., -1.,  0.,  0.],
           [ 0.,  0.,  1., -1.]])

    The same tree with `sign` +1 is |Haar|, and with every sum halved it is the inverse transposed:
    left = (sum + difference)/2.
    """

    n: int
    sign: int = -1
    scale: float = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", positive(self.n, "the size of Haar"))
        if not isinstance(self.sign, int | float) or self.sign not in (-1, 1):
            raise ShapeError(f"the sign of Haar is -1 or 1, got {self.sign!r}")
        if not isinstance(self.scale, int | float) or not 0 < self.scale < float("inf"):
            raise ShapeError(f"the scale of Haar is a positive number, got {self.scale!r}")
        if self.scale != 1:
            object.__setattr__(self, "entry_type", np.dtype(float))

    @property
    def shape(self) -> tuple[int, int]:
        return self.n, self.n

    def _apply(self, x: Array) -> Array:
        x = self._typed(x)
        out = np.empty(x.shape, dtype=x.dtype)
        end = self.n
        while x.shape[1] > 1:
            half = x.shape[1] // 2
            first, second = x[:, 0 : 2 * half : 2], x[:, 1 : 2 * half : 2]
            out[:, end - half : end] = self._scaled(first + self.sign * second)
            end -= half
            sums = self._scaled(first + second)
            x = sums if x.shape[1] % 2 == 0 else np.concatenate([sums, x[:, -1:]], axis=1)
        out[:, 0] = x[:, 0]
        return out

    def _apply_t(self, y: Array) -> Array:
        y = self._typed(y)
        lengths = [self.n]
        while lengths[-1] > 1:
            lengths.append((lengths[-1] + 1) // 2)
        x, start = y[:, :1], 1
        for length in reversed(lengths[:-1]):
            half = length // 2
            node, detail = x[:, :half], y[:, start : start + half]
            start += half
            children = np.empty((y.shape[0], length, y.shape[2]), dtype=y.dtype)
            children[:, 0 : 2 * half : 2] = self._scaled(node + detail)
            children[:, 1 : 2 * half : 2] = self._scaled(node + self.sign * detail)
            if length % 2:
                children[:, -1] = x[:, -1]
            x = children
        return x

    def _typed(self, x: Array) -> Array:
        return x if self.scale == 1 else x.astype(np.result_type(x, self.entry_type), copy=False)

    def _scaled(self, x: Any) -> Any:
        return x if self.scale == 1 else self.scale * x

    @property
    def is_nonnegative(self) -> bool:
        return self.sign > 0

    def abs(self) -> Matrix:
        return Haar(self.n, 1, self.scale)

    def sqr(self) -> Matrix:
        return Haar(self.n, 1, self.scale**2)

    def pinv(self) -> Matrix:
        if self.sign > 0 or self.scale not in (1, 0.5):
            raise self._unsupported("pinv()")
        return Haar(self.n, -1, 0.5 / self.scale).T

    def column_groups(self) -> Array:
        if self.sign > 0:
            raise self._unsupported("column_groups()")
        return np.arange(self.n)

    def __repr__(self) -> str:
        if (self.sign, self.scale) == (-1, 1):
            return f"Haar(n={self.n})"
        return f"Haar(n={self.n}, sign={self.sign}, scale={self.scale})"
