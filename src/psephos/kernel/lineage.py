"""Where a protected object came from, and what the root pays for a request on it.

A tree: each node was made from its parent by a transformation of known stability, or is one part
of a split. Spending is counted in what the root pays. A request on a node asks its parent for the
same amount; a split passes on only what raises the largest of its parts' totals (Zhang et al. 2020,
Algorithm 2).

Privacy: neighbouring roots are at distance D. Behind transformations of stability s a node's tables
are at distance at most s·D, and a measurement that costs e per unit of distance costs the root
s·D·e, or (s·D)²·e in rho: `Unit` divides by exactly that. A row lies in one part of a split, so
the distances dᵢ of the parts sum to at most d, the split's own. With parts that spent Sᵢ, as the
root pays them, the loss is Σ dᵢSᵢ/d ≤ max Sᵢ, and for rho Σ dᵢ²Sᵢ/d² ≤ max Sᵢ: the maximum covers
all parts, under every unit. (tests/kernel/test_lineage.py)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

Kind = Literal["root", "step", "split"]


@dataclass(eq=False)
class Node:
    """A node of the lineage; `spent` is what the root would pay for it alone."""

    name: str
    parent: Node | None = None
    kind: Kind = "root"
    factor: int = 1
    spent: Fraction = field(default=Fraction(0))

    @property
    def stability(self) -> int:
        """Of all transformations from the root to here."""
        return self.factor * (self.parent.stability if self.parent is not None else 1)

    @property
    def path(self) -> tuple[str, ...]:
        """The transformations in words, from the root."""
        return (*(self.parent.path if self.parent is not None else ()), self.name)

    def step(self, name: str, factor: int = 1) -> Node:
        """A transformation of stability `factor`."""
        return Node(name, self, "step", factor)

    def split(self, name: str) -> Node:
        """The place where parts branch off; make the parts by its `step`."""
        return Node(name, self, "split")

    def price(self, amount: Fraction) -> tuple[Fraction, list[tuple[Node, Fraction]]]:
        """What the root has to pay for a request, and the totals that hold once it has."""
        totals: list[tuple[Node, Fraction]] = []
        node: Node | None = self
        asked = amount
        while node is not None:
            total = node.spent + asked
            if node.kind == "split":
                # `asked` is the part's own total here: only what exceeds the largest is passed on.
                total = max(node.spent, asked)
                asked = total - node.spent
            totals.append((node, total))
            parent = node.parent
            if parent is not None and parent.kind == "split":
                asked = total
            node = parent
        return asked, totals


def settle(totals: list[tuple[Node, Fraction]]) -> None:
    """Remember what was paid."""
    for node, total in totals:
        node.spent = total
