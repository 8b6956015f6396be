"""What a ledger writes down: a chain of records, each hashed together with all before it.

Record 0 is the header: data set, unit and budget, for life. Then come charges, and the hashes of
values that were stored and may have been shown. A record's link is

    link = sha256([link before, number, kind, key, body])

so that an edit, a swap or a gap breaks the chain where it was made.

Privacy: nothing here is read from data. Keys, labels, fingerprints and schemas are what was asked;
the hashes are those of noisy values. A charge carries its time, taken before the data are touched;
stored values carry none, since it would tell how long the counting took.
(tests/kernel/test_ledger.py::test_records_hold_only_what_was_asked)
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Literal, cast

from psephos.errors import BudgetError, LedgerError
from psephos.kernel.budget import Budget, Currency
from psephos.kernel.unit import Unit, as_record, unit_from

Kind = Literal["header", "charge", "stored"]
_LONGEST = 10**300  # numerator or denominator of one amount
_LONGEST_SUM = 10**4000  # of the sum of many


@dataclass(frozen=True)
class Record:
    """One line of the ledger."""

    number: int
    kind: Kind
    key: str
    body: str
    link: str

    @classmethod
    def after(cls, link: str, number: int, kind: Kind, key: str, body: dict[str, Any]) -> Record:
        """The record that follows one with this link."""
        text = json.dumps(body, sort_keys=True)
        return cls(number, kind, key, text, _link(link, number, kind, key, text))

    def follows(self, link: str) -> bool:
        """Whether the chain holds between a record with this link and this one."""
        return self.link == _link(link, self.number, self.kind, self.key, self.body)

    def read(self) -> dict[str, Any]:
        """The body, as plain values."""
        return cast(dict[str, Any], json.loads(self.body))

    def __str__(self) -> str:
        return f"record {self.number} ({self.kind})"


@dataclass(frozen=True)
class Header:
    """What is fixed for a ledger's life."""

    dataset: str
    dataset_id: str
    unit: Unit
    budget: Budget
    created: str

    def record(self) -> Record:
        """The header as record 0."""
        body = {
            "dataset": self.dataset,
            "dataset_id": self.dataset_id,
            "unit": as_record(self.unit),
            "currency": self.budget.currency,
            "budget": amount_text(self.budget.amount),
            "created": self.created,
        }
        return Record.after("", 0, "header", "", body)

    @classmethod
    def of(cls, records: Sequence[Record]) -> Header:
        """The header that record 0 holds; refused if it was changed."""
        if not records:
            raise LedgerError("record 0 (header) is missing")
        if not records[0].follows(""):
            raise LedgerError("record 0 (header) was changed")
        try:
            body = records[0].read()
            budget = checked(Budget(body["currency"], Fraction(body["budget"])), "a budget")
            name, unit = body["dataset"], unit_from(body["unit"])
            return cls(name, body["dataset_id"], unit, budget, body["created"])
        except (ValueError, KeyError, TypeError, ZeroDivisionError):
            raise LedgerError("record 0 (header) makes no sense") from None


@dataclass(frozen=True)
class Entry:
    """One charge, with the hash of its values if they were stored; `number` is its record's."""

    number: int
    time: str
    key: str
    label: str
    fingerprint: str
    cost: Budget
    schema: str
    values_hash: str | None
    link: str


@dataclass(frozen=True)
class Ticket:
    """What a charge gives back: `replay` if it was made before, `stored` if values are kept."""

    key: str
    number: int
    replay: bool
    stored: bool


@dataclass(frozen=True)
class Anchor:
    """How far a ledger had come; kept elsewhere, it betrays an older copy put back.

    >>> Anchor.from_dict(Anchor("9f" * 16, 2, "0a" * 32).as_dict()).entries
    2
    """

    dataset_id: str
    entries: int
    head: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Anchor:
        """The anchor that `as_dict` wrote down."""
        try:
            anchor = cls(fields["dataset_id"], fields["entries"], fields["head"])
            if [type(part) for part in asdict(anchor).values()] == [str, int, str]:
                return anchor
        except (KeyError, TypeError):
            pass
        raise LedgerError("an anchor has a dataset_id, a number of entries and the head's hash")

    def check(self, dataset_id: str, records: Sequence[Record]) -> None:
        """Refuse records that lack the anchored one, or have another in its place."""
        if self.dataset_id != dataset_id:
            raise LedgerError("the anchor is that of another data set")
        held = {record.number: record.link for record in records}
        if self.entries not in held:
            raise LedgerError(f"record {self.entries} is missing: an older copy was put back")
        if held[self.entries] != self.head:
            raise LedgerError(f"record {self.entries} was rewritten since the anchor was taken")


def entries_of(records: Sequence[Record], currency: Currency) -> list[Entry]:
    """The charges, each with its exact cost and the hash of the values it paid for."""
    found: dict[str, Entry] = {}
    for r in (record for record in records if record.number > 0):
        try:
            body = r.read()
            if r.kind == "stored":
                found[r.key] = replace(found[r.key], values_hash=body["sha256"])
                continue
            cost = checked(Budget(currency, Fraction(body["cost"])), "a cost", least=0)
            words = (body["label"], body["fingerprint"], cost, body["schema"])
            found[r.key] = Entry(r.number, body["time"], r.key, *words, None, r.link)
        except (ValueError, KeyError, TypeError, ZeroDivisionError):
            raise LedgerError(f"{r} makes no sense") from None
    return list(found.values())


def check_chain(records: Sequence[Record], number: int, head: str) -> None:
    """Walk the chain to the record `number` whose link is `head`; name the first that is wrong."""
    link = ""
    for expected, record in enumerate(records):
        if record.number != expected:
            raise LedgerError(f"record {expected} is missing")
        if not record.follows(link):
            raise LedgerError(f"{record} was changed, or moved from its place")
        link = record.link
    if len(records) <= number:
        raise LedgerError(f"record {len(records)} is missing")
    if len(records) > number + 1 or link != head:
        raise LedgerError(f"{records[-1]} is not the one that was written last")


def checked(amount: Any, what: str, least: int = 1) -> Budget:
    """A private copy of an amount above 0 (or 0, if `least` is); only a plain Budget will do."""
    if type(amount) is not Budget or type(amount.amount) is not Fraction:
        given = type(amount).__name__  # its repr may lie, or fail
        raise BudgetError(f'{what} is written epsilon("0.1") or rho("1/200"), got a {given}')
    top, bottom = int(amount.amount.numerator), int(amount.amount.denominator)
    if top < least or bottom < 1:
        raise BudgetError(f"{what} must be more than 0, got {top}/{bottom}")
    if max(top, bottom) >= _LONGEST:
        raise BudgetError(f"{what} has more than 300 digits; round it to fewer")
    if amount.currency not in ("epsilon", "rho"):
        raise BudgetError(f"{what} is in epsilon or rho, got {amount.currency!r}")
    return Budget(amount.currency, Fraction(top, bottom))


def amount_text(amount: Fraction) -> str:
    """An exact amount as "numerator/denominator"."""
    if max(amount.numerator, amount.denominator) >= _LONGEST_SUM:
        raise BudgetError("the sum of all charges needs over 4000 digits; charge rounder amounts")
    return f"{amount.numerator}/{amount.denominator}"


def plain(text: Any, what: str) -> str:
    """Printable text of 1 to 1000 characters."""
    if not isinstance(text, str) or not text.isprintable() or not 0 < len(text) <= 1000:
        raise BudgetError(f"{what} is printable text of 1 to 1000 characters, got {text!r:.60}")
    return text


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _link(previous: str, number: int, kind: str, key: str, body: str) -> str:
    return hashlib.sha256(json.dumps([previous, number, kind, key, body]).encode()).hexdigest()
