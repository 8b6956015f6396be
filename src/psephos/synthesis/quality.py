"""How good made-up rows are: beside the model that they come from, and rivals that know little.

Nothing here is compared with the data. What the model itself errs by is known where strategies are
measured, and simulated where plans adapt.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from psephos.domain.domain import Domain
from psephos.infer.estimate import Estimate
from psephos.infer.records import record_counts
from psephos.inverse.form import multiply
from psephos.matrix import Kron
from psephos.synthesis.table import SyntheticTable
from psephos.values import Array
from psephos.workload.product import Product
from psephos.workload.queries import identity
from psephos.workload.workload import Workload

QUALITY_CELLS = 5_000_000
"""The most cells of all tables of two attributes that are compared."""
RIVALS = ("all zeros", "uniform", "independent")
"""What any table of made-up rows should be closer to the model than."""
MISUSES = (
    "as if its rows were persons: none of them is anybody",
    "for single rare combinations: what few rows show may be noise",
    "for questions that it was not made for: what no table asked about is a guess of the model",
    "for standard errors: those of a survey of so many rows are far too small for it",
)
"""What made-up rows must not be used for, in words for the report."""


@dataclass(frozen=True)
class TableDistance:
    """How far tables are from the model: mean over tables of Σ|count - model| over all rows."""

    tables: str
    number: int
    sample: float
    rivals: dict[str, float]


@dataclass(frozen=True)
class SyntheticQuality:
    """Every query of the release, and all tables of one and two attributes, beside the model."""

    rows: int
    largest: float
    """The largest difference of an asked number from the model's, in rows."""
    mean: float
    distances: tuple[TableDistance, ...]

    def facts(self) -> dict[str, Any]:
        """Plain values, for the manifest."""
        return {**asdict(self), "distances": [asdict(each) for each in self.distances]}


def quality_of(table: SyntheticTable, model: Estimate, workload: Workload) -> SyntheticQuality:
    """Compare made-up rows with the model that they come from, and with rivals.

    The release's own numbers are compared as they were asked for, by levels or ranges too.
    """
    gaps = table.gaps(model, workload)
    domain, total = table.domain, max(gaps.total, 1e-9)
    ones = _tables(domain, [(axis,) for axis in range(len(domain))])
    shares = [_shares(margin) for margin in _model_answers(model, ones)]
    sets = [("the release's tables", workload), ("all of one attribute", ones)]
    pairs = list(combinations(range(len(domain)), 2))
    cells = sum(domain.shape[i] * domain.shape[j] for i, j in pairs)
    if pairs and cells <= QUALITY_CELLS:
        sets.append(("all of two attributes", _tables(domain, pairs)))
    distances = [_distance(name, table, model, tables, shares, total) for name, tables in sets]
    known = tuple(each for each in distances if each.number)
    return SyntheticQuality(table.rows, gaps.largest, gaps.mean, known)


def _tables(domain: Domain, axes_of: Sequence[tuple[int, ...]]) -> Workload:
    """All values of some sets of attributes."""
    products = [Product(tuple((domain.names[a], identity()) for a in axes)) for axes in axes_of]
    return Workload(domain, products)


def _model_answers(model: Estimate, workload: Workload) -> list[Array]:
    """The model's answers, product by product."""
    values = np.asarray(model.answer(workload).values, dtype=float)
    return np.split(values, np.cumsum(workload.query_counts)[:-1])


def _shares(counts: Array) -> Array:
    return np.asarray(counts / max(float(counts.sum()), 1e-9))


def _distance(
    name: str,
    table: SyntheticTable,
    model: Estimate,
    workload: Workload,
    shares: list[Array],
    total: float,
) -> TableDistance:
    """The mean distance of a workload's tables from the model's, for the rows and the rivals."""
    domain = table.domain
    sums, number = dict.fromkeys(("sample", *RIVALS), 0.0), 0
    for i, answers in enumerate(_model_answers(model, workload)):
        active = workload.kron(i).active
        axes = tuple(axis for axis, _ in active)
        cells = math.prod(domain.shape[axis] for axis in axes)
        if not axes or cells > QUALITY_CELLS:
            continue
        independent = shares[axes[0]]
        for axis in axes[1:]:
            independent = np.multiply.outer(independent, shares[axis]).ravel()
        sample = record_counts(domain, table.records, axes) / max(table.rows, 1)
        queries = Kron(tuple(factor for _, factor in active))
        guesses = (sample, np.zeros(cells), np.full(cells, 1 / cells), independent)
        for key, guess in zip(sums, guesses, strict=True):
            gap = multiply(queries, guess * total) - answers
            sums[key] += float(np.abs(gap).sum()) / total
        number += 1
    means = {key: value / max(number, 1) for key, value in sums.items()}
    return TableDistance(name, number, means.pop("sample"), means)


def quality_of_answers(
    table: SyntheticTable, workload: Workload, answers: Array, rows: Array, total: float
) -> SyntheticQuality:
    """The same where only the asked numbers are known, those at some rows of a workload."""
    scale = total / max(table.rows, 1)
    gaps = np.abs(table.answer(workload).values * scale - answers)[rows]
    return SyntheticQuality(table.rows, float(gaps.max()), float(gaps.mean()), ())
