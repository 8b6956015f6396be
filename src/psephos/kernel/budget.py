"""Privacy budgets: exact rationals in one of two currencies.

*epsilon* is pure differential privacy, *rho* zero-concentrated differential privacy (zCDP). Floats
are refused: 0.1 is not a tenth. Conversions between currencies are certified: computed in
decimal arithmetic of 60 digits with correctly rounded exp and ln, and widened by far more than the
arithmetic can be off.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import total_ordering
from typing import Any, Literal

from psephos.errors import BudgetError

Currency = Literal["epsilon", "rho"]
Mechanism = Literal["noise", "exponential", "noisy minimum"]
RHO_OF_EPSILON: dict[Mechanism, Fraction] = {
    "noise": Fraction(1, 2),
    "exponential": Fraction(1, 8),
    "noisy minimum": Fraction(1, 2),
}
"""What a mechanism that is ε-DP costs in zCDP, as a multiple of ε²."""
RHO_GRID = Fraction(1, 2**40)
LARGEST_TERM = 10**300  # numerator or denominator of an amount that is charged
_EXACT = Context(prec=60)
_SLACK = Decimal("1e-40")
_SMALLEST_LOG = Decimal(-10_000)  # a delta of 10^-4343; decimals end far below it
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
        return Budget("epsilon", epsilon_bound(self.amount, exact(delta, "delta")))

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
    target, within = exact(eps, "epsilon"), exact(delta, "delta")
    if within >= 1:
        raise BudgetError(f"delta is a probability below 1, got {within}")
    beyond = _least(lambda k: delta_bound(k * RHO_GRID, target) > within)
    if beyond == 1:
        raise BudgetError(f"(epsilon {target}, delta {within}) is less rho than the grid of 2^-40")
    return Budget("rho", (beyond - 1) * RHO_GRID)


def delta_bound(rho_amount: Fraction, eps: Fraction) -> Fraction:
    """An upper bound on the delta at which rho-zCDP implies (eps, delta).

    Every α > 1 gives one (Canonne, Kamath, Steinke 2020, Proposition 12):

        δ ≤ exp((α - 1)(αρ - ε)) / (α - 1) · (1 - 1/α)^α
    """
    if rho_amount <= 0:
        return Fraction(0)
    # Any α is valid, so it may be found in floating point; the bound is then exact in α.
    alpha = _order(float(rho_amount), float(eps))
    a, ctx = _decimal(alpha), _EXACT
    exponent = _decimal((alpha - 1) * (alpha * rho_amount - eps))
    log_delta = ctx.subtract(exponent, ctx.ln(_decimal(alpha - 1)))
    log_delta = ctx.add(log_delta, ctx.multiply(a, ctx.ln(_decimal(1 - 1 / alpha))))
    log_delta = ctx.add(log_delta, ctx.multiply(_SLACK, ctx.add(a, abs(log_delta))))
    if log_delta >= 0:
        return Fraction(1)
    return Fraction(ctx.exp(max(log_delta, _SMALLEST_LOG))) * (1 + Fraction(_SLACK))


def epsilon_bound(rho_amount: Fraction, delta: Fraction) -> Fraction:
    """The least epsilon on a grid of 2⁻²⁰ (rounded up) that rho-zCDP certifiably implies."""
    if not 0 < delta < 1:
        raise BudgetError(f"delta is a probability between 0 and 1, got {delta}")
    step = Fraction(1, 2**20)
    return step * _least(lambda k: delta_bound(rho_amount, k * step) <= delta)


def _least(holds: Callable[[int], bool]) -> int:
    """A k from 0 with holds(k) and, but for k = 0, not holds(k - 1)."""
    low, high = -1, 1
    while not holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _order(r: float, e: float) -> Fraction:
    """An α near the best: first by doubling, then finer around the winner."""

    def log_delta(a: float) -> float:
        return (a - 1) * (a * r - e) - math.log(a - 1) + a * math.log1p(-1 / a)

    near = min((1 + 2.0**k for k in range(-20, 41)), key=log_delta) - 1
    best = min((1 + near * 2 ** (k / 64) for k in range(-64, 65)), key=log_delta)
    return max(Fraction(best).limit_denominator(10**6), 1 + Fraction(1, 10**6))


def _decimal(x: Fraction) -> Decimal:
    return _EXACT.divide(Decimal(x.numerator), Decimal(x.denominator))


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
