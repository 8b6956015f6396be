"""PrivBayes: which attributes depend on which, found privately, and their tables.

Zhang, Cormode, Procopiuc, Srivastava and Xiao 2014. Attributes are added one after the other, each
with the parents, among those before it, whose joint table is farthest from independent. The paper
scores by shares of the true number of rows; here the guess of an independent table comes from noisy
one-way tables, which are measured first, so that a score is a whole number which a row moves by one
(`ps.FarFromIndependent`). Tables are kept as large as the noise lets them be of use; an attribute
so long that no table with it would be is cut into pieces of about equal counts, by its noisy table,
and parents go by the pieces, as PrivBayes goes by levels of a taxonomy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal, get_args

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import WorkloadError, name_list
from psephos.infer import expanded
from psephos.infer.estimate import CellEstimate, Estimate
from psephos.infer.graphical_model import nearest_counts
from psephos.infer.least_squares import block_answers
from psephos.inverse.choice import precision
from psephos.inverse.form import check_vector
from psephos.inverse.least_norm import least_norm
from psephos.kernel.budget import Budget
from psephos.kernel.measurement import Measurement
from psephos.kernel.query import Query
from psephos.kernel.scores import FarFromIndependent
from psephos.matrix import Compose, Dense, Identity, Kron, Matrix, Partition
from psephos.matrix.base import first_appearance
from psephos.matrix.kron import AxisTotals, NamedFactors
from psephos.plans.buckets import on_buckets
from psephos.plans.registry import plan
from psephos.plans.session import PlanVector, check_epsilon, positive_option, shares
from psephos.strategy import select
from psephos.values import Array
from psephos.variances import NoiseKind
from psephos.workload.product import Product
from psephos.workload.query_sets import MatrixQueries, QuerySet
from psephos.workload.workload import Workload

FIRST_SHARE, NETWORK_SHARE = "1/5", "3/10"
"""Of the budget: for one-way tables, and for the choice of parents; the rest is for the tables."""
USEFULNESS = 4.0
"""Rows per cell, in units of the noise, that a table should have on average."""
ROOM = 16
"""How many combinations of parents a useful table has room for beside an attribute's pieces."""
MOST_CANDIDATES = 2_000
MOST_PARENTS = 3

AttributeFamily = tuple[int, tuple[int, ...]]
"""An attribute and its parents, by their places in the domain."""
TableSelector = Literal["tables", "hdmm"]
"""What is measured of the network's tables: each by itself, or what HDMM selects for the workload's
questions to them (McKenna et al. 2018, section 9)."""


@plan(
    "PrivBayesLS",
    signature="SPB LM LS",
    reference="Zhang et al. 2020, section 9.2",
    adaptive=True,
)
def privbayes_ls(
    vector: PlanVector,
    workload: Workload,
    budget: Budget,
    *,
    usefulness: float = USEFULNESS,
    selector: TableSelector = "tables",
) -> Estimate:
    """Many attributes, tables of a few of them; HDMM is better where its tables are small."""
    if selector not in get_args(TableSelector):
        words = name_list(list(get_args(TableSelector)))
        raise WorkloadError(f"selector is one of {words}, got {selector!r}")
    network, rest = _network(vector, budget, usefulness)
    query = network.query
    if selector == "hdmm":
        questions = _asked_of_tables(workload, network)
        if questions is not None:
            query = select.hdmm(questions, NoiseKind.LAPLACE, restarts=1).query
    measured = [*network.uncut_tables, vector.measure(query, spend=rest)]
    agreed = expanded(measured)
    tables = [_marginal(network.domain, network.pieces, axes) for axes in network.tables]
    prior = _product_of_conditionals(network, [t.matvec(agreed.vector) for t in tables])
    return _nearest_fit(prior, measured)


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
    network, rest = _network(vector, budget, usefulness)
    tables = vector.measure(network.query, spend=rest)
    ends = np.cumsum([block.matrix.shape[0] for block in tables.query.blocks])[:-1]
    cells = _product_of_conditionals(network, np.split(tables.values.astype(float), ends))
    return CellEstimate(vector.domain, cells, "Bayesian network", tables.simulation)


@dataclass(frozen=True)
class _Network:
    """One-way tables, the pieces of every attribute, and the parents that were chosen by them."""

    domain: Domain
    ones: Measurement
    pieces: tuple[Partition | None, ...]
    """The pieces that a long attribute was cut into; None where every value is its own."""
    families: tuple[AttributeFamily, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """How many pieces, or values, every attribute has."""
        return _shape_of(self.domain, self.pieces)

    @property
    def tables(self) -> list[tuple[int, ...]]:
        """The attributes of every family, in the order of the domain."""
        return [tuple(sorted((i, *parents))) for i, parents in self.families]

    @property
    def uncut_tables(self) -> list[Measurement]:
        """The one-way tables of attributes that were not cut: inside of pieces there is noise."""
        uncut = [i for i, pieces in enumerate(self.pieces) if pieces is None]
        if not uncut:
            return []
        ends = np.cumsum(self.domain.shape)
        values = np.split(self.ones.values, ends[:-1])
        blocks = tuple(self.ones.query.blocks[i] for i in uncut)
        return [
            replace(
                self.ones,
                query=Query(blocks),
                values=np.concatenate([values[i] for i in uncut]),
                noise=tuple(self.ones.noise[i] for i in uncut),
            )
        ]

    @property
    def query(self) -> Query:
        """All tables, each with the same weight."""
        return Query.of([(_marginal(self.domain, self.pieces, axes), 1) for axes in self.tables])


def _network(vector: PlanVector, budget: Budget, usefulness: float) -> tuple[_Network, Budget]:
    """Attributes with their parents, chosen by one-way tables; and what is left of the budget."""
    check_epsilon(budget, "PrivBayes chooses parents")
    positive_option("usefulness", usefulness)
    first, choosing, rest = shares(budget, FIRST_SHARE, NETWORK_SHARE)
    domain = vector.domain
    d = len(domain.shape)
    if d == 1:  # nothing to choose
        first, rest = budget / 5, budget - budget / 5
    whole: tuple[None, ...] = (None,) * d
    ones = vector.measure(
        Query.of([(_marginal(domain, whole, (i,)), 1) for i in range(d)]), spend=first
    )
    margins = np.split(ones.values, np.cumsum(domain.shape)[:-1])
    rows = max(1.0, float(np.mean([table.sum() for table in margins])))
    most = rows * float(rest.amount) / (usefulness * d)
    pieces = tuple(
        _pieces(margin, max(2, int(most / ROOM))) if d > 1 else None for margin in margins
    )
    families = _families(vector, choosing, domain, pieces, margins, rows, most)
    return _Network(domain, ones, pieces, tuple(families)), rest


def _pieces(margin: Array, count: int) -> Partition | None:
    """A long attribute in so many runs of values with about equal noisy counts.

    >>> _pieces(np.array([1.0, 1.0, 1.0, 1.0, 2.0, 2.0]), 4).groups
    array([0, 0, 1, 1, 2, 3])
    """
    if margin.size <= count:
        return None
    below = np.maximum.accumulate(np.maximum(np.cumsum(margin), 0.0))
    if below[-1] <= 0:  # nothing but noise: pieces of one length
        below = np.arange(1.0, margin.size + 1)
    before = np.append(0.0, below[:-1])
    return Partition(first_appearance(np.minimum(before * count // below[-1], count - 1)))


def _families(
    vector: PlanVector,
    budget: Budget,
    domain: Domain,
    pieces: tuple[Partition | None, ...],
    margins: list[Array],
    rows: float,
    most: float,
) -> list[AttributeFamily]:
    """Every attribute with its parents, in the order in which they were added."""
    d = len(domain.shape)
    order = vector.public_random("the first attribute")
    added = [int(order.integers(d))]
    families: list[AttributeFamily] = [(added[0], ())]
    shape = _shape_of(domain, pieces)
    of_pieces = [m if p is None else p.matvec(m) for p, m in zip(pieces, margins, strict=True)]
    for _ in range(d - 1):
        pairs = _candidates(shape, added, most)
        kept = order.permutation(len(pairs))[:MOST_CANDIDATES]
        pairs = [pairs[k] for k in sorted(kept.tolist())]
        tables = [tuple(sorted((i, *p))) for i, p in pairs]
        guesses = tuple(_independent(of_pieces, axes, rows) for axes in tables)
        matrices = tuple(_marginal(domain, pieces, axes) for axes in tables)
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


def _asked_of_tables(workload: Workload, network: _Network) -> Workload | None:
    """What the workload asks of the attributes of each table, piece by piece."""
    domain = workload.domain
    known: dict[tuple[str, QuerySet], QuerySet] = {}

    def on_pieces(name: str, queries: QuerySet) -> QuerySet:
        pieces = network.pieces[domain.axis(name)]
        if pieces is None:
            return queries
        if (name, queries) not in known:
            line = Workload(domain.project((name,)), [Product(((name, queries),))])
            rows = on_buckets(line, pieces).matrix.dense()
            known[name, queries] = MatrixQueries(Compose((Dense(rows), pieces)))
        return known[name, queries]

    products: dict[tuple[tuple[str, QuerySet], ...], Product] = {}
    for axes in network.tables:
        for original in workload.products:
            items = tuple((n, q) for n, q in original.items if domain.axis(n) in axes)
            if items and items not in products:
                products[items] = Product(tuple((n, on_pieces(n, q)) for n, q in items))
    return Workload(domain, tuple(products.values())) if products else None


def _nearest_fit(prior: Array, measured: list[Measurement]) -> CellEstimate:
    """The cells nearest to these that fit all measurements best."""
    answers = block_answers(measured)
    residuals = [each.values - each.matrix.matvec(prior) for each in answers]
    domain = measured[0].domain
    correction = least_norm(
        [each.matrix for each in answers],
        [precision(each.noise.exact_variance) for each in answers],
        residuals,
        domain.shape,
    )
    return CellEstimate(domain, prior + correction, "Bayesian network", measured[0].simulation)


def _product_of_conditionals(network: _Network, tables: Sequence[Array]) -> Array:
    """Cells by the chain rule: each attribute given its parents, from its own table.

    Tables are brought to one number of rows without negative counts first. Values of a piece share
    its count evenly.
    """
    shape = network.shape
    precisions = [1 / table.size for table in tables]  # of their sums
    rows = float(np.average([table.sum() for table in tables], weights=precisions))
    cells = np.full(shape, max(rows, 0.0))
    for (i, _), axes, values in zip(network.families, network.tables, tables, strict=True):
        table = nearest_counts(values, max(rows, 0.0)).reshape([shape[a] for a in axes])
        given = table.sum(axis=axes.index(i), keepdims=True)
        share = np.divide(table, given, out=np.full_like(table, 1 / shape[i]), where=given > 0)
        cells = cells * share.reshape([n if a in axes else 1 for a, n in enumerate(shape)])
    for axis, pieces in enumerate(network.pieces):
        if pieces is not None:
            lengths = np.bincount(pieces.groups)
            even = cells / lengths.reshape([-1 if a == axis else 1 for a in range(cells.ndim)])
            cells = np.take(even, pieces.groups, axis=axis)
    return cells.ravel()


def _shape_of(domain: Domain, pieces: tuple[Partition | None, ...]) -> tuple[int, ...]:
    pairs = zip(pieces, domain.shape, strict=True)
    return tuple(n if p is None else p.shape[0] for p, n in pairs)


def _marginal(domain: Domain, pieces: tuple[Partition | None, ...], axes: tuple[int, ...]) -> Kron:
    """The table of some attributes, by their values or pieces."""
    shape = domain.shape
    factors: dict[int, Matrix] = {i: pieces[i] or Identity(shape[i]) for i in axes}
    return Kron(NamedFactors.of(AxisTotals(shape), factors))
