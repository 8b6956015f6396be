"""The workload: what is asked, as a domain and a weighted union of products."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from psephos.domain.domain import Domain
from psephos.domain.predicate import Predicate
from psephos.errors import ShapeError, UnsupportedError, WorkloadError
from psephos.inverse.axis import is_zero
from psephos.inverse.form import Form
from psephos.kernel.query import Query
from psephos.matrix import Kron, Matrix, Scaled, Stack, Sum, total
from psephos.values import Array, Value
from psephos.workload.product import Product, checked_weight, factor_matrix, regroup, rounded_weight
from psephos.workload.queries import QuerySet, predicates
from psephos.workload.statistics import closure_traces, subset_traces

if TYPE_CHECKING:
    from psephos.workload.reduction import Reduction


@dataclass(frozen=True, eq=False, repr=False)
class Workload(Value):
    """A domain and a weighted union of products, with a label for every query.

    >>> from psephos.workload.queries import identity, prefix
    >>> from psephos.workload.product import product
    >>> domain = Domain.of(sex=["F", "M"], age=range(3))
    >>> W = Workload(domain, [product(sex=identity(), age=prefix(), weight=2.0), product()])
    >>> W
    Workload(7 queries in 2 products over 6 cells)
    >>> W.label(1)
    ('sex × age', {'sex': 'F', 'age': 'up to 1'})
    """

    domain: Domain
    products: Sequence[Product]

    def __post_init__(self) -> None:
        if not isinstance(self.domain, Domain):
            raise WorkloadError(
                f"a workload needs a Domain, got {type(self.domain).__name__}; "
                "write Domain.of({...})"
            )
        given = self.products
        if isinstance(given, QuerySet) or not isinstance(given, Product | Iterable):
            raise WorkloadError(
                f"a workload takes a list of products, got {given!r}; write [product(age=prefix())]"
            )
        products = (given,) if isinstance(given, Product) else tuple(given)
        if not products:
            raise WorkloadError("a workload needs at least one product, got none")
        checked: set[tuple[str, QuerySet]] = set()
        for asked in products:
            if not isinstance(asked, Product):
                raise WorkloadError(
                    f"a workload is made of products, got {asked!r}; write product(age=prefix())"
                )
            for item in asked.items:
                if item not in checked:
                    factor_matrix(item[1], self.domain, item[0])
                    checked.add(item)
        object.__setattr__(self, "products", products)

    @classmethod
    def from_sql(
        cls,
        domain: Domain,
        statements: str | Sequence[str],
        *,
        dialect: str | None = None,
        merge_limit: int = 10_000,
    ) -> Workload:
        """Counting queries written in SQL: SELECT … COUNT(*) … WHERE … GROUP BY ….

        Args:
            domain: the declared values that conditions are decided by
            statements: one text or several; `;` separates statements
            dialect: any that sqlglot reads, by its name there; DuckDB's when left out
            merge_limit: the most combinations of values that one condition may span
        """
        from psephos.workload.sql import compile_sql

        return cls(*compile_sql(domain, statements, dialect=dialect, merge_limit=merge_limit))

    @classmethod
    def from_predicates(cls, domain: Domain, conditions: Iterable[Predicate]) -> Workload:
        """One count for each condition, a conjunction of conditions on single attributes."""
        if isinstance(conditions, Predicate | str) or not isinstance(conditions, Iterable):
            raise WorkloadError(
                f"from_predicates takes a list of conditions, got {conditions!r}; "
                "write [col('age') < 18, ...]"
            )
        return cls(domain, tuple(_conjunction(condition) for condition in conditions))

    # ---- as a matrix ---------------------------------------------------------------------------

    @cached_property
    def matrix(self) -> Matrix:
        """The union of weighted Kronecker products, rows in the order of the labels.

        This is ImpVec (McKenna et al. 2018, Algorithm 1): predicates become vectors on single
        attributes only.
        """
        parts = tuple(self._weighted(i) for i in range(len(self.products)))
        return parts[0] if len(parts) == 1 else Stack(parts)

    def _weighted(self, i: int) -> Matrix:
        kron = self.kron(i)
        weight = self.products[i].weight
        return kron if weight == 1 else Scaled(weight, kron)

    def kron(self, i: int) -> Kron:
        """The Kronecker product of one product, without its weight."""
        return Kron(self.factors(i))

    def factors(self, i: int) -> tuple[Matrix, ...]:
        """The queries of one product on every attribute, the total where none are asked."""
        made = list(self._totals)
        for name, queries in self.products[i].items:
            made[self._axes[name]] = self._factor(name, queries)
        return tuple(made)

    @cached_property
    def _axes(self) -> dict[str, int]:
        return {name: axis for axis, name in enumerate(self.domain.names)}

    @cached_property
    def _totals(self) -> tuple[Matrix, ...]:
        return tuple(total(n) for n in self.domain.shape)

    @cached_property
    def _factors(self) -> dict[tuple[str, QuerySet], Matrix]:
        return {}

    def _factor(self, name: str, queries: QuerySet) -> Matrix:
        """Equal factors are one object, however many products share them."""
        made = self._factors.get((name, queries))
        if made is None:
            made = self._factors[name, queries] = factor_matrix(queries, self.domain, name)
        return made

    @property
    def shape(self) -> tuple[int, int]:
        """Queries and cells."""
        return sum(self.query_counts), self.domain.size

    @cached_property
    def query_counts(self) -> tuple[int, ...]:
        """The number of queries of each product."""
        counts = []
        for asked in self.products:
            count = 1
            for name, queries in asked.items:
                count *= self._factor(name, queries).shape[0]
            counts.append(count)
        return tuple(counts)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays that the matrix holds."""
        return sum(factor.nbytes for factor in {id(f): f for f in self._all_factors()}.values())

    def _all_factors(self) -> Iterator[Matrix]:
        for asked in self.products:
            for name, queries in asked.items:
                yield self._factor(name, queries)

    def gram(self) -> Matrix:
        """WᵀW as a sum of Kronecker products."""
        parts = tuple(
            Scaled(asked.weight**2, self.kron(i).gram()) for i, asked in enumerate(self.products)
        )
        return parts[0] if len(parts) == 1 else Sum(parts)

    def factor_grams(self, i: int) -> tuple[Matrix, ...]:
        """The Gram of each attribute's factor in product i, in the domain's order."""
        grams = self.kron(i).gram()
        return grams.factors if isinstance(grams, Kron) else (grams,)

    def subset_traces(self) -> Array:
        """τ_S for every set S of attributes, numbered by Σ 2^i: see `statistics`."""
        return subset_traces(self)

    def closure_traces(self) -> dict[tuple[int, ...], float]:
        """τ_S where it is not zero, for domains of many attributes: see `statistics`."""
        return closure_traces(self)

    # ---- answers and their names ---------------------------------------------------------------

    def answer(self, x: Array) -> Array:
        """The unweighted answers of all queries on a vector of cell counts."""
        x = self.domain.arrange(x)
        if x.dtype.kind not in "buifO":
            raise ShapeError(f"cell counts are numbers, got an array of {x.dtype}")
        return np.concatenate([self.kron(i) @ x for i in range(len(self.products))])

    def label(self, i: int) -> tuple[str, dict[str, str]]:
        """The name of a query: its product, and a label for each attribute asked about."""
        if not isinstance(i, int | np.integer) or not 0 <= i < self.shape[0]:
            raise ShapeError(f"query {i!r} is not a number in 0..{self.shape[0] - 1}")
        ends = list(accumulate(self.query_counts))
        p = bisect_right(ends, i)
        asked, i = self.products[p], i - (ends[p] - self.query_counts[p])
        words: list[tuple[str, str]] = []
        for name, queries in reversed(self._ordered(asked)):
            i, own = divmod(i, self._factor(name, queries).shape[0])
            words.append((name, queries.label(self.domain[name], own)))
        return asked.title, dict(reversed(words))

    def labels(self, i: int) -> dict[str, list[str]]:
        """The labels of all queries of product i: one list for each attribute asked about."""
        items = self._ordered(self.products[i])
        lists = [queries.labels(self.domain[name]) for name, queries in items]
        grids = [grid.ravel() for grid in np.indices([len(words) for words in lists])]
        return {
            name: [words[k] for k in grid]
            for (name, _), words, grid in zip(items, lists, grids, strict=True)
        }

    def _ordered(self, asked: Product) -> list[tuple[str, QuerySet]]:
        return sorted(asked.items, key=lambda item: self.domain.axis(item[0]))

    @property
    def query(self) -> Query:
        """The workload as it stands, to be measured: a block per product, weighted as asked."""
        blocks = [(self.kron(i), rounded_weight(p.weight)) for i, p in enumerate(self.products)]
        return Query.of(blocks)

    # ---- other workloads -----------------------------------------------------------------------

    def compact(self) -> Workload:
        """The same weighted queries in fewer products, in another order: see `compact`."""
        from psephos.workload.reduction import compact

        return compact(self)

    def reduce(self) -> Reduction:
        """Values that no query tells apart, merged attribute by attribute: see `reduce`."""
        from psephos.workload.reduction import reduce_attributes

        return reduce_attributes(self)

    def reduce_cells(self) -> Reduction:
        """Cells that no query tells apart, merged over the whole domain: see `reduce`."""
        from psephos.workload.reduction import reduce_cells

        return reduce_cells(self)

    def over(self, merged: Domain) -> Workload:
        """The same queries over the domain with some attributes merged."""
        return Workload(merged, tuple(regroup(p, self.domain, merged) for p in self.products))

    def __add__(self, other: Workload) -> Workload:
        if not isinstance(other, Workload):
            raise WorkloadError(f"a workload is joined with a workload, got {other!r}")
        if self.domain != other.domain:
            raise WorkloadError(
                f"only workloads over one domain can be joined, got {self.domain} and "
                f"{other.domain}; bring one over with workload.over(merged_domain)"
            )
        return Workload(self.domain, (*self.products, *other.products))

    def __mul__(self, weight: float) -> Workload:
        scale = checked_weight(weight)
        return Workload(
            self.domain, tuple(replace(p, weight=p.weight * scale) for p in self.products)
        )

    __rmul__ = __mul__

    def __repr__(self) -> str:
        count = len(self.products)
        return (
            f"Workload({self.shape[0]:,} queries in {count:,} product{'s' * (count > 1)} "
            f"over {self.domain.size:,} cells)"
        )

    def _repr_html_(self) -> str:
        most = 40
        rows = "".join(
            f"<tr><td>{escape(asked.title)}</td><td>{escape(', '.join(asked.factors) or 'total')}"
            f"</td><td>{count:,}</td><td>{asked.weight:g}</td></tr>"
            for asked, count in list(zip(self.products, self.query_counts, strict=True))[:most]
        )
        rest = len(self.products) - most
        more = f"<tr><td colspan=4>… {rest:,} more</td></tr>" if rest > 0 else ""
        return (
            f"<table><caption>{escape(repr(self))}</caption><thead><tr><th>table</th>"
            "<th>attributes</th><th>queries</th><th>weight</th></tr></thead>"
            f"<tbody>{rows}{more}</tbody></table>"
        )


def _conjunction(condition: Predicate) -> Product:
    if not isinstance(condition, Predicate):
        raise WorkloadError(
            f"{condition!r} is not a condition; write col('age') < 18, text is not evaluated"
        )
    by_column: dict[str, Predicate] = {}
    for part in condition.conjuncts():
        if len(part.columns) != 1:
            raise WorkloadError(
                f"{part!r} spans {', '.join(sorted(part.columns))}; write each count as conditions "
                "on single attributes joined by &, or as SQL, which merges attributes where it must"
            )
        (column,) = part.columns
        by_column[column] = by_column[column] & part if column in by_column else part
    return Product(
        tuple((column, predicates(part)) for column, part in by_column.items()),
        name=repr(condition),
    )


def check_domain(workload: Workload, domain: Domain) -> None:
    """Refuse a workload over another domain."""
    if not isinstance(workload, Workload):
        raise WorkloadError(f"a workload is needed, got {type(workload).__name__}")
    if workload.domain != domain:
        raise WorkloadError(
            f"the workload is over {workload.domain}, this is over {domain}; bring it over with "
            "workload.over(merged_domain)"
        )


def check_covered(form: Form, workload: Workload) -> None:
    """Refuse queries that the measured blocks do not determine, by name."""
    for i, asked in enumerate(workload.products):
        factors = workload.factors(i)
        if not form.covers(factors) and not any(is_zero(f) for f in factors):
            raise UnsupportedError(
                f"table {asked.title!r} is not determined by what is measured; choose a strategy "
                "for a workload that holds it"
            )
