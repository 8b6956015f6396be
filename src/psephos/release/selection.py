"""What is measured for a release: a strategy, searched once and kept beside the release file.

The file is written before anything is charged, so a run that was cut short measures the same
strategy when it goes on.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

from psephos.errors import PsephosError, ReleaseError, WorkloadError
from psephos.kernel.budget import Budget
from psephos.release.files import read_json, write_json
from psephos.release.request import Job
from psephos.release.requests import spend_of
from psephos.strategy import select
from psephos.strategy.strategy import Strategy
from psephos.values import digest
from psephos.workload.workload import Workload

FOLDER = ".psephos"
UNREADABLE = (OSError, ValueError, KeyError, TypeError, PsephosError)
ELSEWHERE = "copy the release file to a folder you can write to"
Progress = Callable[[str, float], None]


def choose(job: Job, workload: Workload, progress: Progress | None = None) -> Strategy:
    """The strategy for a workload over the job's domain: the one kept, or a new one, then kept."""
    wanted = job.file.selection
    name = digest((workload.domain, workload.products, job.noise.value, wanted.model_dump_json()))
    place = job.folder / FOLDER / f"{name[:32]}.strategy"
    if place.exists():
        return select.load(place, workload.domain)
    strategy = _search(job, workload, progress)
    _save(strategy, place)
    return strategy


def _save(strategy: Strategy, place: Path) -> None:
    try:
        place.parent.mkdir(exist_ok=True)
        select.save(strategy, place)
    except OSError as error:
        raise ReleaseError(
            f"{place.parent} cannot be made: {error.strerror}; {ELSEWHERE}"
        ) from None
    except WorkloadError as error:
        raise ReleaseError(f"{error}; {ELSEWHERE}") from None


def keep_request(job: Job, strategy: Strategy, spend: Budget) -> None:
    """Write down what is about to be charged: how to measure, and at what spend.

    Targets buy less where a release builds on others, and what was bought so stays the request,
    also when it is released without them.
    """
    place = kept(job) / f"{job.request[:32]}.request"
    _save(strategy, place)
    write_json(place.with_suffix(".spend"), {"spend": [spend.currency, str(spend.amount)]})


def kept_request(job: Job) -> tuple[Strategy, Budget] | None:
    """How a request that was charged measures, and its spend; None if that is not kept here."""
    place = kept(job) / f"{job.request[:32]}.request"
    try:
        spend = spend_of(read_json(place.with_suffix(".spend")))
        return select.load(place, job.workload.domain), spend
    except UNREADABLE:
        return None


def selectable() -> list[str]:
    """The names of all selections: what takes a workload and noise, and gives a strategy."""
    found = []
    for name in select.__all__:
        made = getattr(select, name)
        takes = list(inspect.signature(made).parameters) if inspect.isfunction(made) else []
        if takes[1:2] == ["noise"]:
            found.append(name)
    return sorted(found)


def _search(job: Job, workload: Workload, progress: Progress | None) -> Strategy:
    wanted = job.file.selection
    known = selectable()
    if wanted.strategy not in known:
        raise ReleaseError(f"selection.strategy: no {wanted.strategy!r}; have {', '.join(known)}")
    select_one = getattr(select, wanted.strategy)
    takes = inspect.signature(select_one).parameters
    options = {
        "restarts": wanted.restarts,
        "seed": wanted.seed,
        "time_limit": wanted.time_limit,
        "progress": progress,
    }
    searches = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    own = {key: value for key, value in options.items() if searches or key in takes}
    try:
        made: Strategy = select_one(workload, job.noise, **own)
    except PsephosError as error:
        raise ReleaseError(f"no strategy for these tables: {error}") from None
    return made


def kept(job: Job) -> Path:
    """Where strategies are kept."""
    return job.folder / FOLDER
