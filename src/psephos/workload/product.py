"""A product: all combinations of query sets, one for each of some attributes."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from psephos.domain.declared import first_repeated
from psephos.domain.domain import Domain
from psephos.errors import DomainError, PsephosError, WorkloadError
from psephos.kernel.query import MANTISSA
from psephos.matrix import Kron, Matrix, total
from psephos.values import Value
from psephos.workload.queries import query_set
from psephos.workload.query_sets import (
    IdentityQueries,
    JointQueries,
    PredicateQueries,
    QuerySet,
    StackedQueries,
    SumQueries,
    TotalQueries,
)

LIGHTEST, HEAVIEST = 1e-100, 1e100
"""The ends of the range of weights."""
TOTAL_TITLE = "total"
"""What a product is called that groups by nothing."""


@dataclass(frozen=True, eq=False, repr=False)
class Product(Value):
    """All combinations of query sets, one for each named attribute; the rest is summed over."""

    items: tuple[tuple[str, QuerySet], ...]
    weight: float = 1.0
    name: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", tuple((n, query_set(q)) for n, q in self.items))
        object.__setattr__(self, "weight", checked_weight(self.weight))
        repeated = first_repeated([n for n, _ in self.items])
        if repeated is not None:
            raise WorkloadError(f"attribute {repeated!r} is given twice")
        if not isinstance(self.name, str):
            raise WorkloadError(f"a product's name is text, got {self.name!r}")

    @property
    def factors(self) -> dict[str, QuerySet]:
        """The query set of each attribute that has one."""
        return dict(self.items)

    def factor(self, name: str) -> QuerySet:
        """The query set of an attribute, the total where none was named."""
        for attribute, queries in self.items:
            if attribute == name:
                return queries
        return TotalQueries()

    def matrix(self, domain: Domain) -> Kron:
        """The Kronecker product of the factors' matrices, in the domain's order."""
        factors = self.factors
        return Kron(
            tuple(
                factor_matrix(factors[name], domain, name) if name in factors else total(n)
                for name, n in zip(domain.names, domain.shape, strict=True)
            )
        )

    @property
    def title(self) -> str:
        """The product's name, or else its attributes."""
        return self.name or " × ".join(name for name, _ in self.items) or TOTAL_TITLE

    def __repr__(self) -> str:
        inside = ", ".join(
            f"{name}: {type(q).__name__.removesuffix('Queries')}" for name, q in self.items
        )
        weight = "" if self.weight == 1 else f"; weight {self.weight:g}"
        return f"Product({inside or 'total'}{weight})"


@dataclass(frozen=True)
class ProductLabels:
    """The labels of one product's queries; `counts` has the queries of each of its query sets."""

    product: Product
    domain: Domain
    counts: tuple[int, ...]

    def by_attribute(self, i: int) -> dict[str, str]:
        """The label of query i on each attribute that has a query set, in the domain's order."""
        sets = zip(self.product.items, self.counts, strict=True)
        ordered = sorted(sets, key=lambda pair: self.domain.axis(pair[0][0]))
        labels: list[tuple[str, str]] = []
        for (name, queries), count in reversed(ordered):
            i, row = divmod(i, count)
            labels.append((name, queries.label(self.domain[name], row)))
        return dict(reversed(labels))

    def __call__(self, i: int, /) -> str:
        """The label of query i in one text."""
        labels = self.by_attribute(i)
        return ", ".join(f"{name}: {label}" for name, label in labels.items()) or "total"


def product(
    factors: Mapping[str, QuerySet] | None = None,
    /,
    *,
    weight: float = 1.0,
    name: str = "",
    **more: QuerySet,
) -> Product:
    """All combinations of query sets; attributes left out are summed over.

    >>> from psephos.workload.queries import identity, prefix
    >>> product(sex=identity(), age=prefix(), weight=2.0)
    Product(sex: Identity, age: Prefix; weight 2)
    """
    if factors is not None and not isinstance(factors, Mapping):
        raise WorkloadError(
            f"product takes a dict of attribute: query set, got {type(factors).__name__}"
        )
    if not isinstance(name, str):
        raise WorkloadError(
            f"name= is the table's name, got {name!r}; for an attribute called 'name' or 'weight' "
            "write product({'name': ...})"
        )
    repeated = [attribute for attribute in more if attribute in (factors or {})]
    if repeated:
        raise WorkloadError(f"attribute {repeated[0]!r} is given twice")
    both = {**(factors or {}), **more}
    items = []
    for attribute, queries in both.items():
        try:
            items.append((attribute, query_set(queries)))
        except WorkloadError as error:
            raise WorkloadError(f"attribute {attribute!r}: {error}") from None
    return Product(tuple(items), checked_weight(weight), name)


def checked_weight(weight: Any) -> float:
    """The weight as a float, if it is positive and its square is far from over- and underflow."""
    number = isinstance(weight, int | float | np.number) and not isinstance(weight, bool)
    if isinstance(weight, QuerySet):
        raise WorkloadError("for an attribute called 'weight' write product({'weight': ...})")
    if not number or not 0 < weight <= sys.float_info.max:
        raise WorkloadError(
            f"a weight must be a positive finite number, got {weight!r}; "
            "to ask for nothing, leave the product out"
        )
    if not LIGHTEST <= weight <= HEAVIEST:
        raise WorkloadError(
            f"a weight lies between {LIGHTEST:g} and {HEAVIEST:g}, got {weight!r}; only the ratios "
            "of weights matter to a strategy, so divide all by the largest"
        )
    return float(weight)


def factor_matrix(queries: QuerySet, domain: Domain, name: str) -> Matrix:
    """The matrix of a query set on an attribute; errors name the attribute."""
    if isinstance(queries, PredicateQueries) and name in domain.names:
        others = {column for c in queries.conditions for column in c.columns} - {name}
        if others:
            raise WorkloadError(
                f"attribute {name!r} is asked for conditions on {', '.join(sorted(others))}"
            )
    try:
        return queries.matrix(domain[name])
    except DomainError as error:
        if name not in domain.names:
            raise
        raise WorkloadError(f"attribute {name!r}: {error}") from None
    except PsephosError as error:
        raise WorkloadError(f"attribute {name!r}: {error}") from None


def bound_sums(original: Product, domain: Domain) -> Product:
    """The product with the numbers of the attributes that it sums.

    Its weight is divided by the largest of them: one row then matters to it as to a count.
    """
    weight = original.weight
    items: list[tuple[str, QuerySet]] = []
    for name, queries in original.items:
        if name in domain.names and isinstance(queries, SumQueries) and queries.numbers is None:
            try:
                bound = queries.bound(domain[name])
            except PsephosError as error:
                raise WorkloadError(f"attribute {name!r}: {error}") from None
            weight /= float(np.abs(bound.matrix(domain[name]).dense()).max())
            items.append((name, bound))
        elif name in domain.names and isinstance(queries, StackedQueries):
            parts = tuple(
                part.bound(domain[name]) if isinstance(part, SumQueries) else part
                for part in queries.parts
            )
            items.append((name, StackedQueries(parts) if parts != queries.parts else queries))
        else:
            items.append((name, queries))
    if all(new is old for (_, new), (_, old) in zip(items, original.items, strict=True)):
        return original
    return replace(original, items=tuple(items), weight=weight)


def regroup(original: Product, domain: Domain, merged: Domain) -> Product:
    """The same queries over a domain in which some attributes were merged.

    Factors that are named by a merged attribute already stay as they are.
    """
    original = bound_sums(original, domain)
    factors = original.factors
    items: list[tuple[str, QuerySet]] = []
    _check_merged(domain, merged)
    for name, attribute in zip(merged.names, merged.attributes, strict=True):
        same = name in domain.names and domain[name] == attribute
        if name in factors and (same or name not in domain.names):
            items.append((name, factors[name]))
        elif not same:
            parts = tuple(factors.get(part, TotalQueries()) for part, _ in attribute.parts)
            if all(isinstance(part, IdentityQueries) for part in parts):
                items.append((name, IdentityQueries()))
            elif not all(isinstance(part, TotalQueries) for part in parts):
                items.append((name, JointQueries(parts)))
    return Product(tuple(items), original.weight, original.name)


def rounded_weight(weight: float) -> Fraction:
    """The nearest weight that the kernel takes: m·2^e with m < 2^20."""
    share, exponent = math.frexp(weight)
    return round(share * MANTISSA) * Fraction(2) ** exponent / MANTISSA


def _check_merged(domain: Domain, merged: Domain) -> None:
    """Refuse a domain that is not the other with attributes merged."""
    if not isinstance(merged, Domain):
        raise WorkloadError(f"over takes a Domain, got {type(merged).__name__}")
    parts: list[tuple[str, object]] = []
    for name, attribute in zip(merged.names, merged.attributes, strict=True):
        same = name in domain.names and domain[name] == attribute
        parts.extend([(name, attribute)] if same else attribute.parts)
    if sorted(n for n, _ in parts) != sorted(domain.names) or any(domain[n] != a for n, a in parts):
        raise WorkloadError(
            f"{merged} is not {domain} with attributes merged; make it with domain.merge([...])"
        )
