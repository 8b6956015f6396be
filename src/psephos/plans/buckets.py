"""Plans that spend a part of their budget on where counts are alike: AHP, DAWA, stripes, grids.

A partition makes few groups of many cells, the groups are measured, and every cell gets its share.
Where counts are uneven inside of a group that is wrong, so these estimates are biased; where data
are sparse or smooth, the noise saved is worth far more.
"""

from __future__ import annotations

import math

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import BudgetError, TooLargeError, WorkloadError
from psephos.infer import expanded
from psephos.infer.estimate import Estimate
from psephos.kernel.budget import Budget, NoiseKind
from psephos.kernel.query import Query
from psephos.kernel.scores import WholePartitions
from psephos.matrix import Compose, Dense, DirectSum, Identity, Matrix, Partition, total
from psephos.plans import partitions
from psephos.plans.fixed import hb_matrix, longest_attribute
from psephos.plans.registry import plan
from psephos.plans.session import PlanVector, shares
from psephos.strategy import select
from psephos.values import Array
from psephos.workload.product import Product
from psephos.workload.query_sets import MatrixQueries
from psephos.workload.workload import Workload

AHP_SHARE, AHP_THRESHOLD = "17/20", 0.35
"""The share of the budget that finds clusters, and the threshold in units of ln(n)/ε."""
DAWA_SHARE = "1/4"
TOTAL_SHARE = "1/20"
"""What a noisy number of rows gets of the budget where none is declared."""
GRID_CELLS, FINE_CELLS = 10.0, 5.0
"""Qardaji, Yang and Li 2013: a grid has N·ε/10 cells, a part of one n·ε/5."""
WRITTEN_ENTRIES = 3 * 10**7
"""The most entries of a workload on buckets that is written out."""
GREEDY_BUCKETS = 256
"""Stripes of more buckets get HB, whose tree takes no search."""


@plan(
    "AHP",
    signature="PA TR SI LM LS",
    reference="Zhang, Chen, Xu, Meng and Xie 2014",
    when="many cells of few different counts, in no order; single cells are asked",
    adaptive=True,
)
def ahp(
    vector: PlanVector, workload: Workload, budget: Budget, *, share: str = AHP_SHARE,
    threshold: float = AHP_THRESHOLD,
) -> Estimate:
    first, second = shares(_epsilon(budget, "AHP"), share)
    cells = vector.measure(Identity(vector.size), spend=first)
    groups = partitions.clusters(_above(cells, threshold), _spread(second))
    counts = vector.reduce(groups).measure(Identity(groups.shape[0]), spend=second)
    return expanded([_on_groups(cells, groups), counts])


@plan(
    "DAWA",
    signature="PD TR SG LM LS",
    reference="Li, Hay, Miklau and Wang 2014",
    when="ranges over sparse or smooth data: one long attribute, or a map",
    adaptive=True,
)
def dawa(
    vector: PlanVector, workload: Workload, budget: Budget, *, share: str = DAWA_SHARE,
    lengths: str = "dyadic",
) -> Estimate:
    first, second = shares(_epsilon(budget, "DAWA"), share)
    shape = vector.domain.shape
    line = partitions.along_curve(shape) if len(shape) == 2 else np.arange(vector.size)
    ordered = vector if len(shape) != 2 else vector.transform(Partition(np.argsort(line)))
    cuts = ordered.partition(WholePartitions(lengths=lengths), spend=first)
    buckets = _moved(cuts, line)
    strategy = select.greedy_h(on_buckets(workload, buckets), NoiseKind.LAPLACE)
    return expanded(vector.reduce(buckets).measure(strategy, spend=second))
