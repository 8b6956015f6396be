"""Exponentials in whole numbers: upper bounds for weights, and exact trials against them.

Decimals are numbers of a chosen precision with correctly rounded exp and ln (as in `budget`), not
floats; what they may be off by is added on the safe side.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from psephos.kernel.scores.mechanisms import Draws
from psephos.values import Array

UNIT_BITS = 30
UNIT = 1 << UNIT_BITS
"""Mantissas are multiples of 1/UNIT, and hardly above 1."""
DIGIT = 6
LARGEST_RATE = 32
RATE_BITS = 40
MOST_TABLE_HALVINGS = 1 << 58
NUMBERS_AT_ONCE = 1 << 15
"""So many stay near the core."""
BITS_AT_ONCE = 32
ABOVE_LN_2 = Fraction(7, 10)
SPARE_BITS = 64


class Rounded(NamedTuple):
    """Numbers mantissa / UNIT · 2^-halvings."""

    mantissa: Array
    halvings: Array

    def at(self, part: slice) -> Rounded:
        """Some of them."""
        return Rounded(self.mantissa[part], self.halvings[part])


def rounded_rate(rate: Fraction) -> Fraction:
    """The rate, or a little less: at most 32, and its first 40 bits.

    Privacy: the exponential mechanism of a smaller rate costs less.
    """
    rate = min(rate, Fraction(LARGEST_RATE))
    unit = Fraction(2) ** (rate.numerator.bit_length() - rate.denominator.bit_length() - RATE_BITS)
    return rate // unit * unit


class UpperExponentials:
    """Upper bounds of exp(-rate·c) for whole numbers c in [0, 2⁵⁶).

    A bound for each digit of c, rounded up, from a table; their product is rounded up after every
    factor, and is above the exponential by at most one part in 2²⁰
    (tests/kernel/test_partition.py::test_upper_exponentials_are_above_and_close).
    """

    def __init__(self, rate: Fraction) -> None:
        self._rate = rate

    def of(self, numbers: Array) -> Rounded:
        """For each number."""
        result = Rounded(np.full(numbers.shape, UNIT), np.zeros(numbers.shape, np.int64))
        for start in range(0, len(numbers), NUMBERS_AT_ONCE):
            part = slice(start, start + NUMBERS_AT_ONCE)
            self._multiply(result.at(part), numbers[part])
        return result

    def _multiply(self, bounds: Rounded, numbers: Array) -> None:
        """The bounds times those of some numbers, in place."""
        step, left = self._rate, numbers
        mantissa, halvings = bounds
        while left.any():
            table, digit = _table(step), left & ((1 << DIGIT) - 1)
            mantissa *= table.mantissa[digit]
            mantissa += UNIT - 1
            mantissa >>= UNIT_BITS
            halvings += table.halvings[digit]
            step, left = step * (1 << DIGIT), left >> DIGIT


@lru_cache(maxsize=32)
def _table(step: Fraction) -> Rounded:
    """Bounds of exp(-step·digit) for every digit; a step is public."""
    pairs = [halved_exp(step * digit, 0, 30) for digit in range(1 << DIGIT)]
    tops = [-(-(low + 3) * UNIT // 10**30) for low, _ in pairs]
    # Fewer halvings are a bound too, and ten digits of them stay within 64 bits.
    halvings = [min(k, MOST_TABLE_HALVINGS) for _, k in pairs]
    return Rounded(np.array(tops), np.array(halvings, dtype=np.int64))


def halved_exp(gamma: Fraction, doublings: int, digits: int) -> tuple[int, int]:
    """(a, k) with a ≤ exp(-gamma)·2^(doublings + k)·10^digits ≤ a + 3.

    Proof: with y = gamma/ln 2 - doublings and k = ⌊y⌋, that is exp(-(y - k)·ln 2)·10^digits, of
    `digits` digits. |y| < 2⁷⁰ leaves a decimal of `digits` + 60 digits 38 of them behind those, and
    no operation is off by more than one in its last; so before it is cut down to a whole number it
    is off by much less than 1, and a is one less than that (test_exponentials_are_enclosed).
    """
    exactly = Context(prec=digits + 60)
    two = _ln_2(exactly.prec)
    y = exactly.divide(exactly.divide(Decimal(gamma.numerator), Decimal(gamma.denominator)), two)
    y = exactly.subtract(y, Decimal(doublings))
    k = int(y.to_integral_value("ROUND_FLOOR", exactly))
    power = exactly.exp(exactly.multiply(exactly.subtract(Decimal(k), y), two))
    return max(0, int(power.scaleb(digits, exactly)) - 1), k


@lru_cache(maxsize=32)
def _ln_2(digits: int) -> Decimal:
    """The logarithm of 2 to so many digits."""
    return Context(prec=digits).ln(Decimal(2))


def falls_below(
    gamma: Fraction, doublings: int, ratios: Sequence[tuple[int, int]], draws: Draws
) -> bool:
    """Whether a uniform real lies below p = exp(-gamma)·2^doublings·Π top/bottom, p ≤ 1.

    Privacy: true with probability p exactly. Bits of the uniform real are drawn until they tell:
    with b of them, the real lies in [u, u + 1)/2ᵇ, and p in [low, high]/2ᵇ by `enclosed_product`
    and `halved_exp`, ever closer as b grows
    (tests/kernel/test_partition.py::test_trials_have_their_probability).
    """
    drawn = bits = 0
    while True:
        drawn, bits = drawn << BITS_AT_ONCE | draws.below(1 << BITS_AT_ONCE), bits + BITS_AT_ONCE
        low, high, power = enclosed_product(ratios, bits + SPARE_BITS)
        a, k = halved_exp(gamma, doublings + power, bits)
        low, high = a * low << max(0, bits - k), (a + 3) * high << max(0, bits - k)
        # Beyond `high` a larger scale decides nothing more, and would be as long as gamma is large.
        scale = 10**bits << min(max(0, k - bits), high.bit_length())
        if drawn + 1 <= low // scale:
            return True
        if drawn * scale >= high:
            return False


def enclosed_product(ratios: Sequence[tuple[int, int]], bits: int) -> tuple[int, int, int]:
    """(low, high, power) with low ≤ Π top/bottom·2^-power ≤ high, and low of so many bits.

    Each step rounds low down and high up (test_products_are_enclosed).
    """
    low, high, power = 1 << bits - 1, 1 << bits - 1, 1 - bits
    for top, bottom in ratios:
        wide = 2 * bottom.bit_length()  # then no quotient loses bits
        low, high = (low * top << wide) // bottom, -((-high * top << wide) // bottom)
        drop = low.bit_length() - bits
        low, high, power = low >> drop, -(-high >> drop), power + drop - wide
    return low, high, power
