"""One paid look at the data as a bundle keeps it: the query, its noisy integers, and the charge.

    manifest.json          whose it is: key, edition, lineage, spend
    strategy.bin           what was measured: integer queries and their weights
    measurements.parquet   the noisy integers
    receipt.json           the charge in the ledger, and how far the ledger had come

A bundle has these files of its own measurement, and under past/ those of each one it builds on.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from psephos.domain.domain import Domain
from psephos.errors import ReleaseError
from psephos.infer.least_squares import edition_of, edition_words
from psephos.kernel import gate
from psephos.kernel.budget import Budget, epsilon, rho
from psephos.kernel.ledger import Ledger
from psephos.kernel.lineage import root_name
from psephos.kernel.measurement import Measurement, noise_for, pack, request_fingerprint
from psephos.kernel.unit import Unit
from psephos.release.files import read_integers, read_json, told_of, write_json
from psephos.release.shapes import (
    ManifestShape,
    MeasuredShape,
    ReceiptShape,
    RehearsedShape,
    check_shape,
)
from psephos.strategy import select
from psephos.strategy.strategy import Strategy

FORMAT = 2
PAST = "past"
FILES = ("strategy.bin", "measurements.parquet", "receipt.json")


@dataclass(frozen=True, eq=False)
class Measured:
    """A strategy, what was spent on it, the noisy integers that came of it, and the receipt."""

    name: str
    strategy: Strategy
    spend: Budget
    measurement: Measurement
    receipt: dict[str, Any]

    @classmethod
    def open(cls, folder: Path, domain: Domain, unit: Unit) -> Measured:
        """The one in a folder, if it is of this domain and unit."""
        with told_of(folder):
            return cls._open(folder, domain, unit)

    @classmethod
    def _open(cls, folder: Path, domain: Domain, unit: Unit) -> Measured:
        said = read_manifest(folder)
        spend = spend_of(said)
        receipt = _receipt(folder)
        strategy = select.load(folder / "strategy.bin", domain)
        query = strategy.query
        values = read_integers(folder / "measurements.parquet", "value", query.shape[0])
        measurement = Measurement(
            dataset_id=receipt["dataset_id"],
            lineage=tuple(said["lineage"]),
            domain=domain,
            transform=None,
            query=query,
            values=values,
            noise=noise_for(query, spend, unit, 1),
            cost=spend,
            key=said["key"],
            simulation=said["simulation"],
        )
        measured = cls(said["name"], strategy, spend, measurement, receipt)
        if measured.edition != said["edition"]:
            raise ReleaseError(
                f"{folder / 'manifest.json'} is damaged: {said['edition']!r} is not the edition "
                "that was measured"
            )
        return measured

    def write(self, folder: Path) -> None:
        """The files but for the manifest."""
        select.save(self.strategy, folder / "strategy.bin")
        write_json(folder / "receipt.json", self.receipt)
        values = self.measurement.values
        wide = values.dtype == object
        column = pa.array([str(v) for v in values]) if wide else pa.array(values, type=pa.int64())
        pa.parquet.write_table(pa.table({"value": column}), folder / "measurements.parquet")

    def manifest(self) -> dict[str, Any]:
        """What the manifest says of it."""
        return {
            "format": FORMAT,
            "name": self.name,
            "simulation": self.measurement.simulation,
            "key": self.measurement.key,
            "edition": self.edition,
            "lineage": list(self.measurement.lineage),
            "spend": [self.spend.currency, str(self.spend.amount)],
        }

    @property
    def edition(self) -> str:
        """Which state of the data was measured."""
        return edition_of(self.measurement)

    @property
    def values_hash(self) -> str:
        """Of the noisy integers, as the ledger stored them."""
        return hashlib.sha256(bytes(pack(self.measurement.values))).hexdigest()

    def check_receipt(self, unit: Unit) -> None:
        """Refuse a receipt that is not for this query, on this schema, at this spend."""
        try:
            self._check_receipt(unit)
        except (KeyError, IndexError, TypeError, AttributeError):
            raise ReleaseError(f"the receipt of {self.name!r} is damaged") from None

    def _check_receipt(self, unit: Unit) -> None:
        held, charge = self.receipt, self.receipt["charge"]
        schema = gate.fingerprint(self.measurement.domain)
        lineage = (root_name(schema, self.edition), "vectorise")
        asked = request_fingerprint(lineage, self.strategy.query, self.spend)
        if self.measurement.lineage != lineage or charge["schema"] != schema:
            raise ReleaseError("the charge was made for another schema")
        if charge["fingerprint"] != asked or charge["key"] != self.measurement.key:
            raise ReleaseError("the charge was made for another query, or at another spend")
        if not self.measurement.key.startswith(f"release {self.name[:200]} "):
            raise ReleaseError(f"the charge was not made for a release called {self.name!r}")
        price = booked(self.spend, held["budget"][0])
        written = [price.currency, str(price.amount)]
        if [charge["price"], charge["booked"]] != [written, written]:
            said = " ".join(charge["booked"])
            raise ReleaseError(f"the charge is {said}, the noise is that of {self.spend}")
        if charge["values_hash"] != self.values_hash:
            raise ReleaseError("the noisy integers are not those that the ledger stored")
        if held["unit"] != str(unit):
            raise ReleaseError(f"the ledger protects by {held['unit']}")

    def check_ledger(self, ledger: Ledger) -> None:
        """Refuse a receipt that is not, to the letter, what the ledger holds."""
        found = receipt_of(ledger, self.measurement.key)
        if {**found, "anchor": None} != {**self.receipt, "anchor": None}:
            raise ReleaseError("the receipt is not what the ledger holds under this key")


def read_past(folder: Path, domain: Domain, unit: Unit, edition: str) -> list[Measured]:
    """What the bundle in a folder knows: the measurements it builds on, then its own."""
    if not (folder / "manifest.json").exists():
        raise ReleaseError(
            f"builds_on: there is no bundle at {folder}; correct the path, or put the bundle back"
        )
    schema = gate.fingerprint(domain)
    if _receipt(folder)["charge"].get("schema", schema) != schema:
        raise ReleaseError(
            f"builds_on: {folder} was measured under another schema, or with columns looked at "
            "together in another way; only releases with the same schema can build on each other"
        )
    numbered = [place for place in (folder / PAST).glob("*") if place.name.isdigit()]
    earlier = sorted(numbered, key=lambda place: int(place.name))
    past = [Measured.open(place, domain, unit) for place in [*earlier, folder]]
    for each in past:
        if each.edition != edition:
            raise ReleaseError(
                f"builds_on: {each.name!r} in {folder} was measured on another edition of the data "
                f"({edition_words(each.edition)}) than this release ({edition_words(edition)}), "
                "and rows of different editions are never averaged: release without builds_on, or, "
                "if the source is the same, correct `edition` in the release file"
            )
    return past


def _receipt(folder: Path) -> dict[str, Any]:
    """The receipt; a rehearsal's has no charge."""
    place = folder / "receipt.json"
    held = read_json(place)
    rehearsed = isinstance(held, dict) and "rows" in held
    check_shape(held, RehearsedShape if rehearsed else ReceiptShape, place)
    return {"charge": {}, **held}


def booked(spend: Budget, currency: str) -> Budget:
    """What a ledger of this currency charges: Laplace noise costs ε²/2 in rho."""
    return spend if spend.currency == currency else rho(spend.amount**2 / 2)


def receipt_of(ledger: Ledger, key: str) -> dict[str, Any]:
    """The ledger's own record of a charge, and its anchor; amounts as text."""
    history = ledger.history()
    found = [entry for entry in history if entry.key == key]
    if not found:
        raise ReleaseError(f"the ledger has no charge under {key!r}")
    entry = found[0]
    spent = sum(each.booked.amount for each in history if each.number <= entry.number)
    amounts = {
        name: [amount.currency, str(amount.amount)]
        for name, amount in (("price", entry.price), ("booked", entry.booked))
    }
    return {
        "dataset": ledger.dataset,
        "dataset_id": ledger.dataset_id,
        "unit": str(ledger.unit),
        "budget": [ledger.budget.currency, str(ledger.budget.amount)],
        "spent": [ledger.budget.currency, str(spent)],
        "charge": {**asdict(entry), **amounts},
        "anchor": asdict(ledger.anchor()),
    }


def spend_of(manifest: dict[str, Any]) -> Budget:
    """What was spent, as it was asked for: the noise follows from it."""
    currency, amount = (*manifest["spend"], "", "")[:2]
    return epsilon(amount) if currency == "epsilon" else rho(amount)


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a bundle, or of a measurement in its past, if this version reads it."""
    place = folder / "manifest.json"
    if os.path.isfile(folder):
        raise ReleaseError(f"{folder} is a file, not a bundle's folder")
    if not os.path.exists(place):
        raise ReleaseError(
            f"there is no bundle at {folder}: no manifest.json in it; `psephos release` writes one"
        )
    manifest = read_json(place)
    if not isinstance(manifest, dict) or type(manifest.get("format")) is not int:
        raise ReleaseError(f"{place} is damaged: it names no format; get the bundle again")
    if manifest["format"] != FORMAT:
        raise ReleaseError(
            f"{folder} has format {manifest['format']}, and this psephos reads {FORMAT}; use the "
            "one that wrote it"
        )
    bare = set(manifest) <= set(MeasuredShape.model_fields)
    check_shape(manifest, MeasuredShape if bare else ManifestShape, place)
    return manifest
