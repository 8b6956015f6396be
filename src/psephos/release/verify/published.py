"""Are published numbers a rounding of an estimate, and is that what the noisy integers give?

Published numbers must be a rounding of an estimate x of all cells, which is in the bundle, and that
estimate must be the one that the noisy integers give. It is worked out again by the rule that made
it, which also chooses its prior and how many steps are taken. What the manifest says was chosen is
a claim: it is believed where the estimated risks of two choices are within 1 % of each other, since
the last digits of floats decide there, and refused elsewhere. Iterations end within a stated
distance of their limit, on any machine, so x is compared to that distance: all numbers together,
and each by itself.

Which of many good roundings z of x is found turns on the last digit of
floats. So z is compared with x itself, by what rounding guarantees (a cell moves to one of its two
whole neighbours) and by what it reaches: the gaps of the tables' numbers are held against those of
x rounded anew.

Where tables are in groups, all this is done for each group. Its sum has to be the common total. For
the sake of that and of tables that groups share, cells may have moved by more than one: as far as
they do when rounded anew, and one more. Whole numbers of different groups have to be as far apart
as the manifest says.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from psephos.errors import ReleaseError
from psephos.infer.group_cells import rounded
from psephos.infer.nonnegative import GAP
from psephos.infer.rounding import RoundingGaps, round_cells
from psephos.release.verify.files import check_facts
from psephos.release.verify.verification import WrongError
from psephos.release.views.published_groups import PublishedGroups
from psephos.release.views.published_numbers import PublishedGroupCells, PublishedNumbers
from psephos.release.views.views import Views
from psephos.values import Array
from psephos.workload.workload import Workload

NEIGHBOUR = 1.25
"""How far a cell may be from the best fit: rounding moves it by one at most."""
FACTOR = 2.0
"""How many times further numbers may be from the best fit than those of its rounding anew."""
TYPICAL, NUMBER = 0.5, 2.0
"""What is allowed on top, for the root mean square of the gaps and for the largest of a table."""
ESTIMATE_TOLERANCE, NUMBER_TOLERANCE = 0.02, 0.1
"""Of standard errors: how far tables of the estimate may be from those of its recomputation, as a
root mean square and in a single number."""
CELL_TOLERANCE = 1e-6
"""Of the largest cell: how far those of a plan may be from their recomputation."""


def check_published(views: Views, shown: PublishedNumbers, facts: dict[str, Any]) -> str:
    """Refuse published cells that are not what the noisy integers give; else say how near.

    Args:
        views: the numbers worked out again
        shown: those of the bundle
        facts: what the manifest says of them
    """
    cells, again = shown.vectors, views.published
    for g, (whole, real) in enumerate(cells):
        _check_vector(views, g, whole, real, facts.get("total"))
    if isinstance(shown, PublishedGroupCells) and isinstance(again, PublishedGroupCells):
        groups = again.groups
        _check_claim(facts, {**groups.facts(again.fit), "left_out": groups.left_out})
        check_facts(facts["disagreement"], shown.facts["disagreement"], "disagreement")
        rounding = _groups_near(again, shown)
        return f"{rounding} {_check_gaps(views, shown.unrounded - again.unrounded)}"
    adaptive = views.estimate.least_squares is None
    if adaptive and facts != again.facts:
        raise WrongError("the manifest says something else of the published view than its plan")
    if not cells:
        return ""
    if adaptive:
        near = _check_plan_cells(cells[0].real, again.vectors[0].real)
    else:
        _check_claim(facts, again.facts)
        near = _check_gaps(views, shown.unrounded - again.unrounded)
        method, steps = facts["method"], again.facts["steps"]
        near = f"the {method} estimate, worked out again in {steps} steps, is {near}"
    return f"{check_rounding(views, *cells[0])}; {near}"


def _check_vector(views: Views, number: int, whole: Array, real: Array, total: int | None) -> None:
    """Refuse cells where no row can be, below zero, or of another total than all groups have."""
    groups, name = views.groups, "the cells"
    zeros = views.job.zeros
    if groups is not None:
        zeros, name = groups.zeros(number), f"group {number + 1}"
        if total is not None and whole.sum() != total:
            raise WrongError(f"{name} adds up to {whole.sum():,}, and not to {total:,}")
    if (whole < 0).any():
        raise WrongError(f"{name} are not non-negative whole numbers, one for each")
    if zeros is not None and whole[zeros].any():
        raise WrongError("a cell that no row can lie in is not zero")
    if (real < 0).any() or (zeros is not None and real[zeros].any()):
        raise WrongError("the estimate is below zero somewhere, or not zero where no row can be")


def _check_claim(claim: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Refuse words on an estimate that are not those of its rule on these noisy integers."""
    for key, fact in facts.items():
        said = claim.get(key)
        if key == "groups":
            for each, other in zip(claim["groups"], fact, strict=True):
                _check_claim(each, other)
            continue
        if key == "gap":  # iterations end elsewhere on other machines, and as near
            right = said is not None and abs(said - fact) <= max(GAP, fact / 2)
        else:  # so are those of least squares more or fewer there, and nothing follows from them
            right = said == fact or (key == "steps" and facts["method"] == "least squares")
        if not right:
            raise WrongError(
                f"the manifest says that {key} of the published view is {said!r:.60}; by the rule "
                f"of a release, the noisy integers lead to {fact!r:.60}"
            )


def _check_gaps(views: Views, gaps: Array) -> str:
    """Refuse an estimate whose tables differ from those of its recomputation by these gaps."""
    shares = np.abs(gaps) / np.maximum(views.stderr, 1e-9)
    typical = float(np.sqrt(np.mean(shares[views.published_rows] ** 2)))
    if not typical <= ESTIMATE_TOLERANCE:
        raise ReleaseError(
            f"the estimate is typically {typical:.2g} standard errors from what the noisy integers "
            f"give, worked out again; {ESTIMATE_TOLERANCE} is allowed"
        )
    largest = 0.0
    for table in views.published_tables:
        largest = max(largest, float(shares[table.rows(views.job.workload)].max()))
        if not largest <= NUMBER_TOLERANCE:
            raise ReleaseError(
                f"a number of {table.name!r} is {largest:.2g} standard errors from what the noisy "
                f"integers give, worked out again; {NUMBER_TOLERANCE} is allowed"
            )
    return (
        f"typically within {typical:.1g} standard errors (allowed: {ESTIMATE_TOLERANCE}), and "
        f"within {largest:.1g} everywhere (allowed: {NUMBER_TOLERANCE})"
    )


def _check_plan_cells(stored: Array, again: Array) -> str:
    """Refuse cells that are not what the plan's steps, taken again, give."""
    gap = float(np.abs(stored - again).max()) / max(1.0, float(np.abs(again).max()))
    if not gap <= CELL_TOLERANCE:
        raise WrongError(
            f"the estimate is up to {gap:.2g} of its largest cell from what the plan's steps give; "
            f"{CELL_TOLERANCE} is allowed"
        )
    return f"the plan's estimate, worked out again, is within {gap:.1g} of its largest cell"


def check_rounding(views: Views, cells: Array, stored: Array) -> str:
    """Refuse cells that are no good rounding of the stored estimate; else say how near they are."""
    workload = views.job.workload
    rounded = round_cells(stored, workload)
    gaps, again = (RoundingGaps.of(z, stored, workload) for z in (cells, rounded))
    return f"{_answers_near(workload, gaps, again)}; {_cells_near(gaps)}"


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


def _cells_near(gaps: RoundingGaps) -> str:
    """Refuse cells that are no neighbours of the estimate."""
    if not gaps.group <= NEIGHBOUR:
        raise ReleaseError(
            f"a cell, or cells that no question tells apart, are {gaps.group:,.2f} from the "
            f"estimate; rounding moves them by 1, and {NEIGHBOUR} is allowed"
        )
    if not gaps.share <= NEIGHBOUR:
        raise ReleaseError(
            f"a cell is {gaps.share:,.2f} from its share of the estimate; "
            f"rounding moves it by 1, and {NEIGHBOUR} is allowed"
        )
    return f"every cell within {max(gaps.group, gaps.share):.2f} (allowed: {NEIGHBOUR})"


def _groups_near(fit: PublishedGroupCells, shown: PublishedGroupCells) -> str:
    """Refuse groups that are no good rounding of their estimates; else the least good of them."""
    anew = rounded(shown.fit.cells, fit.fit.total)
    words = [
        _group_near(fit.groups, g, whole, real, anew.vectors[g])
        for g, (whole, real) in enumerate(shown.vectors)
    ]
    rounding = max(words, key=lambda pair: pair[0])[1]
    return (
        f"groups are at most {shown.facts['disagreement']['largest']:,} rows apart, as recorded; "
        f"{rounding}; the estimate of {len(words)} groups, worked out again, is"
    )


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
