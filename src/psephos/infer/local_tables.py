"""Tables that are not negative and agree with each other, where no vector of cells fits.

Least squares knows every table of many attributes without a vector of cells, and pays for being
unbiased on empty and small cells. Here tables are built from small to large: the total, tables of
one attribute, of two, and so on, up to the asked ones. For each table there are

    w  the least squares of its cells, with standard deviation σ,
    q  the table of greatest entropy that has the tables already built as its marginals
       (iterative proportional fitting, Deming and Stephan 1940).

Each cell becomes its mean given w, where the table itself says how far its cells tend to be from
q (psephos.infer.ratio_prior); that also gives the variance v that is left in each cell. Then the
table is brought to the smaller tables: gaps along a marginal are shared between its cells in
proportion to v, the best linear correction,

    x ← x + v (m - Σx)/Σv,   or x exp(…/x) where that is less than x,

and what is left of them is taken away by proportional fitting. Three tables of two attributes may
contradict each other, and then no table of the three attributes without negative cells has them
all. So smaller tables become the averages of what larger ones add up to, and the larger ones are
fitted to them, a few times over. What is left of their differences is `inconsistency`, in standard
deviations of the noise.

The estimate is biased, cell by cell, and what is summed over many cells adds up their biases:
prefixes along an axis of 85 to 100 values, from marginals of the public table Adult, had between
0.4 and 1.7 times the error of least squares. Noise is taken to be alike and independent in all
cells of a table, as it nearly is where marginals were measured. Where trees or ranges were, it is
not: sums are then known better than their cells, and asking for them here is refused.

All of it is computed from noisy numbers and public facts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import ClassVar

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import ShapeError, UnsupportedError
from psephos.infer.estimate import Answers
from psephos.infer.least_squares import LeastSquares, block_answers
from psephos.infer.ratio_prior import NoisyCells, family_weights, table_weights
from psephos.inverse.form import Factors, multiply
from psephos.inverse.marginal_blocks import is_commuting
from psephos.kernel.noise import DiscreteLaplace
from psephos.matrix import Identity, Kron, Ones, is_total
from psephos.matrix.marginals import Axes
from psephos.values import Array
from psephos.workload.workload import Workload

LOCAL_CELLS = 1 << 24
"""The most cells of one table."""
FAMILY_TABLES = 64
"""The most tables whose cells say how far tables of so many attributes are from their guesses."""
GUESS_ROUNDS = 6
CORRECTION_ROUNDS = 4
FITTING_ROUNDS = 30
AGREEMENT = 0.003
"""Proportional fitting ends when no marginal is farther off, in standard deviations."""
SMALL_GAP = 0.05
"""Tables agree when none is farther off, in standard deviations."""
SWEEPS = 10
SWEEP_ROUNDS = 4
LEAST_DEVIATION = 1e-3
"""Counts are whole: noise below a thousandth is as good as none."""
LEAST_CELL = 1e-9
"""What a cell keeps at least until tables are fitted to each other."""
TablesDone = Callable[[int, int], None]
Gap = tuple[float, float, int]
"""The largest of some differences, the sum of their squares, and their number."""


def local_tables(
    estimate: LeastSquares,
    workload: Workload,
    *,
    total: float | None = None,
    progress: TablesDone | None = None,
) -> LocalTables:
    """Tables x ≥ 0 of all attributes that the workload asks about together.

    Args:
        estimate: least squares from the measurements; it has to determine these tables
        workload: the queries, each about few attributes; any others about the same tables can be
            answered later
        total: the number of rows, if it is public; else that of least squares
        progress: told how many tables are done, and of how many

    >>> import psephos as ps
    >>> domain, counts = ps.Domain.of(a=3, b=2), np.array([60, 0, 0, 30, 10, 0])
    >>> data = ps.simulate(counts, domain, unit=ps.add_remove_row(), budget=ps.rho(1), seed=1)
    >>> W = ps.marginals(domain, up_to=2)
    >>> estimate = ps.infer.least_squares(data.vectorise().measure(W.query, spend=ps.rho("0.05")))
    >>> estimate.answer(ps.marginals(domain, k=2)).values.round(1)
    array([63.3,  2.6, -2. , 21.2, 11.3,  4.6])
    >>> local_tables(estimate, W, total=100).table("a", "b").round(1)
    array([[59.3,  4.1],
           [ 0. , 19.4],
           [11.3,  5.9]])
    """
    Workload.require(workload, estimate.domain)
    families = _families(estimate, workload)
    number = sum(map(len, families))
    known = _Known(estimate, _laplace_tables(estimate), {(): _total(estimate, total)})
    for family in families:
        step = math.ceil(len(family) / FAMILY_TABLES)
        weights = family_weights(known.noisy(axes) for axes in family[::step])
        for axes in family:
            noisy, margins = known.noisy(axes), known.margins(axes)
            mean, variance = noisy.posterior(table_weights(noisy, weights))
            grid = known.grid(axes)
            table = _corrected(mean.reshape(grid), variance.reshape(grid), margins)
            table = _fitted(table, margins, FITTING_ROUNDS)
            known.tables[axes] = _Table(table.reshape(-1), noisy.deviation)
            if progress is not None:
                progress(len(known.tables) - 1, number)
    inconsistency = _agree(known, families)
    tables = {axes: table.cells for axes, table in known.tables.items()}
    return LocalTables(estimate.domain, tables, inconsistency, estimate.simulation)


@dataclass(frozen=True)
class Inconsistency:
    """How far tables are from the smaller tables that they should add up to.

    In standard deviations of the least squares of the smaller tables' cells.
    """

    largest: float
    root_mean_square: float

    @classmethod
    def of(cls, gaps: Sequence[Gap]) -> Inconsistency:
        """All gaps together; none where only tables of one attribute were built."""
        squares, number = sum(gap[1] for gap in gaps), sum(gap[2] for gap in gaps)
        largest = max((gap[0] for gap in gaps), default=0.0)
        return cls(largest, math.sqrt(squares / max(1, number)))


@dataclass(frozen=True, eq=False, repr=False)
class LocalTables:
    """An estimate of many tables with no cell below zero, biased; there is no vector of cells."""

    domain: Domain
    tables: Mapping[Axes, Array]
    """By the places of their attributes in the domain, ascending; every subset has its own."""
    inconsistency: Inconsistency
    simulation: bool = False
    biased: ClassVar[bool] = True

    def table(self, *names: str) -> Array:
        """The table of some attributes, an axis for each in the order of the names."""
        places = [self.domain.axis(name) for name in names]
        axes = tuple(sorted(places))
        grid = self._table(axes).reshape([self.domain.shape[i] for i in axes])
        return grid.transpose([axes.index(place) for place in places])

    def answer(self, workload: Workload) -> Answers:
        """The answers of a workload about these tables; their standard errors are not known."""
        Workload.require(workload, self.domain)
        values = [self._answers(workload.factors(i)) for i in range(len(workload.products))]
        return Answers(workload, np.concatenate(values), biased=True, simulation=self.simulation)

    def _answers(self, factors: Factors) -> Array:
        axes = _axes_of(factors)
        table = self._table(axes)
        return multiply(Kron(tuple(factors[i] for i in axes)), table) if axes else table

    def _table(self, axes: Axes) -> Array:
        if axes not in self.tables:
            names = ", ".join(self.domain.names[i] for i in axes)
            raise UnsupportedError(
                f"there is no table of {names} together; name it in the workload of local_tables"
            )
        return self.tables[axes]

    def __repr__(self) -> str:
        mark = "Simulated local tables" if self.simulation else "Local tables"
        return f"{mark}({len(self.tables):,} over {self.domain})"


@dataclass(frozen=True, eq=False)
class _Margin:
    """What a table should add up to along one axis, and the noise of that in least squares."""

    axis: int
    table: Array
    """With one entry along the axis."""
    deviation: float


@dataclass(frozen=True, eq=False)
class _Table:
    """A table that was built, and the standard deviation of the least squares of its cells."""

    cells: Array
    deviation: float


@dataclass(frozen=True, eq=False)
class _Known:
    """The least squares of all tables, and the tables built so far."""

    estimate: LeastSquares
    laplace: frozenset[Axes]
    tables: dict[Axes, _Table]

    def grid(self, axes: Axes) -> list[int]:
        """The shape of a table."""
        return [self.estimate.domain.shape[i] for i in axes]

    def margins(self, axes: Axes) -> list[_Margin]:
        """The tables of all attributes but one."""
        grid, margins = self.grid(axes), []
        for k in range(len(axes)):
            table = self.tables[axes[:k] + axes[k + 1 :]]
            cells = table.cells.reshape([*grid[:k], 1, *grid[k + 1 :]])
            margins.append(_Margin(k, cells, table.deviation))
        return margins

    def share(self, family: Iterable[Axes]) -> None:
        """Give the margins of a family their averages over the tables that have them."""
        sums: dict[Axes, list[Array]] = {}
        for axes in family:
            table = self.tables[axes].cells.reshape(self.grid(axes))
            for k in range(len(axes)):
                margin = table.sum(axis=k).reshape(-1)
                sums.setdefault(axes[:k] + axes[k + 1 :], []).append(margin)
        for axes, margins in sums.items():
            self.tables[axes] = replace(self.tables[axes], cells=np.mean(margins, axis=0))

    def fit(self, axes: Axes, rounds: int) -> None:
        """Bring a table nearer to its margins."""
        table = self.tables[axes].cells.reshape(self.grid(axes))
        cells = _fitted(table, self.margins(axes), rounds).reshape(-1)
        self.tables[axes] = replace(self.tables[axes], cells=cells)

    def gaps(self, axes: Axes) -> list[Gap]:
        """How far a table is from each of its margins."""
        table, gaps = self.tables[axes].cells.reshape(self.grid(axes)), []
        for margin in self.margins(axes):
            sums = table.sum(axis=margin.axis, keepdims=True)
            each = np.abs(sums - margin.table) / margin.deviation
            gaps.append((float(each.max()), float((each**2).sum()), each.size))
        return gaps

    def noisy(self, axes: Axes) -> NoisyCells:
        """The least squares of a table, and its guess from smaller tables."""
        factors = _cell_factors(self.estimate.domain.shape, axes)
        rounds = 1 if len(axes) < 3 else GUESS_ROUNDS
        guess = _fitted(np.ones(self.grid(axes)), self.margins(axes), rounds)
        return NoisyCells(
            self.estimate.fitted.answers(factors),
            np.maximum(guess.reshape(-1), LEAST_CELL),
            _deviation(self.estimate, factors),
            "laplace" if axes in self.laplace else "normal",
        )


def _deviation(estimate: LeastSquares, factors: Factors) -> float:
    """The root mean square of the standard deviations of a table's cells."""
    cells = math.prod(factor.shape[0] for factor in factors)
    variance = estimate.form.trace(factors) / cells
    return max(LEAST_DEVIATION, math.sqrt(max(0.0, variance)))


def _corrected(mean: Array, variance: Array, margins: Sequence[_Margin]) -> Array:
    """A table nearer to its margins, moved most where it is known least."""
    x, v = np.maximum(mean, LEAST_CELL), variance + LEAST_CELL
    sums = [v.sum(axis=margin.axis, keepdims=True) for margin in margins]
    for _ in range(CORRECTION_ROUNDS):
        for margin, size in zip(margins, sums, strict=True):
            gap = margin.table - x.sum(axis=margin.axis, keepdims=True)
            move = v * (gap / size)
            shrunk = x * np.exp(np.maximum(np.minimum(move, 0) / x, -30))
            x = np.maximum(np.where(move > 0, x + move, shrunk), LEAST_CELL)
    return x


def _fitted(x: Array, margins: Sequence[_Margin], rounds: int) -> Array:
    """A table in proportion to x along every axis, with these margins as far as there is one."""
    x = np.array(x, dtype=float)
    for _ in range(rounds):
        largest = 0.0
        for margin in margins:
            sums = x.sum(axis=margin.axis, keepdims=True)
            largest = max(largest, float(np.abs(sums - margin.table).max()) / margin.deviation)
            x *= np.divide(margin.table, sums, out=np.zeros_like(sums), where=sums > 0)
        if largest <= AGREEMENT:
            break
    return x


def _agree(known: _Known, families: Sequence[Sequence[Axes]]) -> Inconsistency:
    """Give way on both sides, small tables to large ones and back, until tables agree."""
    for sweep in range(SWEEPS + 1):
        gaps = [gap for family in families for axes in family for gap in known.gaps(axes)]
        inconsistency = Inconsistency.of(gaps)
        if inconsistency.largest <= SMALL_GAP or sweep == SWEEPS:
            break
        for family in reversed(families[1:]):
            known.share(family)
        for family in families:
            for axes in family:
                known.fit(axes, SWEEP_ROUNDS)
    return inconsistency


def _families(estimate: LeastSquares, workload: Workload) -> list[list[Axes]]:
    """All tables to build, by their number of attributes; too large and unknown ones refused."""
    domain = workload.domain
    blocks = [block.matrix for block in block_answers(estimate.measurements)]
    marginal = is_commuting(domain.shape, blocks)
    products = [(_axes_of(workload.factors(i)), i) for i in range(len(workload.products))]
    for axes, i in products:
        cells = math.prod(domain.shape[k] for k in axes)
        title = workload.products[i].title
        if cells > LOCAL_CELLS:
            raise UnsupportedError(
                f"table {title!r} looks at {cells:,} cells at a time, over the limit of "
                f"{LOCAL_CELLS:,}; least squares remains"
            )
        factors = workload.factors(i)
        if not marginal and not all(isinstance(factors[k], Identity) for k in axes):
            raise UnsupportedError(
                f"table {title!r} asks for sums of cells, and more than marginals was measured: "
                "such sums are known far better than cells are; least squares remains"
            )
        if not estimate.form.covers(_cell_factors(domain.shape, axes)):
            raise UnsupportedError(
                f"the cells of table {title!r} are not determined by what is measured; least "
                "squares remains"
            )
    subsets = {
        s for axes, _ in products for k in range(1, len(axes) + 1) for s in combinations(axes, k)
    }
    most = max((len(s) for s in subsets), default=0)
    return [sorted(s for s in subsets if len(s) == k) for k in range(1, most + 1)]


def _total(estimate: LeastSquares, total: float | None) -> _Table:
    """The number of rows, as the table of no attributes."""
    factors = _cell_factors(estimate.domain.shape, ())
    if total is None:
        total = max(0.0, float(estimate.fitted.answers(factors)[0]))
    elif not math.isfinite(total) or total < 0:
        raise ShapeError(f"a total is a number from 0, got {total!r}")
    return _Table(np.array([float(total)]), _deviation(estimate, factors))


def _axes_of(factors: Factors) -> Axes:
    """The attributes that a product looks at."""
    return tuple(i for i, factor in enumerate(factors) if not is_total(factor))


def _cell_factors(shape: Sequence[int], axes: Iterable[int]) -> Factors:
    """The product that asks for every cell of a table."""
    return tuple(Identity(n) if i in axes else Ones(1, n) for i, n in enumerate(shape))


def _laplace_tables(estimate: LeastSquares) -> frozenset[Axes]:
    """Tables that were measured as they are, with Laplace noise: its large values are many."""
    tables = set()
    for block in block_answers(estimate.measurements):
        factors = block.matrix.factors if isinstance(block.matrix, Kron) else (block.matrix,)
        widths = tuple(factor.shape[1] for factor in factors)
        if widths != estimate.domain.shape or not isinstance(block.noise, DiscreteLaplace):
            continue
        if all(isinstance(factor, Identity) or is_total(factor) for factor in factors):
            tables.add(_axes_of(factors))
    return frozenset(tables)
