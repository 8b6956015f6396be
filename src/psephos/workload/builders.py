"""Named workloads: marginals, range marginals, and products of prefixes or ranges."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

import numpy as np

from psephos.domain import Domain
from psephos.errors import WorkloadError
from psephos.workload.product import Product, product
from psephos.workload.queries import QuerySet, all_range, identity, prefix
from psephos.workload.workload import Workload


def marginals(
    domain: Domain,
    *,
    k: int | None = None,
    up_to: int | None = None,
    of: Iterable[Sequence[str]] | None = None,
    weight: float = 1.0,
) -> Workload:
    """Marginal tables: all of k attributes, all of at most `up_to`, or those listed in `of`.

    `up_to` includes the 0-way total.

    >>> marginals(Domain.of(a=2, b=3, c=4), k=2)
    Workload(26 queries in 3 products over 24 cells)
    >>> marginals(Domain.of(a=2, b=3, c=4), up_to=1)
    Workload(10 queries in 4 products over 24 cells)
    """
    sets = _sets(domain, k, up_to, of)
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
    """Marginals in which ordered attributes are asked for all their ranges, others for each value.

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


def _one_product(domain: Domain, names: Sequence[str] | None, queries: QuerySet) -> Workload:
    if isinstance(names, str):
        raise WorkloadError(f"names is a list of attributes; write [{names!r}]")
    chosen = domain.names if names is None else tuple(names)
    return Workload(domain, (product(dict.fromkeys(chosen, queries)),))


def _over_sets(
    domain: Domain, queries: dict[str, QuerySet], sets: Iterable[tuple[str, ...]], weight: float
) -> Workload:
    one = product(weight=weight).weight
    return Workload(
        domain, tuple(Product(tuple((n, queries[n]) for n in names), one) for names in sets)
    )


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
        listed = [(names,) if isinstance(names, str) else tuple(names) for names in of]
        for names in listed:
            if len(set(names)) < len(names):
                raise WorkloadError(f"the marginal {names} names an attribute twice")
        return [tuple(sorted(names, key=domain.axis)) for names in listed]
    most = k if k is not None else up_to
    d = len(domain.names)
    if isinstance(most, bool) or not isinstance(most, int | np.integer) or not 0 <= most <= d:
        raise WorkloadError(f"marginals of {most!r} attributes; the domain has {d}: take 0 to {d}")
    sizes = [most] if k is not None else range(most + 1)
    return [names for size in sizes for names in combinations(domain.names, size)]
