"""The ledger: one file per data set that knows, for good, what was spent.

A request is charged, then answered, then remembered, then shown. Whoever draws the noise does so
between `request` and `store`, and shows values only after `store` has returned:

    with ledger.request(key, fingerprint, cost, label="ages", schema="…") as request:
        if request.values is None:
            request.store(draw())
    return request.values

Privacy: a charge is on disk before `request` hands over, so a crash can waste budget and never win
it back (test_kill_at_random_points). A key is answered once: the values that were stored come back
as they were, at no cost; if they were lost they are refused, never drawn again, since someone may
have seen them (test_lost_values_are_refused). Sums are exact and added inside the transaction that
writes them, so processes together never overspend (test_processes_race_to_exhaustion). The tests
are in tests/kernel/test_ledger*.py.

What a file cannot show: whoever may write it may put back an older copy, which grants again what
was spent since, or forge every hash in it. A process that has the ledger open notices; later, only
`verify(anchor=...)` does, against an anchor kept elsewhere (test_an_older_copy_put_back). The file
belongs on a local disk of one machine.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

from psephos.errors import BudgetError, BudgetExceededError, LedgerError, RefusedError
from psephos.kernel import records, storage
from psephos.kernel.budget import Budget
from psephos.kernel.records import Anchor, Entry, Record, checked, entries_of, plain
from psephos.kernel.unit import Unit

Place = str | os.PathLike[str]


@dataclass(frozen=True, eq=False, repr=False)
class Ledger:
    """What may be spent on a data set, what was, and on what.

    >>> import tempfile
    >>> from psephos.kernel.budget import epsilon
    >>> from psephos.kernel.unit import add_remove_row
    >>> file = tempfile.mkdtemp() + "/people.ledger"
    >>> ledger = Ledger.create(file, dataset="people", unit=add_remove_row(), budget=epsilon("1"))
    >>> with ledger.request("ages", "f1", epsilon("0.3"), label="ages", schema="s1") as request:
    ...     request.store(b"noisy counts")
    >>> Ledger.open(file)
    Ledger('people', add or remove one row: epsilon 3/10 (~0.3) spent of epsilon 1)
    """

    path: Path
    dataset: str
    dataset_id: str
    unit: Unit
    budget: Budget
    _header: Record
    _seen: list[Anchor] = field(default_factory=list)

    @classmethod
    def create(cls, path: Place, *, dataset: str, unit: Unit, budget: Budget) -> Ledger:
        """A new ledger, once for each data set; its unit and its budget are for life.

        Privacy: a path that is taken is refused, so no budget is given twice, and a crash leaves
        a whole ledger or none (test_create_refuses_what_is_there, test_create_is_whole_or_not).
        """
        if type(unit) is not Unit:
            raise BudgetError(f"a unit is written add_remove_row() or person(...), got {unit!r}")
        limit = checked(budget, "a budget")
        header = {
            "dataset": plain(dataset, "the name of a data set"),
            "dataset_id": secrets.token_hex(16),
            "unit": asdict(unit),
            "currency": limit.currency,
            "budget": records.amount_text(limit.amount),
            "created": records.now(),
        }
        place = os.path.abspath(os.fsdecode(path))
        with storage.in_words(place):
            storage.build(place, Record.after("", 0, "header", "", header))
        return cls.open(place)

    @classmethod
    def open(cls, path: Place) -> Ledger:
        """The ledger at a path.

        Privacy: a missing one is refused, so that a mistyped path mints no fresh budget
        (test_open_refuses).
        """
        place = os.path.realpath(os.fsdecode(path))
        if not os.path.isfile(place):
            raise LedgerError(
                f"there is no ledger at {place}. Check the path; the owner of the data makes one, "
                "once, with Ledger.create"
            )
        with storage.operation(place) as db:
            found = storage.fetch(db, "number = 0")
            if not found or found[0].link != found[0].link_after(""):
                raise LedgerError(f"record 0 (header) {'was changed' if found else 'is missing'}")
            with records.reading(found[0]) as body:
                unit = Unit(**body["unit"])
                budget = Budget(body["currency"], Fraction(body["budget"]))
                name, identity = body["dataset"], body["dataset_id"]
        ledger = cls(Path(place), name, identity, unit, budget, found[0])
        ledger.anchor()  # from here on, an older copy put back is noticed
        return ledger

    def spent(self) -> Budget:
        """The sum of all charges."""
        with self._operation() as db:
            return self._amount(storage.total(db).spent)

    def remaining(self) -> Budget:
        """What may still be spent."""
        return self.budget - self.spent()

    def history(self) -> list[Entry]:
        """Every charge, in order."""
        with self._operation() as db:
            return entries_of(storage.fetch(db), self.budget.currency)

    def anchor(self) -> Anchor:
        """How far the ledger has come; keep it elsewhere, and give it to `verify` later."""
        with self._operation() as db:
            total = storage.total(db)
        return Anchor(self.dataset_id, total.number, total.head)

    def verify(self, *, anchor: Anchor | None = None) -> None:
        """Read the whole ledger again; a LedgerError names the first record that is wrong.

        Checked are the chain of hashes, the exact sum of all charges, the stored values, and
        that the ledger holds what it held when the anchor was taken.

        Privacy: edits and gaps are found by anyone; a ledger that is whole but older, or forged
        throughout, only with an anchor from elsewhere (test_verify_names_what_was_changed,
        test_an_older_copy_put_back).
        """
        with self._operation() as db:
            total, held = storage.total(db), storage.fetch(db)
            records.check_chain(held, total.number, total.head)
            entries = entries_of(held, self.budget.currency)
            added = sum((entry.cost.amount for entry in entries), Fraction(0))
            if added != total.spent:
                raise LedgerError(f"the total says {total.spent}, the charges add up to {added}")
            if added > self.budget.amount:
                raise LedgerError(f"{self._amount(added)} was spent of {self.budget}")
            if anchor is not None:
                anchor.check(self.dataset_id, held)
        for entry in entries:
            self._values(entry)

    @contextmanager
    def request(
        self,
        key: str | None,
        fingerprint: str,
        cost: Budget,
        *,
        label: str,
        schema: str,
        covered: bool = False,
    ) -> Iterator[Request]:
        """Charge a cost under a key, fresh if None, and hold the key until its values are stored.

        A key that was charged before costs nothing. A cost of nothing is refused unless it is
        `covered`: a part of a split, whose share another part has paid already.

        Privacy: the charge is on disk when this hands over, and the sum of all charges is at most
        the budget (test_three_tenths, test_charges_follow_the_model). A key is good for one
        fingerprint, and so for one lineage, query and spend; another one is refused
        (test_a_key_is_good_for_one_request). Two processes with one key never both draw
        (test_one_key_in_two_processes_is_drawn_once).
        """
        cost = checked(cost, "a cost", least=0 if covered else 1)
        body = {
            "label": str(label),
            "schema": plain(schema, "a schema's fingerprint"),
            "fingerprint": plain(fingerprint, "a fingerprint"),
            "cost": records.amount_text(cost.amount),
        }
        key = secrets.token_hex(16) if key is None else plain(key, "a key")
        with storage.locked(self._side(key, "lock")):
            request = self._book(key, cost, body)
            try:
                yield request
            finally:
                request._holder = None

    def charge(self, key: str | None, fingerprint: str, cost: Budget, **words: Any) -> Request:
        """Charge as `request` does, and hold nothing: values are for a later request to store."""
        with self.request(key, fingerprint, cost, **words) as request:
            pass
        return request

    def _book(self, key: str, cost: Budget, body: records.Body) -> Request:
        """The charge under a key: the one that was made before, or a new one if it fits."""
        with self._operation("BEGIN IMMEDIATE") as db:
            before = held = storage.fetch(db, "key = ?", key)
            if not before:
                total = storage.total(db)
                spent = self._amount(total.spent)
                left = self.budget - spent
                if cost > left:
                    raise BudgetExceededError(
                        f"this measurement costs {cost}; {left} remains of {self.budget}, since "
                        f"{spent} is spent. Nothing was charged",
                        cost,
                        left,
                    )
                held = [storage.append(db, total, "charge", key, {**body, "time": records.now()})]
            entry = entries_of(held, self.budget.currency)[0]
            if entry.fingerprint != body["fingerprint"]:
                raise LedgerError(
                    f"key {key!r} belongs to another request, record {entry.number} (charge), "
                    f"{entry.label!r:.60}; ask with a new key, which is charged"
                )
        return Request(self, entry, replay=bool(before))

    @contextmanager
    def _operation(self, begin: str = "BEGIN") -> Iterator[sqlite3.Connection]:
        """A transaction on the ledger that was opened, at least as far as it was last seen."""
        with storage.TURN:  # so that of two threads the later one is remembered
            with storage.operation(str(self.path), begin) as db:
                if storage.fetch(db, "number = 0") != [self._header]:
                    raise LedgerError("record 0 (header) was changed since this ledger was opened")
                for seen in self._seen:
                    seen.check(self.dataset_id, storage.fetch(db, "number = ?", seen.entries))
                yield db
                total = storage.total(db)
            self._seen[:] = [Anchor(self.dataset_id, total.number, total.head)]

    def _amount(self, amount: Fraction) -> Budget:
        return Budget(self.budget.currency, amount)

    def _side(self, key: str, end: str) -> str:
        """A file for a key: its name tells nothing and fits every file system."""
        return f"{self.path}.values/{hashlib.sha256(key.encode()).hexdigest()}.{end}"

    def _values(self, entry: Entry) -> bytes | None:
        """The values of a charge, if they are the ones that were stored; None if none were."""
        if entry.values_hash is None:
            return None
        place = self._side(entry.key, "values")
        with storage.in_words(place):
            data = Path(place).read_bytes() if os.path.lexists(place) else None
            if data is None or hashlib.sha256(data).hexdigest() != entry.values_hash:
                raise LedgerError(
                    f"the values of record {entry.number} (charge) are "
                    f"{'missing' if data is None else 'not those that were stored'}. They may have "
                    "been seen, so they are not drawn again: bring the file back from a backup"
                )
        return data

    def __repr__(self) -> str:
        try:
            state = f"{self.spent()} spent of {self.budget}"
        except LedgerError as error:
            state = str(error)
        return f"Ledger({self.dataset!r}, {self.unit}: {state})"

    def __reduce__(self) -> NoReturn:
        raise RefusedError(f"a ledger is not copied; write Ledger.open({str(self.path)!r}) there")


class Request:
    """A request that was charged, its key held; `values` are its stored bytes, or None as yet.

    Privacy: values are stored once and by the process that holds the key; after a failure the
    request is over, and nothing of it may be shown (test_a_request_stores_once).
    """

    def __init__(self, ledger: Ledger, entry: Entry, *, replay: bool) -> None:
        self.key, self.number, self.replay = entry.key, entry.number, replay
        self.values = ledger._values(entry)
        self._ledger = ledger
        self._holder: int | None = os.getpid()

    def store(self, data: bytes) -> None:
        """Keep the values for good; only then may they be shown."""
        if type(data) is not bytes:
            raise BudgetError(f"values are stored as bytes, got {type(data).__name__}")
        if self.values is not None or self._holder != os.getpid():
            raise LedgerError(
                f"key {self.key!r} has its values, or is no longer held here: one charge "
                "never shows two answers. Ask again with the same key for the ones that stand"
            )
        self._holder = None  # should this fail, nobody knows what reached the disk
        place = self._ledger._side(self.key, "values")
        with storage.in_words(place):
            storage.write_whole(place, data)
        digest = hashlib.sha256(data).hexdigest()
        with self._ledger._operation("BEGIN IMMEDIATE") as db:
            storage.append(db, storage.total(db), "stored", self.key, {"sha256": digest})
        self.values = data
