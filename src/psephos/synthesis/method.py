"""How the data are measured that made-up rows come from: decided from public facts alone.

sample       the best strategy for the tables, measured once; rows from its estimate
adaptive     marginals that a model of few of them answers worst, one after the other
privbayes    a network of tables with parents, each drawn given those before it
mwem         queries answered worst, and non-negative least squares over all cells
dual_query   a game of conjunctions and records, for very many attributes
auto         sample where all cells fit in memory, else adaptive; dual_query where attributes
are too many for tables of them
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from psephos.domain.domain import Domain
from psephos.errors import WorkloadError, name_list
from psephos.infer.nonnegative import NONNEGATIVE_CELLS
from psephos.kernel.budget import Currency

SyntheticMethod = Literal["auto", "sample", "adaptive", "privbayes", "mwem", "dual_query"]
PLAN_NAMES: dict[SyntheticMethod, str] = {
    "adaptive": "AdaptiveMarginals",
    "privbayes": "PrivBayesLS",
    "mwem": "MWEM variant d",
    "dual_query": "DualQuery",
}
"""The plans behind the words."""
EPSILON_CAUTION = (
    "a budget in epsilon alone leaves nothing else for so many cells: all tables are measured at "
    "once, and rows err much; with [budget] epsilon and delta, and a ledger in rho, auto takes "
    '"adaptive", which measures the few tables that tell most'
)
"""What is said where the better plan cannot be paid."""
MANY_ATTRIBUTES = 200
"""From so many attributes on, choosing among tables of two of them takes too long."""


@dataclass(frozen=True)
class SyntheticChoice:
    """A method for made-up rows, and why it is this one."""

    method: SyntheticMethod
    reason: str


def chosen_method(method: SyntheticMethod, domain: Domain, currency: Currency) -> SyntheticChoice:
    """The method by which rows are made up, where `auto` leaves it open.

    >>> chosen_method("auto", Domain.of(sex=2, age=100), "epsilon").method
    'sample'
    """
    if method not in get_args(SyntheticMethod):
        names = name_list(list(get_args(SyntheticMethod)))
        raise WorkloadError(f"method is one of {names}, got {method!r}")
    if method not in ("auto", "dual_query") and len(domain) > MANY_ATTRIBUTES:
        raise WorkloadError(
            f"{method!r} looks at tables of these attributes, and {len(domain):,} are too many (at "
            f'most {MANY_ATTRIBUTES}); keep fewer columns, or take "dual_query"'
        )
    if method != "auto":
        return SyntheticChoice(method, "as asked for")
    if len(domain) > MANY_ATTRIBUTES:
        words = f"{len(domain):,} attributes are too many to choose among tables of them"
        return SyntheticChoice("dual_query", words)
    if domain.size <= NONNEGATIVE_CELLS:
        words = f"all {domain.size:,} cells fit in memory, and every table is measured at its best"
        return SyntheticChoice("sample", words)
    if currency == "epsilon":
        return SyntheticChoice("sample", EPSILON_CAUTION)
    words = f"the cells of {len(domain)} attributes fit in no memory, and few tables tell most"
    return SyntheticChoice("adaptive", words)
