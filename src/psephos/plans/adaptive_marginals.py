"""Tables of few attributes that a model answers badly, measured one after another.

After AIM (McKenna, Mullins, Sheldon and Miklau 2022): one-way tables first, then, round by round, a
private choice of the table that the model of all attributes is farthest from, a measurement of it,
and a new model of maximum entropy (psephos.infer.graphical_model). What is different here:

- *Groups of values.* One-way tables go by all values, all others by groups of values of about equal
  noisy counts, the coarser the less can be spent on a table. Noise then falls on few numbers, and
  the junction tree stays small enough for tables of nearly all pairs that matter.
- *A model that is held back* to independent attributes as far as noise makes it want to leave them.
- *Choices by whole numbers.* The score of a table is Σ|count - guess|, less what noise would add to
  it were it measured, times its weight in the workload. Offsets of scores are put into guesses: a
  candidate has further rows that count nothing, and a guess for them that is wrong by the offset.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.random import Generator

from psephos.domain.domain import Domain
from psephos.errors import WorkloadError
from psephos.infer.estimate import Estimate
from psephos.infer.graphical_model import (
    GraphicalModel,
    graphical_model,
    nearest_counts,
)
from psephos.infer.junction_tree import tree_cells
from psephos.kernel.budget import Budget
from psephos.kernel.measurement import Measurement
from psephos.kernel.query import Query
from psephos.kernel.scores import FarFromIndependent
from psephos.matrix import Compose, Dense, Identity, Kron, Matrix, Partition
from psephos.matrix.kron import AxisTotals, NamedFactors
from psephos.matrix.marginals import Axes
from psephos.plans.registry import plan
from psephos.plans.session import PlanVector, choice_spend
from psephos.values import Array
from psephos.variances import NoiseKind
from psephos.workload.product import rounded_weight
from psephos.workload.workload import Workload

ONE_WAY_SHARE = "1/4"
"""Of the budget, for one-way tables."""
CHOICE_SHARE = "1/20"
"""Of what is left, for choices."""
ROUNDS_PER_ATTRIBUTE = 3
MODEL_TREE_CELLS = 1 << 17
"""The most cells of the junction tree's cliques."""
GROUP_ROWS = 1.0
"""Groups of values have √(this · rows · σ) rows or more."""
MOST_CANDIDATE_TABLES = 1000
WEIGHT_STEPS = 16
"""Weights of candidates are whole numbers up to this."""
NOISE_SHARE = 0.7
"""Of the mean size of noise, what is left of it in a model that holds back."""
MEAN_SIZE = NOISE_SHARE * math.sqrt(2 / math.pi)
"""The mean size of noise in a number of a model, in standard deviations."""
ROUND_STEPS, LAST_STEPS = 40, 200
"""Steps of a fit after each round, and after the last."""


@plan(
    "AdaptiveMarginals",
    signature="SM LM I:(SPB LM ME)",
    reference="after McKenna, Mullins, Sheldon and Miklau 2022",
    adaptive=True,
    most_cells=None,
)
def adaptive_marginals(
    vector: PlanVector,
    workload: Workload,
    budget: Budget,
    *,
    rounds: int | None = None,
    cells: int = MODEL_TREE_CELLS,
) -> Estimate:
    """Many attributes, tables of few of them, and a model of them all to draw rows from."""
    domain = workload.domain
    number = _whole("rounds", ROUNDS_PER_ATTRIBUTE * len(domain) if rounds is None else rounds)
    cells = _whole("cells", cells)
    scopes = [tuple(axis for axis, _ in workload.kron(i).active) for i in _products(workload)]
    alone = sorted({axis for axes in scopes for axis in axes})
    if not alone:
        return graphical_model(vector.measure(_table(domain, {}), spend=budget))
    ones = _one_way_tables(domain, alone, budget)
    candidates = _candidates(workload, scopes)
    if not candidates:
        return graphical_model(vector.measure(ones, spend=budget))
    measured = [vector.measure(ones, spend=budget * ONE_WAY_SHARE)]
    model = graphical_model(measured)
    choosing = vector.left * CHOICE_SHARE / number
    measuring = vector.left / number - choosing
    groups = _groups(measured[0], alone, model.total, _deviation(measuring))
    search = _Search(domain, groups, candidates, cells)
    for left in reversed(range(number)):
        fitting = search.fitting(vector.public_random(f"candidates {left}"))
        if not fitting:
            break
        score = search.score(fitting, model, _deviation(measuring))
        axes = fitting[vector.choose(score, spend=choice_spend(choosing))]
        measured.append(
            vector.measure(search.table(axes), spend=measuring if left else vector.left)
        )
        search = search.after(axes)
        model = graphical_model(measured, start=model, steps=ROUND_STEPS if left else LAST_STEPS)
    if vector.left.amount:  # no table fits into the tree any more
        measured.append(vector.measure(ones, spend=vector.left))
        model = graphical_model(measured, start=model)
    return model


@dataclass(frozen=True, eq=False)
class _Search:
    """The tables that may be measured, by groups of values, and those that were."""

    domain: Domain
    groups: tuple[Partition | None, ...]
    """Of every attribute; None where each value is its own."""
    weights: Mapping[Axes, int]
    """Of every candidate."""
    cells: int
    measured: tuple[Axes, ...] = ()

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """How many groups, or values, every attribute has."""
        pairs = zip(self.groups, self.domain.shape, strict=True)
        return tuple(n if p is None else p.shape[0] for p, n in pairs)

    def fitting(self, order: Generator) -> list[Axes]:
        """Candidates that leave the junction tree small enough; some of them, if there are many."""
        some = list(self.weights)
        if len(some) > MOST_CANDIDATE_TABLES:
            drawn = order.choice(len(some), MOST_CANDIDATE_TABLES, replace=False)
            some = [some[k] for k in sorted(drawn.tolist())]
        return [
            axes
            for axes in some
            if min(self.shape[a] for a in axes) > 1
            and tree_cells(self.shape, [*self.measured, axes]) <= self.cells
        ]

    def after(self, axes: Axes) -> _Search:
        """The search when a table has been measured."""
        return replace(self, measured=(*self.measured, axes))

    def table(self, axes: Axes) -> Kron:
        """The table of some attributes, by their values or groups."""
        return _table(self.domain, {a: self._factor(a) for a in axes})

    def score(
        self, candidates: Sequence[Axes], model: GraphicalModel, deviation: float
    ) -> FarFromIndependent:
        """How far each table is from the model, beyond what noise would add to it."""
        sizes = [math.prod(self.shape[a] for a in axes) for axes in candidates]
        weights = [self.weights[axes] for axes in candidates]
        noise = [round(w * MEAN_SIZE * deviation * n) for w, n in zip(weights, sizes, strict=True)]
        matrices, guesses = [], []
        for axes, weight, expected in zip(candidates, weights, noise, strict=True):
            first, *others = axes
            factors = {first: self._scored(first, weight)} | {a: self._factor(a) for a in others}
            matrices.append(_table(self.domain, factors))
            guess = np.rint(
                weight * model.grouped_table(axes, [self._group_numbers(a) for a in axes])
            ).astype(np.int64)
            offset = np.zeros(guess[:1].shape, dtype=np.int64)
            offset.flat[0] = max(noise) - expected
            guesses.append(np.concatenate([guess, offset]).ravel())
        return FarFromIndependent(tuple(matrices), tuple(guesses))

    def _group_numbers(self, axis: int) -> Array:
        groups = self.groups[axis]
        return np.arange(self.domain.shape[axis]) if groups is None else groups.groups

    def _factor(self, axis: int) -> Matrix:
        groups = self.groups[axis]
        return Identity(self.domain.shape[axis]) if groups is None else groups

    def _scored(self, axis: int, weight: int) -> Matrix:
        """As `_factor`, times a weight, and a last row that counts nothing."""
        n = self.shape[axis]
        rows = Dense(np.vstack([weight * np.eye(n, dtype=np.int64), np.zeros((1, n), np.int64)]))
        groups = self.groups[axis]
        return rows if groups is None else Compose((rows, groups))


def _products(workload: Workload) -> range:
    return range(len(workload.products))


def _candidates(workload: Workload, scopes: Sequence[Axes]) -> dict[Axes, int]:
    """All pairs of attributes that are asked about together, weighted by how often."""
    weights: dict[Axes, float] = {}
    for axes, product in zip(scopes, workload.products, strict=True):
        for pair in combinations(axes, 2):
            weights[pair] = weights.get(pair, 0.0) + product.weight
    largest = max(weights.values(), default=1.0)
    steps = {pair: max(1, round(WEIGHT_STEPS * w / largest)) for pair, w in weights.items()}
    common = math.gcd(*steps.values()) if steps else 1
    return {pair: step // common for pair, step in steps.items()}


def _one_way_tables(domain: Domain, axes: Sequence[int], budget: Budget) -> Query:
    """The tables of single attributes, weighted for the least sum of the sizes of all noise."""
    power = 2 / 3 if NoiseKind.paid_in(budget.currency) is NoiseKind.GAUSSIAN else 1 / 2
    return Query.of(
        [
            (
                _table(domain, {a: Identity(domain.shape[a])}),
                rounded_weight(domain.shape[a] ** power),
            )
            for a in axes
        ]
    )


def _groups(
    ones: Measurement, axes: Sequence[int], rows: float, deviation: float
) -> tuple[Partition | None, ...]:
    """Neighbouring values in groups of many rows, or one value alone that has as many."""
    domain = ones.domain
    least = math.sqrt(GROUP_ROWS * rows * deviation)
    ends = np.cumsum([domain.shape[a] for a in axes])[:-1]
    groups: list[Partition | None] = [None] * len(domain)
    for a, values in zip(axes, np.split(ones.values.astype(float), ends), strict=True):
        numbers = grouped_values(nearest_counts(values, rows), least)
        groups[a] = None if int(numbers.max()) + 1 == values.size else Partition(numbers)
    return tuple(groups)


def grouped_values(counts: Array, least: float) -> Array:
    """The group of every value: groups have this many rows, but where a large value ends them.

    >>> grouped_values(np.array([1.0, 1.0, 1.0, 9.0, 1.0, 0.0]), 2.0)
    array([0, 0, 1, 2, 3, 3])
    """
    groups, group, inside = np.zeros(counts.size, dtype=np.int64), 0, 0.0
    for value, count in enumerate(counts.tolist()):
        if value and (inside >= least or count >= least):
            group, inside = group + 1, 0.0
        groups[value] = group
        inside += count
    return groups


def _deviation(spend: Budget) -> float:
    """The standard deviation of the noise in a table that gets this spend, a row counting once."""
    if spend.currency == "rho":
        return math.sqrt(1 / (2 * float(spend.amount)))
    return math.sqrt(2) / float(spend.amount)


def _table(domain: Domain, factors: Mapping[int, Matrix]) -> Kron:
    return Kron(NamedFactors.of(AxisTotals(domain.shape), factors))


def _whole(name: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise WorkloadError(f"{name} is a whole number from 1, got {value!r}")
    return value
