"""The maximum-entropy estimate: positive cells, near the measurements, no farther from a prior.

Least squares is unbiased and pays for it on empty and small cells. Cells that may not be negative,
add up to the total and leave a public prior only as far as the noisy numbers urge them are biased,
and closer to the truth, the more so the smaller the counts are beside the noise. Made by a number
of entropy steps (psephos.infer.bregman) from the prior, the first of them short; the number of
steps is the one with the least estimated risk on the asked queries (psephos.infer.asked_risk), and
so is the prior, of those that are tried (psephos.infer.prior_model).

*Cells that no measured block tells apart* have the same exponent, so that x is a multiple of the
prior on them: steps are taken on merged cells, with the sums of the prior, and the result is spread
in proportion to the prior. Nothing is lost by that.

All of it is computed from noisy numbers and public facts. Probes are signs from a fixed seed, and
steps are counted, never timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import UnsupportedError
from psephos.infer.asked_risk import AskedRisk
from psephos.infer.bregman import GAP_TOLERANCE, EntropyProblem
from psephos.infer.estimate import Answers, answers_of_cells
from psephos.infer.least_squares import LeastSquares
from psephos.infer.measured_cells import MeasuredCells
from psephos.infer.nonnegative import NONNEGATIVE_CELLS, check_zeros
from psephos.infer.prior_model import PriorModel, check_prior
from psephos.infer.tangents import FewTangents, Tangents
from psephos.values import Array
from psephos.workload.workload import Workload

STRENGTH_RATIO = 0.7
"""Each step's strength, as a share of that of the step before."""
MOST_ENTROPY_STEPS = 60
IDLE_STEPS = 2
"""How many steps in a row may fail to improve the estimated risk before the rest are left out."""
LEAST_GAIN = 0.002
"""What counts as an improvement once the estimate is better than least squares, as a share."""
Report = Callable[[int, float], None]


def maximum_entropy(
    estimate: LeastSquares,
    workload: Workload,
    *,
    zeros: Array | None = None,
    total: float | None = None,
    prior: Array | None = None,
    steps: int | None = None,
    classes: bool | None = None,
    progress: Report | None = None,
) -> MaximumEntropy:
    """Cells x ≥ 0 that add up to a total, between a prior and the best fit of all measurements.

    The answers of the workload decide how close to the measurements to go. Queries that the
    measurements do not determine are answered by the prior's proportions: as a model.

    Args:
        estimate: least squares from the measurements
        workload: the queries whose error counts, with their weights
        zeros: which cells are known to be empty
        total: the number of rows, if it is public; else that of least squares
        prior: a public table that stands in for the data; else attributes are independent, or
            inside each of some latent classes, whichever has the less estimated risk
        steps: how many entropy steps to take; else as many as have the least estimated risk
        classes: whether to start from latent classes; else decided by the risk, and not for `steps`
        progress: told the number of each step and its estimated mean squared error

    >>> import psephos as ps
    >>> domain, counts = ps.Domain.of(a=4, b=2), np.array([40, 0, 9, 0, 0, 0, 2, 0])
    >>> data = ps.simulate(counts, domain, unit=ps.add_remove_row(), budget=ps.rho(1), seed=2)
    >>> W = ps.marginals(domain, k=2)
    >>> estimate = ps.infer.least_squares(data.vectorise().measure(W.query, spend=ps.rho("0.02")))
    >>> estimate.vector.round(1)
    array([37., -3., 13., -7.,  1.,  3., -2., -8.])
    >>> maximum_entropy(estimate, W, total=51).vector.round(1)
    array([35.9,  0.4, 11.4,  0. ,  1.9,  0.8,  0.6,  0. ])
    """
    cells = estimate.domain.size
    if cells > NONNEGATIVE_CELLS:
        raise UnsupportedError(
            f"a maximum-entropy estimate needs a vector of all cells, at most "
            f"{NONNEGATIVE_CELLS:,}, and {estimate.domain} has {cells:,}; least squares remains"
        )
    Workload.require(workload, estimate.domain)
    zeros = None if zeros is None else check_zeros(zeros, cells)
    prior = None if prior is None else check_prior(prior, cells)
    measured = MeasuredCells.of(estimate)
    probes = measured.probes()
    model = PriorModel.of(measured, probes, zeros, prior, total)
    if model.excludes_all:
        empty = np.zeros(cells)
        return MaximumEntropy(estimate.domain, empty, 0, 0.0, 0.0, math.nan, estimate.simulation)
    other = model.with_classes(zeros) if classes else None
    by_classes = other is not None
    model = other or model
    if steps is None:
        risk = measured.risk(workload, probes)
        chosen = _least_risk(model, risk, progress)
        other = model.with_classes(zeros) if classes is None else None
        if other is not None:
            del model  # a vector of cells less while steps are taken
            rival = _least_risk(other, risk, progress)
            by_classes = rival.risk < chosen.risk
            chosen = rival if by_classes else chosen
            model = other if by_classes else PriorModel.of(measured, probes, zeros, prior, total)
    else:
        chosen = _after(model.problem, steps)
    return MaximumEntropy(
        estimate.domain,
        model.spread(model.problem.point(chosen.theta).x),
        chosen.steps,
        chosen.gap,
        chosen.freedom,
        chosen.risk,
        estimate.simulation,
        classes=by_classes,
    )


@dataclass(frozen=True, eq=False, repr=False)
class MaximumEntropy:
    """An estimate of every cell with none below zero, biased towards a prior."""

    domain: Domain
    vector: Array
    steps: int
    """How many entropy steps were taken; 0 is the prior."""
    gap: float
    """How far the last step may be from its minimum, in standard deviations of the noise."""
    freedom: float
    """Degrees of freedom: the sum of the derivatives of the fitted measured numbers in them."""
    risk: float
    """The estimated mean squared error of an asked number of weight 1; noisy, even below zero."""
    simulation: bool = False
    classes: bool = False
    """Did the steps start from latent classes?"""
    biased: ClassVar[bool] = True

    def answer(self, workload: Workload) -> Answers:
        """The answers W x of a workload; their standard errors are not known."""
        return answers_of_cells(self, self.vector, workload)

    def __repr__(self) -> str:
        mark = "Simulated maximum-entropy" if self.simulation else "Maximum-entropy"
        return f"{mark} estimate({self.vector.size:,} cells over {self.domain})"


@dataclass(frozen=True, eq=False)
class _Stop:
    """Where the steps may end."""

    theta: Array
    steps: int
    gap: float
    freedom: float
    risk: float


def _after(problem: EntropyProblem, steps: int) -> _Stop:
    """A number of steps that was chosen before."""
    point, gap, strength, near = problem.start(), 0.0, problem.first_strength(), None
    for _ in range(steps):
        point, gap = problem.step(point, strength, near)
        near = problem.factor(point, strength)
        strength *= STRENGTH_RATIO
    return _Stop(point.theta, steps, gap, math.nan, math.nan)


def _least_risk(model: PriorModel, risk: AskedRisk, progress: Report | None) -> _Stop:
    """The stop of least risk on the way from a prior."""
    problem, tangents = model.problem, model.tangents
    start = FewTangents.of(problem, tangents, risk) or Tangents(risk, tangents)
    return _path(problem, risk, start, progress)


def _path(
    problem: EntropyProblem,
    asked_risk: AskedRisk,
    tangents: Tangents | FewTangents,
    progress: Report | None,
) -> _Stop:
    """Steps of falling strength until the risk stops falling; the stop of least risk."""
    point, gap, strength = problem.start(), 0.0, problem.first_strength()
    best: tuple[float, Array, _Stop] | None = None
    idle = 0
    for steps in range(MOST_ENTROPY_STEPS + 1):
        if steps:
            point, gap = problem.step(point, strength, tangents.near)
            if gap > GAP_TOLERANCE:
                break  # cells run to zero faster than floats can follow
            tangents = tangents.step(problem, point, strength)
            strength *= STRENGTH_RATIO
        answers = asked_risk.answers(point.x)
        passed, freedom = tangents.passed(problem, point)
        risk = asked_risk.risk(answers, passed)
        if progress is not None:
            progress(steps, risk / asked_risk.numbers)
        gain = math.inf if best is None else best[0] - risk - asked_risk.margin(answers, best[1])
        small = LEAST_GAIN * abs(risk) if risk < asked_risk.noise else 0.0
        worse = best is None or best[0] > asked_risk.noise  # than least squares: no place to stop
        idle = 0 if gain > small or worse else idle + 1
        if gain > 0:
            stop = _Stop(point.theta, steps, gap, freedom, risk / asked_risk.numbers)
            best = risk, answers, stop
        del answers  # unless they are the best, a vector less while the next step is taken
        if idle >= IDLE_STEPS:
            break
    if best is None:
        raise UnsupportedError("no step of the maximum-entropy estimate could be taken")
    return best[2]
