"""Accuracy first: the least budget at which every table is as precise as it must be.

Noise is of whole numbers, so half-widths go down in steps while a budget goes up, and no formula
tells the least budget. It is searched for among the decimals of three digits. The widths at each
trial are those that a release would have; where noise is wide they tell the next trial nearly
exactly, since precision grows like ε² or like ρ, on top of what past measurements tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import numpy as np

from psephos.errors import ReleaseError, UnsupportedError, checked_whole
from psephos.infer.intervals import Widths, half_widths
from psephos.infer.least_squares import block_answers
from psephos.inverse.choice import form_of, precision
from psephos.kernel.budget import Budget
from psephos.kernel.measurement import noise_for
from psephos.kernel.query import Block, Query
from psephos.kernel.sensitivity import sensitivity
from psephos.release.preflight.selection import fixed_plan
from psephos.release.spec.job import Job
from psephos.strategy.strategy import Strategy
from psephos.values import Array
from psephos.workload.product import rounded_weight
from psephos.workload.workload import Workload

FEWEST_DRAWS = 19
"""The largest of 19 draws covers 95 % of the noise."""
FIRST, DECADE = 100, 900
"""Budgets that follow from targets have three digits: 100 to 999, times a power of ten."""
ROUNDS = 3
"""The most searches for a strategy, each with the weights that the one before suggests."""
REFERENCE = Fraction(1, 1000)
"""The amount at which widths are computed first."""
LEAST_AMOUNT = Fraction(1, 10**9)
LARGEST_AMOUNT = Fraction(10**6)
"""Between these budgets are searched for."""
BALANCINGS = 2
"""How often marginals are balanced, each time with the widths of the strategy before."""
UNAIMED = 10.0
"""Tables without a target may be so many times as wide as the widest with one."""
UNAIMED_SHARE = Fraction(1, 6)
"""Of the budget, what goes to measurements made for the tables without a target."""
TIE = 1 - 1e-6
"""Half-widths of at least this share of the largest are as wide."""
Search = Callable[[Job, Workload], Strategy]


def check_draw_count(draws: Any) -> None:
    """Refuse anything but enough draws of simulated noise."""
    checked_whole(draws, "draws", FEWEST_DRAWS)


def check_budget(budget: Any) -> None:
    """Refuse anything but an exact amount."""
    if not isinstance(budget, Budget):
        raise ReleaseError(
            f'budget is an exact amount such as ps.epsilon("0.5") or ps.rho("0.1"), got {budget!r}'
        )


# ---- widths at a budget ------------------------------------------------------------------------


class Bottleneck(NamedTuple):
    """The number of a table with the widest interval, by its place among all queries."""

    query: int
    ties: int
    """How many numbers of the table are as wide, itself included."""

    @classmethod
    def of(cls, widths: Array, rows: slice) -> Bottleneck:
        """The first of the widest among some queries."""
        some = widths[rows]
        wide = some >= some.max() * TIE
        return cls(rows.start + int(np.argmax(wide)), int(wide.sum()))


class Reached(NamedTuple):
    """The half-width of a table at a budget, the one it must have, and its widest number."""

    width: float
    target: float
    bottleneck: Bottleneck

    @property
    def met(self) -> bool:
        """Is it as small as it must be? Widths themselves are rounded up a little."""
        return self.width <= self.target * (1 + 1e-6)


def widths_at(
    job: Job,
    strategy: Strategy,
    budget: Budget | None,
    confidence: float,
    draws: int,
    tables: Sequence[Sequence[int]] | None = None,
) -> Widths:
    """Half-widths of the noise intervals of all numbers, and of tables at once.

    Past measurements count too; without a budget they alone do. Tables are given by the numbers of
    their products, and are those of the job when left out.
    """
    known = block_answers(job.known) if job.past else []
    blocks, noises = [each.matrix for each in known], [each.noise for each in known]
    if budget is not None:
        blocks += [block.matrix for block in strategy.query.blocks]
        noises += noise_for(strategy.query, budget, job.unit, 1)
    if known or budget is None:
        precisions = [precision(noise.exact_variance) for noise in noises]
        form = form_of(blocks, precisions, job.workload.domain.shape)
        job.workload.check_covered(form)
    else:
        form = strategy.form(budget, job.unit)
    return half_widths(
        form,
        noises,
        [block.shape[0] for block in blocks],
        job.workload,
        tables=[table.error_products for table in job.tables] if tables is None else tables,
        confidence=confidence,
        draws=draws,
    )


def reached_at(
    job: Job, strategy: Strategy, budget: Budget | None, draws: int, ready: Widths | None = None
) -> dict[str, Reached]:
    """What each table that has a target reaches at a budget.

    Widths of all tables there that are ready, at whatever confidence, are not worked out again.
    """
    reached: dict[str, Reached] = {}
    for confidence in sorted(set(target_confidences(job).values())):
        if ready is not None and ready.confidence == confidence:
            names = [table.name for table in job.tables]
            reached |= _reached_in(job, ready, dict(zip(names, ready.per_table, strict=True)))
        else:
            reached |= reached_with(job, strategy, budget, draws, confidence)
    return reached


def target_confidences(job: Job) -> dict[str, float]:
    """The confidence of each target, by the name of its table."""
    return {t.name: float(t.target.confidence) for t in job.tables if t.target is not None}


def reached_with(
    job: Job, strategy: Strategy, budget: Budget | None, draws: int, confidence: float
) -> dict[str, Reached]:
    """What the tables reach whose targets have that confidence."""
    confidences = target_confidences(job)
    # Tables at once are simulated, so only those that must be are asked for.
    together = {
        table.name: table.products
        for table in job.tables
        if table.target and table.target.simultaneous and confidences[table.name] == confidence
    }
    widths = widths_at(job, strategy, budget, confidence, draws, [*together.values()])
    return _reached_in(job, widths, dict(zip(together, widths.per_table, strict=True)))


def _reached_in(job: Job, widths: Widths, at_once: Mapping[str, float]) -> dict[str, Reached]:
    """What tables reach by these widths, and those at once, if their targets are so confident."""
    reached = {}
    for table in job.tables:
        target = table.target
        if target is None or float(target.confidence) != widths.confidence:
            continue
        rows = table.rows(job.workload)
        width = at_once[table.name] if target.simultaneous else widths.per_query[rows].max()
        bottleneck = Bottleneck.of(widths.per_query, rows)
        reached[table.name] = Reached(float(width), target.half_width, bottleneck)
    return reached


# ---- budgets of three digits -------------------------------------------------------------------


def step_of(amount: Fraction) -> int:
    """The number of the least decimal of three digits that is not less; each step is the next.

    >>> step_of(Fraction(999, 1000)), step_of(Fraction(1)), step_of(Fraction("1.0001"))
    (-1, 0, 1)
    """
    power = math.floor(math.log10(amount))
    first = FIRST * _unit(power)
    if first > amount:  # floats may take 0.999… for 1, and 1 for 0.999…
        power -= 1
    elif 10 * first <= amount:
        power += 1
    return DECADE * power + math.ceil(amount / _unit(power)) - FIRST


def amount_of(step: int) -> Fraction:
    """The decimal of three digits with that number.

    >>> [float(amount_of(step)) for step in (-1, 0, 1, 899, 900)]
    [0.999, 1.0, 1.01, 9.99, 10.0]
    """
    power, rest = divmod(step, DECADE)
    return (FIRST + rest) * _unit(power)


def _unit(power: int) -> Fraction:
    """One in the third digit, of amounts from that power of ten on."""
    return Fraction(f"1e{power}") / FIRST


def rounded_up(amount: Fraction) -> Fraction:
    """The least decimal of three digits that is not less.

    >>> rounded_up(Fraction(1, 3))
    Fraction(167, 500)
    """
    return amount_of(step_of(amount))


FLOOR, CEILING = step_of(LEAST_AMOUNT), step_of(LARGEST_AMOUNT)


# ---- the search --------------------------------------------------------------------------------


@dataclass(frozen=True)
class PricedStrategy:
    """A strategy, the least budget that meets all targets, and what each table's target needs."""

    strategy: Strategy
    budget: Budget
    needs: dict[str, Budget]
    bottlenecks: dict[str, Bottleneck]
    """Of each table with a target, the number that misses it at a budget one step smaller."""


def cheapest_strategy(job: Job, draws: int, search: Search) -> PricedStrategy:
    """The strategy that meets all targets at the least budget; at none, if the past meets them.

    Tables far better than they must be lose weight and the search for a strategy is repeated. Where
    all tables are marginals, one is made for the targets besides (`goals.balanced_marginals`). The
    one that is cheapest, as far as wide noise tells, is kept, and its least budget searched for.
    Tables without a target get measurements of their own, at a small share of the budget.
    """
    if not any(table.target for table in job.tables):
        raise ReleaseError("no table has a target")
    known: dict[str, Reached] = {}
    shares = np.ones(len(job.tables))
    ways: list[tuple[float, _Trials]] = []
    rest = _rest(job, search)
    for _ in range(ROUNDS):
        strategy = _joined(search(job, _reweighted(job, shares, rest)), rest)
        known = known or _known(job, strategy, draws)
        if known and all(reached.met for reached in known.values()):
            return _nothing(job, strategy, known)
        trials = _Trials.of(job, strategy, draws, known)
        estimates = trials.estimates()
        spend = max(estimates.values())
        ways.append((spend, trials))
        if len(ways) == 1:
            ways += [(max(b.estimates().values()), b) for b in _balanced(trials, rest, draws)]
        ratios = [estimates.get(table.name, 0.0) / spend for table in job.tables]
        if min(ratio for ratio in ratios if ratio > 0) > 0.97:
            break
        shares = shares * np.maximum(ratios, 1e-3)
    spend, trials = min(ways, key=lambda way: way[0])
    return trials.price(spend)


def _rest(job: Job, search: Search) -> Strategy | None:
    """The strategy for the tables without a target, if there are any and it is free to differ.

    One search for all tables would have to know how much the others may cost: whatever weight
    they had, it would be too much in one file and too little in the next.
    """
    rest = [i for table in job.tables if table.target is None for i in table.products]
    if not rest or job.file.selection.strategy != "hdmm" or fixed_plan(job) is not None:
        return None
    return search(job, _some(job.workload, rest))


def _some(workload: Workload, products: Sequence[int]) -> Workload:
    return Workload(workload.domain, [workload.products[i] for i in products])


def _aimed(job: Job) -> list[int]:
    """The products of the tables that have a target."""
    return [i for table in job.tables if table.target is not None for i in table.products]


def _joined(strategy: Strategy, rest: Strategy | None) -> Strategy:
    """Both at once, the rest at its share of the budget."""
    if rest is None:
        return strategy
    blocks: list[Block] = []
    for part, share in ((strategy, 1 - UNAIMED_SHARE), (rest, UNAIMED_SHARE)):
        scale = share / sensitivity(part.query, part.noise.norm)
        weights = [rounded_weight(float(b.weight * scale)) for b in part.query.blocks]
        blocks += map(Block, (b.matrix for b in part.query.blocks), weights)
    name = f"{strategy.name}, and {rest.name} for the tables without a target"
    return Strategy(strategy.domain, strategy.noise, Query(tuple(blocks)), name)


def _balanced(trials: _Trials, rest: Strategy | None, draws: int) -> Iterator[_Trials]:
    """Strategies of marginals made for the targets, where the file names no other selection.

    A half-width is so many standard errors, more where a table must be covered at once; how many
    is taken from the strategy before.
    """
    from psephos.strategy.goals import balanced_marginals

    job = trials.job
    if job.file.selection.strategy != "hdmm":
        return
    for _ in range(BALANCINGS):
        worst = trials.strategy.worst_errors(job.workload)
        goals = np.full(len(worst), np.inf)
        for table in job.tables:
            if table.target is not None:
                products, confidence = list(table.products), trials.confidences[table.name]
                width = trials.fresh(step_of(REFERENCE), confidence)[table.name].width
                goals[products] = table.target.half_width * np.sqrt(worst[products].max()) / width
        aimed, workload = np.isfinite(goals), job.workload
        goals[~aimed] = UNAIMED * goals[aimed].max()
        if rest is not None:
            products = _aimed(job)
            workload, goals = _some(workload, products), goals[products]
        seed = job.file.selection.seed
        strategy = balanced_marginals(workload, job.noise, goals, seed=seed)
        if strategy is None:
            return
        trials = _Trials.of(job, _joined(strategy, rest), draws, trials.known)
        yield trials


def _known(job: Job, strategy: Strategy, draws: int) -> dict[str, Reached]:
    """What past measurements alone reach; nothing, if they do not tell all that is asked."""
    if not job.past:
        return {}
    try:
        return reached_at(job, strategy, None, draws)
    except UnsupportedError:
        return {}


def _nothing(job: Job, strategy: Strategy, known: dict[str, Reached]) -> PricedStrategy:
    """A strategy that need not be paid for, as everything is known."""
    nothing = job.budget_of(Fraction(0))
    bottlenecks = {name: reached.bottleneck for name, reached in known.items()}
    return PricedStrategy(strategy, nothing, dict.fromkeys(known, nothing), bottlenecks)


def _reweighted(job: Job, shares: Array, rest: Strategy | None) -> Workload:
    """Tables weighted by how precise they must be; those without a target count little.

    They are left out if the rest is measured by itself. Their weights beside each other stay: sums
    have small ones, as their numbers are large.
    """
    weights = np.array([float(product.weight) for product in job.workload.products])
    widest = max(table.target.half_width for table in job.tables if table.target is not None)
    for table, share in zip(job.tables, shares, strict=True):
        places = list(table.products)
        if table.target is None:
            weights[places] /= UNAIMED * widest
        else:
            weights[places] = share / table.target.half_width
    weights = weights / weights.max()
    pairs = zip(job.workload.products, weights, strict=True)
    products = [replace(product, weight=float(max(w, 1e-9))) for product, w in pairs]
    whole = Workload(job.workload.domain, products)
    return whole if rest is None else _some(whole, _aimed(job))


@dataclass(frozen=True, eq=False)
class _Trials:
    """What one strategy reaches at the budgets that were tried, each worked out once."""

    job: Job
    strategy: Strategy
    known: dict[str, Reached]
    """What past measurements tell alone."""
    reached: Callable[[int, float], dict[str, Reached]]
    """What tables reach at the budget of a step, if their targets have a confidence."""
    fresh: Callable[[int, float], dict[str, Reached]]
    """The same without the past."""

    @classmethod
    def of(cls, job: Job, strategy: Strategy, draws: int, known: dict[str, Reached]) -> _Trials:
        """No trial is made before it is asked for."""

        def reached(job: Job, step: int, confidence: float) -> dict[str, Reached]:
            budget = job.budget_of(amount_of(step))
            return reached_with(job, strategy, budget, draws, confidence)

        trial = cache(partial(reached, job))
        fresh = cache(partial(reached, replace(job, past=()))) if job.past else trial
        return cls(job, strategy, known, trial, fresh)

    @cached_property
    def confidences(self) -> dict[str, float]:
        """The confidence of each table's target."""
        return target_confidences(self.job)

    def at(self, name: str, step: int) -> Reached:
        """What a table reaches at the budget of a step."""
        return self.reached(step, self.confidences[name])[name]

    def estimates(self) -> dict[str, float]:
        """What each target would cost if noise had no steps, from the widths at one budget."""
        amounts = {}
        for name, confidence in self.confidences.items():
            fresh = self.fresh(step_of(REFERENCE), confidence)[name]
            wanted = max(_precision(fresh.target) - self._known_precision(name), 0.0)
            ratio = wanted / _precision(fresh.width)
            amounts[name] = float(REFERENCE) * ratio ** (1 / self.job.noise.power)
        return amounts

    def price(self, about: float) -> PricedStrategy:
        """The least budget, and what each table needs by itself; it is about so much."""
        first = step_of(min(max(Fraction(about), LEAST_AMOUNT), LARGEST_AMOUNT))
        names = list(self.confidences)
        least = self._least(names, first)
        needs: dict[str, Budget] = {}
        bottlenecks: dict[str, Bottleneck] = {}
        for name in names:
            if name in self.known and self.known[name].met:
                needs[name] = self.job.budget_of(Fraction(0))
                bottlenecks[name] = self.known[name].bottleneck
                continue
            decides = least == FLOOR or not self.at(name, least - 1).met
            step = least if decides else self._least([name], self._near(name, least), least)
            needs[name] = self.job.budget_of(amount_of(step))
            bottlenecks[name] = self.at(name, max(step - 1, FLOOR)).bottleneck
        spend = self.job.budget_of(amount_of(least))
        return PricedStrategy(self.strategy, spend, needs, bottlenecks)

    def _least(self, names: Sequence[str], first: int, high: int | None = None) -> int:
        """A step at which tables meet their targets while they do not one step below.

        Widths that are simulated may go up a little where a budget goes up, so that there may be
        several such steps; the search ends at one of them, or at the floor.

        Args:
            names: of the tables
            first: the step to try first
            high: a step at which they are known to meet them
        """
        low, stride, guessed = FLOOR - 1, 1, False
        step = first if high is None else max(min(first, high - 1), FLOOR)
        while high is None or high - low > 1:
            if all(self.at(name, step).met for name in names):
                high = step
            elif step == CEILING:
                raise ReleaseError(
                    f"no budget up to {self.job.budget_of(LARGEST_AMOUNT)} meets all targets; "
                    "ask for wider intervals"
                )
            else:
                low = step
            near = max(self._near(name, step) for name in names)
            if high is None:
                step, stride = min(max(near, low + stride), CEILING), 2 * stride
            elif low < FLOOR:
                step, stride = max(min(near, high - stride), FLOOR), 2 * stride
            elif guessed:
                step, guessed = (low + high) // 2, False
            else:
                step, guessed = min(max(near, low + 1), high - 1), True
        return high

    def _near(self, name: str, step: int) -> int:
        """Where a table's target would be met if noise had no steps, from its width at a step."""
        reached = self.at(name, step)
        known = self._known_precision(name)
        wanted, gain = _precision(reached.target) - known, _precision(reached.width) - known
        if wanted <= 0:
            return FLOOR
        if gain <= 0:
            return CEILING
        amount = float(amount_of(step)) * (wanted / gain) ** (1 / self.job.noise.power)
        return step_of(min(max(Fraction(amount), LEAST_AMOUNT), LARGEST_AMOUNT))

    def _known_precision(self, name: str) -> float:
        return _precision(self.known[name].width) if name in self.known else 0.0


def _precision(width: float) -> float:
    """One over the square of a half-width; those of independent measurements about add up.

    Nothing is known better than to half a row: whole numbers of noise 0 have half-width 0.
    """
    return 1 / max(width, 0.5) ** 2
