"""Does least squares solve its normal equations? Looked at without the solver that found it.

The estimate x̂ is the one that leaves residuals r_j = y_j - A_j x̂ which say nothing more:

    s = Σ_j A_jᵀ r_j / σ_j² = 0

For a product v of random signs, one for each value of each attribute, E (vᵀs)² = |s|², and
vᵀs = Σ_j (A_j v)ᵀ r_j / σ_j² needs no vector of cells. Beside it stands what the noise itself would
make of it: Σ_j (A_j v)ᵀ ε_j / σ_j², of variance Σ_j |A_j v|² / σ_j².
"""

from __future__ import annotations

from functools import reduce

import numpy as np
from numpy.random import default_rng

from psephos.infer.least_squares import LeastSquares
from psephos.inverse.choice import precision
from psephos.matrix import Kron, Matrix
from psephos.values import Array

PROBES = 8
"""Products of signs; each finds an s that is not zero with a chance of a half at least, about."""


def unsolved_share(estimate: LeastSquares, *, seed: int = 0) -> float:
    """How far normal equations are from solved: the largest vᵀs in its standard deviations.

    >>> import psephos as ps
    >>> domain = ps.Domain.of(a=3, b=2)
    >>> counts, unit, spend = np.array([5, 1, 0, 2, 9, 4]), ps.add_remove_row(), ps.rho(1)
    >>> data = ps.simulate(counts, domain, unit=unit, budget=spend, seed=0)
    >>> query = ps.marginals(domain, up_to=2).query
    >>> estimate = ps.infer.least_squares(data.vectorise().measure(query, spend=spend))
    >>> unsolved_share(estimate) < 1e-9
    True
    """
    generator, shape = default_rng(seed), estimate.domain.shape
    signs = [[generator.choice([-1.0, 1.0], n) for n in shape] for _ in range(PROBES)]
    sums, squares = np.zeros(PROBES), np.zeros(PROBES)
    for block in estimate.blocks:
        weight = precision(block.variance)
        residuals = (block.values - _answers(estimate, block.matrix)) * weight
        for i, probe in enumerate(signs):
            image = _image(block.matrix, probe)
            sums[i] += image @ residuals
            squares[i] += weight * float(image @ image)
    return float((np.abs(sums) / np.sqrt(np.maximum(squares, np.finfo(float).tiny))).max())


def _factors(matrix: Matrix, shape: tuple[int, ...]) -> tuple[Matrix, ...] | None:
    """The factors of a block, one for each attribute; None if it is no such product."""
    factors = matrix.factors if isinstance(matrix, Kron) else (matrix,)
    return factors if tuple(factor.shape[1] for factor in factors) == shape else None


def _answers(estimate: LeastSquares, matrix: Matrix) -> Array:
    """What the estimate answers to a block."""
    factors = _factors(matrix, estimate.domain.shape)
    return matrix @ estimate.vector if factors is None else estimate.fitted.answers(factors)


def _image(matrix: Matrix, probe: list[Array]) -> Array:
    """The answers of a block to a product of signs."""
    factors = _factors(matrix, tuple(signs.size for signs in probe))
    if factors is None:
        return np.asarray(matrix @ reduce(np.multiply.outer, probe).reshape(-1))
    parts = [np.asarray(f @ signs) for f, signs in zip(factors, probe, strict=True)]
    return np.asarray(reduce(np.multiply.outer, parts).reshape(-1))
