"""One Kronecker product, inverted axis by axis, and the inverse that each axis gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from psephos.inverse.axis import (
    AxisInverse,
    DenseInverse,
    DiagonalInverse,
    DirectSumInverse,
    MergedInverse,
    TotalInverse,
    WoodburyInverse,
)
from psephos.inverse.form import Factors, FittedVector, Form, check_vector, multiply
from psephos.inverse.nested import nested_inverse
from psephos.inverse.tree import tree_inverse
from psephos.matrix import (
    Compose,
    Dense,
    Diagonal,
    DirectSum,
    Downdate,
    Identity,
    Kron,
    Matrix,
    Ones,
    Partition,
    PIdentity,
)
from psephos.values import Array


@dataclass(frozen=True, eq=False)
class ProductForm(Form):
    """One block c·⊗A_i: X⁺ = ⊗Y_i⁺ / c.

    A block that is no product over the domain's attributes is one factor over all cells.
    """

    block: Kron
    precision: float
    inverses: tuple[AxisInverse, ...]

    @classmethod
    def of(cls, block: Matrix, precision: float, shape: tuple[int, ...]) -> ProductForm:
        fits = isinstance(block, Kron) and tuple(f.shape[1] for f in block.factors) == shape
        kron = block if isinstance(block, Kron) and fits else Kron((block,))
        inverses: dict[int, AxisInverse] = {}
        for factor in kron.factors:
            if id(factor) not in inverses:
                inverses[id(factor)] = axis_inverse(factor)
        return cls(kron, precision, tuple(inverses[id(f)] for f in kron.factors))

    def _axis_queries(self, factors: Factors) -> Factors:
        """The queries on each inverse: one for every attribute, or one over all cells."""
        return factors if len(factors) == len(self.inverses) else (Kron(factors),)

    def traces(self, products: Sequence[Factors]) -> Array:
        traces: dict[tuple[int, int], float] = {}
        out = np.full(len(products), 1 / self.precision)
        queries = [self._axis_queries(factors) for factors in products]  # held, so ids stay theirs
        for j, factors in enumerate(queries):
            for inverse, w in zip(self.inverses, factors, strict=True):
                key = (id(inverse), id(w))
                if key not in traces:
                    traces[key] = inverse.trace_with(w)
                out[j] *= traces[key]
        return out

    def trace(self, factors: Factors) -> float:
        return float(self.traces([factors])[0])

    def variances(self, factors: Factors) -> Array:
        out = np.full(1, 1 / self.precision)
        for inverse, w in zip(self.inverses, self._axis_queries(factors), strict=True):
            out = np.multiply.outer(out, inverse.variances(w)).ravel()
        return out

    def covers(self, factors: Factors) -> bool:
        pairs = zip(self.inverses, self._axis_queries(factors), strict=True)
        return all(inverse.spans(w) for inverse, w in pairs)

    def fit(self, values: Sequence[Array]) -> FittedVector:
        check_vector(self.block.shape[1])
        # A⁺ = Y⁺Aᵀ axis by axis, in one go: whole vectors are read and written once for each.
        pairs = zip(self.inverses, self.block.factors, strict=True)
        inverses = tuple(
            a if isinstance(a, Identity) else pseudo_inverse(inverse, a) for inverse, a in pairs
        )
        answers = values[0].astype(float) if values[0].dtype == object else values[0]
        x = multiply(Kron(inverses), answers).astype(float, copy=False)
        if any(isinstance(inverse, DenseInverse) for inverse in self.inverses):
            # Y⁺Aᵀ has the square of A's condition: the residual is fitted once more.
            x += multiply(Kron(inverses), answers - multiply(self.block, x))
        return FittedVector(x)

    @property
    def work(self) -> int:
        return sum(self.block.shape)


def pseudo_inverse(inverse: AxisInverse, a: Matrix) -> Matrix:
    """A⁺ = Y⁺Aᵀ, in floats."""
    if isinstance(a, PIdentity):
        return a.pinv()
    return Compose((inverse, Dense(a.array.T.astype(float)) if isinstance(a, Dense) else a.T))


def axis_inverse(a: Matrix) -> AxisInverse:
    """Y⁺ for Y = AᵀA, by what A is made of; written out where that tells nothing."""
    merged = _merged_axis(a)
    if merged is not None:
        inner, groups = merged
        return MergedInverse(axis_inverse(inner), groups)
    if isinstance(a, DirectSum):
        inverses = {id(part): axis_inverse(part) for part in {id(p): p for p in a.parts}.values()}
        return DirectSumInverse(tuple(inverses[id(part)] for part in a.parts))
    return closed_inverse(a) or DenseInverse.of(a)


def closed_inverse(a: Matrix) -> AxisInverse | None:
    """The same, or None where something would have to be written out."""
    n = a.shape[1]
    if isinstance(a, Identity):
        return DiagonalInverse(np.ones(n))
    if isinstance(a, Diagonal) and (a.weights != 0).all():
        return DiagonalInverse(1 / a.weights.astype(float) ** 2)
    if isinstance(a, Ones):
        return TotalInverse(n, a.m)
    if isinstance(a, PIdentity):
        return WoodburyInverse(Downdate.of(a))
    if isinstance(a, Partition):
        return MergedInverse(DiagonalInverse(np.ones(a.shape[0])), a.groups)
    merged = _merged_axis(a)
    if merged is not None:
        inside = closed_inverse(merged[0])
        return inside and MergedInverse(inside, merged[1])
    if isinstance(a, DirectSum):
        inverses = {id(p): closed_inverse(p) for p in {id(p): p for p in a.parts}.values()}
        parts = [inverse for p in a.parts if (inverse := inverses[id(p)]) is not None]
        return DirectSumInverse(tuple(parts)) if len(parts) == len(a.parts) else None
    return tree_inverse(a) or nested_inverse(a)


def _merged_axis(a: Matrix) -> tuple[Matrix, Array] | None:
    """A factor on merged cells, and the groups that they are."""
    if not isinstance(a, Compose) or not isinstance(a.parts[-1], Partition):
        return None
    rest = a.parts[:-1]
    return rest[0] if len(rest) == 1 else Compose(rest), a.parts[-1].groups
