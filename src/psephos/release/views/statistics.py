"""Tables of statistics: sums, means, variances, shares and quantiles, grouped like counts.

Each view has the statistics of its own numbers. Intervals come from the consistent ones, as for
counts; beside a published number they are extended to it where it lies outside. A group without
rows has no mean: its number is NaN, and its interval the declared range.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from psephos.domain.domain import Domain
from psephos.infer.joint_noise import JointNoise
from psephos.infer.rounding import largest_number
from psephos.infer.statistics import (
    StatisticValues,
    part_of,
    statistic_intervals,
    statistic_values,
)
from psephos.release.spec.entries import View
from psephos.release.spec.tables import Table
from psephos.release.views.labels import marked, table_labels, view_schema
from psephos.values import Array
from psephos.workload.statistics import Statistic
from psephos.workload.workload import Workload


def parts_of(table: Table, workload: Workload) -> Iterator[tuple[Statistic, slice]]:
    """The statistics of a table, each with the place of its linear answers in the workload's."""
    start, product = table.rows(workload).start, table.products.start
    for statistic in table.statistics:
        end = product + len(statistic.products)
        stop = start + sum(workload.query_counts[product:end])
        yield statistic, slice(start, stop)
        start, product = stop, end


def statistic_count(table: Table, domain: Domain) -> int:
    """How many numbers a table of statistics has."""
    return sum(statistic.size(domain) for statistic in table.statistics)


def statistic_labels(table: Table, domain: Domain) -> dict[str, list[str]]:
    """What each number of a table is about, what it is and in which unit."""
    groups = [
        replace(each.groups, name=f"{table.name}: {each.groups.title}") for each in table.statistics
    ]
    inner = Workload(domain, groups)
    labels = table_labels(inner, Table(table.name, table.title, range(len(groups))))
    times = [max(1, len(each.levels)) for each in table.statistics]
    repeats = np.repeat(times, inner.query_counts)
    columns = {
        name: [word for word, many in zip(words, repeats, strict=True) for _ in range(many)]
        for name, words in labels.items()
    }
    names = [each.names(domain) for each in table.statistics]
    columns["statistic"] = [word for words in names for word in words]
    units = zip(table.statistics, names, strict=True)
    columns["unit"] = [each.unit_words for each, words in units for _ in words]
    return columns


def derived_values(
    table: Table, workload: Workload, answers: Array, noise: JointNoise, confidence: float
) -> StatisticValues:
    """The numbers of a table of statistics with their intervals, from all consistent answers."""
    start = table.rows(workload).start
    parts = [
        statistic_intervals(
            statistic,
            workload.domain,
            answers[rows],
            part_of(noise, rows.start - start, rows.stop - start),
            confidence,
        )
        for statistic, rows in parts_of(table, workload)
    ]
    columns = ([getattr(part, each.name) for part in parts] for each in fields(StatisticValues))
    return StatisticValues(*map(np.concatenate, columns))


def plain_values(table: Table, workload: Workload, answers: Array) -> Array:
    """The numbers of a table of statistics from the answers of a view."""
    return np.concatenate(
        [
            statistic_values(statistic, workload.domain, answers[rows])
            for statistic, rows in parts_of(table, workload)
        ]
    )


def statistic_table(
    table: Table,
    domain: Domain,
    consistent: StatisticValues,
    stderr: Array | None,
    published: Array | None,
    simulation: bool,
) -> pa.Table:
    """A table of statistics in one view: labels, numbers and intervals.

    Args:
        table: of the release
        domain: of its workload
        consistent: the numbers of the consistent view, with intervals where they are known
        stderr: of linear statistics
        published: the numbers of the published view, if that is shown
        simulation: is it a rehearsal?
    """
    numbers: dict[str, Any] = {"value": consistent.values}
    low, high = consistent.low, consistent.high
    if published is not None:
        numbers = {"value": published, "consistent": consistent.values}
    if stderr is not None:
        numbers["stderr"] = stderr
    if low is not None and high is not None:
        if published is not None:
            sizes = [each.size(domain) for each in table.statistics]
            floors = np.repeat([_floor(each) for each in table.statistics], sizes)
            low = np.maximum(np.fmin(low, published), floors)
            high = np.fmax(high, published)
        numbers |= {"low": low, "high": high}
    return marked(statistic_labels(table, domain), numbers, simulation)


def statistic_errors(numbers: StatisticValues) -> Array:
    """About the standard errors of derived numbers: a quarter of their intervals."""
    if numbers.low is None or numbers.high is None:
        return np.zeros(0)
    width = numbers.high - numbers.low
    return np.asarray(width[np.isfinite(width)] / 4)


def _floor(statistic: Statistic) -> float:
    """What no number is below: 0 for counts, and for sums of numbers that are not negative."""
    if statistic.kind == "count":
        return 0.0
    if statistic.kind == "sum" and statistic.numbers is not None and statistic.numbers.low >= 0:
        return 0.0
    return statistic.range[0]


def statistic_schema(
    table: Table, domain: Domain, view: View, simulation: bool, errors: bool
) -> pa.Schema:
    """The columns of a table of statistics in a view, and their types."""
    names = ["value"] + ["consistent"] * (view == "published")
    if errors:
        names += ["stderr"] * (not table.derived) + ["low", "high"]
    return view_schema(statistic_labels(table, domain), names, simulation)


def count_rows(tables: Sequence[Table], workload: Workload) -> Array:
    """The places of all numbers that count rows: of tables, and behind statistics."""
    places = [np.zeros(0, dtype=np.int64)]
    for table in tables:
        if not table.statistics:
            rows = table.rows(workload)
            places.append(np.arange(rows.start, rows.stop))
        for statistic, rows in parts_of(table, workload):
            inner = Workload(workload.domain, statistic.products)
            counting = {"sum": 0, "mean": 1, "variance": 1, "stddev": 1}
            some = inner.query_counts[: counting.get(statistic.kind)]
            places.append(rows.start + np.arange(sum(some)))
    return np.concatenate(places)


def counting_part(workload: Workload) -> Workload:
    """The queries of a workload that count rows; all, if none does."""
    counting = [
        product
        for i, product in enumerate(workload.products)
        if largest_number(workload.kron(i)) <= 1
    ]
    return Workload(workload.domain, counting or workload.products)


def bounds_words(table: Table) -> str:
    """What the numbers of a table rest on: the declared range, and what bins leave open."""
    words = []
    for statistic in table.statistics:
        numbers = statistic.numbers
        if numbers is None:
            continue
        text = f"{statistic.of} counts as declared, from {numbers.low:,.6g} to {numbers.high:,.6g}"
        if numbers.binning:
            far = (
                f"up to {numbers.binning:,.6g}" if np.isfinite(numbers.binning) else "any distance"
            )
            text += (
                f"; every row of a bin as one number, which its own may be {far} away from: no "
                "interval covers that"
            )
            if statistic.kind == "quantiles":
                text = f"{statistic.of} is known by its bins, and a quantile by the bin it lies in"
        words.append(f"{text}.")
    return " ".join(dict.fromkeys(words))
