"""Made-up rows from protected data in one call: measure, model, deal out rows, compare."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from numpy.random import default_rng

from psephos.errors import (
    RefusedError,
    TooLargeError,
    UnsupportedError,
    WorkloadError,
    checked_whole,
)
from psephos.infer.entropy import maximum_entropy
from psephos.infer.estimate import Estimate
from psephos.infer.graphical_model import graphical_model
from psephos.infer.least_squares import least_squares
from psephos.infer.local_tables import local_tables
from psephos.infer.nonnegative import NONNEGATIVE_CELLS
from psephos.kernel.budget import Budget
from psephos.kernel.measurement import Measurement
from psephos.kernel.protected import ProtectedTable
from psephos.plans.registry import PLANS, PlanRun, run
from psephos.synthesis.method import PLAN_NAMES, SyntheticMethod, chosen_method
from psephos.synthesis.quality import SyntheticQuality, quality_of
from psephos.synthesis.sample import SAMPLED_ROWS, sample
from psephos.synthesis.table import SyntheticTable
from psephos.workload.workload import Workload

MOST_TOTAL = 10**15
"""The most rows that data may be declared to have."""


@dataclass(frozen=True, eq=False, repr=False)
class Synthesis:
    """Made-up rows, the model that they come from, and how it was made."""

    table: SyntheticTable
    estimate: Estimate
    workload: Workload
    method: SyntheticMethod
    reason: str
    run: PlanRun

    @cached_property
    def quality(self) -> SyntheticQuality:
        """Every query beside the model, and rivals that know nothing."""
        return quality_of(self.table, self.estimate, self.workload)

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame with the declared labels."""
        return self.table.to_pandas()

    def to_arrow(self) -> Any:
        """The rows as an Arrow table with the declared labels."""
        return self.table.to_arrow()

    def __repr__(self) -> str:
        return f"Synthesis({self.table!r} by {self.method}: {self.reason})"


def synthesize(
    data: ProtectedTable,
    workload: Workload,
    *,
    spend: Budget,
    method: SyntheticMethod = "auto",
    key: str | None = None,
    rows: int | None = None,
    total: int | None = None,
    progress: Callable[[int, int | None], None] = lambda step, steps: None,
    **options: Any,
) -> Synthesis:
    """A table of made-up rows that answers a workload like the data, at a cost of `spend`.

    Args:
        data: the protected table
        workload: the tables that the rows should answer well
        spend: the whole price; methods for very many cells take rho
        method: "auto", "sample", "adaptive", "privbayes", "mwem" or "dual_query"
        key: with it, a run that was cut short goes on where it stopped, and rows come out the same
        rows: how many rows; as many as there seem to be if left out
        total: the number of rows of the data, if that is public; dual_query needs it
        progress: told the number of each request, and of how many, where that is known
        options: of the method's plan (`psephos plans`)

    >>> import numpy as np
    >>> import psephos as ps
    >>> domain = ps.Domain.of({"sex": ["F", "M"], "smokes": ["no", "yes"]})
    >>> data = ps.simulate(np.array([400, 100, 300, 200]), domain, unit=ps.add_remove_row(),
    ...                    budget=ps.epsilon("1"), seed=0)
    >>> made_up = synthesize(data, ps.marginals(domain, k=2), spend=ps.epsilon("1"), rows=1000)
    >>> made_up.table.counts(["sex", "smokes"]).round(-2)
    array([[400, 100],
           [300, 200]])
    """
    if not isinstance(data, ProtectedTable):
        raise RefusedError(
            f"rows are made up from a protected table, got {type(data).__name__}; write "
            "ps.protect(...)"
        )
    if not isinstance(workload, Workload) or not isinstance(spend, Budget):
        raise WorkloadError(
            "rows are made up for a Workload at a Budget, such as ps.marginals(domain, k=2) and "
            f'ps.rho("1/2"); got {type(workload).__name__} and {type(spend).__name__}'
        )
    for name, number, most in (("rows", rows, SAMPLED_ROWS), ("total", total, MOST_TOTAL)):
        if number is not None and checked_whole(number, name, 1) > most:
            raise WorkloadError(f"{name} is at most {most:,}, got {number:,}")
    if rows is None and total is not None and total > SAMPLED_ROWS:
        raise WorkloadError(f"{total:,} rows are too many to make up; give rows, a smaller number")
    choice = chosen_method(method, workload.domain, spend.currency)
    name = PLAN_NAMES.get(choice.method, "HDMM")
    if name not in PLANS:
        raise UnsupportedError(f"there is no plan {name!r} here")
    if total is not None and "rows" in PLANS[name].options:
        options.setdefault("rows", total)
    plan_run = run(
        name, data.vectorise(), workload, spend=spend, key=key, progress=progress, **options
    )
    estimate = plan_run.estimate
    if choice.method == "sample":
        estimate = _model(plan_run, workload, total)
    mark = f"{key or ''}\nmade-up rows".encode()
    generator = default_rng(list(hashlib.sha256(mark).digest()))
    number = total if rows is None else rows
    table = sample(estimate, generator=generator, rows=number, workload=workload)
    return Synthesis(table, estimate, workload, choice.method, choice.reason, plan_run)


def _model(plan_run: PlanRun, workload: Workload, total: int | None) -> Estimate:
    """A model of all cells, or of tables, from what the best strategy measured."""
    measured = [r.result for r in plan_run.requests if isinstance(r.result, Measurement)]
    if measured[0].domain.size <= NONNEGATIVE_CELLS:
        return maximum_entropy(least_squares(measured), workload, total=total)
    try:
        return graphical_model(measured)
    except (UnsupportedError, TooLargeError):
        pass
    try:
        return local_tables(least_squares(measured), workload, total=total)
    except (UnsupportedError, TooLargeError, WorkloadError) as error:
        raise UnsupportedError(
            f"{error}. What was measured is paid for and stays; to make up rows over so many cells "
            'take method="adaptive" or "dual_query", which are paid in rho'
        ) from None
