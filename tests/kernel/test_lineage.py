"""Random lineage trees against a reference model of Algorithm 2."""

import os
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from psephos.kernel.lineage import Node, count, withdraw


class Reference:
    """What each node has spent, and the root's bill by the definition: max over parts, else sum."""

    def __init__(self, kind, parent=None):
        self.kind, self.parent, self.children = kind, parent, []
        self.own = Fraction(0)
        if parent is not None:
            parent.children.append(self)

    def bill(self):
        below = [child.bill() for child in self.children]
        if self.kind == "split":
            return max(below, default=Fraction(0))
        return self.own + sum(below)


@given(data=st.data())
def test_random_trees_pay_the_reference_bill(data):
    nodes = [(Node("root"), Reference("root"))]
    paid = Fraction(0)
    for i in range(data.draw(st.integers(1, 25))):
        node, ref = data.draw(st.sampled_from(nodes))
        action = data.draw(st.sampled_from(["step", "split", "spend", "spend"]))
        if action == "step" or node.kind == "split":
            nodes.append((node.step(f"s{i}", data.draw(st.integers(1, 3))), Reference("step", ref)))
        elif action == "split":
            nodes.append((node.split(f"p{i}"), Reference("split", ref)))
        else:
            amount = Fraction(data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9)))
            rises = node.rises(amount)
            count(rises, "step")
            if data.draw(st.booleans()) and data.draw(st.booleans()):
                withdraw(rises)  # refused: nothing is owed, nothing is kept
                continue
            count(rises, "split")
            ref.own += amount
            paid += rises[-1].by
            assert 0 <= rises[-1].by <= amount
        assert paid == nodes[0][1].bill()


def test_parts_of_a_split_cost_their_maximum():
    root = Node("root")
    split = root.split("by sex")
    parts = [split.step(f"part {i}") for i in range(3)]
    bills = []
    for part, amount in zip(parts, [2, 3, 1], strict=True):
        rises = part.rises(Fraction(amount))
        count(rises, "step")
        count(rises, "split")
        bills.append(rises[-1].by)
    assert bills == [2, 1, 0]
    assert root.spent == 3


def test_pricing_alone_changes_nothing():
    root = Node("root")
    part = root.split("s").step("p")
    for _ in range(3):
        assert part.rises(Fraction(5))[-1].by == 5
    assert root.spent == 0


def test_stability_multiplies_along_the_path():
    node = Node("root").step("group", 2).step("where").step("scale", 10)
    assert node.stability == 20
    assert node.path == ("root", "group", "where", "scale")


def test_a_forked_child_starts_from_nothing_even_under_a_number_used_before(monkeypatch):
    """A number is free again once its process has gone, and a late descendant may get it."""
    root, number = Node("root"), os.getpid()
    root.spent = Fraction(5)
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(os, "getpid", lambda: number)
        os._exit(int(root.spent != 0))
    assert os.waitpid(child, 0)[1] == 0
    assert root.spent == 5
