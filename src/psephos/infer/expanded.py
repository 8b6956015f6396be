"""Least squares with uniform expansion: an answer to everything, biased where data were not asked.

Plans that adapt to the data measure a vector that is reduced to few groups, or a few chosen
queries. Least squares says nothing of what lies between; these estimates take it to be even. Of all
cells that fit the measurements best, `expanded` takes those with the least sum of squares. Cells
that no measured block tells apart share evenly what is known of their sum: for a vector reduced by
a partition that is the uniform expansion of its groups (Zhang et al. 2020, EKTELO's least squares).

A public total N is a measurement without noise. With a further block 1ᵀx = t of any precision the
solution moves along a line with t, and on that line the total is t plus what the measurements pull
it away. The t at which the total is N gives the best fit among all x with that total: the gradient
of the rest is then a multiple of 1, which is what the constraint asks for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import RefusedError
from psephos.infer.estimate import CellEstimate
from psephos.infer.least_squares import BlockAnswers, block_answers, common_domain
from psephos.inverse.choice import precision
from psephos.inverse.least_norm import least_norm
from psephos.kernel.measurement import Measurement
from psephos.matrix import Kron, total
from psephos.values import Array


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
    whole = Kron(tuple(total(n) for n in domain.shape))
    lines = [np.stack([y, np.zeros(y.size)], axis=1) for y in values]  # at t = 0, and per unit of t
    lines.append(np.array([[0.0, 1.0]]))
    # About as precise as the most precise block, so that neither drowns in the other's rounding.
    pair = least_norm([*blocks, whole], [*precisions, max(precisions)], lines, domain.shape)
    at_zero, by_unit = pair[:, 0], pair[:, 1]
    return np.asarray(at_zero + by_unit * ((public - at_zero.sum()) / by_unit.sum()))


def check_total(public: float | None) -> float | None:
    """A public total that is a number, and not negative."""
    if public is not None and not (math.isfinite(public) and public >= 0):
        raise RefusedError(f"a public total is a number that is not negative, got {public!r}")
    return None if public is None else float(public)
