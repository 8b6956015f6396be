"""The tables and zeros of a release file, compiled: one workload, and the cells that stay empty.

All tables share one workload, whose queries each table finds again by its products. Conditions
under `zeros` say which cells no row can lie in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from psephos.domain.declared import first_repeated
from psephos.domain.domain import Domain
from psephos.errors import PsephosError, ReleaseError, SqlError
from psephos.kernel.source import Cells, Conjunct
from psephos.release.spec.entries import TableEntry, TargetEntry
from psephos.release.spec.entry_types import refused_at
from psephos.release.spec.statistics import TARGETED_INSTEAD, asked_sides, entry_statistic
from psephos.values import Array
from psephos.workload import census
from psephos.workload.builders import marginals, range_marginals
from psephos.workload.product import Product, product, regroup
from psephos.workload.queries import (
    QuerySet,
    all_range,
    identity,
    identity_total,
    level,
    prefix,
    sums,
    total,
    width_range,
)
from psephos.workload.query_sets import SumQueries
from psephos.workload.statistics import Statistic, StatisticQuestion, grouped_by
from psephos.workload.workload import Workload

if TYPE_CHECKING:
    from psephos.workload.sql.compiler import CountTable

CONDITION_EXAMPLE = 'a condition on columns, such as "age < 12 AND married = 1"'
QUERY_SETS: dict[str, Callable[[], QuerySet]] = {
    "identity": identity,
    "total": total,
    "identity_total": identity_total,
    "prefix": prefix,
    "all_range": all_range,
    "sum": sums,
}
"""Query sets by their names in a file; two more take an argument."""
RESERVED_COLUMNS = (
    "part", "answer", "value", "count", "consistent", "stderr", "low", "high", "made_up",
    "statistic", "unit",
)  # fmt: skip
"""Columns of the published tables besides those of attributes."""


@dataclass(frozen=True)
class Layout:
    """Which attributes run down the side of a table and which across its top, outermost first.

    Attributes:
        rows: in their order; those that are named nowhere come after them
        columns: None if nobody said, so that it is decided by what fits on a page
        headings: of attributes that are asked about by an expression with a name of its own
        split: every part is a table by itself
    """

    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    headings: tuple[tuple[str, str], ...] = ()
    split: bool = False


@dataclass(frozen=True)
class Table:
    """One table of a release: its products in the workload, and how precise it must be."""

    name: str
    title: str
    products: range
    target: TargetEntry | None = None
    layout: Layout = Layout()
    statistics: tuple[Statistic, ...] = ()
    """What its numbers are, where they are no counts; `products` are then the tables behind."""

    @property
    def derived(self) -> bool:
        """Does it hold numbers that follow from linear answers and are none themselves?"""
        return any(not statistic.linear for statistic in self.statistics)

    @property
    def error_products(self) -> range:
        """The products whose errors stand for the table: of a derived one, the rows behind."""
        return self.products[:1] if self.derived else self.products

    def error_rows(self, workload: Workload) -> slice:
        """Their queries among those of the workload."""
        return replace(self, products=self.error_products).rows(workload)

    def rows(self, workload: Workload) -> slice:
        """Its queries among those of the workload."""
        start = sum(workload.query_counts[: self.products.start])
        return slice(start, start + self.numbers(workload))

    def numbers(self, workload: Workload) -> int:
        """How many queries of a workload are its own."""
        return sum(workload.query_counts[p] for p in self.products)

    def workload(self, workload: Workload) -> Workload:
        """Its queries as a workload of their own."""
        return Workload(workload.domain, [workload.products[p] for p in self.products])


@dataclass(frozen=True, eq=False)
class Impossible:
    """A condition that no row can meet, over the domain with attributes merged as it needs."""

    place: str
    condition: str
    domain: Domain
    product: Product

    @property
    def conjuncts(self) -> Cells:
        """The condition as masks: a row meets it if its cells are True in all of them."""
        one = np.ones(1)
        factors = zip(self.domain.names, self.product.matrix(self.domain).factors, strict=True)
        return tuple(
            Conjunct((name,), np.ravel(factor.rmatvec(one)) > 0)
            for name, factor in factors
            if name in self.product.factors
        )

    def grids(self) -> list[tuple[list[str], Array]]:
        """The same masks, each by the columns that it looks at, with an axis for each of them."""
        grids = []
        for conjunct in self.conjuncts:
            (name,) = conjunct.names
            parts = self.domain[name].parts or ((name, self.domain[name]),)
            grid = conjunct.mask.reshape([attribute.size for _, attribute in parts])
            grids.append(([column for column, _ in parts], grid))
        return grids

    def __str__(self) -> str:
        return f"{self.place} {self.condition}"


def compile_tables(
    domain: Domain, entries: Sequence[TableEntry], units: Mapping[str, str] | None = None
) -> tuple[Workload, list[Table]]:
    """The workload of all tables, over the domain with attributes merged where SQL needs it.

    `units` say what the numbers of attributes are in.
    """
    merged, parts_of_tables, layouts = _table_products(domain, entries, units or {})
    products: list[Product] = []
    tables = []
    for entry, questions, layout in zip(entries, parts_of_tables, layouts, strict=True):
        statistics = tuple(each for each in questions if isinstance(each, Statistic))
        parts = [each for each in questions if isinstance(each, Product)]
        parts += [part for statistic in statistics for part in statistic.products]
        _check_target(entry, statistics)
        for part in parts:
            name = entry.name if len(parts) == 1 else f"{entry.name}: {part.title}"
            products.append(replace(part, name=name, weight=part.weight * entry.weight))
        positions = range(len(products) - len(parts), len(products))
        title = entry.title or entry.name
        tables.append(Table(entry.name, title, positions, entry.target, layout, statistics))
    return Workload(merged, products), tables


def _check_target(entry: TableEntry, statistics: Sequence[Statistic]) -> None:
    """Refuse a target for what cannot be promised, or for numbers in two units."""
    if entry.target is None or not statistics:
        return
    if not all(statistic.linear for statistic in statistics):
        raise ReleaseError(f"tables {entry.name!r}: target: {TARGETED_INSTEAD}")
    units = {statistic.unit_words for statistic in statistics}
    if len(units) > 1:
        raise ReleaseError(
            f"tables {entry.name!r}: target: its numbers are in {' and in '.join(sorted(units))}, "
            "and ± is in one unit; ask for them in tables of their own"
        )


def compile_zeros(domain: Domain, conditions: Sequence[str]) -> tuple[Impossible, ...]:
    """The conditions, compiled; what is no condition is refused, with its place in the file."""
    compiled = []
    for number, condition in enumerate(conditions, 1):
        impossible = compile_condition(domain, f"zeros[{number}]", condition)
        if all(conjunct.mask.all() for conjunct in impossible.conjuncts):
            raise ReleaseError(
                f"zeros[{number}] {condition!r}: every row meets it, so nothing could be "
                "published; name what no row can be"
            )
        compiled.append(impossible)
    return tuple(compiled)


def column_name(attribute: str) -> str:
    """The column of an attribute's labels; if the name is reserved, with an underscore after it."""
    return f"{attribute}_" if attribute in RESERVED_COLUMNS else attribute


def check_columns(domain: Domain) -> None:
    """Refuse attributes that would share a column of the published tables."""
    column = first_repeated([column_name(name) for name in domain.names])
    if column is not None:
        twins = " and ".join(repr(name) for name in domain.names if column_name(name) == column)
        raise ReleaseError(
            f"schema: {twins} would both be the column {column!r} of the tables; rename one of them"
        )


def _table_products(
    domain: Domain, entries: Sequence[TableEntry], units: Mapping[str, str]
) -> tuple[Domain, list[list[Product | Statistic]], list[Layout]]:
    """The domain that all tables need, what each table asks over it, and how it is laid out."""
    merged: Domain = domain
    blocks: tuple[tuple[str, ...], ...] = ()
    sql_tables: dict[str, list[CountTable]] = {}
    if any(entry.sql is not None for entry in entries):
        merged, blocks = _read_statements(domain, entries, sql_tables)
    questions, layouts = [], []
    for entry in entries:
        if entry.name not in sql_tables:
            questions.append(_questions(domain, merged, entry, units))
            layouts.append(_layout(domain, entry))
            continue
        from psephos.workload.sql import sql_products, sql_statistics

        tables = sql_tables[entry.name]
        with refused_at(f"tables {entry.name!r}.sql", SqlError):
            if all(table.aggregate.kind == "count" for table in tables):
                questions.append([*sql_products(tables, domain, merged, blocks)])
            else:
                questions.append([*sql_statistics(tables, domain, merged, blocks, units)])
        layouts.append(sql_layout(tables))
    return merged, questions, layouts


def _read_statements(
    domain: Domain, entries: Sequence[TableEntry], tables: dict[str, list[CountTable]]
) -> tuple[Domain, tuple[tuple[str, ...], ...]]:
    """Read what is asked in SQL into `tables`; the domain it needs, and what is merged in it."""
    from psephos.workload.sql import merge_attributes, read_sql

    needs_merge = False
    for entry in entries:
        if entry.sql is not None:
            with refused_at(f"tables {entry.name!r}.sql", SqlError):
                tables[entry.name] = read_sql(domain, entry.sql, dialect=entry.dialect)
                needs_merge |= merge_attributes(domain, tables[entry.name])[0] != domain
    if not needs_merge:
        return domain, ()
    dialects = {entry.dialect for entry in entries if entry.sql is not None}
    if len(dialects) > 1:
        raise ReleaseError(
            f"tables are written in {len(dialects)} dialects of SQL, and one of them looks at "
            "several columns at once; write all of them in one dialect"
        )
    # One statement's attributes may meet another's, so that they are merged together.
    return merge_attributes(domain, list(chain(*tables.values())))


def _layout(domain: Domain, entry: TableEntry) -> Layout:
    """Where a table without SQL has its attributes."""
    if entry.builder is not None:
        return Layout(split=True)
    if entry.queries is not None:
        return Layout(tuple(entry.queries))
    rows, columns = (
        tuple(grouped_by(domain, text)[0] for text in names)
        for names in ((*entry.breakdowns, *entry.by, *entry.rows), entry.columns)
    )
    return Layout(rows, columns)


def sql_layout(tables: Sequence[CountTable]) -> Layout:
    """The keys of GROUP BY in their order; an expression is called by its name."""
    keys = max((table.keys for table in tables), key=len)
    headings = {
        "*".join(key.axes): key.texts[0]
        for key in keys
        if key.texts and (key.codes is not None or key.level is not None)
    }
    rows = dict.fromkeys(name for key in keys for name in key.axes)
    return Layout(tuple(rows), None, tuple(headings.items()))


def _questions(
    domain: Domain, merged: Domain, entry: TableEntry, units: Mapping[str, str]
) -> list[Product | Statistic]:
    """What a table without SQL asks, over the domain with attributes merged."""
    if entry.statistic is not None:
        with refused_at(f"tables {entry.name!r}"):
            return [entry_statistic(entry, domain, merged, units.get(entry.of or "", ""))]
    products = _products(domain, entry)
    for part in products:
        summed = [name for name, queries in part.items if isinstance(queries, SumQueries)]
        if summed:
            by = tuple((n, q) for n, q in part.items if n != summed[0])
            unit = units.get(summed[0], "")
            question = StatisticQuestion("sum", summed[0], by, unit=unit)
            return [question.statistic(domain, merged)]
    if merged == domain:
        return [*products]
    return [regroup(replace(part, name=part.title), domain, merged) for part in products]


def _products(domain: Domain, entry: TableEntry) -> list[Product]:
    """What a table without SQL asks, over the domain as declared."""
    with refused_at(f"tables {entry.name!r}"):
        if entry.builder is not None:
            return _builder_products(domain, entry)
        if entry.queries is not None:
            factors = {name: _query_set(text, name) for name, text in entry.queries.items()}
        else:
            sides = (*entry.rows, *entry.columns, *entry.breakdowns)
            factors = dict(asked_sides(domain, sides, totals=entry.totals))
        products = [product(factors)]
        Workload(domain, products)  # refuses what does not fit, by name
        return products


def _builder_products(domain: Domain, entry: TableEntry) -> list[Product]:
    if entry.builder == "sf1":
        workload = census.sf1()
        if (domain.names, domain.shape) != (workload.domain.names, workload.domain.shape):
            raise ReleaseError(f"sf1 asks about {workload.domain}, the schema is {domain}")
        return list(workload.products)
    build = marginals if entry.builder == "marginals" else range_marginals
    part = domain if entry.attributes is None else domain.project(entry.attributes)
    return list(build(part, k=entry.k, up_to=entry.up_to).products)


def _query_set(text: str, name: str) -> QuerySet:
    """A query set by its name in a file."""
    if text in QUERY_SETS:
        return QUERY_SETS[text]()
    if match := re.fullmatch(r"width_range\s*[:( ]\s*(\d+)\)?", text):
        return width_range(int(match[1]))
    if match := re.fullmatch(r"level\s*[:( ]\s*(.+?)\)?", text):
        return level(match[1])
    close = get_close_matches(text, QUERY_SETS, n=1)
    have = f"have {', '.join(QUERY_SETS)}, width_range(5) and level(NAME)"
    remedy = f"did you mean {close[0]!r}?" if close else have
    raise ReleaseError(f"queries.{name}: no query set {text!r}; {remedy}")


def compile_condition(domain: Domain, place: str, condition: str) -> Impossible:
    """A condition in SQL, as masks over the domain with attributes merged as it needs."""
    from psephos.workload.sql import compile_sql

    try:
        merged, products = compile_sql(domain, f"SELECT COUNT(*) FROM t WHERE {condition}")
    except PsephosError as error:
        reason = re.sub(r"write: SELECT.*", f"write: {CONDITION_EXAMPLE}", str(error))
        raise ReleaseError(f"{place} {condition!r}: {reason}") from None
    if len(products) != 1 or products[0].matrix(merged).shape[0] != 1:
        raise ReleaseError(
            f"{place} {condition!r}: this asks for several counts; write {CONDITION_EXAMPLE}"
        )
    return Impossible(place, condition, merged, products[0])
