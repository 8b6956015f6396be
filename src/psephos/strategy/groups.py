"""A workload cut into groups of products, and the shares of groups that are inverted in full."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from psephos.frozen import Array
from psephos.infer.axes import gram_diagonal
from psephos.matrix import Matrix
from psephos.matrix.combine import join_groups
from psephos.strategy.terms import Terms, is_total

GROUPS = 32
"""Workloads with more kinds of products than this are not cut."""
TWOS = 5
"""The most cuts in two."""
SMALLEST = 1e-4
"""The smallest share of a group."""


Cut = tuple[tuple[int, ...], ...]
"""Groups of products, by their numbers."""


def groupings(terms: Terms) -> list[Cut]:
    """A few ways to cut the products in two or more; first those in two, the best of them first.

    Products that ask about the same attributes stay together; if all do, those with the same
    queries. From there groups are merged, always the two whose merging costs least if every group
    is measured cell by cell: (Σ E^(1/3))³ with E the error of Identity on the group's merged cells.
    Taken are the end of that, the cheapest cut on the way and the finest; and the cuts in two by
    whether a product asks about an attribute.

    >>> from psephos.matrix import Prefix, total
    >>> p, t = Prefix(4), total(4)
    >>> groupings(Terms((4, 4), np.ones(3), ((p, t), (t, p), (t, t))))
    [((0,), (1, 2)), ((0, 2), (1,)), ((0,), (1,), (2,))]
    """
    asked = [tuple(not is_total(w) for w in factors) for factors in terms.factors]
    if len(set(asked)) == 1:
        finest = _alike([tuple(map(id, factors)) for factors in terms.factors])
    else:
        finest = _alike(asked)
    if not 1 < len(finest) <= GROUPS:
        return []
    sizes = _Sizes(terms)
    cuts = [finest]
    while len(cuts[-1]) > 2:
        pairs = combinations(cuts[-1], 2)
        a, b = min(pairs, key=sizes.lost)
        rest = [group for group in cuts[-1] if group not in (a, b)]
        cuts.append(tuple(sorted([*rest, tuple(sorted(a + b))])))
    twos = {cuts[-1]}
    for i in range(len(terms.shape)):
        twos.add(tuple(sorted(_alike([(kind[i],) for kind in asked]))))
    best = sorted((cut for cut in twos if len(cut) == 2), key=sizes.cost)[:TWOS]
    more = [cut for cut in (min(cuts, key=sizes.cost), finest) if len(cut) > 2]
    return list(dict.fromkeys([*best, *more]))


def _alike(kinds: Sequence[tuple[object, ...]]) -> Cut:
    found: dict[tuple[object, ...], list[int]] = {}
    for j, kind in enumerate(kinds):
        found.setdefault(kind, []).append(j)
    return tuple(tuple(group) for group in found.values())


class _Sizes:
    """E^(1/3) of Identity on merged cells, for groups of products."""

    def __init__(self, terms: Terms) -> None:
        self.terms = terms
        self.known: dict[frozenset[int], float] = {}
        self.traces: dict[tuple[int, frozenset[int]], dict[int, float]] = {}

    def cost(self, cut: Cut) -> tuple[float, Cut]:
        """Σ E^(1/3); of equal ones the first."""
        return sum(map(self.root, cut)), cut

    def lost(self, pair: tuple[tuple[int, ...], tuple[int, ...]]) -> float:
        """What merging two groups costs."""
        a, b = pair
        return self.root(a + b) - self.root(a) - self.root(b)

    def root(self, group: Sequence[int]) -> float:
        key = frozenset(group)
        if key not in self.known:
            each = self.terms.coefficients[list(group)].copy()
            for i in range(len(self.terms.shape)):
                queries = [self.terms.factors[j][i] for j in group]
                found = self._axis(i, queries)
                each *= [found[id(w)] for w in queries]
            self.known[key] = float(each.sum()) ** (1 / 3)
        return self.known[key]

    def _axis(self, i: int, queries: list[Matrix]) -> dict[int, float]:
        known = {id(w): w for w in queries}
        key = (i, frozenset(known))
        if key not in self.traces:
            groups = join_groups([w.column_groups() for w in known.values()])
            first = np.unique(groups, return_index=True)[1]
            self.traces[key] = {k: float(gram_diagonal(w)[first].sum()) for k, w in known.items()}
        return self.traces[key]


@dataclass(frozen=True, eq=False)
class Written:
    """Any parts over few cells, each with its Gram written out."""

    queries: Array
    grams: list[Array]
    power: int

    def error(self, shares: Array) -> tuple[float, Array]:
        """tr(X⁺G), and tr(X⁺X_jX⁺G) for every part."""
        x = np.zeros_like(self.queries)
        for share, gram in zip(shares, self.grams, strict=True):
            x += share**self.power * gram
        values, vectors = np.linalg.eigh(x)
        known = values > values[-1] * len(x) * 1e-14
        root = vectors[:, known] / np.sqrt(values[known])
        inverse = root @ root.T
        through = inverse @ self.queries
        both = through @ inverse
        return float(np.trace(through)), np.array([np.vdot(gram, both) for gram in self.grams])

    def shares(self, start: Array, steps: int) -> tuple[Array, float]:
        """Shares improved step by step, as in `Shared.shares`."""
        shares = np.maximum(start / start.sum(), SMALLEST)
        best, least = shares, math.inf
        for _ in range(steps):
            shares = shares / shares.sum()
            error, seen = self.error(shares)
            gain = least - error
            if gain > 0:
                best, least = shares, error
            if gain < 1e-7 * error:
                break
            moved = shares * (shares ** (self.power - 1) * seen / error) ** (1 / (self.power + 1))
            shares = np.maximum(moved, SMALLEST)
        return best, least
