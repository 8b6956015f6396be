"""Plans: short programs over handles, each of which reads like its paper.

A plan turns a spend into requests to a protected vector, and what they told into an estimate.
`run` runs one by its name, `names` lists them, and the decorator `plan` adds a plan of your own:
docs/plans.md says how. `Static` is the plan of releases, whose errors are known beforehand.
"""

from psephos.plans import buckets, case_studies, fixed, mwem, privbayes  # noqa: F401 - they register their plans
from psephos.plans.adaptive_marginals import adaptive_marginals  # noqa: F401 - so does it
from psephos.plans.case_studies import cdf
from psephos.plans.comparison import PlanError, compare
from psephos.plans.registry import PLANS, NamedPlan, PlanRun, forget, names, plan, run
from psephos.plans.session import PlanRequest, PlanVector, step_key
from psephos.plans.static import Static, Step

__all__ = [
    "PLANS",
    "NamedPlan",
    "PlanError",
    "PlanRequest",
    "PlanRun",
    "PlanVector",
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
