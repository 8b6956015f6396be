"""A tied tree as a factor: one matrix, its levels stacked, each times its weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from psephos.matrix import Compose, Matrix, Scaled, Sparse, Stack
from psephos.strategy.factors import Factor
from psephos.strategy.tied import TiedFound, integer_levels, tied_blocks

WEIGHT_BITS = 9
"""Levels' weights relative to the largest; with more, no error changes in four digits."""
LEVEL_BITS = 8


@dataclass(frozen=True, eq=False)
class TreeFactor(Factor):
    """Nested levels on one long attribute."""

    found: TiedFound

    @property
    def cells(self) -> int:
        return self.found.cells

    @property
    def _scales(self) -> Any:
        """What rows of each level are multiplied by: norms add in the first or second power."""
        weights = np.asarray(self.found.weights)
        return weights if self.found.noise == "laplace" else np.sqrt(weights)

    @cached_property
    def matrix(self) -> Matrix:
        return _stacked(self.found.levels, [float(w) for w in self._scales], self.cells)

    def integer(self, bits: int) -> Matrix:
        """Weights get the same bits whatever `bits` is; levels the rest, up to eight."""
        level_bits = min(bits, LEVEL_BITS)
        scales = np.rint(self._scales / self._scales.max() * (1 << WEIGHT_BITS)).astype(int)
        levels = integer_levels(self.found, level_bits)
        # A level that is the identity is left at one: its weight makes up for the others' bits.
        powers = [1 if len(rows) else 1 << level_bits for _, rows in levels]
        return _stacked(
            levels, [int(k * f) for k, f in zip(scales, powers, strict=True)], self.cells
        )

    @property
    def rounded(self) -> bool:
        return True


def _stacked(levels: Sequence[Any], scales: Sequence[float], cells: int) -> Matrix:
    blocks = tied_blocks(levels)
    whole = Stack(tuple(Scaled(k, block) for k, block in zip(scales, blocks, strict=True)))
    if whole.shape[1] == cells:
        return whole
    first = sp.eye_array(whole.shape[1], cells, dtype=np.int8, format="csr")
    return Compose((whole, Sparse(first)))
