"""What selection needs to know of a workload without its matrix: one number per eigenspace.

All matrices in the span of the marginal Grams share eigenspaces indexed by sets S of attributes
(see psephos.matrix.marginals). A workload enters through the trace of WᵀW on each:

    τ_S = Σ_products w² Π_{i∈S} (tr G_i - 1ᵀG_i1/n_i) · Π_{i∉S} 1ᵀG_i1/n_i
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from psephos.errors import TooLargeError
from psephos.values import Array

if TYPE_CHECKING:
    from psephos.workload.queries import QuerySet
    from psephos.workload.workload import Workload

SETS_LIMIT = 1 << 24


class _Moments:
    """(1ᵀG1/n, tr G - 1ᵀG1/n) of factors, each computed once."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.known: dict[tuple[str, QuerySet], tuple[float, float]] = {}

    def of(self, name: str, queries: QuerySet) -> tuple[float, float]:
        found = self.known.get((name, queries))
        if found is None:
            matrix = self.workload._factor(name, queries)
            gram = matrix.gram()
            constant = gram.sum() / matrix.shape[1]
            varying = max(0.0, gram.trace() - constant)
            # A total leaves rounding dust where the exact difference is zero.
            dust = varying < 1e-12 * gram.trace()
            found = self.known[name, queries] = (constant, 0.0 if dust else varying)
        return found


def subset_traces(workload: Workload) -> Array:
    """τ_S for all 2^d sets S of attributes, numbered by Σ_{i∈S} 2^i.

    >>> from psephos.workload.builders import marginals
    >>> from psephos.domain import Domain
    >>> subset_traces(marginals(Domain.of(a=2, b=3), up_to=1))
    array([11.,  3.,  4.,  0.])
    """
    names, shape = workload.domain.names, workload.domain.shape
    if 1 << len(names) > SETS_LIMIT:
        raise TooLargeError(
            f"{len(names)} attributes have 2^{len(names)} subsets; use closure_traces()",
            1 << len(names),
            SETS_LIMIT,
        )
    moments = _Moments(workload)
    traces = np.zeros(1 << len(names))
    for asked in workload.products:
        own = dict(asked.items)
        tau = np.array([asked.weight**2])
        for name, n in zip(names, shape, strict=True):
            constant, varying = moments.of(name, own[name]) if name in own else (float(n), 0.0)
            tau = np.concatenate([tau * constant, tau * varying])
        traces += tau
    return traces


def closure_traces(workload: Workload) -> dict[tuple[int, ...], float]:
    """τ_S where it is not zero: S inside the attributes of some product."""
    domain = workload.domain
    moments = _Moments(workload)
    axis = {name: i for i, name in enumerate(domain.names)}
    every = math.fsum(math.log(n) for n in domain.shape)
    if every > math.log(1e300):
        raise TooLargeError(
            f"a domain of e^{every:.0f} cells is beyond floating point; "
            "leave out attributes that no query names",
            domain.size,
            10**300,
        )
    traces: dict[tuple[int, ...], float] = {}
    for asked in workload.products:
        parts = sorted((axis[name], *moments.of(name, queries)) for name, queries in asked.items)
        outside = domain.size // math.prod(domain.shape[i] for i, _, _ in parts)
        scale = asked.weight**2 * float(outside)
        for k in range(len(parts) + 1):
            for chosen in combinations(range(len(parts)), k):
                share = scale
                for j, (_, constant, varying) in enumerate(parts):
                    share *= varying if j in chosen else constant
                if share:
                    key = tuple(parts[j][0] for j in chosen)
                    traces[key] = traces.get(key, 0.0) + share
    return traces
