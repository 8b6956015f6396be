"""Generated blocks and factors of every structure that an inverse knows, in whole numbers."""

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from psephos import matrix as mx
from psephos.matrix.base import first_appearance

SHAPE = (3, 4)


def integers(low, high, size):
    return st.lists(st.integers(low, high), min_size=size, max_size=size)


@st.composite
def attribute_factors(draw, n):
    """What strategies put on one attribute."""
    kind = draw(st.sampled_from(["identity", "total", "p", "merged", "p merged", "prefix"]))
    groups = draw(integers(0, n - 1, n))
    partition = mx.Partition(np.unique(groups, return_inverse=True)[1])
    cells = partition.shape[0] if kind == "p merged" else n
    rows = draw(st.lists(integers(0, 3, cells), min_size=1, max_size=2))
    p_identity = mx.PIdentity(draw(integers(1, 4, cells)), rows)
    if kind == "p merged":
        return mx.Compose((p_identity, partition))
    simple = {"identity": mx.Identity(n), "total": mx.total(n), "prefix": mx.Prefix(n)}
    return simple.get(kind) or {"p": p_identity, "merged": partition}[kind]


BLOCKS = st.tuples(*map(attribute_factors, SHAPE)).map(mx.Kron)


def residual(n):
    """n I - 11ᵀ, the factor of a residual."""
    return mx.Dense(n * np.eye(n, dtype=np.int64) - 1)


@st.composite
def partitions(draw, n):
    """Levels from fine to coarse: groups of the level before are joined at random."""
    groups = np.arange(n)
    if draw(st.booleans()):
        groups = np.array(draw(st.permutations(range(n))))
    if draw(st.integers(0, 3)) == 0:  # the finest level may merge cells too
        groups = first_appearance(groups // 2)
    levels = [groups]
    for _ in range(draw(st.integers(0, 3))):
        size = int(levels[-1].max()) + 1
        levels.append(first_appearance(np.array(draw(integers(0, size - 1, size)))[levels[-1]]))
    return levels


@st.composite
def nested_levels(draw):
    """Stacks of scaled partitions, of rows weighted one by one and with some left out."""
    n = draw(st.integers(1, 9))
    parts = []
    for depth, groups in enumerate(draw(partitions(n))):
        size = int(groups.max()) + 1
        kind = draw(st.sampled_from(["plain", "scaled", "rows"]))
        if kind == "rows":
            weights = np.array(draw(integers(1 if depth == 0 else 0, 4, size)))
            live = np.flatnonzero(weights)
            if not live.size:
                continue
            rows = np.where(groups[None] == np.arange(size)[:, None], weights[:, None], 0)
            parts.append(mx.Sparse(sp.csr_array(rows[live])))
            continue
        part = mx.Partition(groups) if size < n else mx.Identity(n)
        parts.append(mx.Scaled(draw(st.integers(1, 3)), part) if kind == "scaled" else part)
    return mx.Stack(tuple(draw(st.permutations(parts))))


@st.composite
def nested_grids(draw):
    """Levels that are products of nested partitions of two axes."""
    axes = [draw(partitions(draw(st.integers(1, 4)))) for _ in range(2)]
    depth = max(map(len, axes))
    levels = [[axis[min(i, len(axis) - 1)] for axis in axes] for i in range(depth)]
    return mx.Stack(tuple(mx.Kron(tuple(mx.Partition(g) for g in level)) for level in levels))


@st.composite
def closed_pinv(draw):
    """Wavelets, prefixes and differences, whose A⁺ has a closed form."""
    n = draw(st.integers(1, 20))
    turned = mx.Permuted(mx.Haar(n), np.arange(n)[::-1])
    return draw(st.sampled_from([mx.Haar(n), mx.Prefix(n), mx.Difference(n), turned]))


def tree_of_counts(levels, weights=None, cells=None):
    """Stack(w_ℓ · I ⊗ A_ℓ ⊗ total), cut to its first cells."""
    fanouts = [np.shape(level)[1] for level in levels]
    parts = []
    for depth, level in enumerate(levels):
        before = [mx.Identity(b) for b in fanouts[:depth]]
        after = [mx.total(b) for b in fanouts[depth + 1 :]]
        kron = mx.Kron((*before, mx.Dense(np.array(level)), *after))
        parts.append(kron if weights is None else mx.Scaled(weights[depth], kron))
    tree, leaves = mx.Stack(tuple(parts)), int(np.prod(fanouts))
    if cells is None or cells == leaves:
        return tree
    first = sp.eye_array(leaves, cells, format="csr", dtype=np.int64)
    return mx.Compose((tree, mx.Sparse(first)))


@st.composite
def trees_of_counts(draw):
    """Trees with any small levels, of which the last tells its cells apart, cut off anywhere."""
    fanouts = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    levels = []
    for depth, b in enumerate(fanouts):
        rows = np.array(draw(st.lists(integers(0, 2, b), min_size=1, max_size=3)))
        last = depth == len(fanouts) - 1
        levels.append(np.vstack([np.diag(draw(integers(1, 3, b))), rows]) if last else rows)
    weights = draw(integers(1, 3, len(fanouts)))
    return tree_of_counts(levels, weights, draw(st.integers(1, int(np.prod(fanouts)))))


def queries_on(n):
    """Some queries of every kind on one axis."""
    yield from [mx.Prefix(n), mx.AllRange(n), mx.Identity(n), mx.Ones(2, n)]
    yield mx.WidthRange(n, min(2, n))
    yield mx.Stack((mx.Identity(n), mx.Scaled(3, mx.total(n))))
    yield mx.Dense(np.arange(3 * n).reshape(3, n) % 5 - 1)
    yield mx.Permuted(mx.Prefix(n), np.arange(n)[::-1])
