"""Random lineage trees against a reference model of Algorithm 2."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from psephos.kernel.lineage import LONGEST_SUM, Branch, Node, rise, rounded_up


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
    paid, totals = Fraction(0), {}
    for i in range(data.draw(st.integers(1, 25))):
        node, ref = data.draw(st.sampled_from(nodes))
        action = data.draw(st.sampled_from(["step", "split", "spend", "spend"]))
        if action == "step" or node.kind == "split":
            nodes.append((node.step(f"s{i}", data.draw(st.integers(1, 3))), Reference("step", ref)))
        elif action == "split":
            nodes.append((node.split(f"p{i}"), Reference("split", ref)))
        else:
            amount = Fraction(data.draw(st.integers(1, 9)), data.draw(st.integers(1, 9)))
            by, changed = rise(amount, node.branches, totals)
            assert 0 <= by <= amount
            if data.draw(st.booleans()) and data.draw(st.booleans()):
                continue  # refused: nothing is owed, nothing is written down
            totals |= changed
            ref.own += amount
            paid += by
        assert paid == nodes[0][1].bill()


def test_parts_of_a_split_cost_their_maximum():
    split = Node("root").split("by sex")
    totals, bills = {}, []
    for i, amount in enumerate([2, 3, 1]):
        by, changed = rise(Fraction(amount), split.step(f"part {i}").branches, totals)
        totals |= changed
        bills.append(by)
    assert bills == [2, 1, 0]


def test_the_same_split_made_twice_is_one():
    first, second = (Node("root").split("s").step("p").step("vectorise") for _ in range(2))
    assert first.branches == second.branches == Node("root").split("s").step("p").branches
    others = [
        Node("root").split("s").step("q"),
        Node("root").split("t").step("p"),
        Node("root").step("w").split("s").step("p"),
        Node("root").split("s").split("p"),
    ]
    parts = [node.branches[0].part for node in (first, *others)]
    assert len(set(parts)) == len(parts)
    assert Node("root").step("s").step("p").branches == ()


def test_a_step_that_is_called_like_a_split_is_another_place():
    split = Node("root").split("s").step("p").split("t").step("q")
    step = Node("root").step("s").step("p").split("t").step("q")
    assert not {name for b in split.branches for name in b} & {n for b in step.branches for n in b}


odd = st.builds(Fraction, st.integers(1, 9), st.integers(10**299, 10**299 + 10**6))


@given(asked=st.lists(st.tuples(st.sampled_from(["a", "b"]), odd), min_size=1, max_size=30))
def test_long_sums_never_pay_less(asked):
    totals, exact, paid = {}, {"a": Fraction(0), "b": Fraction(0)}, Fraction(0)
    for part, amount in asked:
        by, changed = rise(amount, [Branch("split", part)], totals)
        totals |= changed
        exact[part] += amount
        paid += by
        assert paid >= max(exact.values())
        assert all(max(total.as_integer_ratio()) < LONGEST_SUM for total in totals.values())
        assert totals[part] >= exact[part]
        assert totals.get("split", 0) <= paid
    assert paid - max(exact.values()) < Fraction(60 * len(asked), 2**300)


def test_a_sum_that_is_not_long_stays_exact():
    assert rounded_up(Fraction(1, 3)) == Fraction(1, 3)
    assert rounded_up(Fraction(-1, 3)) == Fraction(-1, 3)


def test_stability_multiplies_along_the_path():
    node = Node("root").step("group", 2).step("where").step("scale", 10)
    assert node.stability == 20
    assert node.path == ("root", "group", "where", "scale")
