"""Counts of single values: how many rows have each value of some attributes.

A table of one attribute beside another for hundreds of thousands of attributes, which no product of
matrices could name: `measure` takes one block for each, and each names all others.

Privacy: a row has one value of each of k attributes, so one row more or less moves k counts by one
each: Δ₁ = k and Δ₂² = k, whatever the number of values (tests/kernel/test_value_counts.py).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from psephos.domain.conjunctions import Conjunctions
from psephos.domain.domain import Domain
from psephos.errors import RefusedError
from psephos.kernel.scores.dual_query import MOST_DRAWN_FROM, whole_copy


def value_queries(attributes: ArrayLike, domain: Domain) -> tuple[Conjunctions, int]:
    """A conjunction for each value of these attributes, by their numbers, and how many these are.

    >>> queries, attributes = value_queries([0, 2], Domain.of(sex=2, age=100, smokes=3))
    >>> queries.attributes.ravel().tolist(), queries.values.ravel().tolist(), attributes
    ([0, 0, 2, 2, 2], [0, 1, 0, 1, 2], 2)
    """
    axes = whole_copy(attributes)
    if axes.ndim != 1 or not axes.size or axes[0] < 0 or (np.diff(axes) <= 0).any():
        raise RefusedError("attributes are named by their numbers, each once, in rising order")
    if axes[-1] >= len(domain):
        raise RefusedError(f"there is no attribute {axes[-1]:,}; the last is {len(domain) - 1:,}")
    sizes = np.array(domain.shape)[axes]
    values = sum(sizes.tolist())
    if values > MOST_DRAWN_FROM:
        raise RefusedError(f"{values:,} values are over the limit of {MOST_DRAWN_FROM:,}")
    starts = np.repeat(np.cumsum(sizes) - sizes, sizes)
    codes = np.arange(values, dtype=np.int64) - starts
    return Conjunctions(np.repeat(axes, sizes)[:, None], codes[:, None]), axes.size
