"""One column in a release file: its values, how they are grouped, and how entries are cleaned."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from psephos.domain.attribute import Attribute
from psephos.domain.calendar import PERIODS, as_day
from psephos.domain.cleaning import Cleaning, DecimalMark, LetterCase
from psephos.errors import DomainError
from psephos.release.spec.entry_types import FileEntry, Number, Scalar


def _day(value: Any) -> date:
    try:
        return as_day(value)
    except DomainError as error:
        raise ValueError(str(error)) from None


Day = Annotated[date, BeforeValidator(_day), WithJsonSchema({"type": "string", "format": "date"})]


class EqualBins(FileEntry):
    """Bins of one width from `first` to `last`, and one more above them if `open`."""

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


class AttributeEntry(FileEntry):
    """One column: its values, written from public knowledge and never from the data.

    Exactly one of `values`, `integers`, `bins` and `dates` says what the cells are.
    """

    values: tuple[Scalar, ...] | None = Field(None, description="the values, in order")
    integers: tuple[int, int] | None = Field(None, description="first and last, both included")
    bins: tuple[Number, ...] | EqualBins | None = Field(
        None, description="edges, with inf if wanted; or { first = 0, last = 100, width = 5 }"
    )
    dates: tuple[Day, Day] | None = Field(
        None, description='first and last day, e.g. ["1920-01-01", "2020-12-31"]'
    )
    labels: tuple[str, ...] | None = Field(None, description="a label for each value or bin")
    representatives: tuple[Number, ...] | None = Field(
        None, description="the number that each bin counts as in sums; the middle if left out"
    )
    unit: str = Field("", description="what the numbers are in, e.g. euros")
    title: str = Field("", description="what the column is called in tables")
    missing: str | None = Field(None, description="declares missing entries, under this label")
    unknown: Literal["drop", "clip", "other"] = Field(
        "drop", description="where entries go that are not declared"
    )
    trim: bool = Field(False, description="entries are read without the blanks around them")
    case: LetterCase | None = Field(None, description="entries are read in this case")
    decimal: DecimalMark | None = Field(None, description='"," where 1.234,5 is a number')
    # Somebody read these in the data, so whatever is written of the file leaves them out.
    nulls: tuple[Scalar, ...] = Field(
        (),
        exclude=True,
        repr=False,
        description="words for missing entries; they are not published",
    )
    aliases: dict[str, tuple[Scalar, ...]] = Field(
        default={},
        exclude=True,
        repr=False,
        description="other spellings of a declared value; they are not published",
    )
    levels: dict[str, int | str | tuple[Scalar, ...] | dict[str, tuple[Scalar, ...]]] = Field(
        default={},
        description="coarser views: a width, first values of groups, label: values, or a period",
    )
    fact: str = Field("", description="why these values are public knowledge, in plain words")
    confirmed: bool = Field(True, description="false in a draft, until a person has looked")

    def mistakes(self) -> Iterator[str]:
        listed = ("values", "integers", "bins", "dates")
        kinds = [k for k in listed if getattr(self, k) is not None]
        if len(kinds) != 1 and self.confirmed:
            yield (
                "give exactly one of values, integers, bins and dates, got "
                f"{', '.join(kinds) or 'none'}"
            )
        for name, period in self.levels.items():
            if isinstance(period, str) and (self.dates is None or period not in PERIODS):
                yield (
                    f"levels.{name}: must be a width, a list of first values, or label = [values], "
                    f"such as levels = {{ broad = [0, 18, 65] }}; for dates {', '.join(PERIODS)}; "
                    f"got {period!r}"
                )
        if self.labels is not None and (self.integers or self.dates) is not None:
            yield "labels go with values or bins; integers and dates are their own"
        if self.representatives is not None and self.bins is None:
            yield "representatives go with bins; other numbers stand for themselves"

    def cleaning(self) -> Cleaning:
        """How entries are cleaned before they are read."""
        words = [_word(word) for word in self.nulls]
        aliases = {value: tuple(map(_word, each)) for value, each in self.aliases.items()}
        return Cleaning(self.trim, self.case, tuple(words), aliases, self.decimal)

    def attribute(self) -> Attribute:
        """The attribute of a domain."""
        if self.bins is not None:
            edges = self.bins.edges() if isinstance(self.bins, EqualBins) else self.bins
            attribute = Attribute.bins(edges, self.labels)
            if self.representatives is not None:
                attribute = attribute.with_representatives(self.representatives)
        elif self.integers is not None:
            attribute = Attribute.integers(*self.integers)
        elif self.dates is not None:
            attribute = Attribute.dates(*self.dates)
        else:
            values: list[Any] = list(self.values or ())
            labels = list(self.labels or [str(value) for value in values])
            if self.missing is not None:
                values, labels = [*values, None], [*labels, self.missing]
            has_labels = self.labels is not None or self.missing is not None
            attribute = Attribute(tuple(values), tuple(labels) if has_labels else None)
        for name, groups in self.levels.items():
            attribute = attribute.with_level(name, groups)
        if self.missing is not None and self.values is None:
            attribute = attribute.with_missing(self.missing)
        return attribute if self.unknown == "drop" else attribute.with_unknown(self.unknown)


def _word(word: Any) -> str:
    return str(word).lower() if isinstance(word, bool) else str(word)
