"""Strategies that do not look at the workload: cells, the workload itself, wavelets and trees.

Trees split all attributes at once. A level is a product of partitions, one for each attribute, and
every level, down to single cells, is measured; an attribute that has come to single cells is split
no further. So all cells lie in as many measured groups, and all columns have equal norms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from psephos.errors import TooLargeError, WorkloadError, checked_whole
from psephos.kernel.query import Block, Query
from psephos.matrix import Haar, Identity, Kron, Matrix, Partition, Scaled, Stack, total
from psephos.strategy.build import in_whole_numbers
from psephos.strategy.factors import NoiseName, checked_selection, checked_size
from psephos.strategy.strategy import Strategy
from psephos.values import Array
from psephos.variances import NoiseKind
from psephos.workload.product import rounded_weight
from psephos.workload.workload import Workload

LEVEL_UNIT = 32
"""The whole number that stands for one where levels differ: a step is 2 % of it at most."""
QUADTREE_ROOTS = {NoiseKind.LAPLACE: 3, NoiseKind.GAUSSIAN: 4}
"""Level i of a quadtree has queries of length 2^(i/3), or 2^(i/4) under Gaussian noise."""
LISTED_CELLS = 10**7
"""The most cells whose columns are looked at one by one."""
TREE_CELLS = 10**9
"""Trees over more cells could not be measured."""
Cuts = Callable[[Array, Array], Array]
"""From the ends [start, stop) of intervals to all cuts inside of them."""


def identity(workload: Workload, noise: NoiseName = "laplace") -> Strategy:
    """Every cell on its own."""
    kind = checked_selection(workload, noise)
    cells = Kron(tuple(Identity(n) for n in workload.domain.shape))
    return Strategy(workload.domain, kind, Query.of(cells), "identity")


def workload_itself(workload: Workload, noise: NoiseName = "laplace") -> Strategy:
    """The queries as they are asked: the Laplace or Gaussian mechanism, made consistent.

    The error is that of least squares on the noisy answers, never more than theirs alone: Δ² times
    the rank of W instead of the number of queries, where all products have weight one.
    """
    kind = checked_selection(workload, noise)
    known: dict[int, tuple[Matrix, int]] = {}
    blocks = []
    for i, product in enumerate(workload.products):
        size, factors = 1, []
        for name, factor in zip(workload.domain.names, workload.factors(i), strict=True):
            if id(factor) not in known:
                known[id(factor)] = in_whole_numbers(factor, name, product.title)
            whole, times = known[id(factor)]
            factors.append(whole)
            size *= times
        # In the L2 norm the weight of a block is its precision.
        weight = rounded_weight((product.weight / size) ** kind.norm)
        blocks.append(Block(Kron(tuple(factors)), weight))
    return Strategy(workload.domain, kind, Query(tuple(blocks)), "workload")


def direct_error(workload: Workload, noise: NoiseName = "laplace") -> float:
    """The budget-free error of the workload's own answers with noise, nothing inferred: Δ²·m.

    Where the largest columns of different products lie in different cells and there are too many
    cells to look at each, Δ is the sum of their sizes, which is no smaller.
    """
    norm = checked_selection(workload, noise).norm

    def sums(factor: Matrix) -> Array:
        return (factor.abs() if norm == 1 else factor.sqr())._column_sums()

    if workload.domain.size <= LISTED_CELLS:
        axes = workload.different_factors()
        if not all(_share_largest([sums(factor) for factor in axis]) for axis in axes):
            return workload.matrix.sensitivity(norm) ** 2 * workload.shape[0]
    weights = np.array([product.weight**norm for product in workload.products])
    total = float(weights @ workload.factor_products(lambda factor: float(sums(factor).max())))
    return (total**2 if norm == 1 else total) * workload.shape[0]


def _share_largest(sums: Sequence[Array]) -> bool:
    """Is there a cell in which all of these are largest?"""
    return bool(np.all([each == each.max() for each in sums], axis=0).any())


def privelet(workload: Workload, noise: NoiseName = "laplace") -> Strategy:
    """The Haar wavelet on every attribute (Xiao, Wang and Gehrke 2010).

    Coefficients are sums and differences of counts, entries 0 and ±1, all with one scale of noise,
    which is the same as the paper's weights on averages. Any length will do.
    """
    kind = checked_selection(workload, noise)
    wavelets = Kron(tuple(Haar(n) for n in workload.domain.shape))
    return Strategy(workload.domain, kind, Query.of(wavelets), "privelet")


def h2(workload: Workload, noise: NoiseName = "laplace") -> Strategy:
    """A tree that halves every attribute at each level, with its root (Hay et al. 2010)."""
    kind = checked_selection(workload, noise)
    return _tree(workload, kind, equal_parts(2), "h2", root=True)


def hb(workload: Workload, noise: NoiseName = "laplace", branching: int | None = None) -> Strategy:
    """A flat tree of few levels, without its root (Qardaji, Yang and Li 2013).

    Args:
        workload: its domain is what counts
        noise: "laplace" or "gaussian"
        branching: into how many parts each attribute is split; by the paper's rule if left out
    """
    kind = checked_selection(workload, noise)
    check_tree(workload)
    b = best_branching(workload.domain.size) if branching is None else branching
    b = checked_whole(b, "branching", 2)
    return _tree(workload, kind, equal_parts(b), "hb", root=False)


def quadtree(workload: Workload, noise: NoiseName = "laplace", *, even: bool = False) -> Strategy:
    """Rectangles split in four at their middle, root and all (Cormode et al. 2012).

    A range cuts about 2^i of the rectangles of level i, so that their budgets best grow like the
    cube root of that under Laplace noise, 2^(i/3), and precisions like its square root under
    Gaussian noise. With one attribute a range cuts two intervals of any level and all levels are
    alike, as they are with `even`. For more than two attributes, `h2` does the same.
    """
    kind = checked_selection(workload, noise)
    d = len(workload.domain.shape)
    if d > 2:
        raise WorkloadError(
            f"a quadtree is for one or two attributes, {workload.domain} has {d}; use h2 or hb"
        )
    root_degree = QUADTREE_ROOTS[kind] if d == 2 and not even else None
    return _tree(workload, kind, halves, "quadtree", root=True, growth=root_degree)


def best_branching(n: int) -> int:
    """The b ≥ 2 with the least (b - 1)h³ - ⅔(b + 1)h², h = ⌈log_b n⌉; the smallest such b.

    For one height h the smallest b with b^h ≥ n is best, so only these are compared, in integers.

    >>> [best_branching(n) for n in (16, 100, 256, 1000, 1024, 4096, 65536, 2**20)]
    [16, 100, 16, 32, 32, 16, 16, 16]
    """
    best: tuple[int, int] | None = None
    for h in range(max(1, (n - 1).bit_length()), 0, -1):
        b = max(2, _root(n, h))
        cost = 3 * (b - 1) * h**3 - 2 * (b + 1) * h**2
        if best is None or cost < best[0]:
            best = (cost, b)
    return best[1] if best else 2


def equal_parts(b: int) -> Cuts:
    """Into b parts as equal as can be, longer ones first: cuts at start + ⌈length · i/b⌉."""

    def cuts(starts: Array, stops: Array) -> Array:
        parts = np.arange(min(b, int((stops - starts).max())) + 1)
        lengths = (stops - starts)[:, None]
        count = np.minimum(b, lengths)
        return np.asarray(starts[:, None] - (-lengths * np.minimum(parts, count) // count))

    return cuts


def halves(starts: Array, stops: Array) -> Array:
    """In two at the floor of the middle."""
    return (starts + stops) // 2


def axis_levels(n: int, split: Cuts) -> list[Array]:
    """The groups of n cells, level by level, from all in one to each on its own.

    >>> axis_levels(3, equal_parts(2))
    [array([0, 0, 0]), array([0, 0, 1]), array([0, 1, 2])]
    """
    ends = np.array([0, n])
    levels = []
    while True:
        levels.append(np.repeat(np.arange(ends.size - 1), np.diff(ends)))
        if ends.size == n + 1:
            return levels
        ends = np.union1d(ends, split(ends[:-1], ends[1:]).ravel())


def tree_levels(shape: Sequence[int], split: Cuts, *, root: bool) -> list[Kron]:
    """Products of the levels of all attributes, from coarse to fine."""
    axes = [axis_levels(n, split) for n in shape]
    depth = max(map(len, axes))
    products = []
    for i in range(0 if root or depth == 1 else 1, depth):
        products.append(Kron(tuple(_groups(levels[min(i, len(levels) - 1)]) for levels in axes)))
    return products


def check_tree(workload: Workload) -> None:
    """Refuse domains with more cells than a tree can end in."""
    checked_size(workload)
    if workload.domain.size > TREE_CELLS:
        raise TooLargeError(
            f"a tree ends in single cells, and 10^{len(str(workload.domain.size)) - 1} or more are "
            f"over the limit of {TREE_CELLS:,}; use select.hdmm, which finds marginals for so many",
            workload.domain.size,
            TREE_CELLS,
        )


def _tree(
    workload: Workload,
    noise: NoiseKind,
    split: Cuts,
    name: str,
    *,
    root: bool,
    growth: int | None = None,
) -> Strategy:
    """All levels alike, or level i with queries of length 2^(i/growth) in small whole numbers."""
    check_tree(workload)
    domain = workload.domain
    levels: list[Matrix] = list(tree_levels(domain.shape, split, root=root))
    if growth is not None and len(levels) > 1:
        levels = [
            Scaled(round(LEVEL_UNIT * 2 ** (i / growth)), level) for i, level in enumerate(levels)
        ]
    whole = levels[0] if len(levels) == 1 else Stack(tuple(levels))
    return Strategy(domain, noise, Query.of(whole), name)


def _groups(groups: Array) -> Matrix:
    count = int(groups[-1]) + 1
    if count == groups.size:
        return Identity(groups.size)
    return total(groups.size) if count == 1 else Partition(groups)


def _root(n: int, h: int) -> int:
    """The smallest b with b^h ≥ n."""
    low, high = 1, n
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if middle**h >= n else (middle + 1, high)
    return low
