"""What every answer of a measured block counts, in words: the rows of the raw view."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from psephos.domain.domain import Domain
from psephos.matrix import Compose, Identity, Kron, Matrix, Ones, Partition
from psephos.report.points import TOTAL
from psephos.values import Array

FACTOR_ENTRIES = 2_000_000
"""The most entries of a factor that are looked at one by one."""


def block_lists(matrix: Matrix, domain: Domain) -> dict[str, list[str]] | None:
    """Words for the rows of every factor, by attribute; None if it is no product of attributes."""
    fits = isinstance(matrix, Kron) and tuple(f.shape[1] for f in matrix.factors) == domain.shape
    if not fits or not isinstance(matrix, Kron):
        return None
    lists: dict[str, list[str]] = {}
    for name, factor in zip(domain.names, matrix.factors, strict=True):
        parts = domain[name].parts
        if isinstance(factor, Ones):
            continue
        if isinstance(factor, Identity) and parts:
            lists |= {part: list(attribute.labels) for part, attribute in parts}
        else:
            lists[name] = row_words(factor, domain[name].labels)
    return lists


def row_words(factor: Matrix, labels: Sequence[str]) -> list[str]:
    """A label, a range of them, some times a label, or else the number of a weighted sum.

    >>> from psephos.matrix import Dense
    >>> row_words(Dense([[1, 1, 0], [0, 0, 3], [2, 1, 1]]), ["a", "b", "c"])
    ['a to b', '3 × c', 'weighted sum 1']
    """
    if isinstance(factor, Identity):
        return list(labels)
    if isinstance(factor, Compose) and isinstance(factor.parts[-1], Partition):
        inner = factor.parts[0] if len(factor.parts) == 2 else Compose(factor.parts[:-1])
        return row_words(inner, row_words(factor.parts[-1], labels))
    if isinstance(factor, Partition):
        members = [np.flatnonzero(factor.groups == g) for g in range(factor.shape[0])]
        return [_label_range(cells, labels) or f"group {g + 1}" for g, cells in enumerate(members)]
    rows, cells = factor.shape
    if rows * cells > FACTOR_ENTRIES:
        return [f"combination {i + 1}" for i in range(rows)]
    words, sums = [], 0
    for row in factor.dense(limit=FACTOR_ENTRIES):
        text = _row_text(row, labels)
        sums += text is None
        words.append(f"weighted sum {sums}" if text is None else text)
    return words


def _row_text(row: Array, labels: Sequence[str]) -> str | None:
    """The cells that a row counts, and how often; None if some count more often than others."""
    cells = np.flatnonzero(row)
    if cells.size == 0 or np.ptp(row[cells]):
        return None
    text, times = _label_range(cells, labels), row[cells[0]]
    return text if text is None or times == 1 else f"{times:,.0f} × {text}"


def _label_range(cells: Array, labels: Sequence[str]) -> str | None:
    """The first and last label of neighbouring cells; None if they are no neighbours."""
    first, last = int(cells[0]), int(cells[-1])
    if cells.size == len(labels) > 1:
        return TOTAL
    if cells.size == 1:
        return labels[first]
    return f"{labels[first]} to {labels[last]}" if last - first == cells.size - 1 else None


def largest_entry(matrix: Matrix) -> float:
    """How often a block counts a row at most; 1 for what is too large to look at."""
    if isinstance(matrix, Kron):
        return math.prod(largest_entry(factor) for factor in matrix.factors)
    if isinstance(matrix, Compose) and isinstance(matrix.parts[-1], Partition):
        return math.prod(largest_entry(part) for part in matrix.parts[:-1])
    if isinstance(matrix, Identity | Ones | Partition) or math.prod(matrix.shape) > FACTOR_ENTRIES:
        return 1.0
    return float(np.abs(matrix.dense(limit=FACTOR_ENTRIES)).max())
