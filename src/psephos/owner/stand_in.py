"""PRIVATE: whether a stand-in is the source under another name, as tables of counts.

A stand-in is public, and what is decided by it is published. The same rows in another format,
re-ordered, or with a line more, would publish the source's counts, so they are compared here, in
the cells that they occupy, and the answer is all that is ever said of it.

In a cell with n rows of both tables together, x of one and y of the other, independent rows give
(x - y)²/n with mean 1, at least as large as that of n fair coins: shares other than a half only
push x and y apart. So a sum T over all cells as small as the one that is seen has, by Markov's
inequality for exp(-sT), a probability of at most exp(sT) Π E exp(-s (2 Bin(n, 1/2) - n)²/n), for
every s > 0. Cells with a single row give 1 whatever they are. The smallest bound decides.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from psephos.domain.domain import Domain
from psephos.engines.columns import needed_columns
from psephos.engines.duckdb.reader import Reader
from psephos.engines.duckdb.rows import Rows
from psephos.values import Array

CHANCE = 1e-6
"""Independent tables are taken for copies at most this often."""
MOST_COINS = 1024
"""Cells with more rows are taken for cells of so many or without end, whichever decides less."""
TRIED = np.logspace(-2, 4, 25)
"""Values of s."""


def is_copy(source: Reader, stand_in: Reader, domain: Domain) -> bool:
    """Whether the counts of two tables are the same, or closer than independent rows could be."""
    tables = [_occupied_cells(each, domain) for each in (source, stand_in)]
    names = [f"i{j}" for j in range(len(domain.names))]
    none = pa.array(np.zeros(max(map(len, tables)), dtype=np.int64))
    both = pa.concat_tables(
        table.append_column("x", table["times"] if first else none[: len(table)]).append_column(
            "y", none[: len(table)] if first else table["times"]
        )
        for table, first in zip(tables, (True, False), strict=True)
    )
    sums = both.group_by(names).aggregate([("x", "sum"), ("y", "sum")])
    return are_alike(sums["x_sum"].to_numpy(), sums["y_sum"].to_numpy())


def are_alike(x: Array, y: Array) -> bool:
    """Whether two lists of counts of the same cells are nearer than chance brings independent rows.

    >>> are_alike(np.arange(1, 41), np.arange(1, 41) + (np.arange(40) == 7))
    True
    >>> are_alike(np.ones(40), np.zeros(40))
    False
    """
    total = x + y
    if np.array_equal(x, y):
        return bool(total.any())
    shared = total > 1  # a single row gives 1 whatever it is
    x, total = x[shared], total[shared]
    return _bound(float(((2 * x - total) ** 2 / total).sum()), total) <= CHANCE


def _bound(distance: float, total: Array) -> float:
    """What the probability of a sum as small as this is at most."""
    from scipy.special import logsumexp  # they take long to load, and plans need neither
    from scipy.stats import binom

    sizes, cells = np.unique(np.minimum(total, MOST_COINS).astype(np.int64), return_counts=True)
    exponents = TRIED * distance
    for n, number in zip(sizes, cells, strict=True):
        heads = np.arange(n + 1)
        terms = binom.logpmf(heads, n, 0.5) - np.outer(TRIED, (2 * heads - n) ** 2 / n)
        means = logsumexp(terms, axis=1)
        if n == MOST_COINS:
            means = np.maximum(means, -np.log1p(2 * TRIED) / 2)
        exponents += number * means
    return float(np.exp(min(exponents.min(), 0.0)))


def _occupied_cells(reader: Reader, domain: Domain) -> pa.Table:
    """The cells that a row lies in, and in how many rows each: `times`."""
    names = [f"i{j}" for j in range(len(domain.names))]

    def counted(rows: Rows) -> Any:
        cells = rows.indices(domain, [(name,) for name in domain.names], None)
        times = "CAST(SUM(times) AS BIGINT)" if rows.alike else "COUNT(*)"
        columns = ", ".join(f"CAST({name} AS BIGINT) AS {name}" for name in names)
        return rows.run(
            f"SELECT {columns}, {times} AS times FROM ({cells}) GROUP BY {', '.join(names)}"
        ).to_arrow_table()

    with reader.snapshot() as snapshot:
        return snapshot.read(needed_columns(domain, None), counted, alike=True)
