"""Attacks that need no statistics: each either gets through or does not."""

from __future__ import annotations

import copy
import os
import pickle
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import numpy as np

import psephos.matrix as mx
from psephos.audit.forged_ledgers import LEDGER_ATTACKS
from psephos.audit.forged_objects import OBJECT_ATTACKS
from psephos.audit.logs_of_locals import LOG_ATTACKS
from psephos.audit.stage import (
    CELLS_OF_ROWS,
    ONE,
    SILENCE,
    TABLE_CELLS,
    TABLE_DOMAIN,
    TRUE_COUNTS,
    Attack,
    AttackResult,
    GotThrough,
    Stage,
    open_table,
    protect_rows,
    require,
    require_nothing_spent,
    require_refusal,
)
from psephos.errors import BudgetExceededError
from psephos.kernel.budget import epsilon
from psephos.kernel.ledger import Ledger
from psephos.kernel.measurement import Measurement
from psephos.kernel.noise import DiscreteLaplace
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.query import Query
from psephos.kernel.scores import FarFromIndependent, WorstApproximated
from psephos.kernel.unit import add_remove_row, person
from psephos.values import Array

CHILD_SECONDS = 30.0
"""How long a forked child may take for one measurement."""
FAILURE = "the attack failed"
HANDLE_READERS: tuple[Callable[[Any], Any], ...] = (
    np.asarray, np.sum, iter, list, len, bool, float, pickle.dumps, copy.copy, copy.deepcopy,
    lambda handle: handle[0], lambda handle: 1 in handle, lambda handle: np.ones(1) @ handle,
)  # fmt: skip
"""Ways to read an array or an entry out of an object."""


def check_behaviour(stage: Stage) -> Iterator[AttackResult]:
    """The result of every attack, each tried once."""
    for attack in BEHAVIOUR_ATTACKS:
        outcome = FAILURE
        try:
            attack.attempt(stage)
        except GotThrough as how:
            outcome = f"IT GOT THROUGH: {how}"
        except Exception as error:  # noqa: BLE001 - a broken installation may fail anyhow
            outcome = f"IT BROKE OFF: {type(error).__name__}: {error}"
        yield AttackResult(
            kind="behaviour",
            name=attack.name,
            claimed=attack.claimed,
            verdict=outcome,
            ok=outcome == FAILURE,
            runs=1,
        )


def _scale(measurement: Measurement) -> Fraction:
    (noise,) = measurement.noise
    return noise.scale if isinstance(noise, DiscreteLaplace) else noise.variance


def _odd_amounts(stage: Stage) -> None:
    table, ledger = open_table(stage, ONE)
    nan, infinity = float("nan"), float("inf")
    for amount in (0.1, -1, "-0.1", 0, "0", nan, infinity, "nan", "inf", "1/0", True, None, -0.5):
        require_refusal(f"epsilon({amount!r})", epsilon, amount)
    for forgery in (Fraction(-1), Fraction(0), 0.5, nan, infinity):
        spend = epsilon("1/2")
        object.__setattr__(spend, "amount", forgery)
        require_refusal(f"a spend forged to {forgery}", table.noisy_count, spend=spend)
    for number in (0.1, "0.1", 1, None):
        require_refusal(f"spend={number!r}", table.noisy_count, spend=number)
    require_nothing_spent(ledger)


def _scaled_mask(stage: Stage) -> None:
    factor = 10**6
    vector = open_table(stage)[0].vectorise().transform(mx.Scaled(factor, mx.Identity(TABLE_CELLS)))
    measurement = vector.measure(mx.Identity(TABLE_CELLS), spend=epsilon("1/10"))
    require(_scale(measurement) >= 10 * factor, "the noise of a scaled mask is not scaled")
    matches = (np.round(measurement.values / factor) == TRUE_COUNTS).sum()  # 5 in 100 by chance
    require(
        matches < TABLE_CELLS / 2,
        f"{matches} of {TABLE_CELLS} counts came back through a scaled mask",
    )


class _LyingMatrix(mx.Dense):
    """A matrix that reports norms of zero, so that its noise would be zero."""

    def abs(self) -> mx.Matrix:
        return mx.Dense(np.zeros(self.shape, dtype=int))

    def sqr(self) -> mx.Matrix:
        return self.abs()

    def column_norms(self, p: Any = 2) -> Array:
        return np.zeros(self.shape[1])


def _lying_matrix(stage: Stage) -> None:
    table, ledger = open_table(stage)
    vector, liar = table.vectorise(), _LyingMatrix(1000 * np.eye(TABLE_CELLS, dtype=int))
    what = "a matrix that lies about itself"
    for matrix in (liar, mx.Stack((mx.Identity(TABLE_CELLS), liar)), mx.Scaled(2, liar)):
        require_refusal(what, vector.measure, matrix, spend=ONE)
        require_refusal(what, vector.measure, Query.of([(matrix, 1)]), spend=ONE)
        require_refusal(what, vector.transform, matrix)
    require_refusal(what, vector.choose, WorstApproximated(liar, TRUE_COUNTS), spend=ONE)
    require_refusal(what, vector.choose, FarFromIndependent((liar,), (TRUE_COUNTS,)), spend=ONE)
    require_nothing_spent(ledger)


def _changed_array(stage: Stage) -> None:
    entries = np.eye(TABLE_CELLS, dtype=np.int64)
    matrix = mx.Dense(entries)
    vector = open_table(stage)[0].vectorise().transform(matrix)
    for array in (entries, matrix.array):
        try:
            array.setflags(write=True)
            array *= 1000
        except ValueError:  # it cannot be made writeable, which is well
            continue
    values = vector.measure(mx.Identity(TABLE_CELLS), spend=SILENCE).values
    require(values.tolist() == TRUE_COUNTS.tolist(), "an array changed after its check was used")


def _four_tenths(stage: Stage) -> None:
    table, ledger = open_table(stage, epsilon("0.3"))
    for _ in range(3):
        try:
            table.noisy_count(spend=epsilon("0.1"))
        except BudgetExceededError:
            raise GotThrough("0.1 was refused of 0.3, three times over") from None
    require_refusal("a fourth 0.1 of 0.3", table.noisy_count, spend=epsilon("0.1"))
    require_refusal("1e-9 of nothing", table.noisy_count, spend=epsilon("1e-9"))
    require(ledger.spent() == epsilon("0.3"), "three times 0.1 is not booked as 0.3")


def _reopened_ledger(stage: Stage) -> None:
    table, ledger = open_table(stage, ONE)
    table.noisy_count(spend=epsilon("3/4"))
    second = Ledger.open(ledger.path)
    require(second.spent() == epsilon("3/4"), "a ledger forgot what was spent")
    second_table = protect_rows(TABLE_DOMAIN, CELLS_OF_ROWS, CELLS_OF_ROWS, second)
    require_refusal("more than is left", second_table.noisy_count, spend=epsilon("1/2"))
    options = {"dataset": "made up", "unit": add_remove_row(), "budget": ONE}
    require_refusal("a second budget", Ledger.create, ledger.path, **options)
    second.verify()


def _replay(stage: Stage) -> None:
    table, ledger = open_table(stage, ONE)
    vector = table.vectorise()
    first = vector.measure(mx.Identity(TABLE_CELLS), spend=epsilon("1/2"), key="one")
    second = vector.measure(mx.Identity(TABLE_CELLS), spend=epsilon("1/2"), key="one")
    require(
        first.values.tolist() == second.values.tolist(), "a key was answered twice, differently"
    )
    require(ledger.spent() == epsilon("1/2"), "a replay was not free, or its first run was")
    half = epsilon("1/2")
    require_refusal(
        "a new use of a key", vector.measure, mx.total(TABLE_CELLS), spend=half, key="one"
    )


def _equal_requests(stage: Stage) -> None:
    outcomes = {tuple(_noisy_counts(open_table(stage)[0])) for _ in range(3)}
    require(len(outcomes) == 3, "noise came twice")


def _noisy_counts(table: ProtectedTable) -> list[int]:
    return list(table.vectorise().measure(mx.Identity(TABLE_CELLS), spend=ONE).values.tolist())


def _forked_child(stage: Stage) -> None:
    if not hasattr(os, "fork"):
        return  # nothing to attack
    table, _ = open_table(stage)
    _noisy_counts(table)  # the counts are cached from here on, so the child needs no engine
    output = stage.folder / "child"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, that the child never uses
        child = os.fork()
    if child == 0:
        try:
            output.write_text(repr(_noisy_counts(table)))
        finally:
            os._exit(0)
    _wait(child)
    require(output.exists(), "a forked child could not measure")
    require(
        output.read_text() != repr(_noisy_counts(table)), "a forked child drew its parent's noise"
    )


def _wait(child: int) -> None:
    end = time.monotonic() + CHILD_SECONDS
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        time.sleep(0.01)


def _open_handles(stage: Stage) -> None:
    table, _ = open_table(stage)
    for handle in (table, table.vectorise()):
        for reader in HANDLE_READERS:
            name = getattr(reader, "__name__", "looking")
            require_refusal(f"{name} of a handle", reader, handle)
        for name in (name for name in dir(handle) if not name.startswith("_")):
            value = getattr(handle, name)
            require(not isinstance(value, np.ndarray), f"{name} of a handle shows an array")


def _evaluated_text(stage: Stage) -> None:
    table, _ = open_table(stage)
    mark = stage.folder / "mark"
    for text in (f"__import__('pathlib').Path({str(mark)!r}).touch()", "x > 3", "1=1; --"):
        require_refusal("text as a condition", table.where, text)
    calls: list[int] = []
    require_refusal("a function as a condition", table.where, calls.append)
    require(not mark.exists() and not calls, "a condition was run")


def _rows_of_a_person(stage: Stage) -> None:
    ledger = stage.endless_ledger(person("person", max_rows=2), "epsilon")
    cells = np.repeat(np.arange(TABLE_CELLS), 3)
    table = protect_rows(TABLE_DOMAIN, cells, np.zeros(cells.size, int), ledger)
    tables = [table, *table.split("x").values()][: TABLE_CELLS // 10]
    counts = [int(part.noisy_count(spend=SILENCE).values[0]) for part in tables]
    require(counts[0] <= 2, f"{counts[0]} rows of a person count, of 2 that may")
    require(sum(counts[1:]) <= 2, f"{sum(counts[1:])} rows of a person count over parts")


BOUNDARY_ATTACKS = (*OBJECT_ATTACKS, *LEDGER_ATTACKS, *LOG_ATTACKS)
"""Attacks on the kernel's boundary; each tells the story of the hole that it looks for."""

BEHAVIOUR_ATTACKS = (
    Attack("floats, zero, negative and endless amounts, forged spends", "refused", _odd_amounts),
    Attack("a mask scaled by a million", "pays for its scale", _scaled_mask),
    Attack("a matrix that lies about its size", "refused", _lying_matrix),
    Attack("an array changed after its check", "has no effect", _changed_array),
    Attack("four times 0.1 of 0.3", "three granted, the fourth refused", _four_tenths),
    Attack("a ledger opened again", "remembers what was spent", _reopened_ledger),
    Attack("a key used twice", "the same values, charged once", _replay),
    Attack("the same request on new ledgers", "other noise each time", _equal_requests),
    Attack("a forked child", "draws noise of its own", _forked_child),
    Attack("handles listed, copied, pickled, turned into arrays", "refused", _open_handles),
    Attack("text and functions as conditions", "refused, and never run", _evaluated_text),
    Attack("a person with too many rows", "counts at most max_rows", _rows_of_a_person),
    *BOUNDARY_ATTACKS,
)
