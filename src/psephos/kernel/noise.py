"""Exact discrete Laplace and Gaussian noise from the operating system's entropy.

Every step compares whole numbers: no float takes part in a draw. The samplers are those of
Canonne, Kamath and Steinke 2020 (*The Discrete Gaussian for Differential Privacy*, Algorithms 1
to 3), run on whole arrays. A rejected candidate is dropped and the rest moves up, which is exact
because candidates are independent. Entropy is read per call and never kept, so a fork has nothing
to share. How long a draw takes depends on the noise; docs/privacy.md says what that may show.

Privacy: each function says why its distribution is exact and names its test, all of them in
tests/kernel/test_noise.py; test_no_float_takes_part reads the code below.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psephos.errors import RefusedError
from psephos.variances import gaussian_variance, laplace_variance

Integers = NDArray[Any]  # int64; Python integers (dtype object) where int64 might not do
Flags = NDArray[np.bool_]
Part = tuple[Integers, int | Integers]  # numerators, and their denominators or their only one

BATCH = 2**17  # candidates at a time: in cache, yet many to a call
SMALL = 2**45  # a rational of terms below this is drawn as it is
WIDE = 2**62  # below this, the sum of two stays in int64
MOST_COIN_STEPS = 256  # a coin takes more once in 256! times, unless entropy repeats itself


def _entropy(size: int) -> bytes:
    """The only source of randomness; tests replace it, no argument reaches it."""
    return os.urandom(size)


def uniform_below(bounds: int | Integers, size: int) -> Integers:
    """Independent uniform integers in [0, bound), of one bound of any size or a bound each.

    Privacy: words of w bits fall into blocks of bound; if 2ʷ cuts the last block short, a word in
    it is drawn again, so every remainder is equally likely (test_uniform).
    """
    if isinstance(bounds, int):
        least = most = bounds
    else:
        least, most = bounds.min(initial=1), bounds.max(initial=1)
    if least < 1:
        raise RefusedError("a uniform draw needs bounds of at least 1")
    if most >= 2**63:
        return np.array([_below_big(bound) for bound in np.full(size, bounds, object)], object)
    bits = 16 if most <= 2**12 else 32 if most <= 2**28 else 64  # then few are drawn again
    kind = np.dtype(f"u{bits // 8}").type
    words = np.frombuffer(_entropy(size * bits // 8), kind)
    bound = np.asarray(bounds, kind)
    block = words // bound * bound
    out: Integers = (words - block).astype(np.int64)
    again = np.flatnonzero(block > ~(bound - kind(1)))  # it starts beyond 2ʷ - bound: cut short
    if again.size:
        out[again] = uniform_below(_at(bounds, again), again.size)
    return out


def exp_flags(parts: tuple[Part, ...]) -> Flags:
    """Flags true with probability exp(-γ), where γ = Π a/b over the parts.

    Privacy: with j = max(1, ⌈a/b⌉) for each part and m = Π j, exp(-γ) is the probability that
    m independent trials of exp(-γ/m) all succeed, and γ/m = Π a/(b·j) is a product of
    terms in [0, 1]. No overflow: b·j < a + b, callers keep a and b below 2⁶² and m below 2⁶³, or
    give Python integers (test_exp_flags).
    """
    splits = [np.maximum(-(-a // b), 1) for a, b in parts]
    trials = math.prod(splits[1:], start=splits[0])
    flags: Flags = trials == 1
    flags[flags] = _unit_flags(tuple((a[flags], _at(b, flags)) for a, b in parts), flags.sum())
    live, done = np.flatnonzero(trials > 1), 0  # by now, all of them passed `done` trials
    while live.size:
        scaled = zip(parts, splits, strict=True)
        rows = tuple((a[live], _at(b, live) * split[live]) for (a, b), split in scaled)
        live = live[_unit_flags(rows, live.size)]
        done += 1
        flags[live[trials[live] == done]] = True
        live = live[trials[live] > done]
    return flags


def _unit_flags(parts: tuple[Part, ...], size: int) -> Flags:
    """Flags true with probability exp(-γ), where γ = Π a/b with every a ≤ b; no parts: γ = 1.

    Privacy: in step k an element goes on with probability γ/k, by one independent comparison for
    1/k and one for each a/b. It passes the first k steps with probability γᵏ/k!, so it stops at an
    odd step with probability Σ (-γ)ᵏ/k! = exp(-γ) (Canonne, Kamath, Steinke 2020, Algorithm 1;
    test_exp_flags).
    """
    flags, live, k = np.ones(size, bool), np.arange(size), 1
    while live.size:
        if k > MOST_COIN_STEPS:
            raise RefusedError("the system's entropy repeats itself; no noise can be drawn from it")
        if k > 1:
            live = live[uniform_below(k, live.size) == 0]
        for a, b in parts:
            live = live[uniform_below(_at(b, live), live.size) < a[live]]
        flags[live] = k % 2 == 0  # passed step k: an odd stop, if at the next
        k += 1
    return flags


def _at(b: int | Integers, rows: NDArray[Any]) -> int | Integers:
    return b if isinstance(b, int) else b[rows]


def _below_big(bound: int) -> int:
    """A uniform integer in [0, bound): the first of enough random bits that is below it."""
    bits = (bound - 1).bit_length()
    size = (bits + 7) // 8
    while True:
        drawn = int.from_bytes(_entropy(size)) >> (8 * size - bits)
        if drawn < bound:
            return drawn


def _geometric(size: int) -> Integers:
    """Independent counts of successes, each of probability exp(-1), before the first failure."""
    counts, live = np.zeros(size, np.int64), np.arange(size)
    while live.size:
        live = live[_unit_flags((), live.size)]
        counts[live] += 1
    return counts


def _laplace(t: int, s: int, size: int) -> Integers:
    """At most `size` independent draws of P(x) ∝ exp(-|x|·s/t).

    Privacy: U uniform below t, kept with probability exp(-U/t), and V with P(V ≥ v) = exp(-v)
    give U + tV the weight exp(-(U + tV)/t), each integer once; its quotient by s then has weights
    exp(-ys/t). A fair sign that drops -0 counts zero once (Algorithm 2 of the paper). No overflow:
    U + tV < t(V + 1) ≤ 2⁶²; a batch with a larger V goes on in Python integers, with the same U
    and V (test_laplace, test_far_tails_do_not_wrap).
    """
    low = uniform_below(t, size)
    low = low[_unit_flags(((low, t),), size)]
    high = _geometric(low.size)
    if high.max(initial=0) >= WIDE // t or s >= WIDE:
        low, high = low.astype(object), high.astype(object)
    y: Integers = (low + t * high) // s
    negative = uniform_below(2, y.size) == 1
    keep: Flags = ~negative | (y != 0)
    return np.where(negative, -y, y)[keep]


def _gaussian(t: int, p: int, q: int, size: int) -> Integers:
    """At most `size` independent draws of P(x) ∝ exp(-x²/2σ²), where σ² = t·p/q.

    Privacy: Y from `_laplace` of scale t, kept with probability exp(-γ), γ = (|Y| - σ²/t)²/2σ², has
    the weight exp(-|Y|/t - γ) ∝ exp(-Y²/2σ²), for any t (Algorithm 3 of the paper). With
    a = ||Y|q - p|, γ = a/p · a/2qt. No overflow: `largest` bounds every a of the batch and both
    denominators, `trials` what `exp_flags` makes of them; where they do not fit, the batch is
    judged in Python integers (test_gaussian, test_far_tails_do_not_wrap).
    """
    y = _laplace(t, 1, size)
    largest = max(int(np.abs(y).max(initial=0)) * q, p, 2 * q * t)
    trials = (largest // p + 1) * (largest // (2 * q * t) + 1)
    wide = max(largest, trials) >= WIDE
    a = np.abs(np.abs(y.astype(object) if wide else y) * q - p)
    return y[exp_flags(((a, 2 * q * t), (a, p)))]


def _filled(size: int, batch: Callable[[int], Integers]) -> Integers:
    """The first `size` survivors of batches of candidates."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise RefusedError(f"draw takes how many, a whole number from 0, got {size!r}")
    out: Integers = np.empty(size, np.int64)
    done = 0
    while done < size:
        part = batch(min(2 * (size - done) + 16, BATCH))[: size - done]
        out = out.astype(object, copy=False) if part.dtype == object else out
        out[done : done + part.size] = part
        done += part.size
    return out


def _grid(x: Fraction, what: str) -> Fraction:
    """x, if its terms are below 2⁴⁵; else the least m·2ᵉ ≥ x with m of 25 to 27 bits.

    The increase is below one unit of an m > 2²⁴: less than 2⁻²⁴ of x.
    """
    if not isinstance(x, Fraction) or not Fraction(1, 2**300) <= x <= 2**300:
        raise RefusedError(f"{what} must be a Fraction from 2^-300 to 2^300, got {x!r}")
    if max(x.numerator, x.denominator) < SMALL:
        return x
    unit = Fraction(2) ** (x.numerator.bit_length() - x.denominator.bit_length() - 25)
    return math.ceil(x / unit) * unit


@dataclass(frozen=True)
class DiscreteLaplace:
    """Integers x with P(x) ∝ exp(-|x|/scale).

    The scale is rounded up, never down, by less than 2⁻²⁴ of itself, and only if a term of it
    reaches 2⁴⁵; the field holds what is drawn.

    Privacy: added to integer queries of L1 sensitivity Δ, Δ/scale-DP; drawn by `_laplace`
    (tests/kernel/test_noise.py::test_laplace).

    >>> round(DiscreteLaplace(Fraction(1)).exact_variance, 4)
    1.8413
    """

    scale: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _grid(self.scale, "scale"))

    def draw(self, size: int) -> Integers:
        """Independent draws: int64; Python integers (dtype object) if a batch passes 2⁶²."""
        t, s = self.scale.numerator, self.scale.denominator
        return _filled(size, lambda most: _laplace(t, s, most))

    @property
    def exact_variance(self) -> float:
        """Below 2·scale²."""
        return laplace_variance(float(self.scale))


@dataclass(frozen=True)
class DiscreteGaussian:
    """Integers x with P(x) ∝ exp(-x²/(2·variance)).

    The parameter is rounded up, never down, by less than 2⁻²⁴ of itself, and only if a term of it
    reaches 2⁴⁵; the field holds what is drawn.

    Privacy: added to integer queries of L2 sensitivity Δ, Δ²/(2·variance)-zCDP (Theorem 4 of the
    paper for one query; the divergences of independent noises add); drawn by `_gaussian`
    (tests/kernel/test_noise.py::test_gaussian).

    >>> round(DiscreteGaussian(Fraction(1, 4)).exact_variance, 4)
    0.215
    """

    variance: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", _grid(self.variance, "variance"))

    def draw(self, size: int) -> Integers:
        """Independent draws: int64; Python integers (dtype object) if a batch passes 2⁶²."""
        # Any t is exact; t near sigma is fast, and its six leading bits keep p and q small.
        sigma = (math.isqrt(math.floor(4 * self.variance)) + 1) // 2
        unit = 2 ** max(0, sigma.bit_length() - 6)
        t = max(1, sigma // unit * unit)
        p, q = (self.variance / t).as_integer_ratio()
        return _filled(size, lambda most: _gaussian(t, p, q, most))

    @property
    def exact_variance(self) -> float:
        """Near the parameter, and below it."""
        return gaussian_variance(float(self.variance))


Noise = DiscreteLaplace | DiscreteGaussian


class NoiseDraws:
    """Exact draws from the operating system's entropy; there is no seed."""

    simulation = False

    def noise(self, noise: Noise, size: int) -> Integers:
        """Independent draws of the noise."""
        return noise.draw(size)
