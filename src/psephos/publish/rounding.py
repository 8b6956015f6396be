"""Are published numbers a rounding of the best fit, as good a one as can be expected?

The best fit without negative cells, x, is worked out again from the noisy integers. What they tell
of it is the same on any machine to many digits; which of many good roundings z is found turns on
the last digit. So z is compared with x itself, by what rounding guarantees (a cell moves to one of
its two whole neighbours) and by what it reaches: the gaps of the tables' numbers are held against
those of x rounded anew.
"""

from __future__ import annotations

from psephos.errors import PsephosError, ReleaseError
from psephos.frozen import Array
from psephos.infer.whole import Gaps
from psephos.matrix import Identity, Kron, Matrix
from psephos.publish.views import Views

FOUND_ANEW = 2_000_000
"""The most cells for which the best fit is worked out again."""
NEIGHBOUR = 1.25
"""How far a cell may be from the best fit: rounding moves it by one at most."""
FACTOR = 2.0
"""How many times further numbers may be from the best fit than those of its rounding anew."""
TYPICAL, NUMBER = 0.5, 2.0
"""What is allowed on top, for the root mean square of the gaps and for the largest of a table."""


def check_rounding(views: Views, cells: Array) -> str:
    """Refuse cells that are no good rounding of the best fit; else say how near they are."""
    if cells.size > FOUND_ANEW:
        return (
            f"over {FOUND_ANEW:,} cells the best fit is not worked out again: that these cells are "
            "its rounding was NOT checked, only that they add up"
        )
    workload, solution = views.job.workload, views.solution
    gaps, again = (Gaps.of(z, solution, workload) for z in (cells, views.cells))
    by_cell = _cells_near(views, gaps)
    typical = FACTOR * again.typical + TYPICAL
    if not gaps.typical <= typical:
        raise ReleaseError(
            f"the tables are typically {gaps.typical:,.2f} from the best fit, worked out again; "
            f"rounding it moves them by {again.typical:,.2f}, and {typical:,.2f} is allowed"
        )
    for product, gap, other in zip(workload.products, gaps.largest, again.largest, strict=True):
        most = FACTOR * max(other, 2 * again.typical) + NUMBER
        if not gap <= most:
            raise ReleaseError(
                f"a number of {product.title!r} is {gap:,.2f} from the best fit, worked out again; "
                f"rounding it moves these by up to {other:,.2f}, and {most:,.2f} is allowed"
            )
    return (
        "a rounding of the best fit, worked out again: numbers typically within "
        f"{gaps.typical:.2f} of it (allowed: {typical:.2f}), at most {max(gaps.largest):.2f} "
        f"(rounded anew: {max(again.largest):.2f}); {by_cell}"
    )


def _cells_near(views: Views, gaps: Gaps) -> str:
    """Refuse cells that are no neighbours of the best fit, where it tells them."""
    partition = views.job.workload.reduce().partition
    if not _told(views, partition):
        return "single cells are not told by the measurements, and only checked to add up"
    if not gaps.group <= NEIGHBOUR:
        raise ReleaseError(
            f"a cell, or cells that no question tells apart, are {gaps.group:,.2f} from the best "
            f"fit, worked out again; rounding moves them by 1, and {NEIGHBOUR} is allowed"
        )
    shape = views.job.workload.domain.shape
    if not gaps.even and not _told(views, Kron(tuple(Identity(n) for n in shape))):
        return f"every group of cells told apart within {gaps.group:.2f} (allowed: {NEIGHBOUR})"
    if not gaps.share <= NEIGHBOUR:
        raise ReleaseError(
            f"a cell is {gaps.share:,.2f} from its share of the best fit, worked out again; "
            f"rounding moves it by 1, and {NEIGHBOUR} is allowed"
        )
    return f"every cell within {max(gaps.group, gaps.share):.2f} (allowed: {NEIGHBOUR})"


def _told(views: Views, queries: Matrix) -> bool:
    """Do the measurements determine these queries?"""
    factors = queries.factors if isinstance(queries, Kron) else (queries,)
    try:
        return views.estimate.form.covers(factors)
    except PsephosError:  # no closed form for it
        return False
