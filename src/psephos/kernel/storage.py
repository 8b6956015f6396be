"""How a ledger lies on disk: one SQLite file, whole transactions, and errors in words.

Privacy: what is written is on disk before the call returns, or an error says that it may not be;
no error of SQLite or of the system passes through
(tests/kernel/test_ledger_damage.py::test_trouble_is_told_in_words).
"""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import quote

from psephos.errors import LedgerError
from psephos.kernel.records import Record

Data = bytes | bytearray | memoryview
PATIENCE = 120.0  # seconds to wait for another process's transaction
CHUNK = 1 << 26  # bytes; SQLite holds no more than 10^9 in one place
FORMAT = 2
APPLICATION = 0x70736C67  # "pslg"
TABLES = [  # as SQLite keeps them; a file that holds anything else is no ledger
    "CREATE TABLE chunk (record INTEGER NOT NULL, start INTEGER NOT NULL, data BLOB NOT NULL, "
    "PRIMARY KEY (record, start))",
    "CREATE TABLE record (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, "
    "body TEXT NOT NULL, link TEXT NOT NULL, UNIQUE (key, kind))",
]
MARKS = [f"PRAGMA application_id = {APPLICATION}", f"PRAGMA user_version = {FORMAT}"]
LOGS = ("-wal", "-shm", "-journal")  # the names that SQLite may keep beside a file
_REMEDIES = {
    "SQLITE_FULL SQLITE_IOERR ENOSPC EDQUOT EIO": "the disk is full or failing; nothing was shown. "
    "Make room, then ask again with the same key: what was charged is not charged twice",
    "SQLITE_BUSY SQLITE_LOCKED SQLITE_CONSTRAINT": "another process keeps it locked, or wrote to "
    "it meanwhile; nothing was shown. Wait for that one, then ask again",
    "SQLITE_READONLY SQLITE_CANTOPEN SQLITE_PERM EROFS EACCES EPERM ENOENT": "it or its folder "
    "cannot be opened for writing; nothing was shown. Check that both are there, and their "
    "permissions",
    "SQLITE_NOTADB SQLITE_CORRUPT": "this is no psephos ledger, or a damaged one. Check the path, "
    "or ask the owner for the last good copy and its anchor",
    "EEXIST": "it, or an old log of that name (-wal, -shm, -journal), is there already, and a "
    "budget is given once. Open it with Ledger.open, or choose another path for other data",
}
# SQLite's locks do not survive a fork, nor a copy of the file made by the same process, while a
# connection is open. So none outlives the operation that needs it (which also leaves the ledger as
# one file, its log folded in), and a fork waits for the operation under way.
TURN = threading.RLock()
os.register_at_fork(before=TURN.acquire, after_in_parent=TURN.release, after_in_child=TURN.release)


def build(path: str, header: Record) -> None:
    """A new ledger at a free path, open to its owner only; a crash leaves it whole or empty."""
    with TURN, _in_words(path):
        folder = os.path.dirname(path)
        if not os.path.isdir(folder):
            raise LedgerError(f"there is no folder {folder}; make it first")
        if any(os.path.lexists(path + end) for end in LOGS):
            raise FileExistsError(errno.EEXIST, "its log")
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with closing(_connect(path)) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("BEGIN IMMEDIATE")
            for statement in (*TABLES, *MARKS):
                db.execute(statement)
            append(db, header)
            db.execute("COMMIT")
        for place in (path, folder):
            fd = os.open(place, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


@contextmanager
def operation(path: str, begin: str = "BEGIN") -> Iterator[sqlite3.Connection]:
    """One transaction, committed to disk at its end, or undone."""
    with TURN, _in_words(path), closing(_connect(path)) as db:
        db.execute(begin)
        _recognise(db)
        yield db
        db.execute("COMMIT")


def fetch(db: sqlite3.Connection, where: str = "1", *values: Any) -> list[Record]:
    """The records that meet a condition, in order."""
    rows = db.execute(f"SELECT * FROM record WHERE {where} ORDER BY number", values)
    return [Record(*row) for row in rows]


def last(db: sqlite3.Connection) -> Record:
    """The record that was written last: the state of the ledger."""
    return fetch(db, "number = (SELECT max(number) FROM record)")[0]


def append(db: sqlite3.Connection, record: Record) -> Record:
    """Write a record; should its number be taken by now, an error."""
    db.execute("INSERT INTO record VALUES (?, ?, ?, ?, ?)", record)
    return record


def keep(db: sqlite3.Connection, key: str, data: Data) -> None:
    """The values of a key, together with the record that vouches for them."""
    view = memoryview(data).cast("B")
    body = {"sha256": hashlib.sha256(view).hexdigest()}
    record = append(db, Record.after(last(db), "stored", key, body))
    for start in range(0, len(view), CHUNK):
        chunk = (record.number, start, view[start : start + CHUNK])
        db.execute("INSERT INTO chunk VALUES (?, ?, ?)", chunk)


def kept(db: sqlite3.Connection, key: str) -> Data | None:
    """The values of a key, if they are the ones that were stored; None if none were."""
    data = bytearray()
    for record in fetch(db, "key = ? AND kind = 'stored'", key):
        ours = "SELECT data FROM chunk WHERE record = ? ORDER BY start"
        with record.read() as body:
            stored = body["sha256"]
            for (chunk,) in db.execute(ours, (record.number,)):
                data += chunk
        if hashlib.sha256(data).hexdigest() != stored:
            raise LedgerError(
                f"the values of {record} are missing, or not those that were stored. They may have "
                "been seen, so they are not drawn again: bring the ledger back from a backup"
            )
        return data
    return None


@contextmanager
def _in_words(path: str) -> Iterator[None]:
    """Every error as a LedgerError that says where, and what to do."""
    try:
        yield
    except LedgerError as error:
        raise LedgerError(f"{path}: {error}") from None
    except (sqlite3.Error, OSError) as error:
        code = errno.errorcode.get(getattr(error, "errno", None) or 0, "")
        code = getattr(error, "sqlite_errorname", code)
        known = (w for codes, w in _REMEDIES.items() if code.startswith(tuple(codes.split())))
        raise LedgerError(f"{path}: {next(known, str(error))}") from None


def _connect(path: str) -> sqlite3.Connection:
    if os.stat(path).st_nlink > 1:
        raise LedgerError("it has a second name (a hard link), and so a second log; delete it")
    uri = f"file:{quote(os.fsencode(path))}?mode=rw"
    db = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
    db.execute("PRAGMA synchronous = FULL")
    return db


def _recognise(db: sqlite3.Connection) -> None:
    """Refuse every file that is not a ledger of this format."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    held = db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
    tables = [sql for (sql,) in held]
    if not tables and not application:
        raise LedgerError(
            "it is empty. Unless it is being made right now, its creation was cut short; delete it "
            "and create it again"
        )
    if application != APPLICATION:
        raise LedgerError("this is an SQLite file, but no psephos ledger; check the path")
    if version != FORMAT:
        raise LedgerError(
            f"it has format {version}, and this psephos reads {FORMAT}; use the one that wrote it"
        )
    if tables != TABLES:
        raise LedgerError("its tables are not those of a ledger; it was changed by hand")
