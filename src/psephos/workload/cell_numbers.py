"""The numbers that cells stand for in sums, means and quantiles.

A whole number or a declared number stands for itself. A bin stands for its representative, the
middle of the bin unless another number is declared. A cell for missing or undeclared entries has
no number: like NULL in SQL it is left out of sums and of the rows that a mean is taken over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from psephos.domain.attribute import Attribute
from psephos.domain.levels import shown_number
from psephos.domain.values import OTHER
from psephos.errors import DomainError
from psephos.values import Array, Value, frozen


@dataclass(frozen=True, eq=False)
class CellNumbers(Value):
    """The number of every cell, 0 where there is none; `known` says where there is one."""

    values: Array
    known: Array
    edges: tuple[float, ...] | None = None
    """Of bins: what lies between two of them counts as one number."""

    @property
    def low(self) -> float:
        """The least number that a row can have."""
        return float(self.values[self.known].min())

    @property
    def high(self) -> float:
        """The largest."""
        return float(self.values[self.known].max())

    @property
    def size(self) -> float:
        """The largest absolute value: what one row can add to a sum, either way."""
        return float(np.abs(self.values).max())

    @property
    def increasing(self) -> bool:
        """Do cells lie in the order of their numbers?"""
        return bool((np.diff(self.values[self.known].astype(float)) > 0).all())

    @property
    def binning(self) -> float:
        """How far a row's own number can be from the one it counts as; 0 without bins."""
        if self.edges is None:
            return 0.0
        middle = self.values[self.known].astype(float)
        low, high = np.array(self.edges[:-1]), np.array(self.edges[1:])
        return float(np.maximum(middle - low, high - middle).max())


def numbers_of(attribute: Attribute) -> CellNumbers:
    """The numbers of an attribute's cells; an attribute without numbers is refused.

    >>> numbers_of(Attribute.bins([0, 10, 20])).values
    array([ 5, 15])
    """
    if attribute.parts or not attribute.is_numeric:
        raise DomainError(
            f"it holds {attribute.some_values()}, which are no numbers; sums, means and quantiles "
            "are of integers, bins and values that are numbers"
        )
    if isinstance(attribute.values, range):
        values = np.array(attribute.values, dtype=np.int64)
        return CellNumbers(frozen(values), frozen(np.ones(values.size, dtype=bool)))
    if attribute.edges is not None:
        middles = attribute.representatives or _middles(attribute)
        cells: list[float | None] = list(middles)
        cells += [None] * (attribute.size - len(middles))
    else:
        cells = [None if v is None or v is OTHER else v for v in attribute.values]
    known = np.array([cell is not None for cell in cells])
    values = np.array([0 if cell is None else cell for cell in cells])
    if values.dtype.kind == "f" and (values == np.rint(values)).all():
        values = values.astype(np.int64)
    return CellNumbers(frozen(values), frozen(known), attribute.edges)


def _middles(attribute: Attribute) -> tuple[float, ...]:
    """The middle of every bin; a bin without an end has none."""
    edges = attribute.edges or ()
    for low, high in pairwise(edges):
        if math.isinf(low) or math.isinf(high):
            raise DomainError(
                f"the bin from {shown_number(low)} to {shown_number(high)} has no end, so nobody "
                "can say what a row in it adds to a sum; declare a number for every bin, "
                "representatives = [...] in a release file, with_representatives in Python, or "
                "give the bins a last edge and unknown = 'clip'"
            )
    return tuple((low + high) / 2 for low, high in pairwise(edges))
