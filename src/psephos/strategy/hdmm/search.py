"""OPT_HDMM: every operator that fits the workload is tried, and the least exact error wins.

Before any search, cells that no query tells apart are merged (lossless). Every candidate is turned
into the integers that would be measured and scored by their exact error; Identity, the workload
itself, wavelets and trees are among them wherever they are scored in a moment. The search can be
cut short at any time and then gives the best so far. Its progress goes to a function, or to a bar
on stderr.
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
from typing import TYPE_CHECKING, Literal

from numpy.random import SeedSequence, default_rng
from threadpoolctl import threadpool_limits

from psephos.errors import TooLargeError, UnsupportedError, WorkloadError, checked_whole
from psephos.strategy.factors import NoiseName, checked_selection
from psephos.strategy.fixed import baselines
from psephos.strategy.gram_terms import GramTerms
from psephos.strategy.hdmm import operators
from psephos.strategy.hdmm.fixed_candidates import fixed_candidates
from psephos.strategy.hdmm.operators import SelectionProblem
from psephos.strategy.strategy import Rival, Strategy
from psephos.workload.workload import Workload

if TYPE_CHECKING:
    from rich.console import Console

IDLE_STARTS = 5
"""A search ends after so many further starts of an operator without a gain."""
START_GAIN = 5e-4
"""The relative gain of a start that counts as one."""
ESTIMATE_ERROR = 0.05
"""The relative standard error that is granted to errors which are estimated."""
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
) -> Strategy:
    """The best strategy that any operator finds for a workload.

    Args:
        workload: what is asked
        noise: "laplace" (pure differential privacy) or "gaussian" (zCDP)
        restarts: the most random starts of each operator; fewer once starts bring no gain
        seed: the same seed gives the same strategy, unless the time limit cuts the search short
        time_limit: seconds after which the best so far is returned
        cores: starts that run at a time; all cores if left out
        progress: True for a bar on stderr if that is a terminal ("always" if not, too), or a
            function, called with what was tried and how much better than Identity the best is

    >>> from psephos import Domain, Workload, product, prefix
    >>> W = Workload(Domain.of(age=64), [product(age=prefix())])
    >>> s = hdmm(W, restarts=1)
    >>> s.expected_error(W) < 0.5 * baselines.identity(W).expected_error(W)
    True
    """
    return search(
        workload, noise, None, restarts=restarts, seed=seed, time_limit=time_limit, cores=cores,
        progress=progress,
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
) -> Strategy:
    """All operators that fit, or one by its name; then without Identity and the workload itself."""
    restarts, seed = checked_whole(restarts, "restarts", 1), checked_whole(seed, "seed", 0)
    cores = None if cores is None else checked_whole(cores, "cores", 1)
    time_limit = checked_limit(time_limit)
    kind = checked_selection(workload, noise, by_value=True)
    deadline = None if time_limit is None else time.monotonic() + time_limit
    problem = SelectionProblem.of(workload, kind)
    workers = cores or os.cpu_count() or 1
    late = False
    with watch(progress, time_limit) as watcher:
        candidates = _Candidates(problem, watcher)
        if only is None:
            candidates.errors["identity"] = candidates.identity
            if workload.domain.size <= operators.MOST_ANSWERS:
                candidates.offer(baselines.identity(workload, kind))
            for strategy in fixed_candidates(workload, kind):
                candidates.offer(strategy)
            candidates.errors["workload"] = baselines.direct_error(workload, kind)
        chosen = [o for o in operators.applicable(problem) if only in (None, o.name)]
        watcher.begins(len(chosen))
        for operator in chosen:
            watcher.enters(operator.name)
            seeds = SeedSequence([seed, operator.number])
            late = candidates.run(operator, seeds, restarts, deadline, workers)
            if late:
                break
            watcher.leaves()
    return candidates.result(late, only)


def checked_limit(seconds: object) -> float | None:
    """A time limit, if it is one."""
    if seconds is None:
        return None
    if (
        isinstance(seconds, bool)
        or not isinstance(seconds, Real)
        or not 0 < float(seconds) < math.inf
    ):
        raise WorkloadError(f"time_limit is a positive number of seconds, got {seconds!r}")
    return float(seconds)


@dataclass
class _Candidates:
    """The best so far, and what else was tried."""

    problem: SelectionProblem
    watch: Watch
    best: Strategy | None = None
    least: float = math.inf
    usable: bool = False
    """Can the best be estimated from? What cannot wins only where nothing else can."""
    errors: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.identity = GramTerms.of(self.problem.workload).identity_error()

    def offer(self, strategy: Strategy) -> float:
        """Score a candidate and keep it if it is the best."""
        try:
            error = strategy.expected_error(self.problem.workload)
        except (
            UnsupportedError,
            TooLargeError,
        ):  # rounded away, or without an inverse of this size
            return math.inf
        if not strategy.error_is_exact:
            error *= 1 + 3 * ESTIMATE_ERROR  # an estimate must win clearly
        self.errors[strategy.name] = min(error, self.errors.get(strategy.name, math.inf))
        usable = strategy.is_reconstructible
        if (not usable, error) < (not self.usable, self.least):
            self.best, self.least, self.usable = strategy, error, usable
        self.watch.tried(strategy.name, math.sqrt(self.identity / self.least))
        return error

    def run(
        self,
        operator: operators.Operator,
        seeds: SeedSequence,
        restarts: int,
        deadline: float | None,
        workers: int,
    ) -> bool:
        """Starts of one operator, some at a time, until they bring no gain; True if time is up."""

        def start(seed: SeedSequence) -> Strategy | None:
            return operator.search(self.problem, default_rng(seed), deadline)

        least, idle = math.inf, 0
        # One thread of BLAS for each start: many small products gain nothing from more.
        with threadpool_limits(1 if workers > 1 else None), ThreadPoolExecutor(workers) as pool:
            for batch in _batches(seeds.spawn(operator.starts(restarts))):
                for strategy in pool.map(start, batch):
                    if strategy is None:
                        return False
                    error = self.offer(strategy)
                    idle = 0 if error < least * (1 - START_GAIN) else idle + 1
                    least = min(least, error)
                if deadline is not None and time.monotonic() > deadline:
                    return True
                if idle >= IDLE_STARTS:
                    break
        return False

    def result(self, late: bool, only: str | None) -> Strategy:
        """The best, with its rivals beside it."""
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
        name = f"{self.best.name} (time limit)" if late else self.best.name
        return self.best.as_result(name, rivals, complete=not late)


def _batches(seeds: list[SeedSequence]) -> Iterator[list[SeedSequence]]:
    # Batches of one size whatever the cores, so that where a search ends depends on the seed alone.
    for at in range(0, len(seeds), 2):
        yield seeds[at : at + 2]


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
