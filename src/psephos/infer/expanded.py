"""Least squares with uniform expansion: an answer to everything, biased where data were not asked.

Plans that adapt to the data measure a vector that is reduced to few groups, or a few chosen
queries. Least squares says nothing of what lies between; these estimates take it to be even. Of all
cells that fit the measurements best, `expanded` takes those with the least sum of squares. Cells
that no measured block tells apart share evenly what is known of their sum: for a vector reduced by
a partition that is the uniform expansion of its groups (Zhang et al. 2020, EKTELO's least squares).

A public total N is a measurement without noise. Let r be the part of 1 outside of the span of the
measured rows. If there is one, what is missing to N is spread along r: no fit gets worse, and no
other such move is shorter. Else the best fit with that total has a gradient that is the same for
all cells. It is found with the total t_g of every group g of cells that blocks join as one block
more, of any precision c: the solution x_g = a_g + t_g d_g moves along a line, on which the gradient
of the rest is c (t_g - 1ᵀx_g). With α_g = 1ᵀa_g and δ_g = 1ᵀd_g these agree for all groups, and the
totals add up to N, where

    t_g = (λ + α_g) / (1 - δ_g),    λ = (N - Σ α_g/(1 - δ_g)) / Σ δ_g/(1 - δ_g).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import RefusedError
from psephos.infer.estimate import CellEstimate
from psephos.infer.least_squares import BlockAnswers, block_answers, common_domain
from psephos.inverse.block_diagonal import Components
from psephos.inverse.choice import precision
from psephos.inverse.least_norm import least_norm
from psephos.kernel.measurement import Measurement
from psephos.matrix import Kron, Matrix, by_group, total
from psephos.values import Array

OPEN_TOTAL = 1e-9
"""The share of 1 outside of what is measured from which a total counts as open."""


def expanded(
    measurements: Measurement | Iterable[Measurement], *, total: float | None = None
) -> CellEstimate:
    """The cells of least norm among those that fit all measurements best.

    Args:
        measurements: of one data set, each block with its noise
        total: the number of rows, if it is public; cells then add up to it

    >>> import psephos as ps
    >>> domain, counts = ps.Domain.of(a=6), np.array([4, 4, 4, 0, 0, 9])
    >>> data = ps.simulate(counts, domain, unit=ps.add_remove_row(), budget=ps.rho(100), seed=0)
    >>> groups = data.vectorise().reduce(ps.matrix.Partition([0, 0, 0, 1, 1, 2]))
    >>> measurement = groups.measure(ps.matrix.Identity(3), spend=ps.rho(50))
    >>> expanded(measurement).vector.round(2)
    array([4., 4., 4., 0., 0., 9.])
    """
    several = tuple(measurements) if isinstance(measurements, Iterable) else (measurements,)
    domain = common_domain(several)
    cells = _least_norm_cells(block_answers(several), domain, check_total(total))
    return CellEstimate(domain, cells, "expanded", any(m.simulation for m in several))


def _least_norm_cells(
    answers: Sequence[BlockAnswers], domain: Domain, public: float | None
) -> Array:
    """The least-norm cells, on the plane of a public total if there is one."""
    blocks = [each.matrix for each in answers]
    precisions = [precision(each.noise.exact_variance) for each in answers]
    values = [each.values.astype(float) for each in answers]
    if public is None:
        return least_norm(blocks, precisions, values, domain.shape)
    ones = np.ones(domain.size)
    pairs = [np.stack([y, a.matvec(ones)], axis=1) for a, y in zip(blocks, values, strict=True)]
    cells, spanned = least_norm(blocks, precisions, pairs, domain.shape).T
    rest = ones - spanned
    if rest @ rest > OPEN_TOTAL * domain.size:
        return np.asarray(cells + rest * ((public - cells.sum()) / rest.sum()))
    groups, totals = _group_totals(blocks, precisions, domain)
    lines = [np.stack([y, np.zeros(y.size)], axis=1) for y in values]  # at t = 0, and per unit of t
    lines.append(np.tile([0.0, 1.0], (totals.shape[0], 1)))
    # About as precise as the most precise block, so that neither drowns in the other's rounding.
    with_totals = [*blocks, totals], [*precisions, max(precisions)]
    at_zero, by_unit = least_norm(*with_totals, lines, domain.shape).T
    alpha, delta = np.bincount(groups, at_zero), np.bincount(groups, by_unit)
    shift = (public - (alpha / (1 - delta)).sum()) / (delta / (1 - delta)).sum()
    return np.asarray(at_zero + by_unit * ((shift + alpha) / (1 - delta))[groups])


def _group_totals(
    blocks: Sequence[Matrix], precisions: Sequence[float], domain: Domain
) -> tuple[Array, Matrix]:
    """The group of every cell, of those that blocks join, and the queries for their totals."""
    components = Components.of(blocks, precisions)
    groups = np.zeros(domain.size, dtype=np.int64)
    if components is None:
        return groups, Kron(tuple(total(n) for n in domain.shape))
    count = 0
    for family in components.families:
        members = len(family.cells)
        groups[family.cells] = count + np.arange(members)[:, None]
        count += members
    return groups, by_group(groups, [total(size) for size in np.bincount(groups).tolist()])


def check_total(public: float | None) -> float | None:
    """A public total that is a number, and not negative."""
    if public is not None and not (math.isfinite(public) and public >= 0):
        raise RefusedError(f"a public total is a number that is not negative, got {public!r}")
    return None if public is None else float(public)
