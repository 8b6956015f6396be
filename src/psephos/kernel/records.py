"""What a ledger writes down: a chain of records, each hashed together with all before it.

Record 0 is the header: data set, unit and budget, for life. Then come charges, and the hashes of
values that were stored and may have been shown. Every record carries the exact sum that is spent
once it is written, so the last one is the state of the ledger. A record's link is

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
from typing import Any, Literal, NamedTuple

from psephos.errors import BudgetError, LedgerError
from psephos.kernel.budget import Budget, Currency

Kind = Literal["header", "charge", "stored"]
Body = dict[str, Any]
_LONGEST = 10**4000  # numerator or denominator of the sum of all charges


class Record(NamedTuple):
    """One line of the ledger."""

    number: int
    kind: Kind
    key: str
    body: str
    link: str

    @classmethod
    def after(cls, before: Record | None, kind: Kind, key: str, body: Body) -> Record:
        """The next record, with the sum that is spent by then; the header comes after None."""
        number, spent = (before.number + 1, before.spent) if before else (0, Fraction(0))
        spent += Fraction(body.get("cost", 0))
        if max(spent.as_integer_ratio()) >= _LONGEST:
            raise BudgetError("the sum of all charges has over 4000 digits; charge rounder amounts")
        text = json.dumps({**body, "spent": str(spent)}, sort_keys=True)
        unlinked = cls(number, kind, key, text, "")
        return unlinked._replace(link=unlinked.link_after(before))

    def link_after(self, before: Record | None) -> str:
        """The link that this record has behind another."""
        text = json.dumps([before.link if before else "", *self[:4]], default=repr)
        return hashlib.sha256(text.encode()).hexdigest()

    @contextmanager
    def read(self) -> Iterator[Body]:
        """The body; whatever does not fit while it is read is told in words."""
        try:
            yield json.loads(self.body)
        except (ValueError, KeyError, TypeError, ArithmeticError):
            raise LedgerError(f"{self} makes no sense") from None

    @property
    def spent(self) -> Fraction:
        """The sum of all charges up to this record."""
        with self.read() as body:
            return Fraction(body["spent"])

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


def entries_of(records: Sequence[Record], currency: Currency) -> list[Entry]:
    """The charges, each with its exact cost and the hash of the values it paid for."""
    found: dict[str, Entry] = {}
    for record in records:
        with record.read() as body:
            del body["spent"]
            if record.kind == "stored":
                found[record.key] = replace(found[record.key], values_hash=body["sha256"])
            elif record.number > 0:
                body["cost"] = Budget(currency, Fraction(body["cost"]))
                found[record.key] = Entry(record.number, record.key, record.link, **body)
    return list(found.values())


def check_chain(records: Sequence[Record]) -> None:
    """Walk the chain from the header on; name the first record that is wrong."""
    before, spent = None, Fraction(0)
    for number, record in enumerate(records):
        if record.number != number:
            raise LedgerError(f"record {number} is missing")
        if record.link != record.link_after(before):
            raise LedgerError(f"{record} was changed, or moved from its place")
        said = record.spent
        with record.read() as body:
            spent += Fraction(body.get("cost", 0))
        if said != spent:
            raise LedgerError(f"{record} says that {said} is spent, the charges add up to {spent}")
        before = record


def plain(text: Any, what: str) -> str:
    """Printable text of 1 to 1000 characters."""
    if not isinstance(text, str) or not text.isprintable() or not 0 < len(text) <= 1000:
        raise BudgetError(f"{what} is printable text of 1 to 1000 characters, got {text!r:.60}")
    return text


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
