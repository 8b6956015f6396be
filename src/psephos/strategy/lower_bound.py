"""What no strategy's error can be below: the SVD bound (Li and Miklau 2013).

For every strategy A with columns of L2 norm at most one, ‖WA⁺‖²_F ≥ (Σ singular values of W)²/N.
Columns of L1 norm one have L2 norm at most one, so it holds for Laplace noise too, where it is
loose.
"""

from __future__ import annotations

import math

import numpy as np

from psephos.errors import TooLargeError
from psephos.inverse.axis import DENSE_AXIS
from psephos.kernel.budget import NoiseKind
from psephos.matrix import Identity, Matrix, Ones
from psephos.strategy.factors import checked_selection
from psephos.values import Array
from psephos.workload.workload import Workload


def svd_bound(workload: Workload) -> float:
    """(Σ singular values of W)²/N, exact for products, marginals, and anything with few cells.

    >>> from psephos import Domain, Workload, identity, product
    >>> svd_bound(Workload(Domain.of(age=10), [product(age=identity())]))
    10.0
    """
    checked_selection(workload, NoiseKind.LAPLACE)
    factors = [workload.factors(i) for i in range(len(workload.products))]
    if len(factors) == 1:
        weight = workload.products[0].weight
        sums = [float(_singular_values(w).sum()) for w in factors[0]]
        return (weight * math.prod(sums)) ** 2 / workload.domain.size
    if all(_is_table(w) for each in factors for w in each):
        return _marginal_bound(workload)
    if workload.domain.size > DENSE_AXIS:
        raise TooLargeError(
            f"the SVD bound of several products that are not marginals needs all cells, and "
            f"{workload.domain.size:,} are over the limit of {DENSE_AXIS:,}",
            workload.domain.size,
            DENSE_AXIS,
        )
    return float(_singular_values(workload.matrix).sum()) ** 2 / workload.domain.size


def _is_table(queries: Matrix) -> bool:
    return isinstance(queries, Identity) or (isinstance(queries, Ones) and queries.m == 1)


def _marginal_bound(workload: Workload) -> float:
    """(Σ_S √(τ_S m_S))²/N, m_S the dimension of eigenspace S."""
    shape = workload.domain.shape
    total = math.fsum(
        math.sqrt(trace * math.prod(float(shape[i] - 1) for i in axes))
        for axes, trace in workload.closure_traces().items()
    )
    return total**2 / workload.domain.size


def _singular_values(queries: Matrix) -> Array:
    n = queries.shape[1]
    if isinstance(queries, Identity):
        return np.ones(n)
    if isinstance(queries, Ones):
        return np.array([math.sqrt(queries.m * n)])
    if n > DENSE_AXIS:
        raise TooLargeError(
            f"the singular values of {queries} need a Gram of {n:,} x {n:,}, over the limit of "
            f"{DENSE_AXIS:,} cells",
            n,
            DENSE_AXIS,
        )
    values = np.linalg.eigvalsh(queries.gram().dense(limit=n * n))
    # The root of rounding dust is no dust: what may be zero counts as zero, and the bound holds.
    return np.asarray(np.sqrt(np.where(values > values[-1] * n * 1e-15, values, 0)))
