"""What a further question would cost, on top of what is known.

It costs only what it adds: it is answered from the old measurements and the new one together, by
least squares, so the more the old ones know, the less the new one has to buy.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from psephos.errors import ReleaseError
from psephos.kernel.budget import Budget
from psephos.release.ask.integrity import opened_bundle
from psephos.release.ask.question import question_workload, whole_table
from psephos.release.bundle.bundle import Bundle
from psephos.release.preflight.targets import cheapest_strategy, check_draw_count
from psephos.release.spec.asked_cells import AskedCells, over_cells
from psephos.release.spec.entries import TargetEntry
from psephos.release.spec.job import Job
from psephos.strategy.strategy import Strategy
from psephos.workload.reduction import asked_groups
from psephos.workload.workload import Workload


@dataclass(frozen=True)
class Price:
    """What a question would cost to be answered so precisely, on top of what is known."""

    budget: Budget
    half_width: float
    alone: Budget


def price(
    bundle: Bundle | str | os.PathLike[str],
    question: str | Sequence[str] | Workload,
    half_width: float,
    *,
    dialect: str | None = None,
    draws: int = 9999,
) -> Price:
    """The least budget at which every answer is within ± half_width, old measurements included.

    A release that `builds_on` the bundle and has this target costs as much; nothing is charged.

    Args:
        bundle: a bundle or its directory
        question: SQL, or a workload over the domain of the bundle's measurements
        half_width: of the noise interval of every answer, in rows, at the bundle's confidence
        dialect: of the SQL, by sqlglot's name for it; DuckDB's when left out
        draws: of simulated noise, for the widths of intervals
    """
    bundle = opened_bundle(bundle)
    check_draw_count(draws)
    if bundle.method is not None:
        raise ReleaseError(
            f"{bundle.path} was made by {bundle.method.name!r}, which adapts to the data: nothing "
            "builds on it, and what it errs by is not known, so there is no price on top of it"
        )
    workload = (
        question if isinstance(question, Workload) else question_workload(bundle, question, dialect)
    )
    job, declared = bundle.job, bundle.job.cells.declared
    if workload.domain == declared:
        groups = asked_groups(declared, workload.products, workload.factor, {}, ())
        job = job.over(job.cells.joined([AskedCells(declared, groups)]))
    workload = over_cells(job.cells, workload) or workload
    if workload.domain != job.workload.domain:
        raise ReleaseError(
            f"the question is about {workload.domain}, the measurements are of "
            f"{bundle.job.workload.domain}; what looks at several columns together (OR) is priced "
            "only where the release did so too"
        )
    if (
        isinstance(half_width, bool)
        or not isinstance(half_width, int | float)
        or not 0.5 <= half_width < math.inf
    ):
        raise ReleaseError(
            f"the half-width wanted is a number of rows from 0.5 on, got {half_width!r}"
        )
    confidence = bundle.job.file.output.confidence
    target = TargetEntry.model_validate({"plus_minus": half_width, "confidence": confidence})
    table = replace(whole_table(workload), target=target)
    alone = replace(job, workload=workload, tables=(table,), past=())
    job = replace(alone, past=(*bundle.job.past, *bundle.requests))

    def search(_: Job, weighted: Workload) -> Strategy:
        from psephos.strategy.hdmm.search import hdmm

        return hdmm(weighted, job.noise, restarts=1)

    by_itself = cheapest_strategy(alone, draws, search).budget
    return Price(
        min(by_itself, cheapest_strategy(job, draws, search).budget), half_width, by_itself
    )
