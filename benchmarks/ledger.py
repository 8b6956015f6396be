"""Charges per second of a ledger on this disk, next to what the disk itself can do.

A charge is on disk before it is granted, so the disk sets the pace: a charge waits for about five
syncs (the log, its folder, and the fold into the file when the connection closes), storing values
for as many again. Large values pass through the log, so they are written twice. A folder to
measure in may be given: python -m benchmarks.ledger /mnt/x
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.measure import table
from psephos.kernel.budget import epsilon
from psephos.kernel.ledger import Charge, Ledger
from psephos.kernel.unit import add_remove_row

COST = epsilon("1/1000000")
WORDS: dict[str, Any] = {"label": "benchmark", "schema": "s", "snapshot": "rows"}
VALUES = bytes(8 * 1000)


def rate(call: Callable[[], Any], seconds: float = 3.0) -> float:
    """Calls per second."""
    begin, calls = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        call()
        calls += 1
    return calls / (time.perf_counter() - begin)


def request(ledger: Ledger, key: str | None = None) -> None:
    asked = ledger._charge(Charge(key, "f", COST, **WORDS))
    if asked.values is None:
        asked._store(VALUES)


def charge_for(path: Path, seconds: float) -> None:
    ledger = Ledger.open(path)
    rate(lambda: ledger._charge(Charge(None, "f", COST, **WORDS)), seconds)


def together(ledger: Ledger, processes: int, seconds: float = 3.0) -> float:
    """Charges per second of several processes on one ledger."""
    before, context = len(ledger.history()), get_context("spawn")
    workers = [
        context.Process(target=charge_for, args=(ledger.path, seconds)) for _ in range(processes)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return (len(ledger.history()) - before) / seconds


def large(folder: Path, cells: int = 10**7) -> list[str]:
    """The time to store the answers of many cells, and to read them back."""
    ledger = Ledger.create(
        folder / "large.ledger", dataset="bench", unit=add_remove_row(), budget=epsilon("1")
    )
    asked, data = ledger._charge(Charge("k", "f", COST, **WORDS)), bytes(8 * cells)
    begin = time.perf_counter()
    asked._store(data)
    stored = time.perf_counter()
    ledger._charge(Charge("k", "f", COST, **WORDS))
    read = time.perf_counter()
    return [f"store {cells:.0e} values; replay", f"{stored - begin:.2f} s; {read - stored:.2f} s"]


def main(folder: Path) -> None:
    ledger = Ledger.create(
        folder / "bench.ledger", dataset="bench", unit=add_remove_row(), budget=epsilon("1")
    )
    request(ledger, "known")
    with open(folder / "plain", "wb", buffering=0) as file:

        def synced() -> None:
            file.write(VALUES)
            os.fsync(file.fileno())

        rows = [["write 8 kB and sync, no ledger", f"{rate(synced):.0f} /s"]]
    for name, call in {
        "charge": lambda: ledger._charge(Charge(None, "f", COST, **WORDS)),
        "charge and store 8 kB": lambda: request(ledger),
        "replay": lambda: request(ledger, "known"),
        "remaining": ledger.remaining,
    }.items():
        rows.append([name, f"{rate(call):.0f} /s"])
    rows.append(["charge, 4 processes on one ledger", f"{together(ledger, 4):.0f} /s"])
    begin = time.perf_counter()
    ledger.verify()
    entries = ledger.anchor().entries
    rows.append([f"verify {entries} records", f"{time.perf_counter() - begin:.2f} s"])
    rows.append(large(folder))
    table(["operation", "rate"], rows)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if sys.argv[1:] else None) as made:
        main(Path(made))
