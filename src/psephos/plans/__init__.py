"""Plans: short programs over handles, each of which reads like its paper.

A plan turns a spend into requests to a protected vector, one for each step, and what they measured
into an estimate. `PLANS` lists them by name; a new one is one file here and one line in that list.
"""

from psephos.plans.plan import Plan, Step, step_key
from psephos.plans.static import Static

PLANS: dict[str, type[Plan]] = {"static": Static}

__all__ = ["PLANS", "Plan", "Static", "Step", "step_key"]
