"""Types that equal a type of the kernel's.

The story: rules were looked up by `type(a) in RULES`, and a dictionary compares by ==. A metaclass
that has the hash of Dense and says yes to every question let in a subclass, whose `matvec` was
handed the true vector.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import psephos.matrix as mx
from psephos.kernel.budget import epsilon
from psephos.kernel.query import Query
from psephos.predicate import And, IsNull, Predicate
from psephos.publish.attacks.attempt import CELLS, Attack, GotThrough, open_table, refused, require
from psephos.publish.attacks.stage import Integers, Stage

CHEAP = epsilon("1/1000")
SEEN: list[Any] = []


def double_of(kind: type, **methods: Any) -> Any:
    """A subclass that equals the type itself, as far as == and hash can tell."""

    class Equal(type(kind)):  # type: ignore[misc]
        def __eq__(cls, other: object) -> bool:
            return True

        def __hash__(cls) -> int:
            return hash(kind)

    return Equal(kind.__name__, (kind,), methods)


def _watched(self: Any, x: Integers) -> Integers:
    SEEN.append(np.array(x))
    return np.zeros(self.shape[0], dtype=np.int64)


def _equal_types(stage: Stage) -> None:
    SEEN.clear()
    table, ledger = open_table(stage)
    vector, eye = table.vectorise(), np.eye(CELLS, dtype=np.int64)
    spy = double_of(mx.Dense, matvec=_watched, _apply=lambda self, x: _watched(self, x))(eye)
    for matrix in (spy, mx.Stack((mx.Identity(CELLS), spy)), mx.Scaled(2, spy)):
        refused("a type that equals Dense", vector.measure, matrix, spend=CHEAP)
        refused("a type that equals Dense", vector.transform, matrix)
        refused("a type that equals Dense", vector.choose, matrix, [0] * CELLS, spend=CHEAP)
    sly = double_of(Query)(Query.of(mx.Identity(CELLS)).blocks)
    refused("a type that equals Query", vector.measure, sly, spend=CHEAP)
    parts = double_of(mx.Partition)(np.zeros(CELLS, dtype=np.int64))
    refused("a type that equals Partition", vector.split, parts)
    if SEEN:
        raise GotThrough("a matrix of the caller's was handed the true counts")
    require(ledger.spent().amount == 0, "a refused request changed what was spent")


def _equal_conditions(stage: Stage) -> None:
    table, ledger = open_table(stage)
    sly = double_of(IsNull)("x")
    for condition in (sly, And((sly,)), type("Mine", (Predicate,), dict(vars(IsNull)))):
        refused("a condition of the caller's own", table.where, condition)
    require(ledger.spent().amount == 0, "a refused request changed what was spent")


ATTACKS = (
    Attack("a type that equals one of the kernel's", "refused, and sees nothing", _equal_types),
    Attack("conditions of the caller's own making", "refused", _equal_conditions),
)
