"""Requests as a bundle keeps them: what was asked, what came of it, and the charge.

    requests/1/strategy.bin           what was measured: integer queries and their weights; of a
                                      step of a plan question.bin: its kind, question and spend
    requests/1/measurements.parquet   what came of it: noisy integers, a number, or lengths
    requests/1/receipt.json           the charge in the ledger, and how far the ledger had come

A bundle holds a list of them: those of the releases that it builds on, then those of its own
release, one for each step of its plan. Tables of persons have theirs in a folder of their own. The
manifest says of each whose it is: key, edition and spend.

What a request is, the kernel says: it is asked once more of a handle that has its record in place
of data (`psephos.kernel.replay`), so that noise, lineage and the ledger's name for it are worked
out by the code that was paid.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Protocol, Self, TypeVar

from psephos.domain.domain import Domain
from psephos.errors import RefusedError, ReleaseError
from psephos.infer.least_squares import edition_words
from psephos.kernel import gate
from psephos.kernel.budget import Budget, Currency, epsilon, rho
from psephos.kernel.ledger import Ledger
from psephos.kernel.measurement import Measurement, pack
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.recorded_ledger import RecordedLedger, RequestRecord
from psephos.kernel.replay import replayed
from psephos.kernel.unit import Unit
from psephos.release.bundle.files import (
    read_integers,
    read_json,
    report_damage,
    write_column,
    write_json,
)
from psephos.release.bundle.shapes import (
    ManifestShape,
    ReceiptShape,
    RehearsedShape,
    check_shape,
)
from psephos.release.spec.asked_cells import ASKED_FILE, AskedCells, measured_schema
from psephos.strategy import strategy as strategy_files
from psephos.strategy.strategy import Strategy
from psephos.values import Array

BUNDLE_FORMAT = 9
REQUESTS_FOLDER = "requests"
STRATEGY_FILE, QUESTION_FILE = "strategy.bin", "question.bin"
VALUES_FILE, RECEIPT_FILE = "measurements.parquet", "receipt.json"
REHEARSAL = "rehearsal"
"""The key of what is measured on synthetic data."""


class Question(Protocol):
    """What a request asked of a table of rows."""

    @property
    def declared(self) -> Domain:
        """The schema of the table."""

    @property
    def size(self) -> int:
        """How many integers answer it."""

    @property
    def file_names(self) -> tuple[str, ...]:
        """Its files in a bundle."""

    def write(self, folder: Path) -> None:
        """Write them."""

    def facts(self, edition: str) -> dict[str, Any]:
        """What a manifest says of it, beside what it says of every request."""

    def price(self, spend: Budget, currency: Currency) -> Budget:
        """What a ledger of a currency books for it."""

    def measure(self, table: ProtectedTable, spend: Budget, key: str) -> Measurement:
        """What comes of asking it."""


Q = TypeVar("Q", bound=Question)


@dataclass(frozen=True, eq=False)
class ReleaseRequest(Generic[Q]):
    """A question, what was spent on it, the integers that came of it, and the receipt."""

    name: str
    """Of the release that made the request."""
    question: Q
    spend: Budget
    key: str
    """Under which it was paid for."""
    edition: str
    """Which state of the data was asked."""
    values: Array
    receipt: dict[str, Any]
    unit: Unit
    simulation: bool = False

    @classmethod
    def open(
        cls, folder: Path, question: Q, facts: dict[str, Any], unit: Unit, name: str = ""
    ) -> Self:
        """The request in a folder, of which the manifest says these facts."""
        with report_damage(folder):
            return cls(
                name or facts["name"],
                question,
                spend_of(facts),
                facts["key"],
                facts["edition"],
                read_integers(folder / VALUES_FILE, "value", question.size),
                read_receipt(folder),
                unit,
                facts["simulation"],
            )

    def write(self, folder: Path) -> None:
        """The files of the request."""
        folder.mkdir(parents=True)
        self.question.write(folder)
        write_json(folder / RECEIPT_FILE, self.receipt)
        write_column(folder / VALUES_FILE, "value", self.values)

    @property
    def file_names(self) -> tuple[str, ...]:
        """The names of its files."""
        return (*self.question.file_names, VALUES_FILE, RECEIPT_FILE)

    def facts(self) -> dict[str, Any]:
        """What a manifest says of it."""
        return {
            "name": self.name,
            "simulation": self.simulation,
            "key": self.key,
            "edition": self.edition,
            "spend": [self.spend.currency, str(self.spend.amount)],
            **self.question.facts(self.edition),
        }

    @property
    def values_hash(self) -> str:
        """Of the integers, as the ledger stored them."""
        return hashlib.sha256(bytes(pack(self.values))).hexdigest()

    def price(self, currency: Currency) -> Budget:
        """What a ledger of a currency books for it."""
        return self.question.price(self.spend, currency)

    @cached_property
    def measurement(self) -> Measurement:
        """The integers, with the noise that was added to them."""
        return self._measured_again(None)

    def _measured_again(self, fingerprint: str | None) -> Measurement:
        """What the kernel says of the request, of which the ledger has this name."""
        record = RequestRecord(fingerprint, self.key, self.values)
        ledger = RecordedLedger(self.unit, self.spend, self.receipt["dataset_id"], [record])
        schema, edition = self.question.declared, self.edition
        table = replayed(schema, ledger, edition=edition, simulation=self.simulation)
        return self.question.measure(table, self.spend, self.key)

    def check_receipt(self, schema: str = "") -> None:
        """Refuse a receipt that is not for this question, at this spend, with these integers.

        A step of a plan is named when all its steps are taken again; of it the schema is given.
        """
        if self.simulation:
            raise RefusedError("this is a simulation on made-up or public data; it has no release")
        try:
            if not schema:
                measured = self._measured_again(self.receipt["charge"]["fingerprint"])
                schema = gate.fingerprint(measured.domain)
            self.check_charge(schema)
        except (KeyError, IndexError, TypeError, AttributeError):
            raise ReleaseError(f"the receipt of {self.name!r} is damaged") from None

    def check_charge(self, schema: str) -> None:
        """Refuse a receipt whose charge is not for this key, schema, price and result."""
        charge, price = self.receipt["charge"], self.price(self.receipt["budget"][0])
        if charge["schema"] != schema:
            raise ReleaseError("the charge was made for another schema")
        if charge["key"] != self.key:
            raise ReleaseError("the charge was made for another query, or at another spend")
        if not self.key.startswith(f"release {self.name[:200]} "):
            raise ReleaseError(f"the charge was not made for a release called {self.name!r}")
        written = [price.currency, str(price.amount)]
        if [charge["price"], charge["booked"]] != [written, written]:
            amount = " ".join(charge["booked"])
            raise ReleaseError(f"the charge is {amount}, the noise is that of {self.spend}")
        if charge["values_hash"] != self.values_hash:
            raise ReleaseError("the noisy integers are not those that the ledger stored")
        if self.receipt["unit"] != str(self.unit):
            raise ReleaseError(f"the ledger protects by {self.receipt['unit']}")


@dataclass(frozen=True, eq=False)
class StrategyQuestion:
    """A strategy, asked of cells of a table."""

    strategy: Strategy
    cells: AskedCells
    """The cells that were measured."""

    @classmethod
    def read(cls, folder: Path, declared: Domain) -> StrategyQuestion:
        """The question in a folder."""
        with report_damage(folder):
            cells = AskedCells.read(folder / ASKED_FILE, declared)
            return cls(strategy_files.load(folder / STRATEGY_FILE, cells.domain), cells)

    @property
    def declared(self) -> Domain:
        return self.cells.declared

    @property
    def size(self) -> int:
        return self.strategy.query.shape[0]

    @property
    def file_names(self) -> tuple[str, ...]:
        """The strategy, and the cells that it was asked of where values are joined."""
        return (STRATEGY_FILE,) if self.cells.is_whole else (STRATEGY_FILE, ASKED_FILE)

    def write(self, folder: Path) -> None:
        strategy_files.save(self.strategy, folder / STRATEGY_FILE)
        if not self.cells.is_whole:
            (folder / ASKED_FILE).write_bytes(self.cells.to_bytes())

    def facts(self, edition: str) -> dict[str, Any]:
        """The kernel's name for what was measured."""
        return {"lineage": list(self.cells.lineage(edition))}

    def price(self, spend: Budget, currency: Currency) -> Budget:
        """What a ledger of a currency books for it."""
        return spend.booked(currency)

    def measure(self, table: ProtectedTable, spend: Budget, key: str) -> Measurement:
        """The noisy answers."""
        vector = self.cells.of(table).vectorise()
        return vector.measure(self.strategy.query, spend=spend, key=key)

    def over(self, cells: AskedCells, measurement: Measurement) -> Measurement:
        """What was measured, over its own cells or finer ones."""
        same = self.cells.is_same(cells)
        return measurement if same else self.cells.lifted(measurement, cells)


MeasuredRequest = ReleaseRequest[StrategyQuestion]
"""A request of the best strategy, on which other releases can build."""


def check_in_ledger(receipt: dict[str, Any], key: str, ledger: Ledger) -> None:
    """Refuse a receipt that is not, to the letter, what the ledger holds under a key."""
    held = receipt_of(ledger, key)
    if {**held, "anchor": None} != {**receipt, "anchor": None}:
        raise ReleaseError("the receipt is not what the ledger holds under this key")


def read_requests(
    folder: Path, manifest: dict[str, Any], declared: Domain, unit: Unit
) -> list[MeasuredRequest]:
    """All requests of the bundle in a folder, in their order."""
    places = zip(request_folders(manifest), manifest["requests"], strict=True)
    return [
        MeasuredRequest.open(
            folder / name, StrategyQuestion.read(folder / name, declared), facts, unit
        )
        for name, facts in places
    ]


def request_folders(manifest: dict[str, Any]) -> list[str]:
    """Where the files of each request lie in a bundle."""
    return [f"{REQUESTS_FOLDER}/{i + 1}" for i in range(len(manifest["requests"]))]


def read_past(folder: Path, domain: Domain, unit: Unit, edition: str) -> list[MeasuredRequest]:
    """What the bundle in a folder knows: the requests it builds on, then its own."""
    if not (folder / "manifest.json").exists():
        raise ReleaseError(
            f"builds_on: there is no bundle at {folder}; correct the path, or put the bundle back"
        )
    manifest = read_manifest(folder)
    if (manifest.get("method") or {}).get("name", "measure") != "measure":
        raise ReleaseError(
            f"builds_on: {folder} was made by {manifest['method']['name']!r}, a plan that adapts "
            "to the data; only releases that measure a strategy can be built on"
        )
    newest = folder / request_folders(manifest)[-1]
    schema = measured_schema(newest / ASKED_FILE, domain)
    if read_receipt(newest)["charge"].get("schema", schema) != schema:
        raise ReleaseError(
            f"builds_on: {folder} was measured under another schema, or with columns looked at "
            "together in another way; only releases with the same schema can build on each other"
        )
    requests = read_requests(folder, manifest, domain, unit)
    check_edition(requests, folder, edition)
    return requests


def check_edition(requests: Sequence[MeasuredRequest], folder: Path, edition: str) -> None:
    """Refuse to build on measurements of another state of the data."""
    for request in requests:
        if request.edition != edition:
            raise ReleaseError(
                f"builds_on: {request.name!r} in {folder} was measured on another edition of the "
                f"data ({edition_words(request.edition)}) than this release "
                f"({edition_words(edition)}), and rows of different editions are never averaged: "
                "release without builds_on, or, if the source is the same, correct `edition` in "
                "the release file"
            )


def read_receipt(folder: Path) -> dict[str, Any]:
    """The receipt; a rehearsal's has no charge."""
    place = folder / "receipt.json"
    receipt = read_json(place)
    rehearsal = isinstance(receipt, dict) and "rows" in receipt
    check_shape(receipt, RehearsedShape if rehearsal else ReceiptShape, place)
    return {"charge": {}, **receipt}


def last_receipt(folder: Path) -> Any:
    """The receipt of a bundle's last request, whatever it holds; None if there is none to read.

    What a bundle of another format paid for was paid, so nothing else of it is looked at.
    """
    places = [folder / RECEIPT_FILE]  # of a release in parts
    if not (folder / "receipts.bin").is_file():
        requests = (folder / REQUESTS_FOLDER).glob(f"*/{RECEIPT_FILE}")
        numbered = [place for place in requests if place.parent.name.isdecimal()]
        places = sorted(numbered, key=lambda place: int(place.parent.name))
    try:
        return read_json(places[-1]) if places else None
    except ReleaseError:
        return None


def receipt_of(ledger: Ledger, key: str) -> dict[str, Any]:
    """The ledger's own record of a charge, and its anchor; amounts as text."""
    history = ledger.history()
    entry = next((entry for entry in history if entry.key == key), None)
    if entry is None:
        raise ReleaseError(f"the ledger has no charge under {key!r}")
    total = sum(each.booked.amount for each in history if each.number <= entry.number)
    amounts = {
        name: [amount.currency, str(amount.amount)]
        for name, amount in (("price", entry.price), ("booked", entry.booked))
    }
    charge = {**asdict(entry), **amounts}
    if not entry.snapshot:  # of a ledger before snapshots had names
        del charge["snapshot"]
    return {
        "dataset": ledger.dataset,
        "dataset_id": ledger.dataset_id,
        "unit": str(ledger.unit),
        "budget": [ledger.budget.currency, str(ledger.budget.amount)],
        "spent": [ledger.budget.currency, str(total)],
        "charge": charge,
        "anchor": asdict(ledger.anchor()),
    }


def spend_of(facts: dict[str, Any]) -> Budget:
    """What was spent on a request: the noise follows from it."""
    currency, amount = (*facts["spend"], "", "")[:2]
    return epsilon(amount) if currency == "epsilon" else rho(amount)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle, if this version reads it."""
    place = folder / "manifest.json"
    if os.path.isfile(folder):
        raise ReleaseError(
            f"{folder} is a file, not a bundle's folder; give the folder that `psephos release` "
            "wrote (output.bundle in the release file)"
        )
    if not os.path.exists(place):
        raise ReleaseError(
            f"there is no bundle at {folder}: no manifest.json in it; `psephos release` writes one"
        )
    manifest: dict[str, Any] = read_json(place)
    if not isinstance(manifest, dict) or type(manifest.get("format")) is not int:
        raise ReleaseError(f"{place} is damaged: it names no format; get the bundle again")
    if manifest.get("kind") == "parts":
        raise ReleaseError(
            f"{folder} is a release in parts; open it with PartsBundle.open, or ask about it with "
            "`psephos ask BUNDLE SQL --part …`"
        )
    if manifest["format"] != BUNDLE_FORMAT:
        raise ReleaseError(
            f"{folder} has format {manifest['format']}, and this psephos reads {BUNDLE_FORMAT}; "
            "`psephos release` writes it anew from its release file and ledger, which charges "
            "nothing again, or use the version that wrote it"
        )
    check_shape(manifest, ManifestShape, place)
    return manifest
