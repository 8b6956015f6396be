"""What every plan does: spend a budget on requests, one a step, and estimate from the answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol

from psephos.infer.estimate import Estimate
from psephos.kernel.budget import Budget
from psephos.kernel.measurement import Measurement
from psephos.kernel.protected import ProtectedVector
from psephos.strategy.strategy import Strategy


class Step(NamedTuple):
    """One request of a plan: what was measured, at what spend, and what came of it."""

    strategy: Strategy
    spend: Budget
    measurement: Measurement


class Plan(Protocol):
    """A program over a protected vector.

    Whatever it does, it does by requests to the vector, so the ledger pays for all of it and a
    second run with the same key replays the first.
    """

    name: ClassVar[str]

    def steps(
        self, vector: ProtectedVector, *, spend: Budget, key: str | None = None
    ) -> Sequence[Step]:
        """Make the requests; together they cost `spend` at most."""

    def estimate(self, measurements: Sequence[Measurement]) -> Estimate:
        """What the measurements tell, those of earlier releases included; costs nothing."""


def step_key(key: str, step: int) -> str:
    """The ledger's key of a step, from that of the whole plan.

    >>> step_key("pets", 0), step_key("pets", 1)
    ('pets', 'pets step 2')
    """
    return key if step == 0 else f"{key} step {step + 1}"
