"""Generalised least squares by structure: X = Σ_j c_j A_jᵀA_j, inverted as a whole.

A measurement is blocks of queries A_j, each answered with noise of variance 1/c_j. The least
squares estimate is X⁺ Σ c_j A_jᵀy_j, and the answers of queries W have covariance W X⁺ Wᵀ. Expected
error (before any noise) and estimation (after it) are two uses of one form:

    ProductForm     one Kronecker product: axis by axis
    PairForm        products with two factors on each axis at most: generalised eigenproblems
    WrittenForm     anything with few cells: one dense inverse
    IterativeForm   anything else: LSMR, with a Kronecker product as preconditioner

Marginals and residuals have their own, `subspaces`; nested levels of one axis theirs, `tree`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpocon, dpotrf

from psephos.errors import TooLargeError
from psephos.frozen import Array
from psephos.infer.axes import DUST, AxisInverse, DenseInverse, axis_inverse
from psephos.matrix import Compose, Dense, Identity, Kron, Matrix, PIdentity

Factors = tuple[Matrix, ...]
WRITTEN = 5000
"""The most cells for which blocks without common structure are inverted in full."""
PAIR_AXIS = 2048
QUERIES = 50_000_000


class Fitted(Protocol):
    """What is known after the measurements: answers to any product that the form covers."""

    def answers(self, factors: Factors) -> Array:
        """The answers of ⊗ W_i, in the order of its rows."""


@dataclass(frozen=True, eq=False)
class FittedVector:
    """An estimate of all cells."""

    vector: Array

    def answers(self, factors: Factors) -> Array:
        return through(Kron(factors), self.vector)


def through(matrix: Matrix, x: Array) -> Array:
    """A matrix times a vector, or times the columns of an array."""
    return matrix.matvec(x) if x.ndim == 1 else matrix.matmat(x)


class Form(ABC):
    """X⁺ by structure. A product of queries is given as one matrix for each axis."""

    exact = True
    """Are traces exact, or estimated with `relative_error`?"""

    def traces(self, products: Sequence[Factors]) -> Array:
        """tr(X⁺ WᵀW) for each product of queries."""
        return np.array([self.trace(factors) for factors in products])

    @abstractmethod
    def trace(self, factors: Factors) -> float:
        """tr(X⁺ WᵀW): the sum of `variances`."""

    @abstractmethod
    def variances(self, factors: Factors) -> Array:
        """The diagonal of W X⁺ Wᵀ: the variance of every answer."""

    @abstractmethod
    def covers(self, factors: Factors) -> bool:
        """Do the blocks determine every answer?"""

    @abstractmethod
    def fit(self, values: Sequence[Array]) -> Fitted:
        """The least squares estimate from the noisy answers of every block.

        Arrays with columns are as many fits at once; their answers have these columns.
        """

    @property
    @abstractmethod
    def work(self) -> int:
        """About how many numbers one fit goes through."""


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
        known: dict[int, AxisInverse] = {}
        for factor in kron.factors:
            if id(factor) not in known:
                known[id(factor)] = axis_inverse(factor)
        return cls(kron, precision, tuple(known[id(f)] for f in kron.factors))

    def _own(self, factors: Factors) -> Factors:
        return factors if len(factors) == len(self.inverses) else (Kron(factors),)

    def traces(self, products: Sequence[Factors]) -> Array:
        found: dict[tuple[int, int], float] = {}
        out = np.full(len(products), 1 / self.precision)
        own = [self._own(factors) for factors in products]  # kept, for their ids to stay theirs
        for j, factors in enumerate(own):
            for inverse, w in zip(self.inverses, factors, strict=True):
                key = (id(inverse), id(w))
                if key not in found:
                    found[key] = inverse.trace_with(w)
                out[j] *= found[key]
        return out

    def trace(self, factors: Factors) -> float:
        return float(self.traces([factors])[0])

    def variances(self, factors: Factors) -> Array:
        out = np.full(1, 1 / self.precision)
        for inverse, w in zip(self.inverses, self._own(factors), strict=True):
            out = np.multiply.outer(out, inverse.variances(w)).ravel()
        return out

    def covers(self, factors: Factors) -> bool:
        pairs = zip(self.inverses, self._own(factors), strict=True)
        return all(inverse.spans(w) for inverse, w in pairs)

    def fit(self, values: Sequence[Array]) -> FittedVector:
        # A⁺ = Y⁺Aᵀ axis by axis, in one go: whole vectors are read and written once for each.
        pairs = zip(self.inverses, self.block.factors, strict=True)
        inverses = tuple(
            a if isinstance(a, Identity) else pseudo_inverse(inverse, a) for inverse, a in pairs
        )
        answers = values[0].astype(float) if values[0].dtype == object else values[0]
        found = through(Kron(inverses), answers).astype(float, copy=False)
        if any(isinstance(inverse, DenseInverse) for inverse in self.inverses):
            # Y⁺Aᵀ has the square of A's condition; what it left is fitted once more.
            found += through(Kron(inverses), answers - through(self.block, found))
        return FittedVector(found)

    @property
    def work(self) -> int:
        return sum(self.block.shape)


def pseudo_inverse(inverse: AxisInverse, a: Matrix) -> Matrix:
    """A⁺ = Y⁺Aᵀ, in floats."""
    if isinstance(a, PIdentity):
        return a.pinv()
    return Compose((inverse, Dense(a.array.T.astype(float)) if isinstance(a, Dense) else a.T))


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
    ) -> PairForm | None:
        """The form, if the blocks are of this kind and no axis is too long."""
        krons = [b for b in blocks if isinstance(b, Kron)]
        fits = all(tuple(f.shape[1] for f in b.factors) == shape for b in krons)
        if len(krons) < len(blocks) or not fits or max(shape) > PAIR_AXIS:
            return None
        solved: dict[tuple[Matrix, Matrix], tuple[Array, Array, Array]] = {}
        vectors: list[Array] = []
        parts = [np.ones(1) for _ in krons]
        for i in range(len(shape)):
            different: list[Matrix] = []
            for block in krons:
                if not any(block.factors[i] == known for known in different):
                    different.append(block.factors[i])
            if len(different) > 2:
                return None
            pair = different[0], different[-1]
            if pair not in solved:
                solved[pair] = common_eigenvectors(*pair)
            v, *lengths = solved[pair]
            vectors.append(v)
            for j, block in enumerate(krons):
                own = lengths[0] if block.factors[i] == different[0] else lengths[1]
                parts[j] = np.multiply.outer(parts[j], own).ravel()
        d = np.asarray(sum(c * part for c, part in zip(precisions, parts, strict=True)))
        # What one block tells is known, however little it weighs beside the others.
        known = np.any([part > part.max() * 1e-13 for part in parts], axis=0)
        inverse = np.divide(1, d, out=np.zeros_like(d), where=known)
        return cls(tuple(krons), tuple(precisions), tuple(vectors), inverse)

    def _squares(self, factors: Factors) -> list[Array]:
        """The squared lengths of W_iV_i by columns."""
        pairs = zip(self.vectors, factors, strict=True)
        return [(v * w.gram().matmat(v)).sum(axis=0) for v, w in pairs]

    def _contracted(self, tensor: Array, squares: list[Array]) -> float:
        for s in reversed(squares):
            tensor = tensor.reshape(-1, s.size) @ s
        return float(tensor.item())

    def trace(self, factors: Factors) -> float:
        return self._contracted(self.inverse, self._squares(factors))

    def variances(self, factors: Factors) -> Array:
        pairs = zip(self.vectors, factors, strict=True)
        entries = sum(w.shape[0] * v.shape[1] for v, w in pairs)
        if entries > QUERIES:
            raise TooLargeError(
                f"the variances of {[w.shape[0] for w in factors]} queries by attribute need "
                f"{entries:,} numbers, over the limit of {QUERIES:,}; ask for `expected_error`, or "
                "for fewer queries",
                entries,
                QUERIES,
            )
        pairs = zip(self.vectors, factors, strict=True)
        return Kron(tuple(Dense(w.matmat(v) ** 2) for v, w in pairs)).matvec(self.inverse)

    def covers(self, factors: Factors) -> bool:
        squares = self._squares(factors)
        whole = math.prod(float(s.sum()) for s in squares)
        outside = self._contracted((self.inverse == 0).astype(float), squares)
        return outside <= DUST * whole and all(
            DenseInverse(np.linalg.qr(v)[0]).spans(w) if v.shape[1] < v.shape[0] else True
            for v, w in zip(self.vectors, factors, strict=True)
        )

    def fit(self, values: Sequence[Array]) -> FittedVector:
        v = Kron(tuple(Dense(v) for v in self.vectors))
        turned = through(v.T, weighted_transpose(self.blocks, self.precisions, values))
        inverse = self.inverse if turned.ndim == 1 else self.inverse[:, None]
        return FittedVector(through(v, inverse * turned))

    @property
    def work(self) -> int:
        return 3 * self.inverse.size + sum(block.shape[0] for block in self.blocks)


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
        inside = solve_triangular(root, half.T, lower=True, check_finite=False)
        turn = np.linalg.eigh(inside)[1]
        v = solve_triangular(root, turn, lower=True, trans="T", check_finite=False)
    else:
        values, vectors = np.linalg.eigh(x + y)
        kept = values > values[-1] * n * 1e-15
        basis = vectors[:, kept] / np.sqrt(values[kept])
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


@dataclass(frozen=True, eq=False)
class WrittenForm(Form):
    """Any blocks over few cells: one eigendecomposition of X."""

    blocks: tuple[Matrix, ...]
    precisions: tuple[float, ...]
    inverse: DenseInverse

    @classmethod
    def of(cls, blocks: Sequence[Matrix], precisions: Sequence[float]) -> WrittenForm:
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
        found = through(self.inverse, weighted_transpose(self.blocks, self.precisions, values))
        left = [y - through(block, found) for block, y in zip(self.blocks, values, strict=True)]
        found += through(self.inverse, weighted_transpose(self.blocks, self.precisions, left))
        return FittedVector(found)

    @property
    def work(self) -> int:
        n = self.blocks[0].shape[1]
        return n * n // 16 + sum(block.shape[0] for block in self.blocks)  # a product by BLAS


def weighted_transpose(
    blocks: Sequence[Matrix], precisions: Sequence[float], values: Sequence[Array]
) -> Array:
    """Σ c_j A_jᵀy_j."""
    parts = zip(blocks, precisions, values, strict=True)
    return np.asarray(sum(c * through(block.T, y.astype(float)) for block, c, y in parts))
