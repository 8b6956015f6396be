"""What the parts of a release file are made of: exact amounts, numbers, texts that can be shown."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from psephos.domain.declared import first_repeated
from psephos.errors import PsephosError, ReleaseError

UNPRINTABLE = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]|\x7f")
"""Characters that XML has no place for."""


def refuse_unprintable(content: Any, place: str = "") -> None:
    """Refuse control characters and half characters anywhere in the file, and name the place."""
    if isinstance(content, str) and UNPRINTABLE.search(content):
        raise ValueError(f"{place or 'text'}: {content!r} holds a character that cannot be shown")
    if isinstance(content, dict):
        for key, value in content.items():
            refuse_unprintable(key, place)
            refuse_unprintable(value, f"{place}.{key}" if place else str(key))
    elif isinstance(content, list | tuple):
        for i, value in enumerate(content, 1):
            refuse_unprintable(value, f"{place}[{i}]")


@contextmanager
def refused_at(place: str, kind: type[PsephosError] = PsephosError) -> Iterator[None]:
    """Refusals of what a release file asks name the place that it is written at."""
    try:
        yield
    except kind as error:
        raise ReleaseError(f"{place}: {error}") from None


def each_once(names: tuple[Any, ...]) -> tuple[Any, ...]:
    """The list, if it names nothing twice."""
    repeated = first_repeated(names)
    if repeated is not None:
        raise ValueError(f"{repeated!r} is there twice; name it once")
    return names


def _plain_number(value: Any) -> Any:
    """A decimal as the nearest int or float; amounts of budget stay exact instead."""
    if isinstance(value, Decimal) or value in ("inf", "-inf"):
        value = float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _json_number(value: float) -> Any:
    return str(value) if math.isinf(value) else value  # JSON has no infinity


Number = Annotated[
    int | float,
    BeforeValidator(_plain_number),
    PlainSerializer(_json_number),
    WithJsonSchema({"type": "number"}),
]


Scalar = Annotated[bool | int | float | str, BeforeValidator(_plain_number)]


Amount = Annotated[
    str,
    BeforeValidator(lambda x: str(x) if type(x) in (int, Decimal) else x),
    WithJsonSchema({"type": ["string", "number"], "description": 'e.g. "0.5" or "1/3"'}),
]


class FileEntry(BaseModel):
    """A part of a release file: it refuses unknown keys, and does not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def mistakes(self) -> Iterator[str]:
        """What is wrong with it as a whole, in words; the first is reported."""
        yield from ()

    @model_validator(mode="after")
    def _without_mistakes(self) -> Self:
        for mistake in self.mistakes():
            raise ValueError(mistake)
        return self
