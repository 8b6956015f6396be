"""Exact discrete Laplace and Gaussian noise from the operating system's entropy.

Every step compares whole numbers: no float takes part in a draw. Both laws are drawn by `_Strips`:
candidates from a staircase above the law, of which nineteen in twenty are kept after one look at a
table, and the others are judged by the coins of Canonne, Kamath and Steinke 2020 (*The Discrete
Gaussian for Differential Privacy*, Algorithm 1). All of it runs on whole arrays. A rejected
candidate is dropped and the rest moves up, which is exact because candidates are independent.
Entropy is read per call and never kept, so a fork has nothing to share. How long a draw takes
depends on the noise; docs/privacy.md says what that may show.

Privacy: each function says why its distribution is exact and names its test, all of them in
tests/kernel/test_noise.py; test_no_float_takes_part reads the code below.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from psephos.errors import RefusedError
from psephos.variances import gaussian_variance, laplace_variance

Integers = NDArray[Any]  # int64; Python integers (dtype object) where int64 might not do
Flags = NDArray[np.bool_]
Part = tuple[Integers, int | Integers]  # numerators, and their denominators or their only one

BATCH = 2**16  # candidates at a time: in cache, yet many to a call
PLACES = 2**16  # equally likely places of a staircase: its strips, its tail, and nothing
MOST_EMPTY = 100  # batches without a draw: of 16 candidates and more one in three or more is kept
FINE = 96  # bits of the bounds from which a staircase is made
THIN = {1: 16, 2: 512}  # a strip's first rise of γ is at most one over this, by γ's power
SMALL = 2**45  # a rational of terms below this is drawn as it is
WIDE = 2**62  # below this, the sum of two stays in int64


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


def _unit_flags(parts: tuple[Part, ...], size: int, passed: int = 0) -> Flags:
    """Flags true with probability exp(-γ), where γ = Π a/b with every a ≤ b.

    Privacy: in step k an element goes on with probability γ/k, by one independent comparison for
    1/k and one for each a/b. It passes the first k steps with probability γᵏ/k!, so it stops at an
    odd step with probability Σ (-γ)ᵏ/k! = exp(-γ) (Canonne, Kamath, Steinke 2020, Algorithm 1).
    Elements that have `passed` steps already go on from there (test_exp_flags).
    """
    flags, live, k = np.full(size, passed % 2 == 0), np.arange(size), passed + 1
    while live.size:
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


def _exp_bounds(gamma: Fraction, bits: int) -> tuple[int, int]:
    """Whole numbers around exp(-γ)·2^bits, closer to each other the more bits there are.

    Privacy: with h halvings y = γ/2ʰ < 1. Terms of Σ yⁱ/i!, rounded down, add up to no more than
    exp(y); rounded up, until one is a unit, and with another unit for the rest of the terms, whose
    ratio is below a half, to no less. One over these bounds exp(-y), and squaring h times with
    the same roundings exp(-γ) (test_exp_bounds).
    """
    halvings = math.floor(gamma).bit_length()
    fine = bits + 2 * halvings + 8
    bounds = []
    for up in (1, 0):
        y = math.floor(gamma * 2 ** (fine - halvings)) + up
        total = term = 1 << fine
        i = 1
        while term > up:
            term = -(-term * y // (i << fine)) if up else term * y // (i << fine)
            total, i = total + term, i + 1
        bounds.append((1 << 2 * fine) // (total + up) + 1 - up)
    low, high = bounds
    for _ in range(halvings):
        low, high = low * low >> fine, -(-high * high >> fine)
    return low >> fine - bits, -(-high >> fine - bits)


def _flag(gamma: Fraction, times: Fraction, word: int = 0, bits: int = 0) -> bool:
    """True if U < times·exp(-γ), U uniform from 0 to 1, whose first bits are those of the word.

    Privacy: U is drawn only as far as it takes to tell; the bounds of `_exp_bounds` close in on
    the threshold, so that it is told sooner or later (test_single_flags).
    """
    while True:
        word, bits = word << 64 | int.from_bytes(_entropy(8)), bits + 64
        low, high = _exp_bounds(gamma, bits)
        if Fraction(word + 1, 1 << bits) <= times * Fraction(low, 1 << bits):
            return True
        if Fraction(word, 1 << bits) >= times * Fraction(high, 1 << bits):
            return False


@dataclass(frozen=True, eq=False, repr=False)
class _Strips:
    """Draws of P(x) ∝ exp(-γ(|x|)), where γ(x) = xᵖ·top/bottom for p = 1 or 2.

    Strip k holds the 2ʲ integers from a = k·2ʲ on, for k < K. A place is drawn uniformly out of
    2¹⁶. Of these n_k belong to strip k; then x is uniform in the strip, and kept with probability
    exp(-γ(x))·B/n_k. One place belongs to the tail from K·2ʲ on; there run i has probability
    2⁻ⁱ⁻¹, x is uniform in the 2ʰ integers of the run, and kept with probability
    exp(-γ(x))·B·2ⁱ⁺¹⁺ʰ⁻ʲ. All other places give nothing.

    Privacy: so every x ≥ 0 comes up with probability exp(-γ(x))·B/2¹⁶⁺ʲ, and a fair sign that drops
    -0 makes it the law above. What is called a probability is at most 1: n_k ≥ exp(-γ(a))·B and γ
    grows; 2ʰ is so long that γ(2ʰ) ≥ 7/10 > ln 2, and γ(x + 2ʰ) ≥ γ(x) + γ(2ʰ), so that each run
    has at most half the weight of the one before, and K is so large that the first is below 1.
    Σ n_k < 2¹⁶ - 1 by the choice of B (test_places). `_near` and `_judged` say how x is kept.
    """

    power: int
    top: int
    bottom: int
    shift: int  # j
    block: int  # h
    scale: int  # B
    counts: tuple[int, ...]  # n_k
    places: Integers
    near: Integers  # verdicts below this, of strip k, want another look
    sure: Integers  # up to here they keep x
    most: Integers  # and from here on they drop it

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, power: int, top: int, bottom: int, places: int = PLACES) -> _Strips:
        """The staircase of a law, from bounds of exp(-γ) at the first integer of each strip.

        It takes up to so many places: fewer leave more to the tail, and to nothing.
        """
        shift = max(0, (bottom // (THIN[power] * top)).bit_length() - 1) // power
        block = -(-(-(-7 * bottom // (10 * top)) - 1).bit_length() // power)
        first = Fraction(top << shift * power, bottom)
        low = high = 1 << FINE
        down, up = _exp_bounds(first, FINE)
        slower, faster = _exp_bounds(2 * first * (power - 1), FINE)
        bounds, total = [], 0
        while not total or high * places << 1 + block - shift > total:
            bounds.append((low, high))
            total += high
            low, high = low * down >> FINE, -(-high * up >> FINE)
            down, up = down * slower >> FINE, -(-up * faster >> FINE)
        scale = (places - 2 - len(bounds) << FINE) // total
        counts = tuple([-(-high * scale >> FINE) for _, high in bounds])
        rows = []
        for k, (n, (low, high)) in enumerate(zip(counts, bounds, strict=True)):
            sure = min(PLACES - 1, (low * scale << 16) // (n << FINE))
            most = -(-(high * scale << 16) // (n << FINE))
            rise = ((k + 1 << shift) - 1) ** power - (k << shift) ** power
            rows.append((-(-rise * top * sure // bottom), sure, most))
        near, sure, most = np.array([*rows, (0, 0, 0), (0, 0, 0)]).T
        kinds = np.repeat(np.arange(len(rows) + 2), [*counts, 1, PLACES - 1 - sum(counts)])
        words = np.uint16
        arrays = kinds.astype(words), near.astype(words), sure.astype(words), most
        return cls(power, top, bottom, shift, block, scale, counts, *arrays)

    def draw(self, size: int) -> Integers:
        """At most `size` independent draws: int64, or Python integers beyond 2⁶²."""
        words = np.frombuffer(_entropy(4 * size), np.uint16)
        place, verdict = self.places.take(words[:size]), words[size:]
        wide = len(self.counts) + 1 << self.shift >= WIDE
        low = _bits(self.shift + 1, size)
        x = (place.astype(object if wide else np.int64) << self.shift) | low >> 1
        near = self.near.take(place)
        keep: Flags = verdict - near < self.sure.take(place) - near  # modulo 2¹⁶
        others = np.flatnonzero(~keep)
        keep[others], far = self._judged(place[others], verdict[others], x[others])
        if far:
            where, beyond = others[list(far)], np.array(list(far.values()), object)
            x = x if max(far.values()) < WIDE else x.astype(object)
            x[where] = beyond
        negative = low & 1 == 1
        keep &= ~negative | (x != 0)
        return np.where(negative, -x, x)[keep]

    def _judged(
        self, place: Integers, verdict: Integers, x: Integers
    ) -> tuple[Flags, dict[int, int]]:
        """Which candidates are kept that no table keeps, and the x of those from the tail.

        Privacy: let c = exp(-γ(a))·B/n_k. A verdict v, uniform below 2¹⁶, is the beginning of a
        uniform number that is compared with c: below `sure` ≤ c·2¹⁶ it passes, from `most` ≥ c·2¹⁶
        on it fails, between them `_flag` tells. What passes is kept with probability
        exp(γ(a) - γ(x)), by coins of its own (test_gaussian, test_laplace, test_judged).
        """
        keep = np.zeros(place.size, bool)
        near = np.flatnonzero(verdict < self.near[place])
        keep[near] = self._near(place[near], x[near])
        between = (verdict >= self.sure[place]) & (verdict < self.most[place])
        for i in np.flatnonzero(between).tolist():
            k = int(place[i])
            ratio = Fraction(self.scale, self.counts[k])
            if _flag(self._gamma(k << self.shift), ratio, int(verdict[i]), 16):
                rise = self._gamma(int(x[i])) - self._gamma(k << self.shift)
                keep[i] = _flag(rise, Fraction(1))
        far = {}
        for i in np.flatnonzero(place == len(self.counts)).tolist():
            run = 0
            while _below_big(2):
                run += 1
            x_far = (len(self.counts) << self.shift) + (run << self.block)
            x_far += _below_big(1 << self.block)
            times = Fraction(self.scale << run + 1 + self.block - self.shift)
            if _flag(self._gamma(x_far), times):
                keep[i], far[i] = True, x_far
        return keep, far

    def _near(self, place: Integers, x: Integers) -> Flags:
        """Flags true with probability exp(-δ), δ = γ(x) - γ(a), for verdicts v < near.

        Privacy: a verdict that passes is uniform below `sure`, so v < near has probability
        near/sure, and near/sure ≥ δ. The first step of `_unit_flags` passes with probability δ if
        it takes both v < near and a coin of δ·sure/near; a verdict from near on stops there, and
        is kept. Strips end before γ(a) reaches 32, where exp(-γ(a)) is below 2⁻⁴⁶, so that
        δ ≤ 2·√(32/512) ≤ 1. No overflow: δ·bottom·sure ≤ bottom·near < 2¹⁶·bottom, and
        γ(x)·bottom < 2⁶·bottom; where these may not fit, Python's integers do (test_places,
        test_gaussian, test_laplace).
        """
        if max(self.top, self.bottom) << 16 >= WIDE:
            x = x.astype(object)
        whole: Any = object if x.dtype == object else np.int64
        start = place.astype(whole) << self.shift
        rise = (x**self.power - start**self.power) * self.top
        sure, near = self.sure[place].astype(whole), self.near[place].astype(whole)
        first: Flags = uniform_below(near * self.bottom, x.size) < rise * sure
        flags = ~first
        flags[first] = _unit_flags(((rise[first], self.bottom),), int(first.sum()), 1)
        return flags

    def _gamma(self, x: int) -> Fraction:
        return Fraction(x**self.power * self.top, self.bottom)


def _bits(count: int, size: int) -> Integers:
    """Independent uniform integers below 2^count."""
    if count > 62:
        return np.array([_below_big(1 << count) for _ in range(size)], object)
    kind = np.dtype(f"u{2 if count <= 16 else 4 if count <= 32 else 8}")
    words = np.frombuffer(_entropy(size * kind.itemsize), kind)
    return (words >> 8 * kind.itemsize - count).astype(np.int64)


def _filled(size: int, batch: Callable[[int], Integers]) -> Integers:
    """The first `size` survivors of batches of candidates."""
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise RefusedError(f"draw takes how many, a whole number from 0, got {size!r}")
    out: Integers = np.empty(size, np.int64)
    done = empty = 0
    while done < size:
        left = size - done
        part = batch(min(left + left // 8 + 16, BATCH))[:left]
        out = out.astype(object, copy=False) if part.dtype == object else out
        out[done : done + part.size] = part
        done, empty = done + part.size, 0 if part.size else empty + 1
        if empty > MOST_EMPTY:
            raise RefusedError("the system's entropy repeats itself; no noise can be drawn from it")
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

    Privacy: added to integer queries of L1 sensitivity Δ, Δ/scale-DP; drawn by `_Strips`
    (tests/kernel/test_noise.py::test_laplace).

    >>> round(DiscreteLaplace(Fraction(1)).exact_variance, 4)
    1.8413
    """

    scale: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _grid(self.scale, "scale"))

    def draw(self, size: int) -> Integers:
        """Independent draws: int64; Python integers (dtype object) if a batch passes 2⁶²."""
        t, s = self.scale.as_integer_ratio()
        return _filled(size, _Strips.of(1, s, t).draw)

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
    paper for one query; the divergences of independent noises add); drawn by `_Strips`
    (tests/kernel/test_noise.py::test_gaussian).

    >>> round(DiscreteGaussian(Fraction(1, 4)).exact_variance, 4)
    0.215
    """

    variance: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", _grid(self.variance, "variance"))

    def draw(self, size: int) -> Integers:
        """Independent draws: int64; Python integers (dtype object) if a batch passes 2⁶²."""
        p, q = self.variance.as_integer_ratio()
        return _filled(size, _Strips.of(2, q, 2 * p).draw)

    @property
    def exact_variance(self) -> float:
        """Near the parameter, and below it."""
        return gaussian_variance(float(self.variance))


Noise = DiscreteLaplace | DiscreteGaussian
