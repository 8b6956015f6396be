"""Requests as a bundle keeps them: what was measured, the noisy integers, and the charge.

    requests/1/strategy.bin           what was measured: integer queries and their weights
    requests/1/measurements.parquet   the noisy integers
    requests/1/receipt.json           the charge in the ledger, and how far the ledger had come

A bundle holds a list of them: those of the releases that it builds on, then those of its own
release, one for each step of its plan. The manifest says of each whose it is: key, edition, lineage
and spend.

The shapes of the JSON files say which keys and types they must have, no more and no fewer.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from psephos.domain.domain import Domain
from psephos.errors import ReleaseError
from psephos.infer.least_squares import edition_of, edition_words
from psephos.kernel.budget import Budget, epsilon, rho
from psephos.kernel.ledger import Ledger
from psephos.kernel.ledger_history import Anchor, Entry
from psephos.kernel.measurement import Measurement, noise_for, pack, request_fingerprint
from psephos.kernel.unit import Unit
from psephos.release.bundle.files import (
    read_integers,
    read_json,
    report_damage,
    write_column,
    write_json,
)
from psephos.release.formats.digits import MOST_DECIMALS
from psephos.release.spec.asked_cells import ASKED_FILE, AskedCells, measured_schema
from psephos.release.spec.entries import PublishedMethod, View
from psephos.strategy import select
from psephos.strategy.strategy import Strategy
from psephos.synthesis.method import SyntheticMethod

BUNDLE_FORMAT = 9
REQUESTS_FOLDER = "requests"
REQUEST_FILES = ("strategy.bin", "measurements.parquet", "receipt.json")
AmountShape = Annotated[list[str], Field(min_length=2, max_length=2)]
"""A currency, and an exact amount of it as text."""
VersionText = Annotated[str, Field(pattern=r"^[0-9][0-9A-Za-z.+!-]{0,40}$")]
SHAPE_CONFIG = ConfigDict(extra="forbid", frozen=True, strict=True)


@dataclass(frozen=True, eq=False)
class MeasuredRequest:
    """A strategy, what was spent on it, the noisy integers that came of it, and the receipt."""

    name: str
    """Of the release that made the request."""
    strategy: Strategy
    spend: Budget
    measurement: Measurement
    receipt: dict[str, Any]
    cells: AskedCells
    """The cells that were measured."""

    @classmethod
    def open(
        cls, folder: Path, facts: dict[str, Any], declared: Domain, unit: Unit
    ) -> MeasuredRequest:
        """The request in a folder, of which the manifest says these facts."""
        with report_damage(folder):
            return cls._open(folder, facts, AskedCells.read(folder / ASKED_FILE, declared), unit)

    @classmethod
    def _open(
        cls, folder: Path, facts: dict[str, Any], cells: AskedCells, unit: Unit
    ) -> MeasuredRequest:
        spend = spend_of(facts)
        receipt = read_receipt(folder)
        strategy = select.load(folder / "strategy.bin", cells.domain)
        query = strategy.query
        values = read_integers(folder / "measurements.parquet", "value", query.shape[0])
        measurement = Measurement(
            dataset_id=receipt["dataset_id"],
            lineage=tuple(facts["lineage"]),
            domain=cells.domain,
            transform=None,
            query=query,
            values=values,
            noise=noise_for(query, spend, unit, 1),
            cost=spend,
            key=facts["key"],
            simulation=facts["simulation"],
        )
        request = cls(facts["name"], strategy, spend, measurement, receipt, cells)
        if request.edition != facts["edition"]:
            raise ReleaseError(
                f"the manifest of {folder} is damaged: {facts['edition']!r} is not the edition "
                "that was measured"
            )
        return request

    def write(self, folder: Path) -> None:
        """The files of the request."""
        select.save(self.strategy, folder / "strategy.bin")
        write_json(folder / "receipt.json", self.receipt)
        if not self.cells.is_whole:
            (folder / ASKED_FILE).write_bytes(self.cells.to_bytes())
        write_column(folder / "measurements.parquet", "value", self.measurement.values)

    def over(self, cells: AskedCells) -> Measurement:
        """What was measured, over its own cells or finer ones."""
        same = self.cells.is_same(cells)
        return self.measurement if same else self.cells.lifted(self.measurement, cells)

    def facts(self) -> dict[str, Any]:
        """What a manifest says of it."""
        return {
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
        schema, lineage = self.cells.schema, self.cells.lineage(self.edition)
        if self.measurement.lineage != lineage:
            raise ReleaseError("the charge was made for another schema")
        fingerprint = request_fingerprint(lineage, self.strategy.query, self.spend)
        if self.receipt["charge"]["fingerprint"] != fingerprint:
            raise ReleaseError("the charge was made for another query, or at another spend")
        check_charge(
            self.receipt,
            name=self.name,
            key=self.measurement.key,
            schema=schema,
            spend=self.spend,
            price=self.spend.booked(self.receipt["budget"][0]),
            values_hash=self.values_hash,
            unit=unit,
        )

    @property
    def key(self) -> str:
        """Under which it was paid for."""
        return self.measurement.key


def check_charge(
    receipt: dict[str, Any],
    *,
    name: str,
    key: str,
    schema: str,
    spend: Budget,
    price: Budget,
    values_hash: str,
    unit: Unit,
) -> None:
    """Refuse a receipt whose charge is not for this key, schema, price and result."""
    charge = receipt["charge"]
    if charge["schema"] != schema:
        raise ReleaseError("the charge was made for another schema")
    if charge["key"] != key:
        raise ReleaseError("the charge was made for another query, or at another spend")
    if not key.startswith(f"release {name[:200]} "):
        raise ReleaseError(f"the charge was not made for a release called {name!r}")
    written = [price.currency, str(price.amount)]
    if [charge["price"], charge["booked"]] != [written, written]:
        amount = " ".join(charge["booked"])
        raise ReleaseError(f"the charge is {amount}, the noise is that of {spend}")
    if charge["values_hash"] != values_hash:
        raise ReleaseError("the noisy integers are not those that the ledger stored")
    if receipt["unit"] != str(unit):
        raise ReleaseError(f"the ledger protects by {receipt['unit']}")


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
    return [MeasuredRequest.open(folder / name, facts, declared, unit) for name, facts in places]


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
    """The receipt of a bundle's last request, whatever it holds; None if there is none to read."""
    try:
        if (folder / "receipts.bin").is_file():  # of a release in parts
            return read_json(folder / "receipt.json")
        manifest = read_manifest(folder)
        return read_json(folder / request_folders(manifest)[-1] / "receipt.json")
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


def check_shape(content: Any, shape: type[JsonShape], place: Path) -> None:
    """Refuse what lacks a key, has one too many, or a value of another type."""
    try:
        shape.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        # Of a union of shapes pydantic names the one it tried too.
        parts = [str(part) for part in first["loc"] if not str(part).endswith("Shape")]
        key = ".".join(parts)[:80]
        reasons = {"extra_forbidden": "does not belong there", "missing": "is missing"}
        why = reasons.get(first["type"], "makes no sense")
        raise ReleaseError(f"{place} is damaged: {key!r} {why}; get the bundle again") from None


class JsonShape(BaseModel):
    """A JSON object whose keys are known."""

    model_config = SHAPE_CONFIG


class RequestShape(JsonShape):
    """What a manifest says of one request."""

    name: str
    simulation: bool
    edition: str
    key: str
    lineage: Annotated[list[str], Field(min_length=1)]
    spend: AmountShape


class PlannedRequestShape(JsonShape):
    """What a manifest says of one request of a plan that adapts to the data."""

    name: str
    simulation: bool
    edition: str
    key: str
    kind: Literal["measure", "choose", "partition", "draw", "count"]
    answers: Annotated[int, Field(ge=1, le=10**8)]
    spend: AmountShape


class MethodShape(JsonShape):
    """The plan that adapts to the data, and why it was taken."""

    name: str
    options: dict[str, bool | int | float | str]
    reason: str


class ShiftShape(JsonShape):
    """A mean shift of the published view."""

    by: list[str]
    numbers: int
    mean: float


class TableShape(JsonShape):
    """A table of the release; shifts go with the published view."""

    name: str
    file: str
    shifts: list[ShiftShape] = []


class IntervalShape(JsonShape):
    """How noise intervals were computed."""

    confidence: float
    method: str
    draws: int


class DistanceShape(JsonShape):
    """How far the published view is from the consistent one."""

    largest: float
    root_mean_square: float
    in_standard_errors: float | None


class PublishedShape(JsonShape):
    """What the published view was rounded from."""

    method: PublishedMethod | Literal["plan"]
    reason: str
    steps: Annotated[int, Field(ge=0, le=100_000)]
    gap: float
    prior: Literal["independent", "latent classes", "stand_in"] | None = None
    """What an entropy estimate was drawn towards."""
    in_answers: bool | None = None
    """Whether its steps went towards the asked answers."""


class GroupShape(JsonShape):
    """A group of tables, and what their cells were rounded from."""

    attributes: list[str]
    tables: list[str]
    method: PublishedMethod
    reason: str
    steps: Annotated[int, Field(ge=0, le=100_000)]
    gap: float


class DisagreementShape(JsonShape):
    """How far apart numbers are that tables of several groups tell."""

    largest: int
    root_mean_square: float
    numbers: int
    attributes: list[str]


class GroupedShape(JsonShape):
    """What the published view was rounded from, where tables are in groups."""

    groups: list[GroupShape]
    total: Annotated[int, Field(ge=0)] | None
    sweeps: Annotated[int, Field(ge=0, le=1_000)]
    disagreement: DisagreementShape
    left_out: dict[str, str]


class TableDistanceShape(JsonShape):
    """How far made-up rows, and rivals that know nothing, are from the model in some tables."""

    tables: str
    number: Annotated[int, Field(ge=1)]
    sample: float
    rivals: dict[str, float]


class SyntheticShape(JsonShape):
    """How rows were made up, and how far they are from the model."""

    method: SyntheticMethod
    reason: str
    rows: Annotated[int, Field(ge=0, le=10**9)]
    largest: float
    mean: float
    distances: list[TableDistanceShape]


class PersonsShape(JsonShape):
    """What the manifest says of a table of persons."""

    name: str
    key: str
    spend: AmountShape
    simulation: bool


class ManifestShape(JsonShape):
    """manifest.json of a bundle; the last of its requests are its own."""

    format: int
    psephos: VersionText
    title: str
    fingerprint: str
    noise: str
    strategy: str
    tables: list[TableShape]
    views: list[View]
    draws: int
    interval: IntervalShape | None
    distance: DistanceShape | None
    published: PublishedShape | GroupedShape | None = None
    files: dict[str, str]
    name: str
    simulation: bool
    edition: str
    spend: AmountShape
    requests: Annotated[list[RequestShape | PlannedRequestShape], Field(min_length=1)]
    builds_on: Annotated[int, Field(ge=0)]
    method: MethodShape | None = None
    coordinates: Annotated[int, Field(ge=1, le=10**7)] | None = None
    synthetic: SyntheticShape | None = None
    persons: list[PersonsShape] | None = None
    decimals: list[Annotated[int, Field(ge=0, le=MOST_DECIMALS)]]
    """Of each table's numbers in CSV and other files."""


def _shape_of(kind: type[Any]) -> type[BaseModel]:
    """The keys of a dataclass of the ledger's, amounts written as text."""
    types = get_type_hints(kind)
    parts: dict[str, Any] = {}
    for field in fields(kind):
        annotation = AmountShape if types[field.name] is Budget else types[field.name]
        # `schema`, a key of charges, is also a method of pydantic's models
        default = field.default if field.name == "snapshot" else ...  # older receipts have none
        parts[f"{field.name}_"] = (annotation, Field(default, alias=field.name))
    shape: type[BaseModel] = create_model(
        f"{kind.__name__}JsonShape", __config__=SHAPE_CONFIG, **parts
    )
    return shape


class RehearsedShape(JsonShape):
    """receipt.json of a rehearsal."""

    dataset: str
    dataset_id: str
    rows: int


class ReceiptShape(JsonShape):
    """receipt.json of a release."""

    dataset: str
    dataset_id: str
    unit: str
    budget: AmountShape
    spent: AmountShape
    charge: _shape_of(Entry)  # type: ignore[valid-type]
    anchor: _shape_of(Anchor)  # type: ignore[valid-type]
