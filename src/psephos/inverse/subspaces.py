"""Least squares through residual subspaces, for measurements that all commute.

A set S of axes stands for the subspace of tables that are orthogonal to 1 along S and constant
along the other axes. A block ⊗ Bᵢ whose factors are Identity (axes a), the residual nI - 11ᵀ, for
which one row x₀ - x₁ is enough if n = 2 (axes b), or the total sees exactly the S with
b ⊆ S ⊆ a ∪ b, and its noise is independent between
them. So generalised least squares falls apart into one average per S: the component

    c_S = ⊗_{i∈S} (I - 11ᵀ/nᵢ) ⊗_{i∉S} 1ᵀ x

is estimated by every block that sees it, and the estimates are weighted by inverse variance. A
marginal is the sum of its components, and only tables of the size of marginals are ever made.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import product
from operator import mul

import numpy as np

from psephos.errors import ShapeError, UnsupportedError
from psephos.inverse.components import ComponentAverages, MarginalBlock, subspaces_between
from psephos.inverse.form import Factors, Form, ListedProducts, multiply
from psephos.matrix import Dense, Identity, Kron, Matrix, Ones
from psephos.matrix.kron import NamedFactors
from psephos.matrix.marginals import Axes
from psephos.values import Array

MOST_SUBSPACES = 1 << 22
"""A block that sees more subspaces than this is left to other solvers."""
LARGEST_CODE = 1 << 62
"""Codes of sets of axes are whole numbers below this."""
TABLE_CALLS = 10
"""Numbers that could be gone through in the time of the calls for one small table."""


@dataclass(frozen=True, eq=False)
class _AxisQueries:
    """What the queries on one axis ask: on constants 1ᵀG1/n, and tr G less that, G = WᵀW."""

    matrix: Matrix
    constant: float
    varying: float

    @classmethod
    def of(cls, matrix: Matrix) -> _AxisQueries:
        gram = matrix.gram()
        constant = gram.sum() / matrix.shape[1]
        # Rounding leaves dust where the exact difference is zero, for totals and for contrasts.
        dust = 1e-12 * gram.trace()
        varying = gram.trace() - constant
        return cls(matrix, constant if constant > dust else 0.0, varying if varying > dust else 0.0)

    @cached_property
    def width(self) -> int:
        return self.matrix.shape[1]

    @cached_property
    def means(self) -> Array:
        """The mean of every row."""
        return self.matrix.matvec(np.ones(self.width)) / self.width

    @cached_property
    def squares(self) -> tuple[Array, Array]:
        """(Σ row)²/n and ‖row - its mean‖² of every row; a single entry where all rows agree."""
        n = self.width
        if isinstance(self.matrix, Identity):
            return np.array([1 / n]), np.array([1 - 1 / n])
        constant = n * self.means**2
        square = self.matrix.sqr().matvec(np.ones(n))
        varying = square - constant
        varying[varying < 1e-12 * square] = 0
        if np.ptp(constant) == 0 and np.ptp(varying) == 0:
            return constant[:1], varying[:1]
        return constant, varying


@dataclass(frozen=True)
class _ProductSubspaces:
    """The subspaces S that a product asks about: all between the axes S must and may hold.

    Axes whose queries are the total alone are left out; together they have one constant.
    """

    axes: dict[int, _AxisQueries]
    others: float
    may: Axes
    must: Axes

    def subspaces(self) -> Iterator[Axes]:
        return subspaces_between(self.must, self.may)


@dataclass(frozen=True, eq=False)
class Subspaces(Form):
    """Blocks that share the eigenspaces S, and λ_S = Σ over blocks of eigenvalue / variance."""

    infinite_where_open = True
    shape: tuple[int, ...]
    blocks: tuple[MarginalBlock, ...]
    information: dict[Axes, float]
    _axis_queries: dict[int, _AxisQueries] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, shape: Sequence[int], blocks: Sequence[Matrix], precisions: Sequence[float]
    ) -> Subspaces:
        """The form of blocks that are marginals or residuals (`is_commuting`).

        >>> from psephos.matrix import total
        >>> Subspaces.of((2, 3), [Kron((Identity(2), total(3)))], [2.0]).information
        {(): 6.0, (0,): 6.0}
        """
        kinds: dict[int, str] = {}
        marginal_blocks = []
        information: dict[Axes, float] = {}
        for matrix, precision in zip(blocks, precisions, strict=True):
            block = _marginal_block(tuple(shape), matrix, precision, kinds)
            if block is None or block.count > MOST_SUBSPACES:
                raise ShapeError(f"{matrix} is no marginal and no residual of few attributes")
            marginal_blocks.append(block)
            for s in block.subspaces():
                information[s] = information.get(s, 0.0) + block.strength
        return cls(tuple(shape), tuple(marginal_blocks), information)

    @cached_property
    def _widths(self) -> list[float]:
        return [float(n) for n in self.shape]

    # ---- what is known of a product ------------------------------------------------------------

    def _queries_on_axis(self, matrix: Matrix) -> _AxisQueries:
        """The queries of one matrix, analysed once."""
        queries = self._axis_queries.get(id(matrix))
        if queries is None:  # the cache holds the matrix, so no other gets its id
            queries = self._axis_queries[id(matrix)] = _AxisQueries.of(matrix)
        return queries

    def _subspaces_of(self, factors: Sequence[Matrix]) -> _ProductSubspaces | None:
        """What a product needs to know; None if all its answers are zero."""
        named = factors.named if isinstance(factors, NamedFactors) else range(len(factors))
        axes = {i: self._queries_on_axis(factors[i]) for i in named}
        if isinstance(factors, NamedFactors):
            widths = factors.totals.shape
        else:
            widths = tuple([axis.width for axis in axes.values()])
        if widths != self.shape:
            raise ShapeError(f"a product over {self.shape} has factors of widths {widths}")
        if not all(axis.constant or axis.varying for axis in axes.values()):
            return None
        others = _cells(self.shape) / math.prod([self._widths[i] for i in named])
        may = tuple([i for i, axis in axes.items() if axis.varying])
        return _ProductSubspaces(axes, others, may, tuple([i for i in may if not axes[i].constant]))

    def _is_known(self, needs: _ProductSubspaces) -> bool:
        if 1 << len(needs.may) - len(needs.must) > len(self.information):
            return False
        return all(s in self.information for s in needs.subspaces())

    def _require(self, needs: _ProductSubspaces) -> None:
        if not self._is_known(needs):
            raise UnsupportedError(
                "these measurements say nothing about some of the queries asked; "
                "ask `covers(factors)` first, or measure the marginals that contain them"
            )

    def covers(self, factors: Sequence[Matrix]) -> bool:
        """Is there information on every subspace that the product ⊗Wᵢ asks about?"""
        needs = self._subspaces_of(factors)
        return needs is None or self._is_known(needs)

    def traces(self, products: Sequence[Factors]) -> Array:
        """tr(X⁺ WᵀW) for each product of queries; by numbers where they are listed so."""
        listed = isinstance(products, ListedProducts) and products.totals.shape == self.shape
        if not isinstance(products, ListedProducts) or not listed or self._codes is None:
            return super().traces(products)
        queries = [self._queries_on_axis(matrix) for matrix in products.matrices]
        parts = np.array([(axis.constant, axis.varying) for axis in queries]).reshape(-1, 2)
        axes, widths = np.array(products.axes, dtype=np.int64), np.array(self._widths)
        traces = np.zeros(len(products))
        for places, items in products.by_length:
            count = items.shape[1]
            if (len(self.shape) + 1) ** count >= LARGEST_CODE:
                traces[places] = [self.trace(products[j]) for j in places.tolist()]
                continue
            on_axes = axes[items]
            others = _cells(self.shape) / widths[on_axes].prod(axis=1)
            for inside in product((False, True), repeat=count):
                shares = others.copy()
                for j, varying in enumerate(inside):
                    shares *= parts[items[:, j], int(varying)]
                chosen = [j for j, varying in enumerate(inside) if varying]
                known = self._codes.information(np.sort(on_axes[:, chosen], axis=1))
                with np.errstate(
                    divide="ignore", invalid="ignore"
                ):  # what nobody sees has an infinite error
                    traces[places] += np.where(shares > 0, shares / known, 0.0)
        return traces

    @cached_property
    def _codes(self) -> _SubspaceCodes | None:
        return _SubspaceCodes.of(len(self.shape), self.information)

    def trace(self, factors: Sequence[Matrix]) -> float:
        """tr(X⁺ WᵀW): the summed variance of all answers; infinite if not covered."""
        needs = self._subspaces_of(factors)
        if needs is None:
            return 0.0
        scale = needs.others
        for axis in needs.axes.values():
            scale *= 1.0 if axis.varying else axis.constant
        # Of every subset of the axes so far, its axes and its share of the trace.
        shares: list[tuple[Axes, float]] = [((), scale)]
        for i in needs.may:
            constant, varying = needs.axes[i].constant, needs.axes[i].varying
            inside = [((*s, i), share * varying) for s, share in shares]
            shares = [(s, share * constant) for s, share in shares] if constant else []
            shares += inside
        try:
            return sum([share / self.information[s] for s, share in shares])
        except KeyError:
            return math.inf

    def variances(self, factors: Sequence[Matrix]) -> Array:
        """The variance of every answer of ⊗Wᵢ, in the order of Kron's rows.

        Σ_S (1/λ_S) ⊗_{i∈S} ‖Wᵢ[q] - its mean‖² ⊗_{i∉S} (Σ Wᵢ[q])²/nᵢ
        """
        rows = [matrix.shape[0] for matrix in factors]
        needs = self._subspaces_of(factors)
        if needs is None:
            return np.zeros(math.prod(rows))
        self._require(needs)
        scale = needs.others
        live = []
        for i, axis in needs.axes.items():
            if i in needs.may or len(axis.squares[0]) > 1:
                live.append(i)
            else:
                scale *= float(axis.squares[0][0])

        def down(k: int, subspace: Axes) -> Array:
            """Live axes from k on, where S is chosen before them."""
            if k == len(live):
                return np.array([scale / self.information[subspace]])
            i = live[k]
            constant, varying = needs.axes[i].squares
            variances = np.zeros(1)
            if needs.axes[i].constant:
                variances = np.multiply.outer(constant, down(k + 1, subspace)).ravel()
            if i in needs.may:
                more = np.multiply.outer(varying, down(k + 1, (*subspace, i))).ravel()
                variances = variances + more
            return variances

        # Axes of one answer are left out: an array has at most 64.
        several = [i for i in range(len(rows)) if rows[i] > 1]
        sizes = [len(needs.axes[i].squares[0]) if i in live else 1 for i in several]
        table = down(0, ()).reshape(sizes)
        return np.broadcast_to(table, [rows[i] for i in several]).reshape(-1).copy()

    # ---- estimates -----------------------------------------------------------------------------

    def fit(self, values: Sequence[Array]) -> FittedTables:
        """The least-squares estimate from the noisy answers to every block."""
        sizes = [self._answers(block) for block in self.blocks]
        lengths = [len(v) for v in values]
        if lengths != sizes:
            raise ShapeError(f"the blocks have {sizes[:9]} answers, got {lengths[:9]}")
        single = all(np.ndim(v) == 1 for v in values)
        rows = [np.asarray(v)[None] if single else np.ascontiguousarray(v.T) for v in values]
        tables = [self._both_signs(*pair) for pair in zip(self.blocks, rows, strict=True)]
        averages = ComponentAverages.of(self.shape, self.information, self.blocks, tables)
        return FittedTables(self, averages, single)

    def _answers(self, block: MarginalBlock) -> int:
        """How many numbers were measured."""
        return math.prod([self.shape[i] for i in block.axes]) >> len(block.contrasts)

    def _both_signs(self, block: MarginalBlock, rows: Array) -> Array:
        """Answers x₀ - x₁ along an axis, written as those to the residual: (x₀ - x₁, x₁ - x₀)."""
        for i in block.contrasts:
            before = [self.shape[j] for j in block.axes if j < i]
            cube = rows.reshape(len(rows) * math.prod(before), 1, -1)
            rows = np.concatenate([cube, -cube], axis=1).reshape(len(rows), -1)
        return rows

    @cached_property
    def work(self) -> int:
        tables = [block.axes for block in self.blocks] + list(self.information)
        numbers = sum(math.prod(self.shape[i] for i in axes) for axes in tables)
        return numbers + TABLE_CALLS * len(tables)


@dataclass(frozen=True, eq=False)
class _SubspaceCodes:
    """λ_S by one whole number for each S, sorted."""

    axes: int
    codes: Array
    values: Array

    @classmethod
    def of(cls, axes: int, information: dict[Axes, float]) -> _SubspaceCodes | None:
        """None where sets are so large that 64 bits hold no number for each."""
        longest = max(map(len, information), default=0)
        if (axes + 1) ** longest >= LARGEST_CODE:
            return None
        places = [(axes + 1) ** j for j in range(longest)]
        codes = np.array([sum(map(mul, [i + 1 for i in s], places)) for s in information])
        order = np.argsort(codes)
        return cls(axes, codes[order], np.array(list(information.values()))[order])

    def information(self, subspaces: Array) -> Array:
        """λ_S for rows of sorted axes; 0 where nothing is known."""
        places = (self.axes + 1) ** np.arange(subspaces.shape[1])
        codes = ((subspaces + 1) * places).sum(axis=1)
        nearest = np.minimum(np.searchsorted(self.codes, codes), self.codes.size - 1)
        return np.where(self.codes[nearest] == codes, self.values[nearest], 0.0)


@dataclass(frozen=True, eq=False)
class FittedTables:
    """A least-squares estimate, ready to answer products."""

    space: Subspaces
    averages: ComponentAverages
    single: bool = True

    def answers(self, factors: Sequence[Matrix]) -> Array:
        """The unweighted answers of ⊗Wᵢ, in the order of Kron's rows."""
        needs = self.space._subspaces_of(factors)
        if needs is None:
            queries = math.prod(factor.shape[0] for factor in factors)
            return np.zeros(queries if self.single else (queries, self.averages.draws))
        self.space._require(needs)
        maps: list[Matrix] = []
        for i, axis in needs.axes.items():
            if i in needs.may:
                maps.append(axis.matrix)
            elif len(axis.means) > 1 or axis.means[0] != 1:
                maps.append(Dense(axis.means[:, None]))
        tables = self.averages.tables(needs.may)
        columns = tables[0] if self.single else tables.T
        return np.asarray(multiply(Kron(tuple(maps)), columns)) if maps else columns

    def least_norm_cells(self) -> Array:
        """Every cell, what no block sees being taken as zero."""
        tables = self.averages.tables(tuple(range(len(self.space.shape))))
        return tables[0] if self.single else tables.T


def is_commuting(shape: tuple[int, ...], blocks: Sequence[Matrix]) -> bool:
    """Are all blocks of the kind that falls apart into subspaces, few enough of them?"""
    kinds: dict[int, str] = {}
    for matrix in blocks:
        block = _marginal_block(shape, matrix, 1.0, kinds)
        if block is None or block.count > MOST_SUBSPACES:
            return False
    return True


def marginal_axes(shape: tuple[int, ...], matrix: Matrix) -> Axes | None:
    """The axes of a marginal; None for anything else, residuals too.

    >>> marginal_axes((2, 3), Kron((Identity(2), Ones(1, 3))))
    (0,)
    """
    block = _marginal_block(shape, matrix, 1.0, {})
    return None if block is None or block.residual else block.axes


def _marginal_block(
    shape: tuple[int, ...], matrix: Matrix, precision: float, kinds: dict[int, str]
) -> MarginalBlock | None:
    """A block by its axes; None if a factor is of another kind."""
    if isinstance(matrix, Identity) and matrix.n == math.prod(shape):
        return MarginalBlock(tuple(i for i, n in enumerate(shape) if n > 1), (), precision)
    if isinstance(matrix, Ones) and matrix.shape == (1, math.prod(shape)):
        return MarginalBlock((), (), _cells(shape) * precision)
    kron = matrix if isinstance(matrix, Kron) else Kron((matrix,))
    if kron.grid != shape:
        return None
    axes, residual, contrasts = [], [], []
    for i, factor in kron.active:
        if id(factor) not in kinds:  # the blocks hold it, so no other gets its id
            kinds[id(factor)] = _kind(factor)
        kind = kinds[id(factor)]
        if kind == "other":
            return None
        if kind != "total":
            axes.append(i)
        if kind in ("residual", "contrast"):
            residual.append(i)
        if kind == "contrast":
            contrasts.append(i)
    eigenvalue = _cells(shape) / math.prod([float(shape[i]) for i in axes])
    if residual:
        eigenvalue *= math.prod([float(shape[i]) ** 2 for i in residual]) / (1 << len(contrasts))
    return MarginalBlock(tuple(axes), tuple(residual), eigenvalue * precision, tuple(contrasts))


@lru_cache(maxsize=64)
def _cells(shape: tuple[int, ...]) -> float:
    return math.prod(map(float, shape))


def _kind(factor: Matrix) -> str:
    """The kind of a factor: total, identity, residual, contrast (one row of it) or other."""
    n = factor.shape[1]
    if isinstance(factor, Ones) and factor.m == 1:
        return "total"
    if isinstance(factor, Identity):
        return "identity" if n > 1 else "total"
    if isinstance(factor, Dense) and n > 1 and factor.shape[0] == n:
        array = factor.array
        if (array.diagonal() == n - 1).all() and (array == -1).sum() == n * n - n:
            return "residual"
    if isinstance(factor, Dense) and factor.shape == (1, 2):
        return "contrast" if factor.array.tolist() == [[1, -1]] else "other"
    return "other"
