"""What a ledger writes down, and how it lies on disk: a chain of records in one SQLite file.

Record 0 is the header: data set, unit and budget, for life. Then come charges, and the hashes of
values that were stored and may have been shown. Every record carries the sum that is spent
once it is written, so the last one is the state of the ledger. A charge records the price of its
request, the snapshot of the rows that it was made for, the splits above it (`lineage.Branch`), what
was asked of them and what was booked: less, if parts that paid before cover it. A key has a second
charge if its price rose, or if it is asked behind a split of another snapshot, before anything was
shown. What the parts of splits have asked and what covers them is kept beside the records, and
follows from them. A record's link is

    link = sha256([link before, number, kind, key, body])

so that an edit, a swap or a gap breaks the chain where it was made.

Privacy: nothing here is read from data. Keys, labels, fingerprints and schemas are what was asked;
the hashes are those of noisy values; a snapshot is named at random. A charge carries its time,
taken before the data are touched; stored values carry none, since it would show how long the
counting took (tests/kernel/test_ledger.py::test_records_hold_only_what_was_asked). What is written
is on disk before the call returns, or an error says that it may not be; no error of SQLite or of
the system passes through (tests/kernel/test_ledger_damage.py::test_trouble_is_told_in_words).
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, NamedTuple
from urllib.parse import quote

from psephos.errors import LedgerError, remedy_of
from psephos.kernel.ledger_copy import reading_connection
from psephos.kernel.lineage import Branch, rounded_up

Data = bytes | bytearray | memoryview
PATIENCE = 120.0  # seconds to wait for another process's transaction
CHUNK = 1 << 26  # bytes; SQLite holds no more than 10^9 in one place
FORMAT = 4
FORMAT_WITHOUT_TOTALS = 3
APPLICATION = 0x70736C67  # "pslg"
TABLES = [  # as SQLite keeps them; a file that holds anything else is no ledger
    "CREATE TABLE chunk (record INTEGER NOT NULL, start INTEGER NOT NULL, data BLOB NOT NULL, "
    "PRIMARY KEY (record, start))",
    "CREATE TABLE record (number INTEGER PRIMARY KEY, kind TEXT NOT NULL, key TEXT NOT NULL, "
    "body TEXT NOT NULL, link TEXT NOT NULL)",
    "CREATE INDEX record_of_key ON record (key, kind)",
]
TOTALS = "CREATE TABLE total (place TEXT PRIMARY KEY, amount TEXT NOT NULL)"
MARKS = [f"PRAGMA application_id = {APPLICATION}", f"PRAGMA user_version = {FORMAT}"]
LOGS = ("-wal", "-shm", "-journal")  # the names that SQLite may keep beside a file
# SQLite's locks do not survive a fork, nor a copy of the file made by the same process, while a
# connection is open. So none outlives the operation that needs it (which also leaves the ledger as
# one file, its log folded in), and a fork waits for the operations of other threads.
TURN = threading.RLock()


def _in_child() -> None:
    """End a child that its thread forked, as a signal handler might, in the middle of an operation.

    Privacy: whatever it did with its copy of the connection could undo what its parent has charged
    (tests/kernel/test_ledger_crashes.py::test_a_fork_inside_an_operation_ends_the_child).
    """
    count, _ = TURN._release_save()  # type: ignore[attr-defined] # more than the fork's own turn?
    if count > 1:
        os.write(2, b"psephos: forked in the middle of a ledger's operation; this child ends\n")
        os._exit(1)


os.register_at_fork(before=TURN.acquire, after_in_parent=TURN.release, after_in_child=_in_child)


class Record(NamedTuple):
    """One line of the ledger."""

    number: int
    kind: str
    key: str
    body: str
    link: str

    @classmethod
    def after(cls, before: Record | None, kind: str, key: str, body: dict[str, Any]) -> Record:
        """The next record, with the sum that is spent by then; the header comes after None."""
        number, spent = (before.number + 1, before.spent) if before else (0, Fraction(0))
        spent = added(spent, body)
        text = json.dumps({**body, "spent": str(spent)}, sort_keys=True)
        unlinked = cls(number, kind, key, text, "")
        return unlinked._replace(link=unlinked.link_after(before))

    def link_after(self, before: Record | None) -> str:
        """The link that this record has behind another."""
        text = json.dumps([before.link if before else "", *self[:4]], default=repr)
        return hashlib.sha256(text.encode()).hexdigest()

    @contextmanager
    def read(self) -> Iterator[dict[str, Any]]:
        """The body; whatever does not fit while it is read is told in words."""
        try:
            yield json.loads(self.body)
        except (ValueError, KeyError, TypeError, ArithmeticError):
            raise LedgerError(f"{self} makes no sense") from None

    @property
    def spent(self) -> Fraction:
        """The sum of all charges up to this record."""
        with self.read() as body:
            return Fraction(body["spent"])

    def __str__(self) -> str:
        return f"record {self.number} ({self.kind})"


def added(spent: Fraction, body: dict[str, Any]) -> Fraction:
    """The sum once a record is written: exact, or rounded up by 2⁻³⁰⁰ where it gets too long.

    Privacy: never less than what was charged. A sum that is refused for its length would let
    anybody close a ledger with a few odd amounts
    (tests/attacks/test_small_requests_that_swell.py::test_tiny_charges_leave_the_ledger_usable).
    """
    return rounded_up(spent + Fraction(body.get("booked", 0)))


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def build(path: str, header: Record) -> None:
    """A new ledger at a free path, open to its owner only; a crash leaves it whole or empty."""
    with TURN, _in_words(path):
        folder = os.path.dirname(path)
        if not os.path.isdir(folder):
            raise LedgerError(f"there is no folder {folder}; make it first")
        if any(os.path.lexists(path + end) for end in LOGS):
            raise FileExistsError(errno.EEXIST, "its log")
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        with _connect(path) as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("BEGIN IMMEDIATE")
            for statement in (*TABLES, TOTALS, *MARKS):
                db.execute(statement)
            append(db, header)
            db.execute("COMMIT")
        for place in (path, folder):
            fd = os.open(place, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


@contextmanager
def operation(path: str, begin: str = "BEGIN") -> Iterator[sqlite3.Connection]:
    """One transaction, committed to disk at its end, or undone; a plain BEGIN only reads."""
    with TURN, _in_words(path), _connect(path, writes=begin != "BEGIN") as db:
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


def keep(db: sqlite3.Connection, key: str, data: Data, snapshot: str) -> None:
    """The values of a key, together with the record that vouches for them."""
    view = memoryview(data).cast("B")
    body = {"sha256": hashlib.sha256(view).hexdigest(), "snapshot": snapshot}
    record = append(db, Record.after(last(db), "stored", key, body))
    for start in range(0, len(view), CHUNK):
        chunk = (record.number, start, view[start : start + CHUNK])
        db.execute("INSERT INTO chunk VALUES (?, ?, ?)", chunk)


def totals_of(
    db: sqlite3.Connection, snapshot: str, branches: Sequence[Branch]
) -> dict[str, Fraction]:
    """What was asked of the parts of splits, and covered, in a snapshot."""
    totals: dict[str, Fraction] = {}
    for place in (name for branch in branches for name in branch):
        rows = db.execute("SELECT amount FROM total WHERE place = ?", (f"{snapshot} {place}",))
        for (amount,) in rows:
            totals[place] = Fraction(amount)
    return totals


def set_totals(db: sqlite3.Connection, snapshot: str, totals: dict[str, Fraction]) -> None:
    """Write totals down, in the transaction of the charge that they follow from."""
    rows = [(f"{snapshot} {place}", str(amount)) for place, amount in totals.items()]
    db.executemany("INSERT OR REPLACE INTO total VALUES (?, ?)", rows)


def all_totals(db: sqlite3.Connection) -> dict[str, str]:
    """What the ledger keeps beside its records; nothing in the format before."""
    held = db.execute("SELECT name FROM sqlite_master WHERE name = 'total'").fetchall()
    return dict(db.execute("SELECT place, amount FROM total")) if held else {}


def upgrade(db: sqlite3.Connection) -> None:
    """Make room for totals in a ledger of the format before; its charges stand as they are."""
    if db.execute("PRAGMA user_version").fetchone() == (FORMAT_WITHOUT_TOTALS,):
        for statement in (TOTALS, *MARKS):
            db.execute(statement)


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
            lost = f"the values of {record} are missing, or not those that were stored"
            raise LedgerError(f"{lost}. They may have been seen: bring the ledger back from a copy")
        return data
    return None


@contextmanager
def _in_words(path: str) -> Iterator[None]:
    """Every error as a LedgerError that says where, and what to do."""
    try:
        yield
    except LedgerError as error:
        raise LedgerError(error.reason, path) from None
    except (sqlite3.Error, OSError) as error:
        raise LedgerError(remedy_of(error), path) from None


@contextmanager
def _connect(path: str, *, writes: bool = True) -> Iterator[sqlite3.Connection]:
    """A connection that is closed whatever happens, also if the file is no database."""
    if os.stat(path).st_nlink > 1:
        raise LedgerError("it has a second name (a hard link), and so a second log; delete it")
    uri = f"file:{quote(os.fsencode(path))}?mode=rw"
    copy = None if writes else reading_connection(path, PATIENCE)
    database = copy or sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)
    with closing(database) as db:
        db.execute("PRAGMA synchronous = FULL")
        yield db


def _recognise(db: sqlite3.Connection) -> None:
    """Refuse every file that is not a ledger of this format."""
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    held = db.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
    tables = [sql for (sql,) in held]
    if not tables and not application:
        raise LedgerError("its creation was cut short; delete it and create it again")
    if application != APPLICATION:
        raise LedgerError("this is an SQLite file, but no psephos ledger; check the path")
    if version not in (FORMAT_WITHOUT_TOTALS, FORMAT):
        remedy = "use the psephos that wrote it"
        raise LedgerError(f"it has format {version}, and this psephos reads {FORMAT}; {remedy}")
    if tables != [*TABLES, TOTALS][: len(TABLES) + version - FORMAT_WITHOUT_TOTALS]:
        raise LedgerError("its tables are not those of a ledger; it was changed by hand")
