"""The maximum-entropy estimate: positive cells, near the measurements, no farther from a prior.

Least squares is unbiased and pays for it on empty and small cells. Cells that may not be negative,
add up to the total and leave a public prior only as far as the noisy numbers urge them are biased,
and closer to the truth, the more so the smaller the counts are beside the noise. Made by a number
of entropy steps (psephos.infer.bregman) from the prior, the first of them short; the number of
steps is the one with the least estimated risk on the asked queries (psephos.infer.asked_risk), and
so is the prior, of those that are tried (psephos.infer.prior_model).

*Ranges* add up many cells, and what steps towards the measurements leave in each of them. Steps may
go towards the asked answers of least squares instead; their limit is the nearest table to these,
which is never further from the truth (psephos.infer.nonnegative), but they take far longer.

*Cells that no measured block tells apart* have the same exponent, so that x is a multiple of the
prior on them: steps are taken on merged cells, with the sums of the prior, and the result is spread
in proportion to the prior. Nothing is lost by that.

All of it is computed from noisy numbers and public facts. Probes are signs from a fixed seed, and
steps are counted, never timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import UnsupportedError
from psephos.infer.asked_risk import AskedRisk
from psephos.infer.bregman import GAP_TOLERANCE, STRENGTH_RATIO
from psephos.infer.estimate import Answers, answers_of_cells
from psephos.infer.few_numbers import Factored
from psephos.infer.least_squares import LeastSquares
from psephos.infer.measured_cells import MeasuredCells
from psephos.infer.nonnegative import NONNEGATIVE_CELLS, check_zeros
from psephos.infer.prior_model import PriorModel, check_prior
from psephos.infer.product_walk import ProductProblem, ProductWalk, cells_of_logarithms
from psephos.infer.tangents import FewTangents, Tangents
from psephos.values import Array
from psephos.workload.workload import Workload

MOST_ENTROPY_STEPS = 60
IDLE_STEPS = 2
"""How many steps in a row may fail to improve the estimated risk before the rest are left out."""
LEAST_GAIN = 0.002
"""What counts as an improvement once the estimate is better than least squares, as a share."""
ANSWER_RATIO = 0.4
"""The ratio of strengths of steps towards asked answers."""
ENOUGH_RISK = 0.75
"""An estimated risk, as a share of that of least squares, at which steps that take long end."""
ANSWER_CELLS, MOST_ANSWER_CELLS = 250_000_000, 750_000_000
"""Conjugate directions times what each works through, in cells, after which steps towards asked
answers take long: none more is taken where the risk is low enough, or in any case."""
NEAR_TIE = 0.01
"""As a share of the risk: which of two choices this close is taken turns on the last digits of
floats, and machines differ in them."""
Report = Callable[[int, float], None]


class EntropyClaim(NamedTuple):
    """What somebody says was chosen: it is believed in near ties, and nowhere else."""

    steps: int
    classes: bool


def maximum_entropy(
    estimate: LeastSquares,
    workload: Workload,
    *,
    zeros: Array | None = None,
    total: float | None = None,
    prior: Array | None = None,
    steps: int | None = None,
    classes: bool | None = None,
    in_answers: bool = False,
    claim: EntropyClaim | None = None,
    sizes: Sequence[Array] | None = None,
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
        in_answers: whether steps go towards the asked answers of least squares in place of the
            measurements, if these determine them. One product over many cells is always fitted so.
        claim: what another machine chose by the same rule, which settles near ties
        sizes: for each attribute, how many declared values each of its values stands for: what
            nothing measured distinguishes is spread evenly over declared cells
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
    measured = MeasuredCells.of(estimate, sizes)
    probes = measured.probes()
    product = ProductProblem.of(measured, probes, workload)
    product = product and (product.in_answers() or product)
    to_answers = product is not None and product.is_towards_answers
    if product is None and in_answers and measured.form.exact and measured.determined(workload):
        measured, probes = measured.in_answers(workload, probes)
        to_answers = True
    model = PriorModel.of(measured, probes, zeros, prior, total)
    if model.excludes_all:
        empty = np.zeros(cells)
        return MaximumEntropy(estimate.domain, empty, 0, 0.0, 0.0, math.nan, estimate.simulation)
    # Towards asked ranges a prior of classes was no closer, and took as long again.
    several_priors = model.has_classes and not to_answers
    other = model.with_classes(zeros) if classes else None
    by_classes = other is not None
    model = other or model
    if steps is None:
        risk = None if product is not None else measured.risk(workload, probes)
        if product is not None and not several_priors:
            model, probes = model.without_numbers(), []
            measured = model.measured
        walk = _walk(model, product, risk, to_answers)
        if product is not None and not several_priors:
            model = model.without_logarithms()
        claimed = None if claim is None else claim.steps
        by_claim = claim is not None and claim.classes
        chosen = _path(walk, progress, claimed if by_claim == by_classes else None)
        del walk
        other = model.with_classes(zeros) if classes is None and several_priors else None
        if other is not None:
            del model  # a vector of cells less while steps are taken
            rival = _path(_walk(other, product, risk), progress, claimed if by_claim else None)
            lead = chosen.risk - rival.risk
            tied = claim is not None and abs(lead) <= NEAR_TIE * abs(chosen.risk)
            by_classes = by_claim if tied else lead > 0
            chosen = rival if by_classes else chosen
            model = other if by_classes else PriorModel.of(measured, probes, zeros, prior, total)
    else:
        chosen = _after(_walk(model, product, None, to_answers, told=False), steps)
    return MaximumEntropy(
        estimate.domain,
        model.spread(chosen.cells(model)),
        chosen.steps,
        chosen.gap,
        chosen.freedom,
        chosen.risk,
        estimate.simulation,
        classes=by_classes,
        in_answers=to_answers,
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
    in_answers: bool = False
    """Did they go towards the asked answers of least squares, not towards the measurements?"""
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

    place: Array
    """θ, or logarithms of cells."""
    logarithmic: bool
    steps: int
    gap: float
    freedom: float
    risk: float

    def cells(self, model: PriorModel) -> Array:
        """The cells there, in the order of the tree."""
        if self.logarithmic:
            return model.measured.tree.arrange(cells_of_logarithms(self.place, model.total))
        return model.problem.point(self.place).x


class _DualWalk:
    """The way from a prior by θ: where it is, its derivatives, and the best place so far."""

    logarithmic = False

    def __init__(self, model: PriorModel, asked_risk: AskedRisk | None) -> None:
        self.problem = model.problem
        self.point = self.problem.start()
        self.asked_risk = asked_risk
        self.tangents: Tangents | FewTangents | None = None
        if asked_risk is not None:
            few = FewTangents.of(self.problem, model.tangents, asked_risk)
            self.tangents = few or Tangents(asked_risk, model.tangents)
        self.near: Factored | None = None if self.tangents is None else self.tangents.near
        self.answers: Array | None = None
        self.best_answers: Array | None = None
        self.last_risk = math.inf

    @property
    def exhausted(self) -> bool:
        """Is there no further step that pays, whatever the risk does?"""
        return False

    def first_strength(self) -> float:
        return self.problem.first_strength()

    def ratio(self) -> float:
        return STRENGTH_RATIO

    def advance(self, strength: float) -> float:
        self.answers = None  # unless they are the best, a vector less while the step is taken
        self.point, gap = self.problem.step(self.point, strength, self.near)
        if self.tangents is None:
            self.near = self.problem.factor(self.point, strength)
        elif gap <= GAP_TOLERANCE:
            self.tangents = self.tangents.step(self.problem, self.point, strength)
            self.near = self.tangents.near
        return gap

    def risk(self) -> tuple[float, float]:
        if self.asked_risk is None or self.tangents is None:
            return math.nan, math.nan
        self.answers = self.asked_risk.answers(self.point.x)
        passed, freedom = self.tangents.passed(self.problem, self.point)
        self.last_risk = self.asked_risk.risk(self.answers, passed)
        return self.last_risk, freedom

    def margin(self) -> float:
        if self.asked_risk is None or self.answers is None or self.best_answers is None:
            return 0.0
        return self.asked_risk.margin(self.answers, self.best_answers)

    @property
    def noise(self) -> float:
        return math.nan if self.asked_risk is None else self.asked_risk.noise

    @property
    def numbers(self) -> float:
        return math.nan if self.asked_risk is None else self.asked_risk.numbers

    def keep(self) -> Array:
        self.best_answers, self.answers = self.answers, None
        return self.point.theta


class _AnswerWalk(_DualWalk):
    """The same towards the asked answers of least squares, whose last steps take long."""

    def ratio(self) -> float:
        return ANSWER_RATIO

    @property
    def exhausted(self) -> bool:
        """Have so many directions been taken that no further step pays?"""
        taken = self.problem.effort.directions * self.problem.tree.work
        enough = self.last_risk <= ENOUGH_RISK * self.noise
        return taken >= (ANSWER_CELLS if enough else MOST_ANSWER_CELLS)


def _walk(
    model: PriorModel,
    product: ProductProblem | None,
    risk: AskedRisk | None,
    to_answers: bool = False,
    *,
    told: bool = True,
) -> _DualWalk | ProductWalk:
    """The way from a prior; told its risk, or only as far as it is said."""
    if product is not None:
        return ProductWalk(product, model, told=told)
    return _AnswerWalk(model, risk) if to_answers else _DualWalk(model, risk)


def _after(walk: _DualWalk | ProductWalk, steps: int) -> _Stop:
    """A number of steps that was chosen before."""
    gap, strength = 0.0, walk.first_strength()
    for _ in range(steps):
        gap = walk.advance(strength)
        strength *= walk.ratio()
    return _Stop(walk.keep(), walk.logarithmic, steps, gap, math.nan, math.nan)


def _path(walk: _DualWalk | ProductWalk, progress: Report | None, claim: int | None) -> _Stop:
    """Steps of falling strength until the risk stops falling; the stop of least risk.

    A claimed number of steps is preferred where it is nearly tied with the best other one.
    """
    gap, strength = 0.0, walk.first_strength()
    best: tuple[float, _Stop] | None = None
    idle = 0
    for steps in range(MOST_ENTROPY_STEPS + 1):
        if steps:
            gap = walk.advance(strength)
            if gap > GAP_TOLERANCE:
                break  # cells run to zero faster than floats can follow
            strength *= walk.ratio()
        risk, freedom = walk.risk()
        if progress is not None:
            progress(steps, risk / walk.numbers)
        gain = math.inf if best is None else best[0] - risk - walk.margin()
        small = LEAST_GAIN * abs(risk) if risk < walk.noise else 0.0
        worse = best is None or best[0] > walk.noise  # than least squares: no place to stop
        idle = 0 if gain > small or worse else idle + 1
        close = abs(gain) <= NEAR_TIE * abs(risk)
        tied = close and best is not None and claim in (steps, best[1].steps)
        if steps == claim if tied else gain > 0:
            best = None  # the place before is let go
            share = risk / walk.numbers
            best = risk, _Stop(walk.keep(), walk.logarithmic, steps, gap, freedom, share)
        claimed = claim is not None and steps < claim <= steps + IDLE_STEPS
        if (idle >= IDLE_STEPS or walk.exhausted) and not claimed:
            break
    if best is None:
        raise UnsupportedError("no step of the maximum-entropy estimate could be taken")
    return best[1]
