"""Plans whose measurements depend on the questions alone: select, measure, infer.

Their errors are known before anything is spent (`Strategy.rmse`), but for Uniform, which takes all
cells to be alike.
"""

from __future__ import annotations

from psephos.infer import expanded, least_squares
from psephos.infer.estimate import Estimate
from psephos.kernel.budget import Budget
from psephos.kernel.query import Query
from psephos.matrix import Identity, Kron, Matrix, Stack, total
from psephos.plans.registry import plan
from psephos.plans.session import PlanVector
from psephos.strategy import select
from psephos.strategy.fixed.baselines import best_branching, equal_parts, tree_levels
from psephos.strategy.strategy import Strategy
from psephos.variances import NoiseKind
from psephos.workload.workload import Workload


@plan(
    "Identity",
    signature="SI LM",
    reference="Dwork, McSherry, Nissim and Smith 2006",
)
def identity(vector: PlanVector, workload: Workload, budget: Budget) -> Estimate:
    """Single cells are asked, or few cells are added up."""
    return _measured(vector, select.identity(workload, _noise(budget)), budget)


@plan(
    "Privelet",
    signature="SP LM LS",
    reference="Xiao, Wang and Gehrke 2010",
)
def privelet(vector: PlanVector, workload: Workload, budget: Budget) -> Estimate:
    """Ranges over long attributes; HB or HDMM are better."""
    return _measured(vector, select.privelet(workload, _noise(budget)), budget)


@plan(
    "H2",
    signature="SH2 LM LS",
    reference="Hay, Rastogi, Miklau and Suciu 2010",
)
def h2(vector: PlanVector, workload: Workload, budget: Budget) -> Estimate:
    """Ranges over long attributes; HB or HDMM are better."""
    return _measured(vector, select.h2(workload, _noise(budget)), budget)


@plan(
    "HB",
    signature="SHB LM LS",
    reference="Qardaji, Yang and Li 2013",
)
def hb(vector: PlanVector, workload: Workload, budget: Budget) -> Estimate:
    """Any ranges of one or two long attributes, whatever their data."""
    return _measured(vector, select.hb(workload, _noise(budget)), budget)


@plan(
    "Greedy-H",
    signature="SG LM LS",
    reference="Li, Hay and Miklau 2014",
)
def greedy_h(vector: PlanVector, workload: Workload, budget: Budget) -> Estimate:
    """Given ranges of one attribute; HDMM is a little better and takes longer."""
    return _measured(vector, select.greedy_h(workload, _noise(budget)), budget)


@plan(
    "Uniform",
    signature="ST LM LS",
    reference="Zhang et al. 2020",
    adaptive=True,
)
def uniform(vector: PlanVector, workload: Workload, budget: Budget) -> Estimate:
    """Next to no rows or budget: all cells get the same share of a noisy total."""
    return expanded(vector.measure(total(vector.size), spend=budget))


@plan(
    "Quadtree",
    signature="SQ LM LS",
    reference="Cormode, Procopiuc, Srivastava, Shen and Yu 2012",
)
def quadtree(vector: PlanVector, workload: Workload, budget: Budget) -> Estimate:
    """Rectangles of a map, where cells are hardly ever asked."""
    return _measured(vector, select.quadtree(workload, _noise(budget)), budget)


@plan(
    "HDMM",
    signature="SHD LM LS",
    reference="McKenna, Miklau, Hay and Machanavajjhala 2018",
)
def hdmm(
    vector: PlanVector,
    workload: Workload,
    budget: Budget,
    *,
    strategy: Strategy | None = None,
    restarts: int = 25,
) -> Estimate:
    """The default: the least error of all plans that do not look at the data."""
    if strategy is None:
        strategy = select.hdmm(workload, _noise(budget), restarts=restarts)
    return _measured(vector, strategy, budget)


@plan(
    "HB-Striped_kron",
    signature="SS LM LS",
    reference="Zhang et al. 2020, section 9.2",
)
def hb_striped_kron(
    vector: PlanVector, workload: Workload, budget: Budget, *, attribute: str | None = None
) -> Estimate:
    """Ranges of one attribute within all combinations of the others."""
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
)
def workload_ls(vector: PlanVector, workload: Workload, budget: Budget) -> Estimate:
    """A few tables that hardly share cells: they are measured as they are asked."""
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
