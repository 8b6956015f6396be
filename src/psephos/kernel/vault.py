"""The room behind the handles: counts, charges, noise. Nothing here is handed out but results.

The order of every request: admit and price it without looking at data, charge the ledger durably,
then count, draw, store, and only then return what stands (see `Ledger.charge`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from psephos.domain import Domain
from psephos.errors import BudgetError, BudgetExceededError
from psephos.frozen import Array, digest, key_of
from psephos.kernel.budget import Budget, checked
from psephos.kernel.choose import exponential
from psephos.kernel.ledger import Ledger
from psephos.kernel.lineage import Node, forget, process, settle
from psephos.kernel.measurement import pack, unpack
from psephos.kernel.noise import Noise
from psephos.kernel.source import Cells, Source

if TYPE_CHECKING:
    from psephos.kernel.simulate import PlayMoney

Draw = Callable[[], Array]


class Draws:
    """Exact noise and choices from the operating system's entropy; there is no seed."""

    simulation = False

    def noise(self, noise: Noise, size: int) -> Array:
        """Independent draws of the noise."""
        return noise.draw(size)

    def choice(self, scores: list[int], epsilon: Fraction, sensitivity: int) -> int:
        """A draw of the exponential mechanism."""
        return exponential(scores, epsilon, sensitivity)


@dataclass(eq=False)
class Vault:
    """A source, the ledger that pays for looking at it, and counts kept from earlier looks."""

    source: Source
    domain: Domain
    ledger: Ledger | PlayMoney
    draws: Draws
    kept: dict[Any, Array] = field(default_factory=dict)
    turns: dict[tuple[int, int], Any] = field(default_factory=dict)

    def over(self, source: Source, domain: Domain) -> Vault:
        """The same ledger over another table; its requests wait for the same turn."""
        return Vault(source, domain, self.ledger, self.draws, turns=self.turns)

    def counts(self, names: tuple[str, ...], keep: Cells) -> Array:
        """Counts over some attributes, made once; asked for only after a charge."""
        wanted = (names, tuple((c.names, key_of(c.mask)) for c in keep))
        if wanted not in self.kept:
            made = self.source.count(self.domain, names, keep, self.ledger.unit.cap)
            self.kept[wanted] = np.asarray(made).reshape(-1)
        return self.kept[wanted]

    def state(self) -> str:
        mark = "simulation, " if self.draws.simulation else ""
        return f"{mark}{self.ledger.remaining()} left of {self.ledger.budget}"

    def priced(self, spend: Budget, factor: Fraction) -> tuple[Budget, Budget]:
        """What is spent, checked, and its cost in the ledger's currency: ε is factor·ε² in rho."""
        spend = checked(spend, "spend")
        if spend.currency == self.ledger.budget.currency:
            return spend, spend
        if spend.currency == "rho":
            raise BudgetError(f"this ledger keeps epsilon and cannot pay {spend}")
        return spend, Budget("rho", factor * spend.amount**2)

    def request(
        self, node: Node, asked: str, cost: Budget, key: str | None, label: str, draw: Draw
    ) -> tuple[str, Array]:
        """The key and the values of a request, charged to the ledger before they are drawn.

        Privacy: all requests on one tree take turns, so that what was priced is settled before
        another is priced; a fork leaves its parent's turn behind
        (tests/test_protect.py::test_threads_of_a_forked_child_take_turns).
        """
        with self.turns.setdefault(process(), RLock()):
            increase, totals = node.price(cost.amount)
            mark, bill = digest((node.path, asked)), Budget(cost.currency, increase)
            settle(totals, paid=False)
            try:
                request = self.ledger.charge(
                    key, mark, bill, label=label, schema=digest(self.domain), covered=not increase
                )
            except BudgetExceededError:
                forget(totals)
                raise
            if request.values is not None:
                forget(totals)
                return request.key, unpack(request.values)
            if not request.replay:
                settle(totals, paid=True)
            return request.key, unpack(request.store(pack(draw())))
