"""Noise intervals: how far an answer may be from the truth by privacy noise alone.

An answer of least squares is a fixed linear combination of independent noises whose distributions
are public. Where the effect of each measured number on it is known its quantiles are computed
(`quantiles`, `lattice`), and else simulated, as are those of many answers at once: no data take
part, and the same seed gives the same widths everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial

import numpy as np
from numpy.random import default_rng

from psephos.errors import UnsupportedError
from psephos.infer.lattice import lattice_quantiles
from psephos.infer.quantiles import shape_bounds, sum_quantiles
from psephos.inverse.form import Factors, Form
from psephos.kernel.noise import Noise
from psephos.kernel.simulate import SeededDraws
from psephos.values import Array
from psephos.workload.workload import Workload

SIMULATION_WORK = 100_000_000
"""Numbers that one simulation may go through: some seconds."""
SIMULATION_BATCH = 4_000_000
"""Numbers that a simulation goes through at a time."""
HELD_NUMBERS = 20_000_000
"""The most numbers of a simulation that are held at a time."""
MOST_LOOPED_DRAWS = 1999
"""The most draws of everything, where each measured number's effect is not known."""
FEWEST_QUERY_DRAWS = 499
"""The fewest draws for which every query has quantiles of its own."""
FEWEST_POOLED_DRAWS = 99
"""The fewest draws where the queries of one shape share theirs."""
LARGE_TABLES, FEWEST_LARGE_DRAWS = 1_000_000, 39
"""With more queries than these, fewer draws will do: a shape is told by many queries."""
POOLED_QUERIES = 100_000
"""Queries of a product that tell its shapes: of more than these, some of every shape are taken."""
SHAPE_BINS = 4096
SHAPE_REACH = 16.0
"""Bins of |noise| / standard error, and where they end."""
STDERR_TOLERANCE = 1e-7
"""Queries of a product whose standard errors differ by less have noise of one shape."""
MOST_SHAPES = 64
"""A product with more shapes is taken as one."""
WIDE_STDERR = 20.0
"""From this standard error on, of noise or of answers, steps of whole numbers hardly matter."""
OUTWARD_ROUNDING = 1 + 1e-9
"""Half-widths are rounded up a little, so that whole numbers at their end lie inside."""


@dataclass(frozen=True, eq=False)
class Widths:
    """Half-widths of noise intervals: of every query, and of all queries of a table at once.

    `stderr` holds the standard errors: exact, but for forms that estimate them.
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

    That of a table, which holds all its queries at once, is never below that of one of them.
    The order statistic is the conservative one: over the draws, coverage is at least as asked.
    Queries of one product with one standard error share their draws. Where that many draws of all
    queries would be too many there are fewer; where very few, the shape of the noise is pooled
    over the queries of a product, and only its size is that of each query.

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
    _check_confidence(confidence)
    least = least_draws(confidence)
    draws = max(draws, least)
    measured, queries = sum(rows), workload.shape[0]
    tables = [[i] for i in range(len(workload.products))] if tables is None else tables
    noise = NoiseInAnswers(form, noises, rows, workload, SeededDraws(default_rng(seed)))
    affordable = SIMULATION_WORK // (form.work + measured + queries)
    few = measured <= min(draws, affordable) and (measured + queries) * draws <= HELD_NUMBERS
    if form.exact and few:
        effects = noise.effects()
        draw = cache(lambda: noise.draw(draws))  # nothing is drawn unless it is needed
        sizes = partial(_sizes_from, effects, draw)
        return _widths_by_query(noise, sizes, tables, confidence, draws, effects)
    looped = min(draws, MOST_LOOPED_DRAWS, affordable, HELD_NUMBERS // queries)
    if form.exact and looped >= max(FEWEST_QUERY_DRAWS, least):
        everything = noise.sizes(looped)
        return _widths_by_query(noise, everything.__getitem__, tables, confidence, looped)
    fewest = FEWEST_LARGE_DRAWS if queries > LARGE_TABLES else FEWEST_POOLED_DRAWS
    fewer = max(min(draws, MOST_LOOPED_DRAWS, affordable // 2), fewest, least)
    return _widths_by_shape(noise, tables, confidence, fewer)


def least_draws(confidence: float) -> int:
    """The fewest draws whose largest covers so often.

    >>> least_draws(0.95), least_draws(0.999)
    (19, 999)
    """
    return math.ceil(confidence / (1 - confidence) - 1e-9)


def _check_confidence(confidence: float) -> None:
    """Refuse a confidence that simulation cannot reach."""
    if not 0 < confidence <= 0.9999:
        raise UnsupportedError(
            f"a confidence lies above 0 and up to 0.9999, beyond which simulation tells nothing; "
            f"got {confidence!r}"
        )


def order_statistic(samples: Array, confidence: float) -> float:
    """The conservative order statistic."""
    k = min(samples.size, math.ceil((samples.size + 1) * confidence))
    return float(np.partition(samples, k - 1)[k - 1])


@dataclass(frozen=True, eq=False)
class NoiseInAnswers:
    """The noise in all answers, simulated; a column for each draw."""

    form: Form
    noises: Sequence[Noise]
    rows: Sequence[int]
    workload: Workload
    generator: SeededDraws

    @cached_property
    def products(self) -> list[Factors]:
        return [self.workload.factors(i) for i in range(len(self.workload.products))]

    def answers(self, values: Sequence[Array]) -> list[Array]:
        """The answers of every product to what was measured."""
        fitted = self.form.fit(values)
        return [fitted.answers(factors) for factors in self.products]

    def batches(self, draws: int) -> Iterator[list[Array]]:
        """The noise in the answers of every product, some draws at a time."""
        others = sum(self.rows) + self.workload.shape[0]
        size = max(1, min(draws, SIMULATION_BATCH // (self.form.work + others)))
        fitted = max(size, SIMULATION_BATCH // (self.form.work_of_column + others) // size * size)
        if not self.form.exact:
            size = fitted = 1
        for start in range(0, draws, fitted):
            end = min(draws, start + fitted)
            # Drawn in pieces of what one column takes alone, so that the same seed gives the same.
            pieces = [self._noise(min(size, end - i)) for i in range(start, end, size)]
            yield self.answers([np.concatenate(each, axis=1) for each in zip(*pieces, strict=True)])

    def _noise(self, draws: int) -> list[Array]:
        """Noise of every block, a column for each draw."""
        pairs = zip(self.noises, self.rows, strict=True)
        return [self.generator.noise(e, m * draws).reshape(m, draws) for e, m in pairs]

    def sizes(self, draws: int) -> Array:
        """The size of the noise in every answer, a row for each."""
        noise = np.concatenate([np.concatenate(b) for b in self.batches(draws)], axis=1)
        return np.asarray(np.abs(noise))

    def effects(self) -> Array:
        """What each measured number does to every answer: a row for each answer."""
        measured, ends = sum(self.rows), np.cumsum(self.rows)[:-1]
        size = max(1, SIMULATION_BATCH // (self.form.work + measured + self.workload.shape[0]))
        some = np.array_split(np.eye(measured), math.ceil(measured / size), axis=1)
        effects = [np.concatenate(self.answers(np.split(units, ends))) for units in some]
        return np.concatenate(effects, axis=1)

    def draw(self, draws: int) -> Array:
        """The noise of every measured number, a row for each."""
        return np.concatenate(self._noise(draws))

    def fourth_powers(self, effects: Array) -> Array:
        """Σ (effect · deviation)⁴ of every answer: its noise is the more normal, the less it is."""
        spreads = np.repeat([math.sqrt(noise.exact_variance) for noise in self.noises], self.rows)
        return np.asarray(((effects * spreads) ** 4).sum(axis=1))

    @cached_property
    def _is_wide_itself(self) -> bool:
        """Is the noise of every block wide beside whole numbers? Blocks may be thousands."""
        return min(noise.exact_variance for noise in self.noises) >= WIDE_STDERR**2

    def is_wide(self, error: Array) -> Array:
        """Where steps of whole numbers hardly matter: the noise or that of the answer is wide."""
        wide = self._is_wide_itself
        return np.full(error.shape, True) if wide else np.asarray(error >= WIDE_STDERR)

    def errors(self) -> list[Array]:
        """The standard error of every query, product by product."""
        return [np.sqrt(np.maximum(self.form.variances(f), 0)) for f in self.products]


def _shape_groups(errors: Array, most: int | None = None) -> Array:
    """The number of each query's group: those of one standard error, as symmetry makes them.

    Where there would be more than `most` groups, all queries are one.
    """
    ordered = np.sort(errors)  # far sooner than to sort places, where queries are millions
    gaps = np.diff(ordered) > STDERR_TOLERANCE * ordered[1:]
    firsts = ordered[np.concatenate([[True], gaps])]
    if most is not None and firsts.size > most:
        return np.zeros(errors.size, dtype=np.int64)
    return np.searchsorted(firsts, errors, side="right") - 1


def _common_groups(one: Array, other: Array) -> Array:
    """The numbers of groups that agree in both."""
    return np.unique(np.stack([one, other]), axis=1, return_inverse=True)[1].reshape(-1)


def _sizes_from(effects: Array, draw: Callable[[], Array], rows: slice) -> Array:
    """The size of the noise in some answers, from the effect of each measured number."""
    return np.asarray(np.abs(effects[rows] @ draw()))


def _widths_by_query(
    noise: NoiseInAnswers,
    sizes: Callable[[slice], Array],
    tables: Sequence[Sequence[int]],
    confidence: float,
    draws: int,
    effects: Array | None = None,
) -> Widths:
    """Every query has quantiles of its own, or shares them with those of its shape.

    Where effects are known, and have a common step or noise is wide, they are computed; else they
    are those of the draws.
    """
    errors = noise.errors()
    ends = np.cumsum([error.size for error in errors])
    parts = [slice(end - error.size, end) for error, end in zip(errors, ends, strict=True)]
    widths = []
    for error, rows in zip(errors, parts, strict=True):
        groups, wide = _shape_groups(error), noise.is_wide(error)
        width = np.full(error.size, np.nan)
        if effects is not None:
            # Known effects tell shapes apart, and how large the steps of an answer are.
            groups = _common_groups(groups, _shape_groups(noise.fourth_powers(effects[rows])))
            wide = error >= WIDE_STDERR * np.abs(effects[rows]).max(axis=1)
            width = _computed_widths(noise, effects[rows], groups, wide, confidence)
        drawn = np.isnan(width)
        if drawn.any():
            samples = _rows_by_group(sizes(rows), groups)
            quantiles = np.zeros(len(samples))
            for group in np.unique(groups[drawn]):
                quantiles[group] = order_statistic(samples[group].ravel(), confidence)
            simulated = _clip(quantiles[groups], error, noise.noises, confidence, wide)
            width = np.where(drawn, simulated, width)
        widths.append((width, bool(drawn.any())))
    largest = {i: sizes(parts[i]).max(axis=0) for i in {i for table in tables for i in table}}
    each = [width * OUTWARD_ROUNDING for width, _ in widths]
    per_table = _table_widths(largest, each, tables, confidence)
    method = "simulated" if any(drawn for _, drawn in widths) else "computed"
    per_query, stderr = np.concatenate(each), np.concatenate(errors)
    return Widths(per_query, stderr, per_table, confidence, draws, method)


def _computed_widths(
    noise: NoiseInAnswers, effects: Array, groups: Array, wide: Array, confidence: float
) -> Array:
    """The quantiles of every query from its effects; NaN where they have to be drawn."""
    first = np.unique(groups, return_index=True)[1]
    width = lattice_quantiles(effects[first], noise.noises, noise.rows, confidence)[groups]
    smooth = np.isnan(width) & wide
    if smooth.any():
        some = np.unique(groups[smooth])
        each = np.zeros(first.size)
        each[some] = sum_quantiles(effects[first[some]], noise.noises, noise.rows, confidence)
        width = np.where(smooth, each[groups], width)
    return width


def _rows_by_group(samples: Array, groups: Array) -> list[Array]:
    """The rows of each group."""
    order = np.argsort(groups, kind="stable")
    return [samples[rows] for rows in np.split(order, np.cumsum(np.bincount(groups))[:-1])]


def _table_widths(
    largest: Mapping[int, Array],
    widths: Sequence[Array],
    tables: Sequence[Sequence[int]],
    confidence: float,
) -> Array:
    """The half-width that holds all queries of a table, from the largest noise of each product.

    To hold all of them is to hold each, so that it is at least as large as that of any query; the
    draws alone could fall short of what was computed.
    """
    sizes = [np.max([largest[i] for i in table], axis=0) for table in tables]
    together = [order_statistic(size, confidence) for size in sizes]
    alone = [max(widths[i].max(initial=0) for i in table) for table in tables]
    return np.maximum(np.array(together) * OUTWARD_ROUNDING, alone)


def _widths_by_shape(
    noise: NoiseInAnswers,
    tables: Sequence[Sequence[int]],
    confidence: float,
    draws: int,
) -> Widths:
    """Each query's standard error times the quantile of |noise| / standard error of its shape.

    Products with too many shapes are taken as one. Shapes are told by so many queries at most.
    """
    errors = noise.errors()
    groups = [_shape_groups(error, MOST_SHAPES) for error in errors]
    scales = [np.where(error > 0, error, np.inf) for error in errors]
    histograms = [np.zeros((g.max() + 1, SHAPE_BINS), dtype=np.int64) for g in groups]
    chosen = [_of_every_group(g) for g in groups]
    largest: list[list[Array]] = [[] for _ in errors]
    for answers in noise.batches(draws):
        for i, values in enumerate(answers):
            largest[i].append(np.maximum(values.max(axis=0), -values.min(axis=0)))
            rows = chosen[i]
            size = np.abs(values[rows])
            z = np.minimum(size / scales[i][rows, None], SHAPE_REACH * (1 - 1e-9))
            bins = groups[i][rows, None] * SHAPE_BINS
            bins = bins + (z * (SHAPE_BINS / SHAPE_REACH)).astype(int)
            counts = np.bincount(bins.ravel(), minlength=histograms[i].size)
            histograms[i] += counts.reshape(-1, SHAPE_BINS)
    widths = []
    for error, group, count in zip(errors, groups, histograms, strict=True):
        below = np.cumsum(count, axis=1) / count.sum(axis=1, keepdims=True)
        ratios = (np.argmax(below >= confidence, axis=1) + 1) * (SHAPE_REACH / SHAPE_BINS)
        wide = noise.is_wide(error)
        width = _clip(ratios[group] * error, error, noise.noises, confidence, wide)
        widths.append(width * OUTWARD_ROUNDING)
    of_products = {i: np.concatenate(each) for i, each in enumerate(largest)}
    per_table = _table_widths(of_products, widths, tables, confidence)
    method = "simulated, shape pooled over each table"
    per_query, stderr = np.concatenate(widths), np.concatenate(errors)
    return Widths(per_query, stderr, per_table, confidence, draws, method)


def _of_every_group(groups: Array) -> slice | Array:
    """Members of every group: all, or of very many a thousand of each or more."""
    if groups.size <= POOLED_QUERIES:
        return slice(None)
    each = max(1000, POOLED_QUERIES // (int(groups.max()) + 1))
    lots = default_rng(0).random(groups.size)
    if each < groups.size and not groups.any():
        return np.sort(np.argpartition(lots, each)[:each])
    order = np.lexsort((lots, groups))
    sizes = np.bincount(groups)
    rank = np.arange(groups.size) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(order[rank < each])


def _clip(
    width: Array, error: Array, noises: Sequence[Noise], confidence: float, wide: Array
) -> Array:
    """Half-widths within what sums of wide noise can have; few draws may say otherwise."""
    low, high = shape_bounds(noises, confidence)
    return np.where(wide, np.clip(width, low * error, high * error), width)
