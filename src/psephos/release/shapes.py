"""The keys and types that the JSON files of a bundle must have, no more and no fewer."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from psephos.errors import ReleaseError
from psephos.kernel.budget import Budget
from psephos.kernel.storage import Anchor, Entry
from psephos.release.spec.entries import View

AmountShape = Annotated[list[str], Field(min_length=2, max_length=2)]
"""A currency, and an exact amount of it as text."""
SHAPE_CONFIG = ConfigDict(extra="forbid", frozen=True, strict=True)


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


class OldRequestShape(RequestShape):
    """manifest.json under past/, in a bundle of format 2."""

    format: int


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
    in_standard_errors: float


class ReleaseShape(JsonShape):
    """What the manifests of all formats say of a release."""

    psephos: Annotated[str, Field(pattern=r"^[0-9][0-9A-Za-z.+!-]{0,40}$")]
    title: str
    fingerprint: str
    noise: str
    strategy: str
    tables: list[TableShape]
    views: list[View]
    draws: int
    interval: IntervalShape
    distance: DistanceShape | None
    files: dict[str, str]


class ManifestShape(ReleaseShape):
    """manifest.json of a bundle; the last of its requests are its own."""

    format: int
    name: str
    simulation: bool
    edition: str
    spend: AmountShape
    requests: Annotated[list[RequestShape], Field(min_length=1)]
    builds_on: Annotated[int, Field(ge=0)]


class OldManifestShape(ReleaseShape, OldRequestShape):
    """manifest.json of a bundle of format 2."""


def _shape_of(kind: type[Any]) -> type[BaseModel]:
    """The keys of a dataclass of the ledger's, amounts written as text."""
    types = get_type_hints(kind)
    parts: dict[str, Any] = {}
    for field in fields(kind):
        annotation = AmountShape if types[field.name] is Budget else types[field.name]
        # `schema`, a key of charges, is also a method of pydantic's models
        parts[f"{field.name}_"] = (annotation, Field(alias=field.name))
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


def check_shape(content: Any, shape: type[JsonShape], place: Path) -> None:
    """Refuse what lacks a key, has one too many, or a value of another type."""
    try:
        shape.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])[:80]
        reasons = {"extra_forbidden": "does not belong there", "missing": "is missing"}
        why = reasons.get(first["type"], "makes no sense")
        raise ReleaseError(f"{place} is damaged: {key!r} {why}; get the bundle again") from None
