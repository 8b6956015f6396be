"""Functions that build workloads: marginals, ranges, prefixes, and one with relative weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.errors import WorkloadError
from psephos.matrix import Compose, Diagonal, Matrix
from psephos.values import Array
from psephos.workload.product import Product, checked_weight, product
from psephos.workload.queries import all_range, identity, prefix
from psephos.workload.query_sets import MatrixQueries, QuerySet, SetLabels
from psephos.workload.workload import Workload


def marginals(
    domain: Domain,
    *,
    k: int | None = None,
    up_to: int | None = None,
    of: Iterable[Sequence[str]] | None = None,
    half_above: bool = False,
    above_with: str | None = None,
    weight: float | Mapping[tuple[str, ...], float] = 1.0,
) -> Workload:
    """Marginal tables: all of k attributes, all of at most `up_to`, or those listed in `of`.

    Args:
        domain: of the table
        k: all marginals of k attributes, Q_k of Yaroslavtsev et al. (2013)
        up_to: all of at most so many, the 0-way total included
        of: those listed
        half_above: with k, every second of the marginals of k + 1 attributes too: Q_k*
        above_with: with k, also those of k + 1 attributes that have this attribute: Q_k^a
        weight: of every table; or by its attributes, and 1 for those left out. A table of weight
            w counts w² times in the sum of variances: the paper's a

    >>> marginals(Domain.of(a=2, b=3, c=4), k=2)
    Workload(26 queries in 3 products over 24 cells)
    >>> marginals(Domain.of(a=2, b=3, c=4), up_to=1)
    Workload(10 queries in 4 products over 24 cells)
    >>> [p.title for p in marginals(Domain.of(a=2, b=3, c=4), k=1, above_with="b").products]
    ['a', 'b', 'c', 'a × b', 'b × c']
    """
    sets = _sets(domain, k, up_to, of)
    if half_above or above_with is not None:
        sets += _above(domain, k, half_above, above_with)
    return _over_sets(domain, dict.fromkeys(domain.names, identity()), sets, weight)


def range_marginals(
    domain: Domain,
    *,
    k: int | None = None,
    up_to: int | None = None,
    of: Iterable[Sequence[str]] | None = None,
    ordered: Sequence[str] | None = None,
    weight: float = 1.0,
) -> Workload:
    """Marginals with all ranges of the ordered attributes and each value of the others.

    Ordered are the attributes named, or else those with numbers or bins for values.
    """
    sets = _sets(domain, k, up_to, of)
    if ordered is None:
        ordered = [name for name in domain.names if domain[name].is_numeric]
    if isinstance(ordered, str):
        raise WorkloadError(f"ordered= is a list of attributes; write [{ordered!r}]")
    for name in ordered:
        domain.axis(name)
    queries = {name: all_range() if name in ordered else identity() for name in domain.names}
    return _over_sets(domain, queries, sets, weight)


def prefix_product(domain: Domain, names: Sequence[str] | None = None) -> Workload:
    """All combinations of prefixes: a CDF in every named attribute (all, if none is named)."""
    return _one_product(domain, names, prefix())


def range_product(domain: Domain, names: Sequence[str] | None = None) -> Workload:
    """All boxes: every range of every named attribute (all, if none is named)."""
    return _one_product(domain, names, all_range())


def relative(workload: Workload, guess: Mapping[str, Any] | None = None) -> Workload:
    """The workload with every query divided by its expected size, to select for relative error.

    Selection minimises the sum of squared errors, where wide queries dominate. Dividing every
    query by its size turns that into relative error (McKenna et al. 2018, section 9). The result
    is for selection alone; what is published are the answers of the workload itself.

    Without a guess the size of a query is its L1 norm: the number of cells that it counts. A guess
    gives, for some attributes, how the rows are spread over the values (any positive scale); the
    size of a query is then what it counts if attributes are independent. A guess is declared by a
    person and public: never computed from the data.

    >>> from psephos import Domain, Workload, prefix, product
    >>> W = relative(Workload(Domain.of(age=4), [product(age=prefix())]))
    >>> W.matrix.dense()
    array([[1.        , 0.        , 0.        , 0.        ],
           [0.5       , 0.5       , 0.        , 0.        ],
           [0.33333333, 0.33333333, 0.33333333, 0.        ],
           [0.25      , 0.25      , 0.25      , 0.25      ]])
    """
    if not isinstance(workload, Workload):
        raise WorkloadError(f"relative takes a workload, got {type(workload).__name__}")
    shares = _shares(workload, guess)
    products = []
    for original in workload.products:
        items, size = [], 1.0
        for name, attribute in zip(workload.domain.names, workload.domain.attributes, strict=True):
            spread = shares.get(name, np.ones(attribute.size))
            queries = original.factors.get(name)
            if queries is None:
                size *= float(spread.sum())
            else:
                matrix = workload.factor(name, queries)
                items.append((name, _divided(queries, matrix, attribute, spread)))
        products.append(Product(tuple(items), original.weight / size, original.title))
    return Workload(workload.domain, tuple(products))


def _one_product(domain: Domain, names: Sequence[str] | None, queries: QuerySet) -> Workload:
    if isinstance(names, str):
        raise WorkloadError(f"names is a list of attributes; write [{names!r}]")
    attributes = domain.names if names is None else tuple(names)
    return Workload(domain, (product(dict.fromkeys(attributes, queries)),))


def _over_sets(
    domain: Domain,
    queries: dict[str, QuerySet],
    sets: Sequence[tuple[str, ...]],
    weight: float | Mapping[tuple[str, ...], float],
) -> Workload:
    weights = _weights(domain, sets, weight)
    return Workload(
        domain,
        tuple(
            Product(tuple((n, queries[n]) for n in names), each)
            for names, each in zip(sets, weights, strict=True)
        ),
    )


def _weights(
    domain: Domain,
    sets: Sequence[tuple[str, ...]],
    weight: float | Mapping[tuple[str, ...], float],
) -> list[float]:
    """The weight of every table, by its attributes in any order."""
    if not isinstance(weight, Mapping):
        return [checked_weight(weight)] * len(sets)
    by_set = {}
    for names, each in weight.items():
        table = (names,) if isinstance(names, str) else tuple(names)
        by_set[tuple(sorted(table, key=domain.axis))] = checked_weight(each)
    unknown = [names for names in by_set if names not in set(sets)]
    if unknown:
        raise WorkloadError(f"a weight is given for {unknown[0]}, which is no table of these")
    return [by_set.get(names, 1.0) for names in sets]


def _above(domain: Domain, k: int | None, half: bool, name: str | None) -> list[tuple[str, ...]]:
    """Marginals of k + 1 attributes: every second one, or those with one attribute."""
    if k is None or (half and name is not None):
        raise WorkloadError("half_above=True or above_with='sex' goes with k=..., one of them")
    larger = list(combinations(domain.names, k + 1))
    if name is None:
        return larger[::2]
    domain.axis(name)
    return [names for names in larger if name in names]


def _sets(
    domain: Domain, k: int | None, up_to: int | None, of: Iterable[Sequence[str]] | None
) -> list[tuple[str, ...]]:
    if not isinstance(domain, Domain):
        raise WorkloadError(
            f"a Domain is needed, got {type(domain).__name__}; write Domain.of({{...}})"
        )
    if sum(choice is not None for choice in (k, up_to, of)) != 1:
        raise WorkloadError("say which marginals: k=2, up_to=3, or of=[('sex', 'age'), ...]")
    if of is not None:
        if isinstance(of, str):
            raise WorkloadError(f"of= takes a list of marginals; write of=[({of!r},)]")
        tables = [(names,) if isinstance(names, str) else tuple(names) for names in of]
        for names in tables:
            if len(set(names)) < len(names):
                raise WorkloadError(f"the marginal {names} names an attribute twice")
        return [tuple(sorted(names, key=domain.axis)) for names in tables]
    largest = k if k is not None else up_to
    d = len(domain.names)
    if (
        isinstance(largest, bool)
        or not isinstance(largest, int | np.integer)
        or not 0 <= largest <= d
    ):
        raise WorkloadError(
            f"marginals of {largest!r} attributes; the domain has {d}: take 0 to {d}"
        )
    sizes = [largest] if k is not None else range(largest + 1)
    return [names for size in sizes for names in combinations(domain.names, size)]


def _divided(queries: QuerySet, matrix: Matrix, attribute: Attribute, spread: Array) -> QuerySet:
    """The queries, each divided by what it counts if rows are spread like that."""
    sizes = matrix.abs().matvec(spread.astype(float))
    positive = sizes > 0
    weights = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=positive)
    if positive.all() and np.ptp(sizes) == 0:
        rows: Matrix = matrix if weights[0] == 1 else matrix * float(weights[0])
    else:
        rows = Compose((Diagonal(weights), matrix))
    return MatrixQueries(rows, SetLabels(queries, attribute))


def _shares(workload: Workload, guess: Mapping[str, Any] | None) -> dict[str, Array]:
    if not isinstance(guess, Mapping | None):
        raise WorkloadError(f"a guess is a dict of attribute: numbers, got {type(guess).__name__}")
    shares = {}
    for name, numbers in (guess or {}).items():
        size = workload.domain[name].size
        try:
            spread = np.asarray(numbers, dtype=float)
        except (TypeError, ValueError):
            spread = np.empty(0)
        if spread.shape != (size,) or not np.isfinite(spread).all() or (spread <= 0).any():
            raise WorkloadError(
                f"the guess for {name!r} must be {size} positive numbers, one for each value"
            )
        shares[name] = spread / spread.mean()
    return shares
