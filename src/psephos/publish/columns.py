"""The columns of a release file's schema, and what all parts of the file have in common."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)

from psephos.attribute import Attribute
from psephos.errors import DomainError


def _number(value: Any) -> Any:
    """A number that is no amount of budget: decimals as the nearest int or float."""
    if isinstance(value, Decimal) or value in ("inf", "-inf"):
        value = float(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _written(value: float) -> Any:
    return str(value) if math.isinf(value) else value  # JSON has no infinity


Number = Annotated[
    int | float,
    BeforeValidator(_number),
    PlainSerializer(_written),
    WithJsonSchema({"type": "number"}),
]
Scalar = Annotated[bool | int | float | str, BeforeValidator(_number)]


class Entry(BaseModel):
    """What every part of the file has in common: no unknown keys, no changes."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class EqualBins(Entry):
    """Bins of one width from `first` to `last`; below and above, where `open` says so."""

    first: Number
    last: Number
    width: Number = Field(gt=0)
    open: bool = Field(True, description="one more bin for everything from `last` on")

    def edges(self) -> list[float]:
        """The edges; `last` is one of them."""
        steps = (self.last - self.first) / self.width
        if steps < 1 or abs(steps - round(steps)) > 1e-9 or steps > 1e6:
            raise DomainError(
                f"bins from {self.first:g} to {self.last:g} are no whole number of steps of "
                f"{self.width:g}"
            )
        edges = [self.first + self.width * i for i in range(round(steps))] + [self.last]
        return [*edges, math.inf] if self.open else edges


class AttributeEntry(Entry):
    """One column: its values, written from public knowledge and never from the data.

    Exactly one of `values`, `integers` and `bins` says what the cells are.
    """

    values: tuple[Scalar, ...] | None = Field(None, description="the values, in order")
    integers: tuple[int, int] | None = Field(None, description="first and last, both included")
    bins: tuple[Number, ...] | EqualBins | None = Field(
        None, description="edges, with inf if wanted; or { first = 0, last = 100, width = 5 }"
    )
    labels: tuple[str, ...] | None = Field(None, description="a label for each value or bin")
    title: str = Field("", description="what the column is called in tables")
    missing: str | None = Field(None, description="declares missing entries, under this label")
    unknown: Literal["drop", "clip", "other"] = Field(
        "drop", description="where entries go that are not declared"
    )
    levels: dict[str, int | tuple[Scalar, ...] | dict[str, tuple[Scalar, ...]]] = Field(
        default={}, description="coarser views: a width, first values of groups, or label: values"
    )
    fact: str = Field("", description="why these values are public knowledge, in plain words")
    confirmed: bool = Field(True, description="false in a draft, until a person has looked")

    @model_validator(mode="after")
    def _one_kind(self) -> AttributeEntry:
        kinds = [k for k in ("values", "integers", "bins") if getattr(self, k) is not None]
        if len(kinds) != 1 and self.confirmed:
            raise ValueError(
                f"give exactly one of values, integers and bins, got {', '.join(kinds) or 'none'}"
            )
        if self.labels is not None and self.integers is not None:
            raise ValueError("labels go with values or bins; integers are their own labels")
        if self.missing is not None and self.values is None:
            raise ValueError("missing goes with values; elsewhere write unknown = 'other'")
        return self

    def attribute(self) -> Attribute:
        """The attribute of a domain."""
        if self.bins is not None:
            edges = self.bins.edges() if isinstance(self.bins, EqualBins) else self.bins
            made = Attribute.bins(edges, self.labels)
        elif self.integers is not None:
            made = Attribute.integers(*self.integers)
        else:
            values: list[Any] = list(self.values or ())
            labels = list(self.labels or [str(value) for value in values])
            if self.missing is not None:
                values, labels = [*values, None], [*labels, self.missing]
            named = self.labels is not None or self.missing is not None
            made = Attribute(tuple(values), tuple(labels) if named else None)
        for name, groups in self.levels.items():
            made = made.with_level(name, groups)
        return made if self.unknown == "drop" else made.with_unknown(self.unknown)
