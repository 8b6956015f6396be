"""The room behind the handles: counts, charges, noise. Nothing here is handed out but results.

The order of every request: admit and price it without looking at data, charge the ledger durably,
then count, draw, store, record, and only then return (see `Ledger.request`).
"""

from __future__ import annotations

import copy
import hashlib
import math
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fractions import Fraction
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from psephos.domain import Domain
from psephos.errors import BudgetError, BudgetExceededError, RefusedError, ShapeError
from psephos.frozen import Array, Value, key_of
from psephos.kernel.budget import Budget
from psephos.kernel.choose import exponential
from psephos.kernel.lineage import Node, forget, settle
from psephos.kernel.measurement import Measurement, Noise, narrow, pack, unpack
from psephos.kernel.noise import DiscreteGaussian, DiscreteLaplace
from psephos.kernel.query import Query
from psephos.kernel.sensitivity import admit_query, answers, largest_entry, sensitivity
from psephos.kernel.source import Cap, Conjunct, Source
from psephos.kernel.unit import Unit
from psephos.matrix import Matrix

if TYPE_CHECKING:
    from psephos.kernel.protected import ProtectedVector


class Asked(Protocol):
    """A request that was charged: its key, whether it was there before, and its stored values."""

    @property
    def key(self) -> str: ...

    @property
    def replay(self) -> bool: ...

    @property
    def values(self) -> bytes | None: ...

    def store(self, data: bytes) -> None:
        """Keep the values before they are shown."""


class Book(Protocol):
    """What pays: the ledger, or the play money of a simulation."""

    @property
    def dataset_id(self) -> str: ...

    @property
    def unit(self) -> Unit: ...

    @property
    def budget(self) -> Budget: ...

    def remaining(self) -> Budget:
        """What is left."""

    def request(
        self,
        key: str | None,
        fingerprint: str,
        cost: Budget,
        *,
        label: str,
        schema: str,
        covered: bool,
    ) -> AbstractContextManager[Asked]:
        """Charge, once per key."""


class Draws(Protocol):
    """Where noise and choices come from: the operating system, or a seed in simulations."""

    @property
    def simulation(self) -> bool: ...

    def noise(self, noise: Noise, size: int) -> Array:
        """Independent draws of the noise."""

    def choice(self, scores: list[int], epsilon: Fraction, sensitivity: int) -> int:
        """A draw of the exponential mechanism."""


@dataclass(frozen=True)
class SystemDraws:
    """Exact integer noise from the operating system's entropy; there is no seed."""

    simulation: bool = False

    def noise(self, noise: Noise, size: int) -> Array:
        return noise.draw(size)

    def choice(self, scores: list[int], epsilon: Fraction, sensitivity: int) -> int:
        return exponential(scores, epsilon, sensitivity)


@dataclass(eq=False)
class Vault:
    """A source, the ledger that pays for looking at it, and counts kept from earlier looks."""

    source: Source
    domain: Domain
    ledger: Book
    cap: Cap | None
    draws: Draws
    kept: dict[Any, Array] = field(default_factory=dict)
    turn: Any = field(default_factory=RLock)
    process: int = field(default_factory=os.getpid)

    @property
    def unit(self) -> Unit:
        return self.ledger.unit

    def over(self, source: Source, domain: Domain) -> Vault:
        """The same ledger over another table; persons were capped at the root."""
        return Vault(source, domain, self.ledger, None, self.draws, turn=self.turn)

    def counts(self, names: tuple[str, ...], keep: tuple[Conjunct, ...]) -> Array:
        """Counts over some attributes, made once; asked for only after a charge."""
        wanted = (names, tuple((c.names, key_of(c.mask)) for c in keep))
        if wanted not in self.kept:
            made = self.source.count(self.domain, names, keep, self.cap)
            self.kept[wanted] = np.asarray(made).reshape(-1)
        return self.kept[wanted]

    def state(self) -> str:
        mark = "simulation, " if self.draws.simulation else ""
        return f"{mark}{self.ledger.remaining()} left of {self.ledger.budget}"

    def measure(
        self, vector: ProtectedVector, query: Query, spend: Budget, key: str | None
    ) -> Measurement:
        """Charge, draw, store, show."""
        spend = self._checked(spend)
        asked = admit_query(query)
        if asked.shape[1] != vector.size:
            raise ShapeError(
                f"the vector has {vector.size:,} cells, the query asks about {asked.shape[1]:,}"
            )
        vector._check_size(asked)
        noise = self._noise(asked, spend, vector._node.stability)
        cost = self._booked(spend, Fraction(1, 2))

        def draw() -> bytes:
            noisy = []
            for block, added in zip(asked.blocks, noise, strict=True):
                true = vector._answers(block.matrix)
                noisy.append(_plus(true, self.draws.noise(added, len(true))))
            return pack(narrow(np.concatenate(noisy)))

        mark = f"measure {digest(asked)} {spend}"
        used, data = self._request(vector._node, mark, cost, key, repr(asked), draw)
        return Measurement(
            dataset_id=self.ledger.dataset_id,
            lineage=vector._node.path,
            domain=vector.domain,
            transform=copy.deepcopy(vector._map),  # the handle goes on using its own
            query=asked,
            values=unpack(data),
            noise=noise,
            cost=cost,
            key=used,
            simulation=self.draws.simulation,
        )

    def choose(
        self, vector: ProtectedVector, queries: Matrix, estimate: Array, spend: Budget,
        key: str | None,
    ) -> int:  # fmt: skip
        """Charge, choose, store, show."""
        spend = self._checked(spend)
        if spend.currency != "epsilon":
            raise BudgetError(f"choosing is paid in epsilon, got {spend}")
        if estimate.shape != (vector.size,) or estimate.dtype.kind not in "iu":
            raise ShapeError(
                f"the estimate must be {vector.size:,} whole numbers, got {estimate.dtype} of "
                f"shape {estimate.shape}"
            )
        vector._check_size(Query.of(queries))
        guess = answers(queries, estimate.astype(np.int64))
        reach = largest_entry(queries)
        if reach == 0:
            raise RefusedError("all queries are zero; there is nothing to choose by")
        epsilon = self.unit.per_distance(spend, vector._node.stability)
        cost = self._booked(spend, Fraction(1, 8))

        def draw() -> bytes:
            true = vector._answers(queries)
            scores = [abs(int(a) - int(b)) for a, b in zip(true, guess, strict=True)]
            return pack(np.array([self.draws.choice(scores, epsilon, reach)], dtype=np.int64))

        mark = f"choose {digest(queries)} {digest(estimate)} {spend}"
        _, data = self._request(vector._node, mark, cost, key, "choose", draw)
        return int(unpack(data)[0])

    def _checked(self, spend: Budget) -> Budget:
        if type(spend) is not Budget:
            raise BudgetError(f'spend is a budget such as epsilon("0.1"), got {spend!r}')
        spend = Budget(spend.currency, spend.amount)  # checked again: it may have been forged
        if spend.amount == 0:
            raise BudgetError(f"spend must be more than 0, got {spend}")
        if self.ledger.budget.currency == "epsilon" and spend.currency == "rho":
            raise BudgetError(f"this ledger keeps epsilon and cannot pay {spend}")
        return spend

    def _booked(self, spend: Budget, factor: Fraction) -> Budget:
        """The cost in the ledger's currency: a pure ε is factor·ε² in rho."""
        if spend.currency == self.ledger.budget.currency:
            return spend
        return Budget("rho", factor * spend.amount**2)

    def _noise(self, query: Query, spend: Budget, reach: int) -> tuple[Noise, ...]:
        """The distribution for each block; scales come from the one amount that is charged."""
        each = self.unit.per_distance(spend, reach)
        if spend.currency == "epsilon":
            delta = sensitivity(query, 1)
            return tuple(DiscreteLaplace(delta / (b.weight * each)) for b in query.blocks)
        squared = sensitivity(query, 2)
        return tuple(DiscreteGaussian(squared / (2 * b.weight * each)) for b in query.blocks)

    def _request(
        self, node: Node, mark: str, cost: Budget, key: str | None, label: str,
        draw: Callable[[], bytes],
    ) -> tuple[str, bytes]:  # fmt: skip
        fingerprint = digest((node.path, mark))
        if self.process != os.getpid():  # a lock held by a thread that the fork left behind
            self.turn, self.process = RLock(), os.getpid()
        with self.turn:  # what is priced is settled before another thread prices
            return self._charged(node, fingerprint, cost, key, label, draw)

    def _charged(
        self, node: Node, fingerprint: str, cost: Budget, key: str | None, label: str,
        draw: Callable[[], bytes],
    ) -> tuple[str, bytes]:  # fmt: skip
        increase, totals = node.price(cost.amount)
        before = [(each, each.spent) for each, _ in totals]
        price = Budget(cost.currency, increase)
        settle(totals, paid=False)
        try:
            with self.ledger.request(
                key,
                fingerprint,
                price,
                label=label,
                schema=digest(self.domain),
                covered=not increase,
            ) as request:
                if request.values is not None:
                    forget(before)
                    return request.key, request.values
                if not request.replay:
                    settle(totals, paid=True)
                data = draw()
                request.store(data)
                return request.key, data
        except BudgetExceededError:
            forget(before)
            raise


def _plus(true: Array, noise: Array) -> Array:
    """Integers that never wrap around."""
    small = true.dtype != object and noise.dtype != object
    if small and true.size and max(abs(int(true.max())), abs(int(true.min()))) < 1 << 62:
        bound = max(abs(int(noise.max())), abs(int(noise.min())))
        if bound < 1 << 62:
            return np.asarray(true + noise)
    return np.asarray(true.astype(object) + noise.astype(object))


def digest(value: Any) -> str:
    """A name for a value: equal values, equal names, in every process."""
    return hashlib.sha256(repr(_plain(value)).encode()).hexdigest()


def _plain(value: Any) -> Any:
    if isinstance(value, Value):
        return _plain(value._key())
    if isinstance(value, np.ndarray):
        return key_of(value)
    if isinstance(value, tuple | list):
        return tuple(_plain(item) for item in value)
    return value


@dataclass(frozen=True, eq=False)
class Grouped:
    """The table that group_by makes: one row per declared group, with its count cut at `most`."""

    vault: Vault
    names: tuple[str, ...]
    keep: tuple[Conjunct, ...]
    shape: tuple[int, ...]
    most: int

    def count(
        self, domain: Domain, attributes: tuple[str, ...], keep: tuple[Conjunct, ...],
        cap: Cap | None,
    ) -> Array:  # fmt: skip
        """Counts of groups; `keep` masks groups by their attributes and counts."""
        sizes = np.minimum(self.vault.counts(self.names, self.keep), self.most)
        table = np.zeros((math.prod(self.shape), self.most + 1), dtype=np.int64)
        table[np.arange(len(sizes)), sizes.astype(np.int64)] = 1
        return summed(table.reshape(domain.shape), domain, attributes, keep)


def summed(
    cells: Array, domain: Domain, attributes: tuple[str, ...], keep: tuple[Conjunct, ...]
) -> Array:
    """Counts over some attributes, of the cells that all of `keep` allow."""
    for conjunct in keep:
        axes = [domain.axis(name) for name in conjunct.names]
        shape = [n if i in axes else 1 for i, n in enumerate(domain.shape)]
        cells = cells * conjunct.mask.transpose(np.argsort(axes)).reshape(shape)
    gone = tuple(i for i, name in enumerate(domain.names) if name not in attributes)
    left = [name for name in domain.names if name in attributes]
    return np.transpose(cells.sum(axis=gone), [left.index(name) for name in attributes])
