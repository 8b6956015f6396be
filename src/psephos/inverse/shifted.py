"""X + μI of some blocks, inverted: the linear step of splitting methods, X = Σ_j c_j A_jᵀA_j.

Adding μI keeps eigenvectors, so where X has them in a closed form, so has (X + μI)⁻¹, for any μ:

    one product        ⊗V_i (⊗Λ_i + μ)⁻¹ ⊗V_iᵀ, from the eigenvectors of every axis
    marginals          I/μ + Σ_S (1/(λ_S + μ) - 1/μ) P_S over the subspaces S that some block sees,
                       again a sum of marginals: one pass through a tree of partial sums
    common classes     those of the blocks and I together (`axis_classes`)
    few cells          the eigenvectors of X, written out
    one axis           a p-Identity (Woodbury), a tree of counts with one level more, prefixes and
                       all ranges (whose Grams have tridiagonal inverses)

Everything else is solved by conjugate gradients, preconditioned by the product nearest to X (Van
Loan and Pitsianis 1993) plus μI.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from itertools import product
from typing import ClassVar

import numpy as np
from scipy.linalg import solveh_banded

from psephos.inverse.axis import WoodburyInverse
from psephos.inverse.classes import Classes, block_classes
from psephos.inverse.form import multiply
from psephos.inverse.gram_map import LinearMap, gram_map
from psephos.inverse.marginal_blocks import is_commuting
from psephos.inverse.nearest_product import nearest_product
from psephos.inverse.subspaces import Subspaces
from psephos.inverse.tree import tree_inverse
from psephos.matrix import (
    AllRange,
    Dense,
    Downdate,
    Identity,
    Kron,
    MarginalsGram,
    Matrix,
    Ones,
    PIdentity,
    Prefix,
)
from psephos.matrix.columns import gram_diagonal
from psephos.matrix.marginals import Axes
from psephos.values import Array

SPECTRUM_PART = 1 << 16
"""Coordinates that are divided by eigenvalues at once."""
SPECTRUM_AXIS = 2048
"""The longest axis whose eigenvectors are written out."""
GROUPED_CELLS = 64
"""Neighbouring axes of so many cells share one matrix: a few products of some size are fast."""
TREE_COST = 6.0
"""How many cells, for each of the domain, a tree of partial sums may go through."""
PRODUCT_LENGTH = 200
"""How long an axis is whose product with a matrix takes as long as going cell by cell."""
SHIFTED_STEPS = 60
"""The most steps of conjugate gradients for one solution; the next starts from it."""
SHIFTED_SHARE = 0.03
"""The share of its residual that a solution by conjugate gradients leaves."""

ShiftedMap = Callable[[Array, Array], Array]


class ShiftedForm(ABC):
    """(X + μI)⁻¹ for any μ > 0."""

    scale: float
    """About the geometric mean of the eigenvalues that are not zero."""
    takes_steps: ClassVar[bool] = False
    """Is a solution found in steps from a guess?"""
    takes_columns: ClassVar[bool] = False
    """May v have several columns, which are solved for together?"""

    @property
    def effort(self) -> float:
        """About how long one solution takes, in those of a closed form that goes cell by cell."""
        return 1.0

    @abstractmethod
    def at(self, shift: float) -> ShiftedMap:
        """The map v ↦ (X + μI)⁻¹v, which may write over v.

        Its second argument is a guess, used where steps are taken.
        """


@dataclass(frozen=True, eq=False)
class Spectrum(ShiftedForm):
    """X = V diag(λ) Vᵀ with V orthogonal, a product over groups of axes."""

    vectors: Kron
    values: tuple[Array, ...]
    """Eigenvalues are products of one number of each of these, the last going round fastest."""
    takes_columns: ClassVar[bool] = True

    @cached_property
    def scale(self) -> float:  # type: ignore[override]
        means = (_geometric_mean(each, np.ones(each.size)) for each in self.values)
        return math.prod(means)

    @cached_property
    def _halves(self) -> tuple[Array, Array]:
        """Two columns whose outer product has all eigenvalues: a vector of these is not needed."""
        head, tail = list(self.values), np.ones(1)
        while head and tail.size * head[-1].size <= SPECTRUM_PART:
            tail = np.multiply.outer(head.pop(), tail).ravel()
        return reduce(lambda a, b: np.multiply.outer(a, b).ravel(), head, np.ones(1)), tail

    @property
    def effort(self) -> float:
        return 1 + sum(f.shape[1] for f in self.vectors.factors) / PRODUCT_LENGTH

    def at(self, shift: float) -> ShiftedMap:
        def solve(v: Array, _: Array) -> Array:
            head, tail = self._halves
            if v.ndim > 1:
                images = self.vectors.rmatmat(v)
                images /= (np.outer(head, tail) + shift).reshape(-1, 1)
                return self.vectors.matmat(images)
            coordinates = self.vectors.rmatvec(v)
            table, out = coordinates.reshape(-1, tail.size), v.reshape(-1, tail.size)
            rows = max(1, SPECTRUM_PART // tail.size)
            for start in range(0, head.size, rows):
                some = slice(start, start + rows)
                np.divide(table[some], np.outer(head[some], tail) + shift, out=out[some])
            del coordinates, table  # or there would be three vectors at once
            return self.vectors.matvec(v)

        return solve


@dataclass(frozen=True, eq=False)
class MarginalSpectrum(ShiftedForm):
    """Marginals and residuals: λ_S for the subspaces that some block sees."""

    shape: tuple[int, ...]
    information: dict[Axes, float]
    takes_columns: ClassVar[bool] = True

    @cached_property
    def scale(self) -> float:  # type: ignore[override]
        sizes = [math.prod(self.shape[i] - 1.0 for i in s) for s in self.information]
        return _geometric_mean(np.array(list(self.information.values())), np.array(sizes))

    def _map(self, values: dict[Axes, float]) -> MarginalsGram:
        """Σ_S g_S P_S as a sum of marginals: P_S = Σ_{a⊆S} (-1)^|S∖a| C(a) / Π_{i∉a} n_i."""
        weights: dict[Axes, float] = {}
        for s, g in values.items():
            for keep in product((False, True), repeat=len(s)):
                a = tuple(i for i, kept in zip(s, keep, strict=True) if kept)
                sign = -1.0 if (len(s) - len(a)) % 2 else 1.0
                weights[a] = weights.get(a, 0.0) + sign * g
        cells = math.prod(map(float, self.shape))
        scaled = [w * math.prod(self.shape[i] for i in a) / cells for a, w in weights.items()]
        return MarginalsGram(self.shape, tuple(weights), tuple(scaled))

    def at(self, shift: float) -> ShiftedMap:
        seen = self._map({s: -v / (v + shift) for s, v in self.information.items()})

        def solve(v: Array, _: Array) -> Array:
            out = multiply(seen, v)
            out += v
            out /= shift
            return out

        return solve


@dataclass(frozen=True, eq=False)
class ClassSpectrum(ShiftedForm):
    """Blocks and I, last, with common classes on every axis."""

    form: Classes

    @cached_property
    def scale(self) -> float:  # type: ignore[override]
        pairs = zip(self.form.blocks[:-1], self.form.precisions, strict=False)
        return float(sum(c * gram_diagonal(block).mean() for block, c in pairs))

    def at(self, shift: float) -> ShiftedMap:
        form = self.form.with_precisions((*self.form.precisions[:-1], shift))
        return lambda v, _: form.solve(v)


@dataclass(frozen=True, eq=False)
class Line(ShiftedForm):
    """One axis whose X + μI has a closed inverse at any length."""

    matrix: Matrix
    precision: float
    shifted: Callable[[float], Matrix | LinearMap]

    @cached_property
    def scale(self) -> float:  # type: ignore[override]
        if isinstance(self.matrix, Prefix | AllRange):  # the determinant is 1, or (n + 1)^(n - 1)
            whole = isinstance(self.matrix, AllRange)
            return self.precision * (self.matrix.shape[1] + 1 if whole else 1.0)
        return float(self.precision * gram_diagonal(self.matrix).mean())

    def at(self, shift: float) -> ShiftedMap:
        inverse = self.shifted(shift / self.precision)
        turned = inverse.matvec if isinstance(inverse, Matrix) else inverse
        return lambda v, _: np.asarray(turned(v) / self.precision)


@dataclass(frozen=True, eq=False)
class Solved(ShiftedForm):
    """No closed form: conjugate gradients, preconditioned by a product or by the diagonal."""

    gram: LinearMap
    near: Array | Spectrum
    """The diagonal, or a product."""
    takes_steps: ClassVar[bool] = True

    @cached_property
    def scale(self) -> float:  # type: ignore[override]
        return self.near.scale if isinstance(self.near, Spectrum) else float(self.near.mean())

    def _preconditioner(self, shift: float) -> Callable[[Array], Array]:
        near = self.near
        if isinstance(near, Spectrum):
            solve = near.at(shift)
            return lambda r: solve(r.copy(), r)
        return lambda r: r / (near + shift)

    def at(self, shift: float) -> ShiftedMap:
        precondition = self._preconditioner(shift)

        def solve(v: Array, guess: Array) -> Array:
            x, r = guess, v
            r -= self.gram(x)
            r -= shift * x
            scaled = precondition(r)
            direction, size = scaled.copy(), float(r @ scaled)
            enough = SHIFTED_SHARE**2 * size
            for _ in range(SHIFTED_STEPS):
                if size <= enough or size == 0:
                    break
                image = self.gram(direction)
                image += shift * direction
                length = size / float(direction @ image)
                x += length * direction
                image *= length
                r -= image
                del image, scaled
                scaled = precondition(r)
                before, size = size, float(r @ scaled)
                direction *= size / before
                direction += scaled
            return x

        return solve


def shifted_form(
    blocks: Sequence[Matrix], weights: Sequence[float], shape: tuple[int, ...]
) -> ShiftedForm:
    """The form of X = Σ c_j A_jᵀA_j that these blocks have.

    >>> x = shifted_form([Kron((Identity(2), Ones(1, 2)))], [1.0], (2, 2))
    >>> x.at(2.0)(np.array([1.0, 1.0, 0.0, 0.0]), np.zeros(4))
    array([0.25, 0.25, 0.  , 0.  ])
    """
    cells = math.prod(shape)
    if is_commuting(shape, blocks):
        information = Subspaces.of(shape, blocks, weights).information
        several = [n for n in shape if n > 1]
        if len(several) <= 1 or tree_cost(shape, information) <= TREE_COST:
            return MarginalSpectrum(shape, information)
        if max(shape) <= SPECTRUM_AXIS:
            return _marginal_eigenvectors(shape, information)
        return MarginalSpectrum(shape, information)
    if len(blocks) == 1:
        factors = _factors(blocks[0], shape)
        line = _line(factors[0], weights[0]) if len(factors) == 1 else None
        if line is not None:
            return line
        if max(f.shape[1] for f in factors) <= SPECTRUM_AXIS:
            return _product_eigenvectors(factors, weights[0])
    if cells <= SPECTRUM_AXIS:
        x = np.zeros((cells, cells))
        for block, c in zip(blocks, weights, strict=True):
            x += c * block.gram().dense(limit=cells * cells)
        values, vectors = np.linalg.eigh(x)
        return Spectrum(Kron((Dense(vectors),)), (np.maximum(values, 0),))
    unit = Kron(tuple(Identity(n) for n in shape))
    if max(shape) <= SPECTRUM_AXIS and block_classes([*blocks, unit], shape) is not None:
        return ClassSpectrum(Classes.of([*blocks, unit], [*weights, min(weights)], shape))
    gram, grams = gram_map(blocks, weights, shape), nearest_product(blocks, weights, shape)
    if grams is not None:
        return Solved(gram, _eigenvectors([np.linalg.eigh(g) for g in grams], 1.0))
    diagonal = np.zeros(cells)
    for block, c in zip(blocks, weights, strict=True):
        diagonal += c * gram_diagonal(block)
    return Solved(gram, diagonal)


def _factors(block: Matrix, shape: tuple[int, ...]) -> tuple[Matrix, ...]:
    fits = isinstance(block, Kron) and tuple(f.shape[1] for f in block.factors) == shape
    return block.factors if isinstance(block, Kron) and fits else (block,)


def _geometric_mean(values: Array, counts: Array) -> float:
    some = (values > 1e-12 * values.max(initial=0.0)) & (counts > 0)
    if not some.any():
        return 1.0
    return float(np.exp(np.average(np.log(values[some]), weights=counts[some])))


def tree_cost(shape: tuple[int, ...], sets: Iterable[Axes]) -> float:
    """About how many numbers a tree of partial sums goes through, as a multiple of the cells."""
    cost = 0.0
    families: list[tuple[float, list[Axes]]] = [(1.0, list(sets))]
    for axis, n in enumerate(shape):
        split: list[tuple[float, list[Axes]]] = []
        for size, family in families:
            cost += size
            keep = [s for s in family if axis in s]
            drop = [s for s in family if axis not in s]
            split += [(size, keep)] if keep else []
            split += [(size / n, drop)] if drop else []
        families = split
    return cost


def _marginal_eigenvectors(shape: tuple[int, ...], information: dict[Axes, float]) -> Spectrum:
    """Eigenvectors of marginals: on each axis an orthogonal matrix with a constant first column."""
    axes = [i for i, n in enumerate(shape) if n > 1]
    values = np.zeros((2,) * len(axes))
    for s, value in information.items():
        values[tuple(int(i in s) for i in axes)] = value
    for k, i in enumerate(axes):
        values = np.repeat(values, [1, shape[i] - 1], axis=k)
    return Spectrum(_grouped([constant_first(shape[i]) for i in axes]), (values.reshape(-1),))


def _product_eigenvectors(factors: Sequence[Matrix], weight: float) -> Spectrum:
    pairs: dict[int, tuple[Array, Array]] = {}
    for factor in factors:
        n = factor.shape[1]
        if id(factor) in pairs:
            continue
        if isinstance(factor, Identity):
            pairs[id(factor)] = np.ones(n), np.eye(n)
        elif isinstance(factor, Ones):
            values = np.zeros(n)
            values[0] = n * factor.m
            pairs[id(factor)] = values, constant_first(n)
        else:
            pairs[id(factor)] = np.linalg.eigh(factor.gram().dense(limit=n * n).astype(float))
    return _eigenvectors([pairs[id(f)] for f in factors], weight)


def _eigenvectors(pairs: Sequence[tuple[Array, Array]], weight: float) -> Spectrum:
    values = [np.maximum(axis_values, 0) for axis_values, _ in pairs]
    values[0] = weight * values[0]
    return Spectrum(_grouped([vectors for _, vectors in pairs]), tuple(values))


def _grouped(bases: Sequence[Array]) -> Kron:
    """The product of orthogonal matrices, neighbouring small ones written as one."""
    groups: list[Array] = []
    for basis in bases:
        if groups and len(groups[-1]) * len(basis) <= GROUPED_CELLS:
            groups.append(np.kron(groups.pop(), basis))
        else:
            groups.append(basis)
    return Kron(
        tuple(Identity(len(g)) if np.array_equal(g, np.eye(len(g))) else Dense(g) for g in groups)
    )


def constant_first(n: int) -> Array:
    """Orthogonal, with a constant first column: the reflection of the first unit vector on it."""
    if n == 1:
        return np.ones((1, 1))
    u = np.full(n, 1 / math.sqrt(n))
    u[0] -= 1
    return np.asarray(np.eye(n) - 2 * np.outer(u, u) / (u @ u))


def _line(matrix: Matrix, weight: float) -> Line | None:
    """A p-Identity, a tree of counts, prefixes or all ranges of any length."""
    if isinstance(matrix, PIdentity):

        def woodbury(shift: float) -> Matrix:
            diagonal = np.sqrt(matrix.diagonal.astype(float) ** 2 + shift)
            return WoodburyInverse(Downdate.of(PIdentity(diagonal, matrix.rows.astype(float))))

        return Line(matrix, weight, woodbury)
    if isinstance(matrix, Prefix | AllRange):
        return Line(matrix, weight, lambda shift: _ranges(matrix, shift))
    tree = tree_inverse(matrix)
    if tree is not None:
        levels, precisions = tree.tree.levels, tree.tree.precisions

        def with_level(shift: float) -> Matrix:
            leaf = math.sqrt(precisions[-1]) * levels[-1]
            last = np.vstack([leaf, math.sqrt(shift) * np.eye(leaf.shape[1])])
            more = replace(
                tree.tree, levels=(*levels[:-1], last), precisions=np.append(precisions[:-1], 1.0)
            )
            return type(tree)(more)

        return Line(matrix, weight, with_level)
    return None


def _ranges(matrix: Prefix | AllRange, shift: float) -> LinearMap:
    """(G + μI)⁻¹ = L(I + μL)⁻¹, with L = G⁻¹ tridiagonal.

    Prefixes are sums, so L = DDᵀ with differences D: 1 or 2 on the diagonal and -1 beside it. All
    ranges have G_ij = (min + 1)(n - max), n + 1 times the inverse of second differences.
    """
    n = matrix.shape[1]
    whole = isinstance(matrix, AllRange)
    scale = 1 / (n + 1) if whole else 1.0
    diagonal, beside = np.full(n, 2 * scale), np.full(n, -scale)
    if not whole:
        diagonal[0] = 1.0
    beside[0] = 0.0
    band = np.vstack([shift * beside, 1 + shift * diagonal])

    def solve(v: Array) -> Array:
        x = solveh_banded(band, v, check_finite=False)
        out = diagonal * x
        out[1:] += beside[1:] * x[:-1]
        out[:-1] += beside[1:] * x[1:]
        return np.asarray(out)

    return solve
