"""The room behind the handles: counts, charges, noise. Nothing here is handed out but results.

The order of every request: admit and price it without looking at data, charge the ledger durably,
then count, draw, store, and only then return what stands (see `Ledger._charge`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from threading import RLock
from typing import Any

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
from psephos.kernel.ledger import Charge, Ledger
from psephos.kernel.lineage import Node, process
from psephos.kernel.measurement import pack, unpack
from psephos.kernel.play_money import PlayMoney
from psephos.kernel.recorded_ledger import RecordedLedger
from psephos.kernel.scores.mechanisms import Draws
from psephos.kernel.snapshot import Snapshot
from psephos.kernel.source import Cells, Names
from psephos.kernel.unit import Unit
from psephos.values import Array, key_of

Draw = Callable[[], Array]
MOST_KEPT = 5 * 10**6
"""Counts that are kept for later requests, beside the latest table; older ones are made anew."""


class Vault:
    """A table, the ledger that pays for looking at it, and counts kept from earlier looks.

    `unit` is what neighbours of the table differ in, where that is not the ledger's.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        domain: Domain,
        ledger: Ledger | PlayMoney | RecordedLedger,
        draws: Draws,
        unit: Unit | None = None,
    ) -> None:
        self.snapshot, self.domain, self.ledger, self.draws = snapshot, domain, ledger, draws
        self.unit = ledger.unit if unit is None else unit
        self.table: Callable[[], Any] = snapshot.table
        self.row_abilities = snapshot.row_abilities
        self.schema = gate.fingerprint(domain)
        self.kept: dict[Any, list[Array]] = {}
        self.turns: dict[tuple[int, int], Any] = {}

    def over(self, domain: Domain, table: Callable[[], Any], unit: Unit | None = None) -> Vault:
        """The same ledger and snapshot over a table made of it; requests wait for the same turn.

        `unit` is what neighbours of the other table differ in, if that is less than here.
        """
        vault = Vault(self.snapshot, domain, self.ledger, self.draws, unit or self.unit)
        vault.table, vault.row_abilities, vault.turns = cache(table), frozenset(), self.turns
        return vault

    def tables(self, tables: Sequence[Names], keep: Cells) -> list[Array]:
        """Counts over sets of attributes, made together; asked for only after a charge."""
        place = tuple(tables), masks_of(keep)
        return self.latest(place, lambda: self.table().counts(tables, keep))

    def latest(self, place: Any, counts: Callable[[], list[Array]]) -> list[Array]:
        """Counts that were made before, or are made now; what is oldest is forgotten.

        Privacy: the rows never change, so counts of them do not grow old.
        """
        wanted = self.kept.pop(place, None) or [table.reshape(-1) for table in counts()]
        self.kept[place] = wanted
        sizes = {each: sum(t.size for t in tables) for each, tables in self.kept.items()}
        for oldest in list(sizes)[:-1]:
            if sum(sizes.values()) > MOST_KEPT:
                del self.kept[oldest], sizes[oldest]
        return wanted

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
        price, left = spend.booked(self.ledger.budget.currency), self.ledger.remaining()
        if price > left + self.ledger.paid(key or ""):
            raise BudgetExceededError(f"this costs {price}; {left} remains", price, left)

    def request(
        self, node: Node, fingerprint: str, price: Budget, key: str | None, label: str, draw: Draw
    ) -> tuple[str, Array]:
        """The key and the values of a request, charged to the ledger before they are drawn.

        Privacy: the charge names the snapshot that is drawn from. All requests on one snapshot take
        turns, so that its rows are taken once, and none is made in the middle of another, as a
        signal handler might; a fork leaves its parent's turn behind
        (tests/test_protect.py::test_threads_of_a_forked_child_take_turns). An error shows nothing
        of the frames in which it was raised, since their locals hold counts, and none of the
        owner's paths (tests/attacks/test_logs_of_locals.py).
        """
        here = process()
        turn = self.turns.setdefault(here, RLock())
        try:
            if turn._is_owned():  # this very thread is in the middle of another request
                raise RefusedError("a request is being made; ask again once it is answered")
            with turn:
                rows, branches = self.snapshot.name, node.branches
                charge = Charge(key, fingerprint, price, label, self.schema, rows, branches)
                request = self.ledger._charge(charge)
                if isinstance(request, BudgetError):
                    raise request
                if request.values is not None:
                    return request.key, unpack(request.values)
                if process() != here:
                    raise RefusedError("this process was forked in the middle of a request")
                return request.key, unpack(request._store(pack(draw())))
        except BaseException as error:  # noqa: BLE001 - an interruption has frames, too
            failure = _bare(error.with_traceback(None))
        raise failure  # outside of the handler, so that it has no context

    def __repr__(self) -> str:
        return "Vault(closed)"


def masks_of(keep: Cells) -> tuple[Any, ...]:
    """Names of conditions on rows, by their masks."""
    return tuple((c.names, key_of(c.mask)) for c in keep)


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
