"""The normal equations X x = b of an estimate: X = Σ_j c_j A_jᵀA_j, b = Σ_j c_j A_jᵀy_j.

Solvers with constraints need three things: X on a vector, never written out, its diagonal, and b.
Precisions are taken relative to the largest, which changes no minimiser, and up to a limit.

Equations with X are solved by conjugate gradients (Hestenes and Stiefel 1952), preconditioned by
the diagonal d; five vectors are held. A map may have one stiff direction besides, κ uuᵀ, which the
preconditioner then takes in: (D + κ uuᵀ)⁻¹ by the formula of Sherman and Morrison (1950).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
from numpy.random import default_rng

from psephos.errors import ShapeError
from psephos.infer.least_squares import LeastSquares, block_answers
from psephos.infer.slab_product import SLAB_CELLS, SlabProduct
from psephos.inverse.choice import precision
from psephos.inverse.form import Fitted, Form
from psephos.inverse.gram_map import LinearMap, gram_map
from psephos.inverse.merged_cells import FittedGroups, MergedForm, Merging
from psephos.inverse.nested_gram import NestedGram
from psephos.inverse.shifted import TREE_COST, constant_first, tree_cost
from psephos.inverse.subspaces import FittedTables, Subspaces
from psephos.kernel.measurement import Measurement
from psephos.matrix import Dense, Kron, Matrix
from psephos.matrix.columns import gram_diagonal
from psephos.values import Array
from psephos.workload.workload import Workload

PRECISION_RATIO = 1e8
"""How much more one block may count than another: a block with next to no noise is cut to that."""
HELD_TOTAL_STRENGTH = 1e3
"""How much more a held total counts than what the measurements say of it."""
EIGENVECTOR_AXIS = 512
"""The longest axis on which eigenvectors of marginals are written out."""
EIGENVECTOR_CELLS = 32
"""Neighbouring axes of so many cells share one matrix: a few products of some size are fast."""
SUMMED_CELLS = 50_000
"""From so many cells on a tree of partial sums is faster, if it is not too large itself."""
START_TOLERANCE = 1e-6
"""How exact a least squares solution is that best fits only start from."""
MOST_STEPS = 500
"""Steps before the solution is taken as it is."""


class Cover(NamedTuple):
    """Blocks M of whole numbers from 0, and √(Σ 1/c) over all of their rows."""

    blocks: tuple[Matrix, ...]
    width: float

    def total(self, x: Array) -> float:
        """1ᵀMx, the sum of all answers."""
        return sum(float(_column_sums(block).matvec(x)[0]) for block in self.blocks)

    def misses(self, x: Array) -> bool:
        """Is there a cell with x ≠ 0 that no row reaches?"""
        if any(_reaches_all(block) for block in self.blocks):
            return False
        if not self.blocks:
            return bool(x.any())
        sums = np.zeros(x.size)
        for block in self.blocks:
            sums += block._column_sums()
        return bool(x[sums == 0].any())


def _column_sums(block: Matrix) -> Matrix:
    """1ᵀM, a row: of a product the product of its factors', which needs no vector of cells."""
    factors = block.factors if isinstance(block, Kron) else (block,)
    return Kron(tuple(Dense(factor._column_sums()[None, :]) for factor in factors))


def _reaches_all(block: Matrix) -> bool:
    factors = block.factors if isinstance(block, Kron) else (block,)
    return all((factor._column_sums() > 0).all() for factor in factors)


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """X, b and the least squares solution of least norm, on cells told apart."""

    blocks: tuple[Matrix, ...]
    weights: tuple[float, ...]
    shape: tuple[int, ...]
    """Of the cells told apart."""
    apply: LinearMap
    target: Array
    solution: Callable[[], Array]
    """Least squares of least norm; made anew each time, since steps need the room."""
    noise: float
    """√(e²), where e² is what noise adds to |x - truth|² in the norm of X."""
    groups: Array | None
    """For every cell of the domain its merged cell; None where none are merged."""
    stiff: float = 0.0
    """The multiple of 11ᵀ in X, for a total that is held."""

    @classmethod
    def of(cls, estimate: LeastSquares) -> NormalEquations:
        """The normal equations of all measurements of an estimate."""
        answers = estimate.blocks
        blocks = [each.matrix for each in answers]
        precisions = [precision(each.variance) for each in answers]
        values = [each.values.astype(float) for each in answers]
        form, fitted, shape = estimate.form, estimate.fitted, estimate.domain.shape
        groups: Array | None = None
        while isinstance(form, MergedForm) and isinstance(fitted, FittedGroups):
            merging = form.merging
            blocks = list(merging.blocks(blocks))
            coarser = merged_cells(merging)
            groups = coarser if groups is None else coarser[groups]
            shape, form, fitted = merging.shape, form.inner, fitted.inner
        most = min(max(precisions), PRECISION_RATIO * min(precisions))
        weights = [min(c / most, 1.0) for c in precisions]
        target = np.zeros(math.prod(shape))
        for block, c, y in zip(blocks, weights, values, strict=True):
            part = block.rmatvec(y)
            target += part if c == 1 else c * part
            del part
        apply = _eigenvector_map(form, blocks, weights) or _gram_map(blocks, weights, shape)
        limited = most < max(precisions)  # another problem, if only by a hair

        def solution() -> Array:
            if not limited:
                return _least_norm_cells(fitted, len(shape))
            diagonal = weighted_diagonal(blocks, weights)
            diagonal[diagonal == 0] = 1
            return conjugate_gradients(apply, diagonal, target, 1e-13)

        noise = math.sqrt(sum(y.size for y in values) / most)
        return cls(tuple(blocks), tuple(weights), shape, apply, target, solution, noise, groups)

    @classmethod
    def of_measurements(
        cls, measurements: Sequence[Measurement], shape: tuple[int, ...]
    ) -> NormalEquations:
        """The same without X⁺, which may take long to find and which best fits can do without."""
        answers = block_answers(measurements)
        blocks = [each.matrix for each in answers]
        precisions = [precision(each.noise.exact_variance) for each in answers]
        merging, groups = Merging.of_columns(blocks, shape), None
        if merging is not None:
            blocks, shape = list(merging.blocks(blocks)), merging.shape
            groups = merged_cells(merging)
        most = min(max(precisions), PRECISION_RATIO * min(precisions))
        weights = [min(c / most, 1.0) for c in precisions]
        target = np.zeros(math.prod(shape))
        for block, c, each in zip(blocks, weights, answers, strict=True):
            target += c * block.rmatvec(each.values.astype(float))
        apply = gram_map(blocks, weights, shape)
        diagonal = weighted_diagonal(blocks, weights)
        safe = np.where(diagonal > 0, diagonal, 1.0)

        @cache
        def solution() -> Array:
            return conjugate_gradients(apply, safe, target, START_TOLERANCE)

        noise = math.sqrt(sum(each.values.size for each in answers) / most)
        several = tuple(blocks), tuple(weights)
        return cls(*several, shape, apply, target, solution, noise, groups)

    @classmethod
    def of_workload(
        cls, estimate: LeastSquares, workload: Workload, sizes: Sequence[Array] | None = None
    ) -> NormalEquations:
        """The same with G = WᵀW in place of X: distances are those of the workload's answers."""
        Workload.require(workload, estimate.domain)
        workload.check_covered(estimate.form)

        def cells() -> Array:
            base = cls.of(estimate)
            return base.spread(base.solution(), None, sizes)

        products = [workload.factors(i) for i in range(len(workload.products))]
        squares = [float(product.weight) ** 2 for product in workload.products]
        weights = [w / max(squares) for w in squares]
        noise = math.sqrt(_expected_square(estimate, products, weights))
        return cls._of_answers(workload, cells, noise)

    @classmethod
    def of_cells(cls, cells: Array, workload: Workload) -> NormalEquations:
        """The same for cells of any origin; what stands for noise is what their negatives move.

        That is the length of W(x - x₊), with x₊ the cells cut at zero.
        """
        cut = cells - np.maximum(cells, 0)
        answers = [
            product.weight * (Kron(workload.factors(i)) @ cut)
            for i, product in enumerate(workload.products)
        ]
        largest = max(float(product.weight) for product in workload.products)
        moved = math.sqrt(sum(float(each @ each) for each in answers)) / largest
        return cls._of_answers(workload, lambda: cells, moved)

    @classmethod
    def _of_answers(
        cls, workload: Workload, cells: Callable[[], Array], noise: float
    ) -> NormalEquations:
        """For the distance |W(x - cells)|, which noise of this length stands beside."""
        products = [workload.factors(i) for i in range(len(workload.products))]
        blocks: list[Matrix] = [Kron(factors) for factors in products]
        squares = [float(product.weight) ** 2 for product in workload.products]
        shape = workload.domain.shape
        merging, groups = Merging.of(blocks, shape), None
        if merging is not None:
            blocks, shape = list(merging.blocks(blocks)), merging.shape
            groups = merged_cells(merging)

        def solution() -> Array:
            vector = cells()
            return vector if groups is None else np.bincount(groups, vector, math.prod(shape))

        weights = [w / max(squares) for w in squares]
        apply = _gram_map(blocks, weights, shape)
        target = apply(solution())
        return cls(tuple(blocks), tuple(weights), shape, apply, target, solution, noise, groups)

    @cached_property
    def diagonal(self) -> Array:
        """That of X, as measurements of single cells see it."""
        return weighted_diagonal(self.blocks, self.weights)

    @cached_property
    def cover(self) -> Cover:
        """The blocks that are whole and not negative."""
        several = [
            (block, block.shape[0] / weight)
            for block, weight in zip(self.blocks, self.weights, strict=True)
            if weight > 0 and block.is_nonnegative and block.entry_type.kind == "i"
        ]
        width = math.sqrt(sum(rows for _, rows in several))
        return Cover(tuple(block for block, _ in several), width)

    @cached_property
    def nested(self) -> NestedGram | None:
        """X as nested groups, the held total included, where that is what it is."""
        return NestedGram.of(self.blocks, self.weights, self.stiff)

    def with_total(self, total: float | None) -> NormalEquations:
        """The same with one measurement more: a total, met to a small share of what it moves.

        The diagonal stays as it is: single cells are still measured on their own scale.
        """
        if total is None:
            return self
        ones = np.ones(self.target.size)
        strength = HELD_TOTAL_STRENGTH * float(ones @ self.apply(ones)) / self.target.size**2

        def apply(x: Array) -> Array:
            image = self.apply(x)
            image += strength * x.sum()
            return image

        target = self.target + strength * total
        return replace(self, apply=apply, target=target, stiff=strength)

    def merged_zeros(self, zeros: Array | None) -> Array:
        """Which of the cells told apart are zero: those with no other member."""
        if zeros is None:
            return np.zeros(self.target.size, dtype=bool)
        if self.groups is None:
            return zeros
        return np.asarray(np.bincount(self.groups[~zeros], minlength=self.target.size) == 0)

    def spread(self, x: Array, zeros: Array | None, sizes: Sequence[Array] | None = None) -> Array:
        """An even share of its merged cell for every declared cell that is not zero."""
        if self.groups is None:
            return x
        possible = possible_cells(sizes or (), zeros)
        members = np.ones(self.groups.size) if possible is None else possible
        sums = np.bincount(self.groups, members, minlength=x.size)
        share = np.divide(x, sums, out=np.zeros_like(x), where=sums > 0)
        return members * share[self.groups]


def weighted_diagonal(blocks: Sequence[Matrix], weights: Sequence[float]) -> Array:
    """The diagonal of Σ c_j A_jᵀA_j."""
    diagonal = np.zeros(blocks[0].shape[1])
    for block, c in zip(blocks, weights, strict=True):
        diagonal += c * gram_diagonal(block)
    return diagonal


def sizes_by_axis(sizes: Sequence[Array] | None, shape: tuple[int, ...]) -> tuple[Array, ...]:
    """How many declared values each value of each attribute stands for; one, if not given."""
    if sizes is None:
        return tuple(np.ones(n) for n in shape)
    axes = tuple(np.asarray(each, dtype=float) for each in sizes)
    if tuple(each.shape for each in axes) != tuple((n,) for n in shape) or any(
        not (each >= 1).all() for each in axes
    ):
        raise ShapeError(f"sizes are numbers from 1 for each value of attributes of {shape} values")
    return axes


def declared_cells(sizes: Sequence[Array]) -> Array | None:
    """How many declared cells each cell stands for; None if all for as many."""
    if all((each == each[0]).all() for each in sizes):
        return None
    cells: Array = np.ones(1)
    for each in sizes:
        cells = np.multiply.outer(cells, each).ravel()
    return cells


def possible_cells(sizes: Sequence[Array], zeros: Array | None) -> Array | None:
    """The same without cells that no row can lie in."""
    cells = declared_cells(sizes)
    if zeros is None:
        return cells
    return np.where(zeros, 0.0, 1.0 if cells is None else cells)


def merged_cells(merging: Merging) -> Array:
    """For every cell, the number of the merged cell it lies in."""
    cells: Array = np.zeros(1, dtype=np.int64)
    for groups, n in zip(merging.groups, merging.shape, strict=True):
        cells = np.add.outer(cells * n, groups).ravel()
    return cells


def _expected_square(
    estimate: LeastSquares, products: Sequence[tuple[Matrix, ...]], weights: Sequence[float]
) -> float:
    """What noise adds to the weighted squares of answers; from one draw where only draws tell."""
    if estimate.form.exact:
        return float(np.array(weights) @ estimate.form.traces(products))
    rng = default_rng(0)
    answers = estimate.blocks
    draws = [math.sqrt(each.variance) * rng.standard_normal(each.values.size) for each in answers]
    fitted = estimate.form.fit(draws)
    squares = [float((fitted.answers(factors) ** 2).sum()) for factors in products]
    return float(np.array(weights) @ squares)


def _least_norm_cells(fitted: Fitted, axes: int) -> Array:
    """Least squares with least norm: what nobody measured counts as zero."""
    if isinstance(fitted, FittedTables):
        return np.asarray(fitted.averages.tables(tuple(range(axes)))[0])
    return fitted.vector  # type: ignore[attr-defined, no-any-return]


def _gram_map(
    blocks: Sequence[Matrix], weights: Sequence[float], shape: tuple[int, ...]
) -> LinearMap:
    """X on a vector; for one product over many cells in the memory of one vector."""
    if len(blocks) > 1 or math.prod(shape) < SLAB_CELLS or not isinstance(blocks[0], Kron):
        return gram_map(blocks, weights, shape)
    gram, weight = SlabProduct(tuple(factor.gram() for factor in blocks[0].factors)), weights[0]

    def apply(x: Array) -> Array:
        image = gram.gather(x, np.float64)
        if weight != 1:
            image *= weight
        return image

    return apply


def _eigenvector_map(
    form: Form, blocks: Sequence[Matrix], weights: Sequence[float]
) -> LinearMap | None:
    """Many marginals: X = V diag(λ) Vᵀ, the first column of each V_i constant."""
    if not isinstance(form, Subspaces) or form.bases or len(blocks) < 3:
        return None
    if max(form.shape) > EIGENVECTOR_AXIS:
        return None
    if len(form.shape) > 30:
        return None  # most axes have one value then; an array has no room for them
    if (
        math.prod(form.shape) > SUMMED_CELLS
        and tree_cost(form.shape, form.information) <= TREE_COST
    ):
        return None
    values = np.zeros((2,) * len(form.shape))
    for axes, information in Subspaces.of(form.shape, blocks, weights).information.items():
        values[tuple(int(i in axes) for i in range(len(form.shape)))] = information
    for axis, n in enumerate(form.shape):
        values = np.repeat(values, [1, n - 1], axis=axis)
    spectrum = values.reshape(-1)
    bases: list[Array] = []
    for n in form.shape:
        basis = constant_first(n)
        if bases and len(bases[-1]) * n <= EIGENVECTOR_CELLS:
            basis = np.kron(bases.pop(), basis)
        bases.append(basis)
    eigenvectors = Kron(tuple(Dense(basis) for basis in bases))

    def apply(x: Array) -> Array:
        coordinates = eigenvectors.rmatvec(x)
        coordinates *= spectrum
        return eigenvectors.matvec(coordinates)

    return apply


def conjugate_gradients(
    apply: LinearMap,
    diagonal: Array,
    r: Array,
    share: float,
    floor: float = 0.0,
    *,
    most: int = MOST_STEPS,
    stiff: tuple[float, Array] | None = None,
) -> Array:
    """A p with A p ≈ r: the residual's length √(rᵀr/d) falls to a share of it, or to the floor.

    `stiff` is κ and u of a direction in which A is far larger than its diagonal tells.

    `apply` returns memory that may be written to. Where A is singular and r in its range, p is the
    solution that is smallest when scaled by √d.

    >>> d = np.array([2.0, 4.0])
    >>> conjugate_gradients(lambda v: d * v, np.ones(2), np.array([2.0, 8.0]), 1e-9)
    array([1., 2.])
    """
    return guided_gradients(apply, _preconditioner(diagonal, stiff), r, share, floor, most=most)


def guided_gradients(
    apply: LinearMap,
    guide: Callable[[Array], Array],
    r: Array,
    share: float,
    floor: float = 0.0,
    *,
    most: int = MOST_STEPS,
) -> Array:
    """The same with any guide, a positive definite map that is near the inverse of A."""
    r, p = r.copy(), np.zeros_like(r)
    direction = guide(r)
    size = float(r @ direction)
    enough = max(share**2 * size, floor**2)
    for _ in range(min(most, 3 * r.size + 20)):
        if size <= enough:
            break
        q = apply(direction)
        curvature = float(direction @ q)
        if curvature <= 0:
            break
        length = size / curvature
        q *= length
        r -= q
        np.multiply(direction, length, out=q)
        p += q
        scaled = guide(r)
        before, size = size, float(r @ scaled)
        direction *= size / before
        direction += scaled
        del q, scaled  # two vectors less while the next direction is tried
    return p


def _preconditioner(diagonal: Array, stiff: tuple[float, Array] | None) -> Callable[[Array], Array]:
    """The map r ↦ M⁻¹r."""
    if stiff is None:
        return lambda r: r / diagonal
    strength, u = stiff
    w = u / diagonal
    factor = strength / (1 + strength * float(u @ w))

    def precondition(r: Array) -> Array:
        scaled = r / diagonal
        scaled -= factor * float(w @ r) * w
        return scaled

    return precondition
