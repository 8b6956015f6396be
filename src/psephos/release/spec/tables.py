"""From the tables of a release file to a workload, and back from its queries to the tables.

What no row can be: the conditions under `zeros` in a release file, compiled.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from psephos.domain.attribute import first_repeated
from psephos.domain.domain import Domain
from psephos.errors import PsephosError, ReleaseError, SqlError
from psephos.kernel.source import Cells, Conjunct
from psephos.release.spec.entries import TableEntry, TargetEntry
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
    stacked,
    total,
    width_range,
)
from psephos.workload.sql import compile_sql
from psephos.workload.workload import Workload

EXAMPLE = 'a condition on columns, such as "age < 12 AND married = 1"'


@dataclass(frozen=True, eq=False)
class Impossible:
    """One condition that no row can meet, over the domain with attributes merged as it needs."""

    place: str
    condition: str
    domain: Domain
    product: Product

    @property
    def conjuncts(self) -> Cells:
        """The condition as masks: a row meets it if its cells are True in all of them."""
        one = np.ones(1)
        factors = zip(self.domain.names, self.product.matrix(self.domain).factors, strict=True)
        asked = [(name, factor) for name, factor in factors if name in self.product.factors]
        return tuple(Conjunct((name,), np.ravel(f.rmatvec(one)) > 0) for name, f in asked)

    def cells(self, declared: Domain) -> Array:
        """Which cells of the domain as declared meet it; one axis for each attribute."""
        met = np.ravel(self.product.matrix(self.domain).rmatvec(np.ones(1))) > 0
        order = self.domain._axes_of_origin() or list(range(len(declared.names)))
        shape = [declared.shape[axis] for axis in order]
        return met.reshape(shape).transpose(np.argsort(order))

    def __str__(self) -> str:
        return f"{self.place} {self.condition}"


def compile_zeros(domain: Domain, conditions: Sequence[str]) -> tuple[Impossible, ...]:
    """The conditions, each refused by its place if it is none."""
    return tuple(_impossible(domain, f"zeros[{i}]", text) for i, text in enumerate(conditions, 1))


def zero_cells(domain: Domain, impossible: Sequence[Impossible]) -> Array:
    """Which cells no row can lie in; one axis for each attribute."""
    zeros = np.zeros(domain.shape, dtype=bool)
    for each in impossible:
        zeros |= each.cells(domain)
    return zeros


def _impossible(domain: Domain, place: str, condition: str) -> Impossible:
    try:
        merged, asked = compile_sql(domain, f"SELECT COUNT(*) FROM t WHERE {condition}")
    except PsephosError as error:
        reason = re.sub(r"write: SELECT.*", f"write: {EXAMPLE}", str(error))
        raise ReleaseError(f"{place} {condition!r}: {reason}") from None
    if len(asked) != 1 or asked[0].matrix(merged).shape[0] != 1:
        raise ReleaseError(f"{place} {condition!r}: this asks for several counts; write {EXAMPLE}")
    made = Impossible(place, condition, merged, asked[0])
    if all(conjunct.mask.all() for conjunct in made.conjuncts):
        raise ReleaseError(
            f"{place} {condition!r}: every row meets it, so nothing could be published; name what "
            "no row can be"
        )
    return made


NAMED: dict[str, Callable[[], QuerySet]] = {
    "identity": identity,
    "total": total,
    "identity_total": identity_total,
    "prefix": prefix,
    "all_range": all_range,
}

TAKEN = ("part", "answer", "value", "count", "consistent", "stderr", "low", "high", "made_up")
"""Columns of the published tables besides those of attributes."""


@dataclass(frozen=True)
class Table:
    """One table of a release: its products in the workload, and how precise it must be."""

    name: str
    title: str
    products: range
    target: TargetEntry | None = None

    def rows(self, workload: Workload) -> slice:
        """Its queries among those of the workload."""
        start = sum(workload.query_counts[: self.products.start])
        return slice(start, start + sum(workload.query_counts[p] for p in self.products))

    def workload(self, workload: Workload) -> Workload:
        """Its queries as a workload of their own."""
        return Workload(workload.domain, [workload.products[p] for p in self.products])


def column_name(attribute: str) -> str:
    """The column of an attribute's labels; names of other columns are taken."""
    return f"{attribute}_" if attribute in TAKEN else attribute


def check_columns(domain: Domain) -> None:
    """Refuse attributes that would share a column of the published tables."""
    shown = first_repeated([column_name(name) for name in domain.names])
    if shown is not None:
        twins = " and ".join(repr(name) for name in domain.names if column_name(name) == shown)
        raise ReleaseError(
            f"schema: {twins} would both be the column {shown!r} of the tables; rename one of them"
        )


def compile_tables(domain: Domain, entries: Sequence[TableEntry]) -> tuple[Workload, list[Table]]:
    """The workload of all tables, over the domain with attributes merged where SQL needs it."""
    asked = [_products(domain, entry) for entry in entries]
    merged = _merged(domain, entries)
    if merged != domain:
        sql = [entry.sql for entry in entries if entry.sql is not None]
        joined = iter(compile_sql(domain, sql, dialect=_dialect(entries))[1])
        for i, entry in enumerate(entries):
            if entry.sql is not None:
                asked[i] = [next(joined) for _ in asked[i]]
            else:
                named = [replace(each, name=each.title) for each in asked[i]]
                asked[i] = [regroup(each, domain, merged) for each in named]
    products: list[Product] = []
    tables = []
    for entry, own in zip(entries, asked, strict=True):
        for each in own:
            name = entry.name if len(own) == 1 else f"{entry.name}: {each.title}"
            weight = each.weight * entry.weight
            products.append(replace(each, name=name, weight=weight))
        where = range(len(products) - len(own), len(products))
        tables.append(Table(entry.name, entry.title or entry.name, where, entry.target))
    return Workload(merged, products), tables


def _dialect(entries: Sequence[TableEntry]) -> str | None:
    dialects = {entry.dialect for entry in entries if entry.sql is not None}
    if len(dialects) > 1:
        raise ReleaseError(
            f"tables are written in {len(dialects)} dialects of SQL, and one of them looks at "
            "several columns at once; write all of them in one dialect"
        )
    return dialects.pop() if dialects else None


def _merged(domain: Domain, entries: Sequence[TableEntry]) -> Domain:
    """The domain that all SQL together needs."""
    sql = [entry.sql for entry in entries if entry.sql is not None]
    if not sql or all(_compiled(domain, entry)[0] == domain for entry in entries if entry.sql):
        return domain
    return compile_sql(domain, sql, dialect=_dialect(entries))[0]


def _compiled(domain: Domain, entry: TableEntry) -> tuple[Domain, list[Product]]:
    try:
        return compile_sql(domain, entry.sql or "", dialect=entry.dialect)
    except SqlError as error:
        raise ReleaseError(f"tables {entry.name!r}.sql: {error}") from None


def _products(domain: Domain, entry: TableEntry) -> list[Product]:
    """What one table asks, over the domain as declared."""
    place = f"tables {entry.name!r}"
    if entry.sql is not None:
        return _compiled(domain, entry)[1]
    try:
        if entry.builder is not None:
            return _built(domain, entry)
        if entry.queries is not None:
            factors = {name: _named(text, name) for name, text in entry.queries.items()}
        else:
            factors = {}
            for text in (*entry.rows, *entry.columns, *entry.breakdowns):
                name, queries = _spread(domain, text)
                if name in factors:
                    raise ReleaseError(f"{name!r} is asked about twice; {name}.* asks all levels")
                factors[name] = stacked(queries, total()) if entry.totals else queries
        made = product(factors)
        Workload(domain, [made])  # refuses what does not fit, by name
    except PsephosError as error:
        raise ReleaseError(f"{place}: {error}") from None
    return [made]


def _built(domain: Domain, entry: TableEntry) -> list[Product]:
    if entry.builder == "sf1":
        asked = census.sf1()
        if (domain.names, domain.shape) != (asked.domain.names, asked.domain.shape):
            raise ReleaseError(f"sf1 asks about {asked.domain}, the schema is {domain}")
        return list(asked.products)
    make = marginals if entry.builder == "marginals" else range_marginals
    part = domain if entry.attributes is None else domain.project(entry.attributes)
    return list(make(part, k=entry.k, up_to=entry.up_to).products)


def _spread(domain: Domain, text: str) -> tuple[str, QuerySet]:
    """`age`, `age.broad` or `age.*` as an attribute and its queries."""
    if text in domain:
        return text, identity()
    name, dot, inside = text.rpartition(".")
    if not dot or name not in domain:
        domain.axis(name or text)  # refuses it, and lists what there is
    if inside == "*":
        levels = [level(each.name) for each in reversed(domain[name].levels)]
        return name, stacked(*levels, identity())
    return name, level(domain[name].level(inside).name)


def _named(text: str, name: str) -> QuerySet:
    """A query set by its name in a file."""
    if text in NAMED:
        return NAMED[text]()
    if found := re.fullmatch(r"width_range\s*[:( ]\s*(\d+)\)?", text):
        return width_range(int(found[1]))
    if found := re.fullmatch(r"level\s*[:( ]\s*(.+?)\)?", text):
        return level(found[1])
    raise ReleaseError(
        f"queries.{name}: no query set {text!r}; have {', '.join(NAMED)}, width_range(5) and "
        "level(NAME)"
    )
