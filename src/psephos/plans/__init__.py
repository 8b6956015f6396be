"""Plans: short programs over handles, each of which reads like its paper.

A plan turns a spend into requests to a protected vector, and what they told into an estimate.
`run` runs one by its name, `names` lists them, and the decorator `plan` adds a plan of your own:
docs/plans.md says how. `Static` is the plan of releases, whose errors are known beforehand.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from psephos.plans.case_studies import cdf
    from psephos.plans.comparison import PlanError, compare
    from psephos.plans.dual_query import GameParameters
    from psephos.plans.registry import PLANS, NamedPlan, PlanRun, forget, names, plan, run
    from psephos.plans.session import PlanRequest, PlanVector, QueryGame, step_key
    from psephos.plans.static import Static, Step

__all__ = [
    "PLANS",
    "GameParameters",
    "NamedPlan",
    "PlanError",
    "PlanRequest",
    "PlanRun",
    "PlanVector",
    "QueryGame",
    "Static",
    "Step",
    "cdf",
    "compare",
    "forget",
    "names",
    "plan",
    "run",
    "step_key",
]

_PLACES = {
    "psephos.plans.case_studies": "cdf",
    "psephos.plans.comparison": "PlanError compare",
    "psephos.plans.dual_query": "GameParameters",
    "psephos.plans.registry": "PLANS NamedPlan PlanRun forget names plan run",
    "psephos.plans.session": "PlanRequest PlanVector QueryGame step_key",
    "psephos.plans.static": "Static Step",
}
"""Where names lie; they are imported when they are first used."""


def __getattr__(name: str) -> Any:
    for module, names in _PLACES.items():
        if name in names.split():
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
