"""X = Σ_j c_j A_jᵀA_j on a vector, block by block, never written out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import scipy.sparse as sp

from psephos.matrix import (
    Dense,
    Identity,
    Kron,
    MarginalsGram,
    Matrix,
    Ones,
    Partition,
    PIdentity,
    Scaled,
)
from psephos.values import Array

WRITTEN_GRAM_AXIS = 256
"""The longest axis on which a Gram is written out: one product instead of two."""

LinearMap = Callable[[Array], Array]


def gram_map(
    blocks: Sequence[Matrix], weights: Sequence[float], shape: tuple[int, ...]
) -> LinearMap:
    """The map Σ c_j A_jᵀA_j: marginals together, along a tree of partial sums, others one by one.

    What another block sums over is summed first and spread last. Where all blocks are partitions of
    one line, two sparse products with all their rows do, since a block by itself takes longer to
    set about than to work through.
    """
    partitions = [_partition_groups(block) for block in blocks]
    groups = [each for each in partitions if each is not None]
    if len(groups) == len(blocks) > 1:
        return _partitions_map(groups, weights)
    sets: dict[tuple[int, ...], float] = {}
    pairs: list[tuple[Matrix, Matrix]] = []
    for block, c in zip(blocks, weights, strict=True):
        axes = _marginal_axes(block, shape)
        if axes is None:
            pairs.append(_halves(block, c))
        else:
            sets[axes] = sets.get(axes, 0.0) + c
    if sets:
        marginals = MarginalsGram(shape, tuple(sets), tuple(sets.values()))
        pairs.append((Identity(blocks[0].shape[1]), marginals))

    def apply(x: Array) -> Array:
        image: Array | None = None
        for down, up in pairs:
            part = up.matvec(x if isinstance(down, Identity) else down.matvec(x))
            if image is None:
                image = part.astype(float, copy=False)
            else:
                image += part
        return np.zeros(x.size) if image is None else image

    return apply


def _partition_groups(block: Matrix) -> Array | None:
    """The group of every cell, where a block is a partition of all cells; else None."""
    factors = _factors(block)
    if len(factors) > 1:
        return None
    if isinstance(factors[0], Ones) and factors[0].m == 1:
        return np.zeros(factors[0].n, dtype=np.int64)
    return factors[0].groups if isinstance(factors[0], Partition) else None


def _partitions_map(groups: Sequence[Array], weights: Sequence[float]) -> LinearMap:
    """Σ c_j P_jᵀP_j for partitions of the same cells."""
    sizes = [int(each.max()) + 1 for each in groups]
    rows = np.stack(groups, axis=1) + np.cumsum([0, *sizes[:-1]])
    ends = np.arange(0, rows.size + 1, len(groups))
    shape = (rows.shape[0], sum(sizes))
    up = sp.csr_array((np.ones(rows.size), rows.ravel(), ends), shape=shape)
    down = sp.csr_array(up.T)
    row_weights = np.repeat(np.asarray(weights, dtype=float), sizes)

    def apply(x: Array) -> Array:
        return np.asarray(up @ (row_weights * (down @ x)))

    return apply


def _factors(block: Matrix) -> tuple[Matrix, ...]:
    return block.factors if isinstance(block, Kron) else (block,)


def _marginal_axes(block: Matrix, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The axes that a marginal keeps; None for other blocks."""
    factors = _factors(block)
    if tuple(factor.shape[1] for factor in factors) != shape:  # one matrix over all cells
        return tuple(range(len(shape))) if isinstance(block, Identity) else None
    axes = []
    for i, factor in enumerate(factors):
        if isinstance(factor, Identity):
            axes.append(i)
        elif not isinstance(factor, Ones) or factor.m > 1:
            return None
    return tuple(axes)


def _halves(block: Matrix, weight: float) -> tuple[Matrix, Matrix]:
    """Two matrices whose product is c AᵀA."""
    down: list[Matrix] = []
    up: list[Matrix] = []
    for factor in _factors(block):
        total = isinstance(factor, Ones)
        down.append(factor if total else _gram(factor))
        up.append(factor.T if total else Identity(factor.shape[1]))
    return Scaled(weight, Kron(tuple(down))), Kron(tuple(up))


def _gram(factor: Matrix) -> Matrix:
    n = factor.shape[1]
    if n <= WRITTEN_GRAM_AXIS and not isinstance(factor, Identity | PIdentity):
        return Dense(factor.gram().dense(limit=n * n))
    return factor.gram()
