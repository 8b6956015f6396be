"""Trees of parts: every level cuts the one above, in runs of leaves."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import psephos as ps
from psephos.domain.part_tree import PartTree
from psephos.errors import DomainError, TooLargeError


@given(states=st.lists(st.integers(0, 3), min_size=1, max_size=12), sectors=st.integers(1, 3))
def test_levels_are_nested_runs(states, sectors):
    county = ps.Attribute.of(len(states))
    names = {s: [i for i, state in enumerate(states) if state == s] for s in set(states)}
    county = county.with_level("state", {f"s{s}": counties for s, counties in names.items()})
    domain = ps.Domain.of(sector=sectors, county=county, age=2)
    tree = PartTree.of(domain, ("state", "county", "sector"))
    assert tree.leaves == len(states) * sectors
    assert tree.sizes == (1, len(names), len(states), tree.leaves)
    assert (np.sort(tree.order) == np.arange(tree.leaves)).all()
    county_of, _ = np.unravel_index(np.arange(tree.leaves), (len(states), sectors))
    by_state = {}
    for leaf, group in enumerate(tree.groups(1)):
        by_state.setdefault(int(group), set()).add(states[county_of[leaf]])
    assert all(len(found) == 1 for found in by_state.values())
    for level in range(1, 4):
        parents = tree.parents(level)
        for part in range(tree.sizes[level - 1]):
            assert list(np.flatnonzero(parents == part)) == list(tree.children(level - 1, part))
        labels = tree.labels(level)
        assert len(set(labels)) == len(labels) == tree.sizes[level]
        assert all(tree.part(label) == (level, i) for i, label in enumerate(labels))
    assert tree.part(()) == (0, 0)


def test_bad_trees_say_what_can_be_named():
    county = ps.Attribute.of(4).with_level("state", {"a": [0, 1], "b": [2, 3]})
    domain = ps.Domain.of(county=county, age=2)
    with pytest.raises(DomainError, match="a level of 'county': name 'county' after it"):
        PartTree.of(domain, ("county", "state"))
    with pytest.raises(DomainError, match="'town'"):
        PartTree.of(domain, ("town",))
    with pytest.raises(DomainError, match="list of names"):
        PartTree.of(domain, "county")
    with pytest.raises(DomainError, match="twice"):
        PartTree.of(domain, ("county", "county"))
    with pytest.raises(DomainError, match="way from the whole"):
        PartTree.of(domain, ("state", "county")).part(["a", "3"])
    with pytest.raises(TooLargeError, match="smallest parts"):
        PartTree.of(ps.Domain.of(x=10**4, y=10**4, z=2), ("x", "y"))
