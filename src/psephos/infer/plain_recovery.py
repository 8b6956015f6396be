"""Plain recovery: every table from one noisy marginal, as it was measured (Dwork 2006)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from psephos.domain.domain import Domain
from psephos.infer.estimate import Answers
from psephos.infer.least_squares import block_answers, common_domain
from psephos.inverse.choice import precision
from psephos.inverse.form import Fitted, Form
from psephos.inverse.single_blocks import SingleBlocks
from psephos.kernel.measurement import Measurement
from psephos.values import Array
from psephos.workload.workload import Workload


def plain_recovery(measurements: Measurement | Iterable[Measurement]) -> PlainRecovery:
    """Each table summed from the one measured marginal that tells it with the least noise.

    The recovery of the mechanisms that Yaroslavtsev et al. (2013) begin with. Answers are unbiased
    but do not add up between tables; `least_squares` is consistent and never less accurate, and
    `consistent` is nearest to these numbers in other norms.
    """
    several = tuple(measurements) if isinstance(measurements, Iterable) else (measurements,)
    domain = common_domain(several)
    blocks = block_answers(several)
    precisions = [precision(block.noise.exact_variance) for block in blocks]
    form = SingleBlocks.of(domain.shape, [block.matrix for block in blocks], precisions)
    fitted = form.fit([block.values for block in blocks])
    return PlainRecovery(domain, form, fitted, several)


@dataclass(frozen=True, eq=False, repr=False)
class PlainRecovery:
    """Noisy marginals, each of which answers for itself: unbiased, with exact variances."""

    domain: Domain
    form: Form
    fitted: Fitted
    measurements: tuple[Measurement, ...]
    biased: ClassVar[bool] = False

    def answer(self, workload: Workload) -> Answers:
        """The answers of a workload, with the standard error of each."""
        Workload.require(workload, self.domain)
        workload.check_covered(self.form)
        products = [workload.factors(i) for i in range(len(workload.products))]
        values = np.concatenate([self.fitted.answers(factors) for factors in products])
        return Answers(workload, values, self.variances, simulation=self.simulation)

    @property
    def simulation(self) -> bool:
        """Is any of it made up?"""
        return any(each.simulation for each in self.measurements)

    def variances(self, workload: Workload) -> Array:
        """The variance of the noise in every answer of a workload."""
        products = [workload.factors(i) for i in range(len(workload.products))]
        return np.concatenate([self.form.variances(factors) for factors in products])

    def __repr__(self) -> str:
        count = sum(len(each.query.blocks) for each in self.measurements)
        mark = "Simulated plain recovery" if self.simulation else "Plain recovery"
        return f"{mark}(from {count} marginals over {self.domain})"
