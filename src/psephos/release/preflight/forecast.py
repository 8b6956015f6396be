"""The error of every number before anything is spent; no data are touched."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial

import numpy as np

from psephos.errors import PsephosError, ReleaseError, TooLargeError, UnsupportedError
from psephos.infer.consistency import check_programme
from psephos.infer.intervals import Widths
from psephos.infer.least_squares import block_answers
from psephos.kernel.budget import Budget, epsilon_delta
from psephos.kernel.measurement import noise_for
from psephos.kernel.query import Query
from psephos.kernel.sensitivity import sensitivity
from psephos.release.methods.kind import ForecastRow
from psephos.release.preflight.room import StepCost, check_planning
from psephos.release.preflight.selection import strategy_for
from psephos.release.preflight.step_costs import step_costs
from psephos.release.preflight.store import Progress
from psephos.release.preflight.targets import (
    Bottleneck,
    PricedStrategy,
    Reached,
    cheapest_strategy,
    check_budget,
    check_draw_count,
    reached_at,
    rounded_up,
    widths_at,
)
from psephos.release.spec.entries import TABLE_FORMATS, TargetEntry, View
from psephos.release.spec.job import Job
from psephos.release.spec.tables import Table
from psephos.release.views.published_groups import PublishedGroups, possible_views
from psephos.release.views.statistics import statistic_count
from psephos.report.html import HtmlTable, notebook_html
from psephos.strategy.strategy import Strategy
from psephos.values import Array
from psephos.workload.workload import Workload

SMOOTH = 1000
"""Noise so many times as wide as at the file's budget has no steps to speak of."""
OTHER_DELTA = "1e-6"
"""The delta at which plans show what Gaussian noise would err by."""
WIDEST = 1e15
"""Noise of up to this standard deviation fits into 64 bits, and into floats without loss."""


@dataclass(frozen=True)
class TableError:
    """What a table will be worth: standard errors and half-widths of noise intervals, in rows.

    `bottleneck` names the number whose interval is widest, by its labels, and `bottleneck_ties` how
    many are as wide. Where a budget follows from targets, it is the number for which the table
    needs as much as it does: with less, it misses the target.
    """

    name: str
    title: str
    queries: int
    rmse: float
    worst: float
    half_width: float
    simultaneous: float
    share: float
    target: TargetEntry | None = None
    reached: float | None = None
    needs: Budget | None = None
    bottleneck: str = ""
    bottleneck_ties: int = 1


@dataclass(frozen=True)
class RivalError:
    """Another way to measure: its root mean squared error at the same budget, in all and by table.

    The error in all is weighted as the tables are.
    """

    name: str
    rmse: float
    tables: tuple[float, ...] = ()


@dataclass(frozen=True, eq=False, repr=False)
class Forecast:
    """A strategy, what it costs, and the error of every table that follows."""

    job: Job
    strategy: Strategy
    budget: Budget
    tables: tuple[TableError, ...]
    rivals: tuple[RivalError, ...]
    widths: Widths

    @cached_property
    def groups(self) -> PublishedGroups | None:
        """Groups of published tables, where no vector of all cells fits."""
        past = block_answers(self.job.known)
        blocks = [block.matrix for block in past]
        blocks += [block.matrix for block in self.strategy.query.blocks]
        return PublishedGroups.of(self.job, blocks)

    @property
    def views(self) -> tuple[View, ...]:
        """The views that the bundle will have."""
        return possible_views(self.job, self.groups)

    @property
    def rmse(self) -> float:
        """The root mean squared error of all numbers, weighted as the tables are."""
        return _weighted_rmse(self.job, self.widths)

    @property
    def rmse_spread(self) -> float:
        """The standard error of `rmse`, as a share of it: 0 where a closed form is known."""
        if self.strategy.error_is_exact:
            return 0.0
        workload = self.job.workload
        return self.strategy.error_spread(workload) / self.strategy.expected_error(workload) / 2

    @cached_property
    def above_limit(self) -> float | None:
        """How far `rmse` is above the least of any Gaussian mechanism, at most, as a share of it.

        None for Laplace noise, where no such limit is known; with past measurements, or for errors
        beside sizes, which it leaves out of account; and for tables that are too large for it.
        Declared zeros are left out of account too.
        """
        least = self._least_gaussian(self.budget) if self.budget.currency == "rho" else None
        return None if least is None else max(0.0, self.rmse / least - 1)

    @cached_property
    def gaussian_rmse(self) -> float | None:
        """About what Gaussian noise would err by at the same epsilon and a delta of 10⁻⁶."""
        if self.budget.currency == "rho" or not self.budget.amount:
            return None
        return self._least_gaussian(epsilon_delta(self.budget.amount, OTHER_DELTA))

    def _least_gaussian(self, budget: Budget) -> float | None:
        """The least weighted error of any Gaussian mechanism, if it is known."""
        if self.job.past or self.job.file.selection.error == "relative" or not budget.amount:
            return None
        from psephos.strategy.limits import gaussian_limit

        workload, reach = self.job.workload, self.job.unit.distance
        try:
            limit = gaussian_limit(workload)
        except TooLargeError:
            return None
        noise = reach**2 / (2 * float(budget.amount))
        return math.sqrt(limit * noise / float(_weights(self.job).sum()))

    @property
    def expensive(self) -> TableError:
        """The table that decides the budget, or else the one with the largest share of error."""
        needing = [table for table in self.tables if table.needs is not None]
        if needing:
            return max(needing, key=lambda table: table.needs.amount if table.needs else 0)
        return max(self.tables, key=lambda table: table.share)

    @property
    def bottleneck(self) -> str:
        """The number that decides the budget, or else the widest of the expensive table."""
        return f"{self.expensive.name}: {self.expensive.bottleneck}"

    @cached_property
    def steps(self) -> tuple[StepCost, ...]:
        """The steps of the release after counting, and what each of them will take."""
        return step_costs(self.job, self.strategy, self.budget, self.widths, self.groups)

    @property
    def rows(self) -> tuple[ForecastRow, ...]:
        """The error of every table."""
        return tuple(ForecastRow(t.name, "all", 1, t.queries, t.rmse) for t in self.tables)

    @property
    def disk_bytes(self) -> int:
        """About what the bundle takes."""
        answers, numbers = self.strategy.query.shape[0], self.job.workload.shape[0]
        other_files = set(self.job.file.output.formats) - set(TABLE_FORMATS)
        return 32 * answers + (400 + 60 * len(other_files)) * numbers + 2**20

    def shortage(self, remaining: Budget) -> str:
        """What to do where it costs more than is left: drop a table, or accept wider intervals."""
        return _shortage(self, remaining)

    def blocks(self) -> list[tuple[str, int, float]]:
        """What is measured: a description, the number of answers, its share of the budget."""
        order = self.strategy.noise.norm
        whole = sensitivity(self.strategy.query, order)
        blocks = []
        for block in self.strategy.query.blocks:
            alone = sensitivity(Query((replace(block, weight=Fraction(1)),)), order)
            share = float(min(Fraction(1), alone * block.weight / whole))
            blocks.append((repr(block.matrix), block.matrix.shape[0], share))
        return blocks

    def __repr__(self) -> str:
        count = len(self.tables)
        plural = "s" if count != 1 else ""
        return (
            f"Forecast({self.job.file.name!r}: {count} table{plural} at {self.budget}, "
            f"{self.strategy.name}, error {self.rmse:,.4g})"
        )

    def _repr_html_(self) -> str:
        heads = ["table", "numbers", "standard error", "largest", "± each", "± all at once"]
        rows = [
            [t.title, f"{t.queries:,}"]
            + [f"{x:,.4g}" for x in (t.rmse, t.worst, t.half_width, t.simultaneous)]
            for t in self.tables
        ]
        spread = f"± at {float(self.job.file.output.confidence) * 100:g} %"
        caption = f"{self.strategy!r} at {self.budget}; {spread}"
        ways = [(f"{self.strategy.name} (chosen)", self.rmse)]
        ways += [(rival.name, rival.rmse) for rival in self.rivals]
        errors = [[name, f"{error:,.4g}"] for name, error in ways]
        return notebook_html(
            HtmlTable.of(caption, heads, rows),
            HtmlTable.of("error at the same budget", ["way", "RMSE"], errors),
        )


def forecast_measured(
    path: str | os.PathLike[str] | Job,
    *,
    budget: Budget | None = None,
    draws: int = 9999,
    progress: Progress | None = None,
    thorough: bool = False,
    interruptible: bool = False,
) -> Forecast:
    """The error of every table if the best strategy is measured, and of rivals; no data.

    Args:
        path: a release file, its folder, or a job
        budget: another budget than the file's own; without either, the least that meets targets
        draws: of simulated noise, for the widths of intervals
        progress: told the operator and its gain over Identity while the search runs
        thorough: search for minutes instead of seconds; what is found so is what will be measured
        interruptible: end the search at Ctrl-C with the best so far
    """
    job = path if isinstance(path, Job) else Job.read(path)
    check_draw_count(draws)
    if budget is not None:
        _check_currency(job, budget)
    search = partial(
        strategy_for, progress=progress, thorough=thorough, interruptible=interruptible
    )
    priced = _priced_strategy(job, draws, search)
    return _forecast_of(job, priced, budget or priced.budget, draws)


def forecast_paid(job: Job, strategy: Strategy, spend: Budget) -> Forecast:
    """The forecast of a request that was charged before: measured in that way, at that spend."""
    return _forecast_of(job, PricedStrategy(strategy, spend, {}, {}), spend, 9999)


def compare(job: Job, budgets: Sequence[Budget], draws: int = 9999) -> list[Forecast]:
    """The same tables at several budgets, measured in the same way."""
    for budget in budgets:
        _check_currency(job, budget)
    priced = _priced_strategy(job, draws, strategy_for)
    return [_forecast_of(job, priced, budget, draws) for budget in budgets]


def _priced_strategy(
    job: Job, draws: int, search: Callable[[Job, Workload], Strategy]
) -> PricedStrategy:
    """What will be measured, and at what budget: the file's own, or the least for its targets."""
    job.check_past()
    check_planning(job)
    if job.budget is not None:
        return PricedStrategy(search(job, job.workload), job.budget, {}, {})
    least = cheapest_strategy(job, draws, search)
    if not least.budget.amount:
        raise ReleaseError(
            "past measurements meet every target already, so there is nothing to buy; "
            "`psephos ask` answers from them"
        )
    return least


def _forecast_of(job: Job, priced: PricedStrategy, spend: Budget, draws: int) -> Forecast:
    strategy = priced.strategy
    check_size(job, strategy, spend)
    widths = widths_at(job, strategy, spend, float(job.file.output.confidence), draws)
    reached = reached_at(job, strategy, spend, draws, widths)
    shares = _shares(job, widths.stderr)
    tables = tuple(
        _table_error(job, table, widths, share, reached.get(table.name), priced)
        for table, share in zip(job.tables, shares, strict=True)
    )
    rivals = _rivals(job, strategy, spend, _weighted_rmse(job, widths))
    return Forecast(job, strategy, spend, tables, rivals, widths)


def _check_currency(job: Job, budget: Budget) -> None:
    check_budget(budget)
    currency = job.noise.currency
    if budget.currency != currency:
        raise ReleaseError(
            f"the release is planned in {currency}, got {budget}; give --{currency}, in Python "
            f"ps.{currency}(...)"
        )


def check_size(job: Job, strategy: Strategy, spend: Budget) -> None:
    """Refuse what cannot be estimated from, and noise that numbers of 64 bits do not hold.

    Both before anything is charged.
    """
    try:
        if job.file.output.consistency != "l2":
            past = block_answers(job.known)
            measured = [block.matrix for block in past]
            measured += [block.matrix for block in strategy.query.blocks]
            check_programme(measured, job.workload.domain.shape)
        strategy.check_reconstructible()
    except (TooLargeError, UnsupportedError) as error:
        raise ReleaseError(f"{strategy} could be paid for in vain: {error}") from None
    noises = noise_for(strategy.query, spend, job.unit, 1)
    widest = math.sqrt(max(noise.exact_variance for noise in noises))
    if widest > WIDEST:
        raise ReleaseError(
            f"at {spend} the noise has a standard deviation of {widest:.2g}, more than whole "
            f"numbers of 64 bits hold; spend at least {float(spend.amount) * widest / WIDEST:.1g}"
        )


def _table_error(
    job: Job,
    table: Table,
    widths: Widths,
    share: float,
    reached: Reached | None,
    priced: PricedStrategy,
) -> TableError:
    rows = table.error_rows(job.workload)
    errors = widths.stderr[rows]
    widest = Bottleneck.of(widths.per_query, rows)
    bottleneck = priced.bottlenecks.get(table.name, widest)
    return TableError(
        name=table.name,
        title=table.title,
        queries=statistic_count(table, job.questions.domain) if table.statistics else errors.size,
        rmse=float(np.sqrt((errors**2).mean())),
        worst=float(errors.max()),
        half_width=float(widths.per_query[rows].max()),
        simultaneous=float(widths.per_table[job.tables.index(table)]),
        share=share,
        target=table.target,
        reached=None if reached is None else reached.width,
        needs=priced.needs.get(table.name),
        bottleneck=_number_words(job, bottleneck.query),
        bottleneck_ties=bottleneck.ties,
    )


def _number_words(job: Job, query: int) -> str:
    """The labels of a number, without those of totals: `region = North, age = 0–4`, or `total`."""
    domain = job.questions.domain
    words = []
    for name, label in job.questions.label(query)[1].items():
        if label != domain[name].total_label:
            words.append(label if label.startswith(name) else f"{name} = {label}")
    return ", ".join(words) or "total"


def _shares(job: Job, errors: Array) -> list[float]:
    """Each table's share of the weighted squared error."""
    squares = _weights(job) * errors**2
    return [float(squares[table.rows(job.workload)].sum() / squares.sum()) for table in job.tables]


def _weights(job: Job) -> Array:
    """What the squared error of each number counts."""
    return np.repeat([p.weight**2 for p in job.workload.products], job.workload.query_counts)


def _weighted_rmse(job: Job, widths: Widths) -> float:
    weights = _weights(job)
    return math.sqrt(float((weights * widths.stderr**2).sum() / weights.sum()))


def _rivals(
    job: Job, strategy: Strategy, budget: Budget, strategy_rmse: float
) -> tuple[RivalError, ...]:
    """What else could be measured, the plain mechanisms with their error by table."""
    rivals: dict[str, RivalError] = {}
    plain: list[tuple[str, Callable[[Job, Budget], Array]]] = [
        ("every cell (Identity)", _cell_variances),
        (f"the tables themselves ({job.noise.capitalize()} mechanism)", _direct_variances),
    ]
    counts = np.array(job.workload.query_counts)
    weights = np.array([product.weight**2 for product in job.workload.products])
    for name, variances in plain:
        try:
            sums = variances(job, budget)
        except PsephosError:
            continue  # no such strategy for this workload, or none of this size
        by_table = [
            math.sqrt(sums[list(table.products)].sum() / counts[list(table.products)].sum())
            for table in job.tables
        ]
        rmse = math.sqrt(float((weights * sums).sum() / (weights * counts).sum()))
        rivals[name] = RivalError(name, rmse, tuple(by_table))
    # The search scored its rivals in its own weights, those of the targets if there are any.
    least = min((other.error for other in strategy.rivals), default=math.inf)
    for other in strategy.rivals:
        if job.past or job.file.selection.error == "relative":
            break  # it scored them as if nothing were known yet, or beside the numbers' sizes
        if other.name not in ("identity", "workload") and least < other.error < math.inf:
            about = strategy_rmse * math.sqrt(other.error / least)  # as for continuous noise
            rivals[other.name] = RivalError(other.name, about)
    return tuple(sorted(rivals.values(), key=lambda rival: rival.rmse))


def cell_rmse(job: Job) -> float | None:
    """The error if every cell were measured, at the file's budget; None where that is not known.

    A search tells its gain over it, so that the present error can be shown while it runs. That is
    for smooth noise, as whole numbers give where there is much of it.
    """
    if job.budget is None or job.past:
        return None
    counts = np.array(job.workload.query_counts)
    weights = np.array([product.weight**2 for product in job.workload.products])
    small = job.budget_of(job.budget.amount / SMOOTH**job.noise.norm)
    try:
        sums = _cell_variances(job, small)
    except PsephosError:
        return None
    return math.sqrt(float((weights * sums).sum() / (weights * counts).sum())) / SMOOTH


def _cell_variances(job: Job, budget: Budget) -> Array:
    """The variance of each product, summed over its queries, if every cell is measured."""
    from psephos.strategy.fixed.baselines import identity

    form = identity(job.workload, job.noise).form(budget, job.unit)
    return form.traces([job.workload.factors(i) for i in range(len(job.workload.products))])


def _direct_variances(job: Job, budget: Budget) -> Array:
    """The same if noise is added to the tables as they are, with nothing inferred from others."""
    noises = noise_for(job.workload.query, budget, job.unit, 1)
    pairs = zip(noises, job.workload.query_counts, strict=True)
    return np.array([noise.exact_variance * count for noise, count in pairs])


def _shortage(forecast: Forecast, remaining: Budget) -> str:
    """What to do when a plan costs more than is left: drop a table, or accept wider intervals."""
    if remaining.amount == 0:
        return f"the release needs {forecast.budget}, and nothing is left of the ledger's budget"
    job, draws = forecast.job, forecast.widths.draws
    text = f"the release needs {forecast.budget}, and {remaining} is left: "
    reached = reached_at(job, forecast.strategy, remaining, draws)
    needing = [t for t in forecast.tables if t.needs is not None and not reached[t.name].met]
    if not needing:
        worst = max(forecast.tables, key=lambda t: t.half_width)
        rows = job.tables[forecast.tables.index(worst)].rows(job.workload)
        widths = widths_at(job, forecast.strategy, remaining, forecast.widths.confidence, draws)
        return text + (
            f"lower [budget] to {remaining}, and {worst.name!r} gets "
            f"± {widths.per_query[rows].max():,.3g} instead of ± {worst.half_width:,.3g}"
        )
    remedies = []
    rest = _without(job, forecast.expensive.name)
    if rest is not None:
        least = cheapest_strategy(rest, draws, strategy_for).budget
        if least <= remaining:
            remedies.append(f"drop {forecast.expensive.name!r} (the rest needs {least})")
    wider = [(t.name, _outward(reached[t.name].width), reached[t.name].target) for t in needing]
    widened = ", ".join(f"± {w:,.3g} instead of ± {t:,.3g} for {name!r}" for name, w, t in wider)
    remedies.append(f"accept {widened}")
    return text + ", or ".join(remedies)


def _outward(width: float) -> float:
    """A half-width with some room: other targets may choose another strategy."""
    return float(rounded_up(Fraction(width * 1.02)))


def budget_shortage(forecast: Forecast, remaining: Budget | None) -> str | None:
    """That a plan costs more than is left, or than the ledger will hold once it is made."""
    limit = forecast.job.file.ledger.budget() if remaining is None else remaining
    if forecast.budget.booked(limit.currency) <= limit:
        return None
    there = "what the ledger will hold" if remaining is None else "what is left in the ledger"
    return f"{forecast.budget} is more than {there}, {limit}"


def _without(job: Job, name: str) -> Job | None:
    """The same release without one table, if another one with a target is left."""
    tables = tuple(table for table in job.file.tables if table.name != name)
    if not any(table.target for table in tables):
        return None
    return Job.of(job.file.model_copy(update={"tables": tables}), job.folder)
