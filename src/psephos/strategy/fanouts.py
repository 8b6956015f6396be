"""Fan-outs of trees over n cells."""

from __future__ import annotations

import math

from psephos.matrix.base import positive

LEAF = 24, 129
ROOT = 200
CUT, UNEVEN = 0.2, 0.02
"""What a cut-off last block costs besides its empty leaves, and uneven fan-outs."""
EVEN = 0.03
"""Below this cost a list without empty leaves is good enough to look at no others."""
EACH = 3
"""Lists tried for each depth."""


def fanout_lists(n: int) -> list[tuple[int, ...]]:
    """A few (b₁, a, …, a, b_L) with b₁·a⋯a·b_L just above n, fan-outs 12 to 110 on average.

    For each depth those that leave the fewest leaves without a cell, then those of the most even
    fan-outs, the leaves twice as wide as the rest. If some lists of even fan-outs leave no leaf
    empty, only those: then every level is a Kronecker product.

    >>> fanout_lists(4096)
    [(32, 128), (64, 64), (8, 16, 32), (8, 8, 64)]
    """
    n = positive(n, "the number of cells")
    if n < LEAF[1]:
        return [(n,)]
    costs: dict[tuple[int, ...], float] = {}
    deepest = int(math.log(n) / math.log(12))
    shallowest = max(2, math.ceil(math.log(n) / math.log(110)))
    for depth in range(shallowest, max(shallowest, deepest) + 1):
        different: dict[tuple[int, ...], tuple[float, tuple[int, ...]]] = {}
        for leaf in range(*LEAF):
            for inner in _inner(n, leaf, depth):
                root = -(-n // (inner ** (depth - 2) * leaf))
                made = (root, *[inner] * (depth - 2), leaf)
                rated = _cost(n, made), made
                key = tuple(sorted(made))
                if 2 <= root <= ROOT and rated < different.get(key, (math.inf, made)):
                    different[key] = rated
        costs |= {made: cost for cost, made in sorted(different.values())[:EACH]}
    exact = [made for made, cost in costs.items() if cost < EVEN]
    return exact or list(costs)


def _inner(n: int, leaf: int, depth: int) -> range:
    if depth == 2:
        return range(1, 2)
    even = (n / leaf) ** (1 / (depth - 1))
    return range(max(2, int(even * 0.8)), int(even * 1.4) + 2)


def _cost(n: int, fanouts: tuple[int, ...]) -> float:
    """Leaves without a cell, and how uneven the fan-outs are."""
    waste = (math.prod(fanouts) - n) / n
    logs = [math.log(b) for b in (*fanouts[:-1], fanouts[-1] / 2)]
    mean = sum(logs) / len(logs)
    return waste + CUT * (waste > 0) + UNEVEN * sum((x - mean) ** 2 for x in logs)


def hb_levels(n: int) -> tuple[int, ...]:
    """The fan-outs of HB: b least in (b - 1)h³ - ⅔(b + 1)h² with h = ⌈log_b n⌉ levels, no root.

    Qardaji, Yang and Li 2013. For more than a few hundred cells b stays below 50.

    >>> hb_levels(4096), hb_levels(100)
    ((16, 16, 16), (100,))
    """
    n = positive(n, "the number of cells")
    return min(
        (hierarchy(n, b) for b in range(2, max(3, min(n, 256) + 1))),
        key=lambda made: _hb_cost(made[-1], len(made)),
    )


def h2_levels(n: int) -> tuple[int, ...]:
    """The fan-outs of the binary hierarchy of Hay et al. 2010: the root, then halves.

    >>> h2_levels(6)
    (1, 2, 2, 2)
    """
    return (1, *hierarchy(n, 2))


def hierarchy(n: int, b: int) -> tuple[int, ...]:
    """⌈log_b n⌉ levels of fan-out b, of which the first has no more than n needs."""
    leaves, depth = b, 1
    while leaves < n:
        leaves, depth = leaves * b, depth + 1
    return (-(-n // b ** (depth - 1)), *[b] * (depth - 1))


def _hb_cost(b: int, h: int) -> int:
    return 3 * (b - 1) * h**3 - 2 * (b + 1) * h**2
