"""PrivBayes: which attributes depend on which, found privately, and their tables.

Zhang, Cormode, Procopiuc, Srivastava and Xiao 2014. Attributes are added one after the other, each
with the parents, among those before it, whose joint table is farthest from independent. The paper
scores by shares of the true number of rows; here the guess of an independent table comes from noisy
one-way tables, which are measured first, so that a score is a whole number which a row moves by one
(`ps.FarFromIndependent`). Tables are kept as large as the noise lets them be of use.
"""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import BudgetError
from psephos.infer import expanded
from psephos.infer.estimate import CellEstimate, Estimate
from psephos.inverse.form import check_vector
from psephos.kernel.budget import Budget
from psephos.kernel.measurement import Measurement
from psephos.kernel.query import Query
from psephos.kernel.scores import FarFromIndependent
from psephos.matrix import Identity, Kron
from psephos.matrix.kron import AxisTotals, NamedFactors
from psephos.plans.registry import plan
from psephos.plans.session import PlanVector, positive_option, shares
from psephos.values import Array
from psephos.workload.workload import Workload

FIRST_SHARE, NETWORK_SHARE = "1/5", "3/10"
"""Of the budget: for one-way tables, and for the choice of parents; the rest is for the tables."""
USEFULNESS = 4.0
"""Rows per cell, in units of the noise, that a table should have on average."""
MOST_CANDIDATES = 2_000
MOST_PARENTS = 3

AttributeFamily = tuple[int, tuple[int, ...]]
"""An attribute and its parents, by their places in the domain."""


@plan(
    "PrivBayesLS",
    signature="SPB LM LS",
    reference="Zhang et al. 2020, section 9.2",
    adaptive=True,
)
def privbayes_ls(
    vector: PlanVector, workload: Workload, budget: Budget, *, usefulness: float = USEFULNESS
) -> Estimate:
    """Many attributes, tables of a few of them; HDMM is better where its tables are small."""
    measured, _ = _tables(vector, budget, usefulness)
    return expanded(measured)


@plan(
    "PrivBayes",
    signature="SPB LM",
    reference="Zhang, Cormode, Procopiuc, Srivastava and Xiao 2014",
    adaptive=True,
)
def privbayes(
    vector: PlanVector, workload: Workload, budget: Budget, *, usefulness: float = USEFULNESS
) -> Estimate:
    """The distribution of all attributes at once, from a network of noisy tables."""
    check_vector(vector.domain.size)
    measured, families = _tables(vector, budget, usefulness)
    cells = _product_of_conditionals(vector.domain, measured[-1], families)
    return CellEstimate(vector.domain, cells, "Bayesian network", measured[0].simulation)


def _tables(
    vector: PlanVector, budget: Budget, usefulness: float
) -> tuple[list[Measurement], list[AttributeFamily]]:
    """One-way tables, then the tables of a network that is chosen by them."""
    if budget.currency != "epsilon":
        raise BudgetError(f"PrivBayes chooses parents, which is paid in epsilon, got {budget}")
    positive_option("usefulness", usefulness)
    first, choosing, rest = shares(budget, FIRST_SHARE, NETWORK_SHARE)
    domain = vector.domain
    d = len(domain.shape)
    if d == 1:  # nothing to choose
        first, rest = budget / 5, budget - budget / 5
    ones = vector.measure(_tables_of(domain, [(i,) for i in range(d)]), spend=first)
    margins = np.split(ones.values, np.cumsum(domain.shape)[:-1])
    rows = max(1.0, float(np.mean([table.sum() for table in margins])))
    most = rows * float(rest.amount) / (usefulness * d)
    families = _network(vector, choosing, domain, margins, rows, most)
    tables = vector.measure(
        _tables_of(domain, [tuple(sorted((i, *p))) for i, p in families]), spend=rest
    )
    return [ones, tables], families


def _network(
    vector: PlanVector,
    budget: Budget,
    domain: Domain,
    margins: list[Array],
    rows: float,
    most: float,
) -> list[AttributeFamily]:
    """Every attribute with its parents, in the order in which they were added."""
    d = len(domain.shape)
    order = vector.public_random("the first attribute")
    added = [int(order.integers(d))]
    families: list[AttributeFamily] = [(added[0], ())]
    shape = domain.shape
    for _ in range(d - 1):
        pairs = _candidates(shape, added, most)
        kept = order.permutation(len(pairs))[:MOST_CANDIDATES]
        pairs = [pairs[k] for k in sorted(kept.tolist())]
        tables = [tuple(sorted((i, *p))) for i, p in pairs]
        guesses = tuple(_independent(margins, axes, rows) for axes in tables)
        matrices = tuple(_marginal(shape, axes) for axes in tables)
        spend = budget / (d - 1)
        chosen = vector.choose(FarFromIndependent(matrices, guesses), spend=spend)
        families.append(pairs[chosen])
        added.append(pairs[chosen][0])
    return families


def _candidates(shape: tuple[int, ...], added: list[int], most: float) -> list[AttributeFamily]:
    """Attributes not yet added, with as many parents as a useful table has room for."""
    pairs: list[AttributeFamily] = []
    for i in range(len(shape)):
        if i in added:
            continue
        fitting: list[tuple[int, ...]] = []
        for k in range(min(MOST_PARENTS, len(added)), -1, -1):
            for parents in combinations(sorted(added), k):
                cells = shape[i] * math.prod(shape[p] for p in parents)
                if (cells <= most or k == 0) and not any(set(parents) < set(f) for f in fitting):
                    fitting.append(parents)
        pairs += [(i, parents) for parents in fitting]
    return pairs


def _independent(margins: list[Array], axes: tuple[int, ...], rows: float) -> Array:
    """The table of independent attributes, in whole numbers."""
    table = np.array([rows])
    for i in axes:
        share = np.maximum(margins[i], 0.0)
        share = share / share.sum() if share.sum() > 0 else np.full(share.size, 1 / share.size)
        table = np.multiply.outer(table, share).ravel()
    return np.asarray(np.rint(table), dtype=np.int64)


def _product_of_conditionals(
    domain: Domain, tables: Measurement, families: list[AttributeFamily]
) -> Array:
    """Cells by the chain rule: each attribute given its parents, from its own table."""
    shape = domain.shape
    noisy = np.split(
        tables.values.astype(float),
        np.cumsum([b.matrix.shape[0] for b in tables.query.blocks])[:-1],
    )
    cells = np.ones(shape)
    total_rows = 0.0
    for (i, parents), values in zip(families, noisy, strict=True):
        axes = tuple(sorted((i, *parents)))
        table = np.maximum(values, 0.0).reshape([shape[a] for a in axes])
        if not parents:
            total_rows = total_rows or float(table.sum())
        given = table.sum(axis=axes.index(i), keepdims=True)
        share = np.divide(table, given, out=np.full_like(table, 1 / shape[i]), where=given > 0)
        cells = cells * share.reshape([n if a in axes else 1 for a, n in enumerate(shape)])
    return np.asarray(total_rows * cells).ravel()


def _tables_of(domain: Domain, sets: list[tuple[int, ...]]) -> Query:
    return Query.of([(_marginal(domain.shape, axes), 1) for axes in sets])


def _marginal(shape: tuple[int, ...], axes: tuple[int, ...]) -> Kron:
    return Kron(NamedFactors.of(AxisTotals(shape), {i: Identity(shape[i]) for i in axes}))
