"""Plans whose measurements depend on the questions alone: select, measure, infer.

Their errors are known before anything is spent (`Strategy.rmse`), but for Uniform, which takes all
cells to be alike.
"""

from __future__ import annotations

from psephos.infer import expanded, least_squares
from psephos.infer.estimate import Estimate
from psephos.kernel.budget import Budget, NoiseKind
from psephos.kernel.query import Query
from psephos.matrix import Identity, Kron, Matrix, Stack, total
from psephos.plans.registry import plan
from psephos.plans.session import PlanVector
from psephos.strategy import select
from psephos.strategy.fixed.baselines import best_branching, equal_parts, tree_levels
from psephos.strategy.strategy import Strategy
from psephos.workload.workload import Workload


@plan(
    "Identity",
    signature="SI LM",
    reference="Dwork, McSherry, Nissim and Smith 2006",
    when="single cells are asked, or few cells are added up",
)
def identity(vector: PlanVector, workload: Workload, budget: Budget) -> Estimate:
    return _measured(vector, select.identity(workload, _noise(budget)), budget)


@plan(
    "Privelet",
    signature="SP LM LS",
    reference="Xiao, Wang and Gehrke 2010",
    when="ranges over long attributes; HB or HDMM are better",
)
def privelet(vector: PlanVector, workload: Workload, budget: Budget) -> Estimate:
    return _measured(vector, select.privelet(workload, _noise(budget)), budget)


@plan(
    "H2",
    signature="SH2 LM LS",
    reference="Hay, Rastogi, Miklau and Suciu 2010",
    when="ranges over long attributes; HB or HDMM are better",
)
def h2(vector: PlanVector, workload: Workload, budget: Budget) -> Estimate:
    return _measured(vector, select.h2(workload, _noise(budget)), budget)


@plan(
    "HB",
    signature="SHB LM LS",
    reference="Qardaji, Yang and Li 2013",
    when="any ranges of one or two long attributes, whatever their data",
)
def hb(vector: PlanVector, workload: Workload, budget: Budget) -> Estimate:
    return _measured(vector, select.hb(workload, _noise(budget)), budget)


@plan(
    "Greedy-H",
    signature="SG LM LS",
    reference="Li, Hay and Miklau 2014",
    when="given ranges of one attribute; HDMM is a little better and takes longer",
)
def greedy_h(vector: PlanVector, workload: Workload, budget: Budget) -> Estimate:
    return _measured(vector, select.greedy_h(workload, _noise(budget)), budget)


@plan(
    "Uniform",
    signature="ST LM LS",
    reference="Zhang et al. 2020",
    when="next to no rows or budget: all cells get the same share of a noisy total",
    adaptive=True,
)
def uniform(vector: PlanVector, workload: Workload, budget: Budget) -> Estimate:
    return expanded(vector.measure(total(vector.size), spend=budget))


@plan(
    "Quadtree",
    signature="SQ LM LS",
    reference="Cormode, Procopiuc, Srivastava, Shen and Yu 2012",
    when="rectangles of a map, where cells are hardly ever asked",
)
def quadtree(vector: PlanVector, workload: Workload, budget: Budget) -> Estimate:
    return _measured(vector, select.quadtree(workload, _noise(budget)), budget)


@plan(
    "HDMM",
    signature="SHD LM LS",
    reference="McKenna, Miklau, Hay and Machanavajjhala 2018",
    when="the default: the least error of all plans that do not look at the data",
)
def hdmm(
    vector: PlanVector,
    workload: Workload,
    budget: Budget,
    *,
    strategy: Strategy | None = None,
    restarts: int = 25,
    time_limit: float | None = None,
) -> Estimate:
    limits = {} if time_limit is None else {"time_limit": time_limit}
    chosen = strategy or select.hdmm(workload, _noise(budget), restarts=restarts, **limits)
    return _measured(vector, chosen, budget)


@plan(
    "HB-Striped_kron",
    signature="SS LM LS",
    reference="Zhang et al. 2020, section 9.2",
    when="ranges of one attribute within all combinations of the others",
)
def hb_striped_kron(
    vector: PlanVector, workload: Workload, budget: Budget, *, attribute: str | None = None
) -> Estimate:
    domain = workload.domain
    name = longest_attribute(workload) if attribute is None else attribute
    axis = domain.axis(name)
    factors: list[Matrix] = [Identity(n) for n in domain.shape]
    factors[axis] = hb_matrix(domain.shape[axis])
    strategy = Strategy(domain, _noise(budget), Query.of(Kron(tuple(factors))), "HB-striped")
    return _measured(vector, strategy, budget)


@plan(
    "WorkloadLS",
    signature="SW LM LS",
    reference="Zhang et al. 2020, section 9.3",
    when="a few tables that hardly share cells: they are measured as they are asked",
)
def workload_ls(vector: PlanVector, workload: Workload, budget: Budget) -> Estimate:
    return _measured(vector, select.workload(workload, _noise(budget)), budget)


def hb_matrix(n: int) -> Matrix:
    """HB of one attribute: the levels of a flat tree, without its root."""
    levels = tree_levels((n,), equal_parts(best_branching(n)), root=False)
    return levels[0] if len(levels) == 1 else Stack(tuple(levels))


def longest_attribute(workload: Workload) -> str:
    """The attribute with the most values."""
    domain = workload.domain
    return domain.names[max(range(len(domain.shape)), key=domain.shape.__getitem__)]


def _measured(vector: PlanVector, strategy: Strategy, budget: Budget) -> Estimate:
    """Least squares on one strategy; where it cannot tell a cell, the workload does not ask."""
    strategy.check_reconstructible()
    return least_squares([vector.measure(strategy, spend=budget)])


def _noise(budget: Budget) -> NoiseKind:
    return NoiseKind.paid_in(budget.currency)
