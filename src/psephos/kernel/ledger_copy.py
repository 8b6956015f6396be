"""Reading a ledger by somebody who may write neither the file nor its folder.

SQLite needs an index beside a file with a log, which such a reader cannot make. Nothing is charged
by way of this file: a charge asks to write, and is refused (tests/kernel/test_ledger_readers.py).
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote


def reading_connection(path: str, patience: float) -> sqlite3.Connection | None:
    """A connection to a copy in memory, or to a file with a log; None for who may write."""
    if os.access(path, os.W_OK) and os.access(os.path.dirname(path), os.W_OK):
        return None
    copy = copy_at_rest(path)
    place = f"file:{quote(os.fsencode(path))}?mode=ro" if copy is None else ":memory:"
    db = sqlite3.connect(place, uri=True, timeout=patience, isolation_level=None)
    if copy is not None:
        db.deserialize(copy)
    return db


def copy_at_rest(path: str) -> bytes | None:
    """The bytes of a ledger that nobody writes to; None if there is a log.

    SQLite writes to the file only while a log lies beside it. If none did before, between and after
    two readings that agree, then no writing fell into the first: it would have been over by the
    second, which had then differed. With a log comes its index, which others may read, and SQLite
    reads all three in its own way.
    """
    first, second = None, b""
    while not os.path.lexists(f"{path}-wal"):
        if first == second:
            return second[:18] + b"\1\1" + second[20:]  # of a file that has no log
        first, second = second, Path(path).read_bytes()
    return None
