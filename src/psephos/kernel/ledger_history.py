"""What a ledger tells its readers: its entries, whether it is whole, and how far it has come.

Nothing is charged by way of this file, and no charge rests on it: it notices what was changed by
hand (tests/kernel/test_ledger_damage.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from fractions import Fraction
from typing import Any

from psephos.errors import LedgerError
from psephos.kernel.budget import Budget, Currency
from psephos.kernel.lineage import Branch, rise
from psephos.kernel.storage import Record, added


@dataclass(frozen=True)
class Entry:
    """What was charged under a key, with the hash of its values if they were stored.

    `price` is that of the request by itself, `booked` what the ledger paid for it; `number` and
    `link` are those of its first charge. `snapshot` names the rows that its values were drawn over,
    or if there are none, those it was charged for last; it is empty in records of old ledgers.
    """

    number: int
    key: str
    link: str
    price: Budget
    booked: Budget
    time: str
    label: str
    fingerprint: str
    schema: str
    snapshot: str = ""
    values_hash: str | None = None


@dataclass(frozen=True)
class Anchor:
    """How far a ledger had come; kept elsewhere, it betrays an older copy put back.

    >>> from dataclasses import asdict
    >>> Anchor.from_dict(asdict(Anchor("9f" * 16, 2, "0a" * 32))).entries
    2
    """

    dataset_id: str
    entries: int
    head: str

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Anchor:
        """The anchor that was written down as the dictionary of its fields."""
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
    """The keys in the order of their charges, with exact amounts and the hash of their values."""
    entries: dict[str, Entry] = {}
    for record in records:
        with record.read() as body:
            if record.kind == "stored":
                before = entries[record.key]
                snapshot = body.get("snapshot", before.snapshot)
                entry = replace(before, values_hash=body["sha256"], snapshot=snapshot)
                entries[record.key] = entry
            elif record.number > 0:
                for name in ("spent", "branches", "asked"):
                    body.pop(name, None)
                for amount in ("price", "booked"):
                    body[amount] = Budget(currency, Fraction(body[amount]))
                entry = Entry(record.number, record.key, record.link, **body)
                if earlier := entries.get(record.key):
                    latest = replace(earlier, price=entry.price, snapshot=entry.snapshot)
                    entry = replace(latest, booked=earlier.booked + entry.booked)
                entries[record.key] = entry
    return list(entries.values())


def check_chain(records: Sequence[Record]) -> None:
    """Walk the chain from the header on; name the first record that is wrong."""
    before, spent = None, Fraction(0)
    for number, record in enumerate(records):
        if record.number != number:
            raise LedgerError(f"record {number} is missing")
        if record.link != record.link_after(before):
            raise LedgerError(f"{record} was changed, or moved from its place")
        with record.read() as body:
            said, spent = Fraction(body["spent"]), added(spent, body)
        if said != spent:
            raise LedgerError(f"{record} says that {said} is spent, the charges add up to {spent}")
        before = record


def check_totals(records: Sequence[Record], held: dict[str, str]) -> None:
    """Work out all charges behind splits again; name the first that was booked otherwise.

    `held` are the totals that the ledger keeps, by their places.
    """
    totals: dict[str, dict[str, Fraction]] = {}
    for record in records:
        if '"branches": [[' not in record.body:  # as JSON writes it nowhere else
            continue
        with record.read() as body:
            branches = [Branch(*names) for names in body["branches"]]
            booked, here = Fraction(body["booked"]), totals.setdefault(body["snapshot"], {})
            due, changed = rise(Fraction(body["asked"]), branches, here)
        if due != booked:
            raise LedgerError(f"{record} says that {booked} was booked, its splits cost {due}")
        here |= changed
    added_up = {
        f"{snapshot} {place}": str(amount)
        for snapshot, here in totals.items()
        for place, amount in here.items()
    }
    if added_up != held:
        raise LedgerError("what parts of splits have asked is not what the charges add up to")
