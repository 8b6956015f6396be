"""Thresholding: cells that do not stand out from the noise are taken to be empty.

Of n cells with independent Laplace noise of scale b the largest noise is about b ln n. An estimate
of at most η b ln n is set to zero, negative ones too: the first step of Zhang et al. (2014), which
clusters the rest, and an estimate of its own for sparse data. Cells that no measurement tells apart
have one estimate, counted once, and share it evenly.

Where several measurements are combined b is the scale of the discrete Laplace law that has the
variance of the cell: v = 1 / (2 sinh²(1/2b)), so that b = 1 / (2 arsinh(1/√(2v))). For a single
measurement of all cells that is the scale of its noise.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from psephos.errors import RefusedError, UnsupportedError
from psephos.infer.estimate import CellEstimate
from psephos.infer.least_squares import block_answers, common_domain
from psephos.inverse.choice import form_of, precision
from psephos.inverse.form import FittedVector, check_vector
from psephos.inverse.merged_cells import FittedGroups, Merging
from psephos.kernel.measurement import Measurement
from psephos.matrix import Identity
from psephos.values import Array


def thresholded(
    measurements: Measurement | Iterable[Measurement], *, eta: float = 0.35
) -> CellEstimate:
    """Least squares of every cell, zero where it is at most η ln(n) times the scale of its noise.

    Args:
        measurements: of one data set, that determine all cells or groups that they tell apart
        eta: how far above the noise a count has to be, as a share of ln(n) scales

    >>> import psephos as ps
    >>> domain, counts = ps.Domain.of(a=6), np.array([40, 0, 1, 0, 0, 25])
    >>> data = ps.simulate(counts, domain, unit=ps.add_remove_row(), budget=ps.epsilon(9), seed=0)
    >>> measurement = data.vectorise().measure(ps.matrix.Identity(6), spend=ps.epsilon("1/2"))
    >>> measurement.values
    array([41, -2,  0, -5,  0, 29])
    >>> thresholded(measurement, eta=1).vector
    array([41.,  0.,  0.,  0.,  0., 29.])
    """
    several = tuple(measurements) if isinstance(measurements, Iterable) else (measurements,)
    domain = common_domain(several)
    if not (math.isfinite(eta) and eta >= 0):
        raise RefusedError(f"eta is a number that is not negative, got {eta!r}")
    check_vector(domain.size)
    answers = block_answers(several)
    blocks = [each.matrix for each in answers]
    precisions = [precision(each.noise.exact_variance) for each in answers]
    shape, merging = domain.shape, Merging.of_columns(blocks, domain.shape)
    if merging is not None:
        blocks, shape = list(merging.blocks(blocks)), merging.shape
    form, units = form_of(blocks, precisions, shape), tuple(map(Identity, shape))
    if not form.covers(units):
        raise UnsupportedError(
            "thresholds are for cells, and these measurements do not determine all of those that "
            "they tell apart; measure every cell, or reduce the vector to what is measured"
        )
    cells = form.fit([each.values.astype(float) for each in answers]).answers(units)
    limits = eta * math.log(math.prod(shape)) * laplace_scale(form.variances(units))
    kept = np.where(cells > limits, cells, 0.0)
    if merging is not None:
        kept = FittedGroups(FittedVector(kept), merging).vector
    return CellEstimate(domain, kept, "thresholded", any(m.simulation for m in several))


def laplace_scale(variance: Array) -> Array:
    """The scale of the discrete Laplace law with this variance.

    >>> from psephos.variances import laplace_variance
    >>> laplace_scale(np.array([laplace_variance(2.5)]))
    array([2.5])
    """
    return np.asarray(0.5 / np.arcsinh(1 / np.sqrt(2 * np.maximum(variance, 1e-300))))
