"""An estimate that is a list of made-up records: every answer is a count of them, scaled.

DualQuery ends in such a list. Where no vector of cells fits, any workload whose products name few
attributes is answered from it, biased by how few records there are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import TooLargeError
from psephos.infer.estimate import Answers
from psephos.inverse.form import multiply
from psephos.matrix import Kron
from psephos.matrix.marginals import Axes
from psephos.values import Array
from psephos.workload.workload import Workload

COUNTED_CELLS = 1 << 26
"""The most cells of a table that is counted at once."""


@dataclass(frozen=True, eq=False, repr=False)
class RecordEstimate:
    """Records that stand for so many rows, each for an equal share of them.

    >>> records = np.array([[0, 2], [1, 0], [0, 2], [0, 1]])
    >>> estimate = RecordEstimate(Domain.of(sex=["F", "M"], age=3), records, 100)
    >>> estimate.table((0,))
    array([75., 25.])
    """

    domain: Domain
    records: Array
    """Shape (records, attributes): cell codes."""
    rows: float
    simulation: bool = False
    biased: ClassVar[bool] = True

    def answer(self, workload: Workload) -> Answers:
        """The answers of a workload; their standard errors are not known."""
        Workload.require(workload, self.domain)
        values = counted_answers(self.domain, self.records, workload) * self.share
        return Answers(workload, values, biased=True, simulation=self.simulation)

    @property
    def share(self) -> float:
        """How many rows a record stands for."""
        return self.rows / len(self.records)

    def table(self, axes: Axes) -> Array:
        """The estimated rows in the cells of some attributes."""
        return record_counts(self.domain, self.records, axes) * self.share

    def __repr__(self) -> str:
        words = f"ecord estimate({len(self.records):,} records for {self.rows:,.0f} rows)"
        return f"Simulated r{words}" if self.simulation else f"R{words}"


def counted_answers(domain: Domain, records: Array, workload: Workload) -> Array:
    """How many records each query of a workload counts; products name few attributes each."""
    tables: dict[Axes, Array] = {}
    answers = []
    for i in range(len(workload.products)):
        active = workload.kron(i).active
        axes = tuple(axis for axis, _ in active)
        if axes not in tables:
            tables[axes] = record_counts(domain, records, axes)
        factors = tuple(factor for _, factor in active)
        answers.append(multiply(Kron(factors), tables[axes]) if factors else tables[axes])
    return np.concatenate(answers)


def record_counts(domain: Domain, records: Array, axes: Axes) -> Array:
    """How many records lie in each cell of some attributes, row-major."""
    shape = [domain.shape[i] for i in axes]
    cells = math.prod(shape)
    if cells > COUNTED_CELLS:
        names = ", ".join(domain.names[i] for i in axes)
        raise TooLargeError(
            f"a table of {names} has {cells:,} cells, over the limit of {COUNTED_CELLS:,}; "
            "ask about fewer attributes at a time",
            cells,
            COUNTED_CELLS,
        )
    place = np.zeros(len(records), dtype=np.int64)
    for i in axes:
        place = place * domain.shape[i] + np.asarray(records[:, i], dtype=np.int64)
    return np.bincount(place, minlength=cells)
