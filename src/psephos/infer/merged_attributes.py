"""Measurements over merged attributes: the same answers, to cells in another arrangement."""

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

MOST_FACTOR_ENTRIES = 4_000_000
"""The most entries of a factor over merged attributes that is written out."""


def over_merged_domain(measurement: Measurement, merged: Domain) -> Measurement:
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
        blocks.append(Block(Kron(tuple(_join_factors(factors, g) for g in groups)), block.weight))
        values.append(_reorder_answers(measurement.values[start:end], factors, groups))
        start = end
    query = Query(tuple(blocks))
    return replace(measurement, domain=merged, query=query, values=np.concatenate(values))


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
