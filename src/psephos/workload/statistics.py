"""Statistics of numeric attributes: a number for every group, which follows from linear answers.

A sum is a linear query, priced and targeted like a count. A mean, a variance, a share or a quantile
is not, but follows from counts and sums of the same groups:

    mean       c + L/N            with L the sum of x - c
    variance   Q/N - (L/N)²       with Q the sum of (x - c)²; over all rows, not all but one
    share      n/N                with N the total of a row, a column or everything
    quantile   the least value v with F(v) ≥ pN, F the rows up to v

The linear tables behind a statistic join the workload; c is in the middle of the declared numbers,
so that one row moves every table about as much as a count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import DomainError, WorkloadError, name_list
from psephos.values import Array, Value, frozen
from psephos.workload.cell_numbers import CellNumbers, numbers_of
from psephos.workload.product import Product, checked_weight, factor_matrix, regroup
from psephos.workload.queries import identity, level, masks, query_set, stacked
from psephos.workload.query_sets import (
    IdentityQueries,
    JointQueries,
    PrefixQueries,
    QuerySet,
    SumQueries,
    TotalQueries,
)

StatisticKind = Literal["count", "sum", "mean", "variance", "stddev", "quantiles", "share"]
LINEAR_KINDS = ("count", "sum")
"""Statistics that are linear queries themselves, with exact standard errors."""
MOST_MASK_ENTRIES = 20_000_000
"""The most entries of the tables behind quantiles, where groups and numbers share an attribute."""


@dataclass(frozen=True, eq=False, repr=False)
class Statistic(Value):
    """A number for every group, and the linear tables that it follows from."""

    kind: StatisticKind
    of: str
    """The attribute whose numbers are looked at; empty for counts and shares."""
    groups: Product
    """The groups, as counts of their rows; it says what every number is about."""
    products: tuple[Product, ...]
    """The linear tables behind, in the order that `places` has."""
    axis: str = ""
    """The attribute, maybe merged, that holds the numbers."""
    numbers: CellNumbers | None = None
    centre: float = 0.0
    levels: tuple[float, ...] = ()
    """Of quantiles: the shares of rows, between 0 and 1."""
    within: tuple[str, ...] = ()
    """Of shares: the attributes that the denominator sums over; all of them for the total."""
    scale: float = 1.0
    """What a whole is called: 100 for percent."""
    unit: str = ""

    @property
    def linear(self) -> bool:
        """Is it a linear query, as counts and sums are?"""
        return self.kind in LINEAR_KINDS

    @property
    def words(self) -> tuple[str, ...]:
        """What it is called; quantiles have a name each."""
        if self.kind == "quantiles":
            return tuple(
                f"median of {self.of}" if p == 0.5 else f"{p:g} quantile of {self.of}"
                for p in self.levels
            )
        if self.kind == "share":
            return ("percent" if self.scale == 100 else "share",)
        if self.kind == "count":
            return ("count",)
        name = "standard deviation" if self.kind == "stddev" else self.kind
        return (f"{name} of {self.of}",)

    @property
    def unit_words(self) -> str:
        """What its numbers are in."""
        if self.kind in ("count", "share"):
            return {"count": "rows", "share": "%" if self.scale == 100 else ""}[self.kind]
        name = self.unit or self.of
        return f"{name}²" if self.kind == "variance" else name

    @property
    def range(self) -> tuple[float, float]:
        """Where its numbers lie whatever the data are; sums and counts know no end."""
        if self.kind == "share":
            return 0.0, self.scale
        if self.numbers is None or self.linear:
            return -math.inf, math.inf
        low, high = self.numbers.low, self.numbers.high
        if self.kind == "quantiles" and self.numbers.edges is not None:
            return float(self.numbers.edges[0]), float(self.numbers.edges[-1])
        spread = (high - low) / 2
        ends = {"variance": (0.0, spread**2), "stddev": (0.0, spread)}
        return ends.get(self.kind, (low, high))

    def size(self, domain: Domain) -> int:
        """How many numbers it has."""
        return math.prod(self._rows(domain, self.groups)) * max(1, len(self.levels))

    def places(self, domain: Domain) -> tuple[Array, ...]:
        """Where its ingredients lie among the answers of `products`: an array for each.

        Every array has an entry for each group; that of quantiles has a row of all values.
        """
        rows = self._rows(domain, self.groups)
        count = math.prod(rows)
        if self.kind == "share":
            parts = _part_rows(domain, self.groups)
            inner = [1 if name in self.within else size for name, size in parts]
            whole = np.arange(math.prod(inner)).reshape(inner)
            spread = np.broadcast_to(whole, [size for _, size in parts])
            return np.arange(count), count + spread.reshape(-1)
        if self.kind == "quantiles":
            axis = domain.axis(self.axis)
            along = self._rows(domain, self.products[0])[axis] // rows[axis]
            before, after = math.prod(rows[:axis]), math.prod(rows[axis + 1 :])
            cube = np.arange(count * along).reshape(before, rows[axis], along, after)
            return (np.moveaxis(cube, 2, 3).reshape(count, along)[:, : self.known_values],)
        return tuple(i * count + np.arange(count) for i in range(len(self.products)))

    @property
    def known_values(self) -> int:
        """The different numbers that a row may have."""
        return 0 if self.numbers is None else int(self.numbers.known.sum())

    @staticmethod
    def _rows(domain: Domain, product: Product) -> list[int]:
        # One by one: products of merged attributes are products themselves.
        names = domain.names
        return [factor_matrix(product.factor(n), domain, n).shape[0] for n in names]

    def labels(self, domain: Domain) -> dict[str, list[str]]:
        """The labels of its numbers on every attribute that groups go by."""
        items = sorted(self.groups.items, key=lambda item: domain.axis(item[0]))
        lists = [queries.labels(domain[name]) for name, queries in items]
        grids = [grid.ravel() for grid in np.indices([len(words) for words in lists])]
        times = max(1, len(self.levels))
        triples = zip(items, lists, grids, strict=True)
        return {n: [words[k] for k in grid.repeat(times)] for (n, _), words, grid in triples}

    def names(self, domain: Domain) -> list[str]:
        """What each of its numbers is called."""
        groups = math.prod(self._rows(domain, self.groups))
        return list(self.words) * groups

    def __repr__(self) -> str:
        by = ", ".join(self.groups.factors) or "all rows"
        return f"Statistic({name_list(self.words)} by {by})"


def _part_rows(domain: Domain, product: Product) -> list[tuple[str, int]]:
    """The queries of a product on every attribute, merged ones in parts where they are products."""
    rows: list[tuple[str, int]] = []
    for name in domain.names:
        queries, attribute = product.factor(name), domain[name]
        sets = None
        if isinstance(queries, JointQueries):
            sets = queries.parts
        elif attribute.parts and isinstance(queries, IdentityQueries | TotalQueries):
            sets = (queries,) * len(attribute.parts)
        if sets is None:
            rows.append((name, factor_matrix(queries, domain, name).shape[0]))
        else:
            pairs = zip(attribute.parts, sets, strict=True)
            rows += [(part, each.matrix(inner).shape[0]) for (part, inner), each in pairs]
    return rows


def axis_of(domain: Domain, merged: Domain, of: str) -> tuple[str, CellNumbers, CellNumbers]:
    """The attribute of a merged domain that holds another, that one's numbers, and all cells'."""
    try:
        numbers = numbers_of(domain[of])
    except DomainError as error:
        raise WorkloadError(f"attribute {of!r}: {error}") from None
    return (*spread_numbers(merged, of, numbers), numbers)


def spread_numbers(merged: Domain, of: str, numbers: CellNumbers) -> tuple[str, CellNumbers]:
    """The attribute of a merged domain that holds another, and the numbers of its cells."""
    if of in merged.names:
        return of, numbers
    axis = next(n for n in merged.names if any(part == of for part, _ in merged[n].parts))
    names = [part for part, _ in merged[axis].parts]
    shape = [part.size for _, part in merged[axis].parts]
    inner = [size if name == of else 1 for name, size in zip(names, shape, strict=True)]

    def cells(values: Array) -> Array:
        return frozen(np.broadcast_to(values.reshape(inner), shape).reshape(-1))

    return axis, CellNumbers(cells(numbers.values), cells(numbers.known))


def build_statistic(
    kind: StatisticKind,
    domain: Domain,
    groups: Product,
    *,
    of: str = "",
    axis: str = "",
    numbers: CellNumbers | None = None,
    spread: CellNumbers | None = None,
    levels: Sequence[float] = (),
    within: Sequence[str] = (),
    whole: Product | None = None,
    scale: float = 1.0,
    weight: float = 1.0,
    unit: str = "",
) -> Statistic:
    """The statistic of groups over a domain, with the linear tables behind it.

    Args:
        kind: of the statistic
        domain: of the groups, some attributes merged perhaps
        groups: counts of the groups' rows
        of: the attribute whose numbers are looked at
        axis: the attribute of the domain that holds them, if it was merged
        numbers: of the attribute's cells, if they are not those of the domain
        spread: the same for every cell of the axis, if it was merged
        levels: of quantiles
        within: of shares, the attributes that the denominator sums over
        whole: the denominators of shares
        scale: what a whole is called
        weight: of its tables
        unit: what the attribute's numbers are in
    """
    if kind == "count":
        return Statistic(kind, "", groups, (replace(groups, weight=weight),))
    if kind == "share":
        if whole is None:
            whole = Product(tuple((n, q) for n, q in groups.items if n not in within))
        whole = replace(whole, weight=weight, name=f"{groups.title}: whole")
        part = replace(groups, weight=weight)
        return Statistic(kind, "", groups, (part, whole), within=tuple(within), scale=scale)
    axis = axis or of
    try:
        numbers = numbers or numbers_of(domain[of])
    except DomainError as error:
        raise WorkloadError(f"attribute {of!r}: {error}") from None
    cells = spread or numbers
    tables = _Tables(domain, groups, axis, cells, weight)
    base = Statistic(kind, of, groups, (), axis, numbers, unit=unit)
    if kind == "sum":
        return replace(base, products=(tables.weighted(cells.values, "sum"),))
    if kind == "quantiles":
        if not numbers.increasing:
            raise WorkloadError(
                f"attribute {of!r}: its values are not in increasing order, so nothing lies "
                "below a quantile; declare them in order"
            )
        return replace(
            base, products=(tables.prefixes(numbers, len(levels)),), levels=tuple(levels)
        )
    if numbers.low == numbers.high:
        raise WorkloadError(f"attribute {of!r}: all its numbers are {numbers.low:g}")
    centre = (numbers.low + numbers.high) / 2
    if numbers.values.dtype.kind == "i":
        centre = math.floor(centre)
    apart = np.where(cells.known, cells.values - centre, 0)
    products = [tables.weighted(cells.known.astype(np.int8), "rows"), tables.weighted(apart, "sum")]
    if kind in ("variance", "stddev"):
        products.append(tables.weighted(apart**2, "squares"))
    return replace(base, products=tuple(products), centre=float(centre))


@dataclass(frozen=True, eq=False)
class _Tables:
    """The groups of a statistic, with other numbers than ones on the attribute of its numbers."""

    domain: Domain
    groups: Product
    axis: str
    cells: CellNumbers
    weight: float

    @property
    def group_rows(self) -> Array | None:
        """Which cells of the axis each group holds; None for all cells in one group."""
        queries = self.groups.factors.get(self.axis)
        if queries is None or isinstance(queries, TotalQueries):
            return None
        return factor_matrix(queries, self.domain, self.axis).dense()

    def weighted(self, numbers: Array, name: str) -> Product:
        """Sums of these numbers over every group."""
        rows = self.group_rows
        whole = _in_whole_numbers(numbers)
        size = float(np.abs(numbers).max())
        if size == 0:
            raise WorkloadError(f"attribute {self.axis!r}: all its numbers are 0")
        if rows is None:
            queries: QuerySet = SumQueries(frozen(whole))
            if whole.dtype.kind == "i" and (whole == 1).all():
                queries = TotalQueries()
        else:
            queries = masks(_in_whole_numbers(rows * numbers))
        return self._product(queries, name, self.weight / size)

    def prefixes(self, numbers: CellNumbers, count: int) -> Product:
        """The rows of every group up to each value, which weigh as much as so many quantiles.

        Else a median of a long attribute would take the budget of all other tables.
        """
        rows, values = self.group_rows, numbers.values[numbers.known]
        weight = self.weight * min(1.0, math.sqrt(count / values.size))
        first = self.cells.known[: values.size]
        if rows is None and self.cells.known.size == numbers.known.size and first.all():
            return self._product(PrefixQueries(), "up to", weight)  # unknown cells come last
        if rows is None:
            rows = np.ones((1, self.cells.known.size))
        if rows.size * values.size > MOST_MASK_ENTRIES:
            raise WorkloadError(
                f"attribute {self.axis!r}: quantiles within groups of the same attribute take "
                f"{rows.size * values.size:,} numbers, over the limit of {MOST_MASK_ENTRIES:,}"
            )
        below = (self.cells.values[None] <= values[:, None]) & self.cells.known
        queries = masks((rows[:, None] * below[None]).reshape(-1, below.shape[1]))
        return self._product(queries, "up to", weight)

    def _product(self, queries: QuerySet, name: str, weight: float) -> Product:
        items = [(n, q) for n, q in self.groups.items if n != self.axis]
        if not isinstance(queries, TotalQueries):
            items.append((self.axis, queries))
        return Product(tuple(items), weight, f"{self.groups.title}: {name}")


def _in_whole_numbers(numbers: Array) -> Array:
    """The numbers as integers, if they are whole."""
    whole = numbers.dtype.kind != "f" or bool((numbers == np.rint(numbers)).all())
    return numbers.astype(np.int64) if whole else numbers


# ---- what people write -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class StatisticQuestion(Value):
    """A statistic that is asked for, before its domain is known."""

    kind: StatisticKind
    of: str
    by: tuple[str | tuple[str, QuerySet], ...] = ()
    levels: tuple[float, ...] = ()
    within: tuple[str, ...] | None = None
    weight: float = 1.0
    unit: str = ""

    def statistic(self, domain: Domain, merged: Domain | None = None) -> Statistic:
        """The statistic over a domain, or over it with attributes merged."""
        target = domain if merged is None else merged
        items = [grouped_by(domain, each) if isinstance(each, str) else each for each in self.by]
        groups = Product(tuple(items))
        groups.matrix(domain)  # refuses what does not fit, by name
        if self.kind == "share":
            names = tuple(groups.factors)
            strange = [name for name in self.within or () if name not in names]
            if strange:
                raise WorkloadError(f"shares are of {', '.join(names)}, and not of {strange[0]!r}")
            within = names if self.within is None else self.within
            whole = Product(tuple((n, q) for n, q in groups.items if n not in within))
            if target != domain:
                groups, whole = (regroup(each, domain, target) for each in (groups, whole))
            return build_statistic(
                "share",
                target,
                groups,
                within=within,
                whole=whole,
                scale=100.0,
                weight=self.weight,
            )
        domain.axis(self.of)
        axis, spread, numbers = axis_of(domain, target, self.of)
        return build_statistic(
            self.kind,
            target,
            groups if target == domain else regroup(groups, domain, target),
            of=self.of,
            axis=axis,
            numbers=numbers,
            spread=spread,
            levels=self.levels,
            weight=self.weight,
            unit=self.unit,
        )

    def __repr__(self) -> str:
        by = ", ".join(each if isinstance(each, str) else each[0] for each in self.by)
        return f"StatisticQuestion({self.kind} of {self.of or 'rows'} by {by or 'all rows'})"


def mean(of: str, *, by: Any = (), weight: float = 1.0) -> StatisticQuestion:
    """The mean of an attribute's numbers in every group.

    Args:
        of: an attribute of integers, numeric values or bins
        by: attributes ("sex", "age.broad" for a level), or a dict of attribute: query set
        weight: twice the weight, about half the error of the counts and sums behind
    """
    return _question("mean", of, by, weight)


def variance(of: str, *, by: Any = (), weight: float = 1.0) -> StatisticQuestion:
    """The variance of an attribute's numbers in every group, over all rows of it."""
    return _question("variance", of, by, weight)


def stddev(of: str, *, by: Any = (), weight: float = 1.0) -> StatisticQuestion:
    """The standard deviation of an attribute's numbers in every group."""
    return _question("stddev", of, by, weight)


def median(of: str, *, by: Any = (), weight: float = 1.0) -> StatisticQuestion:
    """The median of an attribute's numbers in every group."""
    return quantiles(of, [0.5], by=by, weight=weight)


def quantiles(
    of: str, levels: Sequence[float], *, by: Any = (), weight: float = 1.0
) -> StatisticQuestion:
    """Quantiles of an attribute's numbers in every group, at shares of rows between 0 and 1."""
    return replace(_question("quantiles", of, by, weight), levels=checked_levels(levels))


def share(by: Any, *, within: Any = None, weight: float = 1.0) -> StatisticQuestion:
    """The percent of rows in every group.

    Args:
        by: the groups
        within: the attributes that make up a whole: `share(["sex", "age"], within=["age"])` gives
            the ages of each sex in percent; all of them if left out
        weight: twice the weight, about half the error of the counts behind
    """
    question = _question("share", "", by, weight)
    if not question.by:
        raise WorkloadError("share needs groups: write share(['sex'])")
    names = None if within is None else (within,) if isinstance(within, str) else tuple(within)
    return replace(question, within=names)


def checked_levels(levels: Any) -> tuple[float, ...]:
    """Shares of rows, if they lie between 0 and 1."""
    numbers = [levels] if isinstance(levels, int | float) else list(levels)
    real = all(isinstance(p, int | float) and not isinstance(p, bool) for p in numbers)
    if not numbers or not real or not all(0 < p < 1 for p in numbers):
        raise WorkloadError(
            f"quantiles are at shares of rows between 0 and 1, such as [0.25, 0.5, 0.75]; "
            f"got {levels!r}"
        )
    return tuple(float(p) for p in numbers)


def grouped_by(domain: Domain, text: str) -> tuple[str, QuerySet]:
    """`age`, `age.broad` or `age.*` as an attribute and its queries."""
    if text in domain:
        return text, identity()
    name, dot, level_name = text.rpartition(".")
    if not dot or name not in domain:
        domain.axis(name or text)  # refuses it, and lists what there is
    if level_name == "*":
        levels = [level(each.name) for each in reversed(domain[name].levels)]
        return name, stacked(*levels, identity())
    return name, level(domain[name].level(level_name).name)


def _question(kind: StatisticKind, of: str, by: Any, weight: float) -> StatisticQuestion:
    if not isinstance(of, str):
        raise WorkloadError(f"{kind} takes the name of an attribute, got {of!r}")
    items: Iterable[Any]
    if isinstance(by, Mapping):
        items = [(name, query_set(queries)) for name, queries in by.items()]
    else:
        items = (by,) if isinstance(by, str) else by
        strange = [each for each in items if not isinstance(each, str)]
        if strange:
            raise WorkloadError(f"by= lists attributes, or is a dict, got {strange[0]!r}")
    return StatisticQuestion(kind, of, tuple(items), weight=checked_weight(weight))
