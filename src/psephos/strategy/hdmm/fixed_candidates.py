"""Written-down strategies among the candidates of a search, where they are scored in a moment.

So a search never returns what loses to the workload itself, to a wavelet or to a tree of counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

from psephos.errors import PsephosError
from psephos.inverse.classes import class_seconds
from psephos.inverse.range_gram import LineQueries
from psephos.strategy.fixed import baselines
from psephos.strategy.strategy import Strategy
from psephos.variances import NoiseKind
from psephos.workload.workload import Workload

QUICK_SECONDS = 1.0
"""What inverting the workload itself may take, as predicted."""
QUICK_PRODUCTS = 500
"""The most products of a workload that is compared."""
QUICK_AXIS = 10**6
"""The most cells of an attribute whose wavelets are scored."""
QUICK_TREES = {"hb": 10**6, "h2": 10**5, "quadtree": 10**5}
"""The most cells of a domain whose trees are scored; deep ones take longer."""
UNLIKE_AXIS = 4096
"""The most cells of an attribute with queries other than prefixes, all ranges, cells and totals,
whose Gram is gone through entry by entry; and the most where queries themselves are inverted."""

Selector = Callable[[Workload, NoiseKind], Strategy | None]


def fixed_candidates(workload: Workload, noise: NoiseKind) -> Iterator[Strategy]:
    """The workload itself, wavelets and trees, as far as they fit and are quick to score."""
    if len(workload.products) > QUICK_PRODUCTS:
        return
    yield from _fitting(_workload_itself, workload, noise)
    domain = workload.domain
    factors = chain.from_iterable(workload.factors(i) for i in range(len(workload.products)))
    unlike = max(
        (w.shape[1] for w in {id(w): w for w in factors}.values() if LineQueries.of(w) is None),
        default=0,
    )
    if unlike > UNLIKE_AXIS:
        return
    if max(domain.shape) <= QUICK_AXIS:
        yield from _fitting(baselines.privelet, workload, noise)
    trees = {"hb": baselines.hb, "h2": baselines.h2, "quadtree": baselines.quadtree}
    for name, selector in trees.items():
        if domain.size <= QUICK_TREES[name]:
            yield from _fitting(selector, workload, noise)


def _fitting(selector: Selector, workload: Workload, noise: NoiseKind) -> Iterator[Strategy]:
    """What a selector gives, or nothing where it refuses."""
    try:
        strategy = selector(workload, noise)
    except PsephosError:
        return
    if strategy is not None:
        yield strategy


def _workload_itself(workload: Workload, noise: NoiseKind) -> Strategy | None:
    strategy = baselines.workload_itself(workload, noise)
    if (
        class_seconds([b.matrix for b in strategy.query.blocks], workload.domain.shape)
        > QUICK_SECONDS
    ):
        return None  # to find out what it costs would take as long
    cost = strategy.cost
    by_attribute = cost.method == "subspaces" or max(workload.domain.shape) <= UNLIKE_AXIS
    quick = cost.seconds <= QUICK_SECONDS and cost.method != "iterative" and by_attribute
    return strategy if quick else None
