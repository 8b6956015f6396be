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

Residuals of few attributes are then written as marginals. Least squares goes by X and by Xx̂ alone.
If blocks know the subspaces S with information λ_S, so do marginals a of precisions θ_a with
λ_S = Σ_{a⊇S} θ_a Π_{i∉a} nᵢ, their numbers being those of x̂. Larger sets come first, and mostly no
θ is negative: the budget of a small set is for tables of all attributes, not of these few alone.
Entropy steps for marginals take a fraction of the time, as few numbers lie in one cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from psephos.errors import UnsupportedError
from psephos.infer.least_squares import LeastSquares, NoisyBlock, fit_blocks
from psephos.inverse.choice import form_of, precision
from psephos.inverse.components import subspaces_between
from psephos.inverse.form import Factors
from psephos.inverse.marginal_blocks import BlockReading
from psephos.inverse.subspaces import Subspaces
from psephos.matrix import Identity, Kron, Matrix, Partition, total
from psephos.matrix.columns import is_zero
from psephos.matrix.marginals import Axes
from psephos.values import Array

DENSE_ENTRIES = 4_000_000
"""The most entries of a factor that is written out; larger ones are solved by iteration."""
SUM_TOLERANCE = 1e-8
"""How near Bᵀv has to be to 1."""
LEAST_TOLD_SHARE = 1e-9
"""What floats leave of information that larger marginals bring."""


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
            before, so_far = sums.get(summing.matrix, (0.0, np.zeros(values.size)))
            sums[summing.matrix] = (before + c, so_far + c * values)
    if not sums:
        raise UnsupportedError(f"no measured block tells anything of {', '.join(names)} alone")
    blocks = [NoisyBlock(matrix, 1 / c, summed / c) for matrix, (c, summed) in sums.items()]
    return fit_blocks(domain, as_marginals(domain.shape, blocks) or blocks, estimate.measurements)


def as_marginals(shape: tuple[int, ...], blocks: Sequence[NoisyBlock]) -> list[NoisyBlock] | None:
    """Marginals that tell the same as residuals; None where blocks are others, or there are none.

    >>> from psephos.strategy.hdmm.residual import residual_matrix
    >>> residuals = [NoisyBlock(residual_matrix((2, 3), s), variance, np.zeros(n))
    ...              for s, variance, n in [((), 0.1, 1), ((0,), 1.0, 2)]]
    >>> [(block.matrix.shape, block.variance) for block in as_marginals((2, 3), residuals)]
    [((2, 6), 0.25), ((1, 6), 0.125)]
    """
    reading = BlockReading(shape)
    kinds = [reading.block(block.matrix, 1.0) for block in blocks]
    if reading.bases or not all(kinds) or not any(kind.residual for kind in kinds if kind):
        return None
    space = Subspaces.of(
        shape, [block.matrix for block in blocks], [precision(block.variance) for block in blocks]
    )
    rest, precisions = dict(space.information), {}
    for axes in sorted(rest, key=len, reverse=True):
        shared = rest[axes]
        if shared < -LEAST_TOLD_SHARE * space.information[axes]:
            return None
        if shared <= LEAST_TOLD_SHARE * space.information[axes]:
            continue
        cells = math.prod(float(n) for i, n in enumerate(shape) if i not in axes)
        precisions[axes] = shared / cells
        for inside in subspaces_between((), axes):
            if inside not in rest:
                return None
            rest[inside] -= shared
    fitted = space.fit([block.values for block in blocks])
    marginals = []
    for axes, theta in precisions.items():
        factors = tuple(Identity(n) if i in axes else total(n) for i, n in enumerate(shape))
        marginals.append(NoisyBlock(Kron(factors), 1 / theta, fitted.answers(factors)))
    return marginals


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
    """The rows of each factor that is not the total."""
    shares: tuple[tuple[int, Array], ...]
    """The v of every other attribute, by the place of its factor among these."""

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
    kron = block if isinstance(block, Kron) else Kron((block,))
    if kron.grid != shape:
        return None
    shares = []
    for place, (axis, factor) in enumerate(kron.active):
        if axis not in axes:
            v = _shares(factor)
            if v is None:
                return None
            shares.append((place, v))
    rows = tuple(factor.shape[0] for _, factor in kron.active)
    return _Summing(Kron(tuple(kron.factors[axis] for axis in axes)), rows, tuple(shares))


@lru_cache(maxsize=256)
def _shares(factor: Matrix) -> Array | None:
    """The shortest v with Bᵀv = 1; None if there is none."""
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
