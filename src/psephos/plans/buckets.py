"""Plans that spend a part of their budget on where counts are alike: AHP, DAWA, stripes, grids.

A partition makes few groups of many cells, the groups are measured, and every cell gets its share.
Where counts are uneven inside of a group that is wrong, so these estimates are biased; where data
are sparse or smooth, the noise saved is worth far more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, get_args

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import TooLargeError, WorkloadError, name_list
from psephos.infer import expanded, least_squares, thresholded
from psephos.infer.estimate import CellEstimate, Estimate
from psephos.kernel.budget import Budget
from psephos.kernel.measurement import Measurement
from psephos.kernel.query import Query
from psephos.kernel.scores import PrivTree, WholePartitions
from psephos.kernel.scores.deviations import LARGEST_PENALTY
from psephos.matrix import Compose, Dense, DirectSum, Identity, Matrix, Partition, Scaled
from psephos.plans.fixed import hb_matrix, longest_attribute
from psephos.plans.partitions import along_curve, boxes, clusters, grid, refined, stripes
from psephos.plans.registry import plan
from psephos.plans.session import PlanVector, check_epsilon, known_rows, positive_option, shares
from psephos.strategy import select
from psephos.strategy.strategy import Strategy
from psephos.values import Array
from psephos.variances import NoiseKind
from psephos.workload.product import Product
from psephos.workload.query_sets import MatrixQueries
from psephos.workload.workload import Workload

AHP_SHARE, AHP_THRESHOLD = "17/20", 0.35
"""The share of the budget that finds clusters, and the threshold in units of ln(n)/ε."""
DAWA_SHARE = "1/4"
BucketSearch = Literal["tree", "aligned", "dyadic", "all"]
"""How buckets are looked for: `ps.PrivTree`, along a Hilbert curve a quadtree, or
`ps.WholePartitions` into intervals of these lengths. The tree was best on most public data."""
BucketSelector = Literal["greedy_h", "hdmm"]
SELECTORS: Mapping[BucketSelector, Callable[[Workload], Strategy]] = {
    "greedy_h": lambda workload: select.greedy_h(workload, NoiseKind.LAPLACE),
    "hdmm": lambda workload: select.hdmm(workload, NoiseKind.LAPLACE, restarts=1),
}
"""What is measured of buckets: DAWA's own choice, or one that errs a little less and takes seconds
from a thousand buckets on."""
CUT_PENALTY = 1.4
"""What an aligned interval costs, in units of 2/ε: hardly above ln 4, from where on the whole of
equal counts is likelier than all ways to cut it (`kernel/scores/whole_partitions`)."""
GRID_CELLS, FINE_CELLS = 10.0, 5.0
"""Qardaji, Yang and Li 2013: a grid has N·ε/10 cells, a part of one n·ε/5."""
BUCKET_ENTRIES = 3 * 10**7
"""The most entries of a workload on buckets that is written out."""
STRIPE_PIECES = 32
"""Into how many pieces of one length stripes are cut at least: a cut has its price in rows, so that
stripes of a few hundred rows would be one bucket. 16 to 64 did well on made-up incomes."""
NORM_STEPS = 64
"""Norms of stripes are equal up to this share of the largest."""
GREEDY_BUCKETS = 256
"""Stripes of more buckets get HB, whose tree takes no search."""


@plan(
    "AHP",
    signature="PA TR SI LM LS",
    reference="Zhang, Chen, Xu, Meng and Xie 2014",
    adaptive=True,
)
def ahp(
    vector: PlanVector,
    workload: Workload,
    budget: Budget,
    *,
    share: str = AHP_SHARE,
    threshold: float = AHP_THRESHOLD,
) -> Estimate:
    """Many cells of few different counts, in no order; single cells are asked."""
    first, second = shares(_epsilon(budget, "AHP"), share)
    positive_option("threshold", threshold)
    cells = vector.measure(Identity(vector.size), spend=first)
    groups = clusters(thresholded(cells, eta=threshold).vector, math.sqrt(2) / _rate(second))
    counts = vector.reduce(groups).measure(Identity(groups.shape[0]), spend=second)
    return _averaged(cells, counts, groups)


@plan(
    "DAWA",
    signature="PD TR SG LM LS",
    reference="Li, Hay, Miklau and Wang 2014",
    adaptive=True,
)
def dawa(
    vector: PlanVector,
    workload: Workload,
    budget: Budget,
    *,
    share: str = DAWA_SHARE,
    search: BucketSearch = "tree",
    selector: BucketSelector = "greedy_h",
) -> Estimate:
    """Ranges over sparse or smooth data: one long attribute, or a map."""
    first, second = shares(_epsilon(budget, "DAWA"), share)
    cutting = _search(first, search)
    if selector not in SELECTORS:
        raise WorkloadError(f"selector is one of {name_list(list(SELECTORS))}, got {selector!r}")
    shape = vector.domain.shape
    line = along_curve(shape) if len(shape) == 2 else np.arange(vector.size)
    ordered = vector if len(shape) != 2 else vector.transform(Partition(np.argsort(line)))
    buckets = _moved(ordered.partition(cutting, spend=first), line)
    if buckets.shape[0] * vector.size <= BUCKET_ENTRIES:
        strategy = SELECTORS[selector](on_buckets(workload, buckets)).query
    else:  # the partition is paid for, so something has to serve it
        strategy = Query.of(hb_matrix(buckets.shape[0]))
    return expanded(vector.reduce(buckets).measure(strategy, spend=second))


@plan(
    "DAWA-Striped",
    signature="PS TP[PD TR SG LM] LS",
    reference="Zhang et al. 2020, section 9.2",
    adaptive=True,
)
def dawa_striped(
    vector: PlanVector,
    workload: Workload,
    budget: Budget,
    *,
    attribute: str | None = None,
    share: str = DAWA_SHARE,
    search: BucketSearch = "tree",
    pieces: int = STRIPE_PIECES,
) -> Estimate:
    """Ranges of one attribute within combinations of the others, over sparse data."""
    first, second = shares(_epsilon(budget, "DAWA-Striped"), share)
    name = longest_attribute(workload) if attribute is None else attribute
    striped = stripes(vector.domain, name)
    line = np.argsort(striped.groups, kind="stable")  # stripe after stripe
    cutting = _search(first, search)
    cuts = vector.transform(Partition(np.argsort(line))).partition(cutting, spend=first)
    buckets = refined(_moved(cuts, line), striped, _pieces(vector.domain, name, pieces))
    strategy = _for_each_stripe(workload, name, buckets, striped)
    return expanded(vector.reduce(buckets).measure(strategy, spend=second))


@plan(
    "HB-Striped",
    signature="PS TP[SHB LM] LS",
    reference="Zhang et al. 2020, section 9.2",
)
def hb_striped(
    vector: PlanVector, workload: Workload, budget: Budget, *, attribute: str | None = None
) -> Estimate:
    """As HB-Striped_kron, which says the same in one product."""
    name = longest_attribute(workload) if attribute is None else attribute
    striped = stripes(vector.domain, name)
    line = np.argsort(striped.groups, kind="stable")
    tree = hb_matrix(vector.domain[name].size)
    each = Compose((DirectSum((tree,) * striped.shape[0]), Partition(np.argsort(line))))
    return least_squares(vector.measure(each, spend=budget))


@plan(
    "UniformGrid",
    signature="SU LM LS",
    reference="Qardaji, Yang and Li 2013",
    adaptive=True,
)
def uniform_grid(
    vector: PlanVector, workload: Workload, budget: Budget, *, rows: float | None = None
) -> Estimate:
    """Maps of evenly spread rows."""
    shape = _plane(vector.domain, "UniformGrid")
    size, budget, measured = known_rows(vector, budget, rows)
    side = max(
        1, math.floor(math.sqrt(math.prod(shape) / max(1.0, size * _rate(budget) / GRID_CELLS)))
    )
    squares = vector if side == 1 else vector.reduce(grid(shape, side))
    counts = squares.measure(Identity(squares.size), spend=budget)
    return expanded([*measured, counts])


@plan(
    "AdaptiveGrid",
    signature="SU LM LS PU TP[SA LM]",
    reference="Qardaji, Yang and Li 2013",
    adaptive=True,
)
def adaptive_grid(
    vector: PlanVector,
    workload: Workload,
    budget: Budget,
    *,
    rows: float | None = None,
    share: str = "1/2",
) -> Estimate:
    """Maps with crowded and empty parts."""
    shape = _plane(vector.domain, "AdaptiveGrid")
    size, budget, measured = known_rows(vector, budget, rows)
    first, second = shares(budget, share)
    parts = max(10, math.floor(math.sqrt(size * _rate(budget) / GRID_CELLS) / 4))
    side = max(1, math.floor(math.sqrt(math.prod(shape)) / parts))
    coarse = grid(shape, side)
    counts = vector.reduce(coarse).measure(Identity(coarse.shape[0]), spend=first)
    fine = _split_boxes(
        shape, side, np.sqrt(np.maximum(counts.values, 0) * _rate(second) / FINE_CELLS)
    )
    again = vector.reduce(fine).measure(Identity(fine.shape[0]), spend=second)
    return expanded([*measured, counts, again])


# ---- their parts ---------------------------------------------------------------------------------


def on_buckets(workload: Workload, buckets: Partition) -> Workload:
    """The workload's questions to the counts of buckets, if all cells of a bucket are alike.

    Where there are more questions than are written out, the same sum of squares stands for them:
    strategies depend on nothing else.

    >>> import psephos as ps
    >>> ages = Workload(Domain.of(age=4), [ps.product(age=ps.prefix())])
    >>> on_buckets(ages, Partition([0, 0, 0, 1])).matrix.dense().round(2)
    array([[0.33, 0.  ],
           [0.67, 0.  ],
           [1.  , 0.  ],
           [1.  , 1.  ]])
    """
    groups = buckets.shape[0]
    if groups * buckets.shape[1] > BUCKET_ENTRIES:
        raise TooLargeError(
            f"{groups:,} buckets of {buckets.shape[1]:,} cells are too many to write their "
            "questions out; merge values first, or take HB",
            groups * buckets.shape[1],
            BUCKET_ENTRIES,
        )
    even = buckets.T.matmat(np.diag(1 / np.bincount(buckets.groups)))
    if workload.shape[0] * groups <= BUCKET_ENTRIES:
        rows = workload.matrix.matmat(even)
    else:
        gram = even.T @ workload.gram().matmat(even)
        values, vectors = np.linalg.eigh((gram + gram.T) / 2)
        rows = np.sqrt(np.maximum(values, 0))[:, None] * vectors.T
    queries = MatrixQueries(Dense(rows))
    return Workload(Domain.of(bucket=groups), [Product((("bucket", queries),))])


def _for_each_stripe(
    workload: Workload, name: str, buckets: Partition, striped: Partition
) -> Matrix:
    """Greedy-H on the buckets of every stripe, for the workload's questions on the attribute."""
    size = workload.domain[name].size
    line = Domain.of(cell=size)
    factors = workload.different_factors()[workload.domain.axis(name)]
    questions = Workload(line, [Product((("cell", MatrixQueries(w)),)) for w in factors])
    cells = np.argsort(striped.groups, kind="stable").reshape(striped.shape[0], size)
    numbers = buckets.groups[cells]  # of each stripe, cell by cell
    known: dict[bytes, Matrix] = {}
    parts, places = [], []
    for row in numbers:
        different, inside = np.unique(row, return_inverse=True)
        places.append(different)
        key = inside.tobytes()
        if key not in known:
            known[key] = _tree_of(questions, Partition(inside))
        parts.append(known[key])
    order = np.empty(buckets.shape[0], dtype=np.int64)
    order[np.concatenate(places)] = np.arange(buckets.shape[0])
    return Compose((DirectSum(_with_one_norm(parts)), Partition(order)))


def _pieces(domain: Domain, name: str, count: int) -> Partition:
    """An attribute in so many pieces of about one length, whatever the others are."""
    axes = [np.zeros(n, dtype=np.int64) for n in domain.shape]
    axis = domain.axis(name)
    size = domain.shape[axis]
    axes[axis] = np.arange(size) * min(count, size) // size
    return boxes(axes)


def _with_one_norm(parts: list[Matrix]) -> tuple[Matrix, ...]:
    """Each times a whole number, so that one scale of noise suits them all.

    The noise of all stripes follows from the largest norm: a stripe with a smaller one would get
    more noise than it has to pay for.
    """
    norms = {id(part): part.sensitivity(1) for part in parts}
    aim = NORM_STEPS * max(norms.values())
    scaled = {id(part): Scaled(int(aim // norms[id(part)]), part) for part in parts}
    return tuple(scaled[id(part)] for part in parts)


def _tree_of(questions: Workload, inside: Partition) -> Matrix:
    """What is measured of one stripe's buckets."""
    count = inside.shape[0]
    if count == 1:
        return Identity(1)
    if count > GREEDY_BUCKETS:
        return hb_matrix(count)
    (block,) = select.greedy_h(on_buckets(questions, inside), NoiseKind.LAPLACE).query.blocks
    return block.matrix


def _split_boxes(shape: tuple[int, ...], side: int, parts: Array) -> Partition:
    """Every box of a grid cut into so many parts along both attributes, as evenly as can be."""
    rows, columns = (np.arange(n) for n in shape)
    across = -(-shape[1] // side)
    box = (rows // side)[:, None] * across + columns // side
    count = np.maximum(1, np.floor(parts)).astype(np.int64)[box]
    groups = box
    for n, place in ((shape[0], rows[:, None]), (shape[1], columns[None, :])):
        start = place // side * side
        length = np.minimum(side, n - start)
        fits = np.minimum(count, length)
        groups = groups * side + (place - start) * fits // length
    return boxes([groups.ravel()])


def _averaged(cells: Measurement, counts: Measurement, groups: Partition) -> Estimate:
    """Groups by both measurements, each with its variance, and an even share for every cell."""
    lengths = np.bincount(groups.groups)
    sums = np.bincount(groups.groups, cells.values)
    by_cells, by_counts = 1 / (lengths * cells.variances[0]), 1 / counts.variances[0]
    mean = (sums * by_cells + counts.values * by_counts) / (by_cells + by_counts)
    return CellEstimate(
        cells.domain, (mean / lengths)[groups.groups], "clustered", cells.simulation
    )


def _search(spend: Budget, cuts: BucketSearch) -> PrivTree | WholePartitions:
    """What looks for buckets: halving where rows are, or whole partitions into such intervals."""
    if cuts not in get_args(BucketSearch):
        raise WorkloadError(
            f"search is one of {name_list(list(get_args(BucketSearch)))}, got {cuts!r}"
        )
    if cuts == "tree":
        return PrivTree()
    penalty = min(math.ceil(CUT_PENALTY * 2 / _rate(spend)), LARGEST_PENALTY)
    return WholePartitions(penalty if cuts == "aligned" else None, cuts)


def _moved(cuts: Partition, line: Array) -> Partition:
    """Groups of places on a line as groups of cells; the line says which cell is where."""
    groups = np.empty(line.size, dtype=np.int64)
    groups[line] = cuts.groups
    return Partition(groups)


def _rate(budget: Budget) -> float:
    """ε, or for rho the ε whose Laplace noise has the variance of its Gaussian noise."""
    return (
        float(budget.amount)
        if budget.currency == "epsilon"
        else math.sqrt(4 * float(budget.amount))
    )


def _plane(domain: Domain, name: str) -> tuple[int, ...]:
    if len(domain.shape) != 2:
        raise WorkloadError(f"{name} is for two attributes, {domain} has {len(domain.shape)}")
    return domain.shape


def _epsilon(budget: Budget, name: str) -> Budget:
    check_epsilon(budget, f"{name} looks for groups of cells")
    return budget
