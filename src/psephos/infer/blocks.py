"""One block of a tree: the totals of its children, and the numbers that its parent must know."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from psephos.frozen import Array
from psephos.infer.line import LineGram


@dataclass(frozen=True, eq=False)
class Node:
    """One kind of block: the covariance of its children's totals, and what its parent must know.

    u spreads a known total over the cells; i and j are cells drawn by u.
    """

    covariance: Array
    """R, of the totals of the children."""
    given: Array
    """R - R11ᵀR/y: the same when the block's total is known; its rows sum to zero."""
    share: Array
    """R1/y: how a known total is spread over the children."""
    variance: float
    """y = 1ᵀR1, the variance of the block's total."""
    position: Array
    """For each child, the mean cell E[i] within this block."""
    gaps: Array
    """For each child E[i] - E[min(i, j)], half the mean distance of two cells."""
    energies: Array
    """For each child uᵀu."""

    @cached_property
    def mean(self) -> float:
        """E[i] within the block."""
        return float(self.share @ self.position)

    @cached_property
    def gap(self) -> float:
        """E[i] - E[min(i, j)] within the block."""
        v, a = self.share, self.position
        return float(v @ a - v @ np.minimum.outer(a, a) @ v + v**2 @ self.gaps)

    @cached_property
    def energy(self) -> float:
        """The sum of squares of u."""
        return float(self.share**2 @ self.energies)

    def reduced(self, gram: LineGram) -> Array:
        """What G asks of the children's totals where the block's total is known, up to constants.

        Terms in i + j and constants have no part in it: the rows of `given` sum to zero.
        """
        a = self.position
        made = gram.minimum * np.minimum.outer(a, a) + gram.product * np.outer(a, a)
        return np.asarray(made + np.diag(gram.identity * self.energies - gram.minimum * self.gaps))

    def error(self, gram: LineGram) -> float:
        """tr((X⁻¹ - y uuᵀ) G) without the parts inside the children."""
        return float((self.given * self.reduced(gram)).sum())

    def root_error(self, gram: LineGram) -> float:
        """tr(X⁻¹G) without the parts inside the children."""
        a = self.position
        whole = self.reduced(gram) + gram.sum * np.add.outer(a, a) + gram.constant
        return float((self.covariance * whole).sum())


CELL = Node(*(np.empty(0),) * 3, math.inf, *(np.empty(0),) * 3)
CELL.__dict__.update(mean=0.0, gap=0.0, energy=1.0)


def node_of(gram: Array, width: int, children: list[Node]) -> Node:
    """A block from c·AᵀA and its children, each `width` cells after the one before."""
    many = len(children)
    inverse = np.array([1 / child.variance for child in children])
    covariance = np.linalg.inv(gram[:many, :many] + np.diag(inverse))
    covariance = (covariance + covariance.T) / 2
    sums = covariance.sum(axis=1)
    y = float(sums.sum())
    offsets = width * np.arange(float(many))
    return Node(
        covariance,
        covariance - np.outer(sums, sums) / y,
        sums / y,
        y,
        offsets + [child.mean for child in children],
        np.array([child.gap for child in children]),
        np.array([child.energy for child in children]),
    )
