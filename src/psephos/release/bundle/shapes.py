"""The shapes of a bundle's JSON files: which keys and types they have, and no more."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from psephos.errors import ReleaseError
from psephos.kernel.budget import Budget
from psephos.kernel.ledger_history import Anchor, Entry
from psephos.release.formats.digits import MOST_DECIMALS
from psephos.release.spec.entries import PublishedMethod, View
from psephos.synthesis.method import SyntheticMethod

AmountShape = Annotated[list[str], Field(min_length=2, max_length=2)]
"""A currency, and an exact amount of it as text."""
VersionText = Annotated[str, Field(pattern=r"^[0-9][0-9A-Za-z.+!-]{0,40}$")]
SHAPE_CONFIG = ConfigDict(extra="forbid", frozen=True, strict=True)


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
    simulation: bool
    key: str
    edition: str
    spend: AmountShape


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
