"""ps.select: ways to choose what is measured, all with one signature and one result.

Searches (`hdmm` and its operators) take restarts, a seed and a time limit; fixed strategies need
nothing but the workload.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypedDict, Unpack

from psephos.errors import WorkloadError, a_path, checked_whole
from psephos.inverse.choice import Cost
from psephos.strategy.datacube.budgets import budgeted
from psephos.strategy.datacube.strategies import datacube
from psephos.strategy.factors import NoiseName, checked_selection
from psephos.strategy.fixed.baselines import h2, hb, identity, privelet, quadtree
from psephos.strategy.fixed.baselines import workload_itself as workload
from psephos.strategy.fixed.greedy_h import greedy_h
from psephos.strategy.fixed.low_rank import low_rank
from psephos.strategy.fixed.matrix_mechanism import matrix_mechanism
from psephos.strategy.goals import least_budget, smallest_largest
from psephos.strategy.hdmm.search import SearchProgress, hdmm, search
from psephos.strategy.limits import gaussian_limit, svd_bound
from psephos.strategy.strategy import Rival, Strategy, load, save
from psephos.values import digest
from psephos.workload.workload import Workload

__all__ = [
    "Cost",
    "Rival",
    "Strategy",
    "budgeted",
    "cached",
    "datacube",
    "gaussian_limit",
    "greedy_h",
    "h2",
    "hb",
    "hdmm",
    "identity",
    "least_budget",
    "load",
    "low_rank",
    "matrix_mechanism",
    "opt0",
    "opt_marginals",
    "opt_product",
    "opt_union",
    "privelet",
    "quadtree",
    "residual",
    "save",
    "smallest_largest",
    "svd_bound",
    "tied",
    "workload",
]


class Options(TypedDict, total=False):
    """What bounds a search; see `hdmm`."""

    restarts: int
    seed: int
    time_limit: float | None
    cores: int | None
    progress: SearchProgress | None


def opt0(workload: Workload, noise: NoiseName = "laplace", **options: Unpack[Options]) -> Strategy:
    """OPT_0 on all cells at once (a p-Identity strategy), for one attribute or a small domain."""
    checked_selection(workload, noise, by_value=True)
    only = (
        "OPT_⊗" if sum(n > 1 for n in workload.reduce().domain.shape) < 2 else "OPT_0 on all cells"
    )
    return search(workload, noise, only, **options)


def opt_product(
    workload: Workload, noise: NoiseName = "laplace", **options: Unpack[Options]
) -> Strategy:
    """OPT_⊗: one strategy for each attribute, multiplied."""
    return search(workload, noise, "OPT_⊗", **options)


def opt_union(
    workload: Workload, noise: NoiseName = "laplace", **options: Unpack[Options]
) -> Strategy:
    """OPT_+: several products, each with a share of the budget."""
    return search(workload, noise, "OPT_+", **options)


def opt_marginals(
    workload: Workload, noise: NoiseName = "laplace", **options: Unpack[Options]
) -> Strategy:
    """OPT_M: weighted marginals. Under Gaussian noise `residual` is at least as good."""
    return search(workload, noise, "OPT_M", **options)


def residual(workload: Workload, noise: NoiseName = "gaussian") -> Strategy:
    """Residual subspaces, optimal for marginals under Gaussian noise, in closed form.

    Attributes asked by prefixes, ranges or levels get the best basis for these.
    """
    return search(workload, noise, "residual", restarts=1)


def tied(workload: Workload, noise: NoiseName = "laplace", **options: Unpack[Options]) -> Strategy:
    """A tree whose blocks of one level are alike, for one attribute of up to 2³⁰ cells."""
    return search(workload, noise, "tied tree", **options)


def cached(
    folder: str | os.PathLike[str],
    workload: Workload,
    noise: NoiseName = "laplace",
    *,
    restarts: int = 25,
    seed: int = 0,
    time_limit: float | None = None,
    progress: SearchProgress | None = None,
) -> Strategy:
    """`hdmm`, or what it found before for the same workload, noise, restarts and seed.

    What a time limit cut short is not kept.
    """
    kind = checked_selection(workload, noise)
    place = Path(a_path(folder, "the folder of kept strategies", WorkloadError))
    restarts, seed = checked_whole(restarts, "restarts", 1), checked_whole(seed, "seed", 0)
    name = digest((workload.domain, workload.products, kind.value, restarts, seed))
    place = place / f"{name}.strategy"
    if place.exists():
        return load(place, workload.domain)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WorkloadError(f"{place.parent} cannot be made: {error.strerror}") from None
    strategy = hdmm(
        workload, kind, restarts=restarts, seed=seed, time_limit=time_limit, progress=progress
    )
    if strategy.complete:
        save(strategy, place)
    return strategy
