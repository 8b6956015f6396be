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
from psephos.audit import boundary
from psephos.audit.stage import (
    CELLS,
    DOMAIN,
    ONE,
    ROWS,
    SILENCE,
    TRUE,
    Attack,
    Finding,
    GotThrough,
    Integers,
    Stage,
    open_table,
    opened,
    refused,
    require,
)
from psephos.errors import BudgetExceededError
from psephos.kernel.budget import epsilon
from psephos.kernel.ledger import Ledger
from psephos.kernel.measurement import Measurement
from psephos.kernel.noise import DiscreteLaplace
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.query import Query
from psephos.kernel.scores.worst_approximated import WorstApproximated
from psephos.kernel.unit import add_remove_row, person

PATIENCE = 30.0


def _scale(measurement: Measurement) -> Fraction:
    (noise,) = measurement.noise
    return noise.scale if isinstance(noise, DiscreteLaplace) else noise.variance


def _odd_amounts(stage: Stage) -> None:
    table, ledger = open_table(stage, ONE)
    nan, endless = float("nan"), float("inf")
    for amount in (0.1, -1, "-0.1", 0, "0", nan, endless, "nan", "inf", "1/0", True, None, -0.5):
        refused(f"epsilon({amount!r})", epsilon, amount)
    for forged in (Fraction(-1), Fraction(0), 0.5, nan, endless):
        spend = epsilon("1/2")
        object.__setattr__(spend, "amount", forged)
        refused(f"a spend forged to {forged}", table.noisy_count, spend=spend)
    for wrong in (0.1, "0.1", 1, None):
        refused(f"spend={wrong!r}", table.noisy_count, spend=wrong)
    require(ledger.spent().amount == 0, "a refused request changed what was spent")


def _scaled_mask(stage: Stage) -> None:
    factor = 10**6
    vector = open_table(stage)[0].vectorise().transform(mx.Scaled(factor, mx.Identity(CELLS)))
    measured = vector.measure(mx.Identity(CELLS), spend=epsilon("1/10"))
    require(_scale(measured) >= 10 * factor, "the noise of a scaled mask is not scaled")
    right = (np.round(measured.values / factor) == TRUE).sum()  # 5 in 100 by chance
    require(right < CELLS / 2, f"{right} of {CELLS} counts came back through a scaled mask")


class _Lying(mx.Dense):
    """Says of itself that nothing moves it."""

    def abs(self) -> mx.Matrix:
        return mx.Dense(np.zeros(self.shape, dtype=int))

    def sqr(self) -> mx.Matrix:
        return self.abs()

    def column_norms(self, p: Any = 2) -> Integers:
        return np.zeros(self.shape[1])


def _lying_matrix(stage: Stage) -> None:
    table, ledger = open_table(stage)
    vector, liar = table.vectorise(), _Lying(1000 * np.eye(CELLS, dtype=int))
    what = "a matrix that lies about itself"
    for matrix in (liar, mx.Stack((mx.Identity(CELLS), liar)), mx.Scaled(2, liar)):
        refused(what, vector.measure, matrix, spend=ONE)
        refused(what, vector.measure, Query.of([(matrix, 1)]), spend=ONE)
        refused(what, vector.transform, matrix)
    refused(what, vector.choose, WorstApproximated(liar, TRUE), spend=ONE)
    require(ledger.spent().amount == 0, "a refused request changed what was spent")


def _changed_array(stage: Stage) -> None:
    entries = np.eye(CELLS, dtype=np.int64)
    matrix = mx.Dense(entries)
    changed = open_table(stage)[0].vectorise().transform(matrix)
    for array in (entries, matrix.array):
        try:
            array.setflags(write=True)
            array *= 1000
        except ValueError:  # it cannot be made writeable, which is well
            continue
    seen = changed.measure(mx.Identity(CELLS), spend=SILENCE).values
    require(seen.tolist() == TRUE.tolist(), "an array changed after its check was used")


def _tenths(stage: Stage) -> None:
    table, ledger = open_table(stage, epsilon("0.3"))
    for _ in range(3):
        try:
            table.noisy_count(spend=epsilon("0.1"))
        except BudgetExceededError:
            raise GotThrough("0.1 was refused of 0.3, three times over") from None
    refused("a fourth 0.1 of 0.3", table.noisy_count, spend=epsilon("0.1"))
    refused("1e-9 of nothing", table.noisy_count, spend=epsilon("1e-9"))
    require(ledger.spent() == epsilon("0.3"), "three times 0.1 is not booked as 0.3")


def _reopened(stage: Stage) -> None:
    table, ledger = open_table(stage, ONE)
    table.noisy_count(spend=epsilon("3/4"))
    again = Ledger.open(ledger.path)
    require(again.spent() == epsilon("3/4"), "a ledger forgot what was spent")
    fresh = opened(DOMAIN, ROWS, ROWS, again)
    refused("more than is left", fresh.noisy_count, spend=epsilon("1/2"))
    new = {"dataset": "made up", "unit": add_remove_row(), "budget": ONE}
    refused("a second budget", Ledger.create, ledger.path, **new)
    again.verify()


def _replayed(stage: Stage) -> None:
    table, ledger = open_table(stage, ONE)
    vector = table.vectorise()
    first = vector.measure(mx.Identity(CELLS), spend=epsilon("1/2"), key="one")
    again = vector.measure(mx.Identity(CELLS), spend=epsilon("1/2"), key="one")
    require(first.values.tolist() == again.values.tolist(), "a key was answered twice, differently")
    require(ledger.spent() == epsilon("1/2"), "a replay was not free, or its first run was")
    half = epsilon("1/2")
    refused("a new use of a key", vector.measure, mx.total(CELLS), spend=half, key="one")


def _two_runs(stage: Stage) -> None:
    seen = {tuple(_drawn(open_table(stage)[0])) for _ in range(3)}
    require(len(seen) == 3, "noise came twice")


def _drawn(table: ProtectedTable) -> list[int]:
    return list(table.vectorise().measure(mx.Identity(CELLS), spend=ONE).values.tolist())


def _forked(stage: Stage) -> None:
    if not hasattr(os, "fork"):
        return  # nothing to attack
    table, _ = open_table(stage)
    _drawn(table)  # counts are made, so the child needs no engine
    place = stage.folder / "child"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, that the child never uses
        child = os.fork()
    if child == 0:
        try:
            place.write_text(repr(_drawn(table)))
        finally:
            os._exit(0)
    _wait(child)
    require(place.exists(), "a forked child could not measure")
    require(place.read_text() != repr(_drawn(table)), "a forked child drew its parent's noise")


def _wait(child: int) -> None:
    end = time.monotonic() + PATIENCE
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
        time.sleep(0.01)


LOOKS: tuple[Callable[[Any], Any], ...] = (
    np.asarray, np.sum, iter, list, len, bool, float, pickle.dumps, copy.copy, copy.deepcopy,
    lambda handle: handle[0], lambda handle: 1 in handle, lambda handle: np.ones(1) @ handle,
)  # fmt: skip


def _open_handles(stage: Stage) -> None:
    table, _ = open_table(stage)
    for handle in (table, table.vectorise()):
        for look in LOOKS:
            name = getattr(look, "__name__", "looking")
            refused(f"{name} of a handle", look, handle)
        for name in (name for name in dir(handle) if not name.startswith("_")):
            shown = getattr(handle, name)
            require(not isinstance(shown, np.ndarray), f"{name} of a handle shows an array")


def _evaluated_text(stage: Stage) -> None:
    table, _ = open_table(stage)
    mark = stage.folder / "mark"
    for text in (f"__import__('pathlib').Path({str(mark)!r}).touch()", "x > 3", "1=1; --"):
        refused("text as a condition", table.where, text)
    called: list[int] = []
    refused("a function as a condition", table.where, called.append)
    require(not mark.exists() and not called, "a condition was run")


def _rows_of_a_person(stage: Stage) -> None:
    ledger = stage.rich(person("person", max_rows=2), "epsilon")
    cells = np.repeat(np.arange(CELLS), 3)
    table = opened(DOMAIN, cells, np.zeros(cells.size, int), ledger)
    some = [table, *table.split("x").values()][: CELLS // 10]
    counts = [int(part.noisy_count(spend=SILENCE).values[0]) for part in some]
    require(counts[0] <= 2, f"{counts[0]} rows of a person count, of 2 that may")
    require(sum(counts[1:]) <= 2, f"{sum(counts[1:])} rows of a person count over parts")


ATTACKS = (
    Attack("floats, zero, negative and endless amounts, forged spends", "refused", _odd_amounts),
    Attack("a mask scaled by a million", "pays for its scale", _scaled_mask),
    Attack("a matrix that lies about its size", "refused", _lying_matrix),
    Attack("an array changed after its check", "has no effect", _changed_array),
    Attack("four times 0.1 of 0.3", "three granted, the fourth refused", _tenths),
    Attack("a ledger opened again", "remembers what was spent", _reopened),
    Attack("a key used twice", "the same values, charged once", _replayed),
    Attack("the same request on new ledgers", "other noise each time", _two_runs),
    Attack("a forked child", "draws noise of its own", _forked),
    Attack("handles listed, copied, pickled, turned into arrays", "refused", _open_handles),
    Attack("text and functions as conditions", "refused, and never run", _evaluated_text),
    Attack("a person with too many rows", "counts at most max_rows", _rows_of_a_person),
    *boundary.ATTACKS,
)


def checks(stage: Stage) -> Iterator[Finding]:
    """Every attack, once."""
    for attack in ATTACKS:
        outcome = "the attack failed"
        try:
            attack.attempt(stage)
        except GotThrough as how:
            outcome = f"IT GOT THROUGH: {how}"
        except Exception as error:  # noqa: BLE001 - a broken installation may fail anyhow
            outcome = f"IT BROKE OFF: {type(error).__name__}: {error}"
        yield Finding(
            kind="behaviour",
            name=attack.name,
            claimed=attack.claimed,
            verdict=outcome,
            ok=outcome == "the attack failed",
            runs=1,
        )
