"""The maximum-entropy model of many attributes from noisy tables of few, where no vector fits.

Measured are tables of few attributes each, by values or by groups of values. The model is the
distribution nearest to independent attributes that leaves them only as far as the noisy numbers
urge it (McKenna, Sheldon and Miklau 2019 fit such models without that restraint):

    minimise  ½ Σ_b ‖(A_b x - y_b)/σ_b‖² + τ KL(x ‖ q)   over x ≥ 0 with Σx = T,

q the product of the one-way tables. Its solution is x = T q exp(Σ_b A_bᵀθ_b)/Z, with a function for
each measured table, and a junction tree gives its tables (psephos.infer.junction_tree). In the
dual, with λ_b = τσ_b²,

    minimise  T log Z(θ) - y·θ + ½ Σ λθ²,   gradient  A x - y + λθ,

smooth and strictly convex: quasi-Newton steps from wherever an earlier model stopped.

*Groups of values.* Tables of several attributes may go by groups of a long attribute's values. The
model then has a cell for each group, and the values of a group have the shares that the one-way
table gives them: x(value, rest) = x(group, rest)·share(value). So the tree is one of small tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import TooLargeError, UnsupportedError
from psephos.infer.estimate import Answers
from psephos.infer.junction_tree import JunctionTree, tree_cells
from psephos.infer.least_squares import block_answers, common_domain
from psephos.inverse.form import multiply
from psephos.kernel.measurement import Measurement
from psephos.matrix import Identity, Kron, Matrix, Partition, is_total
from psephos.matrix.base import first_appearance
from psephos.matrix.marginals import Axes
from psephos.values import Array
from psephos.workload.workload import Workload

CLIQUE_CELLS = 1 << 22
"""The most cells of all cliques of a model's junction tree."""
STRENGTH = 0.02
"""τ: how much a model is held back towards independent attributes."""
MODEL_STEPS = 200
LEAST_VALUE_SHARE = 1e-6
"""What a value keeps at least of its attribute before larger tables are fitted."""


def graphical_model(
    measurements: Measurement | Sequence[Measurement],
    *,
    total: float | None = None,
    strength: float = STRENGTH,
    start: GraphicalModel | None = None,
    steps: int = MODEL_STEPS,
) -> GraphicalModel:
    """The distribution of all attributes that fits noisy tables of a few of them each.

    Args:
        measurements: of tables: Kronecker products of identities, totals and groups of values
        total: the number of rows, if it is public; else as the measurements have it
        strength: how much the model is held back towards independent attributes
        start: an earlier model, of some of the measurements, to go on from
        steps: the most steps of the fit
    """
    several = (measurements,) if isinstance(measurements, Measurement) else tuple(measurements)
    domain = common_domain(several)
    tables = _noisy_tables(domain, several)
    rows = _total(tables) if total is None else float(total)
    simulation = any(measurement.simulation for measurement in several)
    return fitted_model(domain, tables, rows, strength, start, steps, simulation)


def fitted_model(
    domain: Domain,
    tables: Sequence[NoisyTable],
    rows: float,
    strength: float = STRENGTH,
    start: GraphicalModel | None = None,
    steps: int = MODEL_STEPS,
    simulation: bool = False,
) -> GraphicalModel:
    """As `graphical_model`, from noisy tables however they were come by."""
    axes = [_attribute_cells(domain.shape[i], i, tables) for i in range(len(domain))]
    shape = tuple(axis.size for axis in axes)
    scopes = [table.axes for table in tables]
    needed = tree_cells(shape, scopes)
    if needed > CLIQUE_CELLS:
        raise TooLargeError(
            f"the junction tree of these tables needs {needed:,} cells, over the limit of "
            f"{CLIQUE_CELLS:,}; measure fewer tables that share attributes, or groups of values",
            needed,
            CLIQUE_CELLS,
        )
    tree = JunctionTree.of(shape, scopes)
    shares = [axis.shares(tables, rows) for axis in axes]
    fit = _Fit(tree, _merged(tables, axes), shares, rows, strength, [axis.groups for axis in axes])
    theta = fit.solve(fit.start({} if start is None else start.exponents), steps)
    beliefs, _ = tree.calibrated(fit.logs(theta))
    return GraphicalModel(
        domain,
        tree,
        tuple(rows * belief for belief in beliefs),
        tuple(axis.groups for axis in axes),
        tuple(_within(axis, share) for axis, share in zip(axes, shares, strict=True)),
        fit.exponents(theta),
        rows,
        simulation,
    )


@dataclass(frozen=True, eq=False)
class NoisyTable:
    """A measured table: its attributes, the group of every value of each, numbers, variance."""

    axes: Axes
    groups: tuple[Array, ...]
    values: Array
    variance: float

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(group.max()) + 1 for group in self.groups)


@dataclass(frozen=True, eq=False, repr=False)
class GraphicalModel:
    """The distribution of all attributes by the tables of a junction tree: biased, not negative."""

    domain: Domain
    tree: JunctionTree
    """Over the cells of the model: groups of values of each attribute."""
    tables: tuple[Array, ...]
    """The counts of each clique's cells."""
    groups: tuple[Array, ...]
    """For each attribute, the cell of every value."""
    within: tuple[Array, ...]
    """For each attribute, the share of every value in its cell."""
    exponents: Mapping[Any, Array]
    """θ of each measured table, for a model that goes on from here."""
    total: float
    simulation: bool = False
    biased: ClassVar[bool] = True

    def answer(self, workload: Workload) -> Answers:
        """The answers of a workload, each about few attributes; their errors are not known."""
        Workload.require(workload, self.domain)
        known: dict[Axes, Array] = {}
        values = []
        for i in range(len(workload.products)):
            active = workload.kron(i).active
            axes = tuple(axis for axis, _ in active)
            if axes not in known:
                known = {axes: self.table_of(axes).reshape(-1)}  # the next is likely the same
            factors = tuple(factor for _, factor in active)
            values.append(multiply(Kron(factors), known[axes]) if factors else known[axes])
        return Answers(workload, np.concatenate(values), biased=True, simulation=self.simulation)

    def table(self, *names: str) -> Array:
        """The counts of some attributes, an axis for each."""
        return self.table_of(tuple(self.domain.axis(name) for name in names))

    def table_of(self, axes: Axes) -> Array:
        """The counts of some attributes by their places."""
        table = self.cells_of(axes)
        for place, axis in enumerate(axes):
            share = self.within[axis].reshape([-1 if k == place else 1 for k in range(len(axes))])
            table = np.take(table, self.groups[axis], axis=place) * share
        return table

    def grouped_table(self, axes: Axes, groups: Sequence[Array]) -> Array:
        """The counts of some attributes by groups of their values."""
        table = self.cells_of(axes)
        for place, (axis, numbers) in enumerate(zip(axes, groups, strict=True)):
            cells, count = self.groups[axis], int(numbers.max()) + 1
            width = int(cells.max()) + 1
            weights = np.bincount(numbers * width + cells, self.within[axis], count * width)
            shares = weights.reshape(count, width)
            table = np.moveaxis(np.tensordot(shares, table, (1, place)), 0, place)
        return table

    def cells_of(self, axes: Axes) -> Array:
        """The counts of the model's cells of some attributes."""
        return self.tree.joint(self.tables, axes)

    def __repr__(self) -> str:
        mark = "Simulated graphical model" if self.simulation else "Graphical model"
        return f"{mark}({len(self.tree.cliques)} cliques over {self.domain})"


@dataclass(frozen=True, eq=False)
class _AttributeCells:
    """The cells that a model has for an attribute: all values that larger tables tell apart."""

    axis: int
    groups: Array
    """The cell of every value."""
    finest: Array | None
    """The groups of the one-way tables that tell values of one cell apart."""

    @property
    def size(self) -> int:
        return int(self.groups.max()) + 1

    def shares(self, tables: Iterable[NoisyTable], rows: float) -> Array:
        """The share of every value by the one-way tables alone."""
        n = self.groups.size
        known = self.groups if self.finest is None else self.finest
        count = int(known.max()) + 1
        weights, sums = 0.0, np.zeros(count)
        for table in tables:
            if table.axes == (self.axis,) and np.array_equal(table.groups[0], known):
                weights += 1 / table.variance
                sums += table.values / table.variance
        if weights == 0:
            return np.full(n, 1 / n)
        counts = nearest_counts(sums / weights, rows) / rows
        lengths = np.bincount(known)
        return np.asarray((counts / lengths)[known])


@dataclass(frozen=True, eq=False)
class _CellTable:
    """A measured table on the cells of a model: for each attribute, which row a cell adds to."""

    axes: Axes
    rows: tuple[Array | None, ...]
    """None where every cell has a row of its own."""
    values: Array
    variances: Array
    key: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)


@dataclass(frozen=True, eq=False)
class _Fit:
    """The dual problem: exponents of all measured tables in one vector."""

    tree: JunctionTree
    tables: Sequence[_CellTable]
    value_shares: Sequence[Array]
    total: float
    strength: float
    groups: Sequence[Array] = ()

    def solve(self, theta: Array, steps: int) -> Array:
        """The exponents of the least dual value, scaled so that no direction is steep."""
        from scipy.optimize import minimize

        if not theta.size:
            return theta
        scale = 1 / np.sqrt(np.maximum(self.values, 0) + self.penalties + 1.0)

        def objective(u: Array) -> tuple[float, Array]:
            value, gradient = self.value(u * scale)
            return value / self.total, gradient * scale / self.total

        options = {"maxiter": steps, "maxcor": 20, "gtol": 1e-7, "ftol": 1e-10}
        result = minimize(objective, theta / scale, jac=True, method="L-BFGS-B", options=options)
        return np.asarray(result.x * scale)

    def value(self, theta: Array) -> tuple[float, Array]:
        """The dual and its gradient A x - y + λθ."""
        beliefs, constant = self.tree.calibrated(self.logs(theta))
        answers = np.concatenate([each.ravel() for each in self._answers(beliefs)])
        held = self.penalties * theta
        value = self.total * constant - float(self.values @ theta) + 0.5 * float(held @ theta)
        return value, self.total * answers - self.values + held

    def logs(self, theta: Array) -> list[Array]:
        """The logarithm of each clique's function."""
        logs = [np.zeros([self.tree.shape[a] for a in c]) for c in self.tree.cliques]
        by_home: list[dict[Axes, Array]] = [{} for _ in self.tree.cliques]
        for axis, log in enumerate(self._prior):
            home = self.tree.home((axis,))
            by_home[home][(axis,)] = log
        for table, part in zip(self.tables, self._parts(theta), strict=True):
            wide = part.reshape(table.shape)
            for place, rows in enumerate(table.rows):
                if rows is not None:
                    wide = np.take(wide, rows, axis=place)
            known = by_home[self.tree.home(table.axes)]
            known[table.axes] = known[table.axes] + wide if table.axes in known else wide
        for clique, log, parts in zip(self.tree.cliques, logs, by_home, strict=True):
            # Small tables are added to the smallest that holds them, and so on.
            for axes in sorted(parts, key=len):
                larger = [k for k in parts if len(k) > len(axes) and set(axes) <= set(k)]
                if larger:
                    target = min(larger, key=lambda k: parts[k].size)
                    parts[target] = parts[target] + _spread(parts[axes], axes, target)
                else:
                    log += _spread(parts[axes], axes, clique)
        return logs

    def _answers(self, beliefs: Sequence[Array]) -> list[Array]:
        known: list[dict[Axes, Array]] = [
            {clique: belief} for clique, belief in zip(self.tree.cliques, beliefs, strict=True)
        ]
        answers: list[Array] = [np.zeros(0)] * len(self.tables)
        order = sorted(range(len(self.tables)), key=lambda b: -len(self.tables[b].axes))
        for b in order:
            table = self.tables[b]
            tables = known[self.tree.home(table.axes)]
            if table.axes not in tables:
                larger = [axes for axes in tables if set(table.axes) <= set(axes)]
                source = min(larger, key=lambda axes: tables[axes].size)
                drop = tuple(k for k, a in enumerate(source) if a not in table.axes)
                tables[table.axes] = tables[source].sum(axis=drop)
            answer = tables[table.axes]
            for place, rows in enumerate(table.rows):
                if rows is not None:
                    answer = _grouped(answer, rows, table.shape[place], place)
            answers[b] = answer
        return answers

    def start(self, exponents: Mapping[Any, Array]) -> Array:
        """Exponents of an earlier model, and zeros for tables that it did not have."""
        parts = []
        for table in self.tables:
            earlier = exponents.get(table.key)
            fits = earlier is not None and earlier.shape == table.shape
            parts.append(
                earlier.ravel() if fits and earlier is not None else np.zeros(table.values.size)
            )
        return np.concatenate([np.zeros(0), *parts])

    def exponents(self, theta: Array) -> dict[Any, Array]:
        """The exponents of each table, by its key."""
        pairs = zip(self.tables, self._parts(theta), strict=True)
        return {table.key: part.reshape(table.shape) for table, part in pairs}

    def _parts(self, theta: Array) -> list[Array]:
        ends = np.cumsum([table.values.size for table in self.tables], dtype=np.int64)
        return np.split(theta, ends[:-1])[: len(self.tables)]

    @cached_property
    def values(self) -> Array:
        """The noisy numbers of all tables."""
        return np.concatenate([np.zeros(0), *(table.values.ravel() for table in self.tables)])

    @cached_property
    def penalties(self) -> Array:
        """λ = τσ² of each number."""
        variances = [table.variances.ravel() for table in self.tables]
        return self.strength * np.concatenate([np.zeros(0), *variances])

    @cached_property
    def _prior(self) -> list[Array]:
        sums = [
            np.bincount(g, weights=s) for g, s in zip(self.groups, self.value_shares, strict=True)
        ]
        return [np.log(np.maximum(each, LEAST_VALUE_SHARE)) for each in sums]


def _merged(tables: Sequence[NoisyTable], axes: Sequence[_AttributeCells]) -> list[_CellTable]:
    """The tables on the cells of a model; those of the same cells are averaged."""
    sums: dict[Any, list[Any]] = {}
    for table in tables:
        values = np.asarray(table.values, dtype=float).reshape(table.shape)
        variances = np.full(table.shape, table.variance)
        rows: list[Array | None] = []
        for place, (a, groups) in enumerate(zip(table.axes, table.groups, strict=True)):
            cells = axes[a]
            if len(table.axes) == 1 and cells.finest is not None:
                inner = _rows_of(groups, cells.groups)  # the cell of each row
                values = np.bincount(inner, weights=values, minlength=cells.size)
                variances = np.bincount(inner, weights=variances, minlength=cells.size)
                rows.append(None)
            else:
                outer = _rows_of(cells.groups, groups)  # the row of each cell
                same = (
                    np.array_equal(outer, np.arange(outer.size))
                    and outer.size == table.shape[place]
                )
                rows.append(None if same else outer)
        key = (table.axes, tuple(None if r is None else r.tobytes() for r in rows))
        known = sums.setdefault(key, [table.axes, tuple(rows), 0.0, 0.0])
        known[2] = known[2] + values / variances
        known[3] = known[3] + 1 / variances
    return [
        _CellTable(scope, rows, weighted / weights, 1 / weights, key)
        for key, (scope, rows, weighted, weights) in sums.items()
        if scope
    ]


def _rows_of(fine: Array, coarse: Array) -> Array:
    """For every group of a partition, the group of a coarser one that holds it."""
    result = np.zeros(int(fine.max()) + 1, dtype=np.int64)
    result[fine] = coarse
    return result


def _within(axis: _AttributeCells, shares: Array) -> Array:
    """The share of every value in its cell."""
    sums = np.bincount(axis.groups, weights=shares)
    lengths = np.bincount(axis.groups)
    whole = sums[axis.groups]
    even = 1 / lengths[axis.groups]
    return np.divide(shares, whole, out=even, where=whole > 0)


def _attribute_cells(n: int, axis: int, tables: Iterable[NoisyTable]) -> _AttributeCells:
    """The values of an attribute that no table of several attributes tells apart are one cell."""
    joint = np.zeros(n, dtype=np.int64)
    alone: list[Array] = []
    for table in tables:
        if axis in table.axes:
            groups = table.groups[table.axes.index(axis)]
            if len(table.axes) == 1:
                alone.append(groups)
            else:
                joint = _refined(joint, groups)
    alone.sort(key=lambda groups: -int(groups.max()))
    if not alone:
        return _AttributeCells(axis, joint, None)
    finest = alone[0]
    for groups in alone[1:]:
        if not np.array_equal(groups, finest):
            joint = _refined(joint, groups)
    if np.array_equal(_refined(finest, joint), first_appearance(finest)):
        return _AttributeCells(axis, joint, finest)
    return _AttributeCells(axis, _refined(joint, finest), None)


def _refined(a: Array, b: Array) -> Array:
    return first_appearance(a * (int(b.max()) + 1) + b)


def _noisy_tables(domain: Domain, measurements: Sequence[Measurement]) -> list[NoisyTable]:
    tables = []
    for matrix, noise, values in block_answers(measurements):
        if is_total(matrix):
            axes: list[tuple[int, Matrix]] = []
        else:
            factors = matrix.factors if isinstance(matrix, Kron) else (matrix,)
            if tuple(f.shape[1] for f in factors) != domain.shape:
                raise _strange(matrix)
            axes = [(i, f) for i, f in enumerate(factors) if not is_total(f)]
        groups = tuple(_groups_of(factor) for _, factor in axes)
        numbers = np.asarray(values, dtype=float)
        tables.append(NoisyTable(tuple(i for i, _ in axes), groups, numbers, noise.exact_variance))
    return tables


def _groups_of(factor: Matrix) -> Array:
    if isinstance(factor, Identity):
        return np.arange(factor.n)
    if isinstance(factor, Partition):
        return np.asarray(factor.groups)
    raise _strange(factor)


def _strange(matrix: Matrix) -> UnsupportedError:
    return UnsupportedError(
        f"a graphical model is made from tables: products of identities, totals and groups of "
        f"values, got {type(matrix).__name__}; least squares takes any"
    )


def _total(tables: Sequence[NoisyTable]) -> float:
    """The number of rows as all tables have it, each by its noise."""
    weights = [1 / (table.values.size * table.variance) for table in tables]
    return max(1.0, float(np.average([table.values.sum() for table in tables], weights=weights)))


def nearest_counts(values: Array, total: float) -> Array:
    """The counts nearest to these that are not negative and add up to a total.

    >>> nearest_counts(np.array([5.0, 2.0, -1.0]), 5.0)
    array([4., 1., 0.])
    """
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, values.size + 1)
    return np.asarray(np.maximum(values - excess[np.flatnonzero(falling >= excess)[-1]], 0.0))


def _spread(table: Array, axes: Axes, target: Axes) -> Array:
    sizes = dict(zip(axes, table.shape, strict=True))
    return table.reshape([sizes.get(a, 1) for a in target])


def _grouped(table: Array, rows: Array, count: int, axis: int) -> Array:
    """Sums over groups of cells along an axis."""
    moved = np.moveaxis(table, axis, 0)
    result = np.zeros((count, *moved.shape[1:]))
    np.add.at(result, rows, moved)
    return np.moveaxis(result, 0, axis)
