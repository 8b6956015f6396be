"""A budget for simulations: it refuses like a ledger does, and lives as long as they do."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from psephos.errors import BudgetError, BudgetExceededError
from psephos.kernel.budget import Budget
from psephos.kernel.ledger import Charge
from psephos.kernel.lineage import rise
from psephos.kernel.unit import Unit


@dataclass(frozen=True)
class PlayRequest:
    """A request that nobody will replay."""

    key: str
    values = None

    def _store(self, data: bytes | memoryview) -> bytes | memoryview:
        return data


@dataclass
class PlayMoney:
    """A budget that lives as long as the simulation."""

    unit: Unit
    budget: Budget
    dataset_id: str = "simulation"
    spent: Fraction = field(default=Fraction(0))
    totals: dict[str, Fraction] = field(default_factory=dict, repr=False)

    def remaining(self) -> Budget:
        return Budget(self.budget.currency, self.budget.amount - self.spent)

    def paid(self, key: str) -> Budget:
        """Nothing is replayed."""
        return Budget(self.budget.currency, Fraction(0))

    def _charge(self, charge: Charge) -> PlayRequest | BudgetError:
        booked, changed = rise(charge.price.amount, charge.branches, self.totals)
        due, left = Budget(charge.price.currency, booked), self.remaining()
        if due > left:
            return BudgetExceededError(f"this costs {due}; {left} remains", due, left)
        self.spent += booked
        self.totals |= changed
        return PlayRequest(charge.key or "simulation")
