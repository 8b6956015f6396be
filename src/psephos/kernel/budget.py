"""Privacy budgets: exact rationals in one of two currencies.

*epsilon* is pure differential privacy, *rho* zero-concentrated differential privacy (zCDP). Floats
are refused: 0.1 is not a tenth. `conversion` leads from rho to epsilon at a delta.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import total_ordering
from typing import Any, Literal

from psephos.errors import BudgetError
from psephos.kernel import conversion

Currency = Literal["epsilon", "rho"]
Mechanism = Literal["noise", "exponential", "noisy minimum"]
RHO_OF_EPSILON: dict[Mechanism, Fraction] = {
    "noise": Fraction(1, 2),
    "exponential": Fraction(1, 8),
    "noisy minimum": Fraction(1, 2),
}
"""What a mechanism that is ε-DP costs in zCDP, as a multiple of ε²."""
LARGEST_TERM = 10**300  # numerator or denominator of an amount that is charged
_N = "[0-9]{1,300}"
_WRITTEN = re.compile(rf"[+-]?({_N}/{_N}|({_N}([.][0-9]{{0,300}})?|[.]{_N})(e[+-]?[0-9]{{1,3}})?)")


@total_ordering
@dataclass(frozen=True, eq=True, repr=False)
class Budget:
    """An exact amount of epsilon or rho; amounts of one currency add and compare.

    >>> epsilon("0.1") + epsilon("0.2") == epsilon("0.3")
    True
    """

    currency: Currency
    amount: Fraction

    def __post_init__(self) -> None:
        if self.currency not in ("epsilon", "rho") or type(self.amount) is not Fraction:
            raise BudgetError(
                f"a budget is an exact amount of epsilon or rho, got {self.amount!r} of "
                f'{self.currency!r}; write epsilon("0.1") or rho("0.1")'
            )
        if self.amount < 0:
            raise BudgetError(f"a budget is never negative, got {self.amount}")

    def __add__(self, other: Budget) -> Budget:
        return Budget(self.currency, self.amount + self._same(other))

    def __sub__(self, other: Budget) -> Budget:
        left = self.amount - self._same(other)
        if left < 0:
            raise BudgetError(f"{other} is more than {self}; a budget is never negative")
        return Budget(self.currency, left)

    def __mul__(self, factor: Any) -> Budget:
        return Budget(self.currency, self.amount * exact(factor, "a share of a budget"))

    __rmul__ = __mul__

    def __truediv__(self, factor: Any) -> Budget:
        return Budget(self.currency, self.amount / exact(factor, "the divisor of a budget"))

    def __lt__(self, other: Budget) -> bool:
        return self.amount < self._same(other)

    def at_delta(self, delta: Any) -> Budget:
        """The epsilon that this rho implies at a delta, certified and rounded up.

        >>> rho("1/2").at_delta("1e-6")
        epsilon 5475181/1048576 (~5.22154)
        """
        if self.currency == "epsilon":
            return self
        return Budget("epsilon", conversion.epsilon_bound(self.amount, exact(delta, "delta")))

    def booked(self, currency: Currency, mechanism: Mechanism = "noise", draws: int = 1) -> Budget:
        """What a ledger of a currency books for a mechanism that spends this, evenly on its draws.

        Privacy: what is ε-DP is ε²/2-zCDP (Bun and Steinke 2016, Proposition 4); the exponential
        mechanism is ε²/8-zCDP, since its range is bounded (Cesar and Rogers 2021). Of s draws
        each spends ε/s, and they compose to s·(ε/s)² times that. Nothing leads
        from rho back to epsilon (tests/kernel/test_budget.py::test_what_a_ledger_books).
        """
        if self.currency == currency:
            return self
        if self.currency == "rho":
            raise BudgetError(f"this ledger keeps epsilon and cannot pay {self}")
        return Budget("rho", RHO_OF_EPSILON[mechanism] * self.amount**2 / draws)

    def _same(self, other: Any) -> Fraction:
        if not isinstance(other, Budget):
            raise BudgetError(f"{self} and {other!r}: write epsilon(...) or rho(...) on both sides")
        if other.currency != self.currency:
            raise BudgetError(f"{self} and {other} are different currencies and do not mix")
        return other.amount

    def __repr__(self) -> str:
        shown = f"{self.currency} {self.amount}"
        return shown if self.amount.denominator == 1 else f"{shown} (~{float(self.amount):.6g})"


def epsilon(amount: Any) -> Budget:
    """A budget of pure differential privacy, from text such as "0.1" or "1/3"."""
    return Budget("epsilon", exact(amount, "epsilon"))


def rho(amount: Any) -> Budget:
    """A budget of zero-concentrated differential privacy, from text such as "1/200"."""
    return Budget("rho", exact(amount, "rho"))


def epsilon_delta(eps: Any, delta: Any) -> Budget:
    """The largest rho, on a grid of 2⁻⁴⁰, that certifiably implies (epsilon, delta).

    >>> epsilon_delta("1", "1e-6")
    rho 13389833763/549755813888 (~0.024356)
    """
    return Budget("rho", conversion.rho_bound(exact(eps, "epsilon"), exact(delta, "delta")))


def exact(amount: Any, what: str) -> Fraction:
    """A positive, finite rational from text, a whole number, a Fraction or a Decimal.

    Types are compared by identity: a subclass could answer one thing now and another later.

    >>> exact("1/3", "a weight"), exact("1e-6", "delta")
    (Fraction(1, 3), Fraction(1, 1000000))
    """
    if isinstance(amount, float):
        raise BudgetError(
            f'{what} {amount!r} is a float, not quite what it shows; write "{amount!r}"'
        )
    if not any(type(amount) is kind for kind in (str, int, Fraction, Decimal)):
        raise BudgetError(
            f'{what} must be text such as "0.1", or a whole number, got {amount!r:.60}'
        )
    try:
        top, bottom = _read(amount).as_integer_ratio()
        if type(top) is not int or type(bottom) is not int or bottom < 1:
            raise ValueError
    except (ValueError, ArithmeticError):
        shown = repr(amount) if type(amount) is not str or len(amount) < 60 else "this text"
        raise BudgetError(
            f'{what} {shown} is not a finite number that can be read; write e.g. "0.1" or "1/3"'
        ) from None
    if top <= 0:
        raise BudgetError(f"{what} must be more than 0, got {amount}")
    if max(top, bottom) >= LARGEST_TERM:
        raise BudgetError(f"{what} must be a fraction of two numbers of at most 300 digits each")
    return Fraction(top, bottom)


def _read(amount: Any) -> Any:
    """Text as a Fraction, if it is short and in the digits 0 to 9; no Decimal of endless digits."""
    if type(amount) is str:
        amount = amount.strip().lower()
        if not _WRITTEN.fullmatch(amount):
            raise ValueError
        return Fraction(amount)
    if type(amount) is Decimal and not -300 <= int(amount.as_tuple().exponent) <= 300:
        raise ValueError
    return amount
