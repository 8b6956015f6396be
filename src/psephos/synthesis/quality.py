"""How good made-up rows are: beside the model that they come from, and rivals that know nothing.

Nothing here is compared with the data. What the model itself errs by is known where strategies are
measured, and simulated where plans adapt.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from psephos.domain.domain import Domain
from psephos.infer.estimate import Estimate
from psephos.infer.records import record_counts
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
    """Compare made-up rows with the model that they come from, and rivals that know nothing."""
    gaps = table.gaps(model, workload)
    domain, total = table.domain, gaps.total
    ones: list[tuple[int, ...]] = [(axis,) for axis in range(len(domain))]
    margins = _model_tables(model, domain, ones)
    sets: list[tuple[str, list[tuple[int, ...]]]]
    sets = [("the release's tables", _asked(workload)), ("all of one attribute", ones)]
    pairs: list[tuple[int, ...]] = list(combinations(range(len(domain)), 2))
    cells = sum(domain.shape[i] * domain.shape[j] for i, j in pairs)
    if pairs and cells <= QUALITY_CELLS:
        sets.append(("all of two attributes", pairs))
    distances = []
    for name, tables in sets:
        if tables:
            counts = _model_tables(model, domain, tables)
            distances.append(_distance(name, table, domain, tables, counts, margins, total))
    return SyntheticQuality(table.rows, gaps.largest, gaps.mean, tuple(distances))


def _asked(workload: Workload) -> list[tuple[int, ...]]:
    """The sets of attributes that the release's tables are about."""
    actives = (workload.kron(i).active for i in range(len(workload.products)))
    sets = dict.fromkeys(tuple(axis for axis, _ in active) for active in actives)
    shape = workload.domain.shape
    return [s for s in sets if s and math.prod(shape[i] for i in s) <= QUALITY_CELLS]


def _model_tables(model: Estimate, domain: Domain, tables: list[tuple[int, ...]]) -> list[Array]:
    """The model's counts of some tables."""
    products = [
        Product(tuple((domain.names[axis], identity()) for axis in axes)) for axes in tables
    ]
    workload = Workload(domain, products)
    values = np.asarray(model.answer(workload).values, dtype=float)
    return np.split(values, np.cumsum(workload.query_counts)[:-1])


def _distance(
    name: str,
    table: SyntheticTable,
    domain: Domain,
    tables: list[tuple[int, ...]],
    counts: list[Array],
    margins: list[Array],
    total: float,
) -> TableDistance:
    """The mean distance of some tables from the model's, for the rows and for the rivals."""
    scale, rows = max(total, 1e-9), max(table.rows, 1)
    sums = dict.fromkeys(("sample", *RIVALS), 0.0)
    shares = [margin / max(float(margin.sum()), 1e-9) for margin in margins]
    for axes, model in zip(tables, counts, strict=True):
        independent = shares[axes[0]]
        for axis in axes[1:]:
            independent = np.multiply.outer(independent, shares[axis]).ravel()
        sample = record_counts(domain, table.records, axes) * (scale / rows)
        guesses = sample, np.zeros(1), np.full(1, scale / model.size), independent * scale
        for key, guess in zip(sums, guesses, strict=True):
            sums[key] += float(np.abs(guess - model).sum()) / scale
    means = {key: value / len(tables) for key, value in sums.items()}
    return TableDistance(name, len(tables), means.pop("sample"), means)


def quality_of_answers(
    table: SyntheticTable, workload: Workload, answers: Array, rows: Array, total: float
) -> SyntheticQuality:
    """The same where only the asked numbers are known, those at some rows of a workload."""
    scale = total / max(table.rows, 1)
    gaps = np.abs(table.answer(workload).values * scale - answers)[rows]
    return SyntheticQuality(table.rows, float(gaps.max()), float(gaps.mean()), ())
