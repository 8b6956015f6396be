"""The Census workloads SF1 and SF1+, the running example of McKenna et al. 2018.

The person tables of the 2010 Summary File 1 over Person(sex, hispanic, race, relationship, age):
4,151 counts with their repetitions. SF1+ asks each of them for every state and for the nation,
215,852 counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.workload.product import Product, product
from psephos.workload.queries import QuerySet, identity, identity_total, masks, ranges, total
from psephos.workload.workload import Workload

RACES = ("White", "Black", "American Indian", "Asian", "Pacific Islander", "Other")
AGE_CUTS = (
    *(0, 5, 10, 15, 18, 20, 21, 22, 25, 30, 35, 40, 45, 50, 55),
    *(60, 62, 65, 67, 70, 75, 80, 85, 115),
)


def person(*, state: bool = False) -> Domain:
    """Person(sex 2, hispanic 2, race 64, relationship 17, age 115), with state 51 if `state`."""
    attributes: dict[str, Attribute | int | list[str]] = {
        "sex": ["male", "female"],
        "hispanic": ["not hispanic", "hispanic"],
        "race": Attribute.categories({box: _race(box) for box in range(64)}),
        "relationship": 17,
        "age": Attribute.integers(0, 114),
    }
    if state:
        attributes["state"] = 51
    return Domain.of(attributes)


def sf1() -> Workload:
    """The 33 products of SF1: 4,151 counts over 500,480 cells."""
    return Workload(person(), _tables())


def sf1_plus() -> Workload:
    """SF1 for every state and the nation: 215,852 counts over 25,524,480 cells."""
    tables = (
        replace(table, items=(*table.items, ("state", identity_total()))) for table in _tables()
    )
    return Workload(person(state=True), tuple(tables))


def _race(boxes: int) -> str:
    """The name of a combination of the six check-boxes, coded in binary."""
    return " + ".join(race for i, race in enumerate(RACES) if boxes >> i & 1) or "none"


def _race_sets() -> tuple[QuerySet, QuerySet, QuerySet]:
    boxes = np.arange(64)
    race_counts = np.array([int(b).bit_count() for b in boxes])
    single = np.array([boxes == 1 << i for i in range(6)])
    others = ~single.any(axis=0)
    alone = masks(np.vstack([single, others]), [*(f"{r} alone" for r in RACES), "all others"])
    each = np.eye(64, dtype=bool)[1:]
    by_count = np.array([race_counts == k for k in range(1, 7)])
    labels = [_race(b) for b in range(1, 64)]
    labels += [f"{k} race{'s' * (k > 1)}" for k in range(1, 7)] + ["two or more races"]
    detailed = masks(np.vstack([each, by_count, race_counts >= 2]), labels)
    return alone, detailed, masks(boxes == 1, ["White alone"])


def _tables() -> tuple[Product, ...]:
    r1, r2, white = _race_sets()
    t, i, m = total(), identity(), identity_total()
    a18 = ranges([(18, 114)])
    a1 = ranges([(lo, hi - 1) for lo, hi in pairwise(AGE_CUTS)])
    a3 = ranges([*((age, age) for age in range(100)), (100, 104), (105, 109), (110, 114)])
    h, n = masks([0, 1], ["hispanic"]), masks([1, 0], ["not hispanic"])

    def by_age(table: str, ages: QuerySet, not_hispanic: QuerySet) -> list[Product]:
        """Sex by age for everyone, then for each race, for hispanics, and for races of others."""
        return [
            _table(table)(i, t, t, ages),
            _table(table)(m, t, t, t),
            _table(f"{table}A-G")(i, t, r1, ages),
            _table(f"{table}A-G")(m, t, r1, t),
            _table(f"{table}H")(i, h, t, ages),
            _table(f"{table}H")(m, h, t, t),
            _table(f"{table}I+")(i, n, not_hispanic, ages),
            _table(f"{table}I+")(m, n, not_hispanic, t),
        ]

    return (
        _table("P1")(t, t, t, t),
        _table("P3")(t, t, r1, t),
        _table("P3")(t, t, t, t),
        _table("P4")(t, i, t, t),
        _table("P4")(t, t, t, t),
        _table("P5")(t, i, r1, t),
        _table("P5")(t, m, t, t),
        _table("P8")(t, t, r2, t),
        _table("P8")(t, t, t, t),
        _table("P9")(t, i, t, t),
        _table("P9")(t, n, r2, t),
        _table("P9")(t, t, t, t),
        _table("P10")(t, t, r2, a18),
        _table("P10")(t, t, t, a18),
        _table("P11")(t, i, t, a18),
        _table("P11")(t, n, r2, a18),
        _table("P11")(t, t, t, a18),
        *by_age("P12", a1, white),
        *by_age("PCT12", a3, r1),
    )


def _table(name: str) -> Callable[[QuerySet, QuerySet, QuerySet, QuerySet], Product]:
    """Builds products of one published table: sex × hispanic × race × age."""

    def of(sex: QuerySet, hispanic: QuerySet, race: QuerySet, age: QuerySet) -> Product:
        factors = {"sex": sex, "hispanic": hispanic, "race": race, "age": age}
        counted = {column: queries for column, queries in factors.items() if queries != total()}
        return product(counted, name=name)

    return of
