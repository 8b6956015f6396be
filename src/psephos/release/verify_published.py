"""Are published numbers a rounding of an estimate, and is that what the noisy integers give?

Published numbers must be a rounding of an estimate x of all cells, which is in the bundle, and that
estimate must be the one that the noisy integers give. It is worked out again, with as many steps as
the manifest says; iterations end within a stated distance of their limit, on any machine, so x is
compared to that distance. Which of many good roundings z of x is found turns on the last digit of
floats. So z is compared with x itself, by what rounding guarantees (a cell moves to one of its two
whole neighbours) and by what it reaches: the gaps of the tables' numbers are held against those of
x rounded anew.

Where tables are in groups, all this is done for each group. Its sum has to be the common total. For
the sake of that and of tables that groups share, cells may have moved by more than one: as far as
they do when rounded anew, and one more. Whole numbers of different groups have to be as far apart
as the manifest says.
"""

from __future__ import annotations

from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np

from psephos.errors import PsephosError, ReleaseError
from psephos.infer.group_cells import GroupCells, rounded
from psephos.infer.rounding import RoundingGaps, round_cells
from psephos.matrix import Identity, Kron, Matrix
from psephos.release.bundle import group_file
from psephos.release.files import read_integers
from psephos.release.plan_views import PlanViews
from psephos.release.published_groups import GroupedFit, PublishedGroups, grouped_answers, total_of
from psephos.release.verification import WrongError
from psephos.release.views import Views, disagreement_facts
from psephos.values import Array
from psephos.workload.workload import Workload

MOST_REFITTED_CELLS = 2_000_000
"""The most cells for which the best fit is worked out again."""
NEIGHBOUR = 1.25
"""How far a cell may be from the best fit: rounding moves it by one at most."""
FACTOR = 2.0
"""How many times further numbers may be from the best fit than those of its rounding anew."""
TYPICAL, NUMBER = 0.5, 2.0
"""What is allowed on top, for the root mean square of the gaps and for the largest of a table."""
ESTIMATE_TOLERANCE = 0.02
"""Of standard errors, as a root mean square: how far tables of the estimate may be from theirs."""
CELL_TOLERANCE = 1e-6
"""Of the largest cell: how far those of a plan may be from their recomputation."""
TOTAL_TOLERANCE = 1e-6
"""How far beyond a half a total may be from that of least squares, whose last digits may differ."""


def check_estimate(views: Views, stored: Array, facts: dict[str, Any] | None) -> str:
    """Refuse cells that are not what the noisy integers give; else say how near they are."""
    if facts is None or (facts["method"], facts["reason"]) != astuple(views.rule):
        raise WrongError("the manifest says something else of the published view than its rule")
    if (stored < 0).any() or (views.job.zeros is not None and stored[views.job.zeros].any()):
        raise WrongError("the estimate is below zero somewhere, or not zero where no row can be")
    if stored.size > MOST_REFITTED_CELLS:
        return (
            f"over {MOST_REFITTED_CELLS:,} cells the estimate is not worked out again: that it is "
            "what the noisy integers give was NOT checked"
        )
    again = views.rule.fit(views.job, views.estimate, facts).vector
    shape = views.job.workload.domain.shape
    gap = views.job.workload.answer((stored - again).reshape(shape))
    typical = float(np.sqrt(np.mean((gap / np.maximum(views.stderr, 1e-9)) ** 2)))
    if not typical <= ESTIMATE_TOLERANCE:
        raise ReleaseError(
            f"the estimate is typically {typical:.2g} standard errors from what the noisy integers "
            f"give, worked out again; {ESTIMATE_TOLERANCE} is allowed"
        )
    return (
        f"the {facts['method']} estimate, worked out again in {facts['steps']} steps, is typically "
        f"within {typical:.1g} standard errors (allowed: {ESTIMATE_TOLERANCE})"
    )


def check_plan_estimate(views: PlanViews, stored: Array, facts: dict[str, Any] | None) -> str:
    """Refuse cells that are not what the plan's steps, taken again, give."""
    if facts != views.published_facts:
        raise WrongError("the manifest says something else of the published view than its plan")
    if (stored < 0).any() or (views.job.zeros is not None and stored[views.job.zeros].any()):
        raise WrongError("the estimate is below zero somewhere, or not zero where no row can be")
    scale = max(1.0, float(np.abs(views.solution).max()))
    gap = float(np.abs(stored - views.solution).max()) / scale
    if not gap <= CELL_TOLERANCE:
        raise WrongError(
            f"the estimate is up to {gap:.2g} of its largest cell from what the plan's steps give; "
            f"{CELL_TOLERANCE} is allowed"
        )
    return f"the plan's estimate, worked out again, is within {gap:.1g} of its largest cell"


def check_rounding(views: Views, cells: Array, stored: Array | None = None) -> str:
    """Refuse cells that are no good rounding of the estimate; else say how near they are.

    It is stored with the bundle; of bundles up to format 4, it is worked out again.
    """
    workload = views.job.workload
    if stored is None and cells.size > MOST_REFITTED_CELLS:
        return (
            f"over {MOST_REFITTED_CELLS:,} cells the best fit is not worked out again: that these "
            "cells are its rounding was NOT checked, only that they add up"
        )
    solution = views.solution if stored is None else stored
    rounded = views.cells if stored is None else round_cells(stored, workload)
    gaps, again = (RoundingGaps.of(z, solution, workload) for z in (cells, rounded))
    by_cell = _cells_near(views, gaps, stored is not None)
    return f"{_answers_near(workload, gaps, again)}; {by_cell}"


def _answers_near(workload: Workload, gaps: RoundingGaps, again: RoundingGaps) -> str:
    """Refuse answers that are further from the estimate than those of its rounding anew may be."""
    typical = FACTOR * again.typical + TYPICAL
    if not gaps.typical <= typical:
        raise ReleaseError(
            f"the tables are typically {gaps.typical:,.2f} from the estimate; "
            f"rounding it moves them by {again.typical:,.2f}, and {typical:,.2f} is allowed"
        )
    for product, gap, other in zip(workload.products, gaps.largest, again.largest, strict=True):
        most = FACTOR * max(other, 2 * again.typical) + NUMBER
        if not gap <= most:
            raise ReleaseError(
                f"a number of {product.title!r} is {gap:,.2f} from the estimate; "
                f"rounding it moves these by up to {other:,.2f}, and {most:,.2f} is allowed"
            )
    return (
        "a rounding of the estimate: numbers typically within "
        f"{gaps.typical:.2f} of it (allowed: {typical:.2f}), at most {max(gaps.largest):.2f} "
        f"(rounded anew: {max(again.largest):.2f})"
    )


def _cells_near(views: Views, gaps: RoundingGaps, stored: bool) -> str:
    """Refuse cells that are no neighbours of the estimate, where it tells them."""
    partition = views.job.workload.reduce().partition
    if not stored and not _determined(views, partition):
        return "single cells are not told by the measurements, and only checked to add up"
    if not gaps.group <= NEIGHBOUR:
        raise ReleaseError(
            f"a cell, or cells that no question tells apart, are {gaps.group:,.2f} from the "
            f"estimate; rounding moves them by 1, and {NEIGHBOUR} is allowed"
        )
    shape = views.job.workload.domain.shape
    if (
        not stored
        and not gaps.even
        and not _determined(views, Kron(tuple(Identity(n) for n in shape)))
    ):
        return f"every group of cells told apart within {gaps.group:.2f} (allowed: {NEIGHBOUR})"
    if not gaps.share <= NEIGHBOUR:
        raise ReleaseError(
            f"a cell is {gaps.share:,.2f} from its share of the estimate; "
            f"rounding moves it by 1, and {NEIGHBOUR} is allowed"
        )
    return f"every cell within {max(gaps.group, gaps.share):.2f} (allowed: {NEIGHBOUR})"


def _determined(views: Views, queries: Matrix) -> bool:
    """Do the measurements determine these queries?"""
    factors = queries.factors if isinstance(queries, Kron) else (queries,)
    try:
        return views.estimate.form.covers(factors)
    except PsephosError:  # no closed form for it
        return False


# ---- tables in groups --------------------------------------------------------------------------


def read_groups(folder: Path, groups: PublishedGroups, total: int | None) -> GroupCells:
    """The whole cells of all groups; anything else is refused."""
    vectors = []
    for g in range(len(groups.rules)):
        cells = read_integers(folder / group_file(g), "count", groups.grouping.cells(g))
        zeros = groups.zeros(g)
        if cells.dtype != np.int64 or (cells < 0).any():
            raise WrongError(f"the cells of group {g + 1} are not non-negative whole numbers")
        if zeros is not None and cells[zeros].any():
            raise WrongError("a cell that no row can lie in is not zero")
        if total is not None and cells.sum() != total:
            raise WrongError(f"group {g + 1} adds up to {cells.sum():,}, and not to {total:,}")
        vectors.append(cells)
    return GroupCells(groups.grouping, tuple(vectors))


def check_groups(
    views: Views, groups: PublishedGroups, whole: GroupCells, stored: GroupCells, facts: Any
) -> str:
    """Refuse groups that are not those of the questions, or not what the noisy integers give."""
    fit = GroupedFit(
        stored,
        facts["total"],
        tuple((each["steps"], each["gap"]) for each in facts["groups"]),
        facts["sweeps"],
    )
    disagreement = disagreement_facts(whole)
    sure = {**groups.facts(fit), "left_out": groups.left_out}
    if {**facts, "disagreement": None} != {**sure, "disagreement": None}:
        raise WrongError("the manifest says something else of the groups than their rule")
    _check_total(views, groups, facts["total"])
    typical = disagreement.pop("root_mean_square"), facts["disagreement"]["root_mean_square"]
    recorded = {k: v for k, v in facts["disagreement"].items() if k != "root_mean_square"}
    if disagreement != recorded or not abs(typical[0] - typical[1]) <= 1e-6:
        raise WrongError("groups are not as far apart as is recorded")
    anew, words = rounded(stored, facts["total"]), []
    for g, (z, x) in enumerate(zip(whole.vectors, stored.vectors, strict=True)):
        zeros = groups.zeros(g)
        if (x < 0).any() or (zeros is not None and x[zeros].any()):
            raise WrongError(
                "the estimate is below zero somewhere, or not zero where no row can be"
            )
        words.append(_group_near(groups, g, z, x, anew.vectors[g]))
    near = max(words, key=lambda pair: pair[0])[1]
    apart = f"groups are at most {disagreement['largest']:,} rows apart, as recorded"
    return f"{apart}; {near}; {_groups_again(views, groups, stored, facts)}"


def _check_total(views: Views, groups: PublishedGroups, total: int | None) -> None:
    """Refuse another total than the public one, or than least squares give."""
    rows, public = total_of(views.estimate), groups.job.file.total
    if public is not None or rows is None:
        right = total == public
    else:
        right = total is not None and abs(max(0.0, rows) - total) <= 0.5 + TOTAL_TOLERANCE
    if not right:
        raise WrongError("the total of all groups is not that of the noisy integers")


def _group_near(
    groups: PublishedGroups, group: int, whole: Array, stored: Array, anew: Array
) -> tuple[float, str]:
    """Refuse cells of a group that are no good rounding; else say how near they are."""
    kept = groups.grouping.kept(group)
    gaps = RoundingGaps.of(whole, stored, kept)
    again = RoundingGaps.of(anew, stored, kept)
    text = _answers_near(kept, gaps, again)
    cell, other = (float(np.abs(z - stored).max()) for z in (whole, anew))
    most = max(1.0, other) + NEIGHBOUR
    if not cell <= most:
        raise ReleaseError(
            f"a cell is {cell:,.2f} from the estimate; rounding moves it by up to "
            f"{max(1.0, other):,.2f}, and {most:,.2f} is allowed"
        )
    return gaps.typical, f"{text}; every cell within {cell:.2f} (allowed: {most:.2f})"


def _groups_again(
    views: Views, groups: PublishedGroups, stored: GroupCells, facts: dict[str, Any]
) -> str:
    """Refuse cells that are not what the noisy integers give, worked out again."""
    if groups.cells > MOST_REFITTED_CELLS:
        return (
            f"over {MOST_REFITTED_CELLS:,} cells the estimate is not worked out again: that it is "
            "what the noisy integers give was NOT checked"
        )
    again = groups.fit(views.estimate, facts).cells
    gap = grouped_answers(stored) - grouped_answers(again)
    shares = gap / np.maximum(views.stderr, 1e-9)
    typical = float(np.sqrt(np.mean(shares[views.published_rows] ** 2)))
    if not typical <= ESTIMATE_TOLERANCE:
        raise ReleaseError(
            f"the estimate is typically {typical:.2g} standard errors from what the noisy integers "
            f"give, worked out again; {ESTIMATE_TOLERANCE} is allowed"
        )
    return (
        f"the estimate of {len(groups.rules)} groups, worked out again, is typically within "
        f"{typical:.1g} standard errors (allowed: {ESTIMATE_TOLERANCE})"
    )
