"""Of all non-negative best fits the one of least norm, where a few queries leave much open.

A handful of ranges tells a few dozen groups of cells apart and determines fewer numbers than that.
Among the x ≥ 0 that fit best, even ones are the better guess: minimise

    xᵀXx - 2bᵀx + δ Σ_g x_g² / n_g,

n_g the number of cells of group g, which is the sum of squares if its cells share evenly, and δ so
small that the fit does not suffer (Zhang et al. 2020 add such a term to their non-negative least
squares). With X = VΛVᵀ it is a least squares problem of a few rows, which active sets solve exactly
(Lawson and Hanson 1974). A total that is held is one more row, as heavy as floating point allows.
"""

from __future__ import annotations

import math

import numpy as np

from psephos.infer.normal_equations import NormalEquations
from psephos.infer.splitting import Region
from psephos.values import Array

FEW_GROUPS = 256
"""The most groups of cells for which X is written out."""
OPEN = 1e-9
"""Eigenvalues below this share of the largest are taken to be zero."""
NORM_WEIGHTS = 1e-13, 1e-9
"""The least and the largest δ, as shares of the largest eigenvalue."""
NORM_GAP = 1e-6
"""What δ may add to the sum of squares, as a share of the noise's."""
HELD_TOTAL_WEIGHT = 1e6
"""The square of a held total's weight, as a share of the largest eigenvalue."""


def least_norm_fit(normal: NormalEquations, region: Region) -> Array | None:
    """The best fit of least norm; None if the fit is unique, or there are many groups."""
    count = normal.target.size
    if count > FEW_GROUPS:
        return None
    gram = np.stack([normal.apply(unit) for unit in np.eye(count)])
    values, vectors = np.linalg.eigh((gram + gram.T) / 2)
    known = values > OPEN * values[-1]
    if known.all() or not known.any():
        return None
    from scipy.optimize import nnls

    roots = np.sqrt(values[known])
    members = np.ones(count) if normal.groups is None else np.bincount(normal.groups)
    largest = values[-1]
    size = largest * max(float((normal.solution() ** 2 / members).sum()), 1e-300)
    delta = float(np.clip(NORM_GAP * normal.noise**2 / size, *NORM_WEIGHTS)) * largest
    parts = [
        (roots[:, None] * vectors.T[known], vectors.T[known] @ normal.target / roots),
        (np.diag(np.sqrt(delta / members)), np.zeros(count)),
    ]
    if region.total is not None:
        weight = math.sqrt(HELD_TOTAL_WEIGHT * largest / count)
        parts.append((np.full((1, count), weight), np.array([weight * region.total])))
    rows, answers = (np.concatenate(column) for column in zip(*parts, strict=True))
    cells = np.zeros(count)
    cells[region.allowed] = nnls(rows[:, region.allowed], answers)[0]
    return cells
