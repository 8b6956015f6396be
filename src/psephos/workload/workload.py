"""The workload: a domain and a weighted union of products over it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, combinations
from typing import Any

import numpy as np

from psephos.domain.domain import Domain
from psephos.domain.predicate import Predicate
from psephos.errors import ShapeError, TooLargeError, UnsupportedError, WorkloadError
from psephos.inverse.form import Form, ListedProducts
from psephos.kernel.query import Query
from psephos.matrix import Kron, Matrix, Scaled, Stack, Sum
from psephos.matrix.columns import is_zero
from psephos.matrix.kron import AxisTotals
from psephos.report.html import HtmlTable, notebook_html
from psephos.values import Array, Value
from psephos.workload.product import (
    TOTAL_TITLE,
    Product,
    ProductLabels,
    bound_sums,
    checked_weight,
    factor_matrix,
    regroup,
    rounded_weight,
)
from psephos.workload.queries import QuerySet, is_matrix, predicates
from psephos.workload.query_sets import TotalQueries
from psephos.workload.reduction import merge_cells, merge_products, merge_values

SUBSETS_LIMIT = 1 << 24
"""The most sets of attributes that `subset_traces` lists."""
SHOWN_PRODUCTS = 40
"""Rows of the table that a notebook shows."""
Moments = Sequence[tuple[float, float]]
"""Two numbers for each matrix of a workload: what it asks of constants, and of differences."""


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
        parts = self.products
        refuse_matrix(parts)
        if isinstance(parts, QuerySet) or not isinstance(parts, Product | Iterable):
            raise WorkloadError(
                f"a workload takes a list of products, got {parts!r}; write [product(age=prefix())]"
            )
        products = (parts,) if isinstance(parts, Product) else tuple(parts)
        if not products:
            raise WorkloadError("a workload needs at least one product, got none")
        checked: set[tuple[str, QuerySet]] = set()
        for product in products:
            refuse_matrix(product)
            if not isinstance(product, Product):
                raise WorkloadError(
                    f"a workload is made of products, got {product!r}; write product(age=prefix())"
                )
        products = tuple(bound_sums(product, self.domain) for product in products)
        for product in products:
            for item in product.items:
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

    @classmethod
    def from_matrix(
        cls, domain: Domain, matrix: Any, labels: Sequence[str] | None = None
    ) -> Workload:
        """Queries that are the rows of a matrix, with a column for each cell.

        A psephos Kron, with a factor for each attribute, and a Stack of them stay products. Any
        other matrix over several attributes looks at all of them together: they are merged, and
        `workload.domain` is then what to open the data with.

        >>> W = Workload.from_matrix(Domain.of(age=4), np.tri(4), labels=["0", "1", "2", "all"])
        >>> W, W.label(3)
        (Workload(4 queries in 1 product over 4 cells), ('age', {'age': 'all'}))

        Args:
            domain: its cells are the columns, in row-major order
            matrix: an array, a sparse matrix of scipy, or one of `psephos.matrix`; or a dict of
                such by attribute, whose combinations are asked
            labels: what each row is called
        """
        from psephos.workload.from_matrix import matrix_products

        return cls(*matrix_products(domain, matrix, labels))

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
        """The matrix of product i on every attribute: the total where it has no query set."""
        return self.listed[i]

    def factor_products(self, number: Callable[[Matrix], float]) -> Array:
        """For every product, a number of each of its factors, multiplied.

        That number must not be 0 for a total. Only the attributes that a product names are looked
        at: many products over many attributes are quick.

        >>> from psephos import Domain, marginals
        >>> marginals(Domain.of(a=2, b=3), k=1).factor_products(lambda factor: factor.shape[0])
        array([2., 3.])
        """
        totals = [number(factor) for factor in self.listed.totals.factors]
        numbered = self.listed
        ratios = [
            number(matrix) / totals[axis]
            for matrix, axis in zip(numbered.matrices, numbered.axes, strict=True)
        ]
        return math.prod(totals) * self._multiplied(np.array(ratios, dtype=float))

    def _multiplied(self, numbers: Array) -> Array:
        """For every product, the numbers of its query sets multiplied, in their type."""
        each = np.ones(len(self.products), dtype=numbers.dtype)
        for places, items in self.listed.by_length:
            each[places] = numbers[items].prod(axis=1)
        return each

    def different_factors(self) -> list[list[Matrix]]:
        """On every attribute, the matrices that products have there, each once."""
        numbered = self.listed
        factors: list[list[Matrix]] = [[] for _ in self.domain.names]
        for matrix, axis in zip(numbered.matrices, numbered.axes, strict=True):
            factors[axis].append(matrix)
        axes = np.array([0, *numbered.axes])
        used = np.concatenate(
            [np.zeros(0, int), *(axes[k + 1].ravel() for _, k in numbered.by_length)]
        )
        counts = np.bincount(used, minlength=len(factors))
        for axis, total_there in enumerate(self.listed.totals.factors):
            if counts[axis] < len(self.products):
                factors[axis].append(total_there)
        return factors

    @cached_property
    def listed(self) -> ListedProducts:
        """The factors of all products, each matrix once and by a number."""
        matrices = [self.factor(name, queries) for name, queries in self._items]
        axes = [self._axes[name] for name, _ in self._items]
        return ListedProducts(AxisTotals(self.domain.shape), matrices, axes, self._item_numbers[1])

    @property
    def _items(self) -> list[tuple[str, QuerySet]]:
        """Every query set on an attribute once."""
        return self._item_numbers[0]

    @cached_property
    def _item_numbers(self) -> tuple[list[tuple[str, QuerySet]], list[list[int]]]:
        items: list[tuple[str, QuerySet]] = []
        number_of: dict[tuple[str, QuerySet], int] = {}
        known: dict[tuple[str, int], int] = {}  # products hold the query sets, so ids stay theirs
        rows = []
        for product in self.products:
            row = []
            for item in product.items:
                key = item[0], id(item[1])
                if key not in known:
                    known[key] = number_of.setdefault(item, len(items))
                    if known[key] == len(items):
                        items.append(item)
                row.append(known[key])
            rows.append(row)
        return items, rows

    @cached_property
    def _axes(self) -> dict[str, int]:
        return {name: axis for axis, name in enumerate(self.domain.names)}

    @cached_property
    def _factors(self) -> dict[tuple[str, QuerySet], Matrix]:
        return {}

    def factor(self, name: str, queries: QuerySet) -> Matrix:
        """The matrix of a query set on an attribute, one object however many products share it."""
        factor = self._factors.get((name, queries))
        if factor is None:
            factor = self._factors[name, queries] = factor_matrix(queries, self.domain, name)
        return factor

    @property
    def shape(self) -> tuple[int, int]:
        """Queries and cells."""
        return sum(self.query_counts), self.domain.size

    @cached_property
    def query_counts(self) -> tuple[int, ...]:
        """The number of queries of each product."""
        sizes = [matrix.shape[0] for matrix in self.listed.matrices]
        longest = max(map(len, self.listed.rows))
        wide = max(sizes, default=1) ** longest >= 1 << 62
        return tuple(self._multiplied(np.array(sizes, dtype=object if wide else np.int64)).tolist())

    def _set_sizes(self, product: Product) -> tuple[int, ...]:
        """The number of queries of each query set of a product."""
        return tuple(self.factor(name, queries).shape[0] for name, queries in product.items)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays that the matrix holds."""
        return sum(factor.nbytes for factor in {id(f): f for f in self._all_factors()}.values())

    def _all_factors(self) -> Iterator[Matrix]:
        for product in self.products:
            for name, queries in product.items:
                yield self.factor(name, queries)

    def gram(self) -> Matrix:
        """WᵀW as a sum of Kronecker products."""
        parts = tuple(Scaled(p.weight**2, self.kron(i).gram()) for i, p in enumerate(self.products))
        return parts[0] if len(parts) == 1 else Sum(parts)

    def subset_traces(self, moments: Moments | None = None) -> Array:
        """τ_S for every set S of attributes, numbered by Σ_{i∈S} 2^i.

        All matrices in the span of the marginal Grams share eigenspaces, one for each set S of
        attributes (see psephos.matrix.marginals). The trace of WᵀW on each, with G_i the Gram of
        a product's factor on attribute i, is

            τ_S = Σ_products w² Π_{i∈S} (tr G_i - 1ᵀG_i1/n_i) · Π_{i∉S} 1ᵀG_i1/n_i

        Other pairs of numbers than these two may be given for each query set, as in `moments`.

        >>> from psephos.workload.builders import marginals
        >>> marginals(Domain.of(a=2, b=3), up_to=1).subset_traces()
        array([11.,  3.,  4.,  0.])
        """
        names, shape = self.domain.names, self.domain.shape
        if 1 << len(names) > SUBSETS_LIMIT:
            raise TooLargeError(
                f"{len(names)} attributes have 2^{len(names)} subsets; use closure_traces()",
                1 << len(names),
                SUBSETS_LIMIT,
            )
        traces = np.zeros(1 << len(names))
        moments = self.moments if moments is None else moments
        for product, row in zip(self.products, self.listed.rows, strict=True):
            on_axis = {self.listed.axes[k]: moments[k] for k in row}
            tau = np.array([product.weight**2])
            for axis, n in enumerate(shape):
                constant, varying = on_axis.get(axis, (float(n), 0.0))
                tau = np.concatenate([tau * constant, tau * varying])
            traces += tau
        return traces

    def closure_traces(self, moments: Moments | None = None) -> dict[tuple[int, ...], float]:
        """The τ_S of `subset_traces` that are not zero: S inside the attributes of some product."""
        digits = math.fsum(math.log(n) for n in self.domain.shape)
        if digits > math.log(1e300):
            raise TooLargeError(
                f"a domain of e^{digits:.0f} cells is beyond floating point; "
                "leave out attributes that no query names",
                self.domain.size,
                10**300,
            )
        numbered = self.listed
        moments = self.moments if moments is None else moments
        constant, varying = np.array(moments, dtype=float).reshape(-1, 2).T
        weights = np.array([product.weight**2 for product in self.products])
        axes = np.array(numbered.axes, dtype=np.int64)
        widths = np.array(self.domain.shape, dtype=float)
        traces: dict[tuple[int, ...], float] = {}
        for places, items in numbered.by_length:
            in_order = np.take_along_axis(items, np.argsort(axes[items], axis=1), axis=1)
            on_axes = axes[in_order]
            inside = widths[on_axes].prod(axis=1)
            scale = weights[places] * (float(self.domain.size) / inside)
            for k in range(items.shape[1] + 1):
                for chosen in combinations(range(items.shape[1]), k):
                    shares = scale.copy()
                    for j in range(items.shape[1]):
                        shares *= (varying if j in chosen else constant)[in_order[:, j]]
                    keys = map(tuple, on_axes[:, list(chosen)].tolist())
                    for key, share in zip(keys, shares.tolist(), strict=True):
                        if share:
                            traces[key] = traces.get(key, 0.0) + share
        return traces

    @cached_property
    def moments(self) -> Moments:
        """1ᵀG1/n and tr G - 1ᵀG1/n of each matrix that is `listed`."""
        return [_moments(matrix) for matrix in self.listed.matrices]

    # ---- answers and their names ---------------------------------------------------------------

    def answer(self, x: Array) -> Array:
        """The unweighted answers of all queries on a vector of cell counts."""
        x = self.domain.arrange(x)
        if x.dtype.kind not in "buifO":
            raise ShapeError(f"cell counts are numbers, got an array of {x.dtype}")
        return np.concatenate([self.kron(i) @ x for i in range(len(self.products))])

    def label(self, i: int) -> tuple[str, dict[str, str]]:
        """The title of a query's product, and the query's label on each attribute."""
        if not isinstance(i, int | np.integer) or not 0 <= i < self.shape[0]:
            raise ShapeError(f"query {i!r} is not a number in 0..{self.shape[0] - 1}")
        ends = list(accumulate(self.query_counts))
        p = bisect_right(ends, i)
        first = ends[p] - self.query_counts[p]
        return self.products[p].title, self._product_labels(p).by_attribute(i - first)

    def _product_labels(self, i: int) -> ProductLabels:
        product = self.products[i]
        return ProductLabels(product, self.domain, self._set_sizes(product))

    def labels(self, i: int) -> dict[str, list[str]]:
        """The labels of all queries of product i: a list for each attribute with a query set."""
        items = sorted(self.products[i].items, key=lambda item: self.domain.axis(item[0]))
        lists = [queries.labels(self.domain[name]) for name, queries in items]
        grids = [grid.ravel() for grid in np.indices([len(words) for words in lists])]
        return {
            name: [words[k] for k in grid]
            for (name, _), words, grid in zip(items, lists, grids, strict=True)
        }

    @property
    def query(self) -> Query:
        """The workload itself as what to measure: a block for each product, with its weight."""
        blocks = [(self.kron(i), rounded_weight(p.weight)) for i, p in enumerate(self.products)]
        return Query.of(blocks)

    # ---- other workloads -----------------------------------------------------------------------

    def compact(self) -> Workload:
        """The same weighted queries in fewer products, in another order."""
        return Workload(self.domain, merge_products(self.domain.names, self.products))

    def reduce(self) -> Reduction:
        """Merge values that no query tells apart, attribute by attribute.

        >>> from psephos.workload import product, ranges
        >>> domain = Domain.of(age=range(115), sex=["F", "M"])
        >>> Workload(domain, [product(age=ranges([(0, 17), (18, 64)]))]).reduce()
        Reduction(230 cells to 3)
        """
        domain, products, partition = merge_values(self.domain, self.products, self.factor)
        return Reduction(Workload(domain, products), partition)

    def reduce_cells(self) -> Reduction:
        """Merge cells that no query tells apart, over the whole domain at once."""
        domain, products, partition = merge_cells(
            self.domain, self.products, self.factors, self._product_labels
        )
        return Reduction(Workload(domain, products), partition)

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

    @classmethod
    def require(cls, value: Any, domain: Domain, *, same_cells: bool = False) -> Workload:
        """The value, if it is a workload over this domain; anything else is refused.

        With `same_cells` it may also merge attributes, if that leaves the cells in their order.
        """
        if not isinstance(value, Workload):
            raise WorkloadError(
                f"a workload is needed, got {type(value).__name__}{workload_hint(value)}"
            )
        if value.domain != domain and not (same_cells and value.domain.keeps_cells_of(domain)):
            remedy = (
                "open the data over workload.domain, whose cells are the same"
                if value.domain.origin == domain
                else "bring it over with workload.over(merged_domain)"
            )
            raise WorkloadError(
                f"the workload is over {value.domain}, this is over {domain}; {remedy}"
            )
        return value

    def question(self, i: int) -> str:
        """What product i asks, in words: `the count by region where sex = 'F' and age < 30`."""
        by: list[str] = []
        where: list[str] = []
        for name, queries in self.products[i].items:
            if isinstance(queries, TotalQueries):
                continue
            several = self.factor(name, queries).shape[0] > 1
            (by if several else where).append(
                name if several else queries.label(self.domain[name], 0)
            )
        words = "the count" if by or where else "the count of all rows"
        words += " by " + " × ".join(by) if by else ""
        return words + (" where " + " and ".join(where) if where else "")

    def check_covered(self, form: Form) -> None:
        """Refuse queries that the measured blocks do not determine, by name."""
        for i, product in enumerate(self.products):
            factors = self.factors(i)
            if not form.covers(factors) and not any(is_zero(f) for f in factors):
                title = f"table {product.title!r}" if product.title != TOTAL_TITLE else ""
                raise UnsupportedError(
                    f"{title or self.question(i)} is not determined by what is measured; choose a "
                    "strategy for a workload that holds it"
                )

    def __repr__(self) -> str:
        count = len(self.products)
        return (
            f"Workload({self.shape[0]:,} queries in {count:,} product{'s' * (count > 1)} "
            f"over {self.domain.size_text} cells)"
        )

    def _repr_html_(self) -> str:
        first = list(zip(self.products, self.query_counts, strict=True))[:SHOWN_PRODUCTS]
        rows = [
            [p.title, ", ".join(p.factors) or "total", f"{count:,}", f"{p.weight:g}"]
            for p, count in first
        ]
        heads = ["table", "attributes", "queries", "weight"]
        table = HtmlTable.of(repr(self), heads, rows)
        rest = len(self.products) - SHOWN_PRODUCTS
        return notebook_html(table, f"… {rest:,} more") if rest > 0 else notebook_html(table)


def refuse_matrix(value: Any) -> None:
    """Say how a workload is made of a matrix, where products are wanted."""
    if is_matrix(value):
        raise WorkloadError(
            f"a workload is made of products, got {type(value).__name__} of shape "
            f"{tuple(value.shape)}; for a matrix with a column for each cell write "
            "Workload.from_matrix(domain, matrix)"
        )


def workload_hint(value: Any) -> str:
    """How to make a workload of what was given in its place."""
    if is_matrix(value):
        return "; write Workload.from_matrix(domain, matrix)"
    if isinstance(value, str):
        return "; write Workload.from_sql(domain, sql)"
    if isinstance(value, Domain):
        return "; say what is asked of it, such as marginals(domain, k=2)"
    if isinstance(value, Product | QuerySet | list | tuple):
        return "; write Workload(domain, [product(age=prefix()), ...])"
    return ""


@dataclass(frozen=True)
class Reduction:
    """A workload over fewer cells, and the map P from the old cells to the new."""

    workload: Workload
    partition: Matrix

    @property
    def domain(self) -> Domain:
        return self.workload.domain

    def __repr__(self) -> str:
        new, old = self.partition.shape
        return f"Reduction({old:,} cells to {new:,})"


def _moments(matrix: Matrix) -> tuple[float, float]:
    """1ᵀG1/n and tr G - 1ᵀG1/n of a factor."""
    gram = matrix.gram()
    constant = gram.sum() / matrix.shape[1]
    varying = max(0.0, gram.trace() - constant)
    # A total leaves rounding dust where the exact difference is zero.
    return constant, 0.0 if varying < 1e-12 * gram.trace() else varying


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
