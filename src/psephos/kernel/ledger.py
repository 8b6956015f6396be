"""The ledger: one file per data set that knows, for good, what was spent.

Anyone may read it; only the kernel charges it and stores in it. A request is charged, then
answered, then remembered, then shown. The vault draws noise between `_charge` and `_store`, and
shows only what `_store` has returned:

    request = ledger._charge(Charge(key, fingerprint, price, label, schema, snapshot, branches))
    if request.values is not None:
        return request.values
    return request._store(draw())

Privacy: a charge is on disk before `_charge` returns, so a crash can waste budget and never win it
back (test_kill_at_random_points). A key shows one answer. If values are stored, they come back as
they were, at no cost; if they were lost they are refused, never drawn again, since someone may have
seen them (test_lost_values_are_refused). If none are, nobody has seen any, and over the rows of the
snapshot that it was charged for a draw is free up to the price that was recorded; what the request
costs beyond it is paid first, in the transaction that looked it up
(test_a_price_that_rose_is_paid). Over rows of another snapshot that holds for a request without a
split above it, since one draw is stored at most and no other request was cheaper for it; behind a
split it is charged as a new one, because other parts may have leaned on its price
(tests/kernel/test_split_model.py: all rules, tried on all short histories). What is booked behind a
split is worked out in the same transaction from what the ledger itself holds, so no interruption,
refusal or replay moves it. Two
who ask under one key may then both draw; but values are stored in one transaction, which takes the
first: the later one drops its own unseen and shows those that stand. So one charge never shows two
answers, and a draw that nobody saw costs nothing (test_one_key_in_two_processes_shows_one_answer).
Sums are exact (or rounded up where they get long) and added inside the transaction that writes
them, so processes together never overspend (test_processes_race_to_exhaustion). The tests are in
tests/kernel/test_ledger*.py.

What a file cannot show: whoever may write it may put back an older copy or cut off the last
records, which grants again what was spent since, or forge every hash in it. A process that has the
ledger open notices; later, only `verify(anchor=...)` does, against an anchor kept elsewhere
(test_an_older_copy_put_back). The file belongs on a local disk of one machine.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple, NoReturn

from psephos.errors import BudgetError, BudgetExceededError, LedgerError, RefusedError, a_path
from psephos.kernel import gate, ledger_history, storage
from psephos.kernel.budget import Budget, exact
from psephos.kernel.ledger_history import Anchor, Entry
from psephos.kernel.lineage import Branch, rise
from psephos.kernel.storage import Data, Record, now
from psephos.kernel.unit import Unit

Place = str | os.PathLike[str]


class Charge(NamedTuple):
    """A request as its book sees it: what, at which price, over which rows, behind which splits.

    Its key is None for a fresh one.
    """

    key: str | None
    fingerprint: str
    price: Budget
    label: str
    schema: str
    snapshot: str
    branches: tuple[Branch, ...] = ()


CHARGED: list[tuple[str, Fraction]] = []
"""What this process has charged, and of which dataset_id; for people, no price rests on it."""
OTHER_COPY = "since it was last seen here, an older copy was put back, or another ledger"


@dataclass(frozen=True, eq=False, repr=False)
class Ledger:
    """What may be spent on a data set, what was, and on what.

    >>> import tempfile
    >>> from psephos.kernel.budget import epsilon
    >>> from psephos.kernel.unit import add_remove_row
    >>> file = tempfile.mkdtemp() + "/people.ledger"
    >>> ledger = Ledger.create(file, dataset="people", unit=add_remove_row(), budget=epsilon("1"))
    >>> ledger.remaining()
    epsilon 1
    >>> Ledger.open(file)
    Ledger('people', add or remove one row: epsilon 0 spent of epsilon 1)
    """

    path: Path
    dataset: str
    dataset_id: str
    unit: Unit
    budget: Budget
    _seen: list[Record]  # the header, and the last record that was there

    @classmethod
    def create(cls, path: Place, *, dataset: str, unit: Unit, budget: Budget) -> Ledger:
        """A new ledger, once for each data set; its unit and its budget are for life.

        Privacy: a path that is taken is refused, so no budget is given twice; a crash leaves a
        whole ledger, or an empty file that holds no budget, which `open` says
        (test_create_refuses_what_is_there, test_create_is_whole_or_empty).
        """
        limit = gate.budget(budget, "a budget")
        header = {
            "dataset": gate.text(dataset, "the name of a data set"),
            "dataset_id": secrets.token_hex(16),
            "unit": asdict(gate.admit(unit, "unit")),
            "currency": limit.currency,
            "budget": str(limit.amount),
            "created": now(),
        }
        place = os.path.abspath(a_path(path, "a ledger", LedgerError))
        storage.build(place, Record.after(None, "header", "", header))
        return cls.open(place)

    @classmethod
    def open(cls, path: Place) -> Ledger:
        """The ledger at a path.

        Privacy: a missing one is refused, so that a mistyped path mints no fresh budget
        (test_open_refuses).
        """
        place = os.path.realpath(a_path(path, "a ledger", LedgerError))
        if not os.path.isfile(place):
            raise LedgerError(
                f"there is no ledger at {place}. Check the path; the owner of the data makes one, "
                "once: psephos check RELEASE --create-ledger, or Ledger.create in Python"
            )
        with storage.operation(place) as db:
            header = storage.fetch(db, "number = 0")
            if not header or header[0].link != header[0].link_after(None):
                raise LedgerError(f"record 0 (header) {'was changed' if header else 'is missing'}")
            with header[0].read() as body:
                unit = Unit(**body["unit"])
                budget = Budget(body["currency"], exact(body["budget"], "its budget"))
                name, identity = body["dataset"], body["dataset_id"]
        ledger = cls(Path(place), name, identity, unit, budget, header)
        ledger.anchor()  # from here on, an older copy put back is noticed
        return ledger

    def spent(self) -> Budget:
        """The sum of all charges."""
        with self._operation() as db:
            return Budget(self.budget.currency, storage.last(db).spent)

    def remaining(self) -> Budget:
        """What may still be spent."""
        return self.budget - self.spent()

    def paid(self, key: str) -> Budget:
        """What was charged under a key, and under those that begin with it and a space."""
        paid = Budget(self.budget.currency, Fraction(0))
        for entry in self.history():
            if key and (entry.key == key or entry.key.startswith(f"{key} step ")):
                paid += entry.booked
        return paid

    def history(self) -> list[Entry]:
        """Every charge, in order."""
        with self._operation() as db:
            return ledger_history.entries_of(storage.fetch(db), self.budget.currency)

    def anchor(self) -> Anchor:
        """How far the ledger has come; keep it elsewhere, and give it to `verify` later."""
        with self._operation() as db:
            last = storage.last(db)
        return Anchor(self.dataset_id, last.number, last.link)

    def verify(self, *, anchor: Anchor | None = None) -> None:
        """Read the whole ledger again; a LedgerError names the first record that is wrong.

        Checked are the chain of hashes, the sums of all charges, the stored values, and
        that the ledger holds what it held when the anchor was taken.

        Privacy: edits and gaps are found by anyone; a ledger that is whole but older, or forged
        throughout, only with an anchor from elsewhere (test_verify_names_what_was_changed,
        test_an_older_copy_put_back).
        """
        with self._operation() as db:
            held = storage.fetch(db)
            ledger_history.check_chain(held)
            ledger_history.check_totals(held, storage.all_totals(db))
            entries = ledger_history.entries_of(held, self.budget.currency)
            spent = Budget(self.budget.currency, held[-1].spent)
            if spent > self.budget:
                raise LedgerError(f"{spent} was spent of {self.budget}")
            if anchor is not None:
                anchor.check(self.dataset_id, held)
            for entry in entries:
                storage.kept(db, entry.key)

    def _charge(self, charge: Charge) -> Request | BudgetError:
        """Charge a request under its key; what the key has paid for costs nothing.

        A refusal is returned: whatever is raised may come after the charge, or from elsewhere.

        Privacy: the charge is on disk when this returns, the sum of all charges is at most the
        budget, and so is every price (test_three_tenths, test_charges_follow_the_model). A key is
        good for one fingerprint, and so for one lineage, query and spend; another one is refused
        (test_a_key_is_good_for_one_request).
        """
        price = gate.budget(charge.price, "a price")
        key = secrets.token_hex(16) if charge.key is None else gate.text(charge.key, "a key")
        with self._operation("BEGIN IMMEDIATE") as db:
            storage.upgrade(db)
            before, last = storage.fetch(db, "key = ?", key), storage.last(db)
            values = storage.kept(db, key)
            if before:
                with before[0].read() as first, before[-1].read() as latest:
                    paid, label = first["fingerprint"], first["label"]
                    rows = latest.get("snapshot", "")
                if paid != charge.fingerprint:
                    other = f"another request, {before[0]}, {label!r:.60}"
                    return LedgerError(f"key {key!r} belongs to {other}; ask with a new key")
                if values is not None:
                    return Request(self, key, rows, True, values)
            amount = price.amount - _price_paid(before, charge)
            if amount <= 0:
                return Request(self, key, charge.snapshot, True, None)
            totals = storage.totals_of(db, charge.snapshot, charge.branches)
            booked, changed = rise(amount, charge.branches, totals)
            spent = Budget(self.budget.currency, last.spent)
            due = price if price > self.budget else Budget(price.currency, booked)
            left = self.budget - spent
            if storage.added(last.spent, {"booked": due.amount}) > self.budget.amount:
                state = f"{left} remains of {self.budget}, since {spent} is spent"
                text = f"this measurement costs {due}; {state}. Nothing was charged"
                return BudgetExceededError(text, due, left)
            amounts = {"price": price.amount, "asked": amount, "booked": booked}
            body = charge._asdict() | {name: str(each) for name, each in amounts.items()}
            del body["key"]
            storage.append(db, Record.after(last, "charge", key, body | {"time": now()}))
            storage.set_totals(db, charge.snapshot, changed)
            CHARGED.append((self.dataset_id, booked))
            return Request(self, key, charge.snapshot, bool(before), None)

    @contextmanager
    def _operation(self, begin: str = "BEGIN") -> Iterator[sqlite3.Connection]:
        """A transaction on the ledger that was opened, at least as far as it was last seen."""
        with storage.TURN:  # so that of two threads the later one is remembered
            with storage.operation(str(self.path), begin) as db:
                for seen in self._seen:
                    if storage.fetch(db, "number = ?", seen.number) != [seen]:
                        raise LedgerError(f"{seen} is missing or changed: {OTHER_COPY}")
                yield db
                last = storage.last(db)
            self._seen[1:] = [last]

    def __repr__(self) -> str:
        try:
            state = f"{self.spent()} spent of {self.budget}"
        except LedgerError as error:
            state = error.reason
        return f"Ledger({self.dataset!r}, {self.unit}: {state})"

    def __reduce__(self) -> NoReturn:
        raise RefusedError(f"a ledger is not copied; write Ledger.open({str(self.path)!r}) there")


@dataclass(frozen=True, eq=False, repr=False)
class Request:
    """A request that was charged; `values` are its stored bytes, or None as yet.

    `snapshot` names the rows that they were, or are to be, drawn over.
    """

    _ledger: Ledger
    key: str
    snapshot: str
    replay: bool
    values: Data | None

    def _store(self, data: bytes | memoryview) -> Data:
        """Keep the values for good, unless others are kept: what this returns may be shown.

        Privacy: what stands is read or written in one transaction, and on disk when this returns;
        after an error nothing may be shown (test_a_key_keeps_its_first_values).
        """
        if type(data) not in (bytes, memoryview):
            raise BudgetError(f"values are stored as bytes, got {type(data).__name__}")
        with self._ledger._operation("BEGIN IMMEDIATE") as db:
            standing = storage.kept(db, self.key)
            if standing is None:
                storage.keep(db, self.key, data, self.snapshot)
        return data if standing is None else standing


def _price_paid(records: Sequence[Record], charge: Charge) -> Fraction:
    """What the key of an unanswered request has paid for a draw over this snapshot's rows.

    Without a split above it that is its price in any snapshot, behind one only in this.
    """
    prices = [Fraction(0)]
    for record in records:
        with record.read() as body:
            if not charge.branches or body.get("snapshot") == charge.snapshot:
                prices.append(Fraction(body["price"]))
    return max(prices)
