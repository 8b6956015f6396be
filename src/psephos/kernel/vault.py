"""The room behind the handles: counts, charges, noise. Nothing here is handed out but results.

The order of every request: admit and price it without looking at data, charge the ledger durably,
then count, draw, store, record, and only then return (see `Ledger.request`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from psephos.domain import Domain
from psephos.errors import BudgetError, BudgetExceededError, RefusedError, ShapeError
from psephos.frozen import Array, digest, frozen, key_of, largest
from psephos.kernel.budget import Budget
from psephos.kernel.choose import exponential
from psephos.kernel.lineage import Node, forget, process, settle
from psephos.kernel.measurement import Measurement, noise_for, pack, unpack
from psephos.kernel.noise import Noise
from psephos.kernel.query import Query
from psephos.kernel.sensitivity import SAFE, admit_query, answers, largest_entry
from psephos.kernel.source import Cells, Source
from psephos.matrix import Matrix

if TYPE_CHECKING:
    from psephos.kernel.ledger import Ledger
    from psephos.kernel.protected import ProtectedVector
    from psephos.kernel.simulate import PlayMoney


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

    def measure(
        self, vector: ProtectedVector, query: Query, spend: Budget, key: str | None
    ) -> Measurement:
        """Charge, draw, store, show."""
        spend, cost = self._priced(spend, Fraction(1, 2))
        asked = admit_query(query)
        vector._check(asked)
        noise = noise_for(asked, spend, self.ledger.unit, vector._node.stability)

        def draw() -> Array:
            noisy = []
            for block, added in zip(asked.blocks, noise, strict=True):
                true = vector._answers(block.matrix)
                noisy.append(_plus(true, self.draws.noise(added, len(true))))
            return np.concatenate(noisy)

        mark = f"measure {digest(asked)} {spend}"
        used, values = self._request(vector._node, mark, cost, key, repr(asked), draw)
        return Measurement(
            dataset_id=self.ledger.dataset_id,
            lineage=vector._node.path,
            domain=vector.domain,
            transform=vector._map,
            query=asked,
            values=values,
            noise=noise,
            cost=cost,
            key=used,
            simulation=self.draws.simulation,
        )

    def choose(
        self,
        vector: ProtectedVector,
        queries: Matrix,
        estimate: Any,
        spend: Budget,
        key: str | None,
    ) -> int:
        """Charge, choose, store, show."""
        spend, cost = self._priced(spend, Fraction(1, 8))
        estimate = frozen(estimate)
        if spend.currency != "epsilon":
            raise BudgetError(f"choosing is paid in epsilon, got {spend}")
        whole = estimate.dtype.kind in "iu" and estimate.dtype != np.uint64
        if estimate.shape != (vector.size,) or not whole:
            raise ShapeError(
                f"the estimate must be {vector.size:,} whole numbers of 64 bits, got "
                f"{estimate.dtype} of shape {estimate.shape}"
            )
        reach = largest_entry(queries)
        if reach == 0:
            raise RefusedError("all queries are zero; there is nothing to choose by")
        guess = answers(queries, estimate.astype(np.int64))
        epsilon = self.ledger.unit.per_distance(spend, vector._node.stability)

        def draw() -> Array:
            pairs = zip(vector._answers(queries), guess, strict=True)
            scores = [abs(int(true) - int(guessed)) for true, guessed in pairs]
            return np.array([self.draws.choice(scores, epsilon, reach)])

        mark = f"choose {digest(queries)} {digest(estimate)} {spend}"
        _, values = self._request(vector._node, mark, cost, key, "choose", draw)
        return int(values[0])

    def _priced(self, spend: Budget, factor: Fraction) -> tuple[Budget, Budget]:
        """What is spent, checked, and its cost in the ledger's currency: ε is factor·ε² in rho."""
        if type(spend) is not Budget:
            raise BudgetError(f'spend is a budget such as epsilon("0.1"), got {spend!r}')
        spend = Budget(spend.currency, spend.amount)  # checked again: it may have been forged
        if spend.amount == 0:
            raise BudgetError(f"spend must be more than 0, got {spend}")
        if spend.currency == self.ledger.budget.currency:
            return spend, spend
        if spend.currency == "rho":
            raise BudgetError(f"this ledger keeps epsilon and cannot pay {spend}")
        return spend, Budget("rho", factor * spend.amount**2)

    def _request(
        self, node: Node, mark: str, cost: Budget, key: str | None, label: str,
        draw: Callable[[], Array],
    ) -> tuple[str, Array]:  # fmt: skip
        """The key and the values of a request, charged to the ledger before they are drawn.

        Privacy: all requests on one tree take turns, so that what was priced is settled before
        another is priced; a fork leaves its parent's turn behind
        (tests/test_protect.py::test_threads_of_a_forked_child_take_turns).
        """
        with self.turns.setdefault(process(), RLock()):
            increase, totals = node.price(cost.amount)
            before = [(each, each.spent) for each, _ in totals]
            settle(totals, paid=False)
            try:
                with self.ledger.request(
                    key,
                    digest((node.path, mark)),
                    Budget(cost.currency, increase),
                    label=label,
                    schema=digest(self.domain),
                    covered=not increase,
                ) as request:
                    if request.values is not None:
                        forget(before)
                        return request.key, unpack(request.values)
                    if not request.replay:
                        settle(totals, paid=True)
                    data = pack(draw())
                    request.store(data)
                    return request.key, unpack(data)
            except BudgetExceededError:
                forget(before)
                raise


def _plus(true: Array, noise: Array) -> Array:
    """Integers that never wrap around."""
    if max(largest(true), largest(noise)) < SAFE:
        return np.asarray(true + noise)
    return np.asarray(true.astype(object) + noise)
