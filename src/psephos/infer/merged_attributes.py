"""Measurements seen over merged attributes: the same answers, to cells in another arrangement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import UnsupportedError
from psephos.kernel.measurement import Measurement
from psephos.kernel.query import Block, Query
from psephos.matrix import Dense, Identity, Kron, Matrix, Ones
from psephos.values import Array

LARGEST = 4_000_000
"""The most entries of a factor over merged attributes that is written out."""


def regrouped(measurement: Measurement, merged: Domain) -> Measurement:
    """A measurement over a domain that merges some attributes of its own.

    Questions that look at several attributes at once ("a = 1 OR b = 2") are asked over such a
    domain. Blocks have to be products over the attributes.
    """
    domain = measurement.domain
    parts = [[part for part, _ in merged[name].parts] or [name] for name in merged.names]
    if measurement.transform is not None or merged.origin != domain:
        raise UnsupportedError(f"{merged} does not merge attributes of {domain}")
    groups = [[domain.axis(name) for name in names] for names in parts]
    blocks, values, start = [], [], 0
    for block in measurement.query.blocks:
        end = start + block.matrix.shape[0]
        factors = _factors(block.matrix, domain)
        blocks.append(Block(Kron(tuple(_joined(factors, g) for g in groups)), block.weight))
        values.append(_reordered(measurement.values[start:end], factors, groups))
        start = end
    query = Query(tuple(blocks))
    return replace(measurement, domain=merged, query=query, values=np.concatenate(values))


def _factors(matrix: Matrix, domain: Domain) -> tuple[Matrix, ...]:
    factors = matrix.factors if isinstance(matrix, Kron) else (matrix,)
    if tuple(factor.shape[1] for factor in factors) != domain.shape:
        raise UnsupportedError("what was measured is no product over the attributes")
    return factors


def _joined(factors: Sequence[Matrix], group: Sequence[int]) -> Matrix:
    """The product of some factors, as one factor."""
    own = [factors[i] for i in group]
    if len(own) == 1:
        return own[0]
    rows, cells = (math.prod(factor.shape[k] for factor in own) for k in (0, 1))
    if all(isinstance(factor, Identity) for factor in own):
        return Identity(cells)
    if all(isinstance(factor, Ones) for factor in own):
        return Ones(rows, cells)
    if rows * cells > LARGEST:
        raise UnsupportedError(
            f"{len(own)} attributes looked at together have {cells:,} combinations, too many for "
            "what was measured"
        )
    made = np.ones((1, 1), dtype=np.int64)
    for factor in own:
        made = np.kron(made, factor.dense(limit=LARGEST).astype(np.int64))
    return Dense(made)


def _reordered(values: Array, factors: Sequence[Matrix], groups: list[list[int]]) -> Array:
    """Answers in the order of the joined factors' rows; axes of one answer stay out of the way."""
    rows = [factor.shape[0] for factor in factors]
    order = [axis for group in groups for axis in group if rows[axis] > 1]
    several = [axis for axis in range(len(rows)) if rows[axis] > 1]
    cube = values.reshape([rows[axis] for axis in several])
    return np.asarray(cube.transpose([several.index(axis) for axis in order]).reshape(-1))
