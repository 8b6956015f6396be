"""What a declared value may be, and where entries go that are not declared."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Any, Literal

import numpy as np

from psephos.errors import DomainError

Unknown = Literal["drop", "clip", "other"]
LARGEST = 10**300
"""Beyond all declared numbers: floats end soon after."""


class Other(Enum):
    """The value of the cell that takes in all that is not declared; it equals nothing."""

    OTHER = "(other)"

    def __str__(self) -> str:
        return "(other)"


OTHER = Other.OTHER


def plain(value: Any) -> Any:
    """Numpy scalars as the Python values they stand for."""
    if isinstance(value, np.datetime64):
        # Nanoseconds have no Python type and would turn into a whole number.
        return value.astype("datetime64[us]").item()
    return value.item() if isinstance(value, np.generic) else value


def check_value(value: Any) -> None:
    """Refuses what cannot be told apart from other values."""
    try:
        hash(value)
    except TypeError:
        raise DomainError(f"value {value!r} cannot be a cell; use text, numbers or dates") from None
    if isinstance(value, datetime) and value.tzinfo is not None:
        # Two zones can name one instant and still compare unequal (in a repeated hour).
        raise DomainError(f"value {value!r} has a time zone; declare times in UTC, without one")
    if isinstance(value, int) and abs(value) >= LARGEST:
        raise DomainError("a declared number has over 300 digits; declare it as text")
    odd = isinstance(value, float) and not math.isfinite(value)
    if odd or not _equals_itself(value):
        raise DomainError(f"value {value!r} cannot be a cell; for missing entries declare None")


def _equals_itself(value: Any) -> bool:
    """Not-a-number and its relatives do not."""
    try:
        return bool(value == value)
    except (TypeError, ValueError):
        return False


def check_unknown(policy: str, values: Sequence[Any], binned: bool, merged: bool) -> None:
    """Refuses a policy that these values cannot have."""
    if policy not in ("drop", "clip", "other"):
        raise DomainError(f"unknown is 'drop', 'clip' or 'other', got {policy!r}")
    if merged:
        if policy != "drop":
            raise DomainError(f"set unknown = {policy!r} on the attributes before merging them")
        return
    whole = isinstance(values, range)
    if policy == "clip" and not (binned or (whole and values[-1] - values[0] == len(values) - 1)):
        raise DomainError("only integers and bins can be clipped; write 'drop' or 'other'")
    if (policy == "other") != (not whole and values[-1] is OTHER):
        raise DomainError("the cell OTHER is added by unknown = 'other', not listed")
    if policy == "other" and str(OTHER) in values:
        raise DomainError(
            f"{str(OTHER)!r} is a declared value, and unknown = 'other' needs that label; "
            "rename the value, or write 'drop'"
        )


def shown_number(x: float) -> str:
    """A number as people write it.

    >>> shown_number(10.0), shown_number(0.5), shown_number(-math.inf)
    ('10', '0.5', '-inf')
    """
    if math.isinf(x):
        return "inf" if x > 0 else "-inf"
    return str(int(x)) if float(x).is_integer() else repr(x)
