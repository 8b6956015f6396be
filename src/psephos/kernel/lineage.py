"""Where a protected object came from, and what the root pays for a request on it.

A tree: each node was made from its parent by a transformation of known stability, or is one part
of a split. Spending is counted in what the root pays. A request on a node asks its parent for the
same amount; a split passes on only what raises the largest of its parts' totals (Zhang et al. 2020,
Algorithm 2). The tree itself holds no totals: the ledger does, for each snapshot of the rows.

Privacy: neighbouring roots are at distance D. Behind transformations of stability s a node's tables
are at distance at most s·D, and a measurement that costs e per unit of distance costs the root
s·D·e, or (s·D)²·e in rho: `Unit` divides by exactly that. A row lies in one part of a split, so
the distances dᵢ of the parts sum to at most d, the split's own. With parts that spent Sᵢ, as the
root pays them, the loss is Σ dᵢSᵢ/d ≤ max Sᵢ, and for rho Σ dᵢ²Sᵢ/d² ≤ max Sᵢ: the maximum covers
all parts, under every unit, for the rows of one snapshot. In another snapshot a row may lie in
another part, so totals of different snapshots have nothing in common (tests/kernel/test_lineage.py,
tests/kernel/test_split_model.py).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

Kind = Literal["step", "split"]
ZERO = Fraction(0)
LONGEST_SUM = 10**2000  # numerator or denominator of a sum of charges
SUM_GRID = 2**300  # parts of a unit, to which a longer sum is rounded
_forks: list[int] = []  # grows in a forked child, and so differs from that of all before it
os.register_at_fork(after_in_child=lambda: _forks.append(os.getpid()))


def process() -> tuple[int, int]:
    """This process: not one that it was forked from, even if that had the same number."""
    return os.getpid(), len(_forks)


def root_name(schema: str, edition: str) -> str:
    """The root's name, and so the head of every fingerprint: the schema, then the data's edition.

    Privacy: nothing rests on it: another edition is another request, which the same ledger pays
    for out of the same budget (tests/release/test_editions.py::test_an_edition_renews_no_budget).
    """
    return f"root {schema} {edition}" if edition else f"root {schema}"


class Branch(NamedTuple):
    """A split above a node, and the part of it that the node lies in, by names of their own."""

    split: str
    part: str


@dataclass(frozen=True, eq=False, repr=False)
class Node:
    """A node of the lineage: how it was made, and from what."""

    name: str
    parent: Node | None = None
    kind: Kind = "step"
    factor: int = 1

    def line(self) -> Iterator[Node]:
        """This node and those it was made from, up to the root."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent

    @property
    def stability(self) -> int:
        """Of all transformations from the root to here."""
        return math.prod(node.factor for node in self.line())

    @property
    def rowwise(self) -> bool:
        """Are rows here rows of the root, as filters leave them, and no part of a split?"""
        return all(node.factor == 1 and node.kind == "step" for node in self.line())

    @property
    def path(self) -> tuple[str, ...]:
        """The transformations in words, from the root."""
        return tuple(node.name for node in self.line())[::-1]

    @property
    def branches(self) -> tuple[Branch, ...]:
        """The splits above this node, the nearest first.

        Privacy: they are named by their whole way from the root, kinds included, so the same split
        made twice is one, and no other transformation has its name.
        """
        line = list(self.line())
        places = enumerate(line[1:], start=1)
        splits = [i for i, node in places if node.kind == "split"]
        return tuple([Branch(_place(line[i:]), _place(line[i - 1 :])) for i in splits])

    def step(self, name: str, factor: int = 1) -> Node:
        """A transformation of stability `factor`."""
        return Node(name, self, "step", factor)

    def split(self, name: str) -> Node:
        """The place where parts branch off; make the parts by its `step`."""
        return Node(name, self, "split")


def _place(line: list[Node]) -> str:
    text = json.dumps([(node.kind, node.name) for node in line])
    return hashlib.sha256(text.encode()).hexdigest()


def rise(
    amount: Fraction, branches: Iterable[Branch], totals: Mapping[str, Fraction]
) -> tuple[Fraction, dict[str, Fraction]]:
    """What the root pays for a request, and the totals that it changes, which begin at 0.

    A part's total rises by what was asked of it. That of a split is what its parents have paid for
    all its parts, so it rises, and they are asked, only where this part takes the lead.

    Privacy: where sums get long, what parts asked is rounded up and what is covered down, so that
    the root never pays less (tests/kernel/test_lineage.py::test_long_sums_never_pay_less).

    >>> totals = {"by sex": Fraction(2), "women": Fraction(1)}
    >>> rise(Fraction(3), [Branch("by sex", "women")], totals)[0]
    Fraction(2, 1)
    """
    changed: dict[str, Fraction] = {}
    for branch in branches:
        total = rounded_up(totals.get(branch.part, ZERO) + amount)
        changed[branch.part] = total
        amount = max(total - totals.get(branch.split, ZERO), ZERO)
        if not amount:
            break
        changed[branch.split] = -rounded_up(-total)
    return amount, changed


def rounded_up(total: Fraction) -> Fraction:
    """A sum as it is, or rounded up by at most 2⁻³⁰⁰ where it gets too long to be kept."""
    long = max(map(abs, total.as_integer_ratio())) >= LONGEST_SUM
    return Fraction(math.ceil(total * SUM_GRID), SUM_GRID) if long else total
