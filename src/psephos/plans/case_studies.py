"""The plans of EKTELO's case studies that start from tables of several attributes.

Naive Bayes needs, for every predictor, its table with the label (Zhang et al. 2020, section 9.3).
`Workload` measures these tables and infers nothing; `WorkloadLS` makes them agree; `SelectLS`
measures long predictors by buckets of like counts. `cdf` is Algorithm 1: the cumulative
distribution of one attribute among some of the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from psephos.domain.domain import Domain
from psephos.domain.predicate import Predicate
from psephos.errors import UnsupportedError
from psephos.infer import expanded, least_squares, nonnegative, thresholded
from psephos.infer.estimate import Answers, Estimate
from psephos.infer.nonnegative import NONNEGATIVE_CELLS
from psephos.kernel.budget import Budget
from psephos.kernel.measurement import Measurement
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.scores import PrivTree
from psephos.matrix import Identity, Kron, Partition, total
from psephos.plans.partitions import clusters
from psephos.plans.registry import PlanRun, plan, run
from psephos.plans.session import PlanVector, check_epsilon, shares
from psephos.strategy import select
from psephos.values import Array
from psephos.variances import NoiseKind
from psephos.workload.product import product
from psephos.workload.queries import prefix
from psephos.workload.workload import Workload

LONG_TABLE = 80
"""Tables of more cells are measured by buckets (Zhang et al. 2020, Algorithm 8)."""


@plan(
    "Workload",
    signature="SW LM",
    reference="Zhang et al. 2020, section 9.3",
)
def workload_alone(vector: PlanVector, workload: Workload, budget: Budget) -> Estimate:
    """A yardstick: noise on every answer, and nothing inferred."""
    strategy = select.workload(workload, NoiseKind.paid_in(budget.currency))
    return NoisyAnswers(workload, vector.measure(strategy, spend=budget))


@dataclass(frozen=True, eq=False)
class NoisyAnswers:
    """Answers as they were measured, of the workload that was measured and no other."""

    workload: Workload
    measurement: Measurement
    biased: ClassVar[bool] = False

    @property
    def domain(self) -> Domain:
        return self.workload.domain

    @property
    def simulation(self) -> bool:
        return self.measurement.simulation

    def answer(self, workload: Workload) -> Answers:
        """The noisy answers, each with the standard deviation of its noise."""
        if workload != self.workload:
            raise UnsupportedError(
                "only the workload that was measured has answers here; WorkloadLS answers others"
            )
        scale = _scales(self.measurement, workload)
        values = self.measurement.values / scale
        variances = self.measurement.variances / scale**2
        return Answers(workload, values, lambda _: variances, simulation=self.simulation)


def _scales(measurement: Measurement, workload: Workload) -> Array:
    """By which whole number every query was multiplied to be measured."""
    scales = []
    for i, block in enumerate(measurement.query.blocks):
        whole, real = block.matrix.sum(), workload.kron(i).sum()
        scales.append(np.full(block.matrix.shape[0], whole / real if real else 1.0))
    return np.concatenate(scales)


@plan(
    "SelectLS",
    signature="TP[PD TR SI LM] LS",
    reference="Zhang et al. 2020, Algorithm 8",
    adaptive=True,
)
def select_ls(vector: PlanVector, workload: Workload, budget: Budget) -> Estimate:
    """Tables of pairs of attributes, some of them long and sparse."""
    check_epsilon(budget, "SelectLS looks for buckets")
    each = budget / len(workload.products)
    measured = []
    for i in range(len(workload.products)):
        table = _cells_of(workload, i)
        if table.shape[0] <= LONG_TABLE:
            measured.append(vector.measure(table, spend=each))
            continue
        first, second = shares(each, "1/4")
        counts = vector.transform(table).transform(_along_longest(workload, i))
        buckets = counts.partition(PrivTree(), spend=first)
        measured.append(counts.reduce(buckets).measure(Identity(buckets.shape[0]), spend=second))
    return expanded(measured)


def _along_longest(workload: Workload, i: int) -> Partition:
    """The cells of a product's table in runs along its longest attribute: neighbours are alike."""
    names = dict(workload.products[i].items)
    shape = [workload.domain[name].size for name in workload.domain.names if name in names]
    cells = np.arange(int(np.prod(shape))).reshape(shape)
    return Partition(np.argsort(np.moveaxis(cells, int(np.argmax(shape)), -1).ravel()))


def _cells_of(workload: Workload, i: int) -> Kron:
    """The table of all attributes that a product names, value by value."""
    names = dict(workload.products[i].items)
    domain = workload.domain
    pairs = zip(domain.names, domain.shape, strict=True)
    return Kron(tuple(Identity(n) if name in names else total(n) for name, n in pairs))


@plan(
    "CDF",
    signature="PA TR SI LM NLS",
    reference="Zhang et al. 2020, Algorithm 1",
    adaptive=True,
    most_cells=NONNEGATIVE_CELLS,
)
def cdf_of_vector(vector: PlanVector, workload: Workload, budget: Budget) -> Estimate:
    """How many rows lie below each value of one attribute."""
    first, second = shares(budget, "1/2")
    cells = vector.measure(Identity(vector.size), spend=first)
    groups = clusters(thresholded(cells).vector, float(np.sqrt(cells.variances[0])))
    counts = vector.reduce(groups).measure(Identity(groups.shape[0]), spend=second)
    return nonnegative(least_squares([cells, counts]))


def cdf(
    table: ProtectedTable,
    attribute: str,
    *,
    where: Predicate | None = None,
    spend: Budget,
    key: str | None = None,
) -> Answers:
    """How many of the rows that satisfy a condition lie at or below each value of an attribute.

    >>> import psephos as ps
    >>> domain = ps.Domain.of(age=8, sex=["F", "M"])
    >>> rows = ps.simulate(np.arange(16), domain, unit=ps.add_remove_row(),
    ...                    budget=ps.epsilon(2), seed=0)
    >>> len(cdf(rows, "age", where=ps.col("sex") == "F", spend=ps.epsilon(1)))
    8
    """
    rows = table if where is None else table.where(where)
    column = rows.keep(attribute)
    below = Workload(column.domain, [product({attribute: prefix()})])
    run_of: PlanRun = run("CDF", column.vectorise(), below, spend=spend, key=key)
    return run_of.answer(below)
