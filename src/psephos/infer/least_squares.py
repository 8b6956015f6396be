"""Least squares: the best linear unbiased estimate from measurements of one data set.

Measurements can be read over merged attributes too: the same answers, to cells in another
arrangement.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import RefusedError, UnsupportedError
from psephos.infer.estimate import Answers
from psephos.inverse.choice import form_of, precision
from psephos.inverse.form import Fitted, Form
from psephos.kernel.measurement import Measurement
from psephos.kernel.noise import Noise
from psephos.kernel.query import Block, Query
from psephos.matrix import Dense, Identity, Kron, Matrix, Ones, compose
from psephos.values import Array
from psephos.workload.workload import Workload

MOST_FACTOR_ENTRIES = 4_000_000
"""The most entries of a factor over merged attributes that is written out."""


def least_squares(measurements: Measurement | Iterable[Measurement]) -> LeastSquares:
    """The generalised least squares estimate from all measurements together.

    Every block of answers counts with the exact variance of its noise. Answers are unbiased, they
    add up, and no linear unbiased estimate has less variance.
    """
    several = tuple(measurements) if isinstance(measurements, Iterable) else (measurements,)
    domain = common_domain(several)
    blocks = [
        NoisyBlock(matrix, noise.exact_variance, values)
        for matrix, noise, values in block_answers(several)
    ]
    return fit_blocks(domain, blocks, several)


def fit_blocks(
    domain: Domain, blocks: Sequence[NoisyBlock], measurements: tuple[Measurement, ...]
) -> LeastSquares:
    """The least squares estimate from blocks that these measurements gave."""
    precisions = [precision(block.variance) for block in blocks]
    form = form_of([block.matrix for block in blocks], precisions, domain.shape)
    fitted = form.fit([block.values for block in blocks])
    return LeastSquares(domain, form, fitted, measurements, tuple(blocks))


@dataclass(frozen=True, eq=False, repr=False)
class LeastSquares:
    """The least squares estimate in its closed form: unbiased, with exact variances."""

    domain: Domain
    form: Form
    fitted: Fitted
    measurements: tuple[Measurement, ...]
    blocks: tuple[NoisyBlock, ...]
    """What was measured, as maps of the cells of the domain."""
    biased: ClassVar[bool] = False

    def answer(self, workload: Workload) -> Answers:
        """The answers of a workload, with the standard error of each."""
        Workload.require(workload, self.domain, same_cells=True)
        if workload.domain != self.domain:
            return self._over(workload.domain).answer(workload)
        workload.check_covered(self.form)
        values, start = np.empty(workload.shape[0]), 0
        for i, count in enumerate(workload.query_counts):
            values[start : start + count] = self.fitted.answers(workload.factors(i))
            start += count
        return Answers(workload, values, self.variances, simulation=self.simulation)

    def _over(self, merged: Domain) -> LeastSquares:
        """The same estimate over a domain that merges attributes and keeps the order of cells."""
        matrices = [_joined(block.matrix, self.domain, merged) for block in self.blocks]
        pairs = zip(self.blocks, matrices, strict=True)
        blocks = [block._replace(matrix=matrix) for block, matrix in pairs]
        return fit_blocks(merged, blocks, self.measurements)

    def variances(self, workload: Workload) -> Array:
        """The variance of the noise in every answer of a workload."""
        products = [workload.factors(i) for i in range(len(workload.products))]
        return np.concatenate([self.form.variances(factors) for factors in products])

    @property
    def simulation(self) -> bool:
        """Is any of it made up?"""
        return any(m.simulation for m in self.measurements)

    @property
    def vector(self) -> Array:
        """The estimate of every cell, where one is made."""
        cells: Array | None = getattr(self.fitted, "vector", None)
        if cells is None:
            raise UnsupportedError(
                "this estimate keeps tables, not cells; ask it with estimate.answer(workload)"
            )
        return cells

    def __repr__(self) -> str:
        mark = "Simulated estimate" if self.simulation else "Estimate"
        count = sum(len(m.values) for m in self.measurements)
        return f"{mark}(from {count:,} noisy answers over {self.domain})"


class NoisyBlock(NamedTuple):
    """Answers to one map of the cells, and the variance of their noise."""

    matrix: Matrix
    variance: float
    values: Array


class BlockAnswers(NamedTuple):
    """The answers of one block: their map from the base vector, their noise, their values."""

    matrix: Matrix
    noise: Noise
    values: Array


def block_answers(measurements: Iterable[Measurement]) -> list[BlockAnswers]:
    """The answers of all blocks of all measurements."""
    answers = []
    for measurement in measurements:
        start, transform = 0, measurement.transform
        for block, noise in zip(measurement.query.blocks, measurement.noise, strict=True):
            matrix = block.matrix if transform is None else compose(block.matrix, transform)
            end = start + matrix.shape[0]
            answers.append(BlockAnswers(matrix, noise, measurement.values[start:end]))
            start = end
    return answers


def common_domain(measurements: Sequence[Measurement]) -> Domain:
    """The domain that all measurements are of; measurements of different data are refused."""
    if not measurements:
        raise RefusedError("an estimate needs at least one measurement, got none")
    for measurement in measurements:
        if not isinstance(measurement, Measurement):
            raise RefusedError(
                f"an estimate is made from measurements, got {type(measurement).__name__}; "
                "write least_squares([vector.measure(...)])"
            )
    editions = sorted({edition_of(m) for m in measurements})
    if len(editions) > 1:
        raise RefusedError(
            f"these measurements are of different editions of the data, "
            f"{' and '.join(edition_words(edition) for edition in editions)}; estimate each on its "
            "own, or give `protect` the same edition where the data are the same"
        )
    bases = {(m.dataset_id, m.base) for m in measurements}
    if len(bases) > 1 or any(m.domain != measurements[0].domain for m in measurements):
        raise RefusedError(
            "these measurements are of different data sets, filters or domains; estimate each "
            "on its own"
        )
    return measurements[0].domain


def edition_of(measurement: Measurement) -> str:
    """Which state of the data was measured, by its lineage's root; empty if it has no name."""
    return measurement.lineage[0].partition(" ")[2].partition(" ")[2]


def edition_words(edition: str) -> str:
    """An edition as a message names it."""
    return repr(edition) if edition else "one without a name"


def over_merged_domain(measurement: Measurement, merged: Domain) -> Measurement:
    """A measurement over a domain that merges some attributes of its own.

    Questions that look at several attributes at once ("a = 1 OR b = 2") are asked over such a
    domain. Blocks have to be products over the attributes.
    """
    domain = measurement.domain
    if measurement.transform is not None or merged.origin != domain:
        raise UnsupportedError(f"{merged} does not merge attributes of {domain}")
    groups = _axes_merged(domain, merged)
    blocks, values, start = [], [], 0
    for block in measurement.query.blocks:
        end = start + block.matrix.shape[0]
        factors = _factors(block.matrix, domain)
        blocks.append(Block(Kron(tuple(_join_factors(factors, g) for g in groups)), block.weight))
        values.append(_reorder_answers(measurement.values[start:end], factors, groups))
        start = end
    query = Query(tuple(blocks))
    return replace(measurement, domain=merged, query=query, values=np.concatenate(values))


def _axes_merged(domain: Domain, merged: Domain) -> list[list[int]]:
    """For each attribute of the merged domain, the axes it is made of."""
    parts = [[part for part, _ in merged[name].parts] or [name] for name in merged.names]
    return [[domain.axis(name) for name in names] for names in parts]


def _joined(matrix: Matrix, domain: Domain, merged: Domain) -> Matrix:
    """A map of the cells as a product over the merged attributes, if it is one over all of them."""
    factors = matrix.factors if isinstance(matrix, Kron) else (matrix,)
    if tuple(factor.shape[1] for factor in factors) != domain.shape:
        return matrix
    return Kron(tuple(_join_factors(factors, group) for group in _axes_merged(domain, merged)))


def _factors(matrix: Matrix, domain: Domain) -> tuple[Matrix, ...]:
    """One factor for each attribute."""
    factors = matrix.factors if isinstance(matrix, Kron) else (matrix,)
    if tuple(factor.shape[1] for factor in factors) != domain.shape:
        raise UnsupportedError("what was measured is no product over the attributes")
    return factors


def _join_factors(factors: Sequence[Matrix], group: Sequence[int]) -> Matrix:
    """The product of some factors, as one factor."""
    members = [factors[i] for i in group]
    if len(members) == 1:
        return members[0]
    rows, cells = (math.prod(factor.shape[k] for factor in members) for k in (0, 1))
    if all(isinstance(factor, Identity) for factor in members):
        return Identity(cells)
    if all(isinstance(factor, Ones) for factor in members):
        return Ones(rows, cells)
    if rows * cells > MOST_FACTOR_ENTRIES:
        raise UnsupportedError(
            f"{len(members)} attributes looked at together have {cells:,} combinations, too many "
            "for what was measured"
        )
    entries = np.ones((1, 1), dtype=np.int64)
    for factor in members:
        entries = np.kron(entries, factor.dense(limit=MOST_FACTOR_ENTRIES).astype(np.int64))
    return Dense(entries)


def _reorder_answers(values: Array, factors: Sequence[Matrix], groups: list[list[int]]) -> Array:
    """Answers in the order of the joined factors' rows; axes of one answer stay out of the way."""
    rows = [factor.shape[0] for factor in factors]
    order = [axis for group in groups for axis in group if rows[axis] > 1]
    several = [axis for axis in range(len(rows)) if rows[axis] > 1]
    cube = values.reshape([rows[axis] for axis in several])
    return np.asarray(cube.transpose([several.index(axis) for axis in order]).reshape(-1))
