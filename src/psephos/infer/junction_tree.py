"""Junction trees: the joint distribution of many attributes by tables of few of them.

A distribution that is a product of functions of a few attributes each is known by the tables of
the cliques of a triangulated graph (Lauritzen and Spiegelhalter 1988): cliques form a tree in which
neighbours share a separator, and

    p = Π_C p_C / Π_S p_S.

Two passes over the tree turn the functions into these tables: every clique sends up what its part
of the tree says of its separator, then takes from above what the rest says. Whatever else is asked
is summed up along the tree, one clique after another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from psephos.errors import TooLargeError
from psephos.matrix.marginals import Axes
from psephos.values import Array

QUESTION_CELLS = 1 << 26
"""The most cells of a table that a question about several cliques may need on the way."""


@dataclass(frozen=True)
class JunctionTree:
    """Cliques of attributes, parents before children, and what each shares with its parent.

    >>> JunctionTree.of((2, 3, 4), [(0, 1), (1, 2)])
    JunctionTree(shape=(2, 3, 4), cliques=((0, 1), (1, 2)), parents=(-1, 0))
    """

    shape: tuple[int, ...]
    cliques: tuple[Axes, ...]
    parents: tuple[int, ...]
    """The place of each clique's parent; the first has none, -1."""

    @classmethod
    def of(cls, shape: Sequence[int], scopes: Iterable[Axes]) -> JunctionTree:
        """A tree whose cliques hold all these sets of attributes, and every attribute."""
        cliques = _maximal(triangulated(shape, scopes))
        order, parents = [0], [-1]
        left = set(range(1, len(cliques)))
        while left:
            shared = {
                (len(set(cliques[i]) & set(cliques[j])), -i, -place)
                for place, j in enumerate(order)
                for i in left
            }
            _, i, place = max(shared)
            order.append(-i)
            parents.append(-place)
            left.remove(-i)
        return cls(tuple(shape), tuple(cliques[i] for i in order), tuple(parents))

    @cached_property
    def cells(self) -> int:
        """The cells of all cliques together."""
        return sum(self.sizes)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The cells of each clique."""
        return tuple(_cells(self.shape, clique) for clique in self.cliques)

    @cached_property
    def separators(self) -> tuple[Axes, ...]:
        """What each clique shares with its parent; nothing for the first."""
        pairs = zip(self.cliques, self.parents, strict=True)
        return tuple(
            () if parent < 0 else tuple(a for a in clique if a in self.cliques[parent])
            for clique, parent in pairs
        )

    def home(self, axes: Axes) -> int:
        """The smallest clique that holds these attributes; -1 if none does."""
        homes = [c for c, clique in enumerate(self.cliques) if set(axes) <= set(clique)]
        return min(homes, key=lambda c: self.sizes[c], default=-1)

    def calibrated(self, logs: Sequence[Array]) -> tuple[list[Array], float]:
        """The table of each clique from logarithms of functions of the cliques, and log Z.

        Tables are probabilities, with an axis for each attribute of the clique.
        """
        tables: list[Array] = [np.zeros(0)] * len(self.cliques)
        sent: list[Array] = [np.zeros(0)] * len(self.cliques)
        constant = 0.0
        for c in reversed(range(len(self.cliques))):
            top = float(logs[c].max())
            table = np.exp(logs[c] - top)
            for child in self._children[c]:
                table *= _along(sent[child], self.separators[child], self.cliques[c])
            sum_of_all = float(table.sum())
            table /= sum_of_all
            constant += top + math.log(sum_of_all)
            tables[c] = table
            sent[c] = _summed(table, self.cliques[c], self.separators[c])
        for c in range(1, len(self.cliques)):
            parent, shared = self.parents[c], self.separators[c]
            above = _summed(tables[parent], self.cliques[parent], shared)
            ratio = np.divide(above, sent[c], out=np.zeros_like(above), where=sent[c] > 0)
            tables[c] *= _along(ratio, shared, self.cliques[c])
        return tables, constant

    def joint(self, tables: Sequence[Array], axes: Axes) -> Array:
        """The table of any few attributes, from those of the cliques: an axis for each, in order.

        Cliques that are needed to link the attributes are multiplied from the leaves on, and what
        is not asked for is summed over as soon as nothing needs it any more.
        """
        home = self.home(axes)
        if home >= 0:
            table = _summed(tables[home], self.cliques[home], axes)
            return table.transpose(np.argsort(np.argsort(axes)))
        upward: dict[int, tuple[Axes, Array]] = {}
        links = self._links(axes)
        for c in links:
            clique, shared, table = self.cliques[c], self.separators[c], tables[c]
            wanted = set(axes) if c == links[-1] else set(axes) | set(shared)
            if c != links[-1]:
                above = _summed(table, clique, shared)
                share = np.divide(1.0, above, out=np.zeros_like(above), where=above > 0)
                table = table * _along(share, shared, clique)
            operands = [(clique, table)]
            operands += [upward[child] for child in self._children[c] if child in upward]
            inside = {a for names, _ in operands for a in names}
            remaining = tuple(sorted(inside & wanted))
            upward[c] = remaining, self._contracted(operands, remaining)
        remaining, table = upward[links[-1]]
        return table.transpose([remaining.index(a) for a in axes])

    def _contracted(self, operands: list[tuple[Axes, Array]], remaining: Axes) -> Array:
        """The product of some tables, summed over all attributes but a few."""
        needed = _cells(self.shape, remaining)
        if needed > QUESTION_CELLS:
            raise TooLargeError(
                f"this question needs a table of {needed:,} cells of several cliques, over the "
                f"limit of {QUESTION_CELLS:,}; ask about fewer attributes at a time",
                needed,
                QUESTION_CELLS,
            )
        words = [part for axes, table in operands for part in (table, list(axes))]
        return np.asarray(np.einsum(*words, list(remaining), optimize=len(operands) > 1))

    def _links(self, axes: Axes) -> list[int]:
        """Few neighbouring cliques that together hold the attributes, children first.

        A clique at the end of the tree is left out if the next one has all that is wanted of it:
        what it does not share with that one, it shares with none.
        """
        near = [set(children) for children in self._children]
        for c, parent in enumerate(self.parents):
            if parent >= 0:
                near[c].add(parent)
        chosen, ends = (
            set(range(len(near))),
            [c for c, others in enumerate(near) if len(others) < 2],
        )
        while ends:
            c = ends.pop()
            if len(near[c]) != 1:
                continue
            (other,) = near[c]
            if not (set(axes) & set(self.cliques[c])) <= set(self.cliques[other]):
                continue
            chosen.remove(c)
            near[c].clear()
            near[other].remove(c)
            if len(near[other]) == 1:
                ends.append(other)
        return sorted(chosen, reverse=True)

    @cached_property
    def _children(self) -> list[list[int]]:
        children: list[list[int]] = [[] for _ in self.cliques]
        for c, parent in enumerate(self.parents):
            if parent >= 0:
                children[parent].append(c)
        return children


def triangulated(shape: Sequence[int], scopes: Iterable[Axes]) -> list[Axes]:
    """Cliques of a triangulated graph in which attributes of each scope are neighbours.

    Attributes are taken out one by one, the one whose clique is then the smallest first (Kjærulff
    1990); what is left of its neighbours becomes a clique.

    >>> triangulated((2, 2, 2, 2), [(0, 1), (1, 2), (2, 3), (3, 0)])
    [(0, 1, 3), (1, 2, 3), (2, 3), (3,)]
    """
    near: list[set[int]] = [{a} for a in range(len(shape))]
    for scope in scopes:
        for a, b in combinations(scope, 2):
            near[a].add(b)
            near[b].add(a)
    weights = [math.log(n) for n in shape]
    left, cliques = set(range(len(shape))), []
    costs = {a: (_fill(near, a) > 0, sum(weights[b] for b in near[a])) for a in left}
    while left:
        a = min(left, key=lambda b: (*costs[b], b))
        clique = near[a]
        cliques.append(tuple(sorted(clique)))
        left.remove(a)
        others = clique - {a}
        for b in others:
            near[b] |= others
            near[b].discard(a)
        touched = others.union(*(near[b] for b in others)) if others else set()
        for b in touched & left:
            costs[b] = _fill(near, b) > 0, sum(weights[k] for k in near[b])
    return cliques


def tree_cells(shape: Sequence[int], scopes: Iterable[Axes]) -> int:
    """The cells of all cliques of the junction tree for these sets of attributes."""
    return sum(_cells(shape, clique) for clique in _maximal(triangulated(shape, scopes)))


def _fill(near: list[set[int]], a: int) -> int:
    """How many pairs of an attribute's neighbours are no neighbours yet."""
    return sum(len(near[a] - near[b]) for b in near[a])


def _maximal(cliques: Sequence[Axes]) -> list[Axes]:
    """Those that no other one holds."""
    sets = [frozenset(clique) for clique in cliques]
    return [
        clique
        for i, clique in enumerate(cliques)
        if not any(sets[i] < other for other in sets) and sets.index(sets[i]) == i
    ]


def _cells(shape: Sequence[int], axes: Iterable[int]) -> int:
    return math.prod(shape[a] for a in axes)


def _summed(table: Array, axes: Axes, remaining: Iterable[int]) -> Array:
    """A table summed over all attributes but the remaining ones."""
    wanted = set(remaining)
    drop = tuple(place for place, a in enumerate(axes) if a not in wanted)
    return np.asarray(table.sum(axis=drop)) if drop else table


def _along(table: Array, axes: Axes, clique: Axes) -> Array:
    """A table of some attributes of a clique, ready to be multiplied with the clique's."""
    sizes = dict(zip(axes, table.shape, strict=True))
    return table.reshape([sizes.get(a, 1) for a in clique])
