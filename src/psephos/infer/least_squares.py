"""Least squares: the best linear unbiased estimate from measurements of one data set."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from psephos.domain import Domain
from psephos.errors import RefusedError, UnsupportedError
from psephos.frozen import Array
from psephos.infer.estimate import Estimate
from psephos.infer.forms import WRITTEN, Form, PairForm, ProductForm, WrittenForm
from psephos.infer.iterative import IterativeForm
from psephos.infer.merged import MergedForm, Merging
from psephos.infer.subspaces import Commuting
from psephos.kernel.measurement import Measurement
from psephos.kernel.noise import Noise
from psephos.matrix import Matrix, compose

VECTOR_LIMIT = 500_000_000
"""The most cells for which an estimate of all of them is made."""
SMALLEST = 1e-200
PAIR_CELLS = 20_000_000
"""The most cells for which blocks are inverted by common eigenvectors."""


def form_of(blocks: Sequence[Matrix], precisions: Sequence[float], shape: tuple[int, ...]) -> Form:
    """The closed form that fits the blocks, or the iterative one if none does."""
    merging = Merging.of(blocks, shape)
    if merging is not None:
        made: dict[tuple[int, int], Matrix] = {}
        smaller = [merging.block(block, made) for block in blocks]
        return MergedForm(form_of(smaller, precisions, merging.shape), merging)
    cells = math.prod(shape)
    if len(blocks) == 1 and cells <= VECTOR_LIMIT:
        return ProductForm.of(blocks[0], precisions[0], shape)
    pairs = [(block, 1 / c) for block, c in zip(blocks, precisions, strict=True)]
    commuting = Commuting.of(shape, pairs)
    if commuting is not None:
        return commuting
    if cells > VECTOR_LIMIT:
        raise UnsupportedError(
            f"an estimate of {cells:,} cells is over the limit of {VECTOR_LIMIT:,}, and these "
            "blocks are not all marginals or residuals, which need no such vector; ask about "
            "fewer attributes, or keep fewer columns first"
        )
    if cells <= PAIR_CELLS:
        pair = PairForm.of(blocks, precisions, shape)
        if pair is not None:
            return pair
    if cells <= WRITTEN:
        return WrittenForm.of(blocks, precisions)
    return IterativeForm.of(blocks, precisions, shape)


def least_squares(measurements: Measurement | Iterable[Measurement]) -> Estimate:
    """The generalised least squares estimate from all measurements together.

    Every block of answers counts with the exact variance of its noise. Answers are unbiased, they
    add up, and no linear unbiased estimate has less variance.
    """
    given = list(measurements) if isinstance(measurements, Iterable) else [measurements]
    domain = one_base(given)
    known = pieces(given)
    precisions = [precision(each.noise) for each in known]
    form = form_of([each.matrix for each in known], precisions, domain.shape)
    return Estimate(domain, form, form.fit([each.values for each in known]), tuple(given))


class Piece(NamedTuple):
    """The answers of one block: their map from the base vector, their noise, their values."""

    matrix: Matrix
    noise: Noise
    values: Array


def pieces(measurements: Iterable[Measurement]) -> list[Piece]:
    """All blocks of all measurements."""
    found = []
    for measurement in measurements:
        start, through = 0, measurement.transform
        for block, noise in zip(measurement.query.blocks, measurement.noise, strict=True):
            matrix = block.matrix if through is None else compose(block.matrix, through)
            end = start + matrix.shape[0]
            found.append(Piece(matrix, noise, measurement.values[start:end]))
            start = end
    return found


def precision(noise: Noise) -> float:
    """One over the variance, which at very large budgets is smaller than floats can tell from 0."""
    return 1 / max(noise.exact_variance, SMALLEST)


def one_base(measurements: Sequence[Measurement]) -> Domain:
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
