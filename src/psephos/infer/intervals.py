"""Noise intervals: how far an answer may be from the truth by privacy noise alone.

An answer of least squares is a fixed linear combination of independent noises whose distributions
are public. Its quantiles are computed where what each measured number does to it is known, and else
found by drawing the noise again and again, as are those of many answers at once: no data take part,
and the same seed gives the same widths everywhere.

Quantiles of noise: of a single noise exactly, of a sum of many by its characteristic function.

A sum S = Σ aᵢXᵢ of independent symmetric noises has P(|S| ≤ h) = (2/π) ∫ sin(th)/t · φ(t) dt over
t > 0, where φ is the product of the noises' own characteristic functions (Gil-Pelaez 1951). In
units of the standard deviation of S these are 1/(1 + a²t²/2) for Laplace noise and exp(-a²t²/2) for
Gaussian noise; that noise is whole is left out, which matters little once it is wide.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import default_rng
from scipy.special import ndtri

from psephos.errors import UnsupportedError
from psephos.inverse.form import Factors, Form
from psephos.kernel.noise import DiscreteLaplace, Noise
from psephos.kernel.simulate import SeededDraws
from psephos.values import Array
from psephos.workload.workload import Workload

SMOOTH = 1000.0
FAR = 60.0
"""Where characteristic functions end: what a single Laplace noise leaves out there is 1e-5."""
NODES = 160
CHUNK = 1 << 22
STEPS = 40


def noise_quantile(noise: Noise, confidence: float) -> int:
    """The least k with P(|X| ≤ k) ≥ confidence, for noise that is added to a count as it is.

    For discrete Laplace noise P(|X| > k) = 2·exp(-(k + 1)/b) / (1 + exp(-1/b)), in closed form.

    >>> from fractions import Fraction
    >>> noise_quantile(DiscreteLaplace(Fraction(10)), 0.95)
    30
    """
    if not 0 < confidence < 1:
        raise UnsupportedError(f"a confidence lies between 0 and 1, got {confidence!r}")
    if isinstance(noise, DiscreteLaplace):
        rate = 1 / float(noise.scale)
        beyond = (1 - confidence) * (1 + math.exp(-rate)) / 2
        return max(0, math.ceil(-math.log(beyond) / rate - 1 - 1e-12))
    sigma = math.sqrt(float(noise.variance))
    if sigma > SMOOTH:  # then the sums below are those of a normal density, to 1e-12 and better
        z = float(ndtri((1 + confidence) / 2))
        return max(0, math.ceil(sigma * z - 0.5))
    support = np.arange(math.ceil(12 * sigma) + 2, dtype=float)
    weights = np.exp(-(support**2) / (2 * float(noise.variance)))
    weights[1:] *= 2
    within = np.cumsum(weights) / weights.sum()
    return int(np.searchsorted(within, confidence * (1 - 1e-15)))


def shape_bounds(noises: Sequence[Noise], confidence: float) -> tuple[float, float]:
    """Quantiles in standard deviations, of a normal and of a single Laplace noise.

    Those of sums of wide noises lie between the two.
    """
    bounds = [float(ndtri((1 + confidence) / 2))]
    if any(isinstance(noise, DiscreteLaplace) for noise in noises):
        bounds.append(-math.log(1 - confidence) / math.sqrt(2))
    return min(bounds), max(bounds)


def sum_quantiles(
    effects: Array, noises: Sequence[Noise], rows: Sequence[int], confidence: float
) -> Array:
    """H with P(|S| ≤ h) = confidence for every row S of effects on noises, so many of each kind.

    >>> from fractions import Fraction
    >>> laplace = DiscreteLaplace(Fraction(1000))
    >>> alone, two = sum_quantiles(np.array([[1.0, 0.0], [1.0, 1.0]]), [laplace], [2], 0.95)
    >>> round(alone), round(two)                       # ln 20, and (1 + h/2)·exp(-h) = 1/20
    (2996, 4113)
    """
    spreads = np.repeat([math.sqrt(noise.exact_variance) for noise in noises], rows)
    laplace = np.repeat([isinstance(noise, DiscreteLaplace) for noise in noises], rows)
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    t, weights = (nodes + 1) * FAR / 2, weights * FAR / 2
    out = np.zeros(len(effects))
    many = max(1, CHUNK // (NODES * max(1, effects.shape[1])))
    for start in range(0, len(effects), many):
        squares = (effects[start : start + many] * spreads) ** 2
        size = np.sqrt(squares.sum(axis=1))
        part = squares / np.where(size > 0, size**2, 1)[:, None]
        turned = part[:, None, laplace] * (t**2 / 2)[None, :, None]
        log = -np.log1p(turned).sum(axis=2) - np.outer(part[:, ~laplace].sum(axis=1), t**2 / 2)
        share = np.exp(log) * (weights / t) * (2 / np.pi)
        low, high = shape_bounds(noises, confidence)
        below, above = np.full(len(part), 0.9 * low), np.full(len(part), 1.1 * high)
        for _ in range(STEPS):
            middle = (below + above) / 2
            inside = (np.sin(middle[:, None] * t) * share).sum(axis=1) < confidence
            below, above = np.where(inside, middle, below), np.where(inside, above, middle)
        out[start : start + many] = above * size
    return out


WORK = 100_000_000
"""Numbers that may be gone through for one set of widths: some seconds."""
HELD = 20_000_000
"""The most numbers that are held at a time."""
LOOPED = 1999
"""The most draws of everything, where each measured number's effect is not known."""
PASSABLE = 499
"""The fewest draws for which every query has quantiles of its own."""
FEWEST = 99
BATCH = 4_000_000
"""Numbers that are gone through at a time."""
BINS = 4096
REACH = 16.0
ALIKE = 1e-7
"""Queries of a product whose standard errors differ by less have noise of one shape."""
SHAPES = 64
FINE = 20.0
"""From this standard error on, of noise or of answers, steps of whole numbers hardly matter."""
OUTWARD = 1 + 1e-9
"""Half-widths are rounded up a little, so that whole numbers at their end lie inside."""


@dataclass(frozen=True, eq=False)
class Widths:
    """Half-widths of noise intervals: of every query, and of all queries of a table at once.

    `stderr` holds the standard errors: exact, but for forms that estimate them, from the draws.
    """

    per_query: Array
    stderr: Array
    per_table: Array
    confidence: float
    draws: int
    method: str


def half_widths(
    form: Form,
    noises: Sequence[Noise],
    rows: Sequence[int],
    workload: Workload,
    *,
    tables: Sequence[Sequence[int]] | None = None,
    confidence: float = 0.95,
    draws: int = 9999,
    seed: int = 0,
) -> Widths:
    """Half-widths h with P(|noise in the answer| ≤ h) = confidence, computed or by simulation.

    The order statistic is the conservative one: over the draws, coverage is at least what is asked.
    Queries of one product with one standard error share their draws. Where that many draws of all
    queries would be too many there are fewer; where very few, the shape of the noise is pooled
    over the queries of a product, and only its size is each query's own.

    Args:
        form: the inverse that least squares uses
        noises: the distribution of each block's noise
        rows: the number of answers of each block
        workload: whose answers
        tables: the numbers of the products of each table; without them, a product is a table
        confidence: of each interval, between 0 and 1
        draws: of all noise
        seed: of the simulation
    """
    _check(confidence)
    least = least_draws(confidence)
    draws = max(draws, least)
    measured, queries = sum(rows), workload.shape[0]
    tables = [[i] for i in range(len(workload.products))] if tables is None else tables
    source = _Simulated(form, noises, rows, workload, SeededDraws(default_rng(seed)))
    affordable = WORK // (form.work + measured + queries)
    few = measured <= min(draws, affordable) and (measured + queries) * draws <= HELD
    if form.exact and few:
        effects = source.effects()
        return _own(source, source.drawn(effects, draws), tables, confidence, draws, effects)
    looped = min(draws, LOOPED, affordable, HELD // queries)
    if form.exact and looped >= max(PASSABLE, least):
        return _own(source, source.held(looped), tables, confidence, looped)
    fewer = max(min(draws, LOOPED, affordable // 2), FEWEST, least)
    return _pooled(source, tables, confidence, fewer)


def least_draws(confidence: float) -> int:
    """The fewest draws whose largest covers so often.

    >>> least_draws(0.95), least_draws(0.999)
    (19, 999)
    """
    return math.ceil(confidence / (1 - confidence) - 1e-9)


def _check(confidence: float) -> None:
    if not 0 < confidence <= 0.9999:
        raise UnsupportedError(
            f"a confidence lies above 0 and up to 0.9999, beyond which simulation tells nothing; "
            f"got {confidence!r}"
        )


def _order(samples: Array, confidence: float) -> float:
    """The conservative order statistic."""
    k = min(samples.size, math.ceil((samples.size + 1) * confidence))
    return float(np.partition(samples, k - 1)[k - 1])


@dataclass(frozen=True, eq=False)
class _Simulated:
    """The noise in all answers, drawn again and again; a column for each draw."""

    form: Form
    noises: Sequence[Noise]
    rows: Sequence[int]
    workload: Workload
    noise: SeededDraws

    @cached_property
    def products(self) -> list[Factors]:
        return [self.workload.factors(i) for i in range(len(self.workload.products))]

    def answers(self, values: Sequence[Array]) -> list[Array]:
        """The answers of every product to what was measured."""
        fitted = self.form.fit(values)
        return [fitted.answers(factors) for factors in self.products]

    def batches(self, draws: int) -> Iterator[list[Array]]:
        """The noise in the answers of every product, some draws at a time."""
        numbers = self.form.work + sum(self.rows) + self.workload.shape[0]
        size = max(1, min(draws, BATCH // numbers)) if self.form.exact else 1
        for start in range(0, draws, size):
            many = min(size, draws - start)
            pairs = zip(self.noises, self.rows, strict=True)
            yield self.answers([self.noise.noise(e, m * many).reshape(m, many) for e, m in pairs])

    def held(self, draws: int) -> Array:
        """The size of the noise in every answer, a row for each."""
        found = np.concatenate([np.concatenate(b) for b in self.batches(draws)], axis=1)
        return np.asarray(np.abs(found))

    def effects(self) -> Array:
        """What each measured number does to every answer: a row for each answer."""
        measured, ends = sum(self.rows), np.cumsum(self.rows)[:-1]
        size = max(1, BATCH // (self.form.work + measured + self.workload.shape[0]))
        some = np.array_split(np.eye(measured), math.ceil(measured / size), axis=1)
        found = [np.concatenate(self.answers(np.split(units, ends))) for units in some]
        return np.concatenate(found, axis=1)

    def drawn(self, effects: Array, draws: int) -> Array:
        """The size of the noise in every answer, from what each measured number does to it."""
        pairs = zip(self.noises, self.rows, strict=True)
        noise = [self.noise.noise(e, m * draws).reshape(m, draws) for e, m in pairs]
        return np.asarray(np.abs(effects @ np.concatenate(noise)))

    def fourth(self, effects: Array) -> Array:
        """Σ (effect · deviation)⁴ of every answer: its noise is the more normal, the less it is."""
        spreads = np.repeat([math.sqrt(noise.exact_variance) for noise in self.noises], self.rows)
        return np.asarray(((effects * spreads) ** 4).sum(axis=1))

    def errors(self) -> list[Array]:
        """The standard error of every query, product by product."""
        return [np.sqrt(np.maximum(self.form.variances(f), 0)) for f in self.products]


def _shapes(errors: Array) -> Array:
    """The number of each query's group: those of one standard error, as symmetry makes them."""
    order = np.argsort(errors, kind="stable")
    gaps = np.diff(errors[order]) > ALIKE * errors[order][1:]
    groups = np.empty(errors.size, dtype=np.int64)
    groups[order] = np.concatenate([[0], np.cumsum(gaps)])
    return groups


def _both(one: Array, other: Array) -> Array:
    """The numbers of groups that agree in both."""
    return np.unique(np.stack([one, other]), axis=1, return_inverse=True)[1].reshape(-1)


def _own(
    source: _Simulated,
    sizes: Array,
    tables: Sequence[Sequence[int]],
    confidence: float,
    draws: int,
    effects: Array | None = None,
) -> Widths:
    """Every query has quantiles of its own, or shares them with those of its shape.

    Where effects are known and noise is wide they are computed; else they are those of the draws.
    """
    errors = source.errors()
    found, largest = [], []
    start, computed = 0, effects is not None
    for error in errors:
        rows = slice(start, start + error.size)
        start += error.size
        largest.append(sizes[rows].max(axis=0))
        groups, wide = _shapes(error), _wide(error, source.noises)
        width = np.empty(error.size)
        if effects is not None:
            # Known effects tell shapes apart, and how large the steps of an answer are.
            groups = _both(groups, _shapes(source.fourth(effects[rows])))
            wide = error >= FINE * np.abs(effects[rows]).max(axis=1)
        if effects is not None and wide.any():
            first = np.unique(groups, return_index=True)[1]
            own = effects[rows][first]
            width = sum_quantiles(own, source.noises, source.rows, confidence)[groups]
        if effects is None or not wide.all():
            computed = False
            drawn = [_order(own.ravel(), confidence) for own in _grouped(sizes[rows], groups)]
            kept = _within(np.array(drawn)[groups], error, source.noises, confidence, wide)
            width = kept if effects is None else np.where(wide, width, kept)
        found.append(width)
    together = _together(np.stack(largest), tables, confidence)
    per_query, stderr = np.concatenate(found), np.concatenate(errors)
    method = "computed" if computed else "simulated"
    return Widths(per_query * OUTWARD, stderr, together, confidence, draws, method)


def _grouped(samples: Array, groups: Array) -> list[Array]:
    """The rows of each group."""
    order = np.argsort(groups, kind="stable")
    return [samples[own] for own in np.split(order, np.cumsum(np.bincount(groups))[:-1])]


def _wide(error: Array, noises: Sequence[Noise]) -> Array:
    """Where it hardly matters that noise is whole: the noise itself, or the answer's, is wide."""
    wide = min(noise.exact_variance for noise in noises) >= FINE**2
    return np.full(error.shape, True) if wide else error >= FINE


def _together(largest: Array, tables: Sequence[Sequence[int]], confidence: float) -> Array:
    """The half-width that holds all queries of a table, from the largest noise of each product."""
    own = [largest[list(table)].max(axis=0) for table in tables]
    return np.array([_order(noise, confidence) for noise in own]) * OUTWARD


def _pooled(
    source: _Simulated, tables: Sequence[Sequence[int]], confidence: float, draws: int
) -> Widths:
    """Each query's standard error times the quantile of |noise| / standard error of its shape.

    Products with too many shapes are taken as one.
    """
    batches: Iterator[list[Array]] = source.batches(draws)
    if source.form.exact:
        errors = source.errors()
    else:
        held = list(batches)
        errors = [np.sqrt((np.concatenate([b[i] for b in held], axis=1) ** 2).mean(axis=1))
                  for i in range(len(source.products))]  # fmt: skip
        batches = iter(held)
    groups = [_shapes(error) for error in errors]
    groups = [g if g.max() < SHAPES else np.zeros_like(g) for g in groups]
    scales = [np.where(error > 0, error, np.inf) for error in errors]
    counted = [np.zeros((g.max() + 1, BINS), dtype=np.int64) for g in groups]
    largest: list[list[Array]] = [[] for _ in errors]
    for answers in batches:
        for i, noise in enumerate(answers):
            size = np.abs(noise)
            largest[i].append(size.max(axis=0))
            z = np.minimum(size / scales[i][:, None], REACH * (1 - 1e-9))
            places = groups[i][:, None] * BINS + (z * (BINS / REACH)).astype(int)
            counted[i] += np.bincount(places.ravel(), minlength=counted[i].size).reshape(-1, BINS)
    found = []
    for error, group, count in zip(errors, groups, counted, strict=True):
        below = np.cumsum(count, axis=1) / count.sum(axis=1, keepdims=True)
        ratios = (np.argmax(below >= confidence, axis=1) + 1) * (REACH / BINS)
        wide = _wide(error, source.noises)
        found.append(_within(ratios[group] * error, error, source.noises, confidence, wide))
    together = _together(np.stack([np.concatenate(each) for each in largest]), tables, confidence)
    method = "simulated, shape pooled over each table"
    stderr = np.concatenate(errors)
    return Widths(np.concatenate(found) * OUTWARD, stderr, together, confidence, draws, method)


def _within(
    width: Array, error: Array, noises: Sequence[Noise], confidence: float, wide: Array
) -> Array:
    """Half-widths, kept to what sums of wide noise can have; few draws may say otherwise."""
    low, high = shape_bounds(noises, confidence)
    return np.where(wide, np.clip(width, low * error, high * error), width)
