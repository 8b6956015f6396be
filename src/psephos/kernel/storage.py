"""How a ledger lies on disk: whole transactions, whole files, locks, and errors in words.

Privacy: what is written is on disk before the call returns, or an error says that it may not be;
no error of SQLite or of the system passes through
(tests/kernel/test_ledger_damage.py::test_trouble_is_told_in_words).
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from fractions import Fraction
from glob import escape, glob
from typing import Any, NamedTuple
from urllib.parse import quote

from psephos.errors import LedgerError
from psephos.kernel.records import Body, Kind, Record, amount_text

PATIENCE = 30.0  # seconds to wait for another process's transaction
KEY_PATIENCE = 600.0  # seconds to wait while another request of the same key is answered
FORMAT = 1
APPLICATION = 0x70736C67  # "pslg"
TABLES = [  # as SQLite keeps them; a file that holds anything else is no ledger
    "CREATE TABLE record (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, "
    "body TEXT NOT NULL, link TEXT NOT NULL, UNIQUE (key, kind))",
    "CREATE TABLE total (one INTEGER PRIMARY KEY CHECK (one = 1), spent TEXT NOT NULL, "
    "number INTEGER NOT NULL, head TEXT NOT NULL)",
]
LOGS = ("-wal", "-shm", "-journal")  # the names that SQLite may keep beside a file
_REMEDIES = {
    "SQLITE_FULL SQLITE_IOERR ENOSPC EDQUOT EIO": "the disk is full or failing; nothing was shown. "
    "Make room, then ask again with the same key: what was charged is not charged twice",
    "SQLITE_BUSY SQLITE_LOCKED": "another process keeps it locked; nothing was shown. Wait for "
    "that one, then ask again",
    "SQLITE_READONLY SQLITE_CANTOPEN SQLITE_PERM EROFS EACCES EPERM ENOENT": "it or its folder "
    "cannot be opened for writing; nothing was shown. Check that both are there, and their "
    "permissions",
    "SQLITE_NOTADB SQLITE_CORRUPT": "this is no psephos ledger, or a damaged one. Check the path, "
    "or ask the owner for the last good copy and its anchor",
    "EEXIST": "another process has just made it; open that one",
}
# SQLite's locks do not survive a fork, nor a copy of the file made by the same process, while a
# connection is open. So none outlives the operation that needs it (which also leaves the ledger as
# one file, its log folded in), and a fork waits for the operation under way.
TURN = threading.RLock()
os.register_at_fork(before=TURN.acquire, after_in_parent=TURN.release, after_in_child=TURN.release)


class Total(NamedTuple):
    """The sum of all charges, and where the chain of records ends."""

    spent: Fraction
    number: int
    head: str


@contextmanager
def in_words(path: str) -> Iterator[None]:
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


@contextmanager
def operation(path: str, begin: str = "BEGIN") -> Iterator[sqlite3.Connection]:
    """One transaction, committed to disk at its end, or undone."""
    with TURN, in_words(path):
        if os.stat(path).st_nlink > 1 and not _finish(path):
            raise LedgerError("it has a second name (a hard link), and so a second log; delete it")
        with closing(_connect(path)) as db:
            db.execute(begin)
            _recognise(db)
            yield db
            db.execute("COMMIT")


def fetch(db: sqlite3.Connection, where: str = "1", *values: Any) -> list[Record]:
    """The records that meet a condition, in order."""
    rows = db.execute(f"SELECT * FROM record WHERE {where} ORDER BY number", values)
    return [Record(*row) for row in rows]


def total(db: sqlite3.Connection) -> Total:
    """The running total."""
    with suppress(ValueError, TypeError, ArithmeticError):
        spent, number, head = db.execute("SELECT spent, number, head FROM total").fetchone()
        return Total(Fraction(spent), int(number), str(head))
    raise LedgerError("the running total is gone or makes no sense")


def append(db: sqlite3.Connection, old: Total, kind: Kind, key: str, body: Body) -> Record:
    """The next record, and the new total in place of the old, if the old one still stands."""
    record = Record.after(old.head, old.number + 1, kind, key, body)
    spent = amount_text(old.spent + Fraction(body.get("cost", 0)))
    db.execute("INSERT INTO record VALUES (?, ?, ?, ?, ?)", record)
    changed = db.execute(
        "UPDATE total SET spent = ?, number = ?, head = ? "
        "WHERE spent = ? AND number = ? AND head = ?",
        (spent, record.number, record.link, amount_text(old.spent), old.number, old.head),
    )
    if changed.rowcount != 1:
        raise LedgerError("the running total was changed by another hand; nothing was charged")
    return record


def build(path: str, header: Record) -> None:
    """A new ledger at a free path, whole or not at all, open to its owner only."""
    folder, side = os.path.dirname(path), path + ".values"
    if not os.path.isdir(folder):
        raise LedgerError(f"there is no folder {folder}; make it first")
    taken = [path, side, *(path + end for end in LOGS)]
    if os.path.isdir(side) and not os.listdir(side):
        taken.remove(side)  # a crash can leave an empty folder
    for other in filter(os.path.lexists, taken):
        raise LedgerError(
            f"{other} is there already, and a budget is given once. Open the ledger with "
            "Ledger.open, or choose another path for other data"
        )
    draft = f"{path}.{secrets.token_hex(8)}.new"
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with closing(_connect(draft)) as db:
            for table in TABLES:
                db.execute(table)
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {FORMAT}")
            db.execute("INSERT INTO record VALUES (?, ?, ?, ?, ?)", header)
            db.execute("INSERT INTO total VALUES (1, '0/1', 0, ?)", (header.link,))
            db.execute("PRAGMA journal_mode = WAL")  # last: nothing of the ledger is in a log
        sync(draft)
        with suppress(FileExistsError):
            os.mkdir(side, 0o700)
        os.link(draft, path)  # unlike a rename, this refuses a path that is taken by now
    finally:
        for end in ("", *LOGS):
            with suppress(OSError):
                os.unlink(draft + end)
    sync(folder)


def _finish(path: str) -> bool:
    """Remove the draft's name if a crash came between `link` and `unlink` in `build`."""
    for draft in glob(f"{escape(path)}.*.new"):
        with suppress(OSError):
            if os.path.samefile(draft, path):
                os.unlink(draft)
    return os.stat(path).st_nlink == 1


def write_whole(path: str, data: bytes) -> None:
    """A file with these bytes, on disk, or the file that was there before."""
    draft = path + ".new"  # one writer at a time: the key's lock is held
    fd = os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
    with open(fd, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(fd)
    os.replace(draft, path)
    sync(os.path.dirname(path))


def sync(path: str) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def locked(path: str) -> Iterator[None]:
    """Hold a lock file, alone among processes and threads; it goes when its holder does."""
    owner, deadline = os.getpid(), time.monotonic() + KEY_PATIENCE
    with in_words(path):
        while (fd := _try_lock(path)) is None:
            if time.monotonic() > deadline:
                raise LedgerError("another request with this key is not answered yet; wait for it")
            time.sleep(0.005)
    try:
        yield
    finally:
        if os.getpid() == owner:  # a child that was forked meanwhile does not unlock its parent
            with suppress(OSError):
                os.unlink(path)
            fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _try_lock(path: str) -> int | None:
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    with suppress(BlockingIOError, FileNotFoundError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(fd), os.stat(path)):  # else its last holder removed it
            return fd
    os.close(fd)
    return None


def _connect(path: str) -> sqlite3.Connection:
    uri = f"file:{quote(os.fsencode(path))}?mode=rw"
    db = sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
    db.execute("PRAGMA synchronous = FULL")
    return db


def _recognise(db: sqlite3.Connection) -> None:
    """Refuse every file that is not a ledger of this format."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    held = db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
    if application != APPLICATION:
        raise LedgerError("this is an SQLite file, but no psephos ledger; check the path")
    if version != FORMAT:
        raise LedgerError(
            f"it has format {version}, and this psephos reads {FORMAT}; use the one that wrote it"
        )
    if [sql for (sql,) in held] != TABLES:
        raise LedgerError("its tables are not those of a ledger; it was changed by hand")
