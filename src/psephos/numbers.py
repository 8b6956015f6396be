"""Numbers as people read them: with the digits that mean something, and a true minus sign."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any

ALMOST_SURE = 1e-5
"""Beside the widest interval of a table: one so narrow is that of a sure number, such as 100 %."""


def digits_for(spread: float) -> int:
    """How many decimals are worth printing beside noise of this size."""
    return 0 if spread >= 10 else 1 if spread >= 1 else 2


def count_text(value: Any, digits: int = 0) -> str:
    """A number as people read it, with a true minus sign.

    >>> count_text(-1234.56, 1)
    '−1,234.6'
    """
    text = f"{value:,}" if isinstance(value, int) else f"{_rounded(value, digits):,.{digits}f}"
    return text.replace("-", "−")


def _rounded(value: Any, digits: int) -> float:
    number = round(float(value), digits)
    return 0.0 if number == 0 else number  # no minus zero


def bounds(low: Any, high: Any, digits: int) -> tuple[Decimal, Decimal]:
    """The ends of an interval as they are shown."""
    step = Decimal(1).scaleb(-digits)
    down = Decimal(str(low)).quantize(step, ROUND_FLOOR)
    return down, Decimal(str(high)).quantize(step, ROUND_CEILING)


def amount(value: Fraction, digits: int = 4) -> str:
    """An exact amount: as a decimal where it ends soon, else as a fraction and about what it is.

    >>> amount(Fraction(1, 10)), amount(Fraction(1, 3))
    ('0.1', '1/3 (about 0.3333)')
    """
    if (value * 10**6).denominator == 1:
        return f"{float(value):.6f}".rstrip("0").rstrip(".")
    about = f"about {float(value):.{digits}g}"
    return f"{value} ({about})" if value.denominator < 10**6 else about


def plus_minus(half: float, digits: int) -> str:
    """A half-width; the sign stays with its number."""
    return f"±\N{NO-BREAK SPACE}{count_text(half, digits)}"


def upwards(value: Fraction, digits: int = 3) -> str:
    """A bound as a decimal that is not less.

    >>> upwards(Fraction(1, 3))
    '0.334'
    """
    if value == 0:
        return "0"
    place = max(0, digits - 1 - math.floor(math.log10(value)))
    return f"{math.ceil(value * 10**place) / 10**place:.{place}f}"
