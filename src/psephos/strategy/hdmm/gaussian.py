"""The best strategy under Gaussian noise, with a certificate: min tr(X⁻¹G) where diag X = 1.

X = AᵀA is stationary if X⁻¹GX⁻¹ = Λ is diagonal, that is X = Λ^-½ (Λ^½ G Λ^½)^½ Λ^-½ with unit
diagonal: a fixed point in Λ. By duality every Λ > 0 bounds the error of all strategies from below
by (tr (Λ^½ G Λ^½)^½)² / tr Λ, and X scaled to unit diagonal attains an error from above. The
problem is convex (Li et al. 2010), so the two meet.

Queries of few dimensions over many cells, G = RᵀR with few rows, take eigenvectors of as many rows:
with S = RΛ^½, (SᵀS)^½ = Sᵀ(SSᵀ)^-½S.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigh, solve_triangular

from psephos.strategy.deadline import NEVER, Deadline
from psephos.values import Array

FEW_DIMENSIONS = 1 / 3
"""Queries of fewer dimensions than this share of their cells are taken by their dimensions."""
UNSEEN_EIGENVALUE = 1e-13
"""Eigenvalues of G, beside the largest, of what queries do not see."""


@dataclass(frozen=True, eq=False)
class CertifiedFactor:
    """Upper triangular A of unit column norms, its error tr((AᵀA)⁻¹G), a bound on every error."""

    factor: Array
    error: float
    bound: float

    @property
    def gap(self) -> float:
        """How much of the error another strategy could save, at most."""
        return 1 - self.bound / self.error if self.error > 0 else 0.0


def optimise_gaussian(
    gram: Array,
    *,
    tolerance: float = 1e-4,
    start: Array | None = None,
    iterations: int = 100,
    deadline: Deadline = NEVER,
) -> CertifiedFactor:
    """The fixed point from Λ = I (or diag `start`) until the gap is below the tolerance.

    A G of full rank takes a handful of steps; for a singular one the gap may stop near 1e-3, and
    says so. Cells that nothing asks for get a column of their own, which costs nothing.

    >>> best = optimise_gaussian(np.array([[2.0, 1.0], [1.0, 1.0]]), tolerance=1e-9)
    >>> round(best.error, 6), best.gap < 1e-9
    (2.618034, True)
    """
    gram = np.asarray(gram, dtype=float)
    queried = np.flatnonzero(gram.diagonal() > 0)
    factor = np.eye(len(gram))
    if queried.size == 0:
        return CertifiedFactor(factor, 0.0, 0.0)
    inner = gram[np.ix_(queried, queried)]
    weights = np.ones(queried.size) if start is None else np.asarray(start, dtype=float)[queried]
    bound, upper, before = 0.0, float(inner.trace()), 0.0
    shape: Callable[[], Array] = partial(np.eye, queried.size)
    rows = _rows_of(inner)
    for _ in range(iterations):
        step = _step(inner, weights) if rows is None else _step_of_rows(rows, weights)
        bound = max(bound, step.bound)
        if step.upper < upper:
            shape, upper = step.shape, step.upper
        late = deadline.passed
        if late or upper - bound <= tolerance * upper:
            break
        # The square goes twice as far and is exact if G is diagonal; a plain step follows one that
        # went too far. An entry of zero could never grow again.
        power = 2 if step.bound >= before else 1
        weights = weights * step.excess**power
        weights = np.maximum(weights, 1e-9 * weights.max())
        before = step.bound
    root, error = _factor(shape(), inner)
    factor[np.ix_(queried, queried)] = root
    return CertifiedFactor(factor, error, min(bound, error))


@dataclass(frozen=True, eq=False)
class _FixedPointStep:
    bound: float
    upper: float
    shape: Callable[[], Array]
    excess: Array


def _rows_of(gram: Array) -> Array | None:
    """R with RᵀR = G; None if it has many rows."""
    values, vectors = eigh(gram, driver="evd")
    seen = values > UNSEEN_EIGENVALUE * values[-1]
    if seen.sum() > FEW_DIMENSIONS * len(gram):
        return None
    return np.asarray((vectors[:, seen] * np.sqrt(values[seen])).T)


def _step_of_rows(rows: Array, weights: Array) -> _FixedPointStep:
    """The same step for G = RᵀR with few rows."""
    half = np.sqrt(weights)
    some = rows * half
    values, vectors = eigh(some @ some.T, driver="evd")
    kept = values > UNSEEN_EIGENVALUE * values[-1]
    roots = np.sqrt(values[kept])
    square = (vectors[:, kept] / np.sqrt(roots)).T @ some
    excess = (square**2).sum(axis=0) / weights
    trace, most = float(roots.sum()), float(excess.max())

    def shape() -> Array:
        x = (square / half).T @ (square / half) / most
        x.flat[:: len(x) + 1] = 1
        return np.asarray(x)

    return _FixedPointStep(trace**2 / float(weights.sum()), most * trace, shape, excess)


def _step(gram: Array, weights: Array) -> _FixedPointStep:
    """One step of the fixed point: the diagonal of X (one at the optimum), and a feasible X."""
    half = np.sqrt(weights)
    values, vectors = eigh(gram * half * half[:, None], driver="evd", overwrite_a=True)
    values = np.maximum(values, 0)
    full = bool(values[0] > 1e-11 * values[-1])
    roots = np.sqrt(values)
    trace = float(roots.sum())
    square_root = (vectors * roots) @ vectors.T
    excess = square_root.diagonal() / weights
    x = square_root / half / half[:, None]
    # X over its largest diagonal entry holds all that is asked; what room is left is filled up.
    upper = float(excess.max()) * trace
    scaled = x / excess.max()
    scaled.flat[:: len(x) + 1] = 1
    if full:
        # Scaling both sides is better, but turns the range of a singular X away from that of G.
        norm = np.sqrt(excess)
        inverse = (vectors / roots) @ vectors.T
        other = float(norm @ (inverse * gram * half * half[:, None]) @ norm)
        if other < upper:
            upper, scaled = other, x / norm / norm[:, None]
    return _FixedPointStep(trace**2 / float(weights.sum()), upper, lambda: scaled, excess)


def _factor(x: Array, gram: Array) -> tuple[Array, float]:
    """The Cholesky factor of X, with as little of the identity as makes it regular; its error."""
    for little in (0.0, 1e-8, 1e-7, 1e-6):
        mixed = (1 - little) * x
        mixed.flat[:: len(x) + 1] = 1
        try:
            root = np.triu(cholesky(mixed))
        except LinAlgError:
            continue
        if root.diagonal().min() >= 1e-5 or little == 1e-6:
            break
    root /= np.sqrt((root**2).sum(axis=0))
    half = solve_triangular(root, gram, trans="T")
    return root, float(solve_triangular(root, half.T, trans="T").trace())
