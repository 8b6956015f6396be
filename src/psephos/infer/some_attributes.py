"""What the measurements say of some attributes alone, where a vector of all cells does not fit.

A block y = (A ⊗ B) x + noise asks A of some attributes and B of all others. The table of the first
is x' = (I ⊗ 1ᵀ) x. If 1 = Bᵀv, then

    (I ⊗ vᵀ) y = A x' + noise,   of |v|² times the variance,

and of all such v the shortest is best. So every block whose B tells the sum over its attributes
becomes a block over the few, with noise that is independent as before; those that become the same
are averaged. What several blocks tell of the other attributes together is not used. For marginals
nothing is lost by that: sums and differences along each attribute are known from separate, equally
noisy combinations of y, and those that a table needs are kept.

The result is least squares over a small domain: whatever can be made of all cells of a domain can
be made of this one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from psephos.errors import UnsupportedError
from psephos.infer.least_squares import LeastSquares, NoisyBlock, fit_blocks
from psephos.inverse.choice import form_of, precision
from psephos.inverse.form import Factors
from psephos.matrix import Identity, Kron, Matrix, Partition, is_total
from psephos.matrix.columns import is_zero
from psephos.matrix.marginals import Axes
from psephos.values import Array

DENSE_ENTRIES = 4_000_000
"""The most entries of a factor that is written out; larger ones are solved by iteration."""
SUM_TOLERANCE = 1e-8
"""How near Bᵀv has to be to 1."""


def of_attributes(estimate: LeastSquares, names: Sequence[str]) -> LeastSquares:
    """Least squares of the table of some attributes, from what each block tells of it.

    >>> import psephos as ps
    >>> domain = ps.Domain.of(a=3, b=2, c=50)
    >>> data = ps.simulate(np.ones(300, int), domain, unit=ps.add_remove_row(),
    ...                    budget=ps.epsilon(9), seed=1)
    >>> W = ps.marginals(domain, k=2)
    >>> estimate = ps.infer.least_squares(data.vectorise().measure(W.query, spend=ps.epsilon(9)))
    >>> small = of_attributes(estimate, ["a", "b"])
    >>> small.answer(ps.marginals(small.domain, k=2)).values.round(1)
    array([50.1, 51. , 50.1, 50. , 50. , 50. ])
    """
    domain, shape = estimate.domain.project(names), estimate.domain.shape
    axes = tuple(sorted(estimate.domain.axis(name) for name in names))
    if domain.names != tuple(estimate.domain.names[axis] for axis in axes):
        raise UnsupportedError(f"name attributes in the order of the domain, got {list(names)}")
    sums: dict[Matrix, tuple[float, Array]] = {}
    for block in estimate.blocks:
        summing = _summing(block.matrix, shape, axes)
        if summing is not None:
            c = precision(block.variance * summing.growth)
            values = summing.apply(block.values)
            before, total = sums.get(summing.matrix, (0.0, np.zeros(values.size)))
            sums[summing.matrix] = (before + c, total + c * values)
    if not sums:
        raise UnsupportedError(f"no measured block tells anything of {', '.join(names)} alone")
    blocks = [NoisyBlock(matrix, 1 / c, total / c) for matrix, (c, total) in sums.items()]
    return fit_blocks(domain, blocks, estimate.measurements)


def tells(
    blocks: Sequence[Matrix], shape: tuple[int, ...], axes: Axes, products: Sequence[Factors]
) -> list[bool]:
    """Which products over some attributes are determined by what blocks tell of these alone."""
    summings = [_summing(block, shape, axes) for block in blocks]
    matrices = list(dict.fromkeys(each.matrix for each in summings if each is not None))
    if not matrices:
        return [False] * len(products)
    form = form_of(matrices, [1.0] * len(matrices), tuple(shape[axis] for axis in axes))
    return [form.covers(factors) or any(map(is_zero, factors)) for factors in products]


class _Summing(NamedTuple):
    """How answers of a block become answers about some attributes alone."""

    matrix: Matrix
    rows: tuple[int, ...]
    """The rows of each factor."""
    shares: tuple[tuple[int, Array], ...]
    """For every other attribute its v."""

    @property
    def growth(self) -> float:
        """How many times the variance of each answer is that of the block's."""
        return math.prod(float(v @ v) for _, v in self.shares)

    def apply(self, values: Array) -> Array:
        """(I ⊗ vᵀ) y."""
        grid = np.asarray(values, dtype=float).reshape(self.rows)
        for axis, shares in reversed(self.shares):
            grid = np.tensordot(grid, shares, axes=(axis, 0))
        return grid.reshape(-1)


def _summing(block: Matrix, shape: tuple[int, ...], axes: Axes) -> _Summing | None:
    """How a block is summed over all other attributes; None if it does not tell these sums."""
    factors = block.factors if isinstance(block, Kron) else (block,)
    if tuple(factor.shape[1] for factor in factors) != shape:
        return None
    shares = []
    for axis, factor in enumerate(factors):
        if axis not in axes:
            v = _shares(factor)
            if v is None:
                return None
            shares.append((axis, v))
    rows = tuple(factor.shape[0] for factor in factors)
    return _Summing(Kron(tuple(factors[axis] for axis in axes)), rows, tuple(shares))


def _shares(factor: Matrix) -> Array | None:
    """The shortest v with Bᵀv = 1; None if there is none."""
    if is_total(factor):
        return np.ones(1)
    if isinstance(factor, Identity | Partition):
        return np.ones(factor.shape[0])
    ones = np.ones(factor.shape[1])
    if math.prod(factor.shape) <= DENSE_ENTRIES:
        v = np.linalg.lstsq(factor.dense(limit=DENSE_ENTRIES).T, ones, rcond=None)[0]
    else:
        from scipy.sparse.linalg import LinearOperator, lsmr

        turned = LinearOperator(factor.shape[::-1], matvec=factor.rmatvec, rmatvec=factor.matvec)
        v = lsmr(turned, ones, atol=1e-12, btol=1e-12)[0]
    return v if np.abs(factor.rmatvec(v) - ones).max() <= SUM_TOLERANCE else None
