"""Non-negative estimates: the nearest cells x ≥ 0 to least squares, in one of two norms.

    without a workload   min Σ_j c_j |A_j x - y_j|²: the best fit to the measurements
    with a workload W    min |W(x - x_LS)|²: the nearest answers to those of least squares

over the region C of cells that are not negative, zero where no row can be, with their total held if
that is wanted. The second has a guarantee. C is convex, and the nearest point of a convex set moves
no two points further apart, in the norm that says what is nearest: for any points v and w of the
space and their nearest points Pv and Pw, |Pv - Pw| ≤ |v - w|. The true cells x are in C (with a
held total, if that total is theirs), where Px = x. So

    |W(x̂ - x)| = |W(Px_LS - Px)| ≤ |W(x_LS - x)|

for every draw of the noise and every data set: no weighted sum of squared errors over the workload
is larger than that of least squares. Weights count as the workload weights its products. With a
total that is itself an estimate, this holds for all but the total's own error. A point that is not
quite the nearest may add its `gap`, which says how much that is: where it is large, as it is for
ranges over a plane of half a million cells, there is no guarantee.

The best fit of some thousand cells, and of nested groups of any number of cells, is found by an
interior point method (`interior_point`). All else is splitting, which takes a counted number of
steps and says how near it came (`splitting`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import ShapeError, UnsupportedError
from psephos.infer.active_set import least_norm_fit
from psephos.infer.estimate import Answers, answers_of_cells
from psephos.infer.expanded import check_total
from psephos.infer.interior_point import interior_point
from psephos.infer.least_squares import LeastSquares, common_domain
from psephos.infer.normal_equations import NormalEquations, sizes_by_axis
from psephos.infer.splitting import Region, Split, floors_of, gap_of, split
from psephos.kernel.measurement import Measurement
from psephos.matrix import Ones
from psephos.values import Array
from psephos.workload.workload import Workload

NONNEGATIVE_CELLS = 20_000_000
"""The most cells for which a vector that is not negative is made."""
FEW_CELLS = 5000
"""Up to so many cells gaps are small."""
INTERIOR_CELLS, NESTED_CELLS = 20_000, 5_000_000
"""Up to so many cells the interior point method is used: the second where groups are nested, with
25 to 30 vectors of the cells in memory (`benchmarks.nonnegative`)."""
GAP, SMALL_GAP = 0.05, 0.001
"""How near to the best fit is near enough: a share of the noise, as a root mean square."""
SAME_TOTAL = 1e-9
"""What two totals may differ by, as a share, that are one."""
LAST_DIGITS = 1e-9
"""What is as good as zero, as a share of the largest cell."""


def nonnegative(
    estimate: LeastSquares,
    *,
    workload: Workload | None = None,
    zeros: Array | None = None,
    hold_total: bool = False,
    total: float | None = None,
    sizes: Sequence[Array] | None = None,
) -> NonNegative:
    """The cells x ≥ 0, zero where `zeros` says so, that are nearest to an estimate.

    Without a workload they fit all measurements best; with one, its answers are nearest to those of
    the estimate. If the estimate has no negative cell it is the answer.

    Measurements need not determine all cells. Cells that no measurement tells apart share evenly
    what their sum gets, but for those that `zeros` excludes. With `sizes`, how many declared values
    each value of each attribute stands for, they share it in proportion to their declared cells.
    Where more is left open than that, several tables fit equally well, and one of them is returned;
    which one is not promised. Then the total may be open too, and `total` should be given.

    Raising what lies below zero makes totals too large, by more the more cells are empty. With
    `hold_total` cells add up to the estimate's total, which is unbiased, where measurements tell
    it: other cells give way, and most answers come out closer to the truth. `total` is a number
    that is public, and held instead.

    >>> import psephos as ps
    >>> domain, counts = ps.Domain.of(a=3), np.array([9, 0, 0])
    >>> data = ps.simulate(counts, domain, unit=ps.add_remove_row(), budget=ps.rho(1), seed=2)
    >>> W = ps.Workload(domain, [ps.product(a=ps.identity_total())])
    >>> estimate = ps.infer.least_squares(data.vectorise().measure(W.query, spend=ps.rho(1)))
    >>> estimate.vector.round(2)
    array([ 8., -1.,  1.])
    >>> nonnegative(estimate).vector.round(2)
    array([7.67, 0.  , 0.67])
    >>> nonnegative(estimate, hold_total=True).vector.round(2)
    array([7.5, 0. , 0.5])
    >>> nonnegative(estimate, total=9).vector.round(2)
    array([8., 0., 1.])
    """
    if not isinstance(estimate, LeastSquares):
        raise UnsupportedError(
            f"nonnegative takes an estimate by least squares, got {type(estimate).__name__}; write "
            "nonnegative(least_squares(measurements))"
        )
    cells = estimate.domain.size
    if cells > NONNEGATIVE_CELLS:
        raise UnsupportedError(
            f"the published view needs a vector of all cells, at most {NONNEGATIVE_CELLS:,}, and "
            f"{estimate.domain} has {cells:,}; the raw and the consistent view remain"
        )
    total = check_total(total)
    zeros = None if zeros is None else check_zeros(zeros, cells)
    axes = None if sizes is None else sizes_by_axis(sizes, estimate.domain.shape)
    if workload is None:
        normal = NormalEquations.of(estimate)
    else:
        normal = NormalEquations.of_workload(estimate, workload, axes)
    held = _total(estimate) if total is None and hold_total else total
    region = Region(~normal.merged_zeros(zeros), None if held is None else float(held))
    fit = _nearest(normal, region, in_workload=workload is not None)
    vector = normal.spread(fit.cells, zeros, axes)
    return NonNegative(estimate.domain, vector, estimate.simulation, fit.steps, fit.gap)


def nearest_nonnegative(
    cells: Array,
    workload: Workload,
    *,
    zeros: Array | None = None,
    total: float | None = None,
) -> Array:
    """The cells x ≥ 0 whose answers are nearest to those of any estimate of the cells.

    With the truth among them, and so with a total that is the true one, their squared error over
    the workload is never above that of the estimate (see above), to within the gap.

    >>> import psephos as ps
    >>> W = ps.Workload(ps.Domain.of(a=4), [ps.product(a=ps.prefix())])
    >>> nearest_nonnegative(np.array([3.0, -1.0, 2.0, 4.0]), W, total=8).round(2)
    array([2.5, 0. , 1.5, 4. ])
    """
    normal = NormalEquations.of_cells(np.asarray(cells, dtype=float), workload)
    zeros = None if zeros is None else check_zeros(zeros, workload.domain.size)
    region = Region(~normal.merged_zeros(zeros), check_total(total))
    return normal.spread(_nearest(normal, region, in_workload=True).cells, zeros)


def best_nonnegative(
    measurements: Sequence[Measurement], *, total: float | None = None
) -> NonNegative:
    """The best fit to measurements without negative cells, of least norm if a few leave much open.

    Least squares is not computed on the way, which for many groups of cells on one attribute,
    told apart by requests that do not nest, would take longer than the fit.

    >>> import psephos as ps
    >>> domain, counts = ps.Domain.of(a=3), np.array([9, 0, 0])
    >>> data = ps.simulate(counts, domain, unit=ps.add_remove_row(), budget=ps.rho(1), seed=2)
    >>> cells = data.vectorise().measure(ps.matrix.Identity(3), spend=ps.rho(1))
    >>> round(float(best_nonnegative([cells], total=9).vector.sum()), 6)
    9.0
    """
    domain = common_domain(measurements)
    normal = NormalEquations.of_measurements(measurements, domain.shape)
    region = Region(np.ones(normal.target.size, dtype=bool), check_total(total))
    fit = _nearest(normal, region, least_norm=True)
    simulation = any(measurement.simulation for measurement in measurements)
    return NonNegative(domain, normal.spread(fit.cells, None), simulation, fit.steps, fit.gap)


def _nearest(
    normal: NormalEquations, region: Region, *, in_workload: bool = False, least_norm: bool = False
) -> Split:
    """The estimate itself if it lies in the region; else by the method for so many cells."""
    if not region.allowed.any():
        return Split(np.zeros(normal.target.size), 0, 0.0)
    inside = _inside(normal.solution(), region)
    if inside is not None:
        return Split(inside, 0, 0.0)
    cells = normal.target.size
    few = cells <= FEW_CELLS
    within = cells <= INTERIOR_CELLS and not in_workload
    if not within and (cells > NESTED_CELLS or normal.nested is None):
        return split(normal, region, SMALL_GAP if few else GAP)
    even = least_norm_fit(normal, region) if least_norm else None
    if even is not None:
        x, steps = even, 1
    else:
        x, steps = interior_point(normal, region.allowed, region.total)
    if region.total is not None and x.sum() > 0:
        x *= region.total / float(x.sum())
    x = region.nearest(x)
    slope = normal.apply(x) - normal.target
    kappa = float(slope @ x) / region.total if region.total else 0.0
    exact = Split(x, steps, gap_of(normal, region, x, x, kappa, floors_of(normal)))
    enough = SMALL_GAP if few and not least_norm else GAP
    if exact.gap <= enough:
        return exact
    return min(exact, split(normal, region, enough), key=lambda fit: fit.gap)


def _inside(x: Array, region: Region) -> Array | None:
    """Cells that lie in the region but for their last digits, and these mended; else None."""
    least, largest = float(x.min()), float(x.max())
    dust = LAST_DIGITS * max(largest, -least)
    if least < -dust or np.abs(x, where=~region.allowed, out=np.zeros(x.size)).max() > dust:
        return None
    if region.total is not None:
        apart = abs(region.total - float(x.sum()))
        if apart > SAME_TOTAL * max(region.total, 1.0):
            return None
    return np.where(region.allowed, np.maximum(x, 0), 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class NonNegative:
    """An estimate of every cell with none below zero; biased, since noise is cut off there."""

    domain: Domain
    vector: Array
    simulation: bool = False
    steps: int = 0
    """Steps of the method that were taken."""
    gap: float = 0.0
    """A bound on the distance to the best such cells, as a share of the noise, both as root mean
    squares over what was measured (with a workload: over its answers)."""
    biased: ClassVar[bool] = True

    def answer(self, workload: Workload) -> Answers:
        """The answers W x of a workload; their standard errors are not known."""
        return answers_of_cells(self, self.vector, workload)

    def __repr__(self) -> str:
        mark = "Simulated non-negative" if self.simulation else "Non-negative"
        return f"{mark} estimate({self.vector.size:,} cells over {self.domain})"


def _total(estimate: LeastSquares) -> float | None:
    """The estimate's total, not negative; None if the measurements do not tell it."""
    factors = tuple(Ones(1, n) for n in estimate.domain.shape)
    if not estimate.form.covers(factors):
        return None
    return max(0.0, float(estimate.fitted.answers(factors)[0]))


def check_zeros(zeros: Array, cells: int) -> Array:
    """A flag for every cell."""
    flags = np.asarray(zeros)
    if flags.dtype != bool or flags.size != cells:
        raise ShapeError(
            f"zeros is one truth value for each of {cells:,} cells, got {flags.dtype} of shape "
            f"{flags.shape}"
        )
    return flags.reshape(-1)
