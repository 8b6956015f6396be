"""Products with at most two different factors on each axis: one eigenproblem for each axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpocon, dpotrf

from psephos.errors import ShapeError, TooLargeError
from psephos.inverse.axis import SPAN_TOLERANCE, DenseInverse
from psephos.inverse.form import Factors, FittedVector, Form, multiply, weighted_transpose
from psephos.matrix import Dense, Kron, Matrix
from psephos.values import Array

PAIR_CELLS = 20_000_000
"""The most cells for which blocks are inverted by common eigenvectors."""

PAIR_AXIS = 2048
"""The longest axis on which common eigenvectors are computed."""
VARIANCE_ENTRIES = 50_000_000
"""The most entries of W_iV_i, over all axes, that variances may need."""


@dataclass(frozen=True, eq=False)
class PairForm(Form):
    """Blocks ⊗A_i in which every axis has at most two different factors, A_i and B_i.

    On every axis V_i diagonalises both Grams at once, and so V = ⊗V_i all blocks. With
    α_i = |A_iV_i|² and β_i = |B_iV_i|² by columns and c_j the precision of block j,

        X⁺ = V diag(1/d) Vᵀ,   d = Σ_j c_j ⊗(α_i or β_i)   (where d = 0 nothing is known).

    Two products are always of this kind; so are any number that either use one strategy of an
    attribute or sum over it.
    """

    blocks: tuple[Kron, ...]
    precisions: tuple[float, ...]
    vectors: tuple[Array, ...]
    inverse: Array

    @classmethod
    def of(
        cls, blocks: Sequence[Matrix], precisions: Sequence[float], shape: tuple[int, ...]
    ) -> PairForm:
        """The form of blocks that have `factor_pairs`."""
        pairs = factor_pairs(blocks, shape)
        krons = tuple(block for block in blocks if isinstance(block, Kron))
        if pairs is None:
            raise ShapeError("some axis has more than two different factors, or is too long")
        eigenvectors: dict[tuple[Matrix, Matrix], tuple[Array, Array, Array]] = {}
        vectors: list[Array] = []
        parts = [np.ones(1) for _ in krons]
        for i, pair in enumerate(pairs):
            if pair not in eigenvectors:
                eigenvectors[pair] = common_eigenvectors(*pair)
            v, *lengths = eigenvectors[pair]
            vectors.append(v)
            for j, block in enumerate(krons):
                length = lengths[0] if block.factors[i] == pair[0] else lengths[1]
                parts[j] = np.multiply.outer(parts[j], length).ravel()
        d = np.asarray(sum(c * part for c, part in zip(precisions, parts, strict=True)))
        # What one block tells is known, however little it weighs beside the others.
        known = np.any([part > part.max() * 1e-13 for part in parts], axis=0)
        inverse = np.divide(1, d, out=np.zeros_like(d), where=known)
        return cls(krons, tuple(precisions), tuple(vectors), inverse)

    def _squares(self, factors: Factors) -> list[Array]:
        """The squared lengths of W_iV_i by columns."""
        pairs = zip(self.vectors, factors, strict=True)
        return [(v * w.gram().matmat(v)).sum(axis=0) for v, w in pairs]

    def _contract(self, tensor: Array, squares: list[Array]) -> float:
        """The sum of a tensor's entries, each times its squared length on every axis."""
        for s in reversed(squares):
            tensor = tensor.reshape(-1, s.size) @ s
        return float(tensor.item())

    def trace(self, factors: Factors) -> float:
        return self._contract(self.inverse, self._squares(factors))

    def variances(self, factors: Factors) -> Array:
        pairs = zip(self.vectors, factors, strict=True)
        entries = sum(w.shape[0] * v.shape[1] for v, w in pairs)
        if entries > VARIANCE_ENTRIES:
            raise TooLargeError(
                f"the variances of {[w.shape[0] for w in factors]} queries by attribute need "
                f"{entries:,} numbers, over the limit of {VARIANCE_ENTRIES:,}; ask for "
                "`expected_error`, or for fewer queries",
                entries,
                VARIANCE_ENTRIES,
            )
        pairs = zip(self.vectors, factors, strict=True)
        return Kron(tuple(Dense(w.matmat(v) ** 2) for v, w in pairs)).matvec(self.inverse)

    def covers(self, factors: Factors) -> bool:
        squares = self._squares(factors)
        everything = math.prod(float(s.sum()) for s in squares)
        outside = self._contract((self.inverse == 0).astype(float), squares)
        return outside <= SPAN_TOLERANCE * everything and all(
            DenseInverse(np.linalg.qr(v)[0]).spans(w) if v.shape[1] < v.shape[0] else True
            for v, w in zip(self.vectors, factors, strict=True)
        )

    def fit(self, values: Sequence[Array]) -> FittedVector:
        v = Kron(tuple(Dense(v) for v in self.vectors))
        coordinates = multiply(v.T, weighted_transpose(self.blocks, self.precisions, values))
        inverse = self.inverse if coordinates.ndim == 1 else self.inverse[:, None]
        return FittedVector(multiply(v, inverse * coordinates))

    @property
    def work(self) -> int:
        return 3 * self.inverse.size + sum(block.shape[0] for block in self.blocks)


def factor_pairs(
    blocks: Sequence[Matrix], shape: tuple[int, ...]
) -> list[tuple[Matrix, Matrix]] | None:
    """The one or two factors that blocks have on each axis; None if there are more somewhere.

    Blocks that are no products over all axes have none, and neither have axes that are too long.
    """
    krons = [b for b in blocks if isinstance(b, Kron)]
    fits = all(tuple(f.shape[1] for f in b.factors) == shape for b in krons)
    if len(krons) < len(blocks) or not fits or max(shape) > PAIR_AXIS:
        return None
    pairs: list[tuple[Matrix, Matrix]] = []
    for factors in zip(*(b.factors for b in krons), strict=True):
        different: list[Matrix] = []
        for factor in {id(f): f for f in factors}.values():
            if not any(factor == other for other in different):
                different.append(factor)
        if len(different) > 2:
            return None
        pairs.append((different[0], different[-1]))
    return pairs


def common_eigenvectors(a: Matrix, b: Matrix) -> tuple[Array, Array, Array]:
    """V with Vᵀ(AᵀA/s + BᵀB/t)V = I on the span of both, and |AV|², |BV|² by columns."""
    n = a.shape[1]
    if n > PAIR_AXIS:
        raise TooLargeError(
            f"two products are inverted together by eigenvectors of each attribute, and {n:,} "
            f"cells of one attribute are over the limit of {PAIR_AXIS:,}",
            n,
            PAIR_AXIS,
        )
    x, y = (g / (float(np.trace(g)) / n or 1.0) for g in (_gram(a), _gram(b)))
    root = _root(x + y)
    if root is not None:
        half = solve_triangular(root, x, lower=True, check_finite=False)
        both = solve_triangular(root, half.T, lower=True, check_finite=False)
        turn = np.linalg.eigh(both)[1]
        v = solve_triangular(root, turn, lower=True, trans="T", check_finite=False)
    else:
        values, vectors = np.linalg.eigh(x + y)
        inside = values > values[-1] * n * 1e-15
        basis = vectors[:, inside] / np.sqrt(values[inside])
        v = basis @ np.linalg.eigh(basis.T @ x @ basis)[1]
    # As lengths, not as 1 - the other: that would lose the digits of the small ones.
    return v, (a.matmat(v) ** 2).sum(axis=0), (b.matmat(v) ** 2).sum(axis=0)


def _gram(a: Matrix) -> Array:
    n = a.shape[1]
    return a.gram().dense(limit=n * n)


def _root(x: Array) -> Array | None:
    """L with LLᵀ = X, if X is far enough from singular to be divided by."""
    root, failed = dpotrf(x, lower=1)
    if failed or dpocon(root, np.abs(x).sum(axis=0).max(), uplo="L")[0] < 1e-6:
        return None
    return np.asarray(root)
