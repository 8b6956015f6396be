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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, astuple, dataclass, replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Literal, NamedTuple, cast

from psephos.errors import BudgetError, LedgerError
from psephos.kernel.budget import Budget, Currency

Kind = Literal["header", "charge", "stored"]
Body = dict[str, Any]
_LONGEST = 10**300  # numerator or denominator of one amount
_LONGEST_SUM = 10**4000  # of the sum of many


class Record(NamedTuple):
    """One line of the ledger."""

    number: int
    kind: Kind
    key: str
    body: str
    link: str

    @classmethod
    def after(cls, link: str, number: int, kind: Kind, key: str, body: Body) -> Record:
        """The record that follows one with this link."""
        record = cls(number, kind, key, json.dumps(body, sort_keys=True), "")
        return record._replace(link=record.link_after(link))

    def link_after(self, link: str) -> str:
        """The link that this record has behind one with the given link."""
        text = json.dumps([link, *self[:4]], default=repr)
        return hashlib.sha256(text.encode()).hexdigest()

    def read(self) -> Body:
        """The body, as plain values."""
        return cast(Body, json.loads(self.body))

    def __str__(self) -> str:
        return f"record {self.number} ({self.kind})"


@dataclass(frozen=True)
class Entry:
    """One charge, with the hash of its values if they were stored; `number` is its record's."""

    number: int
    key: str
    link: str
    cost: Budget
    time: str
    label: str
    fingerprint: str
    schema: str
    values_hash: str | None = None


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
        with suppress(KeyError, TypeError):
            anchor = cls(fields["dataset_id"], fields["entries"], fields["head"])
            if [type(part) for part in astuple(anchor)] == [str, int, str]:
                return anchor
        raise LedgerError("an anchor has a dataset_id, a number of entries and the head's hash")

    def check(self, dataset_id: str, records: Sequence[Record]) -> None:
        """Refuse records that lack the anchored one, or have another in its place."""
        if self.dataset_id != dataset_id:
            raise LedgerError("the anchor is that of another data set")
        links = [record.link for record in records if record.number == self.entries]
        if not links:
            raise LedgerError(f"record {self.entries} is missing: an older copy was put back")
        if links != [self.head]:
            raise LedgerError(f"record {self.entries} was rewritten since the anchor was taken")


@contextmanager
def reading(record: Record) -> Iterator[Body]:
    """The body of a record; whatever does not fit while it is read is told in words."""
    try:
        yield record.read()
    except (ValueError, KeyError, TypeError, ArithmeticError):
        raise LedgerError(f"{record} makes no sense") from None


def entries_of(records: Sequence[Record], currency: Currency) -> list[Entry]:
    """The charges, each with its exact cost and the hash of the values it paid for."""
    found: dict[str, Entry] = {}
    for record in records:
        with reading(record) as body:
            if record.kind == "stored":
                found[record.key] = replace(found[record.key], values_hash=body["sha256"])
            elif record.number > 0:
                body = {**body, "cost": Budget(currency, Fraction(body["cost"]))}
                found[record.key] = Entry(record.number, record.key, record.link, **body)
    return list(found.values())


def check_chain(records: Sequence[Record], last: int, head: str) -> None:
    """Walk the chain to the record `last` whose link is `head`; name the first that is wrong."""
    held, link = {record.number: record for record in records}, ""
    for number in range(last + 1):
        if number not in held:
            raise LedgerError(f"record {number} is missing")
        if held[number].link != held[number].link_after(link):
            raise LedgerError(f"{held[number]} was changed, or moved from its place")
        link = held[number].link
    if len(records) != last + 1 or link != head:
        raise LedgerError(f"{records[-1]} is not the one that was written last")


def checked(amount: Any, what: str, least: int = 1) -> Budget:
    """A private copy of an amount above 0 (or 0, if `least` is); only a plain Budget will do."""
    exact = type(amount) is Budget and type(amount.amount) is Fraction
    if not exact or amount.currency not in ("epsilon", "rho"):  # it may have been forged
        raise BudgetError(f'{what} is written epsilon("0.1") or rho("1/200")')
    top, bottom = map(int, amount.amount.as_integer_ratio())
    if not (least <= top < _LONGEST and 0 < bottom < _LONGEST):
        raise BudgetError(f"{what} must be more than 0, in at most 300 digits, got {top}/{bottom}")
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
