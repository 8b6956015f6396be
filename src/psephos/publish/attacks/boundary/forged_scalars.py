"""Numbers and texts that say one thing when they are checked and another when they are used.

The story: a subclass of str as currency that equals "epsilon" when it is checked and "rho" when the
noise is chosen; a subclass of int as weight, whose numerator is small and whose product is large; a
Fraction whose inside was exchanged. Each gave exact counts for a thousandth.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import psephos.matrix as mx
from psephos.kernel.budget import Budget, epsilon, exact
from psephos.kernel.ledger import Ledger
from psephos.kernel.query import Block, Query
from psephos.kernel.unit import Unit, add_remove_row, person
from psephos.publish.attacks.attempt import CELLS, ONE, Attack, open_table, refused, require
from psephos.publish.attacks.stage import Stage

CHEAP = epsilon("1/1000")


class _TwoFaced(str):
    """Equal to another text every time it is asked."""

    turns = 0

    def __eq__(self, other: object) -> bool:
        self.turns += 1
        return self.turns % 2 == 0 or str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


class _Swelling(int):
    """One, until something is multiplied by it."""

    @property
    def numerator(self) -> int:
        return 1

    def __mul__(self, other: Any) -> Any:
        return 10**9 * other

    __rmul__ = __mul__

    def as_integer_ratio(self) -> Any:
        return 1, 1


def swollen() -> Fraction:
    """One, with another number inside."""
    share = Fraction(1)
    share._numerator = _Swelling(1)  # type: ignore[attr-defined]
    return share


def changed(value: Any, **names: Any) -> Any:
    """A frozen value after all."""
    for name, field in names.items():
        object.__setattr__(value, name, field)
    return value


def _forged_scalars(stage: Stage) -> None:
    table, ledger = open_table(stage)
    vector, cells = table.vectorise(), mx.Identity(CELLS)
    spends = {
        "a currency with two faces": changed(epsilon("1/1000"), currency=_TwoFaced("epsilon")),
        "an amount with another inside": changed(epsilon("1/1000"), amount=swollen()),
        "an amount of its own kind": changed(epsilon("1/1000"), amount=_Swelling(1)),
    }
    for what, spend in spends.items():
        refused(what, vector.measure, cells, spend=spend)
        refused(what, vector.choose, cells, [0] * CELLS, spend=spend)
    weights = {"a weight of its own kind": _Swelling(1), "a weight with another inside": swollen()}
    for what, weight in weights.items():
        query = changed(
            Query.of(cells), blocks=(changed(Block(cells, Fraction(1)), weight=weight),)
        )
        refused(what, vector.measure, query, spend=CHEAP)
        refused(what, exact, weight, "a weight")
    refused("a text of its own kind as key", vector.measure, cells, spend=CHEAP, key=_TwoFaced("k"))
    for what, matrix in {
        "a factor of its own kind": changed(mx.Scaled(1, cells), factor=_Swelling(1)),
        "a size of its own kind": changed(mx.Ones(1, CELLS), m=_Swelling(1)),
        "a truth value for a sign": changed(mx.Haar(CELLS), sign=True),
    }.items():
        refused(what, vector.measure, matrix, spend=CHEAP)
    refused("a name of its own kind", table.keep, _TwoFaced("x"))
    refused("a name of its own kind", table.split, _TwoFaced("x"))
    refused("a size of its own kind", table.group_by, "x", most=_Swelling(3))
    require(ledger.spent().amount == 0, "a refused request changed what was spent")


def _forged_units(stage: Stage) -> None:
    units = {
        "a cap of its own kind": changed(person("p", max_rows=2), max_rows=_Swelling(2)),
        "a change with two faces": changed(add_remove_row(), change=_TwoFaced("add_remove")),
        "a unit of its own kind": type("Sly", (Unit,), {})("add_remove"),
    }
    for i, (what, unit) in enumerate(units.items()):
        place = stage.folder / f"unit {i}"
        refused(what, Ledger.create, place, dataset="made up", unit=unit, budget=ONE)
    budget = changed(Budget("epsilon", Fraction(1)), currency=_TwoFaced("epsilon"))
    new = {"dataset": "made up", "unit": add_remove_row(), "budget": budget}
    refused("a budget with two faces", Ledger.create, stage.folder / "budget", **new)


ATTACKS = (
    Attack("numbers and texts that change their mind", "refused", _forged_scalars),
    Attack("units and budgets that change their mind", "refused", _forged_units),
)
