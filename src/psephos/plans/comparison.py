"""Plans side by side on data that is public or made up, before anything is spent.

What a plan that adapts to the data will err by, nobody can promise: it depends on the data. What
can be shown is how it fares on a stand-in: an older public table, or rows made up from what is
declared. Such errors are simulated, and say so; those of fixed plans are the same on any data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Any

import numpy as np

from psephos.errors import PsephosError, WorkloadError
from psephos.kernel.budget import Budget
from psephos.kernel.unit import Unit
from psephos.plans.registry import PLANS, run
from psephos.strategy import select
from psephos.values import Array
from psephos.variances import NoiseKind
from psephos.without_ledger import simulate
from psephos.workload.workload import Workload

Told = Callable[[str], None]


@dataclass(frozen=True)
class PlanError:
    """How a plan fared on a stand-in: the RMSE of all numbers, on average over runs."""

    name: str
    rmse: float
    spread: float
    """The standard deviation of the RMSE from run to run."""
    seconds: float
    adaptive: bool
    reason: str = ""
    """Why there is no error, where there is none."""


def compare(
    workload: Workload,
    stand_in: Array,
    *,
    unit: Unit,
    spend: Budget,
    plans: Iterable[str] | None = None,
    trials: int = 5,
    seed: int = 0,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    progress: Told | None = None,
) -> Sequence[PlanError]:
    """Run plans on a stand-in's counts, each several times; the best first.

    Args:
        workload: what is asked
        stand_in: public or made-up counts, one for each cell: never the data themselves
        unit: whose privacy is protected
        spend: what a run of each plan would cost
        plans: the names of plans; all of them if left out
        trials: runs of each plan, with different noise
        seed: of the first run's noise
        options: for some plans, options by name
        progress: told the name of each plan when its turn comes

    >>> import psephos as ps
    >>> ages = ps.Workload(ps.Domain.of(age=64), [ps.product(age=ps.prefix())])
    >>> old = np.repeat([40, 0], 32)
    >>> plans = ["Identity", "HB", "DAWA", "UniformGrid"]
    >>> best = compare(ages, old, unit=ps.add_remove_row(), spend=ps.epsilon("0.1"), plans=plans)
    >>> best[0].name, best[-1].reason
    ('DAWA', 'UniformGrid is for two attributes, Domain(age: 64; 64 cells) has 1')
    """
    counts = np.asarray(stand_in)
    if isinstance(trials, bool) or not isinstance(trials, int) or trials < 1:
        raise WorkloadError(f"trials is a whole number from 1, got {trials!r}")
    true = workload.answer(counts)
    rows = []
    for name in PLANS if plans is None else plans:
        if progress is not None:
            progress(name)
        more = dict((options or {}).get(name, {}))
        if name == "HDMM" and not more:  # one search serves all runs
            more["strategy"] = select.hdmm(workload, NoiseKind.paid_in(spend.currency))
        rows.append(_tried(name, workload, counts, true, unit, spend, trials, seed, more))
    return sorted(rows, key=lambda row: (math.isnan(row.rmse), row.rmse))


def _tried(
    name: str,
    workload: Workload,
    counts: Array,
    true: Array,
    unit: Unit,
    spend: Budget,
    trials: int,
    seed: int,
    options: Mapping[str, Any],
) -> PlanError:
    start, errors, adaptive = process_time(), [], name in PLANS and PLANS[name].adaptive
    for trial in range(trials):
        table = simulate(counts, workload.domain, unit=unit, budget=spend, seed=seed + trial)
        try:
            done = run(name, table.vectorise(), workload, spend=spend, **options)
            values = done.answer(workload).values
        except PsephosError as error:
            if name not in PLANS:
                raise
            return PlanError(name, math.nan, math.nan, 0.0, adaptive, str(error))
        errors.append(math.sqrt(float(np.mean((values - true) ** 2))))
    mean, spread = float(np.mean(errors)), float(np.std(errors))
    return PlanError(name, mean, spread, (process_time() - start) / trials, adaptive)
