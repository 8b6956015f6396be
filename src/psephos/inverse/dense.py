"""Any blocks over few cells: X written out, and one eigendecomposition of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psephos.inverse.axis import DenseInverse
from psephos.inverse.form import Factors, FittedVector, Form, multiply, weighted_transpose
from psephos.matrix import Kron, Matrix
from psephos.values import Array

DENSE_CELLS = 5000
"""The most cells for which blocks without common structure are inverted in full."""


@dataclass(frozen=True, eq=False)
class DenseForm(Form):
    """Any blocks over few cells: one eigendecomposition of X."""

    blocks: tuple[Matrix, ...]
    precisions: tuple[float, ...]
    inverse: DenseInverse

    @classmethod
    def of(cls, blocks: Sequence[Matrix], precisions: Sequence[float]) -> DenseForm:
        n = blocks[0].shape[1]
        pairs = zip(blocks, precisions, strict=True)
        grams = (c * b.gram().dense(limit=n * n) for b, c in pairs)
        return cls(tuple(blocks), tuple(precisions), DenseInverse.of_sum(grams, n))

    def trace(self, factors: Factors) -> float:
        return self.inverse.trace_with(Kron(factors))

    def variances(self, factors: Factors) -> Array:
        return self.inverse.variances(Kron(factors))

    def covers(self, factors: Factors) -> bool:
        return self.inverse.spans(Kron(factors))

    def fit(self, values: Sequence[Array]) -> FittedVector:
        x = multiply(self.inverse, weighted_transpose(self.blocks, self.precisions, values))
        residuals = [y - multiply(block, x) for block, y in zip(self.blocks, values, strict=True)]
        x += multiply(self.inverse, weighted_transpose(self.blocks, self.precisions, residuals))
        return FittedVector(x)

    @property
    def work(self) -> int:
        n = self.blocks[0].shape[1]
        return n * n // 16 + sum(block.shape[0] for block in self.blocks)  # a product by BLAS
