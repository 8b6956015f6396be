"""Attacks that need no statistics: each either gets through or does not.

Here are those whose outcome an installation can change: the system's entropy, processes, locks and
logs of SQLite on the disk of temporary files, engines, numeric libraries. What the kernel's own
logic decides is the same on every machine, and attacked in tests/attacks.
"""

from __future__ import annotations

import math
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow.csv import write_csv
from pyarrow.parquet import write_table

import psephos.matrix as mx
from psephos.audit.stage import (
    CELLS_OF_ROWS,
    ONE,
    PLENTY,
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
)
from psephos.domain.domain import Domain
from psephos.errors import BudgetExceededError
from psephos.kernel.budget import Budget
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.unit import add_remove_row, person
from psephos.protect import protect

CHILD_SECONDS = 30.0
"""How long forked children may take for their measurements."""
CHILDREN = 3
CHARGES = 40
"""How many charges of children use a budget up."""
LARGEST_EXACT_FLOAT = 2**53
FAILURE = "the attack failed"


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


def _equal_requests(stage: Stage) -> None:
    outcomes = {tuple(_noisy_counts(open_table(stage)[0])) for _ in range(3)}
    require(len(outcomes) == 3, "noise came twice")


def _noisy_counts(table: ProtectedTable) -> list[int]:
    return list(table.vectorise().measure(mx.Identity(TABLE_CELLS), spend=ONE).values.tolist())


def _fork(work: Callable[[], object]) -> int:
    """A child that does the work, and ends."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, that the child never uses
        child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return child


def _wait(children: list[int]) -> None:
    end = time.monotonic() + CHILD_SECONDS
    for child in children:
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > end:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                break
            time.sleep(0.01)


def _forked_child(stage: Stage) -> None:
    if not hasattr(os, "fork"):
        return  # nothing to attack
    table, _ = open_table(stage)
    _noisy_counts(table)  # the counts are cached from here on, so the child needs no engine
    output = stage.folder / "child"
    _wait([_fork(lambda: output.write_text(repr(_noisy_counts(table))))])
    require(output.exists(), "a forked child could not measure")
    require(
        output.read_text() != repr(_noisy_counts(table)), "a forked child drew its parent's noise"
    )


def _processes_at_once(stage: Stage) -> None:
    """Children ask until nothing is left, all of one ledger; the first is killed on its way."""
    if not hasattr(os, "fork"):
        return  # nothing to attack
    table, ledger = open_table(stage, ONE)
    part = ONE / CHARGES
    table.noisy_count(spend=part)  # what is counted is cached from here on

    def ask() -> None:
        with suppress(BudgetExceededError):
            while True:
                table.noisy_count(spend=part)

    children = [_fork(ask) for _ in range(CHILDREN)]
    end = time.monotonic() + CHILD_SECONDS
    while len(ledger.history()) < CHARGES / 4 and time.monotonic() < end:
        time.sleep(0.001)
    os.kill(children[0], signal.SIGKILL)
    _wait(children)
    ledger.verify()
    charges = len(ledger.history())
    require(charges == CHARGES, f"{charges} charges were granted of {CHARGES}")
    require(ledger.spent() == ONE, f"processes at once have spent {ledger.spent()} of {ONE}")


def _rows_of_a_person(stage: Stage) -> None:
    ledger = stage.endless_ledger(person("person", max_rows=2), "epsilon")
    cells = np.repeat(np.arange(TABLE_CELLS), 3)
    table = protect_rows(TABLE_DOMAIN, cells, np.zeros(cells.size, int), ledger)
    tables = [table, *table.split("x").values()][: TABLE_CELLS // 10]
    counts = [int(part.noisy_count(spend=SILENCE).values[0]) for part in tables]
    require(counts[0] <= 2, f"{counts[0]} rows of a person count, of 2 that may")
    require(sum(counts[1:]) <= 2, f"{sum(counts[1:])} rows of a person count over parts")


def _row_formats(stage: Stage) -> None:
    """Entries of text and numbers, from files and from the frames that are installed."""
    words = np.array(["ä", "b, c", '"d"', "0"])
    domain = Domain.of(x=TABLE_CELLS // len(words), y=words.tolist())
    x, y = np.unravel_index(CELLS_OF_ROWS, domain.shape)
    rows = pa.table({"x": x, "y": words[y]})
    sources: dict[str, Any] = {name: stage.folder / f"rows.{name}" for name in ("csv", "parquet")}
    write_csv(rows, sources["csv"])
    write_table(rows, sources["parquet"])
    sources["arrow"] = rows
    if find_spec("pandas"):
        sources["pandas"] = rows.to_pandas()
    if find_spec("polars"):
        sources["polars"] = import_module("polars").from_arrow(rows)
    for name, source in sources.items():
        ledger = stage.endless_ledger(add_remove_row(), "epsilon")
        vector = protect(source, domain, ledger=ledger).vectorise()
        counts = vector.measure(mx.Identity(TABLE_CELLS), spend=SILENCE).values
        require(np.array_equal(counts, TRUE_COUNTS), f"rows of {name} are counted otherwise")


def _large_sums(stage: Stage) -> None:
    """Sums up to the largest that floats hold exactly, of one vector and of ten at once."""
    size = math.isqrt(TABLE_CELLS)
    entries = LARGEST_EXACT_FLOAT // (2 * size) - np.arange(size**2).reshape(size, size)
    entries[::2] *= -1
    whole = np.tile(entries, size)
    by_row = mx.Kron((mx.Identity(size), mx.Dense(entries)))
    counts = TRUE_COUNTS.astype(object)  # Python's own integers
    expected = [*(whole @ counts), *(counts.reshape(size, size) @ entries.T).ravel()]
    vector, spend = open_table(stage)[0].vectorise(), Budget("epsilon", PLENTY)
    values = vector.measure(mx.Stack((mx.Dense(whole), by_row)), spend=spend).values
    require(values.tolist() == expected, "sums of large numbers are not those of integers")


BEHAVIOUR_ATTACKS = (
    Attack("the same request on new ledgers", "other noise each time", _equal_requests),
    Attack("a forked child", "draws noise of its own", _forked_child),
    Attack("processes at once, one of them killed", "spend the budget once", _processes_at_once),
    Attack("a person with too many rows", "counts at most max_rows", _rows_of_a_person),
    Attack("the same rows in files and frames", "the same counts", _row_formats),
    Attack("sums as large as floats are exact", "the same integers", _large_sums),
)
