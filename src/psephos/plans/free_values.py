"""What attributes get in a record of DualQuery that no drawn query decides.

A round draws some queries, and those name some attributes. What a record says of the others is
mere policy. *Drawn*: noisy counts of all values are measured once, before the first round, for a
tenth of the budget, and each attribute gets a value in proportion to its own. Then records are as
near to the data as independent attributes are, and the game is played for what these do not tell.
The other policies cost nothing and know nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.random import Generator

from psephos.kernel.budget import Budget
from psephos.kernel.unit import Unit
from psephos.values import Array

CheapPolicy = Literal["earlier", "uniform", "first"]
FreePolicy = Literal["drawn", "earlier", "uniform", "first"]
COUNTS_SHARE = Fraction(1, 10)
"""Of the budget, for noisy counts of all values."""
WIDEST_NOISE = Fraction(1, 4)
"""Counts with noise of a larger deviation than this share of the rows are not asked for."""
ANY_VALUE = 0.05
"""How often attributes get any value in place of an earlier record's, so that none is forgotten."""
DRAW_STEPS = 1 << 32


@dataclass(frozen=True, eq=False)
class ValueShares:
    """The shares of all values of some attributes, to draw cells from.

    Cells are drawn by whole numbers: `ends` are 2³²·(attribute + the shares up to a value).
    """

    attributes: Array
    starts: Array
    """The first value of each attribute among all."""
    ends: Array

    @classmethod
    def of(cls, attributes: Array, sizes: Array, counts: Array, rows: int) -> ValueShares:
        """From noisy counts, value by value: the nearest counts of so many rows, none negative.

        Args:
            attributes: by their numbers
            sizes: how many values each of them has
            counts: of all these values
            rows: how many rows there are

        >>> shares = ValueShares.of(np.array([1, 4]), np.array([2, 3]),
        ...                         np.array([90, 30, -50, 110, 10]), 100)
        >>> shares.of_attribute(0), shares.of_attribute(1)
        (array([0.8, 0.2]), array([0., 1., 0.]))
        """
        owner = np.repeat(np.arange(sizes.size), sizes)
        starts = np.cumsum(sizes) - sizes
        order = np.lexsort((-counts, owner))
        falling = counts[order]
        sums = np.cumsum(falling)
        sums -= (sums - falling)[starts][owner]
        rank = np.arange(owner.size) - starts[owner] + 1
        above = np.bincount(owner, rank * falling > sums - rows, minlength=sizes.size)
        last = starts + above.astype(np.int64) - 1  # of the values that stay above zero
        excess = (sums[last] - rows) / rank[last]
        parts = np.maximum(counts - excess[owner], 0.0) / rows
        shares = np.cumsum(parts)
        shares = np.minimum(shares - (shares - parts)[starts][owner], 1.0)
        ends = np.rint(shares * DRAW_STEPS).astype(np.int64)
        ends[starts + sizes - 1] = DRAW_STEPS
        return cls(attributes, starts, ends + (owner.astype(np.int64) << 32))

    def of_attribute(self, place: int) -> Array:
        """The shares of the values of one of the attributes."""
        ends = np.split(self.ends, self.starts[1:])[place] - (place << 32)
        return np.diff(ends, prepend=0) / DRAW_STEPS

    def records(
        self, copies: int, sizes: Array, others: CheapPolicy, generator: Generator
    ) -> Array:
        """So many records of attributes that are drawn independently, each by its own shares.

        Attributes that were not counted have any value, or their first, as `others` says.
        """
        records = np.zeros((copies, sizes.size), dtype=np.int32)
        if others == "uniform" and self.attributes.size < sizes.size:
            records[:] = generator.integers(sizes, size=records.shape)
        places = np.arange(self.attributes.size, dtype=np.int64) << 32
        some = places + generator.integers(DRAW_STEPS, size=(copies, places.size))
        records[:, self.attributes] = np.searchsorted(self.ends, some, "right") - self.starts
        return records


def counts_pay(budget: Budget, unit: Unit, attributes: int, rows: int) -> bool:
    """Does a tenth of the budget buy counts of values that tell more than no counts would?"""
    reach = unit.distance**2 * attributes
    return reach <= 2 * (budget.amount * COUNTS_SHARE) * (WIDEST_NOISE * rows) ** 2


def free_cells(
    free: CheapPolicy, records: Sequence[Array] | Array, generator: Generator
) -> Array | Literal["uniform", "first"]:
    """What attributes get that no drawn query names, where values were not counted.

    Records come to have the frequent values of attributes, so that an earlier one is a better guess
    than any value: on KDD99 the largest error is a fifth smaller so, on others as large. Where
    hardly any attribute is named in a round, records would only be copies of each other.
    """
    if free != "earlier":
        return free
    if not len(records) or generator.random() < ANY_VALUE:
        return "uniform"
    return np.asarray(records[int(generator.integers(len(records)))])
