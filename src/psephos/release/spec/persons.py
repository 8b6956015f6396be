"""Tables that count persons, as a release file asks for them.

A person with rows in two regions is one person in each, and one in both together. So counts of
persons do not add up, no strategy answers one grouping by another, and least squares never sees
them: every table is measured as it is, with noise that depends on its own spend alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import and_
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from psephos.domain.attribute import Attribute
from psephos.domain.declared import first_repeated
from psephos.domain.domain import Domain
from psephos.domain.predicate import In, IsNull, Or, Predicate
from psephos.domain.values import OTHER
from psephos.errors import ReleaseError
from psephos.infer.quantiles import noise_quantile
from psephos.kernel.budget import Budget, Currency
from psephos.kernel.measurement import Measurement, noise_for
from psephos.kernel.protected import ProtectedTable, ProtectedVector
from psephos.kernel.query import Query
from psephos.kernel.source import Conjunct
from psephos.kernel.unit import Unit
from psephos.matrix import Identity
from psephos.release.spec.budgets import PersonsEntry
from psephos.release.spec.entry_types import refused_at
from psephos.release.spec.tables import Layout, Table, compile_condition
from psephos.release.views.labels import marked, table_labels
from psephos.values import Array, digest
from psephos.workload.product import product
from psephos.workload.queries import identity
from psephos.workload.workload import Workload

PERSONS_FOLDER = "persons"
"""Where they lie in a bundle, and their requests."""
MOST_PERSON_CELLS = 10**7
"""The most numbers of a table of persons."""


@dataclass(frozen=True, eq=False)
class PersonsTable:
    """How many persons have a row in each cell of a grouping, of the rows that meet a condition."""

    name: str
    title: str
    by: tuple[tuple[str, str | None], ...]
    """Attributes, each with the level at which it is taken, if it is one."""
    domain: Domain
    """The cells, in the order of `by`."""
    condition: Predicate | None
    words: str
    """The condition as it was written."""
    spend: Budget
    declared: Domain
    """The schema of the rows."""

    @classmethod
    def of(cls, declared: Domain, entry: PersonsEntry, person: str, number: int) -> PersonsTable:
        """The table of an entry of the release file; `person` is the column that names persons."""
        place = f"persons[{number}]"
        words = entry.where if entry.sql is None else entry.sql
        with refused_at(f"{place} {entry.name!r}"):
            by, conjuncts = _asked(declared, entry, person, place)
            domain = _grouping(declared, by)
        if domain.size > MOST_PERSON_CELLS:
            raise ReleaseError(
                f"{place} {entry.name!r}: {domain.size_text} cells, and a table of persons has at "
                f"most {MOST_PERSON_CELLS:,}; group by less"
            )
        condition = _predicate(declared, conjuncts, f"{place} {words!r}") if conjuncts else None
        title = entry.title or entry.name
        return cls(entry.name, title, by, domain, condition, words, entry.budget(), declared)

    def vector(self, table: ProtectedTable) -> ProtectedVector:
        """What is measured of the data."""
        rows = table if self.condition is None else table.where(self.condition)
        levels = {name: level for name, level in self.by if level is not None}
        return rows.persons(
            *(name for name, level in self.by if level is None), **levels
        ).vectorise()

    def measure(self, table: ProtectedTable, spend: Budget, key: str) -> Measurement:
        """The noisy numbers of persons, paid for under a key."""
        vector = self.vector(table)
        return vector.measure(Identity(vector.size), spend=spend, key=key)

    @property
    def size(self) -> int:
        """How many numbers there are."""
        return self.domain.size

    @property
    def file_names(self) -> tuple[str, ...]:
        """What is asked lies in release.json."""
        return ()

    def write(self, folder: Path) -> None:
        """What is asked lies in release.json."""

    def facts(self, edition: str) -> dict[str, Any]:
        """What a manifest says of it: the name of the table, not of the release."""
        return {"name": self.name}

    def price(self, spend: Budget, currency: Currency) -> Budget:
        """What a ledger of a currency books for it."""
        return spend.booked(currency)

    def key(self, release: str) -> str:
        """One key for the request, by what it asks, below that of the release's tables of rows.

        So the ledger knows all that was paid for with these, and a bundle that leaves out some of
        it is noticed.
        """
        facts = (self.by, repr(self.condition), self.spend.currency, str(self.spend.amount))
        return f"{release} persons {digest(facts)[:24]}"

    def half_width(self, unit: Unit, confidence: float) -> int:
        """Of the interval of every number, before anything is spent."""
        query = Query.of(Identity(self.domain.size))
        (noise,) = noise_for(query, self.spend, unit.on_persons(self.domain.size), 1)
        return noise_quantile(noise, confidence)

    def view(self, measurement: Measurement, confidence: float) -> pa.Table:
        """The table for people, as published ones are: whole numbers from 0, and the noisy ones."""
        values = self._in_order(measurement.values)
        half = noise_quantile(measurement.noise[0], confidence)
        numbers = {
            "count": np.maximum(values, 0),
            "consistent": values,
            "stderr": np.full(len(values), np.sqrt(measurement.noise[0].exact_variance)),
            "low": np.maximum(values - half, 0),
            "high": np.maximum(values + half, 0),
        }
        return marked(table_labels(self.questions, self.table), numbers, measurement.simulation)

    @cached_property
    def questions(self) -> Workload:
        """Every cell by itself, as counts of rows are asked: labels and layouts follow from it."""
        return Workload(self.domain, [product({name: identity() for name in self.domain.names})])

    @property
    def table(self) -> Table:
        """These questions as one table."""
        return Table(self.name, self.title, range(1), layout=Layout(self.domain.names))

    def _in_order(self, values: Array) -> Array:
        """Values of the kernel's cells, where levels come last, in the order of `by`."""
        last = sorted(range(len(self.by)), key=lambda i: self.by[i][1] is not None)
        if not last:
            return values
        shape = [self.domain.shape[i] for i in last]
        return values.reshape(shape).transpose(np.argsort(last)).reshape(-1)


def _asked(
    declared: Domain, entry: PersonsEntry, person: str, place: str
) -> tuple[tuple[tuple[str, str | None], ...], Sequence[Conjunct]]:
    """What an entry groups by, and the conditions on its rows."""
    if entry.sql is not None:
        from psephos.workload.sql import read_persons

        statement = read_persons(declared, entry.sql, person, entry.dialect)
        conditions = [
            Conjunct(piece.axes, np.asarray(piece.codes, dtype=bool))
            for piece in statement.conditions
        ]
        return statement.by, conditions
    by = tuple(_grouped(declared, text) for text in entry.rows)
    if not entry.where:
        return by, ()
    return by, compile_condition(declared, f"{place} where", entry.where).conjuncts


def _grouped(domain: Domain, text: str) -> tuple[str, str | None]:
    """`district` or `district.region` as an attribute and its level."""
    if text in domain:
        return text, None
    name, dot, level = text.rpartition(".")
    if not dot or name not in domain:
        domain.axis(name or text)  # refuses it, and lists what there is
    return name, domain[name].level(level).name


def _grouping(declared: Domain, by: Sequence[tuple[str, str | None]]) -> Domain:
    """The cells of a grouping, named as the headings of its table."""
    if not by:
        return Domain.of(person=["everyone"])
    repeated = first_repeated([name for name, _ in by])
    if repeated is not None:
        raise ReleaseError(f"{repeated!r} is grouped by twice; a level tells less than its values")
    names, attributes = [], []
    for name, level in by:
        taken = level is not None and (level in declared or level in names)
        names.append(name if level is None else f"{name}.{level}" if taken else level)
        attribute = declared[name]
        attributes.append(attribute if level is None else Attribute(attribute.level(level).labels))
    return Domain(tuple(names), tuple(attributes))


def _predicate(domain: Domain, conjuncts: Sequence[Conjunct], place: str) -> Predicate:
    """A condition that the kernel knows, from what each column may be."""
    parts = [_in_column(domain, conjunct, place) for conjunct in conjuncts]
    return reduce(and_, parts)


def _in_column(domain: Domain, conjunct: Conjunct, place: str) -> Predicate:
    name = conjunct.names[0]
    if name not in domain or len(conjunct.names) > 1:
        raise ReleaseError(
            f"{place}: it looks at several columns at once; write conditions on single columns, "
            "joined by AND"
        )
    attribute = domain[name]
    values: list[Any] = []
    missing = False
    for i in np.flatnonzero(conjunct.mask):
        value = attribute.values[int(i)]
        if value is None:
            missing = True
        elif value is OTHER:
            raise ReleaseError(f"{place}: the cell {attribute.label(int(i))} cannot be asked for")
        else:
            values.append(attribute.label(int(i)) if attribute.edges is not None else value)
    inside: Predicate = In(name, tuple(values))
    return Or.of(inside, IsNull(name)) if missing else inside
