"""How tables are laid out for people: what runs down the side, what across the top, what last.

`rows` and `columns` of a release file decide it. Tables that are asked in another way keep their
order (that of GROUP BY, or of `queries`), and the last attribute with few labels runs across. Each
part of a builder is a table by itself. Levels of a hierarchy are called by their names, and stand
above what they sum where a table asks for all of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.release.spec.job import Job
from psephos.release.spec.tables import Layout, Table, column_name
from psephos.release.views.labels import asked_columns, part_titles
from psephos.report.cross_table import (
    PART,
    TOTAL,
    CrossTable,
    HeadingAxis,
    laid_out,
    with_distinct_labels,
)
from psephos.workload.query_sets import (
    IdentityQueries,
    LevelQueries,
    PrefixQueries,
    QuerySet,
    StackedQueries,
    TotalQueries,
    WidthRangeQueries,
)
from psephos.workload.workload import Workload

STATISTIC = "statistic"
"""The column that says which number of a group it is, such as a quantile."""
MOST_ACROSS = 20
"""The most labels of an attribute that runs across where nobody said which should."""


def cross_tables(job: Job, table: Table, data: pa.Table) -> tuple[CrossTable, ...]:
    """A table of a release, laid out; one for each part of a builder.

    Args:
        job: the release
        table: one of its tables
        data: the table in a view, as `Views.table` or `Bundle.table` gives it
    """
    return lay_out(job.questions, table, data, job.titles)


def lay_out(
    workload: Workload, table: Table, data: pa.Table, titles: Mapping[str, str] | None = None
) -> tuple[CrossTable, ...]:
    """Answers of some products of a workload, laid out; `titles` says what attributes are called.

    No two tables have the same name, and each number is in one of them.
    """
    if table.statistics:
        return tuple(_statistic_tables(workload, table, data, titles or {}))
    columns = label_columns(data)
    value = data.column_names[len(columns)]
    if not table.layout.split or PART not in columns:
        view = _PartOfTable(workload, table, table.products, titles or {})
        return (view.laid_out(table.name, table.title, data, value),)
    parts = [str(part) for part in data[PART].to_pylist()]
    numbers_of = _products_of_parts(workload, table)
    places: dict[str, list[int]] = {name: [] for name in numbers_of}
    for place, name in enumerate(parts):
        places[name].append(place)
    tables = []
    for name, numbers in numbers_of.items():
        view = _PartOfTable(workload, table, numbers, titles or {})
        some = data.take(pa.array(places[name])).drop_columns(PART)
        title = f"{table.title}: {view.words(name)}"
        tables.append(
            view.laid_out(_part_name(table, name), title, some, value, part=view.words(name))
        )
    return tuple(tables)


def _statistic_tables(
    workload: Workload, table: Table, data: pa.Table, titles: Mapping[str, str]
) -> Iterator[CrossTable]:
    """A table for each statistic: their numbers are in different units."""
    data = data.drop_columns([name for name in (PART, "unit") if name in data.column_names])
    start = 0
    for statistic, name in zip(table.statistics, _statistic_names(table), strict=True):
        size = statistic.size(workload.domain)
        some = data.slice(start, size)
        start += size
        one = len(some[STATISTIC].unique()) == 1
        words = str(some[STATISTIC][0]) if one else statistic.kind
        part = words if len(table.statistics) > 1 else ""
        inner = Table(name, table.title, range(1), layout=table.layout)
        groups = Workload(workload.domain, [replace(statistic.groups, name=table.name)])
        view = _PartOfTable(groups, inner, range(1), titles)
        title = f"{table.title}: {part}" if part else table.title
        cross = view.laid_out(
            name, title, some.drop_columns(STATISTIC) if one else some, "value", part
        )
        unit = statistic.unit_words
        heading = f"{words} ({unit})" if unit and unit not in words.split() else words
        yield replace(cross, statistic=heading)


def _statistic_names(table: Table) -> list[str]:
    """What the tables of its statistics are called, each its own."""
    if len(table.statistics) == 1:
        return [table.name]
    words = [f"{table.name} {' '.join(each.words)}" for each in table.statistics]
    times: Counter[str] = Counter()
    names = []
    for word in words:
        times[word] += 1
        names.append(word if times[word] == 1 else f"{word} ({times[word]})")
    return names


def cross_names(workload: Workload, table: Table) -> list[str]:
    """What the tables are called that a table is laid out as; their numbers are not needed."""
    if table.statistics:
        return _statistic_names(table)
    if not table.layout.split or len(table.products) == 1:
        return [table.name]
    return [_part_name(table, part) for part in _products_of_parts(workload, table)]


def _part_name(table: Table, part: str) -> str:
    return f"{table.name} {part}"


def _products_of_parts(workload: Workload, table: Table) -> dict[str, list[int]]:
    """The products of each part, by what it is called."""
    numbers: dict[str, list[int]] = {}
    for number, title in zip(table.products, part_titles(workload, table), strict=True):
        numbers.setdefault(title, []).append(number)
    return numbers


def label_columns(data: pa.Table) -> list[str]:
    """The columns of labels: those before the first number."""
    names = []
    for name, kind in zip(data.column_names, data.schema.types, strict=True):
        if name in ("count", "value") or not pa.types.is_string(kind):
            break
        names.append(name)
    return names


@dataclass(frozen=True, eq=False)
class _PartOfTable:
    """Some products of a table, and what their columns of labels stand for."""

    workload: Workload
    table: Table
    products: Sequence[int]
    titles: Mapping[str, str]

    @property
    def layout(self) -> Layout:
        return self.table.layout

    @property
    def domain(self) -> Domain:
        return self.workload.domain

    def words(self, part: str) -> str:
        """A part's name with what its attributes are called."""
        names = part.split(" × ")
        known = all(name in self.titles or name in self.domain.names for name in names)
        return " × ".join(self.titles.get(name, name) for name in names) if known else part

    def laid_out(
        self, name: str, title: str, data: pa.Table, value: str, part: str = ""
    ) -> CrossTable:
        """These products as one table."""
        labels = self._varying(data) or label_columns(data)[-1:]
        if _combinations(data, labels) < data.num_rows:
            data = with_distinct_labels(data, labels)
        names = self._varying(data)
        axes = [self._axis(each, data) for each in self._ordered(names)]
        alike = [each for each in label_columns(data) if each not in names and each != PART]
        words = {each: str(data[each][0]) for each in alike}
        fixed = tuple(
            (self._title(each, self._queries(each)), word)
            for each, word in words.items()
            if word not in self._total_labels(each)
        )
        sides = self._sides(axes)
        return laid_out(name, title, data, sides, value=value, fixed=fixed, part=part)

    def _varying(self, data: pa.Table) -> list[str]:
        """The columns that tell numbers apart; parts only where nothing else does."""
        labels = [name for name in label_columns(data) if name != PART]
        names = [name for name in labels if len(data[name].unique()) > 1]
        if PART not in data.column_names:
            return names
        return names if _combinations(data, names) == data.num_rows else [PART, *names]

    def _ordered(self, names: Sequence[str]) -> list[str]:
        """The columns as they were asked for, the outermost first."""
        order = [column_name(name) for name in (*self.layout.rows, *(self.layout.columns or ()))]

        def place(name: str) -> int:
            parts = [column_name(part) for part in self._attributes(name)]
            return min((order.index(part) for part in parts if part in order), default=len(order))

        return sorted(names, key=place)  # stable: the others stay in the order of the domain

    def _attributes(self, column: str) -> list[str]:
        """The attributes that a column is about: several where they are asked about together."""
        name = self._name(column)
        merged = self.domain[name] if name in self.domain.names else None
        return [part for part, _ in merged.parts] if merged and merged.parts else [name]

    def _name(self, column: str) -> str:
        """The attribute of a column; it may have given way to the name of a number."""
        return next((name for name, *_ in self._asked.get(column, ())), column)

    def _sides(self, axes: Sequence[HeadingAxis]) -> tuple[list[HeadingAxis], list[HeadingAxis]]:
        """The axes of the rows and of the columns."""
        if self.layout.columns is not None:
            wanted = {column_name(name) for name in self.layout.columns}
        else:
            wanted = self._across(axes)
        if any(axis.column == STATISTIC for axis in axes):
            wanted = {STATISTIC}  # quantiles of a group side by side
        return (
            [axis for axis in axes if axis.column not in wanted],
            [axis for axis in axes if axis.column in wanted],
        )

    def _across(self, axes: Sequence[HeadingAxis]) -> set[str]:
        """The one that runs across: the last with few labels, or of a builder's the shortest."""
        few = [a for a in axes if len(a) <= MOST_ACROSS and not a.cumulative and a.column != PART]
        if len(axes) < 2 or not few:
            return set()
        best = min(reversed(few), key=len) if self.layout.split else few[-1]
        return {best.column}

    # ---- one axis ------------------------------------------------------------------------------

    @cached_property
    def _asked(self) -> dict[str, list[tuple[str, Attribute, QuerySet]]]:
        """What is asked along each column, parts of merged attributes by themselves."""
        pairs = zip(self.table.products, asked_columns(self.workload, self.table), strict=True)
        along: dict[str, list[tuple[str, Attribute, QuerySet]]] = {}
        for each in (
            each for number, columns in pairs if number in self.products for each in columns
        ):
            along.setdefault(column_name(each[0]), []).append(each)
        return along

    def _queries(self, column: str) -> list[tuple[Attribute, QuerySet]]:
        """What is asked along a column, all values together aside."""
        along = self._asked.get(column, ())
        return [(a, queries) for _, a, queries in along if not isinstance(queries, TotalQueries)]

    def _total_labels(self, column: str) -> set[str]:
        """The labels of all values of a column together."""
        return {a.total_label for _, a, _ in self._asked.get(column, ())} or {TOTAL}

    def _title(self, column: str, pairs: Sequence[tuple[Attribute, QuerySet]]) -> str:
        """What the column is called: a level by its name, an expression by its alias."""
        if column == PART:
            return "Part"
        name = self._name(column)
        headings = dict(self.layout.headings)
        title = headings.get(name, self.titles.get(name, name.replace("*", " × ")))
        levels = {_only_level(queries) for _, queries in pairs}
        if len(levels) != 1 or None in levels:
            return title
        (level,) = levels
        if name in headings or not pairs[0][0].is_numeric:
            return headings.get(name, str(level))
        return f"{title} ({level})"  # "ten" alone says nothing of ages

    def _axis(self, column: str, data: pa.Table) -> HeadingAxis:
        labels = [str(label) for label in data[column].unique().to_pylist()]
        pairs = self._queries(column)
        totals = self._total_labels(column) & set(labels)
        paths = (path for attribute, queries in pairs[:1] for path in _paths(attribute, queries))
        ranks = dict(paths)
        if not set(labels) - totals <= set(ranks):
            ranks = {}
        depths = {each: len(ranks.get(each, (0,))) for each in labels if each not in totals}
        shallowest = min(depths.values(), default=0)
        places = {label: k for k, label in enumerate(labels)}
        order = sorted(
            labels, key=lambda label: (label in totals, ranks.get(label, ()), places[label])
        )
        sizes = _widths(pairs)
        widths = tuple(sizes.get(label, math.nan) for label in order) if sizes else None
        return HeadingAxis(
            column,
            self._title(column, pairs),
            tuple(order),
            tuple(label in totals for label in order),
            tuple(depths.get(label, shallowest) - shallowest for label in order),
            ordered=bool(pairs) and all(_runs_along(q, a) for a, q in pairs),
            cumulative=bool(pairs) and all(_cumulative(q) for _, q in pairs),
            widths=widths,
            apart=_apart(pairs, order),
        )


def _combinations(data: pa.Table, names: Sequence[str]) -> int:
    """How many combinations of labels there are."""
    keys = data.select(names).group_by(names).aggregate([]) if names else data.slice(0, 1)
    return int(keys.num_rows)


def _single_sets(queries: QuerySet) -> list[QuerySet]:
    """The query sets that are stacked, all values together aside."""
    parts = queries.parts if isinstance(queries, StackedQueries) else (queries,)
    return [part for part in parts if not isinstance(part, TotalQueries)]


def _runs_along(queries: QuerySet, attribute: Attribute) -> bool:
    """Do the queries follow each other as the values of a numeric attribute do?"""
    sets = _single_sets(queries)
    along = IdentityQueries | PrefixQueries | WidthRangeQueries | LevelQueries
    return attribute.is_ordered and len(sets) == 1 and isinstance(sets[0], along)


def _only_level(queries: QuerySet) -> str | None:
    """The level that is asked about and nothing else; None if there is more, or none."""
    sets = _single_sets(queries)
    one = sets[0] if len(sets) == 1 else None
    return one.name if isinstance(one, LevelQueries) else None


def _cumulative(queries: QuerySet) -> bool:
    sets = _single_sets(queries)
    return bool(sets) and all(isinstance(each, PrefixQueries) for each in sets)


def _paths(attribute: Attribute, queries: QuerySet) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Where each label stands in a hierarchy that is asked about level by level.

    A path leads from the group of the coarsest level down; groups come before what they hold.
    """
    sets = _single_sets(queries)
    if len(sets) < 2 or not all(isinstance(s, LevelQueries | IdentityQueries) for s in sets):
        return
    groups = [
        attribute.level(each.name).groups
        if isinstance(each, LevelQueries)
        else np.arange(attribute.size)
        for each in sets
    ]
    if any(len(np.unique(a)) > len(np.unique(b)) for a, b in pairwise(groups)):
        return  # the coarser one does not come first
    labels = iter(StackedQueries(tuple(sets)).labels(attribute))
    for depth, level in enumerate(groups):
        _, firsts = np.unique(level, return_index=True)
        for cell in firsts:
            yield next(labels), tuple(int(each[cell]) for each in groups[: depth + 1])


def _apart(pairs: Sequence[tuple[Attribute, QuerySet]], labels: Sequence[str]) -> tuple[bool, ...]:
    """Which labels have no place in the order: missing and undeclared entries."""
    names = {attribute.label(cell) for attribute, _ in pairs for cell in attribute.apart}
    return tuple(label in names for label in labels) if names else ()


def _widths(pairs: Sequence[tuple[Attribute, QuerySet]]) -> dict[str, float]:
    """How many units each label spans, of one level of numbers; empty where that says nothing."""
    if len(pairs) != 1:
        return {}
    attribute, queries = pairs[0]
    sets = _single_sets(queries)
    if not attribute.is_numeric or len(sets) != 1:
        return {}
    sizes = _cell_widths(attribute)
    if isinstance(sets[0], PrefixQueries):
        sizes = [size for cell, size in enumerate(sizes) if cell not in attribute.apart]
        sizes += [math.nan] * len(attribute.apart)  # each by itself, after the values
    if isinstance(sets[0], IdentityQueries | PrefixQueries):
        return dict(zip(sets[0].labels(attribute), sizes, strict=True))
    if not isinstance(sets[0], LevelQueries):
        return {}
    level = attribute.level(sets[0].name)
    sums = np.bincount(level.groups, weights=sizes, minlength=len(level.labels))
    return dict(zip(level.labels, sums.tolist(), strict=True))


def _cell_widths(attribute: Attribute) -> list[float]:
    """Of bins the distance of their edges, of whole numbers one; not a number for what has none."""
    if attribute.edges is not None:
        widths = [high - low for low, high in pairwise(attribute.edges)]
        widths = [float(width) if math.isfinite(width) else math.nan for width in widths]
        return widths + [math.nan] * (attribute.size - len(widths))
    if isinstance(attribute.values, range) and attribute.values.step == 1:
        return [1.0] * attribute.size
    return [math.nan] * attribute.size
