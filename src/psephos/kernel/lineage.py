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

import os
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from psephos.domain import Domain
from psephos.frozen import digest

Kind = Literal["step", "split"]
_forks: list[int] = []  # grows in a forked child, and so differs from that of all before it
os.register_at_fork(after_in_child=lambda: _forks.append(os.getpid()))


def process() -> tuple[int, int]:
    """This process: not one that it was forked from, even if that had the same number."""
    return os.getpid(), len(_forks)


def root_name(domain: Domain, edition: str) -> str:
    """The root's name, and so the head of every fingerprint: the schema, then the data's edition.

    Privacy: nothing rests on it: another edition is another request, which the same ledger pays
    for out of the same budget (tests/publish/test_editions.py::test_an_edition_renews_no_budget).
    """
    return f"root {digest(domain)} {edition}".rstrip()


@dataclass(eq=False)
class Node:
    """A node of the lineage; `spent` is what the root would pay for it alone.

    Totals live in memory. What another process spent on its copy of the tree is not in them, and
    need not be: it was paid for as if the trees had nothing in common.
    """

    name: str
    parent: Node | None = None
    kind: Kind = "step"
    factor: int = 1
    _spent: Fraction = field(default=Fraction(0))
    _process: tuple[int, int] = field(default_factory=process)

    @property
    def spent(self) -> Fraction:
        """Known to this process alone: a forked child starts from nothing and pays in full."""
        return self._spent if self._process == process() else Fraction(0)

    @spent.setter
    def spent(self, total: Fraction) -> None:
        self._spent, self._process = total, process()

    @property
    def stability(self) -> int:
        """Of all transformations from the root to here."""
        return self.factor * (self.parent.stability if self.parent else 1)

    @property
    def path(self) -> tuple[str, ...]:
        """The transformations in words, from the root."""
        return (*(self.parent.path if self.parent else ()), self.name)

    def step(self, name: str, factor: int = 1) -> Node:
        """A transformation of stability `factor`."""
        return Node(name, self, "step", factor)

    def split(self, name: str) -> Node:
        """The place where parts branch off; make the parts by its `step`."""
        return Node(name, self, "split")

    def price(self, amount: Fraction) -> tuple[Fraction, list[Total]]:
        """What the root has to pay for a request, and the totals that change once it has."""
        totals: list[Total] = []
        node: Node | None = self
        asked = amount
        while node is not None:
            total = max(node.spent, asked) if node.kind == "split" else node.spent + asked
            totals.append((node, node.spent, total))
            # A split is asked for a part's total, every other node for what is added to its own.
            part = node.parent is not None and node.parent.kind == "split"
            asked = total if part else total - node.spent
            node = node.parent
        return asked, totals


Total = tuple[Node, Fraction, Fraction]  # before a request and after it


def settle(totals: list[Total], *, paid: bool) -> None:
    """Remember what was asked for, and, once it is paid, what covers it.

    A part's own total counts from the moment noise may be drawn for it; the largest total of a
    split is raised only by what this process has paid. So an interruption in between can make
    later requests dearer, never cheaper.
    """
    for node, _, after in totals:
        if paid == (node.kind == "split"):
            node.spent = after


def forget(totals: list[Total]) -> None:
    """Back to earlier totals, after a refusal that cost nothing."""
    for node, before, _ in totals:
        node.spent = before
