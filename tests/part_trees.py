"""Hypothesis generators: trees of parts of every shape, and the matrices of their levels."""

import numpy as np
from hypothesis import strategies as st

from psephos.domain.part_tree import PartTree


def tree_of(children):
    """A tree by the number of children of each part, level by level."""
    edges = [np.arange(sum(children[-1]) + 1 if children else 2)]
    for counts in reversed(children):
        edges.append(edges[-1][np.concatenate([[0], np.cumsum(counts)])])
    edges.reverse()
    labels = tuple(tuple(str(i) for i in range(len(each) - 1)) for each in edges)
    names = ("all", *(f"level {k}" for k in range(1, len(edges))))
    return PartTree(("part",), names, np.arange(len(edges[-1]) - 1), tuple(edges), labels)


@st.composite
def part_trees(draw, most_levels=3, most_children=4):
    children, parts = [], 1
    for _ in range(draw(st.integers(0, most_levels))):
        counts = st.lists(st.integers(1, most_children), min_size=parts, max_size=parts)
        children.append(draw(counts))
        parts = sum(children[-1])
        if parts > 12:
            break
    return tree_of(children)


def level_matrices(tree):
    """P_l of each level: which leaves each part holds."""
    places = np.arange(tree.leaves)
    return [
        ((places >= edges[:-1, None]) & (places < edges[1:, None])).astype(float)
        for edges in tree.edges
    ]


@st.composite
def level_precisions(draw, tree):
    """Precisions of the levels, some of which are not measured."""
    levels = len(tree.names)
    u = draw(st.lists(st.sampled_from([0.0, 0.1, 1.0, 7.5]), min_size=levels, max_size=levels))
    u[draw(st.integers(0, levels - 1))] = draw(st.sampled_from([0.2, 1.0, 3.0]))
    return u
