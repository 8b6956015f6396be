"""From rho to epsilon at a delta and back, certified: needed where a guarantee is told as a pair.

Bounds are computed in decimal arithmetic of 60 digits with correctly rounded exp and ln, and
widened by far more than the arithmetic can be off (tests/kernel/test_budget.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction

from psephos.errors import BudgetError

RHO_GRID = Fraction(1, 2**40)
_EXACT = Context(prec=60)
_SLACK = Decimal("1e-40")
_SMALLEST_LOG = Decimal(-10_000)  # a delta of 10^-4343; decimals end far below it


def rho_bound(eps: Fraction, delta: Fraction) -> Fraction:
    """The largest rho, on a grid of 2⁻⁴⁰, that certifiably implies (eps, delta)."""
    if delta >= 1:
        raise BudgetError(f"delta is a probability below 1, got {delta}")
    beyond = _least(lambda k: delta_bound(k * RHO_GRID, eps) > delta)
    if beyond == 1:
        raise BudgetError(f"(epsilon {eps}, delta {delta}) is less rho than the grid of 2^-40")
    return (beyond - 1) * RHO_GRID


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
