"""Rows kept as cell indices, so that many counts of one table take one reading.

A strategy of thousands of marginals counts as often. From its second count on a source keeps the
rows that stay, one small integer for each attribute, if they fit in memory; a count is then a
`bincount`. What is counted is the same, row by row (tests/engines/test_row_cache.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from psephos.domain.domain import Domain
from psephos.kernel.source import Cells
from psephos.values import Array

MOST_BYTES = 1 << 28
"""Tables that would need more are read for every count."""
SLICE = 1 << 20
"""So many rows are counted at once, which takes some 30 bytes for each."""


class RowCache:
    """One array of cell indices for each attribute of the domain, in its order.

    No dataclass, and shown without what it holds, not even the number of rows.
    """

    __slots__ = ("_columns", "_domain")

    def __init__(self, domain: Domain, columns: tuple[Array, ...]) -> None:
        self._domain = domain
        self._columns = columns

    @classmethod
    def of(cls, domain: Domain, batches: Iterable[list[Array]]) -> RowCache | None:
        """From batches of one index for each attribute; None if all rows would be too large."""
        kinds = [np.min_scalar_type(n) for n in domain.shape]
        width = sum(kind.itemsize for kind in kinds)
        parts: list[list[Array]] = []
        rows = 0
        for batch in batches:
            rows += len(batch[0])
            if rows * width > MOST_BYTES:
                return None
            parts.append([c.astype(kind) for c, kind in zip(batch, kinds, strict=True)])
        if not parts:
            return cls(domain, tuple(np.zeros(0, kind) for kind in kinds))
        return cls(domain, tuple(np.concatenate(column) for column in zip(*parts, strict=True)))

    def count(self, attributes: tuple[str, ...], keep: Cells) -> Array:
        """How many rows lie in each cell of `attributes`, of those that all of `keep` allow."""
        shape = tuple(self._domain[name].size for name in attributes)
        counts = np.zeros(math.prod(shape), dtype=np.int64)
        masks = [np.ravel(conjunct.mask) for conjunct in keep]
        # Few slices of large tables of counts: adding a slice's counts takes a pass over all cells.
        step = max(SLICE, counts.size)
        for start in range(0, len(self._columns[0]), step):
            rows = slice(start, start + step)
            index = self._flat(attributes, rows)
            inside = np.ones(index.size, dtype=bool)
            for mask, conjunct in zip(masks, keep, strict=True):
                inside &= mask[self._flat(conjunct.names, rows)]
            counts += np.bincount(index[inside] if keep else index, minlength=counts.size)
        return counts.reshape(shape)

    def _flat(self, names: tuple[str, ...], rows: slice) -> Array:
        """The row-major index of some rows in the cells of some attributes."""
        flat = np.zeros(len(self._columns[0][rows]), dtype=np.int64)
        for name in names:
            flat *= self._domain[name].size
            flat += self._columns[self._domain.axis(name)][rows]
        return flat

    def __repr__(self) -> str:
        return f"RowCache({len(self._domain.names)} attributes)"
