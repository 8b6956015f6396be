"""Least squares through residual subspaces, for measurements that all commute.

A set S of axes stands for the subspace of tables that are orthogonal to 1 along S and constant
along the other axes. A block ⊗ Bᵢ whose factors are Identity (axes a), rows that sum to zero such
as nI - 11ᵀ (axes b), or the total sees exactly the S with b ⊆ S ⊆ a ∪ b, and its noise is
independent between them. So generalised least squares falls apart into one average per S: the
component

    c_S = ⊗_{i∈S} (I - 11ᵀ/nᵢ) ⊗_{i∉S} 1ᵀ x

is estimated by every block that sees it, and the estimates are weighted by inverse variance. A
marginal is the sum of its components, and only tables of the size of marginals are ever made.

An axis may have a basis R of its own in place of nI - 11ᵀ, the same in all blocks
(`marginal_blocks`). Then X is ⊗_{i∈S} RᵢᵀRᵢ on S, up to one number, and so what S adds to an error
has tr((RᵢᵀRᵢ)⁺G) for the trace of G on differences.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from operator import mul

import numpy as np

from psephos.errors import ShapeError, UnsupportedError
from psephos.inverse.components import ComponentAverages, MarginalBlock, subspaces_between
from psephos.inverse.form import Factors, Form, ListedProducts, multiply
from psephos.inverse.marginal_blocks import BlockReading, ResidualBasis, number_of_cells
from psephos.matrix import Dense, Identity, Kron, Matrix
from psephos.matrix.kron import NamedFactors
from psephos.matrix.marginals import Axes
from psephos.values import Array

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

    basis: ResidualBasis | None = None
    """That of the axis: then `varying` is what it makes of differences, tr((RᵀR)⁺G)."""

    @classmethod
    def of(cls, matrix: Matrix, basis: ResidualBasis | None = None) -> _AxisQueries:
        gram = matrix.gram()
        constant = gram.sum() / matrix.shape[1]
        # Rounding leaves dust where the exact difference is zero, for totals and for contrasts.
        dust = 1e-12 * gram.trace()
        varying = gram.trace() - constant
        if varying <= dust:
            varying = 0.0
        elif basis is not None:
            varying = basis.inverse.trace_with(matrix)
        return cls(matrix, constant if constant > dust else 0.0, varying, basis)

    @cached_property
    def width(self) -> int:
        return self.matrix.shape[1]

    @cached_property
    def means(self) -> Array:
        """The mean of every row."""
        return self.matrix.matvec(np.ones(self.width)) / self.width

    @cached_property
    def squares(self) -> tuple[Array, Array]:
        """(Σ row)²/n and ‖row - its mean‖² of every row; a single entry where all rows agree.

        With a basis the second is the variance of every row.
        """
        n = self.width
        if isinstance(self.matrix, Identity) and self.basis is None:
            return np.array([1 / n]), np.array([1 - 1 / n])
        constant = n * self.means**2
        square = self.matrix.sqr().matvec(np.ones(n))
        varying = square - constant
        varying[varying < 1e-12 * square] = 0
        if self.basis is not None and self.varying:
            varying = np.where(varying > 0, self.basis.inverse.variances(self.matrix), 0.0)
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
    bases: Mapping[int, ResidualBasis] = field(default_factory=dict)
    _axis_queries: dict[tuple[int, int], _AxisQueries] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls, shape: Sequence[int], blocks: Sequence[Matrix], precisions: Sequence[float]
    ) -> Subspaces:
        """The form of blocks that are marginals or residuals (`falls_into_subspaces`).

        >>> from psephos.matrix import total
        >>> Subspaces.of((2, 3), [Kron((Identity(2), total(3)))], [2.0]).information
        {(): 6.0, (0,): 6.0}
        """
        reading = BlockReading(tuple(shape))
        marginal_blocks = []
        information: dict[Axes, float] = {}
        for matrix, precision in zip(blocks, precisions, strict=True):
            block = reading.block(matrix, precision)
            if block is None:
                raise ShapeError(f"{matrix} is no marginal and no residual of few attributes")
            marginal_blocks.append(block)
            for s in block.subspaces():
                information[s] = information.get(s, 0.0) + block.strength
        return cls(tuple(shape), tuple(marginal_blocks), information, reading.bases)

    @cached_property
    def _widths(self) -> list[float]:
        return [float(n) for n in self.shape]

    # ---- what is known of a product ------------------------------------------------------------

    def _queries_on_axis(self, axis: int, matrix: Matrix) -> _AxisQueries:
        """The queries of one matrix on an axis, analysed once; alike on all axes without a basis.

        Axes of one size may have different bases, so these are told apart by the axis alone.
        """
        key = axis if axis in self.bases else -1, id(matrix)
        queries = self._axis_queries.get(key)
        if queries is None:  # the cache holds the matrix, so no other gets its id
            queries = _AxisQueries.of(matrix, self.bases.get(axis))
            self._axis_queries[key] = queries
        return queries

    def _subspaces_of(self, factors: Sequence[Matrix]) -> _ProductSubspaces | None:
        """What a product needs to know; None if all its answers are zero."""
        named = factors.named if isinstance(factors, NamedFactors) else range(len(factors))
        axes = {i: self._queries_on_axis(i, factors[i]) for i in named}
        if isinstance(factors, NamedFactors):
            widths = factors.totals.shape
        else:
            widths = tuple([axis.width for axis in axes.values()])
        if widths != self.shape:
            raise ShapeError(f"a product over {self.shape} has factors of widths {widths}")
        if not all(axis.constant or axis.varying for axis in axes.values()):
            return None
        others = number_of_cells(self.shape) / math.prod([self._widths[i] for i in named])
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
        pairs = zip(products.axes, products.matrices, strict=True)
        queries = [self._queries_on_axis(axis, matrix) for axis, matrix in pairs]
        parts = np.array([(axis.constant, axis.varying) for axis in queries]).reshape(-1, 2)
        axes, widths = np.array(products.axes, dtype=np.int64), np.array(self._widths)
        traces = np.zeros(len(products))
        for places, items in products.by_length:
            count = items.shape[1]
            if (len(self.shape) + 1) ** count >= LARGEST_CODE:
                traces[places] = [self.trace(products[j]) for j in places.tolist()]
                continue
            on_axes = axes[items]
            others = number_of_cells(self.shape) / widths[on_axes].prod(axis=1)
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
        sizes = [math.prod(self._rows(block)) for block in self.blocks]
        lengths = [len(v) for v in values]
        if lengths != sizes:
            raise ShapeError(f"the blocks have {sizes[:9]} answers, got {lengths[:9]}")
        single = all(np.ndim(v) == 1 for v in values)
        rows = [np.asarray(v)[None] if single else np.ascontiguousarray(v.T) for v in values]
        tables = [self._residual_answers(*pair) for pair in zip(self.blocks, rows, strict=True)]
        averages = ComponentAverages.of(self.shape, self.information, self.blocks, tables)
        return FittedTables(self, averages, single)

    def _rows(self, block: MarginalBlock) -> list[int]:
        """How many rows were measured along each axis of a block."""
        turned = {i: turn.shape[1] for i, turn in block.turned}
        return [turned.get(i, self.shape[i]) for i in block.axes]

    def _residual_answers(self, block: MarginalBlock, rows: Array) -> Array:
        """Answers along the axes of other rows, written as those to nI - 11ᵀ."""
        if not block.turned:
            return rows
        sizes, draws = self._rows(block), len(rows)
        for i, turn in block.turned:
            place = block.axes.index(i)
            cube = rows.reshape(draws * math.prod(sizes[:place]), sizes[place], -1)
            rows = cube[:, :, 0] @ turn.T if cube.shape[2] == 1 else turn @ cube
            sizes[place] = len(turn)
        return rows.reshape(draws, -1)

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
