"""Noise intervals: how far an answer may be from the truth by privacy noise alone.

An answer of least squares is a fixed linear combination of independent noises whose distributions
are public, so its quantiles are found by drawing that noise again and again: no data take part, and
the same seed gives the same widths everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import default_rng
from scipy.special import ndtri

from psephos.errors import UnsupportedError
from psephos.frozen import Array
from psephos.infer.forms import Form
from psephos.kernel.noise import DiscreteLaplace, Noise
from psephos.kernel.simulate import SeededDraws
from psephos.workload.workload import Workload

WORK = 30_000_000
"""Cells, answers and queries that may be gone through for one set of widths: some seconds."""
HELD = 20_000_000
"""The most numbers that are held at a time."""
LOOPED = 1999
"""The most draws that are fitted one by one."""
FEWEST = 99
ITERATIONS = 100
SMOOTH = 1000.0
BINS = 4096
REACH = 16.0


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
    """Half-widths h with P(|noise in the answer| ≤ h) = confidence, by simulation.

    The order statistic is the conservative one: over the draws, coverage is at least what is asked.
    Where that many draws of all queries would be too many, the shape of the noise is pooled over
    the queries of each product, in fewer draws, and only its size is each query's own.

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
    draws = max(draws, least_draws(confidence))
    measured, queries = sum(rows), workload.shape[0]
    cells = workload.domain.size if workload.domain.size < WORK else 0
    # A form without exact errors is fitted by many iterations, and its variances one by one.
    affordable = int(WORK / (cells + measured + queries) / (1 if form.exact else ITERATIONS))
    noise = SeededDraws(default_rng(seed))
    tables = [[i] for i in range(len(workload.products))] if tables is None else tables
    few = measured <= min(affordable, LOOPED) and (measured + queries) * draws <= HELD
    few = few and form.exact
    draws = draws if few else max(min(draws, LOOPED), least_draws(confidence))
    if few or (form.exact and draws <= affordable and queries * draws <= HELD):
        sample = _from_effects if few else _one_by_one
        samples = np.abs(sample(form, noises, rows, workload, draws, noise))
        per_query = _order(samples, confidence)
        starts = np.cumsum([0, *workload.query_counts[:-1]])
        largest = np.maximum.reduceat(samples, starts, axis=1)
        errors = np.concatenate(_errors(form, workload))
        together = _order(_by_table(largest, tables), confidence)
        return Widths(per_query, errors, together, confidence, draws, "simulated")
    fewer = max(min(draws, affordable // 4), FEWEST, least_draws(confidence))
    simulated = _each(form, noises, rows, workload, fewer, noise)
    if form.exact:
        return _pooled(_errors(form, workload), simulated, tables, confidence, fewer)
    held = list(simulated)
    sizes = [np.sqrt(np.mean([answers[i] ** 2 for answers in held], axis=0))
             for i in range(len(workload.products))]  # fmt: skip
    return _pooled(sizes, iter(held), tables, confidence, fewer)


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


def _order(samples: Array, confidence: float) -> Array:
    """The conservative order statistic of each column."""
    draws = samples.shape[0]
    k = min(draws, math.ceil((draws + 1) * confidence))
    return np.asarray(np.partition(samples, k - 1, axis=0)[k - 1])


def _each(
    form: Form,
    noises: Sequence[Noise],
    rows: Sequence[int],
    workload: Workload,
    draws: int,
    noise: SeededDraws,
) -> Iterator[list[Array]]:
    """The noise in all answers, product by product, draw by draw."""
    products = [workload.factors(i) for i in range(len(workload.products))]
    for _ in range(draws):
        drawn = [noise.noise(each, m) for each, m in zip(noises, rows, strict=True)]
        fitted = form.fit(drawn)
        yield [fitted.answers(factors) for factors in products]


def _one_by_one(
    form: Form,
    noises: Sequence[Noise],
    rows: Sequence[int],
    workload: Workload,
    draws: int,
    noise: SeededDraws,
) -> Array:
    """The noise in every answer: a row for each draw."""
    simulated = _each(form, noises, rows, workload, draws, noise)
    return np.stack([np.concatenate(answers) for answers in simulated])


def _from_effects(
    form: Form,
    noises: Sequence[Noise],
    rows: Sequence[int],
    workload: Workload,
    draws: int,
    noise: SeededDraws,
) -> Array:
    """The same for few measured numbers: what each does to the answers, then all draws at once."""
    products = [workload.factors(i) for i in range(len(workload.products))]
    effect = np.empty((sum(rows), workload.shape[0]))
    ends = np.cumsum(rows)[:-1]
    for i, unit in enumerate(np.eye(sum(rows))):
        fitted = form.fit(np.split(unit, ends))
        effect[i] = np.concatenate([fitted.answers(factors) for factors in products])
    pairs = zip(noises, rows, strict=True)
    drawn = [noise.noise(each, draws * m).reshape(draws, m) for each, m in pairs]
    return np.asarray(np.concatenate(drawn, axis=1) @ effect)


def _errors(form: Form, workload: Workload) -> list[Array]:
    """The standard error of every query, product by product."""
    products = [workload.factors(i) for i in range(len(workload.products))]
    return [np.sqrt(np.maximum(form.variances(factors), 0)) for factors in products]


def _by_table(largest: Array, tables: Sequence[Sequence[int]]) -> Array:
    """The largest noise of each table, a row for each draw, from that of each product."""
    return np.stack([largest[:, list(table)].max(axis=1) for table in tables], axis=1)


def _pooled(
    errors: list[Array],
    simulated: Iterator[list[Array]],
    tables: Sequence[Sequence[int]],
    confidence: float,
    draws: int,
) -> Widths:
    """Each query's standard error times its product's quantile of |noise| / standard error."""
    count = len(errors)
    scales = [np.where(error > 0, error, np.inf) for error in errors]
    counted = np.zeros((count, BINS), dtype=np.int64)
    largest = np.zeros((draws, count))
    for d, answers in enumerate(simulated):
        for i, noise in enumerate(answers):
            z = np.minimum(np.abs(noise) / scales[i], REACH * (1 - 1e-9))
            counted[i] += np.bincount((z * (BINS / REACH)).astype(int), minlength=BINS)
            largest[d, i] = np.abs(noise).max(initial=0)
    below = np.cumsum(counted, axis=1) / counted.sum(axis=1, keepdims=True)
    ratios = (np.argmax(below >= confidence, axis=1) + 1) * (REACH / BINS)
    per_query = np.concatenate([r * error for r, error in zip(ratios, errors, strict=True)])
    together = _order(_by_table(largest, tables), confidence)
    found = np.concatenate(errors)
    method = "simulated, shape pooled over each table"
    return Widths(per_query, found, together, confidence, draws, method)
