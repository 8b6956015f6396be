"""What is measured: blocks of integer queries, each with a positive rational weight.

A block's weight says how precisely it is measured relative to the others; it never enters the
answers, which stay integers. Weights have the form m·2^e with m < 2^20, so that noise scales stay
short fractions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from psephos.errors import RefusedError
from psephos.kernel.budget import exact
from psephos.matrix import Matrix
from psephos.values import Value

MANTISSA = 1 << 20


@dataclass(frozen=True, eq=False)
class Block(Value):
    """Integer queries that get one noise scale, and their weight."""

    matrix: Matrix
    weight: Fraction


@dataclass(frozen=True, eq=False, repr=False)
class Query(Value):
    """Blocks of integer queries over one vector.

    >>> from psephos.matrix import Identity, total
    >>> Query.of([(Identity(4), 1), (total(4), "3/2")])
    Query(5 answers in 2 blocks over 4 cells)
    """

    blocks: tuple[Block, ...]

    def __post_init__(self) -> None:
        if not self.blocks:
            raise RefusedError("a query needs at least one block of queries")
        widths = sorted({block.matrix.shape[1] for block in self.blocks})
        if len(widths) > 1:
            raise RefusedError(f"the blocks of a query must share one width, got {widths}")
        for block in self.blocks:
            check_weight(block.weight)

    @classmethod
    def of(cls, blocks: Matrix | Sequence[tuple[Matrix, Any]]) -> Query:
        """A query from one matrix, or from pairs of matrix and weight (text or whole number)."""
        if isinstance(blocks, Matrix):
            return cls((Block(blocks, Fraction(1)),))
        pairs = list(blocks) if isinstance(blocks, Iterable) else [blocks]
        fits = all(type(pair) in (tuple, list) and len(pair) == 2 for pair in pairs)
        if not fits or not all(isinstance(matrix, Matrix) for matrix, _ in pairs):
            raise RefusedError("a block is a matrix and its weight: write Query.of([(matrix, 1)])")
        return cls(tuple(Block(matrix, exact(weight, "a weight")) for matrix, weight in pairs))

    @property
    def shape(self) -> tuple[int, int]:
        """Answers and cells."""
        rows = sum(block.matrix.shape[0] for block in self.blocks)
        return rows, self.blocks[0].matrix.shape[1]

    def __repr__(self) -> str:
        m, n = self.shape
        return f"Query({m:,} answers in {len(self.blocks)} blocks over {n:,} cells)"


def check_weight(weight: Fraction) -> None:
    """Refuse what is not m·2^e with a positive whole m below 2^20."""
    if type(weight) is Fraction and weight > 0:
        top, bottom = weight.as_integer_ratio()
        if bottom & (bottom - 1) == 0 and top // (top & -top) < MANTISSA:
            return
    raise RefusedError(f"a weight is m·2^e with a positive whole m below 2^20, got {weight}")
