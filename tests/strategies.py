"""Hypothesis generators: nested matrices whose entries are small integers and halves.

Then every reference value is exact in floating point, and a difference is a mistake of ours.
"""

from functools import cache

import numpy as np
import scipy.sparse as sp
from hypothesis import strategies as st

from psephos import matrix as mx

ENTRIES = st.integers(-4, 4).map(lambda k: k / 2)
WHOLE = st.integers(-3, 3)
SIZES = st.integers(1, 6)


@cache
def arrays(m, n, entries=ENTRIES):
    return st.lists(entries, min_size=m * n, max_size=m * n).map(
        lambda flat: np.array(flat).reshape(m, n)
    )


@cache
def vectors(n, entries=WHOLE):
    return st.lists(entries, min_size=n, max_size=n).map(np.array)


@st.composite
def ranges(draw, n):
    splits = [(n,)] + [(a, n // a) for a in range(2, n) if n % a == 0]
    grid = draw(st.sampled_from(splits))
    m = draw(st.integers(1, 4))
    ends = [[sorted(draw(st.tuples(*[st.integers(0, k - 1)] * 2))) for k in grid] for _ in range(m)]
    box = np.array(ends)
    return mx.Ranges(grid, box[:, :, 0], box[:, :, 1])


@st.composite
def partitions(draw, n):
    groups = draw(vectors(n, st.integers(0, n - 1)))
    return mx.Partition(np.unique(groups, return_inverse=True)[1])


@st.composite
def marginals(draw, n, family=mx.Marginals):
    splits = [(n,), (1, n)] + [(a, n // a) for a in range(2, n) if n % a == 0]
    grid = draw(st.sampled_from(splits))
    every = [(), (0,), (1,), (0, 1)] if len(grid) == 2 else [(), (0,)]
    sets = draw(st.lists(st.sampled_from(every), min_size=1, max_size=4, unique=True))
    weights = draw(st.lists(ENTRIES, min_size=len(sets), max_size=len(sets)))
    return family(grid, tuple(sets), tuple(weights))


@st.composite
def eigenspaces(draw, n):
    grid = draw(st.sampled_from([(n,), (1, n)] + [(a, n // a) for a in range(2, n) if n % a == 0]))
    return mx.Eigenspaces(grid, draw(vectors(1 << len(grid))))


@st.composite
def sparse(draw, n):
    array = draw(arrays(draw(st.integers(1, 4)), n))
    return mx.Sparse(sp.csr_array(array))


@cache
def leaves(n):
    """Every leaf of n columns: joining the family is one line here."""
    cells = st.integers(1, 5)
    return st.one_of(
        st.just(mx.Identity(n)),
        cells.map(lambda m: mx.Ones(m, n)),
        st.just(mx.total(n)),
        st.just(mx.Prefix(n)),
        st.just(mx.suffix(n)),
        st.just(mx.Difference(n)),
        vectors(n, ENTRIES).map(mx.Diagonal),
        st.just(mx.Haar(n)),
        st.just(mx.AllRange(n)),
        st.integers(1, n).map(lambda w: mx.WidthRange(n, w)),
        ranges(n),
        partitions(n),
        cells.flatmap(lambda m: arrays(m, n)).map(mx.Dense),
        cells.flatmap(lambda m: arrays(m, n, WHOLE)).map(mx.Dense),
        sparse(n),
        marginals(n),
        marginals(n, mx.MarginalsGram),
        eigenspaces(n),
        st.tuples(vectors(n), vectors(n)).map(lambda uv: mx.Semiseparable(*uv)),
        st.integers(1, 2).flatmap(lambda p: arrays(p, n, st.integers(0, 3))).map(mx.PIdentity.of),
        st.tuples(vectors(n, st.integers(1, 4)), arrays(2, n, WHOLE)).map(
            lambda a: mx.PIdentity(*a)
        ),
        st.tuples(vectors(n, st.integers(1, 4)), arrays(2, n, WHOLE)).map(
            lambda a: mx.PIdentity(*a).pinv().T
        ),
        st.tuples(vectors(n), arrays(1, n)).map(lambda a: mx.Downdate(*a)),
    )


@cache
def combinations(n, depth):
    """Matrices of n columns made of others, to the given depth."""
    part = matrices_of_width(n, depth - 1)
    factored = st.sampled_from([(a, n // a) for a in range(1, n + 1) if n % a == 0])
    whole_or_half = st.one_of(WHOLE, ENTRIES)
    return st.one_of(
        st.lists(part, min_size=1, max_size=3).map(lambda ps: mx.Stack(tuple(ps))),
        st.tuples(whole_or_half, part).map(lambda cp: mx.Scaled(*cp)),
        st.tuples(part, st.permutations(range(n))).map(lambda pp: mx.Permuted(pp[0], pp[1])),
        part.flatmap(lambda p: st.tuples(ENTRIES).map(lambda c: mx.Sum((p, mx.Scaled(c[0], p))))),
        part.map(lambda p: p.gram()),
        part.flatmap(lambda p: leaves(p.shape[0]).map(lambda q: mx.Compose((q, p)))),
        factored.flatmap(
            lambda ab: st.tuples(
                matrices_of_width(ab[0], depth - 1), matrices_of_width(ab[1], depth - 1)
            )
        ).map(mx.Kron),
        st.integers(0, n - 1)
        .flatmap(
            lambda a: st.tuples(*[matrices_of_width(k, depth - 1) for k in (a, n - a) if k > 0])
        )
        .map(mx.DirectSum),
        part.flatmap(lambda p: st.just(p.T.gram()) if p.shape[0] == n else st.just(p)),
    )


@cache
def matrices_of_width(n, depth=2):
    """Nested matrices of n columns."""
    if depth == 0:
        return leaves(n)
    return st.one_of(leaves(n), combinations(n, depth)).filter(lambda a: a.shape[0] <= 400)


@cache
def matrices(depth=2):
    """Nested matrices of a few columns, and their transposes."""
    plain = SIZES.flatmap(lambda n: matrices_of_width(n, depth))
    return st.one_of(plain, plain, plain.map(lambda a: a.T))
