"""Noisy answers on the cells that they tell apart, their least squares, and probes of both.

A probe moves every measured number by one standard deviation, up or down by a random sign. What an
estimate does with it tells how much of the noise the estimate lets through. The signs come from a
fixed seed: they are public, and the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.random import default_rng

from psephos.infer.asked_risk import AskedRisk, compact
from psephos.infer.least_squares import LeastSquares
from psephos.infer.normal_equations import declared_cells, merged_cells, sizes_by_axis
from psephos.infer.table_tree import TableTree
from psephos.inverse.form import Factors, Fitted, Form
from psephos.inverse.merged_cells import FittedGroups, MergedForm, Merging
from psephos.matrix import Diagonal, Identity, Kron, Ones
from psephos.matrix.columns import is_zero
from psephos.values import Array
from psephos.workload.workload import Workload

PROBED_NUMBERS = 4000
"""So many random signs at least, in up to so many probes."""
MOST_PROBES = 16
"""As many at most."""
PROBE_SEED = 1954
LEAST_VARIANCE = 1e-6
"""Counts are whole: noise below a thousandth is as good as none, and harder on floats."""


@dataclass(frozen=True, eq=False)
class Probe:
    """A random move of all measured numbers, one standard deviation each, and its least squares."""

    values: Array
    fitted: Fitted


@dataclass(frozen=True, eq=False)
class ProbedFit:
    """The fit of one probe of several, which are fitted and answer at once."""

    several: Fitted
    column: int
    known: dict[tuple[int, ...], tuple[Factors, Array]] = field(repr=False)
    """What several probes answered before, a column for each: by the objects, which it keeps."""

    def answers(self, factors: Factors) -> Array:
        """The answers of ⊗ W_i, in the order of its rows."""
        key = tuple(map(id, factors))  # many matrices take long to compare
        if key not in self.known:
            self.known[key] = factors, self.several.answers(factors)
        return np.ascontiguousarray(self.known[key][1][:, self.column])


@dataclass(frozen=True, eq=False)
class MeasuredCells:
    """Noisy answers and their least squares, on cells that some measured block tells apart."""

    shape: tuple[int, ...]
    form: Form
    fitted: Fitted
    mergings: tuple[Merging, ...]
    tree: TableTree
    values: Array
    variances: Array
    sizes: tuple[Array, ...]
    """For every axis of the domain, how many declared values each of its values stands for."""

    @classmethod
    def of(cls, estimate: LeastSquares, sizes: Sequence[Array] | None = None) -> MeasuredCells:
        """All measurements of an estimate; without sizes every value stands for itself."""
        axes = sizes_by_axis(sizes, estimate.domain.shape)
        answers = estimate.blocks
        blocks = [each.matrix for each in answers]
        form, fitted, shape = estimate.form, estimate.fitted, estimate.domain.shape
        mergings = []
        while isinstance(form, MergedForm) and isinstance(fitted, FittedGroups):
            mergings.append(form.merging)
            blocks = list(form.merging.blocks(blocks))
            shape, form, fitted = form.merging.shape, form.inner, fitted.inner
        tree = TableTree.of(blocks, shape)
        values = [tree.arrange_answers(b, a.values.astype(float)) for b, a in enumerate(answers)]
        variances = tree.repeated([max(a.variance, LEAST_VARIANCE) for a in answers])
        y = np.concatenate(values)
        return cls(shape, form, fitted, tuple(mergings), tree, y, variances, axes)

    def without_numbers(self) -> MeasuredCells:
        """The same cells, when nothing is left to do with the noisy numbers."""
        return replace(self, values=np.zeros(0))

    @cached_property
    def groups(self) -> Array | None:
        """For every cell of the domain its merged cell; None where none are merged."""
        groups: Array | None = None
        for merging in self.mergings:
            coarser = merged_cells(merging)
            groups = coarser if groups is None else coarser[groups]
        return groups

    @property
    def declared_cells(self) -> Array | None:
        """How many declared cells each cell of the domain stands for; None if all for as many."""
        return declared_cells(self.sizes)

    @cached_property
    def axis_sizes(self) -> list[Array]:
        """Of every axis, how many declared values each of its merged values has."""
        sizes = list(self.sizes)
        for merging in self.mergings:
            if len(sizes) > len(merging.groups):  # one axis stands for all cells from here on
                sizes = [Kron(tuple(map(Diagonal, sizes))).matvec(np.ones(merging.groups[0].size))]
            pairs = zip(merging.groups, sizes, strict=True)
            sizes = [np.bincount(g, size) for g, size in pairs]
        return sizes

    def fit(self, values: Array) -> Fitted:
        """Least squares from other numbers in place of the measured ones; columns are as many."""
        tree, starts = self.tree, self.tree.starts
        parts = [values[starts[b] : starts[b + 1]] for b in range(len(tree.blocks))]
        return self.form.fit([tree.restore_answers(b, part) for b, part in enumerate(parts)])

    def probes(self) -> list[Probe]:
        """Some moves by random signs, the same on every machine."""
        count = min(MOST_PROBES, max(1, PROBED_NUMBERS // self.tree.size))
        generator = default_rng(PROBE_SEED)
        moves = [generator.integers(0, 2, self.tree.size).astype(float) for _ in range(count)]
        for move in moves:  # in place: each is as long as all that was measured
            move *= 2
            move -= 1
            for b, begin in enumerate(self.tree.starts[:-1]):
                move[begin : self.tree.starts[b + 1]] *= math.sqrt(self.variances[begin])
        if count == 1:
            return [Probe(moves[0], self.fit(moves[0]))]
        fitted, known = self.fit(np.column_stack(moves)), dict[tuple[int, ...], Any]()
        return [Probe(move, ProbedFit(fitted, j, known)) for j, move in enumerate(moves)]

    def in_answers(
        self, workload: Workload, probes: list[Probe]
    ) -> tuple[MeasuredCells, list[Probe]]:
        """As if the asked answers of least squares had been measured, with their mean variance.

        Queries that are not determined are left out.
        """
        products = self.determined(workload)
        compacts = [tuple(map(compact, factors)) for factors, _ in products]
        tree = TableTree.of([Kron(factors) for factors in compacts], self.shape)
        squares = [weight**2 for _, weight in products]
        noise = sum(
            square * self.form.trace(factors)
            for square, (factors, _) in zip(squares, products, strict=True)
        )
        mean = noise / math.fsum(np.multiply(squares, tree.rows))

        def answers(fit: Fitted) -> Array:
            parts = [tree.arrange_answers(b, fit.answers(each)) for b, each in enumerate(compacts)]
            return np.concatenate(parts)

        variances = tree.repeated([max(mean / square, LEAST_VARIANCE) for square in squares])
        cells = replace(self, tree=tree, values=answers(self.fitted), variances=variances)
        return cells, [Probe(answers(probe.fitted), probe.fitted) for probe in probes]

    def axis_factors(self, axis: int | None) -> Factors:
        """The table of one attribute; of none, the total."""
        return tuple(Identity(n) if i == axis else Ones(1, n) for i, n in enumerate(self.shape))

    def risk(self, workload: Workload, probes: list[Probe]) -> AskedRisk:
        """The risk on the queries that are determined; if none is, on the measured numbers."""
        products = self.determined(workload)
        if not products:
            moves = [probe.values for probe in probes]
            return AskedRisk.of_measured(self.tree, self.values, self.variances, moves)
        fits = [probe.fitted for probe in probes]
        return AskedRisk.of(products, self.shape, self.form, self.fitted, fits, self.tree)

    def determined(self, workload: Workload) -> list[tuple[Factors, float]]:
        """The queries that are determined, on merged cells, with their weights."""
        products = []
        for i, product in enumerate(workload.products):
            factors = self._merged_queries(workload.factors(i))
            if factors is not None and product.weight:
                products.append((factors, product.weight))
        return products

    def _merged_queries(self, factors: Factors) -> Factors | None:
        """Queries on merged cells; None if they are not determined, or count nothing."""
        for merging in self.mergings:
            if not merging.treats_alike(factors):
                return None
            factors = merging.queries(factors)
        if any(is_zero(factor) for factor in factors) or not self.form.covers(factors):
            return None
        return factors
