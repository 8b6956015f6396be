"""A sparse matrix whose indices lie outside of its shape.

The story: scipy's routines trust the index arrays of a compressed matrix. A column of -1 wraps
around where column sums are added up, so a row of a million at column -1 was booked to the last
cell, and read from the heap before the vector when it was multiplied; rows that end before they
begin count nothing in one routine and everything in another. Thousands of exact counts came back
for a few hundredths of epsilon, and a file with such arrays ended the process that read it.

Numbers and texts that say one thing when they are checked and another when they are used.

The story: a subclass of str as currency that equals "epsilon" when it is checked and "rho" when the
noise is chosen; a subclass of int as weight, whose numerator is small and whose product is large; a
Fraction whose inside was exchanged. Each gave exact counts for a thousandth.

Matrices that are changed after their constructor has checked them.

The story: frozen values can be changed all the same, by `object.__setattr__`. Groups that count
beyond their number, orders that name a cell twice, a stack of itself: whatever is inside, the
kernel measures the copy that its own constructors have checked, or refuses.

Types that equal a type of the kernel's.

The story: rules were looked up by `type(a) in RULES`, and a dictionary compares by ==. A metaclass
that has the hash of Dense and says yes to every question let in a subclass, whose `matvec` was
handed the true vector.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import scipy.sparse as sp

import psephos.matrix as mx
from psephos.audit.stage import (
    CELLS,
    ONE,
    SILENCE,
    TRUE,
    Attack,
    GotThrough,
    Integers,
    Stage,
    learned,
    open_table,
    refused,
    require,
)
from psephos.domain.predicate import And, IsNull, Predicate
from psephos.kernel.budget import Budget, epsilon, exact
from psephos.kernel.ledger import Ledger
from psephos.kernel.query import Block, Query
from psephos.kernel.scores.worst_approximated import WorstApproximated
from psephos.kernel.unit import Unit, add_remove_row, person

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
        refused(what, vector.choose, WorstApproximated(cells, [0] * CELLS), spend=spend)
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


SCALARS = (
    Attack("numbers and texts that change their mind", "refused", _forged_scalars),
    Attack("units and budgets that change their mind", "refused", _forged_units),
)


def _changed_inside(stage: Stage) -> None:
    table, ledger = open_table(stage)
    vector, cells = table.vectorise(), np.arange(CELLS)
    eye = mx.Identity(CELLS)
    endless = mx.Stack((eye, mx.Prefix(CELLS)))
    changed(endless, parts=(eye, endless))
    doubled = eye
    for _ in range(64):  # 2^64 parts, were they all taken in
        doubled = changed(mx.Stack((eye, mx.Prefix(CELLS))), parts=(doubled, doubled))
    deep: mx.Matrix = eye
    for _ in range(500):
        deep = mx.Permuted(deep, cells)
    forgeries = {
        "groups below 0": changed(mx.Partition(cells), groups=cells - 1),
        "groups with gaps": changed(mx.Partition(cells), groups=2 * cells),
        "an order that names a cell twice": changed(mx.Permuted(eye, cells), order=0 * cells),
        "a range beyond the grid": changed(
            mx.Ranges.intervals(CELLS, [0], [3]), high=np.array([[CELLS + 5]])
        ),
        "a marginal of an axis that is not there": changed(
            mx.Marginals.of((CELLS,), {(0,): 1}), sets=((7,),)
        ),
        "fractions": changed(mx.Dense(np.eye(CELLS, dtype=int)), array=np.eye(CELLS) / 2),
        "objects": changed(mx.Dense(np.eye(CELLS, dtype=int)), array=np.full((1, CELLS), None)),
        "more than memory": changed(
            mx.Dense(np.eye(CELLS, dtype=int)), array=np.broadcast_to(1, (10**9, CELLS))
        ),
        "a stack of itself": endless,
        "a stack of stacks of stacks": doubled,
        "orders of orders of orders": deep,
        "nothing inside": object.__new__(mx.Dense),
    }
    for what, matrix in forgeries.items():
        refused(what, vector.measure, matrix, spend=CHEAP)
        refused(what, vector.transform, matrix)
    require(ledger.spent().amount == 0, "a refused request changed what was spent")


def _stale_caches(stage: Stage) -> None:
    """What a matrix has worked out for itself is not believed."""
    ranges = mx.Ranges.intervals(CELLS, np.arange(CELLS), np.arange(CELLS))
    ranges.__dict__["_corners"] = 10**6 * ranges._corners.astype(np.int64)
    sly = mx.Partition(np.arange(CELLS))
    sly.__dict__["_twin"] = mx.Dense(10**6 * np.eye(CELLS, dtype=int))
    vector = open_table(stage)[0].vectorise()
    for matrix in (ranges, sly):
        try:
            seen = vector.measure(matrix, spend=SILENCE).values
        except ValueError:  # refused, which is well
            continue
        require(learned(seen) == CELLS, f"a cache of {matrix} was believed: {seen[:5]}, {TRUE[:5]}")


MATRICES = (
    Attack("matrices changed inside", "refused, however large they look", _changed_inside),
    Attack("matrices with caches of the caller's", "have no effect", _stale_caches),
)

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
        refused(
            "a type that equals Dense",
            vector.choose,
            WorstApproximated(matrix, [0] * CELLS),
            spend=CHEAP,
        )
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


TYPES = (
    Attack("a type that equals one of the kernel's", "refused, and sees nothing", _equal_types),
    Attack("conditions of the caller's own making", "refused", _equal_conditions),
)


def forged(**arrays: Any) -> mx.Sparse:
    """An identity whose arrays were exchanged after it was checked."""
    matrix = mx.Sparse(sp.eye_array(CELLS, dtype=np.int64, format="csr"))
    for name, array in arrays.items():
        setattr(matrix.entries, name, np.asarray(array))
    return matrix


def _indices_outside(stage: Stage) -> None:
    table, ledger = open_table(stage)
    vector, cells = table.vectorise(), np.arange(CELLS)
    forgeries = {
        "a column of -1": forged(indices=cells - 1),
        "a column beyond the last": forged(indices=cells + 1),
        "rows that end before they begin": forged(indptr=np.append(cells[::-1], CELLS)),
        "rows beyond the arrays": forged(indptr=2 * np.arange(CELLS + 1)),
        "an entry more than columns": forged(data=np.ones(CELLS + 1, dtype=np.int64)),
        "one column twice in a row": forged(
            indptr=np.array([0] * CELLS + [CELLS]), indices=0 * cells
        ),
    }
    for what, matrix in forgeries.items():
        refused(what, vector.measure, matrix, spend=epsilon("1/1000"))
        refused(what, vector.transform, mx.Stack((mx.Identity(CELLS), matrix)))
    require(ledger.spent().amount == 0, "a refused request changed what was spent")


INDICES = (Attack("a sparse matrix with indices outside of it", "refused", _indices_outside),)

ATTACKS = (*INDICES, *SCALARS, *TYPES, *MATRICES)
