"""Plans: short programs over handles, each of which reads like its paper.

A plan turns a spend into requests to a protected vector, and what they told into an estimate.
`run` runs one by its name, `names` lists them, and the decorator `plan` adds a plan of your own:
docs/plans.md says how. `Static` is the plan of releases, whose errors are known beforehand.
"""

from psephos.plans import (  # noqa: F401 - they register their plans
    buckets,
    case_studies,
    dual_query,
    fixed,
    mwem,
    privbayes,
)
from psephos.plans.adaptive_marginals import adaptive_marginals  # noqa: F401 - so does it
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
