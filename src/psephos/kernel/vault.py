"""The room behind the handles: counts, charges, noise. Nothing here is handed out but results.

The order of every request: admit and price it without looking at data, charge the ledger durably,
then count, draw, store, and only then return what stands (see `Ledger._charge`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from threading import RLock
from typing import Any

import numpy as np

from psephos.domain.bits import RecordTally
from psephos.domain.conjunctions import Conjunctions
from psephos.domain.domain import Domain
from psephos.errors import (
    BudgetError,
    BudgetExceededError,
    LedgerError,
    PsephosError,
    RefusedError,
    SourceError,
)
from psephos.kernel import gate
from psephos.kernel.budget import Budget, Mechanism
from psephos.kernel.ledger import Ledger
from psephos.kernel.lineage import Node, count, process, withdraw
from psephos.kernel.measurement import pack, unpack
from psephos.kernel.play_money import PlayMoney
from psephos.kernel.recorded_ledger import RecordedLedger
from psephos.kernel.scores.dual_query import UndercountedQueries
from psephos.kernel.scores.mechanisms import Draws
from psephos.kernel.source import Cells, GroupedAxis, Names, Source
from psephos.kernel.unit import Unit
from psephos.values import Array, key_of

Draw = Callable[[], Array]
MOST_KEPT = 5 * 10**6
"""Counts that are kept for later requests, beside the latest table; older ones are made anew."""


class Vault:
    """A source, the ledger that pays for looking at it, and counts kept from earlier looks."""

    def __init__(
        self,
        source: Source,
        domain: Domain,
        ledger: Ledger | PlayMoney | RecordedLedger,
        draws: Draws,
        unit: Unit | None = None,
    ) -> None:
        self.source, self.domain, self.ledger, self.draws = source, domain, ledger, draws
        self.unit = ledger.unit if unit is None else unit
        self.schema = gate.fingerprint(domain)
        self.kept: dict[Any, Array] = {}
        self.game: tuple[Names, RecordTally | None, str] = ((), None, "")
        self.turns: dict[tuple[int, int], Any] = {}
        self.state_of_rows: Callable[[], Hashable] = self._state_of_rows

    def over(self, source: Source, domain: Domain, unit: Unit | None = None) -> Vault:
        """The same ledger over another table; its requests wait for the same turn.

        `unit` is what neighbours of the other table differ in, if that is less than here.
        """
        vault = Vault(source, domain, self.ledger, self.draws, unit or self.unit)
        vault.turns, vault.state_of_rows = self.turns, self.state_of_rows
        return vault

    def _state_of_rows(self) -> Hashable:
        """What tells the rows' state from others: fixed for arrays, new each time if unknown."""
        told = getattr(type(self.source), "state", None)
        if not callable(told):
            return None
        try:
            state: Hashable = told(self.source)
        except Exception:  # noqa: BLE001 - an engine's words may hold an entry
            state = None
        return object() if state is None else state

    def counts(self, names: Names, keep: Cells) -> Array:
        """Counts over some attributes; asked for only after a charge."""
        return self.tables([names], keep)[0]

    def tables(self, tables: Sequence[Names], keep: Cells) -> list[Array]:
        """Counts over several sets of attributes, made together; the latest are kept."""
        masks = tuple((c.names, key_of(c.mask)) for c in keep)
        fresh = [names for names in dict.fromkeys(tables) if (names, masks) not in self.kept]
        if fresh:
            counts = self.source.counts(self.domain, fresh, keep, self.ledger.unit.cap)
            for names, table in zip(fresh, counts, strict=True):
                self.kept[names, masks] = np.asarray(table).reshape(-1)
        wanted = [self.kept[names, masks] for names in tables]
        self._forget_oldest()
        return wanted

    def admitted_game(
        self, game: UndercountedQueries, domain: Domain
    ) -> tuple[UndercountedQueries, str]:
        """A round of a game by the kernel's own parts, and a name for its queries.

        Rounds share their queries: those of the last one are compared, not checked and hashed anew;
        and their records, but for the newest, which alone is counted.
        """
        schema, tally, name = self.game
        earlier = tally if schema == domain.names else None
        admitted = UndercountedQueries.admitted(game, domain, earlier)
        queries = admitted.queries
        if earlier is None or queries is not earlier.conjunctions:
            name = gate.fingerprint(queries.attributes, queries.values)
        self.game = domain.names, admitted._tally, name
        return admitted, name

    def conjunctions(self, names: Names, queries: Conjunctions, name: str, keep: Cells) -> Array:
        """In how many rows each conjunction holds; counted once, for all rounds of a game.

        Conjunctions number the named attributes, which may be some of the source's, in any order.
        """
        masks = tuple((c.names, key_of(c.mask)) for c in keep)
        place = (names, name, masks)
        if place not in self.kept:
            if names != self.domain.names:
                queries = queries.renumbered([self.domain.axis(each) for each in names])
            counts = self.source.conjunctions(self.domain, queries, keep, self.ledger.unit.cap)
            self.kept[place] = np.asarray(counts)
        wanted = self.kept[place]
        self._forget_oldest()
        return wanted

    def persons(self, axes: tuple[GroupedAxis, ...], keep: Cells) -> Array:
        """Counts of persons in combinations of groups; asked for only after a charge, and kept."""
        masks = tuple((c.names, key_of(c.mask)) for c in keep)
        place = (
            "persons",
            tuple((name, key_of(groups), size) for name, groups, size in axes),
            masks,
        )
        if place not in self.kept:
            source: Any = self.source
            counts = source.persons(self.domain, axes, keep, self.ledger.unit.cap)
            self.kept[place] = np.asarray(counts).reshape(-1)
        wanted = self.kept[place]
        self._forget_oldest()
        return wanted

    def _forget_oldest(self) -> None:
        numbers = sum(table.size for table in self.kept.values())
        for oldest in list(self.kept)[:-1]:
            if numbers <= MOST_KEPT:
                break
            numbers -= self.kept.pop(oldest).size

    def state(self) -> str:
        """What is left to spend, for people."""
        mark = "simulation, " if self.draws.simulation else ""
        try:
            return f"{mark}{self.ledger.remaining()} left of {self.ledger.budget}"
        except LedgerError as error:
            return error.reason

    def priced(self, spend: Budget, mechanism: Mechanism, draws: int = 1) -> tuple[Budget, Budget]:
        """What is spent, admitted, and its price in the ledger's currency.

        The one place where a price is made: every request comes through here, each time.
        """
        spend = gate.budget(spend, "spend")
        return spend, spend.booked(self.ledger.budget.currency, mechanism, draws)

    def check_budget(self, spend: Budget, key: str | None) -> None:
        """Refuse what the ledger has not left, apart from what a key and its steps have paid.

        This is a courtesy: the ledger decides anew at every charge.
        """
        price = spend.booked(self.ledger.budget.currency)
        left = self.ledger.remaining()
        if price > left and (key is None or price > left + self.ledger.paid(key)):
            raise BudgetExceededError(f"this costs {price}; {left} remains", price, left)

    def request(
        self, node: Node, fingerprint: str, price: Budget, key: str | None, label: str, draw: Draw
    ) -> tuple[str, Array]:
        """The key and the values of a request, charged to the ledger before they are drawn.

        Privacy: all requests on one tree take turns, so that a rise is counted before another is
        found, and none is made in the middle of another, as a signal handler might; a fork leaves
        its parent's turn behind
        (tests/test_protect.py::test_threads_of_a_forked_child_take_turns). Whatever goes wrong is
        told without the frames in which it did, since their locals hold counts, and without the
        owner's paths (tests/attacks/test_logs_of_locals.py).
        """
        here = process()
        turn = self.turns.setdefault(here, RLock())
        try:
            key = None if key is None else gate.text(key, "a key")
            gate.budget(price, "a price")
            if turn._is_owned():  # this very thread is in the middle of another request
                raise RefusedError("a request is being made; ask again once it is answered")
            with turn:
                node.at(self.state_of_rows())
                rises = node.rises(price.amount)
                booked = Budget(price.currency, rises[-1].by)
                words = {"label": label, "schema": self.schema}
                count(rises, "step")
                request = self.ledger._charge(key, fingerprint, price, booked, **words)
                if isinstance(request, BudgetError):
                    withdraw(rises)
                    raise request
                if request.values is not None:
                    withdraw(rises)
                    return request.key, unpack(request.values)
                if process() != here:
                    raise RefusedError("this process was forked in the middle of a request")
                if not request.replay:
                    count(rises, "split")
                return request.key, unpack(request._store(pack(draw())))
        except BaseException as error:  # noqa: BLE001 - an interruption has frames, too
            failure = _bare(error.with_traceback(None))
        raise failure  # outside of the handler, so that it has no context

    def __repr__(self) -> str:
        return "Vault(closed)"


def _bare(error: BaseException) -> BaseException:
    """The error without its traceback, its context and the owner's paths."""
    if isinstance(error, LedgerError):
        return LedgerError(error.reason)
    if isinstance(error, PsephosError):
        error.__cause__ = error.__context__ = None
        return error.with_traceback(None)
    if isinstance(error, MemoryError | KeyboardInterrupt | SystemExit):
        return type(error)()
    remedy = "ask again with the same key, which is not charged twice; the owner may run check"
    return SourceError(f"the request failed inside the kernel, and nothing was shown; {remedy}")
