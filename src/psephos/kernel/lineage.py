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

import math
import os
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, NamedTuple

Kind = Literal["step", "split"]
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


@dataclass(eq=False, repr=False)
class Node:
    """A node of the lineage; `spent` is what the root would pay for it alone.

    Totals live in memory. What another process spent on its copy of the tree is not in them, and
    need not be: it was paid for as if the trees had nothing in common.
    """

    name: str
    parent: Node | None = None
    kind: Kind = "step"
    factor: int = 1
    state: Hashable = None
    """Of the root: which rows it has now; those of another state are other rows."""
    _spent: Fraction = field(default=Fraction(0))
    _counted: Hashable = None

    @property
    def spent(self) -> Fraction:
        """Known to this process alone, of one state of the rows: any other pays in full.

        Privacy: a row lies in one part of a split in each state, and may lie in another part in
        the next, so that the maximum covers one state (tests/kernel/test_states.py).
        """
        return self._spent if self._counted == self._now() else Fraction(0)

    @spent.setter
    def spent(self, total: Fraction) -> None:
        self._spent, self._counted = total, self._now()

    def _now(self) -> Hashable:
        *_, root = self.line()
        return process(), root.state

    def at(self, state: Hashable) -> None:
        """Say which state of the rows requests are made in from here on."""
        *_, root = self.line()
        root.state = state

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

    def step(self, name: str, factor: int = 1) -> Node:
        """A transformation of stability `factor`."""
        return Node(name, self, "step", factor)

    def split(self, name: str) -> Node:
        """The place where parts branch off; make the parts by its `step`."""
        return Node(name, self, "split")

    def rises(self, amount: Fraction) -> list[Rise]:
        """What a request makes of the totals from here up to the root, whose rise is the bill.

        A node's total rises by what was asked of it. That of a split is the largest of its parts'
        totals, so it rises only if this part takes the lead.
        """
        rises: list[Rise] = []
        for node in self.line():
            by = rises[-1].by if rises else amount
            split = node.kind == "split"
            total = max(node.spent, rises[-1].total) if split else node.spent + by
            rises.append(Rise(node, total, by=total - node.spent))
        return rises


class Rise(NamedTuple):
    """The total of a node once a request is answered, and by how much that is more."""

    node: Node
    total: Fraction
    by: Fraction


def count(rises: list[Rise], kind: Kind) -> None:
    """Remember what a request makes of the totals of one kind of nodes.

    Those of parts, and of all that is no split, rise before the ledger is charged: so there is no
    charge that its part does not know of. A split's total says what this process has paid for all
    parts, so it rises only once that is so, and not for a replay. Cut short anywhere, parts have
    spent more than is covered: later requests are dearer, never cheaper
    (tests/attacks/test_interrupted_parts.py).
    """
    for node, total, _ in rises:
        if node.kind == kind:
            node.spent = total


def withdraw(rises: list[Rise]) -> None:
    """Back to earlier totals: the ledger has refused, or shows values that it keeps."""
    for node, total, by in rises:
        if node.kind != "split":
            node.spent = total - by
