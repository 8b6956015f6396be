"""The static plan: one strategy, chosen from the questions alone, measured once.

Select, measure, infer: the plan of the matrix mechanism (Li et al. 2010) and of HDMM (McKenna et
al. 2018). What is measured depends on no count, so the error of every answer is known beforehand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from psephos.infer.least_squares import LeastSquares, least_squares
from psephos.kernel.budget import Budget
from psephos.kernel.measurement import Measurement
from psephos.kernel.protected import ProtectedVector
from psephos.strategy.strategy import Strategy


class Step(NamedTuple):
    """One request of a plan: what was measured, at what spend, and what came of it."""

    strategy: Strategy
    spend: Budget
    measurement: Measurement


@dataclass(frozen=True)
class Static:
    """Measure one strategy and estimate by least squares.

    >>> import numpy as np
    >>> import psephos as ps
    >>> domain = ps.Domain.of(age=4)
    >>> ages = ps.Workload(domain, [ps.product(age=ps.prefix())])
    >>> plan = ps.plans.Static(ps.select.identity(ages))
    >>> spend = ps.epsilon("1")
    >>> counts = np.array([5, 0, 2, 9])
    >>> table = ps.simulate(counts, domain, unit=ps.add_remove_row(), budget=spend, seed=0)
    >>> (step,) = plan.steps(table.vectorise(), spend=spend)
    >>> plan.estimate([step.measurement]).answer(ages)
    Simulated answers(4 of Workload(4 queries in 1 product over 4 cells))
    """

    strategy: Strategy
    name: ClassVar[str] = "static"

    def steps(
        self, vector: ProtectedVector, *, spend: Budget, key: str | None = None
    ) -> Sequence[Step]:
        self.strategy.check_reconstructible()  # what is paid for has to be of use
        measurement = vector.measure(self.strategy.query, spend=spend, key=key)
        return (Step(self.strategy, spend, measurement),)

    def estimate(self, measurements: Sequence[Measurement]) -> LeastSquares:
        return least_squares(measurements)
