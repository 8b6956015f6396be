"""Means, variances, shares and quantiles from linear answers, with intervals that cover.

An interval holds every number that the noisy answers do not contradict. For a ratio S/N these are
all θ for which S - θN, which would be noise alone, is within its own noise interval (Fieller 1954).
For a quantile they are all values v with F(v) - pN not far below zero and F(v-) - pN not far above.
Both are exact for the noise at hand, whatever the data, and groups however small. A variance is the
least second moment about any number m, so its interval joins those of the second moments about all
m that the mean may be; that covers at least as often as it says.

Where a group has too few rows for its noise, every number of the declared range would do: then the
interval is that range, and `whole_range` says so. No interval leaves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import WorkloadError
from psephos.infer.estimate import Estimate
from psephos.infer.joint_noise import JointNoise
from psephos.infer.least_squares import LeastSquares, block_answers
from psephos.report.html import HtmlTable, notebook_html
from psephos.values import Array
from psephos.workload.statistics import Statistic, StatisticQuestion
from psephos.workload.workload import Workload

MEAN_SHARE = 0.1
"""Of the chance that the interval of a variance misses: what the mean may take of it."""
MEAN_POINTS = 9
"""Points of the mean's interval about which second moments are looked at."""
FAR_DEVIATIONS, FAR_EFFECTS = 8.0, 4.0
"""Noise beyond so many standard errors and largest effects is taken for certain to be none."""
CANDIDATES = 128
"""Values at each end of a quantile's interval that are looked at more closely."""


@dataclass(frozen=True, eq=False)
class StatisticValues:
    """The numbers of a statistic, and where they are known their intervals."""

    values: Array
    low: Array | None = None
    high: Array | None = None
    whole_range: Array | None = None
    """Where the interval is the whole declared range, as there are too few rows."""


def statistic_values(statistic: Statistic, domain: Domain, answers: Array) -> Array:
    """The numbers of a statistic from the answers of its linear tables; NaN without any rows."""
    places = statistic.places(domain)
    if statistic.linear:
        return np.asarray(answers[places[0]], dtype=float)
    if statistic.kind == "quantiles":
        rows = answers[places[0]].astype(float)
        return np.stack([_quantile(statistic, rows, p) for p in statistic.levels], 1).reshape(-1)
    parts = [answers[place].astype(float) for place in places]
    bottom = parts[1] if statistic.kind == "share" else parts[0]
    some = bottom > 0
    rows = np.where(some, bottom, np.nan)
    if statistic.kind == "share":
        numbers = statistic.scale * parts[0] / rows
    else:
        numbers = statistic.centre + parts[1] / rows
    if statistic.kind in ("variance", "stddev"):
        numbers = np.maximum(parts[2] / rows - (parts[1] / rows) ** 2, 0)
        numbers = np.sqrt(numbers) if statistic.kind == "stddev" else numbers
    return np.asarray(np.clip(numbers, *statistic.range))


def statistic_intervals(
    statistic: Statistic, domain: Domain, answers: Array, noise: JointNoise, confidence: float
) -> StatisticValues:
    """The numbers of a statistic with their intervals; `noise` is that of its linear answers."""
    values = statistic_values(statistic, domain, answers)
    places = statistic.places(domain)
    if statistic.kind == "quantiles":
        ends = [
            _quantile_ends(statistic, answers[places[0]], places[0], noise, p, confidence)
            for p in statistic.levels
        ]
        low, high = (np.stack([end[k] for end in ends], 1).reshape(-1) for k in (0, 1))
    elif statistic.linear:
        half = noise.half_widths(noise.some(places[0]), confidence)
        return StatisticValues(values, values - half, values + half, np.zeros(len(half), bool))
    else:
        low, high = _ratio_ends(statistic, answers, places, noise, confidence)
    least, most = statistic.range
    whole = (low <= least) & (high >= most)
    low, high = np.clip(low, least, most), np.clip(high, least, most)
    values = np.where(np.isnan(values), values, np.clip(values, low, high))
    return StatisticValues(values, low, high, whole)


def _ratio_ends(
    statistic: Statistic,
    answers: Array,
    places: tuple[Array, ...],
    noise: JointNoise,
    confidence: float,
) -> tuple[Array, Array]:
    parts = [answers[place].astype(float) for place in places]
    effects = [noise.some(place) for place in places]
    if statistic.kind == "share":
        low, high = ratio_ends(parts[0], parts[1], effects[0], effects[1], noise, confidence)
        return statistic.scale * low, statistic.scale * high
    rows, apart, rows_noise, apart_noise = parts[0], parts[1], effects[0], effects[1]
    if statistic.kind == "mean":
        low, high = ratio_ends(apart, rows, apart_noise, rows_noise, noise, confidence)
        return statistic.centre + low, statistic.centre + high
    missed = 1 - confidence
    least, most = (end - statistic.centre for end in _number_range(statistic))
    first, last = ratio_ends(apart, rows, apart_noise, rows_noise, noise, 1 - MEAN_SHARE * missed)
    first, last = np.clip(first, least, most), np.clip(last, least, most)
    lows, highs = [], []
    signs = -1.0 if noise.columns is not None else 1.0  # of bounds, sizes add up
    for share in np.linspace(0, 1, MEAN_POINTS):
        m = first + share * (last - first)
        top = parts[2] - 2 * m * apart + m**2 * rows
        top_noise = (
            effects[2]
            + 2 * signs * (m if signs < 0 else np.abs(m))[:, None] * apart_noise
            + (m**2)[:, None] * rows_noise
        )
        ends = ratio_ends(top, rows, top_noise, rows_noise, noise, 1 - (1 - MEAN_SHARE) * missed)
        lows.append(ends[0])
        highs.append(ends[1])
    low, high = np.maximum(np.min(lows, axis=0), 0), np.maximum(np.max(highs, axis=0), 0)
    return (np.sqrt(low), np.sqrt(high)) if statistic.kind == "stddev" else (low, high)


def _number_range(statistic: Statistic) -> tuple[float, float]:
    if statistic.numbers is None:
        raise WorkloadError(f"{statistic!r} has no numbers")
    return statistic.numbers.low, statistic.numbers.high


def ratio_ends(
    top: Array,
    bottom: Array,
    top_noise: Array,
    bottom_noise: Array,
    noise: JointNoise,
    confidence: float,
) -> tuple[Array, Array]:
    """The ends of all θ for which top - θ·bottom may be noise alone; infinite where any θ may."""
    moments = [
        noise.covariance(one, other)
        for one, other in (
            (top_noise, top_noise),
            (top_noise, bottom_noise),
            (bottom_noise, bottom_noise),
        )
    ]
    widest = noise.bounds(confidence)[1]
    if noise.columns is None:
        # The correlation is not known: the outermost ends of both signs cover any.
        ends = [
            _ends(top, bottom, (moments[0], sign * moments[1], moments[2]), widest)
            for sign in (-1.0, 1.0)
        ]
        return np.minimum(ends[0][0], ends[1][0]), np.maximum(ends[0][1], ends[1][1])
    factors = [np.full(len(top), widest), np.full(len(top), widest)]
    steps = 2
    for step in range(steps):
        low, high = (_ends(top, bottom, tuple(moments), f)[k] for k, f in enumerate(factors))
        for k, end in enumerate((low, high)):
            theta = np.where(np.isfinite(end), end, 0.0)
            mixed = top_noise - theta[:, None] * bottom_noise
            error = np.sqrt(noise.covariance(mixed, mixed))
            width = noise.half_widths(mixed, confidence)
            exact = np.divide(width, error, out=np.full(len(top), widest), where=error > 0)
            factors[k] = exact if step == 0 else np.maximum(exact, factors[k])
    low, high = (_ends(top, bottom, tuple(moments), f)[k] for k, f in enumerate(factors))
    return low, high


def _ends(
    top: Array, bottom: Array, moments: tuple[Array, ...], factor: Array | float
) -> tuple[Array, Array]:
    """The roots of (top - θ·bottom)² = factor² · Var(noise of top - θ·bottom)."""
    square = np.asarray(factor) ** 2
    a = bottom**2 - square * moments[2]
    b = top * bottom - square * moments[1]
    c = top**2 - square * moments[0]
    bounded = (a > 0) & (bottom > 0)
    root = np.sqrt(np.maximum(b**2 - a * c, 0))
    safe = np.where(bounded, a, 1.0)
    low, high = (b - root) / safe, (b + root) / safe
    return np.where(bounded, low, -np.inf), np.where(bounded, high, np.inf)


# ---- quantiles ---------------------------------------------------------------------------------


def _quantile(statistic: Statistic, rows: Array, level: float) -> Array:
    """The value below which a share of rows lies; of bins, by equal shares inside of one."""
    # Noise makes running totals fall here and there: the middle of the two monotone bounds.
    above = np.maximum.accumulate(rows, axis=1)
    below = np.minimum.accumulate(rows[:, ::-1], axis=1)[:, ::-1]
    running = (above + below) / 2
    total = running[:, -1]
    reached = running >= (level * total)[:, None] - 1e-9 * np.abs(total)[:, None]
    first = reached.argmax(axis=1)
    groups = np.arange(len(rows))
    numbers = _known_numbers(statistic)
    values = numbers[first].astype(float)
    edges = _edges(statistic)
    if edges is not None:
        before = np.where(first > 0, running[groups, np.maximum(first - 1, 0)], 0.0)
        inside = running[groups, first] - before
        share = np.divide(
            level * total - before, inside, out=np.full(len(rows), 0.5), where=inside > 0
        )
        low, high = edges[first], edges[first + 1]
        ends = np.isfinite(low) & np.isfinite(high)
        with np.errstate(invalid="ignore"):
            values = np.where(ends, low + np.clip(share, 0, 1) * (high - low), values)
    return np.where(total > 0, values, np.nan)


def _quantile_ends(
    statistic: Statistic,
    rows: Array,
    places: Array,
    noise: JointNoise,
    level: float,
    confidence: float,
) -> tuple[Array, Array]:
    """The ends of all values that may be the quantile; of bins, of the bins that may hold it."""
    numbers, edges = _known_numbers(statistic), _edges(statistic)
    starts, stops = (numbers, numbers) if edges is None else (edges[:-1], edges[1:])
    lows, highs = np.empty(len(rows)), np.empty(len(rows))
    for g, (running, place) in enumerate(zip(rows.astype(float), places, strict=True)):
        first, last = _positions(running, noise.some(place), noise, level, confidence)
        lows[g], highs[g] = starts[first], stops[last]
    return lows, highs


def _positions(
    running: Array, effects: Array, noise: JointNoise, level: float, confidence: float
) -> tuple[int, int]:
    """The first and last value that may be a quantile, of one group.

    A gap is F(v) - pN. The quantile is v if the gap there is not negative, and negative before.
    """
    gaps = running - level * running[-1]
    sign = 1.0 if noise.columns is None else -1.0  # of bounds, sizes add up
    mixed = effects + sign * level * effects[-1:]
    if noise.columns is not None and not noise.drawn:
        # Most gaps are so large or so small that wide noise says all.
        error = np.sqrt(noise.covariance(mixed, mixed))
        widths = np.zeros(gaps.size)
        near = np.abs(gaps) <= FAR_DEVIATIONS * error + FAR_EFFECTS * np.abs(mixed).max(axis=1)
        low, high = noise.bounds(confidence)
        edge = np.flatnonzero(near)
        if edge.size > 2 * CANDIDATES:
            clear = np.abs(np.abs(gaps[edge]) / np.maximum(error[edge], 1e-300) - low)
            edge = edge[clear <= 2 * (high - low) + 1e-9]
            widths[near] = high * error[near]
        if edge.size:
            widths[edge] = noise.half_widths(mixed[edge], confidence)
    else:
        widths = noise.half_widths(mixed, confidence)
    enough = gaps + widths >= 0
    before = np.concatenate([[True], (gaps - widths < 0)[:-1]])
    possible = np.flatnonzero(enough & before)
    if possible.size == 0 or running[-1] <= 0:
        return 0, gaps.size - 1
    return int(possible[0]), int(possible[-1])


def _known_numbers(statistic: Statistic) -> Array:
    if statistic.numbers is None:
        raise WorkloadError(f"{statistic!r} has no numbers")
    return statistic.numbers.values[statistic.numbers.known]


def _edges(statistic: Statistic) -> Array | None:
    edges = None if statistic.numbers is None else statistic.numbers.edges
    return None if edges is None else np.array(edges, dtype=float)


# ---- in Python ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Statistics:
    """Statistics over a domain: the workload behind them, and their answers from an estimate.

    >>> from psephos import Domain, mean
    >>> Statistics(Domain.of(sex=["F", "M"], age=range(100)), [mean("age", by="sex")])
    Statistics(1 statistic over 200 cells)
    """

    domain: Domain
    items: Sequence[Statistic | StatisticQuestion] | Statistic | StatisticQuestion

    def __post_init__(self) -> None:
        items = self.items
        several = (items,) if isinstance(items, Statistic | StatisticQuestion) else tuple(items)
        for item in several:
            if not isinstance(item, Statistic | StatisticQuestion):
                raise WorkloadError(
                    f"statistics are asked for by mean(...), median(...) and so on, got {item!r}"
                )
        if not several:
            raise WorkloadError("Statistics needs at least one, e.g. mean('age')")
        questions = (
            item if isinstance(item, Statistic) else item.statistic(self.domain) for item in several
        )
        object.__setattr__(self, "items", tuple(questions))

    @classmethod
    def from_sql(
        cls, domain: Domain, statements: str | Sequence[str], *, dialect: str | None = None
    ) -> Statistics:
        """Statistics written in SQL: SELECT sex, COUNT(*), AVG(age) FROM t GROUP BY sex."""
        from psephos.workload.sql import compile_statistics

        return cls(*compile_statistics(domain, statements, dialect=dialect))

    @cached_property
    def statistics(self) -> tuple[Statistic, ...]:
        """Each of them over the domain, with the tables behind it."""
        items = self.items if isinstance(self.items, tuple) else ()
        return tuple(item for item in items if isinstance(item, Statistic))

    @cached_property
    def workload(self) -> Workload:
        """The counts and sums behind them: what to select a strategy for, and to measure."""
        return Workload(self.domain, [p for each in self.statistics for p in each.products])

    def answer(self, estimate: Estimate, *, confidence: float = 0.95) -> StatisticAnswers:
        """The statistics from an estimate; with intervals if it is one of least squares."""
        answers = estimate.answer(self.workload).values
        noise = joint_noise(estimate, self.workload) if isinstance(estimate, LeastSquares) else None
        parts, start = [], 0
        counts = iter(self.workload.query_counts)
        for item in self.statistics:
            end = start + sum(next(counts) for _ in item.products)
            some = answers[start:end]
            if noise is None:
                parts.append(StatisticValues(statistic_values(item, self.domain, some)))
            else:
                inner = part_of(noise, start, end)
                parts.append(statistic_intervals(item, self.domain, some, inner, confidence))
            start = end
        return StatisticAnswers(self, tuple(parts), confidence, estimate.simulation)

    def __repr__(self) -> str:
        count = len(self.statistics)
        plural = "s" if count > 1 else ""
        return f"Statistics({count} statistic{plural} over {self.domain.size_text} cells)"


def joint_noise(estimate: LeastSquares, workload: Workload) -> JointNoise:
    """The noise of a workload's answers in a least squares estimate."""
    blocks = block_answers(estimate.measurements)
    return JointNoise.of(
        estimate.form,
        [block.noise for block in blocks],
        [block.matrix.shape[0] for block in blocks],
        workload,
    )


def part_of(noise: JointNoise, start: int, end: int) -> JointNoise:
    """The noise of some answers."""
    columns = None if noise.columns is None else noise.columns[start:end]
    return JointNoise(noise.noises, noise.rows, noise.stderr[start:end], columns, noise.drawn)


@dataclass(frozen=True, eq=False, repr=False)
class StatisticAnswers:
    """The numbers of statistics, in their order, with intervals where they are known."""

    statistics: Statistics
    parts: tuple[StatisticValues, ...]
    confidence: float
    simulation: bool = False

    @property
    def values(self) -> Array:
        """All numbers; NaN for groups without rows."""
        return np.concatenate([part.values for part in self.parts])

    def columns(self) -> dict[str, list[Any]]:
        """Labels, what a number is, the number and its interval as columns of one table."""
        domain, items = self.statistics.domain, self.statistics.statistics
        sizes = [item.size(domain) for item in items]
        lists = [item.labels(domain) for item in items]
        names = [name for name in domain.names if any(name in each for each in lists)]
        columns: dict[str, list[Any]] = {
            name: [
                word
                for each, size in zip(lists, sizes, strict=True)
                for word in each.get(name, [domain[name].total_label] * size)
            ]
            for name in names
        }
        columns["statistic"] = [word for item in items for word in item.names(domain)]
        columns["value"] = self.values.tolist()
        for end in ("low", "high"):
            ends = [getattr(part, end) for part in self.parts]
            if all(each is not None for each in ends):
                columns[end] = np.concatenate(ends).tolist()
        return columns

    def to_pandas(self) -> Any:
        """A pandas DataFrame."""
        import pandas as pd  # type: ignore[import-untyped]

        return pd.DataFrame(self.columns())

    def to_arrow(self) -> Any:
        """An Arrow table."""
        import pyarrow as pa

        return pa.table(self.columns())

    def to_polars(self) -> Any:
        """A Polars DataFrame."""
        import polars as pl

        return pl.DataFrame(self.columns())

    def __len__(self) -> int:
        return len(self.values)

    def __repr__(self) -> str:
        mark = "Simulated statistics" if self.simulation else "Statistics"
        return f"{mark}({len(self):,} numbers, intervals at {self.confidence:.0%})"

    def _repr_html_(self) -> str:
        columns = self.columns()
        rows = [
            [f"{x:,.4g}" if isinstance(x, float) else str(x) for x in row]
            for row in list(zip(*columns.values(), strict=True))[:200]
        ]
        return notebook_html(HtmlTable.of(repr(self), list(columns), rows))
