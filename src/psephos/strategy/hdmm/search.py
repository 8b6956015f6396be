"""OPT_HDMM: every operator that fits the workload is tried, and the least exact error wins.

Before any search, cells that no query tells apart are merged (lossless). Every candidate is turned
into the integers that would be measured and scored by their exact error; Identity, the workload
itself, wavelets and trees are among them wherever they are scored in a moment.

First every operator gets one start, the quick ones first; then those that came near the best get
further ones, until they bring no gain or the effort is used up. Effort is predicted from the sizes
of the problem, so that a search ends at the same place on any machine; only one that takes more of
the processor than was predicted is ended by its time. A time limit or an interrupt cuts it short
at any time, and it gives the best so far.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from numbers import Real
from threading import Lock
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.random import SeedSequence, default_rng
from threadpoolctl import threadpool_limits

from psephos.errors import (
    RefusedError,
    TooLargeError,
    UnsupportedError,
    WorkloadError,
    checked_whole,
)
from psephos.matrix.columns import gram_diagonal
from psephos.strategy.deadline import Deadline
from psephos.strategy.factors import NoiseName, checked_selection
from psephos.strategy.fixed import baselines
from psephos.strategy.hdmm import operators
from psephos.strategy.hdmm.fixed_candidates import fixed_candidates
from psephos.strategy.hdmm.operators import Candidate, Operator, SelectionProblem
from psephos.strategy.strategy import Rival, Strategy
from psephos.variances import NoiseKind
from psephos.workload.workload import Workload

if TYPE_CHECKING:
    from rich.console import Console

EFFORT = 10.0
"""Seconds, about, that a search may take on an ordinary core unless its caller says otherwise."""
START_SHARE = 0.5
"""Of the effort, what one start may take of the processor, whatever was predicted of it, while
other operators wait for theirs."""
IDLE_STARTS = 5
"""An operator gets no more starts after so many without a gain."""
HOPELESS = 1.3
"""Nor if its least error is this many times the least of all."""
SAMPLING_WORK = 5e8
"""The most numbers that an estimate of one candidate's error may go through: about a second."""
START_GAIN = 5e-4
"""The relative gain of a start that counts as one."""
Listener = Callable[[str, float], None]
"""Called with what was tried and the ratio of Identity's RMSE to the best so far."""
SearchProgress = Listener | bool | Literal["always"]
"""A function, True for a bar where stderr is a terminal, "always" for one in any case."""


def hdmm(
    workload: Workload,
    noise: NoiseName = "laplace",
    *,
    restarts: int = 25,
    seed: int = 0,
    time_limit: float | None = None,
    cores: int | None = None,
    progress: SearchProgress | None = None,
    effort: float | None = EFFORT,
    interruptible: bool = False,
) -> Strategy:
    """The best strategy that any operator finds for a workload.

    Args:
        workload: what is asked
        noise: "laplace" (pure differential privacy) or "gaussian" (zCDP)
        restarts: the most random starts of each operator; fewer once starts bring no gain
        seed: the same seed gives the same strategy, unless the time limit or the effort cuts the
            search short
        time_limit: seconds after which the best so far is returned
        cores: starts that run at a time; all cores if left out
        progress: True for a bar on stderr if that is a terminal ("always" if not, too), or a
            function, called with what was tried and how much better than Identity the best is
        effort: how long to search, in seconds of an ordinary core, predicted and not measured
            unless it takes longer; None for as long as starts bring a gain
        interruptible: end at Ctrl-C with the best so far

    >>> from psephos import Domain, Workload, product, prefix
    >>> W = Workload(Domain.of(age=64), [product(age=prefix())])
    >>> s = hdmm(W, restarts=1)
    >>> s.expected_error(W) < 0.5 * baselines.identity(W).expected_error(W)
    True
    """
    return search(
        workload, noise, None, restarts=restarts, seed=seed, time_limit=time_limit, cores=cores,
        progress=progress, effort=effort, interruptible=interruptible,
    )  # fmt: skip


def search(
    workload: Workload,
    noise: NoiseName,
    only: str | None,
    *,
    restarts: int = 25,
    seed: int = 0,
    time_limit: float | None = None,
    cores: int | None = None,
    progress: SearchProgress | None = None,
    effort: float | None = None,
    interruptible: bool = False,
) -> Strategy:
    """All operators that fit, or one by its name; then without Identity and the workload itself."""
    restarts, seed = checked_whole(restarts, "restarts", 1), checked_whole(seed, "seed", 0)
    cores = None if cores is None else checked_whole(cores, "cores", 1)
    time_limit = checked_seconds(time_limit, "time_limit")
    effort = checked_seconds(effort, "effort")
    kind = checked_selection(workload, noise, by_value=True)
    deadline = Deadline.after(time_limit)
    problem = SelectionProblem.of(workload, kind)
    with watch(progress, time_limit) as watcher:
        candidates = _Candidates(problem, watcher)
        chosen = [o for o in operators.applicable(problem) if only in (None, o.name)]
        runs = [_Run(problem, operator, seed, restarts) for operator in chosen]
        try:
            if only is None:
                candidates.offer_fixed()
            late = candidates.search(runs, effort, deadline, cores or os.cpu_count() or 1)
            cut = "time limit" if late else ""
        except KeyboardInterrupt:
            deadline.stop()  # starts that are under way end by themselves
            if not interruptible or candidates.best is None:
                raise
            cut = "stopped"
    return candidates.result(cut, only)


def checked_seconds(seconds: object, name: str) -> float | None:
    """A limit in seconds, if it is one."""
    if seconds is None:
        return None
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, Real)
        or not 0 < float(seconds) < math.inf
    ):
        raise WorkloadError(f"{name} is a positive number of seconds, got {seconds!r}")
    return float(seconds)


class _Run:
    """The starts of one operator: their seeds, their cost, and what they brought."""

    def __init__(
        self, problem: SelectionProblem, operator: Operator, seed: int, restarts: int
    ) -> None:
        self.operator = operator
        self.seconds = operator.seconds(problem)
        seeds = SeedSequence([seed, operator.number])
        # Under Gaussian noise errors are convex in shares and in each factor: starts end alike.
        once = problem.noise is NoiseKind.GAUSSIAN
        self.seeds = seeds.spawn(1 if once else operator.starts(problem, restarts))
        self.least = math.inf
        self.begun = self.idle = 0

    def take(self, count: int) -> range:
        """The numbers of the next starts."""
        numbers = range(self.begun, min(self.begun + count, len(self.seeds)))
        self.begun += len(numbers)
        return numbers

    def note(self, error: float | None) -> None:
        """One more start ended in this error, or with nothing."""
        if error is None:
            self.idle = IDLE_STARTS
            return
        self.idle = 0 if error < self.least * (1 - START_GAIN) else self.idle + 1
        self.least = min(self.least, error)

    def is_hopeful(self, least: float) -> bool:
        """Is another start worth its time?"""
        more = self.begun < len(self.seeds) and self.idle < IDLE_STARTS
        return more and self.least <= HOPELESS * least


@dataclass
class _Spending:
    """What a search may take, in seconds of the processor, and what it has taken."""

    effort: float
    predicted: float = 0.0
    taken: float = 0.0
    promised: float = 0.0
    """By operators that found something; who promises less has to be affordable."""
    shared: bool = False
    """Do other operators wait for a start?"""

    @property
    def left(self) -> float:
        """For one start."""
        share = START_SHARE if self.shared else 1.0
        return min(share * self.effort, self.effort - self.taken)

    def affords(self, run: _Run, count: int) -> bool:
        """Do so many starts come out within the effort?"""
        return max(self.taken, self.predicted + run.seconds * count) <= self.effort

    def allows(self, run: _Run, problem: SelectionProblem) -> bool:
        """May an operator have its first start?"""
        promises = run.operator.promise(problem) >= self.promised
        return self.affords(run, 1) or (promises and run.operator.always(problem))


@dataclass
class _Candidates:
    """The best so far, and what else was tried."""

    problem: SelectionProblem
    watch: Watch
    best: Strategy | None = None
    least: float = math.inf
    order: tuple[int, ...] = ()
    """When the best came up, by operator, start and step: of equal ones the first is taken."""
    usable: bool = False
    """Can the best be estimated from? What cannot wins only where nothing else can."""
    errors: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.lock = Lock()
        self.identity = _identity_error(self.problem.workload)

    def offer_fixed(self) -> None:
        """Identity, the workload itself, and other strategies that are written down."""
        workload, noise = self.problem.workload, self.problem.noise
        self.errors["identity"] = self.identity
        if workload.domain.size <= operators.MOST_ANSWERS:
            self.offer(Candidate(baselines.identity(workload, noise)))
        for strategy in fixed_candidates(workload, noise):
            self.offer(Candidate(strategy))
        self.errors["workload"] = baselines.direct_error(workload, noise)

    def offer(self, candidate: Candidate, *order: int) -> float:
        """Score a candidate and keep it if it is the best.

        Where its error is not known in closed form, the bound at which every part answers alone
        stands for it, or an estimate where that is quick: two standard errors above it, so that
        what is well known wins against what is not.
        """
        strategy = candidate.strategy
        try:
            if strategy.error_is_exact:
                error = strategy.expected_error(self.problem.workload)
            else:
                error = math.inf if candidate.bound is None else candidate.bound
                if strategy.sampling_work <= SAMPLING_WORK:
                    estimate = strategy.expected_error(self.problem.workload)
                    spread = strategy.error_spread(self.problem.workload)
                    error = min(error, estimate + 2 * spread)
        except (UnsupportedError, TooLargeError, RefusedError):
            # Rounded away, without an inverse of this size, or of a sensitivity that is not found.
            return math.inf
        usable = strategy.is_reconstructible
        with self.lock:
            self.errors[strategy.name] = min(error, self.errors.get(strategy.name, math.inf))
            if (not usable, error, order) < (not self.usable, self.least, self.order):
                self.best, self.least = strategy, error
                self.order, self.usable = order, usable
            self.watch.tried(strategy.name, math.sqrt(self.identity / self.least))
        return error

    def search(
        self, runs: list[_Run], effort: float | None, deadline: Deadline, workers: int
    ) -> bool:
        """One start of every operator, then more of those that came near; True if time is up."""
        problem, spending = self.problem, _Spending(math.inf if effort is None else effort)
        self.watch.begins(len(runs))

        def start(run: _Run, number: int) -> float | None:
            """The least error of one start; None if there is nothing to find."""
            rng, begun = default_rng(run.seeds[number]), time.thread_time()
            within = deadline if effort is None else deadline.within(spending.left)
            candidates = run.operator.search(problem, rng, within)
            order = run.operator.number, number
            errors = [self.offer(c, *order, step) for step, c in enumerate(candidates)]
            with self.lock:
                spending.taken += time.thread_time() - begun
            return min(errors, default=None)

        def turn(run: _Run, count: int, pool: ThreadPoolExecutor) -> bool:
            """Some starts of one operator; True if time is up."""
            self.watch.enters(run.operator.name)
            numbers = run.take(count)
            spending.predicted += run.seconds * len(numbers)
            for error in pool.map(start, [run] * len(numbers), numbers):
                run.note(error)
            return deadline.passed

        # One thread of BLAS for each start: many small products gain nothing from more.
        with threadpool_limits(1 if workers > 1 else None), _pool(workers) as pool:
            waiting = sorted(runs, key=lambda run: run.seconds / run.operator.promise(problem))
            while waiting:
                run, *waiting = waiting
                spending.shared = any(spending.allows(each, problem) for each in waiting)
                if spending.allows(run, problem) and turn(run, 1, pool):
                    return True
                if run.least < math.inf:
                    spending.promised = max(spending.promised, run.operator.promise(problem))
                self.watch.leaves()
            while hopeful := [
                run for run in runs if run.is_hopeful(self.least) and spending.affords(run, 2)
            ]:
                # Two at a time whatever the cores, so that a search ends where its seed says.
                if turn(min(hopeful, key=lambda run: (run.idle, run.seconds)), 2, pool):
                    return True
        return False

    def result(self, cut: str, only: str | None) -> Strategy:
        """The best, with its rivals beside it, and what cut the search short."""
        if self.best is None:
            raise UnsupportedError(
                f"{only} does not fit {self.problem.workload}; select.hdmm tries every operator "
                "that does"
            )
        # What has less error than the best, but cannot be estimated from, is no rival.
        rivals = tuple(
            Rival(name, error)
            for name, error in self.errors.items()
            if error >= self.least or name in ("identity", "workload")
        )
        name = f"{self.best.name} ({cut})" if cut else self.best.name
        return self.best.as_result(name, rivals, complete=not cut)


@contextmanager
def _pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads for starts; an interrupt does not wait for those under way."""
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


class Watch:
    """What a search reports to; this one passes candidates on to a function, if there is one."""

    def __init__(self, listener: Listener | None = None) -> None:
        self.listener = listener

    def begins(self, operators: int) -> None:
        """So many operators will be tried."""

    def enters(self, operator: str) -> None:
        """One of them starts."""

    def tried(self, name: str, ratio: float) -> None:
        """A candidate was scored; the best so far has `ratio` times less error than Identity."""
        if self.listener is not None:
            self.listener(name, ratio)

    def leaves(self) -> None:
        """The operator has ended."""


@contextmanager
def watch(
    progress: SearchProgress | None, time_limit: float | None = None, console: Console | None = None
) -> Iterator[Watch]:
    """What the search should report to, until the block ends."""
    if progress is None or progress is False:
        yield Watch()
    elif progress is True or progress == "always":
        with _bar(progress == "always", time_limit, console) as bar:
            yield bar
    elif callable(progress):
        yield Watch(progress)
    else:
        raise WorkloadError(
            'progress is True, "always" (also where stderr is no terminal), or a function of '
            f"(name, ratio), got {progress!r}"
        )


@contextmanager
def _bar(always: bool, time_limit: float | None, console: Console | None) -> Iterator[Watch]:
    """Operators done, the best ratio, and the time: what is left of a limit, else what is gone.

    Where stderr is no terminal "always" writes the last state only, as one line.
    """
    # Only here, so that nothing else waits for the import.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn
    from rich.progress import Progress as Display
    from rich.text import Text

    class Clock(ProgressColumn):
        def render(self, task: Task) -> Text:
            elapsed = task.elapsed or 0.0
            if time_limit is None:
                return Text(f"{elapsed:.0f} s")
            return Text(f"{max(0.0, time_limit - elapsed):.0f} s left of {time_limit:g} s")

    class Bar(Watch):
        def begins(self, operators: int) -> None:
            display.update(task, total=operators)

        def enters(self, operator: str) -> None:
            display.update(task, description=operator)

        def tried(self, name: str, ratio: float) -> None:
            display.update(task, best=f"{ratio:.3g} x better than Identity")

        def leaves(self) -> None:
            display.advance(task)

    console = console or Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[best]}"),
        Clock(),
    )
    quiet = not (always or console.is_terminal or console.is_jupyter)
    with Display(*columns, console=console, disable=quiet) as display:
        task = display.add_task("selecting", total=None, best="")
        yield Bar()


def _identity_error(workload: Workload) -> float:
    """The trace of WᵀW, the squared error of Identity."""
    traces = workload.factor_products(lambda factor: float(gram_diagonal(factor).sum()))
    return float(np.array([product.weight**2 for product in workload.products]) @ traces)
