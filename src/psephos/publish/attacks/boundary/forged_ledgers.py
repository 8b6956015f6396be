"""Ledgers that say more than their file.

The story: a ledger is a value like others, so `dataclasses.replace(ledger, budget=...)` makes one
over the same file that holds whatever it likes, and a subclass can charge nothing at all. What
counts is the file: the kernel opens it by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from psephos.kernel.budget import epsilon
from psephos.kernel.ledger import Ledger
from psephos.publish.attacks.attempt import DOMAIN, ONE, ROWS, Attack, open_table, refused, require
from psephos.publish.attacks.boundary.forged_scalars import changed
from psephos.publish.attacks.stage import Stage, opened


class _Free(Ledger):
    """Charges nothing."""

    def _charge(self, *given: Any, **named: Any) -> Any:
        request: Any = super()._charge(*given, **named)
        return replace(request, values=None)

    def verify(self, **_: Any) -> None:
        """All is well."""


def _rich_ledgers(stage: Stage) -> None:
    _, ledger = open_table(stage, ONE)
    plenty = epsilon("1000")
    parts = {name: getattr(ledger, name) for name in ("path", "dataset", "dataset_id", "unit")}
    forgeries: dict[str, Callable[[], Ledger]] = {
        "a ledger with another budget": lambda: replace(ledger, budget=plenty),
        "a ledger changed by hand": lambda: changed(Ledger.open(ledger.path), budget=plenty),
        "a ledger of its own kind": lambda: _Free(**parts, budget=plenty, _seen=[]),
    }
    for what, forge in forgeries.items():
        table = opened(DOMAIN, ROWS, ROWS, forge())
        refused(what, table.noisy_count, spend=epsilon("2"))
    require(ledger.spent().amount == 0, "a refused request changed what was spent")


ATTACKS = (Attack("ledgers that say more than their file", "the file counts", _rich_ledgers),)
